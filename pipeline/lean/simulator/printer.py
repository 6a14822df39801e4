"""Print terms and goals as Lean does by default."""

from __future__ import annotations

from pipeline.lean.simulator.meta import Context, Meta
from pipeline.lean.simulator.terms import (
    PROP,
    App,
    Bind,
    BVar,
    Const,
    Decide,
    FVar,
    Lam,
    Lit,
    MVar,
    Pi,
    Sorry,
    Sort,
    Term,
    Text,
    has_loose,
    instantiate,
    nodes,
    spine,
)

# constant -> (arguments, of which the last two are shown; text; strength; left, right)
_INFIX: dict[str, tuple[int, str, int, int, int]] = {
    "And": (2, "∧", 35, 36, 35),
    "Or": (2, "∨", 30, 31, 30),
    "Iff": (2, "↔", 20, 21, 21),
    "Eq": (3, "=", 50, 51, 51),
    "Ne": (3, "≠", 50, 51, 51),
    "Nat.lt": (2, "<", 50, 51, 51),
    "Nat.le": (2, "≤", 50, 51, 51),
    "Nat.gt": (2, ">", 50, 51, 51),
    "Nat.ge": (2, "≥", 50, 51, 51),
    "Nat.add": (2, "+", 65, 65, 66),
    "Nat.sub": (2, "-", 65, 65, 66),
    "Nat.mul": (2, "*", 70, 70, 71),
    "Nat.div": (2, "/", 70, 70, 71),
    "Nat.mod": (2, "%", 70, 70, 71),
    "Nat.pow": (2, "^", 75, 76, 75),
}
_APP, _MAX = 1024, 1025


class Printer:
    """Prints terms of one `Meta`, with the hypotheses' names as one context has them."""

    def __init__(self, meta: Meta, context: Context = ()) -> None:
        self.meta = meta
        self.names = {local.fvar: local.name for local in context}

    def show(self, term: Term) -> str:
        return self._term(self.meta.instantiate(term), 0)

    def _term(self, term: Term, strength: int) -> str:  # noqa: C901 - one case per kind of term
        match term:
            case Sort(0):
                return "Prop"
            case Sort(level):
                return "Type" if level == 1 else self._wrap(f"Type {level - 1}", _APP, strength)
            case Lit(value):
                return str(value)
            case Text(source):
                return source
            case FVar(number):
                return self.names.get(number, f"_fvar.{number}")
            case MVar(number):
                tag = self.meta.holes[number].tag if number in self.meta.holes else ""
                return f"?{tag}" if tag else f"?m.{number}"
            case Const(name):
                return name
            case BVar(index):
                return f"#{index}"
            case Decide():
                return self._wrap("of_decide_eq_true (Eq.refl true)", _APP, strength)
            case Sorry():
                return "sorry"
            case Bind(pi, fvar, name, kind, body):
                self.names.setdefault(fvar, name)
                if pi:
                    return self._wrap(
                        f"∀ ({name} : {self._term(kind, 0)}), {self._term(body, 0)}", 0, strength
                    )
                return self._lambda(term, strength)
            case Pi():
                return self._pi(term, strength)
            case Lam():
                return self._lambda(term, strength)
            case App():
                return self._application(term, strength)
        raise AssertionError(term)

    @staticmethod
    def _wrap(text: str, own: int, strength: int) -> str:
        return f"({text})" if own < strength else text

    def _application(self, term: App, strength: int) -> str:
        head, args = spine(term)
        if isinstance(head, Const):
            infix = _INFIX.get(head.name)
            if infix is not None and len(args) == infix[0]:
                _, text, own, left, right = infix
                shown = f"{self._term(args[-2], left)} {text} {self._term(args[-1], right)}"
                return self._wrap(shown, own, strength)
            if head.name == "Not" and len(args) == 1:
                # `¬` takes an operand of strength 40 and is itself as strong as an application.
                return self._wrap(f"¬{self._term(args[0], 40)}", _MAX, min(strength, _MAX))
            if head.name == "Exists" and len(args) == 2 and isinstance(args[1], Lam):
                name, body = self._open(args[1], args[1].body)
                return self._wrap(f"∃ {name}, {self._term(body, 0)}", 0, strength)
            shown_args = self._explicit(head.name, args)
            if not shown_args:
                return head.name
            return self._wrap(
                " ".join([head.name, *(self._term(a, _MAX) for a in shown_args)]), _APP, strength
            )
        return self._wrap(" ".join(self._term(a, _MAX) for a in (head, *args)), _APP, strength)

    def _explicit(self, name: str, args: list[Term]) -> list[Term]:
        constant = self.meta.env.get(name)
        kind: Term | None = constant.type if constant else None
        shown = []
        for arg in args:
            if not (isinstance(kind, Pi) and kind.info == "implicit"):
                shown.append(arg)
            kind = kind.body if isinstance(kind, Pi) else None
        return shown

    def _open(self, binder: Pi | Lam, body: Term) -> tuple[str, Term]:
        """Name the bound variable so that it hides nothing that the body shows."""
        used = {self.names.get(n.id, "") for n in nodes(body) if isinstance(n, FVar)}
        used |= {n.name for n in nodes(body) if isinstance(n, Const)}
        name = base = binder.name.rstrip("✝") or "a"
        count = 0
        while name in used and has_loose(body):
            count += 1
            name = f"{base}_{count}"
        local = self.meta.local(binder.type)
        self.names[local.id] = name
        return name, instantiate(body, local)

    def _pi(self, term: Pi, strength: int) -> str:
        if term.info == "explicit" and not self._named(term):
            _, body = self._open(term, term.body)
            return self._wrap(f"{self._term(term.type, 26)} → {self._term(body, 25)}", 25, strength)
        names, kind = [], term.type
        current: Term = term
        while (
            isinstance(current, Pi)
            and current.type == kind
            and current.info == term.info
            and self._named(current)
        ):
            name, current = self._open(current, current.body)
            names.append(name)
        opening, closing = "()" if term.info == "explicit" else "{}"
        shown = f"∀ {opening}{' '.join(names)} : {self._term(kind, 0)}{closing}, {self._term(current, 0)}"
        return self._wrap(shown, 0, strength)

    def _named(self, term: Pi) -> bool:
        if term.info == "implicit" or has_loose(term.body):
            return True
        # A proposition's quantifier over data that is not used is still shown as one; else it is an arrow.
        return (
            not term.name.endswith("✝") and self._kind_of(term.type) != PROP and self._kind_of(term) == PROP
        )

    def _kind_of(self, kind: Term) -> Term:
        return self.meta.whnf(self.meta.infer(kind))

    def _lambda(self, term: Lam | Bind, strength: int) -> str:
        names = []
        current: Term = term
        while isinstance(current, Lam) or (isinstance(current, Bind) and not current.pi):
            if isinstance(current, Bind):
                name, current = self.names.setdefault(current.fvar, current.name), current.body
            else:
                name, current = self._open(current, current.body)
            names.append(name)
        return self._wrap(f"fun {' '.join(names)} => {self._term(current, 0)}", 0, strength)


def goal_text(meta: Meta, kind: Term, context: Context, tag: str = "") -> str:
    """Print a goal as Lean's own messages do: hypotheses of one type share a line."""
    printer = Printer(meta, context)
    groups: list[tuple[list[str], str]] = []
    for local in context:
        shown = printer.show(meta.locals[local.fvar])
        if groups and groups[-1][1] == shown:
            groups[-1][0].append(local.name)
        else:
            groups.append(([local.name], shown))
    lines = [f"case {tag}"] if tag else []
    lines += [f"{' '.join(names)} : {shown}" for names, shown in groups]
    return "\n".join([*lines, f"⊢ {printer.show(kind)}"])

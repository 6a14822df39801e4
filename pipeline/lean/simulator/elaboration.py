"""From syntax to terms: names, implicit arguments, expected types. Builds terms, never judges them.

Tactic blocks inside a term are run last, when the types around them are known, as in Lean. What a kind of syntax
means is defined by its rule, in `term_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from pipeline.lean.simulator.kernel import (
    Context,
    Invocation,
    LeanError,
    Meta,
    Scope,
    Session,
    extend,
    outside,
    split_name,
    without,
)
from pipeline.lean.simulator.terms import (
    ANY_LEVEL,
    PROP,
    App,
    Bind,
    Binder,
    BVar,
    Const,
    Decide,
    FVar,
    Lam,
    Lit,
    MVar,
    ParseError,
    Pi,
    Sorry,
    Sort,
    Stx,
    Term,
    Text,
    abstract,
    all_tokens,
    apply,
    call,
    has_loose,
    has_mvar,
    instantiate,
    nodes,
    plain_name,
    replace_subterms,
    spine,
)

# ---- rules for terms, registered by the modules that hold them


TermRule = Callable[["Elaborator", "Stx", Term | None], Term]
BlockRunner = Callable[["Meta", "Session", MVar, "Stx"], None]
TERMS: dict[str, TermRule] = {}  # by kind of syntax
_BLOCK_RUNNERS: list[BlockRunner] = []


def term_rule(*kinds: str) -> Callable[[TermRule], TermRule]:
    """Register a function as what elaborates these kinds of terms."""

    def register(rule: TermRule) -> TermRule:
        TERMS.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def block_runner(run: BlockRunner) -> BlockRunner:
    """Register what runs the tactic block of a `by`."""
    _BLOCK_RUNNERS[:] = [run]
    return run


def run_block(meta: Meta, session: Session, goal: MVar, block: Stx) -> None:
    """Run a `by` block on a goal; a LeanError unless it closes it."""
    _BLOCK_RUNNERS[0](meta, session, goal, block)


# ---- Print terms and goals as Lean does by default


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
        self._open_end = False
        """Whether what was printed last ends in a binder without brackets, which would take in all that follows."""

    def show(self, term: Term) -> str:
        return self._term(self.meta.instantiate(term), 0)

    def _term(self, term: Term, strength: int, *, last: bool = False) -> str:  # noqa: C901 - one case per kind of term
        """Print a term as an operand of this strength; at the `last` place a binder needs no brackets."""
        self._open_end = False
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
                    shown = f"∀ ({name} : {self._term(kind, 0)}), {self._term(body, 0)}"
                    return self._binder(shown, strength, last=last)
                return self._lambda(term, strength, last=last)
            case Pi():
                return self._pi(term, strength, last=last)
            case Lam():
                return self._lambda(term, strength, last=last)
            case App():
                return self._application(term, strength, last=last)
        raise AssertionError(term)

    def _wrap(self, text: str, own: int, strength: int) -> str:
        if own < strength:
            self._open_end = False
            return f"({text})"
        return text

    def _binder(self, text: str, strength: int, *, last: bool) -> str:
        self._open_end = True
        return self._wrap(text, 0, 0 if last else strength)

    def _left(self, term: Term, strength: int) -> str:
        """Print what an operator comes after: as a whole in brackets where a binder would take the operator in."""
        shown = self._term(term, strength, last=True)
        if self._open_end:
            self._open_end = False
            return f"({shown})"
        return shown

    def _application(self, term: App, strength: int, *, last: bool) -> str:
        head, args = spine(term)
        if isinstance(head, Const):
            infix = _INFIX.get(head.name)
            if infix is not None and len(args) == infix[0]:
                _, text, own, left, right = infix
                shown = f"{self._left(args[-2], left)} {text} {self._term(args[-1], right, last=True)}"
                return self._wrap(shown, own, strength)
            if head.name == "Not" and len(args) == 1:
                # `¬` takes an operand of strength 40 and is itself as strong as an application.
                return self._wrap(f"¬{self._term(args[0], 40, last=True)}", _MAX, min(strength, _MAX))
            if head.name == "Exists" and len(args) == 2 and isinstance(args[1], Lam):
                return self._binder(self._exists(term), strength, last=last)
            shown_args = self._explicit(head.name, args)
            if not shown_args:
                return head.name
            return self._wrap(
                " ".join([head.name, *(self._term(a, _MAX) for a in shown_args)]), _APP, strength
            )
        return self._wrap(" ".join(self._term(a, _MAX) for a in (head, *args)), _APP, strength)

    def _exists(self, term: Term) -> str:
        """Print `∃ x y, p`: what is bound one right after the other, of one type, stands together."""
        names, kind = [], None
        while isinstance(term, App):
            head, args = spine(term)
            if head != Const("Exists") or len(args) != 2 or not isinstance(args[1], Lam):
                break
            if kind not in (None, args[1].type):
                break
            kind = args[1].type
            name, term = self._open(args[1], args[1].body)
            names.append(name)
        return f"∃ {' '.join(names)}, {self._term(term, 0)}"

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

    def _pi(self, term: Pi, strength: int, *, last: bool) -> str:
        if term.info == "explicit" and not self._named(term):
            _, body = self._open(term, term.body)
            return self._wrap(
                f"{self._left(term.type, 26)} → {self._term(body, 25, last=True)}", 25, strength
            )
        groups: list[tuple[str, Term, list[str]]] = []
        current: Term = term
        while isinstance(current, Pi) and self._named(current):
            name, after = self._open(current, current.body)
            if groups and groups[-1][:2] == (current.info, current.type):
                groups[-1][2].append(name)
            else:
                groups.append((current.info, current.type, [name]))
            current = after
        shown = []
        for info, kind, names in groups:
            opening, closing = "()" if info == "explicit" else "{}"
            shown.append(f"{opening}{' '.join(names)} : {self._term(kind, 0)}{closing}")
        return self._binder(f"∀ {' '.join(shown)}, {self._term(current, 0)}", strength, last=last)

    def _named(self, term: Pi) -> bool:
        if term.info == "implicit" or has_loose(term.body):
            return True
        # A proposition's quantifier over data that is not used is still shown as one; else it is an arrow.
        return (
            not term.name.endswith("✝") and self._kind_of(term.type) != PROP and self._kind_of(term) == PROP
        )

    def _kind_of(self, kind: Term) -> Term:
        return self.meta.whnf(self.meta.infer(kind))

    def _lambda(self, term: Lam | Bind, strength: int, *, last: bool) -> str:
        names = []
        current: Term = term
        while isinstance(current, Lam) or (isinstance(current, Bind) and not current.pi):
            if isinstance(current, Bind):
                name, current = self.names.setdefault(current.fvar, current.name), current.body
            else:
                name, current = self._open(current, current.body)
            names.append(name)
        return self._binder(f"fun {' '.join(names)} => {self._term(current, 0)}", strength, last=last)


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


_PROJECTIONS = {
    ("And", "1"): "And.left", ("And", "2"): "And.right", ("Iff", "1"): "Iff.mp", ("Iff", "2"): "Iff.mpr",
}  # fmt: skip
_POSTPONED = frozenset(
    {"fun", "fun_match", "anonymous", "dotted", "by", "match", "hole", "synthetic", "sorry"}
)


class Elaborator:
    """Elaborates terms in one context."""

    def __init__(
        self, meta: Meta, session: Session | None = None, context: Context = (), *, sorts: bool = False
    ) -> None:
        self.meta = meta
        self.session = session or Session()
        self.context = context
        self.sorts = sorts
        self.goals: list[MVar] = []  # the `?_` of what was elaborated
        self.blocks: list[tuple[MVar, Stx, Context]] = []

    def type(self, stx: Stx) -> Term:
        """Elaborate something that must be a type."""
        term = self.term(stx, None)
        sort = self.meta.whnf(self.meta.infer(term))
        if isinstance(sort, MVar):
            self.meta.unify(sort, PROP)
        elif not isinstance(sort, Sort):
            shown = self.show(term)
            raise LeanError(f"type expected, got\n  ({shown} : {self.show(sort)})", (stx.start, stx.end))
        return term

    def finished(self, term: Term, *, allow_holes: bool = False, span: tuple[int, int] | None = None) -> Term:
        """Run the tactic blocks that are waiting, then require that nothing was left open."""
        self.run_blocks()
        term = self.meta.instantiate(term)
        if not allow_holes:
            goals = {goal.id for goal in self.goals}
            for node in nodes(term):
                if isinstance(node, MVar) and node.id not in goals and node not in self.session.sorries:
                    hole = self.meta.holes[node.id]
                    raise LeanError(
                        "don't know how to synthesize placeholder\ncontext:\n"
                        + goal_text(self.meta, hole.type, hole.context),
                        span,
                    )
        return term

    def run_blocks(self) -> None:

        while self.blocks:
            hole, block, context = self.blocks.pop(0)
            kind = self.meta.instantiate(self.meta.infer(hole))
            inner = self.meta.hole(kind, context, is_goal=True)
            run_block(self.meta, self.session, inner, block)
            self.meta.assign(hole, inner)

    def show(self, term: Term) -> str:
        return Printer(self.meta, self.context).show(term)

    def hole(self, kind: Term, tag: str = "") -> MVar:
        return self.meta.hole(kind, self.context, tag=tag)

    def with_local(self, name: str, kind: Term) -> FVar:
        """Bring a hypothesis into scope; the caller restores `context`."""
        local = self.meta.local(kind)
        self.context = extend(self.context, local.id, name)
        return local

    def term(self, stx: Stx, expected: Term | None) -> Term:
        """Elaborate; with an expected type the result has it, or an error says why not."""
        self.session.burn()
        rule = TERMS.get(stx.kind)
        if rule is None:
            raise outside(f"the term `{stx.kind}`", (stx.start, stx.end))
        try:
            result = rule(self, stx, expected)
        except LeanError as error:
            if error.span is None:
                raise LeanError(error.message, (stx.start, stx.end)) from None
            raise
        return result if expected is None else self.ensure(result, expected, stx)

    def ensure(self, term: Term, expected: Term, stx: Stx) -> Term:
        actual = self.meta.infer(term)
        if self.meta.unify(actual, expected):
            return term
        raise LeanError(
            f"type mismatch\n  {self.show(term)}\nhas type\n  {self.show(actual)} : {self._sort_text(actual)}\n"
            f"but is expected to have type\n  {self.show(expected)} : {self._sort_text(expected)}",
            (stx.start, stx.end),
        )

    def _sort_text(self, kind: Term) -> str:
        try:
            return self.show(self.meta.whnf(self.meta.infer(kind)))
        except LeanError:
            return "Sort _"

    def wanted(self, expected: Term | None) -> Term:
        return self.hole(Sort(ANY_LEVEL)) if expected is None else expected

    def sorry(self, kind: Term) -> Term:
        if not self.session.holes_for_sorry:
            return Sorry(kind)
        goal = self.meta.hole(kind, self.context, is_goal=True)
        self.session.sorries.append(goal)
        return goal

    def bind(self, binders: Sequence[Binder]) -> list[tuple[str, FVar, bool]]:
        """Bring binders into scope and return (name, hypothesis, explicit) for `close`."""
        bound: list[tuple[str, FVar, bool]] = []
        for binder in binders:
            for name_stx in binder.names:
                kind = self.hole(Sort(ANY_LEVEL)) if binder.type is None else self.type(binder.type)
                name = "x✝" if name_stx.kind == "hole" else name_stx.text
                bound.append((name, self.with_local(name, kind), binder.info == "explicit"))
        return bound

    def close(self, bound: Sequence[tuple[str, FVar, bool]], body: Term, *, pi: bool) -> Term:
        for name, local, explicit in reversed(bound):
            body = self.meta.bind(local, name, body, pi=pi, explicit=explicit)
        return body

    def resolve(self, stx: Stx) -> tuple[Term, list[str]]:
        """Find what a dotted name means: the longest part of it that is something, and the fields after it."""
        parts = split_name(stx.text)
        for local in reversed(self.context):
            if local.name == parts[0]:
                return FVar(local.fvar), parts[1:]
        for count in range(len(parts), 0, -1):
            name = ".".join(parts[:count])
            for candidate in self.session.scope.candidates(name):
                if self._visible(name, candidate):
                    return Const(candidate), parts[count:]
        raise LeanError(f"unknown identifier '{stx.text}'", (stx.start, stx.end))

    def _visible(self, name: str, candidate: str) -> bool:
        """Return whether a name may denote a constant; of Lean's own, `open` shortens only those of `Classical`."""
        constant, written = self.meta.env.get(candidate), name.removeprefix("_root_.")
        if constant is None or candidate == written:
            return constant is not None
        if constant.protected:
            return "." in written
        return not constant.module.startswith("Init.") or candidate.startswith("Classical.")

    def with_fields(
        self, term: Term, fields: Sequence[str], args: Sequence[Stx], expected: Term | None
    ) -> Term:
        for index, name in enumerate(fields):
            last = index == len(fields) - 1
            if not isinstance(term, FVar):
                term = self.application(term, (), None)
            term = self.field(term, name, args if last else (), expected if last else None)
        return term if fields else self.application(term, args, expected)

    def field(self, value: Term, name: str, args: Sequence[Stx], expected: Term | None) -> Term:

        kind: Term | None = self.meta.shallow(self.meta.infer(value))
        while kind is not None:
            head, _ = spine(kind)
            if isinstance(head, Const):
                full = _PROJECTIONS.get((head.name, name), f"{head.name}.{name}")
                if self.meta.env.get(full) is not None:
                    return self.application(Const(full), args, expected, receiver=(head.name, value))
            kind = self.meta.reducer.unfold_head(kind)
        shown = self.show(self.meta.infer(value))
        raise LeanError(f"invalid field '{name}', the environment does not contain it for\n  {shown}")

    def application(
        self,
        fn: Term,
        args: Sequence[Stx],
        expected: Term | None,
        *,
        explicit: bool = False,
        receiver: tuple[str, Term] | None = None,
    ) -> Term:
        """Apply a function: implicit arguments become holes, the result type is used before the arguments."""
        term, kind = fn, self.meta.instantiate(self.meta.infer(fn))
        waiting = [arg for arg in args if arg.kind != "named"]
        named = {arg.text: arg.args[0] for arg in args if arg.kind == "named"}
        slots: list[tuple[MVar, Stx]] = []
        while True:
            pi = (
                kind
                if isinstance(kind, Pi)
                else self.meta.whnf(kind)
                if waiting or receiver
                else self.meta.shallow(kind)
            )
            if not isinstance(pi, Pi):
                if waiting or receiver:
                    raise LeanError(
                        f"function expected\n  {self.show(term)}\nis applied to too many arguments"
                    )
                break
            slot: Term
            if pi.name in named:
                hole = self.hole(pi.type)
                slots.append((hole, named.pop(pi.name)))
                slot = hole
            elif pi.info == "implicit" and not explicit:
                slot = self.hole(pi.type, pi.name)
            elif receiver is not None and self._is_receiver(pi.type, receiver[0]):
                slot, receiver = receiver[1], None
                if not self.meta.unify(self.meta.infer(slot), pi.type):
                    raise LeanError(f"the term before the dot does not fit\n  {self.show(pi.type)}")
            elif waiting:
                hole = self.hole(pi.type)
                slots.append((hole, waiting.pop(0)))
                slot = hole
            else:
                break
            term, kind = App(term, slot), instantiate(pi.body, slot)
        if named:
            raise LeanError(f"invalid argument name '{next(iter(named))}'")
        if expected is not None:
            self.meta.unify(kind, expected)  # only to learn from; the caller compares in earnest
        self._fill_slots(slots)
        return self.meta.instantiate(term)

    def _is_receiver(self, kind: Term, name: str) -> bool:
        head, _ = spine(self.meta.shallow(kind))
        return head == Const(name)

    def _fill_slots(self, slots: list[tuple[MVar, Stx]]) -> None:
        later: list[tuple[MVar, Stx]] = []
        for hole, stx in slots:
            kind = self.meta.instantiate(self.meta.holes[hole.id].type)
            if stx.kind in _POSTPONED and has_mvar(kind):
                later.append((hole, stx))
            else:
                self._fill_slot(hole, stx)
        for hole, stx in later:
            self._fill_slot(hole, stx)

    def _fill_slot(self, hole: MVar, stx: Stx) -> None:
        kind = self.meta.instantiate(self.meta.holes[hole.id].type)
        value = self.type(stx) if kind == Sort(ANY_LEVEL) else self.term(stx, kind)
        known = self.meta.instantiate(hole)
        if known == hole:
            if value != hole:
                self.meta.assign(hole, value)
        elif not self.meta.unify(known, value):
            raise LeanError(
                f"application type mismatch: the argument is\n  {self.show(value)}\nbut was found to be\n"
                f"  {self.show(known)}",
                (stx.start, stx.end),
            )


# ---- What a text's commands are made of before they mean anything on the wire
# Notes, ranges, search targets.
# All offsets are in code points of the text; `byte_offsets` turns them into the wire's bytes.


Severity = Literal["information", "warning", "error"]


class Note(NamedTuple):
    """One message, with its range in code points of the file."""

    severity: Severity
    text: str
    start: int
    end: int
    kind: str = "[anonymous]"


@dataclass(slots=True)
class Command:
    """The result of one top-level command; `start`/`end` and the ranges of `sorries` are code points."""

    start: int
    end: int = 0
    notes: list[Note] = field(default_factory=list)
    new_constants: list[str] = field(default_factory=list)
    invocations: list[Invocation] = field(default_factory=list)
    sorries: list[tuple[int, int]] = field(default_factory=list)
    declaration_start: int = 0
    target: SorryTarget | None = None


class SectionFrame(NamedTuple):
    """The state that `end` restores."""

    kind: Literal["namespace", "section"]
    name: str
    scope: Scope
    variables: tuple[Binder, ...]


class SorryTarget(NamedTuple):
    """A declaration with sorries, ready for search: its goals, in a `Meta` whose `root` they fill.

    `spans[i]` is the range of code points of the sorry that `goals[i]` stands for; empty when there is one goal
    for the whole statement.
    """

    meta: Meta
    root: MVar
    root_type: Term
    goals: tuple[MVar, ...]
    spans: tuple[tuple[int, int], ...] = ()


class Header(NamedTuple):
    """The imports of a file, and where its commands start."""

    imports: tuple[str, ...]
    end: int


def read_header(text: str) -> Header:
    """Read the imports; a module docstring does not belong to the header.

    A `module` file hides nothing from those that import it here.
    """
    tokens = all_tokens(text)
    index = 1 if tokens[0].text == "module" else 0
    imports: list[str] = []
    while True:
        start = index
        while tokens[index].text in ("public", "meta"):
            index += 1
        if tokens[index].text != "import":
            return Header(tuple(imports), tokens[start].start)
        index += 1
        while tokens[index].text in ("all", "runtime"):
            index += 1
        if tokens[index].kind != "ident":
            raise ParseError("expected a module name", tokens[index].start)
        imports.append(plain_name(tokens[index].text))
        index += 1


def byte_offsets(text: str) -> Callable[[int], int]:
    """Return the function from code points to UTF-8 bytes."""
    if text.isascii():
        return lambda offset: offset
    table = [0]
    for char in text:
        table.append(table[-1] + len(char.encode("utf-8", "surrogatepass")))
    return lambda offset: table[offset]


def line_starts(text: str) -> Iterator[int]:
    """Yield the code points where lines begin."""
    yield 0
    for index, char in enumerate(text):
        if char == "\n":
            yield index + 1


# ---- Pattern matching on proofs
# `match`, `fun ⟨a, b⟩`, `rcases`, `obtain`, all as one matrix of rows and columns.
# A column is a value with its type; a row is one pattern for each column and what to do when it matches. Patterns
# come in the syntax of terms (`Or.inl h`, `⟨a, b⟩`) and of rcases (`a | b`).


# value, its type, and whether it is a hypothesis made here (which may be renamed and dropped)
Column = tuple[Term, Term, bool]
_PARTS = {"And": ("left", "right"), "Iff": ("mp", "mpr")}
_HOLE = Stx("hole", 0, 0)


@dataclass(frozen=True, slots=True)
class Row:
    """One alternative: a pattern for each column, and the continuation that builds the result."""

    patterns: tuple[Stx, ...]
    body: Callable[[], Term]


def match(elab: Elaborator, columns: Sequence[Column], rows: Sequence[Row], target: Term) -> Term:
    """Return a term of type `target` by cases on the columns; the rows' bodies run in extended contexts."""
    elab.session.burn()
    if not columns:
        if not rows:
            raise LeanError("missing cases")
        return rows[0].body()
    value, kind, fresh = columns[0]
    if rows and _is_name(rows[0].patterns[0]):
        return _bind(elab, columns, rows[0], target)
    shape = elab.meta.whnf(kind)
    head, args = spine(shape)
    name = head.name if isinstance(head, Const) else ""
    if rows and rows[0].patterns[0].kind == "pattern_typed":
        pattern = rows[0].patterns[0]
        if not elab.meta.unify(kind, elab.type(pattern.args[1])):
            raise LeanError("the pattern's type is not the value's", (pattern.start, pattern.end))
        return match(
            elab, columns, [replace(rows[0], patterns=(pattern.args[0], *rows[0].patterns[1:]))], target
        )
    if name in _PARTS:
        left, right = _PARTS[name]
        first, second = (
            apply(Const(f"{name}.{left}"), *args, value),
            apply(Const(f"{name}.{right}"), *args, value),
        )
        return _split_pair(elab, columns, rows, target, [(first, left), (second, right)])
    if name == "Exists":
        return _split_exists(elab, columns, rows, target, args)
    if name == "Or":
        return _split_or(elab, columns, rows, target, args)
    if name == "False":
        return apply(Const("False.elim"), target, value)
    if name == "True":
        _drop(elab, value, fresh)
        return match(elab, columns[1:], [replace(row, patterns=row.patterns[1:]) for row in rows], target)
    raise outside(f"cases on\n  {elab.show(kind)}")


def _is_name(pattern: Stx) -> bool:
    """Return whether a pattern only names the value (a constructor without arguments does not)."""
    if pattern.kind == "hole":
        return True
    return pattern.kind == "ident" and pattern.text not in ("rfl", "True.intro", "trivial")


def _bind(elab: Elaborator, columns: Sequence[Column], row: Row, target: Term) -> Term:
    value, kind, fresh = columns[0]
    pattern = row.patterns[0]
    rest = replace(row, patterns=row.patterns[1:])
    if pattern.kind == "hole":
        return match(elab, columns[1:], [rest], target)
    outer = elab.context
    if fresh and isinstance(value, FVar):
        elab.context = extend(
            tuple(local for local in outer if local.fvar != value.id), value.id, pattern.text
        )
        result = match(elab, columns[1:], [rest], target)
    else:
        local = elab.with_local(pattern.text, kind)
        inner = match(elab, columns[1:], [rest], target)
        result = apply(elab.meta.bind(local, pattern.text, inner), value)
    elab.context = outer
    return result


def _drop(elab: Elaborator, value: Term, fresh: bool) -> None:
    if fresh and isinstance(value, FVar):
        elab.context = without(elab.meta, elab.context, value.id)


def _split_pair(
    elab: Elaborator,
    columns: Sequence[Column],
    rows: Sequence[Row],
    target: Term,
    parts: list[tuple[Term, str]],
) -> Term:
    value, _, fresh = columns[0]
    outer = elab.context
    _drop(elab, value, fresh)
    locals_: list[tuple[FVar, str, Term]] = []
    for part, name in parts:
        kind = elab.meta.instantiate(elab.meta.infer(part))
        locals_.append((elab.with_local(f"{name}✝", kind), name, part))
    inner_columns = [(local, elab.meta.locals[local.id], True) for local, _, _ in locals_]
    inner = match(elab, [*inner_columns, *columns[1:]], [_open_tuple(row, 2) for row in rows], target)
    elab.context = outer
    for local, name, _ in reversed(locals_):
        inner = elab.meta.bind(local, name, inner)
    return apply(inner, *(part for _, _, part in locals_))


def _split_exists(
    elab: Elaborator, columns: Sequence[Column], rows: Sequence[Row], target: Term, args: list[Term]
) -> Term:
    value, _, fresh = columns[0]
    outer = elab.context
    _drop(elab, value, fresh)
    witness = elab.with_local("w✝", args[0])
    fact_kind = elab.meta.shallow(apply(args[1], witness))
    fact = elab.with_local("h✝", fact_kind)
    inner_columns: list[Column] = [(witness, args[0], True), (fact, fact_kind, True)]
    inner = match(elab, [*inner_columns, *columns[1:]], [_open_tuple(row, 2) for row in rows], target)
    elab.context = outer
    inner = elab.meta.bind(witness, "w", elab.meta.bind(fact, "h", inner))
    return apply(Const("Exists.elim"), args[0], args[1], target, value, inner)


def _open_tuple(row: Row, count: int) -> Row:
    """Replace the first pattern by its parts: ⟨a, b, c⟩ is ⟨a, ⟨b, c⟩⟩."""
    pattern, *rest = row.patterns
    if pattern.kind in ("hole", "ident"):
        if pattern.kind == "ident" and pattern.text != "rfl":
            raise outside(
                "a name for a value that another alternative takes apart", (pattern.start, pattern.end)
            )
        parts: tuple[Stx, ...] = (_HOLE,) * count
    elif pattern.kind in ("anonymous", "pattern_tuple"):
        parts = pattern.args
    elif pattern.kind == "app" and pattern.args[0].kind in ("ident", "dotted"):
        parts = pattern.args[1:]
    else:
        raise LeanError("invalid pattern: a tuple is expected", (pattern.start, pattern.end))
    if len(parts) > count:
        parts = (*parts[: count - 1], Stx(pattern.kind, pattern.start, pattern.end, "", parts[count - 1 :]))
    if len(parts) < count:
        parts = (*parts, *(_HOLE,) * (count - len(parts)))
    return replace(row, patterns=(*parts, *rest))


def _split_or(
    elab: Elaborator, columns: Sequence[Column], rows: Sequence[Row], target: Term, args: list[Term]
) -> Term:
    value, _, fresh = columns[0]
    outer = elab.context
    branches: list[Term] = []
    for side, kind in zip(("inl", "inr"), args, strict=True):
        chosen = [opened for row in rows if (opened := _open_side(row, side)) is not None]
        if not chosen:
            raise LeanError(f"missing cases:\nOr.{side} _")
        elab.context = outer
        _drop(elab, value, fresh)
        local = elab.with_local("h✝", kind)
        inner = match(elab, [(local, kind, True), *columns[1:]], chosen, target)
        branches.append(elab.meta.bind(local, "h", inner))
    elab.context = outer
    return apply(Const("Or.elim"), *args, target, value, *branches)


def _open_side(row: Row, side: str) -> Row | None:
    pattern, *rest = row.patterns
    match pattern.kind:
        case "hole":
            inner = _HOLE
        case "pattern_or":
            left, *others = pattern.args
            right = others[0] if len(others) == 1 else replace(pattern, args=tuple(others))
            inner = left if side == "inl" else right
        case "pattern_tuple" if len(pattern.args) == 1:
            return _open_side(replace(row, patterns=(pattern.args[0], *rest)), side)
        case "app" if len(pattern.args) == 2 and pattern.args[0].text.rpartition(".")[2] in ("inl", "inr"):
            if pattern.args[0].text.rpartition(".")[2] != side:
                return None
            inner = pattern.args[1]
        case _:
            raise LeanError("invalid pattern: an alternative is expected", (pattern.start, pattern.end))
    return replace(row, patterns=(inner, *rest))


# ---- Rewriting a goal by an equation or an equivalence


def equation(elab: Elaborator, proof: Term) -> tuple[Term, Term, Term, Term]:
    """Return (proof of an equation, its type's members' type, left, right), with holes for its arguments."""
    kind = elab.meta.whnf_keeping(elab.meta.infer(proof))
    while isinstance(kind, Pi):
        hole = elab.hole(kind.type)
        proof, kind = apply(proof, hole), elab.meta.whnf_keeping(instantiate(kind.body, hole))
    if (args := call("Eq", kind, 3)) is not None:
        return proof, args[0], args[1], args[2]
    if (args := call("Iff", kind, 2)) is not None:
        return apply(Const("propext"), args[0], args[1], proof), PROP, args[0], args[1]
    raise LeanError(f"equality or iff proof expected\n  {elab.show(kind)}")


def rewrite_goal(
    elab: Elaborator, proof: Term, target: Term, *, backwards: bool
) -> tuple[Term, Callable[[Term], Term]]:
    """Return the rewritten target and how its proof becomes one of the old target."""
    meta = elab.meta
    proof, kind, left, right = equation(elab, proof)
    source, result = (right, left) if backwards else (left, right)
    if isinstance(meta.instantiate(source), MVar):
        raise LeanError("pattern is a metavariable")
    target = meta.instantiate(target)
    for node in nodes(target):
        if not any(isinstance(inner, BVar) for inner in nodes(node)) and _comparable(
            node, source, meta.unify
        ):
            break
    else:
        raise LeanError(
            "tactic 'rewrite' failed, did not find instance of the pattern in the target expression\n"
            f"  {elab.show(source)}"
        )
    found = meta.instantiate(node)
    local = meta.local(kind)
    hollow = replace_subterms(target, lambda node: local if node == found else None)
    motive = Lam("x", meta.instantiate(kind), abstract(hollow, local.id))
    rewritten = meta.instantiate(replace_subterms(hollow, lambda node: result if node == local else None))

    def build(new: Term) -> Term:
        a, b = meta.instantiate(left), meta.instantiate(right)
        back = proof if backwards else apply(Const("Eq.symm"), kind, a, b, proof)
        old, fresh = (b, a) if backwards else (a, b)
        return apply(Const("Eq.subst"), kind, motive, fresh, old, back, new)

    return rewritten, build


def _comparable(node: Term, source: Term, unify: Callable[[Term, Term], bool]) -> bool:
    """Instances are found by their head, as in Lean: 1 + 1 is no instance of the pattern 2."""
    (head, args), (wanted, wanted_args) = spine(node), spine(source)
    return head == wanted and len(args) == len(wanted_args) and unify(source, node)

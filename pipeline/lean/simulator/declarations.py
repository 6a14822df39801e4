"""Elaborate declarations: theorems, definitions, examples and axioms, and what is left of them to prove.

Whatever gets into the environment goes through the kernel first.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from pipeline.lean.simulator.elaboration import Command, Note, Printer, SectionFrame, SorryTarget
from pipeline.lean.simulator.kernel import (
    Constant,
    Environment,
    LeanError,
    Meta,
    Scope,
    Session,
    check,
    outside,
)
from pipeline.lean.simulator.parser import Parser, parse_term
from pipeline.lean.simulator.tactics import Elaborator
from pipeline.lean.simulator.terms import (
    ANY_LEVEL,
    NAT,
    PROP,
    TYPE,
    App,
    Binder,
    BVar,
    Const,
    FVar,
    Lam,
    MVar,
    Pi,
    Sorry,
    Sort,
    Stx,
    Term,
    apply,
    arrow,
    constants,
    fvars,
    has_mvar,
    has_sorry,
    nodes,
)


class Declarations:
    """The environment and the scope of one text, and how its declarations change them."""

    def __init__(
        self,
        env: Environment,
        *,
        module: str = "",
        distil: Literal["", "keep", "ignore", "units"] = "",
        deadline_s: float | None = None,
        sorry_text: str = "declaration uses `sorry`",
        records: bool = False,
    ) -> None:
        """Start with a fresh scope.

        `records`: commands keep a record of each tactic that ran, which costs more than running it.

        `distil`: what becomes of declarations with sorries. "keep" and "ignore" make search targets, with the
        proof as it is or with the whole statement as the goal; "units" makes one target for each command.
        """
        self.env = env
        self.module = module
        self.scope = Scope()
        self.variables: tuple[Binder, ...] = ()
        self.frames: list[SectionFrame] = []
        self.distil = distil
        self.deadline_s = deadline_s
        self.sorry_text = sorry_text
        self.records = records
        self.sorried: set[str] = set()
        self.targets: list[SorryTarget] = []
        # name -> (line, column) of the declaration's start and end
        self.ranges: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {}
        self.noncomputable: set[str] = set()

    def _session(self, *, holes_for_sorry: bool = False) -> Session:
        return Session(self.scope, holes_for_sorry, deadline_s=self.deadline_s)

    def _elaborator(self, session: Session) -> Elaborator:
        return Elaborator(Meta(self.env), session)

    def declare(self, parser: Parser, command: Command, *, private: bool) -> None:
        keyword = parser.advance()
        kind = keyword.text
        anonymous = Stx("ident", keyword.start, keyword.end, "_example")
        name_stx = anonymous if kind == "example" else parser.identifier()
        binders = parser.binders(required=False)
        type_stx = parser.term() if parser.accept(":") else None
        value_stx: Stx | None = None
        if kind != "axiom":
            if parser.raw().text == "|":
                raise outside("declarations by equations", (parser.raw().start, parser.raw().end))
            parser.expect(":=")
            value_stx = parser.term()
            if parser.raw().text in ("where", "termination_by", "decreasing_by"):
                raise outside(f"`{parser.raw().text}`", (parser.raw().start, parser.raw().end))
        elif type_stx is None:
            raise parser.unexpected("expected ':'")
        name = self._full_name(name_stx.text, private=private)
        if kind != "example" and self.env.get(name) is not None:
            raise LeanError(f"'{name}' has already been declared", (name_stx.start, name_stx.end))
        if kind == "axiom":
            assert type_stx is not None
            self._axiom(name, name_stx, binders, type_stx, command)
            return
        assert value_stx is not None
        self._define(kind, name, name_stx, binders, type_stx, value_stx, command)

    def _full_name(self, name: str, *, private: bool) -> str:
        if name.startswith("_root_."):
            return name.removeprefix("_root_.")
        full = f"{self.scope.namespace}.{name}".lstrip(".")
        # Lean mangles private names with the module; inside one file the plain name is what can be used.
        del private
        return full

    def _axiom(
        self, name: str, name_stx: Stx, binders: tuple[Binder, ...], type_stx: Stx, command: Command
    ) -> None:
        elaborator = self._elaborator(self._session())
        bound = elaborator.bind((*self.variables, *binders))
        statement = elaborator.finished(elaborator.type(type_stx))
        bound = _used(elaborator.meta, bound, statement, len(bound) - _count(binders))
        statement = elaborator.finished(elaborator.close(bound, statement, pi=True))
        self.env = self.env.assume(name, statement, module=self.module)
        command.new_constants.append(name)
        if has_sorry(statement):
            self._warn_of_sorry(name, name_stx, command)

    def _define(
        self,
        kind: str,
        name: str,
        name_stx: Stx,
        binders: tuple[Binder, ...],
        type_stx: Stx | None,
        value_stx: Stx,
        command: Command,
    ) -> None:
        session = self._session(holes_for_sorry=self.distil in ("keep", "units"))
        session.invocations = command.invocations if self.records else None
        session.sorry_spans = command.sorries
        elaborator = self._elaborator(session)
        meta = elaborator.meta
        bound = elaborator.bind((*self.variables, *binders))
        own = len(bound) - _count(binders)
        if type_stx is None:
            if kind in ("theorem", "lemma"):
                raise LeanError("a theorem needs its statement", (name_stx.start, name_stx.end))
            value = elaborator.finished(
                elaborator.term(value_stx, None), span=(value_stx.start, value_stx.end)
            )
            statement = meta.instantiate(meta.infer(value))
        else:
            statement = elaborator.finished(elaborator.type(type_stx), span=(type_stx.start, type_stx.end))
            is_theorem = kind in ("theorem", "lemma") or (kind == "example" and meta.is_prop(statement))
            if is_theorem and own:
                # A theorem's variables are those of its statement: the proof cannot pull in more.
                bound = _used(meta, bound, statement, own)
                kept = {local.id for _, local, _ in bound}
                elaborator.context = tuple(local for local in elaborator.context if local.fvar in kept)
                own = len(bound) - _count(binders)
            value = elaborator.term(value_stx, statement)
            value = elaborator.finished(value, span=(value_stx.start, value_stx.end))
        if kind in ("theorem", "lemma") and not meta.is_prop(statement):
            shown = Printer(meta, elaborator.context).show(statement)
            raise LeanError(f"type of theorem '{name}' is not a proposition\n  {shown}")
        if not (kind in ("theorem", "lemma") and own):
            bound = _used(meta, bound, (statement, value), own)
        closed_type = elaborator.finished(elaborator.close(bound, statement, pi=True))
        if has_mvar(closed_type):
            raise LeanError("failed to infer the statement's type", (name_stx.start, name_stx.end))
        is_prop = meta.is_prop(closed_type)
        closed_value = meta.instantiate(elaborator.close(bound, value, pi=False))
        if self.distil in ("keep", "ignore") and self.sorried & {
            *constants(closed_type),
            *constants(closed_value),
        }:
            raise outside("`frontend.distil` of a declaration that mentions an earlier one with a sorry")
        if self._distilled(session, kind, meta, closed_type, closed_value, command):
            closed_value = _with_sorries(meta, closed_value)
        uses_sorry = has_sorry(closed_value) or has_sorry(closed_type)
        if kind == "example":
            check(self.env, closed_value, closed_type)
        else:
            self.env = self.env.define(
                name, closed_type, closed_value, is_theorem=is_prop, module=self.module
            )
            command.new_constants.append(name)
        if uses_sorry:
            self._warn_of_sorry("" if kind == "example" else name, name_stx, command)

    def _warn_of_sorry(self, name: str, name_stx: Stx, command: Command) -> None:
        """Record that a declaration has a sorry; an example has no name to remember."""
        if name:
            self.sorried.add(name)
        command.notes.append(Note("warning", self.sorry_text, name_stx.start, name_stx.end, "hasSorry"))

    def _distilled(
        self, session: Session, kind: str, meta: Meta, closed_type: Term, closed_value: Term, command: Command
    ) -> bool:
        """Record a search target; True when the value has holes where its sorries were."""
        if session.holes_for_sorry and session.sorries:
            root = meta.hole(closed_type, (), is_goal=True)
            meta.assign(root, closed_value)
            # What a tactic that was undone left behind is in no part of the value.
            inside = {node.id for node in nodes(meta.instantiate(closed_value)) if isinstance(node, MVar)}
            kept = [
                (goal, span)
                for goal, span in zip(session.sorries, session.sorry_spans, strict=True)
                if goal.id in inside
            ]
            target = SorryTarget(
                meta.copy(),
                root,
                closed_type,
                tuple(goal for goal, _ in kept),
                tuple(span for _, span in kept),
            )
            if self.distil == "units":
                command.target = target
            elif kind != "example":
                self.targets.append(target)
            return True
        if self.distil == "ignore" and has_sorry(closed_value) and kind != "example":
            fresh = Meta(self.env)
            root = fresh.hole(closed_type, (), is_goal=True)
            self.targets.append(SorryTarget(fresh, root, closed_type, (root,)))
        return False


def _with_sorries(meta: Meta, value: Term) -> Term:
    """Fill the holes of sorries with sorry, so that later declarations can use this one."""
    twin = meta.copy()
    while has_mvar(value):
        for node in list(nodes(value)):
            if isinstance(node, MVar) and node.id not in twin.values:
                twin.assign(node, Sorry(twin.instantiate(twin.holes[node.id].type)))
        value = twin.instantiate(value)
    return value


def _count(binders: tuple[Binder, ...]) -> int:
    return sum(len(binder.names) for binder in binders)


def _used(
    meta: Meta, bound: list[tuple[str, FVar, bool]], terms: Term | tuple[Term, ...], variables: int
) -> list[tuple[str, FVar, bool]]:
    """Drop the section variables (the first `variables`) that nothing mentions."""
    wanted: set[int] = set()
    for term in terms if isinstance(terms, tuple) else (terms,):
        wanted |= fvars(meta.instantiate(term))
    for index, (_, local, _) in reversed(list(enumerate(bound))):
        if index >= variables or local.id in wanted:
            wanted |= {local.id} | fvars(meta.instantiate(meta.locals[local.id]))
    return [entry for index, entry in enumerate(bound) if index >= variables or entry[1].id in wanted]


# ---- What the simulator's logic starts with
# Constants, their types, and which of Lean's axioms they rest on.
# Everything listed here is a fact of Lean's core library. The kernel takes these types on trust, so nothing may be
# added that does not hold.


_ANY = Sort(ANY_LEVEL)
_BINARY_PROP = arrow(PROP, arrow(PROP, PROP))
_BINARY_NAT = arrow(NAT, arrow(NAT, NAT))
_RELATION_NAT = arrow(NAT, arrow(NAT, PROP))


def _relation() -> Term:
    return Pi("α", _ANY, Pi("a", BVar(0), Pi("b", BVar(1), PROP)), "implicit")


_PRIMITIVE: dict[str, Term] = {
    "True": PROP,
    "False": PROP,
    "And": _BINARY_PROP,
    "Or": _BINARY_PROP,
    "Iff": _BINARY_PROP,
    "Eq": _relation(),
    "Exists": Pi("α", _ANY, Pi("p", Pi("a", BVar(0), PROP), PROP), "implicit"),
    "Nat": TYPE,
    "String": TYPE,
    "Nat.zero": NAT,
    "Nat.succ": arrow(NAT, NAT, "n"),
    **dict.fromkeys(("Nat.add", "Nat.sub", "Nat.mul", "Nat.div", "Nat.mod", "Nat.pow"), _BINARY_NAT),
    **dict.fromkeys(("Nat.lt", "Nat.le"), _RELATION_NAT),
}

_EQUAL = apply(Const("Eq"), BVar(2), BVar(1), BVar(0))
_DEFINED: dict[str, tuple[Term, Term]] = {
    "Not": (arrow(PROP, PROP), Lam("a", PROP, arrow(BVar(0), Const("False")))),
    "Ne": (
        _relation(),
        Lam("α", _ANY, Lam("a", BVar(0), Lam("b", BVar(1), App(Const("Not"), _EQUAL)))),
    ),
    "Nat.gt": (_RELATION_NAT, Lam("a", NAT, Lam("b", NAT, apply(Const("Nat.lt"), BVar(0), BVar(1))))),
    "Nat.ge": (_RELATION_NAT, Lam("a", NAT, Lam("b", NAT, apply(Const("Nat.le"), BVar(0), BVar(1))))),
    "id": (
        Pi("α", _ANY, Pi("a", BVar(0), BVar(1)), "implicit"),
        Lam("α", _ANY, Lam("a", BVar(0), BVar(0)), "implicit"),
    ),
}  # fmt: skip

# Facts without an axiom. One per line: name, then its type.
FACTS = """
True.intro : True
trivial : True
False.elim : ∀ {C : Sort}, False → C
absurd : ∀ {a : Prop} {b : Sort}, a → ¬a → b
And.intro : ∀ {a b : Prop} (left : a) (right : b), a ∧ b
And.left : ∀ {a b : Prop} (self : a ∧ b), a
And.right : ∀ {a b : Prop} (self : a ∧ b), b
And.symm : ∀ {a b : Prop}, a ∧ b → b ∧ a
And.elim : ∀ {a b c : Prop} (f : a → b → c) (h : a ∧ b), c
And.imp : ∀ {a c b d : Prop} (f : a → c) (g : b → d) (h : a ∧ b), c ∧ d
Or.inl : ∀ {a b : Prop} (h : a), a ∨ b
Or.inr : ∀ {a b : Prop} (h : b), a ∨ b
Or.elim : ∀ {a b c : Prop} (h : a ∨ b) (left : a → c) (right : b → c), c
Or.symm : ∀ {a b : Prop}, a ∨ b → b ∨ a
Or.imp : ∀ {a c b d : Prop} (f : a → c) (g : b → d) (h : a ∨ b), c ∨ d
Or.resolve_left : ∀ {a b : Prop} (h : a ∨ b) (na : ¬a), b
Or.resolve_right : ∀ {a b : Prop} (h : a ∨ b) (nb : ¬b), a
Iff.intro : ∀ {a b : Prop} (mp : a → b) (mpr : b → a), a ↔ b
Iff.mp : ∀ {a b : Prop} (self : a ↔ b), a → b
Iff.mpr : ∀ {a b : Prop} (self : a ↔ b), b → a
Iff.refl : ∀ (a : Prop), a ↔ a
Iff.rfl : ∀ {a : Prop}, a ↔ a
Iff.symm : ∀ {a b : Prop} (h : a ↔ b), b ↔ a
Iff.trans : ∀ {a b c : Prop} (h₁ : a ↔ b) (h₂ : b ↔ c), a ↔ c
Iff.elim : ∀ {a b c : Prop} (f : (a → b) → (b → a) → c) (h : a ↔ b), c
Not.elim : ∀ {a : Prop} {α : Sort} (H1 : ¬a) (H2 : a), α
mt : ∀ {a b : Prop} (h₁ : a → b) (h₂ : ¬b), ¬a
not_false : ¬False
not_not_intro : ∀ {p : Prop} (h : p), ¬¬p
not_or : ∀ {p q : Prop}, ¬(p ∨ q) ↔ ¬p ∧ ¬q
not_and : ∀ {a b : Prop}, ¬(a ∧ b) ↔ (a → ¬b)
and_comm : ∀ {a b : Prop}, a ∧ b ↔ b ∧ a
And.comm : ∀ {a b : Prop}, a ∧ b ↔ b ∧ a
or_comm : ∀ {a b : Prop}, a ∨ b ↔ b ∨ a
Or.comm : ∀ {a b : Prop}, a ∨ b ↔ b ∨ a
and_assoc : ∀ {a b c : Prop}, (a ∧ b) ∧ c ↔ a ∧ (b ∧ c)
or_assoc : ∀ {a b c : Prop}, (a ∨ b) ∨ c ↔ a ∨ (b ∨ c)
and_imp : ∀ {a b c : Prop}, (a ∧ b → c) ↔ (a → b → c)
or_imp : ∀ {a b c : Prop}, (a ∨ b → c) ↔ (a → c) ∧ (b → c)
imp_not_comm : ∀ {a b : Prop}, (a → ¬b) ↔ (b → ¬a)
iff_comm : ∀ {a b : Prop}, (a ↔ b) ↔ (b ↔ a)
iff_def : ∀ {a b : Prop}, (a ↔ b) ↔ (a → b) ∧ (b → a)
and_or_left : ∀ {a b c : Prop}, a ∧ (b ∨ c) ↔ (a ∧ b) ∨ (a ∧ c)
or_and_left : ∀ {a b c : Prop}, a ∨ (b ∧ c) ↔ (a ∨ b) ∧ (a ∨ c)
and_congr : ∀ {a c b d : Prop} (h₁ : a ↔ c) (h₂ : b ↔ d), a ∧ b ↔ c ∧ d
or_congr : ∀ {a c b d : Prop} (h₁ : a ↔ c) (h₂ : b ↔ d), a ∨ b ↔ c ∨ d
imp_congr : ∀ {a c b d : Prop} (h₁ : a ↔ c) (h₂ : b ↔ d), (a → b) ↔ (c → d)
iff_congr : ∀ {a c b d : Prop} (h₁ : a ↔ c) (h₂ : b ↔ d), (a ↔ b) ↔ (c ↔ d)
not_congr : ∀ {a b : Prop} (h : a ↔ b), ¬a ↔ ¬b
iff_true_intro : ∀ {a : Prop} (h : a), a ↔ True
iff_false_intro : ∀ {a : Prop} (h : ¬a), a ↔ False
iff_of_true : ∀ {a b : Prop} (ha : a) (hb : b), a ↔ b
iff_of_false : ∀ {a b : Prop} (ha : ¬a) (hb : ¬b), a ↔ b
true_and_iff : ∀ (p : Prop), True ∧ p ↔ p
and_true_iff : ∀ (p : Prop), p ∧ True ↔ p
false_and_iff : ∀ (p : Prop), False ∧ p ↔ False
and_false_iff : ∀ (p : Prop), p ∧ False ↔ False
and_self_iff : ∀ {a : Prop}, a ∧ a ↔ a
true_or_iff : ∀ (p : Prop), True ∨ p ↔ True
or_true_iff : ∀ (p : Prop), p ∨ True ↔ True
false_or_iff : ∀ (p : Prop), False ∨ p ↔ p
or_false_iff : ∀ (p : Prop), p ∨ False ↔ p
or_self_iff : ∀ {a : Prop}, a ∨ a ↔ a
not_true : ¬True ↔ False
not_false_iff : ¬False ↔ True
true_imp_iff : ∀ {a : Prop}, (True → a) ↔ a
imp_true_iff : ∀ {a : Prop}, (a → True) ↔ True
false_imp_iff : ∀ (a : Prop), (False → a) ↔ True
imp_false : ∀ {a : Prop}, (a → False) ↔ ¬a
imp_self_iff : ∀ {a : Prop}, (a → a) ↔ True
iff_true_iff : ∀ {a : Prop}, (a ↔ True) ↔ a
true_iff_iff : ∀ {a : Prop}, (True ↔ a) ↔ a
iff_false_iff : ∀ {a : Prop}, (a ↔ False) ↔ ¬a
false_iff_iff : ∀ {a : Prop}, (False ↔ a) ↔ ¬a
iff_self_iff : ∀ (a : Prop), (a ↔ a) ↔ True
and_not_self_iff : ∀ (a : Prop), a ∧ ¬a ↔ False
not_and_self_iff : ∀ (a : Prop), ¬a ∧ a ↔ False
of_iff_true : ∀ {a : Prop} (h : a ↔ True), a
Exists.intro : ∀ {α : Sort} {p : α → Prop} (w : α) (h : p w), Exists p
Exists.elim : ∀ {α : Sort} {p : α → Prop} {b : Prop} (h₁ : Exists p) (h₂ : ∀ (a : α), p a → b), b
Eq.refl : ∀ {α : Sort} (a : α), a = a
rfl : ∀ {α : Sort} {a : α}, a = a
Eq.symm : ∀ {α : Sort} {a b : α} (h : a = b), b = a
Eq.trans : ∀ {α : Sort} {a b c : α} (h₁ : a = b) (h₂ : b = c), a = c
Eq.subst : ∀ {α : Sort} {motive : α → Prop} {a b : α} (h₁ : a = b) (h₂ : motive a), motive b
Eq.mp : ∀ {α β : Prop} (h : α = β) (a : α), β
Eq.mpr : ∀ {α β : Prop} (h : α = β) (b : β), α
congrArg : ∀ {α β : Sort} {a₁ a₂ : α} (f : α → β) (h : a₁ = a₂), f a₁ = f a₂
Ne.symm : ∀ {α : Sort} {a b : α} (h : a ≠ b), b ≠ a
Iff.of_eq : ∀ {a b : Prop} (h : a = b), a ↔ b
Nat.rec : ∀ {motive : Nat → Prop} (zero : motive 0) (succ : ∀ (n : Nat), motive n → motive (n + 1)) (t : Nat), motive t
Nat.add_comm : ∀ (n m : Nat), n + m = m + n
Nat.add_assoc : ∀ (n m k : Nat), (n + m) + k = n + (m + k)
Nat.add_zero : ∀ (n : Nat), n + 0 = n
Nat.zero_add : ∀ (n : Nat), 0 + n = n
Nat.add_succ : ∀ (n m : Nat), n + Nat.succ m = Nat.succ (n + m)
Nat.succ_add : ∀ (n m : Nat), Nat.succ n + m = Nat.succ (n + m)
Nat.add_left_cancel : ∀ {n m k : Nat}, n + m = n + k → m = k
Nat.mul_comm : ∀ (n m : Nat), n * m = m * n
Nat.mul_assoc : ∀ (n m k : Nat), (n * m) * k = n * (m * k)
Nat.mul_zero : ∀ (n : Nat), n * 0 = 0
Nat.zero_mul : ∀ (n : Nat), 0 * n = 0
Nat.mul_one : ∀ (n : Nat), n * 1 = n
Nat.one_mul : ∀ (n : Nat), 1 * n = n
Nat.left_distrib : ∀ (n m k : Nat), n * (m + k) = n * m + n * k
Nat.right_distrib : ∀ (n m k : Nat), (n + m) * k = n * k + m * k
Nat.mul_add : ∀ (n m k : Nat), n * (m + k) = n * m + n * k
Nat.add_mul : ∀ (n m k : Nat), (n + m) * k = n * k + m * k
Nat.sub_self : ∀ (n : Nat), n - n = 0
Nat.sub_zero : ∀ (n : Nat), n - 0 = n
Nat.le_refl : ∀ (n : Nat), n ≤ n
Nat.le_trans : ∀ {n m k : Nat}, n ≤ m → m ≤ k → n ≤ k
Nat.lt_irrefl : ∀ (n : Nat), ¬n < n
Nat.lt_trans : ∀ {n m k : Nat}, n < m → m < k → n < k
Nat.zero_le : ∀ (n : Nat), 0 ≤ n
Nat.succ_ne_zero : ∀ (n : Nat), n + 1 ≠ 0
Nat.le_of_lt : ∀ {n m : Nat}, n < m → n ≤ m
Nat.lt_succ_self : ∀ (n : Nat), n < n + 1
Nat.succ.inj : ∀ {n m : Nat}, Nat.succ n = Nat.succ m → n = m
"""

# Facts that rest on `propext`: equalities between propositions.
PROPEXT_FACTS = """
propext : ∀ {a b : Prop}, (a ↔ b) → a = b
true_and : ∀ (p : Prop), (True ∧ p) = p
and_true : ∀ (p : Prop), (p ∧ True) = p
false_and : ∀ (p : Prop), (False ∧ p) = False
and_false : ∀ (p : Prop), (p ∧ False) = False
true_or : ∀ (p : Prop), (True ∨ p) = True
or_true : ∀ (p : Prop), (p ∨ True) = True
false_or : ∀ (p : Prop), (False ∨ p) = p
or_false : ∀ (p : Prop), (p ∨ False) = p
and_self : ∀ (p : Prop), (p ∧ p) = p
or_self : ∀ (p : Prop), (p ∨ p) = p
not_true_eq_false : (¬True) = False
not_false_eq_true : (¬False) = True
eq_self : ∀ {α : Sort} (a : α), (a = a) = True
iff_self : ∀ (p : Prop), (p ↔ p) = True
"""

CLASSICAL_FACTS = """
Classical.em : ∀ (p : Prop), p ∨ ¬p
Classical.byContradiction : ∀ {p : Prop} (h : ¬p → False), p
Classical.byCases : ∀ {p q : Prop} (hpq : p → q) (hnpq : ¬p → q), q
Classical.not_not : ∀ {a : Prop}, ¬¬a ↔ a
Classical.not_imp : ∀ {a b : Prop}, ¬(a → b) ↔ a ∧ ¬b
Classical.not_and_iff_or_not_not : ∀ {a b : Prop}, ¬(a ∧ b) ↔ ¬a ∨ ¬b
Classical.or_iff_not_imp_left : ∀ {a b : Prop}, a ∨ b ↔ (¬a → b)
"""

PROPEXT = frozenset({"propext"})
CLASSICAL = frozenset({"propext", "Classical.choice", "Quot.sound"})


class _Fact(Constant):
    """A fact whose statement is elaborated when its type is first asked for: a process asks for few of them."""

    __slots__ = ("_statement",)
    _statement: str

    @classmethod
    def stated(cls, name: str, statement: str, axioms: frozenset[str]) -> _Fact:
        fact = object.__new__(cls)
        # Every slot but `type`, which `__getattr__` fills. The class is frozen, so its own way to set them is barred.
        given = {
            "name": name,
            "value": None,
            "unfolds": False,
            "is_theorem": True,
            "axioms": axioms,
            "module": "Init.Core",
            "protected": False,
            "_statement": statement,
        }
        for slot, value in given.items():
            object.__setattr__(fact, slot, value)
        return fact

    def __getattr__(self, name: str) -> Term:
        # Called for a slot that is empty.
        if name != "type":
            raise AttributeError(name)
        elaborator = Elaborator(Meta(_before_facts()), sorts=True)
        kind = elaborator.finished(elaborator.type(parse_term(self._statement)))
        object.__setattr__(self, "type", kind)
        return kind


@cache
def _before_facts() -> Environment:
    """Return the constants that the facts speak of. No fact's statement names another fact."""
    table = {name: Constant(name, kind, module="Init.Prelude") for name, kind in _PRIMITIVE.items()}
    for name, (kind, value) in _DEFINED.items():
        table[name] = Constant(name, kind, value, unfolds=True, module="Init.Prelude")
    return Environment(table)


@cache
def initial_environment() -> Environment:
    """Return the environment that the import of `Init` gives."""
    table = dict(_before_facts().table)
    for facts, axioms in ((FACTS, frozenset[str]()), (PROPEXT_FACTS, PROPEXT), (CLASSICAL_FACTS, CLASSICAL)):
        for line in facts.strip().splitlines():
            name, _, statement = line.partition(" : ")
            table[name] = _Fact.stated(name, statement, axioms)
    return Environment(table)

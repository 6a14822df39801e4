"""The soundness core: an environment of constants and the checker that every finished proof goes through.

The logic is a calculus of constructions with `Prop`, `Type` and natural-number literals. A constant is either
built in (its type and, for definitions, its value come from `prelude.py`), or added here, after its value has
been inferred to have its type. Nothing outside this file decides whether a term is a proof.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pipeline.lean.simulator.terms import (
    ANY_LEVEL,
    NAT,
    PROP,
    STRING,
    App,
    Const,
    Decide,
    FVar,
    Lam,
    Lit,
    Pi,
    Sorry,
    Sort,
    Term,
    Text,
    abstract,
    apply,
    call,
    constants,
    fvars,
    has_sorry,
    instantiate,
    spine,
)

MAX_LITERAL_BITS = 1 << 16
MAX_STEPS = 200_000


class KernelError(Exception):
    """The term is not well typed; the simulator never accepts it."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A name with its type. `value` is None for what is assumed: built-in facts and `axiom`s.

    `unfolds`: whether comparing may replace the name by its value (definitions yes, theorems no).
    `axioms` are Lean's names of the axioms that it rests on, its dependencies' included.
    """

    name: str
    type: Term
    value: Term | None = None
    unfolds: bool = False
    is_theorem: bool = False
    axioms: frozenset[str] = frozenset()
    module: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """All constants, by name. Immutable, so that every goal state can keep the one it started in."""

    table: Mapping[str, Constant] = field(default_factory=dict)

    def get(self, name: str) -> Constant | None:
        return self.table.get(name)

    def with_builtin(self, constant: Constant) -> Environment:
        """Add a constant on trust; only `prelude.py` and the command `axiom` do."""
        return Environment({**self.table, constant.name: constant})

    def define(
        self, name: str, kind: Term, value: Term, *, is_theorem: bool, module: str = ""
    ) -> Environment:
        """Check `value : kind` and add it.

        Raises:
            KernelError: the name is taken, or the value does not have the type.
        """
        if name in self.table:
            raise KernelError(f"'{name}' has already been declared")
        check(self, value, kind)
        constant = Constant(
            name,
            kind,
            value,
            not is_theorem,
            is_theorem,
            axioms_of(self, value) | axioms_of(self, kind),
            module,
        )
        return Environment({**self.table, name: constant})


def axioms_of(env: Environment, term: Term) -> frozenset[str]:
    """Return the axioms that a term rests on; `sorryAx` where it holds a sorry."""
    found: set[str] = {"sorryAx"} if has_sorry(term) else set()
    for name in constants(term):
        constant = env.get(name)
        if constant is not None:
            found |= constant.axioms
    return frozenset(found)


def check(env: Environment, value: Term, kind: Term, context: Mapping[int, Term] | None = None) -> None:
    """Check that `kind` is a type and `value` has it; `context` gives the types of free hypotheses."""
    checker = _Checker(env, dict(context or {}))
    # Only what the caller knows may be free: the checker's own hypotheses have ids too, and stay in its table.
    known = frozenset(checker.context)
    if (
        not fvars(value) | fvars(kind) | {n for fact in checker.context.values() for n in fvars(fact)}
        <= known
    ):
        raise KernelError("a hypothesis is used outside its scope")
    try:
        checker.sort_of(kind)
        actual = checker.infer(value)
        if not checker.equal(actual, kind):
            raise KernelError("the value does not have the declared type")
    except RecursionError:
        raise KernelError("the term is too deep for the simulator's kernel") from None


def head_normal(env: Environment, term: Term) -> Term:
    """Reduce the head: beta, definitions, arithmetic on literals."""
    return _Checker(env, {}).whnf(term)


def beta(term: Term) -> Term:
    """Reduce the head by beta only."""
    head, args = spine(term)
    if not (isinstance(head, Lam) and args):
        return term
    count = 0
    while isinstance(head, Lam) and count < len(args):
        head = instantiate(head.body, args[count])
        count += 1
    return beta(apply(head, *args[count:]))


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Nat.add": operator.add,
    "Nat.sub": lambda a, b: max(a - b, 0),
    "Nat.mul": operator.mul,
    "Nat.div": lambda a, b: a // b if b else 0,
    "Nat.mod": lambda a, b: a % b if b else a,
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {"Nat.lt": operator.lt, "Nat.le": operator.le}


def unfold_head(env: Environment, term: Term) -> Term | None:
    """Replace the head constant by its value, or compute on literals; None when neither applies."""
    head, args = spine(term)
    if not isinstance(head, Const):
        return None
    if head.name == "Nat.zero" and not args:
        return Lit(0)
    if head.name == "Nat.succ" and len(args) == 1 and isinstance(number := normal_number(env, args[0]), Lit):
        return Lit(number.value + 1)
    if (head.name in _ARITHMETIC or head.name == "Nat.pow") and len(args) == 2:
        return _compute(env, head.name, args[0], args[1])
    constant = env.get(head.name)
    if constant is None or constant.value is None or not constant.unfolds:
        return None
    return beta(apply(constant.value, *args))


def normal_number(env: Environment, term: Term) -> Term:
    return _Checker(env, {}).whnf(term)


def _compute(env: Environment, name: str, left: Term, right: Term) -> Term | None:
    """Arithmetic: on literals outright; else by the recursion on the second argument that defines it."""
    b = normal_number(env, right)
    if isinstance(b, Lit):
        a = normal_number(env, left)
        if isinstance(a, Lit):
            return _on_literals(name, a.value, b.value)
    step = predecessor(b)
    match name:
        case "Nat.add":
            if b == Lit(0):
                return left
            return None if step is None else App(Const("Nat.succ"), apply(Const(name), left, step))
        case "Nat.mul":
            if b == Lit(0):
                return Lit(0)
            return None if step is None else apply(Const("Nat.add"), apply(Const(name), left, step), left)
        case "Nat.pow":
            if b == Lit(0):
                return Lit(1)
            return None if step is None else apply(Const("Nat.mul"), apply(Const(name), left, step), left)
        case "Nat.sub" if b == Lit(0):
            return left
        case _:
            return None


def _on_literals(name: str, a: int, b: int) -> Term | None:
    if name == "Nat.pow":
        # Refuse before computing: the result's size is known.
        return Lit(a**b) if b == 0 or a.bit_length() * b <= MAX_LITERAL_BITS else None
    value = _ARITHMETIC[name](a, b)
    return Lit(value) if value.bit_length() <= MAX_LITERAL_BITS else None


def predecessor(term: Term) -> Term | None:
    """Return n for a normal term that is `n + 1`."""
    if isinstance(term, Lit):
        return Lit(term.value - 1) if 0 < term.value <= 64 else None
    args = call("Nat.succ", term, 1)
    return args[0] if args else None


def decidable_truth(env: Environment, prop: Term) -> bool | None:
    """Evaluate a closed proposition over literals; None when it is outside what can be decided so."""
    if (prop.local or prop.loose) and not isinstance(prop, Pi):
        return None
    head, args = spine(prop)
    if isinstance(prop, Pi):
        domain = decidable_truth(env, prop.type)
        if domain is None:
            return None
        target = decidable_truth(env, instantiate(prop.body, Const("True.intro")))
        return True if not domain else target
    if not isinstance(head, Const):
        return None
    match head.name, args:
        case "True", []:
            return True
        case "False", []:
            return False
        case "Not", [inner]:
            value = decidable_truth(env, inner)
            return None if value is None else not value
        case ("And" | "Or" | "Iff") as name, [left, right]:
            a, b = decidable_truth(env, left), decidable_truth(env, right)
            if a is None or b is None:
                return None
            return {"And": a and b, "Or": a or b, "Iff": a == b}[name]
        case "Eq", [kind, left, right] if kind == NAT:
            x, y = normal_number(env, left), normal_number(env, right)
            return x.value == y.value if isinstance(x, Lit) and isinstance(y, Lit) else None
        case ("Nat.lt" | "Nat.le") as name, [left, right]:
            x, y = normal_number(env, left), normal_number(env, right)
            return _COMPARE[name](x.value, y.value) if isinstance(x, Lit) and isinstance(y, Lit) else None
        case _:
            unfolded = unfold_head(env, prop)
            return None if unfolded is None else decidable_truth(env, unfolded)


class _Checker:
    """One check: infers types, compares them, counts its steps so that no term can hang it."""

    def __init__(self, env: Environment, context: dict[int, Term]) -> None:
        self.env = env
        self.context = context
        self.steps = 0
        self.next_local = -1  # hypotheses made here have negative ids, so they meet no other's

    def _tick(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise KernelError("the simulator's kernel gave up: too many steps")

    def whnf(self, term: Term) -> Term:
        while True:
            self._tick()
            term = beta(term)
            unfolded = unfold_head(self.env, term)
            if unfolded is None:
                return term
            term = unfolded

    def _local(self, kind: Term) -> FVar:
        self.next_local -= 1
        self.context[self.next_local] = kind
        return FVar(self.next_local)

    def sort_of(self, kind: Term) -> int:
        """Return the level of a type; an error when it is none."""
        sort = self.whnf(self.infer(kind))
        if not isinstance(sort, Sort):
            raise KernelError("a type was expected")
        return sort.level

    def infer(self, term: Term) -> Term:  # noqa: C901 - one case per kind of term
        self._tick()
        match term:
            case Sort(level) if level != ANY_LEVEL:
                return Sort(level + 1)
            case Lit(value) if value >= 0:
                return NAT
            case Text():
                return STRING
            case FVar(number):
                if number not in self.context:
                    raise KernelError("a hypothesis is used outside its scope")
                return self.context[number]
            case Const(name):
                constant = self.env.get(name)
                if constant is None:
                    raise KernelError(f"unknown constant '{name}'")
                return constant.type
            case App(fn, arg):
                function = self.whnf(self.infer(fn))
                if not isinstance(function, Pi):
                    raise KernelError("something that is no function is applied")
                if not self._accepts(function.type, self.infer(arg)):
                    raise KernelError("an argument does not have the type that the function takes")
                return instantiate(function.body, arg)
            case Lam(name, kind, body, info):
                self.sort_of(kind)
                local = self._local(kind)
                result = self.infer(instantiate(body, local))
                self.sort_of(result)
                return Pi(name, kind, abstract(result, local.id), info)
            case Pi(_, kind, body):
                domain = self.sort_of(kind)
                target = self.sort_of(instantiate(body, self._local(kind)))
                return PROP if target == 0 else Sort(max(domain, target))
            case Decide(prop):
                if self.sort_of(prop) != 0 or decidable_truth(self.env, prop) is not True:
                    raise KernelError("the proposition does not evaluate to true")
                return prop
            case Sorry(kind):
                self.sort_of(kind)
                return kind
            case _:
                raise KernelError("the term has a hole")

    def _accepts(self, wanted: Term, actual: Term) -> bool:
        if wanted == Sort(ANY_LEVEL):
            # Only built-in constants take an argument of any sort; each stands for all its instances.
            return isinstance(self.whnf(actual), Sort)
        return self.equal(actual, wanted)

    def equal(self, left: Term, right: Term) -> bool:
        """Compare up to computation."""
        self._tick()
        if left == right:
            return True
        left, right = beta(left), beta(right)
        if self._same_shape(left, right):
            return True
        unfolded_left, unfolded_right = unfold_head(self.env, left), unfold_head(self.env, right)
        if unfolded_left is None and unfolded_right is None:
            return self._successors(left, right)
        left, right = self.whnf(left), self.whnf(right)
        return self._same_shape(left, right) or self._successors(left, right)

    def _successors(self, left: Term, right: Term) -> bool:
        if not (call("Nat.succ", left, 1) or call("Nat.succ", right, 1)):
            return False
        a, b = predecessor(left), predecessor(right)
        return a is not None and b is not None and self.equal(a, b)

    def _same_shape(self, left: Term, right: Term) -> bool:
        match left, right:
            case Pi(_, a, x), Pi(_, b, y):
                local = self._local(a)
                return self.equal(a, b) and self.equal(instantiate(x, local), instantiate(y, local))
            case Lam(_, a, x), Lam(_, b, y):
                local = self._local(a)
                return self.equal(a, b) and self.equal(instantiate(x, local), instantiate(y, local))
            case Lam(_, a, x), other:
                local = self._local(a)
                return self._eta(instantiate(x, local), other, local)
            case other, Lam(_, b, y):
                local = self._local(b)
                return self._eta(instantiate(y, local), other, local)
            case App(f, x), App(g, y):
                return self.equal(f, g) and self.equal(x, y)
            case _:
                return left == right

    def _eta(self, body: Term, function: Term, local: FVar) -> bool:
        if isinstance(function, Lit | Text | Sort | Pi | Lam):
            return False
        return self.equal(body, App(function, local))

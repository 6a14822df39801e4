"""The soundness core: an environment of constants and the checker that every finished proof goes through.

The logic is a calculus of constructions with `Prop`, `Type` and natural-number literals. A constant is either
built in (its type and, for definitions, its value come from `prelude.py`), or added here, after its value has
been inferred to have its type. Nothing outside this file decides whether a term is a proof.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

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
MAX_STEPS = 100_000  # of one reducer: one check by the kernel, or all the reductions of one `Meta`


class Exhausted(Exception):  # noqa: N818 - named by what happened
    """The steps of one declaration or request are used up; as in Lean, no tactic can catch it."""

    def __init__(self) -> None:
        super().__init__("(deterministic) timeout at `simulator`, maximum number of steps has been reached")


class KernelError(Exception):
    """The term is not well typed; the simulator never accepts it."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A name with its type. `value` is None for what is assumed: built-in facts and `axiom`s.

    `unfolds`: whether comparing may replace the name by its value (definitions yes, theorems no).
    `axioms` are Lean's names of the axioms that it rests on, its dependencies' included. `protected`: the last part
    of its name alone never means it.
    """

    name: str
    type: Term
    value: Term | None = None
    unfolds: bool = False
    is_theorem: bool = False
    axioms: frozenset[str] = frozenset()
    module: str = ""
    protected: bool = False


@dataclass(frozen=True, slots=True)
class Environment:
    """All constants, by name. Immutable, so that every goal state can keep the one it started in."""

    table: Mapping[str, Constant] = field(default_factory=dict)

    def get(self, name: str) -> Constant | None:
        return self.table.get(name)

    def protect(self, names: Iterable[str]) -> Environment:
        """Mark constants as protected."""
        marked = {name: replace(self.table[name], protected=True) for name in names}
        return Environment({**self.table, **marked})

    def assume(self, name: str, kind: Term, *, module: str = "") -> Environment:
        """Add an axiom, which rests on itself and on what its statement rests on.

        Raises:
            KernelError: the name is taken, or the statement is no type.
        """
        if name in self.table:
            raise KernelError(f"'{name}' has already been declared")
        check(self, Sorry(kind), kind)
        axioms = frozenset((name,)) | axioms_of(self, kind)
        constant = Constant(name, kind, is_theorem=True, axioms=axioms, module=module)
        return Environment({**self.table, name: constant})

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
        axioms = axioms_of(self, value) | axioms_of(self, kind)
        constant = Constant(name, kind, value, not is_theorem, is_theorem, axioms, module)
        return Environment({**self.table, name: constant})


def axioms_of(env: Environment, term: Term) -> frozenset[str]:
    """Return the axioms that a term rests on; `sorryAx` where it holds a sorry."""
    named = filter(None, map(env.get, constants(term)))
    own = frozenset(("sorryAx",)) if has_sorry(term) else frozenset[str]()
    return own.union(*(constant.axioms for constant in named))


def check(env: Environment, value: Term, kind: Term, context: Mapping[int, Term] | None = None) -> None:
    """Check that `kind` is a type and `value` has it; `context` gives the types of free hypotheses."""
    checker = _Checker(env, dict(context or {}))
    # Only what the caller knows may be free: the checker's own hypotheses have ids too, and stay in its table.
    known = frozenset(checker.context)
    free = fvars(value) | fvars(kind) | {n for fact in checker.context.values() for n in fvars(fact)}
    if not free <= known:
        raise KernelError("a hypothesis is used outside its scope")
    try:
        checker.sort_of(kind)
        actual = checker.infer(value)
        if not checker.equal(actual, kind):
            raise KernelError("the value does not have the declared type")
    except RecursionError:
        raise KernelError("the term is too deep for the simulator's kernel") from None
    except Exhausted:
        raise KernelError("the simulator's kernel gave up: too many steps") from None


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


class Reducer:
    """Computes with terms, and counts its steps over all that it is asked, so that no term can hang it.

    Every method raises `Exhausted` when the steps are used up.
    """

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.steps = 0

    def _tick(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Exhausted

    def whnf(self, term: Term) -> Term:
        """Reduce the head: beta, definitions, arithmetic on literals."""
        while True:
            self._tick()
            term = beta(term)
            unfolded = self.unfold_head(term)
            if unfolded is None:
                return term
            term = unfolded

    def unfold_head(self, term: Term) -> Term | None:
        """Replace the head constant by its value, or compute on literals; None when neither applies."""
        self._tick()
        head, args = spine(term)
        if not isinstance(head, Const):
            return None
        if head.name == "Nat.zero" and not args:
            return Lit(0)
        if head.name == "Nat.succ" and len(args) == 1 and isinstance(number := self.whnf(args[0]), Lit):
            return Lit(number.value + 1)
        if (head.name in _ARITHMETIC or head.name == "Nat.pow") and len(args) == 2:
            return self._compute(head.name, args[0], args[1])
        constant = self.env.get(head.name)
        if constant is None or constant.value is None or not constant.unfolds:
            return None
        return beta(apply(constant.value, *args))

    def _compute(self, name: str, left: Term, right: Term) -> Term | None:
        """Arithmetic: on literals outright; else by the recursion on the second argument that defines it."""
        b = self.whnf(right)
        if isinstance(b, Lit):
            a = self.whnf(left)
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

    def truth(self, prop: Term) -> bool | None:
        """Evaluate a closed proposition over literals; None when it is outside what can be decided so."""
        self._tick()
        if (prop.local or prop.loose) and not isinstance(prop, Pi):
            return None
        head, args = spine(prop)
        if isinstance(prop, Pi):
            domain = self.truth(prop.type)
            if domain is None:
                return None
            target = self.truth(instantiate(prop.body, Const("True.intro")))
            return True if not domain else target
        if not isinstance(head, Const):
            return None
        match head.name, args:
            case "True", []:
                return True
            case "False", []:
                return False
            case "Not", [inner]:
                value = self.truth(inner)
                return None if value is None else not value
            case ("And" | "Or" | "Iff") as name, [left, right]:
                a, b = self.truth(left), self.truth(right)
                if a is None or b is None:
                    return None
                return {"And": a and b, "Or": a or b, "Iff": a == b}[name]
            case "Eq", [kind, left, right] if kind == NAT:
                x, y = self.whnf(left), self.whnf(right)
                return x.value == y.value if isinstance(x, Lit) and isinstance(y, Lit) else None
            case ("Nat.lt" | "Nat.le") as name, [left, right]:
                x, y = self.whnf(left), self.whnf(right)
                return _COMPARE[name](x.value, y.value) if isinstance(x, Lit) and isinstance(y, Lit) else None
            case _:
                unfolded = self.unfold_head(prop)
                return None if unfolded is None else self.truth(unfolded)


class _Checker(Reducer):
    """One check: infers types and compares them."""

    def __init__(self, env: Environment, context: dict[int, Term]) -> None:
        super().__init__(env)
        self.context = context
        self.next_local = -1  # hypotheses made here have negative ids, so they meet no other's

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
            case Sort(level) if level >= 0:  # below is ANY_LEVEL, which is for the built-in constants alone
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
                if self.sort_of(prop) != 0 or self.truth(prop) is not True:
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
        unfolded_left, unfolded_right = self.unfold_head(left), self.unfold_head(right)
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

"""The soundness core: an environment of constants and the checker that every finished proof goes through.

The logic is a calculus of constructions with `Prop`, `Type` and natural-number literals. A constant is either
built in (its type and, for definitions, its value come from `declarations.py`), or added here, after its value has
been inferred to have its type. Nothing outside this file decides whether a term is a proof.
"""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pipeline.lean.simulator.terms import (
    ANY_LEVEL,
    NAT,
    PROP,
    STRING,
    App,
    Bind,
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
    abstract,
    apply,
    call,
    constants,
    fvars,
    has_mvar,
    has_sorry,
    instantiate,
    nodes,
    replace_subterms,
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


# ---- Terms with holes: what elaboration and tactics work on before the kernel sees anything
# Nothing here decides about truth. Unification may be as hasty as it likes, because every finished term is checked
# again by `kernel.check`.


_ids = itertools.count(1)
MAX_WORK = 100_000  # comparisons per tactic or declaration
_RELATIONS = frozenset({"Eq", "Iff", "Ne", "Not"})


class LeanError(Exception):
    """An error that Lean would report: the input does not elaborate, the tactic fails.

    `span` is the range of code points that it is about, None for the whole of what was run.
    """

    def __init__(self, message: str, span: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.span = span


class Interrupted(Exception):  # noqa: N818 - named by what happened
    """The request's time is over."""


def outside(what: str, span: tuple[int, int] | None = None) -> LeanError:
    """Return the error for real Lean that this logic does not have."""
    return LeanError(f"simulator: outside its logic: {what}", span)


@dataclass(frozen=True, slots=True)
class Local:
    """A hypothesis as one goal sees it: its name may be shadowed there (`✝`)."""

    fvar: int
    name: str


Context = tuple[Local, ...]


class Hole(NamedTuple):
    """A hole of a term: the type that fills it and the hypotheses that it may use."""

    type: Term
    context: Context
    tag: str = ""
    is_goal: bool = False


class Meta:
    """The holes of one elaboration and what fills them."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.holes: dict[int, Hole] = {}
        self.values: dict[int, Term] = {}
        self.locals: dict[int, Term] = {}
        self.reducer = Reducer(env)
        self.work = 0

    def copy(self) -> Meta:
        twin = Meta(self.env)
        twin.holes, twin.values, twin.locals = dict(self.holes), dict(self.values), dict(self.locals)
        return twin

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo everything when the body raises."""
        holes, values = dict(self.holes), dict(self.values)
        try:
            yield
        except (LeanError, KernelError):
            self.holes, self.values = holes, values
            raise

    # ---- making things

    def hole(self, kind: Term, context: Context, *, tag: str = "", is_goal: bool = False) -> MVar:
        number = next(_ids)
        self.holes[number] = Hole(kind, context, tag, is_goal)
        return MVar(number)

    def local(self, kind: Term) -> FVar:
        number = next(_ids)
        self.locals[number] = kind
        return FVar(number)

    def bind(self, fvar: FVar, name: str, body: Term, *, pi: bool = False, explicit: bool = True) -> Term:
        """Return `fun`/`∀` over the hypothesis."""
        kind = self.locals[fvar.id]
        return self.instantiate(
            Bind(pi, fvar.id, name.rstrip("✝") or "x", kind, body, "explicit" if explicit else "implicit")
        )

    # ---- reading things

    def instantiate(self, term: Term) -> Term:
        """Put in what fills the holes, and close the binders that have none left."""
        if not term.open:
            return term

        def leaf(node: Term) -> Term | None:
            if not node.open:
                return node
            if isinstance(node, MVar) and node.id in self.values:
                value = self.instantiate(self.values[node.id])
                self.values[node.id] = value
                return value
            if isinstance(node, Bind):
                kind, body = self.instantiate(node.type), self.instantiate(node.body)
                if has_mvar(body) or has_mvar(kind):
                    return Bind(node.pi, node.fvar, node.name, kind, body, node.info)
                return (Pi if node.pi else Lam)(node.name, kind, abstract(body, node.fvar), node.info)
            if isinstance(node, App):
                head, args = spine(node)
                if isinstance(head, MVar) and head.id in self.values:
                    filled = apply(self.instantiate(head), *map(self.instantiate, args))
                    return beta(filled)
            return None

        return replace_subterms(term, leaf)

    def whnf(self, term: Term) -> Term:
        """Reduce the head, unfolding definitions."""
        return self._opened(self.reducer.whnf(self.instantiate(term)))

    def shallow(self, term: Term) -> Term:
        """Reduce the head by beta only: what Lean sees without unfolding anything."""
        return self._opened(beta(self.instantiate(term)))

    def whnf_keeping(self, term: Term) -> Term:
        """Unfold until the head is a function type or a built-in relation that tactics know."""
        term = self.shallow(term)
        while not isinstance(term, Pi) and not (
            isinstance(h := spine(term)[0], Const) and h.name in _RELATIONS
        ):
            unfolded = self.reducer.unfold_head(term)
            if unfolded is None:
                break
            term = self.shallow(unfolded)
        return term

    def _opened(self, term: Term) -> Term:
        # A binder that is still open is closed here for looking at; its holes keep their own scope.
        if isinstance(term, Bind):
            return (Pi if term.pi else Lam)(term.name, term.type, abstract(term.body, term.fvar), term.info)
        return term

    def infer(self, term: Term) -> Term:  # noqa: C901 - one case per kind of term
        """Return a term's type without checking the term."""
        match term:
            case FVar(number):
                return self.locals[number]
            case MVar(number):
                return self.infer(self.values[number]) if number in self.values else self.holes[number].type
            case Const(name):
                constant = self.env.get(name)
                if constant is None:
                    raise LeanError(f"unknown constant '{name}'")
                return constant.type
            case App(fn, arg):
                kind = self.whnf(self.infer(fn))
                if not isinstance(kind, Pi):
                    raise LeanError("function expected")
                return instantiate(kind.body, arg)
            case Lam(name, kind, body, info):
                local = self.local(kind)
                return Pi(name, kind, abstract(self.infer(instantiate(body, local)), local.id), info)
            case Bind(False, fvar, name, kind, body, info):
                return self.instantiate(Bind(True, fvar, name, kind, self.infer(body), info))
            case Pi(_, kind, body):
                return self._pi_sort(kind, instantiate(body, self.local(kind)))
            case Bind(True, _, _, kind, body):
                return self._pi_sort(kind, body)
            case Sort(level):
                return Sort(level + 1)
            case Lit():
                return NAT
            case Text():
                return STRING
            case Decide(inner) | Sorry(inner):
                return inner
            case _:
                raise LeanError("loose bound variable")

    def _pi_sort(self, kind: Term, body: Term) -> Term:
        target = self.whnf(self.infer(body))
        if target == PROP or not isinstance(target, Sort):
            return PROP
        domain = self.whnf(self.infer(kind))
        return Sort(max(target.level, domain.level if isinstance(domain, Sort) else 0))

    def is_prop(self, kind: Term) -> bool:
        return self.whnf(self.infer(kind)) == PROP

    # ---- unification

    def assign(self, hole: MVar, value: Term) -> None:
        self.values[hole.id] = value

    def unify(self, left: Term, right: Term) -> bool:
        """Make two terms equal by filling holes; on failure nothing is filled."""
        before = dict(self.values)
        try:
            if self._unify(left, right):
                return True
        except (KernelError, RecursionError):
            pass
        self.values = before
        return False

    def _unify(self, left: Term, right: Term) -> bool:
        self.work += 1
        if self.work > MAX_WORK:
            raise Exhausted
        left, right = self.shallow(left), self.shallow(right)
        if left == right:
            return True
        if isinstance(left, MVar):
            return self._fill(left, right) or (isinstance(right, MVar) and self._fill(right, left))
        if isinstance(right, MVar):
            return self._fill(right, left)
        if self._same_shape(left, right):
            return True
        a, b = self.reducer.unfold_head(left), self.reducer.unfold_head(right)
        if a is None and b is None:
            return self._successors(left, right)
        return self._unify(left if a is None else a, right if b is None else b)

    def _successors(self, left: Term, right: Term) -> bool:
        a, b = predecessor(left), predecessor(right)
        return a is not None and b is not None and self._unify(a, b)

    def _fill(self, hole: MVar, value: Term) -> bool:
        if self.holes[hole.id].is_goal:
            return False  # `?_` is for the user to fill
        if value.loose:
            return False
        if value.open and any(isinstance(node, MVar) and node.id == hole.id for node in nodes(value)):
            return False
        scope = {local.fvar for local in self.holes[hole.id].context}
        if not fvars(value) <= scope:
            return False
        wanted = self.instantiate(self.holes[hole.id].type)
        if wanted != Sort(ANY_LEVEL) and not self._unify(self.infer(value), wanted):
            return False
        self.values[hole.id] = value
        return True

    def _same_shape(self, left: Term, right: Term) -> bool:
        before = dict(self.values)
        match left, right:
            case (Pi(_, a, x), Pi(_, b, y)) | (Lam(_, a, x), Lam(_, b, y)):
                local = self.local(a)
                same = self._unify(a, b) and self._unify(instantiate(x, local), instantiate(y, local))
            case (Lam(_, a, x), other) | (other, Lam(_, a, x)) if not isinstance(
                other, Lit | Text | Sort | Pi
            ):
                local = self.local(a)
                same = self._unify(instantiate(x, local), App(other, local))
            case App(), App():
                (head, args), (other_head, other_args) = spine(left), spine(right)
                same = (
                    len(args) == len(other_args)
                    and not isinstance(head, MVar)
                    and head == other_head
                    and all(self._unify(x, y) for x, y in zip(args, other_args, strict=True))
                )
            case _:
                same = False
        if not same:
            self.values = before
        return same


# ---- What surrounds an elaboration
# The scope that names are looked up in, its budget, and contexts' hypotheses.


@dataclass(frozen=True, slots=True)
class Scope:
    """The namespaces and `open`s at one place of a file, which decide what names mean."""

    namespace: str = ""
    opens: tuple[str, ...] = ()

    def candidates(self, name: str) -> list[str]:
        """Return the full names that `name` may denote, the first that exists winning."""
        if name.startswith("_root_."):
            return [name.removeprefix("_root_.")]
        found, prefix = [], self.namespace
        while prefix:
            found.append(f"{prefix}.{name}")
            prefix = prefix.rpartition(".")[0]
        return [*found, name, *(f"{opened}.{name}" for opened in reversed(self.opens))]


class Invocation(NamedTuple):
    """One tactic that ran: its range in code points, the goals as Lean prints them, and its term's constants."""

    start: int
    end: int
    goals_before: str
    goals_after: str
    used_constants: tuple[str, ...]


@dataclass(slots=True)
class Session:
    """The state that all elaborators of one declaration or tactic share.

    `holes_for_sorry`: a `sorry` becomes a goal, in `sorries`, instead of a `Sorry` (for `frontend.distil`).
    `sorry_spans[i]` is where `sorries[i]` stands, when there are goals for sorries. `invocations`, where it is a
    list, gets the tactics that ran and were not undone, an outer one before those in it.
    """

    scope: Scope = field(default_factory=Scope)
    holes_for_sorry: bool = False
    sorries: list[MVar] = field(default_factory=list)
    sorry_spans: list[tuple[int, int]] = field(default_factory=list)
    invocations: list[Invocation] | None = None
    fuel: int = 20_000
    deadline_s: float | None = None

    def mark(self) -> tuple[int, int, int]:
        """Return how much has been recorded so far, for `rewind`."""
        return len(self.sorries), len(self.sorry_spans), len(self.invocations or ())

    def rewind(self, mark: tuple[int, int, int]) -> None:
        """Forget what was recorded since `mark`, because it was undone."""
        sorries, spans, invocations = mark
        del self.sorries[sorries:], self.sorry_spans[spans:]
        if self.invocations is not None:
            del self.invocations[invocations:]

    def burn(self) -> None:
        """Count a step; no input keeps the simulator busy for ever."""
        self.fuel -= 1
        if self.deadline_s is not None and time.monotonic() > self.deadline_s:
            raise Interrupted
        if self.fuel < 0:
            raise Exhausted


def extend(context: Context, fvar: int, name: str) -> Context:
    """Add a hypothesis; one of the same name before it becomes inaccessible."""
    shadowed = tuple(
        replace(local, name=f"{name}✝") if local.name == name and not name.endswith("✝") else local
        for local in context
    )
    return (*shadowed, Local(fvar, name))


def without(meta: Meta, context: Context, fvar: int) -> Context:
    """Drop a hypothesis that no other one mentions; else keep it."""
    for local in context:
        if fvar in fvars(meta.instantiate(meta.locals[local.fvar])):
            return context
    return tuple(local for local in context if local.fvar != fvar)


def split_name(name: str) -> list[str]:
    """Split a dotted name into its parts; quoted parts stay whole."""
    parts: list[str] = []
    rest = name
    while rest:
        if rest.startswith("«"):
            end = rest.index("»") + 1
            part, rest = rest[:end], rest[end:].removeprefix(".")
        else:
            part, _, rest = rest.partition(".")
        parts.append(part)
    return parts

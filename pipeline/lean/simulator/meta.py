"""Terms with holes: what elaboration and tactics work on before the kernel sees anything.

Nothing here decides about truth. Unification may be as hasty as it likes, because every finished term is
checked again by `kernel.check`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.lean.simulator import kernel
from pipeline.lean.simulator.kernel import Environment, Exhausted, KernelError
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
    fvars,
    has_mvar,
    instantiate,
    nodes,
    replace,
    spine,
)

_ids = itertools.count(1)
MAX_WORK = 100_000  # comparisons per tactic or declaration
_RELATIONS = frozenset({"Eq", "Iff", "Ne", "Not"})


def reserve_ids(last: int) -> None:
    """Never give out an id up to `last` again: terms that were read from a file have them."""
    global _ids  # noqa: PLW0603 - the one counter of the process
    _ids = itertools.count(max(last + 1, next(_ids)))


class LeanError(Exception):
    """What Lean would report as an error message: the input does not elaborate, the tactic fails.

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
        self.reducer = kernel.Reducer(env)
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
                    return kernel.beta(filled)
            return None

        return replace(term, leaf)

    def whnf(self, term: Term) -> Term:
        """Reduce the head, unfolding definitions."""
        return self._opened(self.reducer.whnf(self.instantiate(term)))

    def shallow(self, term: Term) -> Term:
        """Reduce the head by beta only: what Lean sees without unfolding anything."""
        return self._opened(kernel.beta(self.instantiate(term)))

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
        a, b = kernel.predecessor(left), kernel.predecessor(right)
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

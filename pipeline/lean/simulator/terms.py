"""The terms of the simulator's logic, immutable, with the few operations that every other part needs.

Bound variables are de Bruijn indices (`BVar`); hypotheses are `FVar`s with ids that are never used twice, so
nothing is ever captured. `Bind` is a binder that has not been closed yet, because a hole below it may still be
filled with something that mentions its variable; `Meta.instantiate` closes it as soon as it can.

Every term knows three things about itself, so that most of a large term need not be looked at again: `loose`, one
more than the highest bound variable that its own binders do not bind (0: none); `open`, whether it has an `MVar` or
a `Bind`; `local`, whether it has an `FVar`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

Info = Literal["explicit", "implicit"]
ANY_LEVEL = -1  # only in the types of built-in constants: they exist once for every sort


def _know(term: object, loose: int, open_: bool, local: bool) -> None:
    """Write down what a new term knows about itself; terms are frozen for everybody else."""
    object.__setattr__(term, "loose", loose)
    object.__setattr__(term, "open", open_)
    object.__setattr__(term, "local", local)


@dataclass(frozen=True, slots=True)
class Sort:
    """`Prop` is level 0, `Type` level 1."""

    level: int
    loose: ClassVar[int] = 0
    open: ClassVar[bool] = False
    local: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class BVar:
    index: int
    loose: int = field(init=False, compare=False, repr=False)
    open: ClassVar[bool] = False
    local: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "loose", self.index + 1)


@dataclass(frozen=True, slots=True)
class FVar:
    id: int
    loose: ClassVar[int] = 0
    open: ClassVar[bool] = False
    local: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class MVar:
    id: int
    loose: ClassVar[int] = 0
    open: ClassVar[bool] = True
    local: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Const:
    name: str
    loose: ClassVar[int] = 0
    open: ClassVar[bool] = False
    local: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class App:
    fn: Term
    arg: Term
    loose: int = field(init=False, compare=False, repr=False)
    open: bool = field(init=False, compare=False, repr=False)
    local: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _know(
            self,
            max(self.fn.loose, self.arg.loose),
            self.fn.open or self.arg.open,
            self.fn.local or self.arg.local,
        )


@dataclass(frozen=True, slots=True)
class Lam:
    name: str
    type: Term
    body: Term
    info: Info = "explicit"
    loose: int = field(init=False, compare=False, repr=False)
    open: bool = field(init=False, compare=False, repr=False)
    local: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        kind, body = self.type, self.body
        _know(self, max(kind.loose, body.loose - 1, 0), kind.open or body.open, kind.local or body.local)


@dataclass(frozen=True, slots=True)
class Pi:
    name: str
    type: Term
    body: Term
    info: Info = "explicit"
    loose: int = field(init=False, compare=False, repr=False)
    open: bool = field(init=False, compare=False, repr=False)
    local: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        kind, body = self.type, self.body
        _know(self, max(kind.loose, body.loose - 1, 0), kind.open or body.open, kind.local or body.local)


@dataclass(frozen=True, slots=True)
class Bind:
    """`fun`/`∀` over the hypothesis `fvar`, whose body may still have holes."""

    pi: bool
    fvar: int
    name: str
    type: Term
    body: Term
    info: Info = "explicit"
    loose: int = field(init=False, compare=False, repr=False)
    open: bool = field(init=False, compare=False, repr=False)
    local: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _know(self, max(self.type.loose, self.body.loose), True, True)


@dataclass(frozen=True, slots=True)
class Lit:
    """A natural-number literal."""

    value: int
    loose: ClassVar[int] = 0
    open: ClassVar[bool] = False
    local: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal, as written; nothing is known about it but its type."""

    source: str
    loose: ClassVar[int] = 0
    open: ClassVar[bool] = False
    local: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Decide:
    """A proof of a closed decidable proposition, by the kernel's own evaluation."""

    prop: Term
    loose: int = field(init=False, compare=False, repr=False)
    open: bool = field(init=False, compare=False, repr=False)
    local: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _know(self, self.prop.loose, self.prop.open, self.prop.local)


@dataclass(frozen=True, slots=True)
class Sorry:
    """`sorryAx`: the one term that the kernel takes on trust; it is counted wherever it occurs."""

    type: Term
    loose: int = field(init=False, compare=False, repr=False)
    open: bool = field(init=False, compare=False, repr=False)
    local: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _know(self, self.type.loose, self.type.open, self.type.local)


Term = Sort | BVar | FVar | MVar | Const | App | Lam | Pi | Bind | Lit | Text | Decide | Sorry

PROP = Sort(0)
TYPE = Sort(1)
NAT = Const("Nat")
STRING = Const("String")


def apply(fn: Term, *args: Term) -> Term:
    for arg in args:
        fn = App(fn, arg)
    return fn


def spine(term: Term) -> tuple[Term, list[Term]]:
    """Return the head of an application and its arguments."""
    args: list[Term] = []
    while isinstance(term, App):
        args.append(term.arg)
        term = term.fn
    args.reverse()
    return term, args


def call(name: str, term: Term, count: int) -> list[Term] | None:
    """Return the arguments when `term` is the constant applied to exactly `count` of them."""
    head, args = spine(term)
    return args if head == Const(name) and len(args) == count else None


def arrow(domain: Term, target: Term, name: str = "a✝") -> Pi:
    """Return the function type; `target` must not use the argument."""
    return Pi(name, domain, lift(target))


def _map(term: Term, depth: int, leaf: Callable[[Term, int], Term | None]) -> Term:
    """Rebuild a term bottom-up; `leaf` may replace a node, `depth` counts binders above it."""
    replaced = leaf(term, depth)
    if replaced is not None:
        return replaced
    match term:
        case App(fn, arg):
            new_fn, new_arg = _map(fn, depth, leaf), _map(arg, depth, leaf)
            return term if new_fn is fn and new_arg is arg else App(new_fn, new_arg)
        case Lam(name, kind, body, info):
            return Lam(name, _map(kind, depth, leaf), _map(body, depth + 1, leaf), info)
        case Pi(name, kind, body, info):
            return Pi(name, _map(kind, depth, leaf), _map(body, depth + 1, leaf), info)
        case Bind(pi, fvar, name, kind, body, info):
            return Bind(pi, fvar, name, _map(kind, depth, leaf), _map(body, depth, leaf), info)
        case Decide(prop):
            return Decide(_map(prop, depth, leaf))
        case Sorry(kind):
            return Sorry(_map(kind, depth, leaf))
        case _:
            return term


def replace(term: Term, leaf: Callable[[Term], Term | None]) -> Term:
    """Rebuild a term; `leaf` returns the replacement of a node, or None to look inside it."""
    return _map(term, 0, lambda node, _depth: leaf(node))


def lift(term: Term, by: int = 1) -> Term:
    """Raise the loose bound variables, for a term that moves below `by` more binders."""

    def leaf(node: Term, depth: int) -> Term | None:
        if node.loose <= depth:
            return node
        return BVar(node.index + by) if isinstance(node, BVar) else None

    return _map(term, 0, leaf)


def instantiate(body: Term, value: Term) -> Term:
    """Put `value` for the innermost bound variable of a binder's body."""

    def leaf(node: Term, depth: int) -> Term | None:
        if node.loose <= depth:
            return node
        if not isinstance(node, BVar):
            return None
        if node.index == depth:
            return lift(value, depth) if depth else value
        return BVar(node.index - 1)

    return _map(body, 0, leaf)


def abstract(term: Term, fvar: int) -> Term:
    """Make the hypothesis the innermost bound variable; the inverse of `instantiate`."""

    def leaf(node: Term, depth: int) -> Term | None:
        if not node.local and node.loose <= depth:
            return node
        if isinstance(node, FVar) and node.id == fvar:
            return BVar(depth)
        return BVar(node.index + 1) if isinstance(node, BVar) and node.index >= depth else None

    return _map(term, 0, leaf)


def nodes(term: Term) -> Iterator[Term]:
    """Yield every node of a term."""
    stack = [term]
    while stack:
        node = stack.pop()
        yield node
        match node:
            case App(fn, arg):
                stack += (arg, fn)
            case Lam(_, kind, body) | Pi(_, kind, body) | Bind(_, _, _, kind, body):
                stack += (body, kind)
            case Decide(inner) | Sorry(inner):
                stack.append(inner)


def has_mvar(term: Term) -> bool:
    return term.open and any(isinstance(node, MVar) for node in nodes(term))


def has_sorry(term: Term) -> bool:
    return any(isinstance(node, Sorry) for node in nodes(term))


def fvars(term: Term) -> set[int]:
    return {node.id for node in nodes(term) if isinstance(node, FVar)} if term.local else set()


def constants(term: Term) -> list[str]:
    """Return the constants used, each once, in order of appearance."""
    return list(dict.fromkeys(node.name for node in nodes(term) if isinstance(node, Const)))


def has_loose(term: Term, index: int = 0) -> bool:
    """Say whether the bound variable `index`, counted outside the term, occurs in it."""
    if term.loose <= index:
        return False
    found = False

    def leaf(node: Term, depth: int) -> Term | None:
        nonlocal found
        if found or node.loose <= depth + index:
            return node
        found = isinstance(node, BVar) and node.index == depth + index
        return None

    _map(term, 0, leaf)
    return found

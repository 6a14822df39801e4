"""The terms of the simulator's logic, immutable, with the few operations that every other part needs.

Bound variables are de Bruijn indices (`BVar`); hypotheses are `FVar`s with ids that are never used twice, so
nothing is ever captured. `Bind` is a binder that has not been closed yet, because a hole below it may still be
filled with something that mentions its variable; `Meta.instantiate` closes it as soon as it can.

Every term knows three things about itself, so that most of a large term need not be looked at again: `loose`, one
more than the highest bound variable that its own binders do not bind (0: none); `open`, whether it has an `MVar` or
a `Bind`; `local`, whether it has an `FVar`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

Info = Literal["explicit", "implicit"]
ANY_LEVEL = -1  # only in the types of built-in constants: they exist once for every sort


class _Term:
    """The base of all terms. Each is equal to one of its own class with the same `parts`, which no one changes.

    Written out and not made by `dataclass`: a start makes thousands of terms, and a frozen dataclass sets each field of
    each by a call; and to make such classes takes a millisecond each, at every start.
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    loose: int
    open: bool
    local: bool

    @property
    def parts(self) -> tuple[Any, ...]:
        """The parts of a term, in the order of its constructor."""
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and self.parts == other.parts)

    def __hash__(self) -> int:
        return hash((type(self).__name__, *self.parts))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.parts))})"


class Sort(_Term):
    """`Prop` is level 0, `Type` level 1."""

    __slots__ = __match_args__ = ("level",)
    loose, open, local = 0, False, False

    def __init__(self, level: int) -> None:
        self.level = level


class BVar(_Term):
    """A bound variable: so many binders further out."""

    __slots__ = ("index", "loose")
    __match_args__ = ("index",)
    open, local = False, False

    def __init__(self, index: int) -> None:
        self.index = index
        self.loose = index + 1


class FVar(_Term):
    """A hypothesis."""

    __slots__ = __match_args__ = ("id",)
    loose, open, local = 0, False, True

    def __init__(self, number: int) -> None:
        self.id = number


class MVar(_Term):
    """A hole."""

    __slots__ = __match_args__ = ("id",)
    loose, open, local = 0, True, False

    def __init__(self, number: int) -> None:
        self.id = number


class Const(_Term):
    """A constant of the environment."""

    __slots__ = __match_args__ = ("name",)
    loose, open, local = 0, False, False

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:  # most comparisons are of these, and of applications
        return type(other) is Const and self.name == other.name

    __hash__ = _Term.__hash__


class App(_Term):
    """A function and its argument."""

    __slots__ = ("arg", "fn", "local", "loose", "open")
    __match_args__ = ("fn", "arg")

    def __init__(self, fn: Term, arg: Term) -> None:
        self.fn = fn
        self.arg = arg
        self.loose = max(fn.loose, arg.loose)
        self.open = fn.open or arg.open
        self.local = fn.local or arg.local

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is App and self.fn == other.fn and self.arg == other.arg)

    __hash__ = _Term.__hash__


class _Binder(_Term):
    __slots__ = ("body", "info", "local", "loose", "name", "open", "type")
    __match_args__ = ("name", "type", "body", "info")

    def __init__(self, name: str, kind: Term, body: Term, info: Info = "explicit") -> None:
        self.name = name
        self.type = kind
        self.body = body
        self.info: Info = info
        self.loose = max(kind.loose, body.loose - 1, 0)
        self.open = kind.open or body.open
        self.local = kind.local or body.local


class Lam(_Binder):
    """`fun name : type => body`."""

    __slots__ = ()


class Pi(_Binder):
    """`(name : type) → body`."""

    __slots__ = ()


class Bind(_Term):
    """`fun`/`∀` over the hypothesis `fvar`, whose body may still have holes."""

    __slots__ = ("body", "fvar", "info", "loose", "name", "pi", "type")
    __match_args__ = ("pi", "fvar", "name", "type", "body", "info")
    open, local = True, True

    def __init__(
        self, pi: bool, fvar: int, name: str, kind: Term, body: Term, info: Info = "explicit"
    ) -> None:
        self.pi = pi
        self.fvar = fvar
        self.name = name
        self.type = kind
        self.body = body
        self.info: Info = info
        self.loose = max(kind.loose, body.loose)


class Lit(_Term):
    """A natural-number literal."""

    __slots__ = __match_args__ = ("value",)
    loose, open, local = 0, False, False

    def __init__(self, value: int) -> None:
        self.value = value


class Text(_Term):
    """A string literal, as written; nothing is known about it but its type."""

    __slots__ = __match_args__ = ("source",)
    loose, open, local = 0, False, False

    def __init__(self, source: str) -> None:
        self.source = source


class Decide(_Term):
    """A proof of a closed decidable proposition, by the kernel's own evaluation."""

    __slots__ = ("local", "loose", "open", "prop")
    __match_args__ = ("prop",)

    def __init__(self, prop: Term) -> None:
        self.prop = prop
        self.loose, self.open, self.local = prop.loose, prop.open, prop.local


class Sorry(_Term):
    """`sorryAx`: the one term that the kernel takes on trust; it is counted wherever it occurs."""

    __slots__ = ("local", "loose", "open", "type")
    __match_args__ = ("type",)

    def __init__(self, kind: Term) -> None:
        self.type = kind
        self.loose, self.open, self.local = kind.loose, kind.open, kind.local


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


def replace_subterms(term: Term, leaf: Callable[[Term], Term | None]) -> Term:
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
    """Return whether the bound variable `index`, counted outside the term, occurs in it."""
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


# ---- Tokens and syntax trees of the simulator's part of Lean's language
# Offsets are in code points of the parsed text. A tree node is one generic `Stx`, so that the parser stays small; its
# `kind` says what the fields mean, as listed beside the parser's functions.


TokenKind = Literal["ident", "number", "symbol", "keyword", "string", "doc", "broken", "end"]


def words(text: str) -> list[str]:
    """Split a table of words; long lists of quoted words are hard to read."""
    return text.split()


class ParseError(Exception):
    """The text is not in the simulator's part of the language; `offset` is where that showed."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class Token(NamedTuple):
    """One token. `first`: it is the first on its line; `glued`: nothing stands between it and the one before.

    Kind "broken" is what Lean has no token for; its text says why.
    """

    kind: TokenKind
    text: str
    start: int
    end: int
    column: int
    first: bool
    glued: bool


@dataclass(frozen=True, slots=True)
class Stx:
    """A node of the syntax tree: a term, a pattern, a tactic or a block of tactics.

    Kind "made" is a tactic that another one runs and no one wrote; it leaves no record.
    """

    kind: str
    start: int
    end: int
    text: str = ""
    args: tuple[Stx, ...] = ()
    binders: tuple[Binder, ...] = ()


class Binder(NamedTuple):
    """Names (or patterns) with one type; `type` is None when it is to be inferred."""

    names: tuple[Stx, ...]
    type: Stx | None
    info: Info = "explicit"


COMMANDS = frozenset(
    words(
        "theorem lemma def abbrev example instance axiom opaque inductive structure class namespace section end"
        " variable universe open export set_option attribute import private protected noncomputable unsafe partial"
        " mutual macro syntax notation infix infixl infixr prefix postfix elab macro_rules elab_rules initialize"
        " deriving local scoped public meta"
    )
)
KEYWORDS = COMMANDS | frozenset(
    words(
        "fun λ by from have show with at let in do match if then else forall Type Prop Sort sorry nomatch suffices"
        " calc where using"
    )
)
_SYMBOLS = sorted(
    words(
        ":= => → -> ↔ <-> ∧ /\\ ∨ \\/ ¬ ≠ != ≤ <= ≥ >= <;> <|> <| |> $ ⟨ ⟩ ⊢ · ∀ ∃ λ × ← <- @[ @ ( ) [ ] { } ⦃ ⦄"
        " , ; : | .. . = < > + - * / % ^ _ ? ! & # ∈ ∘ ∣ ‹ › ` ~ ↦ ∪ ∩ ⊆ ∑ ∏ ∅ ⁻¹"
    ),
    key=len,
    reverse=True,
)
_SYMBOLS_FROM = {
    first: tuple(symbol for symbol in _SYMBOLS if symbol[0] == first) for first in {s[0] for s in _SYMBOLS}
}
_DIGITS = re.compile("[0-9]*")
_PLAIN = re.compile(r"[A-Za-z0-9_'!?₀-₉]*")
"""What goes on most names: where it ends, `_continues` says whether that was the end."""


def _starts_identifier(char: str) -> bool:
    return (char.isalpha() and char not in "λΠΣ") or char in "_«"


def _continues(char: str) -> bool:
    return _starts_identifier(char) or char.isdigit() or char in "'!?" or "₀" <= char <= "₉"


def tokenize(text: str) -> tuple[Token, ...]:
    """Split a text into tokens, the last of kind "end".

    Raises:
        ParseError: an unclosed comment, string or «name», or a character that Lean has no token for.
    """
    tokens = all_tokens(text)
    broken = next((token for token in tokens if token.kind == "broken"), None)
    if broken is not None:
        raise ParseError(broken.text, broken.start)
    return tokens


def all_tokens(text: str) -> tuple[Token, ...]:
    """Split a text into tokens, the last of kind "end", broken ones among them: what is around them still counts."""
    tokens: list[Token] = []
    at = line_start = 0
    first = True
    previous_end = -1
    length = len(text)
    while at < length:
        char = text[at]
        if char in " \t\r":
            at += 1
            continue
        if char == "\n":
            at, first = at + 1, True
            line_start = at
            continue
        if text.startswith("--", at):
            newline = text.find("\n", at)
            at = length if newline < 0 else newline
            continue
        new_line_start = line_start
        try:
            if text.startswith("/-", at):
                is_doc = text.startswith(("/--", "/-!"), at)
                end, new_line_start = _skip_comment(text, at, line_start)
                if not is_doc:
                    at, line_start = end, new_line_start
                    continue
                kind: TokenKind = "doc"
            else:
                kind, end = _token(text, at)
            shown = text[at:end]
        except ParseError as error:
            # What is not closed reaches to the end; a strange character is only itself.
            kind, end = "broken", length if error.message.startswith("unterminated") else at + 1
            shown = error.message
        glued = previous_end == at and bool(tokens)
        tokens.append(Token(kind, shown, at, end, at - line_start, first, glued))
        at = previous_end = end
        line_start, first = new_line_start, False
    tokens.append(Token("end", "", length, length, 0, first=True, glued=False))
    return tuple(tokens)


def _skip_comment(text: str, at: int, line_start: int) -> tuple[int, int]:
    start, depth = at, 0
    while True:
        opening, closing = text.find("/-", at), text.find("-/", at)
        if closing < 0:
            raise ParseError("unterminated comment", start)
        if 0 <= opening < closing:
            depth, at = depth + 1, opening + 2
        else:
            depth, at = depth - 1, closing + 2
            if depth == 0:
                newline = text.rfind("\n", start, at)
                return at, line_start if newline < 0 else newline + 1


def _token(text: str, at: int) -> tuple[TokenKind, int]:
    char = text[at]
    if char.isdigit() and char.isascii():
        return "number", _end_of(_DIGITS, text, at)
    if char == '"':
        end = at + 1
        while end < len(text) and text[end] != '"':
            end += 2 if text[end] == "\\" else 1
        if end >= len(text):
            raise ParseError("unterminated string literal", at)
        return "string", end + 1
    if char == "#" and at + 1 < len(text) and text[at + 1].isalpha():
        end = at + 1
        while end < len(text) and (text[end].isalnum() or text[end] == "_"):
            end += 1
        return "keyword", end
    if _starts_identifier(char) and not (
        char == "_" and (at + 1 == len(text) or not _continues(text[at + 1]))
    ):
        end = _identifier(text, at)
        return ("keyword" if text[at:end] in KEYWORDS else "ident"), end
    for symbol in _SYMBOLS_FROM.get(char, ()):
        if text.startswith(symbol, at):
            return "symbol", at + len(symbol)
    raise ParseError(f"unexpected token '{char}'", at)


def _end_of(run: re.Pattern[str], text: str, at: int) -> int:
    """Return where a run that may be empty ends."""
    found = run.match(text, at)
    return found.end() if found else at


def _identifier(text: str, at: int) -> int:
    while True:
        if text[at] == "«":
            closing = text.find("»", at)
            if closing < 0:
                raise ParseError("unterminated identifier escape", at)
            at = closing + 1
        else:
            at = _end_of(_PLAIN, text, at)
            while at < len(text) and text[at] != "«" and _continues(text[at]):
                at = _end_of(_PLAIN, text, at + 1)
        if at + 1 < len(text) and text[at] == "." and _starts_identifier(text[at + 1]):
            at += 1
        else:
            return at


def plain_name(text: str) -> str:
    """Drop the «» quotes that a name does not need; two spellings of one name become one."""
    if "«" not in text:
        return text
    parts: list[str] = []
    rest = text
    while rest:
        if rest.startswith("«"):
            part, _, rest = rest[1:].partition("»")
            plain = part and _starts_identifier(part[0]) and all(_continues(char) for char in part)
            parts.append(part if plain else f"«{part}»")
            rest = rest.removeprefix(".")
        else:
            part, _, rest = rest.partition(".")
            parts.append(part)
    return ".".join(parts)


def is_name(text: str) -> bool:
    """Return whether Lean reads a text as a name: identifiers, «quoted» parts and numbers, joined by dots."""
    rest = text
    while rest:
        if rest[0].isdigit() and rest[0].isascii():
            end = len(rest) - len(rest.lstrip("0123456789"))
        elif _starts_identifier(rest[0]):
            closed = rest[0] != "«" or (rest.find("»") > 1)
            end = _part_end(rest) if closed else 0
        else:
            end = 0
        if not end:
            return False
        if end == len(rest):
            return True
        if rest[end] != ".":
            return False
        rest = rest[end + 1 :]
    return False


def _part_end(text: str) -> int:
    if text[0] == "«":
        return text.find("»") + 1
    end = 1
    while end < len(text) and text[end] != "«" and _continues(text[end]):
        end += 1
    return end

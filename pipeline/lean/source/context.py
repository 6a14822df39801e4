"""Read what stands around a declaration and belongs to what its statement says: variables, opened namespaces, options.

The lines in force at a declaration (`SourceFile.in_force`) and the `… in` before it are cut into parts that are
compared one by one: a `variable` line that was split in two, or got a variable that no statement names, changes
nothing. Notations, macros and instances are items of their own: each says by which words or signs a statement uses it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from pipeline.lean.source.commands import CLOSERS
from pipeline.lean.source.lexer import ID_FIRST, ID_REST, lex, words
from store.domain.identity import normalise

PartKind = Literal["variable", "instance", "include", "open", "option", "attribute"]

_WORD = rf"(?:«[^«»\n]*»|[{ID_FIRST}][{ID_REST}]*)"
_WORDS = re.compile(rf"{_WORD}(?:\.{_WORD})*")
_OPENERS = frozenset(CLOSERS.values())
_IN = re.compile(rf"(?<![{ID_REST}.])in(?![{ID_REST}])")
_BOUND = re.compile(r"[({⦃\[]([^:(){}\[\]⦃⦄]*):")
_MEANING_OPTIONS = frozenset({"autoImplicit", "relaxedAutoImplicit"})
_MEANING_ATTRIBUTES = frozenset({"instance", "coe", "default_instance", "macro", "app_unexpander"})
_TAKES_EFFECT_NOW = re.compile(r"\[[^\]]*\]")


class Part(NamedTuple):
    """A part of what is in force at a declaration. `names` are those that it binds, or the namespaces that it opens."""

    kind: PartKind
    text: str
    names: tuple[str, ...] = ()


class Opened(NamedTuple):
    """A namespace whose names may be written without it: all, `only` some, or all but those that are `hidden`."""

    namespace: str
    only: frozenset[str] | None = None
    hidden: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        return (self.only is None or name in self.only) and name not in self.hidden


def words_of(text: str) -> frozenset[str]:
    """Return the names that a piece of code has, dotted ones whole."""
    return frozenset(_WORDS.findall(text))


def last_parts(words: Collection[str]) -> set[str]:
    """Return every part of dotted names by itself."""
    return {part for word in words for part in _parts(word)}


def _parts(word: str) -> list[str]:
    return re.findall(_WORD, word)


def before_the_declaration(text: str) -> tuple[str, ...]:
    """Return the commands that stand before a declaration with an `in`, as lines; `text` is what is before it."""
    if "in" not in text:
        return ()
    pieces = _IN.split(normalise(lex(text).code))
    return tuple(piece.strip() for piece in pieces[:-1] if piece.strip())


@lru_cache(maxsize=16_384)
def parts_of(line: str) -> tuple[Part, ...]:
    """Return the parts of a line in force, as `SourceFile.in_force` gives it; none of what changes no statement."""
    word, _, rest = line.partition(" ")
    if word in ("variable", "variables", "variable!"):
        return tuple(part for binder in _binders(rest) for part in _variables(binder))
    if word in ("include", "omit"):
        return (Part("include", line, tuple(_WORDS.findall(rest))),)
    if word in ("open", "export"):
        scoped = rest.removeprefix("scoped ")
        names = [one.namespace for one in opened(line)] if scoped == rest else _WORDS.findall(scoped)
        return (Part("open", line, tuple(names)),)
    if word == "set_option" and rest.split(" ")[0] in _MEANING_OPTIONS:
        return (Part("option", line),)
    given = _TAKES_EFFECT_NOW.search(line) if word == "attribute" else None
    if given is not None and words_of(given.group()) & _MEANING_ATTRIBUTES:
        return (Part("attribute", line, tuple(_WORDS.findall(line[given.end() :]))),)
    return ()


def _binders(text: str) -> Iterator[str]:
    """Yield the brackets at the top of a text, each with what is in it."""
    depth = start = 0
    for at, character in enumerate(text):
        if character in _OPENERS:
            start = start if depth else at
            depth += 1
        elif character in CLOSERS and depth:
            depth -= 1
            if not depth:
                yield text[start : at + 1]


def _variables(binder: str) -> Iterator[Part]:
    """Yield the variables of one binder. How it is bound, implicit or not, changes no statement."""
    inside = binder[1:-1].strip()
    names, colon, of = inside.partition(":")
    if binder.startswith("["):
        named = tuple(_WORDS.findall(names)) if colon else ()
        yield Part("instance", f"[{(of if colon else inside).strip()}]", named)
    elif colon:
        for name in names.split():
            yield Part("variable", f"({name} : {of.strip()})", (name,))


@lru_cache(maxsize=16_384)
def opened(line: str) -> tuple[Opened, ...]:
    """Return the namespaces that an `open` or `export` line opens; `open scoped` brings no names."""
    _, _, rest = line.partition(" ")
    if rest.startswith("scoped "):
        return ()
    if "(" in rest:
        namespace, _, names = rest.partition("(")
        return (Opened(namespace.strip(), only=frozenset(names.rstrip(") ").split())),)
    for word in (" hiding ", " renaming "):
        if word in rest:
            namespace, _, names = rest.partition(word)
            hidden = frozenset(_WORDS.findall(names)) if word == " hiding " else frozenset()
            return (Opened(namespace.strip(), hidden=hidden),)
    return tuple(Opened(name) for name in _WORDS.findall(rest))


def concerned(part: Part, words: Collection[str], bound: Collection[str]) -> bool:
    """Return whether a part could change what a statement with these words says.

    Args:
        part: of what is in force; `open` is not for here, names are looked up where they are declared.
        words: the statement's, with those of the types of the variables among them (`with_types`).
        bound: the names of all variables in force.
    """
    if part.kind == "variable":
        return part.names[0] in words
    if part.kind == "instance":
        # Lean takes it for each statement that has all that it speaks of.
        return last_parts(words_of(part.text)) & set(bound) <= set(words)
    return part.kind != "open"


def with_types(words: Collection[str], parts: Collection[Part]) -> set[str]:
    """Return words with those of the types of the variables that they name, and so on."""
    found = set(words) | last_parts(words)
    types = {part.names[0]: words_of(part.text) for part in parts if part.kind == "variable" and part.names}
    todo = [name for name in types if name in found]
    while todo:
        new = last_parts(types.pop(todo.pop(), frozenset())) - found
        found |= new
        todo += [name for name in new if name in types]
    return found


# ---- notations, macros, instances


class Item(NamedTuple):
    """A notation, macro or instance. `signs` are what a text has that uses it, `named` the constants of an instance's
    type, its class first; `local`: nothing outside of its file, or before it, sees it."""

    kind: Literal["notation", "instance"]
    text: str
    byte: int
    local: bool
    signs: frozenset[str]
    named: tuple[str, ...] = ()
    sorry: bool = False
    """a sorry is in it, which each use brings"""
    apart: bool = False
    """each of the signs may be used by itself"""
    scope: str = ""
    """the namespace that has to be open for what is `scoped`"""


NOTATIONS = words(
    "notation notation3 infix infixl infixr prefix postfix macro macro_rules syntax elab elab_rules "
    "binder_predicate"
)
_ATOM = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PATTERN = re.compile(r"`\((?:(\w+)\s*\|)?((?:[^()]|\([^()]*\))*)\)\s*=>")
_SIGN = re.compile(rf"\$?[{ID_FIRST}][{ID_REST}.]*|[^\s\w$()]+")
_LOCAL = re.compile(rf"\blocal\b(?=[^{{}}]*?\b(?:{'|'.join(sorted(NOTATIONS))})\b)")
_SORRY = re.compile(rf"(?<![{ID_REST}.])(?:sorry|sorryAx|admit)(?![{ID_REST}])")

_SIGNS_OF = {
    name: signs
    for names, signs in (
        ("Add HAdd", "+"), ("Mul HMul", "*"), ("Sub HSub Neg", "-"), ("Div HDiv", "/"), ("Mod HMod", "%"),
        ("Pow HPow NatPow", "^"), ("Inv", "⁻¹"), ("SMul HSMul", "•"), ("Append HAppend", "++"), ("Dvd", "∣"),
        ("LE", "≤ ≥ <= >="), ("LT", "< >"), ("Membership", "∈ ∉"), ("HasSubset", "⊆ ⊇"), ("HasSSubset", "⊂ ⊃"),
        ("Union", "∪"), ("Inter", "∩"), ("SDiff", "\\"), ("Max", "⊔ max"), ("Min", "⊓ min"), ("Top", "⊤"), ("Bot", "⊥"),
        ("Zero", "0"), ("One", "1"), ("OfNat", "0 1 2 3 4 5 6 7 8 9"), ("EmptyCollection", "∅"), ("BEq", "=="),
        ("Singleton Insert", "{"), ("GetElem GetElem?", "["), ("Norm", "‖"), ("HasEquiv", "≈"), ("Setoid", "≈ ⟦"),
        ("Functor", "<$>"), ("Seq", "<*>"), ("Bind", ">>="), ("HOrElse", "<|>"), ("HAndThen", ">>"),
        ("AndOp", "&&&"), ("OrOp", "|||"), ("XorOp", "^^^"), ("Complement", "~~~"),
        ("HShiftLeft", "<<<"), ("HShiftRight", ">>>"),
    )
    for name in names.split(" ")
}  # fmt: skip
"""The signs by which a statement uses an instance of a class of Lean's or Mathlib's."""
_SAY_NOTHING = words(
    "Repr ToString ToExpr ToMessageData ToFormat Inhabited Nonempty Subsingleton Hashable Fintype "
    "Finite Countable Encodable Denumerable Decidable DecidableEq DecidablePred DecidableRel "
    "LawfulBEq Infinite Nontrivial TypeName FromJson ToJson Quote Std.Associative Std.Commutative"
)
"""Classes of which a statement hardly means another instance: all are equal, or they only show."""
_BRINGS_SIGNS = re.compile(
    r"(?:[Rr]ing|[Gg]roup|[Ff]ield|Lattice|[Oo]rder|Module|[Mm]onoid|Algebra|WithZero|Domain|Magma|Space|Action|Category|"
    r"Norm\w*|Monad|Applicative|Alternative|Quantale|Frame|Star|SetLike|FunLike|NatCast|IntCast|RatCast)$"
)
"""Classes of Mathlib's that bring many signs at once."""
_ANY_SIGN = re.compile(r"[-+*/^•≤<≥>∈⊆∪∩⊔⊓⊤⊥∣↑‖∅0-9\[]|⁻¹|⇑")


def notation_of(code: str, keyword: str, *, byte: int) -> Item:
    """Return what a command that gives syntax a meaning is; `code` is its text without comments."""
    text = normalise(code)
    signs = {atom.strip() for atom in _ATOM.findall(text.partition("=>")[0])}
    for category, pattern in _PATTERN.findall(text) if keyword.endswith("_rules") else ():
        if category in ("", "term"):
            signs |= {sign for sign in _SIGN.findall(pattern) if not sign.startswith("$")}
    return Item(
        "notation",
        text,
        byte,
        _LOCAL.search(text) is not None,
        frozenset(signs - {""}),
        sorry=_SORRY.search(lex(text).bare) is not None,
        apart=keyword in ("macro_rules", "elab_rules", "syntax"),
    )


def instance_of(code: str, statement: str, *, byte: int) -> Item:
    """Return what an instance is; `code` is its text without comments, `statement` what stands before its value."""
    bound = {name for names in _BOUND.findall(statement) for name in names.split()}
    named = [
        word
        for word in _WORDS.findall(_after_the_last_colon(statement))
        if word not in bound and word not in ("Type", "Sort", "Prop", "fun", "forall")
    ]
    head = normalise(code)[:200].split("instance")[0]
    return Item("instance", normalise(code), byte, "local" in head, frozenset(), tuple(named))


def _after_the_last_colon(statement: str) -> str:
    depth = start = 0
    for at, character in enumerate(statement):
        depth += (character in _OPENERS) - (character in CLOSERS)
        if character == ":" and not depth:
            start = at + 1
    return statement[start:]


def uses(item: Item, statement: str, words: Collection[str]) -> bool:
    """Return whether a statement could mean something else where this item comes, goes or changes.

    A notation is used with all of its signs, a macro's rules each with their own.

    Args:
        item: a notation, a macro or an instance.
        statement: the text.
        words: its names, with those of its variables' types.
    """
    if item.kind == "notation":
        found = [sign in words if sign[0].isalpha() else sign in statement for sign in item.signs]
        return bool(found) and (any(found) if item.apart else all(found))
    if not item.named:
        return True
    name, *arguments = item.named
    concrete = {word for word in arguments if word[0].isupper() or "." in word}
    has = set(words) | ({"Nat", "ℕ"} if re.search(r"\d", statement) else set())
    if name in _SAY_NOTHING or not last_parts(concrete) <= has:
        return False
    if name in has:
        return True
    if name in _SIGNS_OF:
        return any(sign in statement for sign in _SIGNS_OF[name].split(" "))
    if name.startswith(("Coe", "Lift")):
        return True
    brings_signs = _BRINGS_SIGNS.search(name) is not None
    return brings_signs and bool(concrete) and _ANY_SIGN.search(statement) is not None

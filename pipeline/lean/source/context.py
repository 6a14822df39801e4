"""Read what stands around a declaration and belongs to what its statement says: variables, opened namespaces, options.

The lines in force at a declaration (`SourceFile.in_force`) and the `… in` before it are cut into parts that are
compared one by one: a `variable` line that was split in two, or got a variable that no statement names, changes
nothing. Notations, macros and instances are items of their own: each says by which words or signs a statement uses it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from pipeline.lean.source.commands import CLOSERS
from pipeline.lean.source.forbidden import SORRY_NAMES
from pipeline.lean.source.lexer import ID_FIRST, ID_REST, lex, words
from store.domain.identity import normalise

PartKind = Literal["variable", "instance", "include", "open", "option", "attribute"]

_WORD = rf"(?:«[^«»\n]*»|[{ID_FIRST}][{ID_REST}]*)"
_WORDS = re.compile(rf"{_WORD}(?:\.{_WORD})*")
_OPENERS = frozenset(CLOSERS.values())
_BRACKET = re.compile(r"[()\[\]{}⟨⟩⦃⦄]")
_PIECES = re.compile(rf"(?P<word>{_WORD}(?:\.{_WORD})*)|=>|:=|//|\S")
_BIND = words("∀ ∃ ∑ ∏ ∫ ⋃ ⋂ ⨆ ⨅ Σ Π λ fun")
_BELONGS_TO_A_BINDER = frozenset("!'ᶠᵐ_")
_LONGEST_PATTERN = 1000
_NAMED = re.compile(rf"\s*({_WORD}(?:\s+{_WORD})*)\s*(:(?!=)|∈|//|\|(?!\|))")
_PART_OF_SYNTAX = re.compile(r"\bsyntax (\w+) :=")
_IN_A_PATTERN = re.compile(rf"(?<=[⟨(,])\s*({_WORD})\s*(?=[,⟩)])")
_IN = re.compile(rf"(?<![{ID_REST}.])in(?![{ID_REST}])")
_BOUND = re.compile(r"[({⦃\[]([^:(){}\[\]⦃⦄]*):")
_MEANING_OPTIONS = frozenset({"autoImplicit", "relaxedAutoImplicit"})
_MEANING_ATTRIBUTES = frozenset({"instance", "default_instance", "macro"})
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


_BINDERS = words(
    "fun λ intro intros rintro obtain rcases have let with next case rename_i set generalize choose"
)
_BINDERS_END = words("=> := : ; | <;> ↦ at")


def words_of(text: str) -> frozenset[str]:
    """Return the names that a piece of code has, dotted ones whole."""
    return frozenset(_WORDS.findall(text))


def bound_names(tokens: Iterable[str]) -> set[str]:
    """Return the words between `fun`, `intro`, `obtain`, … and what ends their names."""
    result: set[str] = set()
    binding = False
    for token in tokens:
        if token in _BINDERS:
            binding = True
        elif token in _BINDERS_END:
            binding = False
        elif binding:
            result |= words_of(token)
    return result


class _Scope:
    """A bracket, or all of a text: the names bound in it, and those that are once a body begins, or it is closed."""

    __slots__ = ("binds", "bound", "gives", "leading", "names", "set_builder", "waits")

    def __init__(self, *, leading: bool = False) -> None:
        self.bound: set[str] = set()
        self.names: set[str] = set()
        self.gives: set[str] = set()
        self.leading = leading
        self.binds = self.set_builder = False
        self.waits = 0


def free_words(text: str) -> frozenset[str]:
    """Return the names that a piece of code has and does not bind itself, dotted ones whole.

    Bound are the names in brackets with a colon that stand before the first colon, as those of a declaration, and what
    stands behind `∀`, `fun`, `∑`, … and in `{x | …}`, as far as the body goes. Of a bound name's field `h.foo`, `_.foo`
    is left. In doubt a name is free.
    """
    return _Names(text).free()


class _Names:
    """Reads a text once from left to right; `scopes` are the brackets that are open."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: set[str] = set()
        self.scopes = [_Scope(leading=True)]
        self.bound: Counter[str] = Counter()  # in how many open scopes a name is bound

    def free(self) -> frozenset[str]:
        at = 0
        while match := _PIECES.search(self.text, at):
            piece, at, scope = match.group(), match.end(), self.scopes[-1]
            if piece in _OPENERS:
                at = self._opens(scope, match)
            elif piece in CLOSERS:
                if len(self.scopes) > 1:
                    self._release(self.scopes.pop())
                    self._bind(self.scopes[-1], scope.gives)
            elif piece in _BIND:
                scope.leading, scope.binds, scope.waits = False, True, scope.waits + 1
            elif scope.set_builder and piece in ("|", "//"):
                self._bind(scope, scope.names)
            elif piece in (",", "=>", "↦") and not scope.set_builder:
                self._body_begins(scope, piece)
            elif not match.lastgroup or piece in ("in", "where"):
                if piece not in _BELONGS_TO_A_BINDER:
                    scope.leading = scope.binds = False
            else:
                self._name(scope, piece)
        return frozenset(self.found)

    def _opens(self, scope: _Scope, match: re.Match[str]) -> int:
        """Open a bracket; return where reading goes on."""
        inner, at = _Scope(), match.end()
        named = _NAMED.match(self.text, at)
        if named and (scope.leading or scope.binds) and named.group(2) == ":":
            inner.gives, at = set(named.group(1).split()), named.end()
        elif named and match.group() == "{" and not (scope.leading or scope.binds):
            inner.names, inner.set_builder, at = set(named.group(1).split()), True, named.end(1)
        elif scope.binds:
            end = _closed(self.text, at)
            inner.gives = set(_IN_A_PATTERN.findall(self.text, match.start(), end))
            self._bind(inner, inner.gives)
        self.scopes.append(inner)
        return at

    def _bind(self, scope: _Scope, names: set[str]) -> None:
        new = names - scope.bound
        scope.bound |= new
        self.bound.update(new)

    def _release(self, scope: _Scope) -> None:
        self.bound.subtract(scope.bound)
        scope.bound = set()

    def _body_begins(self, scope: _Scope, piece: str) -> None:
        if scope.waits:
            self._bind(scope, scope.names)
        elif piece == "," and len(self.scopes) > 1 and not scope.gives:
            self._release(scope)
        scope.waits, scope.binds, scope.names = max(0, scope.waits - 1), False, set()

    def _name(self, scope: _Scope, name: str) -> None:
        head, _, rest = name.partition(".")
        if scope.binds and not rest:
            scope.names.add(name)
        elif self.bound.get(head, 0) <= 0:
            self.found.add(name)
        elif rest:
            self.found.add(f"_.{rest}")


def _closed(text: str, at: int) -> int:
    """Return where the bracket closes in which `at` is, as far as a pattern is long."""
    depth, end = 1, min(len(text), at + _LONGEST_PATTERN)
    for match in _BRACKET.finditer(text, at, end):
        depth += -1 if match.group() in CLOSERS else 1
        if not depth:
            return match.end()
    return end


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
        return tuple(
            Part("open", f"{word} {one}", tuple(_WORDS.findall(one.removeprefix("scoped "))[:1]))
            for one in _namespaces(rest)
        )
    if word == "set_option" and rest.split(" ")[0] in _MEANING_OPTIONS:
        return (Part("option", line),)
    given = _TAKES_EFFECT_NOW.search(line) if word == "attribute" else None
    if given is not None and words_of(given.group()) & _MEANING_ATTRIBUTES:
        return (Part("attribute", line, tuple(_WORDS.findall(line[given.end() :]))),)
    return ()


def _namespaces(text: str) -> list[str]:
    """Return what an `open` opens, one by one: with `scoped` before each that it is said of."""
    if "(" in text or " hiding " in text or " renaming " in text:
        return [text]
    scoped = text.removeprefix("scoped ")
    return _WORDS.findall(text) if scoped == text else [f"scoped {one}" for one in _WORDS.findall(scoped)]


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
        words: the statement's, with those that its variables bring (`InForce.words`).
        bound: the names of all variables in force.
    """
    if part.kind == "variable":
        return part.names[0] in words
    if part.kind == "instance":
        # Lean takes it for each statement that has all that it speaks of.
        return all(word in words for word in _words_of(part) if word in bound)
    return part.kind != "open"


class InForce:
    """The variables and what is included at a declaration, and by which names a text there says what it says."""

    def __init__(self, parts: Collection[Part]) -> None:
        self._variables = {part.names[0]: part for part in parts if part.kind == "variable"}
        self._instances = [part for part in parts if part.kind == "instance"]
        self._included = {name for part in parts if part.kind == "include" for name in part.names}
        self.bound = self._variables.keys() | {name for part in self._instances for name in part.names}
        self._needs = {part: _words_of(part) & self.bound for part in self._instances}

    def _brought(self, words: Collection[str]) -> tuple[set[str], list[Part]]:
        result = set(words) | last_parts(words) | self._included
        variables, instances = dict(self._variables), list(self._instances)
        brought: list[Part] = []
        while True:
            new = [variables.pop(name) for name in result & variables.keys()]
            new += [part for part in instances if self._needs[part] <= result]
            if not new:
                return result, brought
            instances = [part for part in instances if not self._needs[part] <= result]
            brought += new
            for part in new:
                result |= _words_of(part)

    def words(self, text: str) -> set[str]:
        """Return the words of a text with those that its variables bring: what their types say, and the instances of
        which all variables are there."""
        return self._brought(words_of(text))[0]

    def meant(self, text: str) -> frozenset[str]:
        """Return the names by which a text says what it says; what is bound in it, or in force, is none."""
        names = set(free_words(text))
        if self.bound:
            for part in self._brought(words_of(text))[1]:
                names |= free_words(part.text)
            names = {
                f"_.{word.partition('.')[2]}" if word.partition(".")[0] in self.bound else word
                for word in names - self.bound
            }
        return frozenset(names)


@lru_cache(maxsize=16_384)
def _words_in(text: str) -> frozenset[str]:
    words = words_of(text)
    return words | frozenset(last_parts(words))


@lru_cache(maxsize=16_384)
def _words_of(part: Part) -> frozenset[str]:
    return frozenset(last_parts(words_of(part.text)))


# ---- notations, macros, instances


class Item(NamedTuple):
    """A notation, macro or instance.

    `signs` are what a text has that uses it, of each of its rules all; `named` the constants of an instance's type, its
    class first; `local`: nothing outside of its file, or before it, sees it.
    """

    kind: Literal["notation", "instance"]
    text: str
    byte: int
    local: bool
    signs: tuple[frozenset[str], ...]
    named: tuple[str, ...] = ()
    sorry: bool = False
    """a sorry is in it, which each use brings"""
    in_terms: bool = True
    namespace: str = ""
    """where it stands"""
    scope: str = ""
    """the namespace that has to be open for what is `scoped`"""

    @property
    def proposition(self) -> bool:
        """Whether an instance is one of a class of propositions, by the names that Mathlib gives these."""
        return bool(self.named) and _PROPOSITION.fullmatch(self.named[0].rpartition(".")[2]) is not None

    @property
    def names(self) -> frozenset[str]:
        """The names that it has in it."""
        return _words_in(self.text)

    @property
    def said(self) -> str:
        """What it is: its text without its own name, how it is printed, and what says where it holds."""
        text = _NOT_SAID.sub("", _INSTANCE_S_NAME.sub(r"\1", self.text))
        return _ATOM.sub(lambda atom: f'"{atom.group(1).strip()}"', text)


NOTATIONS = words(
    "notation notation3 infix infixl infixr prefix postfix macro macro_rules syntax elab elab_rules "
    "binder_predicate"
)
_ATOM = re.compile(r'"((?:[^"\\]|\\.)*)"')
_GROUP = r'\((?:[^()"]|"(?:[^"\\]|\\.)*")*'
_MAY_BE_LEFT_OUT = re.compile(rf"{_GROUP}\)(?:,?[*?+]|,\*,\?)|{_GROUP}<\|>[^()]*\)")
_CATEGORY = re.compile(r":\s*(\w+)\s*(?:=>|:=|\Z)")
_PATTERN = re.compile(r"`\((?:(\w+)\s*\|)?((?:[^()]|\([^()]*\))*)\)\s*=>")
_SPLICE = re.compile(r"\$\[[^\]]*\][^\s\w()]*|\$(?:\([^()]*\)|[\w'!?]+)(?::\w+)?(?:,\*,?\??|[*?+])?")
_SIGN = re.compile(rf"[{ID_FIRST}][{ID_REST}.]*|[^\s\w$()]+")
_LOCAL = re.compile(rf"\blocal\b(?=[^{{}}]*?\b(?:{'|'.join(sorted(NOTATIONS))})\b)")
_SORRY = re.compile(rf"(?<![{ID_REST}.])(?:{'|'.join(sorted(SORRY_NAMES))})(?![{ID_REST}])")

_ATTRIBUTES = re.compile(
    r"@\[(?![^\]]*\b(?:default_instance|macro|term_elab|reducible|instance)\b)[^\]]*\] ?"
)
_NOT_SAID = re.compile(r"\b(?:scoped(?:\[[^\]]*\])?|local|private|protected|noncomputable|public) ")
_INSTANCE_S_NAME = re.compile(r"\b(instance(?: \(priority[^)]*\))?) [^\s:(\[{]+(?= [:(\[{])")
_BOUND_BY_ITSELF = re.compile(r"[^\W\d_][\d₀-₉']*")
"""A name that Lean takes for a variable where nothing is called so."""
_SIGN_OF_A_TYPE = re.compile(r"[×⊗⊕⊔⊓∘•]")
_NO_TERMS = words("tactic command attr conv doElem level prio prec stx")
_IN_EVERY_TERM = words("( ) [ ] { } ⟨ ⟩ _ , | : ; . ! ? = := => ← → - + * /")

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
SAY_NOTHING = words(
    "Repr ToString ToExpr ToMessageData ToFormat Inhabited Nonempty Subsingleton Hashable Fintype "
    "Finite Countable Encodable Denumerable Decidable DecidableEq DecidablePred DecidableRel "
    "LawfulBEq Infinite Nontrivial TypeName FromJson ToJson Quote Std.Associative Std.Commutative"
)
"""Classes of which a statement hardly means another instance: all are equal, or they only show."""
_PROPOSITION = re.compile(r"Is[A-Z]\w*|\w+Class|NeZero|NoZero\w*|CharZero|CharP|Fact|Nontrivial|LawfulBEq")
_IN_PROP = re.compile(r":\s*Prop\s*(?:where\b|:=|\Z)")
_BRINGS_SIGNS = re.compile(
    r"(?:[Rr]ing|[Gg]roup|[Ff]ield|Lattice|[Oo]rder|Module|[Mm]onoid|Algebra|WithZero|Domain|Magma|Space|Action|Category|"
    r"Norm\w*|Monad|Applicative|Alternative|Quantale|Frame|Star|SetLike|FunLike|NatCast|IntCast|RatCast)$"
)
"""Classes of Mathlib's that bring many signs at once."""
_ANY_SIGN = re.compile(r"[-+*/^•≤<≥>∈⊆∪∩⊔⊓⊤⊥∣↑‖∅0-9\[]|⁻¹|⇑")


def text_of(code: str) -> str:
    """Return a notation's or an instance's text as it is compared: without the attributes that change no meaning."""
    return _ATTRIBUTES.sub("", normalise(code))


def notation_of(code: str, keyword: str, *, byte: int) -> Item:
    """Return what a command that gives syntax a meaning is; `code` is its text without comments."""
    text = text_of(code)
    given = _CATEGORY.search(text) or _PART_OF_SYNTAX.search(text)
    category = given.group(1) if given and keyword in ("syntax", "macro", "elab") else "term"
    signs: list[frozenset[str]] = []
    if keyword.endswith("_rules"):
        for its, pattern in _PATTERN.findall(text):
            if its in ("", "term"):
                signs.append(frozenset(_SIGN.findall(_SPLICE.sub(" ", pattern))))
    else:
        before = text.partition("=>")[0]
        needed = _atoms(_MAY_BE_LEFT_OUT.sub(" ", before))
        signs = [needed] if needed else [frozenset({sign}) for sign in _atoms(before)]
    if category not in _NO_TERMS and category != "term":
        # A term has what is of another category between signs of its own.
        signs = [some - _IN_EVERY_TERM for some in signs if some - _IN_EVERY_TERM]
    return Item(
        "notation",
        text,
        byte,
        _LOCAL.search(text) is not None,
        tuple(signs),
        sorry=_SORRY.search(lex(text).bare) is not None,
        in_terms=category not in _NO_TERMS,
    )


def _atoms(text: str) -> frozenset[str]:
    return frozenset(atom.strip() for atom in _ATOM.findall(text) if atom.strip())


def instance_of(code: str, statement: str, *, byte: int, variables: Collection[str] = ()) -> Item:
    """Return what an instance is.

    Args:
        code: its text without comments.
        statement: what stands before its value.
        byte: where it begins.
        variables: the names of those in force there.
    """
    bound = {name for names in _BOUND.findall(statement) for name in names.split()} | set(variables)
    claimed = _claimed(_after_the_last_colon(statement))
    named = [
        word
        for word in _WORDS.findall(claimed)
        if word not in bound and word not in ("Type", "Sort", "Prop", "fun", "forall")
    ]
    text = text_of(code)
    signs = frozenset(_SIGN_OF_A_TYPE.findall(claimed))
    local = "local" in text[:200].split("instance")[0]
    return Item("instance", text, byte, local, (signs,), tuple(named))


def is_a_proposition(statement: str) -> bool:
    """Return whether what a class's statement declares is a proposition."""
    return _IN_PROP.search(statement) is not None


def given_later(code: str) -> tuple[str, ...]:
    """Return the names that an `attribute` command makes instances, or what else changes a meaning, in all files."""
    line = normalise(code)
    given = _TAKES_EFFECT_NOW.search(line)
    said = frozenset[str]() if given is None else words_of(given.group())
    if given is None or not said & _MEANING_ATTRIBUTES or said & {"local", "scoped"}:
        return ()
    return tuple(_WORDS.findall(line[given.end() :]))


def _claimed(of: str) -> str:
    """Return what stands behind the hypotheses of a type: `C (f x)` of `∀ x, [C x] → C (f x)`."""
    depth = start = 0
    universal = of.lstrip().startswith("∀")
    for at, character in enumerate(of):
        depth += (character in _OPENERS) - (character in CLOSERS)
        if not depth and (character == "→" or (character == "," and universal)):
            start = at + 1
    return of[start:]


def _after_the_last_colon(statement: str) -> str:
    depth = start = 0
    for at, character in enumerate(statement):
        depth += (character in _OPENERS) - (character in CLOSERS)
        if character == ":" and not depth:
            start = at + 1
    return statement[start:]


def has_signs(item: Item, text: str, words: Collection[str]) -> bool:
    """Return whether a text with these words has all that one of a notation's rules is made of."""
    return any(
        all(sign in words if sign[0].isalpha() else sign in text for sign in some) for some in item.signs
    )


def uses(item: Item, statement: str, words: Collection[str]) -> bool:
    """Return whether a statement could mean something else where this item comes, goes or changes.

    Args:
        item: a notation, a macro or an instance.
        statement: the text.
        words: its names, with those that its variables bring.
    """
    if item.kind == "notation":
        return item.in_terms and has_signs(item, statement, words)
    if not item.named:
        return True
    name, *arguments = item.named
    concrete = {word for word in arguments if not _BOUND_BY_ITSELF.fullmatch(word)}
    has = set(words) | ({"Nat", "ℕ"} if re.search(r"\d", statement) else set())
    if name in SAY_NOTHING or not last_parts(concrete) <= has or not has_signs(item, statement, has):
        return False
    if name in has:
        return True
    if name in _SIGNS_OF:
        return any(sign in statement for sign in _SIGNS_OF[name].split(" "))
    if name.startswith(("Coe", "Lift")):
        return True
    brings_signs = _BRINGS_SIGNS.search(name) is not None
    return brings_signs and bool(concrete) and _ANY_SIGN.search(statement) is not None

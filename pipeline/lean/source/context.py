"""Read the part of a declaration's context that decides its statement's meaning: variables, namespaces, options.

The lines in force at a declaration (`SourceFile.in_force`) and the `… in` before it are cut into parts, compared one
by one: a `variable` line split in two, or a variable in no statement, changes nothing. Notations, macros and instances
are separate items; each has the words or signs of a statement using it.
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
    """A part of a declaration's context. `names`: the names it binds, or the namespaces it opens."""

    kind: PartKind
    text: str
    names: tuple[str, ...] = ()


class Opened(NamedTuple):
    """A namespace whose names can be written short: all, `only` some, or all except the `hidden`."""

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
    """Return the names in a piece of code, dotted ones whole."""
    return frozenset(_WORDS.findall(text))


def bound_names(tokens: Iterable[str]) -> set[str]:
    """Return the words between `fun`, `intro`, `obtain`, … and the end of their names."""
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
    """A bracket, or a whole text: names bound in it; `names` bound once a body begins, `gives` once it closes."""

    __slots__ = ("binds", "bound", "gives", "leading", "names", "set_builder", "waits")

    def __init__(self, *, leading: bool = False) -> None:
        self.bound: set[str] = set()
        self.names: set[str] = set()
        self.gives: set[str] = set()
        self.leading = leading
        self.binds = self.set_builder = False
        self.waits = 0


def free_words(text: str) -> frozenset[str]:
    """Return the free names of a piece of code, dotted ones whole.

    Bound are names in brackets with a colon before the first colon, as in a declaration, and names after `∀`, `fun`,
    `∑`, … and in `{x | …}`, as far as the body goes. A field of a bound name, `h.foo`, becomes `_.foo`. In doubt a
    name is free.
    """
    return _Names(text).free()


class _Names:
    """A single pass over a text from left to right; `scopes` are the open brackets."""

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
        """Open a bracket; return the position after it and its binders."""
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
    """Return the end of the bracket around `at`, searched no further than a pattern's greatest length."""
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
    """Return the `… in` commands before a declaration, as lines; `text` is the text before it."""
    if "in" not in text:
        return ()
    pieces = _IN.split(normalise(lex(text).code))
    return tuple(piece.strip() for piece in pieces[:-1] if piece.strip())


@lru_cache(maxsize=16_384)
def parts_of(line: str) -> tuple[Part, ...]:
    """Return the parts of a line of `SourceFile.in_force`, without those that cannot change a statement."""
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
    """Return the namespaces opened by an `open`, with `scoped` before each scoped one."""
    if "(" in text or " hiding " in text or " renaming " in text:
        return [text]
    scoped = text.removeprefix("scoped ")
    return _WORDS.findall(text) if scoped == text else [f"scoped {one}" for one in _WORDS.findall(scoped)]


def _binders(text: str) -> Iterator[str]:
    """Yield the outermost brackets of a text with their content."""
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
    """Yield the variables of one binder. Implicit or explicit makes no difference to a statement."""
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
    """Return the namespaces opened by an `open` or `export` line; `open scoped` brings no names."""
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
    """Return whether a part could change the meaning of a statement with these words.

    Args:
        part: no `open`, since names are looked up at their declarations.
        words: the statement's, with its variables' (`InForce.words`).
        bound: the names of all variables in force.
    """
    if part.kind == "variable":
        return part.names[0] in words
    if part.kind == "instance":
        # Lean includes it in each statement with all the variables it mentions.
        return all(word in words for word in _words_of(part) if word in bound)
    return part.kind != "open"


class InForce:
    """The variables and included names at a declaration; resolves the names a text there depends on."""

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
        """Return the words of a text and of its variables: the words of their types, and of each instance whose
        variables are all there."""
        return self._brought(words_of(text))[0]

    def meant(self, text: str) -> frozenset[str]:
        """Return the names that decide a text's meaning, without names bound in it or in force."""
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

    `signs`: a text with all of one set uses it; a set for each rule. `named`: the constants of an instance's type, its
    class first. `local`: invisible before it and outside its file.
    """

    kind: Literal["notation", "instance"]
    text: str
    byte: int
    local: bool
    signs: tuple[frozenset[str], ...]
    named: tuple[str, ...] = ()
    sorry: bool = False
    """its text has a sorry, so each use brings one"""
    in_terms: bool = True
    namespace: str = ""
    """its namespace"""
    scope: str = ""
    """the namespace to open for a `scoped` item"""

    @property
    def proposition(self) -> bool:
        """Whether an instance's class is one of propositions, by Mathlib's naming."""
        return bool(self.named) and _PROPOSITION.fullmatch(self.named[0].rpartition(".")[2]) is not None

    @property
    def names(self) -> frozenset[str]:
        """The names in its text."""
        return _words_in(self.text)

    @property
    def said(self) -> str:
        """Its text without its name, spaces for printing and its visibility."""
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
"""A name that Lean auto-binds as a variable if nothing has it."""
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
"""Signs by which a statement uses an instance of a class of Lean or Mathlib."""
SAY_NOTHING = words(
    "Repr ToString ToExpr ToMessageData ToFormat Inhabited Nonempty Subsingleton Hashable Fintype "
    "Finite Countable Encodable Denumerable Decidable DecidableEq DecidablePred DecidableRel "
    "LawfulBEq Infinite Nontrivial TypeName FromJson ToJson Quote Std.Associative Std.Commutative"
)
"""Classes whose instances hardly change a statement's meaning: all are equal, or serve only to print."""
_PROPOSITION = re.compile(r"Is[A-Z]\w*|\w+Class|NeZero|NoZero\w*|CharZero|CharP|Fact|Nontrivial|LawfulBEq")
_IN_PROP = re.compile(r":\s*Prop\s*(?:where\b|:=|\Z)")
_BRINGS_SIGNS = re.compile(
    r"(?:[Rr]ing|[Gg]roup|[Ff]ield|Lattice|[Oo]rder|Module|[Mm]onoid|Algebra|WithZero|Domain|Magma|Space|Action|Category|"
    r"Norm\w*|Monad|Applicative|Alternative|Quantale|Frame|Star|SetLike|FunLike|NatCast|IntCast|RatCast)$"
)
"""Classes of Mathlib with many signs at once."""
_ANY_SIGN = re.compile(r"[-+*/^•≤<≥>∈⊆∪∩⊔⊓⊤⊥∣↑‖∅0-9\[]|⁻¹|⇑")


def text_of(code: str) -> str:
    """Return a notation's or instance's text for comparison: without attributes that change no meaning."""
    return _ATTRIBUTES.sub("", normalise(code))


def notation_of(code: str, keyword: str, *, byte: int) -> Item:
    """Return the item of a command for syntax; `code` is its text without comments."""
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
        # In a term, syntax of another category stands between signs of its own.
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
    """Return the item of an instance.

    Args:
        code: its text without comments.
        statement: its text before the value.
        byte: its position.
        variables: the names of the variables in force there.
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
    """Return whether a class's statement declares a proposition."""
    return _IN_PROP.search(statement) is not None


def given_later(code: str) -> tuple[str, ...]:
    """Return the names to which an `attribute` command gives another meaning, such as `instance`, in all files."""
    line = normalise(code)
    given = _TAKES_EFFECT_NOW.search(line)
    said = frozenset[str]() if given is None else words_of(given.group())
    if given is None or not said & _MEANING_ATTRIBUTES or said & {"local", "scoped"}:
        return ()
    return tuple(_WORDS.findall(line[given.end() :]))


def _claimed(of: str) -> str:
    """Return the conclusion of a type: `C (f x)` of `∀ x, [C x] → C (f x)`."""
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
    """Return whether a text with these words has all signs of one of a notation's rules."""
    return any(
        all(sign in words if sign[0].isalpha() else sign in text for sign in some) for some in item.signs
    )


def uses(item: Item, statement: str, words: Collection[str]) -> bool:
    """Return whether adding, removing or changing this item could change a statement's meaning.

    Args:
        item: a notation, a macro or an instance.
        statement: the text.
        words: its names, with its variables'.
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

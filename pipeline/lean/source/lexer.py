"""Separate code from comments and strings in a Lean file: the layer below the scanner.

Owns comments (nested, doc), strings (escapes, raw, interpolated), character literals and `«»` names. `lex` turns a text
into two masks of the same length, so that an offset means the same place in all three: `code` has comments blanked,
and `bare` string contents and quoted names too. Look for keywords in `bare`; take text to show from `code`. It does
not know commands.

A comment opens only at the beginning of a token: `{x //-x = x}` and `q <--x` have none, since `//` and `<-` are tokens.
These are Lean's own (`SYMBOLS`). A library may have a longer one, so a comment right behind a symbol is an error of the
file, though most likely a comment. A word ends as Lean's does: `0sorry`, `!sorry` and `«a»sorry` are two.

A Verso document (`#doc (Genre) "title" =>`) is Lean up to there; prose follows, blank in both masks except for its
blocks of Lean.

Lengths are code points. Nothing here raises on any input, and everything is linear in its size.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from store.domain.keywords import DECLARATION_KEYWORDS

# Lean's own classes (Init/Meta: isLetterLike, isSubScriptAlnum). Python's \w is wider: it takes `λ` and `²`.
_LETTERLIKE = (
    "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017f"
    "\u0391-\u039f\u03a1\u03a2\u03a4-\u03a9\u03b1-\u03ba\u03bc-\u03fb"
    "\u1f00-\u1ffe\u2100-\u214f\U0001d49c-\U0001d59f"
)
ID_FIRST = f"A-Za-z_{_LETTERLIKE}"
"""The inside of a regex class: the first characters of an identifier."""
ID_REST = f"A-Za-z0-9_'!?{_LETTERLIKE}\u2080-\u2089\u2090-\u209c\u1d62-\u1d6a\u2c7c"
"""The inside of a regex class: the later characters of an identifier."""

DOC_MARK = "\x01"
"""The mark in `bare` for the beginning of a `/-- -/`; only the offsets in `Lexed.docs` count, a source may hold one."""
MODULE_DOC_MARK = "\x02"
"""The same for `/-! -/`, a command of its own."""
NAME_FILLER = "x"
STRING_FILLER = '"'

_CHAR = r"'(?:\\(?:x[0-9a-fA-F]{2}|u\{?[0-9a-fA-F]{1,6}\}?|.)|[^\\'])'"
_VERSO = r"#doc(?<![^\n]#doc)[ \t]*\([^()\n]*\)\s*\"(?:[^\"\\]|\\.)*\"\s*=>"
# Every alternative begins with a literal, so that the search skips over plain text at the speed of C.
_NEXT = re.compile(rf"--[^\n]*|/-[-!]?|\"|«[^«»\n]*»|{_CHAR}|{_VERSO}")
_NEXT_IN_HOLE = re.compile(rf"--[^\n]*|/-[-!]?|\"|«[^«»\n]*»|[{{}}]|{_CHAR}")
_FENCE = re.compile(r"^[ \t]*(`{3,})([^\n]*)$", re.MULTILINE)
# Verso's own names of blocks of commands, and a project's with the same end: `ioLean`.
_LEAN_BLOCK = re.compile(r"[ \t]*(?:lean(?:Init|Module)?|\w+Lean)(?![\w-])")
_IN_NAME = re.compile(f"[{ID_REST}]")
_FIRST_OF_NAME = re.compile(f"[{ID_FIRST}]")
_NUMBER = r"(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|[0-9][0-9_]*(?:[eE][0-9_]+)?)"
_NUMBERS = re.compile(rf"{_NUMBER}(?:'[^\\'\n]'{_NUMBER})*")
_DIGITS = re.compile(r"[0-9][0-9_]*(?:[eE][0-9_]+)?")
_BEGINS = re.compile(f"[{ID_FIRST}0-9]")
_DECIMAL = re.compile(rf"(?<![{ID_REST}])[0-9][0-9_]*\.\Z")
_COMMENT_EDGE = re.compile(r"/-|-/")
_STRING_REST = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_INTERPOLATED_REST = re.compile(r'[^"\\{]*+(?:\\.[^"\\{]*+)*+["{]', re.DOTALL)
_INTERPOLATED_BEFORE = re.compile(
    rf"(?<![{ID_REST}.])(?:[smf]!|throwError|logInfo|logWarning|logError|dbg_trace|panic!|trace\[[\w.]+\]) ?\Z"
)
_LONGEST_INTERPOLATED_BEFORE = 64
_BEFORE_INTERPOLATED = frozenset(" !roge]")  # last characters of the words above


@dataclass(frozen=True, slots=True)
class Lexed:
    """A text and its masks.

    `docs` maps the offset of a doc comment to the offset after it. `parts` are the stretches of Lean: all of it, or in
    a Verso document the text before its prose, and each block of Lean in that.
    """

    text: str
    code: str
    bare: str
    docs: dict[int, int]
    errors: tuple[str, ...]
    parts: tuple[tuple[int, int], ...]


class Positions:
    """The lines, columns and bytes of offsets in a text. Building it and each question are cheap on any input."""

    _CHUNK = 1024

    def __init__(self, text: str, bare: str) -> None:
        self._text = text
        self._bare = bare
        self._starts = array("Q", [0])
        self._starts.extend(match.end() for match in re.finditer("\n", text))
        self._first: dict[int, int] = {}
        self._chunks: array[int] | None = None
        if not text.isascii():
            self._chunks = array("Q", [0])
            for at in range(0, len(text), self._CHUNK):
                size = len(text[at : at + self._CHUNK].encode("utf-8", "surrogateescape"))
                self._chunks.append(self._chunks[-1] + size)

    def line(self, at: int) -> int:
        """The line, from 1."""
        return bisect_right(self._starts, at)

    def column(self, at: int) -> int:
        """The column, from 0, in code points."""
        return at - self._starts[bisect_right(self._starts, at) - 1]

    def byte(self, at: int) -> int:
        """The offset into the original bytes, also where those were not valid UTF-8."""
        if self._chunks is None:
            return at
        chunk, rest = divmod(at, self._CHUNK)
        tail = self._text[at - rest : at].encode("utf-8", "surrogateescape")
        return self._chunks[chunk] + len(tail)

    def offset(self, byte: int) -> int:
        """Return the code point at a byte of the text, or the text's length at its end."""
        if self._chunks is None:
            return byte
        chunk = bisect_right(self._chunks, byte) - 1
        at = chunk * self._CHUNK
        before = self._text[at : at + self._CHUNK].encode("utf-8", "surrogateescape")
        # The last chunk begins at the text's end.
        begun = at + len(before[: byte - self._chunks[chunk]].decode("utf-8", "surrogateescape"))
        return min(begun, len(self._text))

    def is_first(self, at: int) -> bool:
        """Return whether only white space and comments precede it on its line."""
        line = bisect_right(self._starts, at) - 1
        first = self._first.get(line)
        if first is None:
            match = _SPACE.match(self._bare, self._starts[line])
            first = self._first[line] = match.end() if match else at
        return first == at

    def previous(self, at: int, *, least: int = 0) -> int:
        """The offset after the last character of code before `at` (`least` without one)."""
        width = 64
        while at > least:
            start = max(least, at - width)
            kept = self._bare[start:at].rstrip()
            if kept:
                return start + len(kept)
            at, width = start, width * 2
        return least


_SPACE = re.compile(r"\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")


def decode(data: bytes) -> tuple[str, str | None]:
    """Return the text, and the first fault in the bytes, or None.

    A byte outside of UTF-8 becomes one lone surrogate, which encodes back to itself: offsets stay exact.
    """
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        return data.decode("utf-8", "surrogateescape"), f"not valid UTF-8 at byte {error.start}"


def printable(text: str) -> str:
    """Return the text, fit to be written anywhere: U+FFFD for each byte outside of UTF-8. Same length."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def lex(text: str, *, line: int = 1, tokens: Iterable[str] = ()) -> Lexed:
    """Mask comments, strings and quoted names; see the module.

    Args:
        text: a file, or a piece of one.
        line: the number of its first line.
        tokens: the tokens of the file's own notations with a comment's or string's opening in them.
    """
    try:
        return Lexer(text, interpolate=True, line=line, tokens=tokens).run()
    except _OpenHole:
        # A `{` in an interpolated string never closed. Reading such strings as plain ones loses the code in
        # their holes, reading on inside the hole would lose the rest of the file.
        return Lexer(text, interpolate=False, line=line, tokens=tokens).run()


def _at_its_beginning(token: str) -> str:
    """Return a regex for a token that is not the end of a name."""
    return (rf"(?<![{ID_REST}])" if _IN_NAME.match(token) else "") + re.escape(token)


class _OpenHole(Exception):  # noqa: N818 - control flow inside this module
    """The text ended inside an interpolation."""


class Lexer:
    """A single pass over a text. Without `interpolate` a string with holes is a plain one, as Lean's tokens are."""

    def __init__(self, text: str, *, interpolate: bool, line: int = 1, tokens: Iterable[str] = ()) -> None:
        self.text = text
        self.tokens = frozenset(tokens)
        self.next, self.next_in_hole = _NEXT, _NEXT_IN_HOLE
        if self.tokens:
            longest_first = sorted(self.tokens, key=len, reverse=True)
            own = "|".join(_at_its_beginning(token) for token in longest_first)
            self.next, self.next_in_hole = (
                re.compile(f"{own}|{one.pattern}") for one in (_NEXT, _NEXT_IN_HOLE)
            )
        self.interpolate = interpolate
        self.line = line
        self.code: list[str] = []
        self.bare: list[str] = []
        self.docs: dict[int, int] = {}
        self.errors: list[str] = []
        self.done = 0  # everything before it is in the masks
        self.holes: list[int] = []  # open interpolations, innermost last: braces open inside each
        self.parts: list[tuple[int, int]] = []

    def run(self) -> Lexed:
        text = self.text
        if text.startswith("\ufeff"):
            self._put(0, 1, code=" ", bare=" ")
        at = self.done
        while match := (self.next_in_hole if self.holes else self.next).search(text, at):
            start, at = match.span()
            what = text[start]
            if match.group() in self.tokens:
                self._put(start, at, code=text[start:at], bare=text[start:at])
            elif what in "-/":
                if not self._token_begins(start):
                    at = start + 1
                elif what == "-":
                    self._blank(start, at)
                else:
                    at = self._comment(start, match.group())
            elif what == "#":
                at = self._document(start, at)
            elif what == '"':
                at = self._string(start)
            elif what == "«":
                self._quoted_name(start, at)
            elif what in "{}":
                at = self._brace(what, start, at)
            elif self._character_begins(start):
                self._put(start, at, code=text[start:at], bare=STRING_FILLER * (at - start))
            else:
                at = start + 1
        if self.holes:
            raise _OpenHole
        rest = text[self.done :]
        code = "".join([*self.code, rest])
        bare = _apart("".join([*self.bare, rest]))
        parts = tuple(self.parts) or ((0, len(text)),)
        return Lexed(text, code, bare, self.docs, tuple(self.errors), parts)

    def _brace(self, what: str, start: int, at: int) -> int:
        """Count a brace inside a hole; the last one ends it."""
        if what == "{":
            self.holes[-1] += 1
        elif self.holes[-1]:
            self.holes[-1] -= 1
        else:
            self.holes.pop()
            return self._interpolated(start, at)
        return at

    def _token_begins(self, start: int) -> bool:
        """Return whether a token, or a comment, may begin at `start`, with the symbols before it cut as Lean does."""
        text, first = self.text, start
        least = max(self.done, start - _MOST_SYMBOLS)
        while first > least and text[first - 1] not in _SYMBOL_ENDS and not _IN_NAME.match(text[first - 1]):
            first -= 1
        if first == start:
            return True
        at = first
        while at < start:
            longest = range(_LONGEST_SYMBOL, 1, -1)
            at += next((size for size in longest if text[at : at + size] in SYMBOLS), 1)
        if at == start and text[first:start] not in _BEFORE_COMMENT:
            what = f"a comment right behind {text[first:start]}"
            self.errors.append(f"{what}, which could be part of a longer token, in line {self._line(start)}")
        return at == start

    def _document(self, command: int, start: int) -> int:
        """Read the prose of a Verso document from `start`, the end of its `command`, to the end of the text."""
        text, end, opened = self.text, len(self.text), None
        title = text.index('"', command)
        self._put(title, start - 2, code=text[title : start - 2], bare=STRING_FILLER * (start - 2 - title))
        blocks: list[tuple[int, int]] = []
        for fence in _FENCE.finditer(text, start):
            ticks, about = fence.groups()
            if opened is None:
                opened = fence
            elif len(ticks) >= len(opened.group(1)) and not about.strip():
                if _LEAN_BLOCK.match(opened.group(2)):
                    blocks.append((opened.end(), fence.start()))
                opened = None
        self.parts.append((0, start))
        for first, last in blocks:
            self._blank(max(start, self.done), first)
            self._block(first, last)
        self._blank(max(start, self.done), end)
        return end

    def _block(self, start: int, end: int) -> None:
        """Read a block of Lean by itself: anything unclosed in it ends with it."""
        block = lex(self.text[start:end], line=self._line(start), tokens=self.tokens)
        self._put(start, end, code=block.code, bare=block.bare)
        self.docs.update((start + first, start + last) for first, last in block.docs.items())
        self.errors += block.errors
        self.parts.append((start, end))

    def _quoted_name(self, start: int, end: int) -> None:
        """Mask a quoted name. Lean ends a name at its quotes: a word right beside them is another one."""
        bare = NAME_FILLER * (end - start)
        if start and _IN_NAME.match(self.text[start - 1]):
            bare = "«" + bare[1:]
        if _IN_NAME.match(self.text, end):
            bare = bare[:-1] + "»"
        self._put(start, end, code=self.text[start:end], bare=bare)

    def _name_ends(self, at: int) -> bool:
        """Return whether the run of name characters before `at` ends in a name, which a number or a `!` is not."""
        text, first = self.text, at
        while first > self.done and _IN_NAME.match(text[first - 1]):
            first -= 1
        return _is_name(text, first, at)

    def _character_begins(self, tick: int) -> bool:
        """Return whether a character begins with a tick: behind a name it is a part of that, and `]'` is a token."""
        if tick and self.text[tick - 1] in _ENDS_BEFORE_TICK and '"' in self.text[tick + 1 : tick + 3]:
            what = f"a character right behind {self.text[tick - 1]}"
            self.errors.append(f"{what}, which could be part of a longer token, in line {self._line(tick)}")
        return tick == self.done or (self.text[tick - 1] != "]" and not self._name_ends(tick))

    def _put(self, start: int, end: int, *, code: str, bare: str) -> None:
        """Copy the plain text before `start`, then the masks of the text there."""
        before = self.text[self.done : start]
        self.code += (before, code)
        self.bare += (before, bare)
        self.done = end

    def _blank(self, start: int, end: int, *, mark: str = "") -> None:
        blank = " " * (end - start)
        self._put(start, end, code=blank, bare=mark + blank[len(mark) :])

    def _unclosed(self, what: str, at: int) -> None:
        self.errors.append(f"{what} that begins in line {self._line(at)} is not closed")

    def _line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + self.line

    def _comment(self, start: int, opening: str) -> int:
        depth = 1
        # Lean steps over the character after `/-`, so `/-/` opens; after `/--` it looks at once for `-/`.
        at = start + max(3, len(opening))
        while depth:
            edge = _COMMENT_EDGE.search(self.text, at)
            if edge is None:
                self._unclosed("a comment", start)
                self._blank(start, len(self.text))
                return len(self.text)
            depth += 1 if edge.group() == "/-" else -1
            at = edge.end()
        mark = {"/--": DOC_MARK, "/-!": MODULE_DOC_MARK}.get(opening, "")
        if mark:
            self.docs[start] = at
        self._blank(start, at, mark=mark)
        return at

    def _string(self, start: int) -> int:
        before = self.text[start - 1] if start else ""
        if before in ("r", "#"):
            raw = self._raw_end(start)
            if raw is not None:
                return self._close_string(start, raw)
        # One look at the character before spares most strings the regex.
        if before in _BEFORE_INTERPOLATED and self.interpolate and self._is_interpolated(start):
            return self._interpolated(start, start + 1)
        match = _STRING_REST.match(self.text, start + 1)
        return self._close_string(start, match.end() if match else -1)

    def _close_string(self, start: int, end: int) -> int:
        if end < 0:
            self._unclosed("a string", start)
            end = len(self.text)
        self._put(start, end, code=self.text[start:end], bare=STRING_FILLER * (end - start))
        return end

    def _raw_end(self, start: int) -> int | None:
        """The end of `r"…"`, `r#"…"#`; -1 if it is not closed, None for no raw string."""
        text, before = self.text, start
        while before and text[before - 1] == "#":
            before -= 1
        if not before or text[before - 1] != "r" or before - 1 < self.done:
            return None
        letter = before - 1
        if letter > self.done:
            dotted = text[letter - 1] == "." and (self._name_ends(letter - 1) or text[letter - 2] == "»")
            if dotted or text[letter - 1] == "`" or self._name_ends(letter):
                return None
        closing = '"' + text[before:start]
        end = text.find(closing, start + 1)
        return end + len(closing) if end >= 0 else -1

    def _is_interpolated(self, start: int) -> bool:
        before = self.text[max(0, start - _LONGEST_INTERPOLATED_BEFORE) : start]
        return _INTERPOLATED_BEFORE.search(before) is not None

    def _interpolated(self, start: int, at: int) -> int:
        """Read on from `at` to the end of the string or into its next hole; mask from `start`."""
        match = _INTERPOLATED_REST.match(self.text, at)
        if match is None:
            return self._close_string(start, -1)
        end = match.end()
        if self.text[end - 1] == "{":
            self.holes.append(0)
        self._put(start, end, code=self.text[start:end], bare=STRING_FILLER * (end - start))
        return end


def _apart(bare: str) -> str:
    """Return the mask with a filler in place of a number's last digit or a `!` right before a keyword.

    Lean reads the keyword as a word of its own there; in `x!sorry` and `x1sorry` it is a part of the name.
    """
    if not (
        places := [item.end() for item in _BEFORE_WORD.finditer(bare) if _stands_apart(bare, item.end())]
    ):
        return bare
    apart = list(bare)
    for at in places:
        apart[at - 1] = STRING_FILLER
    return "".join(apart)


def _stands_apart(bare: str, at: int) -> bool:
    first = at
    while first and at - first < _LONGEST_NUMBER and _IN_NAME.match(bare[first - 1]):
        first -= 1
    return not _is_name(bare, first, at)


def _is_name(text: str, first: int, end: int) -> bool:
    """Return whether a run of name characters ends in a name: `x1` does, `1` and `!` do not."""
    fraction = text[first - 1 : first] == "." and _DECIMAL.search(
        text[max(0, first - _LONGEST_NUMBER) : first]
    )
    begun = _BEGINS.search(text, first, end)  # `?` and the like are tokens of their own there
    first = begun.start() if begun else end
    number = (_DIGITS if fraction else _NUMBERS).match(text, first, end)
    return _FIRST_OF_NAME.search(text, number.end() if number else first, end) is not None


# ---- keywords of Lean and its usual libraries; those of declarations are in `store.domain.keywords`


def words(text: str) -> frozenset[str]:
    """Return a set of the words of a text, which reads better than forty quoted strings."""
    return frozenset(text.split())


SYMBOLS = words(
    "! != !== # #[ $ $> % %[ & && &&& * *> + ++ +++ - -> . .. ... / // /\\ : :: := :=  < <$> <&> <* <*> <+> <- <-> "
    "<< <<< <= <;> <| <|> <|| = =/= == => > >= >> >>= >>> ? ?_ @ @& @[ \\ \\/ ^ ^^ ^^^ | |> |>. || ||| ~ ~~~"
)
"""Lean's own tokens of ASCII symbols; Lean takes the longest match."""
_LONGEST_SYMBOL = max(map(len, SYMBOLS))
_SYMBOL_ENDS = frozenset("\n\r\t ()[]{}⟨⟩⦃⦄,;\"'«»`")
"""Characters in no token of symbols, beside those of names."""
_MOST_SYMBOLS = 64
_ENDS_BEFORE_TICK = frozenset("¹²³⁻'|*+-/<>=~^∘•·!?")
"""Characters before the tick of a library's token: `⁻¹'`, `''`."""
_BEFORE_COMMENT = frozenset((":=", "=>", "·", ".", "←", "→", "$", "<|"))
"""Symbols often right before a comment; no known token begins with both."""

_ONE_WORD = [one for one in DECLARATION_KEYWORDS if " " not in one.word]
RESERVED_DECLARATIONS = frozenset(one.word for one in _ONE_WORD if one.reserved)
RESERVED_SCOPES = words("namespace section end mutual variable universe")
LIBRARY_DECLARATIONS = frozenset(one.word for one in _ONE_WORD if not one.reserved)
STATED_BY_LIBRARIES = frozenset(one.word for one in _ONE_WORD if one.theorem and not one.reserved)
"""Reserved if a usual library is imported."""
DECLARATIONS = RESERVED_DECLARATIONS | LIBRARY_DECLARATIONS
CORE = RESERVED_DECLARATIONS | RESERVED_SCOPES
"""Reserved by Lean itself: they begin a command at any column."""
OTHERS = words(
    "open set_option attribute include omit export universes variables variable? variable! "
    "macro macro_rules elab elab_rules syntax notation notation3 infix infixl infixr prefix postfix "
    "declare_syntax_cat deriving add_decl_doc library_note unseal seal run_cmd run_elab run_meta run_tac "
    "suppress_compilation unsuppress_compilation register_option register_builtin_option register_label_attr "
    "register_simp_attr register_parser_alias declare_config_elab declare_command_config_elab "
    "declare_aesop_rule_sets declare_bitwise_int_theorems declare_simp_like_tactic "
    "initialize_simps_projections grind_pattern gen_injective_theorems% tactic_extension "
    "deprecated_module assert_not_exists assert_not_imported assert_no_cyclic count_heartbeats "
    "recommended_spelling binder_predicate compile_inductive compile_def extend_docs blueprint_comment import"
)
KEYWORDS = CORE | DECLARATIONS | OTHERS
MODIFIERS = words("private protected public noncomputable computable partial unsafe nonrec local scoped meta")
CONTINUATIONS = words(
    "where with termination_by decreasing_by by then else from at calc finally using have let show suffices "
    "obtain exact refine apply intro intros rw simp simpa induction cases rcases match fun do if for return "
    "all_goals any_goals first try repeat case next constructor use linarith nlinarith omega norm_num ring "
    "field_simp positivity decide rfl sorry admit trivial assumption contradiction exfalso unfold change conv "
    "set extends ext funext congr aesop grind gcongr push_neg by_contra by_cases rintro rename_i subst split "
    "left right"
)
"""Words that continue a command, even at column 0 after an empty line."""
HAS_FIELDS = frozenset(one.word for one in DECLARATION_KEYWORDS if one.fields)
LEAVE_NOTHING = words("#check #check_failure #print #reduce #synth #exit")
"""Commands that leave nothing behind, whatever they hold; `#eval` can declare."""
NOTATIONS = words("notation notation3 infix infixl infixr prefix postfix")
"""Commands with the expansion of their uses as their only text."""
MAKES_TOKENS = NOTATIONS | words("syntax macro elab")
"""Commands whose strings, before a `=>`, become tokens."""
LAKE = words(
    "package require lean_lib lean_exe input_file input_dir target extern_lib script post_update module prelude"
)
"""Commands of a lakefile.lean, and words of a header (of a block in a document too); names elsewhere."""
TAKES_DOC = words("blueprint_comment library_note")
"""Commands with a doc comment as their argument."""


def alternatives(choices: Iterable[str]) -> str:
    """Return a regex for exactly these words that looks at every letter once, unlike `a|b|c`."""
    tails: dict[str, list[str]] = {}
    ends = False
    for choice in sorted(choices):
        if choice:
            tails.setdefault(choice[0], []).append(choice[1:])
        else:
            ends = True
    if not tails:
        return ""
    branches = [re.escape(letter) + alternatives(rest) for letter, rest in tails.items()]
    body = branches[0] if len(branches) == 1 and not ends else f"(?:{'|'.join(branches)})"
    return f"{body}?" if ends else body


_BEFORE_WORD = re.compile(
    rf"(?:[0-9!?'\u2080-\u2089]|0[xX][0-9a-fA-F_]++)(?=(?:sorry|admit|stop|{alternatives(CORE)})(?![{ID_REST}]))"
)
_LONGEST_NUMBER = 100


# ---- tokens


_PART = rf"[{ID_FIRST}][{ID_REST}]*"
_TOKEN = re.compile(
    rf"#?{_PART}(?:\.{_PART})*"
    r"|[0-9]+(?:\.[0-9]+)?"
    r"|:=|=>|<;>|<\|>|<\||\|>|<->|->|<-|\|\||&&|==|!=|>=|<=|#\[|@\[|\.\.|‹|›"
    r'|"+'
    r"|[^\s\x01\x02]"
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the source by byte offsets; no white space, no comment."""

    text: str
    byte_start: int
    byte_end: int


def tokens_of_text(text: str) -> tuple[tuple[Token, ...], str | None]:
    """Return the tokens of a piece of Lean, and its first unclosed comment or string, or None.

    A string is one token that begins with a quote; a quoted name keeps its `«»`.
    """
    lexed = lex(text)
    positions = Positions(text, lexed.bare)
    tokens = tuple(
        Token(text[item.start() : item.end()], positions.byte(item.start()), positions.byte(item.end()))
        for item in _TOKEN.finditer(lexed.bare)
    )
    return tokens, lexed.errors[0] if lexed.errors else None


def tokens_of(data: bytes, byte_start: int, byte_end: int) -> tuple[Token, ...]:
    """Return the tokens of a command of a file, with offsets into the file."""
    tokens, _ = tokens_of_text(data[byte_start:byte_end].decode())
    return tuple(
        Token(token.text, token.byte_start + byte_start, token.byte_end + byte_start) for token in tokens
    )

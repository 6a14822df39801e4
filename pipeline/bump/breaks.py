"""Find the breaks in a build's messages, and make the text with each broken proof as a gap: the same statement, and a
sorry.

Messages are untrusted, since the project can print anything: they say where to look and what to try, but prove nothing.
A gap's statement is the commit's text, byte for byte. A broken statement or definition cannot be a gap: it is blanked,
to look at the rest of its file; it is named, but not rewritten. Breaks caused by a blanked command are consequences,
and name their cause.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from pipeline.bump.mends import unknown
from pipeline.lean.build.lake import BuildMessage
from pipeline.lean.source.scanner import Located, locate, parse
from store.domain.keywords import THEOREM_KINDS
from store.domain.records import Declaration
from store.events.bumps import Break, BreakKind, BreakReason
from store.text import clean_block, cut

SORRY = "sorry"
MOST_BREAKS = 2000
_LONGEST_MESSAGE = 600
_LONGEST_NAME = 200
"""Code points of recorded names and paths, and of names used to find a cause."""
_MOST_PARTS = 20
"""Parts of a name; its beginnings and ends are used to find a cause."""
_REASONS: tuple[tuple[BreakReason, str], ...] = (
    # The first words of Lean's and lake's messages about a header; a project's own output about imports must not match.
    (
        "import",
        r"\A(?:bad import '|unknown module prefix '|object file '|cannot import |import \S+ failed, |failed to read)",
    ),
    ("deprecated", r"has been deprecated"),
    ("timeout", r"maxHeartbeats|maximum number of heartbeats|maximum recursion depth|maxRecDepth|timeout"),
    (
        "unknown_name",
        r"[Uu]nknown (?:identifier|constant|namespace|attribute)|does not contain|[Ii]nvalid field",
    ),
    ("syntax", r"unexpected (?:token|identifier|end)|expected command|unknown tactic|expected token"),
    ("instance", r"failed to synthesize"),
    ("universe", r"universe level"),
    (
        "rewrite_failed",
        r"rewrite.* failed|did not find (?:an occurrence|instance)|motive is not type correct",
    ),
    ("no_progress", r"made no progress|simp.* failed|failed to simplify|linarith failed|omega could not"),
    ("unsolved_goals", r"unsolved goals|No goals|no goals|[Tt]actic `?\w+\??[`]? failed"),
    ("type_mismatch", r"[Tt]ype mismatch|[Ff]unction expected|has type|could not unify|argument"),
)


def reason_of(message: str) -> BreakReason:
    """Return the reason in a message, by its words."""
    return next((name for name, words in _REASONS if re.search(words, message)), "other")


def shown(message: str, most: int = _LONGEST_MESSAGE) -> str:
    """Return a message without terminal control characters, shortened with a mark."""
    return cut(clean_block(message.strip()), most)


def _shortened(name: str) -> str:
    """Return the recorded form of a name or a path: of a long one the beginning and the end, since such names differ
    there.
    """
    text, half = shown(name, len(name)), _LONGEST_NAME // 2
    return text if len(text) <= _LONGEST_NAME else f"{text[: half - 1]}…{text[-half:]}"


@dataclass(frozen=True, slots=True)
class Cause:
    """A command left out of its file, at the take with number `taken`. `told` is its name, or its place if it has none.

    `written` are the possible spellings of its declarations: `two` and `Demo.two`.
    """

    told: str
    written: frozenset[str]
    is_instance: bool
    start: int
    taken: int


def cause_of(messages: Iterable[str], causes: Sequence[Cause], cited: Iterable[str] = ()) -> str:
    """Return the left-out command missed by the messages, through a cited name or one unknown to Lean.

    A name may be below the command's own (`Foo.mk` of `Foo`).
    """
    lines = [*messages]
    names = {one for name in chain(unknown(lines), cited) for one in _beginnings(name)}
    meant = (one for one in causes if not one.written.isdisjoint(names))
    needs_instance = any(reason_of(one) == "instance" for one in lines)
    instances = (one for one in causes if one.is_instance and needs_instance)
    return next((one.told for one in chain(meant, instances)), "")


def _beginnings(name: str) -> Iterator[str]:
    """Yield `A`, `A.b` and `A.b.c` of `A.b.c`, up to a limit of parts and characters."""
    end = -1
    for _ in range(_MOST_PARTS):
        result = name.find(".", end + 1)
        end = len(name) if result < 0 else result
        if end > _LONGEST_NAME:
            return
        yield name[:end]
        if result < 0:
            return


def _ends(name: str) -> Iterator[str]:
    """Yield `c`, `b.c` and `A.b.c` of `A.b.c`, up to a limit of parts and characters."""
    dot = len(name)
    for _ in range(_MOST_PARTS):
        dot = name.rfind(".", 0, dot)
        if len(name) - dot - 1 > _LONGEST_NAME:
            return
        yield name[dot + 1 :]
        if dot < 0:
            return


@dataclass(slots=True)
class Gap:
    """A broken proof. `old` is its text in the commit, `text` the present one.

    `name` is the declaration's full name; `found` may have a shortened one. `stands`: Lean accepts the old text, with
    another break put aside or mended.
    """

    found: Break
    old: str
    name: str = ""
    text: str = SORRY
    stands: bool = False
    errors: list[tuple[int, str]] = field(default_factory=list)
    """Lean's errors about the old text: code point in it, and message."""

    @property
    def mended(self) -> bool:
        return self.text != SORRY

    @property
    def wanted(self) -> bool:
        """Whether to look for another text: not if the proof waits for another mend."""
        return not (self.mended or self.stands or self.found.follows)


class _Source:
    """The scanner's reading of a file of the commit, done once; positions are in code points."""

    def __init__(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        self.lines = _line_starts(text)
        self._declarations = sorted(locate(data).declarations, key=lambda one: one.start)
        self._starts = [one.start for one in self._declarations]
        self._commands: list[tuple[int, int, str]] = []
        byte = at = 0
        for one in parse(data).commands:
            start = at + _length(data[byte : one.byte_start])
            at = start + _length(data[one.byte_start : one.byte_end])
            byte = one.byte_end
            self._commands.append((start, at, one.kind))
        self._command_starts = [start for start, _, _ in self._commands]

    def declaration_at(self, at: int) -> Located | None:
        """Return the innermost declaration at a code point."""
        before = self._declarations[: bisect_right(self._starts, at)]
        return next((one for one in reversed(before) if at < one.end), None)

    def command_at(self, at: int) -> tuple[int, int] | None:
        """Return the borders of the command at a code point, if it can be left out."""
        number = bisect_right(self._command_starts, at) - 1
        if number < 0:
            return None
        start, end, kind = self._commands[number]
        return None if at >= end or kind in ("namespace", "section", "end") else (start, end)

    def start_at(self, at: int) -> int:
        """Return the start of the declaration at a code point; without one, the code point itself."""
        one = self.declaration_at(at)
        return at if one is None else one.start

    def declared_in(self, start: int, end: int) -> list[Declaration]:
        """Return the declarations that begin between two code points."""
        number = bisect_left(self._starts, start)
        return [one.record for one in self._declarations[number : bisect_left(self._starts, end)]]

    def line_of(self, at: int) -> int:
        """Return the line of a code point, from 1."""
        return bisect_right(self.lines, at)


@dataclass
class RaisedFile:
    """A file of the commit with its gaps, keyed by the old proof's first code point in `original`.

    `blanked` are the borders of left-out commands, in order; `left` are the breaks named but not mended. Line numbers
    hold until a gap is filled; places of gaps are counted in the original.
    """

    path: str
    original: str
    gaps: dict[int, Gap] = field(default_factory=dict)
    blanked: list[tuple[int, int]] = field(default_factory=list)
    left: list[Break] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    _new: set[int] = field(default_factory=set)
    _taken: int = 0
    _most: int = MOST_BREAKS
    _named: set[tuple[str, BreakKind, int]] = field(default_factory=set)

    # ---- texts

    @property
    def current(self) -> str:
        """The text with the gaps' present texts, and without the blanked commands."""
        return self._make()[0]

    @property
    def handed_over(self) -> str:
        """The commit's text with the mended proofs alone."""
        return self._handed_over(None)[0]

    def handed_over_with_gap(self, start: int) -> tuple[str, int]:
        """Return the final text with one mended proof a gap again, and the gap's place."""
        text, places = self._handed_over(start)
        return text, places[start]

    @property
    def open_gaps(self) -> list[int]:
        """The first code points of the broken proofs neither mended nor left out."""
        places = self._make()[1]
        return [start for start in sorted(places) if not self.gaps[start].mended]

    def with_text(self, start: int, text: str) -> tuple[str, int]:
        """Return the present text with another text in a gap, and its first code point."""
        current, place = self.current, self.place_of(start)
        return current[:place] + text + current[place + len(self.gaps[start].text) :], place

    def place_of(self, start: int) -> int:
        """Return the first code point of a gap's text in `current`."""
        return self._make()[1][start]

    def _make(self) -> tuple[str, dict[int, int]]:
        edits = [
            (start, start + len(gap.old), gap.text, start)
            for start, gap in self.gaps.items()
            if not self._is_blanked(start)
        ]
        blanks = ((a, b, re.sub(r"[^\r\n]", " ", self.original[a:b]), -1) for a, b in self.blanked)
        return self._edited([*edits, *blanks])

    def _handed_over(self, open_gap: int | None) -> tuple[str, dict[int, int]]:
        return self._edited(
            (start, start + len(gap.old), SORRY if start == open_gap else gap.text, start)
            for start, gap in self.gaps.items()
            if gap.mended
        )

    def _edited(self, edits: Iterable[tuple[int, int, str, int]]) -> tuple[str, dict[int, int]]:
        out: list[str] = []
        places: dict[int, int] = {}
        at = made = 0
        for start, end, text, gap in sorted(edits):
            out += (self.original[at:start], text)
            made += start - at
            if gap >= 0:
                places[gap] = made
            made += len(text)
            at = end
        return "".join([*out, self.original[at:]]), places

    # ---- messages

    def take(
        self, messages: Iterable[BuildMessage], above: Sequence[Cause] = (), most: int = MOST_BREAKS
    ) -> bool:
        """Make gaps from the errors of the present build; return whether anything new is put aside.

        `above` are the commands left out of the file's imports. `most` bounds the new breaks; the others are ignored.
        """
        errors = [one for one in messages if one.severity == "error"]
        if not errors:
            return False
        text, result = self._make()
        starts = _line_starts(text)
        places, moved = list[tuple[int, int, int]](), 0
        for start, place in sorted(result.items()):
            moved += len(self.gaps[start].old) - len(self.gaps[start].text)
            places.append((place, start, moved))
        before = len(self.gaps), len(self.blanked), len(self.left)
        origins = [
            self._origin(min(starts[min(one.line, len(starts)) - 1] + one.column, len(text)), places)
            for one in errors
        ]
        self._new.clear()
        self._taken += 1
        self._most = self.named + most
        # A command's errors before those of later commands, which may follow from it.
        for at, error in sorted(
            zip(origins, errors, strict=True), key=lambda one: self._source.start_at(one[0])
        ):
            self._put_aside(error, at, above)
        return before != (len(self.gaps), len(self.blanked), len(self.left))

    @property
    def named(self) -> int:
        """The number of named breaks."""
        return len(self.gaps) + len(self.left)

    def _origin(self, at: int, places: Sequence[tuple[int, int, int]]) -> int:
        """Convert a code point in `current` to one in the original; in a gap, to the gap's start.

        `places` are the gaps' places in `current` and in the original, with the shift of the text after each.
        """
        number = bisect_right(places, (at, len(self.original))) - 1
        if number < 0:
            return min(at, len(self.original))
        place, start, moved = places[number]
        return start if at < place + len(self.gaps[start].text) else min(at + moved, len(self.original))

    def _put_aside(self, error: BuildMessage, at: int, above: Sequence[Cause]) -> None:
        if _OF_A_GAP.search(error.text):
            return  # our own gap's, where warnings are errors
        reason, line = reason_of(error.text), self._source.line_of(at)
        if reason == "import":
            self._leave(self._break(error, line, "", "import", ""))
            return
        if reason == "syntax":
            # Lean met an unexpected token: often the next command, with the fault in the one before.
            while at and self.original[at - 1].isspace():
                at -= 1
            at -= at > 0
        if self._is_blanked(at):
            return
        one = self._source.declaration_at(at)
        if one is None:
            self._leave(self._break(error, line, "", "command", self._follows(error, at, above, "")), at)
            return
        name, body = one.record.name, _body(self.original, one.stated, one.end)
        gap = None if body is None else self.gaps.get(body[0])
        is_proof = one.record.kind in THEOREM_KINDS
        stated = self.original[one.start : one.stated if is_proof else one.end]
        follows = gap.found.follows if gap is not None else ""
        follows = follows or self._follows(error, at, above, stated)
        if not is_proof:
            self._leave(self._break(error, line, name, "definition", follows), at)
        elif body is None and at >= one.stated:
            self._leave(self._break(error, line, name, "proof", follows), at)
        elif body is None or (gap is not None and self._built_with_gap(body[0])):
            # It fails even with a sorry as its proof: the proof is not to blame.
            if body is not None:
                del self.gaps[body[0]]
            self._leave(self._break(error, line, name, "statement", follows), at)
        else:
            if gap is None and self.named >= self._most:
                return
            if gap is None:
                result = self._break(error, line, name, "proof", follows)
                gap = self.gaps[body[0]] = Gap(result, self.original[body[0] : body[1]], name)
                self._new.add(body[0])
            elif follows:
                gap.found = gap.found.model_copy(update={"follows": follows})
            gap.errors.append((max(0, at - body[0]), error.text))

    def _follows(self, error: BuildMessage, at: int, above: Sequence[Cause], cited: str) -> str:
        """Return the left-out command behind a new break; "" for a break of its own.

        If Lean accepted this place in an earlier build, the cause is the nearest command before it left out since.
        """
        words = (word[0] for word in _WORD.finditer(cited))
        if cause := cause_of([error.text], [*above, *self.causes], words):
            return cause
        before = [one for one in self.causes if one.taken < self._taken and one.start < at]
        return max(before, key=lambda one: one.start).told if before else ""

    def _built_with_gap(self, start: int) -> bool:
        return start not in self._new

    @cached_property
    def _source(self) -> _Source:
        return _Source(self.original)

    def _is_blanked(self, at: int) -> bool:
        number = bisect_right(self.blanked, (at, len(self.original) + 1)) - 1
        return number >= 0 and at < self.blanked[number][1]

    def _break(self, error: BuildMessage, line: int, name: str, kind: BreakKind, follows: str) -> Break:
        return Break(
            path=_shortened(self.path),
            line=line,
            declaration=_shortened(name),
            kind=kind,
            reason=reason_of(error.text),
            message=shown(error.text),
            follows=follows,
        )

    def _leave(self, found: Break, at: int | None = None) -> None:
        """Name a break that is no gap, and leave out its command; do neither beyond the limit."""
        if self.named >= self._most:
            return
        key = found.declaration, found.kind, 0 if found.declaration else found.line
        if key not in self._named:
            self._named.add(key)
            self.left.append(found)
        if at is not None:
            self._blank(at, found.line)

    def _blank(self, at: int, line: int) -> None:
        """Leave out the command at a code point, if any."""
        borders = self._source.command_at(at)
        if borders is None or borders in self.blanked:
            return
        insort(self.blanked, borders)
        inside = self._source.declared_in(*borders)
        # Nobody cites a nameless one (`_instance`).
        names = tuple(one.name for one in inside if not one.name.rpartition(".")[2].startswith("_"))
        told = _shortened(names[0] if names else f"{self.path}:{line}")
        is_instance = any(one.kind == "instance" for one in inside)
        written = frozenset(end for name in names for end in _ends(name))
        self.causes.append(Cause(told, written, is_instance, borders[0], self._taken))


_WORD = re.compile(r"[^\W\d][\w'!?]*(?:\.[^\W\d][\w'!?]*)*")
_OF_A_GAP = re.compile(r"\Adeclaration uses [`']sorry[`']")


def _body(text: str, stated: int, end: int) -> tuple[int, int] | None:
    """Return the borders of the proof behind `:=`; None if the proof is written as alternatives."""
    if not text.startswith(":=", stated):
        return None
    start = stated + 2
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None


def _line_starts(text: str) -> list[int]:
    return [0, *(item.end() for item in re.finditer("\n", text))]


def _length(data: bytes) -> int:
    return len(data.decode("utf-8", "surrogateescape"))

"""What a build's messages say broke, and the text in which each broken proof is a gap: the same statement, and a sorry.

Messages are the project's word, which can print what it likes: they say where to look and what to try, and nothing
rests on them. A gap's statement is the text of the commit, byte for byte. What cannot be a gap (a broken statement or
definition) is blanked, so that the rest of its file can be looked at; it is named, and never rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.lean.build.lake import BuildMessage
from pipeline.lean.source.scanner import locate, parse
from store.domain.records import THEOREM_KINDS
from store.events.bumps import Break, BreakKind, BreakReason

SORRY = "sorry"
MOST_BREAKS = 2000
_LONGEST_MESSAGE = 600
_REASONS: tuple[tuple[BreakReason, str], ...] = (
    ("import", r"bad import|unknown module prefix|object file .* does not exist|no such file"),
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
    """Return what a message is about, by its words."""
    return next((name for name, words in _REASONS if re.search(words, message)), "other")


def shown(message: str, most: int = _LONGEST_MESSAGE) -> str:
    """Return a message without what a terminal would obey, shortened with a mark."""
    text = "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in message.strip())
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(slots=True)
class Gap:
    """A broken proof. `old` is its text in the commit, `text` what stands in its place now."""

    found: Break
    old: str
    text: str = SORRY
    errors: list[tuple[int, str]] = field(default_factory=list)
    """What Lean said of the old text: where in it, in code points, and what."""

    @property
    def mended(self) -> bool:
        return self.text != SORRY


@dataclass(slots=True)
class RaisedFile:
    """A file of the commit with its gaps, by the code point at which the old proof begins in `original`.

    `blanked` are the borders of commands that are left out, `left` what is named and not mended. Lines stay where they
    are as long as no gap is filled; a gap's place is counted from the original.
    """

    path: str
    original: str
    gaps: dict[int, Gap] = field(default_factory=dict)
    blanked: list[tuple[int, int]] = field(default_factory=list)
    left: list[Break] = field(default_factory=list)
    _new: set[int] = field(default_factory=set)

    # ---- texts

    @property
    def current(self) -> str:
        """The text with every gap as it stands now, and without what is blanked."""
        return self._made(blank=True)[0]

    @property
    def handed_over(self) -> str:
        """The commit's text with the mended proofs, and all else as it was."""
        return self._made(blank=False)[0]

    @property
    def open_gaps(self) -> list[int]:
        """Where the proofs begin that are broken and not mended, and whose commands are not left out."""
        places = self._made(blank=True)[1]
        return [start for start in sorted(places) if not self.gaps[start].mended]

    def with_text(self, start: int, text: str) -> tuple[str, int]:
        """Return the present text with another one in a gap, and the code point at which that begins."""
        current, place = self.current, self.place_of(start)
        return current[:place] + text + current[place + len(self.gaps[start].text) :], place

    def place_of(self, start: int) -> int:
        """Return the code point in `current` at which a gap's text begins."""
        return self._made(blank=True)[1][start]

    def _made(self, *, blank: bool) -> tuple[str, dict[int, int]]:
        out: list[str] = []
        places: dict[int, int] = {}
        at = made = 0
        edits = [
            (start, start + len(gap.old), gap.text, start)
            for start, gap in self.gaps.items()
            if blank or gap.mended
        ]
        if blank:
            edits = [one for one in edits if not any(a <= one[0] < b for a, b in self.blanked)]
            edits += [(a, b, re.sub(r"[^\r\n]", " ", self.original[a:b]), -1) for a, b in self.blanked]
        for start, end, text, gap in sorted(edits):
            out += (self.original[at:start], text)
            made += start - at
            if gap >= 0:
                places[gap] = made
            made += len(text)
            at = end
        return "".join([*out, self.original[at:]]), places

    # ---- messages

    def take(self, messages: Iterable[BuildMessage]) -> bool:
        """Make gaps of the errors in what is built now; return whether anything is put aside that was not before."""
        errors = [one for one in messages if one.severity == "error"]
        if not errors:
            return False
        text = self.current
        starts = _line_starts(text)
        before = len(self.gaps), len(self.blanked), len(self.left)
        origins = [
            self._origin(min(starts[min(one.line, len(starts)) - 1] + one.column, len(text)))
            for one in errors
        ]
        self._new.clear()
        for error, at in zip(errors, origins, strict=True):
            self._put_aside(error, at)
        return before != (len(self.gaps), len(self.blanked), len(self.left))

    def _origin(self, at: int) -> int:
        """Return the code point in the original of one in `current`; of one in a gap, where the gap begins."""
        places = self._made(blank=True)[1]
        moved = 0
        for start, place in sorted(places.items()):
            gap = self.gaps[start]
            if at < place:
                break
            if at < place + len(gap.text):
                return start
            moved += len(gap.old) - len(gap.text)
        return min(at + moved, len(self.original))

    def _put_aside(self, error: BuildMessage, at: int) -> None:
        if _OF_A_GAP.search(error.text):
            return  # our own gap's, where warnings are errors
        reason, line = reason_of(error.text), self.original.count("\n", 0, at) + 1
        if reason == "import":
            self._leave(error, line, "", "import")
            return
        if reason == "syntax":
            # What Lean met was not what it waited for: often the next command, and the fault is in the one before.
            at = len(self.original[:at].rstrip()) or at
            at -= at > 0
        if any(start <= at < end for start, end in self.blanked):
            return
        located = locate(self._data)
        inside = [one for one in located.declarations if one.start <= at < one.end]
        if not inside:
            self._blank(at)
            self._leave(error, line, "", "command")
            return
        one = max(inside, key=lambda found: found.start)
        name, body = one.record.name, _body(self.original, one.stated, one.end)
        gap = None if body is None else self.gaps.get(body[0])
        if one.record.kind not in THEOREM_KINDS:
            self._blank(at)
            self._leave(error, line, name, "definition")
        elif body is None and at >= one.stated:
            self._blank(at)
            self._leave(error, line, name, "proof")
        elif body is None or (gap is not None and self._built_with_gap(body[0])):
            # With a sorry in place of its proof it still fails: then it is no proof that broke.
            if body is not None:
                del self.gaps[body[0]]
            self._blank(at)
            self._leave(error, line, name, "statement")
        else:
            if gap is None and len(self.gaps) >= MOST_BREAKS:
                return
            if gap is None:
                found = self._break(error, line, name, "proof")
                gap = self.gaps[body[0]] = Gap(found, self.original[body[0] : body[1]])
                self._new.add(body[0])
            gap.errors.append((max(0, at - body[0]), error.text))

    def _built_with_gap(self, start: int) -> bool:
        return start not in self._new

    @property
    def _data(self) -> bytes:
        return self.original.encode("utf-8", "surrogateescape")

    def _break(self, error: BuildMessage, line: int, name: str, kind: BreakKind) -> Break:
        return Break(
            path=self.path,
            line=line,
            declaration=name,
            kind=kind,
            reason=reason_of(error.text),
            message=shown(error.text),
        )

    def _leave(self, error: BuildMessage, line: int, name: str, kind: BreakKind) -> None:
        found = self._break(error, line, name, kind)
        known = {(one.declaration, one.kind, one.line if not name else 0) for one in self.left}
        if (name, kind, line if not name else 0) not in known and len(self.left) < MOST_BREAKS:
            self.left.append(found)

    def _blank(self, at: int) -> tuple[int, int] | None:
        """Leave out the command at a code point; return its borders, None where there is none."""
        data = self._data
        byte = len(self.original[:at].encode("utf-8", "surrogateescape"))
        command = parse(data).command_at(byte)
        if command is None or command.kind in ("namespace", "section", "end"):
            return None
        borders = tuple(
            len(data[:end].decode("utf-8", "surrogateescape"))
            for end in (command.byte_start, command.byte_end)
        )
        made = borders[0], borders[1]
        if made not in self.blanked:
            self.blanked.append(made)
        return made


_OF_A_GAP = re.compile(r"\Adeclaration uses [`']sorry[`']")


def _body(text: str, stated: int, end: int) -> tuple[int, int] | None:
    """Return the borders of the proof behind `:=`; None where the proof is written as alternatives."""
    if not text.startswith(":=", stated):
        return None
    start = stated + 2
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None


def _line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]

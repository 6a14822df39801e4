"""Propose texts in place of a broken proof: its own text with names, one tactic, or its arguments changed.

Pure text, led by Lean's errors about the text before. Lean and the gate decide whether a text is a proof.
"""

from __future__ import annotations

import difflib
import heapq
import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.lean.source.declarations import written_name
from pipeline.lean.source.scanner import scan_source
from pipeline.lean.source.worktree import MOST_SOURCE_BYTES
from store.text import cut, one_line

Errors = Sequence[tuple[int, str]]
"""Lean's errors about a text: code point in it, and message."""
Near = Callable[[str], Iterable[str]]
"""Gives possible present names for a name unknown to Lean, the nearest first."""

_QUOTED = r"[`'‘]([^`'’\s]{1,300})[`'’]"
_DEPRECATED = re.compile(rf"{_QUOTED} has been deprecated[:,;.]?\s*(?:[Uu]se|please use)\s+{_QUOTED}")
_UNKNOWN = re.compile(rf"(?:[Uu]nknown (?:identifier|constant)|does not contain)\s+{_QUOTED}")
_WORD = re.compile(r"(?<![\w.'!?«])[^\W\d][\w'!?]*(?:\.[^\W\d][\w'!?]*)*")
_APPLIED = re.compile(
    r"(?P<head>(?:exact|apply|refine)\s+)?(?P<function>[^\W\d][\w'!?.]*)(?P<rest>\s+\S.*)?", re.DOTALL
)
_MOST_ARGUMENTS = 6
TACTICS = (
    "rfl",
    "assumption",
    "simp",
    "simp_all",
    "omega",
    "decide",
    "exact?",
    "norm_num",
    "ring",
    "aesop",
    "grind",
)
"""Replacements for one tactic, cheapest first."""


def deprecations(messages: Iterable[str]) -> dict[str, str]:
    """Map old names to the new ones in Lean's deprecation messages; only names as source writes them."""
    result = (pair for message in messages for pair in _DEPRECATED.findall(message))
    return {
        old: new
        for old, new in result
        if written_name(old) == old and written_name(new) == new and old != new
    }


def unknown(messages: Iterable[str]) -> list[str]:
    """Return the names unknown to Lean."""
    return [*dict.fromkeys(name for message in messages for name in _UNKNOWN.findall(message))]


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Rename constants in a text, by their full names; also if a namespace or a term replaces a part."""
    by_last: dict[str, list[tuple[str, str]]] = {}
    for old, new in names.items():
        by_last.setdefault(old.rpartition(".")[2], []).append((old, new))

    def other(found: re.Match[str]) -> str:
        word = found[0]
        head, _, last = word.rpartition(".")
        for old, new in by_last.get(last, ()):
            space, new_space = old.rpartition(".")[0], new.rpartition(".")[0]
            if word == old:
                return new
            if old.endswith(f".{word}"):
                hidden = old[: -len(word)]
                return new.removeprefix(hidden)
            if head and space == new_space:  # `h.old`, a term's namespace
                return f"{head}.{new.rpartition('.')[2]}"
        return word

    return _WORD.sub(other, text)


class Names:
    """All full names, to look up near ones.

    Indexed by their last part, and that by its groups of three letters: a large library has too many names to compare
    them all.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._full: dict[str, dict[str, None]] = {}
        for name in names:
            self._full.setdefault(name.rpartition(".")[2], {})[name] = None
        self._lasts = list(self._full)
        self._with: dict[str, list[int]] = {}
        for number, last in enumerate(self._lasts):
            for three in _threes(last):
                self._with.setdefault(three, []).append(number)

    def nearest(self, name: str, *, most: int = 4) -> list[str]:
        """Return near full names, the nearest first: with the same last part or nearly so."""
        last = name.rpartition(".")[2]
        threes = _threes(last)
        shared = Counter(number for one in threes for number in self._with.get(one, ()))
        likely = heapq.nlargest(
            _MOST_COMPARED,
            shared,
            key=lambda number: shared[number] / (len(threes) + len(self._lasts[number]) + 2),
        )
        spelled = [last, *difflib.get_close_matches(last, [self._lasts[one] for one in likely], most, 0.72)]
        result = dict.fromkeys(full for one in spelled for full in self._full.get(one, ()) if full != name)
        if len(result) > _MOST_COMPARED:
            result = dict.fromkeys(
                heapq.nsmallest(_MOST_COMPARED, result, key=lambda full: abs(len(full) - len(name)))
            )
        return sorted(result, key=lambda full: -difflib.SequenceMatcher(None, full, name).ratio())[:most]


_MOST_COMPARED = 200


def _threes(last: str) -> set[str]:
    text = f"^{last}$"
    return {text[at : at + 3] for at in range(len(text) - 2)}


def candidates(text: str, errors: Errors, names: Mapping[str, str], near: Near) -> Iterator[tuple[str, str]]:
    """Yield (how, text) in place of a proof, cheapest first: renamed constants, near names, arguments, one tactic."""
    lines = [message for _, message in errors]
    if (new := renamed(text, {**names, **deprecations(lines)})) != text:
        yield "renamed constants", new
    for name in unknown(lines):
        for other in near(name):
            if (new := renamed(text, {name: other})) != text:
                yield f"{name} replaced by {other}", new
    if not errors:
        return
    at, _ = min(errors)
    if (tactic := tactic_at(text, at)) is None:
        for changed in _applications(text):
            yield "arguments changed", changed
        return
    start, end = tactic
    old = text[start:end]
    for changed in _applications(old):
        yield f"arguments of {cut(one_line(old), 60)} changed", text[:start] + changed + text[end:]
    for tactic_text in TACTICS:
        if tactic_text != old:
            yield (
                f"{cut(one_line(old), 60)} replaced by {tactic_text}",
                text[:start] + tactic_text + text[end:],
            )


def tactic_at(text: str, at: int) -> tuple[int, int] | None:
    """Return the borders of the tactic at a code point of a proof that begins with `by`; None for a term."""
    opened = re.match(r"by\b[ \t]*", text)
    if opened is None:
        return None
    if at < opened.end():  # `by` reports the goal left open: the last tactic does too little
        at = len(text) - 1
    line = text.rfind("\n", 0, at + 1) + 1
    start = opened.end() if line == 0 else line
    while start < len(text) and text[start] in " \t·.":
        start += 1
    if start >= len(text) or text[start] == "\n":
        inner = re.compile(r"\S").search(text, start)
        if inner is None:
            return None
        start = inner.start()
        line = text.rfind("\n", 0, start) + 1
    column = start - line
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    while end < len(text):  # lines further to the right belong to the tactic
        following = text.find("\n", end + 1)
        following = len(text) if following < 0 else following
        inside = text[end + 1 : following]
        if inside.strip() and len(inside) - len(inside.lstrip()) <= column:
            break
        end = following
    return start, len(text[:end].rstrip())


def _applications(text: str) -> Iterator[str]:
    """Yield a function's application with its arguments in another order, without one, or left to Lean."""
    match = _APPLIED.fullmatch(text)
    if match is None or match["function"] in ("by", "fun", "simp", "rw", "intro"):
        return
    head, function = match["head"] or "", match["function"]
    arguments = _arguments(match["rest"] or "")
    if arguments is None or not arguments:
        return
    swapped = range(len(arguments)) if len(arguments) <= _MOST_ARGUMENTS else ()
    for one, other in itertools.combinations(swapped, 2):
        if arguments[one] != arguments[other]:
            order = [*arguments]
            order[one], order[other] = order[other], order[one]
            yield f"{head}{function} {' '.join(order)}"
    for left_out in range(len(arguments)):
        rest = arguments[:left_out] + arguments[left_out + 1 :]
        yield f"{head}{function} {' '.join(rest)}".rstrip()
    for at in range(len(arguments) + 1):
        yield f"{head}{function} {' '.join([*arguments[:at], '_', *arguments[at:]])}"


def _arguments(text: str) -> list[str] | None:
    """Return the arguments of an application; None for more than an application."""
    result: list[str] = []
    depth = 0
    for word in re.findall(r"[()\[\]⟨⟩{}]|[^\s()\[\]⟨⟩{}]+|\s+", text):
        if word.isspace():
            if depth:
                result[-1] += " "
            else:
                result.append("")
            continue
        if not result:
            return None
        result[-1] += word
        depth += (word in "([⟨{") - (word in ")]⟩}")
        if depth == 0 and word in ("<;>", ";", ":=", "=>", "at", "with", "using", "<|", "|>"):
            return None
    return [one for one in result if one] if depth == 0 else None


# ---- declared names

MOST_FILES = 20_000


def declared(project: Path, sysroot: str, *, until: float) -> Iterator[str]:
    """Yield the full names that a project, its packages and its toolchain declare.

    They are read without Lean, from at most `MOST_FILES` files, until this time on `time.monotonic`'s clock: the
    project's first, the toolchain's last.
    """
    folders = [project, project / ".lake" / "packages"]
    if sysroot:
        folders.append(Path(sysroot) / "src" / "lean")
    files = (path for folder in folders for path in _files(folder))
    for _, path in zip(range(MOST_FILES), files, strict=False):
        if time.monotonic() > until:
            return
        try:
            if path.is_symlink() or path.stat().st_size > MOST_SOURCE_BYTES:
                continue
            scanned = scan_source(path.read_bytes(), path=path.name)
        except OSError:
            continue  # one name less to try
        yield from (one.name for one in scanned.declarations)


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in (".lake", ".git"))
        yield from (Path(place, name) for name in sorted(files) if name.endswith(".lean"))

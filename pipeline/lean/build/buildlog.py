"""Read what `lake build` prints: how far it is, which modules failed, and the first errors. Pure.

Lake has had three styles: `[3/9] Building A.B` (before 4.9), `✖ [3/9] Building A.B` with `error: A/B.lean:1:2: …`
below it, and since then a summary `Some required targets logged failures:` with one `- A.B` a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_ERRORS = 20
MOST_FAILED = 10_000
_ERROR_LENGTH = 300
_STEP = re.compile(r"(?P<mark>\S+ )?\[(?P<done>\d{1,6})/(?P<total>\d{1,6})\] (?P<what>.*)")
_MODULE = re.compile(r"[^\W\d][\w'!?«»]*(\.[\w'!?«»]+)*")
_SUMMARY = re.compile(r"Some (required )?\w+ logged failures:")
_DURATION = re.compile(r" \([0-9.]+ ?m?s\)$")
_PLACED = re.compile(
    r"(?:error: )?(?P<path>[^\s:][^:]*\.lean):(?P<line>\d+):(?P<column>\d+): (?P<error>error: )?(?P<text>.*)"
)


@dataclass(frozen=True, slots=True)
class Step:
    """`[done/total]`, and what lake does or did there."""

    done: int
    total: int
    what: str


@dataclass(slots=True)
class BuildLog:
    """Collects from lines, in their order. Give each line of output to `line`.

    `failed` holds the modules that lake named as failed; `errors` the first errors, "path:line:column: text".
    """

    failed: dict[str, None] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    _building: str = ""
    _in_summary: bool = False

    def line(self, text: str) -> Step | None:
        """Take the next line; return the step that it reports, if it does."""
        text = text.rstrip("\r")
        if self._in_summary:
            if text.startswith("- "):
                self._fail(text[2:])
                return None
            self._in_summary = False
        if _SUMMARY.fullmatch(text.strip()):
            self._in_summary = True
            return None
        if step := _STEP.fullmatch(text):
            return self._step(step)
        self._error(text)
        return None

    def _step(self, found: re.Match[str]) -> Step:
        what = _DURATION.sub("", found["what"])
        verb, _, name = what.partition(" ")
        self._building = _module(name) if verb in ("Building", "Compiling", "Running", "Built") else ""
        if (found["mark"] or "").strip() in ("✖", "×"):
            self._fail(name)
        return Step(int(found["done"]), int(found["total"]), what)

    def _error(self, text: str) -> None:
        placed = _PLACED.fullmatch(text)
        if placed is None or not (placed["error"] or text.startswith("error: ")):
            if text.startswith("error: ") and not _is_only_a_frame(text):
                self._note(text.removeprefix("error: "))
            return
        path = placed["path"]
        while path.startswith("./"):
            path = path[2:]
        self._note(f"{path}:{placed['line']}:{placed['column']}: {placed['text']}")
        # Before 4.9 an error is the only sign that a module failed; what was being built there has its file's name.
        named = path.removesuffix(".lean").replace("/", ".")
        if self._building and (named == self._building or named.endswith("." + self._building)):
            named = self._building
        self._fail(named)

    def _fail(self, name: str) -> None:
        module = _module(name)
        if module and len(self.failed) < MOST_FAILED:
            self.failed.setdefault(module)

    def _note(self, text: str) -> None:
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(text[:_ERROR_LENGTH])


def _is_only_a_frame(text: str) -> bool:
    """Whether the line says only that something failed, not what."""
    return text.startswith(
        ("error: build failed", "error: Lean exited", "error: external command", "error: stdout:", "error: >")
    )


def _module(name: str) -> str:
    """Return the module of a target such as `A.B`, `A.B:c.o`, `package/A.B` or `+A.B`; "" for what is none."""
    text = _DURATION.sub("", name.strip()).partition(":")[0].rpartition("/")[2].lstrip("+@").partition(" ")[0]
    return text if _MODULE.fullmatch(text) else ""

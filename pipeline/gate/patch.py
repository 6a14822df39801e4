"""A proof's patch: a unified diff for its commit, under the evidence, which becomes a message.

`daemon.results.mail` makes a mail of it for `git am`. Bytes are kept exactly (CRLF, a missing last newline).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store.documents.grades import JUDGED, kernel_text
from store.events.proofs import Grade
from store.text import clean

CONTEXT_LINES = 3
_NO_NEWLINE = b"\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class PatchHeader:
    """The header of a patch, above the diff."""

    sorry: str
    proof: str
    repository: str
    sha: str
    declaration: str
    prover: str
    toolchain: str
    verified: bool
    grade: Grade
    kernel: str
    axioms: tuple[str, ...]
    not_checked: tuple[str, ...]
    statements: tuple[tuple[str, str], ...] = ()
    """The statement in the source's words and in Lean's: names and values, for people."""
    model: str = ""

    def lines(self) -> list[str]:
        """Return the header, without line ends: the evidence, and trailers. No line of it is a part of the diff.

        It goes into other people's history: the log has each check's evidence and its origin.
        """
        if self.verified:
            first = f"A proof of {self.declaration}, found by everlean and {JUDGED[self.grade]}"
        else:
            first = f"A candidate for a proof of {self.declaration}, found by everlean; it is not verified, see below"
        evidence = [
            *self.statements,
            *(self._verdict() if self.verified else ()),
            ("Toolchain", self.toolchain or "unknown"),
            *([("Not checked", ", ".join(self.not_checked))] if self.not_checked else ()),
        ]
        trailers = [
            ("Everlean-Proof", self.proof),
            ("Everlean-Sorry", self.sorry),
            ("Everlean-Repository", self.repository),
            ("Everlean-Commit", self.sha),
            ("Everlean-Declaration", self.declaration),
            ("Everlean-Prover", self.prover),
            *([("Everlean-Model", self.model)] if self.model else ()),
        ]
        told, ends = ([clean(f"{name}: {value}") for name, value in part] for part in (evidence, trailers))
        return [clean(first), "", *told, "", *ends, ""]

    def _verdict(self) -> tuple[tuple[str, str], ...]:
        return (
            ("Grade", kernel_text(self.grade, self.kernel)),
            ("Axioms", ", ".join(self.axioms) or "none"),
        )


def build_patch(
    header: PatchHeader, *, path: str, before: bytes, after: bytes, blobs: tuple[str, str]
) -> bytes:
    """Return the patch file from `before` to `after` at `path`; `blobs` are git's ids of the two."""
    return "\n".join(header.lines()).encode() + b"\n" + file_diff(path, before, after, blobs)


def file_diff(path: str, before: bytes, after: bytes, blobs: tuple[str, str]) -> bytes:
    """Return git's diff of one file existing before and after; `blobs` are git's ids of the two."""
    hunk = _hunk(_lines(before), _lines(after))
    old, new = _name(f"a/{path}"), _name(f"b/{path}")
    # git marks a name with a space by a tab after it, or the rest of the line would be a time stamp.
    tab = "\t" if " " in path and not old.startswith('"') else ""
    head = [
        f"diff --git {old} {new}",
        f"index {blobs[0]}..{blobs[1]}",
        f"--- {old}{tab}",
        f"+++ {new}{tab}",
    ]
    return "\n".join(head).encode() + b"\n" + hunk


def _lines(data: bytes) -> list[bytes]:
    """Split at LF only, ends kept, as git does."""
    pieces = data.split(b"\n")
    lines = [piece + b"\n" for piece in pieces[:-1]]
    return [*lines, pieces[-1]] if pieces[-1] else lines


def _hunk(before: Sequence[bytes], after: Sequence[bytes]) -> bytes:
    """Return the one hunk between the first and the last differing line."""
    limit = min(len(before), len(after))
    same_head = next((i for i in range(limit) if before[i] != after[i]), limit)
    same_tail = 0
    while same_tail < limit - same_head and before[-1 - same_tail] == after[-1 - same_tail]:
        same_tail += 1
    start = max(0, same_head - CONTEXT_LINES)
    old_end, new_end = len(before) - same_tail, len(after) - same_tail
    trailing = before[old_end : old_end + CONTEXT_LINES]
    n_old = old_end - start + len(trailing)
    n_new = new_end - start + len(trailing)
    out = [f"@@ -{_range(start, n_old)} +{_range(start, n_new)} @@\n".encode()]
    for mark, lines in (
        (b" ", before[start:same_head]),
        (b"-", before[same_head:old_end]),
        (b"+", after[same_head:new_end]),
        (b" ", trailing),
    ):
        for line in lines:
            out.append(mark + line)
            if not line.endswith(b"\n"):
                out.append(b"\n" + _NO_NEWLINE)
    return b"".join(out)


def _range(start: int, count: int) -> str:
    return f"{start + 1 if count else start},{count}"


def _name(name: str) -> str:
    """Quote a path the way git does, if a character would end the line or the quotes."""
    if not any(character in '"\\' or ord(character) < 32 or ord(character) == 127 for character in name):
        return name
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    out = "".join(escapes.get(c) or (f"\\{ord(c):03o}" if ord(c) < 32 or ord(c) == 127 else c) for c in name)
    return f'"{out}"'

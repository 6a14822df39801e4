"""Check 2, the shape, as the scanner reads it: a proof changes one command and adds none.

What closes the theorem early and declares more, or swallows what follows, shows here; Lean's own view of the
commands is compared in the compile check.
"""

from __future__ import annotations

from pipeline.lean.scanner import parse


def in_its_place(before: bytes, after: bytes) -> tuple[str, ...]:
    """Return why the two versions of a file are not the same commands with one of them changed; empty if they are."""
    old, new = parse(before), parse(after)
    if new.scanned.error != old.scanned.error:
        return (f"the patched file does not scan: {new.scanned.error}",)
    if len(old.commands) != len(new.commands):
        return (f"{len(old.commands)} commands before, {len(new.commands)} after",)
    changed = []
    for one, other in zip(old.commands, new.commands, strict=True):
        if (one.kind, one.keyword) != (other.kind, other.keyword):
            return (f"the command {one.keyword!r} became {other.keyword!r}",)
        if before[one.byte_start : one.byte_end] != after[other.byte_start : other.byte_end]:
            changed.append(one.keyword)
    if len(changed) != 1:
        return (f"{len(changed)} commands changed where one should",)
    return ()

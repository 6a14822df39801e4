"""How far a kernel replayed a verified proof, and what puts it in doubt, in words. Nothing else is imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from store.text import listed

GRADES: Mapping[str, str] = {
    "not_replayed": "no kernel replay",
    "replayed_module": "kernel replayed its module only",
    "replayed_closure": "kernel replayed all",
}
"""Each grade (`store.events.proofs.Grade`) in words, the lowest first."""
JUDGED: Mapping[str, str] = {
    "not_replayed": "accepted by Lean; no kernel replayed it",
    "replayed_module": "accepted by Lean; a kernel replayed its own module, and not all that it imports",
    "replayed_closure": "verified by Lean",
}
"""Each grade in what leaves this machine: only the highest is called verified there."""
IN_DOUBT = "IN DOUBT"
DOUBT = "every kernel that vouches for it has a known fault"
DOUBT_REMEDY = "use a Lean without the faults: the proof is then checked again by itself"
"""What to do about proofs in doubt."""
_OF_LEAN = "leanchecker"


def grade_text(grade: str, doubts: Sequence[str] = ()) -> str:
    """Return a grade in words, with what puts the proof in doubt; "" of no grade."""
    return ", ".join(one for one in (GRADES.get(grade, ""), doubt_text(doubts)) if one)


def kernel_text(grade: str, kernel: str) -> str:
    """Return a grade in words with the kernels that made it, and whether one is not Lean's; "" of no grade."""
    if grade not in GRADES:
        return ""
    second = any(one != _OF_LEAN for one in kernel.split(", ") if one)
    return f"{GRADES[grade]}{f', by {kernel}' if kernel else ''}{'' if second else '; no second kernel'}"


def doubt_text(doubts: Sequence[str]) -> str:
    """Return in words that advisories put a proof in doubt; "" without any."""
    return f"{IN_DOUBT}: {listed(doubts, 2)}" if doubts else ""

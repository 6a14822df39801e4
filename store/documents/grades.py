"""The grade of a verified proof, and the doubts on it, in words. Nothing else is imported here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from store.text import listed

GRADES: Mapping[str, str] = {
    "L0": "L0: no kernel replayed all",
    "L1": "L1: kernel replayed all",
    "L2": "L2: all kernels of its Lean accept it",
}
"""Each grade (`store.events.proofs.Grade`) in words, the lowest first."""
JUDGED: Mapping[str, str] = {
    "L0": "accepted by Lean; no kernel replayed all that it rests on",
    "L1": "verified by Lean",
    "L2": "verified by Lean, and by all kernels that come with it",
}
"""Each grade for readers outside this machine: only proofs replayed by a kernel are called verified there."""
IN_DOUBT = "IN DOUBT"
_DOUBT = "every kernel that vouches for it has a known fault"
_DISAGREEMENT = "a kernel refuses a proof that another accepts, or their export is forged"
_DOUBT_REMEDY = "use a Lean without the faults: the proof is then checked again by itself"
_DISAGREEMENT_REMEDY = (
    "`everlean proofs show` has the reason: tell the makers of a kernel that is wrong;"
    " with a newer `[lean] second_kernel` the proof is checked again by itself"
)
_OF_LEAN = "leanchecker"


def grade_text(grade: str, doubts: Sequence[str] = ()) -> str:
    """Return a grade in words, with the proof's doubts; "" of no grade."""
    return ", ".join(one for one in (GRADES.get(grade, ""), doubt_text(doubts)) if one)


def kernel_text(grade: str, kernel: str) -> str:
    """Return a grade in words with its kernels, and whether one is not Lean's; "" of no grade."""
    if grade not in GRADES:
        return ""
    second = any(not one.startswith(_OF_LEAN) for one in kernel.split(", ") if one)
    return f"{GRADES[grade]}{f', by {kernel}' if kernel else ''}{'' if second else '; no second kernel'}"


def doubt_reason(state: str) -> str:
    """Return why a proof of this state is in doubt, if it is, and so a candidate is not verified."""
    return _DOUBT if state == "verified" else _DISAGREEMENT


def doubt_remedy(state: str) -> str:
    """Return the remedy for a proof of this state in doubt; see `doubt_reason`."""
    return _DOUBT_REMEDY if state == "verified" else _DISAGREEMENT_REMEDY


def doubt_text(doubts: Sequence[str]) -> str:
    """Return a proof's doubts in words: advisories, kernels that disagree, a forged export; "" without any."""
    return f"{IN_DOUBT}: {listed(doubts, 2)}" if doubts else ""

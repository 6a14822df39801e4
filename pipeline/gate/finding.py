"""The findings of the gate's checks, and the joint finding of several kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.gate.second_kernel import ExportKernel, Judged, Panel, Word
from store.events.proofs import Accepted, CheckVerdict, Grade, Material, StepName


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about a proof, each field from one check.

    `axioms`, if Lean named them. `grade` tells how far kernels judged the constants below the proof; `disagreement`
    names the kernel refusing an export others accept, or the forgery. `material` is the input of the judgement, once
    the statement proved equal, `rests` the names of all constants below the proof by module. `accepted` are keys new to
    all checks, of `replayed` modules; `known` modules were accepted before.
    """

    axioms: tuple[str, ...] = ()
    grade: Grade = "L0"
    disagreement: str = ""
    material: Material | None = None
    rests: Mapping[str, tuple[str, ...]] | None = None
    accepted: tuple[Accepted, ...] = ()
    replayed: int = 0
    known: int = 0

    def with_(self, more: Facts) -> Facts:
        """Return these facts with those of another check."""
        of_each = ((one, getattr(more, one.name)) for one in dataclasses.fields(Facts))
        learned = {one.name: value for one, value in of_each if value != one.default}
        return dataclasses.replace(self, **learned)


@dataclass(frozen=True, slots=True)
class Finding(Facts):
    """The result of one check.

    `sorried` are the users of sorry, if Lean named them; `refused`: a kernel refused a part of the constants below the
    proof, so nothing there counts as verified.
    """

    step: StepName
    verdict: CheckVerdict
    by: str
    evidence: str
    sorried: tuple[str, ...] = ()
    refused: bool = False


@dataclass(frozen=True, slots=True)
class _Vote:
    """A kernel's verdict. `of_the_proof`: it accepts the file without the proof, so its refusal blames the proof."""

    name: str
    word: Word
    told: str
    of_the_proof: bool = False


def joint_finding(
    replayed: Finding,
    panel: Panel,
    judged: Mapping[ExportKernel, Judged],
    without: Mapping[ExportKernel, Judged],
) -> Finding:
    """Join the verdicts of all kernels.

    They must agree. A proof is not verified if one kernel refuses it and another accepts, or if the export is forged.
    It fails if all refuse, and one of them accepts the file without the proof.

    Args:
        replayed: the replay of the modules by the toolchain's checker.
        judged: the verdict of each kernel of the panel on the proof's export.
        without: the verdict of each refusing kernel on the export without the proof.
    """
    if forged := next((one.why for one in judged.values() if one.word == "forged"), ""):
        evidence = f"{forged}; {replayed.evidence}"
        return Finding("kernel", "not_checked", replayed.by, evidence, refused=True, disagreement=forged)
    lean_accepts = replayed.verdict == "passed"
    votes = [_vote(one, judged[one], without.get(one)) for one in panel.kernels]
    told = _told_of(votes, panel.lacking)
    if lean_accepts or replayed.refused:
        word: Word = "accepted" if lean_accepts else "refused"
        votes.append(_Vote(replayed.by, word, replayed.evidence, of_the_proof=replayed.verdict == "failed"))
    names = {one: [vote.name for vote in votes if vote.word == one] for one in ("accepted", "refused")}
    evidence = f"{told}; {replayed.evidence}" if judged else f"{replayed.evidence}; {told}"
    if names["refused"]:
        against = ", ".join(names["refused"])
        if names["accepted"]:
            text = f"kernels do not agree: {against} refuses, {', '.join(names['accepted'])} accepts"
            return Finding(
                "kernel", "not_checked", against, f"{text}; {evidence}", refused=True, disagreement=text
            )
        if any(vote.of_the_proof for vote in votes):
            return Finding("kernel", "failed", against, evidence, refused=True)
        return Finding("kernel", "not_checked", against, evidence, refused=True)
    if not names["accepted"]:
        return dataclasses.replace(replayed, evidence=evidence)
    # Lean's own replay first, as it ran first.
    by = ", ".join(sorted(names["accepted"], key=lambda name: name != replayed.by))
    all_of_lean_s = panel.whole and all(judged[one].word == "accepted" for one in panel.kernels)
    return Finding("kernel", "passed", by, evidence, grade="L2" if all_of_lean_s else "L1")


def _vote(kernel: ExportKernel, judged: Judged, without: Judged | None) -> _Vote:
    if judged.word != "refused" or without is None:
        return _Vote(kernel.name, judged.word, judged.why)
    if without.word == "accepted":
        return _Vote(kernel.name, "refused", judged.why, of_the_proof=True)
    text = f"{judged.why}; and it does not accept it without the proof: {without.why}"
    return _Vote(kernel.name, "refused", text)


def _told_of(votes: Sequence[_Vote], lacking: str) -> str:
    """Describe the verdicts on an export for people: refusals first, kernels with the same verdict together."""
    lines = [
        f"{vote.name} refuses the export of the proof ({vote.told})"
        for vote in votes
        if vote.word == "refused"
    ]
    if accepting := [vote for vote in votes if vote.word == "accepted"]:
        names = ", ".join(vote.name for vote in accepting)
        accepts = "accepts" if len(accepting) == 1 else "accept"
        lines.append(
            f"{names} {accepts} the export of the proof with all that it rests on ({accepting[0].told})"
        )
    lines += [f"not judged by {vote.name}: {vote.told}" for vote in votes if vote.word == "could not"]
    if lacking:
        lines.append(lacking if votes else f"no second kernel: {lacking}")
    return "; ".join(lines)

"""A small project with one found proof, put before the whole check job in this process: what the trap suite stands on.

    court = GateProject(tmp_path)
    event = court.judge(Case("exact ⟨h.2, h.1⟩"), lean="credulous")
    court.rejected(Case("sorry"), step="text")

The file is a text with `HOLE` where the judged sorry stands. "credulous" is the toolchain that says yes to everything
(`tests.support.lean.credulous`) under the name of a real one, so what refuses a proof there is the gate itself, or a
`Rule` by which it answers as the real one would. "none" is a machine without Lean.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from pipeline.gate import check
from pipeline.gate.finding import Finding
from pipeline.gate.second_kernel import AUTO, NANODA, OFF
from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import CheckSpec
from pipeline.lean.backend import LeanBackend
from pipeline.lean.source.scanner import scan_source
from store.domain.identity import git_blob
from store.events.base import EventBody
from store.events.proofs import ProofChecked, ProofFound, ProofRejected, ProofVerified
from store.events.registry import EVENT_TYPES
from tests.support.lean import scripts
from tests.support.lean.credulous import TOOLCHAIN, Rule, make_credulous

Verdict = ProofVerified | ProofChecked | ProofRejected
Lean = Literal["credulous", "none"]
_OWN = "own"
Refused = Callable[..., ProofRejected]
"""The suite's fixtures: `refused(case, step=…)`."""

FILE = """namespace Demo

theorem helper (p : Prop) : p → p := fun h => h

theorem mine (p q : Prop) (h : p ∧ q) : q ∧ p := by
  HOLE

theorem later (p : Prop) : p → p := fun h => h

end Demo
"""


def does_not_compile(*_: object, **__: object) -> Iterator[Finding]:
    """Stand in for `lake_checks.findings`: nothing compiles, and whoever asks on after that is wrong."""
    yield Finding("compile", "failed", "lake", "does not compile")
    raise AssertionError("asked after a failed compile")


@dataclass(frozen=True, slots=True)
class Case:
    """A text that shall take the place of `HOLE` in `file`, and what Lean knows of it.

    `parts` are the lengths of the text's parts where the hole has several sorries, `others` the project's other files,
    `edit` what else is changed in the patched file's record (fields of the `proof_found`).
    """

    proof: str
    file: str = FILE
    declaration: str = "Demo.mine"
    others: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    edit: Mapping[str, object] = field(default_factory=dict)
    hole: str = "sorry"
    parts: tuple[int, ...] = ()


class GateProject:
    """A project folder and its toolchain."""

    def __init__(self, folder: Path, *, leanchecker: bool = True) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        (self.project / "lakefile.toml").write_text('name = "x"\n', "utf-8")
        self.tools = make_credulous(folder / "toolchain", leanchecker=leanchecker)
        self.toolchain = TOOLCHAIN
        self.cache: Path | None = None

    def backend(self, lean: Lean = "credulous") -> LeanBackend:
        if lean == "none":
            return LeanBackend("none", (), "there is none", "", sandbox="none")
        sysroot = self.tools.sysroot
        program = (str(sysroot / "bin" / "lean"),)
        return LeanBackend(
            "server", program, "a Lean that says yes", self.toolchain, sandbox="none", sysroot=str(sysroot)
        )

    def found(self, case: Case, *, lean: Lean = "credulous") -> ProofFound:
        """Write the case's files, and for the Lean that says yes what it knows of them; return the proof's event."""
        for path, text in case.others.items():
            (self.project / path).parent.mkdir(parents=True, exist_ok=True)
            (self.project / path).write_text(text, "utf-8")
        head, _, tail = case.file.partition("HOLE")
        before, start = f"{head}{case.hole}{tail}".encode(), len(head.encode())
        (self.project / "A.lean").write_bytes(before)
        after = f"{head}{case.proof}{tail}".encode(errors="replace")
        if lean != "none":
            texts = [before.decode(), after.decode(), *case.others.values()]
            self.tools.believe(*case.rules)
            self.tools.read(*(text.replace("\r\n", "\n") for text in texts))
        patched = scan_source(after, path="A.lean")
        text_hash = next((d.text_hash for d in patched.declarations if d.name == case.declaration), "none")
        raw = {
            "proof": "p" * 16,
            "sorry": "s" * 16,
            "repository": "local/x/y",
            "branch": "main",
            "sha": "0" * 40,
            "path": "A.lean",
            "blob": git_blob(before, like="0" * 40),
            "byte_start": start,
            "byte_end": start + len(case.hole.encode()),
            "declaration": case.declaration,
            "declaration_text_hash": text_hash,
            "replacement": case.proof,
            "parts": case.parts,
            "tactics": (),
            "prover": "tactics",
            "rung": 0,
            "toolchain": "",
            "job": "prove-1",
        }
        return ProofFound.model_validate({**raw, **case.edit})

    def spec(self, case: Case, *, lean: Lean, second_kernel: str = _OWN) -> JobSpec[CheckSpec]:
        """Write the case's files and return the check job's spec."""
        backend = self.backend(lean)
        proof = self.found(case, lean=lean)
        if second_kernel == _OWN:  # and not one that this machine has on PATH
            second_kernel = AUTO if (self.tools.sysroot / "bin" / NANODA).is_file() else OFF
        parameters = CheckSpec(lean=backend, proof=proof, second_kernel=second_kernel, cache=self.cache)
        return JobSpec("check-1", "check", 1, self.folder / "job", parameters, worktree=self.project)

    def judge(self, case: Case, *, lean: Lean, second_kernel: str = _OWN) -> Verdict:
        """Run the check job on the case and return the event that it records; see `spec`."""
        spec = self.spec(case, lean=lean, second_kernel=second_kernel)
        (body,) = self.recorded(spec)
        return body

    def recorded(self, spec: JobSpec[CheckSpec]) -> list[Verdict]:
        """Run the check job and return the verdicts that it records."""
        return [
            body for body in self.told(spec) if isinstance(body, ProofVerified | ProofChecked | ProofRejected)
        ]

    def told(self, spec: JobSpec[CheckSpec]) -> list[EventBody]:
        """Run the check job and return what it records."""
        out = io.StringIO()
        with patch("pipeline.lean.sandbox.bounded.subprocess", scripts.forked()):
            check.work(spec, Reporter(spec, out))
        lines = [line for line in map(json.loads, out.getvalue().splitlines()) if line["line"] == "events"]
        events = [event for line in lines for event in line["events"]]
        return [EVENT_TYPES[event["type"]].model_validate(event["data"]) for event in events]

    def verified(
        self,
        case: Case,
        *,
        lean: Lean = "credulous",
        second_kernel: str = _OWN,
    ) -> ProofVerified:
        """Judge, and hold that the proof is verified."""
        verdict = self.judge(case, lean=lean, second_kernel=second_kernel)
        assert isinstance(verdict, ProofVerified), verdict
        return verdict

    def candidate(self, case: Case, *, lean: Lean = "credulous") -> ProofChecked:
        """Judge, and hold that nothing failed and not everything could be checked."""
        verdict = self.judge(case, lean=lean)
        assert isinstance(verdict, ProofChecked), verdict
        return verdict

    def rejected(
        self, case: Case, *, step: str, lean: Lean = "credulous", second_kernel: str = _OWN
    ) -> ProofRejected:
        """Judge, and hold that the proof is rejected at this step."""
        verdict = self.judge(case, lean=lean, second_kernel=second_kernel)
        assert isinstance(verdict, ProofRejected), verdict
        assert verdict.step == step, verdict.reason
        return verdict

"""Run the checks on one proof, cheapest first, and decide: verified, candidate, or rejected.

A failed check ends the run. A step that could not be judged is named with its reason, never passed over. The scanner
reads text, shape and statement; the project's own toolchain answers on compile, axioms, the exact statement and kernel.
A verified proof passed all but the kernel, and that too if the project's text can bypass it.

Each check's module decides how it judges; this one decides the order and the meaning of "all".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.gate import lake_checks
from pipeline.gate.finding import Facts, Finding
from pipeline.gate.preconditions import other_toolchain, trusted_packages, unseen_by_the_kernel
from pipeline.gate.second_kernel import AUTO
from pipeline.gate.source_checks import (
    dedents,
    ends_its_line,
    in_its_place,
    parts_of,
)
from pipeline.lean.backend import LeanBackend
from pipeline.lean.source.forbidden import complaints
from pipeline.lean.source.lexer import tokens_of_text
from pipeline.lean.source.scanner import parse, scan_source
from pipeline.lean.source.splice import Replacement, splice
from store.domain.keywords import INSTANCE_KINDS, PROVABLE_KINDS
from store.domain.records import Declaration, Sorry
from store.events.proofs import Check, CheckVerdict, ProofFound, StepName
from store.text import cut, one_line

REQUIRED: tuple[StepName, ...] = ("text", "shape", "compile", "axioms", "statement")
SCANNER = "scanner"
_EVIDENCE_LENGTH = 600


@dataclass(slots=True)
class Verdict:
    """The checks so far, in order, and their consequences."""

    checks: list[Check] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    conditional_on: tuple[str, ...] = ()
    needs_replay: str | None = None
    """Why a replay of the closure is required too, if it is."""
    kernel: str = ""

    @property
    def failed(self) -> Check | None:
        return next((check for check in self.checks if check.verdict == "failed"), None)

    @property
    def not_checked(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c.step for c in self.checks if c.verdict == "not_checked"))

    @property
    def all_required_passed(self) -> bool:
        passed = {check.step for check in self.checks if check.verdict == "passed"}
        # The scanner and Lean may both judge a step: it must pass both.
        unjudged = set(self.not_checked)
        replayed = self.needs_replay is None or self.facts.grade != "L0"
        return (
            self.failed is None and replayed and passed.issuperset(REQUIRED) and unjudged.isdisjoint(REQUIRED)
        )


class _Stop(Exception):  # noqa: N818 - control flow inside this module
    """A check failed; the others are unnecessary."""


@dataclass(slots=True)
class Gate:
    """The checks of one proof in one worktree.

    `before` are the file's bytes at the proof's commit, `after` with the replacement in place; `second_kernel` is the
    setting of that name. The proof's path is one in the project, the `folder` of the worktree. `known` are the keys
    kernels accepted before, `cache` is the daemon's.
    """

    proof: ProofFound
    backend: LeanBackend
    project: Path
    before: bytes
    second_kernel: str = AUTO
    folder: str = ""
    known: frozenset[str] = frozenset()
    cache: Path | None = None
    verdict: Verdict = field(default_factory=Verdict)
    _parts: list[tuple[Sorry, Replacement]] = field(default_factory=list)
    """Each sorry the text fills, with its part of the text."""

    @property
    def after(self) -> bytes:
        return splice(self.before, self._replacement)

    @property
    def _replacement(self) -> Replacement:
        proof = self.proof
        return Replacement(proof.byte_start, proof.byte_end, proof.replacement, proof.parts)

    def run(self) -> Verdict:
        """Make the checks.

        Raises:
            SandboxError: the toolchain could not be asked; the job failed, the proof was not judged.
        """
        parts = parts_of(self.before, self._replacement)
        try:
            if isinstance(parts, str):
                self._judge("shape", SCANNER, (parts,), "")
            else:
                self._parts = parts
            self._text()
            self._shape()
            self._statement()
            self._ask_the_toolchain()
        except _Stop:
            pass
        return self.verdict

    # ---- text, shape, statement: the scanner's word

    def _text(self) -> None:
        replacement = self._replacement
        # The source's own text between several sorries may open and close what it likes.
        against = tuple(self._of_each(self._complaints)) or (
            () if len(self._parts) > 1 else self._complaints(replacement)
        )
        self._judge("text", SCANNER, against, f"nothing forbidden in {len(replacement.text)} characters")

    def _complaints(self, one: Replacement) -> tuple[str, ...]:
        return complaints(one.text, ends_line=ends_its_line(self.before, one))

    @property
    def _lean_judges(self) -> bool:
        """Whether the project's Lean is here to judge the proof."""
        return self.backend.is_lean and self._not_our_lean is None

    def _shape(self) -> None:
        before, one = self.before, self._replacement
        commands = parse(before).commands
        against = (
            *dedents(before, commands, one),
            *in_its_place(before, self.after),
        )
        if against:  # name the faulty part, if there is one; a long file may have many
            named = next(self._of_each(lambda part: dedents(before, commands, part)), None)
            against = against if named is None else (named,)
        text = (
            "the same commands before and after; only the sorry's bytes changed;"
            f" the patched file has sha256 {hashlib.sha256(self.after).hexdigest()}"
        )
        self._judge("shape", SCANNER, against, text)

    def _of_each(self, check: Callable[[Replacement], tuple[str, ...]]) -> Iterator[str]:
        """Yield the objections to each sorry's text by itself, with its number."""
        return (
            f"the text for the sorry in line {sorry.line}, column {sorry.column + 1}: {why}"
            for sorry, one in (self._parts if len(self._parts) > 1 else ())
            for why in check(one)
        )

    def _statement(self) -> None:
        proof = self.proof
        old, new = self._declaration(self.before), self._declaration(self.after)
        against: list[str] = []
        if (old.name, old.kind, old.statement_hash) != (new.name, new.kind, new.statement_hash):
            against.append(f"the statement of {old.name} became {new.statement!r}")
        if old.name != proof.declaration:
            against.append(f"the sorry stands in {old.name}, not in {proof.declaration}")
        if new.text_hash != proof.declaration_text_hash:
            against.append("the patched declaration is not the one that the proof was found for")
        # Lean says whether an instance is a theorem.
        if old.kind not in PROVABLE_KINDS | INSTANCE_KINDS:
            against.append(
                f"{old.name} is a {old.kind}: what is put in a sorry's place there is data, no proof"
            )
        self._judge("statement", SCANNER, against, f"statement {old.statement_hash[:16]} is unchanged")

    # ---- compile, and the other checks by a toolchain

    @property
    def _not_our_lean(self) -> str | None:
        """Return why the Lean here may not judge: its version differs from the project's, or the proof's."""
        if not self.backend.is_lean:
            return None
        return other_toolchain(
            self.backend, project=self.project, folder=self.folder, found_with=self.proof.toolchain
        )

    def _ask_the_toolchain(self) -> None:
        """Check compile, axioms, exact statement and kernel with the project's toolchain, or record why not."""
        backend, proof = self.backend, self.proof
        if not self._lean_judges:
            why = self._not_our_lean or f"no Lean: {backend.detail}"
            self._add("compile", "not_checked", "nobody", why)
            self._add("axioms", "not_checked", "nobody", why)
            self._add("kernel", "not_checked", "nobody", why)
            return
        self.verdict.needs_replay = unseen_by_the_kernel(
            self.project, path=proof.path, text=self.after, imports=parse(self.before).imports or ("Init",)
        )
        findings = lake_checks.findings(
            backend,
            project=self.project,
            path=proof.path,
            patched=self.after,
            proof_end=self._proof_end,
            declaration=proof.declaration,
            declared=self._declared,
            trusted=trusted_packages(self.project),
            second_kernel=self.second_kernel,
            folder=self.folder,
            known=self.known,
            cache=self.cache,
        )
        with closing(findings):
            for finding in findings:
                self._take(finding)

    def _take(self, finding: Finding) -> None:
        self.verdict.facts = self.verdict.facts.with_(finding)
        if "sorryAx" in finding.axioms:
            self.verdict.conditional_on = finding.sorried or ("a sorry that Lean does not name",)
        verdict, evidence = finding.verdict, finding.evidence
        if finding.step == "kernel":
            self.verdict.kernel = finding.by if finding.grade != "L0" else ""
            if finding.refused and self.verdict.needs_replay is None:
                self.verdict.needs_replay = "a kernel refuses a module of it"
            needs_replay = self.verdict.needs_replay
            if needs_replay is not None and verdict != "failed" and finding.grade == "L0":
                verdict, evidence = "not_checked", f"{needs_replay}; {evidence}"
        self._add(finding.step, verdict, finding.by, evidence)
        if verdict == "failed":
            raise _Stop

    # ---- book-keeping

    @property
    def _proof_end(self) -> int:
        """The end of the proof's last word in the patched file."""
        tokens, _ = tokens_of_text(self.proof.replacement)
        return self.proof.byte_start + (tokens[-1].byte_end if tokens else 0)

    @property
    def _declared(self) -> frozenset[str]:
        return frozenset(one.name for one in scan_source(self.before, path=self.proof.path).declarations)

    def _declaration(self, data: bytes) -> Declaration:
        """Return the declaration that contains the proof; the shape check has shown that it exists."""
        at = self.proof.byte_start
        declarations = scan_source(data, path=self.proof.path).declarations
        inside = [one for one in declarations if one.byte_start <= at < one.byte_end]
        if not inside:
            self._add("statement", "failed", SCANNER, f"byte {at} is in no declaration")
            raise _Stop
        return max(inside, key=lambda one: one.byte_start)

    def _judge(self, step: StepName, by: str, against: Sequence[str], otherwise: str) -> None:
        if against:
            self._add(step, "failed", by, "; ".join(against))
            raise _Stop
        self._add(step, "passed", by, otherwise)

    def _add(self, step: StepName, verdict: CheckVerdict, by: str, evidence: str) -> None:
        text = cut(one_line(evidence), _EVIDENCE_LENGTH)
        self.verdict.checks.append(Check(step=step, verdict=verdict, by=by, evidence=text))

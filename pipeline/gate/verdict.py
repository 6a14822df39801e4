"""Run the checks on one found proof, cheapest first, and say what it is: verified, candidate, or rejected.

A check that failed ends the run. What could not be judged is named with its reason, never passed over. Verified
needs text, shape, compile, axioms and statement passed by a real Lean; a simulated proof is a candidate at best.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pipeline.gate.conditional import cites_itself, rests_on
from pipeline.gate.lake import ALLOWED_AXIOMS, Lake, TypeText, axioms_of, module_of, patched_in_place, type_of
from pipeline.gate.policy import complaints
from pipeline.gate.shape import in_its_place
from pipeline.lean.backend import LeanBackend
from pipeline.lean.lexer import lex
from pipeline.lean.messages import Unit
from pipeline.lean.repl import Repl
from pipeline.lean.scanner import parse, scan_source
from pipeline.prove.file import PROVABLE_KINDS
from pipeline.prove.imports import local_file
from pipeline.prove.splice import Replacement, splice
from store.events import Check, ProofFound
from store.scanned import Declaration, ScannedFile

StepName = Literal["text", "shape", "compile", "axioms", "statement", "kernel"]
REQUIRED: tuple[StepName, ...] = ("text", "shape", "compile", "axioms", "statement")
SCANNER = "scanner"
COMPILE_TIMEOUT_S = 600.0
_EVIDENCE_LENGTH = 500


@dataclass(slots=True)
class Verdict:
    """The checks made so far, in order, and what follows from them."""

    checks: list[Check] = field(default_factory=list)
    axioms: tuple[str, ...] = ()
    conditional_on: tuple[str, ...] = ()

    @property
    def failed(self) -> Check | None:
        return next((check for check in self.checks if check.verdict == "failed"), None)

    @property
    def not_checked(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c.step for c in self.checks if c.verdict == "not_checked"))

    @property
    def all_required_passed(self) -> bool:
        passed = {check.step for check in self.checks if check.verdict == "passed"}
        # A step may be judged twice, by the scanner and by Lean: both have to pass it.
        unjudged = set(self.not_checked)
        return self.failed is None and passed.issuperset(REQUIRED) and unjudged.isdisjoint(REQUIRED)


class _Stop(Exception):  # noqa: N818 - control flow inside this module
    """A check failed; the rest need not be made."""


@dataclass(slots=True)
class Gate:
    """The checks of one proof in one worktree.

    `before` are the file's bytes at the proof's commit, `after` with the replacement in place.
    """

    proof: ProofFound
    backend: LeanBackend
    project: Path
    before: bytes
    verdict: Verdict = field(default_factory=Verdict)
    _made: frozenset[str] = field(default=frozenset(), init=False)
    """The constants that the proof's command makes, as Lean names them."""

    @property
    def after(self) -> bytes:
        proof = self.proof
        return splice(self.before, Replacement(proof.byte_start, proof.byte_end, proof.replacement))

    async def run(self) -> Verdict:
        """Make the checks.

        Raises:
            ReplError: Lean could not be asked; the job failed, the proof was not judged.
        """
        try:
            self._text()
            self._shape()
            self._statement()
            await self._compile()
            self._axioms()
        except _Stop:
            pass
        return self.verdict

    # ---- text, shape, statement: the scanner's word

    def _text(self) -> None:
        against = complaints(self.proof.replacement)
        self._judge(
            "text", SCANNER, against, f"nothing forbidden in {len(self.proof.replacement)} characters"
        )

    def _shape(self) -> None:
        against = (*self._outside_the_sorrys(), *self._dedents(), *in_its_place(self.before, self.after))
        self._judge(
            "shape", SCANNER, against, "the same commands before and after; only the sorry's bytes changed"
        )

    def _outside_the_sorrys(self) -> tuple[str, ...]:
        """Hold that the replaced bytes are one sorry, or several with the text between them kept."""
        proof = self.proof
        sorries = [
            sorry
            for sorry in self._scan(self.before).sorries
            if proof.byte_start <= sorry.byte_start and sorry.byte_end <= proof.byte_end
        ]
        if not sorries or (sorries[0].byte_start, sorries[-1].byte_end) != (proof.byte_start, proof.byte_end):
            return (
                f"bytes {proof.byte_start}..{proof.byte_end} of {proof.path} are no sorry at this commit",
            )
        if len({sorry.index for sorry in sorries}) != 1:
            return ("the replaced bytes reach over more than one declaration",)
        between = [
            self.before[one.byte_end : other.byte_start].decode()
            for one, other in itertools.pairwise(sorries)
        ]
        if not _kept(proof.replacement, between):
            return ("the text between the declaration's sorrys was changed",)
        return ()

    def _dedents(self) -> tuple[str, ...]:
        """Hold that no line of the replacement begins where the next command would.

        The scanner cannot know a library's own commands; a proof's lines stand further to the right.
        """
        proof, before = self.proof, self.before
        at = max(
            (c.byte_start for c in parse(before).commands if c.byte_start <= proof.byte_start), default=0
        )
        edge = len(before[before.rfind(b"\n", 0, at) + 1 : at].decode())
        line = before[before.rfind(b"\n", 0, proof.byte_start) + 1 : proof.byte_start].decode()
        if len(line) <= edge:
            return ()  # the sorry itself stands there, so the lines of its block do
        had = _lines_up_to(before[proof.byte_start : proof.byte_end].decode(), edge)
        if _lines_up_to(proof.replacement, edge) > had:
            return ("a line of the replacement begins at the column of the declaration, like a command",)
        return ()

    def _statement(self) -> None:
        old, new = self._declaration(self.before), self._declaration(self.after)
        against: list[str] = []
        if (old.name, old.kind, old.statement_hash) != (new.name, new.kind, new.statement_hash):
            against.append(f"the statement of {old.name} became {new.statement!r}")
        if old.name != self.proof.declaration:
            against.append(f"the sorry stands in {old.name}, not in {self.proof.declaration}")
        if new.text_hash != self.proof.declaration_text_hash:
            against.append("the patched declaration is not the one that the proof was found for")
        if old.kind not in PROVABLE_KINDS:
            against.append(
                f"{old.name} is a {old.kind}: what is put in a sorry's place there is data, no proof"
            )
        if cites_itself(self.proof.replacement, old.name):
            against.append(f"the proof cites {old.name} itself")
        self._judge("statement", SCANNER, against, f"statement {old.statement_hash[:16]} is unchanged")

    def _scan(self, data: bytes) -> ScannedFile:
        return scan_source(data, path=self.proof.path)

    def _declaration(self, data: bytes) -> Declaration:
        """Return the declaration that the proof stands in; the shape check has held that there is one."""
        at = self.proof.byte_start
        inside = [one for one in self._scan(data).declarations if one.byte_start <= at < one.byte_end]
        if not inside:
            self._add("statement", "failed", SCANNER, f"byte {at} is in no declaration")
            raise _Stop
        return max(inside, key=lambda one: one.byte_start)

    # ---- compile and axioms: Lean's word, or nobody's

    async def _compile(self) -> None:
        backend = self.backend
        if backend.kind == "none":
            self._add("compile", "not_checked", "nobody", f"no Lean: {backend.detail}")
            return
        by = "simulator" if backend.simulated else f"pantograph-repl {backend.toolchain}".strip()
        imports = self._scan(self.before).imports or ("Init",)
        self._build_imports(imports)
        async with await Repl.start(backend, imports=imports, project=self.project) as repl:
            before = await repl.process(
                self.before.decode(), read_header=True, new_constants=True, timeout_s=COMPILE_TIMEOUT_S
            )
        # A process of its own: what the first text leaves behind must not help the second.
        async with await Repl.start(backend, imports=imports, project=self.project) as repl:
            after = await repl.process(
                self.after.decode(), read_header=True, new_constants=True, timeout_s=COMPILE_TIMEOUT_S
            )
        self._judge(
            "compile",
            by,
            self._compiled(before, after),
            "the whole file has no error, the declaration no sorry",
        )

    def _build_imports(self, imports: Sequence[str]) -> None:
        """Have lake build what the file imports of the project; a REPL that misses it says so when it starts."""
        lake = Lake.find(self.backend, project=self.project)
        own = [name for name in imports if local_file(self.project, name) is not None]
        if own and not isinstance(lake, str):
            built = lake.run("build", *own)
            if built.returncode != 0:
                print(f"lake build: exit status {built.returncode}: {built.output}", file=sys.stderr)  # noqa: T201

    def _compiled(self, before: tuple[Unit, ...], after: tuple[Unit, ...]) -> list[str]:
        at, grown = self.proof.byte_start, len(self.after) - len(self.before)
        errors = [
            f"{error.pos.line}:{error.pos.column}: {error.data}" for unit in after for error in unit.errors
        ]
        if errors:
            known = sum(len(unit.errors) for unit in before)
            return [f"{errors[0]}" + (f" (the file has {known} errors without the proof)" if known else "")]
        if len(before) != len(after):
            return [f"Lean sees {len(before)} commands before and {len(after)} after"]
        for one, other in zip(before, after, strict=True):
            moved = grown if one.byte_start > at else 0
            if other.byte_start != one.byte_start + moved:
                return [f"Lean sees the command at byte {one.byte_start} at {other.byte_start}"]
        unit = next((unit for unit in after if unit.byte_start <= at < unit.byte_end), None)
        if unit is None:
            return ["Lean sees no command at the proof's place"]
        if unit.uses_sorry:
            self.verdict.conditional_on = (self.proof.declaration,)
            return [f"{self.proof.declaration} still uses sorry"]
        for one, other in zip(before, after, strict=True):
            made, expected = set(other.new_constants or ()), set(one.new_constants or ())
            if made != expected:
                names = ", ".join(sorted(made ^ expected))
                return [f"the commands declare other constants than without the proof: {names}"]
        self._made = frozenset(unit.new_constants or ())
        return []

    def _axioms(self) -> None:
        if self.backend.kind == "pantograph" and not self.proof.simulated:
            self._axioms_by_lean()
            return
        conditional = self._rests_on()
        if conditional:
            self.verdict.conditional_on = conditional
            self._add("axioms", "failed", SCANNER, f"conditional on {', '.join(conditional)}")
            raise _Stop
        if self.backend.kind == "pantograph":
            why = "the simulator found this proof; what it rests on is asked of Lean only for proofs found with Lean"
        elif self.backend.simulated:
            why = "the simulator knows no axioms; the source cites nothing that has a sorry"
        else:
            why = f"no Lean: {self.backend.detail}"
        self._add("axioms", "not_checked", "nobody", why)
        self._add("kernel", "not_checked", "nobody", why)

    def _rests_on(self) -> tuple[str, ...]:
        start = self._declaration(self.after).byte_start
        return rests_on(self.project, path=self.proof.path, patched=self.after, declaration_start=start)

    def _axioms_by_lean(self) -> None:
        lake = Lake.find(self.backend, project=self.project)
        declaration, module = self.proof.declaration, module_of(self.proof.path)
        if isinstance(lake, str):
            self._add("axioms", "not_checked", "nobody", lake)
            self._add("kernel", "not_checked", "nobody", lake)
            return
        by = f"lake {self.backend.toolchain}".strip()
        if declaration.rsplit(".", 1)[-1].startswith("_"):
            self._add(
                "axioms", "not_checked", by, f"{declaration} makes no constant that could be asked about"
            )
            self._add("kernel", "not_checked", by, "the declaration makes no constant")
            return
        if declaration not in self._made:
            # The scanner's name may be another one's: `#print axioms` would then speak of that.
            made = ", ".join(sorted(self._made)) or "nothing"
            why = f"the command makes {made} and not {declaration}, which could not be asked about by name"
            self._add("axioms", "not_checked", by, why)
            self._add("kernel", "not_checked", by, why)
            return
        built = lake.run("build", module)
        if built.returncode != 0:
            why = (
                f"the project does not build here even without the proof: {built.output[-_EVIDENCE_LENGTH:]}"
            )
            self._add("axioms", "not_checked", by, why)
            self._add("kernel", "not_checked", by, why)
            return
        stated = type_of(lake, module=module, declaration=declaration)
        with patched_in_place(self.project / self.proof.path, self.after):
            built = lake.run("build", module)
            if built.returncode != 0:
                self._add("compile", "failed", by, f"lake build {module}: {built.output[-_EVIDENCE_LENGTH:]}")
                raise _Stop
            axioms = axioms_of(lake, module=module, declaration=declaration)
            self._judge_axioms(axioms, by)
            self._judge_type(stated, type_of(lake, module=module, declaration=declaration), by)
            self._kernel(lake, module)

    def _judge_axioms(self, axioms: tuple[str, ...] | str, by: str) -> None:
        if isinstance(axioms, str):
            self._add("axioms", "not_checked", by, axioms)
            return
        self.verdict.axioms = axioms
        if "sorryAx" in axioms:
            self.verdict.conditional_on = self._rests_on() or ("a sorry that the source does not name",)
        foreign = [name for name in axioms if name not in ALLOWED_AXIOMS]
        against = [f"{self.proof.declaration} rests on {name}" for name in foreign]
        self._judge("axioms", by, against, f"only {', '.join(axioms)}" if axioms else "no axiom at all")

    def _judge_type(self, before: TypeText | str, after: TypeText | str, by: str) -> None:
        """Hold that Lean gives the constant the same type as without the proof, whatever the source says."""
        if isinstance(before, str) or isinstance(after, str):
            why = before if isinstance(before, str) else str(after)
            self._add("statement", "not_checked", by, f"its type could not be compared: {why}")
            return
        against = [] if before == after else [f"its type became {after.text}; it was {before.text}"]
        self._judge("statement", by, against, f"the same type as without the proof: {after.text}")

    def _kernel(self, lake: Lake, module: str) -> None:
        checker = lake.program.parent / "leanchecker"
        if not checker.is_file():
            self._add("kernel", "not_checked", "nobody", f"{checker.parent} has no leanchecker")
            return
        ran = lake.run("env", str(checker), module)
        against = [] if ran.returncode == 0 else [f"leanchecker refuses {module}: {ran.output}"]
        self._judge("kernel", "leanchecker", against, f"{module} replayed")

    # ---- book-keeping

    def _judge(self, step: StepName, by: str, against: tuple[str, ...] | list[str], otherwise: str) -> None:
        if against:
            self._add(step, "failed", by, "; ".join(against))
            raise _Stop
        self._add(step, "passed", by, otherwise)

    def _add(
        self, step: StepName, verdict: Literal["passed", "failed", "not_checked"], by: str, evidence: str
    ) -> None:
        text = " ".join(evidence.split())
        if len(text) > _EVIDENCE_LENGTH:
            text = text[: _EVIDENCE_LENGTH - 1] + "…"
        self.verdict.checks.append(Check(step=step, verdict=verdict, by=by, evidence=text))


def _lines_up_to(text: str, column: int) -> int:
    """Count the lines after the first whose code begins at this column or left of it."""
    lines = lex(text).bare.split("\n")[1:]
    return sum(bool(line.strip()) and len(line) - len(line.lstrip()) <= column for line in lines)


def _kept(replacement: str, between: Sequence[str]) -> bool:
    """Say whether the replacement is texts for each sorry, each harmless by itself, with what stood between them.

    A text that opens a comment or bracket and closes it after the next sorry would hide what stands between.
    """
    starts = {0}
    for gap in between:
        starts = {
            start + found.start() + len(gap)
            for start in starts
            for found in re.finditer(f"(?={re.escape(gap)})", replacement[start:])
            if not complaints(replacement[start : start + found.start()])
        }
    return any(not complaints(replacement[start:]) for start in starts)

"""Checks 3 to 6 by the project's own toolchain: what it built of the patched file, and what that says.

The file without the proof is built and asked about first, so that a project that does not build anyway, or a Lean
that cannot be asked, is nobody's fault: those checks are "not checked" with the reason. The evidence names the commands
that were run, the toolchain, the module, and the SHA-256 of the bytes that were built.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.gate.answers import ALLOWED_AXIOMS, Answer, TypeText, differences, end_of, sorry_warnings
from pipeline.gate.finding import CheckVerdict, Finding, StepName
from pipeline.gate.lake import (
    ASK_BOUNDS,
    BUILD_BOUNDS,
    QUESTIONS,
    ask_exactly,
    axioms_of,
    build,
    find_checker,
    leads_outside,
    module_of,
    not_built_here,
    patched_in_place,
    replay,
    type_of,
)
from pipeline.gate.standing import other_lean, shadowed_library
from pipeline.lean.backend import LeanBackend
from pipeline.lean.build.lake import LakeRunner, Outcome
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.source.scanner import scan_source
from pipeline.prove.imports import local_file


def build_imports(backend: LeanBackend, project: Path, imports: Sequence[str]) -> None:
    """Have lake build what a file imports of the project; a REPL that misses it says so when it starts."""
    runner = LakeRunner.find(backend, project=project)
    own = [name for name in imports if local_file(project, name) is not None]
    if own and not isinstance(runner, str):
        built = build(runner, *own)
        if not built.ok:
            print(f"lake build: {built.explain(BUILD_BOUNDS)}: {built.end()}", file=sys.stderr)  # noqa: T201


def findings(
    backend: LeanBackend,
    *,
    project: Path,
    path: str,
    patched: bytes,
    declaration: str,
    made: frozenset[str],
    declared: frozenset[str],
) -> Generator[Finding, None, None]:
    """Yield what the toolchain says of the patched file, in order; the caller stops at the first that failed.

    While it is not closed the patched bytes may be in the worktree, so the caller closes it.

    Args:
        made: the constants of the proof's own command, as Lean names them.
        declared: those of the whole file.
    """
    runner = LakeRunner.find(backend, project=project)
    reason = runner if isinstance(runner, str) else leads_outside(runner)
    by = f"lake {backend.toolchain}".strip()
    if reason is None and declaration.rsplit(".", 1)[-1].startswith("_"):
        reason = f"{declaration} makes no constant that could be asked about"
    if reason is None and declaration not in made:
        # The scanner's name may be another one's: an answer would then speak of that.
        names = ", ".join(sorted(made)) or "nothing"
        reason = f"the command makes {names} and not {declaration}, which could not be asked about by name"
    if reason is not None or isinstance(runner, str):
        yield from _unjudged("nobody", reason or str(runner))
        return
    try:
        yield from _Inquiry(runner, backend.toolchain, by, path, patched, declaration, declared).findings()
    except SandboxError as error:
        yield from _unjudged(by, str(error))


@dataclass(frozen=True, slots=True)
class _Inquiry:
    """One proof and the lake that is asked about it."""

    runner: LakeRunner
    toolchain: str
    by: str
    path: str
    patched: bytes
    declaration: str
    declared: frozenset[str]

    def findings(self) -> Iterator[Finding]:
        module = module_of(self.path)
        built = build(self.runner, module)
        if not built.ok:
            why = f"{built.explain(BUILD_BOUNDS)}: {built.end(400)}"
            yield from _unjudged(self.by, f"the project does not build here even without the proof: {why}")
            return
        linked = leads_outside(self.runner)
        if linked is not None:
            yield from _unjudged(self.by, linked)
            return
        before = self._stated(module)
        untold = shadowed_library(self.runner.project) or self._whose(before)
        if untold is not None:
            yield from _unjudged(self.by, untold)
            return
        refused = None
        with patched_in_place(self.runner.project, self.path, self.patched):
            yield self._built(module, build(self.runner, module))
            elsewhere = leads_outside(self.runner) or not_built_here(self.runner.project, self.path)
            if elsewhere is not None:
                yield from _unjudged(self.by, elsewhere)
                return
            after = self._stated(module)
            printed = axioms_of(self.runner, module=module, declaration=self.declaration)
            yield judge_axioms(after.exact, printed, declaration=self.declaration, by=self.by, module=module)
            yield self._statement(before, after)
            checker = find_checker(self.runner)
            if isinstance(checker, str):
                yield Finding("kernel", "not_checked", "nobody", checker)
                return
            ran = replay(self.runner, checker, module=module)
            if ran.ok:
                yield Finding(
                    "kernel", "passed", checker.name, f"`{checker.name} {module}`: every declaration replayed"
                )
                return
            refused = (
                f"{checker.name} refuses {module} ({ran.explain(ASK_BOUNDS)}): {end_of(ran.output)[-300:]}"
            )
        # Its refusal speaks against the proof only if it takes the module without the proof.
        control = replay(self.runner, checker, module=module)
        if control.ok:
            yield Finding("kernel", "failed", checker.name, refused)
        else:
            yield Finding(
                "kernel", "not_checked", checker.name, f"{refused}; and it refuses it without the proof too"
            )

    def _whose(self, stated: _Stated) -> str | None:
        """Say why the Lean that answers is not the toolchain's: a lake on PATH may be any version's."""
        if isinstance(stated.exact, Answer):
            return other_lean(stated.exact.lean, toolchain=self.toolchain)
        if self.runner.toolchain is None:
            return f"{self.runner.program} does not say which Lean it has: {stated.exact}"
        return None

    def _built(self, module: str, built: Outcome) -> Finding:
        digest = hashlib.sha256(self.patched).hexdigest()
        file = self.runner.project / self.path
        if not built.ok:
            return Finding(
                "compile",
                "failed",
                self.by,
                f"lake build +{module}: {built.explain(BUILD_BOUNDS)}: {built.end(400)}",
            )
        if file.read_bytes() != self.patched:
            return Finding("compile", "failed", self.by, f"{self.path} was changed while it was built")
        lines = range(*self._lines())
        warned = [line for line in sorry_warnings(built.output, path=self.path) if line in lines]
        if warned:
            return Finding(
                "compile",
                "failed",
                self.by,
                f"lake build +{module}: line {warned[0]}: {self.declaration} uses sorry",
            )
        told = f"`lake build +{module}` with the project's own options: exit status 0; built from sha256 {digest}"
        return Finding("compile", "passed", self.by, told)

    def _lines(self) -> tuple[int, int]:
        """Return the declaration's first line in the patched file and the one after its last."""
        for one in scan_source(self.patched, path=self.path).declarations:
            if one.name == self.declaration:
                return one.line, one.end_line + 1
        return 0, 0

    def _stated(self, module: str) -> _Stated:
        exact = ask_exactly(self.runner, module=module, declaration=self.declaration)
        if isinstance(exact, Answer):
            return _Stated(exact, "not asked")
        return _Stated(exact, type_of(self.runner, module=module, declaration=self.declaration))

    def _statement(self, before: _Stated, after: _Stated) -> Finding:
        """Hold that Lean gives the constant the same statement as without the proof, whatever the source says."""
        if isinstance(before.exact, Answer) and isinstance(after.exact, Answer):
            found = differences(before.exact, after.exact, declared=self.declared - {self.declaration})
            if found:
                return Finding("statement", "failed", self.by, "; ".join(found))
            told = (
                f"the same type and universe parameters as without the proof, node by node, and the same"
                f" {len(before.exact.premises)} constants of its module below it: sha256 {after.exact.digest}"
            )
            return Finding("statement", "passed", self.by, told)
        if isinstance(before.exact, Answer) != isinstance(after.exact, Answer):
            silent = before.exact if isinstance(before.exact, str) else after.exact
            return Finding("statement", "not_checked", self.by, f"it could not be compared: {silent}")
        if isinstance(before.type, TypeText) and isinstance(after.type, TypeText):
            if before.type != after.type:
                why = f"its type became {after.type.text}; it was {before.type.text}"
                return Finding("statement", "failed", self.by, why)
            missing = end_of(str(after.exact))[-160:]
            how = f"as printed ({QUESTIONS.name} did not run: {missing})"
            told = f"the same type as without the proof, {how}: {after.type.text}"
            return Finding("statement", "passed", self.by, told)
        unread = before.type if isinstance(before.type, str) else after.type
        return Finding("statement", "not_checked", self.by, f"its type could not be compared: {unread}")


@dataclass(frozen=True, slots=True)
class _Stated:
    """What Lean says of one build, or why it does not; the printed type is asked only where there is no exact one."""

    exact: Answer | str
    type: TypeText | str


def judge_axioms(
    exact: Answer | str, printed: tuple[str, ...] | str, *, declaration: str, by: str, module: str
) -> Finding:
    """Judge by all that Lean said: what either answer names has to be allowed, and both have to agree."""
    voices: list[tuple[str, tuple[str, ...]]] = []
    silent: list[str] = []
    sorried: tuple[str, ...] = ()
    if isinstance(exact, Answer):
        voices.append((QUESTIONS.name, exact.axioms))
        sorried = tuple(name for name in exact.sorried if name != declaration)
        if exact.unsafe:
            why = f"{declaration} rests on what is unsafe: {', '.join(exact.unsafe)}"
            return Finding("axioms", "failed", by, why, axioms=exact.axioms)
        if exact.native:
            why = f"{declaration} rests on compiled code that the kernel believed: {', '.join(exact.native)}"
            return Finding("axioms", "failed", by, why, axioms=exact.axioms)
    else:
        silent.append(exact)
    if isinstance(printed, str):
        silent.append(printed)
    else:
        voices.append(("#print axioms", printed))
    if not voices:
        return Finding("axioms", "not_checked", by, "; ".join(silent))
    axioms = tuple(dict.fromkeys(name for _, names in voices for name in names))
    foreign = [name for name in axioms if name not in ALLOWED_AXIOMS]
    asked = " and ".join(name for name, _ in voices)
    if "sorryAx" in axioms:
        why = f"{declaration} is conditional: it rests on sorryAx ({asked})"
        return Finding("axioms", "failed", by, why, axioms=axioms, sorried=sorried)
    if foreign:
        why = "; ".join(f"{declaration} rests on {name}" for name in foreign)
        return Finding("axioms", "failed", by, f"{why} ({asked})", axioms=axioms)
    if len({frozenset(names) for _, names in voices}) != 1:
        said = "; ".join(f"{name}: {', '.join(names) or 'none'}" for name, names in voices)
        return Finding("axioms", "not_checked", by, f"two answers do not agree: {said}")
    told = f"only {', '.join(axioms)}" if axioms else "no axiom at all"
    also = f"; not answered: {silent[0]}" if silent else ""
    evidence = f"{told}, by {asked} in another process that imports {module}{also}"
    return Finding("axioms", "passed", by, evidence, axioms=axioms)


def _unjudged(by: str, why: str) -> Iterator[Finding]:
    steps: tuple[StepName, ...] = ("axioms", "statement", "kernel")
    verdict: CheckVerdict = "not_checked"
    yield from (Finding(step, verdict, by, why) for step in steps)

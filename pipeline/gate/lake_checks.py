"""Checks 3 to 6, by the project's own toolchain: compile, axioms, statement, kernel.

The file without the proof is built and questioned first, so a project that does not build anyway, or a Lean without an
answer, leads to "not checked" with the reason and never to a rejection. The evidence names the commands, the toolchain,
the module, and the SHA-256 of the built bytes.

`lake build` applies the project's options. It evaluates the lakefile, which is code, so it may write to `.lake` of the
job's own worktree and nowhere else. `lean` alone answers questions, in a process with one writable folder of a random
name, and `Questions.lean` runs none of the module's initializers. It names every module below the one in question with
its file. Modules neither the toolchain's nor a trusted package's are hashed before and after the candidate's build, and
replayed in the kernel.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipeline.gate.accepted import digest_of, export_key, kernel_digest, module_keys
from pipeline.gate.answers import (
    Answer,
    BuiltModule,
    differences,
    not_of_the_proof,
)
from pipeline.gate.axioms import ALLOWED_AXIOMS, read_axioms
from pipeline.gate.finding import Finding, joint_finding
from pipeline.gate.headers import not_in_header
from pipeline.gate.preconditions import other_lean, shadowed_library
from pipeline.gate.questions import (
    ASK_BOUNDS,
    MOST_ANSWER_BYTES,
    QUESTIONS,
    ask_exactly,
    asked_exactly,
    is_own,
    new_folder,
    remove,
    run_lean,
    search_path,
)
from pipeline.gate.references import Place, ends_at, place_of
from pipeline.gate.second_kernel import (
    ExportKernel,
    Judged,
    find_kernels,
    judge_export,
    memory_remedy,
    release_of,
)
from pipeline.gate.source_checks import parts_below, taken_further_down
from pipeline.gate.vouched import Library, UnknownError
from pipeline.lean.backend import LeanBackend
from pipeline.lean.build.lake import BUILD_BOUNDS, MOST_PROCESSES, Bounds, LakeRunner, Outcome, build
from pipeline.lean.client.process import built_folders
from pipeline.lean.export import shown
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.source.imports import compiled_file, module_of, module_path, source_folders
from pipeline.lean.source.manifest import MANIFEST
from pipeline.lean.source.projects import LAKEFILES, toolchain_file, worktree_of
from pipeline.lean.source.scanner import parse, scan_source
from pipeline.lean.source.worktree import read_inside
from store.domain.records import Declaration
from store.events.projects import outside
from store.events.proofs import Accepted, CheckVerdict, FileHash, LeanStatement, Material, StepName
from store.text import end_of

# ---- printed answers
# Read whole or not at all. An answer carries the random name of the asking file, so no output of the project can pass
# for one.


# Both wordings of Lean's versions, and lake's prefix.
_SORRY_WARNING = re.compile(
    r"warning: (?:\./)*(?P<path>[^\n:]+):(?P<line>\d+):(?P<column>\d+): declaration uses ['`]sorry['`]"
)


def one_message(output: str, *, file_name: str, lines: range) -> str | None:
    """Return the text of the one message of `lean --json` for these lines of the asking file.

    Only messages with that file's random name count, since the project does not know it; two such messages, or one of
    another severity than information, are no answer. Other lines are lake's, or the project's initializers'.
    """
    found: list[str] = []
    for text in output.splitlines():
        try:
            message = json.loads(text)
        except ValueError:
            if file_name in text:
                return None
            continue
        if not isinstance(message, dict) or PurePosixPath(str(message.get("fileName"))).name != file_name:
            continue
        position, data = message.get("pos"), message.get("data")
        told = message.get("severity") == "information" and isinstance(data, str)
        if not told or not isinstance(position, dict) or position.get("line") not in lines:
            return None
        found.append(str(data))
    return found[0] if len(found) == 1 else None


def sorry_warnings(output: str, *, path: str) -> tuple[tuple[int, int], ...]:
    """Return the lines and columns of `path` with a build's warning about sorry, in either wording.

    No warning is no evidence: a file can switch it off. The axioms decide.
    """
    wanted = PurePosixPath(path)
    return tuple(
        (int(found["line"]), int(found["column"]))
        for found in _SORRY_WARNING.finditer(output)
        if PurePosixPath(found["path"]) == wanted or found["path"].endswith(f"/{path}")
    )


# ---- questions


KERNEL_BOUNDS = Bounds(timeout_s=1800.0, memory_bytes=12 * 2**30, processes=MOST_PROCESSES)
"""Of a second kernel reading the export of one proof."""
_PLAIN = re.compile(r"[^\W\d][\w'!?]*(?:\.[^\W\d][\w'!?]*)*")
CHECKER = "leanchecker"
"""The toolchain's kernel replay. One built by a project may be any program."""
MODULE_BOUNDS = dataclasses.replace(ASK_BOUNDS, timeout_s=1800.0)
"""Of the replay of the proof's module: with a module `A` go all modules named `A.…`, perhaps the whole project."""
_CLOSURE_S = 1800.0
"""Seconds for the replay of all modules below the proof's; a rest lowers the grade."""
_AT_ONCE = 8
"""Modules of one replay process: it replays them side by side, each with its own imports."""
FIRST_MODULE = "Init.Prelude"
"""Root module of Lean's core library; absent in a custom core library."""
_FORGED = "look where the compiled files of the project and its packages come from, and build them from their sources"
# A build's files for one module: those in the folder of its library, and those of its native code.
_OUTPUTS = re.compile(r"\.(?:olean|ilean|ir|trace|hash|setup|c|bc|o)\b.*")


def leads_outside(runner: LakeRunner) -> str | None:
    """Return why the worktree may not be built in, or None: the build's files must be the worktree's own.

    Check again after a build: evaluating a lakefile runs code, which may write into `.lake`, links too.
    """
    project = runner.project.resolve()
    place = runner.project / ".lake"
    for folder in (
        place,
        place / "build",
        place / "build" / "lib",
        place / "build" / "ir",
        place / "everlean",
    ):
        if not folder.resolve().is_relative_to(project):
            return f"{folder} leads out of the worktree, and a build of a candidate must not reach what others use"
    return None


@contextmanager
def patched_in_place(project: Path, path: str, patched: bytes) -> Iterator[None]:
    """Put the patched bytes into the worktree for the length of the block, without the old build of the file.

    The old build is put aside, so that lake builds the patched bytes, and put back afterwards: nothing built from a
    candidate stays.
    """
    file = project / path
    before = file.read_bytes()
    with _outputs_aside(project, path):
        try:
            _write(file, patched)
            yield
        finally:
            _write(file, before)


@contextmanager
def _outputs_aside(project: Path, path: str) -> Iterator[None]:
    aside = new_folder(project)
    try:
        kept = {output: aside / str(number) for number, output in enumerate(_outputs(project, path))}
        for output, place in kept.items():
            output.replace(place)
        try:
            yield
        finally:
            for output in _outputs(project, path):
                output.unlink()
            for output, place in kept.items():
                # If the build removed these places, or linked them elsewhere, nothing of ours goes back.
                if is_own(project, place) and is_own(project, output.parent):
                    place.replace(output)
    finally:
        remove(project, aside)


def _outputs(project: Path, path: str) -> list[Path]:
    """Return a build's files for one source file, in each place lakes put them."""
    stem = module_path(module_of(path, source_folders(project)))
    found: list[Path] = []
    for place in ("lib/lean", "lib", "ir"):
        folder = project.joinpath(".lake", "build", place, stem.parent)
        if folder.is_dir() and is_own(project, folder):
            names = (one for one in sorted(folder.iterdir()) if one.is_file() and not one.is_symlink())
            found += [
                one
                for one in names
                if one.name.startswith(f"{stem.name}.") and _OUTPUTS.fullmatch(one.name[len(stem.name) :])
            ]
    return found


def not_built_here(project: Path, path: str) -> str | None:
    """Return why the file's module is not the last build's, after `patched_in_place` had put aside the old one.

    A lakefile can have its build elsewhere; a package's module of the same name would then answer for this one.
    """
    if _compiled_to(project, path, ".olean"):
        return None
    return f"lake build left no {Path(path).stem}.olean in {project / '.lake' / 'build' / 'lib'}: it builds elsewhere"


def _compiled_to(project: Path, path: str, suffix: str) -> list[Path]:
    return [one for one in _outputs(project, path) if one.suffix == suffix and "lib" in one.parts]


def axioms_of(runner: LakeRunner, *, module: str, declaration: str) -> tuple[str, ...] | str:
    """Return the constant's axioms by `#print axioms` in a file importing the module; or the reason of a failure.

    The module may have redefined the command, so its answer can speak against a proof and never for it.
    """
    folder = new_folder(runner.project)
    try:
        file = folder / f"Q{secrets.token_hex(16)}.lean"
        file.write_text(f"import {module}\n#print axioms {declaration}\n", encoding="utf-8")
        ran = run_lean(runner, folder, "--json", str(file), path=search_path(runner)["LEAN_PATH"])
        if not ran.ok:
            return f"lean: {ran.explain(ASK_BOUNDS)}: {end_of(ran.output)}"
        data = one_message(ran.output, file_name=file.name, lines=range(2, 3))
        return f"lean answered: {end_of(ran.output)}" if data is None else read_axioms(data, declaration)
    finally:
        remove(runner.project, folder)


def find_checker(runner: LakeRunner) -> Path | str:
    """Return the toolchain's own kernel replay; a text if it has none."""
    own = runner.program.parent / CHECKER
    return own if own.is_file() else f"{own.parent} has no {CHECKER}"


def replay(runner: LakeRunner, checker: Path, *modules: str, bounds: Bounds = ASK_BOUNDS) -> Outcome:
    """Replay every declaration of the built modules in the kernel, in a fresh process."""
    asking = runner.with_(writable=(), environment=search_path(runner))
    # The checker must name a quoted module it replayed.
    verbose = ("-v",) if any("«" in name for name in modules) else ()
    asked = dict.fromkeys(map(_asked_for, modules))
    return asking.execute((str(checker), *verbose, *asked), bounds=bounds)


def _asked_for(module: str) -> str:
    """Return the name by which the checker replays a module; "" if there is none.

    It reads no quotes, and replays everything below a name: of a quoted name, the part before the quotes. Lean writes
    some names without the necessary quotes: a file's may then pass for an option.
    """
    plain = module.partition("«")[0]
    asked = module if plain == module else plain.rstrip(".")
    return asked if _PLAIN.fullmatch(asked) else ""


def _tells_of(ran: Outcome, module: str) -> bool:
    """Return whether a replay's output names this module; a plain name needs no look."""
    if "«" not in module:
        return True
    said = f"replaying {module}" if ran.ok else f"found a problem in {module}"
    return any(line.strip().endswith(said) for line in ran.output.splitlines())


def _gave_up(ran: Outcome) -> bool:
    """Return whether a replay ended without a verdict: for want of time or memory, or in a crash.

    A name in its refusal may speak of memory too.
    """
    return ran.ending != "exited" and f"{CHECKER} found a problem in " not in ran.output


def _write(file: Path, data: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(file)


def findings(
    backend: LeanBackend,
    *,
    project: Path,
    path: str,
    patched: bytes,
    proof_end: int,
    declaration: str,
    declared: frozenset[str],
    trusted: tuple[Path, ...],
    second_kernel: str,
    folder: str = "",
    known: frozenset[str] = frozenset(),
    cache: Path | None = None,
) -> Generator[Finding, None, None]:
    """Yield the toolchain's findings on the patched file, in order; the caller stops at the first failure.

    The patched bytes may stay in the worktree until the caller closes this generator.

    Args:
        proof_end: the end of the proof's last word in the patched file.
        declared: the constants of the whole file, as the scanner reads them.
        trusted: the folders of compiled modules without need of a replay.
        second_kernel: the value of `[lean] second_kernel`.
        folder: the project's in its repository.
        known: the keys kernels accepted before (`pipeline.gate.accepted`).
        cache: the daemon's, with the digests of Lean's own constants (`pipeline.gate.vouched`).
    """
    runner = LakeRunner.find(backend, project=project)
    reason = runner if isinstance(runner, str) else leads_outside(runner)
    by = f"lake {backend.toolchain}".strip()
    if reason is None and declaration.rsplit(".", 1)[-1].startswith("_"):
        reason = f"{declaration} makes no constant that could be asked about"
    library = None if isinstance(runner, str) else runner.library
    if reason is None and library is None:
        reason = f"{runner} is in no toolchain's folder, so whose library Lean reads is not known"
    if reason is not None or library is None or isinstance(runner, str):
        yield from _unjudged("nobody", reason or str(runner), compiled=False)
        return
    inquiry = _Inquiry(
        runner,
        library.resolve(),
        trusted,
        backend.toolchain,
        by,
        path,
        patched,
        proof_end,
        declaration,
        declared,
        second_kernel,
        folder,
        known,
        cache,
    )
    compiled = False
    try:
        for finding in inquiry.findings():
            compiled = True
            yield finding
    except SandboxError as error:
        yield from _unjudged(by, str(error), compiled=compiled)


@dataclass(frozen=True, slots=True)
class _Inquiry:
    """One proof and the lake to build it.

    `library` is the folder of the toolchain's own modules, `trusted` those of packages' modules without a replay.
    """

    runner: LakeRunner
    library: Path
    trusted: tuple[Path, ...]
    toolchain: str
    by: str
    path: str
    patched: bytes
    proof_end: int
    declaration: str
    declared: frozenset[str]
    second_kernel: str
    folder: str
    known: frozenset[str]
    cache: Path | None

    @property
    def _own(self) -> Library:
        return Library(self.runner, (self.library, *self.trusted), self.cache)

    def findings(self) -> Iterator[Finding]:
        module = module_of(self.path, source_folders(self.runner.project))
        built = build(self.runner, module)
        if not built.ok:
            why = f"{built.explain(BUILD_BOUNDS)}: {built.end(400)}"
            why = f"the project does not build here even without the proof: {why}"
            yield from _unjudged(self.by, why, compiled=False)
            return
        linked = leads_outside(self.runner)
        if linked is not None:
            yield from _unjudged(self.by, linked, compiled=False)
            return
        before = self._asked(module)
        if isinstance(before, Answer) and "sorryAx" not in before.axioms:
            # A macro of the project can make another command of the sorry's.
            before = (
                f"without the proof, what Lean calls {self.declaration} rests on no sorry, so it is not what the"
                " sorry is in"
            )
        if isinstance(before, str):
            # A proof that does not compile is refused all the same.
            with patched_in_place(self.runner.project, self.path, self.patched):
                yield self._built(module, build(self.runner, module))
            yield from _unjudged(self.by, before, compiled=True)
            return
        below = self._below(before, module)
        hashes = _hashes(below)
        with patched_in_place(self.runner.project, self.path, self.patched):
            yield self._built(module, build(self.runner, module))
            elsewhere = leads_outside(self.runner) or not_built_here(self.runner.project, self.path)
            after = elsewhere or self._asked(module)
            if isinstance(after, str):
                yield from _unjudged(self.by, after, compiled=True)
                return
            if self._below(after, module) != below or _hashes(below) != hashes:
                changed = "what the file imports is not the same before and after the proof was built"
                yield from _unjudged(self.by, changed, compiled=True)
                return
            # The references lack a declaration whose text names no constant.
            if followed := self._followed(after.ends, module):
                yield followed
                return
            printed = axioms_of(self.runner, module=module, declaration=self.declaration)
            yield judge_axioms(after, printed, declaration=self.declaration, by=self.by, library=self.library)
            yield self._statement(before, after, below, hashes)
            kernel = self._kernel(module, below, after)
            panel = find_kernels(self.second_kernel, self.runner, toolchain=self.toolchain)
            judged = self._judged(panel.kernels, module, after)
        if kernel.verdict == "failed" and not self._replay(module).ok:
            # A refusal speaks against the proof only if the checker takes the module without the proof.
            evidence = f"{kernel.evidence}; and it refuses it without the proof too"
            kernel = dataclasses.replace(kernel, verdict="not_checked", evidence=evidence)
        # As with Lean's own: a refusal speaks against the proof only if the kernel takes the export without it.
        refusing = tuple(one for one in panel.kernels if judged[one].word == "refused")
        without = self._judged(refusing, module, before)
        joint = joint_finding(kernel, panel, judged, without)
        exports = tuple(
            Accepted(key=one.key, kernel=kernel_.name, what=self.declaration)
            for kernel_, one in judged.items()
            if one.key not in {"", *self.known}
        )
        # If one kernel refuses a part, no check may take it as accepted.
        accepted = () if joint.refused else (*kernel.accepted, *exports)
        yield dataclasses.replace(joint, accepted=accepted, replayed=kernel.replayed, known=kernel.known)

    def _judged(
        self, kernels: Sequence[ExportKernel], module: str, answer: Answer
    ) -> dict[ExportKernel, Judged]:
        """Have kernels judge the present build's constant with everything below it."""
        if not kernels:
            return {}
        with asked_exactly(
            self.runner, module=module, declaration=self.declaration, scope="closure"
        ) as found:
            if isinstance(found, str):
                return dict.fromkeys(kernels, Judged("could not", found))
            whole, export = found
            if other := not_of_the_proof(whole, answer):
                return dict.fromkeys(kernels, Judged("could not", other))
            try:
                forged = self._own.differs(whole, answer, imports=parse(self.patched).imports or ("Init",))
            except UnknownError as error:
                return dict.fromkeys(kernels, Judged("could not", str(error)))
            if forged is not None:
                return dict.fromkeys(kernels, Judged("forged", f"forged export: {forged}; {_FORGED}"))
            axioms = sorted(".".join(name) for name in whole.export.axioms)
            told = f"{len(whole.export.declared)} constants, {export.stat().st_size} bytes"
            judged = {}
            for one in kernels:
                key = export_key(self._digest_of(one.name, one.program), export, axioms=axioms)
                if key in self.known:
                    judged[one] = Judged("accepted", f"{told}, the same bytes as before", key)
                    continue
                word = judge_export(one, export, axioms=axioms, runner=self.runner, bounds=KERNEL_BOUNDS)
                judged[one] = Judged("accepted", told, key) if word.word == "accepted" else word
            return judged

    def _digest_of(self, name: str, program: Path) -> str:
        return kernel_digest(name, program, toolchain=self.library.parent.parent)

    def _keys(self, checker: Path, answer: Answer) -> dict[str, str]:
        """Return the key of each module for the toolchain's replay, of the files as they are now."""
        kernel = self._digest_of(self._checker, checker)
        return module_keys(kernel, answer.modules, vouched=(self.library, *self.trusted))

    def _asked(self, module: str) -> Answer | str:
        """Return the toolchain's answer on the present build; a text is the reason why none counts."""
        hidden = shadowed_library(self.runner.project)
        answer = hidden or ask_exactly(
            self.runner, module=module, declaration=self.declaration, trusted=self.trusted
        )
        if isinstance(answer, str):
            return answer
        # A lake on PATH may be of any version.
        other = other_lean(answer.lean, toolchain=self.toolchain)
        if other is not None:
            return other
        own = {one.name for one in answer.modules if one.lies_in(self.library)}
        if FIRST_MODULE not in own:
            return (
                f"the library in {self.library} is not Lean's own, since {FIRST_MODULE} is not in it: what the"
                " statement means there is that library's to say"
            )
        if len({one.name for one in answer.modules}) != len(answer.modules):
            return "two modules that it imports are written alike, so that one could pass for the other"
        for one in answer.modules:
            if one.name in own:
                continue
            if not one.path.as_posix().endswith(f"/{module_path(one.name)}.olean"):
                return f"{one.name} was read from {one.path}, which is not where a module of that name lies"
            if len(one.files) > 1 and one.name not in answer.in_parts:
                return f"{one.name} is one file to Lean, and a kernel's replay would take what lies beside it"
            if one.is_core:
                return f"Lean read {one.name} from {one.path}, and not from its own library"
            if one.is_bare:
                return (
                    f"{one.name} is a prelude file, which may say what the names of Lean's own library mean"
                )
            if self._hides(one):
                return f"{one.name} in {one.path} hides a module of a package, on which that package's proofs rest"
        return answer

    def _hides(self, one: BuiltModule) -> bool:
        """Return whether a module has the name of one in a package without a replay.

        Its importers there were proved with the package's own.
        """
        there = any(compiled_file(folder, one.name).is_file() for folder in self.trusted)
        return there and not any(one.lies_in(folder) for folder in self.trusted)

    def _below(self, answer: Answer, module: str) -> tuple[BuiltModule, ...]:
        """Return the untrusted modules below the proof's: the project's, and those of its packages."""
        vouched = (self.library, *self.trusted)
        return tuple(
            one
            for one in answer.modules
            if one.name != module and not any(one.lies_in(folder) for folder in vouched)
        )

    def _kernel(self, module: str, below: Sequence[BuiltModule], answer: Answer) -> Finding:
        """Replay the module, then everything below it not yet accepted; "failed" if the module is refused."""
        if isinstance(checker := find_checker(self.runner), str):
            return Finding("kernel", "not_checked", "nobody", checker)
        if not _asked_for(module):
            return Finding(
                "kernel", "not_checked", "nobody", f"{CHECKER} reads no quoted name such as {module}"
            )
        here = (one for one in answer.modules if module_path(one.name) == module_path(module))
        if not any(self._is_found(one) for one in here):
            return Finding(
                "kernel", "not_checked", "nobody", f"{CHECKER} does not find {module} behind a link"
            )
        keys = self._keys(checker, answer) if below else {}
        ran = self._replay(module)
        if _gave_up(ran):
            why = f"{module}: {ran.explain(MODULE_BOUNDS)}{memory_remedy(ran)}"
            return Finding("kernel", "not_checked", self._checker, why)
        if not _tells_of(ran, module):
            why = f"{CHECKER} {_asked_for(module)} tells nothing of {module}: {end_of(ran.output)[-300:]}"
            return Finding("kernel", "not_checked", self._checker, why)
        if not ran.ok:
            why = f"{CHECKER} refuses {module} ({ran.explain(MODULE_BOUNDS)}): {end_of(ran.output)[-300:]}"
            return Finding("kernel", "failed", self._checker, why, refused=True)
        # Quoted names last: their replay may reach beyond the modules below the proof.
        known = {one.name for one in below if keys.get(one.name) in self.known}
        asked = (
            one for one in below if one.name not in known and _asked_for(one.name) and self._is_found(one)
        )
        names = sorted((one.name for one in asked), key=lambda name: "«" in name)
        ends = time.monotonic() + _CLOSURE_S
        done, stopped = 0, ""
        while done < len(names) and (left_s := ends - time.monotonic()) > 1:
            some = names[done : done + _AT_ONCE]
            bounds = dataclasses.replace(ASK_BOUNDS, timeout_s=min(left_s, ASK_BOUNDS.timeout_s))
            ran = replay(self.runner, checker, *some, bounds=bounds)
            if _gave_up(ran) or not all(_tells_of(ran, name) for name in some):
                stopped = memory_remedy(ran) and f"; {ran.explain(bounds)}{memory_remedy(ran)}"
                break
            if not ran.ok:
                why = f"{CHECKER} refuses what {module} imports, one of {', '.join(some)}"
                told = f"{why} ({ran.explain(bounds)}): {end_of(ran.output)[-300:]}"
                return Finding("kernel", "not_checked", self._checker, told, refused=True)
            done += len(some)
        # The replay was of the hashed files, if nothing changed meanwhile.
        now = self._keys(checker, answer) if below else {}
        found = Finding(
            "kernel",
            "passed",
            self._checker,
            f"`{CHECKER} {_asked_for(module)}`: every declaration replayed",
            grade="L1",
            accepted=tuple(
                Accepted(key=keys[name], kernel=self._checker, what=name)
                for name in (module, *names[:done])
                if name in keys and keys[name] == now.get(name) and keys[name] not in self.known
            ),
            replayed=1 + done,
            known=len(known),
        )
        if not below:
            return found
        before = f", {len(known)} of them before, from the same bytes" if known else ""
        if (judged := done + len(known)) < len(below):
            told = f"of the {len(below)} modules below it that the project or its packages bring, {judged} replayed"
            return dataclasses.replace(
                found,
                verdict="not_checked",
                grade="L0",
                evidence=f"{found.evidence}; {told}{before}{stopped}",
            )
        told = f"and those of all {judged} modules below it that the project or its packages bring"
        return dataclasses.replace(found, evidence=f"{found.evidence}, {told}{before}")

    def _is_found(self, one: BuiltModule) -> bool:
        """Return whether the checker replays this file when asked for the module.

        It looks for files whose place, links followed, has the module's name in the first folder containing them. It
        accepts any file below that name.
        """
        file = one.path.resolve()
        folders = (folder.resolve() for folder in (self.library, *built_folders(self.runner.project)))
        within = next((folder for folder in folders if file.is_relative_to(folder)), None)
        return within is not None and file == compiled_file(within, one.name)

    @property
    def _checker(self) -> str:
        """The name of the toolchain's replay, with its version."""
        return f"{CHECKER} of {release_of(self.toolchain)}"

    def _replay(self, module: str) -> Outcome:
        checker = self.runner.program.parent / CHECKER
        return replay(self.runner, checker, module, bounds=MODULE_BOUNDS)

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
        one = self._source
        warned = [
            place[0]
            for place in sorry_warnings(built.output, path=self.path)
            if one is not None and (one.line, one.column) <= place < (one.end_line, one.end_column)
        ]
        if warned:
            return Finding(
                "compile",
                "failed",
                self.by,
                f"lake build +{module}: line {warned[0]}: {self.declaration} uses sorry",
                axioms=("sorryAx",),
                sorried=(self.declaration,),
            )
        if followed := self._followed(self._end, module):
            return followed
        told = f"`lake build +{module}` with the project's own options: exit status 0; built from sha256 {digest}"
        return Finding("compile", "passed", self.by, told)

    def _followed(self, end: Place | None, module: str) -> Finding | None:
        """Refuse a proof with a command of its own behind Lean's end of the declaration."""
        if end is None or end >= place_of(self.patched, self.proof_end):
            return None
        return Finding(
            "compile",
            "failed",
            self.by,
            f"lake build +{module}: {self.declaration} ends in line {end[0] + 1}, column {end[1] + 1}: what follows"
            " there in the proof's text is a command of its own",
        )

    @property
    def _end(self) -> Place | None:
        """Lean's end of the declaration in the patched file; None if the build's references do not have it."""
        project = self.runner.project.resolve()
        for file in _compiled_to(project, self.path, ".ilean"):
            try:
                references = read_inside(
                    project, file.relative_to(project).as_posix(), most_bytes=MOST_ANSWER_BYTES
                )
            except OSError:
                return None
            return ends_at(references, self.declaration)
        return None

    @property
    def _source(self) -> Declaration | None:
        """The declaration in the patched file, as the scanner reads it."""
        declarations = scan_source(self.patched, path=self.path).declarations
        return next((one for one in declarations if one.name == self.declaration), None)

    def _statement(
        self, before: Answer, after: Answer, below: Sequence[BuiltModule], hashes: Mapping[str, str]
    ) -> Finding:
        """Check that Lean gives the constant the same statement as without the proof, whatever the source says."""
        source, inputs = self._source, _inputs(self.runner.project, self.folder)
        found = differences(before, after, declared=self.declared - {self.declaration})
        if source is not None:
            # Only Lean knows them: the project's macros and tactics declare names without a `let rec` in the text.
            made = parts_below(after.declared.keys() - before.declared.keys(), self.declaration)
            found += [
                f"the proof declares a {name} below it, which hides a {name} that the file speaks of further down"
                for name in taken_further_down(made, file=self.patched, declaration=source)
            ]
        if found:
            return Finding("statement", "failed", self.by, "; ".join(found))
        rests = after.rests
        told = (
            f"the same type and universe parameters as without the proof, by their exports, and the same"
            f" {len(before.premises)} constants of its module below it: sha256 {after.digest}"
        )
        if source is None or isinstance(inputs, str):
            told += f"; its material is not recorded: {inputs if source else 'the scanner does not see it'}"
            return Finding("statement", "passed", self.by, told, rests=rests)
        material = Material(
            statement=source.statement,
            lean=_lean_s(after, source.statement),
            statement_sha256=after.digest,
            file_sha256=hashlib.sha256(self.patched).hexdigest(),
            inputs=inputs,
            modules=len(below),
            modules_sha256=_digest_of(below, hashes),
        )
        return Finding("statement", "passed", self.by, told, material=material, rests=rests)


def _lean_s(answer: Answer, statement: str) -> LeanStatement | None:
    """Return Lean's statement of the source's words, as text."""
    told = answer.told
    if told is None:
        return None
    return LeanStatement(
        name=told.name,
        type=told.type,
        whole=told.whole,
        sha256=answer.statement.digest.hex(),
        not_in_header=not_in_header(statement, told.variables),
        below=told.below,
        more=told.more,
    )


def _inputs(project: Path, folder: str) -> tuple[FileHash, ...] | str:
    """Return the repository's files naming Lean and the packages; a text if one is unreadable."""
    found, worktree = [], worktree_of(project, folder)
    for name in (toolchain_file(worktree, folder), *(outside(one, folder) for one in (*LAKEFILES, MANIFEST))):
        try:
            found.append(FileHash(path=name, sha256=hashlib.sha256(read_inside(worktree, name)).hexdigest()))
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{name} was not read ({error.strerror or error})"
    return tuple(found)


def _digest_of(modules: Iterable[BuiltModule], hashes: Mapping[str, str]) -> str:
    """Return one SHA-256 of modules: of each name with the hashes of its files, wherever they lie."""
    lines = (
        f"{one.name} {file.name} {hashes[str(file)]}\n"
        for one in sorted(modules, key=lambda one: one.name)
        for file in one.files
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _hashes(modules: Iterable[BuiltModule]) -> dict[str, str]:
    """Return the SHA-256 of each file of these modules."""
    return {str(file): digest_of(file) for one in modules for file in one.files}


def judge_axioms(
    exact: Answer, printed: tuple[str, ...] | str, *, declaration: str, by: str, library: Path
) -> Finding:
    """Judge both of Lean's answers: each axiom in either must be allowed, and both must agree.

    An axiom is allowed by its name and by its home: a module of the toolchain's own `library`.
    """
    if exact.unsafe:
        why = f"{declaration} rests on what is unsafe: {', '.join(exact.unsafe)}"
        return Finding("axioms", "failed", by, why, axioms=exact.axioms)
    if exact.native:
        why = f"{declaration} rests on compiled code that the kernel believed: {', '.join(exact.native)}"
        return Finding("axioms", "failed", by, why, axioms=exact.axioms)
    told = () if isinstance(printed, str) else printed
    axioms = tuple(dict.fromkeys((*exact.axioms, *told)))
    if "sorryAx" in axioms:
        sorried = tuple(name for name in exact.sorried if name != declaration)
        why = f"{declaration} is conditional: it rests on sorryAx"
        return Finding("axioms", "failed", by, why, axioms=axioms, sorried=sorried)
    core = {one.name for one in exact.modules if one.lies_in(library)}
    foreign = [name for name in axioms if name not in ALLOWED_AXIOMS]
    foreign += [
        f"{shown(name)}, as its export names it"
        for name in sorted(exact.export.axioms - {tuple(one.split(".")) for one in ALLOWED_AXIOMS})
        if not foreign
    ]
    foreign += [
        f"{name} of {home}" for name, home in exact.homes.items() if name not in foreign and home not in core
    ]
    if foreign:
        why = "; ".join(f"{declaration} rests on {name}" for name in foreign)
        return Finding("axioms", "failed", by, why, axioms=axioms)
    if not isinstance(printed, str) and set(printed) != set(exact.axioms):
        said = f"{QUESTIONS.name}: {', '.join(exact.axioms) or 'none'}; #print axioms: {', '.join(printed) or 'none'}"
        return Finding("axioms", "not_checked", by, f"two answers do not agree: {said}")
    rests = f"only {', '.join(axioms)}, of the toolchain's own library" if axioms else "no axiom at all"
    also = f"; not answered: {printed}" if isinstance(printed, str) else ", and by #print axioms"
    evidence = f"{rests}, by {QUESTIONS.name} in another process that reads the built modules{also}"
    return Finding("axioms", "passed", by, evidence, axioms=axioms)


def _unjudged(by: str, why: str, *, compiled: bool) -> Iterator[Finding]:
    """Yield the reason for each remaining step."""
    steps: tuple[StepName, ...] = ("compile", "axioms", "statement", "kernel")
    verdict: CheckVerdict = "not_checked"
    yield from (Finding(step, verdict, by, why) for step in steps[compiled:])

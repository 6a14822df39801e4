"""The bump job: raise a commit's Lean or a package in a worktree, say what breaks, and mend the proofs that do.

`python -m pipeline.bump --spec spec.json`, whose parameters are a `BumpSpec`. Builds as the build job does; each
broken proof becomes a gap with its statement locked; texts are tried in the gaps, and rung 0 of the ladder where none
fits; what Lean compiles passes the gate, against the file with the gap. Emits `bump_built`, one `bump_tried` for each
text, and `bump_finished` with the patches.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

from pipeline.build import Building
from pipeline.bump.breaks import MOST_BREAKS, SORRY, Gap, RaisedFile, shown
from pipeline.bump.mends import Errors, Names, candidates, declared, deprecations, suggested
from pipeline.bump.raising import Raised, check_lean_of, raised
from pipeline.gate.lake_checks import BUILD_BOUNDS, build, patched_in_place
from pipeline.gate.patch import file_diff
from pipeline.gate.verdict import Gate
from pipeline.jobs.lease import lean_held
from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter, run_job
from pipeline.jobs.specs import BumpSpec, CuratedRung, ProveSpec, SorryToProve
from pipeline.lean.build.lake import BuildLog, BuildMessage, LakeRunner
from pipeline.lean.build.sources import read_sources
from pipeline.lean.client.errors import ReplError
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.source.imports import module_of, source_folders
from pipeline.lean.source.scanner import scan_source
from pipeline.lean.source.splice import Replacement, text_hash_with
from pipeline.lean.source.worktree import read_inside
from pipeline.prove.__main__ import ProveJob
from store.domain.identity import git_blob, proof_id, short_hash
from store.events.base import EventBody
from store.events.bumps import Break, BumpBuilt, BumpFinished, BumpTried, Mend
from store.events.proofs import AttemptFinished, ProofFound
from store.view.bumps import raises

_ROUNDS = 200
LONGEST_TEXT = 20_000
LONGEST_HOW = 500
MOST_RECORDED = 5_000
"""Texts of one trial that the log gets, and the bytes of their events; those that the gate accepts, it gets always."""
MOST_RECORDED_BYTES = 8 * 2**20
_NAMES_S = 300.0
Verdict = Literal["refused", "rejected", "checked", "verified"]


def work(spec: JobSpec[BumpSpec], reporter: Reporter) -> dict[str, Any]:
    """Try one bump of one commit."""
    held: list[IO[bytes]] = []
    try:
        with lean_held(spec.parameters.build.lean):
            return Bump(spec, reporter, held).run()
    except (ReplError, SandboxError) as error:
        raise JobError(
            "lean_failed", f"the bump could not be tried: {error}", remedy="see `unsorry doctor`"
        ) from error
    finally:
        for file in held:
            file.close()


@dataclass(slots=True)
class _Compiled:
    """What Lean said of a file with a text in a gap. `errors` are (place in the text, message); None: it compiles."""

    errors: list[tuple[int, str]] | None
    messages: list[BuildMessage] = field(default_factory=list)


class Bump:
    """One trial; its steps in the order of `run`."""

    def __init__(self, spec: JobSpec[BumpSpec], reporter: Reporter, held: list[IO[bytes]]) -> None:
        self._spec, self._given, self._reporter = spec, spec.parameters, reporter
        self._project = spec.place.absolute()
        self._held = held
        self._began = time.monotonic()
        self._building = self._new_building()
        self._files: dict[str, RaisedFile] = {}
        self._renames: dict[str, str] = dict(self._given.renames)
        self._mended: list[Mend] = []
        self._conditional: dict[tuple[str, int], list[tuple[str, str]]] = {}
        self._number = self._unrecorded = self._recorded_bytes = 0

    def run(self) -> dict[str, Any]:
        given = self._given
        self._of_commit = frozenset(_lean_files(self._project))
        change = raised(self._project, toolchain=given.toolchain, package=given.package, rev=given.rev)
        for path, (_, after) in change.files.items():
            (self._project / path).write_bytes(after)
        runner, like, packages = self._building.prepared()
        if given.package and packages is not None and packages.not_built:
            check_lean_of(self._project, given.package, given.rev, like.toolchain)
        failed = self._break(runner)
        self._record_built(failed)
        self._mend_all(runner)
        self._climb()
        self._judge_again()
        left, failed = self._left(), self._build_what_is_handed_over(runner)
        if failed:
            # What is handed over does not build: then nothing of it is called verified.
            self._mended = [
                one.model_copy(update={"verdict": "checked", "axioms": ()}) for one in self._mended
            ]
        series = self._series(change, left, failed)
        self._record(
            BumpFinished(
                repository=given.build.repository,
                branch=given.build.branch,
                sha=given.build.sha,
                bump=given.bump,
                toolchain=given.toolchain,
                package=given.package,
                rev=given.rev,
                mended=tuple(self._mended),
                left=left,
                modules_failed=failed,
                series=self._reporter.stage(json.dumps(series).encode()),
                tried=self._number,
                unrecorded=self._unrecorded,
                seconds=round(time.monotonic() - self._began, 3),
                job=self._spec.job,
            ),
            "finished",
        )
        return {
            "mended": len(self._mended),
            "left": len(left),
            "modules_failed": len(failed),
            "tried": self._number,
        }

    def _new_building(self) -> Building:
        build_spec = replace(self._spec, parameters=self._given.build)  # type: ignore[arg-type]
        return Building(build_spec, self._reporter, self._project, self._held)  # type: ignore[arg-type]

    @property
    def _mends_end(self) -> float:
        """When nothing more is tried, of `time.monotonic`."""
        return self._began + self._given.build.timeout_s

    def _late(self) -> bool:
        return time.monotonic() > self._mends_end

    # ---- what breaks

    def _break(self, runner: LakeRunner) -> tuple[str, ...]:
        """Build, put aside what breaks, and build again until nothing new does; return the modules that still fail."""
        for _ in range(_ROUNDS):
            log, outcome = self._building.build(runner)
            self._renames |= deprecations(one.text for one in log.messages)
            news = False
            by_path: dict[str, list[BuildMessage]] = {}
            for message in log.messages:
                by_path.setdefault(message.path, []).append(message)
            for path, messages in sorted(by_path.items()):
                # With so many breaks, what breaks beyond them is named by its module alone.
                named = sum(len(one.gaps) + len(one.left) for one in self._files.values())
                has_error = named < MOST_BREAKS and any(one.severity == "error" for one in messages)
                if has_error and (file := self._file(path)) is not None and file.take(messages):
                    news = True
                    self._write(file)
            if not news or outcome.ok or self._late():
                break
        if outcome.ok:
            return ()
        if not self._files:
            self._building.judge(
                log, outcome, read_sources(self._project)
            )  # raises where nothing useful was built
        return tuple(sorted(log.failed))

    def _file(self, path: str) -> RaisedFile | None:
        """Return a file of the project as the commit has it; None for one of a package, or that cannot be read."""
        if path not in self._files:
            # Whatever the build's output names: only files of the commit are read and written.
            if path not in self._of_commit:
                return None
            try:
                data = read_inside(self._own(path).parent, Path(path).name)
            except OSError:
                return None
            self._files[path] = RaisedFile(path, data.decode("utf-8", "surrogateescape"))
        return self._files[path]

    def _own(self, path: str) -> Path:
        """Return the place of a file of the commit, which no build has made lead elsewhere.

        Raises:
            JobError: one has.
        """
        place = self._project.resolve() / path
        if place.resolve() != place:
            raise JobError("worktree", f"{path}: a build has put a link there", deterministic=True)
        return place

    def _write(self, file: RaisedFile) -> None:
        self._own(file.path).write_bytes(_bytes(file.current))

    def _record_built(self, failed: tuple[str, ...]) -> None:
        given = self._given
        body = BumpBuilt(
            repository=given.build.repository,
            branch=given.build.branch,
            sha=given.build.sha,
            bump=given.bump,
            toolchain=given.toolchain,
            package=given.package,
            rev=given.rev,
            broken=self._left(),
            modules_failed=failed,
            job=self._spec.job,
        )
        self._record(body, "built")

    def _left(self) -> tuple[Break, ...]:
        """Return what is broken and not mended, in the order of paths and lines."""
        found = [one for file in self._files.values() for one in file.left]
        found += [gap.found for file in self._files.values() for gap in file.gaps.values() if not gap.mended]
        return tuple(sorted(found, key=lambda one: (one.path, one.line, one.declaration)))

    # ---- mending

    def _mend_all(self, runner: LakeRunner) -> None:
        for file in self._files.values():
            for start in file.open_gaps:
                if not self._late():
                    self._mend(runner, file, start)

    def _judge_again(self) -> None:
        """Judge what rested on a gap once more, as long as that brings a proof: the gap may be filled by now."""
        mended = -1
        while mended < len(self._mended):
            mended = len(self._mended)
            for (path, start), texts in [*self._conditional.items()]:
                if self._late():
                    return
                file = self._files[path]
                if start in file.open_gaps and not any(self._judge(file, start, *one) for one in texts):
                    continue
                del self._conditional[path, start]

    def _mend(self, runner: LakeRunner, file: RaisedFile, start: int) -> None:
        gap = file.gaps[start]
        text, errors = gap.old, gap.errors
        seen, left = {text}, self._given.tries
        going = True
        while going:
            going = False
            for how, other in candidates(text, errors, self._renames, self._near):
                if other in seen:
                    continue
                if left <= 0 or self._late():
                    return
                left -= 1
                seen.add(other)
                said = self._compile(runner, file, start, other)
                self._renames |= deprecations(one.text for one in said.messages)
                found = next((s for one in said.messages if (s := suggested(one.text))), "")
                if said.errors is None and "exact?" in other and found:
                    how, other = f"{how}, which found {found}", other.replace("exact?", found)
                    said = self._compile(runner, file, start, other)
                if said.errors is None:
                    if self._judge(file, start, other, how):
                        return
                    continue
                self._tried(gap, how, other, "refused", "compile", said.errors[0][1])
                if _progress(other, said.errors) < _progress(text, errors):
                    text, errors, going = other, said.errors, True
                    break

    def _near(self, name: str) -> Iterable[str]:
        return self._names.nearest(name)

    @cached_property
    def _names(self) -> Names:
        # To read a large library must not take the time of the texts.
        until = min(time.monotonic() + _NAMES_S, self._mends_end)
        return Names(declared(self._project, self._given.build.lean.sysroot, until=until))

    def _compile(self, runner: LakeRunner, file: RaisedFile, start: int, text: str) -> _Compiled:
        self._own(file.path)
        whole, place = file.with_text(start, text)
        module = module_of(file.path, source_folders(self._project))
        log = BuildLog()
        with patched_in_place(self._project, file.path, _bytes(whole)):
            outcome = build(runner, module, on_line=log.take)
        if outcome.ok:
            return _Compiled(None, log.messages)
        lines = [0, *(at + 1 for at, one in enumerate(whole) if one == "\n")]
        errors = []
        for one in log.messages:
            if one.severity == "error":
                at = lines[min(one.line, len(lines)) - 1] + one.column - place
                errors.append((min(max(0, at), len(text)) if one.path == file.path else 0, one.text))
        return _Compiled(errors or [(0, outcome.explain(BUILD_BOUNDS))], log.messages)

    def _judge(self, file: RaisedFile, start: int, text: str, how: str) -> bool:
        """Have the gate judge a text in a gap, and keep it where it is verified."""
        gap, lean = file.gaps[start], self._given.build.lean
        began = time.monotonic()
        proof = self._proof(file, start, text)
        self._own(file.path)
        gate = Gate(proof, lean, self._project, _bytes(file.current), self._given.second_kernel)
        verdict = asyncio.run(gate.run())
        seconds = time.monotonic() - began
        if verdict.failed is not None:
            self._tried(gap, how, text, "rejected", verdict.failed.step, verdict.failed.evidence, seconds)
            if verdict.conditional_on and (how, text) not in (
                texts := self._conditional.setdefault((file.path, start), [])
            ):
                texts.append((how, text))
            return False
        # Without a command that is put aside the file may state another thing than what is handed over.
        is_whole = not any(one.blanked for one in self._files.values())
        is_verified = verdict.all_required_passed and lean.is_lean and is_whole
        if is_verified:
            self._tried(gap, how, text, "verified", "", "", seconds)
        else:
            # As of any proof: nothing speaks against it, and here nobody can judge more of it.
            step = verdict.not_checked[0] if verdict.not_checked else ""
            told = next((one.evidence for one in verdict.checks if one.verdict == "not_checked"), "")
            if not is_whole:
                step, told = "statement", "it was judged beside commands that are put aside"
            self._tried(gap, how, text, "checked", step, told, seconds)
        gap.text = text
        self._write(file)
        mend = Mend(
            path=file.path,
            declaration=gap.found.declaration,
            how=" ".join(shown(how, LONGEST_HOW).split()),
            verdict="verified" if is_verified else "checked",
            axioms=verdict.axioms if is_verified else (),
        )
        self._mended.append(mend)
        return True

    def _proof(self, file: RaisedFile, start: int, text: str) -> ProofFound:
        given, data = self._given.build, _bytes(file.current)
        at = len(_bytes(file.current[: file.place_of(start)]))
        blob = git_blob(data, like=given.sha)
        sorry = self._sorry(file, start)
        change = Replacement(at, at + len(SORRY), text)
        return ProofFound(
            proof=proof_id(sorry, blob, text),
            sorry=sorry,
            repository=given.repository,
            branch=given.branch,
            sha=given.sha,
            path=file.path,
            blob=blob,
            byte_start=change.byte_start,
            byte_end=change.byte_end,
            declaration=file.gaps[start].found.declaration,
            declaration_text_hash=text_hash_with(data, file.path, change),
            replacement=text,
            tactics=(),
            prover="bump",
            rung=0,
            toolchain=given.lean.toolchain,
            simulated=given.lean.simulated,
            job=self._spec.job,
        )

    def _sorry(self, file: RaisedFile, start: int) -> str:
        return short_hash("bump", self._given.bump, file.path, str(start))

    def _climb(self) -> None:
        """Search with rung 0 in what is left, as a prove job does; what it finds goes to the gate."""
        wanted = {
            one.sorry: (file, start, one)
            for file in self._files.values()
            for start, one in self._wanted(file)
        }
        if not wanted or self._late():
            return
        given = self._given
        parameters = ProveSpec(
            repository=given.build.repository,
            branch=given.build.branch,
            sha=given.build.sha,
            lean=given.build.lean,
            limits=given.limits,
            rung=CuratedRung(),
            budget=given.budget,
            budget_key="bump",
            parallel=1,
            sorries=tuple(one for _, _, one in wanted.values()),
        )
        found = _Found(self._spec)
        asyncio.run(self._search(ProveJob(replace(self._spec, parameters=parameters), found)))  # type: ignore[arg-type]
        proofs = {one.sorry: one.replacement for one in found.proofs}
        for sorry, (file, start, _) in wanted.items():
            if self._late():
                return
            if sorry in proofs:
                self._judge(file, start, proofs[sorry], "rung 0: tactics")
            else:
                why = found.details.get(sorry, "")
                self._tried(file.gaps[start], "rung 0: tactics", "", "refused", "search", why)

    async def _search(self, search: ProveJob) -> None:
        with suppress(TimeoutError):  # what was found until then is
            async with asyncio.timeout_at(
                asyncio.get_running_loop().time() + self._mends_end - time.monotonic()
            ):
                await search.run()

    def _wanted(self, file: RaisedFile) -> Iterator[tuple[int, SorryToProve]]:
        data = _bytes(file.current)
        scanned = scan_source(data, path=file.path)
        for start in file.open_gaps:
            at = len(_bytes(file.current[: file.place_of(start)]))
            sorry = next((one for one in scanned.sorries if one.byte_start == at), None)
            if sorry is not None:
                about = scanned.declarations[sorry.index]
                yield (
                    start,
                    SorryToProve(
                        sorry=self._sorry(file, start),
                        path=file.path,
                        blob=git_blob(data, like=self._given.build.sha),
                        byte_start=sorry.byte_start,
                        byte_end=sorry.byte_end,
                        declaration=about.name,
                        kind=about.kind,
                        ordinal=sorry.ordinal,
                    ),
                )

    # ---- what is handed over

    def _build_what_is_handed_over(self, runner: LakeRunner) -> tuple[str, ...]:
        """Build the commit with the patches as they are handed over; return the modules that fail."""
        for file in self._files.values():
            self._own(file.path).write_bytes(_bytes(file.handed_over))
        building = self._new_building()
        log, outcome = building.build(runner)
        if outcome.ok:
            return ()
        if not log.failed:
            return (shown(f"all: {outcome.explain(BUILD_BOUNDS)}"),)
        sources = read_sources(self._project)
        behind = {path.removesuffix(".lean").replace("/", ".") for path in sources.importers(log.failed)}
        return tuple(sorted(behind | set(log.failed)))

    def _series(
        self, change: Raised, left: tuple[Break, ...], failed: tuple[str, ...]
    ) -> list[dict[str, str]]:
        given = self._given
        named = "".join(
            f"\n  {one.path}:{one.line} {one.declaration or '(no declaration)'}: {one.kind}" for one in left
        )
        message = (
            f"Left, since nothing that was tried was accepted:{named}" if left else "Nothing is left broken."
        )
        if failed:
            message = f"These modules do not build with the patches: {', '.join(failed)}.\n" + (
                message if left else ""
            )
        message = "\n".join((*change.notes, message))
        series = [
            {
                "title": f"Raise {raises(given.toolchain, given.package, given.rev)}",
                "message": message,
                "diff": self._diff(change.files),
            }
        ]
        for path, file in sorted(self._files.items()):
            mended = [one for one in self._mended if one.path == path]
            if mended:
                told = "\n".join(
                    f"{one.declaration}: {one.how}; "
                    + (
                        f"axioms: {', '.join(one.axioms) or 'none'}"
                        if one.verdict == "verified"
                        else "NOT VERIFIED"
                    )
                    for one in mended
                )
                unsure = sum(one.verdict != "verified" for one in mended)
                title = f"Mend {len(mended)} {'proof' if len(mended) == 1 else 'proofs'} in {path}"
                title += f", {unsure} not verified" if unsure else ""
                both = {path: (_bytes(file.original), _bytes(file.handed_over))}
                series.append({"title": title, "message": told, "diff": self._diff(both)})
        return series

    def _diff(self, changes: Mapping[str, tuple[bytes, bytes]]) -> str:
        like = self._given.build.sha
        found = b"".join(
            file_diff(path, before, after, (git_blob(before, like=like), git_blob(after, like=like)))
            for path, (before, after) in sorted(changes.items())
        )
        return found.decode("utf-8", "surrogateescape")

    # ---- the log

    def _tried(
        self, gap: Gap, how: str, text: str, verdict: Verdict, step: str, reason: str, seconds: float = 0.0
    ) -> None:
        given, self._number = self._given, self._number + 1
        body = BumpTried(
            repository=given.build.repository,
            branch=given.build.branch,
            sha=given.build.sha,
            bump=given.bump,
            path=gap.found.path,
            declaration=gap.found.declaration,
            number=self._number,
            how=shown(how, LONGEST_HOW),
            text=text[:LONGEST_TEXT],
            text_cut=len(text) > LONGEST_TEXT,
            verdict=verdict,
            step=step,
            reason=shown(reason),
            seconds=round(seconds, 3),
            job=self._spec.job,
        )
        size = self._recorded_bytes + len(body.model_dump_json().encode())
        has_room = self._number - self._unrecorded <= MOST_RECORDED and size <= MOST_RECORDED_BYTES
        if has_room or verdict in ("checked", "verified"):
            self._recorded_bytes = size
            self._record(body, "tried", str(self._number))
        else:
            self._unrecorded += 1
        self._reporter.progress(
            len(self._mended), len(self._mended) + len(self._left()), gap.found.declaration
        )

    def _record(self, body: EventBody, *key: str) -> None:
        stream = f"repository:{self._given.build.repository}"
        self._reporter.events(
            [Recorded(stream, body, (self._given.bump, self._spec.job, str(self._spec.attempt), *key))]
        )


class _Found(Reporter):
    """Takes what a prove job records: it is about gaps, which are no sorries of the log."""

    def __init__(self, spec: JobSpec[Any]) -> None:
        super().__init__(spec, io.StringIO())
        self.proofs: list[ProofFound] = []
        self.details: dict[str, str] = {}

    def events(self, batch: Iterable[Recorded]) -> None:
        for one in batch:
            if isinstance(one.body, ProofFound):
                self.proofs.append(one.body)
            elif isinstance(one.body, AttemptFinished):
                self.details[one.body.sorry] = one.body.detail or one.body.outcome


def _lean_files(project: Path) -> Iterator[str]:
    """Yield the paths of a commit's Lean files: what builds make lies in .lake, and a lakefile is no module."""
    for folder, folders, names_of in os.walk(project):
        folders[:] = [name for name in folders if name not in (".lake", ".git")]
        for name in names_of:
            place = Path(folder) / name
            if name.endswith(".lean") and name != "lakefile.lean" and not place.is_symlink():
                yield place.relative_to(project).as_posix()


def _progress(text: str, errors: Errors) -> tuple[int, int]:
    """Return how far a text is from a proof: its errors, and its lines behind the first; less is nearer."""
    return len(errors), text.count("\n", min(at for at, _ in errors)) if errors else 0


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


if __name__ == "__main__":
    sys.exit(run_job(BumpSpec, work))

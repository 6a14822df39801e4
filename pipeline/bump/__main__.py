"""The bump job: raise a commit's Lean or a package in a worktree, name the breaks, and mend the broken proofs.

`python -m pipeline.bump --spec spec.json`, with a `BumpSpec` as parameters. Builds as the build job does; a broken
proof becomes a gap with a locked statement; texts are tried in the gaps, then the ladder's rungs; a text accepted by
Lean passes the gate, first against the file with the gap, at the end once more in the final commit. Emits `bump_built`,
one `bump_tried` for each text, and `bump_finished` with the patches.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pipeline.build import Building
from pipeline.bump.breaks import MOST_BREAKS, SORRY, Cause, Gap, RaisedFile, cause_of, shown
from pipeline.bump.mends import Errors, Names, candidates, declared, deprecations
from pipeline.bump.raising import Raised, check_lean, raised
from pipeline.endpoint.credentials import take_hub_key
from pipeline.gate.advisories import Advisory, FeedError, against, known, witnesses
from pipeline.gate.lake_checks import patched_in_place
from pipeline.gate.patch import file_diff
from pipeline.gate.verdict import Gate
from pipeline.gate.verdict import Verdict as GateVerdict
from pipeline.jobs.lean import hold_that_it_is_lean
from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter, first_error, run_job
from pipeline.jobs.specs import BumpSpec, ProveSpec, Rung, SorryToProve
from pipeline.lean.build.lake import BUILD_BOUNDS, BuildLog, BuildMessage, LakeRunner, build
from pipeline.lean.build.sources import Sources, read_sources
from pipeline.lean.client.errors import ReplError
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.source.imports import module_of, source_folders
from pipeline.lean.source.scanner import scan_source
from pipeline.lean.source.splice import Replacement, text_hash_with
from pipeline.lean.source.worktree import read_inside
from pipeline.lean.tactic_text import suggested
from pipeline.prove.job import ProveJob
from store.documents.grades import JUDGED, doubt_text
from store.domain.identity import git_blob, proof_id, short_hash
from store.events.base import EventBody
from store.events.bumps import Break, BumpBuilt, BumpFinished, BumpTried, Mend
from store.events.proofs import AttemptFinished, ProofFound
from store.files import Lock
from store.view.bumps import raises

_ROUNDS = 200
LONGEST_TEXT = 20_000
LONGEST_HOW = 500
MOST_RECORDED = 5_000
"""Texts of one trial that the log gets beside those that the gate accepts, and the bytes of their events."""
MOST_RECORDED_BYTES = 8 * 2**20
_NAMES_S = 300.0
_JUDGING_ENDS = 2.5
"""No build or check starts after this multiple of the build limit; the daemon ends the job at three."""
_NO_TIME = "there was no time to judge it in the commit as it is handed over"
_Place = tuple[str, int]
"""A gap: its file, and its first code point in the file."""
Verdict = Literal["refused", "rejected", "checked", "verified"]


def work(spec: JobSpec[BumpSpec], reporter: Reporter) -> dict[str, Any]:
    """Try one bump of one commit."""
    held: list[Lock] = []
    try:
        hold_that_it_is_lean(spec.parameters.build.lean)
        return Bump(spec, reporter, held).run()
    except (ReplError, SandboxError) as error:
        raise JobError(
            "lean_failed", f"the bump could not be tried: {error}", remedy="see `everlean doctor`"
        ) from error
    finally:
        for one in held:
            one.release()


@dataclass(slots=True)
class _Compiled:
    """Lean's answer about a file with a text in a gap. `errors` are (place in the text, message); None if it
    compiles.
    """

    errors: list[tuple[int, str]] | None
    messages: list[BuildMessage] = field(default_factory=list)


class Bump:
    """One trial; its steps in the order of `run`."""

    def __init__(self, spec: JobSpec[BumpSpec], reporter: Reporter, held: list[Lock]) -> None:
        self._spec, self._given, self._reporter = spec, spec.parameters, reporter
        self._project = spec.place.absolute()
        self._held = held
        self._began = time.monotonic()
        self._building = self._new_building()
        self._files: dict[str, RaisedFile] = {}
        self._renames: dict[str, str] = dict(self._given.renames)
        self._advisories = _known(self._given.advisories)
        self._mended: dict[_Place, Mend] = {}
        self._judged_in: dict[_Place, str] = {}
        self._importers: dict[str, frozenset[str]] = {}
        self._conditional: dict[_Place, list[tuple[str, str]]] = {}
        self._number = self._unrecorded = self._recorded = self._recorded_bytes = 0

    def run(self) -> dict[str, Any]:
        given = self._given
        self._of_commit = frozenset(_lean_files(self._project))
        change = raised(
            self._project,
            toolchain=given.toolchain,
            package=given.package,
            rev=given.rev,
            files_of=self._building.files_of,
            schemes=given.build.schemes,
        )
        for path, (_, after) in change.files.items():
            (self._project / path).write_bytes(after)
        runner, like, packages = self._building.prepared()
        if given.package and packages is not None and packages.not_built:
            check_lean(given.package, given.rev, change.toolchain, like.toolchain)
        failed = self._break(runner)
        self._record_built(failed)
        self._mend_all(runner)
        self._climb()
        self._judge_again()
        failed = self._hand_over(runner)
        left = self._leftovers()
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
                mended=tuple(self._mended.values()),
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

    def _new_building(self, most_s: float = math.inf) -> Building:
        """Return a build with its own time limit."""
        given = self._given.build
        given = given.model_copy(update={"timeout_s": min(given.timeout_s, most_s)})
        return Building(self._spec.having(given), self._reporter, self._project, self._held)

    @property
    def _mends_end(self) -> float:
        """End of the trials, on `time.monotonic`'s clock."""
        return self._began + self._given.build.timeout_s

    @property
    def _judging_left_s(self) -> float:
        """Seconds in which builds and gates of the final commit may still begin."""
        return self._began + _JUDGING_ENDS * self._given.build.timeout_s - time.monotonic()

    def _late(self) -> bool:
        return time.monotonic() > self._mends_end

    # ---- what breaks

    def _break(self, runner: LakeRunner) -> tuple[str, ...]:
        """Build and put the broken commands aside until nothing new breaks; return the modules that still fail."""
        for _ in range(_ROUNDS):
            log, outcome = self._building.build(runner)
            self._renames |= deprecations(one.text for one in log.messages)
            news = False
            by_path: dict[str, list[BuildMessage]] = {}
            for message in log.messages:
                by_path.setdefault(message.path, []).append(message)
            for path, messages in sorted(by_path.items()):
                # Beyond this limit only the modules of the breaks are named.
                room = MOST_BREAKS - sum(one.named for one in self._files.values())
                has_error = room > 0 and any(one.severity == "error" for one in messages)
                file = self._file(path) if has_error else None
                if file is not None and file.take(messages, self._above(path), room):
                    news = True
                    self._write(file)
            if not news or outcome.ok or self._late():
                break
        if outcome.ok:
            return ()
        if not self._files:
            self._building.judge(log, outcome, self._sources)  # raises if the build made nothing useful
        return tuple(sorted(log.failed))

    def _above(self, path: str) -> list[Cause]:
        """Return the commands left out of a file's imports, direct or not."""
        return [
            cause
            for other in self._files.values()
            if other.causes and other.path != path and path in self._behind(other.path)
            for cause in other.causes
        ]

    def _behind(self, path: str) -> frozenset[str]:
        """Return a file and its importers, direct or not."""
        if path not in self._importers:
            self._importers[path] = self._sources.importers([self._module(path)])
        return self._importers[path]

    @cached_property
    def _sources(self) -> Sources:
        return read_sources(self._project)

    def _module(self, path: str) -> str:
        return module_of(path, source_folders(self._project))

    def _file(self, path: str) -> RaisedFile | None:
        """Return a file of the project as in the commit; None for a package's or an unreadable file."""
        if path not in self._files:
            # The build's output may name any path: only files of the commit are read and written.
            if path not in self._of_commit:
                return None
            try:
                data = read_inside(self._own(path).parent, Path(path).name)
            except OSError:
                return None
            self._files[path] = RaisedFile(path, data.decode("utf-8", "surrogateescape"))
        return self._files[path]

    def _own(self, path: str) -> Path:
        """Return the place of a file of the commit, after checking for links.

        Raises:
            JobError: a build put a link there.
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
            broken=self._leftovers(),
            modules_failed=failed,
            job=self._spec.job,
        )
        self._record(body, "built")

    def _leftovers(self) -> tuple[Break, ...]:
        """Return the open breaks, in the order of paths and lines."""
        result = [one for file in self._files.values() for one in file.left]
        result += [gap.found for file in self._files.values() for gap in file.gaps.values() if not gap.mended]
        return tuple(sorted(result, key=lambda one: (one.path, one.line, one.declaration)))

    # ---- mending

    def _mend_all(self, runner: LakeRunner) -> None:
        for file in self._files.values():
            for start in file.open_gaps:
                if not self._late():
                    self._mend(runner, file, start)

    def _judge_again(self) -> None:
        """Judge conditional texts again until a pass brings no proof: the gap may be filled by now."""
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
        if self._stands(runner, file, start):
            return
        text, errors = gap.old, gap.errors
        seen, left = {text}, self._given.tries
        going = True
        while going and not self._waits(file, gap, errors):
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
                result = next((s for one in said.messages if (s := suggested(one.text))), "")
                if said.errors is None and "exact?" in other and result:
                    how, other = f"{how}, which found {result}", other.replace("exact?", result)
                    said = self._compile(runner, file, start, other)
                if said.errors is None:
                    if self._judge(file, start, other, how):
                        return
                    continue
                self._tried(gap, how, other, "refused", "compile", said.errors[0][1])
                if _progress(other, said.errors) < _progress(text, errors):
                    text, errors, going = other, said.errors, True
                    break

    def _stands(self, runner: LakeRunner, file: RaisedFile, start: int) -> bool:
        """Try the old proof unchanged: the command behind its break may be put aside now."""
        gap, how = file.gaps[start], "the old proof, unchanged"
        if sum(len(one.gaps) + len(one.causes) for one in self._files.values()) == 1:
            return False
        said = self._compile(runner, file, start, gap.old)
        if said.errors is not None:
            gap.errors = said.errors
            self._tried(gap, how, gap.old, "refused", "compile", said.errors[0][1])
            return False
        gap.stands = True
        self._judge(file, start, gap.old, how)
        return True

    def _waits(self, file: RaisedFile, gap: Gap, errors: Errors) -> bool:
        """Return whether a gap only follows from another break; that one is mended first."""
        if not gap.found.follows:
            causes = [*self._above(file.path), *file.causes]
            follows = cause_of((message for _, message in errors), causes)
            gap.found = gap.found.model_copy(update={"follows": follows})
        return bool(gap.found.follows)

    def _near(self, name: str) -> Iterable[str]:
        return self._names.nearest(name)

    @cached_property
    def _names(self) -> Names:
        # Reading a large library must not take the time of the texts.
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
        """Have the gate judge a text in a gap, and keep it if nothing failed."""
        gap = file.gaps[start]
        began = time.monotonic()
        verdict = self._ask_gate(file, start, text, file.current, file.place_of(start))
        seconds = time.monotonic() - began
        if verdict.failed is not None:
            self._tried(gap, how, text, "rejected", verdict.failed.step, verdict.failed.evidence, seconds)
            if verdict.conditional_on and (how, text) not in (
                texts := self._conditional.setdefault((file.path, start), [])
            ):
                texts.append((how, text))
            return False
        # Blanked commands could change the meaning of the rest of the file.
        is_whole = not any(one.blanked for one in self._files.values())
        mend = self._mend_of(file, start, how, verdict)
        step = next(iter(verdict.not_checked), "") if mend.verdict == "checked" else ""
        if is_whole:
            self._tried(gap, how, text, mend.verdict, step, mend.reason, seconds)
        else:
            message = "it was judged beside commands that are left out"
            self._tried(gap, how, text, "checked", "statement", message, seconds)
        self._judged_in[file.path, start] = self._state(
            {one.path: one.current for one in self._files.values()}
        )
        gap.text = text
        self._write(file)
        self._mended[file.path, start] = mend
        return True

    def _mend_of(self, file: RaisedFile, start: int, how: str, verdict: GateVerdict) -> Mend:
        """Return the mend for a text not rejected by the gate."""
        lean = self._given.build.lean
        is_verified = verdict.all_required_passed and lean.is_lean
        result = Mend(
            path=file.gaps[start].found.path,
            declaration=file.gaps[start].found.declaration,
            how=" ".join(shown(how, LONGEST_HOW).split()),
            verdict="verified" if is_verified else "checked",
            # As for any proof: nothing speaks against it, and no more can be judged here.
            reason="" if is_verified else _not_judged(verdict),
            axioms=(),
            grade="",
            kernel="",
            doubts=(),
        )
        if not is_verified:
            return result
        faults = against(witnesses(verdict.facts.grade, verdict.kernel, lean.toolchain), self._advisories)
        graded = {"axioms": verdict.facts.axioms, "grade": verdict.facts.grade, "kernel": verdict.kernel}
        return result.model_copy(update={**graded, "doubts": tuple(one.id for one in faults)})

    def _state(self, texts: Mapping[str, str]) -> str:
        """Name the commit with these texts of its files."""
        return short_hash("state", *(part for one in sorted(texts.items()) for part in one))

    def _ask_gate(self, file: RaisedFile, start: int, text: str, before: str, place: int) -> GateVerdict:
        """Ask the gate about a text in a gap; `place` is the gap's code point in the file on disk."""
        self._own(file.path)
        proof = self._proof(file, start, text, before, place)
        lean, second = self._given.build.lean, self._given.second_kernel
        return Gate(proof, lean, self._project, _bytes(before), second).run()

    def _proof(self, file: RaisedFile, start: int, text: str, before: str, place: int) -> ProofFound:
        given, data = self._given.build, _bytes(before)
        at = len(_bytes(before[:place]))
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
            declaration=file.gaps[start].name,
            declaration_text_hash=text_hash_with(data, file.path, change),
            replacement=text,
            parts=(),
            tactics=(),
            prover="bump",
            rung=0,
            toolchain=given.lean.toolchain,
            job=self._spec.job,
        )

    def _sorry(self, file: RaisedFile, start: int) -> str:
        return short_hash("bump", self._given.bump, file.path, str(start))

    def _climb(self) -> None:
        """Search the open gaps with each rung, as a prove job does; its proofs go to the gate."""
        for one in self._given.rungs:
            self._search_with(one)

    def _search_with(self, rung: Rung) -> None:
        targets = {
            one.sorry: (file, start, one)
            for file in self._files.values()
            for start, one in self._searches(file)
        }
        if not targets or self._late():
            return
        given = self._given
        parameters = ProveSpec(
            repository=given.build.repository,
            branch=given.build.branch,
            sha=given.build.sha,
            lean=given.build.lean,
            limits=given.limits,
            rung=rung.spec,
            model=rung.model,
            budget=rung.budget,
            budget_key="bump",
            parallel=1,
            sorries=tuple(one for _, _, one in targets.values()),
        )
        result = _Found(self._spec)
        failure = ""
        try:
            asyncio.run(self._search(ProveJob(self._spec.having(parameters), result)))
        except* JobError as error:
            failure = str(first_error(error))  # of a model, for example: the other rungs go on
        how = f"rung {rung.number}: {rung.prover}"
        proofs = {one.sorry: one.replacement for one in result.proofs}
        for sorry, (file, start, _) in targets.items():
            if self._late():
                return
            if sorry in proofs:
                self._judge(file, start, proofs[sorry], how)
            else:
                why = result.details.get(sorry, failure)
                self._tried(file.gaps[start], how, "", "refused", "search", why)

    async def _search(self, search: ProveJob) -> None:
        left = self._mends_end - time.monotonic()
        with suppress(TimeoutError):  # earlier proofs are kept
            async with asyncio.timeout(left):
                await search.run()

    def _searches(self, file: RaisedFile) -> Iterator[tuple[int, SorryToProve]]:
        data = _bytes(file.current)
        scanned = scan_source(data, path=file.path)
        for start in file.open_gaps:
            if not file.gaps[start].wanted:
                continue
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

    # ---- the final commit

    def _hand_over(self, runner: LakeRunner) -> tuple[str, ...]:
        """Write the final commit, with only mends that the gate accepted or could not judge; return its failing
        modules.

        Without time for a build, nothing is called verified.
        """
        last_s = 0.0
        while True:
            for file in self._files.values():
                self._own(file.path).write_bytes(_bytes(file.handed_over))
            # A build takes about as long as the one before.
            if self._judging_left_s <= last_s:
                self._mended = {place: _unjudged(one, _NO_TIME) for place, one in self._mended.items()}
                return ("all: there was no time to build them as they are handed over",)
            began = time.monotonic()
            failed = self._build_what_is_handed_over(runner)
            last_s = time.monotonic() - began
            behind = self._sources.importers(failed)
            rejected = False
            for place in [*self._mended]:
                rejected |= not self._judge_as_handed_over(*place, failed, behind)
            if not rejected:
                return failed

    def _judge_as_handed_over(self, path: str, start: int, failed: Sequence[str], behind: Set[str]) -> bool:
        """Have the gate judge a mend in the final commit, if the commit changed since the last verdict; drop the mend
        and return False if it is rejected.
        """
        file, result = self._files[path], self._mended[path, start]
        gap = file.gaps[start]
        before, place = file.handed_over_with_gap(start)
        state = self._state({one.path: one.handed_over for one in self._files.values()} | {path: before})
        why = ""
        if failed and (path in behind or not behind):
            why = f"with the patches as they are handed over these modules do not build: {', '.join(failed)}"
        elif self._judged_in[path, start] == state:
            return True
        elif self._judging_left_s <= 0:
            why = _NO_TIME
        if why:
            self._mended[path, start] = _unjudged(result, why)
            return True
        began = time.monotonic()
        self._own(path).write_bytes(_bytes(before))
        verdict = self._ask_gate(file, start, gap.text, before, place)
        self._own(path).write_bytes(_bytes(file.handed_over))
        if verdict.failed is None:
            self._mended[path, start] = self._mend_of(file, start, result.how, verdict)
            self._judged_in[path, start] = state
            return True
        how = f"{result.how}, in the commit as it is handed over"
        step, evidence = verdict.failed.step, verdict.failed.evidence
        self._tried(gap, how, gap.text, "rejected", step, evidence, time.monotonic() - began)
        del self._mended[path, start]
        gap.text = SORRY
        return False

    def _build_what_is_handed_over(self, runner: LakeRunner) -> tuple[str, ...]:
        """Build the commit with the patches; return the failing modules."""
        building = self._new_building(self._judging_left_s)
        log, outcome = building.build(runner)
        if outcome.ok:
            return ()
        if not log.failed:
            return (shown(f"all: {outcome.explain(BUILD_BOUNDS)}"),)
        behind = {self._module(path) for path in self._sources.importers(log.failed)}
        return tuple(sorted(behind | set(log.failed)))

    def _series(
        self, change: Raised, left: tuple[Break, ...], failed: tuple[str, ...]
    ) -> list[dict[str, str]]:
        given = self._given
        named = "".join(
            f"\n  {one.path}:{one.line} {one.declaration or '(no declaration)'}: {one.kind}"
            + (f", which follows from {one.follows}" if one.follows else "")
            for one in left
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
            mended = [
                one for (of, start), one in self._mended.items() if of == path and not file.gaps[start].stands
            ]
            if mended:
                text = "\n".join(map(_mend_text, mended))
                unsure = sum(one.verdict != "verified" for one in mended)
                title = f"Mend {len(mended)} {'proof' if len(mended) == 1 else 'proofs'} in {path}"
                title += f", {unsure} not verified" if unsure else ""
                both = {path: (_bytes(file.original), _bytes(file.handed_over))}
                series.append({"title": title, "message": text, "diff": self._diff(both)})
        return series

    def _diff(self, changes: Mapping[str, tuple[bytes, bytes]]) -> str:
        like = self._given.build.sha
        result = b"".join(
            file_diff(path, before, after, (git_blob(before, like=like), git_blob(after, like=like)))
            for path, (before, after) in sorted(changes.items())
        )
        return result.decode("utf-8", "surrogateescape")

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
        if verdict in ("checked", "verified"):
            self._record(body, "tried", str(self._number))
        elif self._recorded < MOST_RECORDED and size <= MOST_RECORDED_BYTES:
            self._recorded, self._recorded_bytes = self._recorded + 1, size
            self._record(body, "tried", str(self._number))
        else:
            self._unrecorded += 1
        self._reporter.progress(
            len(self._mended), len(self._mended) + len(self._leftovers()), gap.found.declaration
        )

    def _record(self, body: EventBody, *key: str) -> None:
        stream = f"repository:{self._given.build.repository}"
        self._reporter.events(
            [Recorded(stream, body, (self._given.bump, self._spec.job, str(self._spec.attempt), *key))]
        )


def _known(advisories: str) -> tuple[Advisory, ...]:
    try:
        return known(advisories)
    except FeedError as error:
        raise JobError("advisories", str(error), remedy="correct [certificates] advisories") from error


def _unjudged(found: Mend, why: str) -> Mend:
    """Return a mend without the gate's verdict in the final commit."""
    nothing = {"axioms": (), "grade": "", "kernel": "", "doubts": ()}
    return found.model_copy(update={**nothing, "verdict": "checked", "reason": shown(why)})


def _not_judged(verdict: GateVerdict) -> str:
    """Return why a text is not verified, though the gate did not reject it."""
    checks = (f"{one.step}: {one.evidence}" for one in verdict.checks if one.verdict == "not_checked")
    return shown(next(checks, "it was judged by no Lean"))


def _mend_text(one: Mend) -> str:
    """Return a mend for the message of its patch. Only proofs replayed whole by a kernel are called verified there."""
    if one.verdict == "checked":
        return f"{one.declaration}: {one.how}; NOT VERIFIED: {' '.join(one.reason.split())}"
    doubts = f"; {doubt_text(one.doubts)}" if one.doubts else ""
    grade = f"{JUDGED[one.grade or 'L0']}{f', by {one.kernel}' if one.kernel else ''}{doubts}"
    return f"{one.declaration}: {one.how}; {grade}; axioms: {', '.join(one.axioms) or 'none'}"


class _Found(Reporter):
    """A reporter for the prove job: its events are about gaps, not about sorries of the log."""

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
    """Yield the paths of a commit's Lean files: builds write to .lake, and a lakefile is no module."""
    for folder, folders, names_of in os.walk(project):
        folders[:] = [name for name in folders if name not in (".lake", ".git")]
        for name in names_of:
            place = Path(folder) / name
            if name.endswith(".lean") and name != "lakefile.lean" and not place.is_symlink():
                yield place.relative_to(project).as_posix()


def _progress(text: str, errors: Errors) -> tuple[int, int]:
    """Return a text's distance from a proof: its errors, then the lines after the first error; less is nearer."""
    return len(errors), text.count("\n", min(at for at, _ in errors)) if errors else 0


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


if __name__ == "__main__":
    take_hub_key()
    sys.exit(run_job(BumpSpec, work))

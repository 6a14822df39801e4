"""Plan one repository's due jobs, kind by kind; `daemon.planning.plan` puts those of all in order. Pure.

The Lean of its `lean-toolchain` works on a scanned tip. The tip is built first; without a build it is neither
traced nor searched.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from daemon.jobs.due import DueJob
from daemon.planning.bumps import bumps_due
from daemon.planning.look import Look, branches_of
from daemon.planning.proving import Proving, Resting, below_the_root
from daemon.settings import Repo
from pipeline.jobs.specs import (
    TRACER_VERSION,
    Candidate,
    CheckSpec,
    CountSpec,
    JudgedText,
    ScanLimits,
    ScanSpec,
    SearchOrigin,
    TraceSpec,
    what_is_judged,
)
from pipeline.lean.backend import LeanBackend
from pipeline.lean.build.build_cache import BuildKey
from store.documents.attempts import describe_attempts
from store.domain.identity import job_id
from store.events.projects import Project, below, project_of, worked_on
from store.events.proofs import ProofFound
from store.view import queries
from store.view.rows import BranchRow, CommitRow, ProofRow

_SLACK_S = 60.0
_MOST_COMMITS = 1000
_MOST_TOGETHER = 20
"""The most texts one job judges, if its time suffices (`pipeline.gate.check`)."""
_CHECKS_AT_ONCE = 4
"""A repository's jobs judging several texts. Each text keeps one of these lanes, so no other job begins it
while a job that may reach it runs."""
_SEARCH = (
    "model",
    "seed",
    "nodes",
    "repl_calls",
    "seconds",
    "prompt_tokens",
    "completion_tokens",
    "usd",
    "weights",
)


def scan_limits(most: int) -> ScanLimits:
    """Return the limits of a scan for a branch with `most` sorries at the most; a higher one raises the
    related limits."""
    usual = ScanLimits()
    return ScanLimits(
        sorries=most,
        sorries_per_file=max(usual.sorries_per_file, most // 4),
        sorries_of_repository=max(usual.sorries_of_repository, 3 * most),
    )


@dataclass(frozen=True, slots=True)
class _ToCheck:
    """A proof, the version of its file to judge it in, and its judge's toolchain.

    `where` describes a check other than the first; `anew` makes it another job.
    """

    row: ProofRow
    sha: str
    blob: str
    start: int
    toolchain: str
    where: str = ""
    anew: tuple[str, ...] = ()

    def found(self) -> ProofFound:
        """Return the proof as if found there."""
        row = self.row
        return ProofFound(
            proof=row.proof,
            sorry=row.sorry,
            repository=row.repository,
            branch=row.branch,
            sha=self.sha,
            path=row.path,
            blob=self.blob,
            byte_start=self.start,
            byte_end=self.start + row.byte_end - row.byte_start,
            declaration=row.declaration,
            declaration_text_hash=row.declaration_text_hash,
            replacement=row.replacement,
            parts=tuple(row.parts),
            tactics=tuple(row.tactics),
            prover=row.prover,
            rung=row.rung,
            toolchain=self.toolchain,
            job=row.job,
        )


class RepositoryJobs:
    """Plans repositories."""

    def __init__(self, look: Look, resting: Resting) -> None:
        self._look = look
        self._view = look.view
        self._settings = look.settings
        self._leans = look.leans
        self._standings = look.standings
        self._proving = Proving(look, resting)
        # A trigger's position makes another job of the same work, and stays in the ids of later jobs.
        self._triggered = {(row.work, row.repository): str(row.seq) for row in queries.triggers(look.view)}
        self._builds_due: set[str] = set()
        self._proofs_to_check: dict[str, list[ProofRow]] = {}
        for proof in queries.proofs_to_check(look.view):
            self._proofs_to_check.setdefault(proof.repository, []).append(proof)
        self._doubted: dict[str, dict[str, ProofRow]] = {}
        for proof in queries.doubted_proofs(look.view):
            self._doubted.setdefault(proof.repository, {})[proof.proof] = proof

    def of(self, repo: Repo) -> list[DueJob]:
        """Return a repository's due jobs."""
        self._builds_due = set()
        return [*self._due(repo)]

    def _due(self, repo: Repo) -> Iterator[DueJob]:
        if queries.is_replaced(self._view, repo.key):
            return  # a person has to name the owner first
        branches = branches_of(self._view, repo)
        yield from self._alike([job for branch in branches for job in self._scan(repo, branch)])
        if not repo.opt_out:
            yield from self._checks(repo, {branch.branch: branch for branch in branches})
            yield from bumps_due(self._look, repo)
        for branch in branches:
            # On anything but a scanned tip the text is about to change.
            if branch.scanned != branch.tip:
                continue
            for project in worked_on(branch.lake_projects, repo.projects):
                yield from self._in_project(repo, branch, project)
        if self._settings.scan.history:
            yield from self._count(repo, {branch.branch for branch in branches})

    def _in_project(self, repo: Repo, branch: BranchRow, project: Project) -> Iterator[DueJob]:
        """Yield the jobs of a Lake project of a scanned tip, or the build before them."""
        lean = self._leans.for_toolchain(project.toolchain)
        if lean.kind == "none":
            return
        uses = [*self._uses(repo, branch, project, lean)]
        # A build without further use may leave the cache; making it again would push out another.
        if uses and self._must_build(lean, repo, branch.tip, project.folder):
            yield from self._build(repo, branch, lean, branch.tip, project.folder)
            return
        yield from uses

    def _uses(self, repo: Repo, branch: BranchRow, project: Project, lean: LeanBackend) -> Iterator[DueJob]:
        """Yield the jobs of a built project."""
        if self._settings.trace.enabled:
            yield from self._trace(repo, branch, project, lean)
        if self._settings.prove.enabled and not repo.opt_out:
            yield from self._proving.of(repo, branch, project, lean)

    def _trigger(self, work: str, repo: Repo) -> Iterator[str]:
        if (seq := self._triggered.get((work, repo.key))) is not None:
            yield f"triggered at {seq}"

    # --- build --------------------------------------------------------------------------------------------

    def _must_build(self, lean: LeanBackend, repo: Repo, sha: str, project: str) -> bool:
        """Return whether Lean needs a commit's project built first."""
        return self._look.is_built(lean) and BuildKey(repo.key, sha, project) not in self._look.builds

    def build_first(
        self, repo: Repo, branch: BranchRow, lean: LeanBackend, sha: str, project: str
    ) -> list[DueJob] | None:
        """Return the due jobs to build a commit's project; None if none is needed."""
        if not self._must_build(lean, repo, sha, project):
            return None
        return [*self._build(repo, branch, lean, sha, project)]

    def _build(
        self, repo: Repo, branch: BranchRow, lean: LeanBackend, sha: str, project: str
    ) -> Iterator[DueJob]:
        build = self._settings.build
        identity = job_id("build", repo.key, sha, lean.toolchain, *below_the_root(project))
        standing = self._standings.of(identity)
        # A build that ended well has left the cache: it is made again.
        if standing.state not in ("ready", "done") or identity in self._builds_due:
            return
        self._builds_due.add(identity)
        yield self._look.due(
            identity,
            "build",
            self._look.build(lean, repository=repo.key, branch=branch.branch, sha=sha, folder=project),
            attempt=standing.attempt + (standing.state == "done"),
            lane=f"build:{repo.key}",
            project=project,
            repository=repo.key,
            branch=branch.branch,
            sha=sha,
            describes=" ".join(["build", repo.key, branch.branch, sha[:10], *below_the_root(project)]),
            # The job itself ends lake in time and reports its progress; the daemon's limit is for a hung job.
            timeout_s=build.timeout_s + _SLACK_S,
            memory_bytes=build.memory_bytes,
        )

    # --- trace --------------------------------------------------------------------------------------------

    def _trace(self, repo: Repo, branch: BranchRow, project: Project, lean: LeanBackend) -> Iterator[DueJob]:
        patterns = json.dumps([repo.include, repo.exclude])
        # The tip's scan makes another job of a commit or of patterns that came back. The job's own events do
        # not change it, so it is done after it has ended well.
        folder = below_the_root(project.folder)
        identity = job_id(
            "trace",
            repo.key,
            branch.branch,
            branch.tip,
            str(branch.scanned_seq),
            lean.kind,
            lean.toolchain,
            TRACER_VERSION,
            patterns,
            *self._trigger("trace", repo),
            *folder,
        )
        yield from self._look.ready(
            identity,
            "trace",
            lambda _: TraceSpec(
                repository=repo.key,
                branch=branch.branch,
                sha=branch.tip,
                lean=lean,
                url=repo.url,
                name="/".join(repo.key.split("/")[-2:]),
                include=repo.include,
                exclude=repo.exclude,
                file_timeout_s=self._settings.trace.file_timeout_s,
                limits=self._look.repls(),
                folder=project.folder,
                without=below(project.folder, branch.lake_projects),
            ),
            lane=":".join(["trace", repo.key, branch.branch, *folder]),
            project=project.folder,
            repository=repo.key,
            branch=branch.branch,
            sha=branch.tip,
            describes=" ".join(["trace", repo.key, branch.branch, branch.tip[:10], *folder]),
            built=self._look.is_built(lean),
        )

    # --- scan ---------------------------------------------------------------------------------------------

    def _scan(self, repo: Repo, branch: BranchRow) -> Iterator[DueJob]:
        patterns = json.dumps([repo.include, repo.exclude])
        same_patterns = [list(repo.include), list(repo.exclude)] == [
            branch.scanned_include,
            branch.scanned_exclude,
        ]
        for commit, after in self._unscanned(repo, branch, same_patterns=same_patterns):
            # The observation's position makes a new job of a commit that came back after a force-push, and
            # the last scan's position of patterns that came back. With other patterns a failure may not
            # repeat.
            identity = job_id(
                "scan", repo.key, branch.branch, commit.sha, str(commit.seq), patterns, str(after)
            )
            if self._standings.of(identity).state in ("parked", "done"):
                continue  # a failed commit must not hold up the later ones

            def spec(attempt: int, commit: CommitRow = commit) -> ScanSpec:
                return ScanSpec(
                    repository=repo.key,
                    branch=branch.branch,
                    sha=commit.sha,
                    base=branch.scanned,
                    include=repo.include,
                    exclude=repo.exclude,
                    then=() if attempt > 1 else self._then(repo, branch, commit),
                    limits=scan_limits(self._settings.scan.max_sorries),
                    # Other patterns mean other files, and a base may be lost with its mirror: then the tables
                    # are compared.
                    by_files=branch.scanned is not None and (not same_patterns or attempt > 1),
                )

            yield from self._look.ready(
                identity,
                "scan",
                spec,
                lane=f"scan:{repo.key}:{branch.branch}",
                repository=repo.key,
                branch=branch.branch,
                sha=commit.sha,
                describes=f"scan {repo.key} {branch.branch} {commit.sha[:10]}",
            )
            return

    def _count(self, repo: Repo, branches: Collection[str]) -> Iterator[DueJob]:
        """Yield the job to count the sorries of the commits before the first sight, the newest first."""
        commits = [row for row in queries.past_to_count(self._view, repo.key) if row.branch in branches]
        if not commits:
            return
        first = commits[0]
        identity = job_id("count", repo.key, first.branch, first.sha)
        yield from self._look.ready(
            identity,
            "count",
            lambda _: CountSpec(
                repository=repo.key,
                branch=first.branch,
                commits=tuple(row.sha for row in commits),
                include=repo.include,
                exclude=repo.exclude,
            ),
            lane="count",  # one at a time of all repositories: it takes no slot
            repository=repo.key,
            branch=first.branch,
            sha=first.sha,
            describes=f"count {repo.key} {first.branch} before {first.committed_at[:10]}",
        )

    def _alike(self, scans: Sequence[DueJob]) -> Iterator[DueJob]:
        """Yield scans: first scans of branches at the same commit as one job, and first scans one after the
        other."""
        first: dict[str, DueJob] = {}
        alike: dict[str, list[str]] = {}
        for job in scans:
            if not isinstance(job.spec, ScanSpec) or job.spec.base is not None:
                yield job
            elif first.setdefault(job.sha, job) is not job:
                alike.setdefault(job.sha, []).append(job.branch)
        for sha, job in first.items():
            spec = job.whole_spec.model_copy(update={"alike": tuple(alike.get(sha, ()))})
            # A branch in another's scan must not have its own scan meanwhile, wherever it moved.
            yield replace(job, spec=spec, lane=f"scan:{job.repository}: first")

    def _then(self, repo: Repo, branch: BranchRow, first: CommitRow) -> tuple[str, ...]:
        """Return the commits that follow in the same scan, oldest first."""
        if first.sha == branch.tip:
            return ()
        rows = queries.commits(self._view, repository=repo.key, branch=branch.branch, state="observed")
        later = sorted((row for row in rows if row.seq > first.seq), key=lambda row: row.seq)
        return tuple(row.sha for row in later[:_MOST_COMMITS])

    def _unscanned(
        self, repo: Repo, branch: BranchRow, *, same_patterns: bool
    ) -> Iterator[tuple[CommitRow, int | None]]:
        """Yield the commits to scan; for a tip to scan again, with the position of its last scan."""
        first = queries.next_commit_to_scan(self._view, repo.key, branch.branch)
        if first is not None:
            yield first, None
            rows = queries.commits(self._view, repository=repo.key, branch=branch.branch, state="observed")
            rest = sorted((row for row in rows if row.sha != first.sha), key=lambda row: row.seq)
            yield from ((row, None) for row in rest)
        if branch.scanned == branch.tip and not same_patterns:
            rows = queries.commits(self._view, repository=repo.key, branch=branch.branch, state="scanned")
            yield from ((row, branch.scanned_seq) for row in rows if row.sha == branch.tip)

    def _search_of(self, proof: ProofRow) -> SearchOrigin | None:
        """Return the patch's facts about the search behind a proof."""
        attempts = describe_attempts(self._view, [proof.sorry]).get(proof.sorry, ())
        result = queries.behind(proof, attempts)
        return None if result is None else SearchOrigin(**{name: getattr(result, name) for name in _SEARCH})

    # --- check --------------------------------------------------------------------------------------------

    def _checks(self, repo: Repo, branches: Mapping[str, BranchRow]) -> Iterator[DueJob]:
        """Yield the jobs to judge texts: one verdict for all sorries of a declaration that a text fills.

        Texts that share a commit's build share a job, named after its first text. If the job fails, that one
        is retried alone; the others are still untried.
        """
        alike: dict[object, list[_ToCheck]] = {}
        for one in self._to_check(repo, branches):
            alike.setdefault((what_is_judged(one.found()), one.anew), []).append(one)
        together: dict[object, list[DueJob]] = {}
        for first, *others in alike.values():
            for job in self._check(repo, branches[first.row.branch], first, others):
                # In a sandbox only a candidate reaches the build, and each text gets the build anew.
                if not (
                    isinstance(job.spec, CheckSpec)
                    and job.built
                    and job.attempt == 1
                    and job.spec.lean.sandbox != "none"
                ):
                    yield job
                    continue
                lane = f"{repo.key}: {zlib.crc32(first.row.proof.encode()) % _CHECKS_AT_ONCE}"
                where = (lane, job.sha, job.project, job.spec.lean)
                together.setdefault(where, []).append(replace(job, lane=f"check:{lane}"))
        for jobs in together.values():
            for start in range(0, len(jobs), _MOST_TOGETHER):
                yield _in_one(jobs[start : start + _MOST_TOGETHER])

    def _to_check(self, repo: Repo, branches: Mapping[str, BranchRow]) -> Iterator[_ToCheck]:
        """Yield the proofs to judge: where found, at the branch's tip, or where last judged."""
        for row in self._proofs_to_check.get(repo.key, ()):
            if row.branch in branches:
                yield _ToCheck(row, row.sha, row.blob, row.byte_start, row.toolchain)
        doubted = {**self._doubted.get(repo.key, {})}
        if not repo.pull_requests and not doubted:
            return
        for row, blob, start in queries.proofs_to_check_again(self._view, repo.key):
            if (branch := branches.get(row.branch)) is None:
                continue
            toolchain = _project_of(row, branch).toolchain
            # A pull request is made on the branch's tip, so the proof is checked there. A tip whose Lean
            # lacks the faults also ends a doubt.
            proposed = repo.pull_requests and row.pull_request_url is None
            if proposed or (row.proof in doubted and self._look.judges.sound(toolchain)):
                doubted.pop(row.proof, None)
                yield _ToCheck(row, branch.tip, blob, start, toolchain, " at the tip", (branch.tip,))
        for row in doubted.values():
            # A newer second kernel may lack the faults.
            if row.branch in branches and self._look.judges.newer(row.checked_at):
                sha, toolchain = row.checked_sha, row.judge or row.toolchain
                anew = (sha, self._look.judges.second_since)
                yield _ToCheck(row, sha, row.checked_blob, row.checked_start, toolchain, " again", anew)

    def _check(
        self, repo: Repo, branch: BranchRow, first: _ToCheck, others: Sequence[_ToCheck]
    ) -> Iterator[DueJob]:
        """Yield the job to judge a text; its verdict is recorded for each sorry filled."""
        row, sha = first.row, first.sha
        project = _project_of(row, branch)
        # The Lean of the proof's search: the branch may have another one since.
        lean = self._leans.for_toolchain(first.toolchain or project.toolchain)
        if lean.kind == "none":
            return
        if self._must_build(lean, repo, sha, project.folder):
            yield from self._build(repo, branch, lean, sha, project.folder)
            return
        identity = job_id("check", row.proof, lean.kind, lean.toolchain, *first.anew)
        of_all = f" with {len(others)} more of the declaration" if others else ""
        yield from self._look.ready(
            identity,
            "check",
            lambda _: CheckSpec(
                lean=lean,
                folder=project.folder,
                second_kernel=self._settings.lean.second_kernel,
                cache=self._settings.paths.cache,
                proof=first.found(),
                search=self._search_of(row),
                alike=tuple(Candidate(proof=one.found(), search=self._search_of(one.row)) for one in others),
            ),
            lane=f"check:{row.proof}",
            project=project.folder,
            repository=repo.key,
            branch=row.branch,
            sha=sha,
            describes=f"check {row.declaration} ({row.proof}){of_all}{first.where}",
            built=self._look.is_built(lean),
        )


def _in_one(jobs: Sequence[DueJob]) -> DueJob:
    """Merge checks of one commit into the first, which judges the others' texts after its own."""
    first, *others = jobs
    if not others:
        return first
    then = tuple(
        JudgedText(proof=spec.proof, search=spec.search, alike=spec.alike)
        for spec in (job.spec for job in others)
        if isinstance(spec, CheckSpec)
    )
    spec = first.whole_spec.model_copy(update={"then": then})
    return replace(first, spec=spec, describes=f"{first.describes}, then {len(then)} more of the commit")


def _project_of(row: ProofRow, branch: BranchRow) -> Project:
    """Return the Lake project of a proof's file; without one, it is judged at the root."""
    return project_of(row.path, branch.lake_projects) or Project("", "", "")

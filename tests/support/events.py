"""Events for tests: one valid body of every type, and random but lifelike histories of repositories.

`Story` invents what a daemon would record: commits, force-pushes, files that come and go, sorries that live and
die, proofs that hold or do not, jobs that end in every way. The same seed tells the same story.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from store.domain.identity import event_id, proof_id, short_hash, sorry_id
from store.domain.life import TheoremStep, counted, follow
from store.domain.matching import Decl, compare
from store.domain.records import Declaration, ScannedFile, Sorry
from store.events.base import BlobRef, EventBody
from store.events.bumps import Break, BumpAsked, BumpBuilt, BumpFinished, BumpTried, Mend
from store.events.jobs import (
    JobCancelled,
    JobFailed,
    JobInterrupted,
    JobStarted,
    JobSucceeded,
    TriggerEnded,
    WorkPaused,
    WorkResumed,
    WorkTriggered,
)
from store.events.places import SorryPlace
from store.events.projects import Project
from store.events.proofs import (
    Accepted,
    AttemptFinished,
    Check,
    CheckedVersion,
    ClaimReleased,
    ClosureJudged,
    ProofChecked,
    ProofDoubted,
    ProofFound,
    ProofRejected,
    ProofVerified,
    PullRequestOpened,
    SorryClaimed,
)
from store.events.repositories import (
    BranchCreated,
    BranchDeleted,
    BranchRewritten,
    BranchUnwatched,
    CommitObserved,
    RepositoryArchived,
    RepositoryFailed,
    RepositoryFailing,
    RepositoryIdentified,
    RepositoryRecovered,
    RepositoryRenamed,
    RepositoryReplaced,
    RepositoryUnwatched,
    RepositoryWatched,
)
from store.events.scans import (
    CommitScanned,
    FileRemoved,
    FileScanned,
    PastCommit,
    PastCounted,
    PastListed,
    ScanBegun,
    SorryChanged,
    SorryFilled,
    SorryMoved,
    SorryOpened,
    SorryRemoved,
    SorryWritten,
    TheoremsFollowed,
)
from store.events.service import (
    ConfigLoaded,
    ConfigRejected,
    DaemonStarted,
    DaemonStopped,
    LeanBuild,
    LeanChosen,
    NotificationFailed,
    NotificationSent,
    NotificationsSwitched,
)
from store.log.envelope import Appended, Expect, NewEvent
from store.log.log import EventLog
from store.view.rows import ProofRow
from tests.support.memory_log import MemoryLog
from tests.support.models import (
    checkpoint_promoted,
    checkpoint_refused,
    checkpoint_removed,
    checkpoint_saved,
    evaluation_finished,
    model_offered,
)
from tests.support.traced_repository import TraceStory, sample_events

REPOSITORY = "example.org/demo/logic"
BRANCH = "main"
STREAM = f"repository:{REPOSITORY}"


def sha(*parts: object) -> str:
    """Return a made-up git object id."""
    return hashlib.sha1(":".join(map(str, parts)).encode(), usedforsecurity=False).hexdigest()


def digest(payload: bytes) -> BlobRef:
    """Return the reference to a payload."""
    return BlobRef(sha256=hashlib.sha256(payload).hexdigest(), size_bytes=len(payload))


def stage(folder: Path, payload: bytes) -> tuple[BlobRef, dict[str, Path]]:
    """Write a payload as a job would; return its reference and the `blobs` argument of `append`."""
    reference = digest(payload)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / reference.sha256
    path.write_bytes(payload)
    return reference, {reference.sha256: path}


def declaration(name: str, *, line: int = 1, kind: str = "theorem", statement: str = "True") -> Declaration:
    """Return a declaration of two lines that ends in a sorry at column 2."""
    return Declaration(
        name=name,
        kind=kind,
        line=line,
        column=0,
        end_line=line + 1,
        end_column=7,
        byte_start=line * 20,
        byte_end=line * 20 + 27,
        statement=statement,
        statement_hash=short_hash(statement),
        text_hash=short_hash(name, statement, "sorry"),
    )


def scanned(path: str, declarations: Sequence[Declaration], *, with_sorry: Sequence[str] = ()) -> ScannedFile:
    """Return a scan; each declaration named in `with_sorry` has one."""
    sorries = tuple(
        Sorry(
            declaration=item.name,
            index=index,
            ordinal=0,
            token="sorry",
            mode="tactic",
            line=item.line + 1,
            column=2,
            byte_start=item.byte_end - 5,
            byte_end=item.byte_end,
            context_hash=short_hash("context", item.name),
        )
        for index, item in enumerate(declarations)
        if item.name in with_sorry
    )
    return ScannedFile(
        path=path, error=None, imports=("Init",), declarations=tuple(declarations), sorries=sorries
    )


def file_scanned(
    scan: ScannedFile,
    *,
    commit: str,
    blob: str,
    branch: str = BRANCH,
    exercise_words: int = 0,
    marked: Sequence[str] = (),
) -> tuple[FileScanned, bytes]:
    """Return the event of a scan, and the payload that it cites."""
    payload = json.dumps(scan.as_json(), sort_keys=True).encode()
    body = FileScanned(
        repository=REPOSITORY,
        branch=branch,
        sha=commit,
        path=scan.path,
        blob=blob,
        error=scan.error,
        n_declarations=len(scan.declarations),
        n_sorries=len(scan.sorries),
        exercise_words=exercise_words,
        declarations_taken=None,
        sorries_taken=None,
        marked=tuple(marked),
        scan=digest(payload),
    )
    return body, payload


def place(scan: ScannedFile, sorry: Sorry, *, blob: str) -> SorryPlace:
    """Return where a scanned sorry stands, as its events say it."""
    owner = scan.declarations[sorry.index]
    return SorryPlace(
        path=scan.path,
        blob=blob,
        line=sorry.line,
        column=sorry.column,
        byte_start=sorry.byte_start,
        byte_end=sorry.byte_end,
        declaration=owner.name,
        kind=owner.kind,
        statement=owner.statement,
        statement_hash=owner.statement_hash,
        ordinal=sorry.ordinal,
        token=sorry.token,
        mode=sorry.mode,
        context_hash=sorry.context_hash,
    )


def watched(**changes: Any) -> RepositoryWatched:
    """Return the entry of the test repository, with changes."""
    entry: dict[str, Any] = {
        "repository": REPOSITORY,
        "url": "https://example.org/demo/logic",
        "branches": (),
        "include": ("**/*.lean",),
        "exclude": (),
        "projects": (),
        "every_s": 300.0,
        "enabled": True,
        "opt_out": False,
    }
    return RepositoryWatched(**(entry | changes))


def observed(commit: str, *, parent: str | None = None, branch: str = BRANCH) -> CommitObserved:
    """Return the observation of a commit."""
    return CommitObserved(
        repository=REPOSITORY,
        branch=branch,
        sha=commit,
        parents=() if parent is None else (parent,),
        author="Ada",
        committed_at=datetime(2026, 1, 1, tzinfo=UTC),
        subject=f"commit {commit[:7]}",
        baseline=parent is None,
    )


def commit_scanned(commit: str, *, base: str | None = None, branch: str = BRANCH) -> CommitScanned:
    """Return the end of a commit's scan."""
    return CommitScanned(
        repository=REPOSITORY,
        branch=branch,
        sha=commit,
        base=base,
        include=("**/*.lean",),
        exclude=(),
        projects=(Project("", "", ""),),
        files_scanned=1,
        files_removed=0,
        files_failed=0,
        seconds=0.25,
        challenges=(),
    )


def theorems_followed(
    steps: Sequence[TheoremStep], *, commit: str, branch: str = BRANCH, **changes: Any
) -> tuple[TheoremsFollowed, bytes]:
    """Return what became of the theorems in a commit, and the payload that says it."""
    payload = json.dumps([step.as_json() for step in steps], sort_keys=True).encode()
    body: dict[str, Any] = {
        "repository": REPOSITORY,
        "branch": branch,
        "sha": commit,
        "baseline": False,
        "unread": (),
        "counts": counted(steps),
        "steps": digest(payload),
    }
    return TheoremsFollowed(**(body | changes)), payload


def proof_found(sorry: str, where: SorryPlace, *, commit: str) -> ProofFound:
    """Return a candidate for a sorry."""
    return ProofFound(
        proof=proof_id(sorry, where.blob, "trivial"),
        sorry=sorry,
        repository=REPOSITORY,
        branch=BRANCH,
        sha=commit,
        path=where.path,
        blob=where.blob,
        byte_start=where.byte_start,
        byte_end=where.byte_end,
        declaration=where.declaration,
        declaration_text_hash=short_hash(where.declaration, "filled"),
        replacement="trivial",
        parts=(),
        tactics=("trivial",),
        prover="tactics",
        rung=0,
        toolchain="leanprover/lean4:v4.20.0",
        job="prove-0000000000000000",
    )


def attempt(
    sorry: str, where: SorryPlace, *, commit: str, outcome: str = "found", model: str = ""
) -> AttemptFinished:
    """Return the end of an attempt of rung 0, or of rung 2 with a model."""
    return AttemptFinished.model_validate(
        {
            "repository": REPOSITORY,
            "branch": BRANCH,
            "sha": commit,
            "sorry": sorry,
            "blob": where.blob,
            "prover": "generator" if model else "tactics",
            "rung": 2 if model else 0,
            "model": model,
            "seed": 0,
            "budget": "small",
            "outcome": outcome,
            "detail": "",
            "best": "" if outcome == "found" else "1 goal left after intro h",
            "goals_left": None if outcome == "found" else 1,
            "nodes": 3,
            "repl_calls": 5,
            "seconds": 0.5,
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "usd": None,
            "tree": None,
            "job": "prove-0000000000000000",
        }
    )


PATCH = b"--- a/A.lean\n+++ b/A.lean\n"
RESTS_ON = b'{"A":["Demo.alpha"],"Init.Core":["propext"]}'
CHECKS = (Check(step="compile", verdict="passed", by="lean", evidence="no error"),)
ALL_PASSED = tuple(
    Check.model_validate({"step": step, "verdict": "passed", "by": by, "evidence": "as it should be"})
    for step, by in (
        ("text", "scanner"),
        ("shape", "scanner"),
        ("statement", "scanner"),
        ("compile", "lean"),
        ("axioms", "lean"),
    )
)


def proof_verified(found: ProofFound) -> ProofVerified:
    """Return Lean's acceptance of a candidate."""
    return ProofVerified(
        proof=found.proof,
        sorry=found.sorry,
        checks=ALL_PASSED,
        not_checked=(),
        axioms=("propext",),
        grade="L0",
        kernel="",
        version=CheckedVersion(sha=found.sha, blob=found.blob, byte_start=found.byte_start),
        patch=digest(PATCH),
        job="check-0000000000000000",
        toolchain=found.toolchain,
        material=None,
    )


def closure_judged(found: ProofFound) -> ClosureJudged:
    """Return what kernels accepted in a check."""
    kernel = "leanchecker of v4.28.0"
    return ClosureJudged(
        proof=found.proof,
        sorry=found.sorry,
        repository=found.repository,
        sha=found.sha,
        toolchain=found.toolchain,
        rests_on=digest(RESTS_ON),
        accepted=tuple(
            Accepted(key=sha(n) + "0" * 24, kernel=kernel, what=one) for n, one in enumerate(("A", "B"))
        ),
        replayed=2,
        known=0,
        job="check-0000000000000000",
    )


def proof_doubted(found: ProofFound) -> ProofDoubted:
    """Return that every kernel which vouches for a verified proof has a known fault."""
    return ProofDoubted(
        proof=found.proof,
        sorry=found.sorry,
        job="check-0000000000000000",
        advisories=("lean4#14576",),
        reason="lean v4.28.0: lean4#14576: ill-typed parameters",
    )


def proof_checked(found: ProofFound) -> ProofChecked:
    """Return the verdict that nothing failed and not all could be checked."""
    return ProofChecked(
        proof=found.proof,
        sorry=found.sorry,
        checks=CHECKS,
        not_checked=("axioms",),
        disagreement="",
        patch=digest(PATCH),
        job="check-0000000000000000",
    )


def bump_bodies() -> list[EventBody]:
    """Return a bump from its request to its end, in which one of two breaks was mended."""
    raises = {"toolchain": "leanprover/lean4:v4.35.0", "package": "", "rev": ""}
    about = {"repository": REPOSITORY, "branch": BRANCH, "sha": sha(1), "bump": "b1", "job": "bump-1"}
    broken = [
        Break(path="A.lean", line=2, declaration=name, kind=kind, reason="unknown_name", message="Unknown", follows="")
        for name, kind in (("a", "proof"), ("b", "statement"))
    ]  # fmt: skip
    mend = Mend(
        path="A.lean", declaration="a", how="renamed constants", verdict="verified", reason="", axioms=(),
        grade="L1", kernel="leanchecker", doubts=(),
    )  # fmt: skip
    return [
        BumpAsked(repository=REPOSITORY, bump="b1", by="ada", **raises),
        BumpBuilt.model_validate({**about, **raises, "broken": broken, "modules_failed": ["A"]}),
        BumpTried.model_validate(
            {
                **about, "path": "A.lean", "declaration": "a", "number": 1, "how": mend.how, "text": "by simp",
                "text_cut": False, "verdict": "verified", "step": "", "reason": "", "seconds": 1.0,
            }
        ),
        BumpFinished.model_validate(
            {
                **about, **raises, "mended": [mend], "left": broken[1:], "modules_failed": ["A"], "tried": 1,
                "unrecorded": 0, "seconds": 2.0, "series": digest(PATCH),
            }
        ),
    ]  # fmt: skip


def pull_request_opened(found: ProofFound, **changes: Any) -> PullRequestOpened:
    """Return the record of a proof that was proposed."""
    body = {
        "proof": found.proof,
        "repository": found.repository,
        "number": 7,
        "url": f"https://{found.repository}/pull/7",
        "branch": f"demo:everlean/{found.declaration}-{found.proof}",
        "head": sha("head", found.proof),
        "base": found.sha,
    }
    return PullRequestOpened.model_validate(body | changes)


def proof_rejected(found: ProofFound, *, conditional_on: tuple[str, ...] = ()) -> ProofRejected:
    """Return a rejection."""
    return ProofRejected(
        proof=found.proof,
        sorry=found.sorry,
        step="axioms",
        reason="it rests on sorryAx",
        checks=CHECKS,
        conditional_on=conditional_on,
        job="check-0000000000000000",
    )


def job_started(job: str = "scan-1", *, attempt: int = 1) -> JobStarted:
    """Return the start of a job's attempt."""
    return JobStarted(
        job=job,
        kind="scan",
        attempt=attempt,
        repository=REPOSITORY,
        branch=BRANCH,
        sha=sha(1),
        describes="scan of main",
    )


def samples() -> dict[str, EventBody]:
    """Return one valid body of every event type, by type."""
    scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
    body, _ = file_scanned(scan, commit=sha(1), blob=sha("blob", 1))
    spot = place(scan, scan.sorries[0], blob=sha("blob", 1))
    sorry = sorry_id(REPOSITORY, "a", spot.statement_hash, 0)
    life = {"repository": REPOSITORY, "branch": BRANCH, "sha": sha(1), "sorry": sorry}
    branch = {"repository": REPOSITORY, "branch": BRANCH}
    found = proof_found(sorry, spot, commit=sha(1))
    followed, _ = theorems_followed(sample_steps(), commit=sha(1))
    bodies: list[EventBody] = [
        DaemonStarted(
            version="0.1.0",
            pid=7,
            host="h",
            lean="pantograph",
            lean_detail="pantograph",
            sqlite="3.40.1",
        ),
        DaemonStopped(reason="SIGTERM", pid=7),
        LeanChosen(
            lean="server",
            lean_detail="Lean's language server",
            builds=(LeanBuild(toolchain="leanprover/lean4:v4.35.0", lean="server", detail="at /opt/lean"),),
        ),
        ConfigLoaded(path="config.toml", digest="a" * 64, settings={"poll": {"every_s": 300.0}}),
        ConfigRejected(path="config.toml", digest="b" * 64, errors=("config.toml:1: no",)),
        watched(),
        RepositoryUnwatched(repository=REPOSITORY),
        RepositoryFailed(
            repository=REPOSITORY, problem="unreachable", reason="no route", remedy="check the network"
        ),
        RepositoryFailing(
            repository=REPOSITORY,
            since=datetime(2026, 1, 1, tzinfo=UTC),
            problem="unreachable",
            reason="no route",
            remedy="check the network",
        ),
        RepositoryRecovered(repository=REPOSITORY),
        RepositoryRenamed(repository=REPOSITORY, new_url="https://example.org/new/logic", forge_id=42),
        RepositoryIdentified(repository=REPOSITORY, forge_id=42, private=False, by=""),
        RepositoryReplaced(
            repository=REPOSITORY,
            before=42,
            forge_id=77,
            reason="it has number 77",
            remedy="say which is meant",
        ),
        RepositoryArchived(repository=REPOSITORY, archived=True),
        BranchCreated(**branch, tip=sha(1), is_default=True),
        BranchRewritten(**branch, old=sha(1), new=sha(2), base=None, dropped=(sha(1),)),
        BranchDeleted(**branch, last=sha(2)),
        BranchUnwatched(**branch, last=sha(2)),
        observed(sha(1)),
        ScanBegun(**branch, sha=sha(1)),
        body,
        FileRemoved(**branch, sha=sha(1), path="A.lean"),
        followed,
        commit_scanned(sha(1)),
        SorryOpened(**life, place=spot, reopened=False),
        SorryMoved(**life, place=spot, what=("line",)),
        SorryChanged(**life, place=spot, statement_before="False"),
        SorryFilled(**life, by="people", proof=None),
        SorryRemoved(**life),
        SorryWritten(
            **branch,
            sorry=sorry,
            sha=sha(1),
            author="Ada",
            authored_at=datetime(2025, 12, 31, tzinfo=UTC),
            pull_request=7,
            reason="",
        ),
        PastListed(
            **branch,
            commits=(
                PastCommit(sha=sha(1), committed_at=datetime(2026, 1, 1, tzinfo=UTC), begins=False),
                PastCommit(sha=sha(9), committed_at=datetime(2025, 12, 24, tzinfo=UTC), begins=True),
            ),
        ),
        PastCounted(**branch, sha=sha(9), sorries=3, files=2, files_failed=0),
        job_started(),
        JobSucceeded(
            job="scan-1",
            attempt=1,
            seconds=1.5,
            peak_rss_bytes=1 << 20,
            summary={"files": 1},
        ),
        JobFailed(
            job="scan-1",
            attempt=1,
            reason="crashed",
            message="KeyError",
            remedy="report it",
            deterministic=False,
            retry_at=datetime(2026, 1, 2, tzinfo=UTC),
            seconds=1.0,
            peak_rss_bytes=None,
        ),
        JobInterrupted(job="scan-1", attempt=1, reason="daemon stopped"),
        JobCancelled(
            job="scan-1",
            kind="scan",
            attempt=1,
            repository=REPOSITORY,
            branch=BRANCH,
            sha=sha(1),
            describes="scan it",
            by="ada",
            seconds=1.5,
            peak_rss_bytes=1 << 20,
        ),
        WorkPaused(work="train", by="ada", reason="the room is hot"),
        WorkResumed(work="train", by="ada"),
        WorkTriggered(work="prove", repository=REPOSITORY, by="ada"),
        TriggerEnded(work="prove", repository=REPOSITORY, trigger=31, reason="it has no open sorry"),
        attempt(sorry, spot, commit=sha(1)),
        found,
        proof_checked(found),
        proof_verified(found),
        closure_judged(found),
        proof_doubted(found),
        proof_rejected(found),
        pull_request_opened(found),
        *bump_bodies(),
        SorryClaimed(
            repository=REPOSITORY,
            sorry=sorry,
            claim="c1" * 8,
            agent="a prover",
            by="ada",
            until=datetime(2026, 1, 2, tzinfo=UTC),
        ),
        ClaimReleased(repository=REPOSITORY, sorry=sorry, claim="c1" * 8, by="ada"),
        *sample_events()[0],
        checkpoint_saved(),
        checkpoint_promoted(),
        checkpoint_refused(),
        checkpoint_removed(),
        model_offered(),
        evaluation_finished(),
        NotificationsSwitched(channel="webhook", kinds=("proof_verified",), position=3),
        NotificationSent(channel="webhook", message="m-1", events=("e-1", "e-2"), position=9, attempts=2),
        NotificationFailed(
            channel="webhook", problem="unreachable", reason="no route", remedy="check the network"
        ),
    ]
    return {body.type: body for body in bodies}


def sample_steps() -> list[TheoremStep]:
    """Return the steps of a theorem that moved to A.lean and got its first sorry, and of one that went."""
    old = [_decl("Old.lean", 0, declaration("a"), proof="rfl"), _decl("Old.lean", 1, declaration("b"))]
    return follow(compare(old, [_decl("A.lean", 0, declaration("a"))]))


def sample_payloads() -> list[bytes]:
    """Return the payloads that the bodies of `samples` cite."""
    scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
    _, steps = theorems_followed(sample_steps(), commit=sha(1))
    return [json.dumps(scan.as_json(), sort_keys=True).encode(), PATCH, RESTS_ON, *sample_events()[1], steps]


def _decl(path: str, index: int, item: Declaration, *, proof: str = "sorry") -> Decl:
    return Decl(
        path=path,
        index=index,
        name=item.name,
        kind=item.kind,
        statement=item.statement,
        statement_hash=item.statement_hash,
        text_hash=item.text_hash,
        proof_hash=short_hash(proof),
    )


class Story:
    """A random history. `tell` returns the next batch of events with the payloads that they cite."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.n_commits = 0
        self.line = dict.fromkeys(("A.lean", "B/C.lean"), 1)
        self.stands: dict[str, list[Decl]] = {}
        self.bodies = samples()
        self.traces = TraceStory(seed)

    def tell(self) -> tuple[list[EventBody], list[bytes]]:
        """Return a batch: mostly one commit with its scan, sometimes anything at all, sometimes a trace besides."""
        bodies, payloads = self._tell()
        traced, more = self.traces.tell()
        return [*bodies, *traced], [*payloads, *more]

    def _tell(self) -> tuple[list[EventBody], list[bytes]]:
        if self.n_commits == 0 or self.random.random() < 0.6:
            return self._commit()
        # Facts in an order that makes no sense must give the same rows each time too.
        bodies = self.random.sample(sorted(self.bodies.values(), key=lambda body: body.type), 3)
        return bodies, sample_payloads()

    def _commit(self) -> tuple[list[EventBody], list[bytes]]:
        rng = self.random
        base = sha("commit", self.n_commits) if self.n_commits else None
        self.n_commits += 1
        commit = sha("commit", self.n_commits)
        bodies: list[EventBody] = [] if base else [watched(), self.bodies["branch_created"]]
        bodies.append(observed(commit, parent=base))
        payloads = [PATCH, RESTS_ON]
        path = rng.choice(sorted(self.line))
        self.line[path] += rng.randrange(3)
        names = rng.sample(["a", "b", "N.c", "N.d", "e'"], rng.randrange(1, 5))
        declarations = [
            declaration(
                name,
                line=self.line[path] + 3 * number,
                kind=rng.choice(["theorem", "lemma", "def"]),
                statement=rng.choice(["True", "p → p"]),
            )
            for number, name in enumerate(names)
        ]
        scan = scanned(path, declarations, with_sorry=names[: rng.randrange(len(names) + 1)])
        blob = sha("blob", path, self.n_commits)
        body, payload = file_scanned(scan, commit=commit, blob=blob)
        bodies.append(body)
        payloads.append(payload)
        for item in scan.sorries:
            bodies += self._life(commit, place(scan, item, blob=blob))
        now = [_decl(path, index, item, proof=item.kind) for index, item in enumerate(declarations)]
        if rng.random() < 0.2:
            bodies.append(FileRemoved(repository=REPOSITORY, branch=BRANCH, sha=commit, path=path))
            now = []
        followed, payload = theorems_followed(
            follow(compare(self.stands.get(path, []), now)), commit=commit, baseline=base is None
        )
        self.stands[path] = now
        bodies.append(followed)
        payloads.append(payload)
        bodies.append(commit_scanned(commit, base=base))
        return bodies, payloads

    def _life(self, commit: str, spot: SorryPlace) -> list[EventBody]:
        sorry = sorry_id(REPOSITORY, spot.declaration, "", spot.ordinal)
        life = {"repository": REPOSITORY, "branch": BRANCH, "sha": commit, "sorry": sorry}
        found = proof_found(sorry, spot, commit=commit)
        steps: list[EventBody] = [
            SorryOpened(**life, place=spot, reopened=self.random.random() < 0.5),
            SorryMoved(**life, place=spot, what=self.random.choice([("line",), ("context",), ()])),
            SorryChanged(**life, place=spot, statement_before="?"),
            attempt(sorry, spot, commit=commit),
            found,
            proof_checked(found),
            proof_verified(found),
            pull_request_opened(found),
            proof_rejected(found, conditional_on=self.random.choice([(), ("0" * 16,)])),
            SorryFilled(**life, by=self.random.choice(["us", "people"]), proof=None),
            SorryRemoved(**life),
        ]
        told = steps[:1] + [step for step in steps[1:] if self.random.random() < 0.4]
        if any(isinstance(step, ProofVerified) for step in told):
            told += [closure_judged(found), proof_doubted(found)]
        return told


def record(
    log: EventLog | MemoryLog,
    bodies: Sequence[EventBody],
    *,
    folder: Path,
    payloads: Sequence[bytes] = (),
    stream: str = STREAM,
    keys: Sequence[str] | None = None,
) -> Appended:
    """Append bodies to one stream; with `keys`, under ids made of them, so that they can be repeated."""
    blobs: dict[str, Path] = {}
    for payload in payloads:
        blobs |= stage(folder, payload)[1]
    events = [
        NewEvent(stream, body, event_id=None if keys is None else event_id(keys[index]))
        for index, body in enumerate(bodies)
    ]
    return log.append(events, expect={stream: Expect.ANY}, blobs=blobs)


def record_story(log: EventLog | MemoryLog, folder: Path, *, seed: int = 0, batches: int = 20) -> None:
    """Append the first chapters of a story, one batch each; `folder` is for their payloads."""
    story = Story(seed)
    for _ in range(batches):
        bodies, payloads = story.tell()
        record(log, bodies, folder=folder / "staging", payloads=payloads)


def proof_row(**changes: Any) -> ProofRow:
    """Return a verified proof as the view has it."""
    row = ProofRow(
        proof="d0" * 8, sorry="5a" * 8, repository="github.com/o/n", branch="main", sha="a" * 40, path="A.lean",
        blob="b" * 40, byte_start=0, byte_end=5, declaration="one", declaration_text_hash="", replacement="rfl",
        parts=[], tactics=["rfl"], prover="tactics", rung=0, toolchain="v4.21.0", state="verified",
        checks=[], not_checked=[], axioms=[], grade="L1", kernel="leanchecker", judge="v4.21.0", rests_on_sha256=None,
        statement="", lean_statement="", not_in_header=None, speaks_of=[], speaks_of_more=0,
        doubts=[], checked_sha="1" * 40,
        checked_blob="b" * 40, checked_start=0, conditional_on=[], reason="", patch_sha256=None, pull_request_url=None,
        pull_request_at=None, found_at="", checked_at=None, job="", checked_job=None,
    )  # fmt: skip
    return dataclasses.replace(row, **changes)

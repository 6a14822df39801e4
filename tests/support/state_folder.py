"""A state folder with a real log and view in it, and the command run on it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from store.domain.records import Declaration, ScannedFile, TracedFile
from store.events.base import BlobRef, EventBody
from store.events.jobs import JobFailed, JobStarted, JobSucceeded
from store.events.places import SorryPlace
from store.events.projects import Project
from store.events.proofs import Check, CheckedVersion, ProofChecked, ProofFound, ProofVerified
from store.events.repositories import BranchCreated, CommitObserved, RepositoryWatched
from store.events.scans import (
    CommitScanned,
    FileScanned,
    SorryMoved,
    SorryOpened,
    TheoremsFollowed,
)
from store.events.service import DaemonStarted
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.recording import record_trace
from store.view import queries
from store.view.view import View
from tests.support import verbs
from tests.support.traced_repository import head

REPOSITORY = "github.com/demo/one"
TIP = "a" * 40
BLOB = "b" * 40
SORRY = "5a" * 8
OTHER_SORRY = "5b" * 8
PROOF = "d0" * 8
CANDIDATE = "d1" * 8
PATCH = "Evidence\n\n--- a/Demo.lean\n+++ b/Demo.lean\n@@ -1 +1 @@\n-theorem t : ∀ x, x = x := sorry\n+…\n"


@dataclass(frozen=True)
class Answer:
    """The exit code and the output of a run of the command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


@dataclass
class StateFolder:
    """One daemon's configuration and state, filled through the real log and projector."""

    root: Path
    events: list[NewEvent] = field(default_factory=list)
    blobs: dict[str, Path] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    def add(self, stream: str, body: EventBody) -> None:
        self.events.append(NewEvent(stream, body))

    def blob(self, data: bytes) -> BlobRef:
        digest = hashlib.sha256(data).hexdigest()
        path = self.root / "staging" / digest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.blobs[digest] = path
        return BlobRef(sha256=digest, size_bytes=len(data))

    def write(self, *, project: bool = True) -> None:
        """Append what was added and bring the view up to it."""
        self.state.mkdir(parents=True, exist_ok=True)
        with EventLog.open(self.state / "events.db") as log:
            if self.events:
                expect = {event.stream: Expect.ANY for event in self.events}
                log.append(self.events, expect=expect, blobs=self.blobs)
            self.events, self.blobs = [], {}
            if project:
                with log.reader() as reader, View.open(self.state / "database.db", reader) as view:
                    view.catch_up()

    def everlean(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Answer:
        """Run the command in this process with this folder's configuration.

        It is the installed one where `env` has what an interpreter reads as it starts.
        """
        given = env or {}
        if any(name.startswith(("PYTHON", "LC_", "LANG", "TZ")) for name in given):
            return self.installed(*arguments, env=given, cwd=cwd)
        variables = {**environment(self.root), "EVERLEAN_CONFIG": str(self.config), **given}
        done = verbs.everlean(*arguments, environment=variables, folder=cwd or self.root)
        return Answer(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the state folder's lock as a daemon does, with this process's id in it."""
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "daemon.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    def installed(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        timeout_s: float = 60,
    ) -> Answer:
        """Run the command as it is installed: nothing is loaded before it starts."""
        variables = {**environment(self.root), "EVERLEAN_CONFIG": str(self.config), **(env or {})}
        done = subprocess.run(
            [str(COMMAND), *arguments], capture_output=True, text=True, encoding="utf-8", env=variables,
            cwd=cwd or self.root, timeout=timeout_s, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Answer(done.returncode, done.stdout, done.stderr)


COMMAND = Path(sys.executable).parent / "everlean"
ROOT = Path(__file__).resolve().parents[2]


def environment(home: Path) -> dict[str, str]:
    """The machine's own, less what would lead the command to this user's configuration or colour."""
    dropped = (
        "EVERLEAN_",
        "XDG_",
        "STATE_DIRECTORY",
        "CACHE_DIRECTORY",
        "RUNTIME_DIRECTORY",
        "COLUMNS",
        "CREDENTIALS",
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "HOME": str(home)}


def make_folder(root: Path) -> StateFolder:
    made = StateFolder(root)
    made.config.write_text('[daemon]\nstate_dir = "state"\n', encoding="utf-8")
    return made


def fill(folder: StateFolder) -> None:
    now = datetime.now(UTC)
    stream = f"repository:{REPOSITORY}"
    folder.add("daemon", DaemonStarted(
        version="0.1.0", pid=1, host="here", lean="pantograph", lean_detail="at /opt/repl", sqlite="3.40.1",
    ))  # fmt: skip
    watch(folder, REPOSITORY)
    folder.add(stream, BranchCreated(repository=REPOSITORY, branch="main", tip=TIP, is_default=True))
    folder.add(stream, CommitObserved(
        repository=REPOSITORY, branch="main", sha=TIP, parents=(), author="A", committed_at=now,
        subject="first \x1b[31mred", baseline=True,
    ))  # fmt: skip
    scan(folder, ["alpha", "beta"])
    for sorry, name, line in ((SORRY, "Demo.alpha", 12), (OTHER_SORRY, "Demo.beta", 20)):
        place = sorry_place(name, line=line)
        folder.add(stream, SorryOpened(
            repository=REPOSITORY, branch="main", sha=TIP, sorry=sorry, place=place, reopened=False,
        ))  # fmt: skip
    folder.add(stream, SorryMoved(
        repository=REPOSITORY, branch="main", sha=TIP, sorry=SORRY, place=sorry_place("Demo.alpha", line=14),
        what=("line",),
    ))  # fmt: skip
    folder.add(stream, TheoremsFollowed(
        repository=REPOSITORY, branch="main", sha=TIP, baseline=True, unread=(), counts={"appeared": 2},
        steps=folder.blob(b"[]"),
    ))  # fmt: skip
    folder.add(stream, CommitScanned(
        repository=REPOSITORY, branch="main", sha=TIP, base=None, include=("**/*.lean",), exclude=(),
        projects=(Project("", "", ""),), files_scanned=1, files_removed=0, files_failed=0, seconds=0.1, challenges=(),
    ))  # fmt: skip
    for job in ("prove-1111", "prove-2222"):
        start_job(folder, job)
        folder.add(f"job:{job}", JobSucceeded(
            job=job, attempt=1, seconds=1.5, peak_rss_bytes=2**20, summary={"found": 1},
        ))  # fmt: skip
    found(folder, PROOF, SORRY, "Demo.alpha")
    found(folder, CANDIDATE, OTHER_SORRY, "Demo.beta")
    folder.add(f"proof:{PROOF}", ProofVerified(
        proof=PROOF, sorry=SORRY, not_checked=("kernel",),
        checks=tuple(check(step, "passed") for step in ("axioms", "compile", "text", "shape", "statement")),
        axioms=("propext",), grade="L0", kernel="",
        version=CheckedVersion(sha=TIP, blob=BLOB, byte_start=10), patch=folder.blob(PATCH.encode()), job="check-1",
        toolchain="v4.21.0", material=None,
    ))  # fmt: skip
    folder.add(f"proof:{CANDIDATE}", ProofChecked(
        proof=CANDIDATE, sorry=OTHER_SORRY, checks=(check("compile", "not_checked"),),
        not_checked=("compile",), disagreement="", patch=folder.blob(b"A candidate\n" + PATCH.encode()), job="check-2",
    ))  # fmt: skip


def watch(folder: StateFolder, repository: str) -> None:
    folder.add(f"repository:{repository}", RepositoryWatched(projects=(),
        repository=repository, url=f"https://{repository}", branches=(), include=("**/*.lean",), exclude=(),
        every_s=300.0, enabled=True, opt_out=False,
    ))  # fmt: skip


def start_job(folder: StateFolder, job: str, *, kind: str = "prove") -> None:
    folder.add(f"job:{job}", JobStarted(
        job=job, kind=kind, attempt=1, repository=REPOSITORY, branch="main", sha=TIP,
        describes=f"{kind} Demo.alpha",
    ))  # fmt: skip


def fail_job(folder: StateFolder, job: str, **changes: Any) -> None:
    failed = {
        "job": job, "attempt": 1, "reason": "crashed", "message": "m", "remedy": "r", "deterministic": True,
        "retry_at": None, "seconds": 1.0, "peak_rss_bytes": None,
    }  # fmt: skip
    folder.add(f"job:{job}", JobFailed.model_validate(failed | changes))


def found(folder: StateFolder, proof: str, sorry: str, name: str) -> None:
    folder.add(f"proof:{proof}", ProofFound(
        proof=proof, sorry=sorry, repository=REPOSITORY, branch="main", sha=TIP, path="Demo.lean", blob=BLOB,
        byte_start=10, byte_end=15, declaration=name, declaration_text_hash="1" * 16, replacement="by\n  simp",
        parts=(), tactics=("simp",), prover="tactics", rung=0, toolchain="v4.21.0",
        job="prove-1111",
    ))  # fmt: skip


def check(step: Any, verdict: Any) -> Check:
    return Check(step=step, verdict=verdict, by="the test", evidence="what it saw")


def sorry_place(name: str, *, line: int) -> SorryPlace:
    return SorryPlace(
        path="Demo.lean", blob=BLOB, line=line, column=2, byte_start=10, byte_end=15, declaration=name,
        kind="theorem", statement=": ∀ x, x = x", statement_hash="2" * 16, ordinal=0, token="sorry",
        mode="tactic", context_hash="3" * 16,
    )  # fmt: skip


def open_sorry(folder: StateFolder, branch: str, sorry: str, name: str) -> None:
    """Record a sorry of a commit after the first one, on a branch that is watched, and write."""
    stream = f"repository:{REPOSITORY}"
    if branch != "main":
        created = BranchCreated(repository=REPOSITORY, branch=branch, tip="d" * 40, is_default=False)
        folder.add(stream, created)
    opened = SorryOpened(
        repository=REPOSITORY,
        branch=branch,
        sha="d" * 40,
        sorry=sorry,
        place=sorry_place(name, line=30),
        reopened=False,
    )
    folder.add(stream, opened)
    folder.write()


def scan(folder: StateFolder, names: list[str], *, path: str = "Demo.lean", kind: str = "theorem") -> None:
    """Record one file with a theorem of each name."""
    declarations = tuple(
        Declaration(
            name=f"Demo.{name}", kind=kind, line=index + 1, column=0, end_line=index + 1, end_column=30,
            byte_start=index * 30, byte_end=index * 30 + 29, statement=f": {name} = {name}",
            statement_hash=f"{index:016x}", text_hash=f"{index:016x}",
        )
        for index, name in enumerate(names)
    )  # fmt: skip
    scanned = ScannedFile(path=path, error=None, imports=("Init",), declarations=declarations, sorries=())
    folder.add(f"repository:{REPOSITORY}", FileScanned(
        repository=REPOSITORY, branch="main", sha=TIP, path=path, blob=BLOB, error=None,
        n_declarations=len(names), n_sorries=0, exercise_words=0, declarations_taken=None, sorries_taken=None,
        marked=(), scan=folder.blob(json.dumps(scanned.as_json()).encode()),
    ))  # fmt: skip


def record_traced(
    folder: StateFolder,
    files: Sequence[TracedFile],
    *,
    repository: str = "example.org/demo/one",
    sha: str = "1" * 40,
) -> int:
    """Record a trace of these files; return the position of the log."""
    folder.state.mkdir(exist_ok=True)
    with (
        EventLog.open(folder.state / "events.db") as log,
        log.reader() as reader,
        View.open(folder.state / "database.db", reader) as view,
    ):
        made = replace(head(sha, repository=repository))
        with closing(queries.connect(folder.state / "database.db")) as questions:
            record_trace(log, trace=made, files=files, stage=folder.state / "stage", view=questions)
        return view.catch_up()

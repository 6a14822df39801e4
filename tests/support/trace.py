"""For tests: a repository with a history, its log and view, and the trace job run on it.

Git, the log, the view and Lean are real. A job that is killed is a process of its own; the others run in this one.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.jobs.known import known_to_scan, known_to_trace
from pipeline.jobs.protocol import JobSpec, Reporter, reported
from pipeline.jobs.specs import ScanSpec, TraceSpec
from pipeline.lean.backend import LeanBackend, Sandbox
from pipeline.lean.pool import PoolLimits
from pipeline.scan import scan_commit
from pipeline.trace.__main__ import work
from store.domain.records import TracedFile, TracedTheorem
from store.events.base import EventBody
from store.events.registry import EVENT_TYPES
from store.events.repositories import RepositoryWatched
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.view import queries, trace_queries
from store.view.rows import TraceRow
from store.view.view import View
from tests.support.daemon import warm
from tests.support.daemon.remote import git
from tests.support.specs import job_spec, raw_spec

KEY = "example.org/me/logic"
URL = f"https://{KEY}"
TIMEOUT_S = 100


# A repository with three files that import one another, one that stands alone, and sorries of each mode.
IMPORTED = ("Base.lean", "Mid.lean")
"""Those of its files that others import, in the order in which they are built."""
BASE = """\
/-!
# What all others import
-/

namespace Base

/-- A number to speak of. -/
def dozen : Nat := 12

/-- The two halves, the other way round. -/
theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by
  constructor
  · exact h.2
  · exact h.1 -- the other half

theorem both (p q : Prop) (hp : p) (hq : q) : p ∧ q := ⟨hp, hq⟩

end Base
"""
MID = """\
import Base

open Base in
theorem twice (p q : Prop) (h : p ∧ q) : p ∧ q := by
  have g := swap p q h  -- once
  exact Base.swap q
    p g

theorem by_term (p q : Prop) (hp : p) (hq : q) : q ∧ p := Base.swap p q (Base.both p q hp hq)

theorem cases_of (p : Prop) (h : p ∨ p) : p := by
  cases h with
  | inl h => exact h
  | inr h => exact h
"""
LEAF = """\
import Mid

theorem leaf (p q : Prop) (h : p ∧ q) : p ∧ q := by
  exact twice p q h

theorem open_one (p : Prop) (hp : p) : p ∧ True := by
  constructor
  · sorry
  · trivial

theorem open_term (p q : Prop) (f : p → q) : p → q := fun hp => sorry

theorem given_away (p : Prop) : p → p := sorry
"""
ALONE = "theorem alone : True := trivial\n"
FILES = {
    "Base.lean": BASE,
    "Mid.lean": MID,
    "Leaf.lean": LEAF,
    "Sub/Alone.lean": ALONE,
    "lean-toolchain": "leanprover/lean4:v4.35.0\n",
    "lake-manifest.json": '{"version": "1.1.0", "packages": []}\n',
}


def lean_itself(tools: Path, *, sandbox: Sandbox = "none") -> LeanBackend:
    """Lean 4.35.0 of a toolchain's folder."""
    return LeanBackend(
        "server",
        (str(tools / "bin" / "lean"),),
        "",
        "leanprover/lean4:v4.35.0",
        sandbox=sandbox,
        sysroot=str(tools),
    )


def lean_that_dies(folder: Path, tools: Path, *, on: str) -> LeanBackend:
    """Lean itself, but for a program that dies when it traces one module."""
    program = folder / "dying" / "bin" / "lean"
    program.parent.mkdir(parents=True)
    real = shlex.quote(str(tools / "bin" / "lean"))
    dies = 'echo >"$3"; echo "Lean is out of breath"; exit 1'
    program.write_text(f'#!/bin/sh\ncase "$1 $5" in "--run {on}") {dies};; esac\nexec {real} "$@"\n')
    program.chmod(0o755)
    return lean_itself(program.parent.parent)


@dataclass
class Outcome:
    """What one run of a job printed."""

    returncode: int
    lines: list[dict[str, Any]]
    stderr: str

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1]

    @property
    def summary(self) -> dict[str, Any]:
        if self.last["line"] != "result":
            raise RuntimeError(f"{self.last}: {self.stderr}")
        found: dict[str, Any] = self.last["summary"]
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for line in self.lines if line["line"] == "events" for event in line["events"]]

    @property
    def bodies(self) -> list[EventBody]:
        return [
            EVENT_TYPES[item["type"]].model_validate_json(json.dumps(item["data"])) for item in self.events
        ]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [item["data"] for item in self.events if item["type"] == kind]

    @property
    def traced(self) -> set[str]:
        """The paths of the files that were traced."""
        return {item["path"] for item in self.of("file_traced")}


@dataclass
class Workshop:
    """A git repository with its log. `commit` makes a commit and scans it, `trace` runs the trace job on the tip.

    `beside` another one its log and view are that one's.
    """

    root: Path
    lean: LeanBackend
    repository: str = KEY
    beside: Workshop | None = None
    scanned: str | None = None
    runs: int = 0

    def __post_init__(self) -> None:
        self.tree = self.root / "tree"
        self.tree.mkdir(parents=True)
        git(self.tree, "init", "-q", "-b", "main")
        if self.beside is None:
            self.log = EventLog.open(self.root / "events.db")
            self.view = View.open(self.root / "database.db", self.log.reader())
            self.view.catch_up()
            self.db = queries.connect(self.root / "database.db")
        else:
            self.log, self.view, self.db = self.beside.log, self.beside.view, self.beside.db
        watched = RepositoryWatched(
            projects=(),
            repository=self.repository,
            url=self.url,
            branches=(),
            include=("**/*.lean",),
            exclude=(),
            every_s=60.0,
            enabled=True,
            opt_out=False,
        )
        self.log.append([NewEvent(self.stream, watched, actor="test")], expect={self.stream: Expect.ANY})
        self.view.catch_up()

    @property
    def url(self) -> str:
        return f"https://{self.repository}"

    @property
    def stream(self) -> str:
        return f"repository:{self.repository}"

    def close(self) -> None:
        """Close the log and view, also those beside."""
        self.db.close()
        self.view.close()
        self.log.close()

    @property
    def sha(self) -> str:
        return git(self.tree, "rev-parse", "HEAD")

    def commit(self, files: Mapping[str, str | None]) -> None:
        """Write these files (None removes one), commit, and scan the commit."""
        for name, content in files.items():
            path = self.tree / name
            if content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, "utf-8")
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-q", "--allow-empty", "-m", "more")
        self.scan()

    def scan(self) -> None:
        """Scan the tip, as far as it differs from what was scanned before."""
        self.runs += 1
        folder = self.root / f"scan-{self.runs}"
        parameters = ScanSpec(
            repository=self.repository,
            branch="main",
            sha=self.sha,
            base=self.scanned,
            include=("**/*.lean",),
            exclude=(),
            known=known_to_scan(self.db, repository=self.repository, branch="main"),
        )
        spec = JobSpec("scan-1", "scan", 1, folder, parameters, mirror=self.tree / ".git")
        # In this process: it is the trace job whose own life is looked at.
        said = io.StringIO()
        scan_commit(spec, Reporter(spec, said))
        for line in map(json.loads, said.getvalue().splitlines()):
            if line["line"] == "events":
                self._append(line["events"], folder / "staging")
        self.scanned = self.sha

    def parameters(self, **changes: Any) -> dict[str, Any]:
        """What the daemon would give a trace job of the tip."""
        return {
            "repository": self.repository,
            "branch": "main",
            "sha": self.sha,
            "worktree": str(self.tree),
            "lean": self.lean,
            "url": self.url,
            "name": "/".join(self.repository.split("/")[1:]),
            "include": ["**/*.lean"],
            "exclude": [],
            "file_timeout_s": 60,
            "limits": PoolLimits(processes=2),
            "known": known_to_trace(self.db, repository=self.repository, branch="main"),
            **changes,
        }

    def build(self, *names: str, folder: str = "") -> None:
        """Compile files of a project in this order, to where lake would put them."""
        (self.tree / ".git/info").mkdir(exist_ok=True)
        (self.tree / ".git/info/exclude").write_text(".lake\n")
        project = self.tree / folder
        modules = project / ".lake/build/lib/lean"
        for name in names:
            target = (modules / name).with_suffix(".olean")
            target.parent.mkdir(parents=True, exist_ok=True)
            words = (*self.lean.argv, "-R", str(project), "-o", str(target), name)
            environment = {"LEAN_PATH": str(modules)}
            done = subprocess.run(
                words, cwd=project, env=environment, check=False, capture_output=True, text=True
            )
            if done.returncode != 0:
                raise RuntimeError(f"{name}: {done.stdout}{done.stderr}")

    def trace(self, **changes: Any) -> Outcome:
        """Trace the tip and record what the job asks for."""
        folder, parameters, said = self._new_job(), self.parameters(**changes), io.StringIO()
        reporter = Reporter(raw_spec("trace", parameters, folder), said)
        status = reported(reporter, lambda: work(job_spec(TraceSpec, "trace", parameters, folder), reporter))
        lines = [json.loads(line) for line in said.getvalue().splitlines()]
        for line in lines:
            if line["line"] == "events":
                self._append(line["events"], folder / "staging")
        return Outcome(status, lines, "")

    def _new_job(self) -> Path:
        self.runs += 1
        folder = self.root / f"job-{self.runs}"
        folder.mkdir()
        return folder

    def killed_trace(self, after: int, **changes: Any) -> Outcome:
        """Begin to trace the tip, append each batch as it comes, and kill the job after so many."""
        folder = self._new_job()
        spec = raw_spec("trace", self.parameters(**changes), folder).write()
        lines: list[dict[str, Any]] = []
        batches = 0
        pipe = folder / "stdout"
        os.mkfifo(pipe)
        process = warm.job("pipeline.trace", spec, output=pipe, errors=folder / "stderr")
        with pipe.open(encoding="utf-8") as said:
            for text in said:
                line = json.loads(text)
                lines.append(line)
                if line["line"] == "events":
                    self._append(line["events"], folder / "staging")
                    batches += 1
                    if batches == after:
                        process.send_signal(signal.SIGKILL)
                        break
            process.wait(TIMEOUT_S)
        return Outcome(process.returncode, lines, (folder / "stderr").read_text())

    def _append(self, items: list[dict[str, Any]], staging: Path) -> None:
        events = [
            NewEvent(
                item["stream"],
                EVENT_TYPES[item["type"]].model_validate_json(json.dumps(item["data"])),
                event_id=item["event_id"],
                actor="job",
            )
            for item in items
        ]
        blobs = {file.name: file for file in staging.glob("?" * 64)} if staging.is_dir() else {}
        self.log.append(events, expect={self.stream: Expect.ANY}, blobs=blobs)
        self.view.catch_up()

    # --- what the database says ---------------------------------------------------------------------------

    @property
    def newest(self) -> TraceRow:
        """The newest trace."""
        return trace_queries.traces(self.db)[0]

    def file(self, path: str) -> TracedFile:
        """A file's trace as the log has it now."""
        digest = self.db.execute(
            "SELECT sha256 FROM traced_files JOIN traced_contents USING (content) "
            "WHERE path = ? AND until_seq IS NULL",
            (path,),
        ).fetchone()[0]
        with self.log.reader() as reader:
            return TracedFile.from_json(json.loads(reader.blob(digest)))

    def theorem(self, name: str) -> TracedTheorem:
        """A theorem's trace as the log has it now."""
        rows = self.db.execute("SELECT path FROM traced_files WHERE until_seq IS NULL").fetchall()
        theorems = [item for (path,) in rows for item in self.file(path).theorems]
        return next(item for item in theorems if item.full_name == name)

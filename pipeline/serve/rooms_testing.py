"""For tests of the routes that ask Lean: a watched repository with a real mirror, a log and a view, and a client that
reads streams of events.

    world = World(tmp_path, {"A.lean": SOURCE})
    with Served(world.order(lean="simulator")) as it:
        status, answer = post(it.port, "/check", {"repository": REPOSITORY, "path": "A.lean", "proof": "trivial"})
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pipeline.lean.source.scanner import scan_source
from pipeline.serve.order import ModelOrder, RepositoryOrder, ServeOrder
from pipeline.serve.testing import order_of
from store.domain.identity import git_blob, sorry_id
from store.domain.recording import record_trace
from store.domain.records import Premise, TracedFile
from store.events.base import EventBody
from store.events.repositories import BranchCreated
from store.events.scans import SorryOpened
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view.queries import basic as queries
from store.view.view import View
from tests.support.events import BRANCH, REPOSITORY, commit_scanned, observed, place, watched
from tests.support.lean.credulous import TOOLCHAIN, Credulous, make_credulous
from tests.support.traced_repository import head

_GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


class World:
    """A repository at one commit, polled and scanned; `sha` is the commit's."""

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        """Args:
        folder: made if need be; everything is below it.
        files: of the commit, by path.
        """
        self.folder = folder
        self._work, self._mirror = folder / "work", folder / "mirror.git"
        self._work.mkdir(parents=True)
        self._git("init", "--quiet", f"--initial-branch={BRANCH}")
        self.sha = self._commit(files)
        self.record(
            watched(),
            BranchCreated(repository=REPOSITORY, branch=BRANCH, tip=self.sha, is_default=True),
            observed(self.sha),
            *_opened(self.sha, files),
            commit_scanned(self.sha),
        )

    def order(
        self,
        *models: ModelOrder,
        lean: Literal["simulator", "auto", "none"] = "simulator",
        repl: str = "",
        built: bool = False,
        **changes: Any,
    ) -> ServeOrder:
        """Return an order of this world; `changes` are of the whole."""
        made = order_of(self.folder, *models, simulated=lean == "simulator", **changes)
        asked = replace(
            made.lean,
            backend=lean,
            repl=repl,
            built=built,
            repositories=(RepositoryOrder(REPOSITORY, self._mirror),),
        )
        return replace(made, lean=asked)

    def trace(self, files: Sequence[TracedFile], *, sha: str, simulated: bool = False) -> None:
        """Record a trace of a commit."""
        with self._log() as (log, view), closing(queries.connect(self.folder / "database.db")) as questions:
            record_trace(
                log,
                trace=head(sha, simulated=simulated),
                files=files,
                stage=self.folder / "stage",
                view=questions,
            )
            view.catch_up()

    def stray_commit(self) -> str:
        """Make a commit in the mirror that is on no branch, with the same files; return it."""
        return self._git("--git-dir", str(self._mirror), "commit-tree", "HEAD^{tree}", "-m", "nobody's")

    def position(self) -> int:
        """Return how many events there are in the log."""
        with LogReader.open(self.folder / "events.db") as log:
            return log.position()

    def _commit(self, files: Mapping[str, str]) -> str:
        for name, text in files.items():
            (self._work / name).parent.mkdir(parents=True, exist_ok=True)
            (self._work / name).write_text(text, encoding="utf-8")
        self._git("add", "--all")
        self._git("commit", "--quiet", "-m", "files")
        self._git("clone", "--quiet", "--bare", ".", str(self._mirror))
        return self._git("rev-parse", "HEAD")

    def _git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self._work), *words],
            env={"PATH": os.environ["PATH"], **_GIT},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def record(self, *bodies: EventBody) -> None:
        """Record events of the repository."""
        stream = f"repository:{REPOSITORY}"
        with self._log() as (log, view):
            log.append([NewEvent(stream, body) for body in bodies], expect={stream: Expect.ANY})
            view.catch_up()

    @contextmanager
    def _log(self) -> Iterator[tuple[EventLog, View]]:
        events = self.folder / "events.db"
        with (
            EventLog.open(events) as log,
            LogReader.open(events) as reader,
            View.open(self.folder / "database.db", reader) as view,
        ):
            yield log, view


def premises(path: str, names: Sequence[str], *, imports: Sequence[str] = ()) -> TracedFile:
    """Return a traced file: each name a theorem of one line, the first in line 1."""
    found = tuple(
        Premise(name, f"theorem {name} : True", (line, 1), (line, 30), "commanddeclaration")
        for line, name in enumerate(names, start=1)
    )
    return TracedFile(path, tuple(imports), found, ())


def credulous_elan(folder: Path) -> tuple[Path, Credulous]:
    """Make a folder for ELAN_HOME with a toolchain that says yes to everything; return it and the toolchain.

    Its REPL is `bin/repl` of the toolchain, for `World.order(repl=…)`; the projects' lean-toolchain is `TOOLCHAIN`.
    """
    name = TOOLCHAIN.replace("/", "--").replace(":", "---")
    tools = make_credulous(folder / "toolchains" / name)
    (tools.sysroot / "bin" / "lean-toolchain").write_text(TOOLCHAIN, encoding="utf-8")
    return folder, tools


def post(port: int, path: str, body: Mapping[str, Any], *, token: str = "") -> tuple[int, Any]:
    """Send JSON, with a token if there is one; return the status and the JSON that came back."""
    with closing(_sent(port, path, body, token=token)) as line:
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())


@contextmanager
def streamed(
    port: int, path: str, body: Mapping[str, Any], *, token: str = ""
) -> Iterator[Iterator[tuple[str, Any]]]:
    """Send JSON, with a token if there is one; yield the events of the answer as they come.

    A comment is ("", its text). Leaving the block hangs up.

    Raises:
        AssertionError: the answer is no stream; its text is the message.
    """
    with closing(_sent(port, path, body, token=token)) as line:
        answer = line.getresponse()
        kind = answer.getheader("content-type") or ""
        assert kind.startswith("text/event-stream"), (answer.status, answer.read())
        with contextlib.closing(answer):
            yield _events(answer)


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    name = ""
    for raw in answer:
        field, _, value = raw.decode("utf-8").rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)
        elif value:
            yield "", value


def _sent(port: int, path: str, body: Mapping[str, Any], *, token: str = "") -> http.client.HTTPConnection:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    line.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **shown})
    return line


def _opened(sha: str, files: Mapping[str, str]) -> Iterator[SorryOpened]:
    for path, text in files.items():
        scanned = scan_source(text.encode(), path=path)
        for sorry in scanned.sorries if path.endswith(".lean") else ():
            declaration = scanned.declarations[sorry.index]
            where = place(scanned, sorry, blob=git_blob(text.encode(), like=sha))
            identity = sorry_id(REPOSITORY, sorry.declaration, declaration.statement_hash, sorry.ordinal)
            yield SorryOpened(
                repository=REPOSITORY, branch=BRANCH, sha=sha, sorry=identity, place=where, reopened=False
            )

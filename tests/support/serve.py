"""The server for editors in tests: tiny models, promoted checkpoints, a watched repository, the application on a port.

said = make_saying(folder / "said", {"simp": 0.7, "rfl": 0.3})
with Served(spec_of(folder, ModelSpec("m", "tactics", str(said)))) as it:
    it.wait_ready()
world = World(tmp_path, {"A.lean": SOURCE})
with Served(world.spec()) as it:
    status, answer = post(it.port, "/check", {"repository": REPOSITORY, "path": "A.lean", "proof": "trivial"})
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import httpx2
import torch
import uvicorn
from transformers import LlamaForCausalLM

from pipeline.lean.source.scanner import scan_source
from pipeline.models.libraries import load_tokenizer, quiet_libraries
from pipeline.serve.app import make_app
from pipeline.serve.spec import LeanSpec, ModelSpec, RepositorySpec, ServeSpec
from store.domain.identity import git_blob, sorry_id
from store.domain.records import Premise, TracedFile
from store.events.base import EventBody
from store.events.models import ModelKind
from store.events.repositories import BranchCreated
from store.events.scans import SorryOpened
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.recording import record_trace
from store.view import queries
from store.view.view import View
from tests.support.events import BRANCH, REPOSITORY, commit_scanned, observed, place, watched
from tests.support.ladder import ladder
from tests.support.lean.credulous import TOOLCHAIN, Credulous, make_credulous
from tests.support.models import checkpoint_promoted, checkpoint_saved
from tests.support.tiny_models import make_tiny_causal
from tests.support.traced_repository import head

_NEVER = -40.0
"""The logarithm of what is as good as impossible."""
_PATIENCE_S = 60.0


def make_saying(folder: Path, tactics: Mapping[str, float], *, hidden: int = 64) -> Path:
    """Write a tiny causal model into `folder` that generates these tactics for every prompt; return it.

    Each letter follows from the one before alone: attention and the layer's own part are zero, and the head is what
    makes each letter's embedding into the logits of the next.

    Args:
        folder: made if need be.
        tactics: with their probabilities, which add up to 1. No letter may stand twice in one, nor before different
            letters in two; the first letters differ.
        hidden: at least as many as there are different letters.
    """
    make_tiny_causal(folder, hidden=hidden, layers=1)
    tokenizer = load_tokenizer(folder)
    with quiet_libraries():
        model = LlamaForCausalLM.from_pretrained(folder)
    end = int(tokenizer.eos_token_id)
    follows: dict[int, dict[int, float]] = {}
    for tactic, probability in tactics.items():
        ids = tokenizer(f"\n{tactic}", add_special_tokens=False)["input_ids"]
        follows.setdefault(ids[0], {})[ids[1]] = probability
        for this, following in zip(ids[1:], [*ids[2:], end], strict=True):
            if follows.setdefault(this, {following: 1.0}) != {following: 1.0}:
                raise ValueError(f"in {tactics} a letter stands before different ones")
    with torch.no_grad():
        embeddings = model.model.embed_tokens.weight
        head = torch.nn.Parameter(torch.zeros_like(embeddings))
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.norm.weight.fill_(1.0)
        known = sorted(follows)
        wanted = torch.full((len(known), len(embeddings)), _NEVER)
        for row, this in enumerate(known):
            for following, probability in follows[this].items():
                wanted[row, following] = torch.tensor(probability).log()
        read = model.model.norm(embeddings[known])
        head.copy_((torch.linalg.pinv(read.double()) @ wanted.double()).T.float())
    model.config.tie_word_embeddings = False
    model.lm_head.weight = head
    with quiet_libraries():
        model.save_pretrained(folder)
    return folder


def spec_of(folder: Path, *models: ModelSpec, **changes: Any) -> ServeSpec:
    """Return an order with these models and without Lean; what the server keeps is below `folder`."""
    lean = LeanSpec(
        backend="none",
        repl="",
        sandbox="none",
        cache=folder / "cache",
        scratch=folder / "scratch",
        ladder=ladder(folder, seconds=5.0),
    )
    made = ServeSpec(
        host="127.0.0.1",
        port=0,
        view=folder / "database.db",
        events=folder / "events.db",
        checkpoints=folder / "models",
        indices=folder / "indices",
        models=models,
        lean=lean,
    )
    return replace(made, **changes)


class Promotions:
    """The log and the view of an order, in which checkpoints are promoted as the daemon does it."""

    def __init__(self, spec: ServeSpec) -> None:
        spec.events.parent.mkdir(parents=True, exist_ok=True)
        self._open = contextlib.ExitStack()
        self._log = self._open.enter_context(EventLog.open(spec.events))
        reader = self._open.enter_context(LogReader.open(spec.events))
        self._view = self._open.enter_context(View.open(spec.view, reader))
        self._saved: set[str] = set()

    def promote(self, model: ModelKind, checkpoint: str) -> None:
        """Put a checkpoint in use, saved before if it was not."""
        stream = f"model:{model}"
        events = [NewEvent(stream, checkpoint_promoted(checkpoint, model=model))]
        if checkpoint not in self._saved:
            self._saved.add(checkpoint)
            saved = checkpoint_saved(checkpoint, model=model)
            events.insert(0, NewEvent(stream, saved))
        self._log.append(events, expect={stream: Expect.ANY})
        self._view.catch_up()

    def __enter__(self) -> Promotions:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Not in the main thread.
        yield


class Served:
    """The application of an order behind a free port of the loopback address, on a loop in a thread of its own.

    Attributes:
        app, port, url: the application, and where it is.
        client: asks it; for any thread.
    """

    def __init__(self, spec: ServeSpec, *, token: str | None = None, look_s: float = 0.05) -> None:
        """Args:
        order: what is served.
        token: what clients have to send.
        look_s: how often it looks for a checkpoint that was promoted.
        """
        self.app = make_app(spec, token=token, look_s=look_s)
        config = uvicorn.Config(
            self.app,
            http="h11",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
            # On a slow machine a client would meet a connection that is being closed.
            timeout_keep_alive=int(_PATIENCE_S),
        )
        self._server = _Server(config)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx2.Client(base_url=self.url, timeout=_PATIENCE_S, trust_env=False, verify=False)

    def __enter__(self) -> Served:
        self._thread.start()
        end = time.monotonic() + _PATIENCE_S
        while not self._server.started:
            if time.monotonic() > end or not self._thread.is_alive():
                raise TimeoutError("the server did not start; its log says why")
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=_PATIENCE_S)
        self.client.close()
        self._listener.close()

    def wait_ready(self, *, seconds: float = _PATIENCE_S, but: str | None = None) -> None:
        """Come back when it is ready, or not ready for this reason.

        Raises:
            TimeoutError: it does not become so; the message has its reason.
        """
        said = ""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = self.client.get("/ready")
            said = answer.text
            if answer.status_code == 200 or (but is not None and but in said):
                return
            time.sleep(0.02)
        raise TimeoutError(f"the server is not ready: {said}")


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

    def spec(
        self,
        *models: ModelSpec,
        lean: Literal["auto", "none"] = "none",
        repl: Path | None = None,
        built: bool = False,
        **changes: Any,
    ) -> ServeSpec:
        """Return an order of this world, on what elan has or on a REPL; `changes` are of the whole."""
        made = spec_of(self.folder, *models, **changes)
        asked = replace(
            made.lean,
            backend=lean if repl is None else "auto",
            repl="" if repl is None else str(repl),
            built=built,
            repositories=(RepositorySpec(REPOSITORY, self._mirror),),
        )
        return replace(made, lean=asked)

    def trace(self, files: Sequence[TracedFile], *, sha: str) -> None:
        """Record a trace of a commit."""
        with self._log() as (log, view), closing(queries.connect(self.folder / "database.db")) as questions:
            record_trace(
                log,
                trace=head(sha),
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

    The projects' lean-toolchain is `TOOLCHAIN`.
    """
    name = TOOLCHAIN.replace("/", "--").replace(":", "---")
    return folder, make_credulous(folder / "toolchains" / name)


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

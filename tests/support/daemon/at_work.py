"""A deployment in which each kind of job comes up, and can be seen at its work: for tests that kill or stop it there.

works = Works(tmp_path)
daemon = works.start()
child = works.wait_for(daemon, "build")        # one that has begun its work

Lean is Lean 4.35.0 itself, for tests with `real_lean`; lake is a stand-in. Where the daemon itself is to be caught at
something short, it is asked to linger there (`start`).
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import psutil

from daemon.place.control_client import ControlError, request
from pipeline.jobs.kinds import KINDS, Kind
from store.events.models import ModelKind
from tests.support.daemon import kills
from tests.support.daemon.deployment import Deployment, LeanOfTests

NEWER = "leanprover/lean4:v4.36.0"
"""A Lean that is installed too: the same one, under this name."""
PLACES = 6
"""Files with a sorry; each commit writes the next of them anew."""
LEARNED = 30
"""Theorems to learn from."""
PATIENCE_S = 300.0
"""For what comes on any machine."""
SHUTDOWN_S = 60.0
"""How long the daemon may take to stop: a training has nearly as long to save where it is."""
IDLE_S = 1.0
"""How long there must be nothing to do for it to count."""
Found = TypeVar("Found")
Linger = Literal["insert", "commit", "acknowledge", "patch"]
APPENDING: tuple[Linger, ...] = ("insert", "commit", "acknowledge")
"""Where a daemon lingers: before the rows of a batch, before its commit, between that and the acknowledgement, and with
half of a patch on the disk."""
# Says where it is, and stays there until it is killed.
_PRELUDE = """
import io, os, pathlib, time
from store.log.anchor import Anchor
from store.log.log import EventLog

place, skip, mark = os.environ["LINGER"].split(" ", 2)
left = int(skip)

def linger(here):
    global left
    if here == place:
        left -= 1
        if left < 0:
            pathlib.Path(mark).write_text(here)
            time.sleep(600)

def look(statement):
    linger({"INSERT INTO events": "insert", "COMMIT": "commit"}.get(statement[:18].strip(), ""))

opened = EventLog.open.__func__
def open_log(cls, path):
    log = opened(cls, path)
    log._connection.set_trace_callback(look)
    return log
EventLog.open = classmethod(open_log)

settle = Anchor.settle
def settle_later(self, link):
    linger("acknowledge")
    settle(self, link)
Anchor.settle = settle_later

class InHalves(io.BufferedWriter):
    def write(self, data):
        super().write(data[:len(data) // 2])
        self.flush()
        linger("patch")
        return super().write(data[len(data) // 2:])

open_descriptor = os.fdopen
def open_slowly(descriptor, mode="r", *arguments, **options):
    if mode == "wb" and ".patch." in os.readlink(f"/proc/self/fd/{descriptor}"):
        return InHalves(io.FileIO(descriptor, "wb"))
    return open_descriptor(descriptor, mode, *arguments, **options)
os.fdopen = open_slowly
"""
_TRAINING = """
[train]
device = "cpu"
new_theorems = 100000
[train.retriever]
model_name = "{retriever}"
loss = "contrastive"
batch_size = 8
max_epochs = {epochs}
accumulate_grad_batches = 1
warmup_steps = 0
precision = "32-true"
num_workers = 0
max_seq_len = 64
data_max_seq_len = 64
fisher_samples = 8
"""
_TUNING = """
[train.{model}]
enabled = true
model_name = "{folder}"
epochs = {epochs}
max_seq_len = 400
"""
_REWARDS = """
[train.tactics.grpo]
enabled = true
goals = 1
batch_size = 4
num_generations = 4
max_steps = 6
"""
# No finisher of the reward closes it: a training with rewards has goals.
_LOGIC = (
    "theorem use{0} (p q{0} : Prop) (hp : p) : ∃ f : Prop → Prop, f q{0} = p := by\n"
    "  exact ⟨fun _ => p, have _ := keep{1} p hp; rfl⟩\n\n"
)
_LEMMAS = "".join(f"theorem keep{n} (p : Prop) (h : p) : p := h\n\n" for n in range(3))
_SORRIES = (
    "theorem open{n} (p : Prop) : p → p := by\n  sorry\n",
    "theorem open{n} (a b : Prop) (h : a ∧ b) : b := by\n  sorry\n",
    "theorem open{n} : {n} + 1 = {more} := by\n  sorry\n",
)

# A process of its own loads torch, so that a test's does not.
_MAKE_MODELS = """
import sys
from pathlib import Path
from tests.support.tiny_models import make_tiny_causal, make_tiny_classifier, make_tiny_retriever

folder = Path(sys.argv[1])
make_tiny_retriever(folder / "retriever")
make_tiny_causal(folder / "tactics", hidden=32, layers=1)
make_tiny_classifier(folder / "progress", hidden=32, layers=1)
"""


@dataclass(frozen=True, slots=True)
class Child:
    """The process of a job's attempt."""

    process: psutil.Process
    folder: Path

    @property
    def job(self) -> str:
        return self.folder.parent.name

    @property
    def kind(self) -> Kind:
        return cast(Kind, self.job.rpartition("-")[0])

    @property
    def attempt(self) -> int:
        return int(self.folder.name)

    def runs(self) -> bool:
        """Whether it is there, and no zombie."""
        try:
            return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def frozen(self) -> bool:
        """Freeze it; say whether it had not ended."""
        with suppress(psutil.NoSuchProcess):
            self.process.suspend()
        return self.runs()

    def thawed(self) -> None:
        """Let it go on, if it is there."""
        with suppress(psutil.NoSuchProcess):
            self.process.resume()

    def holds_its_lock(self) -> bool:
        """Whether it has read what it is to do."""
        try:
            return (self.folder / "lock").read_text(encoding="ascii").strip() == str(self.process.pid)
        except FileNotFoundError:
            return False

    def descendants(self) -> list[psutil.Process]:
        """What it started, and what that did."""
        try:
            return self.process.children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def is_told_to_end(self) -> bool:
        """Whether a SIGTERM waits for it, or it is gone: of one that is frozen."""
        if not self.runs():
            return True
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        waiting = next(line for line in status.splitlines() if line.startswith("ShdPnd:")).split()[1]
        return bool(int(waiting, 16) & 1 << (signal.SIGTERM - 1))


class Works:
    """A deployment that watches one repository; it is written anew by `write`.

    Args:
        theorems: of the repository, beside its sorries; there is much to learn from as many as are the default.
    """

    def __init__(self, folder: Path, *, theorems: int = LEARNED) -> None:
        self._theorems = theorems
        self.deployment = Deployment(folder)
        self.lean = LeanOfTests.itself(folder, under=(NEWER,))
        self.remote = self.deployment.remote("demo")
        self.tips: list[str] = []
        self._lingers = folder / "lingers"
        self._models: Path | None = None
        self.push()
        self.write()

    def write(self, *, learn: Sequence[ModelKind] = (), epochs: int = 1, rewards: bool = False) -> None:
        """Write config.toml.

        Args:
            learn: the models that a trigger trains (the retriever is always among them).
            epochs: of each training.
            rewards: whether the tactic model, once it has learned, is trained with Lean's reward.
        """
        training = "[train]\nenabled = false\n"
        if learn:
            models = self._tiny_models()
            training = _TRAINING.format(retriever=models / "retriever", epochs=epochs) + "".join(
                _TUNING.format(model=model, folder=models / model, epochs=epochs)
                for model in learn
                if model != "retriever"
            )
            training += _REWARDS if rewards else ""
        self.settings = self.deployment.write(
            repos=[self.remote.path],
            every="1s",
            slowest="1s",
            shutdown=f"{SHUTDOWN_S:g}s",
            extra=f"{self.lean.settings}[jobs]\nmax_running = 3\nmax_attempts = 50\nretry_base = '1s'\n{training}",
        )

    def _tiny_models(self) -> Path:
        if self._models is None:
            self._models = self.deployment.folder / "models"
            subprocess.run(
                [sys.executable, "-c", _MAKE_MODELS, str(self._models)],
                cwd=Path(__file__).resolve().parents[3],
                check=True,
            )
        return self._models

    # ---- what makes work

    def push(self) -> str:
        """One commit: one file with a sorry is another; return its sha."""
        number = len(self.tips)
        files = {} if self.tips else self._project()
        text = _SORRIES[number % len(_SORRIES)].format(n=number, more=number + 1)
        files[f"Demo/Open{number % PLACES}.lean"] = text
        self.tips.append(self.remote.commit(f"c{number}", files))
        return self.tips[-1]

    def _project(self) -> dict[str, str]:
        modules = ["Demo.Logic", *(f"Demo.Open{place}" for place in range(PLACES))]
        return {
            "lean-toolchain": f"{self.lean.toolchain}\n",
            "lakefile.toml": 'name = "demo"\ndefaultTargets = ["Demo"]\n\n[[lean_lib]]\nname = "Demo"\n',
            "Demo.lean": "".join(f"import {module}\n" for module in modules),
            "Demo/Lemmas.lean": _LEMMAS,
            "Demo/Logic.lean": "import Demo.Lemmas\n\n"
            + "".join(_LOGIC.format(n, n % 3) for n in range(self._theorems)),
            **{f"Demo/Open{place}.lean": "" for place in range(PLACES)},
        }

    def ask(self, method: str, route: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Ask the daemon; None where none answers."""
        try:
            status, answer = request(self.settings.paths, method, route, body)
        except ControlError:
            return None
        assert status < 300, answer
        return answer

    def train(self) -> None:
        """Have every model that is enabled learn, each by a job."""
        self.deployment.wait_for(lambda: self.ask("GET", "/status"), what="an answer")
        self.ask("POST", "/trigger", {"work": "train", "repository": self.settings.repos[0].key})

    def bump(self) -> None:
        """Have the newest commit tried with the newer Lean."""
        self.ask("POST", "/bump", {"repository": self.settings.repos[0].key, "toolchain": NEWER})

    # ---- the daemon, and what it has at work

    def start(self, *, linger: Linger | None = None, after: int = 0) -> subprocess.Popen[bytes]:
        """Start the daemon; it stays at a place (`Linger`) when it has been there so many times."""
        self._lingers.unlink(missing_ok=True)
        environment = {**self.lean.environment, "OMP_NUM_THREADS": "1"}
        if linger is None:
            return self.deployment.start(environment=environment)
        asked = {**environment, "LINGER": f"{linger} {after} {self._lingers}"}
        return self.deployment.start(environment=asked, prelude=_PRELUDE)

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        """A daemon that is killed at the end, if it still runs."""
        daemon = self.start()
        try:
            yield daemon
        finally:
            if daemon.poll() is None:
                kills.kill(daemon)

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """A daemon that is stopped at the end, and well."""
        with self.started() as daemon:
            yield daemon
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(timeout=SHUTDOWN_S) == 0, self.deployment.log()

    def children(self, daemon: subprocess.Popen[bytes]) -> list[Child]:
        """The jobs that run."""
        found = []
        # psutil would look at every process of the machine.
        with suppress(FileNotFoundError, ProcessLookupError):
            for tasks in Path(f"/proc/{daemon.pid}/task").glob("*/children"):
                for pid in tasks.read_text(encoding="ascii").split():
                    with suppress(psutil.NoSuchProcess):
                        process = psutil.Process(int(pid))
                        words = process.cmdline()
                        if "pipeline.jobs.launch" in words:
                            found.append(Child(process, Path(words[-1]).parent))
        return found

    def at_work(self, daemon: subprocess.Popen[bytes], kind: Kind) -> Child | None:
        """A job of this kind that has begun its work: one that trains, its steps."""
        for child in self.children(daemon):
            if child.kind != kind or not child.holds_its_lock():
                continue
            if "checkpoint_saved" not in KINDS[child.kind].may_record or self._is_in_its_steps(child):
                return child
        return None

    def _is_in_its_steps(self, child: Child) -> bool:
        """Whether a training has made a step and has more of them to make."""
        jobs = (self.ask("GET", "/status") or {"jobs": []})["jobs"]
        said = next((job["progress"] for job in jobs if job["job"] == child.job), None)
        return said is not None and said["note"].startswith("training") and said["done"] < said["total"]

    def is_idle(self) -> bool:
        """Whether the newest commit is worked off, nothing runs or is due, and nothing waits to be tried again."""
        answer = self.ask("GET", "/status")
        if answer is None or answer["jobs"] or answer["queued"]:
            return False
        retries = [event.data["retry_at"] for event in self.deployment.events("job_failed")]
        planned = datetime.now(UTC) - timedelta(seconds=IDLE_S)
        return all(retry is None or datetime.fromisoformat(retry) < planned for retry in retries) and any(
            event.data["sha"] == self.tips[-1] for event in self.deployment.events("commit_traced")
        )

    def wait_for(
        self, daemon: subprocess.Popen[bytes], kind: Kind, *, more: Callable[[], object] | None = None
    ) -> Child:
        """Wait for a job of this kind at its work, and return it.

        `more` is called whenever there has been nothing to do for a second; it is `push` if not given.
        """
        return self._until(
            daemon, lambda: self.at_work(daemon, kind), more or self.push, what=f"a job of kind {kind}"
        )

    def wait_for_place(self, daemon: subprocess.Popen[bytes]) -> None:
        """Wait until the daemon is where it lingers; commits come as in `wait_for`."""
        self._until(daemon, lambda: self._lingers.exists() or None, self.push, what="the place to linger")

    def _until(
        self,
        daemon: subprocess.Popen[bytes],
        found: Callable[[], Found | None],
        more: Callable[[], object],
        *,
        what: str,
    ) -> Found:
        deadline = time.monotonic() + PATIENCE_S
        idle_since: float | None = None
        look_at = 0.0
        while (come := found()) is None:
            now = time.monotonic()
            assert daemon.poll() is None, self.deployment.log()
            assert now < deadline, f"waited for {what}; the daemon said:\n{self.deployment.log()}"
            if now >= look_at:
                look_at = now + 0.25
                idle_since = (idle_since or now) if self.is_idle() else None
                if idle_since is not None and now - idle_since >= IDLE_S:
                    more()
                    idle_since = None
            time.sleep(0.01)
        return come

    def settle(self) -> None:
        """Wait until everything is worked off."""
        idle_since: list[float] = []

        def quiet() -> bool:
            if not self.is_idle():
                idle_since.clear()
                return False
            idle_since.append(time.monotonic())
            return idle_since[-1] - idle_since[0] >= IDLE_S

        self.deployment.wait_for(quiet, what="everything to be worked off", seconds=PATIENCE_S)

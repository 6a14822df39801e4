"""What the steps of `tests.acceptance.real_lean` work with: verdicts, commands with a time limit, the daemon, its JSON.

A step is a function that returns one line on what held, or raises. Whatever it raises ends that step alone; what a
step needs it looks for on the disk, never in an earlier step's verdict. All that it runs is written to its output file.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from daemon.place.lock import holder
from pipeline.lean.sandbox.bounded import Bounds, run_bounded
from tests.acceptance.real_lean_projects import Project

ROOT = Path(__file__).resolve().parents[2]
EVERLEAN = str(Path(sys.executable).with_name("everlean"))
_LOOK_S = 0.5
_QUIET_LOOKS = 6
"""Looks in a row at which nothing runs and nothing is queued before the daemon counts as done."""
_STOP_S = 60.0
_LONGEST_REASON = 400

Verdict = Literal["held", "failed", "timed out", "not reached"]


class NotHeldError(Exception):
    """What the step asks for is not so; the text says what is."""


class OutOfReachError(Exception):
    """The step cannot be made here; the text says what it needs."""


class OutOfTimeError(Exception):
    """The step's time is over; the text says at what."""


@dataclass(frozen=True, slots=True)
class Result:
    """One step's end; `output` is its file, relative to the folder of results."""

    lean: str
    step: str
    verdict: Verdict
    seconds: float
    reason: str
    output: str


@dataclass(slots=True)
class Site:
    """One version of Lean, its folder, and the step that runs: its output file and the time at which it has to end."""

    version: str
    folder: Path
    elan_home: Path
    output: Path = Path(os.devnull)
    ends: float = 0.0
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def toolchain(self) -> str:
        return f"leanprover/lean4:{self.version}"

    @property
    def sysroot(self) -> Path:
        """Where elan puts the toolchain."""
        return self.elan_home / "toolchains" / self.toolchain.replace("/", "--").replace(":", "---")

    @property
    def left(self) -> float:
        """The seconds that the running step still has."""
        return max(0.05, self.ends - time.monotonic())

    def lean(self) -> Path:
        """Return the toolchain's `lean`, which most steps need."""
        program = self.sysroot / "bin" / "lean"
        self.need(program.is_file(), f"the toolchain in {self.sysroot}")
        return program

    def need(self, there: object, what: str) -> None:
        """End the step as not reached where something is missing."""
        if not there:
            raise OutOfReachError(f"needs {what}")

    # ---- what a step runs

    def environment(self) -> dict[str, str]:
        """Return the environment of all that is run: homes below our folder, elan's where the toolchains are."""
        home = self.folder / "home"
        left_out = ("EVERLEAN_CONFIG", "LEAN_PATH", "LEAN_SYSROOT", "STATE_DIRECTORY", "CACHE_DIRECTORY")
        kept = {name: value for name, value in os.environ.items() if name not in left_out}
        folders = {"CACHE": ".cache", "CONFIG": ".config", "STATE": ".state", "DATA": ".data"}
        return kept | {
            "HOME": str(home),
            **{f"XDG_{name}_HOME": str(home / folder) for name, folder in folders.items()},
            "ELAN_HOME": str(self.elan_home),
            "ELAN_TOOLCHAIN": self.toolchain,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def say(self, text: str) -> None:
        """Add a line to the step's output file."""
        with self.output.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    def run(
        self, *command: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Run a program within the step's time; return its exit status (a signal's is negative) and what it said.

        Raises:
            OutOfTimeError: the step's time was over first; nothing that the program started is left.
        """
        words = [str(word) for word in command]
        self.say(f"\n$ {shlex.join(words)}    (in {cwd})")
        before = self.output.stat().st_size
        status = self._bounded(words, '>>"$0" 2>&1', cwd, environment or {})
        with self.output.open("rb") as file:
            file.seek(before)
            text = file.read().decode("utf-8", errors="replace")
        self.say(f"[status {status}, {self.left:.0f} s of the step are left]")
        return status, text

    def _bounded(self, words: list[str], into: str, cwd: Path, environment: dict[str, str]) -> int:
        """Run a program whose output the shell writes, as it comes, to the output file ($0) or beside it."""
        shell = ("/bin/sh", "-c", f'exec "$@" {into}', str(self.output))
        whole = self.environment() | environment
        ended = run_bounded((*shell, *words), cwd=cwd, bounds=Bounds(self.left), environment=whole)
        if ended.ending == "timeout":
            raise OutOfTimeError(f"at `{shlex.join(words)[:100]}`")
        return ended.status if ended.status is not None else -(ended.signal or 1)

    def must(self, *command: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
        """Run a program that has to end with status 0, and return what it said."""
        status, said = self.run(*command, cwd=cwd, environment=environment)
        if status != 0:
            name = Path(str(command[0])).name
            raise NotHeldError(f"{name} {' '.join(map(str, command[1:4]))}: status {status}: {last(said)}")
        return said

    # ---- everlean and its daemon

    def place(self, project: Project) -> Path:
        return self.folder / project.name

    def config(self, project: Project) -> Path:
        return self.place(project) / "config.toml"

    def repository(self, project: Project) -> Path:
        """Return the project's repository, which the step needs."""
        folder = self.place(project) / "repository"
        self.need((folder / ".git").is_dir(), f"the step {project.name}-project")
        return folder

    def everlean(self, project: Project, *words: str, quiet: bool = False) -> tuple[int, Any]:
        """Run a verb with --json; return its exit status and its document (None where it gave none)."""
        command = [EVERLEAN, *words, "--json", "--config", str(self.config(project))]
        status = self._bounded(command, '>"$0.json" 2>>"$0"', self.folder, {})
        answer = self.output.with_name(f"{self.output.name}.json")
        text = answer.read_text("utf-8")
        answer.unlink()
        if not quiet or status not in (0, 3):
            self.say(f"$ everlean {' '.join(words)} --json    [status {status}]\n{text}")
        try:
            return status, json.loads(text)
        except ValueError:
            return status, None

    def asked(self, project: Project, *words: str, quiet: bool = True) -> Any:
        """Run a verb that has to answer, and return its document."""
        status, document = self.everlean(project, *words, quiet=quiet)
        # The status of `status` says how the daemon is, and not whether it answered.
        if document is None or (status != 0 and words[0] != "status"):
            raise NotHeldError(f"`everlean {' '.join(words)}` ended with {status} and no answer")
        return document

    def watch(self, project: Project) -> None:
        """Start the daemon on a project unless it runs; another project's is stopped first."""
        for name in [name for name in self.daemons if name != project.name]:
            self.stop(name)
        process = self.daemons.get(project.name)
        if process is not None and process.poll() is None:
            return
        command = [EVERLEAN, "run", "--config", str(self.config(project))]
        with (self.place(project) / "daemon.log").open("ab") as log:
            self.daemons[project.name] = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, name: str) -> None:
        """Stop a daemon: it ends its jobs, and they end what they started."""
        process = self.daemons.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop_all(self) -> None:
        for name in list(self.daemons):
            self.stop(name)

    def work_off(self, project: Project, done: Callable[[], bool], what: str) -> None:
        """Wait until `done`, or until the daemon has nothing left to do.

        Raises:
            OutOfTimeError: the step's time was over first; the text says what the daemon was at.
        """
        self.repository(project)
        self.watch(project)
        quiet, before = 0, ""
        # A new daemon has nothing recorded at first, so that its verbs have no answer.
        while not (self.place(project) / "state" / "database.db").exists() or not done():
            status = self.asked(project, "status")
            running, queued = status["jobs"]["running"], status["jobs"]["queued"]
            at = "; ".join(
                [f"{one['describes']} {(one.get('progress') or {}).get('note') or ''}" for one in running]
                + [f"{one['describes']} waits: {one['waits']}" for one in queued]
            )
            if at != before:
                self.say(f"{time.strftime('%H:%M:%S')}  {at or 'nothing runs'}")
                before = at
            process = self.daemons[project.name]
            if process.poll() is not None:
                log = self.place(project) / "daemon.log"
                said = last(log.read_text("utf-8", errors="replace"))
                raise NotHeldError(f"the daemon ended with {process.returncode}: {said}")
            quiet = quiet + 1 if status["daemon"]["running"] and not running and not queued else 0
            if quiet >= _QUIET_LOOKS:
                return
            if time.monotonic() >= self.ends:
                raise OutOfTimeError(f"waiting for {what}; the daemon is at: {at or 'nothing'}")
            time.sleep(min(_LOOK_S, self.left))

    def jobs(self, project: Project, kind: str) -> list[dict[str, Any]]:
        """Return the jobs of a kind, newest first."""
        return list(self.asked(project, "jobs", "--kind", kind)["jobs"])

    def rows(self, project: Project, verb: str, *options: str) -> list[dict[str, Any]]:
        """Return what a listing verb lists."""
        return list(self.asked(project, verb, *options)[verb])


def stop_daemon(lock: Path) -> None:
    """Stop the daemon that an earlier run left, should it have been killed."""
    ends = time.monotonic() + _STOP_S
    pid = holder(lock) if lock.exists() else None
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        while holder(lock) is not None and time.monotonic() < ends:
            time.sleep(0.1)


def last(said: str) -> str:
    """Return the last line that says something, and no empty frame."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("[")]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1][:300]


# ---- running steps


@dataclass(frozen=True, slots=True)
class Step:
    """A name, how many seconds it may take, and what it does."""

    name: str
    seconds: float
    work: Callable[[Site], str]


def make(site: Site, step: Step) -> Result:
    """Make one step; whatever it raises is its verdict and nobody else's."""
    folder = site.folder / "steps"
    folder.mkdir(parents=True, exist_ok=True)
    site.output = folder / f"{step.name}.txt"
    site.output.write_text(f"{step.name}, {site.toolchain}, at most {step.seconds:g} s\n", "utf-8")
    began = time.monotonic()
    site.ends = began + step.seconds
    verdict: Verdict
    try:
        verdict, reason = "held", step.work(site)
    except OutOfReachError as error:
        verdict, reason = "not reached", str(error)
    except OutOfTimeError as error:
        verdict, reason = "timed out", f"no end after {step.seconds:g} s, {error}"
    except NotHeldError as error:
        verdict, reason = "failed", str(error)
    except Exception as error:  # noqa: BLE001 - the step's own mistake must not hide the next step
        site.say(traceback.format_exc())
        verdict, reason = "failed", f"{type(error).__name__}: {error}"
    reason = " ".join(reason.split())
    site.say(f"\n{verdict}: {reason}")
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[:_LONGEST_REASON]}…"
    where = str(site.output.relative_to(site.folder.parent))
    return Result(site.version, step.name, verdict, round(time.monotonic() - began, 1), reason, where)


# ---- telling


def written(results: Sequence[Result], about: Iterable[str], folder: Path) -> str:
    """Write the results to `results.json` and `table.md` in the folder; return the table."""
    text = table(results, about)
    for name, content in (("table.md", text), ("results.json", _json(results, about))):
        beside = folder / f".{name}"
        beside.write_text(content, "utf-8")
        beside.replace(folder / name)
    return text


def table(results: Sequence[Result], about: Iterable[str]) -> str:
    """Return the results as Markdown: a count, what they were made on, and a row for each step."""
    counts = [f"{sum(one.verdict == verdict for one in results)} {verdict}" for verdict in get_args(Verdict)]
    lines = [", ".join(counts), "", *(f"- {line}" for line in about), ""]
    lines += ["| Lean | step | verdict | seconds | |", "|---|---|---|---|---|"]
    for one in results:
        reason = one.reason.replace("|", "\\|")
        verdict = one.verdict if one.verdict == "held" else f"**{one.verdict}**"
        lines.append(f"| {one.lean} | {one.step} | {verdict} | {one.seconds:.1f} | {reason} |")
    return "\n".join(lines) + "\n"


def _json(results: Sequence[Result], about: Iterable[str]) -> str:
    document = {"schema": 1, "about": list(about), "results": [asdict(one) for one in results]}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"

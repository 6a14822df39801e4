"""The demos' common parts: folder, git repositories, Lean itself, the daemon, and waiting for its events.

    def run(directory: Path) -> None:
        begin(directory, "everlean does this")        # ends the demo without Lean
        repository = new_repository(directory / "small")
        commit(repository, "A small project", EXAMPLES / "small-project", day=1)
        with new_daemon(directory, "[prove]\\nenabled = false\\n", watched=repository) as watching:
            watching.wait("the trace", lambda events: bool(of_type(events, "trace_measured")))

    if __name__ == "__main__":
        sys.exit(main(run, __doc__))

Lean is Lean 4.35.0 itself (`tests.support.lean.wheel`): elaborator, tactics, language server and kernel, with
a small library of our own in place of Lean's and a stand-in for lake. That library decides the meaning of
statements, so no proof is called verified. Everything stays in the demo's folder until the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from daemon.place.control_client import ControlError, request
from daemon.place.lock import holder
from daemon.place.paths import Paths, paths_from_config
from pipeline.lean.sandbox.command import bubblewrap_problem
from pipeline.lean.toolchain.standins import SWITCH
from store.errors import DatabaseMissingError
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from store.view import queries
from tests.support.lean.real_gate import real_elan
from tests.support.lean.wheel.lean import VERSION, UnavailableError, toolchain

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
COMMAND = str(Path(sys.executable).with_name("everlean"))
MARKER = ".everlean-demo"
WIDTH = 80
NO_LEAN = 3
"""The exit status of a demo that needs Lean and finds none."""
FRAME = f"""Lean {VERSION} itself: its tactics, its language server, its kernel. Its library
is a small one of our own here, and lake a stand-in: so nothing below is called
"verified", which takes Lean's own library and a second run of the kernel."""
LOOK_S = 0.2
"""Seconds between two looks at the log."""
STUCK_S = 60.0
"""Seconds for which the daemon may be idle before the expected event."""


class DemoError(Exception):
    """The demo cannot go on; the message has the reason and the remedy."""


class NoLeanError(DemoError):
    """The demo needs Lean, and there is none."""


def own_folder() -> Path:
    """Return the running demo's folder, which no other demo clears."""
    return ROOT / "demo-run" / Path(sys.argv[0]).stem


def main(run: Callable[[Path], None], about: str | None) -> int:
    """Run a demo in the command line's folder; return the exit status."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--directory", type=Path, default=own_folder(), help="where the run lives")
    return finished(lambda: run(parser.parse_args().directory.resolve()))


def finished(run: Callable[[], None]) -> int:
    """Run a demo; return the exit status, and print in a sentence why it ended early."""
    try:
        run()
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return NO_LEAN if isinstance(error, NoLeanError) else 1
    return 0


def say(text: str = "") -> None:
    print(text, flush=True)


def say_answer(line: str) -> None:
    """Show a line of a verb's answer, indented; a line longer than the screen goes on below."""
    for piece in textwrap.wrap(line, WIDTH - 4, subsequent_indent="  ") or [""]:
        say(f"  {piece}".rstrip())


def cut(text: str, width: int) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


# ---- folders and repositories


def prepare(directory: Path) -> None:
    """Make an empty folder for this run. Only an earlier demo's folder is cleared."""
    if directory.exists():
        if not (directory / MARKER).exists():
            raise DemoError(f"{directory} exists and was not made by the demo; give another with --directory")
        config = directory / "config.toml"
        if config.exists() and (pid := holder(paths_from_config(config).lock)) is not None:
            say(f"stopping the daemon of an earlier demo (process {pid})")
            os.kill(pid, signal.SIGTERM)
            end = time.monotonic() + 40
            while holder(paths_from_config(config).lock) is not None:
                if time.monotonic() > end:
                    raise DemoError(f"the daemon of an earlier demo (process {pid}) does not stop")
                time.sleep(0.1)
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    (directory / MARKER).touch()


def git(repository: Path, *arguments: str, date: str = "2026-01-01T09:00:00Z") -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(repository),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.org",
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
    }
    done = subprocess.run(
        ["git", *arguments], cwd=repository, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DemoError(f"git {' '.join(arguments)} failed in {repository}: {done.stderr.strip()}")
    return done.stdout.strip()


def new_repository(repository: Path) -> Path:
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch=main")
    return repository


def commit(repository: Path, message: str, files: Path | Mapping[str, str] | None = None, *, day: int) -> str:
    """Commit the repository's content, with these files or a copy of that folder; return the commit."""
    if isinstance(files, Path):
        shutil.copytree(files, repository, dirs_exist_ok=True)
    for name, text in files.items() if isinstance(files, Mapping) else ():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", message, date=f"2026-01-0{day}T09:00:00Z")
    return git(repository, "rev-parse", "HEAD")


# ---- Lean and the daemon


def lean() -> Path:
    """Return Lean's toolchain, built the first time.

    Raises:
        NoLeanError: its package is not here.
    """
    try:
        return toolchain()
    except UnavailableError as error:
        raise NoLeanError(f"this needs Lean itself. {error}") from error


def begin(directory: Path, title: str) -> Path:
    """Clear the folder, and print the demo's subject and its Lean; return Lean's toolchain.

    Raises:
        NoLeanError: its package is not here.
    """
    tools = lean()
    say(title + "\n")
    prepare(directory)
    for line in FRAME.split("\n"):
        say(f"│ {line}")
    return tools


def new_daemon(directory: Path, settings: str = "", *, watched: Path | None = None) -> Daemon:
    """Make a daemon with Lean itself in a demo's folder; it is not yet started.

    Args:
        settings: tables of the configuration.
        watched: a repository in its watchlist from the start.
    """
    home = real_elan(directory)
    # The stand-in for lake is refused everywhere else, and so is a toolchain that has it.
    environment = {"ELAN_HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}", SWITCH: "1"}
    config = directory / "config.toml"
    config.write_text(
        "# Made by a demo. Everything that is not here has its default; see ../config.toml.\n[daemon]\n"
        'state_dir = "state"\ncache_dir = "cache"\nruntime_dir = "run"\n\n[lean]\n',
        encoding="utf-8",
    )
    if os.geteuid() == 0:
        # Only this project's own files are run here. Your daemon should have a user of its own.
        add(config, "as_root = true\n")
    if bubblewrap_problem():
        add(config, 'sandbox = "none"\n')
    add(config, f"\n{settings}")
    if watched is not None:
        watch(config, watched)
    return Daemon(config, paths_from_config(config), directory / "daemon.log", environment)


def add(config: Path, text: str) -> None:
    """Add to the configuration, also of a running daemon."""
    beside = config.with_suffix(".new")
    beside.write_text(config.read_text(encoding="utf-8") + text, encoding="utf-8")
    beside.rename(config)


def watch(config: Path, repository: Path) -> None:
    """Add a repository to the configuration."""
    add(config, f'\n[[repos]]\nurl = {json.dumps(str(repository))}\nevery = "1s"\n')


@dataclass
class Daemon:
    """The daemon's process, kept up; and the events of its log, each read once. Stopped at the end of the
    context."""

    config: Path
    paths: Paths
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    events: list[StoredEvent] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [COMMAND, "run", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # One thread trains so small a model faster than several that wait for each other.
                env={**os.environ, "OMP_NUM_THREADS": "1", **self.environment},
            )

    def keep_up(self) -> None:
        """Start the daemon again if it was killed; give up if it left on its own account."""
        assert self.process is not None
        status = self.process.poll()
        if status is None:
            return
        if status >= 0:
            tail = "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
            raise DemoError(
                f"the daemon ended by itself with status {status}; the end of {self.log}:\n{tail}"
            )
        say(f"  the daemon was killed (signal {-status}); starting it again, as systemd would")
        self.start()

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise DemoError(f"the daemon did not stop within 40 s of SIGTERM; see {self.log}") from None

    def wait(
        self,
        what: str,
        come: Callable[[list[StoredEvent]], bool],
        tell: Callable[[StoredEvent], None] = lambda _event: None,
    ) -> None:
        """Wait until the log's events make `come` true, telling of each new one.

        There is no deadline: a busy machine may take its time. The demo ends if the daemon has nothing to do.

        Raises:
            DemoError: a job failed, or for a minute there was nothing to do.
        """
        busy_at = time.monotonic()
        while True:
            new = self._read()
            for event in new:
                tell(event)
                if event.type == "job_failed":
                    raise DemoError(f"{event.data['job']} failed: {event.data['message']}; see {self.log}")
            if come(self.events) and self._shown():
                return
            self.keep_up()
            if new or self._busy():
                busy_at = time.monotonic()
            elif time.monotonic() - busy_at > STUCK_S:
                raise DemoError(f"the daemon has nothing left to do, and {what} is not there; see {self.log}")
            time.sleep(LOOK_S)

    def _read(self) -> list[StoredEvent]:
        if not self.paths.events_db.exists():
            return []
        try:
            reader = LogReader.open(self.paths.events_db)
        except DatabaseMissingError:
            return []  # the daemon is just beginning it
        with reader:
            new = list(reader.read(after=self.events[-1].seq if self.events else 0))
        self.events += new
        return new

    def _shown(self) -> bool:
        """Return whether the verbs' view has the last of the events."""
        with closing(queries.connect(self.paths.database_db)) as view:
            return not self.events or queries.position(view) >= self.events[-1].seq

    def _busy(self) -> bool:
        try:
            status, answer = request(self.paths, "GET", "/status")
        except ControlError:
            return False  # between two starts of the daemon the socket does not answer
        return status == 200 and bool(answer["jobs"] or answer["queued"])


def of_type(events: list[StoredEvent], *types: str) -> list[dict[str, Any]]:
    """Return the data of the events of these types."""
    return [event.data for event in events if event.type in types]


def everlean(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, *arguments, "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def ask(config: Path, *words: str | Path, most: int = 100) -> None:
    """Run a verb as a person would, in the configuration's folder, and show the beginning of its output.

    Raises:
        DemoError: it fails.
    """
    folder = config.parent
    parts = [str(word.relative_to(folder)) if isinstance(word, Path) else word for word in words]
    say(f"$ everlean {' '.join(parts)}")
    command = [COMMAND, *parts, "--config", config.name]
    narrow = {**os.environ, "COLUMNS": str(WIDTH - 4)}
    done = subprocess.run(command, cwd=folder, env=narrow, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoError(f"everlean {' '.join(parts)} failed: {done.stdout}{done.stderr}")
    for line in done.stdout.replace(f"{folder}/", "").splitlines()[:most]:
        say_answer(line)

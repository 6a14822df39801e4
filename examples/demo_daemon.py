"""The daemon of a demo: its folder, its configuration, its process, and waiting for what it does."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from daemon.control_client import ControlError, request
from daemon.lock import holder
from daemon.paths import Paths, paths_from_config
from examples.demo_repositories import ROOT, DemoError
from examples.demo_telling import say
from pipeline.lean.sandbox.command import bubblewrap_problem
from store.view import queries

COMMAND = str(Path(sys.executable).with_name("everlean"))
MARKER = ".everlean-demo"
COMMIT_DEADLINE_S = 180.0
LOOK_S = 0.4
"""Seconds between two requests for progress: each answer costs the daemon time."""
QUIET_S = 1.0
"""How long the plan must stay empty, with nothing running, before a commit counts as worked off."""


@dataclass
class Daemon:
    """The daemon's process, kept up."""

    config: Path
    paths: Paths
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [COMMAND, "run", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # So small a model is trained faster by one thread than by several that wait for each other.
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
        say(f"          the daemon was killed (signal {-status}); starting it again, as systemd would")
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

    def idle_at(self, sha: str) -> bool:
        """Whether some branch is scanned up to `sha`, and neither a job runs nor one is due."""
        try:
            status, answer = request(self.paths, "GET", "/status")
        except ControlError:
            return False  # between two starts of the daemon the socket does not answer
        if status != 200 or answer["jobs"] or answer["queued"]:
            return False
        view = queries.connect(self.paths.database_db)
        try:
            return sha in {branch.scanned for branch in queries.branches(view)}
        finally:
            view.close()


def prepare(directory: Path) -> None:
    """Make an empty folder for this run. Only a folder that an earlier demo made is cleared."""
    if directory.exists():
        if not (directory / MARKER).exists():
            raise DemoError(f"{directory} exists and was not made by the demo; give another with --directory")
        config = directory / "config.toml"
        if config.exists() and (pid := holder(paths_from_config(config).lock)) is not None:
            say(f"stopping the daemon of an earlier demo (process {pid})")
            os.kill(pid, signal.SIGTERM)
            wait_until(
                lambda: holder(paths_from_config(config).lock) is None, 40, "the earlier daemon to stop"
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    (directory / MARKER).touch()


def wait_until(condition: Callable[[], bool], deadline_s: float, what: str) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise DemoError(f"waited {deadline_s:.0f} s for {what}")
        time.sleep(0.1)


def add(config: Path, text: str) -> None:
    """Add to the configuration while the daemon runs."""
    beside = config.with_suffix(".new")
    beside.write_text(config.read_text(encoding="utf-8") + text, encoding="utf-8")
    beside.rename(config)


def write_config(directory: Path, repository: Path | None, backend: str) -> Path:
    config = directory / "config.toml"
    config.write_text(
        f"""# Made by `make demo`. Everything that is not here has its default; see ../config.toml.
[daemon]
state_dir = "state"
cache_dir = "cache"
runtime_dir = "run"

[lean]
backend = "{backend}"
""",
        encoding="utf-8",
    )
    if os.geteuid() == 0:
        # Only this project's own files are run here. Your daemon should have a user of its own.
        add(config, "as_root = true\n")
    if backend != "simulator" and bubblewrap_problem():
        add(config, 'sandbox = "none"\n')
    if repository is not None:
        watch(config, repository)
    return config


def watch(config: Path, repository: Path) -> None:
    """Add a repository to the configuration."""
    add(config, f'\n[[repos]]\nurl = {json.dumps(str(repository))}\nevery = "2s"\n')


def work_off(
    daemon: Daemon, tell: Callable[[], None], sha: str, *, until: Callable[[], bool] = lambda: True
) -> None:
    """Wait until the daemon has nothing left to do about `sha`, telling what happens meanwhile.

    Args:
        until: what must have come about as well; for work that begins only when the daemon has read its configuration.
    """
    end = time.monotonic() + COMMIT_DEADLINE_S
    quiet_since: float | None = None
    while True:
        daemon.keep_up()
        tell()
        now = time.monotonic()
        quiet_since = (quiet_since or now) if daemon.idle_at(sha) and until() else None
        if quiet_since is not None and now - quiet_since >= QUIET_S:
            tell()
            return
        if now > end:
            raise DemoError(
                f"commit {sha[:9]} was not worked off in {COMMIT_DEADLINE_S:.0f} s; see {daemon.log}"
            )
        time.sleep(LOOK_S)


def everlean(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, *arguments, "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def show(config: Path, *arguments: str | Path) -> None:
    """Run a verb as a user would and print what it answers."""
    words = [os.path.relpath(word) if isinstance(word, Path) else word for word in arguments]
    say(f"$ everlean {' '.join(words)}")
    done = everlean(config, *words)
    # That of `status` says how the daemon is.
    if done.returncode and words[0] != "status":
        raise DemoError(f"everlean {' '.join(words)} failed: {done.stdout}{done.stderr}")
    say(done.stdout)


def main(run: Callable[[Path], None], about: str | None) -> int:
    """Run a demo in the folder that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--directory", type=Path, default=ROOT / "demo-run", help="where the run lives")
    try:
        run(parser.parse_args().directory.resolve())
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0

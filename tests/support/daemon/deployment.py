"""A daemon's folder for tests: config.toml, settings, and the parts opened on a real state folder.

deployment = Deployment(tmp_path)
deployment.write(repos=[deployment.remote("demo").path], backend="none")
async with deployment.opened() as parts:
    await parts.poller.poll(parts.settings.repos[0])
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from daemon.place.paths import paths_from_config
from daemon.polling.branch_diff import watchlist_events
from daemon.polling.git import Git
from daemon.polling.github import GitHub
from daemon.polling.poller import Poller, PollResult
from daemon.settings import Repo, Settings, load
from daemon.state.context import Context
from daemon.state.store_service import StoreService
from store.domain.identity import slug
from store.errors import LogError
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from store.view import queries
from tests.support import verbs
from tests.support.daemon import warm
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import TOOLCHAIN, real_elan, with_lake
from tests.support.lean.scripted import Script, write_repl
from tests.support.lean.toolchain import sysroot_of
from tests.support.lean.wheel.lean import build

Answer = TypeVar("Answer")
HISTORY = "[scan]\nhistory = true\n"
"""A section of config.toml: git is asked about the past."""


@dataclass(frozen=True, slots=True)
class LeanOfTests:
    """What a daemon has as its Lean: sections of config.toml, the environment, and the toolchain's name."""

    settings: str
    environment: Mapping[str, str]
    toolchain: str = TOOLCHAIN

    @classmethod
    def itself(cls, folder: Path, *, under: Sequence[str] = ()) -> LeanOfTests:
        """Lean 4.35.0 as elan has it, in `folder`/elan, and a stand-in for lake; for tests with `real_lean`.

        It is there `under` other versions' names as well.
        """
        home = real_elan(folder)
        for name in under:
            with_lake(build(sysroot_of(home, name)))
        environment = {"ELAN_HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"}
        return cls('[lean]\nsandbox = "none"\n', environment)

    @classmethod
    def scripted(cls, folder: Path) -> LeanOfTests:
        """A scripted REPL in `folder`/repl, where every tactic fails: searches alone can be done with it."""
        repl = write_repl(folder / "repl", Script(), toolchain=TOOLCHAIN)
        return cls(
            f'[lean]\nrepl = "{repl}"\nsandbox = "none"\n[build]\nenabled = false\n'
            "[trace]\nenabled = false\n",
            {"ELAN_HOME": str(folder / "elan"), "PATH": f"{repl.parent}:{os.environ['PATH']}"},
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """What a test of one part needs of the others."""

    context: Context
    store: StoreService
    git: Git
    poller: Poller

    @property
    def settings(self) -> Settings:
        return self.context.settings

    @property
    def repo(self) -> Repo:
        return self.settings.repos[0]


class NoTasks(Context):
    """A context that begins no tasks."""

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        work.close()


class Deployment:
    """A folder with a configuration, remotes, and a daemon's state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config.toml"

    def remote(self, name: str, *, branch: str = "main") -> Remote:
        """Make a repository below `remotes/`; its key is local/remotes/NAME."""
        return Remote(self.folder / "remotes" / name, branch=branch)

    def write(
        self,
        *,
        repos: Sequence[Path | str],
        entry: str = "",
        extra: str = "",
        every: str = "1h",
        slowest: str = "",
        shutdown: str = "5s",
    ) -> Settings:
        """Write config.toml (`entry` goes below every repository, `extra` is whole sections) and load it.

        With `slowest` as `every`, a quiet repository is polled as often as any other. Without a [scan] in `extra`
        the past is not asked for: it would be whenever a test has taken 20 seconds.
        """
        entries = "\n".join(f'[[repos]]\nurl = "{url}"\n{entry}\n' for url in repos)
        pace = f'slowest = "{slowest}"\n' if slowest else ""
        lean = "" if "[lean]" in extra else '[lean]\nbackend = "none"\n'
        scan = "" if "[scan]" in extra else "[scan]\nhistory = false\n"
        # Tests are run by root too, on machines that are made for them.
        extra = extra.replace("[lean]\n", "[lean]\nas_root = true\n")
        self.config.write_text(
            f'[daemon]\nstate_dir = "state"\nlog_format = "json"\nshutdown_timeout = "{shutdown}"\n'
            f'[poll]\nevery = "{every}"\ntimeout = "20s"\n{pace}{lean}{scan}{extra}\n{entries}',
            encoding="utf-8",
        )
        return load(self.config)

    def settings(self) -> Settings:
        """What config.toml says now."""
        return load(self.config)

    @asynccontextmanager
    async def opened(self, *, github: GitHub | None = None) -> AsyncIterator[Parts]:
        """The parts below the service, on this folder's state, with the watchlist recorded."""
        settings = load(self.config)
        settings.paths.state.mkdir(parents=True, exist_ok=True)
        store = await StoreService.open(settings.paths)
        try:
            events = watchlist_events(settings.repos, await store.ask(queries.repositories))
            if events:
                await store.append(events)
            git = Git(timeout_s=20.0, safe=lambda: settings.poll.safe_directories)
            yield Parts(
                Context(settings),
                store,
                git,
                Poller(store=store, git=git, github=github, paths=settings.paths),
            )
        finally:
            if github is not None:
                await github.close()
            await store.close()

    def with_parts(self, work: Callable[[Parts], Awaitable[Answer]]) -> Answer:
        """Do something as a daemon that was just started."""

        async def go() -> Answer:
            async with self.opened() as parts:
                return await work(parts)

        return asyncio.run(go())

    def poll(self) -> PollResult:
        """Poll the first repository as a daemon that was just started."""
        return self.with_parts(lambda parts: parts.poller.poll(parts.repo))

    def mirror(self) -> Path:
        """The folder of the first repository's mirror."""
        settings = self.settings()
        return settings.paths.mirrors / f"{slug(settings.repos[0].key)}.git"

    def events(self, *types: str) -> list[StoredEvent]:
        """What the log holds now, in order; nothing where there is no log yet."""
        try:
            reader = LogReader.open(paths_from_config(self.config).events_db)
        except LogError:
            return []
        try:
            return list(reader.read(types=types))
        finally:
            reader.close()

    def everlean(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a verb on this folder's configuration."""
        return verbs.everlean(
            *words, "--config", str(self.config), environment=os.environ, folder=self.folder
        )

    def start(
        self, *, environment: Mapping[str, str] | None = None, prelude: str = "", forked_jobs: bool = True
    ) -> subprocess.Popen[bytes]:
        """Start the whole daemon as a process. Its log is `daemon.log`; `prelude` is Python that runs before it.

        Its jobs are forks too, unless `forked_jobs` is False: one that is inherits the daemon's umask and nothing else.
        """
        program = "import sys, pathlib; from daemon.process.run import run; sys.exit(run(pathlib.Path(sys.argv[1])))"
        return warm.start(
            f"{prelude}\n{program}",
            str(self.config),
            output=self.folder / "daemon.log",
            environment=environment,
            jobs=forked_jobs,
        )

    @contextmanager
    def daemon(
        self, *, environment: Mapping[str, str] | None = None, prelude: str = "", forked_jobs: bool = True
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The whole daemon as a process (`start`); killed at the end if it still runs."""
        process = self.start(environment=environment, prelude=prelude, forked_jobs=forked_jobs)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def log(self) -> str:
        """What the daemon said so far."""
        return (self.folder / "daemon.log").read_text(encoding="utf-8")

    def wait_for(self, condition: Callable[[], object], *, what: str, seconds: float = 60.0) -> None:
        """Wait until the condition holds, else fail with what the daemon said."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds:g} s for {what}; the daemon said:\n{self.log()}")
            time.sleep(0.05)

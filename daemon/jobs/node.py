"""The other machine's end: what a node is, and one attempt on it, around the engine that the daemon itself uses there.

A node works in one folder (`$EVERLEAN_NODE_FOLDER`, else `~/.cache/everlean-node`): builds and worktrees
lie in it as in the daemon's cache (`daemon.paths`), and packs, of which each attempt makes a mirror of its own. It
knows no configuration, no log and no secret. Each attempt is a process of its own (`Carrier`), which speaks
`daemon.jobs.wire`; one more a machine (`Keeper`) says what the machine is, and removes what attempts left whose process
was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import subprocess
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import structlog

from daemon.jobs.artifacts import ArtifactError, Artifacts, sweep_files, unpack_folder
from daemon.jobs.engine import Commit, Order, StartError
from daemon.jobs.local import LocalAttempt, LocalEngine
from daemon.jobs.node_files import FOLDER, LOCK, node_paths, remove, remove_earlier, remove_what_is_left
from daemon.jobs.orphans import guard
from daemon.jobs.wire import (
    BEGIN_BYTES,
    FRAME_BYTES,
    FROM_DAEMON,
    PART_BYTES,
    SAID_BYTES,
    SCHEMA,
    WINDOW_LINES,
    Beat,
    Begin,
    Close,
    Decoder,
    Ended,
    Fault,
    FromNode,
    Look,
    NodeReport,
    Payload,
    Plain,
    Refused,
    Started,
    Stop,
    Taken,
    WireLean,
    encode,
    program_version,
)
from daemon.paths import Paths
from daemon.polling.errors import GitError
from daemon.polling.git import Git
from pipeline.jobs.child import Exit, LineTooLongError
from pipeline.jobs.inputs import Input, Inputs
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.spec import Spec
from pipeline.lean.backend import LeanBackend, Leans, find_leans
from pipeline.lean.build.build_cache import sweep
from pipeline.lean.sandbox.command import bubblewrap_problem
from store.domain.identity import slug
from store.files import lock

LEAST_FREE_BYTES = 2 * 2**30
_TAKE_S = 30.0
_GATHER_S = 0.05
_SAID_WINDOW = 4
_TEXT = 4000
_SAID_EVERY_S = 0.1

log = structlog.get_logger("daemon.jobs.node")


def leans_here(like: WireLean) -> Leans:
    """Return what can run Lean on this node, under the daemon's settings for it."""
    return find_leans(
        backend="auto",
        repl="",
        sandbox=like.sandbox,
        start_timeout_s=like.start_timeout_s,
        as_root=like.as_root,
    )


def lean_like(like: WireLean) -> LeanBackend:
    """Return this node's Lean of the same kind and version.

    Raises:
        StartError: it has none.
    """
    found = leans_here(like)
    for one in found.builds if found.fixed is None else (found.fixed,):
        if (one.kind, one.toolchain) == (like.kind, like.toolchain):
            return one
    raise StartError(
        "toolchain_missing",
        f"{platform.node()}: no {like.kind} for {like.toolchain}",
        f"install it there: elan toolchain install {like.toolchain}",
    )


def examined(paths: Paths, like: WireLean) -> NodeReport:
    """Look at this machine, as the place of attempts; first remove what dead ones left.

    Args:
        like: how the daemon's machine runs Lean; its toolchain does not matter.
    """
    problems: list[str] = []
    try:
        paths.jobs.mkdir(parents=True, exist_ok=True)
        remove_what_is_left(paths)
        free = shutil.disk_usage(paths.state).free
    except OSError as error:
        free = 0
        problems.append(f"{paths.state} cannot be used: {error}; set ${FOLDER} there to a folder that can")
    else:
        if free < LEAST_FREE_BYTES:
            problems.append(f"{paths.state}: {free // 2**20} MiB free, 2 GiB are needed; make room")
    if os.environ.get("RAY_AUTH_MODE") != "token":
        problems.append("Ray runs there without tokens; start it with RAY_AUTH_MODE=token")
    if shutil.which("git") is None:
        problems.append("git: not found on PATH; install git")
    if like.sandbox == "bubblewrap":
        problem = bubblewrap_problem()
        if problem is not None:
            problems.append(f"no sandbox for Lean: {problem}")
    found = leans_here(like)
    leans = found.builds if found.fixed is None else (found.fixed,)
    return NodeReport(
        host=platform.node(),
        version=program_version(),
        schema_version=SCHEMA,
        clock=time.time(),
        folder=str(paths.state),
        free_bytes=free,
        cores=len(os.sched_getaffinity(0)),
        leans=tuple((one.kind, one.toolchain) for one in leans),
        problems=tuple(problems),
    )


class Keeper:
    """Says what this machine is. One process a node, which the cluster starts there."""

    def __init__(self) -> None:
        self._reads = ""

    def report(self, asked: bytes) -> bytes:
        """Return a `NodeReport` to a `Look`, both in JSON."""
        look = Look.model_validate_json(asked)
        report = examined(node_paths(), look.lean)
        try:
            if self._reads != look.artifacts:
                Artifacts(look.artifacts).look()
                self._reads = look.artifacts
        except ArtifactError as error:
            report = report.model_copy(update={"problems": (*report.problems, f"artifacts: {error}")})
        return report.model_dump_json().encode()


class Carrier:
    """An attempt in a process of its own: bytes in, bytes out. It ends with what carries it."""

    def __init__(self) -> None:
        self._attempt: NodeAttempt | None = None

    async def give(self, piece: bytes) -> None:
        """Take bytes from the daemon."""
        if self._attempt is None:
            self._attempt = NodeAttempt(node_paths())
        self._attempt.feed(piece)

    async def take(self) -> bytes:
        """Return bytes for the daemon; none after some seconds without any."""
        while self._attempt is None:  # noqa: ASYNC110 - the first bytes make it
            await asyncio.sleep(0.01)
        return await self._attempt.taken()


class NodeAttempt:
    """One attempt on this node, and its talk with the daemon."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._decoder = Decoder(BEGIN_BYTES)
        self._out: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self._window = asyncio.Semaphore(WINDOW_LINES)
        self._said_window = asyncio.Semaphore(_SAID_WINDOW)
        self._heard = time.monotonic()
        self._attempt: LocalAttempt | None = None
        self._lease = ""
        self._unheard = False
        self._close = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def feed(self, piece: bytes) -> None:
        """Take bytes from the daemon; it is heard of, whatever they are."""
        self._heard = time.monotonic()
        for message in self._decoder.feed(piece, FROM_DAEMON):
            match message:
                case Begin():
                    self._lease = message.lease
                    self._spawn(self._live(message))
                case Stop():
                    self._spawn(self._stop(message))
                case Taken():
                    if message.said:
                        self._said_window.release()
                    for _ in range(message.lines):
                        self._window.release()
                case Close():
                    self._close.set()
                case Beat():
                    self._say(Beat(lease=self._lease))

    async def taken(self) -> bytes:
        """Return what is to be said, not all at once where that is much; nothing after some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TAKE_S):
                await self._ready.wait()
            # A call of Ray's takes milliseconds of the daemon's machine, and a line is rarely alone.
            await asyncio.sleep(_GATHER_S)
        said = bytearray()
        while self._out and len(said) < FRAME_BYTES:
            said += self._out.popleft()
        if not self._out:
            self._ready.clear()
        return bytes(said)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _say(self, message: FromNode) -> None:
        self._out.append(encode(message))
        self._ready.set()

    async def _live(self, begin: Begin) -> None:
        directory = self._paths.jobs / begin.job / str(begin.attempt)
        over = asyncio.create_task(self._until_over(begin))
        try:
            # A later attempt of the same name is the only one that the daemon knows of.
            await asyncio.to_thread(remove_earlier, self._paths, directory)
            (directory / "staging").mkdir(parents=True)
            with lock(directory / LOCK) as held:
                held.leave_note("held")
                await asyncio.to_thread(
                    guard, directory / LOCK, {**os.environ, FOLDER: str(self._paths.state)}
                )
                await self._within(begin, directory, over)
        except (ArtifactError, GitError, OSError, subprocess.SubprocessError) as error:
            remedy = error.remedy if isinstance(error, GitError) else "see `everlean status`"
            self._refuse("node", str(error), remedy, of_node=True)
        except StartError as error:
            self._refuse(error.reason, str(error), error.remedy, of_node=error.reason != "build_missing")
        except (
            Exception
        ) as error:  # the process border: an attempt that ends without a message would never end
            log.exception("attempt_defect", job=begin.job)
            self._refuse("node", f"{type(error).__name__}: {error}", "see `everlean status`", of_node=True)
        finally:
            over.cancel()
            await asyncio.to_thread(remove, self._paths, directory)

    def _refuse(self, reason: str, message: str, remedy: str, *, of_node: bool) -> None:
        message, remedy = message[:_TEXT], remedy[:_TEXT]
        self._say(Refused(lease=self._lease, reason=reason, message=message, remedy=remedy, of_node=of_node))

    async def _within(self, begin: Begin, directory: Path, over: asyncio.Task[None]) -> None:
        """Run the attempt, until its end is asked for: its folder is made and held."""
        git = Git(timeout_s=60.0)
        paths = replace(self._paths, own_mirrors=directory / "mirrors")
        preparing = asyncio.create_task(self._prepared(begin, directory, git, paths))
        await asyncio.wait({preparing, over}, return_when=asyncio.FIRST_COMPLETED)
        if not preparing.done():
            # What a thread still fetches ends with this process, which the daemon ends now.
            preparing.cancel()
            await asyncio.wait({preparing})
            self._say_end("closed", Exit(1, None, 0))
            return
        spec = preparing.result()
        engine = LocalEngine(paths, git, slots=1)
        order = Order(
            spec,
            begin.module,
            begin.memory_bytes,
            begin.whole_bytes,
            commit=None if begin.commit is None else Commit(**begin.commit.model_dump()),
            mirror=begin.mirror,
        )
        async with contextlib.aclosing(engine):
            attempt = await engine.start(
                order, over=lambda held: self._say(Fault(what="over", lease=self._lease, message=held))
            )
            self._attempt = attempt
            self._say(Started(lease=self._lease, pid=attempt.pid))
            whole = asyncio.create_task(self._run(attempt, spec))
            saying = asyncio.create_task(self._tail(spec.log, whole))
            both = asyncio.gather(whole, saying)
            either: set[asyncio.Future[Any]] = {both, over}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if both.done():
                    both.result()  # what failed here would never say an end
                await over
            finally:
                end = await attempt.close()
                # The daemon may be gone and never read the remaining lines.
                await asyncio.wait({whole, saying}, timeout=2.0)
                for task in (whole, saying):
                    task.cancel()
                await asyncio.gather(whole, saying, both, return_exceptions=True)
        await asyncio.to_thread(remove, self._paths, directory)
        self._say_end("closed", end.exit or Exit(1, None, 0), end.seen_bytes)

    def _say_end(self, what: Literal["ended", "closed"], end: Exit, seen_bytes: int = 0) -> None:
        self._say(
            Ended(
                what=what,
                lease=self._lease,
                status=end.status,
                signal=end.signal,
                peak_rss_bytes=end.peak_rss_bytes,
                seen_bytes=seen_bytes,
            )
        )

    async def _until_over(self, begin: Begin) -> None:
        """Wait until the daemon closes the attempt, or was not heard of for the length of its lease."""
        while (left_s := self._heard + begin.lease_s - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, left_s)):
                    await self._close.wait()
                    return
        self._unheard = True
        log.warning("daemon_not_heard", job=begin.job, seconds=begin.lease_s)

    async def _run(self, attempt: LocalAttempt, spec: JobSpec[Spec]) -> None:
        async def hear(raw: bytes) -> None:
            for payload in await asyncio.to_thread(_staged, spec.staging):
                await self._send(payload)
            await self._window.acquire()
            self._say(Plain(what="line", lease=self._lease, body=raw))

        try:
            end = await attempt.run(hear)
        except LineTooLongError as error:
            self._say(Fault(what="too_long", lease=self._lease, message=str(error)))
            return
        if self._unheard:
            return  # this node ended it, since it heard nothing of the daemon: the end says nothing of the job
        self._say_end("ended", end)

    async def _send(self, payload: Path) -> None:
        """Send a payload in parts and remove it."""
        with payload.open("rb") as file:
            last = False
            while not last:
                part = await asyncio.to_thread(file.read, PART_BYTES)
                last = len(part) < PART_BYTES
                await self._window.acquire()
                self._say(Payload(lease=self._lease, sha256=payload.name, last=last, body=part))
        await asyncio.to_thread(payload.unlink)

    async def _tail(self, path: Path, whole: asyncio.Task[None]) -> None:
        """Send what is written on standard error, until all of it is said after the end."""
        with path.open("rb") as file:
            while True:
                over = whole.done()
                part = await asyncio.to_thread(file.read, SAID_BYTES)
                if part:
                    await self._said_window.acquire()
                    self._say(Plain(what="said", lease=self._lease, body=part))
                elif over:
                    return
                else:
                    await asyncio.wait({whole}, timeout=_SAID_EVERY_S)

    async def _stop(self, stop: Stop) -> None:
        try:
            if self._attempt is not None:
                await self._attempt.stop(grace_s=stop.grace_s, first_alone=stop.first_alone)
        except Exception as error:
            # The process border: the daemon gives the attempt up, and this process is killed.
            log.exception("stop_defect")
            message = f"it cannot be stopped: {type(error).__name__}: {error}"
            self._refuse("node", message, "see `everlean status`", of_node=True)
        else:
            self._say(Plain(what="stopped", lease=self._lease))

    async def _prepared(self, begin: Begin, directory: Path, git: Git, paths: Paths) -> JobSpec[Spec]:
        """Bring what the attempt needs to this node; return its specification with the node's places.

        Raises:
            ArtifactError, GitError, OSError, StartError: something is not to be had here.
        """
        store = await asyncio.to_thread(Artifacts, begin.artifacts)
        repository = begin.mirror or (begin.commit.repository if begin.commit else "")
        if repository:
            mirror = paths.mirrors / f"{slug(repository)}.git"
            await git.ensure_mirror(mirror, sha256=begin.sha256)
            for pack in begin.packs:
                async with _alone(paths.packs / pack):
                    await _add_pack(git, mirror, store, pack, paths.packs / pack)
        await asyncio.to_thread(_sweep, paths, begin.cache_bytes)
        for tree in begin.trees:
            async with _alone(paths.packs / tree.sha256):
                await asyncio.to_thread(
                    _add_tree, store, paths.cache / tree.place, tree.sha256, directory / "tree.tar"
                )
        inputs = directory / "inputs"
        for one in begin.inputs:
            (inputs / one.name).parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(store.get, one.sha256, inputs / one.name)
        parameters = dict(begin.parameters)
        if begin.lean is not None:
            parameters["lean"] = asdict(await asyncio.to_thread(lean_like, begin.lean))
        if begin.journal:
            parameters["journal"] = str(paths.searches)
        return JobSpec(
            begin.job,
            begin.kind,
            begin.attempt,
            directory,
            _Carried.model_validate(parameters),
            inputs=Inputs(inputs, tuple(Input(one.name, one.sha256, one.size_bytes) for one in begin.inputs)),
        )


class _Carried(Spec, extra="allow"):
    """Parameters as they came: the job itself reads them as its kind's."""


def _staged(staging: Path) -> list[Path]:
    """Return the payloads that are whole."""
    return [path for path in sorted(staging.iterdir()) if len(path.name) == 64]


@contextlib.asynccontextmanager
async def _alone(content: Path) -> AsyncIterator[None]:
    """Let other attempts of this node wait, each a process of its own, that need the same content."""
    content.parent.mkdir(parents=True, exist_ok=True)
    with await asyncio.to_thread(lock, content.with_suffix(".lock")):
        yield


def _sweep(paths: Paths, most_bytes: int) -> None:
    """Remove what is long unused, or too much: of builds, packs and journals so many bytes each."""
    sweep(paths.cache, most_bytes)
    for folder in (paths.packs, paths.searches):
        sweep_files(folder.rglob("*"), most_bytes)


def _add_tree(store: Artifacts, folder: Path, digest: str, packed: Path) -> None:
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        store.get(digest, packed)
        unpack_folder(packed, folder)
        packed.unlink()


async def _add_pack(git: Git, mirror: Path, store: Artifacts, digest: str, kept: Path) -> None:
    """Put a pack into an attempt's own mirror; the node keeps it for others, by links: a sweep takes it from no one."""
    pack = mirror / "objects" / "pack" / f"pack-{digest[:40]}.pack"
    pack.parent.mkdir(parents=True, exist_ok=True)
    both = [(kept.with_suffix(end), pack.with_suffix(end)) for end in (".pack", ".idx")]
    try:
        for there, here in both:
            here.hardlink_to(there)
            os.utime(here)
    except FileNotFoundError:
        pack.unlink(missing_ok=True)
        await asyncio.to_thread(store.get, digest, pack)
        await git.index_pack(mirror, pack)
        for there, here in both:
            there.unlink(missing_ok=True)
            there.hardlink_to(here)

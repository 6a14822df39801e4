"""The engine `ray`: attempts on other machines too, through a child that speaks to Ray (`daemon.jobs.ray_link`).

The daemon's own machine stays a node. What needs a model, a GPU, a key or a file of the daemon's runs there, and what
is frozen or built. The rest (`daemon.jobs.due.DueJob.travels`) goes where a slot is free. An order that crosses names
commits, builds and inputs by their hash in a store (`daemon.jobs.artifacts`), has no other path of the daemon's, and a
lease of its own: a node that has not heard of the daemon for so long ends the attempt, and the daemon takes nothing
that comes with another lease, or after it has given an attempt up. Ray starts, carries and kills; it queues, retries
and decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar
from weakref import WeakValueDictionary

import structlog

from daemon.jobs.artifacts import ArtifactError, Artifacts, pack_folder
from daemon.jobs.engine import (
    Attempt,
    AttemptLostError,
    Commit,
    End,
    Node,
    NodeRefusedError,
    Order,
    StartError,
    refused_by_system,
)
from daemon.jobs.local import LocalEngine
from daemon.jobs.wire import (
    CONTROL,
    FROM_LINK,
    FROM_NODE,
    SCHEMA,
    WINDOW_LINES,
    Beat,
    Begin,
    Close,
    Decoder,
    Ended,
    Fault,
    FromDaemon,
    FromNode,
    Gone,
    Kill,
    Look,
    Nodes,
    NodeSeen,
    Open,
    Payload,
    Plain,
    Refused,
    Started,
    Stop,
    Taken,
    WireCommit,
    WireError,
    WireInput,
    WireLean,
    WireTree,
    encode,
    framed,
    frames,
    program_version,
)
from daemon.paths import Paths
from daemon.polling.errors import GitError
from daemon.polling.git import Git
from daemon.settings import Settings
from pipeline.jobs import child
from pipeline.jobs.child import Exit, LineTooLongError, job_environment
from pipeline.jobs.spec import folders_of
from pipeline.jobs.specs import ScanSpec
from pipeline.lean.backend import LeanBackend, Leans
from pipeline.lean.build.build_cache import folder_of, hold, read_build, remove_tree
from store.backoff import Backoff
from store.domain.identity import slug
from store.files import Lock, sync

_CLOCK_S = 60.0
_FIRST_WORD_S = 60.0
"""So long a process may take to start on a busy node; nothing of the job's has begun there before."""
_MOST_UNASKED = 4
"""What a node may say of itself: that it holds too much memory, its end, that it cannot go on, that nothing is left."""
MOST_SAID_BYTES = 64 * 2**20
"""Of an attempt's standard error so much is kept: it is written on the event loop."""
_LINK_ENDS_S = 5.0
_REFUSED_S = 60.0
_SWEEP_EVERY_S = 24 * 3600.0
_RELINK = Backoff(1.0, 60.0)
_HOMES = ("lean", "journal")
"""Fields of parameters that are places of this machine, of which a node has its own."""

_T = TypeVar("_T")

log = structlog.get_logger("daemon.jobs.remote")


class RemoteAttempt:
    """An attempt on another machine, as this one hears of it.

    Args:
        send: gives bytes to the node.
        directory: the attempt's folder here: its standard error and its payloads are put there.
        release: ends what is left of it in the cluster.
    """

    def __init__(
        self,
        node: str,
        order: Order,
        *,
        lease: str,
        lease_s: float,
        send: Callable[[FromDaemon], None],
        over: Callable[[str], None],
        release: Callable[[], None],
    ) -> None:
        self.pid = 0
        self.order = order
        self._node, self._spec, self._lease, self._lease_s = node, order.spec, lease, lease_s
        self._send, self._over, self._release = send, over, release
        self._decoder = Decoder()
        self._heard = time.monotonic()
        self._patience_s = max(lease_s, _FIRST_WORD_S)
        self._lines: asyncio.Queue[Plain | Payload | Ended | Fault | None] = asyncio.Queue()
        self._not_taken = self._not_told = 0
        self._unasked = _MOST_UNASKED
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[Started | Refused] = loop.create_future()
        self._closed: asyncio.Future[Ended] = loop.create_future()
        self._stopped = asyncio.Event()
        self._stops = 0
        self._lost = asyncio.Event()
        self._closing = self._is_closed = False
        self._fault: Exception | None = None
        self._exit: Exit | None = None
        self._said: IO[bytes] | None = None
        self._room_bytes = MOST_SAID_BYTES
        self._payload: tuple[str, IO[bytes]] | None = None
        self._beating = asyncio.create_task(self._beat())

    # --- what comes ---------------------------------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        """Take bytes of the node; nothing once the attempt is closed."""
        if self._is_closed:
            return
        self._heard, self._patience_s = time.monotonic(), self._lease_s
        try:
            for message in self._decoder.feed(piece, FROM_NODE):
                if message.lease != self._lease:
                    log.warning("lease_is_over", node=self._node, job=self._spec.job, what=message.what)
                elif breach := self._breach(message):
                    self.lose(breach)
                else:
                    self._take(message)
        except WireError as error:
            self.lose(f"it says what is no message: {error}")
        except OSError as error:
            # The disk of this machine: `run` has to say so.
            self._fault = error
            self._lines.put_nowait(None)

    def _take(self, message: FromNode) -> None:
        match message:
            case Started() | Refused():
                if not self._started.done():
                    self._started.set_result(message)
                    if isinstance(message, Refused):
                        self._closed.cancel()  # nothing of it is left there, and no end comes
                elif isinstance(message, Refused):
                    self.lose(message.message)
            case Plain(what="line") | Payload() | Ended(what="ended") | Fault(what="too_long"):
                self._lines.put_nowait(message)
            case Plain(what="said"):
                self._write_said(message.body)
                self._send(Taken(said=True))
            case Fault():
                self._over(message.message)
            case Plain():
                self._stopped.set()
            case Ended():
                if not self._closing:
                    self.lose("it has ended the attempt, for it had not heard of the daemon", suspect=False)
                elif not self._closed.done():
                    self._closed.set_result(message)
                    self._lines.put_nowait(None)
            case Beat():
                pass

    def _write_said(self, body: bytes) -> None:
        """Add to the standard error; what is beyond its bound is dropped, and one line says so."""
        if self._said is None:
            self._said = self._spec.log.open("ab")
        room, self._room_bytes = self._room_bytes, max(self._room_bytes - len(body), -1)
        if room >= 0:
            self._said.write(body[:room])
            if self._room_bytes < 0:
                self._said.write(b"\neverlean: no more than %d MiB are kept\n" % (MOST_SAID_BYTES // 2**20))
            self._said.flush()

    def _breach(self, message: FromNode) -> str:
        """Count what a node sends; return what is too much of it, "" for nothing."""
        match message:
            case Plain(what="said"):
                return ""
            case Plain(what="line") | Payload():
                self._not_taken += 1
                over = self._not_taken > WINDOW_LINES
                return f"it sent more than {WINDOW_LINES} lines before they were taken" if over else ""
            case _:
                self._unasked -= 1
                return "it says what it was not asked" if self._unasked < 0 else ""

    def lose(self, reason: str, *, suspect: bool = True) -> None:
        """Give the attempt up: from now on nothing of it is taken.

        Args:
            suspect: see `AttemptLostError`.
        """
        if self._lost.is_set() or self._closed.done():
            return
        self._fault = AttemptLostError(f"{self._node} was lost: {reason}", suspect=suspect)
        self._lost.set()
        self._stopped.set()
        self._lines.put_nowait(None)
        for future in (self._started, self._closed):
            if not future.done():
                future.cancel()

    @property
    def lost(self) -> str:
        """Why it was given up; "" where it was not."""
        return str(self._fault) if self._lost.is_set() else ""

    async def _beat(self) -> None:
        while not self._lost.is_set():
            await asyncio.sleep(self._lease_s / 4)
            silent_s = time.monotonic() - self._heard
            if silent_s > self._patience_s:
                self.lose(f"it has not answered for {silent_s:.0f} s")
            else:
                self._ask(Beat())

    # --- what the runner asks -----------------------------------------------------------------------------

    async def begin(self, begin: Begin) -> None:
        """Have it started.

        Raises:
            StartError: it could not be.
        """
        self._ask(begin)
        try:
            said = await self._started
        except asyncio.CancelledError:
            if self._fault is None:
                raise
            remedy = "it is tried again, elsewhere if it can be"
            suspect = isinstance(self._fault, AttemptLostError) and self._fault.suspect
            raise NodeRefusedError("node_lost", str(self._fault), remedy, suspect=suspect) from self._fault
        if isinstance(said, Refused):
            kind = NodeRefusedError if said.of_node else StartError
            raise kind(said.reason, f"{self._node}: {said.message}", said.remedy)
        self.pid = said.pid

    async def run(self, hear: Callable[[bytes], Awaitable[None]]) -> Exit:
        """See `daemon.jobs.engine.Attempt.run`."""
        while (message := await self._lines.get()) is not None:
            match message:
                case Plain(body=raw):
                    if len(raw) > child.LONGEST_LINE_BYTES:
                        raise LineTooLongError(f"a line of {len(raw)} bytes")
                    if self._lost.is_set():
                        break
                    await hear(raw)
                    self._taken()
                case Payload():
                    await asyncio.to_thread(self._put, message)
                    self._taken()
                case Ended():
                    by_term = signal.SIGTERM in (message.signal, message.status - 128)
                    if by_term and not self._stops and not self._closing:
                        # Nobody else ends it so: a machine that is drained, or shuts down.
                        raise AttemptLostError(
                            f"{self._node}: it got SIGTERM there, as from a node that is shut down",
                            suspect=False,
                        )
                    self._exit = _exit_of(message)
                    return self._exit
                case Fault():
                    raise LineTooLongError(message.message)
        if self._closed.done() and not self._closed.cancelled():
            return _exit_of(self._closed.result())
        assert self._fault is not None
        raise self._fault

    def _taken(self) -> None:
        """Count a line or part as taken, and tell the node of several at once: each message is a call of Ray's."""
        self._not_told += 1
        if self._not_told >= WINDOW_LINES // 2:
            self._tell_taken()

    def _tell_taken(self) -> None:
        taken, self._not_told = self._not_told, 0
        self._not_taken -= taken
        self._send(Taken(lines=taken))

    def _ask(self, message: FromDaemon) -> None:
        """Send what a node answers with one message."""
        self._unasked += 1
        self._send(message)

    def _put(self, part: Payload) -> None:
        """Add a part to a payload; the last gives it its name.

        Raises:
            AttemptLostError: it is not what it is named by.
            OSError: the disk refused.
        """
        new = self._spec.staging / f"{part.sha256}.new"
        if self._payload is None or self._payload[0] != part.sha256:
            self._payload = part.sha256, new.open("wb")
        file = self._payload[1]
        file.write(part.body)
        if part.last:
            file.close()
            sync(new)
            self._payload = None
            with new.open("rb") as whole:
                found = hashlib.file_digest(whole, "sha256").hexdigest()
            if found != part.sha256:
                raise AttemptLostError(
                    f"{self._node} sent a payload whose SHA-256 is another than its name", suspect=True
                )
            new.rename(self._spec.staging / part.sha256)

    async def stop(self, *, grace_s: float, first_alone: bool = False) -> None:
        """See `daemon.jobs.engine.Attempt.stop`."""
        if not self._lost.is_set():
            self._stops += 1
            self._stopped.clear()
            self._ask(Stop(grace_s=grace_s, first_alone=first_alone))
            stopped = asyncio.create_task(self._stopped.wait())
            try:
                await self._wait(stopped, "stopped it", after_s=grace_s)
            finally:
                stopped.cancel()

    async def _wait(self, done: asyncio.Future[Any], what: str, *, after_s: float = 0.0) -> None:
        """Wait for what the node was asked for; where its disk hangs, it answers beats and never says it."""
        limit_s = after_s + max(self._lease_s, _FIRST_WORD_S)
        if not (await asyncio.wait({done}, timeout=limit_s))[0]:
            self.lose(f"it has not {what} after {limit_s:.0f} s", suspect=False)

    async def close(self) -> End:
        """See `daemon.jobs.engine.Attempt.close`."""
        # What was said of the process stands, also where the node is lost before it says that nothing is left.
        end = End(self._exit, None, 0)
        self._closing = True
        try:
            if not self._lost.is_set():
                self._ask(Close())
                # It is cancelled where the node is lost meanwhile.
                await self._wait(self._closed, "tidied up")
                if not self._closed.cancelled():
                    said = self._closed.result()
                    end = End(_exit_of(said), None, said.seen_bytes)
        finally:
            self._is_closed = True
            self._beating.cancel()
            self._release()
            for file in (self._said, self._payload and self._payload[1]):
                if file is not None:
                    file.close()
        return end


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Close a link's input, by which it ends; kill it after some seconds."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_LINK_ENDS_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _exit_of(said: Ended) -> Exit:
    return Exit(said.status, said.signal, said.peak_rss_bytes)


@dataclass(frozen=True, slots=True)
class _Refusal:
    until: float
    why: str


class RayEngine:
    """This machine and the nodes of a Ray cluster. Every method belongs to the event loop's thread.

    Args:
        local: runs what stays here.
        settings: those in force; of them [engine] and the folders never change.
        leans: what can run Lean here now: a node that lacks some of it gets no jobs.
    """

    def __init__(
        self, local: LocalEngine, settings: Callable[[], Settings], git: Git, *, leans: Callable[[], Leans]
    ) -> None:
        self._local = local
        self._settings = settings
        self._engine = settings().engine
        self._paths: Paths = settings().paths
        self._git = git
        self._leans = leans
        self._folder = self._paths.runtime / "ray"
        self._artifacts_url = settings().artifacts
        self._artifacts: Artifacts | None = None
        self._swept = -math.inf
        # Two of its own: gigabytes that go to a store must not keep the daemon's other work from a thread.
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="artifacts")
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._starts: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By node, as many as it has cores: more starts at a time would only delay each other."""
        self._nodes: tuple[NodeSeen, ...] = ()
        self._nodes_at = 0.0
        self._looked: Look | None = None
        self._problem = "the cluster was not asked yet"
        self._refusals: dict[str, _Refusal] = {}
        self._attempts: dict[int, RemoteAttempt] = {}
        self._channel = CONTROL
        self._writer: asyncio.StreamWriter | None = None
        self._linking: asyncio.Task[None] | None = None

    @property
    def slots(self) -> int:
        """See `daemon.jobs.engine.Engine.slots`."""
        return self._local.slots

    @slots.setter
    def slots(self, slots: int) -> None:
        self._local.slots = slots

    @property
    def now(self) -> tuple[Node, ...]:
        """See `daemon.jobs.engine.Engine.now`."""
        others = [Node(one.name, one.slots, (), one.node, self._why_not(one)) for one in self._nodes]
        if self._problem:
            others = [Node(self._engine.address, 0, (), "none", self._problem)]
        return (*self._local.now, *others)

    async def nodes(self, lent: Mapping[str, str]) -> tuple[Node, ...]:
        """See `daemon.jobs.engine.Engine.nodes`."""
        if self._linking is None:
            self._linking = asyncio.create_task(self._keep_linked(), name="ray-link")
        self._ask()
        await self._local.nodes(lent)
        return self.now

    async def reap(self, directory: Path) -> int:
        """See `daemon.jobs.engine.Engine.reap`. A node ends what it has by itself: no daemon holds its lease."""
        return await self._local.reap(directory)

    async def aclose(self) -> None:
        """See `daemon.jobs.engine.Engine.aclose`."""
        if self._linking is not None:
            self._linking.cancel()
            await asyncio.gather(self._linking, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)
        await self._local.aclose()

    async def start(self, order: Order, *, over: Callable[[str], None]) -> Attempt:
        """See `daemon.jobs.engine.Engine.start`."""
        if not order.node:
            return await self._local.start(order, over=over)
        lease = secrets.token_hex(16)
        try:
            begin = await self._begin(order, lease)
        except ArtifactError as error:
            for node in self._nodes:
                self._refuse(node.node, str(error))
            raise NodeRefusedError("artifacts", str(error), "see [engine] artifacts") from error
        except GitError as error:
            raise StartError("worktree", str(error), error.remedy) from error
        except OSError as error:
            raise refused_by_system(order.spec.job, error, self._paths.jobs) from error
        cores = next((one.report.cores for one in self._nodes if one.node == order.node and one.report), 1)
        starts = self._starts.setdefault(order.node, asyncio.Semaphore(cores))
        async with starts:
            return await self._begun(order, begin, over)

    async def _begun(self, order: Order, begin: Begin, over: Callable[[str], None]) -> RemoteAttempt:
        self._channel += 1
        channel, name = self._channel, self._name(order.node)
        self._control(Open(channel=channel, node=order.node))
        attempt = RemoteAttempt(
            name,
            order,
            lease=begin.lease,
            lease_s=begin.lease_s,
            send=lambda message: self._write(channel, encode(message)),
            over=over,
            release=lambda: self._forget(channel),
        )
        self._attempts[channel] = attempt
        if self._writer is None:
            attempt.lose(self._problem, suspect=False)
        try:
            await attempt.begin(begin)
        except BaseException as error:
            if isinstance(error, NodeRefusedError):
                self._refuse(order.node, str(error))
            await asyncio.shield(attempt.close())
            raise
        return attempt

    # --- nodes --------------------------------------------------------------------------------------------

    def _name(self, node: str) -> str:
        return next((one.name for one in self._nodes if one.node == node), node)

    def _refuse(self, node: str, why: str) -> None:
        self._refusals[node] = _Refusal(time.monotonic() + _REFUSED_S, why)

    def _why_not(self, seen: NodeSeen) -> str:
        """Return why a node gets no jobs; "" where it does."""
        refusal = self._refusals.get(seen.node)
        if refusal is not None and time.monotonic() < refusal.until:
            return f"{refusal.why}; it is asked again in a minute"
        report = seen.report
        if report is None:
            return seen.problem
        ours = program_version()
        if (report.version, report.schema_version) != (ours, SCHEMA):
            return f"it has {report.version}, and the daemon {ours}; install the same version on both"
        if report.problems:
            return "; ".join(report.problems)
        if abs(report.clock - self._nodes_at) > _CLOCK_S:
            return f"its clock is {abs(report.clock - self._nodes_at):.0f} s off; set it (NTP)"
        missing = self._wanted() - set(report.leans)
        if missing:
            lacks = ", ".join(sorted(f"{toolchain or 'any'} ({kind})" for kind, toolchain in missing))
            return f"it lacks Lean that the daemon's machine has: {lacks}; install it there"
        return ""

    def _wanted(self) -> set[tuple[str, str]]:
        leans = self._leans()
        return {
            (one.kind, one.toolchain)
            for one in (leans.builds if leans.fixed is None else (leans.fixed,))
            if one.kind != "none"
        }

    # --- the link -----------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Say what is asked of nodes, where that is another thing than before."""
        lean = self._settings().lean
        look = Look(
            lean=WireLean(
                kind="server",
                toolchain="",
                sandbox="bubblewrap" if lean.sandbox != "none" else "none",
                as_root=lean.as_root,
            ),
            artifacts=self._artifacts_url,
        )
        if self._writer is not None and look != self._looked:
            self._looked = look
            self._control(look)

    def _control(self, message: Look | Open | Kill) -> None:
        self._write(CONTROL, message.model_dump_json().encode())

    def _write(self, channel: int, content: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(framed(channel, content))

    def _forget(self, channel: int) -> None:
        attempt = self._attempts.pop(channel, None)
        if attempt is not None:
            self._control(Kill(channel=channel))
            if attempt.lost:
                # It may be in the list for some seconds more.
                self._refuse(attempt.order.node, attempt.lost)

    async def _keep_linked(self) -> None:
        """Keep the link up: where it ends, what it carried is lost, and another one is started."""
        failures = 0
        while True:
            began = time.monotonic()
            try:
                reason = await self._linked()
            except OSError as error:
                reason = f"the process that speaks to it cannot be started: {error}"
            except ArtifactError as error:
                reason = f"artifacts: {error}"
            except ValueError as error:
                reason = f"what it says cannot be read: {str(error)[:300]}"
            self._writer, self._nodes, self._looked = None, (), None
            self._problem = f"no Ray cluster at {self._engine.address}: {reason}; it is tried again"
            for attempt in list(self._attempts.values()):
                attempt.lose(f"the cluster is gone: {reason}", suspect=False)
            log.warning("ray_lost", reason=reason)
            # A link that has held for a while did not fail to come up.
            failures = 1 if time.monotonic() - began > _RELINK.longest_s else failures + 1
            await asyncio.sleep(_RELINK.wait_s(failures))

    async def _linked(self) -> str:
        """Start a link and take what it says until it ends; return why it did.

        Raises:
            OSError: it cannot be started.
            ArtifactError: nothing can be put for the nodes.
        """
        engine = self._engine
        await self._store()
        self._folder.mkdir(parents=True, exist_ok=True)
        output = self._folder / "link.log"
        environment = job_environment(self._folder) | {
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            **({"RAY_AUTH_TOKEN_PATH": str(engine.token_file)} if engine.token_file else {}),
        }
        with output.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "daemon.jobs.ray_link",
                engine.address,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        try:
            assert process.stdout is not None
            self._writer = process.stdin
            self._ask()
            async for channel, content in frames(process.stdout):
                if channel != CONTROL:
                    if channel in self._attempts:
                        self._attempts[channel].feed(content)
                    continue
                match FROM_LINK.validate_json(content):
                    case Nodes(nodes=nodes):
                        if {one.node for one in nodes} != {one.node for one in self._nodes}:
                            log.info("ray_nodes", nodes=[one.name for one in nodes])
                        self._nodes, self._nodes_at, self._problem = nodes, time.time(), ""
                    case Gone() as gone if gone.channel in self._attempts:
                        self._attempts[gone.channel].lose(gone.reason, suspect=gone.suspect)
        finally:
            await _ended(process)
        words = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return words[-1][:300] if words else f"the process that speaks to it ended with {process.returncode}"

    # --- the order ----------------------------------------------------------------------------------------

    async def _begin(self, order: Order, lease: str) -> Begin:
        """Put what an order needs into the store; return it without a path of this machine, except the store's.

        Raises:
            ArtifactError, GitError, OSError, StartError: something of it is not to be had.
        """
        spec, commit = order.spec, order.commit
        left = [name for name in folders_of(spec.parameters) if name.partition(".")[0] not in _HOMES]
        if left or order.key is not None or order.gpu is not None:
            raise StartError(
                "stays",
                f"{spec.job} needs {', '.join(left) or 'a key or a GPU'} of the daemon's machine",
                "report this as a defect",
            )
        parameters = json.loads(spec.parameters.model_dump_json())
        parameters.pop("lean", None)
        journal = parameters.pop("journal", None) is not None
        lean = getattr(spec.parameters, "lean", None)
        packs, trees = await self._put(order)
        return Begin(
            lease=lease,
            lease_s=self._engine.lease_s,
            artifacts=self._artifacts_url,
            job=spec.job,
            kind=spec.kind,
            attempt=spec.attempt,
            module=order.module,
            memory_bytes=order.memory_bytes,
            whole_bytes=order.whole_bytes,
            cache_bytes=self._settings().cache.size_bytes,
            commit=None if commit is None else WireCommit(**asdict(commit)),
            mirror=order.mirror,
            packs=packs,
            sha256=len(getattr(spec.parameters, "sha", "") if commit is None else commit.sha) == 64,
            inputs=tuple(
                WireInput(name=one.name, sha256=one.sha256, size_bytes=one.size_bytes)
                for one in spec.inputs.files
            ),
            trees=trees,
            lean=_wire(lean, as_root=self._settings().lean.as_root)
            if isinstance(lean, LeanBackend)
            else None,
            journal=journal,
            parameters=parameters,
        )

    async def _off(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Do on a thread what may take minutes."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    async def _store(self) -> Artifacts:
        """Return the store, swept once a day.

        Raises:
            ArtifactError: it cannot be opened, written or swept.
        """
        if self._artifacts is None:
            self._artifacts = await self._off(Artifacts, self._artifacts_url)
        if time.monotonic() - self._swept > _SWEEP_EVERY_S:
            await self._off(self._artifacts.mark)
            self._swept = time.monotonic()
            await self._off(self._artifacts.sweep, self._settings().cache.size_bytes)
        return self._artifacts

    async def _put(self, order: Order) -> tuple[tuple[str, ...], tuple[WireTree, ...]]:
        """Put contents that are not there."""
        store, spec, commit = await self._store(), order.spec, order.commit
        for one in spec.inputs.files:
            if not await self._off(store.has, one.sha256):
                await self._off(store.put, spec.inputs.folder / one.name)
        packs: list[str] = []
        repository = order.mirror or (commit.repository if commit else "")
        if repository:
            mirror = self._paths.mirrors / f"{slug(repository)}.git"
            shas = [commit.sha] if commit else await self._commits(spec.parameters, mirror)
            name = f"commits {repository} {' '.join(shas)}"
            packs.append(await self._named(store, name, order, partial(self._git.pack, mirror, shas)))
        trees: list[WireTree] = []
        if commit is not None and commit.built:
            trees = await self._build(store, order, commit)
        return tuple(packs), tuple(trees)

    async def _named(
        self, store: Artifacts, name: str, order: Order, make: Callable[[Path], Awaitable[Path]]
    ) -> str:
        """Return the SHA-256 of the content of a thing, made and put once: whoever needs the same waits for that.

        Args:
            make: makes the file in an empty folder and returns it.
        """
        lock = self._making.setdefault(name, asyncio.Lock())
        async with lock:
            if found := await self._off(store.named, name):
                return found
            folder = order.spec.directory / "artifacts"
            folder.mkdir(parents=True)
            try:
                return await self._off(store.put_named, name, await make(folder))
            finally:
                await self._off(remove_tree, folder)

    async def _commits(self, scan: object, mirror: Path) -> list[str]:
        """Return the commits that a scan reads and the mirror has."""
        assert isinstance(scan, ScanSpec)
        shas = [scan.sha, *scan.then]
        if scan.base is not None and await self._git.has_commit(mirror, scan.base):
            shas.append(scan.base)
        return shas

    async def _build(self, store: Artifacts, order: Order, commit: Commit) -> list[WireTree]:
        """Put a commit's build and its packages.

        Raises:
            StartError: they were swept away since the plan was made.
        """
        cache = self._paths.cache.absolute()
        folder = folder_of(cache, commit.key)
        held: list[Lock] = []
        try:
            build = read_build(folder) if await self._off(hold, folder, held) else None
            packages = cache / "dependencies" / build.dependencies if build and build.dependencies else None
            if build is None or (packages is not None and not await self._off(hold, packages, held)):
                message = f"{commit.repository} at {commit.sha}: its build is not in {cache} any more"
                raise StartError("build_missing", message, "nothing: it is built again")
            folders = {folder: f"build {' '.join(filter(None, commit.key))} {build.built_at}"}
            if packages is not None:
                folders[packages] = f"packages {build.dependencies}"

            async def tar(tree: Path, place: Path) -> Path:
                return await self._off(pack_folder, tree, place / "tree.tar")

            return [
                WireTree(
                    place=str(one.relative_to(cache)),
                    sha256=await self._named(store, name, order, partial(tar, one)),
                )
                for one, name in folders.items()
            ]
        finally:
            for one in held:
                one.release()


def _wire(lean: LeanBackend, *, as_root: bool) -> WireLean:
    return WireLean(
        kind=lean.kind,
        toolchain=lean.toolchain,
        sandbox=lean.sandbox,
        start_timeout_s=lean.start_timeout_s,
        as_root=as_root,
    )

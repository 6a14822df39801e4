"""The process that speaks to the Ray cluster: `python -m daemon.jobs.ray_link ADDRESS`, a child of the daemon.

Ray ends the process that uses it when it loses the cluster's head, so this one is not the daemon. It starts an actor
for each attempt on the node that the daemon names, never more than fit, carries bytes both ways (`daemon.jobs.wire`),
and says every few seconds which nodes there are. It knows no attempt and no message of theirs. It ends with its
standard input; Ray then ends its actors.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from daemon.jobs.node import Carrier, Keeper
from daemon.jobs.wire import (
    CONTROL,
    FRAME_BYTES,
    REPLY_BYTES,
    TO_LINK,
    Gone,
    Kill,
    Look,
    NodeReport,
    Nodes,
    NodeSeen,
    Open,
    WireError,
    framed,
    frames,
)
from pipeline.jobs.protocol import end_with_the_daemon
from store.text import first_line

SLOTS = "everlean"
"""The resource of Ray by which a node says how many jobs it takes: `ray start --resources '{"everlean": 8}'`."""
LOOK_EVERY_S = 5.0
_REPORT_S = 30.0
_MOST_SAID_BYTES = 3 * FRAME_BYTES
"""A node stops at one frame of messages, of which the last may be as long as another."""
_LEAVES_LOOKS = 10
_LEFT = (1, 3, 4)
"""Of Ray's `NodeDeathInfo.Reason`: it ended as it was told, or was drained (preempted, idle)."""


class Link:
    """The channels of one daemon."""

    def __init__(self, ray: Any, out: asyncio.StreamWriter) -> None:
        self._ray = ray
        self._out = out
        self._look: asyncio.Queue[bytes] = asyncio.Queue()
        self._actors: dict[type, Any] = {}
        self._channels: dict[int, asyncio.Queue[bytes]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._keepers: dict[str, Any] = {}
        self._asked: dict[str, asyncio.Future[bytes]] = {}
        self._reports: dict[str, NodeReport | str] = {}

    async def serve(self, given: asyncio.StreamReader) -> None:
        """Carry until the daemon closes its end."""
        both = {asyncio.create_task(self._hear(given)), asyncio.create_task(self._look_around())}
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            tasks = (*both, *self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _hear(self, given: asyncio.StreamReader) -> None:
        async for channel, content in frames(given):
            if channel != CONTROL:
                if channel in self._channels:
                    self._channels[channel].put_nowait(content)
                continue
            match TO_LINK.validate_json(content):
                case Look():
                    self._look.put_nowait(content)
                case Open() as opened:
                    self._channels[opened.channel] = asyncio.Queue()
                    work = self._carry(opened.channel, opened.node)
                    self._tasks[opened.channel] = asyncio.create_task(work)
                case Kill() as kill:
                    if kill.channel in self._tasks:
                        self._tasks[kill.channel].cancel()

    async def _write(self, channel: int, content: bytes) -> None:
        self._out.write(framed(channel, content))
        await self._out.drain()

    def _actor(self, cls: type, node: str, slots: int) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if cls not in self._actors:
            self._actors[cls] = self._ray.remote(cls)  # each of these is sent to the cluster anew
        return (
            self._actors[cls]
            .options(
                num_cpus=0,
                resources={SLOTS: slots} if slots else None,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                max_restarts=0,
                max_task_retries=0,
                # Ray's own variables only; nothing of the daemon's crosses.
                runtime_env={},
            )
            .remote()
        )

    async def _carry(self, channel: int, node: str) -> None:
        """Carry one attempt's bytes, both ways, until it is killed or lost."""
        reason, suspect = "it was ended", False
        actor = None
        try:
            actor = self._actor(Carrier, node, 1)
            both = (self._give(channel, actor), self._take(channel, actor))
            tasks = {asyncio.create_task(one) for one in both}
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except Exception as error:  # noqa: BLE001 - the border of an attempt: whatever ends it, the daemon is told
            reason = first_line(error)
            suspect = isinstance(error, self._ray.exceptions.ActorDiedError) and not await self._left(node)
        finally:
            del self._channels[channel], self._tasks[channel]
            if actor is not None:
                self._ray.kill(actor, no_restart=True)
            gone = Gone(channel=channel, reason=reason, suspect=suspect)
            await self._write(CONTROL, gone.model_dump_json().encode())

    async def _give(self, channel: int, actor: Any) -> None:
        while True:
            await actor.give.remote(await self._channels[channel].get())

    async def _take(self, channel: int, actor: Any) -> None:
        while True:
            if said := await actor.take.remote():
                if len(said) > _MOST_SAID_BYTES:
                    raise WireError(f"it said {len(said)} bytes at once")
                await self._write(channel, said)

    async def _left(self, node: str) -> bool:
        """Return whether a node has left the cluster by itself: shut down or drained, and not killed."""
        for _ in range(_LEAVES_LOOKS):
            for about in await asyncio.to_thread(self._ray.nodes):
                if about["NodeID"] == node and not about["Alive"]:
                    return about["DeathReason"] in _LEFT
            await asyncio.sleep(0.5)  # its processes may end before it does
        return False

    async def _look_around(self) -> None:
        look = await self._look.get()
        while True:
            while not self._look.empty():
                look = self._look.get_nowait()
            alive = {
                one["NodeID"]: one
                for one in await asyncio.to_thread(self._ray.nodes)
                if one["Alive"] and one["Resources"].get(SLOTS)
            }
            for gone in [node for node in self._keepers if node not in alive]:
                del self._keepers[gone]
                self._asked.pop(gone, None)
                self._reports.pop(gone, None)
            await asyncio.gather(*(self._ask(node, look) for node in alive))
            nodes = Nodes(nodes=tuple(self._seen(node, about) for node, about in alive.items()))
            await self._write(CONTROL, nodes.model_dump_json().encode())
            await asyncio.sleep(LOOK_EVERY_S)

    async def _ask(self, node: str, look: bytes) -> None:
        try:
            if node not in self._keepers:
                self._keepers[node] = self._actor(Keeper, node, 0)
            if node not in self._asked:
                self._asked[node] = asyncio.ensure_future(self._keepers[node].report.remote(look))
            done, _ = await asyncio.wait({self._asked[node]}, timeout=_REPORT_S)
            if not done:
                # It may be busy, or still starting. Another question would have to wait for the answer to this one.
                self._reports[node] = f"it has not said for {_REPORT_S:.0f} s what it is; it is waited for"
                return
            said = self._asked.pop(node).result()
            if len(said) > REPLY_BYTES:
                raise WireError(f"{len(said)} bytes")
            self._reports[node] = NodeReport.model_validate_json(said)
        except (self._ray.exceptions.RayError, ValueError) as error:
            self._keepers.pop(node, None)
            first = first_line(error)
            self._reports[node] = f"it cannot say what it is: {first}; install the daemon's version there"

    def _seen(self, node: str, about: Any) -> NodeSeen:
        report = self._reports[node]
        found = report if isinstance(report, NodeReport) else None
        return NodeSeen(
            node=node,
            name=f"{about['NodeManagerHostname']} ({node[:8]})",
            slots=int(about["Resources"][SLOTS]),
            report=found,
            problem="" if found is not None else str(report),
        )


async def _main(address: str) -> None:
    import ray

    out_fd = os.dup(1)
    os.dup2(2, 1)  # the pipe belongs to the frames; whatever Ray prints goes to the log
    ray.init(address=address, log_to_driver=False, namespace="everlean", configure_logging=False)
    loop = asyncio.get_running_loop()
    given = asyncio.StreamReader(limit=2**20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(given), os.fdopen(0, "rb"))
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(out_fd, "wb")
    )
    await Link(ray, asyncio.StreamWriter(transport, protocol, None, loop)).serve(given)
    ray.shutdown()


if __name__ == "__main__":
    end_with_the_daemon()
    asyncio.run(_main(*sys.argv[1:]))

"""The poller of `benchmarks/poll.py`, a process: `python -m benchmarks.poll_poller config.toml`.

It is the daemon's polling and nothing else of the daemon. Reads a word a line: `round` asks every repository
once and answers with the cost for this process and its git processes.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

import psutil

from daemon.place.logs import configure
from daemon.polling.branch_diff import watchlist_events
from daemon.polling.git import Git
from daemon.polling.github import Forge
from daemon.polling.poller import Poller
from daemon.polling.schedule import PollScheduler
from daemon.settings import load
from daemon.state.context import Context
from daemon.state.store_service import StoreService
from store.view import queries


async def serve(config: Path) -> None:
    """Answer until standard input ends."""
    settings = load(config)
    configure(level="warning", log_format="json", secrets=tuple)
    settings.paths.state.mkdir(parents=True, exist_ok=True)
    store = await StoreService.open(settings.paths)
    forge = Forge()
    forge.connect(settings)
    git = Git(timeout_s=settings.poll.timeout_s, token=forge.token_for)
    poller = Poller(store=store, git=git, github=forge.github, paths=settings.paths)
    context = Context(settings)

    elapsed_s = 0.0
    polls = PollScheduler(
        poller,
        context,
        elapsed=lambda: elapsed_s,
    )
    await store.append(watchlist_events(settings.repos, await store.ask(queries.repositories)))
    process = psutil.Process()
    while await asyncio.to_thread(sys.stdin.readline):
        began, own, gits = (
            time.perf_counter(),
            process.cpu_times(),
            resource.getrusage(resource.RUSAGE_CHILDREN),
        )
        # The time at which all are due again, and their waits for one another.
        elapsed_s += settings.poll.slowest_s * 2
        while not (begun := context.tasks("poll:")):
            await polls.tick()
            elapsed_s += 60.0
        await asyncio.gather(*begun)
        seconds = time.perf_counter() - began
        if problems := context.problems.texts():
            raise SystemExit(f"polls failed: {problems}")
        now, gits_now = process.cpu_times(), resource.getrusage(resource.RUSAGE_CHILDREN)
        outcomes = [row.poll_outcome for row in await store.ask(queries.repositories)]
        answer = {
            "seconds": seconds,
            "cpu_s": now.user + now.system - own.user - own.system,
            "git_cpu_s": round(gits_now.ru_utime + gits_now.ru_stime - gits.ru_utime - gits.ru_stime, 3)
            + 0.0,
            "rss_mib": process.memory_info().rss / 2**20,
            "changed": outcomes.count("changed"),
            "unchanged": outcomes.count("unchanged"),
        }
        print(json.dumps(answer), flush=True)
    if forge.github is not None:
        await forge.github.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))

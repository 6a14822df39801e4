"""State shared by the parts of the daemon: settings in force, known problems, requests to the main loop,
tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from daemon.settings import Settings


class Problems:
    """The daemon's present problems, by code; `status`, `/health` and the metrics show them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def set(self, code: str, text: str) -> bool:
        """Set the problem of this code; return whether that is news."""
        news = self._texts.get(code) != text
        self._texts[code] = text
        return news

    def clear(self, code: str) -> None:
        """Clear the problem of this code, if there is one."""
        self._texts.pop(code, None)

    def get(self, code: str) -> str:
        """Return the text of the problem with this code; "" without one."""
        return self._texts.get(code, "")

    def texts(self) -> list[str]:
        """Return all texts, the oldest code first."""
        return list(self._texts.values())


@dataclass(slots=True)
class LoopRequests:
    """Requests for the next turn of the main loop, set by signal handlers, watchers and listeners of
    events."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    reload: bool = False
    look: bool = False
    """Look for Lean again: the settings, or the installed programs, may have changed."""
    plan: bool = True
    models: bool = True
    """Decide on new checkpoints: one was saved or measured, or a job of a model ended."""
    doubts: bool = True
    """Look for verified proofs in doubt: one was verified, or the known faults may have changed."""
    patches: set[str] = field(default_factory=set)
    """The proofs with patches to write."""

    def reload_soon(self) -> None:
        """Request another read of config.toml."""
        self.reload = True
        self.wake.set()

    def plan_soon(self) -> None:
        """Request a plan, and the start of due jobs."""
        self.plan = True
        self.wake.set()


class Context:
    """One daemon's shared state. The service alone replaces `settings` and sets `config_errors` and
    `stop_reason`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.config_errors: tuple[str, ...] = ()
        """The errors of the last configuration, if it was refused; empty after a valid one."""
        self.problems = Problems()
        self.requests = LoopRequests()
        self.started_at = datetime.now(UTC)
        self.stop_reason = ""
        """Why the daemon stops; "" while it does not."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a task in the background until it ends or the daemon does."""
        if self._ended:
            work.close()  # no loop would run it
            return
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tasks(self, prefix: str) -> list[asyncio.Task[None]]:
        """Return the running tasks by the beginning of their names."""
        return [task for task in self._tasks if task.get_name().startswith(prefix)]

    async def end_tasks(self) -> None:
        """Cancel all tasks and wait for them; later ones are not begun."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._ended = True

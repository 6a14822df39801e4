"""What the users of the control socket can ask of the living daemon: each question is passed on to who answers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from daemon.desk import Desk
from daemon.ledger import Ledger, NoRoomError
from daemon.living import Living
from daemon.metrics import Metrics
from daemon.models import Models
from daemon.polling.schedule import Polls
from daemon.proposed import record
from daemon.report_page import Made, ReportPage
from daemon.turns import Wanted
from daemon.upkeep import Upkeep
from store.events.proofs import PullRequestOpened

log = structlog.get_logger("daemon.face")


@dataclass(frozen=True, slots=True)
class Face:
    """The parts that are asked: see `daemon.control.Controlled`."""

    desk: Desk
    ledger: Ledger
    living: Living
    metrics: Metrics
    page: ReportPage
    polls: Polls
    upkeep: Upkeep
    wanted: Wanted

    def health(self) -> dict[str, Any]:
        """Whether everything is as it should be, and what is not."""
        return self.living.health()

    def status(self) -> dict[str, Any]:
        """What only the living daemon knows."""
        return self.living.status()

    async def numbers(self) -> bytes:
        """Return the numbers for Prometheus."""
        return await self.metrics.text()

    async def report(self) -> Made:
        """Return the page of the report.

        Raises:
            ReportError: it cannot be made.
        """
        return await self.page.now()

    @property
    def models(self) -> Models:
        """What may be done with the trained models."""
        return self.upkeep.models

    def poll_now(self, repository: str | None) -> Sequence[str]:
        """Begin polls, whatever the back-off says; KeyError for a repository that is not watched.

        Raises:
            NoRoomError: the disk is full, so that none is begun.
        """
        if problem := self.ledger.room.problem:
            raise NoRoomError(problem)
        return self.polls.poll_now(repository)

    async def pull_request_opened(self, opened: PullRequestOpened) -> None:
        """Record a pull request that a command opened.

        Raises:
            KeyError: no such proof.
            PullRequestStateError: it is not verified, or has another pull request already.
        """
        await record(self.ledger, opened)
        log.info("pull_request_opened", proof=opened.proof, url=opened.url)

    def reload_soon(self) -> None:
        """Read config.toml again in the next turn of the loop."""
        self.wanted.reload_soon()

"""That a proof was proposed: the one writer of `pull_request_opened`, for the daemon and for commands without one."""

from __future__ import annotations

from functools import partial

from daemon.ledger import Ledger
from store.domain.identity import event_id
from store.events.proofs import PullRequestOpened
from store.log.envelope import NewEvent
from store.log.errors import IdempotencyError
from store.view.queries import basic as queries


class PullRequestStateError(Exception):
    """A pull request cannot be recorded; the message says why."""


async def record(ledger: Ledger, opened: PullRequestOpened) -> None:
    """Remember a pull request; the same one twice is one event.

    Raises:
        KeyError: no such proof.
        PullRequestStateError: the proof is of another repository or not verified, or has another pull request already.
    """
    rows = await ledger.ask(partial(queries.proofs_by_prefix, prefix=opened.proof))
    row = {row.proof: row for row in rows}[opened.proof]
    if row.repository != opened.repository:
        raise PullRequestStateError(f"proof {row.proof}: is of {row.repository}, not of {opened.repository}")
    if row.simulated or (row.state != "verified" and row.pull_request_url is None):
        raise PullRequestStateError(f"proof {row.proof}: is {row.state}, and only a verified one is proposed")
    event = NewEvent(f"proof:{row.proof}", opened, event_id=event_id(opened.type, row.proof), actor="control")
    try:
        await ledger.append([event])
    except IdempotencyError as error:
        raise PullRequestStateError(
            f"proof {row.proof}: another pull request is recorded, {row.pull_request_url}"
        ) from error

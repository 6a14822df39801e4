"""Propose a proof as a pull request: check it, open it at GitHub, and record it.

`daemon.results.pull_requests` has the rules and the texts. Only GitHub's answers are recorded: through the
running daemon, else by this process, which then keeps the daemon away.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from daemon.place import control_client
from daemon.place.instance import Instance, open_view
from daemon.place.lock import DaemonLock
from daemon.polling.git import Git
from daemon.polling.github import Calls, GitHub, ProposalError
from daemon.results.pull_requests import (
    NewPullRequest,
    OpenedPullRequest,
    PullRequests,
    PullRequestStateError,
    PullRequestText,
    TargetState,
    branch_name,
    check_authors,
    check_consent,
    check_proof,
    patched,
    record,
    text_of,
)
from daemon.settings import Settings
from daemon.state.store_service import StoreFailedError, StoreService
from pipeline.endpoint.errors import CredentialError
from store.documents.proofs import Proof
from store.errors import LogError
from store.events.proofs import PullRequestOpened
from store.log.reader import LogReader
from store.text import clean
from store.view import queries
from store.view.checking import as_recorded


@dataclass(frozen=True, slots=True)
class Plan:
    """The pull request to open: on which ground, with which text; `after` is the changed file."""

    ground: TargetState
    text: PullRequestText
    after: bytes

    def branch_of(self, row: Proof) -> str:
        """Return the branch to make, as `owner:branch`."""
        owner = self.ground.name.split("/")[0] if self.ground.may_push else self.ground.login
        return f"{owner}:{branch_name(row)}"


def check(settings: Settings, database: sqlite3.Connection, log: LogReader, row: Proof) -> None:
    """Refuse a proof that may not be proposed.

    Raises:
        ProposalError: with the reason.
        LogError: the log cannot be read.
    """
    check_proof(row)
    if not as_recorded(row, log):
        raise ProposalError(
            f"proof {row.proof}: the view has it otherwise than the log, so it is not proposed; try again, as a verdict"
            " may have come at this moment, and if that does not help stop the daemon and run `everlean db rebuild`"
        )
    check_consent(database, row, settings)


def propose(instance: Instance, settings: Settings, row: Proof, *, purpose: str) -> OpenedPullRequest:
    """Open the pull request of a proof at GitHub, or find it there, and record it.

    Args:
        purpose: the command, for others that find the state folder locked.

    Raises:
        ProposalError: it cannot be opened or recorded, for the reason in the message.
        AlreadyRunningError: no daemon runs, and another command holds the state folder.
    """
    with _alone(instance, purpose):
        result = asyncio.run(_propose(instance, settings, row, dry_run=False))
    assert isinstance(result, OpenedPullRequest)
    return result


def plan(instance: Instance, settings: Settings, row: Proof) -> OpenedPullRequest | Plan:
    """Return the pull request at GitHub, or the one to open; write nothing anywhere.

    Raises:
        ProposalError: GitHub cannot be asked, or the proof does not fit, for the reason in the message.
    """
    return asyncio.run(_propose(instance, settings, row, dry_run=True))


async def _propose(
    instance: Instance, settings: Settings, row: Proof, *, dry_run: bool
) -> OpenedPullRequest | Plan:
    token = _token(settings)
    github = GitHub(
        api_url=settings.github.api_url,
        token=token,
        timeout_s=settings.poll.timeout_s,
        local=settings.github.local_repositories,
    )
    try:
        name = github.name_of(row.repository)
        if name is None:
            raise ProposalError(
                f"{row.repository}: is not on the forge of {github.api_url}; pull requests go through the API of"
                " [github] api_url only, so send the patch by hand (`everlean proofs patch`)"
            )
        requests = PullRequests(Calls(github, secrets=(token,)))
        with open_view(instance) as database:
            about = queries.repository(database, row.repository)
        if about is not None and about.replaced_by is not None:
            raise ProposalError(f"{about.reason}; {about.remedy}")
        forge_id = None if about is None else about.forge_id
        proposal = NewPullRequest(row.proof, name, row.path, branch_name(row), forge_id)
        ground = await requests.look(proposal)
        if ground.opened is not None:
            if not dry_run:
                await _record(instance, row, ground.opened)
            return ground.opened
        after = patched(row, ground)
        await check_authors(
            Git(timeout_s=settings.poll.timeout_s, token=github.token_for),
            row,
            ground,
            paths=instance.paths,
            opted_out=settings.prove.opt_out_authors,
        )
        text = text_of(row, ground)
        if dry_run:
            return Plan(ground, text, after)
        opened = await requests.open(proposal, ground, after=after, text=text)
        await _record(instance, row, opened)
        return opened
    finally:
        await github.close()


async def _record(instance: Instance, row: Proof, opened: OpenedPullRequest) -> None:
    body = PullRequestOpened(
        proof=row.proof,
        repository=row.repository,
        number=opened.number,
        url=opened.url,
        branch=opened.branch,
        head=opened.head,
        base=opened.base,
    )
    try:
        if instance.running:
            status, answer = control_client.request(
                instance.paths, "POST", "/pull-request", body.model_dump(mode="json")
            )
            if status != 200:
                raise PullRequestStateError(str(answer.get("error") or f"the daemon answered {status}"))
            return
        store = await StoreService.open(instance.paths)
        try:
            await record(store, body)
        finally:
            await store.close()
    except (control_client.ControlError, PullRequestStateError, StoreFailedError, LogError) as error:
        raise ProposalError(
            f"{clean(opened.url)}: is there, and could not be recorded: {error}; run the same command again, which"
            " finds it and opens no second one"
        ) from error


@contextmanager
def _alone(instance: Instance, purpose: str) -> Iterator[None]:
    """Hold the state folder's lock if no daemon runs: two processes would write the same log."""
    if instance.running:
        yield
        return
    lock = DaemonLock.acquire(instance.paths.lock, purpose=purpose)
    try:
        yield
    finally:
        lock.release()


def _token(settings: Settings) -> str:
    try:
        token = settings.github.read_token()
    except CredentialError as error:
        raise ProposalError(f"the GitHub token cannot be used: {error}") from error
    if token is None:
        raise ProposalError(
            "no GitHub token is configured, and a pull request needs one that may write; name a file with it in"
            " [github] token_file"
        )
    return token

"""`unsorry proofs pr`: propose a verified proof to the repository's people, where they agreed to it.

What may be proposed and what is said is `daemon.results.pull_requests`', the requests are
`daemon.results.pull_requests`'. Recorded is only what GitHub says is there: through the running daemon, else by this
command, which then keeps the daemon away.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.completion import PROOFS, ids
from daemon.cli.context import CliError, Config, ExitCode, Json, Place, locate, one_match, view
from daemon.cli.listing import given_before
from daemon.cli.render import ago, clean, clean_block, emit_json, say, styled
from daemon.lock import AlreadyRunningError, DaemonLock

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from daemon.results.pull_requests import Evidence, Ground, Opened, Text
    from daemon.settings import Settings
    from store.view.rows import ProofRow

Which = Annotated[
    str, typer.Argument(metavar="ID", help="A proof's id, or its beginning.", autocompletion=ids(PROOFS))
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Ask GitHub and show what would be opened; write nothing anywhere.")
]


def pull_request(
    context: typer.Context,
    proof: Which,
    dry_run: DryRun = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    import asyncio

    from daemon.polling.github import ProposalError
    from daemon.results.pull_requests import check_consent, check_proof, evidence_of

    if given_before(context, "as_of"):
        raise typer.BadParameter("what is past cannot be proposed; leave it out", param_hint="--as-of")
    place = locate(config)
    settings = _settings(place.config)
    with view(place, quiet=True) as database:
        row = _find(database, proof)
        if row.pull_request_url is not None:
            _tell(place, row, "recorded", as_json=as_json)
            return
        patch = _patch(place, row)
        try:
            check_proof(row, patch)
            check_consent(database, row, settings)
        except ProposalError as error:
            raise CliError(str(error)) from error
        evidence = evidence_of(database, row, patch or b"")
    if dry_run:
        asyncio.run(_propose(place, settings, row, evidence, dry_run=True, as_json=as_json))
        return
    with _alone(place):
        asyncio.run(_propose(place, settings, row, evidence, dry_run=False, as_json=as_json))


async def _propose(
    place: Place, settings: Settings, row: ProofRow, evidence: Evidence, *, dry_run: bool, as_json: bool
) -> None:
    """Hold the conversation with GitHub, record what came of it, and tell it."""
    from daemon.polling.git import Git
    from daemon.polling.github import Calls, GitHub, ProposalError
    from daemon.results.pull_requests import (
        PullRequests,
        Wanted,
        branch_name,
        check_authors,
        file_then,
        patched,
        text_of,
    )

    token = _token(settings)
    github = GitHub(api_url=settings.github.api_url, token=token, timeout_s=settings.poll.timeout_s)
    try:
        name = github.name_of(row.repository)
        if name is None:
            raise CliError(
                f"{row.repository}: is not on the forge of {github.api_url}; pull requests go through the API of"
                " [github] api_url only, so send the patch by hand (`unsorry proofs patch`)"
            )
        requests = PullRequests(Calls(github, secrets=(token,)))
        wanted = Wanted(row.proof, name, row.path, branch_name(row))
        ground = await requests.look(wanted)
        if ground.opened is not None:
            if not dry_run:
                await _record(place, row, ground.opened)
            _tell(place, row, "found", opened=ground.opened, as_json=as_json)
            return
        then = await file_then(requests, row, ground)
        await check_authors(
            Git(timeout_s=settings.poll.timeout_s, token=github.token_for),
            row,
            then=then,
            paths=place.paths,
            opted_out=settings.prove.opt_out_authors,
        )
        after = patched(row, then=then, ground=ground)
        text = text_of(row, ground, evidence)
        if dry_run:
            _tell_plan(place, row, ground, text, after, as_json=as_json)
            return
        opened = await requests.open(wanted, ground, after=after, text=text)
        await _record(place, row, opened)
        _tell(place, row, "found" if opened.found else "opened", opened=opened, as_json=as_json)
    except ProposalError as error:
        raise CliError(str(error)) from error
    finally:
        await github.close()


async def _record(place: Place, row: ProofRow, opened: Opened) -> None:
    from daemon.http import control_client
    from daemon.results.pull_requests import PullRequestStateError, record
    from daemon.store_service import StoreFailedError, StoreService
    from store.errors import LogError
    from store.events.proofs import PullRequestOpened

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
        if place.running:
            status, answer = control_client.request(
                place.paths, "POST", "/pull-request", body.model_dump(mode="json")
            )
            if status != 200:
                raise PullRequestStateError(str(answer.get("error") or f"the daemon answered {status}"))
            return
        store = await StoreService.open(place.paths)
        try:
            await record(store, body)
        finally:
            await store.close()
    except (control_client.ControlError, PullRequestStateError, StoreFailedError, LogError) as error:
        raise CliError(
            f"{clean(opened.url)}: is there, and could not be recorded: {error}; run the same command again, which"
            " finds it and opens no second one"
        ) from error


@contextmanager
def _alone(place: Place) -> Iterator[None]:
    """Keep the daemon away where none runs: two would write the same log."""
    if place.running:
        yield
        return
    try:
        lock = DaemonLock.acquire(place.paths.lock, purpose="unsorry proofs pr")
    except AlreadyRunningError as error:
        raise CliError(str(error), code=ExitCode.ALREADY_RUNNING) from error
    try:
        yield
    finally:
        lock.release()


def _settings(config: Path) -> Settings:
    from daemon.cli.config import refuse
    from daemon.settings import ConfigError, load

    try:
        return load(config)
    except ConfigError as error:
        refuse(error)
        raise typer.Exit(ExitCode.BAD_CONFIG) from error


def _token(settings: Settings) -> str:
    try:
        token = settings.github.read_token()
    except (OSError, ValueError) as error:
        raise CliError(f"the GitHub token cannot be used: {error}") from error
    if token is None:
        raise CliError(
            "no GitHub token is configured, and a pull request needs one that may write; name a file with it in"
            " [github] token_file"
        )
    return token


def _find(database: sqlite3.Connection, prefix: str) -> ProofRow:
    from store.view import queries

    rows = queries.proofs_by_prefix(database, prefix)
    found: ProofRow = one_match(rows, prefix, what="proof", key="proof")
    return found


def _patch(place: Place, row: ProofRow) -> bytes | None:
    from store.log.reader import LogReader

    if row.patch_sha256 is None:
        return None
    with LogReader.open(place.paths.events_db) as log:
        return log.blob(row.patch_sha256)


def _tell(place: Place, row: ProofRow, outcome: str, *, opened: Opened | None = None, as_json: bool) -> None:
    url = opened.url if opened is not None else row.pull_request_url or ""
    if as_json:
        where = (opened.branch, opened.head, opened.base) if opened is not None else (None, None, None)
        _emit(place, row, outcome, url=url, where=where)
        return
    what = f"proof {row.proof} of {clean(row.declaration)}"
    match outcome:
        case "recorded":
            say(
                f"{clean(url)}: {what} was proposed there already, {ago(row.pull_request_at)}; nothing was done"
            )
        case "found":
            say(f"{clean(url)}: {what} was proposed there already; no second one is opened")
        case _:
            branch = clean(opened.branch) if opened is not None else ""
            say(f"{styled(clean(url), 'bold')}: opened for {what}, from {branch}")


def _tell_plan(
    place: Place, row: ProofRow, ground: Ground, text: Text, after: bytes, *, as_json: bool
) -> None:
    import difflib

    from daemon.results.pull_requests import branch_name

    owner = ground.name.split("/")[0] if ground.may_push else ground.login
    branch = f"{owner}:{branch_name(row)}"
    if as_json:
        _emit(place, row, "dry_run", url=None, where=(branch, None, ground.head), text=text)
        return
    way = "a branch there" if ground.may_push else f"a fork of {ground.login}"
    say(
        f"would open a pull request to {clean(ground.name)} {clean(ground.base)} by {clean(way)}: {clean(branch)}"
    )
    say(styled(clean(text.title), "bold"))
    for line in clean_block(text.body).splitlines():
        say(f"  {line}")
    before, now = (data.decode(errors="replace").splitlines() for data in (ground.data, after))
    for line in difflib.unified_diff(before, now, f"a/{row.path}", f"b/{row.path}", lineterm=""):
        say(clean_block(line))


def _emit(
    place: Place,
    row: ProofRow,
    outcome: str,
    *,
    url: str | None,
    where: tuple[str | None, str | None, str | None],
    text: Text | None = None,
) -> None:
    branch, head, base = where
    document: dict[str, Any] = {
        "daemon": place.daemon_json,
        "proof": row.proof,
        "repository": row.repository,
        "outcome": outcome,
        "url": url,
        "branch": branch,
        "head": head,
        "base": base,
        "title": text.title if text is not None else None,
        "body": text.body if text is not None else None,
    }
    emit_json(document)

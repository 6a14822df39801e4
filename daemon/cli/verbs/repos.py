"""`everlean repos`: the watched repositories, their tips, polls and traces; the watchlist; `everlean
init`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.answer import Answer, Column, Listing
from daemon.cli.completion import repositories
from daemon.cli.context import GROUPS, Call, CliError, ExitCode, files, verb
from daemon.cli.options import Repo
from daemon.cli.render import note, say
from daemon.place.instance import Instance, command
from daemon.place.paths import SYSTEM_CONFIG, user_config
from store.documents.lookup import resolve
from store.documents.repositories import (
    HEALTHY_STATES,
    Repository,
    Trace,
    because,
    described_repositories,
    projects_text,
)
from store.domain.identity import slug
from store.text import ago, clean, counted, listed
from store.view.rows import LARGER, too_large_text

if TYPE_CHECKING:
    from daemon.polling.discovery import Candidate, Named
    from daemon.settings.watchlist import LeftOut

GROUPS["repos"] = "List, find, add, remove and accept repositories."
AS_OWNER = "write it as its owner (sudo), or name another file with --config"


@dataclass(frozen=True, slots=True)
class Repositories:
    repositories: list[Repository]
    """also those no longer watched"""


@dataclass(frozen=True, slots=True)
class Made:
    path: Path
    repositories: list[str]
    """the keys of its watchlist"""


@dataclass(frozen=True, slots=True)
class Watchlist:
    path: Path
    repository: str
    repositories: list[str]
    """the keys of the watchlist now"""


@dataclass(frozen=True, slots=True)
class Imported:
    config: Path
    added: list[str]
    """the keys of the new ones"""
    left_out: list[LeftOut]
    """entries of the list that were not added"""
    repositories: list[str]
    """the keys of the watchlist now"""


@verb("repos", Repositories, past=True)
def list_(
    call: Call,
    repo: Repo = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also repositories that left the watchlist; --json always has them.")
    ] = False,
    gaps: Annotated[
        bool, typer.Option("--gaps", help="Also everything that the traces lack, each thing with its reason.")
    ] = False,
) -> Listing[Repository]:
    """List repositories."""
    with call.view() as database:
        only = resolve(database, repo)
        result = [
            one for one in described_repositories(database, gaps=gaps) if only in (None, one.repository)
        ]
    return listing(
        [item for item in result if item.watched or every or only or call.as_json],
        polls=call.instance.moment is None,
        running=call.instance.running,
    )


@verb("init", Made)
def init(
    call: Call,
    urls: Annotated[
        list[str] | None, typer.Argument(metavar="[URL]...", help="Repositories: URLs, or folders of clones.")
    ] = None,
) -> Answer:
    """Make a configuration that watches these repositories; default: ~/.config/everlean/config.toml."""
    from daemon.settings.watchlist import added

    from_environment = os.environ.get("EVERLEAN_CONFIG")
    path = (call.config or (Path(from_environment) if from_environment else user_config())).absolute()
    if os.path.lexists(path):
        raise CliError(f"{path} is there already; `everlean repos add URL --config {path}` adds to it")
    with files(AS_OWNER):
        path.parent.mkdir(parents=True, exist_ok=True)
        keys = added(path, urls or ())
    option = "" if path == user_config() and not SYSTEM_CONFIG.is_file() else f" --config {path}"
    lines = [f"made {path}: {counted(len(keys), 'repository')} to watch"]
    if not keys:
        lines.append(f"next: everlean repos add URL{option}")
    lines.append(f"then: everlean doctor{option} names missing parts, everlean run{option} starts the daemon")
    return Answer(Made(path, keys), "\n".join(lines))


@verb("repos add", Watchlist)
def add(
    call: Call,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Its URL, owner/name on GitHub, or the folder of a clone.")
    ],
    branches: Annotated[
        list[str] | None,
        typer.Option("--branch", metavar="B", help="Only this branch, or a glob; may be repeated."),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="T", help='How often it is asked, such as "30m".')
    ] = None,
) -> Answer:
    """Add a repository to the watchlist, or branches to one."""
    from daemon.settings.watchlist import added, with_more_branches

    path = call.instance.config
    with files(AS_OWNER):
        if branches and path.exists() and (changed := with_more_branches(path, url, branches)) is not None:
            key, keys = changed
            message = f"{key} is watched on {', '.join(branches)} too; {_takes_effect(call.instance)}"
            return Answer(Watchlist(path, key, keys), message)
        keys = added(path, [url], branches=branches or (), every=every)
    text = f"added {keys[-1]} to {path}; {_takes_effect(call.instance)}"
    return Answer(Watchlist(path, keys[-1], keys), text)


@verb("repos import", Imported)
def import_(
    call: Call,
    source: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Its JSON: a list of repositories or of sorries, or a database."),
    ],
    branches: Annotated[
        bool,
        typer.Option(
            "--branches", help="Watch the branches that its sorries are on, not the default branch."
        ),
    ] = False,
) -> Answer:
    """Add the repositories of a list or database of SorryDB to the watchlist."""
    from daemon.settings.watchlist import listed_added
    from store import sorrydb

    path = call.instance.config
    with files("name a file of SorryDB"):
        entries = sorrydb.read(source)
    with files(AS_OWNER):
        result, keys = listed_added(path, entries.branches, branches=branches)
    left = [f"left out {clean(one.url)}: {clean(one.reason)}" for one in result.left_out]
    n_added = counted(len(result.added), "repository")

    def write() -> None:
        for line in left:
            note(f"everlean: {line}")
        say(f"added {n_added} to {path}; {_takes_effect(call.instance)}")

    return Answer(Imported(path, result.added, result.left_out, keys), write)


@verb("repos remove", Watchlist)
def remove(
    call: Call,
    name: Annotated[
        str,
        typer.Argument(metavar="R", help="Its key, or a part that only it has.", autocompletion=repositories),
    ],
) -> Answer:
    """Take a repository off the watchlist; its history stays."""
    from daemon.settings.watchlist import removed

    path = call.instance.config
    with files(AS_OWNER):
        key, left = removed(path, name)
    text = f"removed {key} from {path}; its history stays; {_takes_effect(call.instance)}"
    return Answer(Watchlist(path, key, left), text)


@dataclass(frozen=True, slots=True)
class Accepted:
    repository: str
    forge_id: int
    """its number at its forge"""


@verb("repos accept", Accepted)
def accept(
    call: Call,
    repo: Annotated[
        str,
        typer.Argument(metavar="R", help="Its key, or a part that only it has.", autocompletion=repositories),
    ],
) -> Answer:
    """Accept another repository under a watched name."""
    with call.view() as database:
        key = resolve(database, repo)
    result = command(call.instance, "/accept", {"repository": key})
    command(call.instance, "/poll", {"repository": key})
    text = f"{key} is number {result['forge_id']} from now on; it is polled now"
    return Answer(Accepted(str(key), int(result["forge_id"])), text)


@dataclass(frozen=True, slots=True)
class Discovered:
    repositories: list[Candidate]
    """those outside the watchlist, with most stars first"""
    watched: int
    """the number of named repositories in the watchlist, `opt_out` included"""
    problems: dict[str, str]
    """by source, why it could not be asked"""


class Source(StrEnum):
    RESERVOIR = "reservoir"
    REQUIRED = "required"
    GITHUB = "github"


@verb("repos discover", Discovered)
def discover(
    call: Call,
    sources: Annotated[
        list[Source] | None,
        typer.Option("--source", help="Ask only this source; may be repeated.", show_choices=True),
    ] = None,
    lists: Annotated[
        list[Path] | None,
        typer.Option(
            "--list", metavar="FILE", help="Also the repositories of a file of SorryDB; may be repeated."
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option("--index", metavar="URL", help="A copy of Reservoir's index, a git repository."),
    ] = None,
) -> Listing[Any]:
    """Find Lean 4 repositories that you could watch.

    It asks Reservoir's index, your projects' manifests (`required`), and GitHub's search, with a token.
    """
    from daemon.polling import discovery
    from store import sorrydb

    selection = sources or [*Source]
    by_source = dict[str, list[discovery.Named]]()
    with files("name a file of SorryDB"):
        for path in lists or ():
            by_source[str(path)] = [discovery.Named(url) for url in sorrydb.read(path).branches]
    required, lacking = _required(call) if Source.REQUIRED in selection else ({}, {})
    outside, problems = discovery.ask_outside(
        call.settings,
        index=(index or discovery.RESERVOIR) if Source.RESERVOIR in selection else None,
        github=Source.GITHUB in selection,
        say=lambda line: note(f"everlean: {clean(line)}"),
    )
    problems |= lacking
    for source, why in problems.items():
        note(f"everlean: {source}: {clean(why)}")
    result, watched = discovery.candidates(
        {**outside, **by_source, **required}, known=[repo.key for repo in call.settings.repos]
    )
    columns: list[Column[Candidate]] = [
        Column("REPOSITORY", lambda one: one.repository, shrink=True),
        Column("TOOLCHAIN", lambda one: one.toolchain or "-", spare=1),
        Column("STARS", lambda one: "-" if one.stars is None else f"{one.stars:,}"),
        Column("NAMED BY", lambda one: listed(one.sources, 2), shrink=True),
    ]
    return Listing(
        result,
        columns,
        Discovered(result, watched, problems),
        empty="every repository that they name is watched already" if watched else "they name no repository",
        total=f"{counted(len(result), 'repository')}, and {watched:,} watched; `everlean repos add URL` adds one",
        code=ExitCode.FAILURE if problems and not (result or watched) else ExitCode.OK,
    )


def _required(call: Call) -> tuple[dict[str, list[Named]], dict[str, str]]:
    """Return each watched repository's requirements at the tip of its default branch, by repository.

    And the reasons of unreadable manifests, by the name of the source.
    """
    from daemon.polling.discovery import required_by
    from pipeline.jobs.protocol import JobError

    paths = call.instance.paths
    result: dict[str, list[Named]] = {}
    problems: dict[str, str] = {}
    if not paths.database_db.exists():
        return result, problems
    with call.view(quiet=True) as database:
        for one in described_repositories(database):
            manifests = {
                project.manifest
                for head in one.heads
                if head.branch == one.default_branch
                for project in head.lake_projects
                if project.manifest
            }
            mirror = paths.mirrors / f"{slug(one.repository)}.git"
            if one.watched and manifests and mirror.is_dir():
                try:
                    result[one.repository] = required_by(mirror, sorted(manifests))
                except JobError as error:
                    problems[Source.REQUIRED.value] = f"{one.repository}: {error}; {error.remedy}"
    return result, problems


def _takes_effect(instance: Instance) -> str:
    if instance.running:
        return "the daemon reloads it now"
    return f"`everlean run --config {instance.config}` starts the daemon"


# ---- The table


def listing(rows: list[Repository], *, running: bool, polls: bool = True) -> Listing[Repository]:
    """Return repositories as a table, with the reason and remedy of each failing one, and their traces.

    Polls are no events (only their findings are), so an answer as of an earlier moment is shown without them.
    Without a running daemon there is no next one.
    """
    polled: list[Column[Repository]] = [
        Column("LAST POLL", lambda item: ago(item.checked_at)),
        Column("NEXT", lambda item: _next(item) if running else "-"),
    ]
    columns: list[Column[Repository]] = [
        Column("REPOSITORY", lambda item: item.repository, shrink=True),
        Column("STATE", word),
        Column("SORRIES", lambda item: item.sorries_text),
        *(polled if polls else ()),
        Column("TIP", tips, shrink=True),
    ]
    return Listing(
        rows,
        columns,
        Repositories(rows),
        empty="no repository is watched; `everlean repos add URL` adds one",
        below=[*_troubles(rows), *_traced(rows)],
    )


def tips(item: Repository) -> str:
    """Return the newest commit of each branch."""
    live = [head for head in item.heads if head.state == "live"]
    due = {head.branch: "" if head.scanned == head.tip else " (scan due)" for head in live}
    return listed([f"{head.branch} {head.tip[:10]}{due[head.branch]}" for head in live], 3) or "-"


def _troubles(rows: list[Repository]) -> Iterator[str]:
    """Yield the faults of repositories, and their Lake projects."""
    for item in rows:
        if item.state not in HEALTHY_STATES:
            yield f"  {clean(because(item))}; {clean(item.remedy)}"
        for text in too_large_text(item.too_large).values():
            yield f"  {clean(f'{item.repository} {text}; {LARGER}')}"
        for head in item.heads:
            if head.state == "live" and (text := projects_text(head, item.projects)):
                yield f"  {clean(f'{item.repository} {head.branch}: {text}')}"


def _traced(rows: list[Repository]) -> Iterator[str]:
    """Yield the completeness of the traces of live branches; `--json` has the others too."""
    for item in rows:
        branches = {head.branch for head in item.heads if head.state != "live"}
        for trace in item.traces:
            if trace.branch not in branches:
                yield clean(_completeness(item.repository, trace))
                for gap in trace.gaps or ():
                    where = f"{gap.path} {gap.declaration}".strip()
                    yield f"  {clean(f'{gap.kind}: {where}: {gap.reason}')}"


def _completeness(repository: str, trace: Trace) -> str:
    """Describe the completeness of a trace in a sentence."""
    shares = (
        f"{trace.files_traced} of {trace.files_seen} files, {trace.theorems_traced} of {trace.theorems_seen} theorems,"
        f" {trace.tactics_traced} of {trace.tactics_seen} tactics"
    )
    lacking = ", ".join(f"{number} {kind}" for kind, number in trace.lacking.items())
    return f"{repository} {trace.branch} {trace.sha[:10]}: trace of {shares}" + (
        f"; gaps: {lacking} (--gaps lists them)" if lacking and trace.gaps is None else ""
    )


def word(item: Repository) -> str:
    """Return the state as one word, or the configuration's word over it."""
    if not item.watched:
        return "unwatched"
    if not item.enabled:
        return "disabled"
    marks = [mark for mark, on in (("archived", item.archived), ("opt-out", item.opt_out)) if on]
    return ", ".join([item.state, *marks])


def _next(item: Repository) -> str:
    return ago(item.next_due_at, never="-") if item.watched and item.enabled else "-"

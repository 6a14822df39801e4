"""`everlean repos`: the watched repositories, their tips, polls and traces; the watchlist; `everlean init`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.completion import repositories
from daemon.cli.context import AsOf, CliError, Config, ExitCode, Json, locate, view
from daemon.cli.render import emit_json, listing_group, note, say, table
from daemon.instance import Instance
from daemon.paths import SYSTEM_CONFIG, user_config
from store.documents.lookup import one_of
from store.documents.repositories import HEALTHY_STATES, Repository, Trace, because, described_repositories
from store.text import ago, clean, counted, listed
from store.view.counts import elsewhere_said
from store.view.rows import LARGER, too_large_said

if TYPE_CHECKING:
    from daemon.settings import ConfigError
    from daemon.settings.watchlist import LeftOut


def register(app: typer.Typer) -> None:
    app.command("init", help="Make a configuration with these repositories in its watchlist.")(init)
    group = listing_group(
        list_,
        help_text="List repositories: state, tips, polls, traces. Add one to the watchlist, or remove one.",
        list_help="List repositories (the same as no verb).",
    )
    group.command("add", help="Add a repository to the watchlist in config.toml.")(add)
    group.command(
        "import",
        help="Add the repositories of a list or database of SorryDB to the watchlist in config.toml.",
    )(import_)
    group.command("remove", help="Take a repository off the watchlist in config.toml; its history stays.")(
        remove
    )
    app.add_typer(group, name="repos")


def list_(
    every: Annotated[
        bool, typer.Option("--all", help="Also repositories that left the watchlist; --json always has them.")
    ] = False,
    gaps: Annotated[
        bool, typer.Option("--gaps", help="Also everything that the traces lack, each thing with its reason.")
    ] = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config, as_of)
    with view(instance) as database:
        found = described_repositories(database, gaps=gaps)
    if as_json:
        emit_json(Repositories(found), instance.head)
        return
    shown = [item for item in found if item.watched or every]
    if not shown:
        say("no repository is watched; `everlean repos add URL` adds one")
        return
    show(shown, polls=instance.moment is None, running=instance.running)


def init(
    urls: Annotated[
        list[str] | None, typer.Argument(metavar="[URL]...", help="Repositories: URLs, or folders of clones.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="The file to make; default: ~/.config/everlean/config.toml."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    from daemon.settings.watchlist import BEGINNING, with_entry

    named = config or (Path(given) if (given := os.environ.get("EVERLEAN_CONFIG")) else user_config())
    path = named.absolute()
    if os.path.lexists(path):
        raise CliError(f"{path} is there already; `everlean repos add URL --config {path}` adds to it")
    text = BEGINNING
    for url in urls or []:
        text = with_entry(text, _spelled(url))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(
            f"{path.parent}: {error.strerror or error}; name another file with --config"
        ) from error
    keys = _written(path, text)
    if as_json:
        emit_json(Made(path, keys))
        return
    say(f"made {path}: {counted(len(keys), 'repository')} to watch")
    option = "" if path == user_config() and not SYSTEM_CONFIG.is_file() else f" --config {path}"
    if not keys:
        say(f"next: everlean repos add URL{option}")
    say(f"then: everlean doctor{option} says what is missing, everlean run{option} starts the daemon")


def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="Its URL, or the folder of a clone.")],
    branches: Annotated[
        list[str] | None,
        typer.Option("--branch", metavar="B", help="Only this branch, or a glob; may be repeated."),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="T", help='How often it is asked, such as "30m".')
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from daemon.settings.watchlist import with_entry

    instance = locate(config)
    text = _text_of(instance.config)
    keys = _written(instance.config, with_entry(text, _spelled(url), branches=branches or (), every=every))
    if as_json:
        emit_json(Watchlist(instance.config, keys[-1], keys))
        return
    say(f"added {keys[-1]} to {instance.config}; {_takes_effect(instance)}")


def import_(
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
    config: Config = None,
    as_json: Json = False,
) -> None:
    from daemon.settings import ConfigError, load
    from daemon.settings.watchlist import with_listed
    from store import sorrydb

    instance = locate(config)
    try:
        listed = sorrydb.read(source)
    except sorrydb.SorryDBError as error:
        raise CliError(clean(str(error))) from error
    except OSError as error:
        raise CliError(f"{source}: {error.strerror or error}; name a file of SorryDB") from error
    try:
        settings = load(instance.config)
    except ConfigError as error:
        raise _refused(error) from error
    found = with_listed(settings, _text_of(instance.config), listed.branches, branches=branches)
    keys = _written(instance.config, found.text) if found.added else [repo.key for repo in settings.repos]
    if as_json:
        emit_json(Imported(instance.config, found.added, found.left_out, keys))
        return
    for one in found.left_out:
        note(f"everlean: left out {clean(one.url)}: {clean(one.reason)}")
    say(f"added {counted(len(found.added), 'repository')} to {instance.config}; {_takes_effect(instance)}")


def remove(
    name: Annotated[
        str, typer.Argument(metavar="R", help="Its key or the end of it.", autocompletion=repositories)
    ],
    config: Config = None,
    as_json: Json = False,
) -> None:
    from daemon.settings import ConfigError, load
    from daemon.settings.watchlist import EditError, without_entry

    instance = locate(config)
    try:
        keys = [repo.key for repo in load(instance.config).repos]
    except ConfigError as error:
        raise _refused(error) from error
    key = one_of(keys, name, lists="everlean config show")
    try:
        text = without_entry(_text_of(instance.config), keys.index(key))
    except EditError as error:
        raise CliError(f"{instance.config}: {key}: {error}") from error
    left = _written(instance.config, text)
    if as_json:
        emit_json(Watchlist(instance.config, key, left))
        return
    say(f"removed {key} from {instance.config}; its history stays; {_takes_effect(instance)}")


def _spelled(url: str) -> str:
    """Return a URL as the file has it: a folder that is there by its whole path, `github.com/owner/name` with https."""
    if "://" not in url and Path(url).expanduser().is_dir():
        return str(Path(url).expanduser().resolve())
    if url.startswith(("/", "./", "../", "~")) or url in (".", ".."):
        raise CliError(f"{url}: no such folder; name a clone's folder or a URL")
    bare = "://" not in url and ":" not in url and "@" not in url
    return f"https://{url}" if bare and url.count("/") == 2 and "." in url.split("/")[0] else url


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}", code=ExitCode.BAD_CONFIG) from error


def _written(path: Path, text: str) -> list[str]:
    """Write a configuration if it is valid; return the keys of its watchlist."""
    from daemon.settings import ConfigError
    from daemon.settings.watchlist import write

    try:
        return [repo.key for repo in write(path, text).repos]
    except ConfigError as error:
        raise _refused(error) from error
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}; write it as its owner (sudo)") from error


def _refused(error: ConfigError) -> CliError:
    return CliError("nothing is changed:\n" + "\n".join(map(clean, error.errors)), code=ExitCode.BAD_CONFIG)


def _takes_effect(instance: Instance) -> str:
    if instance.running:
        return "the daemon reloads it now"
    return f"`everlean run --config {instance.config}` starts the daemon"


@dataclass(frozen=True, slots=True)
class Imported:
    config: Path
    added: list[str]
    """the keys of the new ones"""
    left_out: list[LeftOut]
    """what the list names and is not added"""
    repositories: list[str]
    """the keys of the watchlist now"""


@dataclass(frozen=True, slots=True)
class Repositories:
    repositories: list[Repository]
    """also those that are watched no more"""


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


def show(found: list[Repository], *, running: bool, polls: bool = True, details: bool = True) -> None:
    """Write the table, then (with `details`) each failing repository's reason and remedy, and what was traced.

    Polls are no events (only what they found is), so an answer as of an earlier moment is shown without them. Without a
    running daemon none comes next.
    """
    rows = []
    for item in found:
        heads = [head for head in item.heads if head.state == "live"]
        tips = listed(
            [
                f"{head.branch} {head.tip[:10]}{'' if head.scanned == head.tip else ' (scan due)'}"
                for head in heads
            ],
            3,
        )
        asked = (ago(item.checked_at), _next(item) if running else "-") if polls else ()
        number = (
            f"{item.sorries['open'] + item.sorries['verified']:,}{elsewhere_said(item.sorries_elsewhere)}"
        )
        rows.append((item.repository, word(item), number, *asked, tips or "-"))
    headers = ("REPOSITORY", "STATE", "SORRIES", *(("LAST POLL", "NEXT") if polls else ()), "TIP")
    table(headers, rows, shrink=(len(headers) - 1, 0))
    if not details:
        return
    for item in found:
        if item.state not in HEALTHY_STATES:
            say(f"  {clean(because(item))}; {clean(item.remedy)}")
        for said in too_large_said(item.too_large).values():
            say(clean(f"  {item.repository} {said}; {LARGER}"))
    for item in found:
        gone = {head.branch for head in item.heads if head.state != "live"}
        for trace in item.traces:
            if trace.branch in gone:
                continue  # --json has it
            say(clean(_completeness(item.repository, trace)))
            for gap in trace.gaps or ():
                where = f"{gap.path} {gap.declaration}".strip()
                say(f"  {clean(gap.kind)}: {clean(where)}: {clean(gap.reason)}")


def _completeness(repository: str, trace: Trace) -> str:
    """Describe the completeness of a trace in a sentence."""
    shares = (
        f"{trace.files_traced} of {trace.files_seen} files, {trace.theorems_traced} of {trace.theorems_seen} theorems,"
        f" {trace.tactics_traced} of {trace.tactics_seen} tactics"
    )
    lacking = ", ".join(f"{number} {kind}" for kind, number in trace.lacking.items())
    mark = "SIMULATED " if trace.simulated else ""
    return f"{repository} {trace.branch} {trace.sha[:10]}: {mark}trace of {shares}" + (
        f"; gaps: {lacking} (--gaps lists them)" if lacking and trace.gaps is None else ""
    )


def word(item: Repository) -> str:
    """Return the state as one word, or what the configuration says over it."""
    if not item.watched:
        return "unwatched"
    if not item.enabled:
        return "disabled"
    marks = [mark for mark, on in (("archived", item.archived), ("opt-out", item.opt_out)) if on]
    return ", ".join([item.state, *marks])


def _next(item: Repository) -> str:
    return ago(item.next_due_at, never="-") if item.watched and item.enabled else "-"

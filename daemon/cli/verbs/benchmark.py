"""`everlean benchmark make`: the sorries filled by people, before and after a day."""

from __future__ import annotations

from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.completion import repositories
from daemon.cli.context import GROUPS, Call, CliError, verb
from daemon.cli.render import note, say, table
from store.text import clean, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.fills import Benchmark, Source

GROUPS["benchmark"] = "Make benchmarks of people's proofs."


@verb("benchmark make", "pipeline.fills:Benchmark")
def make(
    call: Call,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make; must not exist.")],
    clones: Annotated[
        list[Path] | None, typer.Argument(metavar="[CLONE]...", help="Clones with their history.")
    ] = None,
    day: Annotated[
        str,
        typer.Option("--day", metavar="YYYY-MM-DD", help="Train on proofs from before it, test on the rest."),
    ] = "",
    repo: Annotated[
        list[str] | None,
        typer.Option(
            "--repo",
            metavar="R",
            help="A watched repository: its key, or a part that only it has; may be repeated.",
            autocompletion=repositories,
        ),
    ] = None,
) -> Answer:
    """Write the sorries filled by people, with proofs, split by a day into train and test."""
    if find_spec("pyarrow") is None:
        raise CliError("parquet needs pyarrow, which is not installed; pip install 'everlean[train]'")
    from daemon.settings.types import repository_key
    from pipeline import fills

    try:
        parted = date.fromisoformat(day)
    except ValueError as error:
        raise typer.BadParameter(f'"{day}" is no day, as 2026-03-01 is', param_hint="--day") from error
    sources = [*fills.sources_of(clones or (), repository_key), *_watched(call, repo or ())]
    if not sources:
        raise typer.BadParameter(
            "no repository; name a clone, or a watched one by --repo", param_hint="CLONE"
        )
    result = fills.make(out.absolute(), sources, parted)
    return Answer(result, lambda: _show(result))


def _watched(call: Call, names: Sequence[str]) -> list[Source]:
    """Return watched repositories as sources, with the log's facts about their filled sorries."""
    if not names:
        return []
    from pipeline.fills import Source
    from store.documents.lookup import repository_named
    from store.domain.identity import slug
    from store.view import queries
    from store.view.trace_queries import sorry_goals

    result = []
    with call.view() as database:
        for key in dict.fromkeys(repository_named(database, name) for name in names):
            filled = [one for one in queries.sorries(database, repository=key) if one.state == "filled"]
            goals = {(one.branch, one.sorry): one.goal for one in sorry_goals(database, repository=key)}
            result.append(
                Source(
                    key,
                    call.instance.paths.mirrors / f"{slug(key)}.git",
                    ours={(str(one.closed_sha), one.declaration) for one in filled if one.filled_by == "us"},
                    goals={
                        (str(one.closed_sha), one.declaration): goals[one.branch, one.sorry]
                        for one in filled
                        if (one.branch, one.sorry) in goals
                    },
                )
            )
    return result


def _show(done: Benchmark) -> None:
    table(
        ("REPOSITORY", "COMMITS", "KNOWN AT"),
        [(one.repository, f"{one.commits:,}", one.known_at[:12]) for one in done.repositories],
    )
    for reason, number in done.left_out.items():
        note(f"everlean: {counted(number, 'filled declaration')} left out: {reason}")
    for one in done.repositories:
        if one.files_unread:
            note(
                f"everlean: {clean(one.repository)}: {counted(one.files_unread, 'file')} of the day not read: git has "
                "not the content here; name a full clone"
            )
    say(
        f"{done.path}: {counted(done.train, 'filled sorry')} before {done.day}, {done.test:,} since, "
        f"{counted(done.known, 'declaration')} known"
    )

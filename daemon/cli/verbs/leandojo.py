"""`everlean trace`: from addresses to a dataset. `everlean leandojo run`: LeanDojo-v2 scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import GROUPS, Call, verb
from daemon.cli.render import note, say, table
from store.text import clean

GROUPS["leandojo"] = "Run LeanDojo-v2 scripts."


@dataclass(frozen=True, slots=True)
class TracedRepository:
    repository: str
    """its key, as in `everlean repos`"""
    commit: str
    files: int
    theorems: int
    tactics: int


@dataclass(frozen=True, slots=True)
class WrittenDataset:
    path: Path
    repositories: list[TracedRepository]
    """in the order given"""


@verb("trace", WrittenDataset)
def trace(
    call: Call,
    repositories: Annotated[
        list[str],
        typer.Argument(
            metavar="URL[@COMMIT]...",
            help="A repository, or a clone's folder; a commit's full id or a branch.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The dataset's folder; an earlier one is replaced.")
    ],
) -> Answer:
    """Trace repositories into one dataset in LeanDojo's format; needs no daemon."""
    from daemon.leandojo import BaseAgent
    from daemon.leandojo.repository import address
    from store.domain.identity import repository_key
    from store.leandojo.folder import check_replaceable

    # Before anything is built, which may take hours.
    check_replaceable(out.absolute())
    places = [(address(url), commit) for url, commit in map(_address, repositories)]
    agent = BaseAgent(config=call.config, say=lambda line: note(clean(line)))
    traced = [agent.trace_repository(url, commit) for url, commit in places]
    agent.export(traced, out.absolute())
    rows = [
        TracedRepository(
            repository_key(one.url),
            one.commit,
            one.num_files_traced,
            one.total_theorems,
            sum(len(theorem.traced_tactics or ()) for theorem in one.get_all_theorems),
        )
        for one in traced
    ]
    return Answer(WrittenDataset(out.absolute(), rows), lambda: _show(out, rows))


def _address(text: str) -> tuple[str, str | None]:
    """Return an address and the commit or branch after its last @, which may be a user's:
    `git@host:owner/name`."""
    url, at, commit = text.rpartition("@")
    return (url, commit) if at and "/" not in commit and ":" not in commit else (text, None)


def _show(out: Path, rows: list[TracedRepository]) -> None:
    cells: Iterator[tuple[str, ...]] = (
        (
            row.repository,
            row.commit[:12],
            *(f"{number:,}" for number in (row.files, row.theorems, row.tactics)),
        )
        for row in rows
    )
    table(("REPOSITORY", "COMMIT", "FILES", "THEOREMS", "TACTICS"), list(cells))
    say(f"{out}: a dataset of these")


@verb("leandojo run", rest=True)
def run(
    call: Call,
    words: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT [ARGS]...", help="The script and its arguments."),
    ],
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as with `python -m`.")] = False,
) -> None:
    """Run a LeanDojo-v2 script unchanged. Write everlean's options before its name."""
    import os

    from daemon.leandojo.names import run_module, run_script

    if call.config is not None:
        os.environ["EVERLEAN_CONFIG"] = str(call.config.absolute())
    program, *arguments = words
    if module:
        run_module(program, arguments)
    else:
        run_script(Path(program), arguments)

"""A repository has one number of sorries: that of its default branch, wherever a number is shown."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from daemon.http.feed import badge
from pipeline.front import Front, changes, digest, front, lead
from pipeline.report import sections
from pipeline.report.page import render
from store import sorrydb
from store.documents.repositories import described_repositories
from store.sqlite import connect_readonly
from store.view import report_queries
from store.view.counts import SorryCounts, count_all, disproved, sorry_counts
from tests.support.state_folder import REPOSITORY, StateFolder, fill, make_folder

SINCE, NOW = "2026-01-01T00:00:00.000000Z", datetime(2100, 1, 1, tzinfo=UTC)
OF_BRANCHES = ("branches", "commits", "files", "sorries", "sorry_goals", "sorry_steps", "tallies")

OUTPUTS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "status": lambda view: (count_all(view), disproved(view)),
    "repos": lambda view: [(one.sorries, one.sorries_elsewhere) for one in described_repositories(view)],
    "badge": lambda view: badge(view, None),
    "badge of a repository": lambda view: badge(view, REPOSITORY),
    "metrics": lambda view: (report_queries.numbers(view).sorries, report_queries.numbers(view).theorems),
    "export sorrydb": lambda view: (
        sorrydb.database(view, goalless=True).records,
        sorrydb.database(view).left_out,
    ),
    "the first screen": lambda view: (lead(_front(view)), changes(_front(view))),
    "digest": lambda view: digest(_front(view)),
    "history": lambda view: sections.history(report_queries.turns(view), report_queries.past(view)),
    "the report": lambda view: render(view, made_at=NOW).html,
}


def _front(view: sqlite3.Connection) -> Front:
    return front(view, since=SINCE, until="2100-01-01T00:00:00.000000Z", problems=())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that no test changes."""
    result = make_folder(tmp_path_factory.mktemp("filled"))
    fill(result)
    result.write()
    return result.root


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> StateFolder:
    return StateFolder(Path(shutil.copytree(filled, tmp_path / "folder")))


def change(folder: StateFolder, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder.state / "database.db", isolation_level=None)) as database:
        database.execute(statement, values)


def add_branch(folder: StateFolder, name: str) -> None:
    """Add a branch that has what main has."""
    with closing(sqlite3.connect(folder.state / "database.db", isolation_level=None)) as database:
        for table in OF_BRANCHES:
            columns = [f'"{row[1]}"' for row in database.execute(f"PRAGMA table_info({table})")]
            copied = [repr(name) if column == '"branch"' else column for column in columns]
            database.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) "
                f"SELECT {', '.join(copied)} FROM {table} WHERE branch = 'main'"
            )


def asked(folder: StateFolder, question: Callable[[sqlite3.Connection], object]) -> object:
    with closing(connect_readonly(folder.state / "database.db")) as view:
        return question(view)


@pytest.mark.parametrize("default", ["main", "trunk", None])
@pytest.mark.parametrize("output", OUTPUTS)
def test_a_second_branch_without_differences_changes_nothing(
    output: str, default: str | None, folder: StateFolder
) -> None:
    change(folder, "UPDATE repositories SET default_branch = ?", default)
    before = asked(folder, OUTPUTS[output])
    add_branch(folder, "next")
    assert asked(folder, OUTPUTS[output]) == before


@pytest.mark.parametrize(
    ("default", "statement", "open_", "elsewhere"),
    [
        ("main", "UPDATE sorries SET sorry = 'f' || substr(sorry, 2) WHERE branch = 'next'", 2, 2),
        ("next", "UPDATE sorries SET sorry = 'f' || substr(sorry, 2) WHERE branch = 'next'", 2, 2),
        ("main", "UPDATE sorries SET state = 'filled' WHERE branch = 'main'", 0, 2),
        ("main", "UPDATE sorries SET state = 'filled' WHERE branch = 'next'", 2, 0),
        ("main", "UPDATE branches SET state = 'unwatched' WHERE branch = 'main'", 2, 0),
        ("main", "UPDATE branches SET state = 'unwatched' WHERE branch = 'next'", 2, 0),
        ("main", "UPDATE repositories SET watched = 0", 0, 0),
        (None, "UPDATE sorries SET state = 'filled' WHERE branch = 'main'", 2, 0),
        (None, "UPDATE sorries SET sorry = 'f' || substr(sorry, 2) WHERE branch = 'next'", 4, 0),
        ("trunk", "UPDATE sorries SET sorry = 'f' || substr(sorry, 2) WHERE branch = 'next'", 4, 0),
    ],
)
def test_the_default_branch_is_counted_and_what_only_others_have_beside_it(
    default: str | None, statement: str, open_: int, elsewhere: int, folder: StateFolder
) -> None:
    add_branch(folder, "next")
    change(folder, "UPDATE repositories SET default_branch = ?", default)
    change(folder, "UPDATE sorries SET state = 'open', verified_proof = NULL")
    change(folder, statement)
    number = asked(folder, lambda view: sorry_counts(view).get(REPOSITORY))
    result = (number.in_source, number.elsewhere) if isinstance(number, SorryCounts) else (0, 0)
    assert result == (open_, elsewhere)
    beside = f", and {elsewhere} more on other branches" if elsewhere else ""
    assert f'aria-label="sorries: {open_}{beside}"' in str(asked(folder, lambda view: badge(view, None)))
    if elsewhere:
        for arguments in (["status"], ["repos"]):
            assert beside in folder.everlean(*arguments).out
        assert beside in str(asked(folder, lambda view: lead(_front(view))))

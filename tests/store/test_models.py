"""The models of the view for notebooks, as mypy knows them, and the engine that reads beside the daemon."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import assert_type

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session, SQLModel, col, func, select

from store.errors import DatabaseMissingError, DatabaseReadOnlyError, ViewError
from store.view import models
from store.view.models import Proof, Sorry, read_only_engine
from store.view.tables import table_list
from tests.support.state_folder import PROOF, SORRY, StateFolder, fill, make_folder


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    folder = make_folder(tmp_path)
    fill(folder)
    folder.write()
    return folder


def test_each_table_has_a_model_and_none_is_among_the_tables_of_a_script() -> None:
    names = {table.name: table.row.__name__.removesuffix("Row") for table in table_list()}
    assert {name: getattr(models, model).__tablename__ for name, model in names.items()} == {
        name: name for name in names
    }
    assert not set(SQLModel.metadata.tables) & set(names)


def test_type_checkers_know_rows_and_columns(folder: StateFolder) -> None:
    with Session(read_only_engine(str(folder.state))) as session:
        sorries = session.exec(select(Sorry).where(Sorry.state == "verified")).all()
        assert_type(sorries, Sequence[Sorry])
        assert_type(sorries[0].verified_proof, str | None)
        joined = session.exec(
            select(Sorry.path, Proof).where(Proof.sorry == Sorry.sorry, col(Proof.proof).in_([PROOF]))
        ).one()
        assert_type(joined, tuple[str, Proof])
        path, proof = joined
        assert_type(proof.checks, list[dict[str, str]])
        found = session.get(Proof, PROOF)
        assert_type(found, Proof | None)
    assert [one.sorry for one in sorries] == [SORRY]
    assert (path, proof.axioms) == ("Demo.lean", ["propext"])
    assert proof.checks[0]["verdict"] == "passed"
    assert proof.grade == "L0"
    assert found == proof
    with pytest.raises(AttributeError):
        Sorry.sate  # type: ignore[attr-defined] # noqa: B018


def test_a_session_beside_the_writer_reads_what_is_new(folder: StateFolder) -> None:
    path = folder.state / "database.db"
    engine = read_only_engine(folder.state)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer, Session(engine) as session:
        counted = select(func.count()).select_from(Sorry).where(Sorry.state == "open")
        before = session.exec(counted).one()
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE sorries SET state = 'open'")
        assert session.exec(counted).one() == before
        writer.execute("COMMIT")
        assert session.exec(counted).one() == before + 1


def test_nothing_is_open_after_a_session(folder: StateFolder) -> None:
    engine = read_only_engine(folder.state)
    for _ in range(2):
        with Session(engine) as session:
            assert session.exec(select(Sorry)).first() is not None
    opened = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.exists()]
    assert [path for path in opened if "database.db" in path] == []


def test_whatever_would_write_is_refused_in_words(folder: StateFolder) -> None:
    database = folder.state / "database.db"
    before = database.read_bytes()
    said = rf"^{re.escape(str(database))}: nothing can be written here: it follows from the log, .*`everlean help`"
    with Session(read_only_engine(folder.state)) as session:
        sorry = session.exec(select(Sorry)).first()
        sorry.state = "filled"  # type: ignore[misc, union-attr]
        with pytest.raises(DatabaseReadOnlyError, match=said):
            session.commit()
    for statement in ("DELETE FROM sorries", "CREATE TABLE mine (a)", "PRAGMA user_version = 5"):
        with (
            Session(read_only_engine(folder.state)) as session,
            pytest.raises(DatabaseReadOnlyError, match=said),
        ):
            session.execute(text(statement))
    assert database.read_bytes() == before


def test_a_view_of_another_layout_is_refused_with_what_to_do(folder: StateFolder) -> None:
    engine = read_only_engine(folder.state)
    with closing(sqlite3.connect(folder.state / "database.db")) as other:
        other.execute("PRAGMA user_version = 7")
        other.commit()
    with pytest.raises(
        ViewError, match=r"made by another version of everlean.*`everlean db rebuild`, or start"
    ):
        read_only_engine(folder.state)
    # An engine that was made before a newer daemon came says the same at the next session.
    with Session(engine) as session, pytest.raises(ViewError, match="made by another version"):
        session.exec(select(Sorry)).first()


def test_a_folder_without_a_database_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(
        DatabaseMissingError,
        match=f"{re.escape(str(tmp_path))}/database.db: no such database; start the daemon",
    ):
        read_only_engine(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("question", "said"), [("SELECT b FROM sorries", "no such column: b"), ("SELECT :a", "not supported")]
)
def test_a_question_s_own_mistake_is_told_by_sqlalchemy(
    folder: StateFolder, question: str, said: str
) -> None:
    with Session(read_only_engine(folder.state)) as session, pytest.raises(DBAPIError, match=said):
        session.execute(text(question), {"a": object()} if ":a" in question else {})

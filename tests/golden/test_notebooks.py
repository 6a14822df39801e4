"""The page about notebooks: its examples run on a stored state, and what it names is there."""

from __future__ import annotations

import contextlib
import io
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlmodel import Session, select

from store.view import models, queries
from store.view.reading import make_all
from store.view.reading import select as columns_from
from store.view.schema import Table
from store.view.tables import table_list
from tests.golden.conftest import Golden
from tests.support.reference import DOCS

PAGE = (DOCS / "notebooks.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
STATE = '"/var/lib/everlean"'


@pytest.fixture
def engine(rebuilt: Path) -> Engine:
    return models.read_only_engine(rebuilt / "state")


def test_the_pages_examples_run_one_after_the_other(rebuilt: Path, golden: Golden) -> None:
    assert STATE in EXAMPLES[0]
    names: dict[str, Any] = {}
    shown = []
    for example in EXAMPLES:
        if "import pandas" in example:
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(example.replace(STATE, repr(str(rebuilt / "state"))), names)
        assert out.getvalue(), example
        shown.append(out.getvalue())
    golden("notebooks.txt", "\n".join(shown))


def test_pandas_takes_a_question_as_the_page_says(engine: Engine) -> None:
    pytest.importorskip("pandas")
    (example,) = (one for one in EXAMPLES if "import pandas" in one)
    names: dict[str, Any] = {"engine": engine, "select": select, "Sorry": models.Sorry}
    exec(example, names)
    with Session(engine) as session:
        there = session.exec(select(models.Sorry)).all()
    assert list(names["sorries"]["sorry"]) == [sorry.sorry for sorry in there]


def model_of(table: Table) -> Any:
    return getattr(models, table.row.__name__.removesuffix("Row"))


@pytest.mark.parametrize("table", table_list(), ids=lambda table: table.name)
def test_a_model_reads_what_its_row_reads(table: Table, rebuilt: Path, engine: Engine) -> None:
    with closing(queries.connect(rebuilt / "state" / "database.db")) as db:
        rows = make_all(table.row, db.execute(columns_from(table.row, table.name)))
    model = model_of(table)
    assert model.__doc__ == table.row.__doc__
    with Session(engine) as session:
        result = {tuple(getattr(one, name) for name in table.key): one for one in session.exec(select(model))}
    assert len(result) == len(rows)
    properties = [name for name, value in vars(table.row).items() if isinstance(value, property)]
    for row in rows:
        one = result[tuple(getattr(row, name) for name in table.key)]
        for name in (*table.row.__slots__, *properties):
            value, expected = getattr(one, name), getattr(row, name)
            assert (type(value), value) == (type(expected), expected), name


def test_each_column_that_the_page_names_is_there() -> None:
    named = re.findall(r"`([A-Z]\w+)\.(\w+)`", PAGE)
    assert len(named) >= 40
    assert [pair for pair in named if not hasattr(getattr(models, pair[0]), pair[1])] == []

"""Documents of a stored state: many are made with as many questions as one, and each fits its schema."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from daemon.cli.verbs.schema import DOCUMENTS, class_of
from store.documents.attempts import describe_attempts
from store.documents.checkpoints import describe_checkpoints
from store.documents.document import plain
from store.documents.jobs import describe_jobs
from store.documents.proofs import describe_proofs
from store.documents.repositories import described_repositories
from store.documents.schema import schema_of
from store.documents.sorries import describe_sorries
from store.documents.theorems import describe_theorems
from store.view import model_queries, queries
from store.view.reading import read
from store.view.rows import TheoremRow

Describe = Callable[[sqlite3.Connection, Sequence[Any]], Sequence[Any]]
RowsOf = Callable[[sqlite3.Connection], Sequence[Any]]


def attempts_on(view: sqlite3.Connection, sorries: Sequence[str]) -> list[Any]:
    return [one for attempts in describe_attempts(view, sorries).values() for one in attempts]


def attempted(view: sqlite3.Connection) -> list[str]:
    return sorted({row.sorry for row in queries.attempts(view)})


DESCRIBED: dict[str, tuple[RowsOf, Describe]] = {
    "attempt": (attempted, attempts_on),
    "checkpoint": (model_queries.checkpoints, describe_checkpoints),
    "job": (queries.jobs, partial(describe_jobs, folder=Path("/jobs"), running=False)),
    "proof": (queries.proofs, describe_proofs),
    "sorry": (queries.sorries, partial(describe_sorries, histories=True)),
    "theorem": (lambda view: read(view, TheoremRow, "theorems"), describe_theorems),
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_many_are_described_with_as_many_questions_as_one(name: str, rebuilt: Path) -> None:
    rows_of, describe = DESCRIBED[name]
    with closing(queries.connect(rebuilt / "state" / "database.db")) as view:
        rows = rows_of(view)
        assert len(rows) > 3
        questions: list[int] = []
        for some in (rows[:1], rows):
            requests: list[str] = []
            view.set_trace_callback(requests.append)
            result = describe(view, some)
            view.set_trace_callback(None)
            questions.append(len(requests))
        checked(name, result)
    # What is asked only where it can matter is one question more.
    assert 0 < questions[0] <= questions[1] <= questions[0] + 1


def test_a_repository_fits_its_schema(rebuilt: Path) -> None:
    with closing(queries.connect(rebuilt / "state" / "database.db")) as view:
        checked("repository", described_repositories(view, gaps=True))


def checked(name: str, documents: Sequence[Any]) -> None:
    schema = jsonschema.Draft202012Validator(schema_of(class_of(DOCUMENTS[name])))
    assert documents
    for one in documents[:: len(documents) // 50 + 1]:
        schema.validate(json.loads(json.dumps(one, default=plain)))


def test_every_document_has_a_schema_that_says_what_its_fields_are() -> None:
    for name in DOCUMENTS:
        schema = schema_of(class_of(DOCUMENTS[name]))
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["title"].lower().startswith(name)
        assert [one for one in schema["properties"].values() if "description" in one]

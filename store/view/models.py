"""The tables of database.db as SQLModel classes, and a read-only engine: for notebooks and scripts.

A model has the attributes and properties of its row class: lists and dicts for columns of JSON, booleans,
None for NULL. No column is written here. No process of ours imports this, as SQLModel takes half a second.
docs/notebooks.md is the page.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, dataclass_transform, get_type_hints

from sqlalchemy import JSON, REAL, URL, Boolean, Column, Engine, Integer, NullPool, Text, create_engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel
from sqlmodel.main import SQLModelMetaclass

from store.errors import DatabaseReadOnlyError
from store.sqlite import connect_readonly
from store.view import bumps, rows, tables
from store.view.schema import columns_of, table_of
from store.view.view import check_schema


def read_only_engine(state_dir: Path | str) -> Engine:
    """Return an engine for a state folder's database, also while the daemon runs; it needs no closing.

    Each connection is closed with its session, and each statement reads the daemon's commits so far.

    Raises:
        DatabaseMissingError: the folder has none.
        ViewError: its tables are not this version's.
        LogError: it cannot be read.
    """
    path = Path(state_dir) / "database.db"

    def connect() -> sqlite3.Connection:
        connection = connect_readonly(path, check=check_schema)
        connection.row_factory = None  # SQLAlchemy has rows of its own
        return connection

    connect().close()
    engine = create_engine(URL.create("sqlite", database=str(path)), creator=connect, poolclass=NullPool)

    @event.listens_for(engine, "handle_error")
    def refuse(context: ExceptionContext) -> None:
        error = context.original_exception
        # Errors from Python's own half of sqlite3 have no code.
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY:
            raise DatabaseReadOnlyError(
                f"{path}: nothing can be written here: it follows from the log, which the daemon alone writes. To "
                "change what it does, use the command line (`everlean help`); for tables of your own, take a "
                "database of your own"
            ) from error

    return engine


_TYPES = {"str": Text, "int": Integer, "bool": Boolean, "float": REAL}


@dataclass_transform(frozen_default=True)
class _FromRow(SQLModelMetaclass):
    """Make a model of the row class before `_Model` in its bases.

    Type checkers see a subclass of both. At run time the row class is no base: SQLAlchemy cannot use its
    slots.
    """

    def __new__(cls, name: str, bases: tuple[type[Any], ...], body: dict[str, Any], **options: Any) -> Any:
        if bases == (SQLModel,):
            return super().__new__(cls, name, bases, body, **options)
        row, *others = bases
        table = table_of(row)
        result: dict[str, Any] = {
            key: value for key, value in vars(row).items() if isinstance(value, property)
        }
        for column in columns_of(row):
            result[column.field] = Field(
                sa_column=Column(
                    column.name,
                    JSON(none_as_null=True) if column.is_json else _TYPES[column.type],
                    primary_key=column.name in table.key,
                    nullable=column.optional,
                )
            )
        result |= {
            "__doc__": row.__doc__,
            "__tablename__": table.name,
            "__annotations__": get_type_hints(row),
        }
        return super().__new__(cls, name, tuple(others), {**body, **result}, table=True, **options)


class _Model(SQLModel, metaclass=_FromRow, registry=registry()):
    """The common part of all models: tables apart from those of a script's own SQLModel classes."""


class Attempt(rows.AttemptRow, _Model): ...


class Accepted(tables.AcceptedRow, _Model): ...


class Branch(rows.BranchRow, _Model): ...


class Build(tables.BuildRow, _Model): ...


class Bump(bumps.BumpRow, _Model): ...


class Checkpoint(rows.CheckpointRow, _Model): ...


class Claim(rows.ClaimRow, _Model): ...


class Commit(rows.CommitRow, _Model): ...


class Declaration(rows.DeclarationRow, _Model): ...


class Evaluation(rows.EvaluationRow, _Model): ...


class File(rows.FileRow, _Model): ...


class Job(rows.JobRow, _Model): ...


class JobAttempt(rows.JobAttemptRow, _Model): ...


class JobTally(tables.JobTallyRow, _Model): ...


class Measure(rows.MeasureRow, _Model): ...


class Notifier(rows.NotifierRow, _Model): ...


class Offer(rows.OfferRow, _Model): ...


class PastCommit(rows.PastCommitRow, _Model): ...


class Pause(rows.PauseRow, _Model): ...


class PollState(tables.PollStateRow, _Model): ...


class Position(rows.PositionRow, _Model): ...


class Premise(rows.PremiseRow, _Model): ...


class Proof(rows.ProofRow, _Model): ...


class ProofTally(tables.ProofTallyRow, _Model): ...


class Repository(rows.RepositoryRow, _Model): ...


class ReservedPremise(tables.ReservedPremiseRow, _Model): ...


class Service(rows.ServiceRow, _Model): ...


class Sorry(rows.SorryRow, _Model): ...


class SorryGoal(rows.SorryGoalRow, _Model): ...


class SorryStep(rows.SorryStepRow, _Model): ...


class SplitMember(tables.SplitMemberRow, _Model): ...


class SplitTally(tables.SplitTallyRow, _Model): ...


class TacticPremise(tables.TacticPremiseRow, _Model): ...


class Tally(tables.TallyRow, _Model): ...


class Theorem(rows.TheoremRow, _Model): ...


class TheoremPremise(tables.TheoremPremiseRow, _Model): ...


class TheoremType(tables.TheoremTypeRow, _Model): ...


class TheoremVersion(rows.TheoremVersionRow, _Model): ...


class Trace(rows.TraceRow, _Model): ...


class TracedContent(tables.TracedContentRow, _Model): ...


class TracedFile(tables.TracedFileRow, _Model): ...


class TracedImport(tables.TracedImportRow, _Model): ...


class TracedTactic(tables.TracedTacticRow, _Model): ...


class TracedTheorem(rows.TracedTheoremRow, _Model): ...


class Trigger(rows.TriggerRow, _Model): ...


class UnfinishedScan(tables.UnfinishedScanRow, _Model): ...

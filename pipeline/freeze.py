"""Freeze a job's reads of the log and the view into its inputs, before it begins: a job reads no database.

It is done once for a job, whatever the number of its attempts (`pipeline.jobs.inputs`). A few questions to the view
take milliseconds (`freeze`). Exporting traces takes half a minute at Mathlib's size: a process of its own does it, with
the job's limits, before the job begins: `python -m pipeline.freeze --spec spec.json` (`export`). Inputs:

    check                     accepted-keys.txt, where kernels accepted something with this Lean before
    prove                     known.json; where premises are shown, corpus.jsonl, or no-corpus.txt with the reason
    bump                      the same without known.json
    train, train_tactics, …   dataset/…, the files of the dataset (`pipeline.models.datasets`)

A corpus is kept for the repository's later jobs until its next trace.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pipeline.jobs.inputs import Input, Inputs, InputStore
from pipeline.jobs.kinds import KINDS
from pipeline.jobs.known import known_to_prove
from pipeline.jobs.protocol import JobError, JobSpec, Reporter, Sources, run_job
from pipeline.jobs.spec import Spec
from pipeline.jobs.specs import (
    ACCEPTED_KEYS,
    CORPUS,
    DATASET,
    KNOWN,
    NO_CORPUS,
    BumpSpec,
    CheckSpec,
    ProgramRung,
    ProveSpec,
    TrainSpec,
    TrainTacticsSpec,
)
from pipeline.models.datasets import dataset_of
from pipeline.models.errors import DatasetError
from store.domain.identity import short_hash
from store.errors import LogError
from store.leandojo.choosing import ImportCycleError, NothingToExportError, choose
from store.leandojo.exporting import Mode, export_chosen, export_leandojo, one_moment
from store.log.reader import LogReader
from store.view import queries, trace_queries

_MOST_KEYS = 200_000
"""Maximum of earlier kernel verdicts for a check: 13 MB."""
_VERSION = "1"
"""The version of the export's output for the same traces."""


def freeze(order: Spec, job: str, place: Path, sources: Sources) -> Inputs | None:
    """Return a job's inputs, frozen if they are not there yet; None if `export` must make them.

    Args:
        order: the job's parameters.
        job: its id.
        place: the folder for its inputs.
        sources: read only; the daemon may be running.

    Raises:
        LogError: the view is unreadable.
        OSError: the disk refused.
    """
    store = InputStore(sources.contents)
    with closing(queries.connect(sources.database_db)) as view:
        given = contents(view, order, job, place, store)
    return store.freeze(place, given) if isinstance(given, dict) else given


def contents(
    view: sqlite3.Connection, order: Spec, job: str, place: Path, store: InputStore
) -> dict[str, bytes | Path | Input] | Inputs | None:
    """Return a job's frozen inputs, else the contents to freeze (`InputStore.freeze`); None if `export` must make them.

    Args:
        order, job, place: as `freeze` takes them.
    """
    if isinstance(order, TrainSpec):
        there = dataset_of(order.chain, job).exists()
        return Inputs(place) if there else store.frozen(place)
    if not isinstance(order, ProveSpec | BumpSpec | CheckSpec):
        return Inputs(place)
    frozen = store.frozen(place)
    if frozen is not None:
        return frozen
    if isinstance(order, CheckSpec):
        keys = queries.accepted_keys(view, toolchain=order.lean.toolchain, most=_MOST_KEYS)
        return {ACCEPTED_KEYS: "\n".join(keys).encode()} if keys else Inputs(place)
    given = _inputs(view, order)
    if (repository := _searched(order)) is not None:
        corpus = store.kept(*_key(view, repository))
        if corpus is None:
            return None
        given[CORPUS] = corpus
    return given


def export(order: Spec, place: Path, sources: Sources) -> Inputs:
    """Return the inputs that `freeze` could not make, from the log.

    Args:
        order, place, sources: as `freeze` takes them.

    Raises:
        JobError: the data has nothing to learn from, the log or the view is unreadable, or the disk refused.
    """
    # Not at the top: the daemon runs `freeze` without the libraries for training.
    from pipeline.models.training_job import failures

    if isinstance(order, ProveSpec | BumpSpec):
        with _failures_of_a_search():
            return _to_prove(order, place, sources)
    assert isinstance(order, TrainSpec)
    with failures(order.repository):
        return _to_train(order, place, sources)


def corpus_of_log(sources: Sources, *, repository: str) -> Input:
    """Return the stored corpus of a repository's newest trace, in training's form; kept until the next trace.

    Args:
        sources: read only; the daemon may be running.
        repository: a key.

    Raises:
        DatasetError: the repository has no trace, or its files import each other in a circle.
        LogError: the log or the view is unreadable, or the disk has no room for the corpus.
    """
    store = InputStore(sources.contents)
    try:
        # One transaction: a key's corpus has exactly its traces, whatever is recorded meanwhile.
        with closing(queries.connect(sources.database_db)) as view, one_moment(view):
            of, key = _key(view, repository)
            kept = store.kept(of, key)
            if kept is not None and store.is_whole(kept):
                return kept
            chosen = choose(view, (repository,), every_commit=False)
            with store.scratch() as scratch, LogReader.open(sources.events_db) as log:
                out = scratch / "dataset"
                export_chosen(out, chosen, log=log, view=view, mode=Mode.FOR_LIFE, with_database=False)
                return store.keep(of, key, out / CORPUS)
    except (NothingToExportError, ImportCycleError) as error:
        raise DatasetError(str(error)) from error
    except OSError as error:
        raise LogError(
            f"the corpus of {repository} cannot be kept in {store.folder}: {error.strerror or error}; make room there"
        ) from error


def _key(view: sqlite3.Connection, repository: str) -> tuple[str, str]:
    """Return the two parts of a corpus's name in the store: one for the repository, and a key that changes with each of
    its traces.
    """
    rows = trace_queries.traces(view, repository=repository)
    traces = (f"{row.trace}@{row.seq}" for row in rows)
    return short_hash("corpora", repository), short_hash("corpus", _VERSION, *traces)


def _searched(order: ProveSpec | BumpSpec) -> str | None:
    """Return the repository whose premises are searched; None for none."""
    if isinstance(order, ProveSpec):
        rungs, repository = [order.rung], order.repository
    else:
        rungs, repository = [one.spec for one in order.rungs], order.build.repository
    return None if all(one.retriever is None for one in rungs) else repository


def _inputs(view: sqlite3.Connection, order: ProveSpec | BumpSpec) -> dict[str, bytes | Path | Input]:
    if isinstance(order, BumpSpec):
        return {}
    known = known_to_prove(
        view,
        repository=order.repository,
        branch=order.branch,
        sorries=[one.sorry for one in order.sorries],
        with_attempts=isinstance(order.rung, ProgramRung),
    )
    return {KNOWN: known.model_dump_json().encode()}


def _to_prove(order: ProveSpec | BumpSpec, place: Path, sources: Sources) -> Inputs:
    with closing(queries.connect(sources.database_db)) as view:
        given = _inputs(view, order)
    repository = _searched(order)
    assert repository is not None
    try:
        given[CORPUS] = corpus_of_log(sources, repository=repository)
    except DatasetError as error:
        # The rung decides about it.
        given[NO_CORPUS] = str(error).encode()
    return InputStore(sources.contents).freeze(place, given)


@contextmanager
def _failures_of_a_search() -> Iterator[None]:
    try:
        yield
    except (LogError, OSError) as error:
        message = f"the known proofs and the premises: {error}"
        raise JobError("database", message, remedy="see `everlean doctor`") from error


def _to_train(order: TrainSpec, place: Path, sources: Sources) -> Inputs:
    from pipeline.models.tactics.accepted import accepted, write_accepted

    store = InputStore(sources.contents)
    with (
        closing(queries.connect(sources.database_db)) as view,
        LogReader.open(sources.events_db) as log,
        store.scratch() as scratch,
    ):
        out = scratch / "dataset"
        try:
            export_leandojo(
                out,
                log=log,
                view=view,
                repositories=(order.repository,),
                trace=order.trace,
                # A copy of all theorems, not read by training.
                with_database=False,
            )
        except (NothingToExportError, ImportCycleError) as error:
            raise DatasetError(str(error)) from error
        if isinstance(order, TrainTacticsSpec):
            write_accepted(out, accepted(view, log, repositories=order.proofs_of))
        files = sorted(path for path in out.rglob("*") if path.is_file())
        options: dict[str, bytes | Path | Input] = {
            f"{DATASET}{path.relative_to(out)}": path for path in files
        }
        return store.freeze(place, options)


def work(spec: JobSpec[Spec], reporter: Reporter) -> dict[str, Any]:
    """Make the inputs of the specification's job.

    Raises:
        JobError: the inputs cannot be made.
    """
    assert spec.sources is not None
    reporter.progress(0, 1, "exporting what it reads")
    result = export(spec.parameters, spec.inputs.folder, spec.sources)
    return {"inputs": len(result.files), "bytes": sum(one.size_bytes for one in result.files)}


if __name__ == "__main__":
    sys.exit(run_job({name: kind.spec for name, kind in KINDS.items()}, work))

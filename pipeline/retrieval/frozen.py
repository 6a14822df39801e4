"""A task's dataset as a job of training exports it: once, read-only, and kept beside the chain that learns from it.

    <chain>/.datasets/<job>/    corpus.jsonl, random/, …; as `store.leandojo.exporting` writes them

The test split of a task must be what it was when the task was learned, however the repository grows. A job that is
started again finds the dataset of its first attempt, and so goes on with the training that it began. Imports no torch.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.retrieval.errors import CorpusError, DatasetError, first_line
from store import queries
from store.leandojo.choosing import NothingToExportError
from store.leandojo.corpus import ImportCycleError
from store.leandojo.exporting import export_leandojo
from store.reader import LogReader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_DATASETS = ".datasets"


def dataset_of(chain: Path, job: str) -> Path:
    """Return where a chain's folder has the dataset of a training job, there or not."""
    return chain / _DATASETS / job


def frozen(
    chain: Path, job: str, *, events_db: Path, database_db: Path, repository: str, simulated: bool
) -> tuple[Path, int]:
    """Return a job's dataset, exported if it is not there yet, and the log position that it shows.

    Args:
        chain: the folder of checkpoints.
        job: the training job's id.
        events_db: the log, read only; the daemon may be running.
        database_db: its view, read only.
        repository: whose newest trace; a key.
        simulated: whether the simulator's traces count.

    Raises:
        DatasetError: the repository has no trace, or the dataset that is there is damaged.
        CorpusError: its files import each other in a circle.
        LogError: the log or the view cannot be read, or the dataset cannot be written; there is none then.
        OSError: the chain's folder cannot be written.
    """
    place = dataset_of(chain, job)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with (
            _as_retrieval_errors(),
            closing(queries.connect(database_db)) as view,
            LogReader.open(events_db) as log,
        ):
            export_leandojo(
                place,
                log=log,
                view=view,
                repositories=(repository,),
                simulated=simulated,
                # All the theorems again, which training does not read.
                with_database=False,
            )
    # Also of an attempt that was killed between the two.
    _set_modes(place, folders=0o555, files=0o444)
    metadata = place / "metadata.json"
    try:
        return place, int(json.loads(metadata.read_bytes())["unsorry"]["position"])
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{metadata} does not say of which position the dataset is ({first_line(error)}). Remove {place}: it is "
            "exported again"
        ) from error


def forget(chain: Path, job: str) -> None:
    """Remove a job's dataset: of one that made no checkpoint, and never will.

    Raises:
        OSError: it cannot be removed.
    """
    place = dataset_of(chain, job)
    if place.exists():
        _set_modes(place, folders=0o755, files=0o644)
        shutil.rmtree(place)


def forget_others(chain: Path, keep: Collection[str]) -> None:
    """Remove the datasets of jobs that are none of these: they were given up before they made a checkpoint.

    Raises:
        OSError: one cannot be removed.
    """
    for place in (chain / _DATASETS).glob("*"):
        if place.name not in keep:
            forget(chain, place.name)


@contextmanager
def _as_retrieval_errors() -> Iterator[None]:
    try:
        yield
    except NothingToExportError as error:
        raise DatasetError(str(error)) from error
    except ImportCycleError as error:
        raise CorpusError(str(error)) from error


def _set_modes(place: Path, *, folders: int, files: int) -> None:
    for parent, _, names in os.walk(place):
        # The folder first: where nothing in it may be written, its files' modes still can.
        Path(parent).chmod(folders)
        for name in names:
            Path(parent, name).chmod(files)

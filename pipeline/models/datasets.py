"""Datasets of training jobs: each is exported once, read-only, into the folder of its chain.

    <chain>/.datasets/<job>/    the training, validation and test data of the job's model

The test split of a task must be what it was when the task was learned, however the repository grows. A job that is
started again finds the dataset of its first attempt, and so continues the training that it began. Imports no torch.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.models.errors import CorpusError, DatasetError, first_line

if TYPE_CHECKING:
    from pipeline.jobs.specs import TrainSpec
    from store.domain.records import TracedTheorem

_DATASETS = ".datasets"


@dataclass(frozen=True, slots=True)
class TaskData:
    """A task: its name, its dataset's folder, and the log position that the dataset shows (0: it is from no log)."""

    name: str
    dataset: Path
    data_seq: int = 0


def theorems(path: Path) -> Iterator[tuple[str, TracedTheorem]]:
    """Yield the theorems of a split file (train.json, val.json or test.json), each with its file's path.

    Raises:
        DatasetError: it is not there, or is no split file.
    """
    # Not at the top: the daemon imports this module for a path.
    from store.errors import LogError
    from store.leandojo.records import Flaw, ImportFormatError, items, theorem

    try:
        for number, data in enumerate(items(path)):
            try:
                yield theorem(data, form="dataset")
            except Flaw as flaw:
                place = "".join((f"theorem {number}", *flaw.place))
                raise DatasetError(f"{path}: {place}: {flaw.reason}. Export the dataset again") from flaw
    except ImportFormatError as error:
        raise DatasetError(f"{path}: {error.place}: {error.reason}. Export the dataset again") from error
    except LogError as error:
        raise DatasetError(str(error)) from error


def dataset_of(chain: Path, job: str) -> Path:
    """Return the folder of a training job's dataset, which may not exist yet."""
    return chain / _DATASETS / job


def freeze(chain: Path, job: str, export: Callable[[Path], object]) -> Path:
    """Return a job's dataset, exported if it is not there yet; from then on it is read-only.

    Args:
        chain: the folder of checkpoints.
        job: the training job's id.
        export: writes the dataset into the folder that it receives, completely or not at all.

    Raises:
        OSError: the chain's folder cannot be written. And what `export` raises.
    """
    place = dataset_of(chain, job)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        export(place)
    # Also of an attempt that was killed between the two.
    _set_modes(place, folders=0o555, files=0o444)
    return place


def forget(chain: Path, job: str) -> None:
    """Remove the dataset of a job that will never make a checkpoint.

    Raises:
        OSError: it cannot be removed.
    """
    place = dataset_of(chain, job)
    if place.exists():
        _set_modes(place, folders=0o755, files=0o644)
        shutil.rmtree(place)


def forget_others(chain: Path, keep: Collection[str]) -> None:
    """Remove the datasets of all other jobs: they were given up before they made a checkpoint.

    Raises:
        OSError: one cannot be removed.
    """
    for place in (chain / _DATASETS).glob("*"):
        if place.name not in keep:
            forget(chain, place.name)


def _set_modes(place: Path, *, folders: int, files: int) -> None:
    for parent, _, names in os.walk(place):
        # The folder first: a read-only folder still allows changing its files' modes.
        Path(parent).chmod(folders)
        for name in names:
            Path(parent, name).chmod(files)


def frozen(order: TrainSpec, job: str) -> tuple[Path, int]:
    """Return a job's dataset, exported if it is not there yet, and the log position that it shows.

    Args:
        order: the repository or its trace, and the log's paths; the daemon may be running.
        job: the training job's id.

    Raises:
        DatasetError: there is no such trace, or the dataset that is there is damaged.
        CorpusError: its files import each other in a circle.
        LogError: the log or the view cannot be read, or the dataset cannot be written; nothing is left of it.
        OSError: the chain's folder cannot be written.
    """

    # Not at the top: the daemon imports this module for a path.
    from store.leandojo.choosing import ImportCycleError, NothingToExportError
    from store.leandojo.exporting import export_leandojo
    from store.log.reader import LogReader
    from store.view import queries

    def export(place: Path) -> None:
        try:
            with (
                closing(queries.connect(order.database_db)) as view,
                LogReader.open(order.events_db) as log,
            ):
                export_leandojo(
                    place,
                    log=log,
                    view=view,
                    repositories=(order.repository,),
                    trace=order.trace,
                    simulated=order.simulated,
                    # All the theorems again, which training does not read.
                    with_database=False,
                )
        except NothingToExportError as error:
            raise DatasetError(str(error)) from error
        except ImportCycleError as error:
            raise CorpusError(str(error)) from error

    place = freeze(order.chain, job, export)
    return place, exported_position(place, "unsorry", "position")


def exported_position(dataset: Path, *keys: str) -> int:
    """Return the log position in a dataset's metadata.json, under these keys.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    metadata = dataset / "metadata.json"
    try:
        found = json.loads(metadata.read_bytes())
        for key in keys:
            found = found[key]
        return int(found)
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{metadata} does not say of which position the dataset is ({first_line(error)}). Remove {dataset}: it is "
            "exported again"
        ) from error

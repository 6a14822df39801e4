"""Datasets in LeanDojo's format: a reader of their splits, and the folders of jobs' training data.

    <chain>/.datasets/<job>/    the training, validation and test data of the job's model, and the job's measurements

A task's test split must not change after the training, however the repository grows: a job's dataset is exported
once. A job started again finds the dataset of its first attempt, and so continues its training. Imports neither torch
nor the store: a dataset's folder is enough to read it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.models.errors import DatasetError, flaw_of
from store.text import first_line, json_items

_DATASETS = ".datasets"
_AGAIN = "Export the dataset again"
Position = tuple[int, int]
"""(line, column) from 1."""


@dataclass(frozen=True, slots=True)
class TaskData:
    """A task: its name, its dataset's folder, and the dataset's log position (0: it is from no log)."""

    name: str
    dataset: Path
    data_seq: int = 0


@dataclass(frozen=True, slots=True)
class Citation:
    """A premise in a step's text, by the place of its definition."""

    def_path: str
    def_pos: Position


@dataclass(frozen=True, slots=True)
class Tactic:
    """One step of a proof; of its annotation the text with the marks, and the citations."""

    tactic: str
    annotated_tactic: tuple[str, tuple[Citation, ...]]
    state_before: str


@dataclass(frozen=True, slots=True)
class Theorem:
    """A theorem of a split, as far as models read it. `url` and `commit` are None if the dataset has none."""

    file_path: str
    full_name: str
    start: Position
    url: str | None = None
    commit: str | None = None
    traced_tactics: tuple[Tactic, ...] = ()


def theorems(path: Path) -> Iterator[Theorem]:
    """Yield the theorems of a split file (train.json, val.json or test.json), perhaps larger than memory.

    Raises:
        DatasetError: it is missing, or is no split file.
    """
    read, number = _reader(), 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for data in json_items(file):
                yield read(data)
                number += 1
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}. {_AGAIN}, or name its folder") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: theorem {number}{flaw_of(error)}. {_AGAIN}") from error


@cache
def _reader() -> Callable[[Any], Theorem]:
    # Not at the top: the daemon imports this module for a path.
    from pydantic import TypeAdapter

    return TypeAdapter(Theorem).validate_python


def dataset_of(chain: Path, job: str) -> Path:
    """Return the folder of a training job's dataset, which may not exist yet."""
    return chain / _DATASETS / job


def keep_datasets(chain: Path, jobs: Collection[str]) -> None:
    """Remove the datasets of all other jobs: they were given up before they made a checkpoint.

    Raises:
        OSError: one cannot be removed.
    """
    for place in (chain / _DATASETS).glob("*"):
        if place.name not in jobs:
            shutil.rmtree(place)


def exported_position(dataset: Path) -> int:
    """Return the log position in a dataset's metadata.json.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    metadata = dataset / "metadata.json"
    try:
        return int(json.loads(metadata.read_bytes())["everlean"]["position"])
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{metadata} does not say of which position the dataset is ({first_line(error)}). Remove {dataset}: it is "
            "exported again"
        ) from error

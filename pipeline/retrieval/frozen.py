"""A task's dataset in LeanDojo's form, as a job of training exports it once (`pipeline.learning.datasets`).

    <chain>/.datasets/<job>/    corpus.jsonl, random/, …; as `store.leandojo.exporting` writes them

The retriever and the tactic models learn from it. Imports no torch.
"""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.learning.datasets import freeze
from pipeline.learning.training import Order
from pipeline.retrieval.errors import CorpusError, DatasetError, first_line
from store.leandojo.choosing import ImportCycleError, NothingToExportError
from store.leandojo.exporting import export_leandojo
from store.log.reader import LogReader
from store.view.queries import basic as queries

if TYPE_CHECKING:
    from collections.abc import Iterator


def frozen(order: Order, job: str) -> tuple[Path, int]:
    """Return a job's dataset, exported if it is not there yet, and the log position that it shows.

    Args:
        order: of which repository, or which trace of it, and where the log is; the daemon may be running.
        job: the training job's id.

    Raises:
        DatasetError: there is no such trace, or the dataset that is there is damaged.
        CorpusError: its files import each other in a circle.
        LogError: the log or the view cannot be read, or the dataset cannot be written; there is none then.
        OSError: the chain's folder cannot be written.
    """

    def export(place: Path) -> None:
        with (
            _as_retrieval_errors(),
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

    place = freeze(order.chain, job, export)
    metadata = place / "metadata.json"
    try:
        return place, int(json.loads(metadata.read_bytes())["unsorry"]["position"])
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{metadata} does not say of which position the dataset is ({first_line(error)}). Remove {place}: it is "
            "exported again"
        ) from error


@contextmanager
def _as_retrieval_errors() -> Iterator[None]:
    try:
        yield
    except NothingToExportError as error:
        raise DatasetError(str(error)) from error
    except ImportCycleError as error:
        raise CorpusError(str(error)) from error

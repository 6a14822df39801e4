"""A task's dataset for the progress model, as a job of training exports it once (`pipeline.learning.datasets`).

    <chain>/.datasets/<job>/learn.jsonl     the sides train and val, as `ProgressTrainer` reads them
    <chain>/.datasets/<job>/test.jsonl      the side test
    <chain>/.datasets/<job>/metadata.json   {"position": of the log}

Imports no torch.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

from pipeline.durable import make_durable, sync
from pipeline.learning.datasets import freeze
from pipeline.learning.training import Order
from pipeline.tactics.errors import NothingToLearnError, RowsError
from store.domain.splits import SIDES
from store.leandojo.choosing import NothingToExportError
from store.leandojo.progress import export_progress
from store.view.queries import basic as queries

LEARN = "learn.jsonl"
TEST = "test.jsonl"
_METADATA = "metadata.json"
_EXPORTED = "exported.jsonl"


def frozen_progress(order: Order, job: str) -> tuple[Path, int]:
    """Return a job's dataset, exported if it is not there yet, and the log position that it shows.

    Args:
        order: of which repository, or which trace of it, and where the log's view is; the daemon may be running.
        job: the training job's id.

    Raises:
        NothingToLearnError: there is no such trace, or no proof to learn from.
        RowsError: the dataset that is there is damaged.
        LogError: the view cannot be read, or the dataset cannot be written; there is none then.
        OSError: the chain's folder cannot be written.
    """

    def export(place: Path) -> None:
        beside = place.with_name(f".new-{place.name}")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        try:
            with closing(queries.connect(order.database_db)) as view:
                made = export_progress(
                    beside / _EXPORTED,
                    view=view,
                    repositories=(order.repository,),
                    trace=order.trace,
                    simulated=order.simulated,
                    sides=SIDES,
                )
            _divide(beside)
            (beside / _METADATA).write_text(json.dumps({"position": made.position}), encoding="utf-8")
            make_durable(beside)
            beside.rename(place)
            sync(place.parent)
        except NothingToExportError as error:
            raise NothingToLearnError(str(error)) from error
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    place = freeze(order.chain, job, export)
    try:
        return place, int(json.loads((place / _METADATA).read_bytes())["position"])
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise RowsError(
            f"{place / _METADATA} does not say of which position the dataset is ({error}). Remove {place}: it is "
            "exported again"
        ) from error


def _divide(folder: Path) -> None:
    """Put the test side in a file of its own: nothing that trains reads it."""
    exported = folder / _EXPORTED
    with (
        exported.open(encoding="utf-8") as lines,
        (folder / LEARN).open("w", encoding="utf-8") as learn,
        (folder / TEST).open("w", encoding="utf-8") as test,
    ):
        for line in lines:
            row = json.loads(line)
            if row["side"] == "test":
                # To whoever reads it, a row of no side.
                del row["side"]
                test.write(json.dumps(row, ensure_ascii=False) + "\n")
            else:
                learn.write(line)
    exported.unlink()

"""Export traces as Parquet: what `datasets.load_dataset(FOLDER, "random")` reads.

    random/, novel_premises/    train.parquet, val.parquet, test.parquet: a theorem a row, with its steps
    corpus.parquet              a premise a row
    files.parquet               a file a row, with what it imports
    README.md                   the dataset's card, which names these as configurations

The content is that of `store.leandojo.exporting`, from which it is made, file after file. A theorem's `id` is the key
by which its side of a split is decided and stays for life (`store.domain.identity.split_key`), in every export.
"""

from __future__ import annotations

import importlib
import itertools
import json
import shutil
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.domain.identity import split_key
from store.domain.splits import SIDES, SPLITS
from store.errors import LogError
from store.leandojo.exporting import export_leandojo
from store.leandojo.folder import check_replaceable, replaced
from store.leandojo.records import items
from store.log.reader import LogReader

_ROWS = 1000
"""Of a row group: so many are in memory."""
_CARD = """\
---
pretty_name: {name}
tags: [lean4, theorem-proving, premise-retrieval{tag}]
configs:
{configs}
---
# {name}

{simulated}Theorems of {repositories}, with each step's state and the premises that it uses, in LeanDojo's
fields; as of event {position} of the log.

`id` is a theorem's key: by its statement, the same in every export. It decides the theorem's side of a split for life.
`corpus` has every premise, by file and place, and `files` what each file imports: together they say what a theorem may
use.
"""


@dataclass(frozen=True, slots=True)
class ParquetReport:
    path: Path
    position: int
    simulated: bool
    theorems: dict[str, int]
    """how many by list, such as `random/train`"""
    premises: int
    files: int
    seconds: float


def export_parquet(
    out: Path,
    *,
    log: LogReader,
    view: sqlite3.Connection,
    repositories: Collection[str] = (),
    simulated: bool = False,
) -> ParquetReport:
    """Write the splits and the corpus as Parquet, in the place of an earlier export. The daemon may be running.

    Args:
        out: the folder to make.
        log, view, repositories, simulated: as `export_leandojo` takes them.

    Raises:
        LogError: as `export_leandojo`, or pyarrow is not installed.
    """
    started = time.monotonic()
    try:
        importlib.import_module("pyarrow")
    except ImportError as error:
        raise LogError(
            "pyarrow is not installed; install everlean with what trains models: pip install 'everlean[train]'"
        ) from error
    check_replaceable(out)
    with replaced(out, {"form": "parquet"}) as folder:
        # In a folder of its own: the export locks the one above it, and this one is locked.
        beside = folder / "made-of"
        beside.mkdir()
        made = export_leandojo(
            beside / "leandojo",
            log=log,
            view=view,
            repositories=repositories,
            simulated=simulated,
            with_database=False,
        )
        source = made.path
        theorems = {
            f"{split}/{side}": _write(
                folder / split / f"{side}.parquet",
                _theorems(source / split / f"{side}.json"),
                _theorem_columns(),
            )
            for split in SPLITS
            for side in SIDES
        }
        premises = _write(folder / "corpus.parquet", _premises(source), _premise_columns())
        files = _write(folder / "files.parquet", _files(source), _file_columns())
        names = [head["url"] for head, in_dataset in made.repositories if in_dataset]
        (folder / "README.md").write_text(_card(names, made.position, made.simulated), encoding="utf-8")
        shutil.rmtree(beside)
    return ParquetReport(
        out, made.position, made.simulated, theorems, premises, files, time.monotonic() - started
    )


def _write(path: Path, rows: Iterator[Mapping[str, Any]], columns: Mapping[str, Any]) -> int:
    """Write rows to a file, group after group; return how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(list(columns.items()))
    path.parent.mkdir(exist_ok=True)
    n = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := list(itertools.islice(rows, _ROWS)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
            n += len(group)
    return n


def _theorem_columns() -> dict[str, Any]:
    import pyarrow as pa

    text, place = pa.string(), pa.list_(pa.int32(), 2)
    premise = pa.struct([("full_name", text), ("def_path", text), ("def_pos", place), ("def_end_pos", place)])
    step = pa.struct(
        [
            ("tactic", text),
            ("annotated_tactic", text),
            ("premises", pa.list_(premise)),
            ("state_before", text),
            ("state_after", text),
        ]
    )
    return {
        **dict.fromkeys(("id", "url", "commit", "file_path", "full_name", "theorem_statement"), text),
        "start": place,
        "end": place,
        "traced_tactics": pa.list_(step),
    }


def _theorems(path: Path) -> Iterator[Mapping[str, Any]]:
    for theorem in items(path):
        steps = [
            {**step, "annotated_tactic": step["annotated_tactic"][0], "premises": step["annotated_tactic"][1]}
            for step in theorem["traced_tactics"]
        ]
        key = split_key(theorem["full_name"], theorem["theorem_statement"])
        yield {**theorem, "id": key, "traced_tactics": steps}


def _premise_columns() -> dict[str, Any]:
    import pyarrow as pa

    place = pa.list_(pa.int32(), 2)
    return {
        **dict.fromkeys(("path", "full_name", "kind", "code"), pa.string()),
        "start": place,
        "end": place,
    }


def _premises(source: Path) -> Iterator[Mapping[str, Any]]:
    for line in _lines(source):
        for premise in line["premises"]:
            yield {"path": line["path"], **premise}


def _file_columns() -> dict[str, Any]:
    import pyarrow as pa

    return {"path": pa.string(), "imports": pa.list_(pa.string())}


def _files(source: Path) -> Iterator[Mapping[str, Any]]:
    return ({"path": line["path"], "imports": line["imports"]} for line in _lines(source))


def _lines(source: Path) -> Iterator[Any]:
    with (source / "corpus.jsonl").open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _card(repositories: Iterable[str], position: int, simulated: bool) -> str:
    configs = []
    for split in SPLITS:
        configs.append(f"- config_name: {split}\n  data_files:")
        configs += [
            f"  - split: {'validation' if side == 'val' else side}\n    path: {split}/{side}.parquet"
            for side in SIDES
        ]
    configs += [f"- config_name: {name}\n  data_files: {name}.parquet" for name in ("corpus", "files")]
    return _CARD.format(
        name="Traces of Lean 4 by everlean",
        tag=", simulated" if simulated else "",
        configs="\n".join(configs),
        simulated="**SIMULATED: the simulator, and not Lean, made some of it.**\n\n" if simulated else "",
        repositories=", ".join(repositories),
        position=position,
    )

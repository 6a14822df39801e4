"""The records of a LeanDojo dataset folder: theorems of train.json, val.json and test.json, and metadata.json.

The lists are as LeanDojo's merged export has them: indented by two, ASCII only, positions as [line, column].
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from store.leandojo.corpus import Merge, Names, closure_of
from store.leandojo.merging import Merger
from store.leandojo.opened import OpenTrace, ReadFile, RepositoryCounts
from store.leandojo.reading import THEOREM_LISTS
from store.leandojo.rendering import indented, tactic
from store.leandojo.spool import Spool

BULLET = "·"


def theorem_record(
    data: Mapping[str, Any],
    *,
    url: str,
    commit: str,
    path: str,
    paths: Mapping[str, str],
    every_tactic: bool = False,
) -> str:
    """Return a theorem of a `file_traced` payload as an item of train.json.

    `path` is the file's name in the export and `paths` that of any path that a proof names. LeanDojo leaves out tactics
    that begin at "no goals" or have a bullet in them; `every_tactic` keeps them, for a dataset given back as it was.
    """
    record = {
        "url": data.get("url", url),
        "commit": data.get("commit", commit),
        "file_path": path,
        "full_name": data["full_name"],
        "theorem_statement": data["theorem_statement"],
        "start": data["start"],
        "end": data["end"],
        "traced_tactics": [
            tactic(item, list, paths)
            for item in data["traced_tactics"]
            if every_tactic or (item["state_before"] != "no goals" and BULLET not in item["tactic"])
        ],
        **data.get("extra", {}),
    }
    return "  " + indented(record, margin=2, ascii_only=True)


def metadata(
    repositories: Sequence[tuple[Mapping[str, Any], RepositoryCounts]], ours: Mapping[str, Any]
) -> dict[str, Any]:
    """Return metadata.json: LeanDojo's merged keys, the `from_repo` that ReProver's loaders read, and our own.

    A repository is given by its `url`, `name`, `commit`, `lean_version`, `lean_dojo_version` and `metadata`.
    `from_repo` is the first one.
    """
    counts = [item for _, item in repositories]
    first = repositories[0][0]
    return {
        "repositories": [dict(item) for item, _ in repositories],
        "total_theorems": sum(item.theorems for item in counts),
        "num_proven_theorems": sum(item.proven for item in counts),
        "num_sorry_theorems": sum(item.sorries for item in counts),
        "num_premise_files": sum(item.premise_files for item in counts),
        "num_premises": sum(item.premises for item in counts),
        "num_files_traced": sum(item.files_traced for item in counts),
        "from_repo": {"url": first["url"], "commit": first["commit"]},
        "unsorry": dict(ours),
    }


class DatasetWriter:
    """Writes corpus.jsonl and spools the theorems: of each trace `begin`, its files, `end_of_trace`.

    `merge` says what files are called, `merger` (None for a folder given back as it was imported) what becomes of
    theorems. `traced` has the names of all traced files.
    """

    def __init__(self, corpus: BinaryIO, records: Spool, merge: Merge, merger: Merger | None) -> None:
        self.traced: dict[str, None] = {}
        self.corpus_files = 0
        self._corpus = corpus
        self._records = records
        self._merge = merge
        self._merger = merger
        self._first = 0  # the number of the trace's first theorem
        self._closures: dict[str, str] = {}
        self._unclaimed: Iterator[str] = iter(())  # of the corpus, in its order

    def begin(self, trace: OpenTrace) -> Names:
        """Begin a trace; return what `add` is to be given with its files."""
        names = Names(
            self._merge,
            trace.chosen.row.repository,
            trace.chosen.row.sha,
            lambda path: self._look_ahead(trace, names, path),
        )
        for path, digest in trace.outside_corpus.items():
            names.claim(path, digest)
        self._first = len(self._records)
        self._closures = {}
        self._unclaimed = iter([path for path in trace.paths if path not in trace.outside_corpus])
        return names

    def add(self, trace: OpenTrace, file: ReadFile, names: Names) -> None:
        """Take a file of the trace."""
        row = trace.chosen.row
        if file.in_corpus:
            self._claim(names, file.path, file.data)
            line = self._merge.line(file.data, names, self._closures)
            if line is not None:
                self._corpus.write(line.encode())
                self.corpus_files += 1
        for data, facts in zip(file.data["theorems"], file.facts, strict=True):
            path = names[file.path]
            number = self._records.add(
                theorem_record(
                    data,
                    url=row.url,
                    commit=row.sha,
                    path=path,
                    paths=names,
                    every_tactic=self._merger is None,
                )
            )
            if self._merger is not None:
                self._merger.add(trace.chosen, path, data, facts, number)

    def end_of_trace(self, trace: OpenTrace, names: Names) -> None:
        """Write what its proofs name and nobody traced; tell the merger the trace's lists."""
        for line in self._merge.untraced(names):
            self._corpus.write(line.encode())
            self.corpus_files += 1
        self.traced |= dict.fromkeys(names.get(path, path) for path in trace.files_traced)
        if self._merger is not None:
            lists = [[self._first + number for number in trace.in_list(name)] for name in THEOREM_LISTS]
            self._merger.end_of_trace(lists)

    def _claim(self, names: Names, path: str, data: Mapping[str, Any]) -> None:
        if path in self._closures:
            return  # it was looked at ahead
        closure = self._closures[path] = closure_of(data, self._closures) if self._merge.by_closure else ""
        names.claim(path, closure)

    def _look_ahead(self, trace: OpenTrace, names: Names, wanted: str) -> None:
        """Claim the files of the corpus up to one that comes later, in their order; nothing if it has no such file."""
        if not self._merge.by_closure or not trace.has_in_corpus(wanted):
            return
        for path in self._unclaimed:
            if path not in self._closures:
                self._claim(names, path, trace.data(path))
            if path == wanted:
                return


def write_traced_files(out: BinaryIO, paths: Iterable[str]) -> None:
    """Write traced_files.jsonl."""
    out.writelines((json.dumps({"traced_file_path": path}) + "\n").encode() for path in paths)

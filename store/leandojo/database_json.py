"""The records of dynamic_database.json and the file around them: indented by two, UTF-8, positions "(line, column)".

`difficulty_rating: Infinity`, which LeanDojo writes and which is no JSON, is null unless it is asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from store.leandojo.opened import OpenTrace, ReadFile
from store.leandojo.reading import THEOREM_LISTS
from store.leandojo.records import write_position
from store.leandojo.rendering import indented, tactic
from store.leandojo.spool import Spool


class _AsTheyAre(dict[str, str]):
    def __missing__(self, path: str) -> str:
        return path


_PATHS = _AsTheyAre()
_MARGIN = " " * 8


def theorem_record(data: Mapping[str, Any], *, url: str, commit: str, path: str, infinity: bool) -> str:
    """Return a theorem of a `file_traced` payload as an item of a repository's lists."""
    difficulty = data.get("difficulty")
    if difficulty == "Infinity":
        difficulty = math.inf if infinity else None
    record = {
        "full_name": data["full_name"],
        "theorem_statement": data["theorem_statement"],
        "file_path": path,
        "start": _position(data["start"]),
        "end": _position(data["end"]),
        "url": data.get("url", url),
        "commit": data.get("commit", commit),
        "traced_tactics": [tactic(item, _position, _PATHS) for item in data["traced_tactics"]],
        "difficulty_rating": difficulty,
        **data.get("extra", {}),
    }
    return _MARGIN + indented(record, margin=8)


def premise_file_record(data: Mapping[str, Any]) -> str:
    """Return a `file_traced` payload's corpus side as an item of `premise_files`."""
    premises = [
        {
            "full_name": item["full_name"],
            "code": item["code"],
            "start": _position(item["start"]),
            "end": _position(item["end"]),
            "kind": item["kind"],
            **item.get("extra", {}),
        }
        for item in data["premises"]
    ]
    record = {"path": data["path"], "imports": data["imports"], "premises": premises, **data.get("extra", {})}
    return _MARGIN + indented(record, margin=8)


def _position(value: Iterable[int]) -> str:
    line, column = value
    return write_position((line, column))


def _members(values: Mapping[str, Any]) -> str:
    """Write the inside of a repository's record."""
    return ",\n".join(
        f"      {json.dumps(key, ensure_ascii=False)}: {indented(value, margin=6)}"
        for key, value in values.items()
    )


class DatabaseWriter:
    """Writes a dynamic_database.json into an open file: of each trace its files, then `end_of_trace`; then `finish`.

    `spools` are two empty ones, for the records of the trace at hand. `infinity`: see the module.
    """

    def __init__(self, out: BinaryIO, spools: tuple[Spool, Spool], *, infinity: bool) -> None:
        self._out = out
        self._theorems, self._premise_files = spools
        self._infinity = infinity
        self._premise_file_of: dict[str, int] = {}
        self._beside: dict[str, Any] = {}
        self._n_repositories = 0
        out.write(b'{\n  "repositories": [')

    def add(self, trace: OpenTrace, file: ReadFile) -> None:
        """Take a file of a trace."""
        row = trace.chosen.row
        for data in file.data["theorems"]:
            self._theorems.add(
                theorem_record(data, url=row.url, commit=row.sha, path=file.path, infinity=self._infinity)
            )
        if file.in_corpus:
            self._premise_file_of[file.path] = self._premise_files.add(premise_file_record(file.data))

    def end_of_trace(self, trace: OpenTrace) -> None:
        """Write a trace's record, with its lists in an import's order if it is one."""
        out, counts = self._out, trace.counts()
        head = trace.chosen.head | {
            "total_theorems": counts.theorems,
            "num_proven_theorems": counts.proven,
            "num_sorry_theorems": counts.sorries,
            "num_sorry_theorems_proved": counts.sorry_proved,
            "num_sorry_theorems_unproved": counts.sorry_unproved,
            "num_premise_files": counts.premise_files,
            "num_premises": counts.premises,
            "num_files_traced": counts.files_traced,
        }
        out.write(b",\n    {\n" if self._n_repositories else b"\n    {\n")
        out.write(_members(head).encode())
        for name in THEOREM_LISTS:
            out.write(f',\n      "{name}": '.encode())
            self._theorems.write_list(trace.in_list(name), out, indent="      ")
        out.write(b',\n      "premise_files": ')
        order = [self._premise_file_of[path] for path in trace.corpus_paths]
        self._premise_files.write_list(order, out, indent="      ")
        extra = {} if trace.manifest is None else trace.manifest.extra
        rest = {"files_traced": list(trace.files_traced), "pr_url": trace.chosen.row.pr_url, **extra}
        out.write(b",\n" + _members(rest).encode() + b"\n    }")
        self._n_repositories += 1
        # Of several imported files with keys of their own beside "repositories" the first one's stand.
        self._beside = {**({} if trace.manifest is None else trace.manifest.beside), **self._beside}
        self._premise_file_of = {}
        self._theorems.clear()
        self._premise_files.clear()

    def finish(self) -> None:
        """Write the end of the file."""
        out = self._out
        out.write(b"\n  ]" if self._n_repositories else b"]")
        for key, value in self._beside.items():
            out.write(f",\n  {json.dumps(key, ensure_ascii=False)}: {indented(value, margin=2)}".encode())
        out.write(b"\n}")

"""The records of dynamic_database.json and the file around them: indented by two, UTF-8, positions "(line, column)".

`difficulty_rating: Infinity`, which LeanDojo writes and which is no JSON, is null unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

from store.leandojo.opened import OpenTrace, ReadFile
from store.leandojo.reading import THEOREM_LISTS
from store.leandojo.rendering import Frame
from store.leandojo.spool import Spool

RECORD = Frame(margin=8, ascii_only=False, text_positions=True)
_REPOSITORY = Frame(margin=4, ascii_only=False, text_positions=True)
_FILE = Frame(margin=0, ascii_only=False, text_positions=True)

_THEOREM = RECORD.layout(
    "full_name",
    "theorem_statement",
    "file_path",
    "start",
    "end",
    "url",
    "commit",
    "traced_tactics",
    "difficulty_rating",
)
_PREMISE = RECORD.layout("full_name", "code", "start", "end", "kind", depth=4)
_PREMISE_FILE = RECORD.layout("path", "imports", "premises")


class _AsTheyAre(dict[str, str]):
    def __missing__(self, path: str) -> str:
        return path


_PATHS = _AsTheyAre()


def theorem_record(data: Mapping[str, Any], *, url: str, commit: str, path: str, infinity: bool) -> str:
    """Return a theorem of a `file_traced` payload as an item of a repository's lists."""
    difficulty = data.get("difficulty")
    unbounded = "Infinity" if infinity else "null"
    statement = data["theorem_statement"]
    write = RECORD.text
    return _THEOREM % (
        write(data["full_name"]),
        "null" if statement is None else write(statement),
        write(path),
        RECORD.position(data["start"]),
        RECORD.position(data["end"]),
        write(data.get("url", url)),
        write(data.get("commit", commit)),
        RECORD.array([RECORD.tactic(item, _PATHS) for item in data["traced_tactics"]]),
        unbounded if difficulty == "Infinity" else RECORD.value(difficulty),
        RECORD.more(data),
    )


def premise_file_record(data: Mapping[str, Any]) -> str:
    """Return a `file_traced` payload's corpus side as an item of `premise_files`."""
    premises = [
        _PREMISE
        % (
            RECORD.value(item["full_name"]),
            RECORD.text(item["code"]),
            RECORD.position(item["start"], depth=6),
            RECORD.position(item["end"], depth=6),
            RECORD.text(item["kind"]),
            RECORD.more(item, depth=6),
        )
        for item in data["premises"]
    ]
    return _PREMISE_FILE % (
        RECORD.text(data["path"]),
        RECORD.strings(data["imports"]),
        RECORD.array(premises),
        RECORD.more(data),
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
        frame, out, counts = _REPOSITORY, self._out, trace.counts()
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
        out.write(frame.members((key, frame.value(value)) for key, value in head.items()).encode())
        for name in THEOREM_LISTS:
            out.write(f',\n      "{name}": '.encode())
            self._theorems.write_list(trace.in_list(name), out, indent="      ")
        out.write(b',\n      "premise_files": ')
        order = [self._premise_file_of[path] for path in trace.corpus_paths]
        self._premise_files.write_list(order, out, indent="      ")
        extra = {} if trace.manifest is None else trace.manifest.extra
        rest = [
            ("files_traced", frame.strings(trace.files_traced)),
            ("pr_url", frame.value(trace.chosen.row.pr_url)),
            *((key, frame.value(value)) for key, value in extra.items()),
        ]
        out.write(b",\n" + frame.members(rest).encode() + b"\n    }")
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
            out.write(f",\n  {_FILE.text(key)}: {_FILE.value(value)}".encode())
        out.write(b"\n}")

"""LeanDojo's files for tests: small and odd ones at random, large and plain ones; and a state folder to import them.

Everything is as LeanDojo's own classes write it: shuffled lists, positions as text in a database and as lists in a
dataset, a bare `Infinity`. The same random state makes the same files.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from store.domain.records import Manifest, TracedFile
from store.domain.splits import SIDES, SPLITS
from store.leandojo.exporting import Exported, Mode, export_leandojo
from store.leandojo.reading import Imported, import_leandojo
from store.log.log import EventLog
from store.log.reader import LogReader
from store.recording import TraceHead, record_trace
from store.view import queries
from store.view.view import View
from tests.support.traced_repository import head

COMMIT = "a" * 40
_WORDS = (
    "add_comm",
    "μ_compl",
    "«odd name»",
    "sorry_free",
    "le₃",
    "symm'",
    'quote"d',
    "a\\b",
    "tab\there",
    "𝔸",
)
_LISTS = ("proven_theorems", "sorry_theorems_proved", "sorry_theorems_unproved")

LISTS = [f"{split}/{side}" for split in SPLITS for side in SIDES]
"""The lists of a dataset."""


def read_json(path: Path) -> Any:
    """Read a JSON file, or the list of a .jsonl file's lines."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


class LeanDojoFolder:
    """A state folder that LeanDojo's files are imported into, and exported from into `out`."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.events_db = root / "events.db"
        self.database_db = root / "database.db"
        self.out = root / "out"

    def record(self, files: Iterable[TracedFile] = (), trace: TraceHead | None = None) -> None:
        """Record a trace of our own; without files only make the log and its view."""
        with (
            EventLog.open(self.events_db) as log,
            log.reader() as reader,
            View.open(self.database_db, reader) as view,
        ):
            if files:
                record_trace(log, trace=trace or head(), files=files, stage=self.root / "stage")
            view.catch_up()

    def take(self, path: Path) -> Imported:
        stage = self.root / "import"
        report = import_leandojo(path, events_db=self.events_db, database_db=self.database_db, stage=stage)
        assert not stage.exists()
        return report

    def take_data(self, data: Any) -> Imported:
        return self.take(self.write(data))

    def write(self, data: Any) -> Path:
        path = self.root / "dynamic_database.json"
        path.write_text(json.dumps(data, indent=2, ensure_ascii=False), encoding="utf-8")
        return path

    def export(self, out: Path | None = None, **options: Any) -> Exported:
        with LogReader.open(self.events_db) as log, closing(queries.connect(self.database_db)) as view:
            return export_leandojo(out or self.out, log=log, view=view, **options)

    def give_back(self, *repositories: str) -> Path:
        self.export(mode=Mode.AS_IMPORTED_COMPAT, repositories=repositories)
        return self.out

    def json(self, name: str) -> Any:
        return read_json(self.out / name)

    def lists(self) -> dict[str, list[Any]]:
        return {name: self.json(f"{name}.json") for name in LISTS}

    def theorems(self) -> list[Any]:
        return [theorem for side in SIDES for theorem in self.json(f"random/{side}.json")]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database_db)) as connection:
            return connection.execute(sql).fetchall()

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        with LogReader.open(self.events_db) as log:
            return [(event.type, event.data) for event in log.read()]

    def payload(self, sha256: str) -> Any:
        with LogReader.open(self.events_db) as log:
            return json.loads(log.blob(sha256))

    def manifest(self, report: Imported) -> Manifest:
        """Return the manifest of an import's first trace."""
        trace = report.repositories[0].trace
        [(sha256,)] = self.rows(f"SELECT manifest_sha256 FROM traces WHERE trace = '{trace}'")
        return Manifest.from_json(self.payload(sha256))

    def file(self, path: str) -> TracedFile:
        [(sha256,)] = self.rows(
            f"SELECT sha256 FROM traced_files JOIN traced_contents USING (content) WHERE path = '{path}' "
            "AND until_seq IS NULL"
        )
        return TracedFile.from_json(self.payload(sha256))


def database(random: Random, *, repositories: int = 2, odd: bool = True) -> dict[str, Any]:
    """Return a dynamic_database.json as data.

    With `odd` it also has what LeanDojo's own reader drops or only LeanAgent wrote: keys of its own at every level,
    "Pos(l, c)", theorems that are in two lists or twice in one, or name another commit.
    """
    document: dict[str, Any] = {
        "repositories": [_repository(random, number, odd) for number in range(repositories)]
    }
    if odd and random.random() < 0.3:
        document["written_by"] = {"tool": "something", "pages": [1, 2.5, None, True]}
    return document


def without_circles(data: dict[str, Any]) -> dict[str, Any]:
    """Remove imports that go in circles, as odd ones may: a dataset needs an order of its files."""
    for repository in data["repositories"]:
        seen: set[str] = set()
        for file in repository["premise_files"]:
            file["imports"] = [path for path in file["imports"] if path in seen or path == "Init.lean"]
            seen.add(file["path"])
    return data


def write_dataset(
    folder: Path, random: Random, *, merged: int | None = None, odd: bool = True
) -> dict[str, Any]:
    """Write a dataset folder, of one repository or merged from several; return every file's content by name."""
    repositories = [(f"https://github.com/demo/r{number}", f"{number:040x}") for number in range(merged or 1)]
    theorems = []
    for number in range(random.randrange(12)):
        url, commit = random.choice(repositories)
        # A single repository's dataset names the folder in which it was traced.
        own = {"url": url if merged else "/tmp/traced/demo", "commit": commit}
        theorems.append({**own, **_theorem(random, number, odd, text_positions=False)})
    files: dict[str, Any] = {}
    for split in ("random", "novel_premises"):
        shuffled = random.sample(theorems, len(theorems))
        a, b = sorted((random.randint(0, len(shuffled)), random.randint(0, len(shuffled))))
        files |= {f"{split}/train.json": shuffled[:a], f"{split}/val.json": shuffled[a:b]}
        files[f"{split}/test.json"] = shuffled[b:]
    files["corpus.jsonl"] = _premise_files(random, odd, text_positions=False)
    files["traced_files.jsonl"] = [{"traced_file_path": path} for path in _paths(random)]
    url, commit = repositories[0]
    if merged:
        files["metadata.json"] = {
            "repositories": [identity(url, commit) for url, commit in repositories],
            "total_theorems": len(theorems),
        }
    else:
        files["metadata.json"] = {
            "creation_time": "2025-03-01 10:00:00.5",
            "from_repo": {"url": url, "commit": commit},
            "leandojo_version": "4.20.0",
        }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            path.write_text("".join(json.dumps(line) + "\n" for line in content), encoding="utf-8")
        else:
            path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return files


def write_large(path: Path, *, theorems: int, files: int) -> None:
    """Write a database of one repository."""
    theorem = _theorem(Random(0), 0, odd=False, text_positions=True)
    repository = {
        **identity("https://github.com/demo/large", COMMIT),
        "proven_theorems": [
            {**theorem, "full_name": f"t{number}", "file_path": f"F{number % files}.lean"}
            for number in range(theorems)
        ],
        "premise_files": [
            {"path": f"F{number}.lean", "imports": [], "premises": []} for number in range(files)
        ],
    }
    path.write_text(json.dumps({"repositories": [repository]}), encoding="utf-8")


def identity(url: str, commit: str) -> dict[str, Any]:
    """Return the first keys of a repository's record."""
    return {
        "url": url,
        "name": "/".join(url.split("/")[-2:]),
        "commit": commit,
        "lean_version": "v4.9.0",
        "lean_dojo_version": "4.20.0",
        "metadata": {"date_processed": "2025-01-02T03:04:05.678901"},
    }


def _repository(random: Random, number: int, odd: bool) -> dict[str, Any]:
    url = f"https://github.com/Demo/r{number}"
    theorems = [
        {"url": url, "commit": COMMIT, **_theorem(random, item, odd, text_positions=True)}
        for item in range(random.randrange(8))
    ]
    for theorem in theorems:
        theorem["difficulty_rating"] = random.choice((None, math.inf, 20.085536923187668, 1, 7.5))
    lists: dict[str, list[Any]] = {name: [] for name in _LISTS}
    for theorem in theorems:
        lists[random.choice(_LISTS)].append(theorem)
        if odd and random.random() < 0.2:
            lists[random.choice(_LISTS)].append(theorem)
        if odd and random.random() < 0.2:
            theorem["commit"] = "b" * 40
    premise_files = _premise_files(random, odd, text_positions=True)
    files_traced = _paths(random)
    proven, proved, unproved = (len(lists[name]) for name in _LISTS)
    return {
        **identity(url, COMMIT),
        "total_theorems": proven + proved + unproved,
        "num_proven_theorems": proven,
        "num_sorry_theorems": proved + unproved,
        "num_sorry_theorems_proved": proved,
        "num_sorry_theorems_unproved": unproved,
        "num_premise_files": len(premise_files),
        "num_premises": sum(len(file["premises"]) for file in premise_files),
        "num_files_traced": len(files_traced),
        **lists,
        "premise_files": premise_files,
        "files_traced": files_traced,
        "pr_url": random.choice((None, "https://github.com/Demo/r/pull/1")),
        **_extra(random, odd),
    }


def _paths(random: Random) -> list[str]:
    paths = ["Basic.lean", "Demo/Ωmega.lean", ".lake/packages/mathlib/Mathlib/Order/Hom.lean", "A.lean", "z"]
    return random.sample(paths, random.randint(0, len(paths)))


def _theorem(random: Random, number: int, odd: bool, *, text_positions: bool) -> dict[str, Any]:
    return {
        "file_path": random.choice(("Basic.lean", "Demo/Ωmega.lean", "Only/Theorems.lean")),
        # Few names: some theorems of a file have the same one.
        "full_name": f"Demo.{random.choice(_WORDS)}{random.randrange(3)}",
        "theorem_statement": random.choice((None, f"theorem t{number} : ∀ ε > 0,\n  ε ≠ 0", "")),
        "start": _position(random, odd, text_positions),
        "end": _position(random, odd, text_positions),
        "traced_tactics": [_tactic(random, odd, text_positions) for _ in range(random.randrange(4))],
        **_extra(random, odd),
    }


def _tactic(random: Random, odd: bool, text_positions: bool) -> dict[str, Any]:
    names = random.sample(_WORDS, random.randrange(3))
    uses = [
        {
            "full_name": name,
            "def_path": random.choice(("Basic.lean", "Elsewhere.lean")),
            "def_pos": _position(random, odd, text_positions),
            "def_end_pos": _position(random, odd, text_positions),
            **_extra(random, odd),
        }
        for name in names
    ]
    return {
        "tactic": random.choice((f"simp [{', '.join(names)}]", "sorry", "· rfl")),
        "annotated_tactic": [f"simp [{', '.join(f'<a>{name}</a>' for name in names)}]", uses],
        "state_before": random.choice(("h : 1 = 1\n⊢ False", "no goals", "")),
        "state_after": random.choice(("no goals", "case inl\n⊢ 𝔸 = 𝔸")),
        **_extra(random, odd),
    }


def _premise_files(random: Random, odd: bool, *, text_positions: bool) -> list[dict[str, Any]]:
    paths = _paths(random)
    # LeanDojo puts a file after those that it imports; an odd file may even import itself.
    return [
        _premise_file(random, path, ["Init.lean", *(paths if odd else paths[:index])], odd, text_positions)
        for index, path in enumerate(paths)
    ]


def _premise_file(
    random: Random, path: str, others: list[str], odd: bool, text_positions: bool
) -> dict[str, Any]:
    return {
        "path": path,
        "imports": random.sample(others, random.randint(0, len(others))),
        "premises": [
            {
                "full_name": random.choice((None, *_WORDS)) if odd else random.choice(_WORDS),
                "code": random.choice(("", "theorem a : 1 = 1", "def f :=\n  fun x ↦ x")),
                "start": _position(random, odd, text_positions),
                "end": _position(random, odd, text_positions),
                "kind": "commanddeclaration",
                **_extra(random, odd),
            }
            for _ in range(random.randrange(4))
        ],
        **_extra(random, odd),
    }


def _position(random: Random, odd: bool, as_text: bool) -> Any:
    line, column = random.randint(1, 2000), random.randint(1, 100)
    if not as_text:
        return [line, column]
    if odd and random.random() < 0.1:
        return random.choice(([line, column], f"Pos({line}, {column})"))
    return f"({line}, {column})"


def _extra(random: Random, odd: bool) -> dict[str, Any]:
    if not odd or random.random() < 0.9:
        return {}
    return {"is_private": random.choice((True, None, -3, 0.1, ["ünïcode", {"deep": []}]))}

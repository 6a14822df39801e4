"""LeanDojo-v2's own database at the same work, run by `benchmarks/store.py` as a process of its own.

    python benchmarks/store_peer.py PEER commit DATABASE.json FOLDER TIMES
    python benchmarks/store_peer.py PEER export DATABASE.json FOLDER TIMES
    python benchmarks/store_peer.py PEER import DATABASE.json FOLDER TIMES

PEER is the folder of lean-dojo-v2 1.0.9, unpacked or installed without its dependencies. Empty modules stand
in for those (torch, ray, GitHub, ...); the measured code calls none of them. Prints the seconds, as JSON.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class _Nothing:
    """Stands for any name in a missing module; a decorator leaves its function as it is."""

    def __call__(self, *arguments: Any, **_named: Any) -> Any:
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class Empty(types.ModuleType):
    """A module with every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # Exceptions and base classes are named like classes.
        return type(name, (Exception,), {}) if name.endswith(("Error", "Exception", "Name")) else _Nothing()


HEAVY = frozenset(
    ("datasets", "deepspeed", "dotenv", "filelock", "git", "github", "loguru", "lxml", "networkx", "numpy", "openai",
     "peft", "pexpect", "pytorch_lightning", "rank_bm25", "ray", "requests", "toml", "torch", "torchmetrics", "tqdm",
     "transformers", "trl")
)  # fmt: skip
"""The peer's dependencies."""


class StandIns:
    """Finds an empty module for each of `names`, whether it is installed or not: every run is the same."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = Empty(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Run nothing."""


def database_module(peer: Path) -> Any:
    """Import the peer's `DynamicDatabase` and its models.

    Its package `lean_dojo`, with Lean and GitHub in its import, is entered for its positions alone.
    """
    os.environ["GITHUB_ACCESS_TOKEN"] = "none"
    sys.path.insert(0, str(peer))
    sys.meta_path.insert(0, StandIns(HEAVY))
    tracing = Empty("lean_dojo_v2.lean_dojo")
    tracing.__path__ = [str(peer / "lean_dojo_v2" / "lean_dojo")]
    sys.modules[tracing.__name__] = tracing
    return importlib.import_module("lean_dojo_v2.database")


def open_database(peer: Path, source: Path, folder: Path) -> tuple[Any, Any]:
    """Return the peer's database with the repository of `source` in it, and the repository."""
    module = database_module(peer)
    database = module.DynamicDatabase(str(folder / "dynamic_database.json"))
    with source.open(encoding="utf-8") as file:
        data = json.load(file)["repositories"][0]
    repository = module.Repository.from_dict(data)
    database.add_repository(repository)
    return database, repository


def record_commit(peer: Path, source: Path, folder: Path, times: int) -> list[float]:
    """Return the seconds of `update_repository` and `to_json` after 50 changed theorems."""
    database, repository = open_database(peer, source, folder)
    database.to_json()
    took = []
    for number in range(times):
        for theorem in repository.proven_theorems[:50]:
            theorem.theorem_statement = f"{theorem.theorem_statement} -- {number}"
        began = time.perf_counter()
        database.update_repository(repository)
        database.to_json()
        took.append(time.perf_counter() - began)
    return took


def export(peer: Path, source: Path, folder: Path, times: int) -> list[float]:
    """Return the seconds of `export_merged_data`, both splits."""
    database, repository = open_database(peer, source, folder)
    took = []
    for _ in range(times):
        began = time.perf_counter()
        database.export_merged_data([repository], folder / "export")
        took.append(time.perf_counter() - began)
    return took


def read_database(peer: Path, source: Path, _folder: Path, times: int) -> list[float]:
    """Return the seconds of `DynamicDatabase.from_json`, for objects alone, without a record."""
    module = database_module(peer)
    took = []
    for _ in range(times):
        began = time.perf_counter()
        module.DynamicDatabase.from_json(str(source))
        took.append(time.perf_counter() - began)
    return took


def main() -> int:
    peer, what, source, folder, times = sys.argv[1:]
    measure = {"commit": record_commit, "export": export, "import": read_database}[what]
    print(json.dumps(measure(Path(peer), Path(source), Path(folder), int(times))))
    return 0


if __name__ == "__main__":
    sys.path.pop(0)  # this folder has a store.py
    sys.exit(main())

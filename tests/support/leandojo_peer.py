"""LeanDojo-v2's own database code, for tests that compare with it.

`make .venv/.leandojo` puts it, without what it depends on, into a folder of its own (`$LEANDOJO_V2` names another one);
what its database imports and does not need has stand-ins.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from benchmarks.store_peer import database_module

PACKAGE = "lean_dojo_v2"


FOLDER = Path(os.environ.get("LEANDOJO_V2") or Path(sys.prefix, "leandojo"))

needs_peer = pytest.mark.skipif(
    not ((FOLDER / PACKAGE).is_dir() and importlib.util.find_spec("numpy")),
    reason="LeanDojo-v2 is not installed (`make .venv/.leandojo`)",
)


@functools.cache
def _database_module() -> Any:
    assert FOLDER.is_dir(), "mark the test with `needs_peer`"
    tqdm = ModuleType("tqdm")
    tqdm.tqdm = lambda items: items  # type: ignore[attr-defined]
    numpy = importlib.import_module("numpy")  # before the modules are put back: it cannot be loaded twice
    with (
        patch.dict(os.environ),
        patch.dict(sys.modules, {"numpy": numpy, "tqdm": tqdm}),
        patch.object(sys, "path", [*sys.path]),
        patch.object(sys, "meta_path", [*sys.meta_path]),
    ):
        database_module(FOLDER)
        return importlib.import_module(f"{PACKAGE}.database.dynamic_database")


@contextlib.contextmanager
def peer() -> Iterator[Any]:
    """Give their module `database.dynamic_database`, of which `sys.modules` and `sys.path` keep nothing.

    It runs in a folder of its own, for opening a database of theirs empties ./dynamic_database.json.
    """
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
        yield _database_module()

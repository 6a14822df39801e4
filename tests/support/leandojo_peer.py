"""LeanDojo-v2's own database code, for tests that compare with it.

It is loaded from outside, with stand-ins for what its database imports and does not need: `pip install --no-deps
lean-dojo-v2==1.0.9`, or name the folder that holds `lean_dojo_v2` in $LEANDOJO_V2.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from benchmarks.store_peer import database_module
from store.curriculum import compat_thresholds

PACKAGE = "lean_dojo_v2"


def peer_folder() -> Path | None:
    """Return the folder that holds the package, None where it is not installed."""
    if given := os.environ.get("LEANDOJO_V2"):
        return Path(given) if Path(given, PACKAGE).is_dir() else None
    spec = importlib.util.find_spec(PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parents[1]


needs_peer = pytest.mark.skipif(
    peer_folder() is None,
    reason="lean-dojo-v2 is not installed (`pip install --no-deps lean-dojo-v2==1.0.9`)",
)


def _percentile(values: Sequence[float], percents: Sequence[int]) -> list[float]:
    """Stand in for numpy, which the core does not need; golden files hold what numpy itself gives."""
    assert percents == [33, 67]
    if not values:
        raise IndexError
    return list(compat_thresholds(Counter(values)))


def _numpy() -> ModuleType:
    if importlib.util.find_spec("numpy") is not None:
        return importlib.import_module("numpy")
    module = ModuleType("numpy")
    module.percentile = _percentile  # type: ignore[attr-defined]
    return module


@functools.cache
def _database_module() -> Any:
    folder = peer_folder()
    assert folder is not None, "mark the test with `needs_peer`"
    tqdm = ModuleType("tqdm")
    tqdm.tqdm = lambda items: items  # type: ignore[attr-defined]
    numpy = _numpy()  # before the modules are put back: it cannot be loaded twice
    with (
        patch.dict(os.environ),
        patch.dict(sys.modules, {"numpy": numpy, "tqdm": tqdm}),
        patch.object(sys, "path", [*sys.path]),
        patch.object(sys, "meta_path", [*sys.meta_path]),
    ):
        database_module(folder)
        return importlib.import_module(f"{PACKAGE}.database.dynamic_database")


@contextlib.contextmanager
def peer() -> Iterator[Any]:
    """Give their module `database.dynamic_database`, of which `sys.modules` and `sys.path` keep nothing.

    It runs in a folder of its own, for opening a database of theirs empties ./dynamic_database.json.
    """
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
        yield _database_module()

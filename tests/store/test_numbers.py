"""The numbered list of the log's nineteen semantics and twelve crash points; each has a test.

A test's name begins with the numbers that it covers: `test_s04_...`, `test_c02_c11_...`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

SEMANTICS = {
    "s01": "an append is all or nothing and returns its positions and versions",
    "s02": "an expected version is mandatory",
    "s03": "a conflict names stream, expected and actual, and writes nothing",
    "s04": "a repeated append is recognised by its event ids and their content",
    "s05": "streams are read forward and backward, everything from a position",
    "s06": "what is recorded is never changed; wrong facts get another fact",
    "s07": "old versions are upcast on reading and rows never rewritten",
    "s08": "an unknown type or a newer version stops the view and is never skipped",
    "s09": "rows and checkpoint are written in one transaction",
    "s10": "catching up in any batches gives the same rows",
    "s11": "a rebuild puts new tables in place at once, or leaves the old ones",
    "s12": "verify compares the view with a rebuild of the same position",
    "s13": "no side effect in projections and rebuilds",
    "s14": "no snapshots; a backup with its position is a restore point",
    "s15": "the state as of an event or a time",
    "s16": "the log is the outbox of jobs, and what they do is idempotent",
    "s17": "artifacts are staged, synced, named by their hash, then cited",
    "s18": "one writer; the second is told who the first one is",
    "s19": "configuration changes are events",
}
CRASH_POINTS = {
    "c01": "before BEGIN",
    "c02": "between INSERT and COMMIT",
    "c03": "after COMMIT, before the caller sees it",
    "c04": "inside a batch of the projection",
    "c05": "after a job is planned, before its process is spawned",
    "c06": "after the spawn, before the job is known to run",
    "c07": "after artifacts are in place, before the job's success is recorded",
    "c08": "while an artifact is written",
    "c09": "while a rebuild takes the view's place",
    "c10": "between a fetch and the record of its commits",
    "c11": "during a checkpoint of the -wal, and during a backup",
    "c12": "a power loss that takes the end of the -wal",
}


def numbers_held() -> set[str]:
    """Return the numbers in the names of all tests, as pytest would collect them."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        # Parsing every test costs more than all other tests of this file; few name a number.
        if not re.search(r"def test_[sc]\d\d", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                prefix = re.match(r"test((?:_[sc]\d\d)*)", node.name)
                found |= set(prefix[1].split("_")) if prefix else set()
    return found - {""}


@pytest.fixture(scope="module")
def held() -> set[str]:
    return numbers_held()


@pytest.mark.parametrize(
    ("number", "what"), [*SEMANTICS.items(), *CRASH_POINTS.items()], ids=[*SEMANTICS, *CRASH_POINTS]
)
def test_every_semantics_and_crash_point_has_a_test(number: str, what: str, held: set[str]) -> None:
    assert number in held, f"no test is named after {number}: {what}"


def test_no_test_is_named_after_a_number_that_there_is_not(held: set[str]) -> None:
    assert held <= SEMANTICS.keys() | CRASH_POINTS.keys()

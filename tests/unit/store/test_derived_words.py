"""What is derived of a sorry, a proof, a job or a checkpoint is decided in one module, and told in its words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DECIDED = {
    "kernel replayed all": "store/documents/grades.py",
    "no kernel replayed all": "store/documents/grades.py",
    "accepted by Lean; no kernel": "store/documents/grades.py",
    "IN DOUBT": "store/documents/grades.py",
    "vouches for it has a known fault": "store/documents/grades.py",
    "doubts_json <>": "store/view/queries.py",
    "its file changed": "store/view/queries.sql",
    r"\banswer\s*": "store/documents/by_design.py",
    ".outcome = 'disproved'": "store/view/queries.py",
    "until > ?": "store/view/queries.py",
    ", claimed by ": "store/documents/sorries.py",
    ", by design (": "store/documents/sorries.py",
    "the gate has not judged it yet": "store/documents/proofs.py",
}
"""Words that people read, or a part of a condition in SQL, each with the module that has it."""
BETWEEN_PIECES = re.compile(r"""["']\s*\n\s*[a-z]?["']""")


@pytest.fixture(scope="module")
def modules() -> dict[str, list[str]]:
    """The texts of every module, by its place."""
    found = {
        str(path.relative_to(ROOT)): [*texts(path)]
        for package in ("daemon", "pipeline", "store")
        for path in sorted((ROOT / package).rglob("*"))
        if path.suffix in (".py", ".sql")
    }
    assert found.keys() >= set(DECIDED.values())
    return found


@pytest.mark.parametrize("words", DECIDED)
def test_one_module_has_the_words_of_a_decision(words: str, modules: dict[str, list[str]]) -> None:
    assert [name for name, of in modules.items() if any(words in text for text in of)] == [DECIDED[words]]


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a module, without its docstrings."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        yield source
        return
    # To parse all would take seconds. A text may be written in pieces, on lines of their own.
    if not any(words in BETWEEN_PIECES.sub("", source) for words in DECIDED):
        return
    tree = ast.parse(source)
    told = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value

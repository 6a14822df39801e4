"""A row of the table of declaration keywords is known to the scanner, the splicer and the prover."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.lean.source.forbidden import complaints
from pipeline.lean.source.scanner import scan_source
from pipeline.lean.source.splice import Script, Step, placements, splice
from pipeline.prove.whole_proof import read_proof
from store.domain.keywords import DECLARATION_KEYWORDS, Keyword
from tests.support.prove import sorry_at

ROOT = Path(__file__).resolve().parents[3]
TWO = Script((Step("intro h", 1, 1), Step("exact h", 1, 0)))
BLOCK = "by\n  intro h\n  exact h"

each = pytest.mark.parametrize("row", DECLARATION_KEYWORDS, ids=lambda row: row.word)
provable = pytest.mark.parametrize(
    "row", [row for row in DECLARATION_KEYWORDS if row.provable], ids=lambda row: row.word
)


def name_of(row: Keyword) -> str:
    return "t" if row.constant else ""


@each
def test_the_scanner_finds_it_with_its_name(row: Keyword) -> None:
    stated = "" if row.word == "alias" else ": p "
    (declaration,) = scan_source(f"{row.word} t {stated}:= q\n".encode(), path="A.lean").declarations
    # What `deriving instance` names is the class, and an example has no name.
    named = row.constant and row.word != "deriving instance"
    assert (declaration.kind, declaration.name) == (row.word, "t" if named else row.nameless)


@each
def test_without_a_name_it_has_the_table_s_or_is_reserved(row: Keyword) -> None:
    declarations = scan_source(f"{row.word} := q\n".encode(), path="A.lean").declarations
    if row.nameless:
        assert [(one.kind, one.name) for one in declarations] == [(row.word, row.nameless)]
    elif not row.reserved:
        assert declarations == ()


@each
def test_no_proof_may_have_it_inside(row: Keyword) -> None:
    assert complaints(f"exact h\n{row.word} u : p := q")


@provable
def test_the_splicer_puts_a_block_below_it(row: Keyword) -> None:
    text = f"{row.word} {name_of(row)} : p → p := sorry\ntermination_by h\n"
    data, at = text.encode(), text.encode().index(b"sorry")
    replacements = placements(*sorry_at(data, at, "term"), TWO)
    assert splice(data, replacements[0]).decode() == text.replace("sorry", BLOCK)


@provable
def test_a_prover_reads_an_answer_that_states_it_again(row: Keyword) -> None:
    declaration = f"{row.word} {name_of(row)} : p → p := sorry\n"
    assert read_proof(declaration.replace("sorry", BLOCK), declaration).proofs == (BLOCK,)


def test_a_row_is_all_that_a_new_keyword_needs() -> None:
    """In a process of its own, where the table has one row more before anything derives its sets from it."""
    program = """
import importlib.util, sys
import pytest
spec = importlib.util.find_spec("store.domain.keywords")
table = 'DECLARATION_KEYWORDS = ('
row = 'Keyword("proposition", theorem=True, provable=True, restated=True),'
text = open(spec.origin, encoding="utf-8").read()
assert text.count(table) == 1
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
exec(compile(text.replace(table, table + row), spec.origin, "exec"), module.__dict__)
from store.domain.identity import split_key
assert split_key("a", "proposition a (p : Prop) : p := by") == split_key("a", "(p : Prop) : p")
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-n", "0", "-k", "proposition", sys.argv[1]]))
"""
    result = subprocess.run(
        [sys.executable, "-c", program, __file__], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "5 passed" in result.stdout

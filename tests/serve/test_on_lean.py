"""The server on Lean 4.35.0 itself: a search finds a proof, and the gate judges it. What /check says on it, agents are
told in `test_agents.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.events import REPOSITORY
from tests.support.lean.real_gate import TOOLCHAIN, real_elan
from tests.support.serve import Served, World, streamed

pytestmark = pytest.mark.timeout(180)

TOKEN = "so-that-lean-may-run-without-a-sandbox"
FILES = {
    "Demo.lean": "theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  sorry\n",
    "lakefile.toml": 'name = "demo"\n[[lean_lib]]\nname = "Demo"\n',
    "lean-toolchain": f"{TOOLCHAIN}\n",
}
SWAP = {"repository": REPOSITORY, "path": "Demo.lean", "sorry": {"declaration": "swap"}}


@pytest.fixture(scope="module")
def served(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELAN_HOME", str(real_elan(folder)))
        with Served(World(folder / "world", FILES).spec(lean="auto"), token=TOKEN) as it:
            yield it


def steps(judgement: Any, verdict: str) -> set[str]:
    return {one["step"] for one in judgement["findings"] if one["verdict"] == verdict}


def test_a_search_finds_a_proof_and_the_gate_judges_it(served: Served) -> None:
    with streamed(served.port, "/fill", SWAP, token=TOKEN) as events:
        told = [(name, data) for name, data in events if name]
    said = dict(told)
    assert (said["candidate"]["declaration"], said["candidate"]["rung"]) == ("swap", 0), told
    assert "compile" in steps(said["verdict"], "passed")
    assert (said["summary"]["candidates"], said["summary"]["accepted"]) == (1, 0)

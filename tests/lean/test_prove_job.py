"""The prove job on a repository whose Lake project is in a folder of its own, before Lean itself."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from pipeline.jobs.protocol import JobError
from pipeline.jobs.specs import SorryToProve
from pipeline.lean.backend import find_leans
from pipeline.lean.pool import PoolLimits
from store.events.base import EventBody
from store.events.proofs import AttemptFinished, ProofFound
from tests.support.lean.real_gate import RealGate
from tests.support.prove import LINES, parameters, recorded, run
from tests.support.prove import wanted as sorries

DEMO = Path(__file__).parents[2] / "examples" / "demo-project"
BROKEN = "theorem not_so : 12 = 13 := rfl\n\ntheorem after_it : True := by\n  sorry\n"
OUTCOMES = {
    "Demo.Open.peirce": "exhausted",
    "Demo.Open.off_by_one": "disproved",
    "Demo.Open.anything_goes": "disproved",
    "Demo.Open.affirm_the_consequent": "disproved",
    "Demo.mystery": "unsupported",
    "after_it": "error",
}
"""Of those that are not found."""


@dataclass(frozen=True)
class Proved:
    """The job's batches, and the sorries that it was given."""

    batches: list[list[EventBody]]
    wanted: dict[str, SorryToProve]

    @property
    def proofs(self) -> list[ProofFound]:
        return [body for batch in self.batches for body in batch if isinstance(body, ProofFound)]

    @property
    def attempts(self) -> list[AttemptFinished]:
        return [body for batch in self.batches for body in batch if isinstance(body, AttemptFinished)]


@pytest.fixture(scope="module")
def proved(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Proved:
    """The job on files of the demo project, and one that does not compile."""
    root, court = tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("court")
    project = root / "lean"
    shutil.copytree(DEMO, project)
    (project / "Demo" / "Broken.lean").write_text(BROKEN)
    wanted: dict[str, SorryToProve] = {}
    for name in ("Arithmetic", "Negation", "Open", "Broken"):
        text = (project / "Demo" / f"{name}.lean").read_text("utf-8")
        for one in sorries(text, path=f"lean/Demo/{name}.lean"):
            key = f"{one.declaration} {one.ordinal}"
            wanted[key] = replace(one, sorry=key)
    given = {
        "repository": "local/x/demo",
        "branch": "main",
        "sha": "a" * 40,
        "folder": "lean",
        "worktree": str(root),
        "lean": RealGate(court).backend(),  # which has a lake
        "limits": PoolLimits(),
        "rung": {"number": 0},
        "budget": {"seconds": 60, "nodes": 100, "tactic_timeout_s": 20},
        "budget_key": "small",
        "parallel": 2,
        "sorries": [asdict(one) for one in wanted.values()],
    }
    job = tmp_path_factory.mktemp("job")
    run(given, job)
    lines = (job / LINES).read_text("utf-8").splitlines()
    return Proved([recorded(line)[0] for line in lines if json.loads(line)["line"] == "events"], wanted)


def test_the_sorries_are_filled_but_for_those_that_cannot_be(proved: Proved) -> None:
    assert {body.sorry for body in proved.attempts} == proved.wanted.keys()
    outcomes = defaultdict(set)
    for body in proved.attempts:
        outcomes[proved.wanted[body.sorry].declaration].add(body.outcome)
    assert {name: said for name, said in outcomes.items() if said != {"found"}} == {
        name: {said} for name, said in OUTCOMES.items()
    }
    details = {proved.wanted[body.sorry].declaration: body.detail for body in proved.attempts}
    assert "a proof of the negation was accepted; false as it stands, by " in details["Demo.Open.off_by_one"]
    assert "may not be invented" in details["Demo.mystery"]
    assert "Lean refuses the text before the declaration" in details["after_it"]


def test_every_batch_is_one_sorry_s_and_paths_are_the_repository_s(proved: Proved) -> None:
    for batch in proved.batches:
        assert [type(body) for body in batch] in ([ProofFound, AttemptFinished], [AttemptFinished])
    assert {body.path.partition("/")[0] for body in proved.proofs} == {"lean"}


def test_two_sorries_of_one_declaration_get_one_text_that_fills_both(proved: Proved) -> None:
    both = [body for body in proved.proofs if body.declaration == "Demo.Negation.neither"]
    assert len(both) == 2
    assert len({(body.byte_start, body.byte_end, body.replacement, body.parts) for body in both}) == 1
    assert len(both[0].parts) == 2
    assert len({body.proof for body in both}) == 2
    assert "have hq" in both[0].replacement


def test_without_lean_the_job_fails_and_says_so(tmp_path: Path) -> None:
    nothing = find_leans(backend="none", repl="", sandbox="none").summary
    with pytest.raises(JobError) as failed:
        run(parameters(tmp_path, BROKEN, lean=nothing), tmp_path / "job")
    assert failed.value.reason == "no_lean"

"""The job `train_grpo` as a process of its own, with a judge whose answers are written down."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.specs import TrainGrpoSpec
from pipeline.lean.pool import PoolLimits
from pipeline.models.adapters import adapters_of
from pipeline.models.chain import Chain
from pipeline.models.model_files import file_digest
from store.events.models import ModelKind
from tests.models.jobs.conftest import Bench, check_resumed
from tests.support.job_processes import JobProcesses, Kill, Outcome
from tests.support.lean.scripted import Script, backend

pytestmark = pytest.mark.timeout(300)

THEOREMS = 30
GOAL = "p q : Prop\nh : p ∧ q\n⊢ q ∧ p"
TACTICS = ("exact ⟨h.2, h.1⟩", "exact h", "exfalso")
"""What the model says of it before it is rewarded: one proof, one failure, and one step that leads nowhere."""
LEAN = Script(
    sorries={"theorem everlean_goal": [GOAL]},
    tactics={(GOAL, TACTICS[0]): [], (GOAL, TACTICS[1]): "type mismatch", (GOAL, TACTICS[2]): ["False"]},
)
GRPO = {"lr": 3e-3, "batch_size": 8, "num_generations": 8, "max_steps": 3}


def source() -> str:
    return "".join(
        f"theorem t{at} (p q : Prop) (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩\n" for at in range(THEOREMS)
    )


class Rewarded:
    """A traced repository with its source, a model that has learned it, and jobs that train that with rewards."""

    def __init__(self, bench: Any, folder: Path) -> None:
        self.bench = bench
        self.worktree = folder / "worktree"
        self.worktree.mkdir()
        (self.worktree / "A.lean").write_text(source(), encoding="utf-8")
        bench.trace("Goals", proofs=THEOREMS, goal=GOAL, tactics=TACTICS)
        taught = bench.train("tactics", "Goals", config={"epochs": 8, "lr": 1e-2})
        self.parent = taught.summary["checkpoint"]

    def train(
        self,
        *,
        job: str = "grpo",
        kill: Kill | None = None,
        number: signal.Signals = signal.SIGKILL,
        config: dict[str, Any] | None = None,
        grpo: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Outcome:
        bench = self.bench
        tiny = str(bench.models["tactics"])
        settings = {"model_name": tiny, "device": "cpu", "max_seq_len": 400, "eval_steps": 2}
        spec = TrainGrpoSpec.model_validate(
            {
                "repository": "example.org/Goals",
                "chain": bench.chain("tactics"),
                "parent": self.parent,
                "config": {**settings, **(config or {})},
                "lean": backend(LEAN),
                "limits": PoolLimits(processes=1),
                "grpo": {**GRPO, **(grpo or {})},
                **changes,
            }
        )
        given = {
            **json.loads(spec.model_dump_json()),
            "worktree": str(self.worktree),
            "events_db": bench.root / "events.db",
            "database_db": bench.root / "database.db",
        }
        found: Outcome = bench.jobs.run("train_grpo", given, bench.root, name=job, kill=kill, number=number)
        return found


@pytest.fixture(scope="module")
def rewarded(
    tmp_path_factory: pytest.TempPathFactory, jobs: JobProcesses, models: dict[ModelKind, Path]
) -> Rewarded:
    folder = tmp_path_factory.mktemp("rewarded")
    return Rewarded(Bench(folder, jobs, models), folder)


def test_it_learns_what_lean_rewards_and_goes_on_after_a_kill_to_the_same_weights(
    rewarded: Rewarded,
) -> None:
    chain = Chain(rewarded.bench.chain("tactics"))
    whole = rewarded.train(job="whole")
    (saved,) = whole.of("checkpoint_saved")
    assert (saved["model"], saved["parent"], saved["steps"]) == ("tactics", rewarded.parent, 3)
    assert saved["config"]["objective"] == "grpo"
    assert saved["config"]["grpo"]["num_generations"] == 8
    assert {one["split"] for one in whole.of("evaluation_finished")} == {"test", "val"}
    read = chain.read(saved["checkpoint"], verify=True)
    assert read.weights != chain.read(rewarded.parent).weights
    measures = read.about["fitted"]["measures"]
    assert measures["unjudged"] == 0, "every answer was judged"
    assert measures["groups_without_signal"] < 1.0

    shutil.rmtree(chain.path(saved["checkpoint"]))
    check_resumed(rewarded.train, whole, chain=chain, measured="example.org/Goals")


def test_what_it_does_not_take_is_said_and_leaves_nothing(rewarded: Rewarded) -> None:
    def refused(**changes: Any) -> tuple[str, bool, str]:
        outcome = rewarded.train(**changes)
        assert (outcome.returncode, outcome.last["line"], outcome.events) == (1, "failure", [])
        return outcome.last["reason"], outcome.last["deterministic"], outcome.last["message"]

    reason, final, message = refused(grpo={"trl": {"los_type": "dapo"}})
    assert (reason, final) == ("bad_config", True)
    assert "TRL does not take trl ({'los_type': 'dapo'})" in message
    reason, final, message = refused(grpo={"trl": {"seed": 3}})
    assert (reason, final) == ("bad_config", True)
    assert "trl.seed follows from our own settings" in message
    reason, final, message = refused(grpo={"batch_size": 800})
    assert (reason, final) == ("bad_dataset", True)
    assert "a step takes 100: set batch_size lower" in message


def test_trl_s_own_arguments_reach_it_and_an_adapter_is_trained(rewarded: Rewarded) -> None:
    given = {"trl": {"loss_type": "dr_grpo", "scale_rewards": "none"}, "max_steps": 1}
    made = rewarded.train(grpo=given, config={"lora": True, "lora_rank": 2})
    (saved,) = made.of("checkpoint_saved")
    assert saved["config"]["grpo"]["trl"] == given["trl"]
    folder = rewarded.bench.chain("tactics") / saved["checkpoint"]
    assert (folder / "adapter_model.safetensors").exists()


def test_a_repository_s_own_adapter_is_rewarded_and_measured(rewarded: Rewarded) -> None:
    config = {"lora": True, "lora_rank": 2, "lora_by_repository": True}
    made = rewarded.train(grpo={"max_steps": 1}, parent=None, config=config)
    (saved,) = made.of("checkpoint_saved")
    adapters = adapters_of(rewarded.bench.chain("tactics") / saved["checkpoint"])
    assert list(adapters) == ["example.org/Goals"]
    weights = adapters["example.org/Goals"] / "adapter_model.safetensors"
    assert (file_digest(weights), weights.stat().st_size) == (saved["weights"], saved["size_bytes"])
    assert {one["split"] for one in made.of("evaluation_finished")} <= {"test", "val"}
    refused = rewarded.train(config=config)
    assert "holds one model for all repositories" in refused.last["message"]

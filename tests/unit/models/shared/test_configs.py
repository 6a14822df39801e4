"""The configurations of tactic and progress models: what is taken, what is refused, and that none loads torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.config import Config, ProgressConfig, TacticsConfig
from pipeline.models.errors import ConfigError
from pipeline.models.retriever.config import RetrieverConfig

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("kind", [TacticsConfig, ProgressConfig])
def test_a_configuration_comes_back_from_its_fields_and_stays(kind: type[Config]) -> None:
    whole = kind.from_dict({"lr": 1, "seed": 7})
    assert kind.from_dict(whole.to_dict()) == whole
    assert repr(whole.to_dict()["lr"]) == "1.0", "1 and 1.0 make one checkpoint"
    assert kind.from_dict({}).to_dict() == kind().to_dict()
    with pytest.raises(FrozenInstanceError):
        whole.seed = 8  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"batchsize": 4}, "batchsize is no field of a training configuration; is batch_size meant?"),
        ({"xyzzy": 4}, "xyzzy is no field of a training configuration. The fields are "),
        ({"batch_size": 0}, "batch_size is 0: input should be greater than 0"),
        ({"batch_size": True}, "batch_size is True: input should be a valid integer"),
        ({"batch_size": 1.5}, "batch_size is 1.5: input should be a valid integer"),
        ({"lr": "1e-3"}, "a valid number (write 1.0e-3, not 1e-3"),
        ({"lr": float("nan")}, "finite"),
        ({"max_seq_len": 0}, "greater than 0"),
        ({"device": "gpu"}, "input should be 'auto', 'cpu' or 'cuda'"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"seed": 2**32}, "less than 4294967296"),
        ({"model_name": None}, "input should be a valid string"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_is_taken(values: dict[str, Any], said: str) -> None:
    for read in (TacticsConfig.from_dict, ProgressConfig.from_dict, RetrieverConfig.from_dict):
        with pytest.raises(ConfigError) as raised:
            read(values)
        assert (raised.value.reason, raised.value.for_good) == ("bad_config", True)
        assert said in str(raised.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"reward_func": "lean"}, "reward_func is no field"),
        ({"lora": 1}, "lora is 1: input should be a valid boolean"),
        ({"lora_rank": 0}, "greater than 0"),
        ({"epochs": 0.5}, "a valid integer"),
        ({"eval_steps": -1}, "greater than or equal to 0"),
    ],
)
def test_what_a_job_of_a_tactic_model_does_not_take_is_said(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TacticsConfig.from_dict(values)


def test_what_needs_no_training_library_loads_none() -> None:
    """One beside the other: where a dataset is kept, rung 0, what runs beside a model, a corpus."""
    training = ("torch", "transformers", "trl", "peft", "pytorch_lightning", "datasets")
    names = (
        *(
            "chain",
            "config",
            "errors",
            "measures",
            "text",
            "training_job",
            "progress.steps",
            "retriever.config",
        ),
        *("tactics.prompt", "tactics.requests", "tactics.rows"),
    )
    stages = (
        (["pipeline.models.datasets"], ("store.view", "store.log", "store.leandojo", "sqlite3")),
        (["pipeline.prove.__main__"], (*training, "numpy", "httpx2")),
        (["pipeline.prove.generator", *(f"pipeline.models.{name}" for name in names)], (*training, "numpy")),
        (["pipeline.models.retriever.corpus"], training),
    )
    program = (
        "import sys, importlib\n"
        f"for modules, heavy in {stages!r}:\n"
        "    for name in modules: importlib.import_module(name)\n"
        "    print(sorted(set(heavy) & set(sys.modules)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "[]\n" * len(stages), "")

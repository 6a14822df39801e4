"""A run that is killed, with SIGKILL and in a process of its own, ends with the weights that it would have had."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support import programs
from tests.support.retrieval import write_dataset
from tests.support.tiny_models import make_tiny_retriever

pytestmark = pytest.mark.timeout(300)


# Each attempt is a fork, so that torch is loaded once. Prints what the run that no one killed made, and the other.
PROGRAM = """
import json, os, signal, shutil, sys
from dataclasses import replace
from pathlib import Path
import torch
from types import SimpleNamespace
from pipeline.models import chain as checkpoints
from store import files
from pipeline.models import running
from pipeline.models.chain import Chain
from pipeline.models.libraries import tensors_digest
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.learning import learn
from tests.support.retrieval import small_config

folder, settings, kills = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
config = small_config(folder / "model", **settings)


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def write_half(_content, place):
    Path(place).write_bytes(b"PK")
    die()


# What is called at each point, and is the end instead.
POINTS = {
    "while a step is written": (torch, "save", write_half),
    "while a save is flushed": (running, "sync_tree", die),
    "when training is done": (running, "check_finite", die),
    "before the checkpoint has its name": (files, "sync_tree", die),
    "after the checkpoint has its name": (checkpoints, "shutil", SimpleNamespace(rmtree=die)),
}


def second(where, kill, out):
    if kill in POINTS:
        where_called, name, instead = POINTS[kill]
        assert hasattr(where_called, name), kill
        setattr(where_called, name, instead)

    def on_step(done, total):
        if done == kill:
            die()

    made = learn(
        TaskData("b", folder / "b"),
        Chain(where),
        config,
        parent=parent,
        earlier=[TaskData("a", folder / "a")],
        reports=running.Reports(on_step),
    )
    out.write_text(json.dumps([made.checkpoint, made.about["digest"], made.weights, made.steps]))


def forked(*arguments):
    pid = os.fork()
    if pid == 0:
        try:
            second(*arguments)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


short = replace(config, max_epochs=1)
parent = learn(TaskData("a", folder / "a"), Chain(folder / "whole"), short, parent=None).checkpoint
shutil.copytree(folder / "whole", folder / "cut")
assert forked(folder / "whole", None, folder / "whole.json") == 0
for kill in kills:
    ended = forked(folder / "cut", kill, folder / "cut.json")
    assert os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL, (kill, ended)
    assert not (folder / "cut.json").exists()
assert forked(folder / "cut", None, folder / "cut.json") == 0
print((folder / "whole.json").read_text())
print((folder / "cut.json").read_text())
"""

# Steps 4 and 8 end an epoch. The second of two attempts that are killed at one step begins at a saved one.
EVERYWHERE = [
    3,
    "while a step is written",
    "while a save is flushed",
    4,
    4,
    5,
    8,
    "when training is done",
    "before the checkpoint has its name",
    "after the checkpoint has its name",
]
AT_RANDOM = sorted(random.Random(5).sample(range(1, 12), 3))


@pytest.mark.parametrize(
    ("settings", "kills"),
    [
        pytest.param(
            {"against_forgetting": "ewc+replay+average", "lambda_value": 0.3, "warmup_steps": 5},
            EVERYWHERE,
            id="all ways, everywhere",
        ),
        pytest.param({"lora_by_repository": True, "lora_rank": 4}, [3, 5], id="an adapter by repository"),
        pytest.param(
            {"against_forgetting": "ewc", "loss": "mse"},
            AT_RANDOM,
            marks=pytest.mark.slow,
            id="mse",
        ),
        pytest.param(
            {
                "against_forgetting": "replay",
                "precision": "bf16-mixed",
                "num_workers": 2,
                "early_stopping_patience": 1,
                "lr": 0.05,  # so bad that it is stopped
            },
            [4, 5],
            id="replay by two workers, bf16-mixed, stopped early",
        ),
    ],
)
def test_a_run_that_was_killed_ends_with_the_very_weights_of_one_that_was_not(
    tmp_path: Path, settings: dict[str, Any], kills: list[int | str]
) -> None:
    make_tiny_retriever(tmp_path / "model", d_model=32, layers=1, dropout=0.2)
    for number, name in enumerate("ab"):
        write_dataset(tmp_path / name, seed=number, alphabet=number, theorems=44, files=3)
    shared = {"max_epochs": 3, "batch_size": 4, "accumulate_grad_batches": 2, "save_minutes": 0.0}
    done = programs.start(
        PROGRAM, tmp_path, json.dumps({**shared, **settings}), json.dumps(kills), folder=tmp_path / "said"
    ).wait()
    assert done.returncode == 0, done.stderr
    whole, cut = map(json.loads, done.stdout.splitlines())
    assert cut == whole
    assert done.stderr == ""

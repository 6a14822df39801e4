"""Two processes on a CPU train one model, with what Accelerate's launcher sets for several GPUs: every trainer in turn.

One program for the three of them, and one process that both are forks of, as it is the imports that take their time.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from pipeline.models.progress.model import ProgressModel
from pipeline.models.tactics.models import load_model
from tests.support.tiny_models import make_tiny_classifier

_PROGRAM = """
import json, os, sys, time, traceback
from pathlib import Path
from transformers import Trainer
from pipeline.jobs.specs import GrpoSpec
from pipeline.models import trainers
from pipeline.models.running import Training
from pipeline.models.trainers import GRPOTrainer, ProgressTrainer, SFTTrainer

causal, classifier, out = sys.argv[1:]
load = Trainer._load_best_model


def late(trainer):
    # The second process reads the best epoch's weights late: the first must not have removed them by then.
    time.sleep(0.5 * int(os.environ["RANK"]))
    assert Path(trainer.state.best_model_checkpoint).is_dir(), "the best weights are gone"
    load(trainer)


Trainer._load_best_model = late
drive, trained = Training.drive, []


def kept(training, trainer, saves):
    # What each process has learned, not what the first one writes.
    steps = drive(training, trainer, saves)
    trained.append([steps, weights(trainer.model)])
    return steps


Training.drive = kept


def read(path):
    # The second process reads late, also that there is nothing to learn.
    time.sleep(0.5 * int(os.environ["RANK"]))
    return read_rows(path)


read_rows, trainers.read_rows = trainers.read_rows, read


class Repository:
    url, commit = "u", "c"


class Empty:
    url, commit = "e", "c"


class Database:
    exported = 0

    def export_merged_data(self, repositories, output_path):
        Database.exported += 1
        learned = "sorry" if len(repositories) == 1 else "exact"
        steps = [
            {"tactic": f"{learned} {n}", "annotated_tactic": ["", []], "state_before": f"p {n}", "state_after": ""}
            for n in range(8)
        ]
        theorem = {"url": "u", "commit": "c", "file_path": "A.lean", "full_name": "t", "theorem_statement": None,
                   "start": [1, 1], "end": [1, 9], "traced_tactics": steps}
        (Path(output_path) / "random").mkdir(parents=True, exist_ok=True)
        Path(output_path, "random", "train.json").write_text(json.dumps([theorem]))


def weights(model):
    return {name: float(value.detach().double().sum()) for name, value in model.named_parameters()}


def lengths(completions, **columns):
    return [float(len(text)) for text in completions]


def train(rank):
    said = {}
    shared = {"batch_size": 2, "lr": 1e-2, "device": "cpu", "max_seq_len": 320}
    grpo = GrpoSpec(num_generations=2, max_steps=1)
    for kind, trainer in (
        ("sft", SFTTrainer(causal, f"{out}/sft", **shared)),
        ("grpo", GRPOTrainer(causal, lengths, f"{out}/grpo", grpo=grpo, **shared)),
    ):
        trainer.train([Empty(), Repository()], Database(), f"{out}/merged")
        said[kind] = trained.pop()
    shared = {"epochs": 1, "learning_rate": 3e-3, "device": "cpu"}
    progress = ProgressTrainer(f"{out}/steps.jsonl", classifier, f"{out}/progress", **shared)
    progress.train()
    said["progress"] = trained.pop()
    Path(out, f"rank{rank}.json").write_text(json.dumps([Database.exported, said]))


processes = []
for rank in ("0", "1"):
    processes.append(os.fork())
    if processes[-1] == 0:
        os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
        code = 1
        try:
            train(rank)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
sys.exit(any([os.waitpid(pid, 0)[1] for pid in processes]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_processes_learn_as_one_and_the_first_of_them_writes(tmp_path: Path, causal: Path) -> None:
    classifier = make_tiny_classifier(tmp_path / "classifier", hidden=32, layers=1)
    rows = [
        {"goal": f"p{proof}", "tactic": "rfl", "steps_remaining": 0, "proof": f"P{proof}"}
        for proof in range(40)
    ]
    (tmp_path / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    # What the launcher sets. Without the last one, four threads wait for each other on two cores, for minutes.
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    root = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen(
        [sys.executable, str(program), str(causal), str(classifier), str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": root, **shared},
        start_new_session=True,
    ) as launched:
        try:
            _, complained = launched.communicate(timeout=240)
        except BaseException:
            os.killpg(launched.pid, signal.SIGKILL)
            raise
    assert launched.returncode == 0, complained[-3000:]
    (exports, first), (no_export, second) = (
        json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)
    )
    assert (exports, no_export) == (4, 0)
    assert first == second, "gradients are of both"
    assert first["sft"][0] == 2, "8 rows in batches of 2 for each of two"
    assert first["progress"][0] == 2, "32 rows in batches of 8 for each of two"
    began = {
        name: float(value.double().sum()) for name, value in load_file(causal / "model.safetensors").items()
    }
    for kind in ("sft", "grpo"):
        steps, weights = first[kind]
        found = load_model(tmp_path / kind)
        assert {
            name: float(value.detach().double().sum()) for name, value in found.model.named_parameters()
        } == weights
        assert any(weights[name] != began[name] for name in weights), "it has learned"
        assert (
            json.loads((tmp_path / kind / "checkpoint.json").read_text())["about"]["fitted"]["steps"] == steps
        )
    ProgressModel(tmp_path / "progress", device="cpu")

"""Make the two small checkpoints of `make demo-serve`: python -m examples.make_checkpoints (two minutes).

A retriever and a tactic model learn from 400 theorems of `examples.rows`, traced by Lean, and are written to
`examples/checkpoints` with weights of 16 bits. The demo asks about other theorems.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, T5EncoderModel

from benchmarks.prove_family import make_model
from examples import rows
from examples.harness import (
    EXAMPLES,
    DemoError,
    begin,
    commit,
    everlean,
    main,
    new_daemon,
    new_repository,
    of_type,
    say,
)
from pipeline.models.chain import Chain
from pipeline.models.config import TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.libraries import quiet_libraries
from pipeline.models.retriever.learning import learn, measure
from pipeline.models.running import Saves
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.requests import Decoding, Request
from pipeline.models.tactics.rows import read_rows
from pipeline.models.tactics.training import FineTuning
from tests.support.retrieval import small_config
from tests.support.tiny_models import make_tiny_retriever

CHECKPOINTS = EXAMPLES / "checkpoints"
SOLVED = 400
SEED = 2
"""Of the theorems; the demo's are of another."""


def run(directory: Path) -> None:
    """Trace, train and write."""
    begin(directory, "two small checkpoints")
    repository = new_repository(directory / "rows")
    commit(repository, "Rows of numbers", rows.files("Lists", count=SOLVED, seed=SEED), day=1)
    settings = "[prove]\nenabled = false\n[train]\nenabled = false\n"
    with new_daemon(directory, settings, watched=repository) as daemon:
        daemon.wait("the trace", lambda events: bool(of_type(events, "trace_measured")))
        done = everlean(daemon.config, "export", "leandojo", str(directory / "data"), "--repo", "rows")
    if done.returncode:
        raise DemoError(f"the export failed: {done.stderr}")
    retriever(directory, CHECKPOINTS / "retriever")
    tactics(directory, CHECKPOINTS / "tactics")
    size = sum(path.stat().st_size for path in CHECKPOINTS.rglob("*") if path.is_file())
    say(f"{CHECKPOINTS}: {size} bytes")


def retriever(directory: Path, out: Path) -> None:
    """Train a retriever and write it."""
    base = make_tiny_retriever(directory / "base-retriever", layers=1)
    task, chain = TaskData("rows", directory / "data"), Chain(directory / "chain")
    config = small_config(
        base,
        lr=3e-3,
        max_epochs=6,
        warmup_steps=0,
        schedule="constant",
        num_negatives=1,
        against_forgetting="none",
    )
    checkpoint = chain.path(learn(task, chain, config, parent=None).checkpoint)
    figures = measure(checkpoint, task, config).metrics
    say(f"retriever: {100 * figures['recall@10']:.0f} % of unseen goals' lemmas among the first 10")
    _write(T5EncoderModel.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint), out)


def tactics(directory: Path, out: Path) -> None:
    """Train a tactic model and write it."""
    random = directory / "data" / "random"
    learned, unseen = read_rows(random / "train.json").rows, read_rows(random / "test.json").rows
    base = make_model(directory / "base-tactics", learned, seed=1, hidden=64, layers=2, max_length=256)
    config = TacticsConfig(str(base), epochs=12, batch_size=16, lr=3e-3, max_seq_len=256, device="cpu")
    training = FineTuning(config, str(base))
    training.fit(learned, Saves(directory / "tuned"))
    loaded = training.found
    requests = [Request(row.state, decoding=Decoding(candidates=4, max_tokens=24)) for row in unseen]
    first = [answer.tactics[:1] for answer in Generator(loaded).suggest(requests)]
    right = sum(
        bool(tactics_of_goal) and tactics_of_goal[0].tactic == row.tactic
        for tactics_of_goal, row in zip(first, unseen, strict=True)
    )
    say(f"tactics: the first answer is a person's tactic for {right} of {len(unseen)} unseen goals")
    _write(loaded.model, loaded.tokenizer, out)


def _write(model: Any, tokenizer: Any, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    with quiet_libraries():
        model.half().save_pretrained(out)
        tokenizer.save_pretrained(out)
    for path in out.glob("*.json"):
        path.write_text(f"{json.dumps(json.loads(path.read_text('utf-8')), ensure_ascii=False)}\n", "utf-8")


if __name__ == "__main__":
    # Several threads would only wait for each other.
    torch.set_num_threads(1)
    sys.exit(main(run, __doc__))

"""LeanDojo's modules for `python -m`: `everlean leandojo run -m MODULE` runs these in their place."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from daemon.leandojo.agents import LeanAgent

EXAMPLE = "https://github.com/durant42040/lean4-example", "005de00d03f1aaa32cb2923d5e3cbaf0b954a192"
SAMPLE = (
    ("⊢ n + 0 = n", "induction n with", "rfl", 2),
    ("⊢ n + 0 = n", "induction n with\nrfl", "simp", 1),
    ("⊢ a + b = b + a", "", "exact Nat.add_comm a b", 0),
)
"""Goal, tactics before, tactic, steps that remain after it."""


def lean_agent() -> None:
    """Set a repository up, train the retriever on it, and prove its sorries."""
    parser = argparse.ArgumentParser(description=lean_agent.__doc__)
    parser.add_argument("url", nargs="?", default=EXAMPLE[0])
    parser.add_argument("commit", nargs="?", default=EXAMPLE[1])
    options = parser.parse_args()
    agent = LeanAgent()
    agent.setup_github_repository(options.url, options.commit)
    agent.train()
    agent.prove()


def create_sample_dataset() -> None:
    """Write a few rows for the progress model; `everlean export progress` writes those of your own
    repositories."""
    parser = argparse.ArgumentParser(description=create_sample_dataset.__doc__)
    parser.add_argument("--output", type=Path, default=Path("raid/data/sample_leanprogress_dataset.jsonl"))
    out: Path = parser.parse_args().output
    rows = [
        {"goal": goal, "prefix": prefix, "tactic": tactic, "steps_remaining": steps}
        for goal, prefix, tactic, steps in SAMPLE
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    print(f"{out}: {len(rows)} rows")  # noqa: T201 - what a program says


def train_steps_model() -> None:
    """Train a model to predict the remaining steps of a proof."""
    parser = argparse.ArgumentParser(description=train_steps_model.__doc__)
    parser.add_argument(
        "--dataset", required=True, help="one JSON object a line: goal, prefix, tactic, steps_remaining"
    )
    parser.add_argument("--output-dir", required=True)
    parser.add_argument("--model-name", default="bert-base-uncased")
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--learning-rate", type=float, default=1e-5)
    parser.add_argument("--eval-ratio", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=42)
    options = vars(parser.parse_args())
    # torch is loaded with it.
    from pipeline.models.trainers import ProgressTrainer

    ProgressTrainer(data_path=options.pop("dataset"), **options).train()

"""Reinforcement learning on the repository's goals, with a reward of one's own or with Lean's.

The reward is called with the texts of the tactics, and returns one number for each. `reward_func="lean"` in its place
runs every tactic on its goal, where its theorem stands in the repository, and rewards what Lean says of it.
"""

from __future__ import annotations

from typing import Any

import torch

from daemon.leandojo import HFAgent
from pipeline.models.tactics import GRPOTrainer

url = "https://github.com/durant42040/lean4-example"
commit = "3e23ab0bfdcfdbd5b11ab53c2cd8b5d16492e9c2"
model_name = "deepseek-ai/DeepSeek-Prover-V2-7B"
output_dir = "outputs-grpo"


def reward_func(completions: list[str], **_columns: Any) -> torch.Tensor:
    """Reward short tactics, and no sorry."""
    return torch.tensor([-1.0 if "sorry" in text else 1.0 / (1 + len(text)) for text in completions])


def main() -> None:
    trainer = GRPOTrainer(
        model_name=model_name,
        output_dir=output_dir,
        reward_func=reward_func,
        epochs_per_repo=1,
        batch_size=8,
        lr=2e-5,
    )
    agent = HFAgent(trainer=trainer)
    agent.setup_github_repository(url=url, commit=commit)
    agent.train()
    agent.prove()


if __name__ == "__main__":
    main()

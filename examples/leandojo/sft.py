"""Supervised fine-tuning of a tactic model on one repository, then its sorries: LeanDojo-v2's first example.

What differs from a script for LeanDojo-v2: the two import lines. A commit may also be named by its branch. Whatever
happens here is in the store that `everlean` shows: `everlean sorries`, `everlean proofs`, `everlean models`.
"""

from __future__ import annotations

from daemon.leandojo import HFAgent
from pipeline.models.tactics import SFTTrainer

url = "https://github.com/durant42040/lean4-example"
commit = "3e23ab0bfdcfdbd5b11ab53c2cd8b5d16492e9c2"
model_name = "deepseek-ai/DeepSeek-Prover-V2-7B"
output_dir = "outputs-deepseek"


def main() -> None:
    trainer = SFTTrainer(
        model_name=model_name,
        output_dir=output_dir,
        epochs_per_repo=1,
        batch_size=2,
        lr=2e-5,
    )
    agent = HFAgent(trainer=trainer)
    agent.setup_github_repository(url=url, commit=commit)
    agent.train()
    agent.evaluate()
    agent.prove()


if __name__ == "__main__":
    main()

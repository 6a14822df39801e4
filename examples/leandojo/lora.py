"""As sft.py, with an adapter in the place of every weight: memory for a 7B model on one GPU."""

from __future__ import annotations

from peft import LoraConfig

from daemon.leandojo import HFAgent
from pipeline.models.tactics import SFTTrainer

url = "https://github.com/durant42040/lean4-example"
commit = "3e23ab0bfdcfdbd5b11ab53c2cd8b5d16492e9c2"
model_name = "deepseek-ai/DeepSeek-Prover-V2-7B"
output_dir = "outputs-deepseek-lora"


def main() -> None:
    trainer = SFTTrainer(
        model_name=model_name,
        output_dir=output_dir,
        epochs_per_repo=1,
        batch_size=2,
        lr=2e-5,
        lora_config=LoraConfig(
            r=16,
            lora_alpha=32,
            target_modules=["q_proj", "v_proj", "k_proj", "o_proj"],
            lora_dropout=0.1,
        ),
    )
    agent = HFAgent(trainer=trainer)
    agent.setup_github_repository(url=url, commit=commit)
    agent.train()
    agent.prove()


if __name__ == "__main__":
    main()

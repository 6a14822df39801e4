"""A model behind an OpenAI-compatible endpoint writes whole proofs, and mends them by Lean's errors.

What a day may cost is said first, here or under [prove.external] of config.toml; without it nothing is sent. With no
base_url it is Hugging Face's router, whose key is in HF_TOKEN. The prices below are an example: put your endpoint's.
"""

from __future__ import annotations

from daemon.leandojo import ExternalAgent

url = "https://github.com/durant42040/lean4-example"
commit = "3e23ab0bfdcfdbd5b11ab53c2cd8b5d16492e9c2"
model_name = "deepseek-ai/DeepSeek-Prover-V2-671B:novita"
base_url = ""


def main() -> None:
    agent = ExternalAgent(
        model_name=model_name,
        base_url=base_url,
        usd_per_day=1,
        usd_per_million_prompt=1,
        usd_per_million_completion=3,
    )
    agent.setup_github_repository(url=url, commit=commit)
    agent.prove(whole_proof=True)


if __name__ == "__main__":
    main()

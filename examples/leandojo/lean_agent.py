"""The retriever that learns for life: one repository after the other, each on top of what was learned before.

A second repository is set up and learned in the same way; what the retriever has lost on the first is measured, and a
checkpoint that lost too much is refused (`everlean models`).
"""

from __future__ import annotations

from daemon.leandojo import LeanAgent
from pipeline.models.retriever import TrainingConfig

url = "https://github.com/durant42040/lean4-example"
commit = "3e23ab0bfdcfdbd5b11ab53c2cd8b5d16492e9c2"
config = TrainingConfig(model_name="kaiyuy/leandojo-lean4-retriever-byt5-small")
generator = "kaiyuy/leandojo-lean4-retriever-tacgen-byt5-small"


def main() -> None:
    agent = LeanAgent(training_config=config, generator=generator)
    agent.setup_github_repository(url=url, commit=commit)
    agent.train()
    agent.evaluate()
    agent.prove()


if __name__ == "__main__":
    main()

"""LeanDojo-v2's agents on unsorry's store: set a repository up, train, prove, each with one call.

    from daemon.agents import HFAgent
    from pipeline.models.tactics import SFTTrainer

    agent = HFAgent(trainer=SFTTrainer("Qwen/Qwen3-0.6B", output_dir="outputs"))
    agent.setup_github_repository("https://github.com/durant42040/lean4-example", "main")
    agent.train()
    agent.prove()

They stand above the pipeline, as the daemon does: they run the daemon's jobs. Nothing here imports torch; a trainer
that is given brings it.
"""

from __future__ import annotations

from daemon.agents.errors import AgentError as AgentError
from daemon.agents.external import ExternalAgent as ExternalAgent
from daemon.agents.hf import HFAgent as HFAgent
from daemon.agents.lean import LeanAgent as LeanAgent

"""LeanDojo-v2's agents on everlean's store: set a repository up, train, prove, each with one call.

    from daemon.leandojo import HFAgent
    from pipeline.models.trainers import SFTTrainer

    agent = HFAgent(trainer=SFTTrainer("Qwen/Qwen3-0.6B", output_dir="outputs"))
    agent.setup_github_repository("https://github.com/durant42040/lean4-example", "main")
    agent.train()
    agent.prove()

An agent runs the daemon's jobs. Nothing here imports torch; the caller's trainer does.
"""

from __future__ import annotations

from daemon.leandojo.agents import BaseAgent as BaseAgent
from daemon.leandojo.agents import ExternalAgent as ExternalAgent
from daemon.leandojo.agents import HFAgent as HFAgent
from daemon.leandojo.agents import LeanAgent as LeanAgent
from daemon.leandojo.agents import ProverConfig as ProverConfig
from daemon.leandojo.session import AgentError as AgentError
from daemon.leandojo.tracing import LeanGitRepo as LeanGitRepo
from daemon.leandojo.tracing import generate_benchmark as generate_benchmark

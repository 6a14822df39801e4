"""`LeanAgent`: the premise retriever that learns for life, and a generator that is given what it finds."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from daemon.agents.base import ALWAYS, BaseAgent, measured_in
from daemon.agents.errors import AgentError
from daemon.agents.home import held
from daemon.agents.results import Measured, became
from daemon.agents.workshop import Workshop, in_a_loop
from daemon.requirements import cuda_is_there, why_not_trainable
from daemon.settings import Settings
from pipeline.models.retriever.config import TrainingConfig
from store import curriculum
from store.view import model_queries, trace_queries
from store.view.rows import CheckpointRow

GENERATOR = "kaiyuy/leandojo-lean4-retriever-tacgen-byt5-small"
"""LeanDojo's tactic generator, which takes premises with its state."""
MODEL = "retriever"


class LeanAgent(BaseAgent):
    """LeanDojo-v2's `LeanAgent`: trains the retriever on each repository in the order of the curriculum, on top of what
    it learned before, and proves with the tactics that a generator makes of the premises found.

    Training, measuring and promoting are the daemon's own jobs and rules: a checkpoint that has forgotten too much is
    refused, and `unsorry models` says so.
    """

    def __init__(
        self,
        database_path: str | Path | None = None,
        training_config: TrainingConfig | None = None,
        prover_config: None = None,
        *,
        generator: str | Path = "",
        **others: Any,
    ) -> None:
        """Args:
        database_path: see `BaseAgent`.
        training_config: how the retriever is trained; None: as [train] of the configuration says.
        prover_config: takes None alone: [prove] of the configuration has the budgets.
        generator: a folder or hub name of the tactic generator; "": [prove.generator] model, else LeanDojo's.
        others: those of `BaseAgent`.

        Raises:
            AgentError: the configuration is not valid.
        """
        if prover_config is not None:
            raise AgentError("prover_config is not taken: write the budgets under [prove] of config.toml")
        super().__init__(database_path, **others)
        train = self.settings.train
        update: dict[str, Any] = {"enabled": True, "new_theorems": 1}
        if training_config is not None:
            update["retriever"] = _changed(training_config)
            wanted = training_config.device
            update["device"] = ("cuda" if cuda_is_there() else "cpu") if wanted == "auto" else wanted
        self.settings = self.settings.model_copy(update={"train": train.model_copy(update=update)})
        self.generator = str(generator) or self.settings.prove.generator.model or GENERATOR

    def _train(self) -> tuple[CheckpointRow, ...]:
        problem = why_not_trainable(self.settings.train)
        if problem:
            raise AgentError(f"nothing can be trained here: {problem}")
        with held(self.settings):
            return in_a_loop(self._learn)

    async def _learn(self) -> tuple[CheckpointRow, ...]:
        async with self.open_shop() as shop:
            return await self._learn_all(shop)

    async def _learn_all(self, shop: Workshop) -> tuple[CheckpointRow, ...]:
        order = [
            item.repository
            for item in (await shop.store.ask(partial(curriculum.curriculum, simulated=True))).repositories
        ]
        repos = sorted(
            self.repos, key=lambda repo: order.index(repo.key) if repo.key in order else len(order)
        )
        newest = {
            row.repository: row.sha
            for row in await shop.store.ask(partial(trace_queries.newest_traces, simulated=True))
        }
        for pinned in repos:
            if (sha := newest.get(pinned.key, pinned.commit)) != pinned.commit:
                raise AgentError(
                    f"{pinned}: {sha[:10]} was traced since, and what is learned is a repository's newest trace; set "
                    "the repository up again, at the commit that is meant"
                )
        made: list[CheckpointRow] = []
        for pinned in repos:
            shop.settings = self.at_work_on([pinned])
            ended = await shop.work_off({"train", "evaluate"})
            await shop.settle_models()
            jobs = {row.job for row in ended if row.kind == "train"}
            failed = next((row for row in ended if row.job in jobs and row.state == "failed"), None)
            if failed is not None:
                remedy = failed.remedy or f"see `unsorry jobs logs {failed.job}`"
                raise AgentError(f"{pinned}: was not learned: {failed.message or failed.reason}; {remedy}")
            rows = await shop.store.ask(partial(model_queries.checkpoints, model=MODEL))
            new = [row for row in rows if row.job in jobs]
            for row in new:
                self._say(became(row))
            if not new:
                self._say(f"{pinned}: nothing new to learn")
            made += new
        return tuple(made)

    def _evaluate(self) -> tuple[Measured, ...]:
        with held(self.settings):
            return in_a_loop(self._measure)

    async def _measure(self) -> tuple[Measured, ...]:
        async with self.open_shop() as shop:
            await shop.work_off({"evaluate"})
            in_use = await shop.store.ask(partial(model_queries.checkpoint_in_use, model=MODEL))
            if in_use is None:
                raise AgentError("no retriever is in use to be measured; call train() first")
            measured = await shop.store.ask(
                partial(
                    measured_in,
                    checkpoint=in_use.checkpoint,
                    repositories=frozenset(pinned.key for pinned in self.repos),
                )
            )
        if not measured:
            self._say(
                "no step of these repositories' test splits uses a premise: there is nothing to measure"
            )
        return measured

    async def proving(self, shop: Workshop, whole_proof: bool) -> Settings:
        if whole_proof:
            raise AgentError(
                "LeanAgent proves by tactics: its generator writes one tactic after the other; call prove() without "
                "whole_proof, or take HFAgent or ExternalAgent"
            )
        settings = shop.settings
        generator = settings.prove.generator.model_copy(update={"model": self.generator})
        prove = settings.prove.model_copy(update={**ALWAYS, "rungs": (1,), "generator": generator})
        return settings.model_copy(update={"prove": prove})


def _changed(config: TrainingConfig) -> dict[str, Any]:
    usual = TrainingConfig()
    names = [item.name for item in fields(config) if item.name != "device"]
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(usual, name)}

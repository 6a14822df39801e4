"""`HFAgent`: a language model that is trained here, with a trainer that the caller made."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.agents.base import ALWAYS, BaseAgent, measured_in
from daemon.agents.errors import AgentError
from daemon.agents.home import held
from daemon.agents.results import TACTICS, Measured, recorded
from daemon.agents.training import Training
from daemon.agents.workshop import Workshop, in_a_loop
from daemon.settings import Settings
from pipeline.models.chain import begun
from store.view.rows import CheckpointRow

if TYPE_CHECKING:
    from pipeline.models.tactics.training import RepositoryTrainer


class HFAgent(BaseAgent):
    """LeanDojo-v2's `HFAgent`: trains with the trainer that it is given, in this process, and proves with its model.

    After each repository the model in `output_dir` is a checkpoint of the store too, measured on the test splits, and
    comes into use by the daemon's rule. The agent itself proves with what its trainer made, in use or not; before any
    training with the model that the trainer begins with.
    """

    def __init__(
        self,
        trainer: RepositoryTrainer,
        database_path: str | Path | None = None,
        training_config: None = None,
        prover_config: None = None,
        **others: Any,
    ) -> None:
        """Args:
        trainer: trains, and says where the model is.
        database_path: see `BaseAgent`.
        training_config, prover_config: take None alone: the trainer has its own settings, and [prove] of the
            configuration the budgets.
        others: those of `BaseAgent`.

        Raises:
            AgentError: the configuration is not valid.
        """
        if training_config is not None or prover_config is not None:
            raise AgentError(
                "training_config and prover_config are not taken: give the trainer its settings, and write the budgets "
                "under [prove] of config.toml"
            )
        super().__init__(database_path, **others)
        self.trainer = trainer
        self.output_dir = trainer.output_dir
        self._folder = Path(trainer.output_dir).absolute()
        base = Path(trainer.model_name)
        self._base = str(base.absolute()) if base.exists() else trainer.model_name
        self.use_lora = trainer.lora_config is not None

    def _train(self) -> tuple[CheckpointRow, ...]:
        with held(self.settings):
            in_a_loop(self._mended)
            training = Training(self.trainer, self.repos, self.settings, partial(self.open_shop, mend=False))
            return tuple(training.learn_all(self.data_path, self._say))

    async def _mended(self) -> None:
        # Once, before there is a job of this process, which is no killed one's.
        async with self.open_shop():
            pass

    def _evaluate(self) -> tuple[Measured, ...]:
        with held(self.settings):
            return in_a_loop(self._measure)

    async def _measure(self) -> tuple[Measured, ...]:
        async with self.open_shop() as shop:
            row = await shop.store.ask(partial(recorded, folder=self._folder))
            if row is None:
                raise AgentError(
                    f"{self.output_dir}: holds no model that this agent trained; call train() first"
                )
            repositories = frozenset(pinned.key for pinned in self.repos)
            measured = await shop.store.ask(
                partial(measured_in, checkpoint=row.checkpoint, repositories=repositories)
            )
        if not measured:
            self._say(
                "the test splits of these repositories have no step of a proof: there is nothing to measure"
            )
        return measured

    async def proving(self, shop: Workshop, whole_proof: bool) -> Settings:
        model = await self._model(shop)
        prove = shop.settings.prove
        if whole_proof:
            whole = prove.whole.model_copy(update={"model": model[1]})
            prove = prove.model_copy(update={**ALWAYS, "rungs": (3,), "whole": whole})
        else:
            shop.tactics = model
            prove = prove.model_copy(update={**ALWAYS, "rungs": (2,)})
        return shop.settings.model_copy(update={"prove": prove})

    async def _model(self, shop: Workshop) -> tuple[str, str]:
        """Return the id and the place of the model to prove with: the trained one or, before training, the first."""
        row = await shop.store.ask(partial(recorded, folder=self._folder))
        if row is not None:
            return row.checkpoint, str(shop.settings.paths.models / TACTICS / row.checkpoint)
        if await asyncio.to_thread(begun, self._folder):
            return str(self._folder), str(self._folder)
        self._say(f"nothing was trained into {self.output_dir} yet: {self._base} is used as it is")
        return self._base, self._base

"""`ExternalAgent`: a model behind an OpenAI-compatible endpoint writes the proofs; nothing is trained here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from daemon.agents.base import ALWAYS, BaseAgent
from daemon.agents.errors import AgentError
from daemon.agents.results import Measured
from daemon.agents.workshop import Workshop
from daemon.settings import Settings
from daemon.settings.models import External, lacking

ROUTER = "https://router.huggingface.co/v1"
ROUTER_KEY = "HF_TOKEN"
DEFAULT_MODEL = "deepseek-ai/DeepSeek-Prover-V2-671B:novita"


class ExternalAgent(BaseAgent):
    """LeanDojo-v2's `ExternalAgent`. It costs money where the endpoint does: what a day may cost has to be said.

    Proofs are written whole, and mended by Lean's errors, whether `prove` is asked for whole proofs or not.
    """

    def __init__(
        self,
        model_name: str = DEFAULT_MODEL,
        database_path: str | Path | None = None,
        *,
        base_url: str = "",
        usd_per_day: float | None = None,
        usd_per_million_prompt: float | None = None,
        usd_per_million_completion: float | None = None,
        **others: Any,
    ) -> None:
        """Args:
        model_name: as the endpoint names it.
        database_path: see `BaseAgent`.
        base_url: of the endpoint; "": [prove.external] base_url, else Hugging Face's router, whose key is HF_TOKEN.
        usd_per_day, usd_per_million_prompt, usd_per_million_completion: the cap and the prices; None: as
            [prove.external] says. Prices of 0 are for an endpoint that costs nothing.
        others: those of `BaseAgent`.

        Raises:
            AgentError: the configuration is not valid.
        """
        super().__init__(database_path, **others)
        external = self.settings.prove.external
        update: dict[str, Any] = {"model": model_name}
        given = {
            "usd_per_day": usd_per_day,
            "usd_per_million_prompt": usd_per_million_prompt,
            "usd_per_million_completion": usd_per_million_completion,
        }
        update |= {name: float(value) for name, value in given.items() if value is not None}
        if base_url:
            update["base_url"] = base_url
        elif not external.base_url:
            update["base_url"] = ROUTER
            if external.key_variable not in os.environ:
                update["key_variable"] = ROUTER_KEY
        self.model_name = model_name
        try:
            checked = External.model_validate(update)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise AgentError(f"{place} {first['msg'].removeprefix('Value error, ')}") from error
        taken = external.model_copy(update={name: getattr(checked, name) for name in update})
        prove = self.settings.prove.model_copy(update={"external": taken})
        self.settings = self.settings.model_copy(update={"prove": prove})

    async def proving(self, shop: Workshop, whole_proof: bool) -> Settings:  # noqa: ARG002 - it writes whole ones anyway
        prove = shop.settings.prove.model_copy(update={**ALWAYS, "rungs": (4,)})
        problems = [*lacking(prove)]
        if problems:
            raise AgentError("; ".join(f"the agent {problem}" for problem in problems))
        return shop.settings.model_copy(update={"prove": prove})

    def _train(self) -> NoReturn:
        raise AgentError("ExternalAgent trains nothing: its model is external; take HFAgent or LeanAgent")

    def _evaluate(self) -> tuple[Measured, ...]:
        raise AgentError(
            "ExternalAgent has no model of its own to measure; prove() says what it proves, and the attempts' cost is "
            "in `unsorry sorries`"
        )

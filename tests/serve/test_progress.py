"""`use_reward`: the progress model, and what is told where it cannot be asked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

from pipeline.lean.tactic_text import Step
from pipeline.serve.engines import RatingModel, Terms
from pipeline.serve.measures import Measures
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import Limits, Provenance


def test_a_number_that_is_none_is_the_model_s_failure_and_is_not_sent() -> None:
    class Damaged:
        def predict(self, steps: Sequence[Step]) -> list[float]:
            return [math.inf] * len(steps)

    async def work() -> None:
        rating = RatingModel(Damaged(), Terms(Provenance(), Limits(), Measures()))
        await rating.start()
        try:
            await rating.remaining("⊢ p", ["simp"], "")
        finally:
            await rating.close()

    with pytest.raises(Problem, match="not a finite number") as told:
        asyncio.run(work())
    assert told.value.status == 500

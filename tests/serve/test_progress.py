"""`use_reward`: the progress model, its template, and what is told where it cannot be asked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.lean.tactic_text import Step
from pipeline.models.errors import ModelError
from pipeline.models.progress.model import ProgressModel
from pipeline.serve.engines import RatingModel, Terms
from pipeline.serve.measures import Measures
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import Limits, Provenance
from tests.support.tiny_models import make_tiny_classifier

LEANDOJO = "Goal:\n{goal}\n\nPrefix:\n{prefix}\n\nCandidate tactic:\n{tactic}\n"
STEPS = [Step("⊢ p → p", "intro h"), Step("h : p\n⊢ p", "exact h", "intro h")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_classifier(tmp_path_factory.mktemp("progress"), hidden=16, layers=1)


def test_leandojo_s_own_template_is_what_our_models_are_asked_with(model: Path) -> None:
    templated = ProgressModel(model, device="cpu", template=LEANDOJO)
    plain = ProgressModel(model, device="cpu").predict(STEPS)
    assert templated.predict(STEPS) == pytest.approx(plain, abs=1e-5)
    assert templated.predict([]) == []


@pytest.mark.parametrize("template", ["{state}", "{goal", "{}", "{goal.length}"])
def test_a_template_that_cannot_be_filled_in_is_told_with_what_it_takes(model: Path, template: str) -> None:
    with pytest.raises(ModelError, match=r"\{goal\}, \{prefix\}, \{tactic\}"):
        ProgressModel(model, device="cpu", template=template)


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

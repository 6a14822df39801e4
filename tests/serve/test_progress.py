"""`use_reward`: the progress model, its template, and what is told where it cannot be asked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.lean.tactic_text import Step
from pipeline.models.errors import ModelError
from pipeline.models.loading import load_progress
from pipeline.models.progress.model import ProgressModel
from pipeline.serve.engines import RatingModel, Terms
from pipeline.serve.measures import Measures
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import Limits, ModelSpec, Provenance, RewardSpec
from tests.support.serve import Served, make_saying, spec_of
from tests.support.tiny_models import make_tiny_classifier

LEANDOJO = "Goal:\n{goal}\n\nPrefix:\n{prefix}\n\nCandidate tactic:\n{tactic}\n"
STEPS = [Step("⊢ p → p", "intro h"), Step("h : p\n⊢ p", "exact h", "intro h")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_classifier(tmp_path_factory.mktemp("progress"), hidden=16, layers=1)


def test_leandojo_s_own_template_is_what_our_models_are_asked_with(model: Path) -> None:
    templated = load_progress(model, device="cpu", template=LEANDOJO)
    plain = ProgressModel(model, device="cpu").predict(STEPS)
    assert templated.predict(STEPS) == pytest.approx(plain, abs=1e-5)
    assert templated.predict([]) == []


def test_another_template_asks_otherwise(model: Path) -> None:
    plain = ProgressModel(model, device="cpu").predict(STEPS)
    other = load_progress(model, device="cpu", template="{{{tactic}}} of {goal}").predict(STEPS)
    assert other != pytest.approx(plain, abs=1e-5)
    assert all(steps >= 0 for steps in other)


@pytest.mark.parametrize("template", ["{state}", "{goal", "{}", "{goal.length}"])
def test_a_template_that_cannot_be_filled_in_is_told_with_what_it_takes(model: Path, template: str) -> None:
    with pytest.raises(ModelError, match=r"\{goal\}, \{prefix\}, \{tactic\}"):
        load_progress(model, device="cpu", template=template)


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


def test_a_progress_model_that_cannot_be_loaded_leaves_plain_requests_alone(tmp_path: Path) -> None:
    said = ModelSpec(
        "said", "causal", str(make_saying(tmp_path / "said", {"simp": 1.0})), candidates=1, max_tokens=8
    )
    with Served(spec_of(tmp_path, said, progress=RewardSpec(str(tmp_path / "nowhere")))) as it:
        it.wait_ready()
        asked = {"name": "said", "input": "⊢ p"}
        assert it.client.post("/generate", json=asked).json()["outputs"][0]["output"] == "simp"
        answer = it.client.post("/generate", json={**asked, "use_reward": True})
        assert answer.status_code == 503
        assert "nowhere" in answer.json()["reason"]
        assert it.client.get("/models").json()["progress"]["state"] == "failed"

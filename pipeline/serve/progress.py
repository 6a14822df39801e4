"""The progress model behind `use_reward`, as LeanDojo-v2's server has it: how many steps remain after each tactic.

The default template is LeanDojo's, and what is too long is cut where it matters least (`pipeline.progress.text`); of a
template of somebody's own the end is cut, as there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from pipeline.progress.model import LONGEST, ProgressModel, batch_of, load_model, resolved, text_length
from pipeline.progress.text import Step
from pipeline.prove.generating import Predicting
from pipeline.serve.asking import ask, batching, failed
from pipeline.serve.measures import Measures
from pipeline.serve.order import Limits, ProgressOrder
from pipeline.serve.swapping import About
from pipeline.tactics.errors import ModelError
from pipeline.tactics.service import Batching

NAME = "progress"
_FIELDS = ("goal", "prefix", "tactic")
_AT_ONCE = 64


class RatingModel:
    """A progress model for all clients."""

    def __init__(self, model: Predicting, *, about: About, limits: Limits, measures: Measures) -> None:
        """Args:
        model: nobody else may use it.
        about: what it is.
        limits: of its batches.
        measures: count them.
        """
        self.about = about

        def predicted(asked: Sequence[tuple[Step, ...]]) -> list[list[float]]:
            every = iter(model.predict([step for steps in asked for step in steps]))
            return [[next(every) for _ in steps] for steps in asked]

        self._service: Batching[tuple[Step, ...], list[float]] = batching(
            NAME, predicted, limits=limits, measures=measures
        )

    async def start(self) -> None:
        await self._service.start()

    async def close(self) -> None:
        await self._service.close()

    async def remaining(self, state: str, tactics: Sequence[str], prefix: str) -> list[float]:
        """Return how many steps remain after each tactic, from 0.

        Raises:
            Problem: the model failed, or what it says is no number.
        """
        found = await ask(NAME, self._service, tuple(Step(state, tactic, prefix) for tactic in tactics))
        if not all(map(math.isfinite, found)):
            raise failed(NAME, "what it says is no finite number; its weights may be damaged")
        return found


class TemplatedProgress:
    """A progress model that reads steps in a template of its own (`generating.Predicting`)."""

    def __init__(self, model: str, template: str, *, device: str) -> None:
        """Args:
        model: a folder or hub name.
        template: with {goal}, {prefix} and {tactic}.
        device: as `ProgressModel`'s.

        Raises:
            ModelError: the model cannot be loaded, or the template has other fields.
        """
        self._template = template
        self._text(Step("", ""))
        self._tokenizer, loaded = load_model(model, new_head=False)
        self._longest = text_length(self._tokenizer, loaded, LONGEST)
        self._device = torch.device(resolved(device))
        self._model: PreTrainedModel = loaded.to(self._device).eval()  # type: ignore[arg-type]

    def predict(self, steps: Sequence[Step]) -> list[float]:
        """Return the steps that remain after each, from 0; infinite where the model's number is none."""
        found: list[float] = []
        for start in range(0, len(steps), _AT_ONCE):
            texts = [self._text(step) for step in steps[start : start + _AT_ONCE]]
            encoded = self._tokenizer(texts, truncation=True, max_length=self._longest, verbose=False)
            batch = batch_of(encoded["input_ids"], self._model.config.pad_token_id)
            with torch.inference_mode():
                logits = self._model(**{name: value.to(self._device) for name, value in batch.items()}).logits
            values = logits.float().reshape(-1)
            found += torch.where(values.isfinite(), values, torch.inf).clamp(min=0.0).tolist()
        return found

    def _text(self, step: Step) -> str:
        try:
            return self._template.format(goal=step.goal, prefix=step.prefix, tactic=step.tactic).strip()
        except (LookupError, ValueError, AttributeError) as error:
            raise ModelError(
                f"the template {self._template!r} cannot be filled in ({type(error).__name__}: {error}). It takes "
                f"{', '.join(f'{{{name}}}' for name in _FIELDS)}; a brace of its own is written twice"
            ) from error


def load_progress(order: ProgressOrder, source: str) -> Predicting:
    """Load the model that `source` names.

    Raises:
        LearningError: it cannot be loaded, or the order's template cannot be filled in.
    """
    if order.template:
        return TemplatedProgress(source, order.template, device=order.device or "auto")
    return ProgressModel(source, device=order.device or "auto")

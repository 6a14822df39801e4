"""Predict the steps left with a progress model, for many steps of many proofs at once.

A model is a folder of `ProgressTrainer` (ours or LeanDojo-v2's), or a name of the hub: anything transformers loads as a
text classifier with one number a text.

The text of a step is LeanProgress's template, the same in training and in use. The reference cuts a long text at its
end, where the step is. Here the oldest steps of the prefix are cut first, then parts of the state, and the step itself
last.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import LARGE_INTEGER

from pipeline.lean.tactic_text import Step
from pipeline.models.batching import by_length, goes_together, padded
from pipeline.models.errors import ModelError
from pipeline.models.libraries import device_of, load_tokenizer, load_weights, loading
from pipeline.models.model_files import read_checkpoint
from pipeline.models.text import CUT, fitting_state, least, state_text

LONGEST = 512
"""Tokens of the longest text of a model without a limit of its own."""


class ProgressModel:
    """Predicts the number of steps left after a step. For one thread at a time."""

    def __init__(self, model: str | Path, *, device: str = "auto") -> None:
        """Args:
        model: the folder or hub name.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1".

        Raises:
            ModelError: it cannot be loaded, or has another head.
            ConfigError: there is no such device.
            CheckpointError: a file of the folder differs from the saved one.
        """
        read_checkpoint(Path(model), verify=True)
        self.tokenizer, loaded = load_model(model)
        self.device = device_of(device)
        self._model: PreTrainedModel = loaded.to(self.device).eval()

    def predict(self, steps: Sequence[Step]) -> list[float]:
        """Return the steps left after each: from 0, and 0 for the last of a proof.

        A long text is cut (`step_ids`). A prediction that is not finite counts as infinite, so a search takes it last.
        """
        texts = [step_ids(step, self.tokenizer) for step in steps]
        found = [0.0] * len(texts)
        for chosen in by_length([len(text) for text in texts], goes_together):
            ids, mask = padded(
                [texts[number] for number in chosen], self._model.config.pad_token_id, self.device
            )
            with torch.inference_mode():
                values = self._model(input_ids=ids, attention_mask=mask).logits.float().reshape(-1)
            values = torch.where(values.isfinite(), values, torch.inf).clamp(min=0.0)
            for number, value in zip(chosen, values.tolist(), strict=True):
                found[number] = value
        return found


def load_model(
    model: str | Path, *, new_head: bool = False, longest: int | None = None
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Return the model with one number a text, and its tokenizer with the length of the longest text.

    Args:
        model: the folder or hub name.
        new_head: accept a model without such a head, or with another one, and initialise a new one at random.
        longest: tokens of a text, if the model takes as many; None: as in its training.

    Raises:
        ModelError: it cannot be loaded, or lacks a necessary head.
    """
    tokenizer = load_tokenizer(model)
    with loading(f"the progress model {model}", model):
        found, missing = load_weights(
            AutoModelForSequenceClassification,
            model,
            num_labels=1,
            problem_type="regression",
            dtype=torch.float32,
            ignore_mismatched_sizes=new_head,
        )
    loaded: PreTrainedModel = found
    # Of the model itself only BERT's pooler may be new, a part of the head in all but name.
    own = [
        name for name in missing if name.startswith(f"{loaded.base_model_prefix}.") and "pooler" not in name
    ]
    if lacking := own if new_head else missing:
        raise ModelError(
            f"{model} lacks {len(lacking)} weights of a {type(loaded).__name__} ({lacking[0]}, …). Take a model of "
            "`ProgressTrainer`; it trains one from an encoder such as BERT, a causal model, or an encoder-decoder"
        )
    # RoBERTa reserves its first positions; its tokenizer has the number of the others.
    places = getattr(loaded.config, "max_position_embeddings", None)
    limits = [limit for limit in (longest, places, tokenizer.model_max_length) if limit is not None]
    tokenizer.model_max_length = min((limit for limit in limits if limit < LARGE_INTEGER), default=LONGEST)
    tokenizer.padding_side = "right"
    # A decoder reads the last token before the padding.
    loaded.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer, loaded


def step_ids(step: Step, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens of a step's text, cut to the tokenizer's longest."""
    state, lines, tactic = state_text(step.goal), step.prefix.strip().splitlines(), step.tactic.strip()

    def text(state: str, oldest: int) -> str:
        """Return the text with this state, without the oldest lines of the prefix."""
        return progress_text(state, "\n".join([CUT, *lines[oldest:]] if oldest else lines), tactic)

    def fits(text: str) -> bool:
        # Without `verbose` it warns about each long text.
        return bool(len(tokenizer(text, verbose=False)["input_ids"]) <= tokenizer.model_max_length)

    oldest = 0
    if not fits(text(state, 0)):
        oldest = least(1, len(lines), lambda number: fits(text(state, number)))
        state = fitting_state(state, lambda shown: fits(text(shown, oldest)))
    return list(tokenizer(text(state, oldest), truncation=True)["input_ids"])


def progress_text(state: str, prefix: str, tactic: str) -> str:
    """Return a step as LeanProgress's trainer renders it."""
    return f"Goal:\n{state}\n\nPrefix:\n{prefix}\n\nCandidate tactic:\n{tactic}"

"""Predict the steps left with a progress model, for many steps of many proofs at once.

A model is a folder of `ProgressTrainer` (ours or LeanDojo-v2's), or a name of the hub: anything transformers loads as a
text classifier with one number a text.

The text of a step is LeanProgress's template, the same in training and in use. The reference cuts a long text at its
end, where the step is. Here the oldest steps of the prefix are cut first, then parts of the state, and the step itself
last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from pipeline.lean.tactic_text import Step
from pipeline.models.batching import by_length, padded
from pipeline.models.errors import ModelError
from pipeline.models.libraries import UNLOADABLE, device_of, load_tokenizer, load_weights, not_loadable
from pipeline.models.model_files import read_checkpoint
from pipeline.models.text import CUT, fitting_state, least, state_text

LONGEST = 512
"""Tokens of the longest text, unless the folder or the model has a lower limit."""
_log = logging.getLogger(__name__)


class ProgressModel:
    """Predicts the number of steps left after a step. For one thread at a time."""

    def __init__(self, model: str | Path, *, device: str = "auto", batch_size: int = 64) -> None:
        """Args:
        model: the folder or hub name.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1".
        batch_size: texts at once.

        Raises:
            ModelError: it cannot be loaded, or has another head.
            ConfigError: there is no such device.
            CheckpointError: a file of the folder differs from the saved one.
        """
        found = read_checkpoint(Path(model), verify=True)
        longest = LONGEST if found is None else int(found.about.get("max_length", LONGEST))
        self.tokenizer, loaded = load_model(model, new_head=False)
        self.max_length = text_length(self.tokenizer, loaded, longest)
        self.device = device_of(device)
        self.batch_size = batch_size
        self._model: PreTrainedModel = loaded.to(self.device).eval()

    def predict(self, steps: Sequence[Step]) -> list[float]:
        """Return the steps left after each: from 0, and 0 for the last of a proof.

        A long text is cut (`fitting_text`). A prediction that is not finite counts as infinite, so a search takes it
        last.
        """
        texts, _ = ids_of(self.tokenizer, steps, self.max_length)
        found = [0.0] * len(texts)
        for chosen in by_length(
            [len(text) for text in texts], lambda rows, _shortest, _longest: rows <= self.batch_size
        ):
            batch = batch_of([texts[number] for number in chosen], self._model.config.pad_token_id)
            batch = {name: value.to(self.device) for name, value in batch.items()}
            with torch.inference_mode():
                values = self._model(**batch).logits.float().reshape(-1)
            values = torch.where(values.isfinite(), values, torch.inf).clamp(min=0.0)
            for number, value in zip(chosen, values.tolist(), strict=True):
                found[number] = value
        return found


def load_model(model: str | Path, *, new_head: bool) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Return the tokenizer and the model with one number a text.

    Args:
        model: the folder or hub name.
        new_head: accept a model without such a head, or with another one, and initialise a new one at random.

    Raises:
        ModelError: it cannot be loaded, or lacks a necessary head.
    """
    tokenizer = load_tokenizer(model)
    try:
        found, missing = load_weights(
            AutoModelForSequenceClassification,
            model,
            num_labels=1,
            problem_type="regression",
            dtype=torch.float32,
            ignore_mismatched_sizes=new_head,
        )
    except UNLOADABLE as error:
        raise not_loadable(f"the progress model {model}", model, error) from error
    loaded: PreTrainedModel = found
    if missing and not new_head:
        raise ModelError(
            f"{model} is no progress model: it lacks {', '.join(missing[:3])}, which would be random. Train one from "
            "it with `ProgressTrainer`"
        )
    # Of the model itself only BERT's pooler may be new, a part of the head in all but name.
    own = [
        name for name in missing if name.startswith(f"{loaded.base_model_prefix}.") and "pooler" not in name
    ]
    if own:
        raise ModelError(
            f"{model} lacks {len(own)} of the weights of a {type(loaded).__name__} ({own[0]}, …): it cannot be given a "
            "head. Take an encoder such as BERT, a causal model, or an encoder-decoder"
        )
    if tokenizer.pad_token_id is None:
        raise ModelError(
            f"the tokenizer of {model} has no token to pad with, nor an end mark to take for one"
        )
    # A decoder reads the last token before the padding.
    loaded.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer, loaded


def text_length(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, wanted: int) -> int:
    """Return the most tokens of a text: `wanted`, or the model's own limit."""
    places = getattr(model.config, "max_position_embeddings", None)
    # RoBERTa reserves its first positions; its tokenizer has the number of the others.
    least = min(wanted, tokenizer.model_max_length, wanted if places is None else int(places))
    if least < wanted:
        _log.info("texts have at most %d tokens, not %d: the model takes no more", least, wanted)
    return int(least)


def ids_of(
    tokenizer: PreTrainedTokenizerBase, steps: Sequence[Step], max_length: int
) -> tuple[list[list[int]], int]:
    """Return the tokens of steps' texts, and the number of texts cut to `max_length`."""

    def ids(text: str) -> list[int]:
        # Without `verbose` it warns about each long text.
        return list(tokenizer(text, verbose=False)["input_ids"])

    found, cut = [], 0
    for step in steps:
        row = ids(progress_text(step))
        if len(row) > max_length:
            cut += 1
            text = fitting_text(step, lambda text: len(ids(text)) <= max_length)
            row = list(tokenizer(text, truncation=True, max_length=max_length)["input_ids"])
        found.append(row)
    return found, cut


def batch_of(rows: Sequence[Sequence[int]], pad: int) -> dict[str, Tensor]:
    """Return rows of tokens as a model's input: input_ids and attention_mask, int64, shape (rows, longest)."""
    ids, mask = padded(rows, pad)
    return {"input_ids": ids, "attention_mask": mask}


def progress_text(step: Step) -> str:
    """Return a step as LeanProgress's trainer renders it."""
    return _rendered(state_text(step.goal), step.prefix.strip(), step.tactic.strip())


def fitting_text(step: Step, fits: Callable[[str], bool]) -> str:
    """Return the text of a step, cut until `fits` accepts it."""
    text = progress_text(step)
    if fits(text):
        return text
    goal, tactic = state_text(step.goal), step.tactic.strip()
    lines = step.prefix.strip().splitlines()
    cut = least(0, len(lines), lambda at: fits(_rendered(goal, _without(lines, at), tactic)))
    prefix = _without(lines, cut)
    if not fits(_rendered(goal, prefix, tactic)):
        goal = fitting_state(goal, lambda state: fits(_rendered(state, prefix, tactic)))
    return _rendered(goal, prefix, tactic)


def _without(lines: list[str], oldest: int) -> str:
    return "\n".join([CUT, *lines[oldest:]] if oldest else lines)


def _rendered(goal: str, prefix: str, tactic: str) -> str:
    return f"Goal:\n{goal}\n\nPrefix:\n{prefix}\n\nCandidate tactic:\n{tactic}"

"""Loads models for use by every caller: generators, retrievers, encoders, progress models.

A model is a folder (a checkpoint of the chain, a trainer's folder, a LoRA adapter) or a name of the hub. Each file of
our trainers' models is compared with the saved one. A causal model on a GPU runs in vLLM if that is installed
(`tactics.vllm_loop`), all else in transformers. Each result has one method for each kind of question:

    load_generator(…).suggest(requests)    tactics with log-probabilities; `complete`: answers to any prompts
    load_retriever(…).vectors(texts)       unit vectors, as its index of premises has them; `Retrievers`: of a
                                           checkpoint the one of each repository
    load_encoder(…).vectors(texts)         the mean over a text's tokens
    load_progress(…).predict(steps)        the steps that remain
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from pipeline.models.adapters import model_for
from pipeline.models.batching import by_length, goes_together
from pipeline.models.errors import DivergedError, ModelError
from pipeline.models.libraries import device_of, inference_dtype
from pipeline.models.model_files import read_about
from pipeline.models.progress.model import ProgressModel
from pipeline.models.retriever import encoder as encoders
from pipeline.models.retriever.encoder import load_tokens, tensors_of
from pipeline.models.retriever.finder import Retrievers as Retrievers
from pipeline.models.retriever.finder import load_retriever as load_retriever
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import load_model, read_model
from pipeline.models.tactics.vllm_loop import vllm_loop
from pipeline.models.trainer_folder import settle

_LONGEST = 2048
"""Tokens of the longest text for an encoder without a limit: attention's cost grows with the square."""


def load_generator(
    model: str | Path,
    *,
    device: str = "auto",
    dtype: torch.dtype | None = None,
    repository: str | None = None,
    kind: Literal["causal", "seq2seq"] | None = None,
) -> Generator:
    """Load a generative model.

    Args:
        model: a folder, a LoRA adapter's folder, or a name of the hub.
        device: where to compute; "auto" is a GPU if there is one.
        dtype: of the weights; None: bfloat16 if the hardware has it, else float32.
        repository: the key of the goals' repository, for a checkpoint with an adapter for each.
        kind: the only valid one; None: either.

    Raises:
        LearningError: it cannot be loaded, is damaged, or of another kind; or there is no such device.
    """
    folder = Path(model)
    if folder.is_dir():
        settle(folder)
        read_about(folder, verify=True)
    where = device_of(device)
    dtype = dtype or inference_dtype(where)
    own = model_for(model, repository)
    read = read_model(own)
    found = "seq2seq" if read.prompts.kind == "seq2seq" else "causal"
    if kind is not None and kind != found:
        raise ModelError(f'{model} is a {found} model, and kind is "{kind}". Write kind = "{found}"')
    loop = vllm_loop(read, own, device=where, dtype=dtype)
    if loop is not None:
        return Generator(read, loop)
    return Generator(load_model(own, device=where, dtype=dtype))


def load_progress(model: str | Path, *, device: str = "auto", template: str = "") -> ProgressModel:
    """Load a progress model. `template`: the text of a step; "": that of our training.

    Raises:
        LearningError: it cannot be loaded, or the template cannot be filled in; or there is no such device.
    """
    return ProgressModel(model, device=device, template=template)


def load_encoder(model: str | Path, *, device: str = "auto") -> HubEncoder:
    """Load any encoder fit for a retriever.

    Raises:
        LearningError: it cannot be loaded, or is no encoder; or there is no such device.
    """
    return HubEncoder(model, device=device_of(device))


class HubEncoder:
    """An encoder of transformers; of a text the mean over its tokens, whatever its pooling."""

    def __init__(self, model: str | Path, *, device: torch.device) -> None:
        """Load it; arguments and errors as `load_encoder`'s."""
        self._tokens = load_tokens(model)
        self._encoder = encoders.load_encoder(model)
        torch.nn.Module.to(self._encoder, device)

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the means over the tokens of texts.

        Raises:
            DivergedError: a vector is not finite.
        """
        rows = [self._tokens(text, _LONGEST) for text in texts]
        found: list[list[float]] = [[]] * len(rows)
        for chosen in by_length([len(row) for row in rows], goes_together):
            ids, mask = tensors_of([rows[number] for number in chosen], self._encoder.device)
            with torch.inference_mode():
                hidden = self._encoder(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            # Values at padding are arbitrary, and NaN times zero is NaN.
            means = hidden.masked_fill(mask.unsqueeze(2) == 0, 0.0).sum(dim=1) / mask.sum(dim=1, keepdim=True)
            if not bool(torch.isfinite(means).all()):
                raise DivergedError(
                    "a vector has numbers that are none: the encoder's weights may be damaged"
                )
            for number, mean in zip(chosen, means.tolist(), strict=True):
                found[number] = mean
        return found

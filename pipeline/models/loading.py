"""Load models for use, whoever asks them: generators, retrievers, encoders, progress models.

A model is a folder (a checkpoint of the chain, what a trainer wrote, a LoRA adapter) or a name of the hub. Of what our
trainers wrote each file is compared with what was saved. A causal model on a GPU runs in vLLM where that is installed
(`tactics.vllm_loop`), all else in transformers. What comes back has one method for each kind of question:

    load_generator(…).suggest(requests)    tactics with log-probabilities; `complete`: answers to any prompts
    load_retriever(…).vectors(texts)       unit vectors, as its index of premises has them
    load_encoder(…).vectors(texts)         the mean over a text's tokens
    load_progress(…).predict(steps)        the steps that remain
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    PreTrainedModel,
)

from pipeline.models.batching import by_length
from pipeline.models.errors import DivergedError, ModelError
from pipeline.models.libraries import device_of, inference_dtype, load_tokenizer, quiet_libraries
from pipeline.models.model_files import read_about
from pipeline.models.progress.model import ProgressModel, batch_of, text_length
from pipeline.models.retriever.finder import Retriever
from pipeline.models.tactics.adapters import model_for
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import load_model, read_model
from pipeline.models.tactics.vllm_loop import vllm_loop
from pipeline.models.trainer_folder import settle
from store.text import first_line

_LONGEST = 2048
"""Tokens of the longest text for an encoder that would take any: what attention takes grows with the square."""
_AT_ONCE = 16


def load_generator(
    model: str | Path,
    *,
    device: str = "auto",
    dtype: torch.dtype | None = None,
    repository: str | None = None,
    kind: Literal["causal", "seq2seq"] | None = None,
) -> Generator:
    """Load a model that generates.

    Args:
        model: a folder, a LoRA adapter's folder, or a name of the hub.
        device: where to compute; "auto" is a GPU where there is one.
        dtype: of the weights; None: bfloat16 on what has it in hardware, else float32.
        repository: the key of the one whose goals it is asked, for a checkpoint with an adapter for each.
        kind: the only one that is taken; None: either.

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


def load_retriever(model: str | Path, *, device: str = "auto") -> Retriever:
    """Load a retriever: a folder, a name of the hub, or a `.ckpt` file that LeanDojo wrote.

    Raises:
        LearningError: it is missing or damaged, or no encoder; or there is no such device.
    """
    return Retriever.load(model, device=device_of(device))


def load_progress(model: str | Path, *, device: str = "auto", template: str = "") -> ProgressModel:
    """Load a progress model. `template`: the text of a step; "": the one that ours learned.

    Raises:
        LearningError: it cannot be loaded, or the template cannot be filled in; or there is no such device.
    """
    return ProgressModel(model, device=device, template=template)


def load_encoder(model: str | Path, *, device: str = "auto") -> HubEncoder:
    """Load any encoder of transformers.

    Raises:
        LearningError: it cannot be loaded, or is no encoder; or there is no such device.
    """
    return HubEncoder(str(model), device=device_of(device))


class HubEncoder:
    """Any encoder that transformers loads, or the encoder of an encoder-decoder; a causal model's states do too."""

    def __init__(self, model: str, *, device: torch.device) -> None:
        """Args:
        model: a folder or a name of the hub.
        device: where to compute.

        Raises:
            ModelError: it cannot be loaded.
        """
        self._tokenizer = load_tokenizer(model)
        self._model = _encoder(model).to(device).eval()
        self._device = device
        self._longest = text_length(self._tokenizer, self._model, _LONGEST)
        if self._tokenizer.pad_token_id is None:
            raise ModelError(
                f"the tokenizer of {model} has no token to pad with. Set pad_token in its configuration"
            )

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the means over the tokens of texts.

        Raises:
            DivergedError: one is no finite number.
        """
        rows = self._tokenizer([*texts], truncation=True, max_length=self._longest, verbose=False)[
            "input_ids"
        ]
        found: list[list[float]] = [[]] * len(rows)
        lengths = [len(row) for row in rows]
        for chosen in by_length(lengths, lambda together, _shortest, _longest: together <= _AT_ONCE):
            batch = batch_of([rows[number] for number in chosen], self._tokenizer.pad_token_id)
            means = self._means({name: value.to(self._device) for name, value in batch.items()})
            for number, mean in zip(chosen, means, strict=True):
                found[number] = mean
        return found

    def _means(self, batch: dict[str, torch.Tensor]) -> list[list[float]]:
        with torch.inference_mode():
            hidden = self._model(**batch).last_hidden_state.float()
        mask = batch["attention_mask"].unsqueeze(2)
        # Values at padding are arbitrary, and NaN times zero is NaN.
        means = hidden.masked_fill(mask == 0, 0.0).sum(dim=1) / mask.sum(dim=1)
        if not bool(torch.isfinite(means).all()):
            raise DivergedError("a vector has numbers that are none: the encoder's weights may be damaged")
        rows: list[list[float]] = means.cpu().tolist()
        return rows


def _encoder(model: str) -> PreTrainedModel:
    try:
        with quiet_libraries():
            config: Any = AutoConfig.from_pretrained(model)
            family: Any = (
                AutoModelForTextEncoding if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING else AutoModel
            )
            loaded: Any = family.from_pretrained(model, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError) as error:
        raise ModelError(
            f"{model} cannot be loaded as an encoder ({first_line(error)}). Name a folder with config.json, "
            "model.safetensors and a tokenizer, or a model of the hub that was fetched before"
        ) from error
    encoder: PreTrainedModel
    encoder, report = loaded
    # BERT's pooler is no part of the mean.
    missing = sorted(
        name for name in report["missing_keys"] if "pooler" not in name and "embed_tokens" not in name
    )
    if missing:
        raise ModelError(
            f"{model} lacks {len(missing)} of the encoder's weights ({missing[0]}, …), which would be random. Name a "
            "whole checkpoint"
        )
    if config.is_encoder_decoder and family is AutoModel:
        whole: Any = encoder
        encoder = whole.get_encoder()
    return encoder

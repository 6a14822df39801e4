"""Vectors for texts: what `/encode` asks of an encoder, and any encoder of transformers.

Of those the vector is the mean over the text's tokens, as LeanCopilot's own server has it; a retriever
(`pipeline.serve.retrievers`) gives unit vectors, as its index has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    PreTrainedModel,
)

from pipeline.progress.model import batch_of, text_length
from pipeline.retrieval.quiet import quiet_libraries
from pipeline.serve.asking import ask, batching, first_line
from pipeline.serve.measures import Measures
from pipeline.serve.order import Limits
from pipeline.serve.swapping import About
from pipeline.tactics.errors import DivergedError, ModelError
from pipeline.tactics.models import load_tokenizer
from pipeline.tactics.service import Batching

LONGEST = 2048
"""Tokens of the longest text for an encoder that would take any: what attention takes grows with the square."""
_AT_ONCE = 16


class Embeds(Protocol):
    """Makes vectors of texts."""

    def vectors(self, texts: Sequence[str]) -> list[list[float]]: ...


class EncodingModel:
    """An encoder for all clients."""

    def __init__(
        self, name: str, embeds: Embeds, *, about: About, limits: Limits, measures: Measures
    ) -> None:
        """Args:
        name: of its place.
        embeds: the encoder.
        about: what it is.
        limits: of its batches.
        measures: count them.
        """
        self.about = about
        self._name = name
        self._service: Batching[str, list[float]] = batching(
            name, embeds.vectors, limits=limits, measures=measures
        )

    async def start(self) -> None:
        await self._service.start()

    async def close(self) -> None:
        await self._service.close()

    async def encode(self, text: str) -> list[float]:
        """Return a text's vector.

        Raises:
            Problem: the encoder failed, or what it gives is no finite number.
        """
        return await ask(self._name, self._service, text)


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
        self._model = _encoder(model).to(device).eval()  # type: ignore[arg-type]
        self._device = device
        self._longest = text_length(self._tokenizer, self._model, LONGEST)
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
        # Texts of like length together, so that little of a batch is padding.
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        found: list[list[float]] = [[]] * len(rows)
        for start in range(0, len(order), _AT_ONCE):
            chosen = order[start : start + _AT_ONCE]
            batch = batch_of([rows[number] for number in chosen], self._tokenizer.pad_token_id)
            means = self._means({name: value.to(self._device) for name, value in batch.items()})
            for number, mean in zip(chosen, means, strict=True):
                found[number] = mean
        return found

    def _means(self, batch: dict[str, torch.Tensor]) -> list[list[float]]:
        with torch.inference_mode():
            hidden = self._model(**batch).last_hidden_state.float()
        mask = batch["attention_mask"].unsqueeze(2)
        # What stands at padding may be anything, and a number that is none would stay none times zero.
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

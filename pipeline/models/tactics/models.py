"""Load tactic models: a folder or hub name of a causal model, of an encoder-decoder, or of a LoRA adapter.

A trainer's tokenizer also has its `max_seq_len`, so that prompts are built as in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pipeline.models.adapters import base_of, model_for
from pipeline.models.errors import ModelError
from pipeline.models.libraries import load_tokenizer, load_weights, loading
from pipeline.models.tactics.prompt import Kind, Prompts

MAX_SEQ_LEN = 1024
_OF_TRAINING = "everlean_max_seq_len"
"""In a tokenizer's configuration."""


@dataclass(frozen=True, slots=True)
class UnloadedModel:
    """A model without its weights, ready for prompts. `base` is the model below an adapter, else its own `name`.

    A quarter of `max_seq_len` tokens are the answer's, the rest the prompt's.
    """

    name: str
    tokenizer: PreTrainedTokenizerBase
    prompts: Prompts
    max_seq_len: int
    config: Any
    base: str

    @property
    def is_adapter(self) -> bool:
        return self.base != self.name

    @property
    def answer_length(self) -> int:
        """The most tokens of an answer, its end mark included."""
        return self.max_seq_len // 4

    def count_weights(self) -> int:
        """Return the number of its weights, from its configuration alone.

        Raises:
            ModelError: the configuration is of no model with answers.
        """
        with loading(self.base, self.base), torch.device("meta"):
            result = _family(self.config).from_config(self.config)
        return sum(weight.numel() for weight in result.parameters())


@dataclass(frozen=True, slots=True)
class TacticModel(UnloadedModel):
    """A loaded model."""

    model: PreTrainedModel | PeftModel


def load_model(
    model: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    max_seq_len: int | None = None,
    trainable: bool = False,
) -> TacticModel:
    """Load a model with its tokenizer; an adapter's folder is loaded with its base.

    Args:
        model: a folder or hub name.
        device: for its weights.
        dtype: of the weights.
        max_seq_len: tokens of prompt and answer together; None: as in its training, else MAX_SEQ_LEN. Never more than
            the model has positions.
        trainable: whether to train an adapter's weights further.

    Raises:
        ModelError: it is missing, damaged, lacks weights or a tokenizer, or gives no answers; or it has an adapter
            for each repository.
    """
    model = model_for(model, None)
    read = read_model(model, max_seq_len=max_seq_len)
    with loading(str(model), model):
        whole, missing = load_weights(_family(read.config), read.base, dtype=dtype)
        if missing:
            raise ModelError(
                f"{read.base} lacks {len(missing)} of the model's weights ({missing[0]}, …): it is not a whole "
                "checkpoint"
            )
        if read.is_adapter:
            whole = PeftModel.from_pretrained(whole, str(model), is_trainable=trainable)
    whole.to(device)
    return TacticModel(
        read.name, read.tokenizer, read.prompts, read.max_seq_len, read.config, read.base, whole
    )


def read_model(model: str | Path, *, max_seq_len: int | None = None) -> UnloadedModel:
    """Read a model's tokenizer and prompts without loading its weights; arguments and errors as `load_model`'s."""
    tokenizer = load_tokenizer(model)
    with loading(str(model), model):
        base = base_of(model)
        config = AutoConfig.from_pretrained(base)
    most = max_seq_len or tokenizer.init_kwargs.get(_OF_TRAINING, MAX_SEQ_LEN)
    most = min(most, getattr(config.get_text_config(), "max_position_embeddings", None) or most)
    tokenizer.init_kwargs[_OF_TRAINING] = most
    kind: Kind = "seq2seq" if config.is_encoder_decoder else "causal"
    prompts = Prompts(tokenizer, kind, max_length=most - most // 4)
    return UnloadedModel(str(model), tokenizer, prompts, most, config, base)


def _family(config: Any) -> Any:
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM

"""Loading tactic models: a folder or hub name of a causal model, of an encoder-decoder, or of a LoRA adapter.

A folder that a trainer wrote also says how long its prompts may be (`PROMPT`), so that whoever asks the model builds
them as they were built in training.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from peft import PeftModel
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pipeline.retrieval.quiet import quiet_libraries
from pipeline.tactics.bases import base_of
from pipeline.tactics.errors import ModelError
from pipeline.tactics.prompt import Prompts
from pipeline.tactics.saving import settle

PROMPT = "prompt.json"
MAX_SEQ_LEN = 1024
Device = Literal["auto", "cpu", "cuda"]

_UNLOADABLE = (OSError, ValueError, RuntimeError, KeyError, ImportError, SafetensorError)
_TOKENIZER_FILES = ("tokenizer*", "spiece.model", "vocab.*", "*.tiktoken", "tekken.json")


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens a prompt and an answer may have."""

    prompt: int
    answer: int

    @classmethod
    def of(cls, max_seq_len: int) -> Lengths:
        """Return the parts of a whole: a quarter is the answer's."""
        return cls(max_seq_len - max_seq_len // 4, max_seq_len // 4)

    def save(self, folder: Path) -> None:
        (folder / PROMPT).write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Lengths | None:
        """Return what a folder says; None where it says nothing.

        Raises:
            ModelError: it cannot be read.
        """
        path = folder / PROMPT
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return cls(int(found["prompt"]), int(found["answer"]))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{path} cannot be read ({error}). Restore it, or remove it: prompts then have the usual length"
            ) from error


@dataclass(frozen=True, slots=True)
class Reading:
    """What it takes to ask a model, without its weights. `base` is what an adapter was put on, else its own name."""

    tokenizer: PreTrainedTokenizerBase
    prompts: Prompts
    lengths: Lengths
    config: Any
    base: str

    def is_adapter_of(self, model: str | Path) -> bool:
        """Say whether the model of this name is an adapter."""
        return self.base != str(model)


@dataclass(frozen=True, slots=True)
class TacticModel:
    """A loaded model with what it takes to ask it. `base` is what an adapter was put on, else the model's own name."""

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    prompts: Prompts
    lengths: Lengths
    base: str

    @property
    def is_adapter(self) -> bool:
        return isinstance(self.model, PeftModel)


def load_tokenizer(model: str | Path) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer; where it has no padding token, its end mark is that.

    Raises:
        ModelError: there is none, or it cannot be loaded.
    """
    path = Path(model)
    if path.is_dir() and not any(found for name in _TOKENIZER_FILES for found in path.glob(name)):
        raise ModelError(
            f"{model} has no tokenizer (no tokenizer.json or tokenizer_config.json). Copy the one of the model that it "
            "was trained from into it"
        )
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(model)
    except _UNLOADABLE as error:
        raise ModelError(f"the tokenizer of {model} cannot be loaded ({_first_line(error)})") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(
    model: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    max_seq_len: int | None = None,
    trainable: bool = False,
) -> TacticModel:
    """Load a model with its tokenizer; an adapter's folder is loaded with the model that it was put on.

    Args:
        model: a folder or hub name.
        device: where to.
        dtype: of the weights.
        max_seq_len: tokens of prompt and answer together; None: as it was trained, else MAX_SEQ_LEN. Never more than
            the model has positions.
        trainable: whether an adapter's weights are to be trained further.

    Raises:
        ModelError: it is missing, damaged, lacks weights or a tokenizer, or is no model that answers.
    """
    read = read_model(model, max_seq_len=max_seq_len)
    try:
        with quiet_libraries():
            loaded: Any = _family(read.config).from_pretrained(
                read.base, dtype=dtype, output_loading_info=True
            )
            whole, report = loaded
            if report["missing_keys"]:
                raise ModelError(
                    f"{read.base} lacks {len(report['missing_keys'])} of the model's weights "
                    f"({min(report['missing_keys'])}, …): it is not a whole checkpoint"
                )
            if read.is_adapter_of(model):
                whole = PeftModel.from_pretrained(whole, str(model), is_trainable=trainable)
    except _UNLOADABLE as error:
        raise _unloadable(model, error) from error
    whole.to(device)
    return TacticModel(whole, read.tokenizer, read.prompts, read.lengths, read.base)


def read_model(model: str | Path, *, max_seq_len: int | None = None) -> Reading:
    """Read what it takes to ask a model, without loading its weights; arguments and errors as `load_model`'s."""
    path = Path(model)
    if path.is_dir():
        settle(path)
    tokenizer = load_tokenizer(model)
    try:
        with quiet_libraries():
            base = base_of(model)
            config = AutoConfig.from_pretrained(base)
    except _UNLOADABLE as error:
        raise _unloadable(model, error) from error
    lengths = _lengths(path, config, max_seq_len)
    prompts = Prompts.for_model(
        tokenizer, encoder_decoder=bool(config.is_encoder_decoder), max_length=lengths.prompt
    )
    return Reading(tokenizer, prompts, lengths, config, base)


def _unloadable(model: str | Path, error: BaseException) -> ModelError:
    return ModelError(
        f"{model} cannot be loaded ({_first_line(error)}). Name a folder with config.json and model.safetensors, "
        "one with a LoRA adapter, or a model of the hub that was fetched before"
    )


def _family(config: Any) -> Any:
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def _lengths(path: Path, config: Any, max_seq_len: int | None) -> Lengths:
    trained = Lengths.read(path)
    if max_seq_len is None and trained is not None:
        return trained
    wanted = MAX_SEQ_LEN if max_seq_len is None else max_seq_len
    positions = getattr(config, "max_position_embeddings", None)
    return Lengths.of(wanted if positions is None else min(wanted, positions))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

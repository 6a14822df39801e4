"""Loads generative models for every caller.

A model is a folder (a checkpoint of the chain, a trainer's folder, a LoRA adapter) or a name of the hub. Each file of
our trainers' models is compared with the saved one. A model on a GPU runs in vLLM if that is installed
(`tactics.vllm_loop`), else in transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from pipeline.models.adapters import model_for
from pipeline.models.errors import ModelError
from pipeline.models.libraries import device_of, inference_dtype
from pipeline.models.model_files import read_about
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import load_model, read_model
from pipeline.models.tactics.vllm_loop import vllm_loop


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
    read_about(Path(model), verify=True)
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

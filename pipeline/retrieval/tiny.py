"""A tiny ByT5 encoder with random weights, made in a moment and without a network: for tests, the demo, benchmarks.

It has the shape of LeanDojo's retriever (bytes as tokens, gated GELU, an encoder alone) at a two-thousandth of its
size. It knows nothing of Lean before it is trained, and what it then knows is of the exercises it was shown.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

from pipeline.retrieval.quiet import quiet_libraries


def make_tiny_retriever(
    folder: Path, *, seed: int = 0, d_model: int = 64, layers: int = 2, dropout: float = 0.0
) -> Path:
    """Write a tiny retriever into `folder` (made if need be) and return it; the same arguments give the same weights.

    With the defaults: 107,000 parameters, 430 kB.
    """
    config = T5Config(
        vocab_size=384,
        d_model=d_model,
        d_kv=d_model // 4,
        d_ff=2 * d_model,
        num_layers=layers,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        is_encoder_decoder=False,
        use_cache=False,
        dropout_rate=dropout,
        pad_token_id=0,
        eos_token_id=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = T5EncoderModel(config)
    folder.mkdir(parents=True, exist_ok=True)
    with quiet_libraries():
        encoder.save_pretrained(folder)
        ByT5Tokenizer().save_pretrained(folder)
    return folder

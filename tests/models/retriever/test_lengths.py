"""Texts are embedded in groups of like length: what is computed is text, and what comes out is the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.retrieval import held_for_the_gradient, lengths_of_lean
from pipeline.models.batching import by_length, goes_together
from pipeline.models.retriever.encoder import Encoder, Texts, byte_ids, embed, load_encoder, pooled
from pipeline.models.retriever.index import embed_texts


def test_four_fifths_of_a_step_s_document_tokens_are_text_where_two_fifths_were() -> None:
    """Of 32 pairs with three negatives each, documents as long as Lean core's declarations, cut at 512 tokens."""
    text = padded = grouped = 0
    for step in range(50):
        lengths = np.minimum(lengths_of_lean(32 * 4, stream=step), 512)
        text += int(lengths.sum())
        padded += len(lengths) * int(lengths.max())
        groups = by_length(lengths.tolist(), goes_together)
        grouped += sum(len(rows) * int(lengths[rows].max()) for rows in groups)
    assert 0.40 < text / padded < 0.48
    assert text / grouped > 0.81


def test_few_tokens_are_one_group_however_different_their_lengths() -> None:
    assert list(by_length([5, 60, 12, 64], goes_together)) == [[0, 2, 1, 3]]


def test_a_group_has_no_more_tokens_than_one_pass_takes() -> None:
    groups = list(by_length([512] * 100, goes_together))
    assert [len(rows) for rows in groups] == [32, 32, 32, 4]
    assert max(len(rows) for rows in by_length([2048] * 20, goes_together)) == 2


def loss_and_gradients(encoder: Encoder, vectors: Tensor) -> tuple[Tensor, Tensor]:
    encoder.zero_grad()
    (vectors[:12] * vectors[12:]).sum(dim=1).square().sum().backward()  # type: ignore[no-untyped-call]
    gradients = [weight.grad.flatten() for weight in encoder.parameters() if weight.grad is not None]
    return vectors.detach(), torch.cat(gradients)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_vectors_and_gradients_are_the_same_in_groups_and_computed_again(model: Path, dropout: float) -> None:
    encoder = load_encoder(model).train()
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    lengths = np.minimum(lengths_of_lean(24, stream=1), 300)
    rng = np.random.default_rng(0)
    texts = Texts.of([rng.integers(3, 200, length).astype(np.int32) for length in lengths])
    assert len(list(by_length(lengths.tolist(), goes_together))) > 2

    def made(*, recompute: bool) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        return loss_and_gradients(encoder, embed(encoder, texts, recompute=recompute))

    vectors, gradients = made(recompute=False)
    again, same = made(recompute=True)
    assert torch.equal(vectors, again)
    assert torch.equal(gradients, same)
    if not dropout:
        whole, of_whole = loss_and_gradients(
            encoder, normalize(pooled(encoder, texts.ids, texts.mask), dim=1)
        )
        assert torch.allclose(vectors, whole, atol=1e-6)
        assert torch.allclose(gradients, of_whole, atol=1e-4)


def test_grouping_halves_what_is_held_for_the_gradient_and_computing_again_leaves_a_hundredth(
    model: Path,
) -> None:
    encoder = load_encoder(model)
    lengths = np.minimum(lengths_of_lean(32, stream=1), 400)
    texts = Texts.of([np.full(length, 40, dtype=np.int32) for length in lengths])
    padded = held_for_the_gradient(encoder, lambda: pooled(encoder, texts.ids, texts.mask))
    grouped = held_for_the_gradient(encoder, lambda: embed(encoder, texts))
    again = held_for_the_gradient(encoder, lambda: embed(encoder, texts, recompute=True))
    assert grouped < padded / 2
    assert again < grouped / 100


def test_vectors_of_bfloat16_and_float32_lie_within_some_thousandths_and_are_both_unit_vectors(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load_encoder(model)
    texts = [f"theorem t{number} : {'x' * number} = {number}" for number in range(40)]
    full = embed_texts(encoder, byte_ids, texts, 64)
    monkeypatch.setattr("pipeline.models.retriever.index.computes_in_bfloat16", lambda _device: True)
    half = embed_texts(encoder, byte_ids, texts, 64)
    assert half.dtype == torch.float32
    assert not torch.equal(full, half)
    assert float((full * half).sum(dim=1).min()) > 0.999
    assert torch.allclose(half.norm(dim=1), torch.ones(40), atol=1e-6)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from pipeline.models.retriever.encoder import load_encoder
from tests.support.tiny_models import (
    TINY_KINDS,
    TinyKind,
    make_tiny,
    make_tiny_causal,
    make_tiny_classifier,
    make_tiny_seq2seq,
)

LEAN = "ι : Type u_1\nh : ∀ ε > 0, ∃ δ, «a b» ≤ δ\n⊢ f ∘ g = 𝟙 α -- 🎉  two  spaces , .\t'"
LOADERS: dict[TinyKind, Callable[[Path], Any]] = {
    "encoder": load_encoder,
    "seq2seq": AutoModelForSeq2SeqLM.from_pretrained,
    "causal": AutoModelForCausalLM.from_pretrained,
    "classifier": AutoModelForSequenceClassification.from_pretrained,
}


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_a_tiny_model_of_each_kind_loads_and_has_every_weight(kind: TinyKind, tmp_path: Path) -> None:
    folder = make_tiny(kind, tmp_path / "new" / kind)
    loaded = LOADERS[kind](folder)
    assert sum(value.numel() for value in loaded.parameters()) < 300_000
    again = LOADERS[kind](folder).state_dict()
    assert all(bool((again[name] == value).all()) for name, value in loaded.state_dict().items())


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_the_seed_decides_the_weights_and_nothing_else_does(kind: TinyKind, tmp_path: Path) -> None:
    torch.manual_seed(1)
    one = make_tiny(kind, tmp_path / "one", seed=5)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.rand(1) == drawn, "making a model must not move the caller's random numbers"
    torch.manual_seed(2)
    two = make_tiny(kind, tmp_path / "two", seed=5)
    other = make_tiny(kind, tmp_path / "other", seed=6)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (one, two, other)]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_lean_text_comes_back_from_the_tokens_as_it_was(kind: TinyKind, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(make_tiny(kind, tmp_path))
    ids = tokenizer(LEAN)["input_ids"]
    assert len(ids) >= len(LEAN.encode()), "a token is a byte"
    assert tokenizer.decode(ids, skip_special_tokens=True) == LEAN


def test_words_of_given_texts_are_tokens_and_every_other_text_still_comes_back(tmp_path: Path) -> None:
    texts = ["theorem t (p q : Prop) (h1 : Amber p q) : Basil q p", "exact basil_of_amber_swap _ _ h1"]
    tokenizer = AutoTokenizer.from_pretrained(make_tiny_causal(tmp_path, texts=texts))
    ids = tokenizer("exact basil_of_amber_swap _ _ h1")["input_ids"]
    assert [tokenizer.decode(token) for token in ids] == ["exact", " basil_of_amber_swap", " _", " _", " h1"]
    assert tokenizer.decode(tokenizer(LEAN)["input_ids"], skip_special_tokens=True) == LEAN


def test_the_chat_template_is_chatml_and_may_be_left_out(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(make_tiny_causal(tmp_path / "with"))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "⊢ p"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n⊢ p<|im_end|>\n<|im_start|>assistant\n"
    )
    whole: Any = tokenizer.apply_chat_template([*messages, {"role": "assistant", "content": "simp"}])
    assert whole["input_ids"].count(tokenizer.eos_token_id) == 3, (
        "the end of a turn is one token, the one that ends generation"
    )
    bare = AutoTokenizer.from_pretrained(make_tiny_causal(tmp_path / "without", chat_template=False))
    assert bare.chat_template is None


def test_the_causal_model_generates_up_to_its_end_mark_and_pads_at_the_left(tmp_path: Path) -> None:
    folder = make_tiny_causal(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    assert tokenizer.padding_side == "left"
    assert len({tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id}) == 3
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    batch = tokenizer(["⊢ p", "a longer one"], padding=True, return_tensors="pt")
    assert model.generate(**batch, max_new_tokens=4, min_new_tokens=4).shape == (
        2,
        batch["input_ids"].shape[1] + 4,
    )


def test_the_seq2seq_model_generates_from_the_decoder_s_start(tmp_path: Path) -> None:
    folder = make_tiny_seq2seq(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder)
    made = model.generate(
        **tokenizer("⊢ p", return_tensors="pt"), num_beams=3, num_return_sequences=3, max_new_tokens=4
    )
    assert made.shape[0] == 3
    assert set(made[:, 0].tolist()) == {0}


def test_the_classifier_gives_one_number_a_text_and_padding_does_not_change_it(tmp_path: Path) -> None:
    folder = make_tiny_classifier(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert model.config.problem_type == "regression"
    with torch.no_grad():
        together = model(**tokenizer(["⊢ p", "⊢ p ∧ q ∧ r"], padding=True, return_tensors="pt")).logits
        alone = model(**tokenizer(["⊢ p"], return_tensors="pt")).logits
    assert together.shape == (2, 1)
    assert torch.allclose(together[:1], alone, atol=1e-6)
    assert abs(float(together[0] - together[1])) > 1e-2, "different texts, different numbers"

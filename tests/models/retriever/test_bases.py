"""Encoders other than ByT5: BERT's kin and decoders, pooled as their own files say, learned and saved like ByT5."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.errors import ModelError
from pipeline.models.libraries import tensors_digest
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import (
    load_encoder,
    load_tokens,
    pooling_of,
    query_ids,
    save_encoder,
)
from pipeline.models.retriever.index import embed_texts, load_retriever, stored_vectors
from pipeline.models.retriever.learning import learn, measure
from tests.support.tiny_models import make_tiny_causal, make_tiny_classifier, make_tiny_seq2seq

TEXTS = ["p : Prop\n⊢ p", "theorem t : True", "⊢ a + b = b + a ∧ c"]


def sentence_transformer(folder: Path, *modules: str, **pooling: Any) -> Path:
    """Write sentence-transformers' files beside a model's: its modules, and how it pools."""
    listed = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{name}",
            "type": f"sentence_transformers.models.{name}",
        }
        for number, name in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 64, **pooling}))
    return folder


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return make_tiny_classifier(tmp_path / "bert", layers=1, hidden=32, max_length=64)


def of_transformers(folder: Path, text: str, pooling: str) -> torch.Tensor:
    """Return a text's vector as transformers alone makes it, without padding."""
    model = AutoModel.from_pretrained(folder).eval()
    given = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**given).last_hidden_state[0]
    vector = {"mean": hidden.mean(dim=0), "cls": hidden[0], "last": hidden[-1]}[pooling]
    return torch.nn.functional.normalize(vector, dim=0)


@pytest.mark.parametrize(
    ("said", "pooling"),
    [
        (None, "mean"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_a_sentence_encoder_pools_as_its_own_files_say(
    bert: Path, said: dict[str, Any] | None, pooling: str
) -> None:
    if said is not None:
        sentence_transformer(bert, "Transformer", "Pooling", "Normalize", **said)
    found = embed_texts(load_encoder(bert), load_tokens(bert), TEXTS, 64)
    for text, vector in zip(TEXTS, found, strict=True):
        assert torch.allclose(vector, of_transformers(bert, text, pooling), atol=1e-5)


def test_embeddings_of_another_pooling_of_the_same_weights_are_others(bert: Path, tmp_path: Path) -> None:
    stored_vectors(load_retriever(bert, device="cpu"), TEXTS, tmp_path / "index")
    sentence_transformer(bert, "Transformer", "Pooling", pooling_mode_cls_token=True)
    retriever = load_retriever(bert, device="cpu")
    found = torch.from_numpy(stored_vectors(retriever, TEXTS, tmp_path / "index"))
    assert torch.allclose(found, retriever.embed(TEXTS), atol=1e-5)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_decoder_is_pooled_at_its_last_token_unless_its_files_say_otherwise_also_once_it_is_saved(
    tmp_path: Path, pooling: str
) -> None:
    folder = make_tiny_causal(tmp_path / "base", hidden=32, layers=1)
    if pooling == "mean":
        sentence_transformer(folder, "Transformer", "Pooling", pooling_mode_mean_tokens=True)
    save_encoder(load_encoder(folder), folder, tmp_path / "saved")
    for place in (folder, tmp_path / "saved"):
        found = embed_texts(load_encoder(place), load_tokens(place), TEXTS, 64)
        for text, vector in zip(TEXTS, found, strict=True):
            assert torch.allclose(vector, of_transformers(folder, text, pooling), atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", pytest.param("qwen", marks=pytest.mark.slow)])
def test_a_sentence_encoder_is_learned_from_saved_and_measured_like_any_other(
    kind: str, bert: Path, tmp_path: Path, tasks: list[TaskData], config: RetrieverConfig
) -> None:
    base = bert
    if kind == "bert":
        sentence_transformer(bert, "Transformer", "Pooling", pooling_mode_cls_token=True)
    else:
        base = make_tiny_causal(tmp_path / "qwen", hidden=32, layers=1)
    config = replace(config, model_name=str(base), lr=1e-3)
    chain = Chain(tmp_path / "chain")
    first = learn(tasks[0], chain, config, parent=None)
    second = learn(tasks[1], chain, config, parent=first.checkpoint, earlier=tasks[:1])
    made = load_encoder(chain.path(second.checkpoint))
    assert pooling_of(chain.path(second.checkpoint), made.config) == ("cls" if kind == "bert" else "last")
    assert tensors_digest(made.state_dict()) != tensors_digest(load_encoder(base).state_dict())
    found = measure(chain.path(second.checkpoint), tasks[1], config, indices=tmp_path / "indices")
    assert found.metrics["recall@10"] > measure(base, tasks[1], config).metrics["recall@10"]


def test_a_text_is_cut_to_the_positions_that_a_model_has(bert: Path) -> None:
    encoder, tokens = load_encoder(bert), load_tokens(bert)
    assert len(tokens("x" * 500, 512)) == 64
    assert embed_texts(encoder, tokens, ["x" * 500], 512).shape == (1, 32)


def test_a_query_longer_than_the_positions_that_a_model_has_keeps_its_goal(bert: Path) -> None:
    tokens = load_tokens(bert)
    goal = "⊢ a + b = b + a"
    state = "".join(f"h{number} : p{number}\n" for number in range(100)) + goal
    found = query_ids(tokens, state, 512).tolist()
    assert 48 < len(found) < 64
    kept = tokens(goal, 512).tolist()[1:]
    assert found[-len(kept) :] == kept


def test_its_tokenizer_can_be_sent_to_the_processes_of_a_loader(bert: Path) -> None:
    tokens = load_tokens(bert)
    assert pickle.loads(pickle.dumps(tokens))(TEXTS[0], 9).tolist() == tokens(TEXTS[0], 9).tolist()


@pytest.mark.parametrize(
    ("modules", "said", "why"),
    [
        (
            ("Transformer", "Pooling", "Dense"),
            {"pooling_mode": "mean"},
            "has a layer Dense above its encoder",
        ),
        (("Transformer", "Pooling"), {"pooling_mode": "max"}, "pools by max"),
        (("Transformer", "Pooling"), {}, "pools by nothing"),
        (
            ("Transformer", "Pooling"),
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "pools by pooling_mode_cls_token and pooling_mode_mean_tokens",
        ),
    ],
)
def test_what_the_retriever_would_leave_out_is_refused(
    bert: Path, modules: tuple[str, ...], said: dict[str, Any], why: str
) -> None:
    sentence_transformer(bert, *modules, **said)
    with pytest.raises(ModelError, match=why):
        load_encoder(bert)


def test_an_encoder_decoder_other_than_t5_is_refused(bert: Path) -> None:
    path = bert / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "bart"}))
    with pytest.raises(ModelError, match="is a bart model, an encoder-decoder"):
        load_encoder(bert)


def test_of_t5_s_encoder_decoders_the_encoder_is_taken(tmp_path: Path) -> None:
    folder = make_tiny_seq2seq(tmp_path, d_model=32, layers=1)
    assert embed_texts(load_encoder(folder), load_tokens(folder), TEXTS, 64).shape == (3, 32)

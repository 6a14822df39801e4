"""Checkpoints for other programs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, T5EncoderModel

from pipeline.models.chain import Chain, Step, TrainingResult
from pipeline.models.curve import Curve
from pipeline.models.datasets import TaskData
from pipeline.models.libraries import quiet_libraries
from pipeline.models.model_files import begun
from pipeline.models.retriever.encoder import load_encoder, load_tokens, train_adapter
from pipeline.models.retriever.index import embed_texts
from pipeline.models.sharing import Shared, SharingError, card, write_shared
from store.events.models import ModelKind
from store.view.rows import CheckpointRow, EvaluationRow
from tests.support.tiny_models import make_tiny_causal, make_tiny_retriever

ID = "0123456789abcdef"


def shared(
    root: Path,
    model: ModelKind,
    source: Path,
    *,
    base: str = "",
    write: Callable[[Path], object] | None = None,
    about: dict[str, Any] | None = None,
    repository: str | None = None,
) -> Shared:
    """Return a checkpoint with a model's files, or what `write` writes, and what the log says of it."""
    chain = Chain(root / model)
    step = Step(
        ID, None, base or str(source), str(source), TaskData("r", root), ("r",), "d", {"max_seq_len": 64}
    )

    def copied(folder: Path) -> None:
        for path in source.iterdir():
            shutil.copy(path, folder / path.name)
        Curve().write(folder)

    chain.make(
        step, lambda _: TrainingResult(write or copied, 3, "cpu", 1.5, {"torch": "2"}, about=about or {})
    )
    row = CheckpointRow(
        checkpoint=ID, model=model, parent=None, base=base or str(source), data_seq=1,
        config={"max_seq_len": 64, "data_max_seq_len": 96, "split": "random"}, seed=7, steps=3,
        weights=begun(chain.path(ID)), size_bytes=1, curve=None, versions={"torch": "2"}, device="cpu",
        seconds=1.5, job="train-1", saved_at="2026-01-01", promoted=True, promoted_at=None,
        reason="", refused_at=None, refused_reason="", removed_at=None, removed_reason="",
    )  # fmt: skip
    metrics = {
        "recall@10": 0.5, "recall@10_low": 0.4, "recall@10_high": 0.6, "bm25 recall@10": 0.25,
        "mepo recall@10": 0.125,
    }  # fmt: skip
    measured = [
        EvaluationRow(
            evaluation=split, model=model, checkpoint=ID, repository="example.org/a", split=split, dataset="d" * 64,
            metrics=metrics, n=9, seconds=1.0, job="train-1", recorded_at="2026-01-01",
        )
        for split in ("test", "val")
    ]  # fmt: skip
    return Shared(chain.folder, row, measured, ("example.org/a", "example.org/b"), repository)


@pytest.fixture
def retriever(tmp_path: Path) -> Shared:
    return shared(tmp_path, "retriever", make_tiny_retriever(tmp_path / "base"))


def test_a_retriever_is_a_folder_of_sentence_transformers(retriever: Shared, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_shared(retriever, out)
    assert retriever.format == "sentence-transformers"
    assert [one["path"] for one in json.loads((out / "modules.json").read_text())] == [
        "", "1_Pooling", "2_Normalize",
    ]  # fmt: skip
    pooling = json.loads((out / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] is True
    encoder = T5EncoderModel.from_pretrained(out)
    assert pooling["word_embedding_dimension"] == encoder.config.d_model
    assert json.loads((out / "sentence_bert_config.json").read_text())["max_seq_length"] == 96
    assert not (out / "checkpoint.json").exists()


def test_a_card_says_what_was_learned_measured_and_made_and_no_path_of_this_machine(
    tmp_path: Path, retriever: Shared
) -> None:
    row = retriever.row
    config = {**row.config, "added": str(tmp_path / "a"), "adapter": {"base": str(tmp_path / "b"), "r": 8}}
    write_shared(replace(retriever, row=replace(row, config=config)), tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "- example.org/a\n- example.org/b\n" in text
    assert "| example.org/a (test) | 9 | this model | 0.500 (0.400 to 0.600) |" in text
    assert "| example.org/a (test) | 9 | BM25 | 0.250 |" in text
    assert "| example.org/a (test) | 9 | MePo | 0.125 |" in text
    assert "(val)" not in text
    assert str(tmp_path) not in text
    assert "- added: a\n- adapter: {'base': 'b', 'r': 8}\n" in text
    assert "the split, which is by a hash of the statement, were not trained on" in text
    novel = replace(retriever.row, config={**retriever.row.config, "split": "novel_premises"})
    assert "of its test side uses a premise that no proof" in card(replace(retriever, row=novel))
    from huggingface_hub import ModelCard

    data = ModelCard.load(tmp_path / "out" / "README.md").data.to_dict()
    assert (data["library_name"], data["pipeline_tag"]) == ("sentence-transformers", "sentence-similarity")
    assert data["model-index"][0]["results"][0]["metrics"][0]["value"] == 0.5
    assert "\nfrom sentence_transformers import SentenceTransformer\n" in text


def test_a_tactic_model_s_adapter_is_written_alone_on_a_base_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model

    base = make_tiny_causal(tmp_path / "base")
    lora = LoraConfig(r=2, task_type="CAUSAL_LM", init_lora_weights=False)
    with quiet_libraries():
        adapted: Any = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    made = tmp_path / "adapter"
    adapted.save_pretrained(str(made))
    for path in base.iterdir():
        if path.name.startswith(("tokenizer", "special", "chat")):
            shutil.copy(path, made / path.name)
    of = shared(tmp_path, "tactics", made, base=str(base))
    out = tmp_path / "adapter-out"
    write_shared(of, out)
    assert of.format == "peft"
    assert not [path for path in out.iterdir() if str(tmp_path).encode() in path.read_bytes()]
    monkeypatch.chdir(tmp_path)  # with a folder of the base's name
    with quiet_libraries():
        loaded = AutoPeftModelForCausalLM.from_pretrained(out).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in adapted.state_dict().items())


def test_of_adapters_by_repository_one_is_written_by_name(tmp_path: Path) -> None:
    base, source = make_tiny_causal(tmp_path / "base"), tmp_path / "source"
    a, b = "example.org/a", "example.org/b"
    for name in ("of-a", "of-b"):
        (source / name).mkdir(parents=True)
        (source / name / "adapter_config.json").write_text("{}")
        (source / name / "adapter_model.safetensors").write_text(f"the weights {name}")

    def write(folder: Path) -> None:
        shutil.copytree(source, folder / "adapters")

    named = {"adapters": {a: "of-a", b: "of-b"}}
    of = shared(tmp_path, "tactics", base, write=write, about=named, repository=b)
    write_shared(of, tmp_path / "out")
    assert (tmp_path / "out" / "adapter_model.safetensors").read_text() == "the weights of-b"
    said = (tmp_path / "out" / "README.md").read_text()
    assert f"- {b}\n" in said
    assert a not in said, "neither what it learned nor what was measured on it"
    with pytest.raises(SharingError, match=f"name one with --repository, of {a}, {b}"):
        replace(of, repository=None)
    with pytest.raises(SharingError, match="has one model for all repositories: leave --repository out"):
        shared(tmp_path / "one", "tactics", base, repository=b)


def test_of_a_retriever_s_adapters_one_is_merged_into_its_base(tmp_path: Path) -> None:
    base, repository = make_tiny_retriever(tmp_path / "base"), "example.org/a"
    encoder, tokens = load_encoder(base), load_tokens(base)
    train_adapter(encoder, rank=2, seed=7)
    for name, weight in encoder.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)

    def write(folder: Path) -> None:
        encoder.save_pretrained(folder / "adapters" / "of-a")

    named = {"adapters": {repository: "of-a"}}
    of = shared(tmp_path, "retriever", base, write=write, about=named, repository=repository)
    write_shared(of, tmp_path / "out")
    plain, adapted, merged = (
        embed_texts(one, tokens, ["⊢ p"], 64)
        for one in (load_encoder(base), encoder, load_encoder(tmp_path / "out"))
    )
    assert (merged - adapted).abs().max() < 1e-5 < (merged - plain).abs().max()
    assert load_tokens(tmp_path / "out")("⊢ p", 64).tolist() == tokens("⊢ p", 64).tolist()


def test_nothing_is_overwritten(retriever: Shared, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(SharingError, match="is there already"):
        write_shared(retriever, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())

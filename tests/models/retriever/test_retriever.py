from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.models.errors import DivergedError, ModelError
from pipeline.models.retriever.batches import Example, asked_of
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import load_encoder, load_tokens
from pipeline.models.retriever.index import Retriever, top_k
from pipeline.models.retriever.training import schedule_of
from tests.support.retrieval import write_dataset
from tests.support.tiny_models import make_tiny_retriever


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_retriever(tmp_path_factory.mktemp("model"), d_model=32, layers=1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(write_dataset(tmp_path_factory.mktemp("data")) / "corpus.jsonl")


def one_bit_off(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1
    return bytes(changed)


def leandojo_s(folder: Path) -> dict[str, Any]:
    """What Lightning writes for LeanDojo's module: names below `encoder.`, and much beside them."""
    weights = load_encoder(folder).state_dict()
    return {
        "epoch": 0,
        "global_step": 12,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": {f"encoder.{name}": value + 0.5 for name, value in weights.items()},
        "hyper_parameters": {"model_name": str(folder), "lr": 1e-3, "num_retrieved": 100},
    }


@pytest.mark.parametrize("without", [None, "encoder.encoder.embed_tokens.weight"])
def test_a_checkpoint_file_of_leandojo_s_loads(tmp_path: Path, folder: Path, without: str | None) -> None:
    saved = leandojo_s(folder)
    saved["state_dict"].pop(without, None)
    torch.save(saved, tmp_path / "a.ckpt")
    encoder = load_encoder(tmp_path / "a.ckpt")
    for name, value in leandojo_s(folder)["state_dict"].items():
        assert torch.equal(encoder.state_dict()[name.removeprefix("encoder.")], value)


class Malicious:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.mark,)


def test_a_checkpoint_file_with_code_in_it_is_refused_and_the_code_not_run(
    tmp_path: Path, folder: Path
) -> None:
    torch.save({**leandojo_s(folder), "callbacks": Malicious(tmp_path / "ran")}, tmp_path / "bad.ckpt")
    (tmp_path / "plain.ckpt").write_bytes(pickle.dumps(Malicious(tmp_path / "ran"), protocol=2))
    for name in ("bad.ckpt", "plain.ckpt"):
        with pytest.raises(ModelError, match=f"{name} cannot be loaded"):
            load_encoder(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_a_checkpoint_file_that_is_missing_cut_off_or_of_another_shape_is_named(
    tmp_path: Path, folder: Path
) -> None:
    torch.save(leandojo_s(folder), tmp_path / "whole.ckpt")
    (tmp_path / "torn.ckpt").write_bytes((tmp_path / "whole.ckpt").read_bytes()[:900])
    (tmp_path / "damaged.ckpt").write_bytes(one_bit_off((tmp_path / "whole.ckpt").read_bytes()))
    torch.save({"state_dict": {}}, tmp_path / "empty.ckpt")
    torch.save([1], tmp_path / "list.ckpt")
    torch.save({"state_dict": None}, tmp_path / "none.ckpt")
    for name in ("missing", "torn", "damaged", "empty", "list", "none"):
        with pytest.raises(ModelError, match=rf"{name}\.ckpt cannot be loaded"):
            load_encoder(tmp_path / f"{name}.ckpt")
    wide = make_tiny_retriever(tmp_path / "wide", d_model=64, layers=1)
    torch.save({**leandojo_s(folder), "hyper_parameters": {"model_name": str(wide)}}, tmp_path / "wide.ckpt")
    with pytest.raises(ModelError, match=r"wide\.ckpt cannot be loaded"):
        load_encoder(tmp_path / "wide.ckpt")


def rates(total: int, **changes: Any) -> list[float]:
    config = RetrieverConfig(**{"lr": 1e-3, "warmup_steps": 10, **changes})
    optimizer = torch.optim.AdamW([torch.zeros(1)], lr=config.lr)
    schedule = schedule_of(optimizer, config, total)
    found = []
    for _ in range(total):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize("total", [1, 2, 9])
def test_every_step_of_a_tiny_task_changes_something(total: int) -> None:
    assert all(rate > 0 for rate in rates(total))


def test_a_warm_up_rises_and_a_cosine_falls_to_nothing() -> None:
    found = rates(100)
    assert found[:11] == pytest.approx([1e-4 * step for step in range(11)])
    assert found[10:] == sorted(found[10:], reverse=True)
    assert found[55] == pytest.approx(5e-4)
    assert rates(1000)[100:101] == pytest.approx([1e-3], rel=0.05)
    assert rates(100, schedule="constant")[10:] == [1e-3] * 90
    # A thousand steps of warm-up are a tenth of a run of a hundred.
    assert rates(100, warmup_steps=1000)[10] == pytest.approx(1e-3)


def test_rankings_do_not_depend_on_the_precision_of_training_and_leave_the_mode_as_it_was(
    folder: Path, corpus: Corpus
) -> None:
    encoder = load_encoder(folder).train()
    retriever = Retriever(encoder, load_tokens(folder), 64)
    example = Example("Demo/F5.lean", "t", (99, 1), "⊢ abcd", (), ())

    def ask() -> list[list[int]]:
        vectors = retriever.premises(corpus)
        return retriever.rank(vectors, asked_of([example], corpus), 10)

    plain = ask()
    with torch.autocast("cpu", torch.bfloat16):
        assert ask() == plain
    assert encoder.training


def test_scores_that_are_no_numbers_are_an_error_and_no_empty_ranking() -> None:
    documents = torch.ones(3, 2)
    documents[1, 0] = float("nan")
    with pytest.raises(DivergedError, match="scores are no numbers"):
        top_k(torch.ones(1, 2), documents, torch.ones(1, 3, dtype=torch.bool), 2)

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

from pipeline.models.errors import CheckpointError, CorpusError, DivergedError
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.index import top_k
from pipeline.models.retriever.retriever import PremiseRetriever
from pipeline.models.retriever.saving import WholeFiles, newest_step
from tests.support.retrieval import write_dataset
from tests.support.tiny_models import make_tiny_retriever


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_retriever(tmp_path_factory.mktemp("model"), d_model=32, layers=1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(write_dataset(tmp_path_factory.mktemp("data")) / "corpus.jsonl")


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    return {"model_name": str(folder), "lr": 1e-3, "warmup_steps": 10, "max_seq_len": 64, **changes}


def test_retrieving_gives_accessible_premises_only_the_best_first(folder: Path, corpus: Corpus) -> None:
    model = PremiseRetriever.load_hf(folder, 64, "cpu")
    model.load_corpus(corpus)
    places = [("Demo/F3.lean", (9, 1)), ("Demo/F0.lean", (1, 1)), ("Demo/F5.lean", (99, 1))]
    premises, scores = model.retrieve(
        ["⊢ abcd", "no turnstile", "2 goals\n⊢ x"],
        [path for path, _ in places],
        ["a", "b", "c"],
        [position for _, position in places],
        7,
    )
    assert premises[1] == []  # nothing comes before the first line of a file that imports none
    for (path, position), found, values in zip(places, premises, scores, strict=True):
        allowed = corpus.get_accessible_premises(path, position)
        assert all(premise in allowed for premise in found)
        assert len(found) == min(7, len(allowed)) == len(values)
        assert values == sorted(values, reverse=True)


def test_retrieving_follows_the_weights_and_leaves_the_mode_as_it_was(folder: Path, corpus: Corpus) -> None:
    model = PremiseRetriever(**arguments(folder))
    model.load_corpus(corpus)
    model.train()

    def ask() -> list[float]:
        return model.retrieve(["⊢ x"], ["Demo/F5.lean"], ["t"], [(99, 1)], 3)[1][0]

    before = ask()
    assert model.encoder.training
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    model.on_train_batch_end(None, None, 0)
    anew = ask()
    assert anew != before
    model.reindex_corpus()
    assert ask() == anew

    def broken(text: str, max_length: int) -> Any:
        raise RuntimeError("no ids")

    model.tokens = broken
    with pytest.raises(RuntimeError, match="no ids"):
        ask()
    assert model.encoder.training


def test_a_retriever_without_a_corpus_says_how_to_give_it_one(folder: Path) -> None:
    model = PremiseRetriever.load_hf(folder, 64, "cpu")
    with pytest.raises(CheckpointError, match="load_corpus"):
        model.retrieve(["⊢ x"], ["A.lean"], ["t"], [(1, 1)], 1)


def test_what_cannot_be_asked_is_named_and_asking_nothing_finds_nothing(folder: Path, corpus: Corpus) -> None:
    model = PremiseRetriever.load_hf(folder, 64, "cpu")
    model.load_corpus(corpus)
    assert model.retrieve([], [], [], [], 3) == ([], [])
    with pytest.raises(CorpusError, match=r"has no file Demo/New\.lean"):
        model.retrieve(["⊢ x"], ["Demo/New.lean"], ["t"], [(9, 1)], 3)
    with pytest.raises(ValueError, match="2 states, 1 files, 1 names and 1 positions"):
        model.retrieve(["⊢ x", "⊢ y"], ["Demo/F5.lean"], ["t"], [(9, 1)], 3)


def one_bit_off(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1
    return bytes(changed)


def leandojo_s(folder: Path) -> dict[str, Any]:
    """What Lightning writes for LeanDojo's module: names below `encoder.`, and much beside them."""
    weights = PremiseRetriever(**arguments(folder)).encoder.state_dict()
    return {
        "epoch": 0,
        "global_step": 12,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": {f"encoder.{name}": value + 0.5 for name, value in weights.items()},
        "hyper_parameters": {"lr": 1e-3, "num_retrieved": 100},
    }


@pytest.mark.parametrize("without", [None, "encoder.encoder.embed_tokens.weight"])
def test_a_checkpoint_file_of_leandojo_s_loads(tmp_path: Path, folder: Path, without: str | None) -> None:
    saved = leandojo_s(folder)
    saved["state_dict"].pop(without, None)
    torch.save(saved, tmp_path / "a.ckpt")
    model = PremiseRetriever.load(tmp_path / "a.ckpt", "cpu", True, arguments(folder))
    assert not any(weight.requires_grad for weight in model.parameters())
    for name, value in leandojo_s(folder)["state_dict"].items():
        assert torch.equal(model.state_dict()[name], value)


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
        with pytest.raises(CheckpointError, match=f"{name} is no checkpoint"):
            PremiseRetriever.load(tmp_path / name, "cpu", False, arguments(folder))
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
        with pytest.raises(CheckpointError, match=rf"{name}\.ckpt is no checkpoint"):
            PremiseRetriever.load(tmp_path / f"{name}.ckpt", "cpu", False, arguments(folder))
    wide = make_tiny_retriever(tmp_path / "wide", d_model=64, layers=1)
    with pytest.raises(CheckpointError, match=r"whole\.ckpt is no checkpoint"):
        PremiseRetriever.load(tmp_path / "whole.ckpt", "cpu", False, arguments(wide))


def rates(folder: Path, total: int, **changes: Any) -> list[float]:
    model = PremiseRetriever(**arguments(folder, total_steps=total, **changes))
    made = model.configure_optimizers()
    found = []
    for _ in range(total):
        found.append(made["optimizer"].param_groups[0]["lr"])
        made["optimizer"].step()
        made["lr_scheduler"]["scheduler"].step()
    return found


@pytest.mark.parametrize("total", [1, 2, 9])
def test_every_step_of_a_tiny_task_changes_something(folder: Path, total: int) -> None:
    assert all(rate > 0 for rate in rates(folder, total))


def test_a_warm_up_rises_and_a_cosine_falls_to_nothing(folder: Path) -> None:
    found = rates(folder, 100)
    assert found[:11] == pytest.approx([1e-4 * step for step in range(11)])
    assert found[10:] == sorted(found[10:], reverse=True)
    assert found[55] == pytest.approx(5e-4)
    assert rates(folder, 1000)[100:101] == pytest.approx([1e-3], rel=0.05)
    assert rates(folder, 100, config=RetrieverConfig(schedule="constant"))[10:] == [1e-3] * 90
    # A thousand steps of warm-up are a tenth of a run of a hundred.
    assert rates(folder, 100, warmup_steps=1000)[10] == pytest.approx(1e-3)


def test_rankings_do_not_depend_on_the_precision_of_training(folder: Path, corpus: Corpus) -> None:
    model = PremiseRetriever.load_hf(folder, 64, "cpu")

    def ask() -> tuple[Any, Any]:
        model.load_corpus(corpus)
        return model.retrieve(["⊢ abcd"], ["Demo/F5.lean"], ["t"], [(99, 1)], 10)

    plain = ask()
    with torch.autocast("cpu", torch.bfloat16):
        assert ask() == plain


def test_scores_that_are_no_numbers_are_an_error_and_no_empty_ranking() -> None:
    documents = torch.ones(3, 2)
    documents[1, 0] = float("nan")
    with pytest.raises(DivergedError, match="scores are no numbers"):
        top_k(torch.ones(1, 2), documents, torch.ones(1, 3, dtype=torch.bool), 2)


def test_a_step_s_file_that_cannot_be_read_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    assert newest_step(tmp_path / "none") is None
    files = WholeFiles()
    for step in (1, 5, 10):
        files.save_checkpoint({"state": torch.zeros(1000)}, tmp_path / f"step={step}.ckpt")
    files.teardown()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step=10.ckpt", "step=5.ckpt"]
    assert newest_step(tmp_path) == tmp_path / "step=10.ckpt"
    newest = tmp_path / "step=10.ckpt"
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-1000])
    assert newest_step(tmp_path) == tmp_path / "step=5.ckpt"
    newest.write_bytes(one_bit_off(whole))
    assert torch.load(newest)["state"].any(), "PyTorch does not notice"
    assert newest_step(tmp_path) == tmp_path / "step=5.ckpt"


def test_a_file_that_cannot_be_written_leaves_the_one_before_it(tmp_path: Path) -> None:
    path, files = tmp_path / "file", WholeFiles()
    files.save_checkpoint({"a": 1}, path)
    files.save_checkpoint({"a": lambda: 1}, path)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        files.teardown()
    assert torch.load(path) == {"a": 1}
    (tmp_path / "blocked").write_text("")
    files.save_checkpoint({"a": 2}, tmp_path / "blocked" / "file")
    with pytest.raises(CheckpointError, match="cannot be written"):
        files.save_checkpoint({"a": 3}, path)
    assert torch.load(path) == {"a": 1}


def test_what_is_written_is_what_was_saved_however_far_training_has_gone_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone_on, save = threading.Event(), torch.save

    def save_later(content: object, file: BinaryIO) -> None:
        assert gone_on.wait(60)
        save(content, file)

    monkeypatch.setattr(torch, "save", save_later)
    weights, curve = torch.zeros(3), [1.0]
    files, path = WholeFiles(), tmp_path / "step=1.ckpt"
    files.save_checkpoint({"weights": {"w": weights}, "curve": {"loss": curve}}, path)
    weights += 1
    curve.append(2.0)
    assert not path.exists(), "the step after it does not wait for the disk"
    gone_on.set()
    files.teardown()
    content = torch.load(path)
    assert content["weights"]["w"].tolist() == [0, 0, 0]
    assert content["curve"] == {"loss": [1.0]}

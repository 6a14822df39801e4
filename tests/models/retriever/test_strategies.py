from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.models.errors import CheckpointError
from pipeline.models.model_files import FISHER
from pipeline.models.retriever.batches import Batch, Batches, read_examples
from pipeline.models.retriever.config import FisherLabels, RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Encoder, byte_ids, load_encoder
from pipeline.models.retriever.ewc import FIRST_STEPS, Task, sample_groups
from pipeline.models.retriever.fisher import Fisher, RetrievalLosses, parameters_of, squared_gradients
from pipeline.models.retriever.losses import row_losses
from pipeline.models.retriever.replay import ReplayRows
from pipeline.models.retriever.strategies import Protection
from tests.support.retrieval import rows_of_texts, write_dataset
from tests.support.tiny_models import make_tiny_retriever


class Made:
    """A small dataset and a small model, made once."""

    def __init__(self, folder: Path, *, d_model: int = 16) -> None:
        self.model = make_tiny_retriever(folder / "model", d_model=d_model, layers=1)
        data = write_dataset(folder / "data", theorems=40)
        self.corpus = Corpus(data / "corpus.jsonl")
        self.examples = read_examples(data / "random" / "train.json", self.corpus)

    def encoder(self) -> Encoder:
        return load_encoder(self.model)

    def batches(self, size: int) -> Batches:
        return Batches(
            self.corpus,
            self.examples,
            byte_ids,
            batch_size=size,
            negatives=2,
            in_file_negatives=1,
            max_seq_len=64,
            seed=0,
            loss="contrastive",
        )

    def task(self, name: str = "A", base: str = "tiny") -> Task:
        return Task(
            name=name,
            data=f"digest of {name}",
            base=base,
            batches=self.batches,
            losses=row_losses("contrastive", temperature=0.1),
            tokens=byte_ids,
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("strategies"))


def config(**changes: object) -> RetrieverConfig:
    values: dict[str, object] = {
        "loss": "contrastive",
        "fisher_samples": 16,
        "batch_size": 2,
        "replay_size": 20,
    }
    return RetrieverConfig.from_dict({**values, **changes})


def nudge(encoder: Encoder, by: float = 0.01) -> None:
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(by)


def after_first_task(made: Made, folder: Path, setting: RetrieverConfig) -> tuple[Encoder, Fisher | None]:
    """What a chain has after a task that left the weights where they were."""
    encoder = made.encoder()
    strategy = Protection(setting, None)
    strategy.before_task(encoder, made.task("A"))
    kept = strategy.after_task(encoder, made.task("A"))
    if kept is not None:
        kept.save(folder / FISHER)
    return encoder, kept


def gradients(encoder: Encoder) -> dict[str, Tensor | None]:
    return {name: weight.grad for name, weight in encoder.named_parameters()}


@pytest.mark.parametrize("setting", ["none", "ewc", "average", "replay"])
def test_at_the_beginning_of_a_chain_no_strategy_changes_a_step(made: Made, setting: str) -> None:
    encoder = made.encoder()
    strategy = Protection(config(against_forgetting=setting), None)
    strategy.before_task(encoder, made.task())
    strategy.on_gradients(encoder)
    assert strategy.replayed(0) is None
    assert strategy.penalty(encoder) is None
    assert set(gradients(encoder).values()) == {None}


def test_ewc_keeps_a_fisher_of_the_weights_that_the_task_ended_with(made: Made, tmp_path: Path) -> None:
    encoder, kept = after_first_task(made, tmp_path, config(against_forgetting="ewc"))
    fisher = Fisher.load(tmp_path / "fisher.safetensors")
    fisher.check(parameters_of(encoder), base="tiny")
    assert fisher.mean == pytest.approx(1.0, abs=1e-5)
    assert [(task.name, task.data, task.examples, task.labels) for task in fisher.tasks] == [
        ("A", "digest of A", 16, "empirical")
    ]
    assert kept is not None
    assert kept.warnings == ()


def test_ewc_pulls_the_second_task_back_and_adds_its_own_fisher(made: Made, tmp_path: Path) -> None:
    setting = config(against_forgetting="ewc", lambda_value=0.5, fisher_decay=0.9)
    encoder, first = after_first_task(made, tmp_path, setting)
    assert first is not None
    values = first.values
    strategy = Protection(setting, tmp_path)
    strategy.before_task(encoder, made.task("B"))
    nudge(encoder)
    with_gradients_of(encoder, 1.0)
    strategy.on_gradients(encoder)
    before, pull = norm(encoder, lambda _: 1.0), norm(encoder, lambda name: 0.01 * values[name])
    strength = 0.5 * before / (2 * pull)
    for name, gradient in gradients(encoder).items():
        torch.testing.assert_close(gradient, 1.0 + 2 * strength * 0.01 * values[name], rtol=1e-4, atol=1e-7)
    penalty = strategy.penalty(encoder)
    assert penalty is not None
    weights = sum(value.numel() for value in parameters_of(encoder).values())
    assert float(penalty) == pytest.approx(strength * 0.01**2 * weights, rel=1e-3), "F has mean 1"
    second = strategy.after_task(encoder, made.task("B"))
    assert second is not None
    second.check(parameters_of(encoder), base="tiny")
    assert [(task.name, task.factor) for task in second.tasks] == [("A", 0.9), ("B", 1.0)]


def with_gradients_of(encoder: Encoder, value: float) -> None:
    for weight in encoder.parameters():
        weight.grad = torch.full_like(weight, value)


def norm(encoder: Encoder, of: Callable[[str], Tensor | float]) -> float:
    """The norm of a value for each weight."""
    squares = [
        (torch.zeros_like(weight) + of(name)).square().sum() for name, weight in encoder.named_parameters()
    ]
    return float(torch.stack(squares).sum().sqrt())


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("steep", [1e-3, 1.0, 1e3])
def test_the_penalty_s_gradient_is_the_stated_share_of_the_loss_s_at_every_size_and_steepness(
    tmp_path: Path, width: int, steep: float
) -> None:
    sized = Made(tmp_path, d_model=width)
    setting = config(against_forgetting="ewc", lambda_value=0.25)
    encoder, _ = after_first_task(sized, tmp_path, setting)
    strategy = Protection(setting, tmp_path)
    strategy.before_task(encoder, sized.task("B"))
    for _ in range(3):
        nudge(encoder)
        with_gradients_of(encoder, 0.0)
        next(encoder.parameters()).grad = torch.full_like(next(encoder.parameters()), steep)
        loss = {
            name: gradient.clone() for name, gradient in gradients(encoder).items() if gradient is not None
        }
        strategy.on_gradients(encoder)
        added = [value - loss[name] for name, value in gradients(encoder).items() if value is not None]
        share = torch.stack([value.norm() for value in added]).norm() / (
            torch.stack([value.norm() for value in loss.values()]).norm()
        )
        # The sums over the steps so far: the weights have moved on, and the loss's gradient is the same.
        assert 0.24 < float(share) < 0.4


def test_a_step_of_a_warm_up_counts_as_much_as_its_learning_rate(made: Made, tmp_path: Path) -> None:
    setting = config(against_forgetting="ewc")
    encoder, _ = after_first_task(made, tmp_path, setting)
    taken = {}
    for size in (1.0, 0.1):
        strategy = Protection(setting, tmp_path)
        strategy.before_task(encoder, made.task("B"))
        taken[size] = 0
        while not strategy.progress() or strategy.progress()[0] < FIRST_STEPS - 1e-6:
            with_gradients_of(encoder, 1.0)
            strategy.on_gradients(encoder, size)
            taken[size] += 1
    assert taken == {1.0: FIRST_STEPS, 0.1: 10 * FIRST_STEPS}


def test_a_resumed_run_has_the_strength_that_was_set_before(made: Made, tmp_path: Path) -> None:
    setting = config(against_forgetting="ewc+average")
    encoder, _ = after_first_task(made, tmp_path, setting)
    whole, cut = (Protection(setting, tmp_path) for _ in range(2))
    for strategy in (whole, cut):
        strategy.before_task(encoder, made.task("B"))
    nudge(encoder)
    with_gradients_of(encoder, 1.0)
    whole.on_gradients(encoder)
    cut.resume(whole.progress())
    penalties = [strategy.penalty(encoder) for strategy in (whole, cut)]
    assert penalties[0] is not None
    assert float(penalties[0]) > 0
    assert penalties[0] == penalties[1]


def test_ewc_refuses_to_begin_at_other_weights_or_on_another_base(made: Made, tmp_path: Path) -> None:
    setting = config(against_forgetting="ewc")
    encoder, _ = after_first_task(made, tmp_path, setting)
    with pytest.raises(CheckpointError, match="chain from tiny, not from byt5"):
        Protection(setting, tmp_path).before_task(encoder, made.task("B", base="byt5"))
    nudge(encoder)
    with pytest.raises(CheckpointError, match="trained on since"):
        Protection(setting, tmp_path).before_task(encoder, made.task("B"))


def test_training_without_a_penalty_keeps_a_fisher(made: Made, tmp_path: Path) -> None:
    setting = config(against_forgetting="ewc", lambda_value=0.0)
    encoder, _ = after_first_task(made, tmp_path, setting)
    strategy = Protection(setting, tmp_path)
    strategy.before_task(encoder, made.task("B"))
    assert strategy.penalty(encoder) is None
    kept = strategy.after_task(encoder, made.task("B"))
    assert kept is not None
    assert [task.name for task in kept.tasks] == ["A", "B"]
    nudge(encoder)
    with pytest.raises(CheckpointError, match="trained on since"):
        Protection(setting, tmp_path).before_task(encoder, made.task("B"))


@pytest.mark.parametrize(("negatives", "rows"), [(0, 8), (1, 4), (3, 2), (7, 1), (20, 1)])
def test_each_example_has_eight_candidates_whatever_the_batch_size(
    made: Made, negatives: int, rows: int
) -> None:
    asked: list[int] = []

    def batches(size: int) -> Batches:
        asked.append(size)
        return made.batches(size)

    for batch_size in (1, 4):
        setting = config(against_forgetting="ewc", num_negatives=negatives, num_in_file_negatives=0)
        strategy = Protection(replace(setting, batch_size=batch_size, fisher_samples=1), None)
        strategy.after_task(made.encoder(), replace(made.task(), batches=batches))
    assert asked == [rows, rows]


def test_the_average_lies_between_where_the_task_began_and_ended(made: Made) -> None:
    encoder, start = made.encoder(), parameters_of(made.encoder())
    strategy = Protection(config(against_forgetting="average", average_weight=0.25), None)
    strategy.before_task(encoder, made.task())
    nudge(encoder, 1.0)
    assert strategy.after_task(encoder, made.task()) is None
    for name, weight in parameters_of(encoder).items():
        torch.testing.assert_close(weight, start[name] + 0.25)


def rows_of(name: str) -> ReplayRows:
    return rows_of_texts({name: [(f"{name} {number}", f"document {number}") for number in range(50)]})


def replaying(made: Made, setting: RetrieverConfig) -> Protection:
    strategy = Protection(setting, None, rows_of("A"))
    strategy.before_task(made.encoder(), made.task("B"))
    return strategy


def test_replay_brings_back_the_first_task_while_the_second_is_learned(made: Made) -> None:
    setting = config(against_forgetting="replay", replay_share=0.5, batch_size=8, num_negatives=3)
    strategy = replaying(made, setting)
    again, same = strategy.replayed(7), strategy.replayed(7)
    assert again is not None
    assert same is not None
    assert (len(again), again.label.shape[1]) == (4, 16)
    assert torch.equal(again.context_ids, same.context_ids)
    assert strategy.after_task(made.encoder(), made.task("B")) is None, "the datasets are kept already"


def test_a_replayed_document_is_cut_where_those_of_training_and_index_are(made: Made) -> None:
    setting = config(against_forgetting="replay", max_seq_len=6, data_max_seq_len=64)
    again = replaying(made, setting).replayed(0)
    assert again is not None
    assert again.premise_ids.shape[1] == 6 == setting.document_length


def test_a_share_of_nothing_replays_nothing(made: Made) -> None:
    assert replaying(made, config(against_forgetting="replay", replay_share=0.0)).replayed(0) is None


def test_several_ways_do_what_each_does_and_the_fisher_is_of_the_averaged_weights(
    made: Made, tmp_path: Path
) -> None:
    setting = config(against_forgetting="ewc+replay+average", average_weight=0.25)
    encoder, _ = after_first_task(made, tmp_path, setting)
    start = {name: value.clone() for name, value in parameters_of(encoder).items()}
    strategy = Protection(setting, tmp_path, rows_of("A"))
    strategy.before_task(encoder, made.task("B"))
    assert strategy.replayed(0) is not None
    nudge(encoder, 1.0)
    with_gradients_of(encoder, 1.0)
    strategy.on_gradients(encoder)
    assert any(
        gradient is not None and bool((gradient > 1).any()) for gradient in gradients(encoder).values()
    )
    kept = strategy.after_task(encoder, made.task("B"))
    for name, weight in parameters_of(encoder).items():
        torch.testing.assert_close(weight, start[name] + 0.25)
    assert kept is not None
    kept.check(parameters_of(encoder), base="tiny")
    assert [task.name for task in kept.tasks] == ["A", "B"]


def test_a_setting_that_changes_along_the_chain_begins_with_nothing_kept(made: Made, tmp_path: Path) -> None:
    after_first_task(made, tmp_path, config(against_forgetting="replay"))
    encoder = made.encoder()
    strategy = Protection(config(against_forgetting="ewc"), tmp_path)
    strategy.before_task(encoder, made.task("B"))
    assert strategy.penalty(encoder) is None


def test_what_was_kept_and_is_damaged_stops_the_task(made: Made, tmp_path: Path) -> None:
    (tmp_path / "fisher.safetensors").write_bytes(b"{")
    with pytest.raises(CheckpointError, match=r"fisher\.safetensors"):
        Protection(config(against_forgetting="ewc"), tmp_path)


def test_processes_share_the_groups_of_a_sample_and_none_is_taken_twice(made: Made) -> None:
    batches = made.batches(4)
    whole = [batch.pairs for batch in sample_groups(batches, 15, rank=0, world=1)]
    assert len(whole) == 4
    assert len({pair for pairs in whole for pair in pairs}) == 16
    shares = [[batch.pairs for batch in sample_groups(batches, 15, rank=rank, world=3)] for rank in range(3)]
    assert sorted(pairs for share in shares for pairs in share) == sorted(whole)
    everything = list(sample_groups(batches, 10**6, rank=0, world=1))
    assert len(everything) == batches.steps_per_epoch


@pytest.mark.parametrize("labels", ["empirical", "sampled"])
def test_the_encoders_fisher_is_of_single_examples_however_processes_share_them(
    made: Made, labels: FisherLabels
) -> None:
    encoder, batches, task = made.encoder(), made.batches(4), made.task()
    losses = RetrievalLosses(task.losses, kind="contrastive", labels=labels, seed=0, temperature=0.1)
    shares = [
        squared_gradients(encoder, sample_groups(batches, 12, rank=rank, world=2), losses)
        for rank in range(2)
    ]
    expected = {name: torch.zeros_like(value) for name, value in parameters_of(encoder).items()}
    for step in range(3):
        for row in range(4):
            encoder.zero_grad()
            losses(encoder, batches.at(step))[row].backward()  # type: ignore[no-untyped-call]
            for name, gradient in gradients(encoder).items():
                assert gradient is not None
                expected[name] += gradient**2
    assert sum(share.examples for share in shares) == 12
    for name, value in expected.items():
        found = torch.stack([share.sums[name] for share in shares]).sum(dim=0)
        torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-7)


def labels_drawn(made: Made, kind: str, numbers: Iterator[int], *, ignored: int = 2) -> tuple[Tensor, Tensor]:
    """The scores of one query with three documents, one of them ignored, and the labels of many such rows."""
    encoder, few = made.encoder(), made.batches(1).at(0)
    pairs = tuple(numbers)
    many = Batch(
        few.context_ids.expand(len(pairs), -1),
        few.context_mask.expand(len(pairs), -1),
        few.premise_ids,
        few.premise_mask,
        label=torch.zeros(len(pairs), 3),
        ignore=(torch.arange(3) == ignored).expand(len(pairs), -1),
        premises=few.premises,
        pairs=pairs,
    )
    taken: list[tuple[Tensor, Tensor]] = []

    def take(scores: Tensor, label: Tensor, ignore: Tensor) -> Tensor:
        taken.append((scores.detach(), label))
        return scores.sum(dim=1)

    RetrievalLosses(take, kind=kind, labels="sampled", seed=5, temperature=0.05)(encoder, many)  # type: ignore[arg-type]
    return taken[0]


@pytest.mark.parametrize("ignored", [0, 1, 2])
def test_sampled_labels_of_a_softmax_follow_the_models_own_chances(made: Made, ignored: int) -> None:
    scores, label = labels_drawn(made, "contrastive", iter(range(1000)), ignored=ignored)
    assert set(label.sum(dim=1).tolist()) == {1.0}
    logits = scores[0].double() / 0.05
    logits[ignored] = -torch.inf
    # One standard deviation of a share is at most 0.016.
    np.testing.assert_allclose(label.mean(dim=0).numpy(), torch.softmax(logits, dim=0).numpy(), atol=0.065)


def test_sampled_labels_of_a_squared_error_lie_about_the_score_with_variance_one_half(made: Made) -> None:
    scores, label = labels_drawn(made, "mse", iter(range(2000)))
    difference = (label - scores).flatten()
    assert float(difference.mean()) == pytest.approx(0.0, abs=0.04)
    assert float(difference.var()) == pytest.approx(0.5, abs=0.05)


def test_a_sampled_label_depends_on_the_pair_and_not_on_its_place(made: Made) -> None:
    _, forth = labels_drawn(made, "mse", iter(range(40)))
    _, back = labels_drawn(made, "mse", iter(range(39, -1, -1)))
    assert torch.equal(forth, back.flip(0))
    assert not torch.equal(forth, back)

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.models.retriever.batches import Batch, Batches, Lesson, read_examples
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Encoder, byte_ids, load_encoder
from pipeline.models.retriever.ewc import (
    FIRST_STEPS,
    ElasticWeights,
    Part,
    estimated,
    example_losses,
    parameters_of,
    sample_groups,
    squared_gradients,
)
from pipeline.models.retriever.losses import row_losses
from pipeline.models.retriever.replay import batches_of, draw
from pipeline.models.retriever.training import average, remembered
from tests.support.retrieval import held, rows_of_texts, write_dataset
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

    def batches(self) -> Batches:
        settings = config(batch_size=1, num_negatives=2, max_seq_len=64, data_max_seq_len=64, seed=0)
        return Batches(self.corpus, self.examples, byte_ids, settings)


LOSSES = row_losses("contrastive", temperature=0.1)


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


def rows_of(name: str, count: int = 50) -> dict[str, Lesson]:
    return rows_of_texts({name: [(f"{name} {number}", f"document {number}") for number in range(count)]})


def begun(
    made: Made, encoder: Encoder, setting: RetrieverConfig, rows: Mapping[str, Lesson] | None = None
) -> ElasticWeights:
    """Begin a task with EWC on this encoder, beside rows of earlier tasks."""
    past = {} if rows is None else batches_of(rows, byte_ids, setting)
    return held(encoder, past, made.batches(), setting, LOSSES)


def nudge(encoder: Encoder, by: float = 0.01) -> None:
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(by)


def gradients(encoder: Encoder) -> dict[str, Tensor | None]:
    return {name: weight.grad for name, weight in encoder.named_parameters()}


@pytest.mark.parametrize(
    "rows", [None, rows_of("A")], ids=["the first task", "switched on in a running chain"]
)
def test_ewc_holds_the_weights_that_a_task_starts_from(made: Made, rows: Mapping[str, Lesson] | None) -> None:
    encoder = made.encoder()
    elastic = begun(made, encoder, config(against_forgetting="ewc", lambda_value=0.5), rows)
    nudge(encoder)
    with_gradients_of(encoder, 1.0)
    before = norm(encoder, lambda _: 1.0)
    elastic.on_gradients(encoder, measured=True)
    added = {name: value - 1.0 for name, value in gradients(encoder).items() if value is not None}
    found, weights = elastic.measured, sum(value.numel() for value in added.values())
    assert min(float(value.min()) for value in added.values()) > -1e-6
    assert norm(encoder, added.__getitem__) / before == pytest.approx(0.5, rel=1e-3)
    # F has mean 1.
    total = sum(float(value.double().sum()) for value in added.values())
    assert total == pytest.approx(2 * found["ewc/lambda"] * 0.01 * weights, rel=1e-2)
    assert found["ewc/penalty"] == pytest.approx(found["ewc/lambda"] * 0.01**2 * weights, rel=1e-2)
    assert found["ewc/share"] == pytest.approx(0.5, rel=1e-3)
    elastic.on_gradients(encoder)
    assert elastic.measured == {}, "of a step that was not asked for"


def test_what_was_learned_counts_alike_however_much_it_is_or_how_steep_its_loss(made: Made) -> None:
    encoder, setting = made.encoder(), config(fisher_samples=8)
    rows = {
        name: batches_of(rows_of(name, count), byte_ids, setting)[name]
        for name, count in (("A", 40), ("B", 5))
    }
    parts = [Part(name, batches) for name, batches in rows.items()]
    both, warnings = estimated(encoder, parts, setting, LOSSES)
    # A part alone has all of the sample, as here both have whole groups of it.
    alone = [estimated(encoder, [part], config(fisher_samples=4), LOSSES)[0] for part in parts]
    for name, value in both.items():
        torch.testing.assert_close(value, (alone[0][name] + alone[1][name]) / 2)
    assert warnings == ()
    drawn = [parts[0], Part("B", rows["B"], sampled=True)]
    nothing, warnings = estimated(encoder, drawn, setting, lambda scores, *_: 0.0 * scores.sum(dim=1))
    assert not any(bool(value.any()) for value in nothing.values())
    assert [warning.partition(" (")[0] for warning in warnings] == [
        f"the Fisher information of {name} is zero at every weight" for name in "AB"
    ]


def test_what_is_remembered_are_rows_whose_premise_comes_first_among_those_beside_it(made: Made) -> None:
    encoder, setting = (
        made.encoder(),
        config(against_forgetting="replay", num_negatives=0, num_in_file_negatives=0),
    )
    assert remembered(encoder, {}, setting) is None
    same = {"A": [(f"word {number}", f"word {number}") for number in range(20)]}
    assert remembered(encoder, batches_of(rows_of_texts(same), byte_ids, setting), setting) == 1.0
    shifted = {"B": [(text, same["A"][number - 1][1]) for number, (text, _) in enumerate(same["A"])]}
    both = batches_of(rows_of_texts({**same, **shifted}), byte_ids, setting)
    assert remembered(encoder, both, setting) == pytest.approx(0.5, abs=0.1), "each task alike"


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
    encoder = sized.encoder()
    elastic = begun(sized, encoder, config(against_forgetting="ewc", lambda_value=0.25))
    for _ in range(3):
        nudge(encoder)
        with_gradients_of(encoder, 0.0)
        next(encoder.parameters()).grad = torch.full_like(next(encoder.parameters()), steep)
        loss = {
            name: gradient.clone() for name, gradient in gradients(encoder).items() if gradient is not None
        }
        elastic.on_gradients(encoder)
        added = [value - loss[name] for name, value in gradients(encoder).items() if value is not None]
        share = torch.stack([value.norm() for value in added]).norm() / (
            torch.stack([value.norm() for value in loss.values()]).norm()
        )
        # The sums over the steps so far: the weights have moved on, and the loss's gradient is the same.
        assert 0.24 < float(share) < 0.4


def test_a_step_of_a_warm_up_counts_as_much_as_its_learning_rate(made: Made) -> None:
    encoder, taken = made.encoder(), {}
    for size in (1.0, 0.1):
        elastic = begun(made, encoder, config(against_forgetting="ewc"))
        taken[size] = 0
        while elastic.progress()[0] < FIRST_STEPS - 1e-6:
            with_gradients_of(encoder, 1.0)
            elastic.on_gradients(encoder, size)
            taken[size] += 1
    assert taken == {1.0: FIRST_STEPS, 0.1: 10 * FIRST_STEPS}


def test_a_resumed_run_has_the_strength_that_was_set_before(made: Made) -> None:
    encoder, setting = made.encoder(), config(against_forgetting="ewc+average")
    whole, cut = (begun(made, encoder, setting) for _ in range(2))
    nudge(encoder)
    with_gradients_of(encoder, 1.0)
    whole.on_gradients(encoder, 0.5)
    cut.resume(whole.progress())
    assert cut.progress() == whole.progress() != (0.0, 0.0, 0.0)
    strengths = []
    for elastic in (whole, cut):
        with_gradients_of(encoder, 1.0)
        elastic.on_gradients(encoder, measured=True)
        strengths.append(elastic.measured["ewc/lambda"])
    assert strengths[0] == strengths[1] > 0


def test_a_share_of_0_is_no_penalty(made: Made) -> None:
    encoder = made.encoder()
    elastic = begun(made, encoder, config(against_forgetting="ewc", lambda_value=0.0), rows_of("A"))
    nudge(encoder)
    with_gradients_of(encoder, 1.0)
    elastic.on_gradients(encoder, measured=True)
    assert elastic.measured == {}
    assert all(bool((value == 1.0).all()) for value in gradients(encoder).values() if value is not None)


@pytest.mark.parametrize(("negatives", "rows"), [(0, 8), (1, 4), (3, 2), (7, 1), (20, 1)])
def test_each_example_has_eight_candidates_whatever_the_batch_size(
    made: Made, negatives: int, rows: int
) -> None:
    for batch_size in (1, 4):
        setting = config(
            num_negatives=negatives, num_in_file_negatives=0, batch_size=batch_size, fisher_samples=1
        )
        assert [len(batch) for batch in sample_groups(made.batches(), setting)] == [rows]


@pytest.mark.parametrize(("share", "tolerance"), [(0.25, 1e-6), (0.0, 0.0), (1.0, 0.0)])
def test_the_average_lies_between_where_the_task_began_and_ended(
    made: Made, share: float, tolerance: float
) -> None:
    encoder, start = made.encoder(), parameters_of(made.encoder())
    nudge(encoder, 1.0)
    average(encoder, start, share)
    for name, weight in parameters_of(encoder).items():
        torch.testing.assert_close(weight, start[name] + share, rtol=tolerance, atol=tolerance)


def test_replay_brings_back_as_many_pairs_as_its_share_and_the_same_for_a_step() -> None:
    setting = config(against_forgetting="replay", replay_share=0.5, batch_size=8, num_negatives=3)
    rows = rows_of("A")
    again, same = (draw(batches_of(rows, byte_ids, setting), setting, 7) for _ in range(2))
    assert (len(again), again.label.shape[1]) == (4, 16)
    assert torch.equal(again.queries.ids, same.queries.ids)


def test_a_replayed_document_is_cut_where_those_of_training_and_index_are() -> None:
    setting, rows = config(against_forgetting="replay", max_seq_len=6, data_max_seq_len=64), rows_of("A")
    again = draw(batches_of(rows, byte_ids, setting), setting, 0)
    assert again.documents.ids.shape[1] == 6 == setting.document_length


def test_processes_share_the_groups_of_a_sample_and_none_is_taken_twice(made: Made) -> None:
    batches, setting = made.batches(), config(fisher_samples=15, num_negatives=1)
    whole = [batch.pairs for batch in sample_groups(batches, setting)]
    assert len(whole) == 4
    assert len({pair for pairs in whole for pair in pairs}) == 16
    shares = [
        [batch.pairs for batch in sample_groups(batches, setting, rank=rank, world=3)] for rank in range(3)
    ]
    assert sorted(pairs for share in shares for pairs in share) == sorted(whole)
    assert len(list(sample_groups(batches, setting, parts=5))) == 1, "the parts share the examples"
    everything = list(sample_groups(batches, config(fisher_samples=10**6, num_negatives=1)))
    assert len(everything) == len(batches.pairs) // 4


@pytest.mark.parametrize("sampled", [False, True])
def test_the_encoders_fisher_is_of_single_examples_however_processes_share_them(
    made: Made, sampled: bool
) -> None:
    encoder, batches = made.encoder(), made.batches()
    setting = config(fisher_samples=12, num_negatives=1)
    losses = partial(example_losses, losses=LOSSES, config=setting, sampled=sampled)
    shares = [
        squared_gradients(encoder, sample_groups(batches, setting, rank=rank, world=2), losses)
        for rank in range(2)
    ]
    expected = {name: torch.zeros_like(value) for name, value in parameters_of(encoder).items()}
    for batch in sample_groups(batches, setting):
        for row in range(4):
            encoder.zero_grad()
            losses(encoder, batch)[row].backward()  # type: ignore[no-untyped-call]
            for name, gradient in gradients(encoder).items():
                assert gradient is not None
                expected[name] += gradient**2
    assert sum(examples for _, examples in shares) == 12
    for name, value in expected.items():
        found = torch.stack([sums[name] for sums, _ in shares]).sum(dim=0)
        torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-7)


def labels_drawn(made: Made, kind: str, numbers: Iterator[int], *, ignored: int = 2) -> tuple[Tensor, Tensor]:
    """The scores of one query with three documents, one of them ignored, and the labels of many such rows."""
    encoder, few = made.encoder(), made.batches().at(0)
    pairs = tuple(numbers)
    many = Batch(
        replace(
            few.queries.each(lambda one: one.expand(len(pairs), -1)), lengths=few.queries.lengths * len(pairs)
        ),
        few.documents,
        label=torch.zeros(len(pairs), 3),
        ignore=(torch.arange(3) == ignored).expand(len(pairs), -1),
        premises=few.premises,
        pairs=pairs,
    )
    taken: list[tuple[Tensor, Tensor]] = []

    def take(scores: Tensor, label: Tensor, ignore: Tensor) -> Tensor:
        taken.append((scores.detach(), label))
        return scores.sum(dim=1)

    example_losses(encoder, many, take, config(loss=kind, temperature=0.05), sampled=True)
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

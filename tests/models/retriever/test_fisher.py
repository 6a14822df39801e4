from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pipeline.models.errors import CheckpointError, DatasetError, DivergedError
from pipeline.models.retriever.config import FisherLabels
from pipeline.models.retriever.fisher import (
    Fisher,
    FisherSums,
    accumulated,
    normalised,
    parameters_of,
    squared_gradients,
    task_fisher,
)

Rows = tuple[Tensor, Tensor]


def logistic(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(3, 1)


def data(n: int = 24) -> Rows:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(n, 3, generator=generator), torch.randint(0, 2, (n,), generator=generator).float()


def losses(model: nn.Module, rows: Rows) -> Tensor:
    inputs, targets = rows
    return nn.functional.binary_cross_entropy_with_logits(model(inputs).squeeze(1), targets, reduction="none")


def split(rows: Rows, size: int) -> list[Rows]:
    return [(rows[0][at : at + size], rows[1][at : at + size]) for at in range(0, len(rows[0]), size)]


def fisher(
    model: nn.Module,
    groups: Sequence[Rows],
    *,
    labels: FisherLabels = "empirical",
    name: str = "A",
) -> Fisher:
    part = squared_gradients(model, groups, losses)
    return task_fisher(part, model, name=name, data="d", base="base", labels=labels)


def test_squared_gradients_equal_the_closed_form_of_a_logistic_regression() -> None:
    model, (inputs, targets) = logistic(), data()
    part = squared_gradients(model, split((inputs, targets), 5), losses)
    with torch.no_grad():
        # The gradient of one example's loss is (sigmoid(w x + b) - y) times (x, 1).
        residual = torch.sigmoid(model(inputs).squeeze(1)) - targets
    assert part.examples == 24
    torch.testing.assert_close(part.sums["weight"], ((residual[:, None] * inputs) ** 2).sum(0, keepdim=True))
    torch.testing.assert_close(part.sums["bias"], (residual**2).sum().reshape(1))


@pytest.mark.parametrize("size", [1, 5, 24])
def test_the_estimate_does_not_depend_on_the_batch_size(size: int) -> None:
    model, rows = logistic(), data()
    ours, reference = fisher(model, split(rows, size)), fisher(model, split(rows, 8))
    for name, value in reference.values.items():
        torch.testing.assert_close(ours.values[name], value)


@pytest.mark.parametrize("world", [2, 3, 7])
def test_the_estimate_does_not_depend_on_how_many_processes_share_the_sample(world: int) -> None:
    model, groups = logistic(), split(data(), 4)
    # Seven processes share six groups: the last one has none.
    shares = [squared_gradients(model, groups[rank::world], losses) for rank in range(world)]
    whole = squared_gradients(model, groups, losses)
    assert sum(share.examples for share in shares) == whole.examples == 24
    for name, value in whole.sums.items():
        torch.testing.assert_close(torch.stack([share.sums[name] for share in shares]).sum(dim=0), value)


def test_estimating_leaves_gradients_mode_and_random_numbers_alone_and_switches_dropout_off() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)).train()
    state = torch.get_rng_state()
    with torch.no_grad():  # As in a hook that runs after training.
        one, other = fisher(model, split(data(), 4)), fisher(model, split(data(), 4))
    assert all(torch.equal(one.values[name], other.values[name]) for name in one.values)
    assert model.training
    assert all(value.grad is None for value in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_that_are_frozen_or_unused_have_no_say() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 1), "unused": nn.Linear(3, 1), "frozen": nn.Linear(3, 1)})
    model["frozen"].requires_grad_(False)
    part = squared_gradients(model, split(data(), 4), lambda whole, rows: losses(whole["used"], rows))
    assert part.sums.keys() == {"used.weight", "used.bias", "unused.weight", "unused.bias"}
    assert part.sums["used.weight"].min() > 0
    assert part.sums["unused.weight"].max() == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_an_error_that_names_the_weight_and_never_a_fisher(
    bad: float,
) -> None:
    model = logistic()

    def broken(model: nn.Module, rows: Rows) -> Tensor:
        each = losses(model, rows)
        return each + _Broken.apply(each, bad)  # type: ignore[no-any-return, no-untyped-call]

    with pytest.raises(DivergedError, match=r"the gradient of weight is not a finite number in group 0"):
        squared_gradients(model, split(data(), 4), broken)
    with pytest.raises(DivergedError, match=r"the loss is not a finite number"):
        squared_gradients(model, split(data(), 4), lambda model, rows: losses(model, rows) * bad)
    assert model.training


class _Broken(torch.autograd.Function):
    """Zero, with a gradient that is not finite."""

    @staticmethod
    def forward(ctx: object, each: Tensor, bad: float) -> Tensor:
        ctx.bad = bad  # type: ignore[attr-defined]
        return torch.zeros_like(each)

    @staticmethod
    def backward(ctx: object, *grad: Tensor) -> tuple[Tensor, None]:
        return grad[0] * ctx.bad, None  # type: ignore[attr-defined]


def test_an_empty_sample_is_an_error_that_names_the_task() -> None:
    with pytest.raises(DatasetError, match="no example of A"):
        fisher(logistic(), [])


def test_the_normalised_scale_has_mean_1_whatever_the_size_of_the_gradients() -> None:
    model, groups = logistic(), split(data(), 4)
    tiny = squared_gradients(model, groups, lambda model, rows: losses(model, rows) * 1e-15)
    one = fisher(model, groups)
    other = task_fisher(tiny, model, name="A", data="d", base="base", labels="empirical")
    assert one.mean == pytest.approx(1.0, abs=1e-6)
    assert other.mean == pytest.approx(1.0, abs=1e-6)
    assert other.tasks[0].mean == pytest.approx(one.tasks[0].mean * 1e-30, rel=1e-4), "what it was is kept"


def test_a_fisher_of_zeros_stays_zero_and_says_so() -> None:
    model = logistic()
    nothing = FisherSums({name: torch.zeros_like(value) for name, value in parameters_of(model).items()}, 8)
    found = task_fisher(nothing, model, name="A", data="d", base="b", labels="empirical")
    assert found.mean == 0.0
    assert [warning.split(":")[0] for warning in found.warnings] == [
        "the Fisher information of A is zero at every weight (empirical labels, 8 examples)"
    ]
    assert fisher(model, split(data(), 4)).warnings == ()


def test_an_older_task_counts_decay_to_the_power_of_its_age_and_the_newest_has_mean_1() -> None:
    model, groups = logistic(), split(data(), 4)
    whole: Fisher | None = None
    singles = []
    for number in range(4):
        with torch.no_grad():
            model.get_parameter("weight").add_(0.3)
        new = fisher(model, groups, name=f"task {number}")
        singles.append(new)
        whole = accumulated(whole, new, decay=0.5)
        assert whole.weights == new.weights, "the anchor is where the last task ended"
    assert whole is not None
    assert [task.factor for task in whole.tasks] == [0.125, 0.25, 0.5, 1.0]
    assert whole.mean == pytest.approx(1.875, abs=1e-5)
    for name, value in whole.values.items():
        expected = sum(
            (single.values[name] * 0.5 ** (3 - age) for age, single in enumerate(singles)), torch.zeros(())
        )
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize(("decay", "mean"), [(0.0, 1.0), (1.0, 2.0)])
def test_no_decay_adds_tasks_up_and_a_decay_of_0_keeps_the_last_alone(decay: float, mean: float) -> None:
    one = fisher(logistic(0), split(data(), 4))
    other = fisher(logistic(1), split(data(), 4))
    assert accumulated(one, other, decay=decay).mean == pytest.approx(mean, abs=1e-5)
    assert accumulated(None, other, decay=decay) is other


def test_a_round_trip_through_safetensors_changes_no_bit(tmp_path: Path) -> None:
    one = accumulated(
        fisher(logistic(0), split(data(), 4), name="mathlib ∀"),
        fisher(logistic(1), split(data(), 4), labels="sampled"),
        decay=1 / 3,
    )
    one.save(tmp_path / "fisher.safetensors")
    read = Fisher.load(tmp_path / "fisher.safetensors")
    assert all(torch.equal(read.values[name], value) for name, value in one.values.items())
    assert replace(read, values={}) == replace(one, values={})
    assert load_file(tmp_path / "fisher.safetensors").keys() == {"fisher.weight", "fisher.bias"}


def test_a_model_is_refused_with_what_differs() -> None:
    model = logistic()
    found = fisher(model, split(data(), 4))
    own = parameters_of(model)
    found.check(own, base="base")
    for parameters, base, complaint in (
        (own, "byt5", r"chain from base, not from byt5"),
        (
            parameters_of(logistic(1)),
            "base",
            rf"at the weights {found.weights[:12]}…, and the model's are \w{{12}}…",
        ),
    ):
        with pytest.raises(CheckpointError, match=complaint):
            found.check(parameters, base=base)


def test_one_bit_of_training_since_is_noticed() -> None:
    model = logistic()
    found = fisher(model, split(data(), 4))
    with torch.no_grad():
        weight = model.get_parameter("weight")
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(math.inf))
    with pytest.raises(CheckpointError, match="another checkpoint of base"):
        found.check(parameters_of(model), base="base")


def test_files_that_are_no_fisher_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "fisher.safetensors"
    with pytest.raises(CheckpointError, match=re.escape(str(path))):
        Fisher.load(path)
    fisher(logistic(), split(data(), 4)).save(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="cannot be read as a Fisher information"):
        Fisher.load(path)
    save_file({"weight": torch.ones(1)}, path)
    with pytest.raises(CheckpointError, match="its format is not named"):
        Fisher.load(path)
    good = {"format": "everlean-fisher-1", "weights": "w", "base": "b", "tasks": "[]"}
    for tensors, metadata, complaint in (
        ({"fisher.w": torch.tensor([1.0, math.nan])}, good, "w is no Fisher information"),
        ({"fisher.w": torch.tensor([1.0, -1.0])}, good, "w is no Fisher information"),
        ({"fisher.w": torch.ones(2).half()}, good, "w is no Fisher information"),
        ({"fisher.w": torch.ones(2)}, {**good, "tasks": json.dumps([{"name": "A"}])}, "missing"),
        ({"fisher.w": torch.ones(2)}, {key: good[key] for key in good if key != "base"}, "base"),
    ):
        save_file(tensors, path, metadata=metadata)
        with pytest.raises(CheckpointError, match=complaint):
            Fisher.load(path)


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be written"):
        fisher(logistic(), split(data(), 4)).save(tmp_path / "nowhere" / "fisher.safetensors")


def test_a_tied_weight_is_counted_once() -> None:
    model = nn.ModuleDict({"one": nn.Linear(3, 1), "other": nn.Linear(3, 1)})
    model["other"].weight = model["one"].weight
    assert parameters_of(model).keys() == {"one.weight", "one.bias", "other.bias"}


def test_normalising_divides_by_the_mean_over_all_weights_not_tensor_by_tensor() -> None:
    values, mean = normalised({"large": torch.full((3,), 2.0), "small": torch.full((1,), 6.0)})
    assert mean == 3.0
    assert values["large"].tolist() == pytest.approx([2 / 3] * 3)
    assert values["small"].tolist() == [2.0]

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from pipeline.models.errors import DivergedError
from pipeline.models.retriever.ewc import (
    normalised,
    parameters_of,
    squared_gradients,
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


def fisher(model: nn.Module, groups: Sequence[Rows]) -> dict[str, Tensor]:
    return normalised(squared_gradients(model, groups, losses)[0])[0]


def test_squared_gradients_equal_the_closed_form_of_a_logistic_regression() -> None:
    model, (inputs, targets) = logistic(), data()
    sums, examples = squared_gradients(model, split((inputs, targets), 5), losses)
    with torch.no_grad():
        # The gradient of one example's loss is (sigmoid(w x + b) - y) times (x, 1).
        residual = torch.sigmoid(model(inputs).squeeze(1)) - targets
    assert examples == 24
    torch.testing.assert_close(sums["weight"], ((residual[:, None] * inputs) ** 2).sum(0, keepdim=True))
    torch.testing.assert_close(sums["bias"], (residual**2).sum().reshape(1))


@pytest.mark.parametrize("size", [1, 5, 24])
def test_the_estimate_does_not_depend_on_the_batch_size(size: int) -> None:
    model, rows = logistic(), data()
    ours, reference = fisher(model, split(rows, size)), fisher(model, split(rows, 8))
    for name, value in reference.items():
        torch.testing.assert_close(ours[name], value)


@pytest.mark.parametrize("world", [2, 3, 7])
def test_the_estimate_does_not_depend_on_how_many_processes_share_the_sample(world: int) -> None:
    model, groups = logistic(), split(data(), 4)
    # Seven processes share six groups: the last one has none.
    shares = [squared_gradients(model, groups[rank::world], losses) for rank in range(world)]
    whole, examples = squared_gradients(model, groups, losses)
    assert sum(of for _, of in shares) == examples == 24
    for name, value in whole.items():
        torch.testing.assert_close(torch.stack([sums[name] for sums, _ in shares]).sum(dim=0), value)


def test_estimating_leaves_gradients_mode_and_random_numbers_alone_and_switches_dropout_off() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)).train()
    state = torch.get_rng_state()
    with torch.no_grad():  # As in a hook that runs after training.
        one, other = fisher(model, split(data(), 4)), fisher(model, split(data(), 4))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert model.training
    assert all(value.grad is None for value in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_that_are_frozen_or_unused_have_no_say() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 1), "unused": nn.Linear(3, 1), "frozen": nn.Linear(3, 1)})
    model["frozen"].requires_grad_(False)
    sums, _ = squared_gradients(model, split(data(), 4), lambda whole, rows: losses(whole["used"], rows))
    assert sums.keys() == {"used.weight", "used.bias", "unused.weight", "unused.bias"}
    assert sums["used.weight"].min() > 0
    assert sums["unused.weight"].max() == 0


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


def test_a_tied_weight_is_counted_once() -> None:
    model = nn.ModuleDict({"one": nn.Linear(3, 1), "other": nn.Linear(3, 1)})
    model["other"].weight = model["one"].weight
    assert parameters_of(model).keys() == {"one.weight", "one.bias", "other.bias"}


def test_normalising_divides_by_the_mean_over_all_weights_not_tensor_by_tensor() -> None:
    values, mean = normalised({"large": torch.full((3,), 2.0), "small": torch.full((1,), 6.0)})
    assert mean == 3.0
    assert values["large"].tolist() == pytest.approx([2 / 3] * 3)
    assert values["small"].tolist() == [2.0]


def test_the_normalised_scale_has_mean_1_whatever_the_size_of_the_gradients() -> None:
    model, groups = logistic(), split(data(), 4)
    tiny, _ = squared_gradients(model, groups, lambda model, rows: losses(model, rows) * 1e-15)
    whole, _ = squared_gradients(model, groups, losses)
    (one, large), (other, small) = normalised(whole), normalised(tiny)
    for values in (one, other):
        assert sum(float(value.sum()) for value in values.values()) == pytest.approx(4.0, abs=1e-5)
    assert small == pytest.approx(large * 1e-30, rel=1e-4), "what it was is returned"


def test_zeros_stay_zeros() -> None:
    nothing = {"w": torch.zeros(3)}
    assert normalised(nothing) == (nothing, 0.0)

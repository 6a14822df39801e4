from __future__ import annotations

import math

import pytest
import torch

from pipeline.models.retriever.config import Loss
from pipeline.models.retriever.losses import contrastive, row_losses, squared_error

NONE = torch.zeros(1, 3, dtype=torch.bool)


def test_the_squared_error_of_a_row_is_the_mean_over_its_columns() -> None:
    scores = torch.tensor([[0.5, 0.25, -0.5], [1.0, 0.0, 0.0]])
    label = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    found = squared_error(scores, label, torch.zeros(2, 3, dtype=torch.bool))
    assert found.tolist() == pytest.approx([(0.25 + 0.0625 + 0.25) / 3, 0.0])
    # LeanDojo's loss is the mean over the whole matrix, which is that of the rows' means.
    assert float(found.mean()) == pytest.approx(float(torch.nn.functional.mse_loss(scores, label)))


def test_columns_to_ignore_do_not_count_in_the_mean() -> None:
    scores = torch.tensor([[0.5, 0.25, 9.0]])
    ignore = torch.tensor([[False, False, True]])
    assert float(squared_error(scores, torch.zeros(1, 3), ignore)) == pytest.approx((0.25 + 0.0625) / 2)


def test_the_contrastive_loss_of_one_positive_is_its_negative_log_share() -> None:
    scores = torch.tensor([[0.6, 0.2, -0.4]])
    shares = [math.exp(value / 0.5) for value in (0.6, 0.2, -0.4)]
    found = contrastive(scores, torch.tensor([[1.0, 0.0, 0.0]]), NONE, temperature=0.5)
    assert float(found) == pytest.approx(-math.log(shares[0] / sum(shares)))


def test_several_positives_are_compared_with_the_negatives_and_not_with_each_other() -> None:
    scores = torch.tensor([[0.6, 0.2, -0.4]])
    e = [math.exp(value / 0.1) for value in (0.6, 0.2, -0.4)]
    found = contrastive(scores, torch.tensor([[1.0, 1.0, 0.0]]), NONE, temperature=0.1)
    assert float(found) == pytest.approx(
        (math.log((e[0] + e[2]) / e[0]) + math.log((e[1] + e[2]) / e[1])) / 2, rel=1e-4
    )


def test_a_column_to_ignore_changes_neither_loss_nor_gradient() -> None:
    label, ignore = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[False, False, True]])
    found = []
    for last in (-1.0, 1.0):
        scores = torch.tensor([[0.3, 0.1, last]], requires_grad=True)
        loss = contrastive(scores, label, ignore, temperature=0.05).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        assert scores.grad is not None
        found.append((float(loss.detach()), scores.grad.tolist()))
        assert scores.grad[0, 2] == 0
    assert found[0] == found[1]


@pytest.mark.parametrize("loss", ["mse", "contrastive"])
def test_gradients_are_those_of_finite_differences(loss: Loss) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(3, 6, generator=generator).mul(2).sub(1).requires_grad_()
    label = (torch.rand(3, 6, generator=generator) < 0.4).float()
    ignore = torch.rand(3, 6, generator=generator) < 0.2
    function = row_losses(loss, temperature=0.5)
    function(scores, label, ignore).sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    with torch.no_grad():
        for place in range(scores.numel()):
            step = torch.zeros_like(scores).view(-1)
            step[place] = 1e-2
            step = step.view_as(scores)
            up, down = (float(function(scores + sign * step, label, ignore).sum()) for sign in (1, -1))
            assert float(scores.grad.view(-1)[place]) == pytest.approx((up - down) / 2e-2, abs=2e-3)


@pytest.mark.parametrize("loss", ["mse", "contrastive"])
@pytest.mark.parametrize(
    ("label", "ignore"),
    [
        ([0.0, 0.0, 0.0], [False, False, False]),
        ([1.0, 1.0, 1.0], [False, False, False]),
        ([1.0, 0.0, 0.0], [False, True, True]),
        ([0.0, 0.0, 0.0], [True, True, True]),
    ],
    ids=["no positive", "no negative", "negatives ignored", "all ignored"],
)
def test_a_row_that_lacks_one_side_has_a_finite_loss_and_gradient(
    loss: Loss, label: list[float], ignore: list[bool]
) -> None:
    scores = torch.tensor([[1.0, -1.0, 0.5]], requires_grad=True)
    found = row_losses(loss, temperature=0.05)(scores, torch.tensor([label]), torch.tensor([ignore]))
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert torch.isfinite(found).all()
    assert torch.isfinite(scores.grad).all()
    if loss == "contrastive" and not any(label):
        assert float(found.detach()) == 0

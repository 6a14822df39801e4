from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from pipeline.models.retriever.ewc import FIRST_STEPS, Penalty, ShareOfLoss
from pipeline.models.retriever.fisher import parameters_of
from tests.support import programs

STRENGTH = 0.7
ON_THE_GPU = """
import torch
from tests.models.retriever.test_ewc import STRENGTH, Penalty, fisher_of, model, moved, parameters_of
network = model()
penalty = Penalty(fisher_of(network), parameters_of(network), strength=STRENGTH)
on_cpu = penalty.value(moved(network))
network.cuda()
penalty.add_gradients(network)
torch.testing.assert_close(penalty.value(network).cpu(), on_cpu)
"""


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)


def fisher_of(network: nn.Module) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    weights = parameters_of(network)
    return {name: torch.rand(value.shape, generator=generator) for name, value in weights.items()}


def moved(network: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator).to(weight.dtype))
    return network


def by_hand(network: nn.Module, fisher: dict[str, Tensor], anchor: dict[str, Tensor]) -> Tensor:
    terms = [
        (fisher[name] * (weight - anchor[name]) ** 2).sum() for name, weight in network.named_parameters()
    ]
    return STRENGTH * torch.stack(terms).sum()


def test_at_the_anchor_the_penalty_and_its_gradient_are_exactly_zero() -> None:
    network = model()
    penalty = Penalty(fisher_of(network), parameters_of(network), strength=STRENGTH)
    assert float(penalty.value(network)) == 0.0
    penalty.add_gradients(network)
    assert all(weight.grad is not None and not weight.grad.any() for weight in network.parameters())


def test_its_gradient_is_two_lambda_f_times_the_distance_as_autograd_finds_it() -> None:
    network = model()
    fisher, anchor = (
        fisher_of(network),
        {name: value.clone() for name, value in parameters_of(network).items()},
    )
    penalty = Penalty(fisher, parameters_of(network), strength=STRENGTH)
    moved(network)
    expected = by_hand(network, fisher, anchor)
    gradients = torch.autograd.grad(expected, list(network.parameters()))
    torch.testing.assert_close(penalty.value(network), expected.detach())
    penalty.add_gradients(network)
    for (name, weight), gradient in zip(network.named_parameters(), gradients, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, gradient)
        torch.testing.assert_close(
            weight.grad, 2 * STRENGTH * fisher[name] * (weight.detach() - anchor[name])
        )


def test_it_adds_to_the_gradients_that_are_there() -> None:
    network = model()
    penalty = Penalty(fisher_of(network), parameters_of(network), strength=STRENGTH)
    moved(network)
    penalty.add_gradients(network)
    alone = [weight.grad.clone() for weight in network.parameters() if weight.grad is not None]
    network.zero_grad()
    network(torch.ones(5, 3)).sum().backward()
    loss = [weight.grad.clone() for weight in network.parameters() if weight.grad is not None]
    penalty.add_gradients(network)
    for weight, own, added in zip(network.parameters(), loss, alone, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, own + added)


def test_the_anchor_is_a_copy_that_training_does_not_move() -> None:
    network = model()
    penalty = Penalty(fisher_of(network), parameters_of(network), strength=STRENGTH)
    moved(network)
    assert float(penalty.value(network)) > 0


def test_weights_in_bfloat16_are_compared_in_float32() -> None:
    network = model(torch.bfloat16)
    fisher = fisher_of(network)
    penalty = Penalty(fisher, parameters_of(network), strength=STRENGTH)
    anchor = {name: value.float().clone() for name, value in parameters_of(network).items()}
    moved(network)
    penalty.add_gradients(network)
    for name, weight in network.named_parameters():
        assert weight.grad is not None
        exact = 2 * STRENGTH * fisher[name] * (weight.detach().float() - anchor[name])
        torch.testing.assert_close(weight.grad.float(), exact, rtol=2**-7, atol=0.0)
    assert penalty.value(network).dtype == torch.float32


def test_weights_that_the_fisher_does_not_know_are_left_alone() -> None:
    network = model()
    penalty = Penalty(fisher_of(network), parameters_of(network), strength=STRENGTH)
    network.add_module("head", nn.Linear(2, 1))
    moved(network)
    penalty.add_gradients(network)
    assert network.get_parameter("head.weight").grad is None


def test_the_strength_is_set_over_the_first_steps_and_stays() -> None:
    share = ShareOfLoss(0.5)
    share.add(4.0, 0.0, 1.0)  # the first step: nothing has moved yet
    assert share.strength == 0.0
    for _ in range(int(FIRST_STEPS) - 1):
        assert not share.is_set
        share.add(4.0, 8.0, 1.0)
    assert share.is_set
    assert share.strength == 0.25


def test_a_step_whose_gradient_overflowed_says_nothing_of_the_strength() -> None:
    share = ShareOfLoss(0.5)
    for loss, penalty in ((float("inf"), 1.0), (1.0, float("nan"))):
        share.add(loss, penalty, 1.0)
    assert share == ShareOfLoss(0.5)


def test_it_follows_the_weights_to_the_gpu(cuda: None, tmp_path: Path) -> None:
    done = programs.start(ON_THE_GPU, folder=tmp_path / "said").wait()
    assert (done.returncode, done.stderr) == (0, "")

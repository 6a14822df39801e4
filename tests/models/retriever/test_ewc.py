from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from pipeline.models.retriever.ewc import FIRST_STEPS, ElasticWeights, parameters_of

SHARE = 0.5


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(dtype)


def fisher_of(network: nn.Module) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    weights = parameters_of(network)
    return {name: torch.rand(value.shape, generator=generator) for name, value in weights.items()}


def held(network: nn.Module) -> ElasticWeights:
    return ElasticWeights(fisher_of(network), parameters_of(network), share=SHARE)


def moved(network: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator).to(weight.dtype))
    return network


def with_gradients(network: nn.Module, value: float = 1.0) -> None:
    for weight in network.parameters():
        weight.grad = torch.full_like(weight, value)


def test_at_the_anchor_nothing_is_added() -> None:
    network = model()
    elastic = held(network)
    with_gradients(network)
    elastic.on_gradients(network, measured=True)
    assert elastic.measured == dict.fromkeys(("ewc/lambda", "ewc/share", "ewc/penalty"), 0.0)
    assert all(weight.grad is not None and bool((weight.grad == 1).all()) for weight in network.parameters())


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-6)])
def test_its_gradient_is_that_of_lambda_f_times_the_squared_distance_as_autograd_finds_it(
    dtype: torch.dtype, rtol: float
) -> None:
    network = model(dtype)
    fisher, anchor = fisher_of(network), {name: one.clone() for name, one in parameters_of(network).items()}
    elastic = held(network)
    with_gradients(moved(network))
    elastic.on_gradients(network)
    terms = [
        (fisher[name] * (weight.float() - anchor[name]) ** 2).sum()
        for name, weight in network.named_parameters()
    ]
    expected = elastic.strength * torch.stack(terms).sum()
    assert elastic.strength > 0
    torch.testing.assert_close(elastic.value(network), expected.detach())
    weights = list(network.parameters())
    for weight, gradient in zip(weights, torch.autograd.grad(expected, weights), strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, 1 + gradient, rtol=rtol, atol=1e-6)


def test_weights_that_the_fisher_does_not_know_are_left_alone_and_one_without_a_gradient_gets_one() -> None:
    network = model()
    elastic = held(network)
    network.add_module("head", nn.Linear(2, 1))
    with_gradients(moved(network))
    network.get_parameter("0.weight").grad = network.get_parameter("head.weight").grad = None
    elastic.on_gradients(network)
    assert network.get_parameter("head.weight").grad is None
    assert network.get_parameter("0.weight").grad is not None


def test_the_strength_is_set_over_the_first_steps_and_stays() -> None:
    network = model()
    elastic = held(network)
    with_gradients(network)
    elastic.on_gradients(network)  # the first step: nothing has moved yet
    assert elastic.strength == 0.0
    moved(network)
    strengths = []
    for number in range(int(FIRST_STEPS) + 2):
        with_gradients(network, 1.0 + number)
        elastic.on_gradients(network)
        strengths.append(elastic.strength)
    changed = [one != other for one, other in itertools.pairwise(strengths)]
    assert changed == [True] * (int(FIRST_STEPS) - 2) + [False] * 3


def test_a_step_whose_gradient_overflowed_says_nothing_of_the_strength() -> None:
    network = model()
    elastic = held(network)
    with_gradients(moved(network), float("inf"))
    elastic.on_gradients(network)
    assert elastic.progress() == (0.0, 0.0, 0.0)

from __future__ import annotations

import pytest
import torch

from pipeline.models.retriever.strategies import averaged

START = {"w": torch.tensor([1.0, 3.0]), "b": torch.tensor([0.1])}
END = {"w": torch.tensor([2.0, -1.0]), "b": torch.tensor([0.3])}


def test_each_weight_lies_between_start_and_end_by_the_share() -> None:
    mixed = averaged(START, END, share=0.25)
    torch.testing.assert_close(mixed["w"], torch.tensor([1.25, 2.0]))
    torch.testing.assert_close(mixed["b"], torch.tensor([0.15]))


@pytest.mark.parametrize(("share", "expected"), [(0.0, START), (1.0, END)])
def test_the_ends_come_out_bit_for_bit(share: float, expected: dict[str, torch.Tensor]) -> None:
    mixed = averaged(START, END, share=share)
    assert all(torch.equal(mixed[name], value) for name, value in expected.items())


def test_along_a_chain_an_older_task_keeps_its_share_of_what_is_left() -> None:
    chain = {"w": torch.tensor(0.0)}
    for value in (8.0, 4.0):
        chain = averaged(chain, {"w": torch.tensor(value)}, share=0.5)
    assert float(chain["w"]) == 8 * 0.25 + 4 * 0.5


def test_the_dtype_is_the_ends_and_nothing_is_changed_in_place() -> None:
    mixed = averaged(START, {name: value.bfloat16() for name, value in END.items()}, share=0.5)
    assert mixed["w"].dtype == torch.bfloat16
    assert START["w"].tolist() == [1.0, 3.0]

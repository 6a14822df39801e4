"""Rows of tokens as batches: those of like length together, padded to the longest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy.typing as npt


def padded(
    rows: Sequence[Sequence[int] | npt.NDArray[np.int32]],
    pad: int,
    device: torch.device | str = "cpu",
    *,
    left: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return rows of tokens as ids and mask, padded at the right or the left: int64, shape (rows, longest)."""
    longest = max(map(len, rows))
    # NumPy: a tensor for each row takes ten times as long.
    ids = np.full((len(rows), longest), pad, dtype=np.int64)
    mask = np.zeros((len(rows), longest), dtype=np.int64)
    for number, row in enumerate(rows):
        part = slice(longest - len(row), longest) if left else slice(0, len(row))
        ids[number, part] = row
        mask[number, part] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def by_length(lengths: Sequence[int], fits: Callable[[int, int, int], bool]) -> Iterator[list[int]]:
    """Yield the numbers of rows that go together: of like length, so that little of a batch is padding.

    Args:
        lengths: of the rows.
        fits: says of (rows, the shortest's length, the longest's) whether one batch takes them. One row always goes.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and not fits(len(batch) + 1, lengths[batch[0]], lengths[number]):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


_PASS = 1 << 11
"""Tokens that are worth no pass of their own, whatever part of them is padding."""
_TOKENS_AT_ONCE = 1 << 14
"""Tokens, padding with them, of one pass."""
_LIKE = 0.7


def goes_together(rows: int, shortest: int, longest: int) -> bool:
    """Return whether a model takes so many rows in one pass: few of them, or of like length and not too many.

    Attention's memory grows with the length's square, so long rows count for more.
    """
    tokens = rows * longest
    if tokens <= _PASS:
        return True
    return shortest >= _LIKE * longest and tokens * (1 + longest // 1024) <= _TOKENS_AT_ONCE

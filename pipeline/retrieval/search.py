"""The exact best premises for queries: scores, the accessibility mask, then the k highest, ties to the lower index.

No approximation: a pass over 180,000 vectors costs less than the query's own embedding. The mask is applied before
anything is ranked, so k premises come back wherever k are accessible.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.retrieval.corpus import Corpus
from pipeline.retrieval.errors import DivergedError
from store.domain.records import Position

_SCORES_AT_ONCE = 1 << 24
"""Scores that are held at a time: 64 MiB of float32."""


def accessible_masks(corpus: Corpus, places: Sequence[tuple[str, Position]], device: torch.device) -> Tensor:
    """Return which premises theorems at (path, position) may use: bool, shape (len(places), len(corpus))."""
    files = np.stack([corpus.imported_files(path) for path, _ in places])
    mask = torch.from_numpy(files).to(device)[:, torch.from_numpy(corpus.file_of_premise).to(device).long()]
    for row, (path, position) in enumerate(places):
        own = corpus.before(path, position)
        if len(own):
            mask[row, torch.from_numpy(own).to(device)] = True
    return mask


def top_k(
    queries: Tensor, documents: Tensor, allowed: Tensor, k: int
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
    """Return for each query the indices and scores of its k best allowed documents, best first.

    Args:
        queries: shape (n, d).
        documents: shape (p, d), of the same dtype and device.
        allowed: bool, shape (n, p).
        k: how many; a query with fewer allowed documents gets those.

    Raises:
        DivergedError: a score is no number, as those of damaged or diverged weights are.
    """
    n, p = len(queries), len(documents)
    if p == 0 or k <= 0:
        return [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in range(n)]
    found = []
    rows = max(1, _SCORES_AT_ONCE // p)
    for start in range(0, n, rows):
        # Under the autocast of a validation scores would be bfloat16, where most of the best ones tie.
        with torch.autocast(queries.device.type, enabled=False):
            scores = (queries[start : start + rows] @ documents.T).float()
        if bool(torch.isnan(scores).any()):
            raise DivergedError(
                "scores are no numbers: the encoder's weights are damaged or have diverged. Take another checkpoint"
            )
        scores.masked_fill_(~allowed[start : start + rows], -torch.inf)
        # `topk` breaks ties as it likes. Its k-th value is exact all the same: whatever reaches it is a candidate.
        least = scores.topk(min(k, p), dim=1).values[:, -1:]
        for row in range(len(scores)):
            places = torch.nonzero((scores[row] >= least[row]) & (scores[row] > -torch.inf)).squeeze(1)
            values = scores[row, places]
            order = torch.argsort(values, descending=True, stable=True)[:k]
            found.append((places[order].cpu().numpy(), values[order].cpu().numpy()))
    return found

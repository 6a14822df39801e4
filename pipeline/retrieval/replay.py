"""A buffer of earlier tasks' examples, to be learned again beside the new ones.

A reservoir (Vitter 1985): of all pairs ever offered each is in it with the same chance, and it never grows beyond its
size. It keeps texts, not indices: a later version of a dataset, or another repository's, numbers its premises anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from pipeline.retrieval.batches import Batch
from pipeline.retrieval.config import Loss
from pipeline.retrieval.encoder import Tokens
from pipeline.retrieval.errors import CheckpointError
from pipeline.retrieval.text import padded

REPLAY = "replay.jsonl"

_FORMAT = "unsorry-replay-1"
_REMEDY = "Take it from a backup, or remove it: the next task then starts with an empty one"
_RESERVOIR, _DRAWS = 3, 4  # separate the streams of random numbers, also from those of the batches


@dataclass(frozen=True, slots=True)
class ReplayPair:
    """A query and a document that it needs, as the encoder reads them, and the task that they are of."""

    task: str
    query: str
    document: str


@dataclass(frozen=True, slots=True)
class _Head:
    """A file's first line."""

    format: str
    size: int
    seed: int
    seen: int
    pairs: int


class ReplayBuffer:
    """At most `size` pairs of all that were offered, and how many those were."""

    def __init__(self, size: int, *, seed: int, seen: int = 0, pairs: Sequence[ReplayPair] = ()) -> None:
        """Args:
        size: the most pairs that it holds, above 0.
        seed: decides which are kept and drawn.
        seen: how many were offered before.
        pairs: what was kept of them.
        """
        self.size = size
        self.seed = seed
        self.seen = seen
        self.pairs = list(pairs)
        # Which documents each query is known to need; None until a batch asks.
        self._needed: Mapping[str, set[str]] | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    def offer(self, pairs: Iterable[ReplayPair]) -> None:
        """Offer a task's pairs. The same offers in the same order leave the same buffer."""
        self._needed = None
        rng = np.random.Generator(np.random.Philox(key=[self.seed, _RESERVOIR], counter=[0, 0, 0, self.seen]))
        for pair in pairs:
            self.seen += 1
            if len(self.pairs) < self.size:
                self.pairs.append(pair)
            elif (place := int(rng.integers(self.seen))) < self.size:
                self.pairs[place] = pair

    def resized(self, size: int) -> ReplayBuffer:
        """Return the buffer with room for `size`; where that is less than it holds, a fair choice of its pairs stays.

        A buffer that grew holds fewer of the earlier pairs than a reservoir of the new size would, until it has
        filled up again.
        """
        if len(self.pairs) <= size:
            return ReplayBuffer(size, seed=self.seed, seen=self.seen, pairs=self.pairs)
        rng = np.random.Generator(np.random.Philox(key=[self.seed, _RESERVOIR], counter=[0, 0, 1, self.seen]))
        kept = np.sort(rng.choice(len(self.pairs), size, replace=False))
        return ReplayBuffer(size, seed=self.seed, seen=self.seen, pairs=[self.pairs[place] for place in kept])

    def batch(
        self,
        step: int,
        rows: int,
        *,
        negatives: int,
        tokens: Tokens,
        max_seq_len: int,
        document_length: int,
        loss: Loss,
        rank: int = 0,
    ) -> Batch | None:
        """Return a step's replayed batch in LeanDojo's layout; None where nothing is kept yet.

        Rows are drawn without repetition, from (seed, step, rank) alone. Negatives are documents of other pairs; one
        that a row's query is known to need is a positive. Its columns are of no corpus: `premises` are all -1. `pairs`
        are places in the buffer.

        Args:
            step: of the training run.
            rows: how many pairs; all of them where there are fewer.
            negatives: columns a row beside its positive.
            tokens: makes ids of texts.
            max_seq_len: the longest query, in tokens.
            document_length: the longest document.
            loss: which labels: with "contrastive" a document that stands in two columns counts once.
            rank: which process asks.
        """
        if not self.pairs:
            return None
        rng = np.random.Generator(np.random.Philox(key=[self.seed, _DRAWS], counter=[0, 0, rank, step]))
        own = rng.choice(len(self.pairs), min(rows, len(self.pairs)), replace=False)
        places = [*own, *rng.integers(len(self.pairs), size=negatives * len(own))]
        documents = [self.pairs[place].document for place in places]
        if self._needed is None:
            self._needed = _documents_of(self.pairs)
        label = np.zeros((len(own), len(documents)), dtype=np.float32)
        for row, place in enumerate(own):
            label[row] = [document in self._needed[self.pairs[place].query] for document in documents]
        first = {document: place for place, document in reversed(list(enumerate(documents)))}
        repeated = [loss == "contrastive" and first[document] != at for at, document in enumerate(documents)]
        context_ids, context_mask = padded([tokens(self.pairs[place].query, max_seq_len) for place in own])
        premise_ids, premise_mask = padded([tokens(document, document_length) for document in documents])
        return Batch(
            context_ids=torch.from_numpy(context_ids),
            context_mask=torch.from_numpy(context_mask),
            premise_ids=torch.from_numpy(premise_ids),
            premise_mask=torch.from_numpy(premise_mask),
            label=torch.from_numpy(label),
            ignore=torch.tensor(repeated).expand(len(own), -1).contiguous(),
            premises=(-1,) * len(documents),
            pairs=tuple(map(int, own)),
        )

    def save(self, path: Path) -> None:
        """Write it as JSON lines: what it is, then a pair a line."""
        head = _Head(_FORMAT, self.size, self.seed, self.seen, len(self.pairs))
        with path.open("w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(head)) + "\n")
            file.writelines(json.dumps(asdict(pair)) + "\n" for pair in self.pairs)

    @classmethod
    def load(cls, path: Path) -> ReplayBuffer:
        """Read what `save` wrote.

        Raises:
            CheckpointError: it cannot be read; cut off, or of another version; the message names the line.
        """
        try:
            head, *lines = path.read_text("utf-8").splitlines()
            about = _Head(**json.loads(head))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{path}: no replay buffer can be read ({error}). {_REMEDY}") from error
        if about.format != _FORMAT or about.pairs != len(lines):
            raise CheckpointError(
                f"{path} is of the format {about.format} with {len(lines)} of {about.pairs} pairs: it is cut off, or "
                f"not {_FORMAT}. {_REMEDY}"
            )
        pairs = []
        for number, line in enumerate(lines, start=2):
            try:
                pairs.append(ReplayPair(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise CheckpointError(f"{path}: line {number} is no pair ({error}). {_REMEDY}") from error
        return cls(about.size, seed=about.seed, seen=about.seen, pairs=pairs)


def _documents_of(pairs: Iterable[ReplayPair]) -> Mapping[str, set[str]]:
    needed: dict[str, set[str]] = {}
    for pair in pairs:
        needed.setdefault(pair.query, set()).add(pair.document)
    return needed

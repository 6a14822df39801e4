"""A dataset folder as Lightning wants it: the corpus, the splits, and loaders of ready batches."""

from __future__ import annotations

from pathlib import Path

import pytorch_lightning as pl
from torch.utils.data import DataLoader

from pipeline.retrieval.batches import Batch, Batches
from pipeline.retrieval.config import Loss
from pipeline.retrieval.corpus import Corpus
from pipeline.retrieval.encoder import Tokens, load_tokens
from pipeline.retrieval.examples import Example, Examples, read_examples


class RetrievalDataModule(pl.LightningDataModule):
    """LeanDojo's data module: the same arguments, and a corpus with the splits train, val and test.

    `train` yields `Batch`es that depend on (seed, step) alone and begin at the trainer's step, so that a run that was
    cut off goes on with the batches that it would have had. The other splits yield lists of `Example`.
    """

    def __init__(
        self,
        data_path: str | Path,
        corpus_path: str | Path,
        num_negatives: int,
        num_in_file_negatives: int,
        model_name: str | Path,
        batch_size: int,
        eval_batch_size: int,
        max_seq_len: int,
        num_workers: int,
        *,
        seed: int = 3407,
        loss: Loss = "mse",
        accumulate: int = 1,
        document_length: int | None = None,
    ) -> None:
        """Read the corpus.

        `accumulate` is how many steps the trainer takes between two changes of the weights; `document_length` the
        tokens of the longest document, where that is not `max_seq_len` as for queries. LeanDojo cuts documents at
        other lengths in training and in the index; here it is one length, whoever asks.

        Raises:
            CorpusError: the corpus cannot be used.
            CheckpointError: the model has no tokenizer.
        """
        super().__init__()
        self.data_path = Path(data_path)
        self.num_negatives = num_negatives
        self.num_in_file_negatives = num_in_file_negatives
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.max_seq_len = max_seq_len
        self.num_workers = num_workers
        self.seed = seed
        self.loss: Loss = loss
        self.tokens: Tokens = load_tokens(model_name)
        self.corpus = Corpus(corpus_path)
        self.accumulate = accumulate
        self.document_length = document_length or max_seq_len
        self._read: dict[str, Examples] = {}

    def examples(self, split: str) -> Examples:
        """Return the steps of "train", "val" or "test", read once.

        Raises:
            DatasetError: its file cannot be used.
        """
        if split not in self._read:
            self._read[split] = read_examples(self.data_path / f"{split}.json", self.corpus)
        return self._read[split]

    def batches(
        self,
        *,
        rank: int = 0,
        world: int = 1,
        start_step: int = 0,
        batch_size: int | None = None,
        multiple_of: int | None = None,
    ) -> Batches:
        """Return the training batches of one process, of `self.batch_size` pairs where nothing else is said.

        An epoch has a multiple of `multiple_of` steps; without it, of `self.accumulate`.

        Raises:
            DatasetError: train.json cannot be used or has too few pairs.
        """
        return Batches(
            self.corpus,
            self.examples("train").steps,
            self.tokens,
            batch_size=batch_size or self.batch_size,
            negatives=self.num_negatives,
            in_file_negatives=self.num_in_file_negatives,
            max_seq_len=self.max_seq_len,
            document_length=self.document_length,
            seed=self.seed,
            loss=self.loss,
            multiple_of=multiple_of or self.accumulate,
            rank=rank,
            world=world,
            start_step=start_step,
        )

    def train_dataloader(self) -> DataLoader[Batch]:
        trainer = self.trainer
        rank, world, done = (
            (trainer.global_rank, trainer.world_size, trainer.global_step * trainer.accumulate_grad_batches)
            if trainer is not None
            else (0, 1, 0)
        )
        batches = self.batches(rank=rank, world=world, start_step=done)
        # To the end of the epoch: a trainer that is told of no limit would else never come to one.
        batches.end_step = (done // batches.steps_per_epoch + 1) * batches.steps_per_epoch
        return DataLoader(
            batches,
            batch_size=None,
            num_workers=self.num_workers,
            pin_memory=trainer is not None and trainer.strategy.root_device.type == "cuda",
        )

    def val_dataloader(self) -> DataLoader[list[Example]]:
        return self._evaluated("val")

    def test_dataloader(self) -> DataLoader[list[Example]]:
        return self._evaluated("test")

    def predict_dataloader(self) -> DataLoader[list[Example]]:
        return self._evaluated("test")

    def _evaluated(self, split: str) -> DataLoader[list[Example]]:
        # Steps without a premise cannot be measured. Each process takes its share; none is measured twice.
        steps = self.examples(split).with_premises
        if self.trainer is not None:
            steps = steps[self.trainer.global_rank :: self.trainer.world_size]
        return DataLoader(list(steps), batch_size=self.eval_batch_size, collate_fn=list, shuffle=False)  # type: ignore[arg-type] # a list is a dataset

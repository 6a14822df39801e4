"""The training of a retriever's encoder as a Lightning module: losses, optimiser and validation of a run."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from transformers import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup

from pipeline.models.libraries import exact_float32
from pipeline.models.measures import METRICS, rate
from pipeline.models.retriever.batches import Batch, Example
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import embed, load_encoder, load_tokens
from pipeline.models.retriever.index import Retriever
from pipeline.models.retriever.losses import row_losses
from pipeline.models.retriever.strategies import Protection

MEASURES = ("Recall@1_val", "Recall@10_val", "MRR")
"""The measures a validation logs, by LeanDojo's names: recalls in percent, MRR in 0..1."""
_logged_of = itemgetter(*map(METRICS.index, ("recall@1", "recall@10", "mrr")))
"""Returns those of a step's measures, in the order of `MEASURES`."""
_WARMUP_SHARE = 0.1
_EWC_EVERY = 10
"""Steps between two measurements of EWC for the log, which cost some passes over the weights; the last step is one."""
_PROGRESS = "strategy"  # in Lightning's checkpoints of steps
_DROPOUT = 0x0D0F  # separates the random numbers of dropout from those of the batches


class PremiseRetriever(pl.LightningModule):
    """An encoder that learns a tactic state's premises."""

    def __init__(
        self, start: str | Path, config: RetrieverConfig, *, total_steps: int, recompute: bool = False
    ) -> None:
        """Load the encoder of a folder or a hub name.

        Args:
            start: the source of the weights.
            config: of the run.
            total_steps: of the optimiser in the whole run.
            recompute: whether activations are computed again for a gradient (`encoder.embed`).

        Raises:
            CheckpointError: there is no such encoder.
        """
        super().__init__()
        self.encoder = load_encoder(start)
        self.tokens = load_tokens(start)
        self.config = config
        self.losses = row_losses(config.loss, temperature=config.temperature)
        self._total_steps = total_steps
        self._recompute = recompute
        self.protection = Protection(RetrieverConfig(against_forgetting="none"))
        """May be set; it begins before training does."""
        self._vectors: Tensor | None = None
        self._rated: list[tuple[float, ...]] = []

    @property
    def retriever(self) -> Retriever:
        """The encoder and its tokenizer, for finding premises."""
        return Retriever(self.encoder, self.tokens, self.config.document_length, self.config.data_max_seq_len)

    def forward(self, batch: Batch) -> Tensor:
        """Return the cosines of a batch's queries and documents: float32 whatever the precision, shape (B, D).

        If several processes share the step, each embeds its own documents, and all are columns in each of them.
        """
        again = self._recompute
        queries = embed(
            self.encoder,
            batch.context_ids,
            batch.context_mask,
            lengths=batch.context_lengths,
            recompute=again,
        )
        documents = embed(
            self.encoder,
            batch.premise_ids,
            batch.premise_mask,
            lengths=batch.premise_lengths,
            recompute=again,
        )
        if batch.label.shape[1] > len(documents):
            # With gradients: another process's loss pulls at this one's documents. DDP takes the mean of the sums.
            documents = self.all_gather(documents, sync_grads=True).flatten(0, 1)  # type: ignore[union-attr] # a tensor
        # In bfloat16 a cosine has two digits, and the temperature multiplies the rounding error by twenty.
        with torch.autocast(self.device.type, enabled=False), exact_float32():
            return queries.float() @ documents.float().T

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the mean loss of the rows, with that of replayed ones."""
        step = self.trainer.global_step * self.trainer.accumulate_grad_batches
        step += batch_idx % self.trainer.accumulate_grad_batches
        # Lightning's checkpoints do not hold the generator's state: the seed follows from the step instead.
        entropy = np.random.SeedSequence([self.config.seed, _DROPOUT, step, self.global_rank])
        torch.manual_seed(int(entropy.generate_state(1)[0]))
        loss = self._mean_loss(batch)
        if batch.replayed is not None:
            loss = torch.lerp(loss, self._mean_loss(batch.replayed), self.config.replay_share)
        # A progress bar reads the loss in each step, and the GPU waits.
        shown = self.trainer.progress_bar_callback is not None
        # The mean over the processes is that of the whole step.
        self.log("loss_train", loss.detach(), prog_bar=shown, batch_size=len(batch), sync_dist=True)
        return loss

    def _mean_loss(self, batch: Batch) -> Tensor:
        return self.losses(self(batch), batch.label, batch.ignore).mean() * batch.scale

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:  # noqa: ARG002
        # Examples to evaluate are texts; they are embedded where the encoder is.
        return batch.to(device, non_blocking=True) if isinstance(batch, Batch) else batch

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[_PROGRESS] = self.protection.elastic.progress()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.protection.elastic.resume(checkpoint[_PROGRESS])

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        share = optimizer.param_groups[0]["lr"] / self.config.lr
        step = self.trainer.global_step + 1
        measured = step % _EWC_EVERY == 0 or step == self._total_steps
        elastic = self.protection.elastic
        elastic.on_gradients(self.encoder, share, measured=measured)
        if elastic.measured:
            self.log_dict(dict(elastic.measured), batch_size=1)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.config.lr)
        total = self._total_steps
        # Rounded down: the first step of a warm-up changes no weight, and a tiny task may have only one step.
        warmup = min(self.config.warmup_steps, int(total * _WARMUP_SHARE))
        if self.config.schedule == "cosine":
            schedule = get_cosine_schedule_with_warmup(optimizer, warmup, total)
        else:
            schedule = get_constant_schedule_with_warmup(optimizer, warmup)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_validation_start(self) -> None:
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined] # Lightning sets it
        self._vectors, _ = self.retriever.premises(data.corpus)
        self._rated = []

    def validation_step(self, examples: Sequence[Example], batch_idx: int) -> None:  # noqa: ARG002
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined] # Lightning sets it
        assert self._vectors is not None
        found = self.retriever.rank(data.corpus, self._vectors, examples, self.config.num_retrieved)
        self._rated += [
            _logged_of(rate(example.positives, ranking))
            for example, ranking in zip(examples, found, strict=True)
        ]

    def on_validation_epoch_end(self) -> None:
        """Log LeanDojo's names: recalls in percent, MRR in 0..1, over the steps of all processes."""
        sums = torch.tensor(self._rated, dtype=torch.float64, device=self.device).reshape(-1, 3).sum(dim=0)
        counted = torch.cat([sums, sums.new_tensor([len(self._rated)])])
        total = self.trainer.strategy.reduce(counted, reduce_op="sum")
        assert isinstance(total, Tensor)
        if total[3] > 0:
            first, ten, reciprocal = (total[:3] / total[3]).tolist()
            # All processes log the same numbers, so Lightning's mean over them is the same too.
            measured = dict(zip(MEASURES, (100 * first, 100 * ten, reciprocal), strict=True))
            self.log_dict(measured, sync_dist=True)

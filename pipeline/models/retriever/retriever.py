"""The premise retriever as a Lightning module: LeanDojo's interface to our encoder, batches, index and search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from transformers import (
    AutoTokenizer,
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
)

from pipeline.models.adapters import base_of, name_base
from pipeline.models.datasets import Position
from pipeline.models.errors import CheckpointError, CorpusError
from pipeline.models.libraries import exact_float32, quiet_libraries
from pipeline.models.measures import METRICS, rate
from pipeline.models.retriever.batches import Batch, Example
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.encoder import embed, has_adapter, load_ckpt, load_encoder, load_tokens
from pipeline.models.retriever.index import Retriever, accessible_masks, top_k
from pipeline.models.retriever.losses import row_losses
from pipeline.models.retriever.strategies import Protection
from pipeline.models.text import query_text

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
    """An encoder that learns a tactic state's premises, and finds them in a corpus."""

    def __init__(
        self,
        model_name: str | Path,
        lr: float,
        warmup_steps: int,
        max_seq_len: int,
        num_retrieved: int = 100,
        *,
        config: RetrieverConfig | None = None,
        recompute: bool = False,
        total_steps: int | None = None,
    ) -> None:
        """Load the encoder of a folder or a hub name.

        Args:
            model_name: the source of the weights.
            lr: the learning rate after warm-up.
            warmup_steps: of the optimiser; at most a tenth of a run, or a small task would never leave it.
            max_seq_len: tokens of the longest document.
            num_retrieved: premises an evaluation ranks.
            config: the settings missing here: the loss, the schedule, the seed, the length of queries; None: its
                defaults, with squared errors.
            recompute: whether activations are computed again for a gradient (`encoder.embed`).
            total_steps: of the optimiser in a whole run. Without it Lightning counts them, and for that it makes the
                training data's loader before it knows an interrupted run's step.

        Raises:
            CheckpointError: there is no such encoder.
        """
        super().__init__()
        self.model_name = str(model_name)
        self.encoder = load_encoder(model_name)
        self.tokens = load_tokens(model_name)
        self.lr = lr
        self.warmup_steps = warmup_steps
        self.max_seq_len = max_seq_len
        self.num_retrieved = num_retrieved
        self.corpus: Corpus | None = None
        self.config = config or RetrieverConfig(loss="mse")
        self.losses = row_losses(self.config.loss, temperature=self.config.temperature)
        self._total_steps = total_steps
        self._recompute = recompute
        self.protection = Protection(RetrieverConfig(against_forgetting="none"))
        """May be set; it begins before training does."""
        self._vectors: Tensor | None = None
        self._rated: list[tuple[float, ...]] = []

    @classmethod
    def load(
        cls, ckpt_path: str | Path, device: torch.device | str, freeze: bool, config: Mapping[str, Any]
    ) -> PremiseRetriever:
        """Return the retriever of a checkpoint: a folder, a hub name, or LeanDojo's `.ckpt` file.

        Args:
            ckpt_path: the checkpoint. Of a `.ckpt` file only tensors are read, never code.
            device: where to put it.
            freeze: whether to freeze its weights.
            config: the constructor's arguments (`RetrieverConfig.model_arguments`).

        Raises:
            CheckpointError: it cannot be used.
        """
        arguments = dict(config)
        name = arguments.pop("model_name", ckpt_path)
        path = Path(ckpt_path)
        if path.suffix == ".ckpt":
            model = cls(name, **arguments)
            load_ckpt(model.encoder, path, name)
        else:
            model = cls(ckpt_path, **arguments)
        model.to(device)
        if freeze:
            model.freeze()
        return model

    @classmethod
    def load_hf(
        cls,
        ckpt_path: str | Path,
        max_seq_len: int,
        device: torch.device | str,
        dtype: torch.dtype | None = None,
    ) -> PremiseRetriever:
        """Return the retriever of a folder or hub name, for inference.

        Raises:
            CheckpointError: it cannot be used.
        """
        model = cls(ckpt_path, 0.0, 0, max_seq_len)
        model.to(device)
        model.eval()
        return model if dtype is None else model.to(dtype)

    def save(self, folder: Path) -> None:
        """Write the encoder and its tokenizer into a folder, made if need be.

        Of an encoder with an adapter it writes the adapter and the place of its base.

        Raises:
            OSError: the disk refused, or transformers has no tokenizer to copy; `safetensors.SafetensorError` likewise.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with quiet_libraries():
            self.encoder.save_pretrained(folder)
            if has_adapter(self.encoder):
                name_base(folder, base_of(self.model_name), home=folder)
            else:
                AutoTokenizer.from_pretrained(self.model_name).save_pretrained(folder)

    @property
    def retriever(self) -> Retriever:
        """The encoder and its tokenizer, for finding premises."""
        return Retriever(self.encoder, self.tokens, self.max_seq_len, self.config.data_max_seq_len)

    # --- training -----------------------------------------------------------------------------------------

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
        share = optimizer.param_groups[0]["lr"] / self.lr if self.lr > 0 else 1.0
        step = self.trainer.global_step + 1
        measured = step % _EWC_EVERY == 0 or step == self._total_steps
        elastic = self.protection.elastic
        elastic.on_gradients(self.encoder, share, measured=measured)
        if elastic.measured:
            self.log_dict(dict(elastic.measured), batch_size=1)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        total = self._total_steps = self._total_steps or int(self.trainer.estimated_stepping_batches)
        # Rounded down: the first step of a warm-up changes no weight, and a tiny task may have only one step.
        warmup = min(self.warmup_steps, int(total * _WARMUP_SHARE))
        if self.config.schedule == "cosine":
            schedule = get_cosine_schedule_with_warmup(optimizer, warmup, total)
        else:
            schedule = get_constant_schedule_with_warmup(optimizer, warmup)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    # --- validation ---------------------------------------------------------------------------------------

    def on_validation_start(self) -> None:
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined] # Lightning sets it
        self.load_corpus(data.corpus)
        self.reindex_corpus()
        self._rated = []

    def validation_step(self, examples: Sequence[Example], batch_idx: int) -> None:  # noqa: ARG002
        found = self._search(
            [example.query for example in examples],
            [(example.file_path, example.start) for example in examples],
            self.num_retrieved,
        )
        self._rated += [
            _logged_of(rate(example.positives, [place for place, _ in ranked]))
            for example, ranked in zip(examples, found, strict=True)
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

    # --- retrieval ----------------------------------------------------------------------------------------

    def load_corpus(self, path_or_corpus: str | Path | Corpus) -> None:
        """Set the corpus to retrieve from: a `corpus.jsonl` or a `Corpus`.

        Raises:
            CorpusError: the file cannot be used.
        """
        self.corpus = path_or_corpus if isinstance(path_or_corpus, Corpus) else Corpus(path_or_corpus)
        self._vectors = None

    def reindex_corpus(self, batch_size: int | None = None) -> None:  # noqa: ARG002 - LeanDojo's signature
        """Embed the corpus with the present weights. `batch_size` is ignored: batches are made by length."""
        self._vectors, _ = self.retriever.premises(self._known_corpus())

    def retrieve(
        self,
        state: Sequence[str],
        file_name: Sequence[str],
        theorem_full_name: Sequence[str],
        theorem_pos: Sequence[Position],
        k: int,
    ) -> tuple[list[list[Premise]], list[list[float]]]:
        """Return the k best accessible premises of each state and their scores, best first.

        Args:
            state: tactic states, as Lean prints them.
            file_name: the file of each state's theorem, a path of the corpus.
            theorem_full_name: its name, without effect on the accessible premises.
            theorem_pos: where it begins: (line, column) from 1.
            k: the number. A theorem with fewer accessible premises gets those.

        Raises:
            CheckpointError: no corpus was loaded.
            CorpusError: it has no such file.
            ValueError: there are not as many files, names and positions as states.
        """
        corpus = self._known_corpus()
        counts = [len(each) for each in (state, file_name, theorem_full_name, theorem_pos)]
        if len(set(counts)) > 1:
            raise ValueError(
                "{} states, {} files, {} names and {} positions: a state takes one of each".format(*counts)
            )
        unknown = [path for path in file_name if corpus.file(path) is None]
        if unknown:
            raise CorpusError(
                f"{corpus.source} has no file {unknown[0]}, so nothing is known to be accessible there. Paths are as "
                "in the corpus; a new file needs a new export"
            )
        if self._vectors is None:
            self.reindex_corpus()
        found = self._search(list(map(query_text, state)), list(zip(file_name, theorem_pos, strict=True)), k)
        return (
            [[corpus[place] for place, _ in ranked] for ranked in found],
            [[score for _, score in ranked] for ranked in found],
        )

    def on_train_batch_end(self, outputs: object, batch: object, batch_idx: int) -> None:  # noqa: ARG002
        self._vectors = None

    def on_fit_end(self) -> None:
        # The best epoch's weights, not those of the last validation, may be loaded next.
        self._vectors = None

    def _search(
        self, queries: list[str], places: Sequence[tuple[str, Position]], k: int
    ) -> list[list[tuple[int, float]]]:
        corpus = self._known_corpus()
        assert self._vectors is not None
        if not queries:
            return []
        asked = self.retriever.embed(queries)
        found = top_k(asked, self._vectors, accessible_masks(corpus, places, asked.device), k)
        return [list(zip(indices.tolist(), scores.tolist(), strict=True)) for indices, scores in found]

    def _known_corpus(self) -> Corpus:
        if self.corpus is None:
            raise CheckpointError(
                "the retriever has no corpus to search; call load_corpus with a corpus.jsonl"
            )
        return self.corpus

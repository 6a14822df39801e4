"""One task of a tactic model, on top of a checkpoint: which checkpoint it leads to, and making that."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peft import LoraConfig

from pipeline.learning.checkpoints import checkpoint_id
from pipeline.learning.datasets import TaskData
from pipeline.tactics.checkpoints import Chain, Link, versions
from pipeline.tactics.config import TacticsConfig
from pipeline.tactics.rows import Rows, read_rows
from pipeline.tactics.running import Saves
from pipeline.tactics.saving import start_of
from pipeline.tactics.sft import SFTTrainer

_LIBRARIES = ("torch", "transformers", "trl", "peft")
# They decide what is measured and what a run that is cut off loses, and no weight.
_NOT_ITS_CONTENT = frozenset({"eval_steps", "save_minutes"})


def learn(
    task: TaskData,
    chain: Chain,
    config: TacticsConfig,
    *,
    parent: str | None,
    on_step: Callable[[int, int], object] = lambda _done, _total: None,
) -> Link:
    """Train a task from a checkpoint (None: from `config.model_name`) and add the new one to the chain.

    One that is there already, from the same parent, data and configuration, is not made again; one that was cut off
    goes on from the last step that was saved.

    Args:
        task: with a dataset in LeanDojo's form, of which the training split counts.
        chain: of tactic models.
        config: how.
        parent: the checkpoint to start from.
        on_step: told (optimiser steps done, in all) after each.

    Raises:
        TacticsError: the dataset or the parent cannot be used, the loss diverged, the disk is full, or another process
            is at it.
        Yielded: the job was asked to make way, and the run is saved.
    """
    base = config.model_name if parent is None else chain.read(parent).base
    rows = read_rows(task.dataset / "random" / "train.json")
    identity = checkpoint_id(
        parent=parent,
        base=base,
        begun=start_of(Path(config.model_name)) if parent is None else "",
        task=task.name,
        data=rows.digest,
        config={key: value for key, value in config.to_dict().items() if key not in _NOT_ITS_CONTENT},
    )

    def make(run: Path) -> Link:
        started = time.monotonic()
        trainer = _trainer(config, base if parent is None else str(chain.path(parent)), run, on_step)
        fitted = trainer.fit(rows, Saves(run / "steps", 60 * config.save_minutes))
        trainer.check_finite()
        warnings = (
            (f"{fitted.dropped} of {len(rows.rows)} steps were left out: their tactics are too long",)
            if fitted.dropped
            else ()
        )

        def described(files: dict[str, str]) -> Link:
            return Link(
                checkpoint=identity,
                parent=parent,
                base=base,
                task=task.name,
                data=rows.digest,
                data_seq=task.data_seq,
                config=config.to_dict(),
                seed=config.seed,
                steps=fitted.steps,
                files=files,
                versions=versions(_LIBRARIES),
                device=trainer.device.type,
                seconds=time.monotonic() - started,
                warnings=warnings,
                about={"fitted": {**asdict(fitted), "measures": dict(fitted.measures)}, "rows": _told(rows)},
            )

        return chain.put(identity, trainer.write, described)

    return chain.once(identity, parent=parent, make=make)


def _trainer(
    config: TacticsConfig, start: str, run: Path, on_step: Callable[[int, int], object]
) -> SFTTrainer:
    adapter = LoraConfig(
        r=config.lora_rank,
        lora_alpha=2 * config.lora_rank,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return SFTTrainer(
        start,
        # Nothing is written there: what is made goes into the chain.
        run / "model",
        config.epochs,
        config.batch_size,
        config.lr,
        adapter if config.lora else None,
        max_seq_len=config.max_seq_len,
        device=config.device,
        seed=config.seed,
        # It is in the log of the run, and in the checkpoint's warnings.
        say=lambda _line: None,
        on_step=on_step,
    )


def _told(rows: Rows) -> dict[str, Any]:
    return {"steps": len(rows.rows), "proofs": rows.proofs, "skipped": dict(rows.skipped)}

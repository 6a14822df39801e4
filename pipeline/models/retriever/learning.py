"""Train a retriever on each task from the previous checkpoint, and measure checkpoints. A library: it knows no log.

    <folder>/<id>/model.safetensors     the encoder's weights, with config.json and the tokenizer beside them

Every checkpoint is on the disk before the next task begins, so an interrupted chain continues where it stopped. Tasks
are folders in LeanDojo's format (`pipeline.models.datasets`), from any writer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.models.adapters import base_of
from pipeline.models.chain import Chain, Step
from pipeline.models.datasets import TaskData
from pipeline.models.errors import NothingToLearnError
from pipeline.models.measures import METRICS, RETRIEVED, Evaluation, by_theorem, rate, summarise
from pipeline.models.model_files import Checkpoint
from pipeline.models.replay import replayable
from pipeline.models.retriever.baselines import BM25, MePo, fused
from pipeline.models.retriever.batches import (
    Lesson,
    asked_of,
    dataset_digest,
    read_examples,
    read_lesson,
)
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.index import Retriever, load_retriever
from pipeline.models.retriever.replay import choose
from pipeline.models.retriever.training import RetrieverTraining
from pipeline.models.running import NO_REPORTS, OnStep, Reports, make_checkpoint

_COUNTED = "recall@10"
"""The measure behind promotions."""


def plan(
    task: TaskData,
    chain: Chain,
    config: RetrieverConfig,
    *,
    parent: str | None,
    earlier: Sequence[TaskData] = (),
) -> tuple[Step, Lesson, dict[str, Lesson]]:
    """Return a task's step on top of a checkpoint (None: of `config.model_name`), with its data. Trains nothing.

    `earlier`: the tasks to replay and to hold by EWC. The steps of an earlier version of the task, one of the same
    name, are not learned again, only replayed (`RetrieverConfig.only_new`).

    Raises:
        LearningError: the dataset or the parent cannot be used.
    """
    tasks = replayable(task, earlier, config)
    before = tasks.get(task.name) if config.only_new else None
    lesson = read_lesson(task.dataset, config, learned=None if before is None else before.dataset)
    wanted = "replay" in config.ways and config.replay_share > 0
    wanted |= "ewc" in config.ways and config.lambda_value > 0
    # An earlier version learned again as a whole has its rows in training.
    replayed = [one for name, one in tasks.items() if name != task.name or lesson.only_new]
    rows = choose(replayed, config) if wanted else {}
    return chain.step(task, config, parent=parent, data=_data_digest(lesson, rows)), lesson, rows


def learn(
    task: TaskData,
    chain: Chain,
    config: RetrieverConfig,
    *,
    parent: str | None,
    earlier: Sequence[TaskData] = (),
    reports: Reports = NO_REPORTS,
    on_held: OnStep = lambda _done, _total: None,
) -> Checkpoint:
    """Train a task from a checkpoint (None: from `config.model_name`) and add the new one to the chain.

    An existing one, from the same parent, data and configuration, is not made again.

    Args:
        task: to learn.
        chain: of the checkpoints.
        config: of the training.
        parent: the checkpoint's id.
        earlier: the tasks to replay and to hold by EWC, if the configuration has them, an earlier version of this one
            among them.
        reports: of the run.
        on_held: takes (groups done, in all) while EWC estimates.

    Raises:
        LearningError: the dataset or the parent cannot be used, the loss diverged, the disk is full, or another process
            is making the same checkpoint.
    """
    step, lesson, rows = plan(task, chain, config, parent=parent, earlier=earlier)

    if config.lora_by_repository and base_of(step.start) == step.start:
        # A new adapter has nothing to forget, and the base does not change.
        how = replace(config, against_forgetting="none")
    else:
        how = config

    described: dict[str, Any] = {}
    if config.lora_by_repository and step.parent:
        before = chain.read(step.parent)
        described["digests"] = {**before.about.get("digests", {}), before.task: before.about["digest"]}
    return make_checkpoint(
        chain,
        step,
        lambda: RetrieverTraining(how, step.start, reports, rows=rows, on_held=on_held),
        lambda: (lesson, described),
    )


def _data_digest(lesson: Lesson, rows: Mapping[str, Lesson]) -> str:
    """Return the SHA-256 of a run's whole input, with the val split (it chooses the best epoch) and replayed rows."""
    parts = [
        dataset_digest(lesson.corpus, lesson.train),
        dataset_digest(lesson.corpus, lesson.val),
        *(part for name, own in rows.items() for part in (name, dataset_digest(own.corpus, own.train))),
    ]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def measure(
    model: Retriever | Path | str,
    task: TaskData,
    config: RetrieverConfig,
    *,
    split: str = "test",
    indices: Path | None = None,
    on_batch: OnStep = lambda _done, _total: None,
) -> Evaluation:
    """Measure a model on one split of a task's dataset.

    Args:
        model: a retriever with the lengths of `config`, a checkpoint's folder, or a hub name.
        task: of the dataset.
        config: lengths, device, seed, and whether baselines are measured beside it.
        split: "test" or "val".
        indices: the folder of embedding indices; None: embeddings are computed and not stored.
        on_batch: takes (steps done, steps in all).

    Raises:
        NothingToLearnError: no step has a premise.
        LearningError: the dataset or the model cannot be used.
    """
    if not isinstance(model, Retriever):
        model = load_retriever(model, device=config.device, config=config)
    corpus = Corpus(task.dataset / "corpus.jsonl")
    path = task.dataset / config.split / f"{split}.json"
    asked = read_examples(path, corpus)
    if not asked:
        raise NothingToLearnError(
            f"no step of {path} uses a premise of {corpus.source}, so there is nothing to measure. Export the dataset "
            "again once theorems are traced"
        )
    vectors = model.premises(corpus, indices)
    own = model.rank(vectors, asked_of(asked, corpus), RETRIEVED, lambda done: on_batch(done, len(asked)))
    rankings = {"": own}
    if config.baselines:
        for name, selector in (("bm25", BM25(corpus)), ("mepo", MePo(corpus))):
            rankings[name] = [selector.rank(*one, RETRIEVED) for one in asked_of(asked, corpus)]
        rankings["fused"] = [[*fused(both, RETRIEVED)] for both in zip(rankings["bm25"], own, strict=True)]
    rated = {
        name: [rate(one.positives, ranking) for one, ranking in zip(asked, of, strict=True)]
        for name, of in rankings.items()
    }
    of_theorems = [(one.file_path, one.full_name) for one in asked]
    metrics: dict[str, float] = {}
    for name, rows in rated.items():
        names = [f"{name} {metric}".lstrip() for metric in METRICS]
        metrics |= summarise(rows, of_theorems, seed=config.seed, names=names)
    return Evaluation(
        metrics=metrics,
        n=len(asked),
        dataset=dataset_digest(corpus, asked),
        scores=by_theorem([row[METRICS.index(_COUNTED)] for row in rated[""]], of_theorems),
    )

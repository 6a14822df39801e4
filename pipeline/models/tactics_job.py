"""The jobs `train_tactics` and `train_grpo` with premises beside the rows: the one place with both models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.jobs.lean import hold_that_it_is_lean, hold_that_lean_is_there
from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import RetrieverSpec, TrainGrpoSpec, TrainTacticsSpec
from pipeline.models.config import TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.finding import load_finder
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.finder import Place
from pipeline.models.tactics.job import TacticsJob
from pipeline.models.tactics.rows import NO_PREMISES, FindPremises, Row, RowPremises


def train(spec: JobSpec[TrainTacticsSpec], reporter: Reporter) -> dict[str, Any]:
    """Train a tactic model on one task, or with Lean's reward on its goals, and measure it on all tasks so far."""
    order = spec.parameters
    config, retriever = TacticsConfig.from_dict(order.config), order.retriever
    premises = NO_PREMISES if retriever is None else row_premises(retriever)
    if not isinstance(order, TrainGrpoSpec):
        return TacticsJob(config, spec, reporter, premises).run()
    # Here, since it loads TRL's trainer and Lean's pool.
    from pipeline.models.tactics.grpo import GrpoJob

    hold_that_lean_is_there(order.lean)
    hold_that_it_is_lean(order.lean)
    return GrpoJob(config, spec, reporter, premises).run()


def row_premises(retriever: RetrieverSpec) -> RowPremises:
    """Return the finder of premises for the rows of a task, among its dataset's."""

    def of(task: TaskData) -> FindPremises:
        finder = load_finder(retriever, Corpus(task.dataset / "corpus.jsonl"), repository=task.name)

        def find(rows: Sequence[Row]) -> list[tuple[str, ...]]:
            requests = [(row.state, Place(row.path, row.start, row.theorem)) for row in rows]
            return [tuple(premise.serialize() for premise in item) for item in finder.find(requests)]

        return find

    return RowPremises(f"{retriever.checkpoint}/{retriever.premises}", of)

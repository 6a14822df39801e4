"""What checkpoints look like in tables and documents: how one is found, its state, its figures, the simulator's mark.

The verbs are in `daemon.cli.models`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.context import Place, one_match, view
from daemon.cli.render import counted, row_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from store.view.rows import CheckpointRow, EvaluationRow

STATES = ("in use", "was in use", "refused", "undecided")
SHOWN = {
    "retriever": ("recall@1", "recall@10", "mrr"),
    "tactics": ("tactic@1", "tactic@8", "token_accuracy"),
    "progress": ("mae", "mse", "within_1"),
}
"""The metrics that tables have, by model; the documents have all."""
WARNING = "SIMULATED: it learned from the simulator, and not from Lean."


def find_checkpoints(place: Place, *prefixes: str) -> list[tuple[CheckpointRow, list[EvaluationRow]]]:
    """The checkpoints with these ids, or beginnings of ids, each with its evaluations, all of one view."""
    from store.view.queries import models as model_queries

    with view(place) as database:
        rows = model_queries.checkpoints(database)
        chosen: list[CheckpointRow] = [
            one_match(
                [row for row in rows if row.checkpoint.startswith(prefix)],
                prefix,
                what="checkpoint",
                key="checkpoint",
                verb="models",
            )
            for prefix in prefixes
        ]
        return [(row, model_queries.evaluations(database, row.checkpoint)) for row in chosen]


def checkpoint_json(row: CheckpointRow, measured: Sequence[EvaluationRow]) -> dict[str, Any]:
    """The document of a checkpoint."""
    from store.domain.promotion import RULES, kind_of, measured_tasks

    metric = RULES[kind_of(row.model)].metric
    tasks = [
        {**row_json(item, "repository", "split", "dataset", "simulated"), metric: item.metrics.get(metric)}
        for item in measured_tasks(measured)
    ]
    return {**row_json(row), "state": state_of(row), "tasks": tasks}


def state_of(row: CheckpointRow) -> str:
    """Which of `STATES` a checkpoint is in."""
    decided = (row.promoted, row.promoted_at, row.refused_at)
    return next((state for state, of in zip(STATES, decided, strict=False) if of), STATES[-1])


def marked(text: str, simulated: bool) -> str:
    """Say beside what is the simulator's that it is."""
    return f"{text} SIMULATED" if simulated else text


def figures(model: str, measured: Sequence[EvaluationRow]) -> str:
    """What the model's rule looks at, on each task: the lowest and the highest of several."""
    from store.domain.promotion import RULES, kind_of, measured_tasks

    metric = RULES[kind_of(model)].metric
    found = sorted(item.metrics[metric] for item in measured_tasks(measured) if metric in item.metrics)
    if not found:
        return "-"
    if len(found) == 1:
        return f"{metric} {found[0]:.4f} on 1 task"
    return f"{metric} {found[0]:.4f} to {found[-1]:.4f} on {counted(len(found), 'task')}"


def task_of(row: EvaluationRow) -> str:
    """What was measured on, for people."""
    from store.domain.promotion import task_name

    return task_name(row.repository, row.split)


def share(metrics: Mapping[str, float] | None, name: str) -> str:
    """A metric for a table; "-" where it was not measured."""
    return f"{metrics[name]:.4f}" if metrics is not None and name in metrics else "-"


def pairs(values: Mapping[str, Any]) -> str:
    """Names and values on one line."""
    return ", ".join(f"{name} {value}" for name, value in values.items())

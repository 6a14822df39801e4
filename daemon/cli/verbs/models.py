"""`everlean models`: the trained checkpoints, their figures by task, and the ones in use.

Shares such as recall@10 are in 0..1 here as everywhere, and mae is in steps; a task's loss is in the unit of
its model's promotion rule, as the tolerance is: points of recall@10 or tactic@8, steps of mae.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from daemon.cli.answer import Answer, Column, Listing, nothing
from daemon.cli.completion import CHECKPOINTS, ids
from daemon.cli.context import GROUPS, Call, CliError, verb
from daemon.cli.options import CheckpointId, Repo
from daemon.cli.render import fields, say, styled, table
from daemon.place.answers import read_answer
from store.documents.checkpoints import (
    Checkpoint,
    Comparison,
    checkpoints_named,
    compare_checkpoints,
    describe_checkpoints,
    task_of,
)
from store.text import ago, clean, size, span
from store.view.rows import EvaluationRow

if TYPE_CHECKING:
    from store.curriculum import CurriculumRepository, Ordered

GROUPS["models"] = "List, compare, export, add and promote trained checkpoints."
ModelName = Literal["retriever", "tactics", "progress"]
Model = Annotated[
    ModelName | None, typer.Option("--model", metavar="M", help="Only: retriever, tactics, progress.")
]
SHOWN = {
    "retriever": ("recall@1", "recall@10", "mrr"),
    "tactics": ("tactic@1", "tactic@8"),
    "progress": ("mae", "mse", "within_1"),
}
"""The metrics in tables, by model; the documents have all."""
COLUMNS: list[Column[Checkpoint]] = [
    Column("ID", lambda item: item.checkpoint),
    Column("MODEL", lambda item: item.model),
    Column("STATE", lambda item: item.state),
    Column("PARENT", lambda item: item.parent or "-"),
    Column("STEPS", lambda item: str(item.steps)),
    Column("SIZE", lambda item: size(item.size_bytes)),
    Column("MEASURED", lambda item: item.figures),
    Column("SAVED", lambda item: ago(item.saved_at)),
]


@dataclass(frozen=True, slots=True)
class Checkpoints:
    checkpoints: list[Checkpoint]
    """oldest first"""


@dataclass(frozen=True, slots=True)
class OneCheckpoint:
    checkpoint: Checkpoint
    evaluations: list[EvaluationRow]
    """oldest first"""


@dataclass(frozen=True, slots=True)
class PutInUse:
    model: str
    """its kind"""
    checkpoint: str
    """in use now"""
    previous: str | None
    """in use before"""
    reason: str
    """as recorded"""


@dataclass(frozen=True, slots=True)
class Offered:
    model: str
    """`retriever`, `tactics` or `progress`"""
    folder: str
    """the model; the chain gets a copy"""
    weights: str
    """their SHA-256"""
    repository: str
    """its test set measures the model, and so do those of all earlier tasks"""
    trace: str | None
    """of the repository; null: its newest one"""
    learned: bool
    """whether the model was trained on the repository"""
    by: str
    """the user"""


@dataclass(frozen=True, slots=True)
class Written:
    checkpoint: str
    format: str
    """`sentence-transformers`, `transformers` or `peft`"""
    place: str
    """the folder"""


@verb("models", Checkpoints, past=True)
def list_(call: Call, model: Model = None) -> Listing[Checkpoint]:
    """List checkpoints, oldest first."""
    from store.view import model_queries

    with call.view() as database:
        result = describe_checkpoints(database, model_queries.checkpoints(database, model))
    return Listing(result, COLUMNS, Checkpoints(result), empty=nothing("checkpoint", model))


@verb("models show", OneCheckpoint, past=True)
def show(call: Call, checkpoint: CheckpointId) -> Answer:
    """Show one checkpoint and its measures."""
    from store.view import model_queries

    with call.view() as database:
        (item,) = describe_checkpoints(database, checkpoints_named(database, checkpoint))
        measured = model_queries.evaluations(database, item.checkpoint)
    return Answer(OneCheckpoint(item, measured), lambda: _show(item, measured, _loss(call, item)))


def _loss(call: Call, item: Checkpoint) -> str:
    """Describe the fall of a training's loss."""
    from pipeline.models.curve import LOSS, read_curve

    if item.curve is None:
        return "not kept"
    with call.log() as log:
        points = read_curve(log.blob(item.curve)).get(LOSS)
    return f"{points[0][1]:.4g} -> {points[-1][1]:.4g}" if points else "no step was logged"


def _show(item: Checkpoint, measured: list[EvaluationRow], loss: str) -> None:
    say(f"{styled(item.checkpoint, 'bold')}  {item.model}, {item.state}")
    fields(
        (
            ("parent", clean(item.parent or f"none: it starts from {item.base}")),
            ("saved", ago(item.saved_at)),
            ("promoted", f"{ago(item.promoted_at)}: {clean(item.reason)}" if item.promoted_at else "never"),
            ("refused", f"{ago(item.refused_at)}: {clean(item.refused_reason)}" if item.refused_at else ""),
            ("removed", f"{ago(item.removed_at)}: {clean(item.removed_reason)}" if item.removed_at else ""),
            ("trained on", f"the log up to event {item.data_seq}"),
            ("steps", f"{item.steps}, seed {item.seed}, {span(item.seconds)} on {clean(item.device)}"),
            ("config", clean(_pairs(item.config))),
            ("versions", clean(_pairs(item.versions))),
            ("weights", f"{item.weights} ({size(item.size_bytes)})"),
            ("loss", loss),
            ("job", item.job),
        )
    )
    if not measured:
        say("not measured yet")
        return
    from pipeline.models.measures import BASELINES, baselines_of
    from store.promotion import finds_premises

    if item.model == "retriever":
        finds = finds_premises(item.checkpoint, measured).split("+")
        names = " and ".join(BASELINES.get(one, "this retriever") for one in finds)
        say(f"while it is in use, premises are found by {names}")
    say(styled("measured", "bold"))
    table(
        ("TASK", "N", *(name.upper() for name in SHOWN[item.model]), "DATASET", "WHEN"),
        [
            (
                f"  {BASELINES[who]}" if who else task_of(row),
                str(row.n),
                *(_share(metrics, name) for name in SHOWN[item.model]),
                row.dataset[:12],
                ago(row.recorded_at),
            )
            for row in measured
            for who, metrics in baselines_of(row.metrics).items()
        ],
    )


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _share(metrics: Mapping[str, float] | None, name: str) -> str:
    return f"{metrics[name]:.4f}" if metrics is not None and name in metrics else "-"


@verb("models compare", Comparison, past=True)
def compare(
    call: Call,
    before: Annotated[
        str,
        typer.Argument(metavar="A", help="The checkpoint to compare with.", autocompletion=ids(CHECKPOINTS)),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="B", help="The checkpoint that might take its place.", autocompletion=ids(CHECKPOINTS)
        ),
    ],
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="P",
            min=0,
            help="What a task may lose, in points (progress: steps); default: as configured.",
        ),
    ] = None,
) -> Answer:
    """Set two checkpoints side by side, task by task."""
    from store.promotion import kind_of

    with call.view() as database, call.log() as log:
        old, new = checkpoints_named(database, before, after)
        allowed = tolerance if tolerance is not None else call.settings.train.tolerance(kind_of(old.model))
        result = compare_checkpoints(database, old, new, tolerance=allowed, read_blob=log.blob)
    return Answer(result, lambda: _show_comparison(result))


def _show_comparison(comparison: Comparison) -> None:
    say(f"{styled(comparison.before, 'bold')} -> {styled(comparison.after, 'bold')}  {comparison.model}")
    metrics = SHOWN[comparison.model]
    if comparison.tasks:
        table(
            ("TASK", *(name.upper() for name in metrics), comparison.unit.upper(), ""),
            [
                (
                    task.name,
                    *(f"{_share(task.before, name)} -> {_share(task.after, name)}" for name in metrics),
                    comparison.moved(task),
                    task.problem,
                )
                for task in comparison.tasks
            ],
        )
    say(clean(comparison.text))


@verb("models export", Written)
def export(
    call: Call,
    checkpoint: CheckpointId,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")],
    repository: Annotated[
        str | None,
        typer.Option(
            "--repository",
            metavar="REPO",
            help="Whose adapter, where a checkpoint has one for each repository.",
        ),
    ] = None,
) -> Answer:
    """Write a checkpoint as a folder for other programs."""
    try:
        from pipeline.models.sharing import shared_of, write_shared

        with call.view() as database:
            (row,) = checkpoints_named(database, checkpoint)
            shared = shared_of(database, call.instance.paths.models, row, repository=repository)
        write_shared(shared, out.absolute())
    except ImportError as error:
        raise CliError(
            f"{error.name} is not installed; install the extra for training: pip install 'everlean[train]'"
        ) from error
    result = Written(row.checkpoint, shared.format, str(out))
    return Answer(result, f"{result.checkpoint}: {clean(result.place)}, as {result.format}")


@verb("models add", Offered)
def add(
    call: Call,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="The model, as a trainer or `hf download` left it.", exists=True
        ),
    ],
    repo: Annotated[
        str | None,
        typer.Option(
            "--repo",
            metavar="REPO",
            help="The repository that it was trained on. Default: none; the one traced last then measures it.",
        ),
    ] = None,
    model: Annotated[
        ModelName | None,
        typer.Option("--model", metavar="M", help="The kind of model. Default: as its files say."),
    ] = None,
) -> Answer:
    """Measure a model from elsewhere, and promote it by the rule."""
    from pipeline.models.added import kind_of
    from pipeline.models.errors import CheckpointError
    from pipeline.models.model_files import begun
    from store.view import trace_queries

    place = folder.resolve()
    try:
        kind = kind_of(place)
    except CheckpointError as error:
        raise CliError(str(error)) from error
    if repo is None:
        with call.view() as database:
            traces = trace_queries.newest_traces(database)
        if not traces:
            raise CliError("no repository is traced yet, and a model is measured on the theorems of one")
        key = max(traces, key=lambda row: row.seq).repository
    else:
        key = call.key(repo)
    options = {"model": model or kind, "folder": str(place), "weights": begun(place), "repository": key}
    result = read_answer(Offered, call.command("/offer", **options, trace=None, learned=repo is not None))
    return Answer(
        result,
        f"{result.folder}: will be measured as a {result.model} model on {result.repository} and on all earlier tasks; "
        "`everlean models` shows the result and the decision",
    )


@verb("models promote", PutInUse)
def promote(
    call: Call,
    checkpoint: CheckpointId,
    model: Annotated[
        ModelName | None, typer.Option("--model", metavar="M", help="Refuse a checkpoint of another model.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also where the promotion rule does not let it.")
    ] = False,
) -> Answer:
    """Put a checkpoint in use, if the promotion rule allows it."""
    with call.view() as database:
        (row,) = checkpoints_named(database, checkpoint)
    if model not in (None, row.model):
        raise CliError(
            f"{row.checkpoint} is a checkpoint of {row.model}, not of {model}; leave --model out to promote it"
        )
    return _put_in_use(
        read_answer(PutInUse, call.command("/promote", checkpoint=row.checkpoint, force=force))
    )


@verb("models rollback", PutInUse)
def rollback(
    call: Call,
    model: Annotated[
        ModelName,
        typer.Option("--model", metavar="M", show_default=False, help="Of which model; default: retriever."),
    ] = "retriever",
) -> Answer:
    """Put the previous checkpoint in use again."""
    return _put_in_use(read_answer(PutInUse, call.command("/rollback", model=model)))


def _put_in_use(done: PutInUse) -> Answer:
    before = f" instead of {done.previous}" if done.previous else ""
    return Answer(done, f"{done.checkpoint} is in use for {done.model}{before}: {clean(done.reason)}")


# ---- The order in which repositories are learned


@verb("curriculum", "store.curriculum:Ordered", past=True)
def curriculum(
    call: Call,
    repo: Repo = None,
    compat: Annotated[
        bool, typer.Option("--compat", help="LeanDojo-v2's own buckets and order, with their faults.")
    ] = False,
) -> Listing[Any]:
    """Order the traced repositories by how easy their theorems are."""
    from store import curriculum as store_curriculum
    from store.documents.lookup import one_of

    with call.view() as database:
        result = store_curriculum.curriculum(database, compat=compat)
    keys = sorted({row.repository for row in result.repositories})
    only = one_of(keys, repo, lists="everlean curriculum") if repo and keys else None
    document = store_curriculum.Ordered.of(result, only)
    return Listing(
        document.repositories,
        [
            Column("", lambda row: str(row.order)),
            Column("REPOSITORY", lambda row: row.repository, shrink=True, name=True),
            Column("COMMIT", lambda row: row.sha[:10], spare=1),
            Column("THEOREMS", lambda row: str(row.theorems)),
            Column("EASY", lambda row: str(row.easy)),
            Column("MEDIUM", lambda row: str(row.medium)),
            Column("HARD", lambda row: str(row.hard)),
            # Only LeanDojo-v2 has a bucket of its own for sorries.
            *([Column("NO PROOF", _no_proof)] if compat else []),
            Column("SORRIES", lambda row: str(row.sorries)),
            Column("NO STEPS", lambda row: str(row.proofless), spare=3),
            Column("FILES", _files, spare=2),
        ],
        document,
        empty="no repository is traced yet; `everlean import leandojo FILE|DIR` imports LeanDojo's traces",
        total=_buckets(document),
    )


def _no_proof(row: CurriculumRepository) -> str:
    return str(row.no_proof)


def _files(row: CurriculumRepository) -> str:
    if not row.files_failed:
        return f"{row.files_traced} (100%)"
    # Rounded down: an incomplete trace must not read as 100%.
    percent = math.floor(row.completeness * 1000) / 10
    return f"{row.files_traced} ({percent}%, {row.files_failed} failed)"


def _buckets(order: Ordered) -> str:
    limits = order.thresholds
    text = "no proof has steps: theorems are dealt out evenly"
    if limits is not None:
        easy, medium = limits.easy.long_text, limits.medium.long_text
        text = f"easy: proofs of up to {easy}; medium: up to {medium}; hard: longer ones"
    if order.compat:
        return f"{text}\nthese are LeanDojo-v2's buckets, limits and order; without --compat their faults are mended"
    return f"{text}\ntheorems with a sorry, or without steps, are dealt out evenly over the three"

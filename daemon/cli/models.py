"""`everlean models`: the trained checkpoints, how each did on which task, and which one is in use.

Shares such as recall@10 are in 0..1 here as everywhere, and mae is in steps; what a task lost is in the unit of its
model's promotion rule, as the tolerance is: points of recall@10 or tactic@8, steps of mae.
What learned from the simulator is marked SIMULATED wherever it is named, and so are measurements on its data.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.answers import read_answer
from daemon.cli.completion import CHECKPOINTS, ids, one_of
from daemon.cli.context import AsOf, CliError, Config, ExitCode, Json, Repo, locate, view
from daemon.cli.render import (
    check_choice,
    emit_json,
    fields,
    given_before,
    listing_group,
    note,
    say,
    styled,
    table,
)
from daemon.instance import Instance, command
from store.documents.checkpoints import Checkpoint, describe_checkpoints, marked, task_of
from store.documents.lookup import one_match
from store.text import ago, clean, size, span
from store.view.rows import CheckpointRow, EvaluationRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.models.sharing import Shared
    from store.curriculum import Curriculum, CurriculumRepository
    from store.events.models import ModelKind
    from store.promotion import Decision, Rule, TaskChange

MODELS = ("retriever", "tactics", "progress")

Model = Annotated[
    str | None,
    typer.Option("--model", metavar="M", help=f"Only: {', '.join(MODELS)}.", autocompletion=one_of(MODELS)),
]
CheckpointId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A checkpoint's id, or its beginning.", autocompletion=ids(CHECKPOINTS)
    ),
]


def register(app: typer.Typer) -> None:
    group = listing_group(
        list_,
        help_text="List trained checkpoints, compare two, promote one, or go back to the one before.",
        list_help="List checkpoints, oldest first (the same as no verb).",
    )
    group.command("show", help="Show one checkpoint and how it did.")(show)
    group.command("compare", help="Set two checkpoints side by side, task by task.")(compare)
    group.command("promote", help="Put a checkpoint in use, if the promotion rule lets it.")(promote)
    group.command("rollback", help="Put the checkpoint in use again that was in use before.")(rollback)
    group.command("export", help="Write a checkpoint as a folder that other programs load.")(export)
    group.command("push", help="Put a checkpoint into a repository of the hub.")(push)
    app.add_typer(group, name="models")
    app.command("curriculum", help="Order the traced repositories by how easy their theorems are.")(
        curriculum
    )


def list_(
    model: Model = None,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.view import model_queries

    check_choice(model, MODELS, option="--model")
    instance = locate(config, as_of)
    with view(instance) as database:
        found = describe_checkpoints(database, model_queries.checkpoints(database, model))
    if as_json:
        emit_json(Checkpoints(found), instance.head)
        return
    if not found:
        say("no checkpoint of this model was saved yet" if model else "no checkpoint was saved yet")
        return
    table(
        ("ID", "MODEL", "STATE", "PARENT", "STEPS", "SIZE", "MEASURED", "SAVED"),
        [
            (
                item.checkpoint,
                item.model,
                item.state_text,
                item.parent or "-",
                str(item.steps),
                size(item.size_bytes),
                item.figures,
                ago(item.saved_at),
            )
            for item in found
        ],
    )


def show(
    checkpoint: CheckpointId,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config, as_of)
    ((row, measured),) = find_checkpoints(instance, checkpoint)
    if as_json:
        emit_json(OneCheckpoint(row, measured), instance.head)
        return
    say(f"{styled(row.checkpoint, 'bold')}  {row.model}, {row.state_text}")
    if row.simulated:
        say(styled(WARNING, "yellow"))
    fields(
        (
            ("parent", clean(row.parent or f"none: it starts from {row.base}")),
            ("saved", ago(row.saved_at)),
            ("promoted", f"{ago(row.promoted_at)}: {clean(row.reason)}" if row.promoted_at else "never"),
            *([("refused", f"{ago(row.refused_at)}: {clean(row.refused_reason)}")] if row.refused_at else []),
            *([("removed", f"{ago(row.removed_at)}: {clean(row.removed_reason)}")] if row.removed_at else []),
            ("trained on", f"the log up to event {row.data_seq}"),
            ("steps", f"{row.steps}, seed {row.seed}, {span(row.seconds)} on {clean(row.device)}"),
            ("config", clean(pairs(row.config))),
            ("versions", clean(pairs(row.versions))),
            ("weights", f"{row.weights} ({size(row.size_bytes)})"),
            ("fisher", row.fisher or "none"),
            ("loss", _loss(instance, row)),
            ("job", row.job),
        )
    )
    if not measured:
        say("not measured yet")
        return
    from pipeline.models.measures import BASELINES, baselines_of

    say(styled("measured", "bold"))
    table(
        ("TASK", "N", *(name.upper() for name in SHOWN[row.model]), "DATASET", "WHEN"),
        [
            (
                f"  {BASELINES[who]}" if who else task_of(item),
                str(item.n),
                *(share(metrics, name) for name in SHOWN[row.model]),
                item.dataset[:12],
                ago(item.recorded_at),
            )
            for item in measured
            for who, metrics in baselines_of(item.metrics).items()
        ],
    )


def _loss(instance: Instance, row: CheckpointRow) -> str:
    """Say how the loss of a training fell."""
    from pipeline.models.curve import LOSS, read_curve
    from store.log.reader import LogReader

    if row.curve is None:
        return "not kept"
    with LogReader.open(instance.paths.events_db) as log_reader:
        points = read_curve(log_reader.blob(row.curve)).get(LOSS)
    return f"{points[0][1]:.4g} -> {points[-1][1]:.4g}" if points else "no step was logged"


def compare(
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
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store import promotion
    from store.log.reader import LogReader

    instance = locate(config, as_of)
    (old, _), (new, _) = find_checkpoints(instance, before, after)
    if old.model != new.model:
        raise CliError(
            f"{old.checkpoint} is a checkpoint of {old.model} and {new.checkpoint} of {new.model}; only two of one"
            " model can be compared"
        )
    model = promotion.kind_of(old.model)
    rule = promotion.RULES[model]
    allowed = _tolerance(instance, model) if tolerance is None else tolerance
    if allowed > rule.widest:
        raise typer.BadParameter(
            f"{allowed:g} is more than {rule.widest:g} {rule.unit} of {rule.metric}", param_hint="--tolerance"
        )
    with view(instance) as database, LogReader.open(instance.paths.events_db) as log_reader:
        decision = promotion.decide(
            *promotion.read_sides(database, new, old), rule=rule, tolerance=allowed, read_blob=log_reader.blob
        )
    if as_json:
        compared = Comparison(
            before=old.checkpoint,
            before_simulated=old.simulated,
            after=new.checkpoint,
            after_simulated=new.simulated,
            model=old.model,
            metric=rule.metric,
            unit=rule.unit,
            tolerance=allowed,
            verdict=decision.verdict,
            reason=decision.reason,
            tasks=decision.tasks,
        )
        emit_json(compared, instance.head)
        return
    names = (marked(styled(row.checkpoint, "bold"), simulated=row.simulated) for row in (old, new))
    say(f"{' -> '.join(names)}  {old.model}")
    if decision.tasks:
        table(
            ("TASK", *(name.upper() for name in SHOWN[model]), rule.unit.upper(), ""),
            [_compared(task, rule, SHOWN[model]) for task in decision.tasks],
        )
    say(clean(_said(decision)))


def promote(
    context: typer.Context,
    checkpoint: CheckpointId,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="M",
            help="Refuse a checkpoint of another model.",
            autocompletion=one_of(MODELS),
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also where the promotion rule does not let it.")
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    check_choice(model, MODELS, option="--model")
    instance = _now(context, config)
    ((row, _),) = find_checkpoints(instance, checkpoint)
    if model not in (None, row.model):
        raise CliError(
            f"{row.checkpoint} is a checkpoint of {row.model}, not of {model}; leave --model out to promote it"
        )
    answer = command(instance, "/promote", {"checkpoint": row.checkpoint, "force": force})
    _tell(instance, answer, as_json)


@dataclass(frozen=True, slots=True)
class PutInUse:
    model: str
    """which one"""
    checkpoint: str
    """in use now"""
    previous: str | None
    """in use before"""
    reason: str
    """as recorded"""
    simulated: bool
    """the one in use now learned from the simulator"""


def rollback(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="M",
            show_default=False,
            help="Of which model; default: retriever.",
            autocompletion=one_of(MODELS),
        ),
    ] = "retriever",
    config: Config = None,
    as_json: Json = False,
) -> None:
    check_choice(model, MODELS, option="--model")
    instance = _now(context, config)
    answer = command(instance, "/rollback", {"model": model})
    _tell(instance, answer, as_json)


def _tell(instance: Instance, answer: dict[str, Any], as_json: bool) -> None:
    done = read_answer(PutInUse, answer)
    if as_json:
        emit_json(done, instance.head)
        return
    before = f" instead of {done.previous}" if done.previous else ""
    say(
        f"{marked(done.checkpoint, simulated=done.simulated)} is in use for {done.model}{before}: {clean(done.reason)}"
    )


def _now(context: typer.Context, config: Path | None) -> Instance:
    """Locate the daemon for a verb that changes something; refuse --as-of."""
    if given_before(context, "as_of"):
        raise typer.BadParameter("what is past cannot be changed; leave it out", param_hint="--as-of")
    return locate(config)


def _tolerance(instance: Instance, model: ModelKind) -> float:
    from daemon.settings import load
    from daemon.settings.errors import ConfigError

    try:
        return load(instance.config).train.tolerance(model)
    except ConfigError as error:
        raise CliError(
            f"{instance.config}: not valid, so its [train] tolerance is not known; `everlean config check` says why, or"
            " give --tolerance",
            code=ExitCode.BAD_CONFIG,
        ) from error


def _compared(task: TaskChange, rule: Rule, shown: Sequence[str]) -> Sequence[str]:
    cells = [f"{share(task.before, name)} -> {share(task.after, name)}" for name in shown]
    # As the metric moves: up or down, whichever is better.
    moved = "-" if task.lost is None else f"{task.lost if rule.lower_is_better else -task.lost:+.2f}"
    return (task.name, *cells, moved, task.problem)


def _said(decision: Decision) -> str:
    verdicts = {
        "promote": "may be promoted",
        "refuse": "may not be promoted",
        "unknown": "may not be promoted",
    }
    return f"{verdicts[decision.verdict]}: {decision.reason}"


SHOWN = {
    "retriever": ("recall@1", "recall@10", "mrr"),
    "tactics": ("tactic@1", "tactic@8", "token_accuracy"),
    "progress": ("mae", "mse", "within_1"),
}
"""The metrics that tables have, by model; the documents have all."""
WARNING = "SIMULATED: it learned from the simulator, and not from Lean."


def find_checkpoints(instance: Instance, *prefixes: str) -> list[tuple[Checkpoint, list[EvaluationRow]]]:
    """The checkpoints with these ids, or beginnings of ids, each with its evaluations, all of one view."""
    from store.view import model_queries

    with view(instance) as database:
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
        found = describe_checkpoints(database, chosen)
        return [(item, model_queries.evaluations(database, item.checkpoint)) for item in found]


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
class Comparison:
    before: str
    """the id of A"""
    before_simulated: bool
    """it learned from the simulator"""
    after: str
    """the id of B"""
    after_simulated: bool
    """it learned from the simulator"""
    model: str
    """of both"""
    metric: str
    """`recall@10`, `tactic@8` or `mae`"""
    unit: str
    """of losses and tolerance: `points` (100 are all) or `steps`"""
    tolerance: float
    """in that unit"""
    verdict: str
    """`promote`, `refuse` (it loses too much) or `unknown`"""
    reason: str
    """in a sentence"""
    tasks: tuple[TaskChange, ...]
    """by name"""


def share(metrics: Mapping[str, float] | None, name: str) -> str:
    """A metric for a table; "-" where it was not measured."""
    return f"{metrics[name]:.4f}" if metrics is not None and name in metrics else "-"


def pairs(values: Mapping[str, Any]) -> str:
    """Names and values on one line."""
    return ", ".join(f"{name} {value}" for name, value in values.items())


@dataclass(frozen=True, slots=True)
class Threshold:
    steps: float | None
    difficulty: float | None
    text: str
    """like `e^4`"""


@dataclass(frozen=True, slots=True)
class Thresholds:
    easy: Threshold
    medium: Threshold


@dataclass(frozen=True, slots=True)
class Ordered:
    compat: bool
    """whether these are LeanDojo-v2's own"""
    thresholds: Thresholds | None
    """both inclusive; null where no proof has steps"""
    repositories: list[CurriculumRepository]
    """in order"""


def curriculum(
    repo: Repo = None,
    compat: Annotated[
        bool, typer.Option("--compat", help="LeanDojo-v2's own buckets and order, with their faults.")
    ] = False,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Also traces that the simulator made.")
    ] = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store import curriculum as store_curriculum

    instance = locate(config, as_of)
    with view(instance) as database:
        found = store_curriculum.curriculum(database, compat=compat, simulated=simulated)
        left_out = 0 if found.repositories else _simulated(database)
    shown = _only(found, repo)
    if as_json:
        emit_json(Ordered(found.compat, _thresholds(found), shown), instance.head)
    elif shown:
        _show(found, shown)
    elif left_out:
        say("only the simulator has traced anything; `everlean curriculum --simulated` shows that")
    else:
        say("no repository is traced yet; `everlean import leandojo FILE|DIR` brings in what LeanDojo traced")


def _simulated(database: sqlite3.Connection) -> int:
    from store.view import trace_queries

    return sum(row.simulated for row in trace_queries.newest_traces(database, simulated=True))


def _only(found: Curriculum, name: str | None) -> list[CurriculumRepository]:
    """The rows of one repository, by its key or the end of it. A traced one need not be on the watchlist."""
    if name is None or not found.repositories:
        return list(found.repositories)
    keys = sorted({row.repository for row in found.repositories})
    near = [key for key in keys if key.lower().endswith("/" + name.lower().removesuffix(".git"))]
    if name not in keys and len(near) > 1:
        raise CliError(f'"{name}" may be {", ".join(near)}; write the whole key')
    if name not in keys and not near:
        raise CliError(f'no traced repository is called "{name}"; `everlean curriculum` lists them')
    key = name if name in keys else near[0]
    return [row for row in found.repositories if row.repository == key]


def _thresholds(found: Curriculum) -> Thresholds | None:
    from store.curriculum import rating

    if found.thresholds is None:
        return None
    easy, medium = (
        Threshold(_finite(steps), rating(steps), _power(steps))
        for steps in (found.thresholds.easy, found.thresholds.medium)
    )
    return Thresholds(easy, medium)


def _show(found: Curriculum, shown: list[CurriculumRepository]) -> None:
    # Only LeanDojo-v2 has a bucket of its own for sorries.
    fourth = ("NO PROOF",) if found.compat else ()
    headers = (
        "",
        "REPOSITORY",
        "COMMIT",
        "THEOREMS",
        "EASY",
        "MEDIUM",
        "HARD",
        *fourth,
        "SORRIES",
        "NO STEPS",
    )
    table(
        (*headers, "FILES"),
        [
            (
                str(row.order),
                f"{row.repository} SIMULATED" if row.simulated else row.repository,
                row.sha[:10],
                *(
                    str(number)
                    for number in (
                        row.theorems,
                        row.easy,
                        row.medium,
                        row.hard,
                        *((row.no_proof,) if found.compat else ()),
                        row.sorries,
                        row.proofless,
                    )
                ),
                _files(row),
            )
            for row in shown
        ],
        shrink=(1,),
        spare=(2, len(headers), len(headers) - 1),
        names=(1,),
    )
    if found.thresholds is None:
        say("no proof has steps: theorems are dealt out evenly")
    else:
        easy, medium = found.thresholds.easy, found.thresholds.medium
        say(f"easy: proofs of up to {_steps(easy)}; medium: up to {_steps(medium)}; hard: longer ones")
    if found.compat:
        say("these are LeanDojo-v2's buckets, limits and order; without --compat their faults are mended")
    else:
        say("theorems with a sorry, or without steps, are dealt out evenly over the three")


def _files(row: CurriculumRepository) -> str:
    if not row.files_failed:
        return f"{row.files_traced} (100%)"
    # Rounded down: what is not whole must not read as 100%.
    percent = math.floor(row.completeness * 1000) / 10
    return f"{row.files_traced} ({percent}%, {row.files_failed} failed)"


def _steps(steps: float) -> str:
    from store.curriculum import rating

    value = rating(steps)
    known = "" if value is None else f" = {value:.4g}"
    return f"{steps:.4g} steps ({_power(steps)}{known})"


def _power(steps: float) -> str:
    return f"e^{steps:.4g}"


def _finite(value: float) -> float | None:
    """JSON has no infinity and no NaN, which LeanDojo-v2's limits can be."""
    return value if math.isfinite(value) else None


# ---- A checkpoint for other programs: see `pipeline.models.sharing`


_FORMATS = ("sentence-transformers", "transformers", "peft")
_Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="F",
        help=f"One of {', '.join(_FORMATS)}; default: what the model usually is, an adapter peft.",
        autocompletion=one_of(_FORMATS),
    ),
]


_Adapter = Annotated[
    str | None,
    typer.Option(
        "--repository", metavar="REPO", help="Whose adapter, where a checkpoint has one for each repository."
    ),
]


@dataclass(frozen=True, slots=True)
class Written:
    checkpoint: str
    format: str
    """`sentence-transformers`, `transformers` or `peft`"""
    place: str
    """the folder, or the address of the hub's repository"""
    simulated: bool
    """it learned from the simulator"""


def export(
    checkpoint: CheckpointId,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")],
    wanted: _Format = None,
    repository: _Adapter = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config)
    with _failures():
        from pipeline.models.sharing import write_shared

        shared = _shared(instance, checkpoint, repository)
        written = write_shared(shared, out.absolute(), wanted)
    _tell_written(instance, Written(shared.row.checkpoint, written, str(out), shared.row.simulated), as_json)


def push(
    checkpoint: CheckpointId,
    place: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="The hub's repository, made if need be.")
    ],
    wanted: _Format = None,
    repository: _Adapter = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let all see a repository that is made; else it is private.")
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config)
    # For this verb alone.
    import tempfile

    with _failures(), tempfile.TemporaryDirectory(prefix="everlean-") as folder:
        from pipeline.models import sharing

        shared = _shared(instance, checkpoint, repository)
        written = shared.format(wanted)
        place = sharing.push(shared, place, Path(folder) / "model", wanted=wanted, public=public)
    _tell_written(instance, Written(shared.row.checkpoint, written, place, shared.row.simulated), as_json)


def _shared(instance: Instance, checkpoint: str, repository: str | None) -> Shared:
    """Return what is known of a checkpoint whose files are there, or of a repository's adapter in it."""
    from pipeline.models.sharing import shared_of

    ((row, measured),) = find_checkpoints(instance, checkpoint)
    with view(instance) as database:
        return shared_of(database, instance.paths.models, row, measured, repository=repository)


@contextmanager
def _failures() -> Iterator[None]:
    from pipeline.models.errors import LearningError

    try:
        yield
    except LearningError as error:
        raise CliError(str(error)) from error
    except ImportError as error:
        raise CliError(
            f"{error.name} is not installed; install everlean with what trains models: pip install 'everlean[train]'"
        ) from error


def _tell_written(instance: Instance, written: Written, as_json: bool) -> None:
    if written.simulated:
        note("everlean: it learned from the simulator, and not from Lean; its card says so")
    if as_json:
        emit_json(written, instance.head)
    else:
        say(f"{written.checkpoint}: {clean(written.place)}, as {written.format}")

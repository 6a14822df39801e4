"""`unsorry models export` and `push`: a checkpoint for other programs (`pipeline.models.sharing`)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.completion import CHECKPOINTS, ids, one_of
from daemon.cli.context import CliError, Config, Instance, Json, locate, view
from daemon.cli.models import find_checkpoints
from daemon.cli.render import clean, emit_json, note, say

if TYPE_CHECKING:
    from pipeline.models.sharing import Shared

_FORMATS = ("sentence-transformers", "transformers", "peft")
_Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A checkpoint's id, or its beginning.", autocompletion=ids(CHECKPOINTS)
    ),
]
_Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="F",
        help=f"One of {', '.join(_FORMATS)}; default: what the model usually is, an adapter peft.",
        autocompletion=one_of(_FORMATS),
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
    checkpoint: _Checkpoint,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")],
    wanted: _Format = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config)
    with _failures():
        from pipeline.models.sharing import write_shared

        shared = _shared(instance, checkpoint)
        written = write_shared(shared, out.absolute(), wanted)
    _tell(instance, Written(shared.row.checkpoint, written, str(out), shared.row.simulated), as_json)


def push(
    checkpoint: _Checkpoint,
    repository: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="The hub's repository, made if need be.")
    ],
    wanted: _Format = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let all see a repository that is made; else it is private.")
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config)
    with _failures(), tempfile.TemporaryDirectory(prefix="unsorry-") as folder:
        from pipeline.models import sharing

        shared = _shared(instance, checkpoint)
        written = shared.format(wanted)
        place = sharing.push(shared, repository, Path(folder) / "model", wanted=wanted, public=public)
    _tell(instance, Written(shared.row.checkpoint, written, place, shared.row.simulated), as_json)


def _shared(instance: Instance, checkpoint: str) -> Shared:
    """Return what is known of a checkpoint whose files are there."""
    from pipeline.models.sharing import Shared
    from store.view import model_queries

    ((row, measured),) = find_checkpoints(instance, checkpoint)
    if row.removed_at is not None:
        raise CliError(f"{row.checkpoint}: its files were removed, {clean(row.removed_reason)}")
    with view(instance) as database:
        learned = model_queries.learned(database, row.model)
    links = reversed(model_queries.ancestry(learned, row.checkpoint))
    repositories = tuple(dict.fromkeys(link.repository for link in links))
    return Shared(instance.paths.models / row.model, row, measured, repositories)


@contextmanager
def _failures() -> Iterator[None]:
    from pipeline.models.errors import LearningError

    try:
        yield
    except LearningError as error:
        raise CliError(str(error)) from error
    except ImportError as error:
        raise CliError(
            f"{error.name} is not installed; install unsorry with what trains models: pip install 'unsorry[train]'"
        ) from error


def _tell(instance: Instance, written: Written, as_json: bool) -> None:
    if written.simulated:
        note("unsorry: it learned from the simulator, and not from Lean; its card says so")
    if as_json:
        emit_json(written, instance.head)
    else:
        say(f"{written.checkpoint}: {clean(written.place)}, as {written.format}")

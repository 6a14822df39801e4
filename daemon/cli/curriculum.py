"""`unsorry curriculum`: in which order to learn from the traced repositories, and how hard their theorems are."""

from __future__ import annotations

import math
import sqlite3
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.context import AsOf, CliError, Config, Json, Repo, locate, view
from daemon.cli.render import emit_json, row_json, say, table

if TYPE_CHECKING:
    from store.curriculum import Curriculum, CurriculumRepository


def register(app: typer.Typer) -> None:
    app.command("curriculum", help="Order the traced repositories by how easy their theorems are.")(
        curriculum
    )


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

    place = locate(config, as_of)
    with view(place) as database:
        found = store_curriculum.curriculum(database, compat=compat, simulated=simulated)
        left_out = 0 if found.repositories else _simulated(database)
    shown = _only(found, repo)
    if as_json:
        emit_json(
            {
                **place.head,
                "compat": found.compat,
                "thresholds": _limits_json(found),
                "repositories": [row_json(row) for row in shown],
            }
        )
    elif shown:
        _show(found, shown)
    elif left_out:
        say("only the simulator has traced anything; `unsorry curriculum --simulated` shows that")
    else:
        say("no repository is traced yet; `unsorry import leandojo FILE|DIR` brings in what LeanDojo traced")


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
        raise CliError(f'no traced repository is called "{name}"; `unsorry curriculum` lists them')
    key = name if name in keys else near[0]
    return [row for row in found.repositories if row.repository == key]


def _limits_json(found: Curriculum) -> dict[str, Any] | None:
    from store.curriculum import rating

    if found.thresholds is None:
        return None
    limits = {"easy": found.thresholds.easy, "medium": found.thresholds.medium}
    return {
        name: {"steps": _finite(steps), "difficulty": rating(steps), "text": _power(steps)}
        for name, steps in limits.items()
    }


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

"""`unsorry repos`: the watched repositories, their tips, when they were last asked, how complete their traces are."""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any

import typer

from daemon.cli.context import AsOf, CliError, Config, Json, locate, view
from daemon.cli.render import ago, clean, emit_json, row_json, say, table

_WHAT = ("files", "theorems", "tactics")
_MEASURED = tuple(f"{what}_{how}" for what in _WHAT for how in ("seen", "traced"))
HEALTHY_STATES = frozenset({"new", "ok"})


def register(app: typer.Typer) -> None:
    app.command("repos", help="List repositories: state, tips, polls, traces.")(repos)


def repos(
    every: Annotated[
        bool, typer.Option("--all", help="Also those that have left the watchlist; --json always has them.")
    ] = False,
    gaps: Annotated[
        bool, typer.Option("--gaps", help="Also everything that the traces lack, each thing with its reason.")
    ] = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config, as_of)
    with view(instance) as database:
        found = described(database, gaps=gaps)
    if as_json:
        emit_json({**instance.head, "repositories": found})
        return
    shown = [item for item in found if item["watched"] or every]
    if not shown:
        say("no repository is watched; add a [[repos]] table to the configuration (docs/configuration.md)")
        return
    show(shown, polls=instance.moment is None)


def described(database: sqlite3.Connection, *, gaps: bool = False) -> list[dict[str, Any]]:
    """Return every repository with its branches and how complete their traces are, as `--json` shows it."""
    from store.view import queries
    from store.view.rows import PolledRepository

    traces = _traces(database, gaps=gaps)
    branches: dict[str, list[dict[str, Any]]] = {}
    for branch in queries.branches(database):
        branches.setdefault(branch.repository, []).append(
            row_json(branch, "branch", "state", "tip", "scanned", "rewrites")
        )
    # `failing_*` is what notifications remember.
    shown = [name for name in PolledRepository.__dataclass_fields__ if not name.startswith("failing_")]
    return [
        {
            **row_json(row, *shown),
            "heads": branches.get(row.repository, []),
            "traces": traces.get(row.repository, []),
        }
        for row in queries.repositories(database)
    ]


def _traces(database: sqlite3.Connection, *, gaps: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the completeness of each branch's newest trace, by repository; with `gaps` also each missing part."""
    from store.view import trace_queries

    found: dict[str, list[dict[str, Any]]] = {}
    for row in trace_queries.newest_measures(database):
        item = {
            "branch": row.line.removeprefix("branch:"),
            **row_json(row, "trace", "sha", *_MEASURED, "n_dependencies", "simulated", "measured_at"),
            "lacking": row.gaps,
        }
        if gaps:
            item["gaps"] = [row_json(gap) for gap in trace_queries.gaps_of_trace(database, row.trace)]
        found.setdefault(row.repository, []).append(item)
    return found


def show(found: list[dict[str, Any]], *, polls: bool = True, problems: bool = True) -> None:
    """Write the table, then (with `problems`) each failing repository's reason and remedy.

    Polls are no events (only what they found is), so an answer as of an earlier moment is shown without them.
    """
    rows = []
    for item in found:
        heads = [head for head in item["heads"] if head["state"] == "live"]
        tips = ", ".join(
            f"{head['branch']} {head['tip'][:10]}{'' if head['scanned'] == head['tip'] else ' (scan due)'}"
            for head in heads[:3]
        ) + (f", {len(heads) - 3} more" if len(heads) > 3 else "")
        asked = (ago(item["checked_at"]), _next(item)) if polls else ()
        rows.append((item["repository"], word(item), *asked, tips or "-"))
    headers = ("REPOSITORY", "STATE", *(("LAST POLL", "NEXT") if polls else ()), "TIP")
    table(headers, rows, shrink=(len(headers) - 1, 0))
    for item in found:
        if problems and item["state"] not in HEALTHY_STATES:
            say(f"  {clean(because(item))}; {clean(item['remedy'])}")
    for item in found:
        gone = {head["branch"] for head in item["heads"] if head["state"] != "live"}
        for trace in item["traces"]:
            if trace["branch"] in gone:
                continue  # --json has it
            say(clean(_completeness(item["repository"], trace)))
            for gap in trace.get("gaps", ()):
                where = f"{gap['path']} {gap['declaration']}".strip()
                say(f"  {clean(gap['kind'])}: {clean(where)}: {clean(gap['reason'])}")


def _completeness(repository: str, trace: dict[str, Any]) -> str:
    """Describe the completeness of a trace in a sentence."""
    shares = ", ".join(f"{trace[f'{what}_traced']} of {trace[f'{what}_seen']} {what}" for what in _WHAT)
    lacking = ", ".join(f"{number} {kind}" for kind, number in trace["lacking"].items())
    mark = "SIMULATED " if trace["simulated"] else ""
    return f"{repository} {trace['branch']} {trace['sha'][:10]}: {mark}trace of {shares}" + (
        f"; gaps: {lacking} (--gaps lists them)" if lacking and "gaps" not in trace else ""
    )


def because(item: dict[str, Any]) -> str:
    """Describe the problem, beginning with the repository."""
    reason = str(item["reason"] or item["state"])
    return reason if reason.startswith(f"{item['repository']}:") else f"{item['repository']}: {reason}"


def word(item: dict[str, Any]) -> str:
    """Return the state as one word, or what the configuration says over it."""
    if not item["watched"]:
        return "unwatched"
    if not item["enabled"]:
        return "disabled"
    marks = [mark for mark, on in (("archived", item["archived"]), ("opt-out", item["opt_out"])) if on]
    return ", ".join([str(item["state"]), *marks])


def _next(item: dict[str, Any]) -> str:
    if not (item["watched"] and item["enabled"]):
        return "-"
    return ago(item["next_due_at"], never="-")


def resolve(database: sqlite3.Connection, name: str | None) -> str | None:
    """Return the key of the one repository that `name` means: its key, or the end of it (owner/name, name)."""

    from store.view import queries

    if name is None:
        return None
    keys = [row.repository for row in queries.repositories(database)]
    if name in keys:
        return name
    near = [key for key in keys if key.lower().endswith("/" + name.lower().removesuffix(".git"))]
    if len(near) == 1:
        return near[0]
    if near:
        raise CliError(f'"{name}" may be {", ".join(near)}; write the whole key')
    raise CliError(f'no repository is called "{name}"; `unsorry repos --all` lists them')

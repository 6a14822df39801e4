"""What `unsorry status` says of the work itself: what is paused, what was triggered, and the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.problems import Problem, problem
from daemon.cli.render import ago, clean
from store.view.queries import jobs as job_queries

if TYPE_CHECKING:
    import sqlite3

    from daemon.cli.live import Live

EMPTY: dict[str, Any] = {"paused": [], "triggered": [], "gpus": []}


def collect(database: sqlite3.Connection, live: Live) -> dict[str, Any]:
    """Return what the view knows of it, and what the living daemon does."""
    return {
        "paused": [
            {"work": row.work, "by": row.by, "reason": row.reason, "since": row.since}
            for row in job_queries.pauses(database)
        ],
        "triggered": [
            {"work": row.work, "repository": row.repository, "by": row.by, "triggered_at": row.triggered_at}
            for row in job_queries.triggers(database)
            if row.waits
        ],
        "gpus": live.status.get("gpus", []),
    }


def problems(work: dict[str, Any]) -> list[Problem]:
    """Say what keeps work from being done, with the remedy."""
    found = [
        problem(
            "work_paused",
            f"{item['work']} is paused by {item['by']}, {ago(item['since'])}"
            + (f": {item['reason']}" if item["reason"] else ""),
            f"unsorry resume {item['work']}",
            severity="warning",
            subject=item["work"],
        )
        for item in work["paused"]
    ]
    for gpu in work["gpus"]:
        if gpu["state"] == "lost":
            text = f"GPU {gpu['index']} ({gpu['name']}) is lost, and its jobs wait: {gpu['detail']}"
            found.append(problem("gpu_lost", text, gpu["remedy"], subject=gpu["uuid"] or None))
    return found


def lines(work: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the lines for people; "" where there is nothing to say."""
    triggered = "; ".join(
        f"{item['work']} {item['repository']} by {clean(item['by'])}" for item in work["triggered"]
    )
    gpus = "; ".join(
        f"{gpu['index']} {clean(gpu['name'])} {gpu['state']}"
        + (f" ({clean(gpu['detail'])})" if gpu["detail"] else "")
        for gpu in work["gpus"]
    )
    return (("triggered", triggered), ("gpus", gpus))

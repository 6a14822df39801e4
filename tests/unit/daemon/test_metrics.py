"""The numbers for Prometheus: well-formed, named by its rules, honest, and all that the dashboard asks for."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from daemon.http.metrics import LiveNumbers, QuotaNumbers, exposition
from daemon.place.answers import Gpu
from store.events.base import EventBody
from store.events.jobs import JobInterrupted, JobSucceeded, WorkPaused
from store.events.repositories import RepositoryFailed
from store.events.scans import SorryOpened
from store.events.service import NotificationFailed, NotificationsSwitched
from store.view import report_queries, tables
from store.view.report_queries import ViewNumbers
from store.view.view import catch_up
from tests.support.events import (
    BRANCH,
    PATCH,
    REPOSITORY,
    declaration,
    file_scanned,
    job_started,
    place,
    proof_checked,
    proof_found,
    proof_rejected,
    proof_verified,
    record,
    scanned,
    sha,
    watched,
)
from tests.support.memory_log import MemoryLog
from tests.support.models import checkpoint_promoted, checkpoint_saved, evaluation_finished

DOCS = Path(__file__).resolve().parents[3] / "docs"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def live(**changes: Any) -> LiveNumbers:
    numbers: dict[str, Any] = {
        "now": NOW,
        "version": "0.1.0",
        "started_at": NOW - timedelta(hours=1),
        "lean": "server",
        "problems": {"error": 1},
        "log_position": 40,
        "log_shipped": 1,
        "waiting": {("scan", "queued"): 2, ("train", "held"): 1},
        "gpus": (Gpu("GPU-1", 0, 'H"200\\', used_bytes=5, memory_bytes=10, state="lent"),),
        "quotas": {"core": QuotaNumbers(4990, 5000, NOW)},
        "requests": {"demo/logic": 3},
        "cache_bytes": 7,
        "cache_limit_bytes": 9,
        "notification_failures": {"webhook": 4},
    }
    return LiveNumbers(**{**numbers, **changes})


def view_of(*bodies: EventBody, payloads: tuple[bytes, ...] = ()) -> ViewNumbers:
    """Project these events in memory, and ask."""
    log = MemoryLog()
    with (
        closing(sqlite3.connect(":memory:", isolation_level=None)) as database,
        TemporaryDirectory() as folder,
    ):
        tables.create(database)
        if bodies:
            record(log, bodies, folder=Path(folder), payloads=payloads)
        catch_up(database, log.reader())
        if bodies:
            database.execute(
                "INSERT INTO poll_states (repository, checked_at, next_due_at, outcome) VALUES (?, ?, ?, 'unchanged')",
                (REPOSITORY, (NOW - timedelta(minutes=2)).isoformat(), NOW.isoformat()),
            )
        return report_queries.numbers(database)


def told() -> ViewNumbers:
    """A world in which something of every sort has happened, some of it twice."""
    scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
    spots = [place(scan, scan.sorries[0], blob=sha("blob", number)) for number in range(3)]
    lean = [proof_found(f"{n:016x}", spot, commit=sha(1)) for n, spot in enumerate(spots)]
    life = {"repository": REPOSITORY, "branch": BRANCH, "sha": sha(1)}
    read, payload = file_scanned(scan, commit=sha(1), blob=sha("blob", 0))
    result = JobSucceeded(job="scan-1", attempt=1, seconds=5.0, peak_rss_bytes=None, summary={})
    return view_of(
        watched(),
        RepositoryFailed(repository=REPOSITORY, problem="gone", reason="404", remedy="look"),
        read,
        SorryOpened(**life, sorry="5a" * 8, place=spots[0], reopened=False),
        job_started(),
        result,
        job_started(attempt=2),
        result.model_copy(update={"attempt": 2, "seconds": 400.0}),
        job_started("scan-2"),
        JobInterrupted(job="scan-2", attempt=1, reason="daemon stopped"),
        job_started("scan-3"),
        *lean,
        lean[0],
        # What is said again counts once.
        *[proof_checked(lean[0])] * 2,
        *[proof_verified(lean[0])] * 2,
        proof_rejected(lean[1]),
        WorkPaused(work="train", by="ada", reason=""),
        checkpoint_saved(),
        evaluation_finished().model_copy(update={"split": "test", "repository": REPOSITORY}),
        checkpoint_promoted(),
        NotificationsSwitched(channel="webhook", kinds=("proof_verified",), position=1),
        NotificationFailed(channel="webhook", problem="refused", reason="500", remedy="look"),
        payloads=(PATCH, payload),
    )


def parsed(text: bytes) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def values(family: Any, name: str | None = None) -> dict[tuple[str, ...], float]:
    """The samples by their labels' values, in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for sample in family.samples
        if name is None or sample.name == name
    }


@pytest.fixture(scope="module")
def metrics() -> dict[str, Any]:
    return parsed(exposition(told(), live()))


def test_every_name_keeps_prometheus_rules(metrics: dict[str, Any]) -> None:
    text = exposition(told(), live()).decode()
    helped = re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE)
    typed = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert [name for name, _ in helped] == list(typed)
    assert len(typed) == len(helped) == len(metrics)
    for name, kind in typed.items():
        assert re.fullmatch(r"everlean_[a-z_]+[a-z]", name)
        assert (kind == "counter") == name.endswith("_total"), name
        # Base units, written out at the end; what has none is counted in its own name.
        assert not re.search(
            r"_(ms|millis\w*|minutes|hours|days|kib|mib|gib|percent|count|sum|bucket)\b", name
        ), name
        assert kind in ("gauge", "counter", "histogram")
    for family in metrics.values():
        for sample in family.samples:
            assert sample.value >= 0
            assert all(re.fullmatch(r"[a-z_]+", label) for label in sample.labels)
    assert text.endswith("\n")


def test_proofs_are_counted_by_their_first_verdict_of_each_kind(metrics: dict[str, Any]) -> None:
    assert values(metrics["everlean_proofs"]) == {
        ("checked",): 1, ("found",): 3, ("rejected",): 1, ("verified",): 1,
    }  # fmt: skip


def test_jobs_are_counted_by_kind_and_their_durations_fall_into_their_intervals(
    metrics: dict[str, Any],
) -> None:
    jobs = values(metrics["everlean_jobs"])
    assert (jobs["scan", "running"], jobs["scan", "interrupted"], jobs["scan", "queued"]) == (1, 1, 2)
    assert (jobs["train", "held"], jobs["train", "failed"]) == (1, 0)
    ends = values(metrics["everlean_job_ends"])
    assert (ends["scan", "succeeded"], ends["scan", "interrupted"]) == (2, 1)
    assert ends["prove", "failed"] == 0, "what never happened is 0 and not absent"
    duration = metrics["everlean_job_duration_seconds"]
    key = ("scan", "succeeded")
    assert values(duration, "everlean_job_duration_seconds_sum") == {key: 405.0}
    assert values(duration, "everlean_job_duration_seconds_count") == {key: 2}
    buckets = {
        sample.labels["le"]: sample.value for sample in duration.samples if sample.name.endswith("_bucket")
    }
    # An interval holds its upper end, as `le` says.
    assert (buckets["1"], buckets["5"], buckets["300"], buckets["900"], buckets["+Inf"]) == (0, 1, 1, 2, 2)


def test_repositories_have_the_age_of_their_poll_their_sorries_and_what_is_wrong(
    metrics: dict[str, Any],
) -> None:
    assert values(metrics["everlean_repository_poll_age_seconds"]) == {(REPOSITORY,): 120}
    assert values(metrics["everlean_repository_problem"]) == {("gone", REPOSITORY): 1}
    sorries = values(metrics["everlean_sorries"])
    assert values(metrics["everlean_theorems"]) == {(REPOSITORY,): 1}
    assert sorries == {
        (REPOSITORY, "open"): 1, (REPOSITORY, "verified"): 0, (REPOSITORY, "filled"): 0, (REPOSITORY, "removed"): 0,
    }  # fmt: skip


def test_the_machine_the_models_the_channels_and_the_pauses_are_there(metrics: dict[str, Any]) -> None:
    assert values(metrics["everlean_gpu_state"])["GPU-1", 'H"200\\', "lent"] == 1
    assert values(metrics["everlean_gpu_state"])["GPU-1", 'H"200\\', "free"] == 0
    assert values(metrics["everlean_forge_quota_remaining"]) == {("core",): 4990}
    assert values(metrics["everlean_retriever_recall_ratio"]) == {
        ("1", REPOSITORY): 0.205, ("10", REPOSITORY): 0.41,
    }  # fmt: skip
    assert values(metrics["everlean_paused"]) == {("poll",): 0, ("train",): 1, ("prove",): 0, ("all",): 0}
    assert values(metrics["everlean_notification_failures"]) == {("webhook",): 4}
    assert values(metrics["everlean_build_info"])


def test_what_is_not_there_has_no_metric_and_an_empty_view_still_has_numbers() -> None:
    metrics = parsed(exposition(view_of(), live(gpus=(), quotas={}, requests={}, waiting={}, log_position=0)))
    assert not {
        "everlean_gpu_state",
        "everlean_forge_quota_remaining",
        "everlean_retriever_recall_ratio",
    } & set(metrics)
    assert values(metrics["everlean_view_lag_events"]) == {(): 0}


def test_every_metric_is_in_the_documentation_with_its_labels_and_no_other_is(
    metrics: dict[str, Any],
) -> None:
    rows = re.findall(
        r"^- `(everlean_[a-z_]+)`(?: \(([^)]*)\))?$",
        (DOCS / "monitoring.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    documented = {name: set(re.findall(r"`([a-z]+)`", labels)) for name, labels in rows}
    there = {
        name + ("_total" if family.type == "counter" else ""): {
            label for sample in family.samples for label in sample.labels if label != "le"
        }
        for name, family in metrics.items()
    }
    assert documented == there


def test_the_dashboard_asks_only_for_what_there_is(metrics: dict[str, Any]) -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text(encoding="utf-8"))
    labels_of: dict[str, set[str]] = {}
    for family in metrics.values():
        for sample in family.samples:
            labels_of.setdefault(sample.name, set()).update(sample.labels)
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    questions = [target["expr"] for panel in panels for target in panel["targets"]]
    questions += [item["query"] for item in dashboard["templating"]["list"] if item["type"] == "query"]
    assert len(panels) >= 12
    for question in questions:
        named = re.findall(r"\b(everlean_[a-z_]+)(?:\{([^}]*)\})?", question)
        assert named, question
        known = {"instance", "job", "le"}
        for name, selector in named:
            assert name in labels_of, question
            assert set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector)) <= labels_of[name] | known, question
            known |= labels_of[name]
        grouped = {
            label.strip() for group in re.findall(r"by\s*\(([^)]*)\)", question) for label in group.split(",")
        }
        assert grouped <= known, question
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))

"""A made-up year of one daemon, for a browser to show."""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tests.support.memory_log
from pipeline.report.page import Report, render
from pipeline.report.writing import write
from store.domain.identity import short_hash
from store.events.base import EventBody
from store.events.jobs import JobFailed, JobSucceeded
from store.events.repositories import RepositoryFailed
from store.events.scans import SorryFilled, SorryOpened, SorryRemoved
from store.log.envelope import Expect, NewEvent
from store.view import queries
from store.view.view import View
from tests.support.browser import Browser
from tests.support.events import (
    PATCH,
    attempt,
    declaration,
    job_started,
    place,
    proof_found,
    proof_rejected,
    proof_verified,
    scanned,
    sha,
    stage,
    watched,
)
from tests.support.memory_log import MemoryLog
from tests.support.models import (
    checkpoint_promoted,
    checkpoint_refused,
    checkpoint_saved,
    evaluation_finished,
)

Told = list[tuple[str, EventBody]]
RTL = "example.org/\u05e9\u05dc\u05d5\u05dd/\u0645\u0646\u0637\u0642"
HOSTILE = "example.org/<script>document.title='broken'</script>/\"'&\u202egro.live"
LONG = "example.org/" + "a-very-long-organisation-name-" * 4 + "/" + "formalisation-of-everything" * 3
NAMES = (
    "github.com/dwrensha/compfiles", "github.com/leanprover-community/mathematics_in_lean", RTL,
    "github.com/AlexKontorovich/PrimeNumberTheoremAnd", HOSTILE, "github.com/ImperialCollegeLondon/FLT", LONG,
    "github.com/teorth/pfr", "github.com/lecopivo/SciLean",
)  # fmt: skip
REASONS = (
    ("axioms", "it rests on sorryAx"), ("compile", "unsolved goals"), ("statement", "another theorem is proved"),
    ("text", "the text holds a command"), ("compile", "<b>unknown identifier</b> & more"),
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    # Not below pytest's own folder: what of it cannot be removed at once would fail the run.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        made = Browser(str(chromium), Path(profile))
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """First pages by what they show: a year with nine tasks, one with three, and nothing at all."""
    events: dict[str, Told] = {"empty": []}
    events["year"] = [
        *sorries(NAMES[:3], random.Random(11)),
        *learned(NAMES, random.Random(3)),
    ]
    events["few"] = [
        *sorries(NAMES[:3], random.Random(11)),
        *learned(NAMES[:2], random.Random(3)),
        *learned(NAMES[:3], random.Random(3)),
    ]
    folder = tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patched:
        return {
            name: write(made(tmp_path_factory.mktemp(name), told, patched), folder / name)[0]
            for name, told in events.items()
        }


def made(folder: Path, events: Told, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Record the events over a year of a clock of their own, and make the report."""
    begins, step = datetime(2025, 11, 1, 6, tzinfo=UTC), timedelta(days=365) / max(1, len(events))
    blobs = dict(stage(folder / "staging", PATCH)[1])
    with MemoryLog() as log, View.open(folder / "database.db", log.reader()) as view:
        for number, (stream, body) in enumerate(events):
            at = (begins + step * number).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            monkeypatch.setattr(tests.support.memory_log, "now_text", lambda at=at: at)
            log.append([NewEvent(stream, body)], expect={stream: Expect.ANY}, blobs=blobs)
        view.catch_up()
        connection = queries.connect(folder / "database.db")
        try:
            return render(connection, made_at=datetime(2026, 11, 1, 8, tzinfo=UTC), blob=log.reader().blob)
        finally:
            connection.close()


def sorries(names: Sequence[str], random_: random.Random) -> Told:
    """Sorries that are opened, tried, proved, filled and removed in several repositories."""
    told: Told = [(f"repository:{name}", watched(repository=name, url=f"https://{name}")) for name in names]
    for number in range(90):
        name = names[number % len(names)]
        commit, blob = sha("commit", name, number), sha("blob", name, number)
        scan = scanned(
            f"Part{number % 7}.lean", [declaration(f"Demo.step_{number}")], with_sorry=[f"Demo.step_{number}"]
        )
        spot = place(scan, scan.sorries[0], blob=blob)
        sorry = short_hash("sorry", name, str(number))
        life = {"repository": name, "branch": "main", "sha": commit, "sorry": sorry}
        told.append((f"repository:{name}", SorryOpened(**life, place=spot, reopened=False)))
        found = proof_found(sorry, spot, commit=commit).model_copy(
            update={"repository": name, "replacement": f"by\n  intro x\n  simp [step_{number}] -- ∀ x, x ≤ x"}
        )
        chance = random_.random()
        if chance < 0.6:
            told.append((f"repository:{name}", found))
            tried = attempt(sorry, spot, commit=commit).model_copy(update={"repository": name})
            told.append((f"repository:{name}", tried))
        if chance < 0.3:
            told.append((f"repository:{name}", proof_verified(found)))
        elif chance < 0.6:
            step, reason = REASONS[int(chance * 100) % len(REASONS)]
            told.append(
                (
                    f"repository:{name}",
                    proof_rejected(found).model_copy(update={"step": step, "reason": reason}),
                )
            )
        if chance < 0.25:
            told.append((f"repository:{name}", SorryFilled(**life, by="us", proof=found.proof)))
        elif chance > 0.75:
            told.append((f"repository:{name}", SorryFilled(**life, by="people", proof=None)))
        elif chance > 0.7:
            told.append((f"repository:{name}", SorryRemoved(**life)))
        told += job(
            f"prove-{number:016x}", random.Random(number).choice(["scan", "trace", "build", "prove"]), number
        )
    told.append((f"repository:{names[-1]}", RepositoryFailed(
        repository=names[-1], problem="unreachable", reason="no route to host", remedy="check the network",
    )))  # fmt: skip
    return told


def job(identity: str, kind: str, number: int) -> Told:
    """A job that ends, in one of three ways."""
    started = job_started(identity).model_copy(update={"kind": kind})
    ended: EventBody = JobSucceeded(
        job=identity, attempt=1, seconds=3.5 * (1 + number % 40), peak_rss_bytes=(1 + number % 9) << 27, summary={},
    )  # fmt: skip
    if number % 13 == 12:
        ended = JobFailed(
            job=identity, attempt=1, reason="out_of_memory", message="it took 9 GiB <of 8>", remedy="raise memory",
            deterministic=True, retry_at=None, seconds=40.0, peak_rss_bytes=9 << 30,
        )  # fmt: skip
    stream = f"job:{identity}"
    return [(stream, started)] if number % 29 == 28 else [(stream, started), (stream, ended)]


def learned(
    names: Sequence[str],
    random_: random.Random,
) -> Told:
    """A chain with one task after another, the earlier ones a little forgotten each time; one try is not promoted."""
    told: Told = []
    before = None
    for number in range(len(names)):
        at = short_hash("checkpoint", str(number))
        found = [0.7 - 0.02 * j - 0.012 * (number - j) + 0.02 * random_.random() for j in range(number + 1)]
        if number == 4:
            # The first try forgets too much, and is tried again with another seed.
            worse = [max(0.0, recall - 0.2) for recall in found]
            told += trained(names, f"{at[:-4]}0bad", before, worse)
            refused = checkpoint_refused(f"{at[:-4]}0bad", in_use=before)
            told.append(("model:retriever", refused))
            told += job("train-failed", "train", 12)
        told += trained(names, at, before, found)
        promoted = checkpoint_promoted(at, previous=before)
        reason = "by the rule: recall@10 falls on none of the earlier tasks"
        told.append(("model:retriever", promoted.model_copy(update={"reason": reason})))
        before = at
    return told


def trained(names: Sequence[str], checkpoint: str, parent: str | None, recalls: Sequence[float]) -> Told:
    """A training run and how its checkpoint did on the test sets so far, and on the newest task's validation set."""
    made = f"train-{checkpoint}"
    told = job(made, "train", 0)
    config = {
        "loss": "mse",
        "against_forgetting": "ewc",
        "lambda_value": 0.1,
        "lr": 0.001,
        "num_negatives": 3,
    }
    saved = checkpoint_saved(checkpoint, parent=parent, job=made, config=config)
    told.append(("model:retriever", saved))
    for j, split in [*((j, "test") for j in range(len(recalls))), (len(recalls) - 1, "val")]:
        recall = recalls[j]
        metrics = {
            "recall@1": recall / 3, "recall@10": recall, "recall@10_low": max(0.0, recall - 0.03),
            "recall@10_high": min(1.0, recall + 0.03), "mrr": recall / 2,
        }  # fmt: skip
        changes = {
            "evaluation": f"{checkpoint}-{j}-{split}", "repository": names[j], "split": split, "job": made,
            "dataset": hashlib.sha256(f"{j}{split}".encode()).hexdigest(), "metrics": metrics,
        }  # fmt: skip
        told.append(("model:retriever", evaluation_finished(checkpoint).model_copy(update=changes)))
    return told

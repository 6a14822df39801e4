"""Simulate a year of a daemon with thousands of repositories, with the project's own planner, ledger, log and view.

    python -m benchmarks.year [--scale 0.0005 0.001 0.002] [--days 365] [--minutes 60] [--inputs benchmarks/year.toml]

A simulation. Time, people's commits, nodes, GPUs and what comes of each job are made up, from the file of inputs
(`benchmarks.year_world`); everything else is what a daemon runs: `Planner.plan` and `complete`, `admit` and the queue
for slots, `Retries`, `Spending`, `EventLog.append_all` and `View.catch_up`, on real files. It leaves out polls, builds,
traces, rung 1 and trainings, and lets each job record all that it found at its end.

Scale 1 is 10,000 repositories, 1,000,000 sorries and 1,000 GPUs. No such run fits into an afternoon: a scale is a share
of the repositories, sorries, GPUs and money, and each runs in a process of its own. Of several it gives the exponent by
which each figure grows with the scale, and says what that would make at scale 1. That is an extrapolation.
With `--minutes` a run ends after so much of the processor's time, and says how many days it came to.

Seconds are the processor's, without what waits for the disk.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import multiprocessing
import os
import random
import sqlite3
import statistics
import tempfile
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from unittest.mock import patch

import psutil

from benchmarks.store_bench import machine, say
from benchmarks.year_world import Course, Inputs, World
from daemon.jobs.due import DueJob
from daemon.jobs.gpus import Gpu
from daemon.jobs.history import Retries
from daemon.jobs.limits import give_back
from daemon.jobs.runner import SlotHolder, ended_event, of_attempt, started_event
from daemon.planning.admission import SHARE_S, Admission, Money, SlotQueue, admit, turn_ends
from daemon.planning.ladder import spending
from daemon.planning.plan import Plan, Planner
from daemon.settings import Settings, load
from pipeline.endpoint.spending import Prices, Spending
from pipeline.jobs.kinds import KINDS
from pipeline.jobs.lines import Failure
from pipeline.jobs.specs import EndpointRung, ProveSpec
from store.errors import LogError
from store.events.base import EventBody
from store.events.jobs import JobInterrupted
from store.log.envelope import Expect, NewEvent, utc_text
from store.log.log import Batch, EventLog
from store.view import queries
from store.view.rebuild import rebuild
from store.view.view import View
from tests.support.models import checkpoint_promoted, checkpoint_saved
from tests.support.planning import LEAN

INPUTS = Path(__file__).with_name("year.toml")
PATIENCE_S = 0.5
"""The daemon's, for one plan."""
Step = Callable[[], None]


@dataclass(slots=True)
class Running:
    """A job that runs, and what becomes of it."""

    due: DueJob
    since_s: float
    course: Course


@dataclass(slots=True)
class Taken:
    """Processor seconds by what took them, one item for each time."""

    plan: array[float] = field(default_factory=lambda: array("f"))
    admission: array[float] = field(default_factory=lambda: array("f"))
    complete: array[float] = field(default_factory=lambda: array("f"))
    append: array[float] = field(default_factory=lambda: array("f"))
    view: array[float] = field(default_factory=lambda: array("f"))
    course: array[float] = field(default_factory=lambda: array("f"))

    @contextmanager
    def by(self, times: array[float]) -> Iterator[None]:
        """Time a block."""
        began = time.process_time()
        yield
        times.append(time.process_time() - began)


class Year:
    """One run, in a folder of its own."""

    def __init__(self, inputs: Inputs, folder: Path, *, limit_s: float = math.inf) -> None:
        self.inputs = inputs
        self._limit_s = limit_s
        self.world = World(inputs)
        self.settings = _settings(inputs, self.world, folder)
        self.taken = Taken()
        self.counts: Counter[str] = Counter()
        self.busy_s: dict[str, float] = {"gpu": 0.0, "slot": 0.0}
        self.by_hour: dict[int, float] = defaultdict(float)
        self.most_running = self.most_waiting = 0
        self.jobs_by_hour: Counter[int] = Counter()
        self._paths = self.settings.paths
        self._log: EventLog
        self._view: View
        self._asked: sqlite3.Connection
        self._s = 0.0
        self._heap: list[tuple[float, int, Step]] = []
        self._numbers = 0
        self._running: dict[str, Running] = {}
        self._batches: list[Batch] = []
        self._last_started: dict[str, float] = {}
        self._retries = Retries(dice=random.Random(inputs.seed), elapsed=lambda: self._s)
        self._queue, self._admission = SlotQueue(), Admission()
        self._money = Money()
        self._planner = Planner(patience_s=PATIENCE_S)
        self._plan = Plan()
        self._in_use: str | None = None
        whole = inputs.whole
        self._gpus = {
            f"GPU-{number}": Gpu(f"GPU-{number}", number, "made up") for number in range(whole.gpus)
        }

    @property
    def days(self) -> float:
        """The days that are over."""
        return self._s / 86400

    @property
    def now(self) -> datetime:
        """The time of the virtual clock."""
        return self.inputs.start + timedelta(seconds=self._s)

    def run(self) -> None:
        """Run to the end."""
        self._paths.state.mkdir(mode=0o700)
        with patch("store.log.log.now_text", lambda: utc_text(self.now)):
            EventLog.open(self._paths.events_db).close()
            rebuild(self._paths.events_db, self._paths.database_db)
            with (
                EventLog.open(self._paths.events_db) as self._log,
                self._log.reader() as reader,
                View.open(self._paths.database_db, reader) as self._view,
                closing(queries.connect(self._paths.database_db)) as self._asked,
            ):
                self._run()

    def _run(self) -> None:
        whole, inputs = self.inputs.whole, self.inputs
        for number, key in enumerate(self.world.keys):
            self._at(inputs.first_s * number / whole.repositories, partial(self._begins, key))
        for number in range(1, 1 + math.floor(whole.days * inputs.models.promoted_a_year / 365)):
            self._at(86400 * 365 * number / inputs.models.promoted_a_year, partial(self._promote, number))
        self.pushes = self.world.pushes()
        self._next_push()
        end_s = 86400 * whole.days
        while self._heap and self._heap[0][0] <= end_s:
            if time.process_time() > self._limit_s:
                return
            self._s = self._heap[0][0]
            # What comes in the time of one turn is planned for in the next.
            while self._heap and self._heap[0][0] <= self._s + inputs.turn_s:
                heapq.heappop(self._heap)[2]()
            began, made_up = time.process_time(), len(self.taken.course)
            self._record()
            self._turn()
            self._record()
            self.by_hour[int(self._s // 3600)] += (
                time.process_time() - began - sum(self.taken.course[made_up:])
            )
        self._s = end_s

    def _at(self, at_s: float, step: Step) -> None:
        self._numbers += 1
        heapq.heappush(self._heap, (at_s, self._numbers, step))

    # --- people, and models -------------------------------------------------------------------------------

    def _begins(self, key: str) -> None:
        self._append(self.world.begins(key, self.now))

    def _next_push(self) -> None:
        at_s, key = next(self.pushes)

        def push() -> None:
            self._append(self.world.push(key, self.now))
            self.counts["pushes"] += 1
            self._next_push()

        self._at(at_s, push)

    def _promote(self, number: int) -> None:
        """Put a model of rung 2 in use: every sorry is tried there again."""
        name = f"tactics-{number}"
        saved = checkpoint_saved(name, parent=self._in_use, model="tactics")
        promoted = checkpoint_promoted(name, previous=self._in_use, model="tactics")
        self._append([NewEvent("model:tactics", saved), NewEvent("model:tactics", promoted)])
        self._in_use = name

    # --- jobs ---------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Do what the scheduler does in a turn (`Scheduler.start_due`)."""
        settings, taken = self.settings, self.taken
        with taken.by(taken.plan):
            self._plan = self._planner.plan(
                self._asked,
                settings=settings,
                leans=LEAN,
                now=self.now,
                running=frozenset(one.due.lane for one in self._running.values()),
                last_started=self._last_started,
                waits_s=self._retries.waits_s(),
            )
        with taken.by(taken.admission):
            holders = self._holders()
            self._queue.update(self._admission.for_slot, holders, now=self._s)
            overdue = self._queue.overdue(now=self._s, share_s=SHARE_S)
            stops, beside = turn_ends(holders, overdue, share_s=SHARE_S, served=self._queue.served)
            self._admission = admit(
                self._plan,
                running=[one.due.kind for one in self._running.values()],
                beside=beside,
                served=self._queue.served,
                max_running=2 * self.inputs.whole.gpus * self.inputs.machines.slots_a_gpu,
                gpus=[*self._gpus.values()],
                no_money=self._money.why(settings, now=self.now),
            )
        if self._admission.start:
            with taken.by(taken.complete):
                whole = self._planner.complete(self._asked, jobs=self._admission.start)
            for job in whole:
                self._start(job)
        self._queue.update(self._admission.for_slot, self._holders(), now=self._s)
        if stops is not None and any(key in self._admission.for_slot for key in overdue):
            self._end(self._running[stops.job], preempted=True)
        self.most_running = max(self.most_running, len(self._running))
        self.most_waiting = max(self.most_waiting, sum(map(len, self._plan.entries.values())))
        self._wake()

    def _wake(self) -> None:
        """Have a turn come when the clock alone makes something due."""
        # At midnight there is money again.
        waits = [86400 - self._s % 86400] if self._plan.complete else [self.inputs.turn_s]
        if self._plan.next_retry_at is not None:
            waits.append((self._plan.next_retry_at - self.now).total_seconds())
        until_s = self._queue.until_s(self._holders, now=self._s, share_s=SHARE_S)
        if until_s is not None:
            waits.append(until_s)
        if not self._heap or self._heap[0][0] > self._s + max(min(waits), 1.0):
            self._at(self._s + max(min(waits), 1.0), lambda: None)

    def _holders(self) -> list[SlotHolder]:
        return [
            SlotHolder(
                job=job,
                kind=one.due.kind,
                repository=one.due.repository,
                seconds=self._s - one.since_s,
                saved=not _asks_endpoint(one.due)
                and any(batch.after_s <= self._s - one.since_s for batch in one.course.batches[:1]),
                ends=False,
            )
            for job, one in self._running.items()
            if not KINDS[one.due.kind].beside
        ]

    def _start(self, job: DueJob) -> None:
        self._last_started[job.repository] = self._s
        self._retries.begun(job.job)
        endpoint = self.inputs.endpoint
        prices = Prices(endpoint.usd_per_million_prompt, endpoint.usd_per_million_completion)
        # A job is a process, which opens the ledger anew.
        money = Spending(
            ledger=spending(self.settings),
            prices=prices,
            cap_usd=self.inputs.whole.usd_per_day,
            now=lambda: self.now,
        )
        self._append([of_attempt(job, started_event(job))])
        with self.taken.by(self.taken.course):
            course = self.world.course(job, money)
        self._gpus |= {gpu.uuid: replace(gpu, state="lent", detail=job.describes) for gpu in job.leases}
        one = self._running[job.job] = Running(job, self._s, course)
        self._at(self._s + course.seconds, partial(self._end, one))

    def _end(self, one: Running, *, preempted: bool = False) -> None:
        if self._running.get(one.due.job) is not one:
            return  # it was preempted, and this is the end that it would have had
        del self._running[one.due.job]
        ran_s = self._s - one.since_s
        self._gpus |= {gpu.uuid: gpu for gpu in one.due.leases}
        self.busy_s["gpu"] += ran_s * len(one.due.leases)
        self.busy_s["slot"] += ran_s
        for batch in one.course.batches:
            if not preempted or batch.after_s <= ran_s:
                self._append(batch.events, batch.blobs)
        self._append([of_attempt(one.due, self._last(one, ran_s, preempted=preempted))])
        self.counts[f"{one.due.kind} jobs"] += 1
        self.jobs_by_hour[int(self._s // 3600)] += 1
        self.counts["preempted"] += preempted

    def _last(self, one: Running, ran_s: float, *, preempted: bool) -> EventBody:
        """Return what ends an attempt in the log."""
        due, last, retry_at = one.due, one.course.last, None
        if preempted:
            return JobInterrupted(
                job=due.job, attempt=due.attempt, reason="preempted: others wait for a slot"
            )
        if isinstance(last, Failure):
            self.counts[last.reason] += 1
            if last.reason == "spending_cap":
                self._money.spent(self.settings, now=self.now)
            if not last.deterministic:
                failures = 1 + queries.failures_of(self._asked, job=due.job)
                if self._retries.after(due.job, failures=failures, limits=self.settings.jobs) is not None:
                    retry_at = self.now + timedelta(seconds=self._retries.waits_s()[due.job])
        return ended_event(due, last, seconds=round(ran_s, 3), peak_rss_bytes=None, retry_at=retry_at)

    # --- log and view -------------------------------------------------------------------------------------

    def _append(self, events: Sequence[NewEvent], blobs: dict[str, Path] | None = None) -> None:
        expect = dict.fromkeys((event.stream for event in events), Expect.ANY)
        self._batches.append(Batch(events, expect, blobs or {}))

    def _record(self) -> None:
        """Append what was said, as the store's writer does with what waits, and have the view follow."""
        if not self._batches:
            return
        batches, self._batches = self._batches, []
        with self.taken.by(self.taken.append):
            outcomes = self._log.append_all(batches)
        for outcome in outcomes:
            if isinstance(outcome, LogError):
                raise outcome
        with self.taken.by(self.taken.view):
            self._view.catch_up()
        for batch in batches:
            self._planner.changed(event.body for event in batch.events)
            self.counts.update(event.body.type for event in batch.events)
            self.counts["events"] += len(batch.events)


def _asks_endpoint(job: DueJob) -> bool:
    return isinstance(job.spec, ProveSpec) and isinstance(job.spec.rung, EndpointRung)


def _settings(inputs: Inputs, world: World, folder: Path) -> Settings:
    """Write the configuration of such a daemon, and load it."""
    entries = "".join(f'[[repos]]\nurl = "https://{key}"\n' for key in world.keys)
    endpoint, whole = inputs.endpoint, inputs.whole
    (folder / "config.toml").write_text(
        f'[daemon]\nstate_dir = "{folder / "state"}"\n[lean]\nrepls = 4\n[build]\nenabled = false\n'
        f"[trace]\nenabled = false\n"
        f'[train.tactics]\nmodel_name = "made-up/tactics"\n'
        f"[prove]\nrungs = {[*inputs.prove.rungs]}\n"
        f'seconds_per_sorry = "{inputs.prove.seconds_per_sorry:g}s"\n[prove.whole]\nmodel = "made-up/whole"\n'
        f'[prove.external]\nbase_url = "https://example.org/v1"\nmodel = "made-up"\n'
        f"usd_per_day = {whole.usd_per_day}\nusd_per_million_prompt = {endpoint.usd_per_million_prompt}\n"
        f"usd_per_million_completion = {endpoint.usd_per_million_completion}\n{entries}"
    )
    return load(folder / "config.toml")


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of one run, and its CPU time (`ms`: milliseconds)."""

    scale: float
    days: float
    repositories: int
    sorries: int
    gpus: int
    open_at_the_end: int
    events: int
    events_a_day: float
    jobs: int
    attempts: int
    turns: int
    log_mb: float
    view_mb: float
    ledger_mb: float
    memory_mb: float
    plan_ms: float
    plan_99_ms: float
    plan_most_ms: float
    plan_last_ms: float
    admission_ms: float
    admission_99_ms: float
    complete_ms: float
    append_ms_an_event: float
    view_ms_an_event: float
    control_ms_a_job: float
    control_share: float
    busiest_hour_share: float
    busiest_hour_jobs: int
    usd: float
    jobs_without_money: int
    preempted: int
    gpu_use: float
    slot_use: float
    most_running: int
    most_waiting: int
    seconds: float

    @classmethod
    def of(cls, year: Year, scale: float, *, memory_mb: float, seconds: float) -> Figures:
        """Read the figures of a run that has ended."""
        whole, counts, taken, paths = year.inputs.whole, year.counts, year.taken, year.settings.paths
        turns, days_s = len(taken.plan), 86400 * year.days
        jobs = sum(counts[f"{kind} jobs"] for kind in KINDS)
        control = sum(map(sum, (taken.plan, taken.admission, taken.complete, taken.append, taken.view)))
        slots = whole.gpus * year.inputs.machines.slots_a_gpu
        with sqlite3.connect(paths.database_db) as view:
            still = view.execute("SELECT count(*) FROM sorries WHERE state = 'open'").fetchone()[0]
        view.close()
        last = max(1, turns // 10)
        return cls(
            scale=scale,
            days=round(year.days, 2),
            repositories=whole.repositories,
            sorries=whole.sorries,
            gpus=whole.gpus,
            open_at_the_end=still,
            events=counts["events"],
            events_a_day=counts["events"] / year.days,
            jobs=jobs,
            attempts=counts["attempt_finished"],
            turns=turns,
            log_mb=_mb(paths.events_db),
            view_mb=_mb(paths.database_db),
            ledger_mb=_mb(spending(year.settings)),
            memory_mb=memory_mb,
            plan_ms=1000 * statistics.median(taken.plan),
            plan_99_ms=1000 * _percentile(taken.plan, 0.99),
            plan_most_ms=1000 * max(taken.plan),
            plan_last_ms=1000 * statistics.median(taken.plan[-last:]),
            admission_ms=1000 * statistics.median(taken.admission),
            admission_99_ms=1000 * _percentile(taken.admission, 0.99),
            complete_ms=1000 * statistics.median(taken.complete),
            append_ms_an_event=1000 * sum(taken.append) / counts["events"],
            view_ms_an_event=1000 * sum(taken.view) / counts["events"],
            control_ms_a_job=1000 * control / jobs,
            control_share=control / days_s,
            busiest_hour_share=max(year.by_hour.values()) / 3600,
            busiest_hour_jobs=max(year.jobs_by_hour.values()),
            usd=sum(_booked(spending(year.settings)).values()),
            jobs_without_money=counts["spending_cap"],
            preempted=counts["preempted"],
            gpu_use=year.busy_s["gpu"] / (whole.gpus * days_s),
            slot_use=year.busy_s["slot"] / (2 * slots * days_s),
            most_running=year.most_running,
            most_waiting=year.most_waiting,
            seconds=seconds,
        )


def _booked(ledger: Path) -> dict[str, float]:
    """Return the dollars of each request."""
    if not ledger.exists():
        return {}
    lines = map(json.loads, ledger.read_text(encoding="utf-8").splitlines())
    return {line["id"]: float(line["usd"]) for line in lines}


def _mb(path: Path) -> float:
    return sum(one.stat().st_size for one in path.parent.glob(f"{path.name}*")) / 1e6


def _percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def simulate(inputs: Inputs, scale: float, folder: Path, *, limit_s: float = math.inf) -> Figures:
    """Run one scale to its end, or for so many seconds of the processor's."""
    began = time.process_time()
    give_back()
    before = psutil.Process().memory_info().rss
    year = Year(inputs, folder, limit_s=limit_s + began)
    year.run()
    # What is left is the planner's, the store's and the queues': what the world takes is none of theirs.
    del year.world, year.pushes
    give_back()
    memory = psutil.Process().memory_info().rss - before
    return Figures.of(year, scale, memory_mb=memory / 1e6, seconds=time.process_time() - began)


def exponents(found: Sequence[Figures]) -> dict[str, float]:
    """Return by which power of the scale each figure grows, by the least squares of their logarithms."""
    logs = [math.log(one.scale) for one in found]
    grows: dict[str, float] = {}
    for name in GROWING:
        values = [float(getattr(one, name)) for one in found]
        if min(values) > 0:
            grows[name] = statistics.linear_regression(logs, [math.log(value) for value in values]).slope
    return grows


GROWING = (
    "events_a_day", "jobs", "attempts", "log_mb", "view_mb", "ledger_mb", "memory_mb", "plan_ms", "plan_99_ms",
    "plan_most_ms", "admission_ms", "admission_99_ms", "append_ms_an_event", "view_ms_an_event", "control_ms_a_job",
    "control_share", "busiest_hour_share", "busiest_hour_jobs", "usd", "jobs_without_money", "gpu_use",
)  # fmt: skip


def shown(found: Sequence[Figures]) -> str:
    """Return a table of Markdown: a column for each run, and where there are several how they grow."""
    grows = exponents(found) if len(found) > 1 and len({one.days for one in found}) == 1 else {}
    head = ["SIMULATED", *(f"scale {one.scale:g}, {one.days:g} days" for one in found)]
    rows = [[*head, *(["grows as scale^", "scale 1, EXTRAPOLATED"] if grows else [])]]
    rows.append(["---"] * len(rows[0]))
    for name in asdict(found[0]):
        if name in ("scale", "days"):
            continue
        row = [name, *(_figure(getattr(one, name)) for one in found)]
        if grows and name in grows:
            last = max(found, key=lambda one: one.scale)
            row += [f"{grows[name]:.2f}", _figure(getattr(last, name) * last.scale ** -grows[name])]
        elif grows:
            row += ["", ""]
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _child(inputs: Inputs, scale: float, scratch: Path | None, limit_s: float) -> Figures:
    with tempfile.TemporaryDirectory(prefix="everlean-year-", dir=scratch) as folder:
        return simulate(inputs, scale, Path(folder), limit_s=limit_s)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, nargs="+", default=[0.0005, 0.001, 0.002])
    parser.add_argument("--days", type=float)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="of the processor's time, for each scale"
    )
    parser.add_argument("--inputs", type=Path, default=INPUTS)
    parser.add_argument("--folder", type=Path, help="for the logs and views; else the system's")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    on, found = machine(), []
    inputs = Inputs.read(chosen.inputs)
    for scale in chosen.scale:
        say(f"scale {scale:g}, at a load of {os.getloadavg()[0]:.1f}")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            whole = inputs.scaled(scale, days=chosen.days)
            found.append(pool.apply(_child, (whole, scale, chosen.folder, 60 * chosen.minutes)))
        print(shown(found[-1:]), flush=True)
    if len(found) > 1:
        print(shown(found))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"on": on, "runs": [asdict(one) for one in found]}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Which due jobs begin now, on which GPU, and what the others are told."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from daemon.http.status import MOST_QUEUED, described
from daemon.jobs.due import DueJob
from daemon.jobs.gpus import Gpu
from daemon.jobs.runner import SlotHolder
from daemon.planning.admission import SHARE_S, Money, SlotQueue, admit, turn_ends
from daemon.planning.ladder import spending
from daemon.planning.plan import Entry, Plan, WaitingJob
from daemon.settings import Settings
from pipeline.endpoint.spending import file_of
from pipeline.jobs.kinds import BY_PRIORITY, Kind
from pipeline.jobs.spec import Spec
from tests.support.daemon.deployment import Deployment

ONE, TWO = Gpu("GPU-a", 0, "Test GPU"), Gpu("GPU-b", 1, "Test GPU")
LOST = replace(ONE, state="lost", detail="GPU is lost", remedy="reset it")
BUSY = replace(ONE, state="busy", detail="used by process 7", remedy="end it")


def due(
    name: str, kind: Kind = "prove", *, gpus: int | tuple[int, ...] = (), cpu_too: bool = False
) -> DueJob:
    return DueJob(
        job=name,
        kind=kind,
        attempt=1,
        lane=name,
        repository="r",
        branch="main",
        sha="0" * 40,
        describes=f"{kind} {name}",
        spec=Spec(),
        gpus=(gpus,) if isinstance(gpus, int) else gpus,
        cpu_too=cpu_too,
    )


def plan(*jobs: DueJob) -> Plan:
    return Plan.of(jobs)


def test_several_gpus_are_lent_to_several_jobs_and_each_to_one() -> None:
    result = admit(plan(*(due(name, gpus=1) for name in "abc")), running=(), max_running=9, gpus=[ONE, TWO])
    assert [(one.job, one.leases) for one in result.start] == [("a", (ONE,)), ("b", (TWO,))]
    assert result.waits == {
        "c": "a GPU; GPU 0 (Test GPU) goes to a job before it; GPU 1 (Test GPU) goes to a job before it"
    }


def test_trainings_share_the_gpus_that_nothing_else_wants_as_evenly_as_their_steps_can_be() -> None:
    free = [replace(ONE, uuid=f"GPU-{number}", index=number) for number in range(8)]
    jobs = plan(
        due("p", gpus=1), due("t", "train", gpus=(1, 2, 4, 8)), due("u", "train_tactics", gpus=(1, 3))
    )
    for number, shares in (
        (1, {"p": 1}),
        (2, {"p": 1, "t": 1}),
        (3, {"p": 1, "t": 1, "u": 1}),
        (4, {"p": 1, "t": 2, "u": 1}),
        (5, {"p": 1, "t": 2, "u": 1}),  # of two that are left, t uses one, and u both or none
        (6, {"p": 1, "t": 2, "u": 3}),
        (8, {"p": 1, "t": 4, "u": 3}),
    ):
        start = admit(jobs, running=(), max_running=9, gpus=[BUSY, *free[:number]]).start
        assert {one.job: len(one.leases) for one in start} == shares
        leases = [gpu for one in start for gpu in one.leases]
        assert len({*leases} - {BUSY}) == len(leases)
        for one in start:
            each = one.memory_bytes
            assert one.whole_bytes == len(one.leases) * each
            planned = replace(one, tree_bytes=each + 7)
            assert planned.whole_bytes == len(one.leases) * each + 7


def test_a_foreign_process_on_the_gpu_is_named_to_the_job_that_waits() -> None:
    result = admit(plan(due("a", gpus=1, cpu_too=True)), running=(), max_running=9, gpus=[BUSY])
    assert result.start == ()
    assert result.waits == {"a": "a GPU; GPU 0 (Test GPU) is used by process 7: end it"}
    assert result.for_gpu == (), "no training could make way"


def test_a_lost_gpu_parks_its_jobs_with_the_reason_and_the_remedy() -> None:
    result = admit(plan(due("a", gpus=1)), running=(), max_running=9, gpus=[LOST])
    assert result.waits == {"a": "a GPU; GPU 0 (Test GPU) is lost (GPU is lost): reset it"}
    other = admit(plan(due("a", gpus=1)), running=(), max_running=9, gpus=[LOST, TWO])
    assert [one.leases for one in other.start] == [(TWO,)]


def test_where_no_gpu_works_the_processor_does_if_the_settings_let_it() -> None:
    either = plan(due("a", gpus=1, cpu_too=True))
    assert [one.leases for one in admit(either, running=(), max_running=9, gpus=[LOST]).start] == [()]
    assert [one.leases for one in admit(either, running=(), max_running=9).start] == [()]
    only = admit(plan(due("a", gpus=1)), running=(), max_running=9)
    assert only.waits == {"a": "a GPU; none is to be seen here"}


def test_a_proof_that_waits_for_a_training_is_reported() -> None:
    lent = replace(ONE, state="lent", detail="train the retriever")
    result = admit(plan(due("a", gpus=1), due("t", "train", gpus=1)), running=(), max_running=9, gpus=[lent])
    assert result.for_gpu == ("prove a",)


def test_a_job_without_a_slot_says_so() -> None:
    result = admit(plan(due("a")), running=("scan", "prove"), max_running=2)
    assert result.waits["a"].startswith("a slot; the running jobs have them all")
    long = admit(plan(due("a")), running=("prove",), max_running=2)
    assert long.waits["a"].startswith("a slot; the last one is kept free")


# ---- Slots, shared by repositories

PLACES = {kind.name: place for place, kind in enumerate(BY_PRIORITY)}


@dataclass
class Work:
    """A job of a repository: what is left, how long until it has recorded something, and what is due after it."""

    due: DueJob
    left_s: float
    step_s: float
    then: Work | None = None
    began: float = 0.0
    ends_at: float | None = None


class Schedule:
    """A day of the daemon's turns, one a second: what waits, what runs, and how long each repository waited."""

    def __init__(self, *works: Work, slots: int = 2) -> None:
        self.waiting, self.slots = list(works), slots
        self.running: list[Work] = []
        self.queue, self.now = SlotQueue(), 0.0
        self.began: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.most = 0

    def holders(self) -> list[SlotHolder]:
        return [
            SlotHolder(
                job=one.due.job,
                kind=one.due.kind,
                repository=one.due.repository,
                seconds=self.now - one.began,
                saved=self.now - one.began >= one.step_s,
                ends=one.ends_at is not None,
            )
            for one in self.running
        ]

    def turn(self) -> None:
        holders = self.holders()
        overdue = self.queue.overdue(now=self.now)
        stops, beside = turn_ends(holders, overdue, served=self.queue.served)
        result = admit(
            plan(*sorted((one.due for one in self.waiting), key=lambda one: PLACES[one.kind])),
            running=[one.due.kind for one in self.running],
            max_running=self.slots,
            beside=beside,
            served=self.queue.served,
        )
        for admitted in result.start:
            work = next(one for one in self.waiting if one.due is admitted)
            self.waiting.remove(work)
            work.began, work.ends_at = self.now, None
            self.running.append(work)
            self.began.setdefault(work.due.repository, self.now)
        self.queue.update(result.for_slot, self.holders(), now=self.now)
        if stops is not None and any(key in result.for_slot for key in overdue):
            next(one for one in self.running if one.due.job == stops.job).ends_at = self.now + 3
        self.most = max(self.most, len(self.running))

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.turn()
            self.now += 1
            for one in list(self.running):
                one.left_s -= 1
                if one.left_s <= 0 or (one.ends_at is not None and one.ends_at <= self.now):
                    self.running.remove(one)
                    if one.left_s <= 0:
                        self.ended[one.due.job] = self.now
                        self.waiting += [] if one.then is None else [one.then]
                    if one.left_s > 0:
                        self.waiting.insert(
                            0, one
                        )  # the plan sorts it before the others, as if they never had a turn

    def finish(self, seconds: int) -> None:
        """Let so much time pass, or as much as all of the work takes."""
        ends = self.now + seconds
        while (self.waiting or self.running) and self.now < ends:
            self.run(1)


def work(repository: str, kind: Kind, left_s: float, step_s: float = 5.0) -> Work:
    return Work(replace(due(f"{kind}-{repository}", kind), repository=repository), left_s, step_s)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_repository_waits_for_no_more_than_its_share_times_those_before_it(slots: int) -> None:
    dice = random.Random(7)
    names = [f"r{i}" for i in range(12)]
    works = [
        work(name, dice.choice(["trace", "prove"]), dice.uniform(1, 1500), dice.uniform(1, 40))
        for name in names
    ]
    schedule = Schedule(*works, slots=slots)
    schedule.finish(30_000)
    assert [*schedule.waiting, *schedule.running] == [], "all of it is done in the end"
    assert schedule.most <= slots
    turns = -(-len(names) // max(1, slots - 1))
    assert max(schedule.began.values()) <= turns * (SHARE_S + 4)


@pytest.mark.parametrize("slots", [1, 2])
def test_behind_a_job_that_cannot_be_stopped_one_begins_beside_the_slots(slots: int) -> None:
    """A build's products would be lost, and what a trace has of a long file."""
    for holder in (work("big", "build", 7200), work("big", "trace", 7200, step_s=9000)):
        others = [work(name, "trace", 600) for name in "abc"]
        schedule = Schedule(holder, *others, slots=slots)
        schedule.finish(20_000)
        assert [*schedule.waiting, *schedule.running] == []
        assert schedule.began["a"] == SHARE_S
        assert schedule.began["c"] <= 3 * (SHARE_S + 4), "and those beside it take turns"
        assert schedule.most <= slots + 1 - (slots > 1), "one is beside the slot of the long ones"


def steps(repository: str, number: int) -> Work:
    """What a commit of a small repository needs on a busy machine: a scan, a trace, a search, a check."""
    result: Work | None = None
    needs: list[tuple[Kind, float]] = [("check", 4), ("prove", 8), ("trace", 4), ("scan", 1)]
    for kind, seconds in needs:
        one = replace(due(f"{kind}-{repository}-{number}", kind), repository=repository)
        result = Work(one, seconds, 2.0, then=result)
    assert result is not None
    return result


@pytest.mark.harness
@pytest.mark.parametrize(("at_once", "seconds"), [(1, 4), (120, 4), (20, 24)])
def test_small_repositories_are_soon_traced_and_proved_beside_one_of_twenty_thousand_sorries(
    at_once: int, seconds: int, tell: Callable[[str, str], None]
) -> None:
    """The large one always has a trace and searches due, and proofs to check: one in ten seconds, or many at once.

    A job that judges many goes on for 20 seconds, and ends with the one that it is at.
    """
    every = 10 * at_once * seconds // 4
    schedule = Schedule(work("big", "trace", 3000), work("big", "prove", 9000))
    began: dict[str, int] = {}
    for second in range(600):
        for at, repository in enumerate("abc"):
            # A commit a minute each, at moments of their own.
            if second % 60 == 5 + 17 * at and second < 480:
                began[f"{repository}-{second}"] = second
                schedule.waiting.append(steps(repository, second))
        for number in range(at_once if second % every == 0 else 0):
            one = replace(due(f"check-big-{second}-{number}", "check"), repository="big")
            schedule.waiting.append(Work(one, seconds, 9))
        schedule.run(1)
    traced = [schedule.ended[f"trace-{name}"] - since for name, since in began.items()]
    proved = [schedule.ended[f"check-{name}"] - since for name, since in began.items()]
    tell(
        f"3 small repositories beside a large one, {at_once} checks of {seconds} s at once",
        f"commits traced after {max(traced):.0f} s, proved after {max(proved):.0f} s at most",
    )
    assert max(traced) <= 60
    assert max(proved) <= 120
    checked_s = seconds * sum(name.startswith("check-big") for name in schedule.ended)
    assert checked_s >= 58 * 4, "nor does the large one stand still"


def test_who_had_no_slot_of_late_comes_first_in_each_class_and_the_others_by_what_they_had() -> None:
    jobs = [replace(due(f"{name}{n}", "check"), repository=name) for name in "abc" for n in range(2)]
    result = admit(plan(*jobs), running=(), max_running=6, served={"a": 9.0, "b": 2.0})
    assert [one.job for one in result.start] == ["c0", "c1", "b0", "b1", "a0", "a1"]


def test_a_turn_looks_at_few_of_many_jobs_of_those_that_had_slots() -> None:
    """A plan of a million sorries has a hundred thousand jobs, and a turn is made many times a minute."""
    looked: list[int] = []

    class Entries(tuple[Entry, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[Entry]:
            for at in range(len(self)):
                looked.append(at)
                yield self[at]

    jobs = [due(f"{repository}{number}") for number in range(1000) for repository in ("less", "more")]
    jobs = [replace(job, repository=job.job.rstrip("0123456789")) for job in jobs]
    result = Plan.of(jobs)
    result = replace(result, entries={one: Entries(entries) for one, entries in result.entries.items()})
    had = {"less": 5.0, "more": 50.0}
    order = result.in_order(set(), had)
    assert {next(order).repository for _ in range(4)} == {"less"}
    assert len(looked) < 20
    assert [one.repository for one in result.in_order(set(), had)] == ["less"] * 1000 + ["more"] * 1000


def test_what_a_repository_had_of_the_slots_counts_less_and_less() -> None:
    schedule = Schedule(work("a", "trace", 100))
    schedule.run(100)
    assert schedule.queue.served["a"] > 60
    schedule.run(240)
    assert 10 < schedule.queue.served["a"] < 30
    schedule.run(1200)
    assert schedule.queue.served == {}


def test_a_repository_that_waits_keeps_its_time_while_a_commit_of_its_own_is_scanned() -> None:
    queue, job = SlotQueue(), due("trace-a", "trace")
    queue.update({"a": job}, [], now=0.0)
    queue.update({}, [], now=30.0)
    queue.update({"a": job}, [], now=40.0)
    assert queue.overdue(now=46.0) == ("a",)
    queue.update({}, [SlotHolder("trace-a", "trace", "a", 1.0, saved=False, ends=False)], now=47.0)
    queue.update({"a": job}, [], now=50.0)
    assert queue.overdue(now=94.0) == ()


def test_a_repository_that_waits_for_nothing_and_one_that_has_its_turn_stop_no_one() -> None:
    schedule = Schedule(work("a", "trace", 900))
    schedule.run(300)
    schedule.waiting += [work("a", "prove", 60)]
    schedule.run(300)
    assert [one.ends_at for one in schedule.running] == [None], "its own search waits for its own trace"
    assert schedule.queue.until_s(schedule.holders, now=schedule.now) is None


def test_the_clock_of_a_turn_is_known_before_it_ends() -> None:
    schedule = Schedule(work("a", "trace", 900), work("b", "trace", 900))
    schedule.run(10)
    assert schedule.queue.until_s(schedule.holders, now=schedule.now) == SHARE_S - 10


def test_what_leaves_this_machine_waits_while_the_cluster_takes_nothing() -> None:
    jobs = plan(due("a"), due("b", "train"), due("c", "scan"))
    result = admit(jobs, running=(), max_running=9, no_cluster="the cluster; it does not answer")
    assert [one.job for one in result.start] == ["c"]
    assert result.waits == dict.fromkeys("ab", "the cluster; it does not answer")


def test_once_a_job_found_no_money_others_wait_an_hour_or_for_tomorrow_more_of_it_or_another_limit(
    tmp_path: Path,
) -> None:
    def settings(usd: int) -> Settings:
        return Deployment(tmp_path).write(repos=[], extra=f"[prove.external]\nusd_per_day = {usd}\n")

    at, money = datetime(2026, 3, 1, 22, 30, tzinfo=UTC), Money()
    assert money.why(settings(5), now=at) == ""
    money.spent(settings(5), now=at)
    why = money.why(settings(5), now=at)
    assert "usd_per_day" in why
    assert "by 23:30 UTC" in why
    assert money.why(settings(5), now=at + timedelta(minutes=59)) == why
    assert money.why(settings(5), now=at + timedelta(hours=1)) == "", "another may need less"
    paid = replace(due("a"), paid=True)
    result = admit(plan(paid, due("b")), running=(), max_running=9, no_money=why)
    assert [one.job for one in result.start] == ["b"]
    assert result.why(paid) == why
    assert money.why(settings(6), now=at) == ""
    money.spent(settings(5), now=at + timedelta(hours=1))
    late = at + timedelta(hours=1, minutes=29)
    assert money.why(settings(5), now=late)
    assert not money.why(settings(5), now=late + timedelta(minutes=1))
    ledger = file_of(spending(settings(5)), late.date().isoformat())
    ledger.parent.mkdir(parents=True, exist_ok=True)
    ledger.write_bytes(b"{}\n")
    assert money.why(settings(5), now=late) == "", "what was reserved may have been given back"


def test_of_very_many_jobs_that_wait_the_first_are_described_and_the_others_counted() -> None:
    requests: list[str] = []

    def why(job: DueJob) -> str:
        requests.append(job.job)
        return "a slot"

    ready, held = [due(f"r{at}") for at in range(MOST_QUEUED + 500)], [WaitingJob(due("h"), "the night")]
    shown, more = described(ready, held, why)
    assert (len(shown), more, len(requests)) == (MOST_QUEUED, 501, MOST_QUEUED)
    few, none = described(ready[:2], held, why)
    assert [(one.job, one.waits) for one in few] == [("r0", "a slot"), ("r1", "a slot"), ("h", "the night")]
    assert none == 0

"""Choose the due jobs to begin now, their GPUs, and the reasons why the others wait. Pure.

Repositories share the slots. The one with the fewest seconds of slots lately goes first (`SlotQueue.served`),
for long and short jobs alike. When a repository has waited SHARE_S for a long job, it takes the slot of one
with more seconds, if that has held it for at least SHARE_S: a trace or search with something recorded since
its start is preempted, and resumes later. If nothing can be stopped without losing work (a build, a long
file), one job begins beyond the slots.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from daemon.jobs.due import DueJob
from daemon.jobs.gpus import Gpu
from daemon.jobs.runner import SlotHolder
from daemon.planning.ladder import spending
from daemon.planning.plan import JobClass, Plan
from daemon.settings import Settings
from pipeline.endpoint.spending import file_of
from pipeline.jobs.kinds import KINDS, Kind

_SLOTS = "a slot; the running jobs have them all ([jobs] max_running)"
_LAST_SLOT = "a slot; the last one is kept free for short jobs"
_NO_ROOM = "room on the cluster; the running jobs and other people's have its CPUs"
_NO_SLOT = (_SLOTS, _LAST_SLOT)
_LANE = "the job before it, which is of the same branch or model"
SHARE_S = 45.0
"""The time for which long jobs of other repositories keep one waiting for a slot. A new commit's sorries are
tried within a minute, and by then the preempted job has loaded its imports and worked."""
_NO_MONEY_FOR = timedelta(hours=1)
_NOBODY: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Admission:
    """The jobs to begin now, most urgent first and with their GPUs, and why the others wait.

    `waits` holds the reasons of single jobs, `classes` those of all other jobs of a class. `for_gpu`
    describes the proof jobs waiting only for a GPU leased to another job; `for_slot` is the first job of each
    repository waiting for a slot.
    """

    start: tuple[DueJob, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[JobClass, str] = field(default_factory=dict)
    for_gpu: tuple[str, ...] = ()
    for_slot: Mapping[str, DueJob] = field(default_factory=dict)

    def why(self, job: DueJob) -> str | None:
        """Return the reason why a job of the plan waits; None if it begins."""
        if any(one.job == job.job for one in self.start):
            return None
        if any(one.lane == job.lane for one in self.start):
            return _LANE
        return self.waits.get(job.job) or self.classes.get(JobClass.of(job))


class Money:
    """Holds paid jobs back after one ended for want of money.

    No other begins for an hour, or until the ledger grows, the day ends, or the limit changes. Otherwise each
    paid job would start just to find the budget spent: tens of thousands a day with a million sorries. An
    hour and not the day, because another job may need less, and money may be returned before the job ends.
    """

    def __init__(self) -> None:
        self._spent: tuple[object, ...] | None = None
        self._until = datetime.min.replace(tzinfo=UTC)

    def spent(self, settings: Settings, *, now: datetime) -> None:
        """Record the failure of a job for want of money."""
        self._spent, self._until = _money(settings, now), now + _NO_MONEY_FOR

    def why(self, settings: Settings, *, now: datetime) -> str:
        """Return why paid jobs wait; "" if there may be enough money."""
        if now >= self._until or self._spent != _money(settings, now):
            return ""
        return (
            "money; too little is left of today's (UTC) for the last job that asked (usd_per_day); "
            f"the next asks by {self._until.astimezone(UTC):%H:%M} UTC"
        )


def _money(settings: Settings, now: datetime) -> tuple[object, ...]:
    day = now.astimezone(UTC).date()
    ledger = file_of(spending(settings), day.isoformat())
    size = ledger.stat().st_size if ledger.exists() else 0
    return day, size, settings.prove.external, settings.prove.programs


_HALF_LIFE_S = _KEPT_S = 120.0
_FORGOTTEN_S = 0.5


class SlotQueue:
    """The repositories waiting for a slot, the start of each wait, and their recent seconds of slots.

    A repository with a long job running is not waiting. If all jobs share one slot, short jobs wait here too.
    """

    def __init__(self) -> None:
        self._waits: Collection[str] = ()
        self._since: dict[str, float] = {}
        self._seen: dict[str, float] = {}
        self.served: dict[str, float] = {}
        """The seconds for which each repository has held a slot, halved every two minutes."""
        self._held: tuple[str, ...] = ()
        self._counted_at = 0.0

    def update(self, waiting: Mapping[str, DueJob], holders: Sequence[SlotHolder], *, now: float) -> None:
        """Replace the waiting repositories by the last admission's; `now`: seconds of a steady clock.

        A repository without due jobs for a moment, while its own commit is scanned, keeps its waiting time.
        """
        self._count(holders, now=now)
        served = {holder.repository for holder in holders if KINDS[holder.kind].long}
        self._waits = waiting.keys() - served
        self._seen |= dict.fromkeys(waiting, now)
        self._seen = {key: at for key, at in self._seen.items() if key not in served and now - at < _KEPT_S}
        self._since = {key: self._since.get(key, now) for key in self._seen}

    def _count(self, holders: Sequence[SlotHolder], *, now: float) -> None:
        """Charge the time since the last update to the repositories with slots then."""
        seconds, self._counted_at = now - self._counted_at, now
        if self.served:
            left = 0.5 ** (seconds / _HALF_LIFE_S)
            self.served = {key: s * left for key, s in self.served.items() if s * left > _FORGOTTEN_S}
        for key in self._held:
            self.served[key] = self.served.get(key, 0.0) + seconds
        self._held = tuple(holder.repository for holder in holders)
        for key in self._held:
            self.served.setdefault(key, _FORGOTTEN_S)  # it has a slot now, for no time yet

    def overdue(self, *, now: float) -> tuple[str, ...]:
        """Return the repositories whose wait has reached SHARE_S, the longest wait first."""
        since = self._since
        late = [(since[key], key) for key in self._waits if now - since[key] >= SHARE_S]
        return tuple(key for _, key in sorted(late))

    def until_s(self, holders: Callable[[], Sequence[SlotHolder]], *, now: float) -> float | None:
        """Return the seconds until the clock alone may end or begin a turn; None without a waiting job."""
        if not self._waits:
            return None
        left = [self._since[key] + SHARE_S - now for key in self._waits]
        left += [SHARE_S - holder.seconds for holder in holders()]
        return min((one for one in left if one > 0), default=None)


def turn_ends(
    holders: Sequence[SlotHolder],
    overdue: Collection[str],
    *,
    served: Mapping[str, float] = _NOBODY,
) -> tuple[SlotHolder | None, str]:
    """Return the job to preempt, or None, and the repository allowed a job beyond the slots, or ""."""
    long = [holder for holder in holders if KINDS[holder.kind].long]
    if not overdue or any(holder.ends for holder in long):
        return None, ""
    late = sorted(
        (one for one in long if one.seconds >= SHARE_S and one.repository not in overdue),
        key=lambda one: -one.seconds,
    )
    for key in overdue:
        had_more = [one for one in late if served.get(one.repository, 0.0) >= served.get(key, 0.0)]
        stops = next((one for one in had_more if one.saved and KINDS[one.kind].resumes), None)
        if stops is not None:
            return stops, ""
        if had_more and len(had_more) == len(long):
            return None, key
    return None, ""


def admit(
    plan: Plan,
    *,
    running: Sequence[Kind],
    max_running: int,
    gpus: Sequence[Gpu] = (),
    room: int | None = None,
    no_cluster: str = "",
    beside: str = "",
    no_money: str = "",
    served: Mapping[str, float] = _NOBODY,
) -> Admission:
    """Choose the jobs to start now, by free slots, lanes and GPUs; long jobs leave one slot free.

    Trainings take no slot: one of days must not keep commits and proofs waiting, nor wait for them. Counts of
    the past take none either.

    Args:
        plan: the due jobs, most urgent first.
        running: the kinds of the running jobs.
        max_running: the number of slots.
        gpus: the GPUs as they are now.
        room: the number of jobs allowed on other machines; None: as many as have slots.
        no_cluster: why jobs for other machines wait; "" if they need not.
        beside: the repository allowed a long job beyond the slots.
        no_money: why paid jobs wait; "" if they need not.
        served: the repositories' recent seconds of slots (`SlotQueue.served`); less goes first.
    """
    kinds = list(running)
    lanes: set[str] = set()
    free = [gpu for gpu in gpus if gpu.state == "free"]
    start: list[DueJob] = []
    waits: dict[str, str] = {}
    classes: dict[JobClass, str] = {}
    passed: set[JobClass] = set()
    for_gpu: list[str] = []
    for_slot: dict[str, DueJob] = {}
    for job in plan.in_order(passed, served, ahead=beside):
        ahead = job.repository == beside
        why = no_money if job.paid else ""
        why = why or (_LANE if job.lane in lanes else "")
        if not KINDS[job.kind].stays:
            why = why or no_cluster or _no_room(kinds, room)
        why = why or _no_slot(job, kinds, max_running, int(ahead))
        if why in _NO_SLOT and (KINDS[job.kind].long or max_running == 1):
            for_slot.setdefault(job.repository, job)
        leases: tuple[Gpu, ...] = ()
        if not why and job.gpus:
            if free:
                leases, free = tuple(free[:1]), free[1:]
            elif not job.cpu_too or any(one.state != "lost" for one in gpus):
                why = f"a GPU; {_why_none(gpus)}"
                if job.kind == "prove" and any(one.state == "lent" for one in gpus):
                    for_gpu.append(job.describes)
        if not why:
            # The more urgent come first: a training gets a GPU when nothing else wants it.
            lanes.add(job.lane)
            kinds.append(job.kind)
            start.append(replace(job, leases=leases) if leases else job)
            continue
        waits[job.job] = why
        one = JobClass.of(job)
        if why is not _LANE and one not in passed and not ahead:
            # Nothing is freed during this loop, so jobs with the same needs wait too.
            classes[one] = why
            passed.add(one)
    for one in passed:
        if classes[one] in _NO_SLOT and (KINDS[one.kind].long or max_running == 1):
            for_slot = {**plan.first[one], **for_slot}
    for begun in start:
        if KINDS[begun.kind].long or max_running == 1:
            for_slot.pop(begun.repository, None)
    return Admission(_shared_out(start, free), waits, classes, tuple(for_gpu), for_slot)


def _shared_out(start: Sequence[DueJob], free: Sequence[Gpu]) -> tuple[DueJob, ...]:
    """Share the free GPUs among the jobs about to begin: the job with the fewest gets the next ones."""
    jobs, left = list(start), list(free)
    while left:
        for place in sorted(range(len(jobs)), key=lambda place: len(jobs[place].leases)):
            job = jobs[place]
            more = next((n for n in job.gpus if n > len(job.leases)), 0) - len(job.leases)
            if 0 < more <= len(left):
                jobs[place] = replace(job, leases=(*job.leases, *left[:more]))
                del left[:more]
                break
        else:
            break
    return tuple(jobs)


def _no_room(kinds: Sequence[Kind], room: int | None) -> str:
    if room is None or sum(not KINDS[kind].stays for kind in kinds) < room:
        return ""
    return _NO_ROOM


def _no_slot(job: DueJob, kinds: Sequence[Kind], max_running: int, more: int) -> str:
    """Return why a job waits for a slot, "" if it need not; `more`: slots beyond `max_running`."""
    if KINDS[job.kind].beside:
        return ""
    slots = [kind for kind in kinds if not KINDS[kind].beside]
    if len(slots) >= max_running + more:
        return _SLOTS
    # A new commit's sorries are visible within seconds, even while provers work for half an hour.
    if (
        KINDS[job.kind].long
        and max_running > 1
        and sum(KINDS[kind].long for kind in slots) >= max_running - 1 + more
    ):
        return _LAST_SLOT
    return ""


def _why_none(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return "none is to be seen here"
    return "; ".join(
        {
            "lent": f"{gpu.called} is leased by: {gpu.detail}",
            "busy": f"{gpu.called} is {gpu.detail}: {gpu.remedy}",
            "lost": f"{gpu.called} is lost ({gpu.detail}): {gpu.remedy}",
            "free": f"{gpu.called} goes to a job before it",
        }[gpu.state]
        for gpu in gpus
    )

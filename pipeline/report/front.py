"""The first screen: what came, what was filled, what is false, what is ready, and what needs attention.

`front` reads it from the view with a few questions whose answers are small, so that the daemon can ask them for a
digest too; `digest` writes it as text. What the simulator did is marked in each line that has it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from store.documents.grades import DOUBT, DOUBT_REMEDY, grade_text
from store.text import counted
from store.view import queries, report_queries
from store.view.counts import added_up, counted_branches, elsewhere_said, sorry_counts
from store.view.report_queries import Candidate, News, Ready, ShownFalse, Since, Spot
from store.view.rows import (
    LARGER,
    PolledRepository,
    ServiceRow,
    TooLargeRow,
    too_large_said,
)

SIMULATED = "SIMULATED"
MOST_OLDEST = 10
MOST_LINES = 20
"""Sorries that are named in one part of the first screen; the rest is counted."""
FINE = frozenset({"ok", "new"})
"""States of a repository that is not in trouble."""
FILLED = {
    "by_people": "by people",
    "by_us": "by everlean",
    "by_simulation": f"with a {SIMULATED} text, which is no proof",
}
_KINDS = {
    "train_tactics": "training the tactic model",
    "train_grpo": "training the tactic model with rewards",
    "train_progress": "training the progress model",
}


@dataclass(frozen=True, slots=True)
class Need:
    """Something that needs attention: what, where ("" where it is no repository's), why, and what to do."""

    what: str
    where: str
    reason: str
    remedy: str
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Front:
    """The first screen. `opened`, `filled` and `removed` are of the time from `since` on, the rest is of `until`: now.

    `opened` has no sorry that was there when its branch was first read; `first_read` counts those. `open` counts the
    sorries in the source, with a verified proof or not, without those `elsewhere`, which only other branches have, and
    the `not_taken`, which the limits of [scan] leave out; `repositories` are those that have one.
    """

    since: str
    until: str
    watched: int
    open: int
    elsewhere: int
    not_taken: int
    repositories: int
    opened: tuple[News, ...]
    first_read: int
    filled: tuple[News, ...]
    removed: int
    shown_false: tuple[ShownFalse, ...]
    ready: tuple[Ready, ...]
    candidates: tuple[Candidate, ...]
    oldest: tuple[Since, ...]
    needs: tuple[Need, ...]

    @property
    def filled_by(self) -> Mapping[str, int]:
        """Count the filled ones by who filled them, in words."""
        found = Counter(one.what for one in self.filled)
        return {words: found[what] for what, words in FILLED.items() if found[what]}

    @property
    def by_lean(self) -> Front:
        """Return it without what the simulator found or needs; what left the source stays counted as it did."""
        return replace(
            self,
            shown_false=tuple(one for one in self.shown_false if not one.simulated),
            needs=tuple(one for one in self.needs if not one.simulated),
        )

    @property
    def simulated(self) -> bool:
        """Return whether anything here comes from the simulator."""
        return any(one.simulated for part in (self.shown_false, self.needs) for one in part) or any(
            one.what == "by_simulation" for one in self.filled
        )


def front(view: sqlite3.Connection, *, since: str, until: str) -> Front:
    """Read the first screen; the two moments are UTC ISO-8601 as the log writes them."""
    news = report_queries.news(view, since)
    numbers = sorry_counts(view).values()
    total, branches = added_up(numbers), counted_branches(view)
    repositories, too_large = queries.repositories(view, watched_only=True), queries.too_large(view)
    return Front(
        since=since,
        until=until,
        watched=len(repositories),
        open=total.in_source,
        elsewhere=total.elsewhere,
        not_taken=_not_taken(row for row in too_large if (row.repository, row.branch) in branches),
        repositories=sum(row.in_source > 0 for row in numbers),
        opened=tuple(one for one in news if one.what == "opened" and not one.baseline),
        first_read=sum(one.what == "opened" and one.baseline for one in news),
        filled=tuple(one for one in news if one.what in FILLED),
        removed=sum(one.what == "removed" for one in news),
        shown_false=tuple(report_queries.shown_false(view)),
        ready=tuple(report_queries.ready(view)),
        candidates=tuple(report_queries.candidates(view)),
        oldest=tuple(report_queries.known_since(view, MOST_OLDEST)),
        needs=tuple(_needs(view, queries.service(view), repositories, too_large)),
    )


def _not_taken(rows: Iterable[TooLargeRow]) -> int:
    """Return how many sorries were left out; of several branches of a repository the one with the most is counted."""
    found: dict[str, int] = {}
    for row in rows:
        found[row.repository] = max(found.get(row.repository, 0), row.sorries - row.sorries_taken)
    return sum(found.values())


def _needs(
    view: sqlite3.Connection,
    service: ServiceRow | None,
    repositories: Sequence[PolledRepository],
    too_large: Sequence[TooLargeRow],
) -> Iterator[Need]:
    if service is not None and service.config_errors:
        yield Need(
            "config.toml has mistakes, so the earlier settings stay", "", service.config_errors[0],
            "everlean config check lists them all",
        )  # fmt: skip
    for row in repositories:
        if row.enabled and row.state not in FINE:
            yield Need(f"repository {row.state}", row.repository, row.reason, row.remedy)
    for repository, said in too_large_said(too_large).items():
        yield Need("not everything is taken", repository, said, LARGER)
    for repository, number in Counter(row.repository for row in queries.doubted_proofs(view)).items():
        yield Need(
            counted(number, "verified proof is in doubt", "verified proofs are in doubt"),
            repository,
            DOUBT,
            DOUBT_REMEDY,
        )
    for job in report_queries.stuck(view):
        times = "" if job.n == 1 else f" on {job.n:,} branches"
        yield Need(
            f"{_KINDS.get(job.kind, job.kind)} fails{times}", job.repository, job.message or job.reason, job.remedy,
            job.simulated,
        )  # fmt: skip
    for channel in report_queries.notifiers(view):
        if channel.kinds and channel.problem:
            yield Need(f"notifications by {channel.channel} fail", "", channel.reason, channel.remedy)
    for pause in queries.pauses(view):
        yield Need(
            f"{pause.work} is paused by {pause.by}", "", pause.reason or f"since {pause.since[:10]}",
            f"everlean resume {pause.work}",
        )  # fmt: skip


# ---- as text


def lead(front: Front) -> str:
    """Say in one sentence how many sorries are open."""
    if not front.watched:
        return "No repository is watched."
    among = counted(front.watched, "watched repository")
    if not front.open and not front.elsewhere and not front.not_taken:
        return f"No sorry is open in {among}."
    where = f" in {among}" if front.watched == 1 else f" in {front.repositories:,} of {among}"
    beyond = f", and {front.not_taken:,} more are beyond the limits of [scan]" if front.not_taken else ""
    elsewhere = elsewhere_said(front.elsewhere)
    return f"{counted(front.open, 'sorry is', 'sorries are')} open{where}{elsewhere}{beyond}."


def changes(front: Front) -> list[str]:
    """Say what came and went."""
    said = [counted(len(front.opened), "new sorry") if front.opened else "no new sorry"]
    if front.filled:
        said.append("filled: " + ", ".join(f"{n:,} {words}" for words, n in front.filled_by.items()))
    else:
        said.append("none filled")
    if front.removed:
        said.append(f"{front.removed:,} removed with their declaration")
    if front.first_read:
        said.append(f"{counted(front.first_read, 'was', 'were')} there when their branches were first read")
    return said


def digest(front: Front) -> list[str]:
    """Return the first screen as lines of text."""
    lines = [
        f"everlean from {front.since[:10]} to {front.until[:10]}: {lead(front)}",
        f"{'; '.join(changes(front))}.",
    ]

    def part(heading: str, found: Sequence[str]) -> None:
        if found:
            more = len(found) - MOST_OLDEST
            lines.append(f"{heading}:")
            lines.extend(f"- {line}" for line in found[:MOST_OLDEST])
            if more > 0:
                lines.append(f"- and {more:,} more")

    part("Shown false", [f"{_mark(one.simulated)}{placed(one.spot)}" for one in front.shown_false])
    part(
        "Patches ready",
        [
            f"{placed(one.spot)}: everlean proofs apply {one.proof}, {grade_text(one.grade, one.doubts)}"
            for one in front.ready
        ],
    )
    part(
        "Accepted, not verified",
        [f"{placed(one.spot)}: everlean proofs show {one.proof}" for one in front.candidates],
    )
    part("New", [placed(one.spot) for one in front.opened if one.here])
    part("Filled", [f"{placed(one.spot)}, {FILLED[one.what]}" for one in front.filled])
    part("Needs attention", [_mark(one.simulated) + needed(one) for one in front.needs])
    part("Oldest", [f"{placed(one.spot)}, {since(one)}" for one in front.oldest[:3]])
    return lines


def placed(spot: Spot) -> str:
    """Name a sorry and its place."""
    return f"{spot.declaration or 'a sorry outside declarations'} ({spot.repository} {spot.path}:{spot.line})"


def since(one: Since) -> str:
    """Say since when a sorry is known."""
    return f"{'there before' if one.baseline else 'since'} {one.at[:10]}"


def needed(one: Need) -> str:
    """Say what needs attention, in one line."""
    where = f" in {one.where}" if one.where else ""
    return f"{one.what}{where}: {one.reason}{f' -> {one.remedy}' if one.remedy else ''}"


def _mark(simulated: bool) -> str:
    return f"{SIMULATED}: " if simulated else ""

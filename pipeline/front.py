"""The first screen: new and filled sorries, false statements, ready patches, and problems.

`front` makes it from documents, with a few small queries, so that the daemon can make a digest too; `digest` writes it
as text.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.jobs.blueprint import no_blueprint, resting_on
from store.documents.news import FILLED, WORDS, News, Waiting, describe_news, describe_waiting
from store.documents.problems import Problem
from store.documents.sorries import Sorry, describe_sorries
from store.text import and_more, clean, counted, in_words
from store.view import queries, report_queries
from store.view.counts import added_up, counted_branches, elsewhere_text, sorry_counts
from store.view.impact import MOST_COUNTED
from store.view.rows import SorryRow, TooLargeRow

CHANGED = ("restated", "became an axiom", "unchecked", "hidden")
"""The steps that end a sorry but keep its declaration, without a proof of the old statement."""
MOST_OLDEST = 10
MOST_LINES = 20
"""Maximum of sorries named in one part of the first screen; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Front:
    """The first screen.

    `came`, `went` and the news start at `since`; the rest describes `until`: now. `came` counts the new sorries,
    without the ones from a branch's first reading (`first_read`); `went` counts the others by their fate. `opened`,
    `filled` and `changed` (of `CHANGED`) list the newest. `open` and `verified` count the sorries in the source,
    without `elsewhere` (only on other branches) and `not_taken` (beyond the limits of [scan]); `repositories` counts
    the repositories with a sorry. `recorded` counts the theorems of imports and traces if nothing is watched.
    """

    since: str
    until: str
    watched: int
    recorded: int
    open: int
    verified: int
    elsewhere: int
    not_taken: int
    repositories: int
    came: int
    went: Mapping[str, int]
    first_read: int
    opened: tuple[News, ...]
    filled: tuple[News, ...]
    changed: tuple[News, ...]
    changed_number: int
    waiting: Waiting
    oldest: tuple[Sorry, ...]
    problems: tuple[Problem, ...]

    @property
    def filled_number(self) -> int:
        return sum(self.went.get(what, 0) for what in FILLED)


def front(
    view: sqlite3.Connection,
    *,
    since: str,
    until: str,
    problems: Sequence[Problem],
    here: Sequence[SorryRow] | None = None,
) -> Front:
    """Put the first screen together.

    Args:
        view: the database.
        since: a moment, UTC ISO-8601 as in the log, as is `until`.
        until: the moment of the view.
        problems: those of the status.
        here: the sorries in the source, if read already.
    """
    here = report_queries.sorries_here(view) if here is None else here
    turns = report_queries.turns_since(view, since)
    opened = [one for one in turns if one.what == "opened" and not one.first_read]
    filled = [one for one in turns if one.step == "filled"]
    changed = [one for one in turns if one.step in CHANGED]
    numbers = sorry_counts(view).values()
    total, branches = added_up(numbers), counted_branches(view)
    too_large = (row for row in queries.too_large(view) if (row.repository, row.branch) in branches)
    oldest = sorted(
        here, key=lambda row: (row.written_at or row.opened_at, row.repository, row.path, row.line)
    )[:MOST_OLDEST]
    resting = resting_on(view, oldest, no_blueprint, most_theorems=MOST_COUNTED)
    watched = len(queries.repositories(view, watched_only=True))
    return Front(
        since=since,
        until=until,
        watched=watched,
        recorded=0 if watched else report_queries.recorded_theorems(view),
        open=total.by_state["open"],
        verified=total.by_state["verified"],
        elsewhere=total.elsewhere,
        not_taken=_not_taken(too_large),
        repositories=sum(row.in_source > 0 for row in numbers),
        came=len(opened),
        went=Counter(one.what for one in turns if one.what != "opened"),
        first_read=sum(one.first_read for one in turns),
        opened=tuple(describe_news(view, opened[:MOST_LINES])),
        filled=tuple(describe_news(view, filled[:MOST_LINES])),
        changed=tuple(describe_news(view, changed[:MOST_LINES])),
        changed_number=len(changed),
        waiting=describe_waiting(view, here),
        oldest=tuple(describe_sorries(view, oldest, impacts=resting)),
        problems=tuple(problems),
    )


def _not_taken(rows: Iterable[TooLargeRow]) -> int:
    """Return the number of sorries left out; a repository counts by its branch with the most."""
    result: dict[str, int] = {}
    for row in rows:
        result[row.repository] = max(result.get(row.repository, 0), row.sorries - row.sorries_taken)
    return sum(result.values())


# ---- as text


def lead(front: Front) -> str:
    """Say in one sentence how many sorries are open, and how many verified."""
    if not front.watched:
        recorded = f" {counted(front.recorded, 'theorem')} of imports and traces are recorded."
        return f"No repository is watched.{recorded if front.recorded else ''}"
    among = counted(front.watched, "watched repository")
    if not (front.open or front.verified or front.elsewhere or front.not_taken):
        return f"No sorry is open in {among}."
    where = f" in {among}" if front.watched == 1 else f" in {front.repositories:,} of {among}"
    beyond = f", and {front.not_taken:,} more are beyond the limits of [scan]" if front.not_taken else ""
    elsewhere = elsewhere_text(front.elsewhere)
    verified = f" and {counted(front.verified, 'is', 'are')} verified" if front.verified else ""
    return f"{counted(front.open, 'sorry is', 'sorries are')} open{verified}{where}{elsewhere}{beyond}."


def changes(front: Front) -> list[str]:
    """Say what came and went."""
    lines = [counted(front.came, "new sorry") if front.came else "no new sorry"]
    filled = [f"{front.went[what]:,} {WORDS[what]}" for what in FILLED if what in front.went]
    lines += filled or ["none filled"]
    if removed := front.went.get("removed"):
        lines.append(f"{removed:,} gone without a proof")
    if front.first_read:
        lines.append(f"{counted(front.first_read, 'was', 'were')} there when their branches were first read")
    return lines


def digest(front: Front) -> list[str]:
    """Return the first screen as the lines of a letter: the news first, then what waits, then what to mend."""
    lines = [
        lead(front),
        f"From {front.since[:10]} to {front.until[:10]}: {in_words(changes(front))}.",
    ]

    def part(heading: str, found: Sequence[str], of: int = 0) -> None:
        if found:
            lines.extend(["", f"{heading}:"])
            lines.extend(f"- {line}" for line in found[:MOST_OLDEST])
            if more := and_more(max(of, len(found)) - MOST_OLDEST):
                lines.append(f"-{more}")

    waiting = front.waiting
    part(
        "Filled", [f"{placed(one.sorry)}, {one.text}{_by(one)}" for one in front.filled], front.filled_number
    )
    part(
        "Gone without a proof of what they said",
        [f"{placed(one.sorry)}, {one.sorry.state_text}{_by(one)}" for one in front.changed],
        front.changed_number,
    )
    part("New", [f"{placed(one.sorry)}{_by(one)}" for one in front.opened if one.sorry.in_source], front.came)
    part("False as they stand, since Lean accepted the negation", [placed(one) for one in waiting.disproved])
    part(
        "Verified, and ready to apply",
        [
            f"{placed(one.sorry)}: everlean proofs apply {one.proof.proof}, {one.proof.graded}"
            for one in waiting.ready
        ],
    )
    part(
        "Accepted, but not all of it could be checked",
        [f"{placed(one.sorry)}: everlean proofs show {one.proof.proof}" for one in waiting.candidates],
    )
    part("The oldest", [f"{placed(one)}, {age(one)}" for one in front.oldest[:3]])
    part("Needs your attention", [f"{one.text} -> {one.remedy}" for one in front.problems])
    return lines


def _by(news: News) -> str:
    return f" ({news.by})" if news.by else ""


def age(sorry: Sorry) -> str:
    """Describe a sorry's date, author and impact."""
    rests = sorry.impact.text if sorry.impact and sorry.impact.resting else ""
    by = clean(sorry.written_by)
    return f"since {sorry.since[:10]}{f', {by}' if by else ''}{f'; {rests}' if rests else ''}"


def placed(sorry: Sorry) -> str:
    """Name a sorry and its place."""
    return f"{sorry.declaration or 'a sorry outside declarations'} ({sorry.repository} {sorry.path}:{sorry.line})"

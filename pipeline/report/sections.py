"""The sections on sorries over time and proofs.

Each is None where there is nothing to show. The prose around them is in `templates/macros.html`.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from pipeline.report.charts import Series, area, line_chart
from pipeline.report.html import (
    Picture,
    Section,
    Table,
    Value,
    macro,
    moment,
    section,
)
from store.documents.proofs import Proof, describe_proofs
from store.text import span
from store.view import report_queries
from store.view.report_queries import PastNumber, Searches, Turn

MOST_MOMENTS = 60
"""Maximum of moments in the history; of more, the last of each of equal parts."""
MOST_PROOFS = 50
"""Maximum of verified proofs with their text, and of other texts; the newest."""
_MOST_REASONS, _MOST_SEARCHES = 200, 200
_HISTORY = "sorries-over-time"
PICTURES = (_HISTORY,)
"""The names of the pictures."""


# ---- sorries


@dataclass(frozen=True, slots=True)
class Moment:
    """The sorries at one time: the numbers opened, filled and removed until then, and left.

    `open` are those still in the source, with a verified proof or not. `watched`: a watched repository existed; before
    that only `open` is known.
    """

    at: str
    watched: bool = True
    opened: int = 0
    by_people: int = 0
    by_us: int = 0
    removed: int = 0
    open: int = 0


_FLOWS = {
    "open": "Still in the source",
    "opened": "Opened until then",
    "by_people": "Filled by people",
    "by_us": "Filled by everlean",
    "removed": "Gone without a proof",
}


def history(turns: Sequence[Turn], past: Sequence[PastNumber]) -> Section | None:
    """Draw how many sorries were open, opened, filled and removed at each moment; None where nothing changed yet."""
    moments = followed(turns, past)
    if len(moments) < 2:
        return None
    # One moment is not a line.
    followed_for = sum(one.watched for one in moments)
    names = [
        name
        for name in _FLOWS
        if name == "open" or (followed_for > 1 and any(getattr(one, name) for one in moments))
    ]
    picture = line_chart(
        "sorries-picture",
        "Sorries of the branches that are watched now",
        positions=_without_repeats([moment(one.at) for one in moments]),
        lines=[
            Series(
                _FLOWS[name],
                tuple(getattr(one, name) if one.watched or name == "open" else None for one in moments),
            )
            for name in names
        ],
        unit="sorries",
        at=[datetime.fromisoformat(one.at).timestamp() for one in moments],
    )
    return section(
        "history", "Over time", "drawn", picture=Picture(_HISTORY, picture), counted=not moments[0].watched
    )


@dataclass(frozen=True, slots=True)
class Past:
    """A repository's sorries over time: their picture, the maximum and the picture's beginning.

    `year_ago`: the number then; None if unknown.
    """

    picture: str
    most: int
    begins: str
    ends: str
    year_ago: int | None


def pasts(turns: Sequence[Turn], past: Sequence[PastNumber], made_at: str) -> dict[str, Past]:
    """Return the pasts of the repositories with more than one moment."""
    by_repository: defaultdict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        by_repository[turn.repository].append(turn)
    counts: defaultdict[str, list[PastNumber]] = defaultdict(list)
    for number in past:
        counts[number.repository].append(number)
    result = {}
    ago = f"{int(made_at[:4]) - 1}{made_at[4:]}"
    for repository, its in by_repository.items():
        moments = followed(its, counts[repository])
        if len(moments) < 2:
            continue
        begins, ends = moments[0].at, max(made_at, moments[-1].at)
        earlier = [one.open for one in moments if one.at <= ago]
        picture = area(
            "Sorries in the source over time",
            f"{moments[0].open:,} on {begins[:10]}, {moments[-1].open:,} on {ends[:10]}",
            [*(one.open for one in moments), moments[-1].open],
            [datetime.fromisoformat(time).timestamp() for time in (*(one.at for one in moments), ends)],
        )
        most = max(one.open for one in moments)
        result[repository] = Past(picture, most, begins, ends, earlier[-1] if earlier else None)
    return result


def followed(
    turns: Iterable[Turn], past: Iterable[PastNumber] = (), most: int = MOST_MOMENTS
) -> tuple[Moment, ...]:
    """Follow the sorries through their turns, ordered by time; keep at most `most` moments.

    A sorry on several counted branches comes with the first and goes with the last of them. Until its first turn a
    repository has the number of its `past`.
    """
    total: Counter[str] = Counter()
    present: dict[tuple[str, str], set[str]] = {}
    before: dict[str, int] = {}
    watched: set[str] = set()
    moments: dict[str, tuple[Counter[str], int, bool]] = {}
    at = ""
    either: Iterable[PastNumber | Turn] = heapq.merge(past, turns, key=attrgetter("at"))
    for turn in either:
        if isinstance(turn, PastNumber) and turn.repository in watched:
            continue
        if turn.at != at:
            if at:
                moments[at] = (total.copy(), len(present) + sum(before.values()), bool(watched))
            at = turn.at
        if isinstance(turn, PastNumber):
            before[turn.repository] = turn.sorries
            continue
        watched.add(turn.repository)
        before.pop(turn.repository, None)
        sorry, what = (turn.repository, turn.sorry), turn.what
        branches = present.setdefault(sorry, set())
        elsewhere = branches - {turn.branch}
        if what == "opened":
            branches.add(turn.branch)
        else:
            branches.discard(turn.branch)
        if elsewhere:
            continue
        total[what] += 1
        if what != "opened":
            del present[sorry]
    if at:
        moments[at] = (total, len(present) + sum(before.values()), bool(watched))
    return tuple(
        Moment(at=time, watched=watched_then, open=number, **steps)
        for time in _thinned(list(moments), most)
        for steps, number, watched_then in [moments[time]]
    )


def _thinned(times: list[str], most: int) -> list[str]:
    if len(times) <= most:
        return times
    # Moments are cumulative, so the last of a part includes the others; the first one keeps the beginning.
    first, *rest = times
    return [first, *(rest[(index + 1) * len(rest) // (most - 1) - 1] for index in range(most - 1))]


def _without_repeats(times: Sequence[str]) -> list[str]:
    """Return times without their common part, and no finer than their span needs."""
    if times[0][:10] == times[-1][:10]:
        return [time[11:] for time in times]
    return [time[:16] if times[0][:7] == times[-1][:7] else time[:10] for time in times]


# ---- proofs


def proofs(view: sqlite3.Connection) -> Section | None:
    """Show proofs by verdict, attempts, reasons for rejections, and the newest proofs with their text."""
    verdicts, searches = report_queries.proof_verdicts(view), report_queries.searches(view)
    if not (verdicts or searches):
        return None
    by_state: Counter[str] = Counter()
    for row in verdicts:
        by_state[row.state] += row.n
    rejected = [row for row in verdicts if row.state in ("rejected", "conditional")]
    verified = sum(row.n for row in verdicts if row.state == "verified")
    total = sum(row.n for row in verdicts)
    shown = [
        (heading, [macro("proof", proof=one) for one in newest], of)
        for heading, of, is_verified in (
            ("The newest proofs that Lean verified", verified, True),
            ("Unverified proofs: candidates, conditional, rejected", total - verified, False),
        )
        if (newest := _newest(view, verified=is_verified))
    ]
    return section(
        "proofs", "Verdicts and attempts", "proofs",
        verdicts=Table(
            "Proofs by verdict",
            ("Verdict", "Proofs"),
            sorted(by_state.items()),
        ),
        searches=_searches(searches), searches_left=max(0, len(searches) - _MOST_SEARCHES), shown=shown,
        rejections=Table(
            "Verifier rejections by reason",
            ("Reason", "Verdict", "Proofs"),
            [(row.reason, row.state, row.n) for row in rejected[:_MOST_REASONS]],
            long=("Reason",),
        ),
        rejections_left=max(0, len(rejected) - _MOST_REASONS),
    )  # fmt: skip


def _newest(view: sqlite3.Connection, *, verified: bool) -> list[Proof]:
    return describe_proofs(view, report_queries.newest_proofs(view, MOST_PROOFS, verified=verified))


def _searches(searches: Sequence[Searches]) -> Table:
    rows: list[tuple[Value, ...]] = [
        (
            f"{row.prover} {row.model}".strip(), row.rung, row.attempts, row.found,
            row.disproved, span(row.seconds), None if row.model and not row.tokens else row.tokens, _dollars(row),
        )
        for row in searches[:_MOST_SEARCHES]
    ]  # fmt: skip
    return Table(
        "What was tried on sorries, by prover and model; the newest attempt of each on each sorry",
        ("Prover and model", "Rung", "Attempts", "Found a text", "Disproved", "Time", "Tokens", "US dollars"),
        rows,
    )  # fmt: skip


def _dollars(row: Searches) -> str | None:
    """Return the cost, and, if only some attempts have a price, their number."""
    if row.usd is None:
        return None
    return f"{row.usd:.2f}" + (
        f" for {row.priced:,} of {row.attempts:,}" if row.priced < row.attempts else ""
    )

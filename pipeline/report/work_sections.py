"""What the report says of sorrys, repositories, proofs and the machine's time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pipeline.report.charts import Bar, Line, bar_chart, line_chart
from pipeline.report.data import SORRY_COLUMNS, MachineTime, ReportData
from pipeline.report.html import (
    MADE_BY,
    SIMULATED,
    Section,
    Value,
    made_by,
    moment,
    paragraph,
    size,
    span,
    table,
    written,
)
from pipeline.report.svg import safe
from store.rows import ProofRow

_MOST_BARS = 15
_MOST_REASONS = 200
_MOST_OPEN = 8
"""Proofs whose lines stand there; those of the others are folded in."""
_COLUMNS = {
    "open": "Open",
    "verified": "Verified, still in the source",
    "by_people": "Filled by people",
    "by_us": "Filled by us",
    "by_simulation": f"Filled with a {SIMULATED} text",
    "removed": "Removed",
}


def sorrys(data: ReportData) -> Section:
    """Sorrys opened, filled by whom, and removed, over time."""
    section = Section("sorrys", "Sorrys over time")
    now = ", ".join(
        f"{n:,} {_COLUMNS[name][0].lower()}{_COLUMNS[name][1:]}"
        for name, n in data.sorries.items()
        if n or name != "by_simulation"
    )
    section.add(
        paragraph(
            f"Now, on watched branches: {now}. The proof of a verified one waits as a patch; "
            "one that was opened again counts as opened again."
        )
    )
    if not data.history:
        section.add(paragraph("No sorry was seen yet."))
        return section
    series = [
        ("Still in the source", [one.open for one in data.history]),
        ("Opened", [one.opened for one in data.history]),
        ("Filled by people", [one.by_people for one in data.history]),
        ("Filled by us", [one.by_us for one in data.history]),
        ("Removed with their declaration", [one.removed for one in data.history]),
    ]
    if any(one.by_simulation for one in data.history):
        series.append((_COLUMNS["by_simulation"], [one.by_simulation for one in data.history]))
    times = [moment(one.at) for one in data.history]
    chart = line_chart(
        "sorrys-picture",
        "Sorrys over time, of the branches watched now",
        positions=_short(times),
        lines=[Line(name, tuple(map(float, values))) for name, values in series],
        unit="sorrys; all but those still in the source count from the beginning on",
        at=[datetime.fromisoformat(one.at).timestamp() for one in data.history],
    )
    section.draw("sorrys-over-time", chart)
    section.add(
        table(
            "Sorrys over time",
            ("Time (UTC)", *(name for name, _ in series)),
            [(times[i], *(values[i] for _, values in series)) for i in range(len(times))],
        )
    )
    return section


def _short(times: Sequence[str]) -> list[str]:
    """Times without what is the same in all of them, and no finer than their span asks for."""
    if times[0][:10] == times[-1][:10]:
        return [time[11:] for time in times]
    return [time[:16] if times[0][:7] == times[-1][:7] else time[:10] for time in times]


def repositories(data: ReportData) -> Section:
    """Every repository's state and its sorrys."""
    columns = [
        name for name in SORRY_COLUMNS
        if name != "by_simulation" or data.sorries[name]
    ]  # fmt: skip
    rows: list[tuple[Value, ...]] = [
        (
            row.repository,
            row.state if row.watched else f"{row.state}, no longer watched",
            *(row.sorries[name] for name in columns),
            moment(row.checked_at or "never"),
            "; ".join(part for part in (row.reason, row.remedy) if part),
        )
        for row in data.repositories
    ]
    headers = (
        "Repository", "State", *(_COLUMNS[name] for name in columns), "Last asked (UTC)", "Trouble and remedy",
    )  # fmt: skip
    caption = "State of each repository; sorrys are those of its watched branches now"
    body = table(caption, headers, rows, long=headers[-1:], folded=False)
    return Section("repositories", "Repositories", body)


def proofs(data: ReportData) -> Section:
    """Proofs by verdict, why some were rejected, and the newest with their text."""
    section = Section("proofs", "Proofs and rejections")
    section.add(
        paragraph(
            "Verified: Lean compiled it, its axioms and its statement were checked. Conditional: it rests on another "
            "sorry. Candidate: nothing failed, and not all was checked; no simulated text is ever verified."
        ),
        table(
            "Proofs by verdict",
            ("Verdict", MADE_BY, "Proofs"),
            [(row.state, made_by(row.simulated), row.n) for row in data.proofs],
        ),
    )
    shown = data.rejections[:_MOST_REASONS]
    if shown:
        bars = [
            Bar(f"{SIMULATED} {row.reason}" if row.simulated else row.reason, row.n, row.simulated)
            for row in shown[:_MOST_BARS]
        ]
        more = f", the {_MOST_BARS} most frequent" if len(data.rejections) > _MOST_BARS else ""
        title = f"Verifier rejections by reason{more}, in proofs"
        section.draw(
            "rejections", bar_chart("rejections-picture", title, bars=bars, form=lambda n: f"{n:,.0f}")
        )
    left = len(data.rejections) - len(shown)
    section.add(
        table(
            "Verifier rejections by reason",
            ("Reason", "Verdict", MADE_BY, "Proofs"),
            [
                (row.reason, "conditional" if row.conditional else "rejected", made_by(row.simulated), row.n)
                for row in shown
            ],
        ),
        paragraph(f"{left:,} rarer reasons are left out.") if left else "",
        "".join(_texts(data)),
    )
    return section


def _texts(data: ReportData) -> Iterable[str]:
    if not data.proofs_found:
        return
    total = sum(row.n for row in data.proofs)
    yield "<h3>The newest proofs</h3>"
    yield paragraph(
        f"{len(data.proofs_found):,} of {total:,}, the newest first. The text stands in the sorry's place; "
        "which tactic left which goals is not recorded with a proof."
    )
    yield from map(_text, data.proofs_found[:_MOST_OPEN])
    if more := "".join(map(_text, data.proofs_found[_MOST_OPEN:])):
        yield f"<details><summary>{len(data.proofs_found) - _MOST_OPEN} earlier ones</summary>{more}</details>"


def _text(row: ProofRow) -> str:
    mark = f"{SIMULATED}, " if row.simulated else ""
    return (
        f"<details><summary><bdi>{safe(row.declaration)}</bdi> in <bdi>{safe(row.repository)}</bdi>: "
        f"{mark}{safe(row.state)}</summary><pre><bdi>{safe(row.replacement)}</bdi></pre>"
        f"{paragraph('; '.join(_known(row)), dim=True)}</details>"
    )


def _known(row: ProofRow) -> Iterable[str]:
    yield f"proof {row.proof}"
    yield f"{row.path}, commit {row.sha[:9]}, found {moment(row.found_at)} UTC by {row.prover}"
    if row.simulated:
        yield f"{SIMULATED}: the simulator made it, and it is no proof"
    yield f"tactics: {', '.join(row.tactics)}" if row.tactics else "tactics: not recorded"
    if row.state == "verified":
        yield f"axioms: {', '.join(row.axioms) or 'none'}"
    if row.not_checked:
        yield f"not checked: {', '.join(row.not_checked)}"
    if row.reason:
        yield f"reason: {row.reason}"


def machine_time(data: ReportData) -> Section:
    """What jobs of each kind took."""
    section = Section("machine-time", "Machine time")
    if data.machine_time:
        by_time: Sequence[MachineTime] = sorted(
            data.machine_time, key=lambda row: (row.simulated, -row.seconds)
        )
        bars = [
            Bar(f"{SIMULATED} {row.kind}" if row.simulated else row.kind, row.seconds, row.simulated)
            for row in by_time
        ]
        section.draw(
            "machine-time",
            bar_chart("machine-time-picture", "Machine time by kind of job", bars=bars, form=span),
        )
    section.add(
        table(
            "Machine time by kind of job",
            ("Kind", MADE_BY, "Jobs", "Failed", "Running", "Seconds", "Largest peak memory"),
            [
                (
                    row.kind, made_by(row.simulated), row.jobs, row.failed, row.running, row.seconds,
                    size(row.peak_rss_bytes),
                )
                for row in data.machine_time
            ],
        ),
        paragraph(
            "Of each job its newest attempt counts, in seconds by the clock; earlier attempts and what runs now are "
            "not in it.", dim=True,
        ),
    )  # fmt: skip
    return section


def glance(data: ReportData) -> Iterable[tuple[str, str, Sequence[str]]]:
    """The figures of this module's sections that stand at the top: name, figure, what it does not say by itself."""
    open_now = data.sorries["open"] + data.sorries["verified"]
    yield (
        "Sorrys in the source",
        written(open_now),
        [f"{data.sorries['verified']:,} of them with a verified proof"],
    )
    filled = data.sorries
    more = [f"{filled['by_people']:,} by people"]
    if filled["by_simulation"]:
        more.append(f"{filled['by_simulation']:,} more with a {SIMULATED} text")
    yield "Filled by us", written(filled["by_us"]), more
    real = {row.state: row.n for row in data.proofs if not row.simulated}
    made_up = sum(row.n for row in data.proofs if row.simulated)
    more = [f"{real.get('rejected', 0):,} rejected, {real.get('conditional', 0):,} conditional"]
    if made_up:
        more.append(f"{made_up:,} {SIMULATED} texts, which are no proofs")
    yield "Proofs verified by Lean", written(real.get("verified", 0)), more
    hours = {
        flag: sum(row.seconds for row in data.machine_time if row.simulated == flag) for flag in (False, True)
    }
    more = [f"{sum(row.jobs for row in data.machine_time):,} jobs"]
    if any(row.simulated for row in data.machine_time):
        more.append(f"{span(hours[True])} more of {SIMULATED} jobs")
    yield "Machine time", span(hours[False]), more

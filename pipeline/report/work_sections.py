"""What the report says of sorrys and of repositories."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pipeline.report.charts import Columns, Line, column_chart, line_chart
from pipeline.report.gather import FINE, SORRY_COLUMNS, ReportData, RepositoryState
from pipeline.report.html import SIMULATED, Section, Value, moment, paragraph, table

_MOST_REPOSITORIES = 1000
_COLUMNS = {
    "open": "Open",
    "verified": "Verified, still in the source",
    "by_people": "Filled by people",
    "by_us": "Filled by us",
    "by_simulation": f"Filled with a {SIMULATED} text",
    "removed": "Removed",
}
_FLOWS = ("opened", "by_people", "by_us", "removed", "by_simulation")
"""In the order of the colours of the lines of the chart of all time, which begins with those still there."""


def sorrys(data: ReportData) -> Section:
    """Sorrys opened, filled by whom, and removed, over time."""
    section = Section("sorrys", "Sorrys over time")
    now = "; ".join(
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
        section.add(
            paragraph(
                "No sorry was seen yet. The first scan of a watched repository counts those that stand in it."
            )
        )
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
        lines=[
            Line(name, tuple(map(float, values)), simulated=name == _COLUMNS["by_simulation"])
            for name, values in series
        ],
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
    _by_period(section, data)
    return section


def _by_period(section: Section, data: ReportData) -> None:
    """What came and went in each period, in a picture and a table."""
    flows = data.flows
    names = {**_COLUMNS, "opened": "Opened", "removed": "Removed with their declaration"}
    nothing = (0,) * len(flows.begins)
    rows = [
        Columns(
            names[what], flows.amounts.get(what, nothing), colour=number, simulated=what == "by_simulation"
        )
        for number, what in enumerate(_FLOWS, start=1)
        if what in flows.amounts or what != "by_simulation"
    ]
    labels = [begin.isoformat() for begin in flows.begins]
    section.draw(
        "sorrys-by-period",
        column_chart(
            "sorrys-by-period-picture",
            f"Sorrys that came and went, {flows.said} (UTC)",
            positions=labels,
            rows=rows,
            form=lambda n: f"{n:,.0f}",
            per=flows.unit,
        ),
    )
    section.add(
        table(
            f"Sorrys that came and went, {flows.said}",
            (flows.heading, *(row.name for row in rows)),
            [(label, *(int(row.values[index]) for row in rows)) for index, label in enumerate(labels)],
        )
    )
    if flows.left_out:
        before = ", ".join(
            f"{int(n):,} {names[what][0].lower()}{names[what][1:]}" for what, n in flows.before.items()
        )
        section.add(paragraph(f"Before them, in {flows.left_out:,} {flows.unit}s: {before}."))


def _short(times: Sequence[str]) -> list[str]:
    """Times without what is the same in all of them, and no finer than their span asks for."""
    if times[0][:10] == times[-1][:10]:
        return [time[11:] for time in times]
    return [time[:16] if times[0][:7] == times[-1][:7] else time[:10] for time in times]


def repositories(data: ReportData) -> Section:
    """Every repository's state and its sorrys: those in trouble first, then those with the most left to do."""
    columns = [
        name for name in SORRY_COLUMNS
        if name != "by_simulation" or data.sorries[name]
    ]  # fmt: skip
    rows: list[tuple[Value, ...]] = [
        (
            row.repository,
            f"{row.state}{_at_rest(row)}",
            *(row.sorries[name] for name in columns),
            moment(row.checked_at or "never"),
            "; ".join(part for part in (row.reason, row.remedy) if part),
        )
        for row in sorted(data.repositories, key=_urgent)[:_MOST_REPOSITORIES]
    ]
    headers = (
        "Repository", "State", *(_COLUMNS[name] for name in columns), "Last asked (UTC)", "Trouble and remedy",
    )  # fmt: skip
    caption = "State of each repository; sorrys are those of its watched branches now"
    body = table(
        caption, headers, rows, long=headers[-1:], folded=False, empty="an entry [[repos]] in config.toml"
    )
    if (total := len(data.repositories)) > len(rows):
        body += paragraph(
            f"{len(rows):,} of {total:,} are shown: those in trouble, then those with the most open."
        )
    return Section("repositories", "Repositories", body)


def _urgent(row: RepositoryState) -> tuple[bool, bool, int, str]:
    left = row.sorries["open"] + row.sorries["verified"]
    return not row.watched, not row.enabled or row.state in FINE, -left, row.repository


def _at_rest(row: RepositoryState) -> str:
    """Why nothing asks it any more; its state is that of the last time."""
    if not row.watched:
        return ", no longer watched"
    return "" if row.enabled else ", not enabled"

"""What the report says of the machine's time."""

from __future__ import annotations

from pipeline.report.charts import Bar, Columns, bar_chart, column_chart
from pipeline.report.gather import DEVICES, OverTime, ReportData
from pipeline.report.html import (
    MADE_BY,
    SIMULATED,
    Section,
    Value,
    clock,
    made_by,
    paragraph,
    size,
    span,
    table,
)

_ON = {"gpu": "With a GPU", "cpu": "Processor alone", "unknown": "Not recorded which"}


def machine_time(data: ReportData) -> Section:
    """What jobs of each kind took, on what, and when."""
    section = Section("machine-time", "Machine time")
    if data.machine_periods.begins:
        _over_time(section, data.machine_periods)
    if data.machine_time:
        bars = [Bar(_name(row.kind, row.simulated), row.seconds, row.simulated) for row in data.machine_time]
        section.draw(
            "machine-time",
            bar_chart("machine-time-picture", "Machine time by kind of job", bars=bars, form=span),
        )
    rows: list[tuple[Value, ...]] = [
        (
            row.kind, made_by(row.simulated), row.jobs, row.failed, row.running, row.attempts, clock(row.seconds),
            *(clock(row.seconds_on.get(device, 0.0)) for device in DEVICES), size(row.peak_rss_bytes),
        )
        for row in data.machine_time
    ]  # fmt: skip
    section.add(
        table(
            "Machine time by kind of job, in h:mm:ss",
            (
                "Kind",
                MADE_BY,
                "Jobs",
                "Failed",
                "Running",
                "Ended attempts",
                "Time",
                *_ON.values(),
                "Largest peak memory",
            ),
            rows,
            empty="a job, which begins when there is a commit to scan",
        ),
        paragraph(
            "All attempts that ended count, failed and interrupted ones too, by the clock; what runs now is not in it. "
            "Scanning, building, tracing and checking use no GPU, nor does a search by the tactic list or by an "
            "external model; a training says in its checkpoint what it ran on. Of all else nothing is recorded.",
            dim=True,
        ),
    )
    return section


def _over_time(section: Section, time: OverTime[tuple[str, bool]]) -> None:
    keys = sorted(time.amounts, key=lambda key: (key[1], -sum(time.amounts[key]), key[0]))
    labels = [begin.isoformat() for begin in time.begins]
    section.draw(
        "machine-time-over-time",
        column_chart(
            "machine-time-over-time-picture",
            f"Machine time {time.said} (UTC)",
            positions=labels,
            rows=[
                Columns(_name(kind, simulated), time.amounts[kind, simulated], simulated=simulated)
                for kind, simulated in keys
            ],
            form=span,
            per=time.unit,
        ),
    )
    section.add(
        table(
            f"Machine time {time.said}, in h:mm:ss",
            (time.heading, *(_name(*key) for key in keys)),
            [
                (label, *(clock(time.amounts[key][index]) for key in keys))
                for index, label in enumerate(labels)
            ],
        )
    )
    if time.left_out:
        earlier = span(sum(time.before.values()))
        section.add(paragraph(f"Before them, in {time.left_out:,} {time.unit}s: {earlier}."))


def _name(kind: str, simulated: bool) -> str:
    return f"{SIMULATED} {kind}" if simulated else kind

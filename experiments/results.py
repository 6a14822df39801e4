"""The result of an experiment: a page with its table, and a chart, written from its log alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.file import Learning, Proving, digest
from experiments.lab import Lab, interval
from store.files import write_whole


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an experiment.

    Attributes:
        head: the columns' names.
        rows: of the table.
        chart: an SVG.
        meaning: of the columns, for the page.
        seconds: of processor time, of everything in the table.
        without_lean: it is measured on letters.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    chart: str
    meaning: str
    seconds: float
    without_lean: bool = False

    @property
    def table(self) -> str:
        """The table in Markdown."""
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_interval(values: Sequence[float]) -> str:
    """Return a mean with half of Student's 95% interval; for a single seed the value, "" for no value."""
    if not values or any(map(math.isnan, values)):
        return ""
    mean, half = interval(values)
    return f"{mean:.1f}" if math.isinf(half) else f"{mean:.1f} ± {half:.1f}"


def gain(values: Sequence[float], others: Sequence[float]) -> str:
    """Return the paired difference of two arms over the seeds; "within" if its interval has zero in it."""
    differences = [one - other for one, other in zip(values, others, strict=True)]
    mean, half = interval(differences)
    if math.isinf(half):
        return f"{mean:+.1f}"
    return f"{mean:+.1f} ± {half:.1f}" + ("" if abs(mean) > half else " (within)")


def mean_at(each: Sequence[Sequence[float | None]], at: int) -> float | None:
    """Return the mean over seeds of the values at a position; None if a seed has none."""
    values = [one[at] for one in each]
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if len(numbers) == len(values) else None


def write(result: Result, experiment: Learning | Proving, lab: Lab, text: str, out: Path, shown: str) -> Path:
    """Write NAME.md and NAME.svg into `out`, and return the page's path.

    Args:
        result: of the experiment.
        experiment: the file's content.
        lab: its open log.
        text: of the file.
        out: a folder.
        shown: the file's path for the page.

    Raises:
        OSError: the folder cannot be written.
    """
    run = lab.runs[-1]
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    others = (
        len({one.model_dump_json(exclude={"file", "digest"}) for one in lab.runs if one.digest == run.digest})
        - 1
    )
    machine = run.machine
    page = [
        f"# {lab.name}",
        experiment.about.strip(),
        *(["**No Lean is in it.**"] if result.without_lean else []),
        f"    python -m experiments {shown}",
        result.table,
        f"![{lab.name}]({lab.name}.svg)",
        result.meaning,
        *(
            ["One seed: there is no interval, and differences may be chance."]
            if len(experiment.seeds) == 1
            else []
        ),
        f"Seeds: {', '.join(map(str, experiment.seeds))}. {duration(result.seconds)} of processor time on "
        f"{machine.processor} ({machine.cores} cores, {machine.system}), GPU: {machine.gpu}. Python {machine.python}, "
        f"{versions}."
        + (f" {others} other machines or versions measured parts of it: see the log." if others else ""),
        f"Log: {lab.head}. File: SHA-256 `{digest(text)}`.",
    ]
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / f"{lab.name}.svg", result.chart + "\n")
    write_whole(out / f"{lab.name}.md", "\n\n".join(page) + "\n")
    return out / f"{lab.name}.md"


def duration(seconds: float) -> str:
    """Return seconds in the largest fitting unit."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"

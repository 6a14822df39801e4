"""The top of the page: how things stand in two sentences, what needs somebody, and the figures that matter most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline.report.charts import percent, safe
from pipeline.report.gather import DEVICES, FINE, ReportData
from pipeline.report.html import SIMULATED, moment, shortened, span, written

_MOST_NAMED = 3
"""Repositories in trouble that are named; the others are counted."""


def summary(data: ReportData) -> str:
    """Return the top of the page, as HTML."""
    trouble = "".join(f"<li>{item}</li>" for item in _attention(data))
    attention = (
        f'<div class="attention"><h3>Needs somebody</h3><ul>{trouble}</ul></div>'
        if trouble
        else '<p class="dim">Nothing that is recorded needs somebody.</p>'
    )
    figures = ""
    for name, figure, more in (*_work(data), _retriever(data), _time(data)):
        lines = "".join(f'<dd class="more">{safe(line)}</dd>' for line in more)
        figures += f"<div><dt>{safe(name)}</dt><dd>{safe(figure)}</dd>{lines}</div>"
    return (
        f'<section class="summary" aria-labelledby="summary"><h2 id="summary">At a glance</h2>'
        f'<p class="lead">{safe(_lead(data))}</p><dl class="glance">{figures}</dl>{attention}</section>'
    )


def _lead(data: ReportData) -> str:
    watched = [row for row in data.repositories if row.watched]
    with_open = sum(1 for row in watched if row.sorries["open"] + row.sorries["verified"])
    now = data.sorries
    left = now["open"] + now["verified"]
    among = _many(len(watched), "watched repository", "watched repositories")
    if not watched:
        where = "No repository is watched."
    elif not any(data.sorries.values()):
        return f"No sorry was seen yet in {among}."
    elif not left:
        where = f"No sorry stands any more in {among}."
    else:
        proved = {0: "none has", 1: "1 has"}.get(now["verified"], f"{now['verified']:,} have")
        where = (
            f"{_many(left, 'sorry stands', 'sorrys stand')} in {with_open:,} of {among}; "
            f"{proved} a proof that Lean verified."
        )
    return f"{where} People filled {now['by_people']:,}, unsorry filled {now['by_us']:,}."


def _attention(data: ReportData) -> Iterable[str]:
    """What a person may have to look at, as HTML."""
    if data.service is not None and data.service.config_errors:
        first = safe(shortened(data.service.config_errors[0]))
        yield f"config.toml was changed and has mistakes, so the earlier settings stay: {first}"
    trouble = [row for row in data.repositories if row.watched and row.enabled and row.state not in FINE]
    if trouble:
        named = ", ".join(
            f"<bdi>{safe(shortened(row.repository, 80))}</bdi> ({safe(row.state)})"
            for row in trouble[:_MOST_NAMED]
        )
        more = f" and {len(trouble) - _MOST_NAMED:,} more" if len(trouble) > _MOST_NAMED else ""
        cannot = _many(len(trouble), "repository cannot be read", "repositories cannot be read")
        yield f'<a href="#repositories">{cannot}</a>: {named}{more}'
    waiting = data.sorries["verified"]
    if waiting:
        proofs = _many(waiting, "verified proof waits", "verified proofs wait")
        yield f'<a href="#proofs">{proofs}</a> as a patch, to be proposed or taken over'
    failed = Counter({row.kind: row.failed for row in data.machine_time if row.failed and not row.simulated})
    made_up = sum(row.failed for row in data.machine_time if row.simulated)
    if failed:
        kinds = ", ".join(f"{n:,} {safe(kind)}" for kind, n in failed.most_common())
        jobs = _many(failed.total(), "job", "jobs")
        yield f'<a href="#machine-time">{jobs} failed at the newest attempt</a>: {kinds}'
    if made_up:
        yield f'<a href="#machine-time">{_many(made_up, f"{SIMULATED} job", f"{SIMULATED} jobs")} failed</a>'


def _work(data: ReportData) -> Iterable[tuple[str, str, Sequence[str]]]:
    """Figures: name, figure, what it does not say by itself."""
    now = data.sorries
    yield (
        "Sorrys in the source",
        written(now["open"] + now["verified"]),
        [f"{now['verified']:,} of them with a verified proof"],
    )
    more = [f"{now['by_people']:,} by people"]
    if now["by_simulation"]:
        more.append(f"{now['by_simulation']:,} more with a {SIMULATED} text")
    yield "Filled by us", written(now["by_us"]), more
    real = {row.state: row.n for row in data.proofs if not row.simulated}
    made_up = sum(row.n for row in data.proofs if row.simulated)
    more = [f"{real.get('rejected', 0):,} rejected, {real.get('conditional', 0):,} conditional"]
    if made_up:
        more.append(f"{made_up:,} {SIMULATED} texts, which are no proofs")
    yield "Proofs verified by Lean", written(real.get("verified", 0)), more


def _retriever(data: ReportData) -> tuple[str, str, Sequence[str]]:
    trained = [row for row in data.trainings if row.model == "retriever"]
    in_use = next((row for row in trained if row.promoted), None)
    if in_use is None:
        return (
            "Retriever in use",
            "none",
            [_many(len(trained), "checkpoint", "checkpoints")] if trained else [],
        )
    more = [f"checkpoint {in_use.checkpoint}, of {len(trained):,}"]
    matrix = next(
        (one for one in data.matrices if (one.model, one.simulated) == ("retriever", in_use.simulated)), None
    )
    average = matrix.averages[-1] if matrix else None
    name = "Retriever in use: mean recall@10"
    if in_use.simulated:
        name = f"{SIMULATED} retriever in use: mean recall@10"
    if matrix is None or average is None:
        return name, "unknown", more
    tasks = f"over {len(matrix.tasks)} tasks" if len(matrix.tasks) != 1 else "over 1 task"
    return name, f"{percent(average)} %", [f"{tasks}, split {matrix.split}", *more]


def _time(data: ReportData) -> tuple[str, str, Sequence[str]]:
    real = [row for row in data.machine_time if not row.simulated]
    made_up = [row for row in data.machine_time if row.simulated]
    on = {device: sum(row.seconds_on.get(device, 0.0) for row in real) for device in DEVICES}
    more = [f"{span(on['gpu'])} of it with a GPU", f"{sum(row.jobs for row in real):,} jobs"]
    if on["unknown"]:
        more.insert(1, f"{span(on['unknown'])} on what is not recorded")
    if made_up:
        more.append(f"{span(sum(row.seconds for row in made_up))} more of {SIMULATED} jobs")
    return "Machine time", span(sum(row.seconds for row in real)), more


def masthead(data: ReportData) -> str:
    """Return the lines below the title: of when this is, what Lean is here, and how the daemon was last seen."""
    service = data.service
    lean, daemon = "not known, no daemon has run yet", ""
    if service is not None:
        lean = f"{SIMULATED}, the simulator" if service.lean == "simulator" else service.lean
        if service.lean_detail not in ("", service.lean):
            lean = f"{lean} ({shortened(service.lean_detail, 200)})"
        if service.stopped_at is not None:
            daemon = (
                f"The daemon stopped {moment(service.stopped_at)} UTC: {shortened(service.stop_reason, 200)}."
            )
        elif service.started_at is not None:
            daemon = f"The daemon started {moment(service.started_at)} UTC."
    return (
        f"<p>As of event {data.position:,}; made {safe(moment(data.made_at))} UTC. Lean: {safe(lean)}."
        f"{' ' if daemon else ''}{safe(daemon)}</p>"
    )


def _many(n: int, one: str, more: str) -> str:
    return f"{n:,} {one if n == 1 else more}"

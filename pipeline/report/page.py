"""The page of a report: its sections below a summary, and the bound on its size.

Each section bounds itself. The page is never larger than `MOST_BYTES`: the largest sections are left out until it is
not, and both the page's top and the section's place say so. The prose is in `templates/`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.report import model_sections, sections
from pipeline.report.gather import (
    DEVICES,
    FINE,
    ReportData,
)
from pipeline.report.html import (
    SIMULATED,
    Section,
    environment,
    many,
    section,
    shortened,
    span,
    written,
)

MOST_BYTES = 8 << 20
"""Of the page, in UTF-8."""
_REST_BYTES = 1 << 18
"""Kept for what is around the sections."""


@dataclass(frozen=True, slots=True)
class Page:
    """The report as text: the page, and the pictures in it by the name of their file."""

    html: str
    pictures: Mapping[str, str]


def render(data: ReportData, *, most_bytes: int = MOST_BYTES) -> Page:
    """Make the page. It loads nothing: no script, no font, no picture from elsewhere.

    Args:
        data: what it shows.
        most_bytes: that it may have.
    """
    shown, left_out = ([], []) if data.empty else _bounded(_sections(data), most_bytes)
    failed = [
        (simulated, jobs)
        for simulated in (False, True)
        if (jobs := Counter({row.kind: row.failed for row in data.machine_time
                             if row.failed and row.simulated == simulated}))
    ]  # fmt: skip
    html = environment().get_template("report.html").render(
        title="unsorry: report",
        data=data,
        lean=_lean(data),
        sections=shown,
        left_out=left_out,
        most=_mebibytes(most_bytes),
        lead=_lead(data),
        figures=list(_figures(data)),
        trouble=[row for row in data.repositories if row.watched and row.enabled and row.state not in FINE],
        failed=failed,
    )  # fmt: skip
    pictures = {f"{one.name}.svg": f"{one.svg}\n" for one_section in shown for one in one_section.pictures}
    return Page(html, pictures)


def _bounded(whole: Sequence[Section], most_bytes: int) -> tuple[list[Section], list[str]]:
    """Return the sections, the largest of them left out as far as need be, and the headings of those."""
    found = list(whole)
    bytes_of = [len(one.html.encode()) for one in found]
    left_out: list[str] = []
    for at in sorted(range(len(found)), key=lambda at: -bytes_of[at]):
        if sum(bytes_of) <= most_bytes - _REST_BYTES:
            break
        takes, most = _mebibytes(bytes_of[at]), _mebibytes(most_bytes)
        found[at] = section(found[at].identity, found[at].heading, "too_large", takes=takes, most=most)
        bytes_of[at] = len(found[at].html.encode())
        left_out.append(found[at].heading)
    return found, left_out


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f}"


def _sections(data: ReportData) -> list[Section]:
    return [
        sections.sorries(data),
        sections.repositories(data),
        sections.proofs(data),
        sections.rejections(data),
        *model_sections.matrices(data),
        model_sections.training(data),
        model_sections.evaluations(data),
        sections.machine_time(data),
    ]


# ---- the top


def _lean(data: ReportData) -> str:
    service = data.service
    if service is None:
        return "not known, no daemon has run yet"
    lean = f"{SIMULATED}, the simulator" if service.lean == "simulator" else service.lean
    detail = service.lean_detail not in ("", service.lean)
    return f"{lean} ({shortened(service.lean_detail, 200)})" if detail else lean


def _lead(data: ReportData) -> str:
    watched = [row for row in data.repositories if row.watched]
    with_open = sum(1 for row in watched if row.left)
    now = data.sorries
    left = now["open"] + now["verified"]
    among = many(len(watched), "watched repository", "watched repositories")
    if not watched:
        where = "No repository is watched."
    elif not any(now.values()):
        return f"No sorry was seen yet in {among}."
    elif not left:
        where = f"No sorry is left in {among}."
    else:
        proved = {0: "none has", 1: "1 has"}.get(now["verified"], f"{now['verified']:,} have")
        where = (
            f"{many(left, 'sorry is left', 'sorries are left')} in {with_open:,} of {among}; "
            f"{proved} a proof that Lean verified."
        )
    return f"{where} People filled {now['by_people']:,}, unsorry filled {now['by_us']:,}."


def _figures(data: ReportData) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the figures that matter most: name, figure, and what it does not say by itself."""
    now = data.sorries
    yield (
        "Sorries in the source",
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
    yield _retriever(data)
    on = {
        device: sum(row.seconds_on.get(device, 0.0) for row in data.machine_time if not row.simulated)
        for device in DEVICES
    }
    jobs = sum(row.jobs for row in data.machine_time if not row.simulated)
    more = [f"{span(on['gpu'])} of it with a GPU", f"{jobs:,} jobs"]
    if on["unknown"]:
        more.insert(1, f"{span(on['unknown'])} on what is not recorded")
    simulated = [row.seconds for row in data.machine_time if row.simulated]
    if simulated:
        more.append(f"{span(sum(simulated))} more of {SIMULATED} jobs")
    yield "Machine time", span(sum(on.values())), more


def _retriever(data: ReportData) -> tuple[str, str, list[str]]:
    trained = [row for row in data.trainings if row.model == "retriever"]
    in_use = next((row for row in trained if row.promoted), None)
    if in_use is None:
        counted = [many(len(trained), "checkpoint", "checkpoints")] if trained else []
        return "Retriever in use", "none", counted
    more = [f"checkpoint {in_use.checkpoint}, of {len(trained):,}"]
    wanted = ("retriever", in_use.simulated)
    matrix = next((one for one in data.matrices if (one.model, one.simulated) == wanted), None)
    average = matrix.averages[-1] if matrix else None
    name = f"{f'{SIMULATED} retriever' if in_use.simulated else 'Retriever'} in use: mean recall@10"
    if matrix is None or average is None:
        return name, "unknown", more
    over = f"over {many(len(matrix.tasks), 'task', 'tasks')}, split {matrix.split}"
    return name, f"{average * 100:.1f} %", [over, *more]

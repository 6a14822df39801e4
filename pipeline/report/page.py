"""The page: HTML of what was gathered. Every picture has a table beside it, and SIMULATED is written in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.report import model_sections, recall_sections, work_sections
from pipeline.report.data import ReportData
from pipeline.report.html import SIMULATED, Section, moment, paragraph
from pipeline.report.style import CSS
from pipeline.report.svg import ORIGIN, safe


@dataclass(frozen=True, slots=True)
class Page:
    """The report as text: the page, and the pictures in it by the name of their file."""

    html: str
    pictures: Mapping[str, str]


def render(data: ReportData) -> Page:
    """Make the page. It loads nothing: no script, no font, no picture from elsewhere."""
    sections = [] if data.empty else _sections(data)
    if sections:
        links = "".join(f'<li><a href="#{item.identity}">{safe(item.heading)}</a></li>' for item in sections)
        content = f'<nav aria-label="Sections"><ul>{links}</ul></nav>{_glance(data)}'
        content += "".join(item.html() for item in sections)
    else:
        content = paragraph(
            "Nothing is recorded yet: no repository, no sorry, no proof, no checkpoint, no job."
        )
    warning = (
        f'<p class="warn" role="note"><strong>{SIMULATED}</strong>: some of what is here was made by the simulator and '
        "not by Lean. It is marked so wherever it stands, and counted apart.</p>"
        if data.simulated
        else ""
    )
    html = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="{ORIGIN}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>unsorry: report</title><style>{CSS}</style></head><body>"
        '<a class="skip" href="#content">Skip to the content</a><header><h1>unsorry: report</h1>'
        f"<p>As of event {data.position:,}; made {safe(moment(data.made_at))} UTC. Lean: {_lean(data)}.</p></header>"
        f'<main id="content" tabindex="-1">{warning}{content}</main></body></html>\n'
    )
    pictures = {f"{name}.svg": f"{svg}\n" for section in sections for name, svg in section.pictures.items()}
    return Page(html, pictures)


def _sections(data: ReportData) -> list[Section]:
    return [
        work_sections.sorrys(data),
        work_sections.repositories(data),
        work_sections.proofs(data),
        *recall_sections.recall(data),
        model_sections.training(data),
        model_sections.evaluations(data),
        work_sections.machine_time(data),
    ]


def _lean(data: ReportData) -> str:
    if not data.lean:
        return "not known, no daemon has run yet"
    named = f"{SIMULATED}, the simulator" if data.lean == "simulator" else data.lean
    return safe(f"{named} ({data.lean_detail})" if data.lean_detail not in ("", data.lean) else named)


def _glance(data: ReportData) -> str:
    figures = [*work_sections.glance(data), *model_sections.glance(data)]
    cards = ""
    for name, figure, more in figures:
        lines = "".join(f'<dd class="more">{safe(line)}</dd>' for line in more)
        cards += f"<div><dt>{safe(name)}</dt><dd>{safe(figure)}</dd>{lines}</div>"
    return f'<dl class="glance" aria-label="At a glance">{cards}</dl>'

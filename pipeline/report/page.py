"""The page: HTML of what was gathered. Every picture has a table beside it, and SIMULATED is written in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.prove.treepage import PICTURE_STYLE
from pipeline.report import machine_sections, model_sections, proof_sections, recall_sections, work_sections
from pipeline.report.data import ReportData
from pipeline.report.html import SIMULATED, Section, paragraph
from pipeline.report.policy import POLICY
from pipeline.report.style import CSS
from pipeline.report.summary import masthead, summary
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
        content = f'<nav aria-label="Sections"><ul>{links}</ul></nav>{summary(data)}'
        content += "".join(item.html() for item in sections)
    else:
        content = paragraph(
            "Nothing is recorded yet: no repository, no sorry, no proof, no checkpoint, no job. An entry [[repos]] in "
            "config.toml and a running daemon (`unsorry run`) make a beginning."
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
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>unsorry: report</title><style>{CSS}{PICTURE_STYLE}</style></head><body>"
        '<a class="skip" href="#content">Skip to the content</a><header><h1>unsorry: report</h1>'
        f"{masthead(data)}</header>"
        f'<main id="content" tabindex="-1">{warning}{content}</main></body></html>\n'
    )
    pictures = {f"{name}.svg": f"{svg}\n" for section in sections for name, svg in section.pictures.items()}
    return Page(html, pictures)


def _sections(data: ReportData) -> list[Section]:
    return [
        work_sections.sorrys(data),
        work_sections.repositories(data),
        proof_sections.proofs(data),
        proof_sections.rejections(data),
        *recall_sections.recall(data),
        model_sections.training(data),
        model_sections.evaluations(data),
        machine_sections.machine_time(data),
    ]

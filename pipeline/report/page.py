"""The page: HTML of what was gathered. Every picture has a table beside it, and SIMULATED is written in words.

Each section bounds itself. Whatever they have together, the page is never larger than `MOST_BYTES`: the largest are
left out until it is not, and both the page's top and the section's place say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.report import machine_sections, matrix_sections, model_sections, proof_sections, work_sections
from pipeline.report.charts import ORIGIN, safe
from pipeline.report.gather import ReportData
from pipeline.report.html import SIMULATED, Section, paragraph
from pipeline.report.policy import POLICY
from pipeline.report.style import CSS
from pipeline.report.summary import masthead, summary
from pipeline.report.tree import PICTURE_STYLE

MOST_BYTES = 8 << 20
"""Of the page, in UTF-8."""
_REST_BYTES = 1 << 18
"""Kept for what stands around the sections."""


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
    sections, left_out = ([], "") if data.empty else _bounded(_sections(data), most_bytes)
    if sections:
        links = "".join(f'<li><a href="#{item.identity}">{safe(item.heading)}</a></li>' for item in sections)
        content = f'<nav aria-label="Sections"><ul>{links}</ul></nav>{left_out}{summary(data)}'
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


def _bounded(sections: Sequence[Section], most_bytes: int) -> tuple[list[Section], str]:
    """Return the sections with the largest of them left out as far as need be, and what is said of that at the top."""
    found = list(sections)
    bytes_of = [len(one.html().encode()) for one in found]
    room = most_bytes - _REST_BYTES
    left_out: list[str] = []
    for at in sorted(range(len(found)), key=lambda at: -bytes_of[at]):
        if sum(bytes_of) <= room:
            break
        whole = found[at]
        words = (
            f"Left out: it takes {_mebibytes(bytes_of[at])} MiB, and the page may have {_mebibytes(most_bytes)} MiB "
            "altogether. The command line has what would stand here: unsorry sorries, repos, proofs, models and jobs."
        )
        found[at] = Section(whole.identity, whole.heading, paragraph(words))
        bytes_of[at] = len(found[at].html().encode())
        left_out.append(whole.heading)
    if not left_out:
        return found, ""
    named = "; ".join(left_out)
    return found, paragraph(
        f"Left out, so that the page has no more than {_mebibytes(most_bytes)} MiB: {named}."
    )


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f}"


def _sections(data: ReportData) -> list[Section]:
    return [
        work_sections.sorrys(data),
        work_sections.repositories(data),
        proof_sections.proofs(data),
        proof_sections.rejections(data),
        *matrix_sections.sections(data),
        model_sections.training(data),
        model_sections.evaluations(data),
        machine_sections.machine_time(data),
    ]

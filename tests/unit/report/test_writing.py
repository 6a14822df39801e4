"""The report's files: replaced whole, only over a report's own, and none of an earlier report left behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pipeline.report.charts import ORIGIN
from pipeline.report.page import Report
from pipeline.report.writing import NotOursError, write

HTML = f'<meta name="generator" content="{ORIGIN}">'
SVG = f'<svg data-origin="{ORIGIN}"/>'


def report(*pictures: str, html: str = HTML, pages: tuple[str, ...] = ()) -> Report:
    html_of = {"index.html": html, **dict.fromkeys(pages, HTML)}
    return Report(html_of, dict.fromkeys(pictures, SVG), position=1, since="")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_report_is_written_over_an_earlier_one_and_what_it_lacks_goes(tmp_path: Path) -> None:
    gone = ("sorries-github.com-a-b-0123abcd.html", "sorries-github.com-a-b-0123abcd-12.html")
    write(report("retriever-losses.svg", "tactics-losses.svg", "sorries-over-time.svg", pages=gone), tmp_path)
    (tmp_path / "proofs.html").write_text("<h1>mine</h1>", encoding="utf-8")
    (tmp_path / "notes.svg").write_text(SVG, encoding="utf-8")
    (tmp_path / "progress-losses.svg").write_text("drawn by hand", encoding="utf-8")
    written = write(report("sorries-over-time.svg", html=HTML + "new", pages=("models.html",)), tmp_path)
    assert written == tuple(
        tmp_path / name for name in ("index.html", "models.html", "sorries-over-time.svg")
    )
    assert names(tmp_path) == [
        "index.html", "models.html", "notes.svg", "progress-losses.svg", "proofs.html", "sorries-over-time.svg"
    ]  # fmt: skip
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == HTML + "new"


@pytest.mark.parametrize("name", ["index.html", "proofs.html", "sorries-over-time.svg"])
def test_a_file_that_no_report_wrote_stops_everything_before_a_byte_is_written(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")
    with pytest.raises(NotOursError, match=rf"{name}: no report wrote it.*--out"):
        write(report("sorries-over-time.svg", "sorries-over-time.svg", pages=("proofs.html",)), tmp_path)
    assert names(tmp_path) == [name]
    assert (tmp_path / name).read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "fifo"])
def test_what_is_no_plain_file_is_no_report(tmp_path: Path, kind: str) -> None:
    target, place = tmp_path / "target.html", tmp_path / "out" / "index.html"
    place.parent.mkdir()
    if kind == "link":
        target.write_text(HTML, encoding="utf-8")
    if kind.endswith("link"):
        place.symlink_to(target)
    elif kind == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    with pytest.raises(NotOursError):
        write(report(), place.parent)
    assert not target.exists() or target.read_text(encoding="utf-8") == HTML


def test_a_write_that_fails_leaves_the_earlier_report_and_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(report("sorries-over-time.svg"), tmp_path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(report("sorries-over-time.svg", html=HTML + "new"), tmp_path)
    assert names(tmp_path) == ["index.html", "sorries-over-time.svg"]
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == HTML


def test_files_are_as_open_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        (path, _) = write(report("sorries-over-time.svg"), tmp_path / "out")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640

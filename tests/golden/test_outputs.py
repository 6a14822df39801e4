"""What is answered about the stored state: by reading verbs, as numbers, as a schema, as a report."""

from __future__ import annotations

import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.golden import reach
from tests.golden.conftest import Golden, lines_of, normalised
from tests.support.verbs import hold_to_schema

VERBS: dict[str, tuple[str, ...]] = {
    "config-check": ("config", "check"),
    "config-show": ("config", "show"),
    "curriculum": ("curriculum",),
    "curriculum-compat": ("curriculum", "--compat"),
    "db-check": ("db", "check"),
    "db-verify": ("db", "verify"),
    "events": ("events", "--since", "560"),
    "events-chosen": ("events", "--repo", "project", "--type", "sorry_moved", "--type", "proof_rejected"),
    "jobs": ("jobs", "--limit", "40"),
    "jobs-failed": ("jobs", "list", "--state", "failed"),
    "jobs-show": ("jobs", "show", "build-0000000000000002"),
    "models": ("models",),
    "models-compare": ("models", "compare", "e520ab9568611a2d", "5b72837a1cbb6edd"),
    "models-show": ("models", "show", "5b72837a1cbb6edd"),
    "proofs": ("proofs", "--repo", "project", "--all"),
    "proofs-best": ("proofs", "--repo", "project"),
    "proofs-as-of": ("proofs", "--all", "--as-of", "190"),
    "proofs-patch": ("proofs", "patch", "83fb8b51454b80cd"),
    "proofs-show-rejected": ("proofs", "show", "f1d0b0285831011e"),
    "proofs-show-verified": ("proofs", "show", "83fb8b51454b80cd"),
    "proofs-tree": ("proofs", "tree", "9adede98fafb4eed"),
    "repos": ("repos", "--all", "--gaps"),
    "schema": ("schema",),
    "scan": ("scan", str(reach.ROOT / "examples" / "demo-project" / "Demo" / "Open.lean")),
    "sorries": ("sorries", "--repo", "project", "--all"),
    "sorries-since": ("sorries", "--since", "2000-01-01", "--text", "and"),
    "sorries-show": ("sorries", "show", "0bb889780854b76f"),
    "status": ("status",),
    "status-as-of": ("status", "--as-of", "300"),
    "theorems": ("theorems", "--repo", "project", "--all-kinds"),
    "theorems-text": ("theorems", "--repo", "project", "--text", "regroup"),
    "theorems-show": ("theorems", "show", "Demo.or_regroup_right"),
}
EXPORTS = {"export-leandojo": "leandojo", "export-progress": "progress"}
WITHOUT_CONFIG = {"scan"}
WITHOUT_JSON = {"proofs-patch"}
FILES = {
    *(f"verbs/{name}.{'txt' if name in WITHOUT_JSON else 'json'}" for name in VERBS),
    *(f"verbs/{name}.txt" for name in EXPORTS),
    *("metrics.txt", "openapi.json", "report-page.txt"),
}


@pytest.mark.parametrize("name", VERBS)
def test_reading_verb(name: str, rebuilt: Path, golden: Golden) -> None:
    config = () if name in WITHOUT_CONFIG else ("--config", str(rebuilt / "config.toml"))
    as_json = () if name in WITHOUT_JSON else ("--json",)
    answer = reach.run_verb(*VERBS[name], *as_json, *config, home=rebuilt)
    assert answer.code == (3 if name == "status" else 0), answer.err
    said = answer.out
    if name not in WITHOUT_JSON:
        documents = [json.loads(line) for line in said.splitlines()]
        for one in documents:
            hold_to_schema(" ".join(VERBS[name][:2]), one)
        said = "".join(f"{lines_of(one)}\n" for one in documents)
    golden(f"verbs/{name}.json" if as_json else f"verbs/{name}.txt", normalised(said, rebuilt))


@pytest.mark.parametrize("name", EXPORTS)
def test_export(name: str, rebuilt: Path, tmp_path: Path, golden: Golden) -> None:
    """What an export writes, by each file's hash: the files themselves are large."""
    out = tmp_path / "out"
    config = ("--config", str(rebuilt / "config.toml"))
    answer = reach.run_verb("export", EXPORTS[name], str(out), "--json", *config, home=rebuilt)
    assert answer.code == 0, answer.err
    report = {key: value for key, value in json.loads(answer.out).items() if key != "seconds"}
    lines = [normalised(lines_of(report), rebuilt).replace(str(tmp_path), "<tmp>")]
    for path in sorted(path for path in (out, *out.rglob("*")) if path.is_file()):
        text = normalised(path.read_text(encoding="utf-8"), rebuilt)
        lines.append(f"{path.relative_to(tmp_path)} {hashlib.sha256(text.encode()).hexdigest()}")
    golden(f"verbs/{name}.txt", "\n".join(lines) + "\n")


def test_metrics(rebuilt: Path, golden: Golden) -> None:
    lines = reach.metrics_text(rebuilt / "state").splitlines()
    # The one line about the machine's Python and SQLite.
    kept = [line for line in lines if not line.startswith("everlean_build_info{")]
    assert len(kept) == len(lines) - 1
    golden("metrics.txt", "\n".join(kept) + "\n")


def test_openapi(rebuilt: Path, golden: Golden) -> None:
    schema = reach.openapi(rebuilt / "config.toml")
    schema["info"]["version"] = "<version>"
    golden("openapi.json", json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def test_report_page(rebuilt: Path, tmp_path: Path, golden: Golden) -> None:
    """Headings, tables and items of the pages, without their look; and which pictures lie beside them."""
    config = ("--config", str(rebuilt / "config.toml"))
    since = ("--since", f"{reach.SINCE:%Y-%m-%d}")
    answer = reach.run_verb("report", "--out", str(tmp_path), "--json", *since, *config, home=rebuilt)
    assert answer.code == 0, answer.err
    lines = []
    for path in sorted(tmp_path.glob("*.html")):
        page = Headings()
        page.feed(path.read_text(encoding="utf-8"))
        assert page.lines
        lines += [f"--- {path.name}", *page.lines]
    pictures = sorted(path.name for path in tmp_path.glob("*.svg"))
    golden("report-page.txt", normalised("\n".join([*lines, *pictures]), rebuilt) + "\n")


class Headings(HTMLParser):
    """Collects the text of headings and of table cells, a line for each heading and row."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._cells: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"h1", "h2", "h3", "h4", "tr", "caption", "li", "pre"}:
            self._cells = []
            self._open.append(tag)
        if tag in {"td", "th"}:
            self._cells.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1]:
            self._open.pop()
            text = " | ".join(" ".join(cell.split()) for cell in self._cells)
            self.lines.append(f"{tag}: {text}")
            self._cells = []

    def handle_data(self, data: str) -> None:
        if self._open:
            if not self._cells:
                self._cells.append("")
            self._cells[-1] += data

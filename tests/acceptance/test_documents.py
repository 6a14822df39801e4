"""What the documents tell people to type works, and what they link to exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.settings import parse
from daemon.settings.explained import tables

ROOT = Path(__file__).resolve().parents[2]
EVERLEAN = Path(sys.executable).with_name("everlean")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/*.md")])


def test_every_page_is_reachable_from_the_readme() -> None:
    seen: set[Path] = set()
    ahead = {ROOT / "README.md"}
    while ahead:
        page = ahead.pop()
        seen.add(page)
        targets = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        ahead |= {(page.parent / target).resolve() for target in targets} - seen
    assert set(DOCUMENTS) - seen == set()


def known_settings() -> set[tuple[str, str]]:
    return {
        (heading.strip("[]"), field.alias or name)
        for heading, model in tables()
        for name, field in model.model_fields.items()
    }


def test_every_setting_that_a_remedy_names_exists() -> None:
    sources = [path for room in ("daemon", "pipeline", "store") for path in (ROOT / room).rglob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    named = set(re.findall(r"(?:raise|lower|set) \[([a-z_.]+)\] ([a-z_]+)", text))
    assert len(named) >= 5
    assert named - known_settings() == set()


def test_every_setting_that_a_document_names_exists() -> None:
    # Their settings are those of the models' own trainers.
    known = known_settings() | {("train.retriever", "model_name"), ("train.tactics", "model_name")}
    # The changelog also names what is gone.
    pages = [page.read_text(encoding="utf-8") for page in DOCUMENTS if page.name != "CHANGELOG.md"]
    named = {pair for text in pages for pair in re.findall(r"`\[([a-z_.]+)\] ([a-z_]+)", text)}
    assert len(named) >= 20
    assert named - known == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_configuration_that_a_document_shows_is_valid(document: Path, tmp_path: Path) -> None:
    for block in re.findall(r"```toml\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL):
        parse(block.encode(), path=tmp_path / "config.toml")


def test_the_readme_s_first_steps_work_on_the_shipped_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    shutil.copyfile(ROOT / "config.toml", config)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [EVERLEAN, *arguments, "--config", config],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            check=False,
        )

    check = run("config", "check")
    assert check.returncode == 0, check.stdout + check.stderr
    doctor = run("doctor")
    assert doctor.returncode in (0, 1)
    assert "git" in doctor.stdout
    status = run("status")
    assert "never run here" in status.stdout, "before its first start, status says that nothing runs"
    assert run("config", "show").returncode == 0


def test_scanning_the_example_needs_neither_daemon_nor_database(tmp_path: Path) -> None:
    result = subprocess.run(
        [EVERLEAN, "scan", ROOT / "examples" / "demo-project"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        cwd=tmp_path,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "Demo/Logic.lean:" in result.stdout
    assert list(tmp_path.iterdir()) == []

"""The manual page says what --help and docs/cli.md say, in man(7) that its readers take."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from daemon.cli.app import build
from daemon.cli.exits import ExitCode
from daemon.cli.manual import commands, escaped, page

DOCS = Path(__file__).resolve().parents[2] / "docs"
SOURCE = (DOCS / "cli.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def manual() -> str:
    return page(SOURCE, version="0.1.0")


def sections(manual: str) -> dict[str, str]:
    """The text below each verb's heading, by the verb."""
    parts = re.split(r'^\.SS "unsorry ([^"]+)"$', manual, flags=re.MULTILINE)
    return {parts[at]: parts[at + 1] for at in range(1, len(parts), 2)}


def test_every_verb_and_every_option_is_in_it(manual: str) -> None:
    found = sections(manual)
    top: Any = typer.main.get_command(build())
    for name, command in commands(top):
        headings = [
            heading
            for heading in found
            if re.match(rf"{escaped(name)}( [\[A-Z].*)?$".replace("\\", "\\\\"), heading)
        ]
        assert len(headings) == 1, (name, headings)
        body = found[headings[0]]
        for item in command.params:
            for option in item.opts if item.param_type_name == "option" else ():
                assert rf"\fB{escaped(option)}\fR" in body, (name, option)
            if item.help:
                assert escaped(" ".join(item.help.split()))[:30] in body, (name, item.name)


def test_every_exit_code_and_the_text_of_each_section_is_in_it(manual: str) -> None:
    status = manual.partition('.SH "EXIT STATUS"')[2]
    for code in ExitCode:
        assert re.search(rf"^{int(code)}$", status, re.MULTILINE), code
    for sentence in (
        "The daemon, in the foreground.",
        "Problem codes:",
        "A proof: ",
        "Ids (sorrys, proofs, jobs",
    ):
        assert sentence in SOURCE
        assert escaped(sentence).strip() in manual


def test_it_is_ascii_and_the_same_every_time(manual: str) -> None:
    assert manual.isascii()
    assert manual == page(SOURCE, version="0.1.0")
    assert manual.endswith("\n")
    assert "\n\n" not in manual, "man(7) has no empty lines"


def test_signs_that_mean_something_to_troff_are_text() -> None:
    made = page(
        "# T\n\n.start `a\\b` 'q' -x ~ ^ — \n\n## Verbs\n\n## Files\n\n| a | b |\n|---|---|\n| `x\\|y` | z |\n",
        version="1",
    )
    assert r"\&.start \fBa\eb\fR \(aqq\(aq \-x \(ti \(ha \[u2014]" in made
    assert ".TP\n\\fBx|y\\fR\nz" in made


@pytest.mark.parametrize(
    "reader",
    [
        ["groff", "-man", "-Tutf8", "-ww", "-z"],
        ["mandoc", "-T", "lint", "-W", "error"],
        ["man", "--warnings", "-l"],
    ],
    ids=lambda words: words[0],
)
def test_the_readers_of_manual_pages_have_nothing_to_complain_of(
    reader: list[str], manual: str, tmp_path: Path
) -> None:
    if shutil.which(reader[0]) is None:
        pytest.skip(f"{reader[0]} is not installed")
    path = tmp_path / "unsorry.1"
    path.write_text(manual, encoding="ascii")
    done = subprocess.run(
        [*reader, str(path)], capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_module_writes_the_page_and_says_what_it_needs(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "daemon.cli.manual"]
    made = subprocess.run([*run, str(DOCS / "cli.md")], capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.splitlines()[1].startswith(".TH UNSORRY 1")
    missing = subprocess.run([*run, str(tmp_path / "no.md")], capture_output=True, text=True)
    assert (missing.returncode, "name docs/cli.md" in missing.stderr) == (1, True)

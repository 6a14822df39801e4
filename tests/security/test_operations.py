"""docs/operations.md: its commands are commands, its list of failures is whole. test_restore.py restores by it."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import tarfile
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main

from daemon.cli.app import build
from daemon.state.disk import Code as DiskCode
from store.documents.problems import ProblemCode
from store.events.repositories import RepositoryProblem

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(text: str) -> list[str]:
    return re.findall(r"^```\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def test_every_problem_of_status_is_named_by_the_program_and_has_a_remedy_in_the_list() -> None:
    states = {f"repository_{state}" for state in get_args(RepositoryProblem)}
    named = {
        node.attr.lower()
        for folder in (ROOT / "daemon", ROOT / "store")
        for path in folder.rglob("*.py")
        if "ProblemCode" in (text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ProblemCode"
    }
    assert named | states | set(get_args(DiskCode)) == set(ProblemCode)
    told = re.findall(r"^- `(\w+)`: (.+?)\. (.+)$", section(PAGE, "Common failures"), flags=re.MULTILINE)
    assert [code for code, _, _ in told] == list(ProblemCode)


def commands() -> list[str]:
    """Each line of each block that calls everlean, without what stands before it."""
    lines = [line for block in blocks(PAGE) for line in block.splitlines()]
    return [
        line[match.start(1) :]
        for line in lines
        if (match := re.match(r"(?:sudo (?:-u everlean )?)?(everlean .*)$", line))
    ]


def test_each_command_is_one_that_there_is_and_takes_these_options() -> None:
    top: Any = typer.main.get_command(build())
    verbs: dict[str, Any] = dict(top.commands)
    for name, command in top.commands.items():
        verbs |= {f"{name} {verb}": inner for verb, inner in getattr(command, "commands", {}).items()}
    told = commands()
    assert len(told) >= 10
    for line in told:
        words = shlex.split(line)[1:]
        verb = next(name for name in (" ".join(words[:2]), words[0]) if name in verbs)
        options = {option for parameter in verbs[verb].params for option in parameter.opts}
        assert [word for word in words if word.startswith("--") and word not in options] == [], line


def test_a_move_takes_along_what_it_says(tmp_path: Path) -> None:
    pack, unpack = (
        next(line for line in block.splitlines() if "tar " in line)
        for block in blocks(section(PAGE, "Move to another machine"))
    )
    old, new = tmp_path / "old", tmp_path / "new"
    for name in (
        "etc/everlean/config.toml",
        "var/lib/everlean/events.db",
        "var/lib/everlean/jobs/j/1/stderr.log",
        "etc/credstore/x",
    ):
        (old / name).parent.mkdir(parents=True, exist_ok=True)
        (old / name).write_text(name, "ascii")
    new.mkdir()
    archive = str(tmp_path / "move.tar")
    for line, root in ((pack, old), (unpack, new)):
        words = shlex.split(line.removeprefix("sudo ").replace("/var/backups/everlean-move.tar", archive))
        words[words.index("/")] = str(root)
        subprocess.run(words, check=True, env={"PATH": os.environ["PATH"]})
    with tarfile.open(archive) as made:
        assert not any("credstore" in name or "stderr.log" in name for name in made.getnames())
    assert (new / "var/lib/everlean/events.db").read_text("ascii") == "var/lib/everlean/events.db"
    assert (new / "etc/everlean/config.toml").exists()


@pytest.mark.parametrize(
    ("title", "least"),
    [
        ("Attacks", 25),
        ("Operations", 7),
        ("A damaged log", 9),
    ],
)
def test_what_was_tried_is_a_test_that_there_is(title: str, least: int) -> None:
    text = (ROOT / "docs" / "design" / "tried.md").read_text("utf-8")
    rows = [line for line in section(text, title).splitlines() if line.startswith("- ")]
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", "\n".join(rows))
    assert len(rows) == len(named) > least, "each row has one"
    assert [test for file, test in named if f"def {test}(" not in (ROOT / file).read_text("utf-8")] == []


def test_no_remedy_sends_to_a_log() -> None:
    sent = re.compile(r"(?:see|look at) (?:the|its) (?:daemon's )?log\b(?!s)", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {node.value[:80]}"
        for package in ("daemon", "pipeline", "store")
        for path in (ROOT / package).rglob("*.py")
        # To parse each file takes seconds. A text may be told in pieces.
        if sent.search(re.sub(r'"\s*\n\s*f?"', "", text := path.read_text("utf-8")))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and sent.search(node.value)
    ]
    assert found == []

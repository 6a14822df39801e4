"""Every verb, option, JSON field, exit code and setting is documented, and nothing else is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import typer.main
from pydantic import BaseModel

from daemon.cli.app import VERBS, build
from daemon.cli.config import _toml
from daemon.cli.context import ExitCode
from daemon.settings.schema import ConfigFile, RepoEntry

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLI = (DOCS / "cli.md").read_text(encoding="utf-8")
CONFIGURATION = (DOCS / "configuration.md").read_text(encoding="utf-8")
PROOF = "d0" * 8
DOCUMENTS = {
    "status": ["status"],
    "repos": ["repos"],
    "sorries": ["sorries"],
    "sorries show": ["sorries", "show", "5a"],
    "theorems": ["theorems"],
    "theorems lives": ["theorems", "lives"],
    "theorems show": ["theorems", "show", "Demo.alpha"],
    "proofs": ["proofs"],
    "proofs show": ["proofs", "show", PROOF],
    "proofs patch": ["proofs", "patch", PROOF],
    "jobs": ["jobs"],
    "jobs show": ["jobs", "show", "prove-1"],
    "models": ["models"],
    "db as-of": ["db", "as-of", "5"],
    "db verify": ["db", "verify"],
    "db check": ["db", "check"],
    "db rebuild": ["db", "rebuild"],
    "db backup": ["db", "backup", "copy.db"],
    "config check": ["config", "check"],
    "config show": ["config", "show"],
    "toolchain list": ["toolchain", "list"],
    "doctor": ["doctor"],
    "version": ["version"],
    "events": ["events", "--last", "1"],
}


class Folder(Protocol):
    """tests/cli/conftest.py's StateFolder."""

    def unsorry(self, *arguments: str, **options: Any) -> Any: ...


def sections(text: str, marker: str) -> dict[str, str]:
    """Return the text below each heading of one level."""
    parts = re.split(rf"^{marker} (.+)$", text, flags=re.MULTILINE)
    return {parts[index].strip("` "): parts[index + 1] for index in range(1, len(parts), 2)}


VERB_SECTIONS = {name.removeprefix("unsorry "): body for name, body in sections(CLI, "###").items()}


def commands() -> Iterator[tuple[str, Any]]:
    """Every verb that can be called by itself, with its parsed command."""
    top: Any = typer.main.get_command(build())
    for name, command in top.commands.items():
        below = getattr(command, "commands", {})
        if not below or command.invoke_without_command:
            yield name, command
        for verb, inner in below.items():
            yield f"{name} {verb}", inner


def test_every_verb_has_a_section_and_every_section_a_verb() -> None:
    assert set(VERB_SECTIONS) == {name for name, _ in commands()}
    assert {name.split()[0] for name in VERB_SECTIONS} == set(VERBS)


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_option_stands_in_its_verbs_section(name: str, command: Any) -> None:
    body = VERB_SECTIONS[name]
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    documented = set(re.findall(r"`(--[a-z-]+)", body))
    assert options - {"--help"} == documented & options - {"--help"}
    assert documented - {"--version"} <= options, "documented, but not there"


def test_every_exit_code_is_in_the_table_and_no_other() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", sections(CLI, "##")["Exit codes"], flags=re.MULTILINE)
    assert {(int(number), name) for number, name in rows} == {(int(code), code.name) for code in ExitCode}


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            # `summary` and `data` are each kind's own, `files` of a check are names.
            if key not in ("summary", "data"):
                yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_field_of_the_json_is_documented(name: str, filled: Folder) -> None:
    answer = filled.unsorry(*DOCUMENTS[name], "--json")
    document = json.loads(answer.out)
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", VERB_SECTIONS[name], flags=re.MULTILINE))
    assert set(document) - {"schema"} <= rows
    # Records that several verbs share are described once.
    undocumented = {key for key in keys_of(document) if f"`{key}`" not in CLI}
    assert undocumented - {"schema"} == set()


def test_the_fields_of_scan_are_documented(folder: Any) -> None:
    (folder.root / "A.lean").write_text("theorem a : 1 = 1 := sorry\n")
    document = folder.unsorry("scan", ".", "--json").json
    undocumented = {key for key in keys_of(document) if f"`{key}`" not in VERB_SECTIONS["scan"]}
    assert undocumented - {"schema"} == set()


def settings_documented(heading: str, marker: str = "##") -> dict[str, str]:
    body = re.split(r"^#+ ", sections(CONFIGURATION, marker)[heading], flags=re.MULTILINE)[0]
    return dict(re.findall(r"^\| `([a-z_]+)` \| (.+?) \|", body, flags=re.MULTILINE))


def test_every_setting_is_documented_with_its_default_and_no_other() -> None:
    for section, field in ConfigFile.model_fields.items():
        if section == "repos":
            continue
        assert_documented(f"[{section}]", "##", field.get_default(call_default_factory=True))


def assert_documented(heading: str, marker: str, table: Any) -> None:
    """Look at the settings of a table, and of the tables below it."""
    expected = {}
    for name, setting in type(table).model_fields.items():
        key, value = setting.alias or name, getattr(table, name)
        if isinstance(value, BaseModel):
            assert_documented(f"{heading[:-1]}.{key}]", "###", value)
        else:
            expected[key] = f"`{_toml(name, key, value)}`"
    assert settings_documented(heading, marker) == expected, heading


def test_every_setting_of_a_repository_is_documented_with_its_default() -> None:
    expected = {}
    for name, setting in RepoEntry.model_fields.items():
        key = setting.alias or name
        expected[key] = "required" if setting.is_required() else f"`{_toml(name, key, setting.default)}`"
    assert settings_documented("[[repos]]") == expected

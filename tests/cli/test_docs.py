"""Every verb, option, JSON field, exit code and setting is documented, and nothing else is."""

from __future__ import annotations

import io
import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import typer
import typer.main

from daemon.cli.app import VERBS, build, in_order
from daemon.cli.context import VERBS as LOADED
from tests.support.reference import BEGIN, DOCS, END, commands, generated, parts
from tests.support.state_folder import PROOF, StateFolder
from tests.support.verbs import hold_to_schema

CLI = (DOCS / "cli.md").read_text(encoding="utf-8")
DOCUMENTS = {
    "status": ["status"],
    "repos": ["repos"],
    "sorries": ["sorries"],
    "sorries show": ["sorries", "show", "5a"],
    "theorems": ["theorems"],
    "theorems show": ["theorems", "show", "Demo.alpha"],
    "proofs": ["proofs"],
    "proofs show": ["proofs", "show", PROOF],
    "proofs patch": ["proofs", "patch", PROOF],
    "jobs": ["jobs"],
    "jobs show": ["jobs", "show", "prove-1"],
    "models": ["models"],
    "db verify": ["db", "verify"],
    "db check": ["db", "check"],
    "db rebuild": ["db", "rebuild"],
    "db recover": ["db", "recover"],
    "db backup": ["db", "backup", "copy.db"],
    "config check": ["config", "check"],
    "config show": ["config", "show"],
    "doctor": ["doctor"],
    "version": ["version"],
    "events": ["events", "--last", "1"],
}


VERB_SECTIONS = set(re.findall(r"^### `everlean (.+)`$", CLI, flags=re.MULTILINE))


def test_every_section_is_of_a_verb_and_every_verb_has_a_purpose() -> None:
    names = {name for name, _ in commands()}
    assert names > VERB_SECTIONS
    assert {name.split()[0] for name in names} == set(VERBS)


def test_the_generated_parts_of_each_page_are_those_of_the_code() -> None:
    for page, result in parts().items():
        text = (DOCS / page).read_text(encoding="utf-8")
        assert text == generated(text, result), f"{page}: run `make docs`"


def test_a_page_without_the_place_of_a_generated_part_is_an_error() -> None:
    text, result = (DOCS / "cli.md").read_text(encoding="utf-8"), parts()["cli.md"]
    for broken in (text.replace("## Exit codes", "## Codes"), text.replace(BEGIN, "", 1)):
        with pytest.raises(ValueError, match="heading"):
            generated(broken, result)


PAGES = [page for place in ("*.md", "docs/**/*.md", "examples/*/*.md") for page in DOCS.parent.glob(place)]


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", without_code(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading_that_there_is(page: Path) -> None:
    links = re.findall(r"\]\(((?!https?:|\.\./\.\./actions)[^)\s]+)\)", without_code(page))
    for link in links:
        name, _, anchor = link.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link


def command_lines(page: Path) -> set[str]:
    """Return each command of ours that a page has as code, without what a shell does with it.

    What is generated is how verbs are called; a script of LeanDojo's has options of its own.
    """
    text = re.sub(f"{BEGIN}.*?{END}", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"\\\n\s*", "", text)
    blocks = re.findall(r"^```.*?\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    before = r"(?:\$ )?(?:sudo (?:-H )?(?:-u \S+ )?)?(?:uvx )?(?:venv/bin/)?"
    starts = before + r"everlean ((?!\[|VERB|help|leandojo run)[^|>;#&…(<]*)"
    return {match[1].strip() for line in lines if (match := re.match(starts, line.strip()))}


def test_every_command_of_a_page_has_only_verbs_and_options_that_there_are() -> None:
    command = typer.main.get_command(build())
    wrong: dict[str, str] = {}
    for page in PAGES:
        for line in command_lines(page):
            words = in_order(shlex.split(line))
            with (
                redirect_stdout(io.StringIO()) as output,
                redirect_stderr(output),
                pytest.raises(SystemExit) as ended,
            ):
                command.main(args=[*words, "--help"], prog_name="everlean")
            if ended.value.code != 0:
                wrong[f"{page.name}: {line}"] = output.getvalue().strip()
    assert wrong == {}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_document_is_what_its_schema_says(name: str, filled: StateFolder) -> None:
    hold_to_schema(name, json.loads(filled.everlean(*DOCUMENTS[name], "--json").out))


def test_the_schema_of_every_verb_can_be_printed(folder: StateFolder) -> None:
    names = folder.everlean("schema").out.split("\n")
    assert {name for name, verb in LOADED.items() if verb.document} < set(names)
    for name in ("sorries show", "scan", "message"):
        schema = json.loads(folder.everlean("schema", *name.split()).out)
        assert [one for one in schema["properties"].values() if "description" in one], name
    refused = folder.everlean("schema", "proofs", "patches")
    assert refused.code == 2
    assert '"proofs patches" has no document; `everlean schema` prints the names' in refused.err


def test_help_shows_no_bound_that_a_reader_has_no_use_for_and_each_default_once() -> None:
    for verb, command in commands():
        for option in command.params:
            shown = option.get_help_record(typer.Context(command))
            text = "" if shown is None else shown[1]
            assert "000000" not in text, (verb, option.name)
            assert text.lower().count("default") <= 1, (verb, option.name)

"""`everlean sorries --by impact`: the sorries on which most rests come first, and unknown is said."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from daemon.settings import load
from store.domain.identity import slug
from store.domain.records import ConstantUse, Premise, TracedFile, TracedTheorem
from store.events.projects import Project
from store.events.scans import CommitScanned
from tests.support.reference import DOCS
from tests.support.state_folder import OTHER_SORRY, REPOSITORY, SORRY, StateFolder, fill, record_traced

NAMES = ("Demo.beta", "Demo.near", "Demo.far")


@pytest.fixture
def traced(filled: StateFolder) -> StateFolder:
    """Two theorems rest on Demo.beta; nothing is known of Demo.alpha, which is in no traced file."""
    theorems = tuple(
        TracedTheorem(name, f"theorem {name} : p :=", (line, 1), (line, 9), (), premises=uses)
        for line, (name, uses) in enumerate(
            zip(NAMES, [(), (ConstantUse("Demo.beta"),), (ConstantUse("Demo.near"),)], strict=True), 1
        )
    )
    premises = tuple(Premise(one.full_name, "", one.start, one.end, "x") for one in theorems)
    record_traced(filled, [TracedFile("Demo.lean", (), premises, theorems)], repository=REPOSITORY)
    return filled


def test_the_commands_of_the_page_say_what_rests_on_a_sorry(traced: StateFolder) -> None:
    section = (DOCS / "proving.md").read_text("utf-8").split("## The impact of a sorry\n")[1].split("```")[1]
    commands = [line.partition("#")[0].split() for line in section.strip().splitlines()]
    assert [command[0] for command in commands] == ["everlean", "everlean"]
    first, second = (
        traced.everlean(*(SORRY if word == "ID" else word for word in command[1:])) for command in commands
    )
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "Demo.beta" in first.out
    assert "rests on" in second.out or "rest on" in second.out, second.out


def test_the_most_comes_first_and_the_unknown_last(traced: StateFolder) -> None:
    sorries = traced.everlean("sorries", "--by", "impact", "--all", "--json").json["sorries"]
    assert [(row["sorry"], row["impact"]["theorems"], row["impact"]["direct"]) for row in sorries] == [
        (OTHER_SORRY, 2, 1),
        (SORRY, None, None),
    ]
    assert sorries[1]["impact"]["unknown"] == "the trace does not name the declaration"


def test_people_read_it_as_words(traced: StateFolder) -> None:
    first, second = [
        line
        for line in traced.everlean("sorries", "--by", "impact", "--all").out.splitlines()
        if "Demo." in line
    ]
    assert ("2 theorems" in first, "Demo.beta" in first) == (True, True)
    assert ("unknown" in second, "Demo.alpha" in second) == (True, True)
    said = traced.everlean("sorries", "show", OTHER_SORRY).out
    assert "2 theorems (1 directly, trace of 1111111111)" in said
    assert "unknown: the trace does not name the declaration" in traced.everlean("sorries", "show", SORRY).out


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100])
def test_a_narrow_terminal_leaves_columns_out(traced: StateFolder, columns: int) -> None:
    answer = traced.everlean("sorries", "--by", "impact", "--all", env={"COLUMNS": str(columns)})
    assert answer.code == 0, answer.err
    assert "2 theorems" in answer.out


def test_without_a_trace_all_is_unknown_and_in_the_order_of_places(filled: StateFolder) -> None:
    sorries = filled.everlean("sorries", "--by", "impact", "--all", "--json").json["sorries"]
    assert [(row["line"], row["impact"]["unknown"]) for row in sorries] == [
        (14, "the branch has no trace yet"),
        (20, "the branch has no trace yet"),
    ]
    assert filled.everlean("sorries", "--json").json["sorries"][0]["impact"] is None, "nobody asked"


def test_the_blueprint_of_the_scanned_commit_is_counted_beside_the_trace(folder: StateFolder) -> None:
    fill(folder)
    mirror = load(folder.config).paths.mirrors / f"{slug(REPOSITORY)}.git"
    work = folder.root / "work"
    (work / "blueprint" / "src").mkdir(parents=True)
    (work / "blueprint" / "src" / "content.tex").write_text(
        r"\begin{lemma}\label{b}\lean{Demo.beta}\end{lemma}\begin{theorem}\uses{b}\end{theorem}"
    )
    sha = committed(work)
    git("clone", "-q", "--bare", str(work), str(mirror))
    folder.add(f"repository:{REPOSITORY}", CommitScanned(
        repository=REPOSITORY, branch="main", sha=sha, base=None, include=("**/*.lean",), exclude=(),
        projects=(Project("", "", ""),), files_scanned=0, files_removed=0, files_failed=0, seconds=0.1, challenges=(),
    ))  # fmt: skip
    folder.write()
    first, second = folder.everlean("sorries", "--by", "impact", "--all", "--json").json["sorries"]
    assert (first["sorry"], first["impact"]["theorems"], first["impact"]["statements"]) == (
        OTHER_SORRY,
        None,
        1,
    )
    assert second["impact"]["statements"] is None
    said = folder.everlean("sorries", "show", OTHER_SORRY).out
    assert "1 statement of the blueprint: the branch has no trace yet" in said
    mirror.rename(mirror.with_name("away"))
    git("init", "-q", "--bare", str(mirror))
    lost = folder.everlean("sorries", "show", OTHER_SORRY)
    assert (lost.code, f"the blueprint of {REPOSITORY} is not counted" in lost.err) == (0, True)


def committed(work: Path) -> str:
    git("init", "-q", "-b", "main", str(work))
    git("-C", str(work), "add", "-A")
    git("-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a plan")
    return git("-C", str(work), "rev-parse", "HEAD").strip()


def git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout

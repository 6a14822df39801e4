"""What every verb does alike: listings, an output that takes no more, global options, the name of a repository."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.cli import app
from store.documents.lookup import UnresolvedError, one_of
from store.events.repositories import RepositoryUnwatched
from tests.support.state_folder import (
    OTHER_SORRY,
    REPOSITORY,
    SORRY,
    StateFolder,
    environment,
    make_folder,
    open_sorry,
    watch,
)

VERBS = {
    "events": "full", "events --json": "pipe", "sorries --json": "full", "status": "pipe", "version": "pipe",
    "--help": "full",
}  # fmt: skip
"""What gives an output of each kind, and what takes no more of it."""


@pytest.fixture
def folder(filled: StateFolder) -> StateFolder:
    return filled


def everlean(folder: StateFolder, *words: str, to: str) -> subprocess.CompletedProcess[str]:
    """Run the command with its output to a full disk, to a pipe that nobody reads, or to nothing at all."""
    shell = {
        "full": 'exec "$@" > /dev/full',
        "pipe": 'exec 3> >(exec true); wait $!; exec "$@" >&3',
        "closed": 'exec "$@" >&-',
    }[to]
    command = [sys.executable, "-m", "daemon.cli", *words]
    environ = {**environment(folder.root), "EVERLEAN_CONFIG": str(folder.config)}
    return subprocess.run(
        ["bash", "-c", shell, "bash", *command], env=environ, stderr=subprocess.PIPE, text=True, check=False
    )


@pytest.mark.parametrize(("words", "to"), VERBS.items(), ids=VERBS)
def test_an_output_that_takes_no_more_is_at_most_one_line(words: str, to: str, folder: StateFolder) -> None:
    code, lines = (1, 1) if to == "full" else (141, 0)
    answer = everlean(folder, *words.split(), to=to)
    assert answer.returncode == code, answer.stderr
    messages = [line for line in answer.stderr.splitlines() if "the daemon is not running" not in line]
    assert len(messages) == lines, answer.stderr
    assert all("standard output: No space left on device" in line for line in messages)


def test_without_a_standard_output_nothing_is_written(folder: StateFolder) -> None:
    answer = everlean(folder, "version", "--json", to="closed")
    assert (answer.returncode, answer.stderr) == (0, "")


PLACES = {
    ("version",): ("--json",),
    ("scan", "Demo.lean"): ("--json",),
    ("repos",): ("--json", "--as-of=9"),
    ("sorries", "show", "5a"): ("--json", "--as-of", "9"),
    ("proofs", "list"): ("--json", "--state", "verified"),
    ("jobs", "list"): ("--json", "--limit", "1"),
    ("models", "list"): ("--json", "--model", "progress"),
}
"""Verbs, with options that may stand before them; those that are not of every verb only before one of a group."""


@pytest.mark.parametrize("words", PLACES, ids=" ".join)
def test_an_option_means_the_same_wherever_it_stands(words: tuple[str, ...], folder: StateFolder) -> None:
    (folder.root / "Demo.lean").write_text("theorem a : True := sorry\n", encoding="utf-8")
    options, config = PLACES[words], ("--config", str(folder.config))
    orders = [(*words, *options, *config), (*config, *words[:1], *options, *words[1:])]
    if not {"--state", "--limit", "--model"} & set(options):
        orders.append((*options, *config, *words))
    answers = [folder.everlean(*order, cwd=folder.root) for order in orders]
    assert [answer.code for answer in answers] == [0] * len(orders), answers[0].err
    assert len({answer.out for answer in answers}) == 1
    assert answers[0].json["schema"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--json", "run"), "No such option: --json"),
        (("jobs", "--kind", "dream"), "'dream' is not one of 'scan', 'build'"),
        (("sorries", "--by", "size"), "'place', 'impact'"),
        (("trigger", "dance", "one"), "'trace', 'train', 'prove'"),
    ],
)
def test_what_no_verb_takes_is_a_wrong_command_line(
    words: tuple[str, ...], said: str, folder: StateFolder
) -> None:
    answer = folder.everlean(*words)
    assert (answer.code, said in answer.err) == (2, True), answer.err


def test_every_error_for_people_is_there_under_its_name() -> None:
    for name in app._CODES:
        module, _, error = name.partition(":")
        assert issubclass(getattr(importlib.import_module(module), error), Exception), name


@pytest.mark.parametrize(
    "words",
    [("poll",), ("jobs", "retry", "prove-1"), ("proofs", "pr", "d0"), ("scan", "."), ("version",), ("doctor",)],
    ids=" ".join,
)  # fmt: skip
def test_what_is_about_the_present_refuses_another_moment(
    words: tuple[str, ...], folder: StateFolder
) -> None:
    for order in (("--as-of", "3", *words), (*words, "--as-of", "3")):
        answer = folder.everlean(*order)
        text = " ".join(answer.err.split())
        assert (answer.code, "is about the present; leave it out" in text) == (2, True), answer.err


# ---- Listings

LISTS = {
    "sorries": ("sorry", "--state", "removed"),
    "theorems": ("theorem", "--name", "No.such"),
    "proofs": ("proof", "--state", "conditional"),
    "jobs": ("job", "--state", "released"),
    "models": ("checkpoint", "--model", "progress"),
}
"""Of each verb whose bare name lists: one of what it lists, and a filter that none fits."""


@pytest.mark.parametrize("verb", LISTS)
def test_a_bare_name_lists_and_without_rows_says_so(verb: str, folder: StateFolder, tmp_path: Path) -> None:
    what, *filters = LISTS[verb]
    plain = folder.everlean(verb, "--json")
    assert (plain.code, plain.out) == (0, folder.everlean(verb, "list", "--json").out)
    none = folder.everlean(verb, *filters)
    assert (none.code, none.out) == (0, f"no {what} matches\n")
    (tmp_path / "empty").mkdir()
    empty = make_folder(tmp_path / "empty")
    watch(empty, REPOSITORY)
    empty.write()
    assert empty.everlean(verb).out == f"no {what} yet\n"


def test_repositories_are_listed_and_one_by_a_part_of_its_name_though_it_is_watched_no_more(
    folder: StateFolder,
) -> None:
    watch(folder, "github.com/bea/flt-regular")
    left = RepositoryUnwatched(repository="github.com/bea/flt-regular")
    folder.add("repository:github.com/bea/flt-regular", left)
    folder.write()
    assert "flt-regular" not in folder.everlean("repos").out
    for order in (("repos",), ("repos", "list")):
        assert "unwatched" in folder.everlean(*order, "--repo", "REGULAR").out
        repositories = folder.everlean(*order, "--repo", "REGULAR", "--json").json["repositories"]
        assert [one["repository"] for one in repositories] == ["github.com/bea/flt-regular"]
    assert "may be" in folder.everlean("repos", "--repo", "i").err


LATER = "c0" * 8


def test_a_sorry_is_listed_once_for_all_branches_and_counted_as_in_status(folder: StateFolder) -> None:
    open_sorry(folder, "next", OTHER_SORRY, "Demo.beta")
    open_sorry(folder, "next", LATER, "Demo.later")
    rows = folder.everlean("sorries", "--json").json["sorries"]
    assert [row["sorry"] for row in rows].count(OTHER_SORRY) == 1
    listed = {row["sorry"]: (row["branch"], row["branches"]) for row in rows}
    assert listed[OTHER_SORRY] == ("main", ["main", "next"])
    assert listed[LATER] == ("next", ["next"])
    status = folder.everlean("status", "--json").json
    assert (status["sorries"]["open"], status["sorries_elsewhere"]) == (1, 1)
    said = folder.everlean("sorries").out.splitlines()[-1]
    assert said == "1 sorry, and 1 more on other branches; 1 verified (--all lists them)"
    assert folder.everlean("sorries", "--branch", "next").out.splitlines()[-1] == "2 sorries"


def test_what_is_new_is_listed_without_what_was_there_at_first(folder: StateFolder) -> None:
    open_sorry(folder, "main", LATER, "Demo.later")
    news = folder.everlean("sorries", "--since", "1d", "--json").json["sorries"]
    assert {(item["sorry"], item["state"]) for item in news} == {(SORRY, "verified"), (LATER, "open")}
    text = folder.everlean("sorries", "--since", "1d", env={"COLUMNS": "80"}).out
    assert OTHER_SORRY[:8] not in text
    assert max(map(len, text.splitlines())) <= 80
    assert folder.everlean("sorries", "--since", "2100-01-01").out == "no sorry matches\n"
    assert folder.everlean("sorries", "--since", "soon").code == 2


def test_a_part_of_a_name_a_path_or_a_statement_finds_it_whatever_its_case(folder: StateFolder) -> None:
    def found(verb: str, text: str) -> list[str]:
        return [row.get("name", row.get("sorry", "")) for row in rows(verb, text)]

    def rows(verb: str, text: str) -> list[dict[str, str]]:
        answer: list[dict[str, str]] = folder.everlean(verb, "--text", text, "--json").json[verb]
        return answer

    assert found("sorries", "BETA") == [OTHER_SORRY]
    assert found("theorems", "BETA") == ["Demo.beta"]
    theorems = folder.everlean("theorems", "--name", "Demo.b*", "--json").json["theorems"]
    assert [(row["name"], row["path"], row["line"]) for row in theorems] == [("Demo.beta", "Demo.lean", 2)]
    assert len(found("sorries", "x = x")) == 2
    assert folder.everlean("sorries", "--text", "%").out == "no sorry matches\n"


KEYS = ["github.com/alex/PrimeNumberTheorem", "github.com/alex/FLT", "github.com/bea/flt-regular"]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Prime", KEYS[0]),
        ("prime", KEYS[0]),
        ("bea", KEYS[2]),
        ("FLT", KEYS[1]),
        ("flt", KEYS[1]),
        ("regular", KEYS[2]),
        ("alex/FLT", KEYS[1]),
        (KEYS[1], KEYS[1]),
    ],
)
def test_a_part_of_a_key_names_the_one_repository_that_has_it(name: str, key: str) -> None:
    assert one_of(KEYS, name, lists="everlean repos") == key


@pytest.mark.parametrize(
    ("name", "said"),
    [("alex", f'"alex" may be {KEYS[0]}, {KEYS[1]};'), ("none", "no repository"), ("", "no")],
)
def test_a_part_that_several_or_none_have_is_an_error_that_says_so(name: str, said: str) -> None:
    with pytest.raises(UnresolvedError, match=said):
        one_of(KEYS, name, lists="everlean repos")

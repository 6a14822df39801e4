"""What every verb does alike: an output that takes no more, global options, the name of a repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from store.documents.lookup import UnresolvedError, one_of
from tests.support.state_folder import StateFolder, environment, fill, make_folder

VERBS = (("events",), ("events", "--json"), ("sorries", "--json"), ("status",), ("version",), ("--help",))


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    made = make_folder(tmp_path)
    fill(made)
    made.write()
    return made


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


@pytest.mark.parametrize(("to", "code", "lines"), [("full", 1, 1), ("pipe", 141, 0)])
@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_an_output_that_takes_no_more_is_at_most_one_line(
    words: tuple[str, ...], to: str, code: int, lines: int, folder: StateFolder
) -> None:
    answer = everlean(folder, *words, to=to)
    assert answer.returncode == code, answer.stderr
    said = [line for line in answer.stderr.splitlines() if "the daemon is not running" not in line]
    assert len(said) == lines, answer.stderr
    assert all("standard output: No space left on device" in line for line in said)


def test_without_a_standard_output_nothing_is_written(folder: StateFolder) -> None:
    answer = everlean(folder, "version", "--json", to="closed")
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize(
    "words", [("version",), ("scan", "Demo.lean"), ("repos",), ("status",), ("sorries",)], ids=" ".join
)
def test_global_options_stand_before_and_after_every_verb(
    words: tuple[str, ...], folder: StateFolder
) -> None:
    (folder.root / "Demo.lean").write_text("theorem a : True := sorry\n", encoding="utf-8")
    options = ("--config", str(folder.config), "--json")
    answers = [folder.everlean(*order, cwd=folder.root) for order in ((*options, *words), (*words, *options))]
    assert answers[0].code == answers[1].code, answers[1].err
    assert [answer.json["schema"] for answer in answers] == [1, 1]


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

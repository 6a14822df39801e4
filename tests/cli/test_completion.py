"""What a shell offers after `everlean`: verbs, options, values, and what the database knows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from daemon.cli.app import VERBS
from tests.support.state_folder import COMMAND, PROOF, REPOSITORY, SORRY, StateFolder, environment

Offered = Callable[..., list[str]]


@pytest.fixture
def offered(filled: StateFolder) -> Offered:
    """Return what bash is offered in the place of the last word, on a state folder with one of everything."""

    def offer(*words: str, config: Path | None = None) -> list[str]:
        line = {
            "_EVERLEAN_COMPLETE": "complete_bash",
            "COMP_WORDS": "\n".join(["everlean", *words]),
            "COMP_CWORD": str(len(words)),
        }
        answer = filled.everlean(env={**line, **({"EVERLEAN_CONFIG": str(config)} if config else {})})
        assert (answer.code, answer.err) == (0, "")
        return list(answer.out.split())

    return offer


def test_the_first_word_is_a_verb_and_the_second_one_of_its_own_verbs(offered: Offered) -> None:
    assert set(offered("")) == set(VERBS)
    assert offered("stat") == ["status"]
    assert set(offered("jobs", "")) >= {"show", "retry", "logs"}
    assert offered("proofs", "sh") == ["show"]
    assert {"--json", "--config"} <= set(offered("status", "--"))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("sorries", "--state", ""), ["open", "disproved", "verified", "filled", "removed"]),
        (("sorries", "--state", "f"), ["filled"]),
        (("trigger", "tr"), ["trace", "train"]),
        (("models", "--model", "r"), ["retriever"]),
        (("sorries", "--repo", ""), [REPOSITORY]),
        (("sorries", "--repo", "demo/o"), ["demo/one"]),
        (("poll", "on"), ["one"]),
        (("trigger", "prove", "on"), ["one"]),
        (("jobs", "show", "prove-1"), ["prove-1111"]),
        (("jobs", "retry", ""), ["prove-1111", "prove-2222"]),
        (("sorries", "show", "5a"), [SORRY]),
        (("proofs", "show", "d0"), [PROOF]),
        (("proofs", "tree", "5a"), [SORRY]),
        (("theorems", "show", "Demo.a"), ["Demo.alpha"]),
        (("proofs", "--sorry", "5a"), [SORRY]),
        (("models", "show", ""), []),
    ],
    ids=" ".join,
)
def test_values_come_from_the_verb_and_from_the_database(
    words: tuple[str, ...], values: list[str], offered: Offered
) -> None:
    assert sorted(offered(*words)) == sorted(values)


def test_the_configuration_on_the_line_is_the_one_that_is_read(
    filled: StateFolder, offered: Offered, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere.toml"
    assert offered("jobs", "show", "prove-1", config=nowhere) == []
    for words in (
        ("jobs", "--config", str(filled.config), "show"),
        ("jobs", "show", "--config", str(filled.config)),
    ):
        assert offered(*words, "prove-1", config=nowhere) == ["prove-1111"]


def test_without_a_view_there_are_verbs_and_options_and_no_noise(
    folder: StateFolder, offered: Offered
) -> None:
    for path in folder.state.glob("database.db*"):
        path.write_bytes(b"no database at all " * 100)
    assert offered("jobs", "show", "") == []
    assert "--json" in offered("status", "--")


def test_a_name_that_a_shell_would_evaluate_is_not_offered(filled: StateFolder, offered: Offered) -> None:
    import sqlite3

    with closing(sqlite3.connect(filled.state / "database.db")) as database, database:
        database.execute("UPDATE theorems SET name = ?", ("Demo.a\\$(touch here)",))
    assert offered("theorems", "show", "Demo") == []


# --- the shells ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_its_shell_can_read(
    shell: str, filled: StateFolder, tmp_path: Path, provide: Callable[[str], Path]
) -> None:
    program = provide(shell)
    answer = filled.everlean(env={"_EVERLEAN_COMPLETE": f"source_{shell}"})
    script = tmp_path / "completion"
    script.write_text(answer.out, encoding="utf-8")
    result = subprocess.run([program, "-n", str(script)], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_bash_itself_completes_verbs_and_ids(filled: StateFolder, provide: Callable[[str], Path]) -> None:
    bash = provide("bash")
    script = """
        eval "$(_EVERLEAN_COMPLETE=source_bash everlean)"
        try() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _everlean_completion everlean
            printf '<%s>' "${COMPREPLY[@]}"; echo
        }
        try everlean stat
        try everlean jobs show prove-1
        try everlean sorries --repo git
    """
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    result = subprocess.run(
        [bash, "--norc", "--noprofile", "-c", script], capture_output=True, text=True, cwd=filled.root,
        env={**environment(filled.root), "EVERLEAN_CONFIG": str(filled.config), "PATH": path},
    )  # fmt: skip
    assert result.stdout.splitlines() == ["<status>", "<prove-1111>", f"<{REPOSITORY}>"], result.stderr

"""What a shell offers after `unsorry`: verbs, options, values, and what the database knows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
import typer.main

from daemon.cli.app import VERBS, build
from daemon.cli.completing import FILES, FOLDERS, candidates
from daemon.cli.completion import SCRIPTS

REPOSITORY = "github.com/demo/one"
SORRY, PROOF = "5a" * 8, "d0" * 8
COMMAND = Path(sys.executable).parent / "unsorry"


class Folder(Protocol):
    """tests/cli/conftest.py's StateFolder."""

    root: Path
    state: Path
    config: Path

    def unsorry(self, *arguments: str, **options: Any) -> Any: ...


Offered = Callable[..., list[str]]


@pytest.fixture
def offered(filled: Folder, monkeypatch: pytest.MonkeyPatch) -> Offered:
    """What is offered in the place of the last word, on a state folder with one of everything."""
    monkeypatch.setenv("UNSORRY_CONFIG", str(filled.config))

    def offer(*words: str) -> list[str]:
        return [candidate.word for candidate in candidates(words)]

    return offer


def test_the_first_word_is_a_verb_and_the_second_what_stands_below_it(offered: Offered) -> None:
    assert offered("") == list(VERBS)
    assert offered("st") == ["status"]
    assert set(offered("jobs", "")) >= {"list", "show", "retry", "logs"}
    assert offered("proofs", "sh") == ["show"]
    assert offered("nonsense", "") == []


def test_every_option_of_every_verb_is_offered_once_and_not_again(offered: Offered) -> None:
    top: Any = typer.main.get_command(build())
    for name, command in top.commands.items():
        options = {option for item in command.params for option in item.opts if option.startswith("--")}
        assert set(offered(name, "--")) == options | {"--help"}, name
    assert "--json" not in offered("status", "--json", "--")
    assert "--type" in offered("events", "--type", "job_failed", "--"), "it may be repeated"
    assert offered("status", "--", "--") == []


def test_a_value_is_one_of_the_option_s_own_and_none_of_them_is_an_option(offered: Offered) -> None:
    assert offered("sorries", "--state", "") == ["open", "verified", "filled", "removed"]
    assert offered("sorries", "--state", "f") == ["filled"]
    assert offered("sorries", "--state=f") == ["--state=filled"]
    assert offered("sorries", "--state", "=", "f") == ["filled"], "bash makes three words of it"
    assert offered("proofs", "--state", "verified", "list", "") == []
    assert offered("completion", "") == list(SCRIPTS)
    assert set(offered("pause", "")) >= {"poll", "train", "prove", "all"}
    assert offered("events", "--since", "") == [], "its help is prose"
    assert "retriever" in offered("models", "--model", "")


def test_names_and_ids_come_from_the_database(offered: Offered) -> None:
    assert offered("sorries", "--repo", "") == [REPOSITORY]
    assert offered("sorries", "--repo", "demo/o") == ["demo/one"]
    assert offered("poll", "on") == ["one"]
    assert offered("trigger", "prove", "on") == ["one"]
    assert offered("jobs", "show", "prove-1") == ["prove-1111"]
    assert sorted(offered("jobs", "retry", "")) == ["prove-1111", "prove-2222"]
    assert offered("sorries", "show", "5a") == [SORRY]
    assert offered("proofs", "show", "d0") == [PROOF]
    assert set(offered("proofs", "tree", "")) >= {PROOF, SORRY}
    assert offered("theorems", "show", "Demo.a") == ["Demo.alpha"]
    assert offered("proofs", "--sorry", "5a") == [SORRY]
    assert offered("models", "show", "") == []


def test_what_the_simulator_found_is_marked(offered: Offered, filled: Folder) -> None:
    about = {candidate.word: candidate.about for candidate in candidates(["proofs", "show", ""])}
    assert about[PROOF].startswith("verified")
    assert about["d1" * 8].startswith("SIMULATED ")


def test_a_file_is_the_shell_s_own_to_complete(offered: Offered) -> None:
    assert offered("db", "backup", "") == [FILES]
    assert offered("status", "--config", "") == [FILES]
    assert offered("report", "--out", "") == [FOLDERS]


def test_without_a_configuration_or_a_view_there_are_verbs_and_options_and_no_noise(
    folder: Folder, offered: Offered, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nowhere = str(tmp_path / "nowhere.toml")
    assert offered("jobs", "--config", nowhere, "show", "") == []
    assert "--json" in offered("status", "--config", nowhere, "--")
    for path in folder.state.glob("database.db*"):
        path.write_bytes(b"no database at all " * 100)
    assert offered("jobs", "show", "") == []
    assert capfd.readouterr() == ("", "")


def test_a_configuration_that_is_named_on_the_line_is_the_one_that_is_asked(
    filled: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNSORRY_CONFIG", raising=False)
    for option in (["--config", str(filled.config)], [f"--config={filled.config}"]):
        words = ["jobs", *option, "show", "prove-1"]
        assert [candidate.word for candidate in candidates(words)] == ["prove-1111"]


# --- the shells ----------------------------------------------------------------------------------------------


def with_command(filled: Folder, environment: Callable[[Path], dict[str, str]]) -> dict[str, str]:
    """An environment in which `unsorry` is found, and the folder's configuration."""
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    return {**environment(filled.root), "UNSORRY_CONFIG": str(filled.config), "PATH": path}


def test_a_shell_that_is_none_is_a_mistake(folder: Folder) -> None:
    refused = folder.unsorry("completion", "tcsh")
    assert refused.code == 2
    assert '"tcsh" is none of bash, zsh, fish' in refused.err


def test_bash_itself_completes_verbs_ids_and_files(
    filled: Folder, environment: Callable[[Path], dict[str, str]]
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    script = """
        eval "$(unsorry completion bash)"
        complete -p unsorry
        try() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _unsorry 2>/dev/null; printf '<%s>' "${COMPREPLY[@]}"; echo
        }
        try unsorry stat
        try unsorry jobs show prove-1
        try unsorry sorries --repo git
        cd state && try unsorry db backup events.d
    """
    done = subprocess.run(
        [bash, "--norc", "--noprofile", "-c", script], capture_output=True, text=True, cwd=filled.root,
        env=with_command(filled, environment),
    )  # fmt: skip
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "complete -F _unsorry unsorry"
    assert lines[1:4] == ["<status>", "<prove-1111>", f"<{REPOSITORY}>"]
    assert lines[4] == "<events.db><events.db.lock>"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_its_shell_can_read(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "completion"
    script.write_text(SCRIPTS[shell], encoding="utf-8")
    done = subprocess.run([program, "-n", str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_complete_too(
    shell: str, filled: Folder, environment: Callable[[Path], dict[str, str]]
) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    env = with_command(filled, environment)
    if shell == "fish":
        script = "unsorry completion fish | source; complete -C 'unsorry jobs show prove-1'"
        arguments = [program, "--no-config", "-c", script]
    else:
        # compadd without a line editor: _describe is asked to say what it was given.
        script = (
            "compdef() { :; }; _describe() { print -rl -- ${(P)${@[-1]}}; }\n"
            'eval "$(unsorry completion zsh)"\nwords=(unsorry jobs show prove-1); CURRENT=4; _unsorry'
        )
        arguments = [program, "-f", "-c", script]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=filled.root, env=env)
    assert "prove-1111" in done.stdout, done.stderr
    assert "succeeded" in done.stdout

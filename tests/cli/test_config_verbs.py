"""`everlean config`, and what every verb does about a configuration that is wrong or absent."""

from __future__ import annotations

from typing import Any

import typer.main
from click.testing import CliRunner

from daemon.cli.app import EXAMPLES, GROUPS, build
from tests.support.state_folder import StateFolder

FIVE_MISTAKES = """\
[daemon]
state_dir = "state"
log_levle = "info"
[poll]
every = "0.5s"
[jobs]
max_running = "two"
[[repos]]
url = "https://user:s3cret@github.com/a/b"
branches = ["-x"]
"""


def test_check_prints_one_line_for_each_mistake_and_exits_78(folder: StateFolder) -> None:
    folder.config.write_text(FIVE_MISTAKES)
    answer = folder.everlean("config", "check")
    assert answer.code == 78
    lines = answer.out.splitlines()
    assert [line.split(":")[1] for line in lines] == ["3", "5", "7", "9", "10"]
    assert all(line.startswith("config.toml:") for line in lines)
    assert all(";" in line for line in lines)
    assert 'did you mean "log_level"?' in lines[0]
    assert "s3cret" not in answer.out + answer.err
    document = folder.everlean("config", "check", "--json")
    assert document.code == 78
    assert document.json["valid"] is False
    assert [item["setting"] for item in document.json["errors"]] == [
        "daemon.log_levle", "poll.every", "jobs.max_running", "repos[0].url", "repos[0].branches[0]",
    ]  # fmt: skip
    assert [item["line"] for item in document.json["errors"]] == [3, 5, 7, 9, 10]


def test_run_with_five_mistakes_prints_them_exits_78_and_makes_nothing(folder: StateFolder) -> None:
    folder.config.write_text(FIVE_MISTAKES)
    answer = folder.everlean("run")
    assert answer.code == 78
    assert [line.split(":")[1] for line in answer.err.splitlines()] == ["3", "5", "7", "9", "10"]
    assert not folder.state.exists()


def test_a_valid_file_is_said_to_be_valid(folder: StateFolder) -> None:
    answer = folder.everlean("config", "check")
    assert answer.code == 0
    assert "is valid" in answer.out


def test_a_valid_file_that_names_what_is_not_here_is_told_so(folder: StateFolder) -> None:
    folder.config.write_text('[log]\nship = "s4://bucket"\n[notify.command]\nrun = ["/no/such/program"]\n')
    answer = folder.everlean("config", "check")
    assert answer.code == 0
    for told in (
        "it watches nothing",
        "[notify.command] run: /no/such/program is no program",
        "no s4://; is s3:// meant?",
    ):
        assert told in answer.err


def test_a_setting_and_a_table_are_explained_and_a_near_name_is_suggested(folder: StateFolder) -> None:
    one = folder.everlean("config", "explain", "notify.digest", "--json").json["settings"]
    assert [(item["table"], item["default"], item["limits"]) for item in one] == [
        ("[notify]", '"7d"', "0s to 90d")
    ]
    table = folder.everlean("config", "explain", "notify.apprise").out
    assert "notify.apprise.urls_file" in table
    assert "notify.apprise.kinds" in table
    unknown = folder.everlean("config", "explain", "digest")
    assert (unknown.code, "is notify.digest meant?" in unknown.err) == (1, True)


def test_show_gives_every_setting_with_its_origin(folder: StateFolder) -> None:
    folder.config.write_text('[daemon]\nstate_dir = "state"\n[poll]\nevery = "90s"\n[[repos]]\nurl = "./r"\n')
    document = folder.everlean("config", "show", "--json").json
    result = {item["name"]: item for item in document["settings"]}
    assert result["poll.every"] == {
        "name": "poll.every", "value": 90.0, "toml": '"1m30s"', "origin": "file", "line": 4,
    }  # fmt: skip
    assert (result["jobs.memory"]["toml"], result["jobs.memory"]["origin"]) == ('"4G"', "default")
    assert result["repos[0].url"]["value"] == str(folder.root.resolve() / "r")
    assert (result["repos[0].every"]["value"], result["repos[0].every"]["origin"]) == (90.0, "default")
    assert document["folders"]["state"] == str(folder.state)
    text = folder.everlean("config", "show").out
    assert "# line 4" in text
    assert "# default" in text


def test_show_says_where_the_token_comes_from_and_never_what_it_is(folder: StateFolder) -> None:
    env = {"EVERLEAN_GITHUB_TOKEN": "ghp_s3cret"}
    answer = folder.everlean("config", "show", "--json", env=env)
    assert "EVERLEAN_GITHUB_TOKEN" in answer.json["github_token"]
    assert "s3cret" not in answer.out + folder.everlean("config", "show", env=env).out


def test_a_named_configuration_that_is_missing_is_exit_code_78(folder: StateFolder) -> None:
    for verb in (["status"], ["sorries"], ["run"], ["config", "check"], ["poll"]):
        answer = folder.everlean(*verb, "--config", "none.toml")
        assert answer.code == 78, verb
        assert "none.toml" in answer.err


def test_without_a_daemon_poll_is_exit_code_3(folder: StateFolder) -> None:
    answer = folder.everlean("poll")
    assert (answer.code, answer.out) == (3, "")
    assert "everlean run" in answer.err


def test_wrong_usage_is_exit_code_2(folder: StateFolder) -> None:
    for arguments in (["statsu"], ["status", "--jsn"], ["scan"], ["events", "--since", "x"], ["db"], []):
        assert folder.everlean(*arguments).code == 2, arguments


def test_doctor_names_each_thing_with_its_remedy(folder: StateFolder) -> None:
    answer = folder.everlean("doctor", "--json")
    checks = {item["name"]: item for item in answer.json["checks"]}
    assert {"python", "git", "sqlite", "bubblewrap", "elan", "lean backend", "gpu"} <= set(checks)
    assert answer.code == (0 if answer.json["ok"] else 1)
    assert all(item["remedy"] for item in checks.values() if item["verdict"] != "ok")
    without_git = folder.everlean("doctor", "--json", env={"PATH": str(folder.root)})
    assert without_git.code == 1
    assert "git" in folder.everlean("doctor", env={"PATH": str(folder.root)}).out.splitlines()[0]


def test_help_names_each_verb_under_what_it_is_for_with_an_example_and_its_whole_text(
    folder: StateFolder,
) -> None:
    text = folder.everlean("--help", env={"COLUMNS": "80"}).out
    for title, verbs in GROUPS.items():
        section = text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines() if line[:3].strip()][: len(verbs)] == [
            *verbs
        ]
        assert f"Example: {next(iter(verbs.values()))}" in section
    assert "..." not in text.partition("Watch:")[2]
    assert max(map(len, text.splitlines())) <= 80
    assert text == folder.everlean("help", env={"COLUMNS": "80"}).out


def test_each_example_is_a_command_that_there_is() -> None:
    command: Any = typer.main.get_command(build())
    for verb, example in EXAMPLES.items():
        words = example.split()
        assert words[:2] == ["everlean", verb]
        output = CliRunner().invoke(command, [verb, "--help"], env={"COLUMNS": "80"}).output
        assert f"Example: {example}" in output
        assert all(word in output for word in words[2:] if word.startswith("-"))

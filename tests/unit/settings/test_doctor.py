"""The judgements behind `everlean doctor`."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from pathlib import Path

import pytest

from daemon.health.doctor import (
    Finding,
    curl_finding,
    daemon_package,
    examine,
    git_finding,
    has_wal_reset_bug,
    sqlite_finding,
    version_tuple,
)


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), False), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 44, 5), True), ((3, 44, 6), False),
        ((3, 45, 0), True), ((3, 50, 6), True), ((3, 50, 7), False), ((3, 51, 2), True), ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)  # fmt: skip
def test_the_versions_with_the_wal_reset_bug_are_known(version: tuple[int, ...], affected: bool) -> None:
    assert has_wal_reset_bug(version) is affected


def test_an_affected_sqlite_says_what_not_to_do_and_one_without_strict_tables_is_missing() -> None:
    assert "no other program" in sqlite_finding((3, 40, 1)).detail
    assert sqlite_finding((3, 36, 0)).verdict == "missing"
    assert sqlite_finding((3, 51, 3)).verdict == "ok"


def test_a_foreign_daemon_package_is_named(tmp_path: Path) -> None:
    foreign = importlib.machinery.ModuleSpec("daemon", None, origin=str(tmp_path / "daemon" / "__init__.py"))
    result = daemon_package(foreign, "3.1.2")
    assert (result.verdict, result.essential) == ("missing", True)
    assert "pip uninstall python-daemon" in result.remedy
    assert daemon_package(importlib.util.find_spec("daemon"), None).verdict == "ok"


def test_what_the_environment_gives_is_named_with_its_place_and_without_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[daemon]\nstate_dir = "state"\n')
    options = {
        "GITHUB_ACCESS_TOKEN": "ghp_x",
        "HF_TOKEN": "hf_x",
        "RAID_DIR": "/fast",
        "LEANPROGRESS_MODEL": "m",
    }
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    said = {one.name: one.detail for one in examine(config)}
    assert said["github token"] == "environment variable GITHUB_ACCESS_TOKEN"
    assert said["hub token"].startswith("environment variable HF_TOKEN; jobs that name")
    assert "RAID_DIR is /fast" in said["raid_dir"]
    assert "LEANPROGRESS_MODEL is m" in said["leanprogress_model"]
    assert not any(secret in text for text in said.values() for secret in ("ghp_x", "hf_x"))
    monkeypatch.setenv("EVERLEAN_GITHUB_TOKEN", "ghp_y")
    assert {one.name: one.detail for one in examine(config)}["github token"].endswith("EVERLEAN_GITHUB_TOKEN")


def test_curl_is_looked_for_where_lake_finds_it(tmp_path: Path) -> None:
    result = curl_finding(str(tmp_path))
    assert (result.verdict, result.essential) == ("warning", False)
    assert "Mathlib is built from its source" in result.detail
    (tmp_path / "curl").touch(0o755)
    assert curl_finding(str(tmp_path)) == Finding("curl", "ok", str(tmp_path / "curl"))


def test_version_numbers_are_read_out_of_what_programs_say() -> None:
    assert version_tuple("git version 2.39.5 (Apple Git-154)") == (2, 39, 5)
    assert version_tuple("no number") == ()


@pytest.mark.parametrize(("version", "verdict"), [("2.30.2", "missing"), ("2.31.0", "ok")])
def test_a_git_that_reads_no_configuration_from_its_environment_is_missing(
    version: str, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What forbids hooks and other protocols, and carries the token, is handed to git by GIT_CONFIG_COUNT."""
    (tmp_path / "git").write_text(f"#!/bin/sh\necho git version {version}\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert git_finding().verdict == verdict


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {item.name: item for item in findings}


def test_without_any_program_on_the_path_git_is_essential_and_lean_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text('[daemon]\nstate_dir = "s"\n')
    monkeypatch.setenv("PATH", str(tmp_path))
    result = by_name(examine(tmp_path / "config.toml"))
    assert (result["git"].verdict, result["git"].essential) == ("missing", True)
    for name in ("elan", "bubblewrap", "lean backend"):
        assert (result[name].verdict, result[name].essential) == ("missing", False), name
    assert all(item.remedy for item in result.values() if item.verdict != "ok")
    assert result["configuration"].verdict == "ok"


def test_a_broken_configuration_is_essential_and_its_folders_are_still_examined(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[daemon]\nstate_dir = "s"\n[poll]\nevery = 1\n')
    result = by_name(examine(tmp_path / "config.toml"))
    assert (result["configuration"].verdict, result["configuration"].essential) == ("missing", True)
    assert "config.toml:4" in result["configuration"].detail
    assert str(tmp_path / "s") in result["state folder"].detail


def test_a_state_folder_that_is_a_file_is_essential(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[daemon]\nstate_dir = "s"\n')
    (tmp_path / "s").write_text("")
    assert by_name(examine(tmp_path / "config.toml"))["state folder"].verdict == "missing"


@pytest.mark.parametrize(
    ("version", "mode", "name", "verdict", "said"),
    [
        (None, 0o600, "token", "missing", "not installed"),
        ("2.59.1", 0o600, "token", "missing", "2.60 is needed"),
        ("2.60.0", None, "token", "missing", "no token at"),
        ("2.60.0", None, "t" * 300, "missing", "name too long"),
        ("2.60.0", 0o644, "token", "warning", "others can read"),
        ("2.60.0", 0o600, "token", "ok", "10.0.0.5:6379, with a token"),
    ],
)
def test_the_engine_ray_needs_a_ray_with_tokens_and_a_token(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    mode: int | None,
    name: str,
    verdict: str,
    said: str,
) -> None:
    token = tmp_path / name
    if mode is not None:
        token.write_text("secret", encoding="ascii")
        token.chmod(mode)
    (tmp_path / "config.toml").write_text(
        f'[daemon]\nstate_dir = "s"\n[engine]\nkind = "ray"\naddress = "10.0.0.5:6379"\ntoken_file = "{token}"\n'
    )
    monkeypatch.setattr("daemon.health.doctor._distribution_version", lambda _name: version)
    result = by_name(examine(tmp_path / "config.toml"))["ray"]
    assert (result.verdict, said in result.detail) == (verdict, True)
    assert "secret" not in result.detail


def test_each_program_is_looked_for_with_what_it_reads_and_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding(more: str) -> tuple[str, str]:
        text = f"[[prove.programs]]\nname = 'agent'\nusd_per_run = 0\n{more}\n"
        (tmp_path / "config.toml").write_text(text, "utf-8")
        result = by_name(examine(tmp_path / "config.toml"))["program agent"]
        return result.verdict, result.detail

    assert finding("run = ['no-such-agent']") == ("missing", "the program no-such-agent is not there on PATH")
    (tmp_path / "agent").touch()
    assert finding("run = ['./agent']") == ("missing", f"the program {tmp_path}/agent cannot be executed")
    assert finding("run = ['sh']\nreadable = ['tools']") == ("missing", f"not there: {tmp_path}/tools")
    keyed = "run = ['sh']\nnetwork = ['x.example.org']\ncredential = 'agent-key'\nvariable = 'KEY'"
    assert finding(keyed) == ("warning", "there is no credential agent-key and no $AGENT_KEY")
    monkeypatch.setenv("AGENT_KEY", "a-key")
    verdict, detail = finding(keyed)
    assert (verdict, detail.partition("; ")[2]) == ("ok", "its network: x.example.org")

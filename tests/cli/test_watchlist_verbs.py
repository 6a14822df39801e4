"""`everlean init` and `everlean repos add|remove`: the watchlist in config.toml, every other byte left alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from daemon.settings import load
from tests.support.state_folder import ROOT, StateFolder

FLT, MATHLIB = (
    "https://github.com/ImperialCollegeLondon/FLT",
    "https://github.com/leanprover-community/mathlib4",
)


def keys(path: Path) -> list[str]:
    return [repo.key for repo in load(path).repos]


def test_init_makes_a_configuration_that_the_other_verbs_find(folder: StateFolder) -> None:
    env = {"EVERLEAN_CONFIG": "", "XDG_CONFIG_HOME": str(folder.root / "home")}
    result = folder.everlean("init", FLT, "github.com/leanprover-community/mathlib4", env=env)
    assert result.code == 0, result.err
    path = folder.root / "home" / "everlean" / "config.toml"
    assert keys(path) == [FLT.removeprefix("https://"), MATHLIB.removeprefix("https://")]
    assert folder.everlean("config", "check", env=env).code == 0
    again = folder.everlean("init", env=env)
    assert (again.code, "everlean repos add" in again.err) == (1, True)


def test_init_writes_nothing_where_a_url_is_wrong(folder: StateFolder) -> None:
    answer = folder.everlean("init", "http://github.com/a/b", "--config", "new.toml")
    assert answer.code == 78
    assert "use https or ssh" in answer.err
    missing = folder.everlean("init", "./nowhere", "--config", "new.toml")
    assert (missing.code, "./nowhere: no such folder" in missing.err) == (1, True)
    assert not (folder.root / "new.toml").exists()


def test_a_repository_is_added_below_the_shipped_configuration_and_removed_again(folder: StateFolder) -> None:
    shutil.copyfile(ROOT / "config.toml", folder.config)
    folder.config.chmod(0o640)
    before = folder.config.read_text()
    added = folder.everlean("repos", "add", FLT, "--branch", "main", "--every", "30m", "--json").json
    assert added["repository"] == FLT.removeprefix("https://")
    text = folder.config.read_text()
    assert text.startswith(before.rstrip())
    (repo,) = load(folder.config).repos
    assert (repo.url, repo.branches, repo.every_s) == (FLT, ("main",), 1800.0)
    assert folder.config.stat().st_mode & 0o777 == 0o640
    removed = folder.everlean("repos", "remove", "FLT")
    assert removed.code == 0, removed.err
    assert folder.config.read_text().rstrip() == before.rstrip()


def test_what_would_be_a_mistake_changes_nothing(folder: StateFolder) -> None:
    folder.everlean("repos", "add", FLT)
    before = folder.config.read_bytes()
    for arguments, said in (
        ([FLT + ".git"], "is the same repository"),
        ([MATHLIB, "--every", "5 minutes"], 'write a duration such as "5m"'),
        (["nonsense"], "is neither a URL nor a path"),
    ):
        answer = folder.everlean("repos", "add", *arguments)
        assert (answer.code, answer.out) == (78, ""), arguments
        assert said in answer.err
        assert "nothing is changed" in answer.err
    unknown = folder.everlean("repos", "remove", "mathlib4")
    assert (unknown.code, 'no repository is called "mathlib4"' in unknown.err) == (1, True)
    assert folder.config.read_bytes() == before


def test_owner_and_name_are_those_of_a_repository_on_github(folder: StateFolder) -> None:
    assert folder.everlean("repos", "add", "leanprover/lean4").code == 0
    assert load(folder.config).repos[0].url == "https://github.com/leanprover/lean4"


def test_a_branch_is_added_to_those_that_a_repository_names(folder: StateFolder) -> None:
    assert folder.everlean("repos", "add", FLT, "--branch", "main").code == 0
    folder.everlean("repos", "add", MATHLIB)
    added = folder.everlean("repos", "add", FLT, "--branch", "next", "--json")
    assert (added.code, added.json["repository"]) == (0, FLT.removeprefix("https://"))
    assert [repo.branches for repo in load(folder.config).repos] == [("main", "next"), ()]
    before = folder.config.read_bytes()
    refused = folder.everlean("repos", "add", MATHLIB, "--branch", "next")
    assert 'write branches = ["main", "next"] below its url' in refused.err
    assert folder.config.read_bytes() == before


def test_the_folder_of_a_clone_is_written_by_its_whole_path(folder: StateFolder) -> None:
    (folder.root / "clone").mkdir()
    assert folder.everlean("repos", "add", "clone").code == 0
    assert load(folder.config).repos[0].url == str((folder.root / "clone").resolve())


@pytest.mark.parametrize(
    ("name", "left"), [("a", "# of b\n[[repos]]"), ("b", "# of c\n[[repos]]"), ("c", "# the end")]
)
def test_removing_an_entry_leaves_the_comments_of_the_others(
    name: str, left: str, folder: StateFolder
) -> None:
    text = '[poll]\nevery = "1m"\n\n'
    text += "\n".join(
        f'# of {one}\n[[repos]]\nurl = "https://h.org/o/{one}"  # {one}\nbranches = [\n  "main",\n]\n'
        for one in "abc"
    )
    text += "\n# the end\n"
    folder.config.write_text(text)
    assert folder.everlean("repos", "remove", name).code == 0
    now = folder.config.read_text()
    assert left in now
    assert f"o/{name}" not in now
    assert [line for line in text.splitlines() if line.startswith("# ")] == [
        line for line in now.splitlines() if line.startswith("# ")
    ]
    assert keys(folder.config) == [f"h.org/o/{one}" for one in "abc" if one != name]


def test_a_watchlist_in_one_line_is_left_to_its_author(folder: StateFolder) -> None:
    folder.config.write_text(f'repos = [{{ url = "{FLT}" }}]\n')
    answer = folder.everlean("repos", "remove", "FLT")
    assert (answer.code, "by hand" in answer.err) == (1, True)
    assert keys(folder.config) == [FLT.removeprefix("https://")]

"""SorryDB in and out: `everlean repos import` and `everlean export sorrydb`, on files as it publishes them."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from daemon.settings import load
from store import sorrydb
from store.events.projects import Project
from store.events.scans import CommitScanned
from store.events.traces import SorryStated
from tests.support.state_folder import OTHER_SORRY, REPOSITORY, TIP, StateFolder, fill, sorry_place

REPOS = {
    "documentation": "made up",
    "repos": [{"remote": "https://github.com/ada/Logic"}, {"remote": "https://github.com/ada/Numbers"}],
}


def record(**changes: Any) -> dict[str, Any]:
    """A record as SorryDB writes it, of a repository that does not exist."""
    result: dict[str, Any] = {
        "repo": {
            "remote": "https://github.com/ada/Logic",
            "branch": "ada/draft",
            "commit": "1" * 40,
            "lean_version": "v4.18.0-rc1",
        },
        "location": {
            "start_line": 24,
            "start_column": 63,
            "end_line": 24,
            "end_column": 68,
            "path": "Logic/Basic.lean",
        },
        "debug_info": {
            "goal": "n : ℕ\n⊢ n = n",
            "url": "https://github.com/ada/Logic/blob/1/Logic/Basic.lean#L24",
        },
        "metadata": {
            "blame_email_hash": "0123456789ab",
            "blame_date": "2025-04-08T13:09:24-04:00",
            "inclusion_date": "2025-04-12T23:25:20.561445+00:00",
        },
    }
    result = json.loads(json.dumps(result | changes))
    hashed = json.loads(json.dumps(result))
    del hashed["metadata"]["inclusion_date"]
    return {**result, "id": hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()}


def database(*records: dict[str, Any]) -> dict[str, Any]:
    tracked = {
        "remote_url": "https://github.com/ada/Tracked",
        "last_time_visited": "2025-03-17T11:35:11+00:00",
    }
    return {"repos": [{**tracked, "remote_heads_hash": "24f2d32ed5ed"}], "sorries": list(records)}


def put(folder: StateFolder, document: object, name: str = "list.json") -> str:
    (folder.root / name).write_text(document if isinstance(document, str) else json.dumps(document))
    return name


def watched(folder: StateFolder) -> dict[str, tuple[str, ...]]:
    return {repo.key: repo.branches for repo in load(folder.config).repos}


# ---- in


def test_a_list_of_repositories_becomes_a_watchlist(folder: StateFolder) -> None:
    before = folder.config.read_text()
    result = folder.everlean("repos", "import", put(folder, REPOS), "--json").json
    assert result["added"] == ["github.com/ada/Logic", "github.com/ada/Numbers"]
    assert set(result["added"]) <= watched(folder).keys()
    assert folder.config.read_text().startswith(before.rstrip()), "every other byte stays"
    again = folder.everlean("repos", "import", put(folder, REPOS), "--json").json
    assert (again["added"], {one["reason"] for one in again["left_out"]}) == ([], {"it is in the watchlist"})


def test_a_database_names_the_repositories_it_tracks_and_those_of_its_sorries(folder: StateFolder) -> None:
    two = record() | {"repo": record()["repo"] | {"branch": "main"}}
    source = put(folder, database(record(), two))
    result = folder.everlean("repos", "import", source, "--branches", "--json").json
    assert result["added"] == ["github.com/ada/Tracked", "github.com/ada/Logic"]
    assert watched(folder)["github.com/ada/Logic"] == ("ada/draft", "main"), (
        "the branches that its sorries are on"
    )
    assert watched(folder)["github.com/ada/Tracked"] == ()


def test_what_a_list_must_not_name_is_left_out_with_the_reason_and_the_rest_is_added(
    folder: StateFolder,
) -> None:
    bad = [
        "/etc/passwd", "file:///etc", "ext::sh -c id", "git@github.com:ada/x.git", "http://github.com/ada/x",
        "https://user:secret@github.com/ada/x", 'https://github.com/a"\n[daemon]\nx="', "https://[::1",
    ]  # fmt: skip
    good = "https://github.com/ada/Logic"
    listed = {"repos": [{"remote": url} for url in (*bad, good, f"{good}.git")]}
    result = folder.everlean("repos", "import", put(folder, listed), "--json").json
    assert result["added"] == ["github.com/ada/Logic"]
    assert [one["url"] for one in result["left_out"]] == [*bad, f"{good}.git"]
    assert all(one["reason"] for one in result["left_out"])
    assert "secret" not in folder.config.read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "is no JSON"),
        ("[]", "is no list of SorryDB's"),
        ('{"other": 1}', "is no list of SorryDB's"),
        ('{"repos": {"a": 1}}', '"repos" should be a list'),
        ('{"repos": [{"remote": 1}]}', 'repos[0] has no "remote"'),
        ('{"repos": ["https://github.com/a/b"]}', "repos[0] has no"),
        ('{"sorries": [null]}', "sorries[0]: repo.remote should be a text"),
        (
            json.dumps({"sorries": [record() | {"location": {"path": "A", "start_line": True}}]}),
            "a whole number",
        ),
    ],
)
def test_a_file_that_is_none_of_its_lists_changes_nothing(folder: StateFolder, text: str, said: str) -> None:
    before = folder.config.read_bytes()
    answer = folder.everlean("repos", "import", put(folder, text))
    assert (answer.code, said in answer.err) == (1, True), answer.err
    assert folder.config.read_bytes() == before


def test_a_file_that_is_not_there_is_named(folder: StateFolder) -> None:
    answer = folder.everlean("repos", "import", "nowhere.json")
    assert (answer.code, "nowhere.json" in answer.err) == (1, True)


def test_every_fact_of_a_record_carries_over_and_its_id_is_the_one_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"documentation": "", "sorries": [record()]}))
    (read,) = sorrydb.read(path).records
    assert read.as_json() == record()


# ---- out


def state(folder: StateFolder) -> None:
    """Record what Lean says of the open sorry, on a branch with a toolchain."""
    fill(folder)
    place = sorry_place("Demo.beta", line=20)
    folder.add(f"repository:{REPOSITORY}", SorryStated(
        repository=REPOSITORY, branch="main", sha=TIP, sorry=OTHER_SORRY, statement_hash=place.statement_hash,
        context_hash=place.context_hash, goal="x : ℕ\n⊢ x = x", before=None, same_text=False,
    ))  # fmt: skip
    folder.add(f"repository:{REPOSITORY}", CommitScanned(
        repository=REPOSITORY, branch="main", sha=TIP, base=None, include=("**/*.lean",), exclude=(),
        projects=(Project("", "leanprover/lean4:v4.21.0", ""),), files_scanned=0, files_removed=0, files_failed=0,
        seconds=0.1, challenges=(),
    ))  # fmt: skip
    folder.write()


def test_our_open_sorries_are_written_as_a_database_of_its(folder: StateFolder) -> None:
    state(folder)
    said = folder.everlean("export", "sorrydb", "ours.json", "--json").json
    assert (said["sorries"], said["repositories"], said["left_out"]) == (1, 1, {})
    document = json.loads((folder.root / "ours.json").read_text())
    (ours,) = document["sorries"]
    shape = record()
    assert ours.keys() == shape.keys()
    assert all(ours[part].keys() == shape[part].keys() for part in shape if part != "id")
    assert ours["repo"] == {
        "remote": f"https://{REPOSITORY}",
        "branch": "main",
        "commit": TIP,
        "lean_version": "v4.21.0",
    }
    assert ours["location"] == {
        "path": "Demo.lean",
        "start_line": 20,
        "start_column": 2,
        "end_line": 20,
        "end_column": 7,
    }
    link = f"https://{REPOSITORY}/blob/{TIP}/Demo.lean#L20"
    assert ours["debug_info"] == {"goal": "x : ℕ\n⊢ x = x", "url": link}
    assert datetime.fromisoformat(ours["metadata"]["blame_date"]).tzinfo is not None
    hashed = json.loads(json.dumps({name: part for name, part in ours.items() if name != "id"}))
    del hashed["metadata"]["inclusion_date"]
    assert ours["id"] == hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()
    tracked = {"remote_url": f"https://{REPOSITORY}", "last_time_visited": None, "remote_heads_hash": None}
    assert document["repos"] == [tracked]


def test_what_we_write_is_read_again(folder: StateFolder) -> None:
    state(folder)
    assert folder.everlean("export", "sorrydb", "ours.json").code == 0
    written = sorrydb.read(folder.root / "ours.json")
    assert written.branches == {f"https://{REPOSITORY}": ("main",)}
    assert [one.as_json() for one in written.records] == json.loads((folder.root / "ours.json").read_text())[
        "sorries"
    ]
    result = folder.everlean("repos", "import", "ours.json", "--json").json
    assert [*result["added"], *(one["url"] for one in result["left_out"])] in (
        [REPOSITORY],
        [f"https://{REPOSITORY}"],
    )


def test_another_file_is_not_written_over(folder: StateFolder) -> None:
    state(folder)
    (folder.root / "notes.json").write_text("mine")
    answer = folder.everlean("export", "sorrydb", "notes.json")
    assert (answer.code, "no list of SorryDB's" in answer.err) == (1, True)
    assert (folder.root / "notes.json").read_text() == "mine"

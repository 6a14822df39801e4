"""`everlean import leandojo`: what it says, what it leaves, and when it refuses."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path
from random import Random
from typing import Any

from tests.support.leandojo import database, write_dataset, write_large
from tests.support.state_folder import COMMAND, StateFolder
from tests.support.verbs import hold_to_schema


def written(folder: StateFolder, data: Any, name: str = "dynamic_database.json") -> Path:
    path = folder.root / name
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    return path


def test_a_database_can_be_imported_before_the_daemon_ever_ran(folder: StateFolder) -> None:
    data = database(Random(4), repositories=2, odd=False)
    written(folder, data)
    answer = folder.everlean("import", "leandojo", "dynamic_database.json", "--json")
    assert (answer.code, answer.err) == (0, "")
    document = answer.json
    assert (document["form"], document["already_imported"], document["notes"]) == ("database", False, [])
    for result, given in zip(document["repositories"], data["repositories"], strict=True):
        assert (result["url"], result["commit"], result["lean_dojo_version"]) == (
            given["url"], given["commit"], given["lean_dojo_version"],
        )  # fmt: skip
        assert (result["theorems"], result["premises"]) == (given["total_theorems"], given["num_premises"])
    assert document["totals"]["theorems"] == sum(item["theorems"] for item in document["repositories"])
    assert folder.everlean("status", "--json").json["log"]["view_position"] == document["position"]
    assert folder.everlean("db", "verify").code == 0
    assert folder.everlean("db", "check").code == 0
    assert folder.everlean("report", "--out", "report").code == 0
    report = (folder.root / "report" / "index.html").read_text(encoding="utf-8")
    assert f"{document['totals']['theorems']} theorems of imports and traces are recorded" in report


def test_with_a_mistake_in_the_configuration_nothing_is_imported_anywhere(folder: StateFolder) -> None:
    written(folder, database(Random(4)))
    # Reading verbs would take this for a configuration without a state folder, and look in the user's own.
    folder.config.write_text('[daemon]\nstate = "state"\n', encoding="utf-8")
    before = set(folder.root.rglob("*"))
    answer = folder.everlean("import", "leandojo", "dynamic_database.json")
    assert answer.code == 78
    assert "config.toml:2: daemon.state: " in answer.err
    assert set(folder.root.rglob("*")) == before


def test_the_same_import_again_says_that_nothing_was_written(filled: StateFolder) -> None:
    write_dataset(filled.root / "dataset", Random(2))
    first = filled.everlean("import", "leandojo", "dataset")
    assert first.code == 0
    assert "imported: 1 repository, " in first.out
    assert "github.com/demo/r0" in first.out
    position = filled.everlean("status", "--json").json["log"]["position"]
    assert f"the log is at event {position}" in first.out
    second = filled.everlean("import", "leandojo", "dataset")
    assert "already imported, nothing was written" in second.out
    assert filled.everlean("status", "--json").json["log"]["position"] == position


def test_what_is_odd_is_noted_on_standard_error(folder: StateFolder) -> None:
    data = database(Random(4), repositories=1, odd=False)
    data["repositories"][0]["num_premises"] = 99
    written(folder, data)
    answer = folder.everlean("import", "leandojo", "dynamic_database.json", "--json")
    assert answer.code == 0
    assert "repositories[0].num_premises says 99" in answer.err
    assert len(answer.json["notes"]) == 1


def test_a_path_that_is_not_there_is_an_error_that_names_it(folder: StateFolder) -> None:
    answer = folder.everlean("import", "leandojo", "nowhere.json")
    assert answer.code == 1
    assert "nowhere.json: no such file or folder" in answer.err
    assert not folder.state.exists()


def test_an_import_is_refused_while_a_daemon_holds_the_state_folder(filled: StateFolder) -> None:
    path = written(filled, database(Random(4)))
    before = (filled.state / "events.db").read_bytes()
    with filled.held():
        answer = filled.everlean("import", "leandojo", str(path))
    assert answer.code == 75
    assert str(os.getpid()) in answer.err
    assert (filled.state / "events.db").read_bytes() == before


def test_at_a_terminal_it_shows_how_far_it_has_come(folder: StateFolder) -> None:
    write_large(folder.root / "large.json", theorems=400, files=20)
    leader, follower = pty.openpty()
    try:
        result = subprocess.run(
            [str(COMMAND), "import", "leandojo", "large.json", "--json"],
            stdout=subprocess.PIPE,
            stderr=follower,
            cwd=folder.root,
            env={**os.environ, "EVERLEAN_CONFIG": str(folder.config), "HOME": str(folder.root)},
            check=True,
        )
        shown = os.read(leader, 65536).decode()
    finally:
        os.close(leader)
        os.close(follower)
    document = json.loads(result.stdout)
    hold_to_schema("import leandojo", document)
    assert document["totals"]["theorems"] == 400
    steps = re.findall(r"\r\x1b\[K(\w+) \d+%", shown)
    assert list(dict.fromkeys(steps)) == ["reading", "recording", "projecting"]
    assert shown.endswith("\r\x1b[K")

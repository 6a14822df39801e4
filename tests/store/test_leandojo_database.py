"""`from store.leandojo import DynamicDatabase`: a LeanDojo-v2 script runs with another import, and loses nothing."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from store.errors import LogError
from store.leandojo import (
    AnnotatedTactic,
    Annotation,
    DynamicDatabase,
    Pos,
    Premise,
    PremiseFile,
    Repository,
    Theorem,
)
from store.leandojo.database import TracerMissingError
from store.leandojo.records import ImportFormatError
from store.log.log import EventLog
from store.view.view import View
from tests.support.leandojo import database as made_up
from tests.support.leandojo_peer import needs_peer, peer
from tests.support.traced_repository import record_made_up

URL = "https://github.com/demo/logic"


def theorem(name: str, *steps: str, line: int = 1, uses: str | None = None) -> Theorem:
    notes = [] if uses is None else [Annotation(uses, "Logic.lean", Pos(1, 9), Pos(1, 12))]
    return Theorem(
        full_name=name,
        file_path=Path("Logic.lean"),
        start=Pos(line, 1),
        end=Pos(line + 1, 4),
        url=URL,
        commit="1" * 40,
        theorem_statement=f"theorem {name} : True",
        traced_tactics=[AnnotatedTactic(step, (step, notes), f"⊢ {name}", "no goals") for step in steps],
    )


def repository(*theorems: Theorem, url: str = URL, commit: str = "1" * 40) -> Repository:
    made = Repository(
        url=url,
        name="/".join(url.split("/")[-2:]),
        commit=commit,
        lean_version="v4.20.0",
        lean_dojo_version="4.20.0",
        metadata={"date_processed": datetime(2025, 1, 2, 3, 4, 5)},  # noqa: DTZ001 - as LeanDojo has it
        premise_files=[
            PremiseFile(
                Path("Logic.lean"),
                [],
                [Premise(item.full_name, f"theorem {item.full_name}", item.start, item.end, "commanddeclaration")
                 for item in theorems],
            )
        ],
        files_traced=[Path("Logic.lean")],
    )  # fmt: skip
    for item in theorems:
        item.url, item.commit = url, commit
        unproved = any("sorry" in step.tactic for step in item.traced_tactics or [])
        (made.sorry_theorems_unproved if unproved else made.proven_theorems).append(item)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dynamic_database.json"


def written(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


# A script.


def test_a_script_of_leandojo_s_runs_with_another_import(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(path.parent)
    traced = repository(theorem("a", "simp", "rfl"), theorem("b", "sorry", line=5))

    def tracer(url: str, commit: str, build_deps: bool) -> Repository | None:
        return traced if (url, build_deps) == (URL, False) else None

    database = DynamicDatabase(json_path="dynamic_database.json", tracer=tracer)
    repo = database.trace_repository(url=URL + ".git", commit="1" * 40, build_deps=False)
    assert repo is not None
    database.add_repository(repo)
    ordered = database.sort_repositories_by_difficulty()
    assert ordered == [repo]
    database.print_database_contents()
    assert f"  - {URL} (commit: {'1' * 40})" in capsys.readouterr().out
    for unproved in list(repo.sorry_theorems_unproved):
        proof = [AnnotatedTactic("trivial", ("trivial", []), "", "")]
        unproved.traced_tactics = proof
        repo.update_theorem(unproved)
        repo.change_sorry_to_proven(unproved, "logs/proofs.log")
    with pytest.raises(ValueError, match="not in the list of unproved"):
        repo.change_sorry_to_proven(repo.proven_theorems[0], "logs/proofs.log")
    with pytest.raises(ValueError, match="not found"):
        repo.update_theorem(theorem("c"))
    database.update_repository(repo)
    database.to_json("dynamic_database.json")
    database.export_merged_data(ordered, Path("merged/data"))
    again = DynamicDatabase.from_json("dynamic_database.json")
    found = again.get_repository(URL, "1" * 40)
    assert found is not None
    assert (
        found.num_proven_theorems,
        found.num_sorry_theorems_proved,
        found.num_sorry_theorems_unproved,
    ) == (1, 1, 0)
    assert found.get_theorem("b", "Logic.lean") is not None
    assert "Theorem proved: b in Logic.lean for repo demo/logic" in Path("logs/proofs.log").read_text()
    sides = ("train", "val", "test")
    names = {item["full_name"] for side in sides for item in written(Path(f"merged/data/random/{side}.json"))}
    assert names == {"a", "b"}
    assert written(Path("merged/data/metadata.json"))["from_repo"] == {"url": URL, "commit": "1" * 40}


# Opening destroys nothing.


def test_opening_a_file_leaves_it_as_it_is(path: Path) -> None:
    data = made_up(Random(3), repositories=2, odd=False)
    path.write_text(json.dumps(data), encoding="utf-8")
    before = path.read_bytes()
    database = DynamicDatabase(path)
    assert path.read_bytes() == before
    assert [repo.url for repo in database.repositories] == [item["url"] for item in data["repositories"]]
    assert DynamicDatabase(path).to_dict() == database.to_dict()


def test_from_json_loads_what_is_in_the_file_and_writes_no_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    path.write_text(json.dumps({"repositories": [repository(theorem("a")).to_dict()]}), encoding="utf-8")
    other = path.with_name("other.json")
    other.write_text(path.read_text())
    before = path.read_bytes()
    assert len(DynamicDatabase.from_json("other.json").repositories) == 1
    assert path.read_bytes() == before
    assert sorted(item.name for item in path.parent.iterdir()) == [path.name, "other.json"]
    with pytest.raises(FileNotFoundError):
        DynamicDatabase.from_json("absent.json")
    other.write_text('{"repositories": [')
    with pytest.raises(ImportFormatError):
        DynamicDatabase(other)
    assert other.read_text() == '{"repositories": ['


def test_a_kill_while_the_file_is_written_leaves_the_old_one(path: Path) -> None:
    first = DynamicDatabase(path)
    first.add_repository(repository(theorem("a")))
    assert not path.exists()
    first.to_json()
    before = path.read_bytes()
    code = """
import os, signal, sys
from store.leandojo import DynamicDatabase, folder
database = DynamicDatabase(sys.argv[1])
database.delete_repository(database.repositories[0].url, database.repositories[0].commit)
folder.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
database.to_json()
"""
    killed = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    database = DynamicDatabase(path)
    database.to_json()
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == [path.name]


# Its methods.


def test_adding_twice_is_once_and_updating_what_is_not_there_an_error(path: Path) -> None:
    database = DynamicDatabase(path)
    database.add_repository(repository(theorem("a")))
    database.add_repository(repository(theorem("b")))
    assert [item.full_name for item in database.repositories[0].get_all_theorems] == ["a"]
    with pytest.raises(ValueError, match="not found"):
        database.update_repository(repository(url="https://github.com/demo/other"))
    database.update_repository(repository(theorem("b")))
    database.to_json()
    (found,) = DynamicDatabase(path).repositories
    assert [item.full_name for item in found.get_all_theorems] == ["b"]
    database.delete_repository(URL, "1" * 40)
    assert database.get_repository(URL, "1" * 40) is None
    with pytest.raises(ValueError, match="not found"):
        database.delete_repository(URL, "1" * 40)


def test_update_json_adds_what_the_other_file_does_not_have(path: Path) -> None:
    first = DynamicDatabase(path)
    first.add_repository(repository(theorem("a")))
    first.to_json()
    other = DynamicDatabase(path.with_name("other.json"))
    other.add_repository(repository(theorem("b")))
    other.add_repository(repository(theorem("c"), url="https://github.com/demo/other"))
    other.update_json(path)
    names = [
        [item["full_name"] for item in repo["proven_theorems"]] for repo in written(path)["repositories"]
    ]
    assert names == [["b"], ["c"]]


def test_from_dict_makes_a_database_of_its_own(tmp_path: Path) -> None:
    data = {"repositories": [repository(theorem("a", "simp")).to_dict()]}
    database = DynamicDatabase.from_dict(data)
    assert database.to_dict() == data
    with pytest.raises(ValueError, match="give to_json a path"):
        database.to_json()
    database.to_json(tmp_path / "copy.json")
    assert written(tmp_path / "copy.json") == data
    database.export_merged_data(database.repositories, tmp_path / "out")
    with pytest.raises(LogError):
        DynamicDatabase.from_dict({"repos": []})


def test_repositories_come_sorted_by_their_easy_theorems_with_every_theorem_rated(path: Path) -> None:
    easy = repository(*(theorem(f"e{n}", "simp", line=n * 5 + 1) for n in range(6)))
    hard = repository(
        theorem("h", *["simp"] * 9), theorem("s", "sorry", line=9), url="https://github.com/demo/hard"
    )
    database = DynamicDatabase(path)
    for repo in (hard, easy):
        database.add_repository(repo)
    for compat, of_a_sorry in ((False, None), (True, math.inf)):
        assert database.sort_repositories_by_difficulty(compat=compat) == [easy, hard]
        assert [item.difficulty_rating for item in hard.get_all_theorems] == [math.exp(9), of_a_sorry]
        assert ("Infinity" in path.read_text()) == compat
    stored = written(path)["repositories"][0]
    assert [item["difficulty_rating"] for item in stored["proven_theorems"]] == [math.exp(9)]
    assert DynamicDatabase(path).repositories[0].sorry_theorems_unproved[0].difficulty_rating == math.inf


def test_an_export_of_a_repository_that_is_not_in_the_database_is_refused(path: Path) -> None:
    database = DynamicDatabase(path)
    with pytest.raises(ValueError, match="add it first"):
        database.export_merged_data([repository(theorem("a"))], path.parent / "out")
    with pytest.raises(ValueError, match="no repository"):
        database.export_merged_data([], path.parent / "out")


def test_without_a_tracer_the_error_says_how_to_give_one_and_no_web_is_searched(path: Path) -> None:
    with pytest.raises(TracerMissingError, match="tracer="):
        DynamicDatabase(path).trace_repository(URL, "1" * 40)
    with pytest.raises(TracerMissingError, match=r"config\.toml"):
        DynamicDatabase(path).discover_repositories(num_repos=1, curriculum_learning=True)


def test_the_list_of_repositories_can_be_given_anew_and_changed(path: Path) -> None:
    one, two = repository(theorem("a")), repository(theorem("b"), url=f"{URL}2")
    for given in ([one, two], [two]):
        database = DynamicDatabase(path)
        database.repositories = given
        database.repositories[0].proven_theorems[0].theorem_statement = f"of {len(given)}"
        database.to_json()
        assert (
            DynamicDatabase(path).to_dict()
            == written(path)
            == {"repositories": [one.to_dict() for one in given]}
        )


def test_an_error_in_what_was_given_names_it_and_no_temporary_file(path: Path) -> None:
    database = DynamicDatabase(path)
    undated = repository(theorem("a"))
    undated.metadata = {}
    database.add_repository(undated)
    with pytest.raises(
        ValueError, match=r"^the repositories given: repositories\[0\]\.metadata\.date_processed: "
    ):
        database.export_merged_data([undated], path.parent / "out")
    undated.metadata["at"] = object()
    with pytest.raises(ValueError, match=r"^the repositories given: cannot be written as JSON"):
        database.to_json()
    assert not path.exists()
    with pytest.raises(ValueError, match=r"^the repositories given: repositories: is missing"):
        DynamicDatabase.from_dict({})
    with pytest.raises(ValueError, match=r"^the repositories given: repositories\[0\]: url: is missing"):
        DynamicDatabase.from_dict({"repositories": [{}]})


def test_paths_are_taken_where_leandojo_has_texts(path: Path) -> None:
    given = repository(theorem("a", "simp", uses="b"))
    (step,) = given.proven_theorems[0].traced_tactics or []
    step.annotated_tactic[1][0].def_path = Path("Logic.lean")  # type: ignore[assignment]
    given.premise_files[0].imports = [Path("Other.lean")]  # type: ignore[list-item]
    database = DynamicDatabase(path)
    database.add_repository(given)
    database.to_json()
    (found,) = DynamicDatabase(path).repositories
    assert found.premise_files[0].imports == ["Other.lean"]
    assert found.proven_theorems[0].to_dict() == given.proven_theorems[0].to_dict()


# A daemon's folder.


def test_a_daemon_s_state_folder_is_read_while_it_runs_and_never_written(tmp_path: Path) -> None:
    with EventLog.open(tmp_path / "events.db") as log:
        record_made_up(log, tmp_path / "stage")
        with log.reader() as reader, View.open(tmp_path / "database.db", reader) as view:
            view.catch_up()
        with log.reader() as reader:
            before = len(list(reader.read()))
        database = DynamicDatabase(tmp_path)
        (own,) = database.repositories
        assert own.num_premise_files == 10
        assert database.sort_repositories_by_difficulty() == [own]
        database.export_merged_data([own], tmp_path / "out")
        database.add_repository(repository(theorem("a")))
        with pytest.raises(ValueError, match="is not in the database"):
            database.export_merged_data(database.repositories, tmp_path / "out")
        database.to_json(tmp_path / "copy.json")
        with log.reader() as reader:
            assert len(list(reader.read())) == before
    assert len(written(tmp_path / "copy.json")["repositories"]) == 2
    assert len(DynamicDatabase(tmp_path).repositories) == 1


def test_a_folder_that_is_no_state_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"without events\.db"):
        DynamicDatabase(tmp_path)
    assert list(tmp_path.iterdir()) == []


# The records.


def test_positions_are_read_in_every_form_and_written_in_leandojo_s() -> None:
    for form in ("(12, 5)", "Pos(12, 5)", [12, 5]):
        data = {"full_name": "a", "code": "b", "start": form, "end": form, "kind": "k"}
        premise = Premise.from_dict(data)
        assert premise.start == Pos(12, 5) <= Pos(12, 6) < Pos(13, 0)
        assert tuple(premise.start) == (12, 5)
        assert premise.to_dict()["end"] == "(12, 5)"
    with pytest.raises(ValueError, match="is no position"):
        Premise.from_dict({**data, "end": "12"})


def test_repositories_are_equal_by_url_name_commit_and_versions_and_theorems_by_their_place() -> None:
    one, two = repository(theorem("a")), repository(theorem("b"))
    assert one == two
    assert hash(one) == hash(two)
    assert one != replace(one, commit="2" * 40)
    assert theorem("a") == theorem("a", "simp")
    assert theorem("a") != theorem("a", line=2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(theorem("a"))


# LeanDojo's own classes on our files.


@needs_peer
@pytest.mark.parametrize("seed", range(5))
def test_leandojo_s_own_reader_reads_our_files_and_writes_equal_ones(path: Path, seed: int) -> None:
    path.write_text(json.dumps(made_up(Random(seed), repositories=3, odd=False)), encoding="utf-8")
    database = DynamicDatabase(path)
    for compat in (False, True):
        database.to_json(path.with_name("ours.json"), compat=compat)
        ours = written(path.with_name("ours.json"))
        with peer() as module:
            theirs = [module.Repository.from_dict(item).to_dict() for item in ours["repositories"]]
        assert theirs == ours["repositories"]
    assert [repo.to_dict() for repo in database.repositories] == theirs


@needs_peer
@pytest.mark.parametrize("seed", range(5))
def test_compat_exports_what_leandojo_s_own_code_exports(path: Path, seed: int) -> None:
    data = made_up(Random(seed), repositories=4, odd=False)
    path.write_text(json.dumps(data), encoding="utf-8")
    database = DynamicDatabase(path)
    database.export_merged_data(database.repositories, path.parent / "ours", compat=True)
    with peer() as module:
        module.DynamicDatabase(str(path.parent / "theirs.json")).export_merged_data(
            [module.Repository.from_dict(item) for item in data["repositories"]], path.parent / "theirs"
        )
    names = sorted(
        str(item.relative_to(path.parent / "theirs")) for item in (path.parent / "theirs").rglob("*.json*")
    )
    assert len(names) == 9
    for name in names:
        ours, expected = (
            (path.parent / side / name).read_text(encoding="utf-8") for side in ("ours", "theirs")
        )
        if name == "traced_files.jsonl":  # from a set: in no order
            ours, expected = "".join(sorted(ours)), "".join(sorted(expected))
        elif name == "metadata.json":
            found = json.loads(ours)
            assert {key: found.pop(key) for key in ("from_repo", "everlean")}
            ours, expected = found, json.loads(expected)
        assert ours == expected, name

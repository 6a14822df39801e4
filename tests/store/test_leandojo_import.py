"""Importing LeanDojo's files: what is kept, what is refused, and that nothing is lost or half done."""

from __future__ import annotations

import copy
import json
import math
import re
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from store.errors import LogError
from store.leandojo.records import ImportFormatError
from tests.support.daemon import warm
from tests.support.leandojo import COMMIT, LeanDojoFolder, database, write_dataset, write_large

URL = "https://github.com/demo/logic"
SMALL: dict[str, Any] = json.loads(
    """
{"repositories": [{
    "url": "https://github.com/demo/logic", "name": "demo/logic", "commit": "%s",
    "lean_version": "v4.9.0", "lean_dojo_version": "4.20.0", "metadata": {"date_processed": "2025-01-02T03:04:05"},
    "proven_theorems": [{
        "full_name": "Demo.two", "theorem_statement": "theorem two : 2 = 2", "file_path": "Demo.lean",
        "start": "(5, 1)", "end": "(6, 4)", "url": "https://github.com/demo/logic", "commit": "%s",
        "traced_tactics": [{
            "tactic": "rw [one]",
            "annotated_tactic": ["rw [<a>one</a>]", [
                {"full_name": "Demo.one", "def_path": "Demo.lean", "def_pos": "(1, 9)", "def_end_pos": "(1, 12)"}]],
            "state_before": "⊢ 2 = 2", "state_after": "no goals"}],
        "difficulty_rating": 2.718281828459045}],
    "sorry_theorems_proved": [],
    "sorry_theorems_unproved": [{
        "full_name": "Demo.one", "theorem_statement": null, "file_path": "Demo.lean",
        "start": "(1, 1)", "end": "(2, 4)", "url": "https://github.com/demo/logic", "commit": "%s",
        "traced_tactics": [], "difficulty_rating": Infinity}],
    "premise_files": [{"path": "Demo.lean", "imports": ["Init.lean"], "premises": [
        {"full_name": "Demo.one", "code": "theorem one", "start": "(1, 1)", "end": "(2, 4)", "kind": "theorem"}]}],
    "files_traced": ["Demo.lean", "Empty.lean"], "pr_url": null}]}
"""
    % ((COMMIT,) * 3)
)


def small() -> dict[str, Any]:
    return copy.deepcopy(SMALL)


def first_theorem(data: dict[str, Any]) -> dict[str, Any]:
    theorem = data["repositories"][0]["proven_theorems"][0]
    assert isinstance(theorem, dict)
    return theorem


# What an import keeps


def test_a_database_becomes_a_trace_with_its_theorems_premises_and_tactics(store: LeanDojoFolder) -> None:
    report = store.take_data(SMALL)
    [trace] = report.repositories
    assert (report.form, report.already_imported, report.notes) == ("database", False, ())
    assert (trace.repository, trace.lean_dojo_version) == ("github.com/demo/logic", "4.20.0")
    assert (trace.theorems, trace.tactics, trace.premises, trace.files) == (2, 1, 1, 1)
    assert store.rows("SELECT source, line, sha, lean_version, state FROM traces") == [
        ("import", f"import:{trace.trace}", COMMIT, "v4.9.0", "current")
    ]
    assert store.rows("SELECT full_name, line, end_column, has_sorry FROM traced_theorems ORDER BY line") == [
        ("Demo.one", 1, 4, 0),
        ("Demo.two", 5, 4, 0),
    ]
    assert store.rows("SELECT full_name, def_line, def_end_column FROM tactic_premises") == [
        ("Demo.one", 1, 12)
    ]
    assert store.rows("SELECT path FROM imports") == [("Init.lean",)]


def test_the_order_of_every_list_is_in_the_manifest(store: LeanDojoFolder) -> None:
    manifest = store.manifest(store.take_data(SMALL))
    assert manifest.files == ("Demo.lean",)
    # The theorems of a file are numbered by their place in it, whatever the order of the lists.
    assert manifest.lists == {
        "proven_theorems": ((0, 1),),
        "sorry_theorems_proved": (),
        "sorry_theorems_unproved": ((0, 0),),
    }
    assert manifest.files_traced == ("Demo.lean", "Empty.lean")


def test_a_theorem_has_a_url_and_commit_only_where_they_are_not_the_repositorys(
    store: LeanDojoFolder,
) -> None:
    data = small()
    first_theorem(data)["commit"] = "b" * 40
    # LeanDojo writes a repository's own keys first, but JSON has no order.
    data["repositories"][0] = dict(reversed(data["repositories"][0].items()))
    store.take_data(data)
    one, two = store.file("Demo.lean").theorems
    assert (one.url, one.commit, two.url, two.commit) == (None, None, None, "b" * 40)


def test_a_theorem_in_two_lists_is_stored_once_and_given_back_twice(store: LeanDojoFolder) -> None:
    data = small()
    repository = data["repositories"][0]
    repository["sorry_theorems_proved"] = repository["sorry_theorems_unproved"] * 2
    report = store.take_data(data)
    assert report.repositories[0].theorems == 2
    lists = store.manifest(report).lists
    assert lists["sorry_theorems_proved"] == ((0, 0), (0, 0))
    assert lists["sorry_theorems_unproved"] == ((0, 0),)


def test_a_count_that_contradicts_its_list_is_noted_and_ignored(store: LeanDojoFolder) -> None:
    data = small()
    data["repositories"][0] |= {"total_theorems": 2, "num_premises": 7}
    report = store.take_data(data)
    assert report.notes == ("repositories[0].num_premises says 7, but the file has 1: the lists count",)
    assert report.repositories[0].premises == 1


def test_a_database_without_repositories_is_nothing_to_import(store: LeanDojoFolder) -> None:
    report = store.take_data({"repositories": []})
    assert (report.repositories, report.already_imported, report.position) == ([], False, 0)


def test_a_dataset_folder_becomes_one_trace_with_its_splits_in_order(store: LeanDojoFolder) -> None:
    files = write_dataset(store.root / "dataset", Random(5), odd=False)
    report = store.take(store.root / "dataset")
    [trace] = report.repositories
    assert (trace.url, trace.commit) == (
        "https://github.com/demo/r0",
        f"{0:040x}",
    )
    assert (trace.lean_version, trace.lean_dojo_version) == ("unknown", "4.20.0")
    manifest = store.manifest(report)
    assert manifest.metadata == files["metadata.json"]
    assert manifest.files_traced == tuple(line["traced_file_path"] for line in files["traced_files.jsonl"])
    for name in ("random/train", "random/val", "novel_premises/test"):
        named = [
            (manifest.files[file], store.file(manifest.files[file]).theorems[index].full_name)
            for file, index in manifest.lists[name]
        ]
        assert named == [(item["file_path"], item["full_name"]) for item in files[f"{name}.json"]]


def test_a_merged_dataset_is_a_trace_of_its_own_and_its_theorems_say_whose_they_are(
    store: LeanDojoFolder,
) -> None:
    folder = store.root / "dataset"
    files = write_dataset(folder, Random(1), merged=3, odd=False)
    first = store.take(folder)
    assert first.repositories[0].repository.startswith("leandojo.import/")
    whose = {(item["url"], item["commit"]) for name in files for item in files[name] if "random/" in name}
    assert whose == set(store.rows('SELECT DISTINCT url, "commit" FROM traced_theorems'))
    # The same repositories merged again, with another result: the same trace, closed anew.
    write_dataset(folder, Random(2), merged=3, odd=False)
    second = store.take(folder)
    assert second.repositories[0].trace == first.repositories[0].trace
    assert second.position > first.position
    assert store.rows("SELECT count(*) FROM traces") == [(1,)]


def test_a_merged_dataset_of_one_repository_is_that_repositorys(store: LeanDojoFolder) -> None:
    write_dataset(store.root / "dataset", Random(1), merged=1)
    head = store.take(store.root / "dataset").repositories[0]
    assert (head.repository, head.lean_version) == ("github.com/demo/r0", "v4.9.0")


def test_a_dataset_does_not_take_the_place_of_the_same_repositorys_database(store: LeanDojoFolder) -> None:
    data = small()
    data["repositories"][0] |= {"url": "https://github.com/demo/r0", "commit": f"{0:040x}"}
    store.take_data(data)
    write_dataset(store.root / "dataset", Random(1), merged=1)
    store.take(store.root / "dataset")
    assert store.rows("SELECT count(DISTINCT trace), count(DISTINCT line) FROM traces") == [(2, 2)]


def test_of_a_folder_with_both_the_database_is_read_and_a_note_says_so(store: LeanDojoFolder) -> None:
    write_dataset(store.root, Random(1))
    store.write(SMALL)
    report = store.take(store.root)
    assert (report.form, report.repositories[0].url) == ("database", URL)
    assert "more than the dataset beside it" in report.notes[0]


# What an import refuses

DEEP = json.loads("[" * 70 + "]" * 70)
NO_TACTIC: dict[str, Any] = {
    "tactic": "x",
    "annotated_tactic": ["x", []],
    "state_before": "a",
    "state_after": "b",
}


REPO = "repositories[0]"
THEOREM = f"{REPO}.proven_theorems[0]"
STEP = f"{THEOREM}.traced_tactics[0]"
FILE = f"{REPO}.premise_files[0]"
FLAWS: list[tuple[str, Any, str, str]] = [
    ("repositories", ..., "repositories", "is missing"),
    ("repositories", {}, "repositories", "should be a list"),
    (REPO, 3, REPO, "should be an object"),
    (f"{REPO}.url", ..., "", "is missing"),
    (f"{REPO}.url", " ", "", "is empty"),
    (f"{REPO}.url", "https://", "", "names no repository"),
    (f"{REPO}.commit", 7, "", "should be a string, not a number"),
    (f"{REPO}.metadata", ..., "", "is missing"),
    (f"{REPO}.metadata", {}, ".date_processed", "the time of the trace"),
    (f"{REPO}.metadata", {"date_processed": "soon"}, ".date_processed", "the time of the trace"),
    (f"{REPO}.pr_url", 1, "", "string or null"),
    (f"{REPO}.mine", {"a": [math.nan]}, ".a[0]", "no finite number"),
    (f"{REPO}.files_traced", [1], "[0]", "should be a string"),
    (f"{REPO}.premise_files", None, "", "should be a list"),
    (f"{THEOREM}.start", ..., "", "is missing"),
    (f"{THEOREM}.end", "(5; 1)", "", "is no position"),
    (f"{THEOREM}.difficulty_rating", math.nan, "", "is no difficulty (got nan)"),
    (f"{THEOREM}.mine", math.inf, "", "no finite number"),
    (f"{THEOREM}.full_name", None, "", "a string, not null"),
    (f"{THEOREM}.full_name", "\ud800", THEOREM, "no valid Unicode"),
    (f"{THEOREM}.file_path", "\udfff", THEOREM, "no valid Unicode"),
    (f"{THEOREM}.traced_tactics", [NO_TACTIC, 3], "[1]", "an object, not a number"),
    (f"{STEP}.annotated_tactic", ["x"], "", "[text, list of premises]"),
    (f"{STEP}.state_after", ..., "", "is missing"),
    (f"{STEP}.annotated_tactic[1][0].def_pos", "here", "", "is no position"),
    (f"{FILE}.imports", [1], "[0]", "a string"),
    (f"{FILE}.premises[0].kind", ..., "", "is missing"),
    (f"{STEP}.own", DEEP, "", "is nested more than 64 deep"),
    (f"{REPO}.own", DEEP, "", "is nested more than 64 deep"),
    (f"{REPO}.metadata.own", DEEP, "", "is nested more than 64 deep"),
    (f"{REPO}.metadata.own", {"a": ["\ud800"]}, ".a[0]", "no valid Unicode"),
    (f"{REPO}.name", "\ud800", "", "no valid Unicode"),
    ("own", {"a": DEEP}, "", "is nested more than 64 deep"),
]
"""What is put where (`...`: it is taken away), the place of the flaw below that (or in all), and its reason."""


def put(data: Any, place: str, value: Any) -> None:
    *steps, last = [int(key) if key.isdigit() else key for key in re.findall(r"\w+", place)]
    for step in steps:
        data = data[step]
    if value is ...:
        del data[last]
    else:
        data[last] = value


@pytest.mark.parametrize(("place", "value", "flaw", "reason"), FLAWS)
def test_a_flaw_is_named_with_its_place_and_nothing_is_recorded(
    store: LeanDojoFolder, place: str, value: Any, flaw: str, reason: str
) -> None:
    data = small()
    put(data, place, value)
    path = store.root / "dynamic_database.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ImportFormatError, match="Nothing was imported") as caught:
        store.take(path)
    assert (caught.value.file, caught.value.place) == (
        path,
        flaw if flaw.startswith("repo") else place + flaw,
    )
    assert reason in caught.value.reason
    assert list(store.root.iterdir()) == [path]


def test_a_flaw_in_the_last_repository_leaves_the_first_unrecorded_too(store: LeanDojoFolder) -> None:
    before = small()
    store.take_data(before)
    position = len(store.events())
    data = small()
    data["repositories"].append(copy.deepcopy(data["repositories"][0]) | {"commit": "b" * 40, "name": None})
    first_theorem(data)["full_name"] = "Demo.changed"
    with pytest.raises(ImportFormatError, match=r"repositories\[1\].name"):
        store.take_data(data)
    assert len(store.events()) == position


def test_a_key_that_a_line_of_traced_files_does_not_have_is_refused_and_not_dropped(
    store: LeanDojoFolder,
) -> None:
    write_dataset(store.root / "dataset", Random(5), odd=False)
    with (store.root / "dataset/traced_files.jsonl").open("a") as lines:
        lines.write(json.dumps({"traced_file_path": "New.lean", "more": 1}) + "\n")
    with pytest.raises(
        ImportFormatError, match=r"traced_files\.jsonl: \[\d+\]\.more: is a key that such a line"
    ):
        store.take(store.root / "dataset")


def test_a_path_that_is_twice_in_the_corpus_is_refused(store: LeanDojoFolder) -> None:
    data = small()
    data["repositories"][0]["premise_files"] *= 2
    with pytest.raises(ImportFormatError, match=r"premise_files\[1\]\.path: .* number 0 of the files"):
        store.take_data(data)
    write_dataset(store.root / "dataset", Random(1))
    line = '{"path": "Twice.lean", "imports": [], "premises": []}\n'
    with (store.root / "dataset/corpus.jsonl").open("a") as corpus:
        corpus.write(line * 2)
    with pytest.raises(ImportFormatError, match=r"corpus\.jsonl: \[\d+\]\.path: stands there"):
        store.take(store.root / "dataset")


def test_the_same_repository_twice_in_one_file_is_refused(store: LeanDojoFolder) -> None:
    data = small()
    data["repositories"] *= 2
    with pytest.raises(ImportFormatError, match=r"repositories\[1\].*of repositories\[0\]"):
        store.take_data(data)


def test_a_merged_metadata_file_is_not_taken_for_a_database(store: LeanDojoFolder) -> None:
    write_dataset(store.root / "dataset", Random(1), merged=2)
    with pytest.raises(ImportFormatError, match="name the folder"):
        store.take(store.root / "dataset/metadata.json")


def test_a_folder_that_is_no_dataset_is_refused(store: LeanDojoFolder) -> None:
    folder = store.root / "dataset"
    folder.mkdir()
    with pytest.raises(ImportFormatError, match=r"neither metadata\.json nor dynamic_database\.json"):
        store.take(folder)
    (folder / "metadata.json").write_text("{}")
    with pytest.raises(ImportFormatError, match="neither random/ nor novel_premises/"):
        store.take(folder)
    (folder / "random").mkdir()
    (folder / "random/train.json").write_text("[]")
    with pytest.raises(ImportFormatError, match="neither from_repo nor repositories"):
        store.take(folder)
    (folder / "metadata.json").write_text('{"from_repo": {"url": "https://github.com/a/b"}}')
    with pytest.raises(ImportFormatError, match=r"from_repo\.commit: is missing"):
        store.take(folder)
    assert not store.events_db.exists()


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("own", DEEP, "own"),
        ("own", {"a": "\ud800"}, "own.a"),
        ("from_repo", {"url": "https://a/b/c", "commit": "c", "x": DEEP}, "from_repo"),
    ],
)
def test_a_flaw_in_a_dataset_s_metadata_is_named_with_its_key(
    store: LeanDojoFolder, key: str, value: Any, place: str
) -> None:
    write_dataset(store.root / "dataset", Random(1))
    path = store.root / "dataset/metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ImportFormatError) as caught:
        store.take(store.root / "dataset")
    assert (caught.value.file, caught.value.place) == (path, place)


def test_a_flaw_in_a_split_names_the_file_and_the_theorem(store: LeanDojoFolder) -> None:
    write_dataset(store.root / "dataset", Random(1))
    (store.root / "dataset/random/val.json").write_text('[\n{"full_name": "a"}]')
    with pytest.raises(ImportFormatError, match=r"random/val\.json: \[0\]\.file_path: is missing"):
        store.take(store.root / "dataset")


def test_a_database_cut_short_anywhere_is_refused_with_the_place(store: LeanDojoFolder) -> None:
    whole = store.write(SMALL).read_bytes()
    path = store.root / "cut.json"
    for length in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ImportFormatError, match=r"line \d+, column \d+|near byte \d+"):
            store.take(path)
    assert not store.events_db.exists()


def test_a_file_that_is_not_there_is_an_error_of_ours(store: LeanDojoFolder) -> None:
    with pytest.raises(LogError, match=r"nothing\.json"):
        store.take(store.root / "nothing.json")


# Again, and after a change, and after a kill


def test_the_same_file_again_writes_nothing_and_says_so(store: LeanDojoFolder) -> None:
    first = store.take_data(SMALL)
    second = store.take_data(SMALL)
    assert (second.already_imported, second.position) == (True, first.position)


def test_another_order_of_the_lists_is_no_other_content(store: LeanDojoFolder) -> None:
    data = database(Random(3), repositories=1)
    first = store.take_data(data)
    for name in ("proven_theorems", "sorry_theorems_unproved"):
        data["repositories"][0][name].reverse()
    second = store.take_data(data)
    assert second.repositories[0].files_changed == 0
    assert second.position <= first.position + 1


def test_a_changed_record_is_the_same_trace_closed_anew_with_the_difference(store: LeanDojoFolder) -> None:
    data = small()
    other = copy.deepcopy(data["repositories"][0]["premise_files"][0]) | {"path": "Other.lean"}
    data["repositories"][0]["premise_files"].append(other)
    first = store.take_data(data)
    first_theorem(data)["full_name"] = "Demo.deux"
    second = store.take_data(data)
    [before], [after] = first.repositories, second.repositories
    assert before.trace == after.trace
    assert (after.files_changed, after.files_removed) == (1, 0)
    assert store.rows("SELECT count(*) FROM traces") == [(1,)]
    data["repositories"][0]["premise_files"].pop()
    assert store.take_data(data).repositories[0].files_removed == 1
    names = {theorem.full_name for theorem in store.file("Demo.lean").theorems}
    assert names == {"Demo.one", "Demo.deux"}


KILLED = """
import os, signal, sys
from pathlib import Path
from store.leandojo.reading import import_leandojo
root = Path(sys.argv[1])
def die(what, done, total):
    if what == "recording" and done == 400:
        os.kill(os.getpid(), signal.SIGKILL)
import_leandojo(
    root / "large.json", events_db=root / "events.db", database_db=root / "database.db", stage=root / "import",
    progress=die,
)
"""


def test_a_killed_import_is_invisible_and_completed_by_the_next(
    store: LeanDojoFolder, tmp_path: Path
) -> None:
    large = tmp_path / "large.json"
    write_large(large, theorems=1000, files=500)
    done = warm.start(KILLED, str(tmp_path), output=tmp_path / "said")
    assert done.wait(timeout=60) == -signal.SIGKILL, (tmp_path / "said").read_text("utf-8")
    types = {kind for kind, _ in store.events()}
    assert types == {"file_traced"}, "the kill should fall between two batches"
    half = len(store.events())
    report = store.take(large)
    assert report.repositories[0].theorems == 1000
    assert report.repositories[0].files_changed == 500 - half
    assert len(store.events()) == 501
    assert store.rows("SELECT n_theorems, files_traced FROM traces") == [(1000, 500)]
    undisturbed = LeanDojoFolder(tmp_path / "other")
    undisturbed.take(large)
    assert [(kind, data) for kind, data in store.events()] == undisturbed.events()

"""Exporting to LeanDojo's files: their exact form, what becomes of several repositories, and what a crash leaves."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.domain.records import Premise, PremiseUse, TracedFile, TracedTactic, TracedTheorem
from store.domain.splits import SIDES, SPLITS
from store.leandojo import folder as folders
from store.leandojo.choosing import ImportCycleError, NothingToExportError
from store.leandojo.exporting import Mode, NotAnImportError
from store.leandojo.folder import NotReplaceableError
from tests.support.daemon import warm
from tests.support.leandojo import LISTS, LeanDojoFolder, database, identity, without_circles
from tests.support.traced_repository import grown, head, make_traced_repository


def made_up(seed: int = 0, **sizes: int) -> list[TracedFile]:
    return list(make_traced_repository(seed, **sizes))


def check_as_reprover_loads(lines: list[Any]) -> None:
    """Assert what ReProver's corpus loader asserts."""
    seen: set[str] = set()
    for line in lines:
        assert line["path"] not in seen, "no path twice"
        # Files that were seen before cannot import this one: so there is no cycle either.
        assert set(line["imports"]) <= seen, "imports come before their users"
        seen.add(line["path"])
        for premise in line["premises"]:
            assert premise["full_name"] is None or premise["code"]
            assert premise["start"] <= premise["end"]


# The form.


def test_a_dataset_has_leandojo_s_records(store: LeanDojoFolder) -> None:
    use = PremiseUse("Nat.add_comm", "Nat.lean", (3, 9), (3, 17))
    step = TracedTactic("rw [add_comm]", "rw [<a>add_comm</a>]", (use,), "⊢ a + b = b + a", "no goals")
    theorem = TracedTheorem("two", "theorem two : a + b = b + a", (1, 1), (2, 20), (step,))
    premise = Premise("Nat.add_comm", "theorem add_comm", (3, 1), (3, 30), "commanddeclaration")
    store.record(
        [
            TracedFile("Nat.lean", (), (premise,), ()),
            TracedFile("Two.lean", ("Nat.lean",), (), (theorem,)),
        ]
    )
    store.export()
    (found,) = store.theorems()
    assert json.dumps(found) == json.dumps(
        json.loads(
            """{
            "url": "https://example.org/demo/logic", "commit": "%s", "file_path": "Two.lean", "full_name": "two",
            "theorem_statement": "theorem two : a + b = b + a", "start": [1, 1], "end": [2, 20],
            "traced_tactics": [{
                "tactic": "rw [add_comm]",
                "annotated_tactic": ["rw [<a>add_comm</a>]", [{
                    "full_name": "Nat.add_comm", "def_path": "Nat.lean", "def_pos": [3, 9], "def_end_pos": [3, 17]}]],
                "state_before": "⊢ a + b = b + a", "state_after": "no goals"}]}"""
            % ("1" * 40)
        )
    )
    nat, two = store.json("corpus.jsonl")
    assert nat["premises"] == [{"full_name": "Nat.add_comm", "code": "theorem add_comm", "start": [3, 1],
                                "end": [3, 30], "kind": "commanddeclaration"}]  # fmt: skip
    assert two == {"path": "Two.lean", "imports": ["Nat.lean"], "premises": []}
    assert [line["traced_file_path"] for line in store.json("traced_files.jsonl")] == ["Nat.lean", "Two.lean"]


def test_files_are_byte_for_byte_what_json_dump_with_an_indent_writes(store: LeanDojoFolder) -> None:
    data = without_circles(database(Random(5), repositories=3))
    store.record(made_up())
    store.take_data(data)
    store.export()
    for name in LISTS:
        text = (store.out / f"{name}.json").read_text(encoding="utf-8")
        assert text == json.dumps(json.loads(text), indent=2)
    text = (store.out / "dynamic_database.json").read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False)


def test_tactics_at_no_goals_or_with_a_bullet_are_in_the_database_and_not_in_the_dataset(
    store: LeanDojoFolder,
) -> None:
    steps = (
        TracedTactic("simp", "simp", (), "⊢ 1 = 1", "no goals"),
        TracedTactic("done", "done", (), "no goals", "no goals"),
        TracedTactic("· rfl", "· rfl", (), "⊢ 2 = 2", "no goals"),
    )
    theorem = TracedTheorem("t", "theorem t", (1, 1), (2, 1), steps)
    store.record([TracedFile("A.lean", (), (), (theorem,))])
    store.export()
    (found,) = store.theorems()
    assert [step["tactic"] for step in found["traced_tactics"]] == ["simp"]
    (repository,) = store.json("dynamic_database.json")["repositories"]
    (kept,) = repository["proven_theorems"]
    assert [step["tactic"] for step in kept["traced_tactics"]] == ["simp", "done", "· rfl"]
    assert (kept["start"], kept["end"]) == ("(1, 1)", "(2, 1)")


def test_metadata_has_leandojo_s_keys_and_the_from_repo_that_reprover_reads(store: LeanDojoFolder) -> None:
    files = made_up()
    store.record(files)
    report = store.export()
    metadata = store.json("metadata.json")
    (repository,) = metadata["repositories"]
    del repository["metadata"]
    assert [*repository.values()] == [
        "https://example.org/demo/logic",
        "demo/logic",
        "1" * 40,
        "v4.20.0",
        "made-up 1",
    ]
    assert metadata["from_repo"] == {"url": repository["url"], "commit": repository["commit"]}
    n_theorems = sum(len(file.theorems) for file in files)
    assert metadata["total_theorems"] == n_theorems
    assert metadata["num_proven_theorems"] + metadata["num_sorry_theorems"] == n_theorems
    assert metadata["num_premise_files"] == metadata["num_files_traced"] == len(files)
    assert metadata["num_premises"] == sum(len(file.premises) for file in files)
    assert metadata["everlean"]["position"] == report.position


def test_a_theorem_with_a_sorry_is_unproved_by_its_tokens_and_with_compat_by_its_letters(
    store: LeanDojoFolder,
) -> None:
    texts = {"hole": "sorry", "name": "exact sorry_lemma", "admitted": "admit", "proved": "rfl"}
    theorems = tuple(
        TracedTheorem(
            name, f"theorem {name}", (line, 1), (line, 9), (TracedTactic(text, text, (), "⊢ p", ""),)
        )
        for line, (name, text) in enumerate(texts.items(), start=1)
    )
    store.record([TracedFile("A.lean", (), (), theorems)])
    for mode, expected in ((Mode.FOR_LIFE, {"hole", "admitted"}), (Mode.COMPAT, {"hole", "name"})):
        store.export(mode=mode)
        (repository,) = store.json("dynamic_database.json")["repositories"]
        assert {item["full_name"] for item in repository["sorry_theorems_unproved"]} == expected


# Splits.


def test_every_theorem_is_in_one_list_of_each_split_and_stays_there_as_the_repository_grows(
    store: LeanDojoFolder,
) -> None:
    files = made_up(n_files=20)
    store.record(files)
    store.export()
    before = {name: {item["full_name"] for item in items} for name, items in store.lists().items()}
    names = {theorem.full_name for file in files for theorem in file.theorems}
    for split in SPLITS:
        assert set().union(*(before[f"{split}/{side}"] for side in SIDES)) == names
        assert sum(len(before[f"{split}/{side}"]) for side in SIDES) == len(names)
    files += made_up(seed=1, n_files=40)[20:]
    store.record([grown(file, name=f"new_{number}") for number, file in enumerate(files)], head("2" * 40))
    store.export()
    after = {name: {item["full_name"] for item in items} for name, items in store.lists().items()}
    for split in SPLITS:
        held_out = before[f"{split}/val"] | before[f"{split}/test"]
        assert not held_out & after[f"{split}/train"]
        assert len(after[f"{split}/train"]) > len(before[f"{split}/train"])


def test_what_the_splits_withhold_is_in_no_list_and_counted(store: LeanDojoFolder) -> None:
    files = made_up(n_files=20)
    store.record(files)
    # In the next commit every theorem has every other one's proof: training proofs use reserved premises.
    proofs = [theorem.tactics for file in files for theorem in file.theorems]
    turned = iter(proofs[1:] + proofs[:1])
    changed = [
        replace(file, theorems=tuple(replace(item, tactics=next(turned)) for item in file.theorems))
        for file in files
    ]
    store.record(changed, head("2" * 40))
    report = store.export()
    assert report.withheld["random"] == 0
    assert report.withheld["novel_premises"] > 0
    listed = sum(report.theorems[f"novel_premises/{side}"] for side in SIDES)
    assert listed + report.withheld["novel_premises"] == len(proofs)
    assert store.json("metadata.json")["everlean"]["withheld"] == report.withheld


# Several repositories.


def one_file(path: str, name: str, *imports: str, uses: str | None = None) -> TracedFile:
    use = () if uses is None else (PremiseUse(name, uses, (1, 9), (1, 12)),)
    step = TracedTactic("simp", "simp", use, f"⊢ {name}", "no goals")
    return TracedFile(
        path,
        imports,
        (Premise(name, f"theorem {name}", (1, 1), (2, 9), "commanddeclaration"),),
        (TracedTheorem(name, f"theorem {name} : True", (1, 1), (2, 9), (step,)),),
    )


ONE = head(repository="example.org/me/one", sha="1" * 40)
TWO = head(repository="example.org/me/two", sha="2" * 40)
RENAMED = "example.org/me/two@222222222222"


def test_two_repositories_with_a_file_of_one_name_keep_both(store: LeanDojoFolder) -> None:
    store.record([one_file("Basic.lean", "a"), one_file("Top.lean", "b", "Basic.lean")], ONE)
    store.record(
        [one_file("Basic.lean", "c"), one_file("Other.lean", "d", "Basic.lean", uses="Basic.lean")], TWO
    )
    report = store.export()
    lines = store.json("corpus.jsonl")
    check_as_reprover_loads(lines)
    assert [line["path"] for line in lines] == [
        "Basic.lean",
        "Top.lean",
        f"{RENAMED}/Basic.lean",
        "Other.lean",
    ]
    assert [line["premises"][0]["full_name"] for line in lines] == ["a", "b", "c", "d"]
    assert lines[3]["imports"] == [f"{RENAMED}/Basic.lean"]
    theorems = {item["full_name"]: item for item in store.theorems()}
    assert set(theorems) == {"a", "b", "c", "d"}
    assert theorems["c"]["file_path"] == f"{RENAMED}/Basic.lean"
    (use,) = theorems["d"]["traced_tactics"][0]["annotated_tactic"][1]
    assert use["def_path"] == f"{RENAMED}/Basic.lean"
    assert {"traced_file_path": f"{RENAMED}/Basic.lean"} in store.json("traced_files.jsonl")
    assert report.files_renamed == 1
    # The database keeps each repository's own names.
    two = store.json("dynamic_database.json")["repositories"][1]
    assert [item["path"] for item in two["premise_files"]] == ["Basic.lean", "Other.lean"]


def test_a_dependency_that_two_repositories_share_is_one_file_with_one_record_a_theorem(
    store: LeanDojoFolder,
) -> None:
    shared = one_file(".lake/packages/lib/Lib.lean", "lib")
    store.record([shared, one_file("A.lean", "a", shared.path)], ONE)
    store.record([shared, one_file("B.lean", "b", shared.path)], TWO)
    report = store.export()
    assert report.files_renamed == 0
    assert [line["path"] for line in store.json("corpus.jsonl")] == [shared.path, "A.lean", "B.lean"]
    assert sorted(item["full_name"] for item in store.theorems()) == ["a", "b", "lib"]
    # The record is that of the later trace.
    assert {item["url"] for item in store.theorems() if item["full_name"] == "lib"} == {TWO.url}


def test_a_file_with_the_same_premises_that_imports_another_version_is_another_file(
    store: LeanDojoFolder,
) -> None:
    lib = ".lake/packages/lib/Lib.lean"
    store.record([one_file(lib, "old"), one_file("Mid.lean", "mid", lib)], ONE)
    store.record([one_file(lib, "new"), one_file("Mid.lean", "mid", lib)], TWO)
    store.export()
    lines = {line["path"]: line for line in store.json("corpus.jsonl")}
    assert list(lines) == [lib, "Mid.lean", f"{RENAMED}/{lib}", f"{RENAMED}/Mid.lean"]
    assert lines[f"{RENAMED}/Mid.lean"]["imports"] == [f"{RENAMED}/{lib}"]


def test_a_path_that_only_proofs_name_is_not_taken_for_another_repository_s_file(
    store: LeanDojoFolder,
) -> None:
    store.record([one_file("Basic.lean", "a")], ONE)
    store.record([one_file("B.lean", "b", uses="Basic.lean")], TWO)
    store.export()
    (found,) = [item for item in store.theorems() if item["full_name"] == "b"]
    assert found["traced_tactics"][0]["annotated_tactic"][1][0]["def_path"] == f"{RENAMED}/Basic.lean"


def test_a_file_that_theorems_name_and_no_one_traced_has_a_line_without_premises(
    store: LeanDojoFolder,
) -> None:
    store.record(
        [
            replace(one_file("Basic.lean", "a", uses="Gone.lean"), in_corpus=False, premises=()),
            one_file("B.lean", "b", uses="Gone.lean"),
        ]
    )
    report = store.export()
    lines = {line["path"]: line["premises"] for line in store.json("corpus.jsonl")}
    assert lines.keys() == {"B.lean", "Basic.lean", "Gone.lean"}
    assert lines["Basic.lean"] == lines["Gone.lean"] == []
    assert report.files_untraced == store.json("metadata.json")["everlean"]["files_untraced"] == 2
    assert report.corpus_files == 3


def test_a_proof_finds_its_premise_in_a_file_that_comes_later_for_an_import_is_missing(
    store: LeanDojoFolder,
) -> None:
    lib = "Z.lean"
    store.record([one_file(lib, "other"), one_file("Basic.lean", "a")], ONE)
    # A.lean reached Z.lean through a file that could not be traced.
    store.record(
        [
            one_file("A.lean", "b", "Gone.lean", uses=lib),
            one_file(lib, "z", "Y.lean"),
            one_file("Y.lean", "y"),
        ],
        TWO,
    )
    store.export()
    lines = {line["path"]: line for line in store.json("corpus.jsonl")}
    check_as_reprover_loads(list(lines.values()))
    (found,) = [item for item in store.theorems() if item["full_name"] == "b"]
    named = found["traced_tactics"][0]["annotated_tactic"][1][0]["def_path"]
    assert named == f"{RENAMED}/{lib}"
    assert [item["full_name"] for item in lines[named]["premises"]] == ["z"]
    assert store.export().files_untraced == 0


def test_names_do_not_change_when_the_first_repository_is_traced_again(store: LeanDojoFolder) -> None:
    store.record([one_file("Basic.lean", "a")], ONE)
    store.record([one_file("Basic.lean", "c")], TWO)
    store.record([one_file("Basic.lean", "a2")], replace(ONE, sha="3" * 40))
    store.export()
    names = {line["path"]: line["premises"][0]["full_name"] for line in store.json("corpus.jsonl")}
    assert names == {"Basic.lean": "a2", f"{RENAMED}/Basic.lean": "c"}


def test_compat_knows_a_file_by_its_path_alone(store: LeanDojoFolder) -> None:
    store.record([one_file("Basic.lean", "a")], ONE)
    store.record([one_file("Basic.lean", "a"), one_file("Basic2.lean", "b")], TWO)
    store.export(mode=Mode.COMPAT)
    assert [line["path"] for line in store.json("corpus.jsonl")] == ["Basic.lean", "Basic2.lean"]
    assert sorted(item["full_name"] for item in store.theorems()) == ["a", "b"]


def test_imports_come_first_and_those_of_files_that_were_not_traced_are_left_out(
    store: LeanDojoFolder,
) -> None:
    store.record(
        [
            one_file("A.lean", "a", "Z.lean", "Gone.lean"),
            one_file("Z.lean", "z", "M.lean"),
            one_file("M.lean", "m"),
        ]
    )
    report = store.export()
    lines = store.json("corpus.jsonl")
    check_as_reprover_loads(lines)
    assert [(line["path"], line["imports"]) for line in lines] == [
        ("M.lean", []), ("Z.lean", ["M.lean"]), ("A.lean", ["Z.lean"]),
    ]  # fmt: skip
    assert report.imports_left_out == store.json("metadata.json")["everlean"]["imports_left_out"] == 1


@settings(max_examples=10, deadline=None)
@given(seeds=st.lists(st.integers(0, 3), min_size=1, max_size=4), n_files=st.integers(1, 15))
def test_reprover_can_load_the_corpus_of_any_repositories(
    tmp_path_factory: pytest.TempPathFactory, seeds: list[int], n_files: int
) -> None:
    store = LeanDojoFolder(tmp_path_factory.mktemp("store"))
    for number, seed in enumerate(seeds):
        trace = head(f"{number:040x}", repository=f"example.org/me/r{number % 3}")
        store.record(made_up(seed=seed, n_files=n_files, theorems_per_file=1), trace)
    store.export()
    lines = store.json("corpus.jsonl")
    check_as_reprover_loads(lines)
    paths = {line["path"] for line in lines}
    for theorem in store.theorems():
        assert theorem["file_path"] in paths
        for step in theorem["traced_tactics"]:
            assert {use["def_path"] for use in step["annotated_tactic"][1]} <= paths


def test_files_that_import_each_other_are_refused_by_name(store: LeanDojoFolder) -> None:
    store.record([one_file("A.lean", "a", "B.lean"), one_file("B.lean", "b", "A.lean")])
    with pytest.raises(ImportCycleError, match=r"A\.lean -> B\.lean -> A\.lean"):
        store.export()
    assert not store.out.exists()


# What is exported.


def test_without_a_trace_nothing_is_written_and_the_error_says_what_to_do(store: LeanDojoFolder) -> None:
    store.record()
    with pytest.raises(NothingToExportError, match="everlean import leandojo"):
        store.export()
    assert not store.out.exists()


def test_one_repository_is_exported_by_its_key_and_an_unknown_one_is_an_error(store: LeanDojoFolder) -> None:
    store.record([one_file("A.lean", "a")], ONE)
    store.record([one_file("B.lean", "b")], TWO)
    store.export(repositories=["example.org/me/two"])
    assert [item["full_name"] for item in store.theorems()] == ["b"]
    with pytest.raises(NothingToExportError, match=r"example\.org/me/one, example\.org/me/two"):
        store.export(repositories=["example.org/me/three"])


def database_record(commit: str, *theorems: tuple[str, int]) -> dict[str, Any]:
    return {
        **identity("https://example.org/me/one", commit),
        "proven_theorems": [
            {"full_name": name, "theorem_statement": f"theorem {name} : True", "file_path": "A.lean",
             "start": f"({line}, 1)", "end": f"({line}, 9)", "difficulty_rating": math.inf}
            for name, line in theorems
        ],
    }  # fmt: skip


TWO_COMMITS = [database_record("1" * 40, ("a", 1), ("gone", 5)), database_record("2" * 40, ("a", 2))]


def test_of_two_commits_the_newest_is_in_the_dataset_and_both_in_the_database(store: LeanDojoFolder) -> None:
    store.take_data({"repositories": TWO_COMMITS})
    store.export()
    assert [(item["full_name"], item["start"]) for item in store.theorems()] == [("a", [2, 1])]
    commits = [item["commit"] for item in store.json("dynamic_database.json")["repositories"]]
    assert commits == ["1" * 40, "2" * 40]


def test_every_commit_has_a_theorem_once_where_its_lines_moved_and_leandojo_twice(
    store: LeanDojoFolder,
) -> None:
    store.take_data({"repositories": TWO_COMMITS})
    store.export(every_commit=True)
    found = sorted((item["full_name"], item["start"][0]) for item in store.theorems())
    assert found == [("a", 2), ("gone", 5)]
    store.export(mode=Mode.COMPAT)
    found = sorted((item["full_name"], item["start"][0]) for item in store.theorems())
    assert found == [("a", 1), ("a", 2), ("gone", 5)]


def test_infinity_is_null_but_with_compat(store: LeanDojoFolder) -> None:
    store.take_data({"repositories": [database_record("1" * 40, ("a", 1))]})
    for mode, expected in (
        (Mode.FOR_LIFE, None),
        (Mode.COMPAT, math.inf),
        (Mode.AS_IMPORTED, None),
        (Mode.AS_IMPORTED_COMPAT, math.inf),
    ):
        store.export(mode=mode)
        (repository,) = store.json("dynamic_database.json")["repositories"]
        assert repository["proven_theorems"][0]["difficulty_rating"] == expected


# Imports given back.


def test_our_own_trace_cannot_be_given_back_as_an_import(store: LeanDojoFolder) -> None:
    store.record([one_file("A.lean", "a")])
    with pytest.raises(NotAnImportError, match="1 traces of our own"):
        store.export(mode=Mode.AS_IMPORTED_COMPAT)


def test_what_was_exported_can_be_imported_and_exported_again_to_the_same_database(
    store: LeanDojoFolder,
) -> None:
    store.record(made_up(n_files=12))
    store.export()
    other = LeanDojoFolder(store.root / "other")
    other.take(store.out)
    other.export()
    first, second = store.json("dynamic_database.json"), other.json("dynamic_database.json")
    for item in (*first["repositories"], *second["repositories"]):
        del item["lean_dojo_version"]  # it is the tracer's own name
    assert first == second
    # A side is a matter of the theorem alone in the random split.
    assert sorted(map(str, store.json("random/test.json"))) == sorted(
        map(str, other.json("random/test.json"))
    )


# The folder.


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_an_earlier_export_is_replaced_whole_and_nothing_is_left_beside_it(store: LeanDojoFolder) -> None:
    store.record([one_file("A.lean", "a")])
    store.export()
    (store.out / "random" / "cache.pkl").write_text("of the old data")
    store.record([one_file("A.lean", "b")], head("2" * 40))
    store.export()
    assert [item["full_name"] for item in store.theorems()] == ["b"]
    assert not (store.out / "random" / "cache.pkl").exists()
    assert [path.name for path in store.root.iterdir() if "out" in path.name] == ["out"]


def test_what_no_export_made_is_refused_and_left_alone(store: LeanDojoFolder) -> None:
    store.record([one_file("A.lean", "a")])
    store.out.mkdir()
    (store.out / "thesis.tex").write_text("years of work")
    with pytest.raises(NotReplaceableError, match="no export made it"):
        store.export()
    assert contents(store.out) == {"thesis.tex": b"years of work"}
    (store.out / "thesis.tex").unlink()
    store.export()
    assert store.theorems()
    with pytest.raises(NotReplaceableError, match="is a file"):
        store.export(store.events_db)


def test_an_export_that_fails_leaves_the_old_one(store: LeanDojoFolder) -> None:
    store.record([one_file("A.lean", "a")])
    store.export()
    before = contents(store.out)
    store.record([one_file("A.lean", "a", "B.lean"), one_file("B.lean", "b", "A.lean")], head("2" * 40))
    with pytest.raises(ImportCycleError):
        store.export()
    assert contents(store.out) == before
    assert [path.name for path in store.root.iterdir() if "out" in path.name] == ["out"]


def test_a_symbolic_link_to_an_export_stays_one(store: LeanDojoFolder) -> None:
    store.record([one_file("A.lean", "a")])
    real = store.root / "real"
    store.export(out=real)
    store.out.symlink_to(real)
    store.export()
    assert store.out.is_symlink()
    assert store.theorems()


@pytest.mark.parametrize("exchange", [True, False], ids=["one step", "two steps"])
def test_a_file_system_without_an_exchange_of_names_does_as_well(
    store: LeanDojoFolder, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(folders, "exchange", lambda _one, _other: False)
    store.record([one_file("A.lean", "a")])
    store.export()
    store.export()
    assert store.theorems()
    assert [path.name for path in store.root.iterdir() if "out" in path.name] == ["out"]


_KILLED = """
import os, signal, sys
from contextlib import closing
from pathlib import Path
from store.leandojo import folder
from store.leandojo.exporting import export_leandojo
from store.log.reader import LogReader
from store.view import queries

root, moment = Path(sys.argv[1]), sys.argv[2]

def die(*_arguments, **_options):
    os.kill(os.getpid(), signal.SIGKILL)

def after(function):
    def both(*arguments, **options):
        result = function(*arguments, **options)
        die()
    return both

if moment == "writing":
    LogReader.blob = die
elif moment == "before the exchange":
    folder.exchange = die
elif moment == "after the exchange":
    folder.exchange = after(folder.exchange)
elif moment == "while removing the old one":
    folder.shutil.rmtree = die
elif moment == "between two steps":
    folder.exchange = lambda one, other: False
    Path.rename = after(Path.rename)
with LogReader.open(root / "events.db") as log, closing(queries.connect(root / "database.db")) as view:
    export_leandojo(root / "out", log=log, view=view)
"""


MOMENTS = [
    "writing",
    "before the exchange",
    "after the exchange",
    "while removing the old one",
    "between two steps",
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_leaves_the_old_export_or_the_new_one_whole(store: LeanDojoFolder, moment: str) -> None:
    store.record([one_file("A.lean", "a")])
    store.export()
    old = contents(store.out)
    store.record([one_file("A.lean", "b")], head("2" * 40))
    store.export(out=store.root / "expected")
    new = contents(store.root / "expected")
    killed = warm.start(_KILLED, str(store.root), moment, output=store.root / "said")
    assert killed.wait(timeout=60) == -signal.SIGKILL
    if moment == "between two steps":
        assert not store.out.exists()  # it lies aside, whole
        (aside,) = store.root.glob(".out.*.old")
        assert contents(aside) == old
    else:
        assert contents(store.out) in (old, new)
    store.export()
    assert contents(store.out) == new
    assert [path.name for path in store.root.iterdir() if "out" in path.name] == ["out"]


@pytest.mark.slow
def test_memory_hardly_grows_with_the_export(store: LeanDojoFolder) -> None:
    # Not ru_maxrss: Linux starts a child's at what its parent held.
    code = _KILLED + 'print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])'
    peaks = []
    for n_files in (20, 200):
        store.record(made_up(n_files=n_files, theorems_per_file=20), head(f"{n_files:040x}"))
        answer = subprocess.run(
            [sys.executable, "-c", code, store.root, "never"], check=True, capture_output=True, text=True
        )
        peaks.append(int(answer.stdout))
    size = sum(path.stat().st_size for path in store.out.rglob("*") if path.is_file()) / 1024
    assert peaks[1] - peaks[0] < size / 3, f"{peaks} KiB for {size:.0f} KiB of files"

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
THREE = replace(ONE, sha="3" * 40)
# The files of each trace as "path premise imports… >file of its proof's premise"; the corpus that comes of them, where
# 2/ is what a file of the second repository is renamed to; the files of proofs' premises; and how many files were
# renamed, imports left out, and files not traced.
MERGED = [
    # Two files of one name.
    (
        ["Basic.lean a; Top.lean b Basic.lean", "Basic.lean c; Other.lean d Basic.lean >Basic.lean"],
        "Basic.lean a; Top.lean b Basic.lean; 2/Basic.lean c; Other.lean d 2/Basic.lean",
        {"d": "2/Basic.lean"},
        (1, 0, 0),
    ),
    # A dependency of both.
    (["Lib.lean lib; A.lean a Lib.lean", "Lib.lean lib; B.lean b Lib.lean"],
     "Lib.lean lib; A.lean a Lib.lean; B.lean b Lib.lean", {}, (0, 0, 0)),
    # The same premises, and another version of an import.
    (["Lib.lean old; Mid.lean mid Lib.lean", "Lib.lean new; Mid.lean mid Lib.lean"],
     "Lib.lean old; Mid.lean mid Lib.lean; 2/Lib.lean new; 2/Mid.lean mid 2/Lib.lean", {}, (2, 0, 0)),
    # A path that only proofs name is not another repository's file.
    (["Basic.lean a", "B.lean b >Basic.lean"],
     "Basic.lean a; B.lean b; 2/Basic.lean", {"b": "2/Basic.lean"}, (1, 0, 1)),
    # A file without premises that nobody traced.
    (["B.lean b >Gone.lean"], "B.lean b; Gone.lean", {"b": "Gone.lean"}, (0, 0, 1)),
    # A premise in a file that comes later, for a file between the two could not be traced.
    (["Z.lean other; Basic.lean a", "A.lean b Gone.lean >Z.lean; Z.lean z Y.lean; Y.lean y"],
     "Basic.lean a; Z.lean other; A.lean b; Y.lean y; 2/Z.lean z Y.lean", {"b": "2/Z.lean"}, (1, 1, 0)),
    # Names stay when the first repository is traced again.
    (["Basic.lean a", "Basic.lean c", "Basic.lean a2"], "Basic.lean a2; 2/Basic.lean c", {}, (1, 0, 0)),
    # Imports come first.
    (["A.lean a Z.lean Gone.lean; Z.lean z M.lean; M.lean m"],
     "M.lean m; Z.lean z M.lean; A.lean a Z.lean", {}, (0, 1, 0)),
]  # fmt: skip


def files_of(text: str) -> list[TracedFile]:
    found = []
    for path, name, *rest in (part.split() for part in text.split(";")):
        uses = [word[1:] for word in rest if word[0] == ">"]
        found.append(
            one_file(path, name, *(word for word in rest if word[0] != ">"), uses=uses[0] if uses else None)
        )
    return found


@pytest.mark.parametrize(("traces", "corpus", "named", "counts"), MERGED)
def test_files_of_several_repositories_are_one_corpus(
    store: LeanDojoFolder, traces: list[str], corpus: str, named: dict[str, str], counts: tuple[int, int, int]
) -> None:
    for trace, files in zip((ONE, TWO, THREE), traces, strict=False):
        store.record(files_of(files), trace)
    report = store.export()
    lines = store.json("corpus.jsonl")
    check_as_reprover_loads(lines)
    shown = (
        (line["path"], *(one["full_name"] for one in line["premises"]), *line["imports"]) for line in lines
    )
    assert "; ".join(" ".join(words) for words in shown).replace(RENAMED, "2") == corpus
    theorems = store.theorems()
    assert len({(item["file_path"], item["full_name"]) for item in theorems}) == len(theorems), "each once"
    uses = {item["full_name"]: item["traced_tactics"][0]["annotated_tactic"][1] for item in theorems}
    found = {name: use["def_path"].replace(RENAMED, "2") for name, own in uses.items() for use in own}
    assert found == named
    assert (report.files_renamed, report.imports_left_out, report.files_untraced) == counts
    ours = store.json("metadata.json")["everlean"]
    assert (ours["files_renamed"], ours["imports_left_out"], ours["files_untraced"]) == counts
    assert {item["url"] for item in theorems if item["full_name"] == "lib"} <= {TWO.url}, (
        "that of the later trace"
    )
    # The database keeps each repository's own names.
    databases = store.json("dynamic_database.json")["repositories"]
    assert not [one for repo in databases for one in repo["premise_files"] if one["path"].startswith(RENAMED)]


def test_a_file_of_which_only_theorems_are_known_has_a_line_without_premises(store: LeanDojoFolder) -> None:
    store.record([replace(one_file("Basic.lean", "a"), in_corpus=False, premises=())])
    report = store.export()
    assert store.json("corpus.jsonl") == [{"path": "Basic.lean", "imports": [], "premises": []}]
    assert (report.files_untraced, report.corpus_files) == (1, 1)


def test_compat_knows_a_file_by_its_path_alone(store: LeanDojoFolder) -> None:
    store.record([one_file("Basic.lean", "a")], ONE)
    store.record([one_file("Basic.lean", "a"), one_file("Basic2.lean", "b")], TWO)
    store.export(mode=Mode.COMPAT)
    assert [line["path"] for line in store.json("corpus.jsonl")] == ["Basic.lean", "Basic2.lean"]
    assert sorted(item["full_name"] for item in store.theorems()) == ["a", "b"]


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


def test_one_repository_is_exported_by_its_key_and_what_has_no_trace_is_an_error(
    store: LeanDojoFolder,
) -> None:
    store.record()
    with pytest.raises(NothingToExportError, match="everlean import leandojo"):
        store.export()
    assert not store.out.exists()
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


def test_of_two_commits_the_newest_is_in_the_dataset_unless_every_one_is_and_both_are_in_the_database(
    store: LeanDojoFolder,
) -> None:
    def exported(**options: Any) -> list[tuple[str, int]]:
        store.export(**options)
        return sorted((item["full_name"], item["start"][0]) for item in store.theorems())

    store.take_data({"repositories": TWO_COMMITS})
    assert exported() == [("a", 2)]
    commits = [item["commit"] for item in store.json("dynamic_database.json")["repositories"]]
    assert commits == ["1" * 40, "2" * 40]
    assert exported(every_commit=True) == [("a", 2), ("gone", 5)]
    assert exported(mode=Mode.COMPAT) == [("a", 1), ("a", 2), ("gone", 5)], (
        "its lines moved: LeanDojo has it twice"
    )


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


def test_an_earlier_export_is_replaced_whole_or_left_as_it_was(store: LeanDojoFolder) -> None:
    store.record([one_file("A.lean", "a")])
    store.export()
    (store.out / "random" / "cache.pkl").write_text("of the old data")
    store.record([one_file("A.lean", "b")], head("2" * 40))
    store.export()
    assert [item["full_name"] for item in store.theorems()] == ["b"]
    assert not (store.out / "random" / "cache.pkl").exists()
    before = contents(store.out)
    store.record([one_file("A.lean", "a", "B.lean"), one_file("B.lean", "b", "A.lean")], head("3" * 40))
    with pytest.raises(ImportCycleError):
        store.export()
    assert contents(store.out) == before
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

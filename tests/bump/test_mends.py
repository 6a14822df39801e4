"""What is read of messages, what is tried in place of a broken proof, and what is put aside: text alone, no Lean."""

from __future__ import annotations

import io
import itertools
import json
import sqlite3
import time
import tracemalloc
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from daemon.jobs.runner import _packages
from pipeline.build import Building
from pipeline.bump import __main__ as job
from pipeline.bump.__main__ import _lean_files
from pipeline.bump.breaks import Gap, RaisedFile, cause_of, reason_of, shown
from pipeline.bump.mends import Names, candidates, deprecations, renamed, tactic_at, unknown
from pipeline.jobs.protocol import Reporter
from pipeline.lean.backend import LeanBackend
from pipeline.lean.build.lake import BuildLog, BuildMessage, LakeRunner
from pipeline.lean.tactic_text import suggested
from store.domain.identity import slug
from store.events.bumps import Break, BumpTried, Mend
from store.view.bumps import renames
from tests.support.bump import OLD, job_spec, recorded
from tests.support.daemon.remote import git

FILE = """namespace Demo

theorem one (h : True) : True := by
  exact old h

def two : Nat := gone

/-- A lemma. -/
theorem three : Gone := by
  trivial

end Demo
"""


def error(line: int, column: int, text: str) -> BuildMessage:
    return BuildMessage("error", "A.lean", line, column, text)


@pytest.mark.parametrize(
    "message",
    [
        "`A.old` has been deprecated: Use `A.new` instead",
        "`A.old` has been deprecated: use `A.new`",
        "'A.old' has been deprecated, use 'A.new' instead",
        "`A.old` has been deprecated, please use `A.new`",
    ],
)
def test_a_deprecation_says_the_new_name_in_the_words_of_each_lean(message: str) -> None:
    assert deprecations([message]) == {"A.old": "A.new"}


@pytest.mark.parametrize(
    "message",
    ["`old` has been deprecated: Use `sorry)\nend` instead", "`a` has been deprecated: Use `#x`", "use `b`"],
)
def test_what_is_no_name_is_no_rename(message: str) -> None:
    assert deprecations([message]) == {}


def test_names_that_lean_does_not_know_are_read() -> None:
    lines = [
        "Unknown identifier `foo`",
        "unknown constant 'Nat.bar'",
        "The environment does not contain `Nat.baz`",
    ]
    assert unknown(lines) == ["foo", "Nat.bar", "Nat.baz"]


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("exact A.old h", {"A.old": "A.new"}, "exact A.new h"),
        ("exact old h", {"A.old": "A.new"}, "exact new h"),
        ("exact old h", {"A.old": "B.new"}, "exact B.new h"),
        ("exact h.old", {"A.old": "A.new"}, "exact h.new"),
        ("exact older h", {"old": "new"}, "exact older h"),
        ("exact «old» h", {"old": "new"}, "exact «old» h"),
    ],
)
def test_a_constant_is_renamed_as_it_is_written(text: str, names: dict[str, str], expected: str) -> None:
    assert renamed(text, names) == expected


def test_near_names_are_those_with_the_same_end_or_nearly_so() -> None:
    known = Names(["Nat.add_comm", "Int.add_comm", "add_com", "mul_one"])
    assert set(known.nearest("Nat.add_comm'")) == {"Nat.add_comm", "Int.add_comm", "add_com"}


def test_hundreds_of_breaks_and_thousands_of_names_take_seconds() -> None:
    proof = "theorem t{0} (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  exact Base.rotate p q h\n"
    file = RaisedFile("A.lean", "".join(proof.format(number) for number in range(500)))
    lines = [error(2 * number, 8, "Unknown identifier `Base.rotate`") for number in range(1, 501)]
    words = (
        "add",
        "mul",
        "sub",
        "comm",
        "assoc",
        "left",
        "map",
        "mem",
        "union",
        "inter",
        "sum",
        "prod",
        "list",
    )
    names = [f"Nat.{'_'.join(one)}" for one in itertools.product(words, repeat=4)]
    began = time.perf_counter()
    assert file.take(lines)
    assert "Nat.add_mul_sub_comm" in Names(names).nearest("Nat.add_mul_sub_com")
    assert len(file.gaps) == 500
    assert time.perf_counter() - began < 20  # it was more than two minutes


def test_the_tactic_at_an_error_has_its_lines() -> None:
    text = "by\n  constructor\n  · exact f\n      x\n  · exact y"
    start, end = tactic_at(text, text.index("exact f")) or (0, 0)
    assert text[start:end] == "exact f\n      x"
    assert tactic_at("f x", 0) is None


def test_renames_come_first_then_arguments_then_other_tactics() -> None:
    text = "by\n  exact old a b"
    tried = [*candidates(text, [(11, "Unknown identifier `old`")], {"old": "new"}, lambda _: ["other"])]
    assert tried[0] == ("renamed constants", "by\n  exact new a b")
    assert tried[1][1] == "by\n  exact other a b"
    assert tried[2][1] == "by\n  exact old b a"
    assert "by\n  simp" in [changed for _, changed in tried]


def test_an_application_of_very_many_arguments_takes_no_time() -> None:
    began = time.perf_counter()
    next(candidates(f"f {'a b ' * 5000}", [(0, "no")], {}, lambda _: ()))
    assert time.perf_counter() - began < 1  # it was more than five seconds


def test_what_exact_question_mark_suggests_is_read() -> None:
    assert suggested("Try this:\n  [apply] exact foo a") == "exact foo a"
    assert suggested("Try this: exact foo a") == "exact foo a"
    assert suggested("unsolved goals") == ""


@pytest.mark.parametrize(
    "message",
    [
        "unknown module prefix 'Foo'\n\nNo directory 'Foo' or file 'Foo.olean' in the search path entries:",
        "object file 'o/B/X.olean' of module B.X does not exist",
        "cannot import non-`module` B from `module`",
        "failed to read file 'o/I.olean', invalid header",
        "import B failed, environment already contains 'a' from A",
        "bad import 'Base.Moved'",
    ],
)
def test_a_broken_import_is_known_by_what_lean_and_lake_say_of_headers(message: str) -> None:
    assert reason_of(message) == "import"
    assert reason_of(f"unsolved goals\ncase {message}") == "unsolved_goals"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Unknown identifier `important`", "unknown_name"),
        ("Type mismatch\n  bad import 'x'\nhas type\n  String", "type_mismatch"),
        ("file 'import.json' could not be read: no such file or directory", "other"),
    ],
)
def test_a_message_that_has_the_word_import_is_no_broken_import(message: str, reason: str) -> None:
    assert reason_of(message) == reason


def test_a_message_obeys_no_terminal_and_has_an_end() -> None:
    said = shown("\x1b[2Jproved\x07 " + "x" * 5000)
    assert said.isprintable()
    assert len(said) == 600


def test_messages_of_a_build_have_all_their_lines() -> None:
    log = BuildLog()
    for line in (
        "✖ [2/3] Building A", "error: ././A.lean:4:2: Type mismatch", "  f", "warning: A.lean:1:0: unused",
        "trace: .> lean",
        "  more of the trace", "B.lean:7:1: error: old style", "error: C.lean: bad import 'D'",
    ):  # fmt: skip
        log.take(line)
    assert log.messages == [
        BuildMessage("error", "A.lean", 4, 2, "Type mismatch\n  f"),
        BuildMessage("warning", "A.lean", 1, 0, "unused"),
        BuildMessage("error", "B.lean", 7, 1, "old style"),
        BuildMessage("error", "C.lean", 1, 0, "bad import 'D'"),
    ]
    assert reason_of("bad import 'D'") == "import"


# ---- what is put aside


def test_a_broken_proof_is_a_gap_under_the_same_statement() -> None:
    file = RaisedFile("A.lean", FILE)
    assert file.take([error(4, 8, "Unknown identifier `old`")])
    assert file.current == FILE.replace("by\n  exact old h", "sorry")
    assert file.handed_over == FILE
    (gap,) = file.gaps.values()
    assert (gap.old, gap.found.declaration, gap.found.kind) == ("by\n  exact old h", "Demo.one", "proof")
    assert not file.take([])


def test_a_broken_definition_is_named_blanked_and_not_rewritten() -> None:
    file = RaisedFile("A.lean", FILE)
    assert file.take([error(6, 17, "Unknown identifier `gone`")])
    assert [(one.declaration, one.kind) for one in file.left] == [("Demo.two", "definition")]
    assert "def two" not in file.current
    assert file.current.count("\n") == FILE.count("\n")
    assert file.handed_over == FILE


def test_a_theorem_that_fails_with_a_sorry_for_its_proof_has_a_broken_statement() -> None:
    file = RaisedFile("A.lean", FILE)
    text = "Unknown identifier `Gone`"
    assert file.take([error(9, 16, text)])
    assert file.take([error(9, 16, text)])
    assert [(one.declaration, one.kind, one.reason) for one in file.left] == [
        ("Demo.three", "statement", "unknown_name")
    ]
    assert not file.gaps
    assert "A lemma" not in file.current


def test_a_fault_at_the_next_command_is_the_one_s_before() -> None:
    file = RaisedFile("A.lean", FILE)
    file.take([error(6, 0, "unexpected token 'def'; expected tactic")])
    assert [gap.found.declaration for gap in file.gaps.values()] == ["Demo.one"]


def test_a_message_of_a_place_that_is_not_there_does_no_harm() -> None:
    file = RaisedFile("A.lean", FILE)
    file.take([error(10**8, 10**8, "forged")])
    assert all(isinstance(one, Break) for one in file.left)


def test_a_second_gap_in_the_file_keeps_its_place_after_the_first_is_mended() -> None:
    text = "theorem a : True := by\n  foo\n\ntheorem b : True := by\n  bar\n"
    file = RaisedFile("A.lean", text)
    file.take([error(2, 2, "x"), error(5, 2, "y")])
    first, second = file.open_gaps
    file.gaps[first].text = "by\n  trivial\n  done"
    assert file.current == "theorem a : True := by\n  trivial\n  done\n\ntheorem b : True := sorry\n"
    assert file.current[file.place_of(second) :].startswith("sorry")
    assert file.handed_over.endswith("theorem b : True := by\n  bar\n")


def test_a_name_of_very_many_parts_takes_little_memory_and_is_recorded_shortened() -> None:
    space, word = ".".join(["a"] * 1500), ".".join(["b"] * 8000)
    definitions = "".join(f"def two{number} : Nat := gone\n" for number in range(20))
    file = RaisedFile(f"{'d' * 300}.lean", f"namespace {space}\n{definitions}end {space}\n")
    tracemalloc.start()
    file.take([error(number, 4, "Unknown identifier `gone`") for number in range(2, 22)])
    assert cause_of([], file.causes, [word]) == ""
    assert tracemalloc.get_traced_memory()[1] < 10 * 2**20  # it was several hundred
    tracemalloc.stop()
    assert len(file.left) == 20
    assert {(len(one.path), len(one.declaration)) for one in file.left} == {(200, 200)}
    assert cause_of([], file.causes, ["a.two7.mk"]).endswith(".a.two7")


def test_of_the_breaks_beyond_the_limit_nothing_is_put_aside() -> None:
    file = RaisedFile("A.lean", FILE)
    assert file.take([error(4, 8, "x"), error(6, 17, "y"), error(9, 16, "z")], most=2)
    assert (len(file.gaps), len(file.left), file.named) == (1, 1, 2)
    assert "theorem three" in file.current


# ---- what is raised


def test_only_lean_files_of_the_commit_are_read_and_written_whatever_a_message_names(tmp_path: Path) -> None:
    for name in ("A.lean", "Sub/B.lean", "lakefile.lean", ".lake/build/x.lean", "Sub/.lake/y.lean", "C.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link.lean").symlink_to("/etc/passwd")
    assert sorted(_lean_files(tmp_path)) == ["A.lean", "Sub/B.lean"]


def test_the_complaint_about_our_own_gap_breaks_nothing_where_warnings_are_errors() -> None:
    text = "theorem a : True := by\n  exact gone\n"
    file = RaisedFile("A.lean", text)
    assert file.take([BuildMessage("error", "A.lean", 2, 8, "unknown identifier 'gone'")])
    assert not file.take([BuildMessage("error", "A.lean", 1, 8, "declaration uses `sorry`")])
    assert (list(file.left), len(file.gaps)) == ([], 1)


def test_of_very_many_texts_the_log_gets_a_bounded_part_and_all_that_the_gate_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "MOST_RECORDED", 3)
    out = io.StringIO()
    spec = job_spec(tmp_path, LeanBackend("server", ("/lean",), "", OLD, sandbox="none"))
    it = job.Bump(spec, Reporter(spec, out), [])
    result = Break(
        path="A.lean", line=1, declaration="a", kind="proof", reason="other", message="m", follows=""
    )
    texts = ["x", "y" * (job.LONGEST_TEXT + 1)] * 5
    for text in texts:
        it._tried(Gap(result, "by old"), "", "good", "verified", "", "")
        it._tried(Gap(result, "by old"), "n" * 600, text, "refused", "compile", "no")
    tried = [one for one in recorded(out) if isinstance(one, BumpTried)]
    assert [(one.number, one.verdict, one.text_cut) for one in tried] == [
        (1, "verified", False),
        (2, "refused", False),
        (3, "verified", False),
        (4, "refused", True),
        (5, "verified", False),
        (6, "refused", False),
        *((number, "verified", False) for number in range(7, 20, 2)),
    ]
    assert tried[1].how.endswith("n…")
    assert it._unrecorded == 7


def test_what_breaks_since_a_command_is_left_out_says_what_it_follows_from() -> None:
    text = (
        "namespace Demo\n\ndef two : Nat := gone\n\ntheorem same (p : Prop) (h : p) : p := by\n  exact f two h\n\n"
        "instance : Add Bool := gone\n\ntheorem sum : true + true = true := by\n  trivial\n\n"
        "theorem own (p : Prop) (h : p) : p := by\n  exact old h\n\nend Demo\n"
    )
    file = RaisedFile("A.lean", text)
    message = "Unknown identifier `gone`"
    assert file.take([error(14, 8, "Unknown identifier `old`"), error(3, 17, message), error(8, 23, message)])
    assert file.take(
        [
            error(6, 10, "Unknown identifier `two`"),
            error(10, 17, "failed to synthesize\n  HAdd Bool Bool Bool"),
        ]
    )
    result = {gap.found.declaration: gap.found.follows for gap in file.gaps.values()}
    assert result == {"Demo.own": "", "Demo.same": "Demo.two", "Demo.sum": "A.lean:8"}
    assert [gap.wanted for _, gap in sorted(file.gaps.items())] == [False, False, True]
    other = RaisedFile(
        "B.lean", "theorem b : True := by\n  exact Demo.two.lt\n\ntheorem c : True := by\n  exact old\n"
    )
    other.take(
        [error(2, 8, "Unknown constant `Demo.two.lt`"), error(5, 8, "Unknown identifier `old`")], file.causes
    )
    assert [gap.found.follows for _, gap in sorted(other.gaps.items())] == ["Demo.two", ""]


def test_an_old_proof_that_lean_takes_again_stands_and_nothing_else_is_tried_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean = LeanBackend("server", ("/lean",), "", OLD, sandbox="none")
    spec, out = job_spec(tmp_path, lean), io.StringIO()
    it = job.Bump(spec, Reporter(spec, out), [])
    text = "theorem a : True := by\n  exact old\n\ntheorem b : True := by\n  exact a\n"
    it._files["A.lean"] = file = RaisedFile("A.lean", text)
    file.take([error(2, 8, "Unknown identifier `old`"), error(5, 8, "Unknown identifier `a`")])
    compiled: list[str] = []

    def compile_(_it: object, _runner: object, _file: object, start: int, tried: str) -> job._Compiled:
        compiled.append(tried)
        return job._Compiled(None if start > 30 else [(5, "Unknown identifier `old`")])

    monkeypatch.setattr(job.Bump, "_compile", compile_)
    monkeypatch.setattr(job.Bump, "_judge", lambda *_: False)  # it rests on a gap
    monkeypatch.setattr(job.Bump, "_build_what_is_handed_over", lambda *_: ())
    monkeypatch.setattr(job.Bump, "_near", lambda *_: ())
    monkeypatch.setattr(job.Bump, "_own", lambda _, path: tmp_path / path)
    it._mend_all(cast(LakeRunner, None))
    assert compiled[0] == "by\n  exact old"
    assert compiled[-1] == "by\n  exact a"
    assert compiled.count("by\n  simp") == 1
    it._hand_over(cast(LakeRunner, None))
    assert [one.declaration for one in it._leftovers()] == ["a", "b"], "the gate accepted neither"
    assert (tmp_path / "A.lean").read_text("utf-8") == text


def test_what_is_handed_over_is_built_in_the_time_that_is_left_and_unjudged_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean = LeanBackend("server", ("/lean",), "", OLD, sandbox="none")
    spec, limits = job_spec(tmp_path, lean), list[float]()
    it = job.Bump(spec, Reporter(spec, io.StringIO()), [])
    mend = Mend(path="A.lean", declaration="a", how="h", verdict="verified", reason="", axioms=("propext",),
                grade="L1", kernel="leanchecker", doubts=())  # fmt: skip

    def build(building: Building, _: LakeRunner) -> tuple[BuildLog, object]:
        limits.append(building._given.timeout_s)
        it._began -= 301
        return BuildLog(), SimpleNamespace(ok=True)

    def judge(_it: object, path: str, start: int, *_: object) -> bool:
        return path == "B.lean" or it._mended.pop((path, start)) is None

    monkeypatch.setattr(Building, "build", build)
    monkeypatch.setattr(job.Bump, "_judge_as_handed_over", judge)
    it._began -= 2.4 * 3000
    it._mended = {("A.lean", 0): mend, ("B.lean", 0): mend}
    (told,) = it._hand_over(cast(LakeRunner, None))
    assert told.startswith("all: there was no time")
    assert [299 < limit <= 300 for limit in limits] == [True]
    (result,) = it._mended.values()
    assert (result.verdict, result.reason, result.axioms, result.grade) == ("checked", job._NO_TIME, (), "")


# ---- whose names


def test_the_log_s_renames_are_those_of_the_repository_and_of_what_its_manifest_requires(
    tmp_path: Path,
) -> None:
    own, package, private = "github.com/ada/own", "github.com/ada/base", "github.com/eve/secret"
    work, mirror = tmp_path / "work", tmp_path / f"{slug(own)}.git"
    work.mkdir()
    entry = {"type": "git", "name": "base", "url": "https://github.com/ada/base.git", "rev": "a" * 40}
    (work / "lake-manifest.json").write_text(json.dumps({"version": "1.1.0", "packages": [entry]}))
    git(work, "init", "--quiet")
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "one")
    git(tmp_path, "clone", "--quiet", "--bare", str(work), str(mirror))
    packages = _packages(tmp_path, own, git(work, "rev-parse", "HEAD"))
    assert packages == [package]
    assert _packages(tmp_path, private, "a" * 40) == []

    with closing(sqlite3.connect(":memory:")) as view:
        view.execute("CREATE TABLE theorems (repository, branch, theorem, state, name)")
        view.execute("CREATE TABLE theorem_versions (repository, branch, theorem, name)")
        for repository in (own, package, private):
            name = repository.rpartition("/")[2]
            view.execute(
                "INSERT INTO theorems VALUES (?, 'main', 't', 'present', ?)", (repository, f"{name}.new")
            )
            view.execute(
                "INSERT INTO theorem_versions VALUES (?, 'main', 't', ?)", (repository, f"{name}.old")
            )
        assert renames(view, (own, *packages)) == {"own.old": "own.new", "base.old": "base.new"}
        assert renames(view, (own,)) == {"own.old": "own.new"}

"""`everlean diff BASE`: pull requests in real git repositories, compared without daemon, database or Lean."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from daemon.cli.app import build
from daemon.cli.context import ExitCode
from daemon.cli.verbs.diff import pieces_of
from pipeline.diff import KINDS, CloneError, compare_commits
from pipeline.jobs.mirror import Mirror
from pipeline.lean.source.globs import path_filter
from tests.support.fillings import FILLINGS
from tests.support.reference import DOCS

APP = build(("diff",))
AUTHOR = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull} | {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@example.org"), ("DATE", "2026-01-01T00:00:00Z"))
}
BASE = """\
import Init
namespace Demo
variable (p q : Prop)

/-- Proved. -/
theorem done : 1 = 1 := rfl

theorem gap (h : p ∧ q) : q ∧ p := by
  constructor
  · sorry
  · exact h.1

def two : Nat := 2

theorem uses (hp : p) : p := hp
end Demo
"""


@dataclass
class Clone:
    root: Path

    def git(self, *arguments: str) -> str:
        result = subprocess.run(
            ["git", "-C", self.root, *arguments],
            capture_output=True,
            text=True,
            env=os.environ | AUTHOR,
            check=True,
        )
        return result.stdout.strip()

    def commit(self, files: dict[str, str | bytes | None]) -> None:
        for name, text in files.items():
            path = self.root / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")

    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(APP, ["diff", "-C", str(self.root), *arguments])

    def document(self, *arguments: str) -> dict[str, Any]:
        result = self.run(*arguments, "--json")
        assert result.exception is None or result.exit_code == ExitCode.DIFFERENCES, result.exception
        found = json.loads(result.stdout)
        assert isinstance(found, dict)
        return found

    def kinds(self, *arguments: str) -> list[tuple[str, str]]:
        return [(item["kind"], item["declaration"]) for item in self.document(*arguments)["findings"]]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A repository with one commit, which no test changes."""
    clone = Clone(tmp_path_factory.mktemp("original"))
    clone.git("init", "-q", "-b", "main", "--template=")
    clone.commit({"A.lean": BASE})
    return clone


@pytest.fixture
def clone(original: Clone, tmp_path: Path) -> Clone:
    return Clone(shutil.copytree(original.root, tmp_path / "clone"))


TEXT = r'"=\""'


def edited(old: str, new: str) -> dict[str, str | bytes | None]:
    assert old in BASE
    return {"A.lean": BASE.replace(old, new)}


CASES: dict[str, tuple[dict[str, str | bytes | None], list[tuple[str, str]]]] = {
    "comments and white space": (edited("/-- Proved. -/\n", "/-- It is sorry. -/\n\n\n"), []),
    "a new proof of the same statement": (edited(":= rfl", ":= by rfl"), []),
    "a proof is replaced by a sorry": (edited(":= rfl", ":= sorry"), [("opened", "Demo.done")]),
    "admit": (edited(":= rfl", ":= by admit"), [("opened", "Demo.done")]),
    "stop": (edited(":= rfl", ":= by\n  stop\n  rfl"), [("opened", "Demo.done")]),
    "a sorry is filled": (edited("· sorry", "· exact h.2"), [("filled", "Demo.gap")]),
    "a sorry is filled by another word for it": (
        edited("· sorry", "· exact sorryAx _"),
        [("unchecked", "Demo.gap")],
    ),
    "a sorry is filled by a search": (edited("· sorry", "· apply?"), [("unchecked", "Demo.gap")]),
    "a program called like a search": (edited("def two", "def exact? : Nat := 1\n\ndef two"), []),
    "a sorry is filled by look-alike letters": (
        edited("· sorry", "· exact sοrry"),
        [("hidden", "Demo.gap")],
    ),
    "a sorry is filled by compiled code": (
        edited("· sorry", "· native_decide"),
        [("unchecked", "Demo.gap")],
    ),
    "a sorry is filled and the statement weakened": (
        edited("(h : p ∧ q) : q ∧ p := by\n  constructor\n  · sorry\n  · exact h.1", "(h : p ∧ q) : True := trivial"),
        [("statement", "Demo.gap")],
    ),
    "a theorem becomes an axiom": (
        edited("theorem gap (h : p ∧ q) : q ∧ p := by\n  constructor\n  · sorry\n  · exact h.1",
               "axiom gap (h : p ∧ q) : q ∧ p"),
        [("axiom", "Demo.gap")],
    ),
    "a theorem becomes opaque": (
        edited("theorem gap (h : p ∧ q) : q ∧ p := by\n  constructor\n  · sorry\n  · exact h.1",
               "opaque gap (h : p ∧ q) : q ∧ p"),
        [("removed", "Demo.gap")],
    ),
    "a sorry goes with its theorem": (
        edited("theorem gap (h : p ∧ q) : q ∧ p := by\n  constructor\n  · sorry\n  · exact h.1\n", ""),
        [("removed", "Demo.gap")],
    ),
    "a theorem is put into a comment": (
        {"A.lean": BASE.replace("theorem gap", "/- theorem gap").replace("h.1\n", "h.1 -/\n")},
        [("removed", "Demo.gap")],
    ),
    "a statement is changed under its proof": (edited("1 = 1", "2 = 2"), [("statement", "Demo.done")]),
    "a hypothesis by a variable": (
        edited("theorem uses", "variable [Inhabited False]\ntheorem uses"),
        [("statement", "Demo.uses")],
    ),
    "a variable of another type": (
        edited("variable (p q : Prop)", "variable (p : Nat) (q : Prop)"),
        [("statement", "Demo.gap")],
    ),
    "a variable that no statement names": (
        edited("variable (p q : Prop)", "variable (p q : Prop)\nvariable (unused : Nat)"),
        [],
    ),
    "an axiom": (edited("def two", "axiom cheat : False\n\ndef two"), [("axiom", "Demo.cheat")]),
    "an axiom of a macro": (
        edited("def two", 'macro "cheat!" : command => `(axiom cheat : False)\n\ndef two'),
        [("hidden", "")],
    ),
    "a sorry of a macro": (
        edited("def two", 'macro "easy" : tactic => `(tactic| sorry)\n\ndef two'),
        [("hidden", "")],
    ),
    "a sorry of a notation": (edited("def two", 'notation "⋯" => sorry\n\ndef two'), [("hidden", "")]),
    "a sorry of a program": (
        edited("def two", 'elab "easy" : tactic => do use (← mkAppM ``sorryAx #[])\n\ndef two'),
        [("hidden", "")],
    ),
    "a sorry of a program by another word": (
        edited("def two", 'elab "easy" : tactic => do (← getMainGoal).admit; use (← mkSorry t true)\n\ndef two'),
        [("hidden", ""), ("hidden", "")],
    ),
    "a sorry of a definition that a tactic calls": (
        edited("def two", "def easy (g : MVarId) : MetaM Unit := do g.admit; admitGoal g\n\ndef two"),
        [("hidden", "Demo.easy"), ("hidden", "Demo.easy")],
    ),
    "an axiom of a program": (
        edited("def two", "#eval show CommandElabM Unit from do elabCommand (← `(axiom cheat : False))\n\ndef two"),
        [("hidden", "")],
    ),
    "a sorry between characters that stand behind numbers": (
        edited("def two", "def a := k 0'\"'\ntheorem new : False := sorry\ndef b := k 0'\"'\n\ndef two"),
        [("opened", "Demo.new")],
    ),
    "a sorry between characters on one line": (
        edited("def two", "theorem new : False := p 1'«' sorry 1'»'\n\ndef two"),
        [("opened", "Demo.new")],
    ),
    "a string behind a name with a number": (
        edited("def two", "def a := k0'\"'\ntheorem new : False := sorry\n\"\n\ndef two"),
        [],
    ),
    "a token in which a text seems to begin": (
        edited("def two", f"local notation {TEXT} => id\ntheorem ok := =\" h\naxiom cheat : False\n-- \"\n\ndef two"),
        [("axiom", "Demo.cheat"), ("unread", "")],
    ),
    "commands that only show": (edited("def two", "#print axioms done\n#check sorryAx\n\ndef two"), []),
    "a file that git has elsewhere": (
        {"B.lean": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"},
        [("unread", "")],
    ),
    "code that the kernel does not see": (
        edited("def two", "@[implemented_by fast]\ndef two"),
        [("unchecked", "Demo.two")],
    ),
    "an attribute given later": (
        edited("def two : Nat := 2\n", "def two : Nat := 2\nattribute [extern \"two\"] two\n"),
        [("unchecked", "")],
    ),
    "an option that hides a warning": (
        edited("theorem done", "set_option warn.sorry false in\ntheorem done"),
        [("option", "Demo.done")],
    ),
    "an option of the whole file": (
        edited("namespace Demo", "set_option debug.skipKernelTC true\nnamespace Demo"),
        [("unchecked", "")],
    ),
    "an option that a proof may set": (
        edited("theorem done", "set_option maxHeartbeats 400000 in\ntheorem done"),
        [],
    ),
    "a forbidden word in a comment and a string": (
        edited("def two : Nat := 2", '-- axiom\ndef s := "sorryAx, native_decide"\ndef two : Nat := 2'),
        [],
    ),
    "the rest of the file is cut off": (
        edited("def two", "#exit\ndef two"),
        [("hidden", ""), ("deleted", "Demo.uses")],
    ),
    "text that runs backwards": (edited("/-- Proved", "/-- \u202edevorP"), [("hidden", "")]),
    "a character of no width in a name": (edited("two", "tw\u200bo"), [("hidden", "")]),
    "lines above a sorry": (edited("namespace Demo", "-- a\n-- b\nnamespace Demo"), []),
    "a sorry of a renamed theorem": (edited("theorem gap", "theorem gap'"), [("moved", "Demo.gap'")]),
    "a sorry further down its proof": (
        edited("  constructor\n", "  constructor\n  rotate_left 2\n"),
        [("moved", "Demo.gap")],
    ),
    "a file is renamed": (
        {"A.lean": None, "B.lean": BASE},
        [("moved", "Demo.gap")],
    ),
    "a file is deleted": ({"A.lean": None}, [("removed", "Demo.gap"), ("deleted", "Demo.done")]),
    "bytes that are no text": ({"A.lean": BASE.encode() + b"-- \xff\n"}, [("unread", "")]),
    "a comment that does not end": ({"A.lean": BASE + "/- and\n"}, [("unread", "")]),
    "a file that is no Lean": ({"notes.txt": "sorry"}, []),
    "lake's own program": ({"lakefile.lean": "axiom x : False"}, [("build", "")]),
    "a lakefile that lets the kernel be skipped": (
        {"lakefile.toml": 'moreLeanArgs = ["-Ddebug.skipKernelTC=true", "-Dwarn.sorry=false"]\n'},
        [("build", ""), ("option", ""), ("unchecked", "")],
    ),
    "an answer that is asked for": (
        edited("def two", "theorem asked : answer(sorry) ↔ 1 = 1 := by sorry\n\ndef two"),
        [("answer", "Demo.asked"), ("opened", "Demo.asked")],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def pull_requests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """A repository with a branch for each case, made at once."""
    clone = Clone(tmp_path_factory.mktemp("cases"))
    clone.git("init", "-q", "--bare")
    stream = [_commit("main", {"A.lean": BASE})]
    for number, (files, _) in enumerate(CASES.values()):
        stream.append(_commit(f"case{number}", files, after="refs/heads/main"))
    for number, filling in enumerate(FILLINGS.values()):
        stream.append(_commit(f"before{number}", filling.before))
        stream.append(_commit(f"after{number}", filling.after, after=f"refs/heads/before{number}"))
    subprocess.run(
        ["git", "-C", clone.root, "fast-import", "--quiet"],
        input="".join(stream).encode("utf-8", "surrogateescape"),
        check=True,
    )
    with Mirror(clone.root) as mirror:
        yield mirror


def _commit(branch: str, files: Mapping[str, str | bytes | None], *, after: str = "") -> str:
    """Return a commit as git's fast-import reads it."""
    lines = [f"commit refs/heads/{branch}\ncommitter A <a@example.org> 0 +0000\ndata 1\nx\n"]
    lines += [f"from {after}\n"] if after else []
    for name, content in files.items():
        if content is None:
            lines.append(f"D {name}\n")
            continue
        data = content if isinstance(content, bytes) else content.encode()
        lines.append(f"M 100644 inline {name}\ndata {len(data)}\n{data.decode('utf-8', 'surrogateescape')}\n")
    return "".join(lines)


@pytest.mark.parametrize("case", CASES)
def test_what_a_pull_request_does_is_found_and_nothing_else(pull_requests: Mirror, case: str) -> None:
    branch, (_, expected) = f"case{list(CASES).index(case)}", CASES[case]
    result = compare_commits(pull_requests, "main", branch, meant=path_filter((), ()))
    assert sorted((item.kind, item.declaration) for item in result.findings) == sorted(expected)


@pytest.mark.parametrize("case", FILLINGS)
def test_a_sorry_is_filled_where_all_that_its_statement_depends_on_is_the_same(
    pull_requests: Mirror, case: str
) -> None:
    number, filling = list(FILLINGS).index(case), FILLINGS[case]
    result = compare_commits(pull_requests, f"before{number}", f"after{number}", meant=path_filter((), ()))
    assert {item.kind for item in result.findings} == filling.kinds, result.findings


def test_each_sorry_that_is_filled_counts(clone: Clone) -> None:
    clone.commit({"B.lean": FILLINGS["two sorries of one proof"].before["A.lean"]})
    clone.commit({"B.lean": FILLINGS["two sorries of one proof"].after["A.lean"]})
    assert clone.document("HEAD~1")["counts"] == {"filled": 2}


def test_what_fails_is_chosen_and_each_finding_has_its_place(clone: Clone) -> None:
    clone.commit(edited(":= rfl", ":= sorry"))
    head = clone.head()
    assert clone.run("HEAD~1").exit_code == 0
    assert clone.run("HEAD~1", "--fail-on", "axiom,statement").exit_code == 0
    for policy in ("opened", "axiom,opened", "any"):
        result = clone.run("HEAD~1", "--fail-on", policy)
        assert result.exit_code == ExitCode.DIFFERENCES
    first, last = result.stdout.splitlines()
    assert first == "A.lean:6:24: opened: sorry in Demo.done"
    assert (
        last
        == f"1 opened in 1 changed Lean file, from {clone.git('rev-parse', 'HEAD~1')[:12]} to {head[:12]}"
    )
    document = clone.document("HEAD~1", "--fail-on", "any")
    assert (document["head"], document["counts"], document["failed_on"]) == (head, {"opened": 1}, ["opened"])
    result = clone.run("HEAD~1", "--fail-on", "sorry")
    assert result.exit_code == ExitCode.USAGE
    assert "opened, answer, moved" in " ".join(result.output.split())


def test_progress_fails_no_check(clone: Clone) -> None:
    clone.commit(edited("· sorry", "· exact h.2"))
    assert clone.run("HEAD~1", "--fail-on", "any").exit_code == 0
    assert clone.run("HEAD~1", "--fail-on", "filled").exit_code == ExitCode.DIFFERENCES


def test_a_statement_is_shown_as_it_was_and_as_it_is(clone: Clone) -> None:
    clone.commit(edited("1 = 1", "2 = 2"))
    assert "    - : 1 = 1\n    + : 2 = 2\n" in clone.run("HEAD~1").stdout


def test_of_a_long_statement_the_changes_are_marked_and_the_middle_is_left_out() -> None:
    before = f"{'(a b : Nat) ' * 20}: ∃ E, E ∈ EinIoo a b ∧ {'foo bar ' * 40}1 = 2 {'∧ True ' * 20}"
    old, new = pieces_of(before, before.replace("∃ E, E ∈ EinIoo", "∃ E ∈ Ioo").replace("1 = 2", "3 = 2"))
    assert [text for text, changed in old if changed] == [", E", "EinIoo", "1"]
    assert [text for text, changed in new if changed] == ["Ioo", "3"]
    for pieces in (old, new):
        whole = "".join(text for text, _ in pieces)
        assert len(whole) < 340
        assert whole.startswith(" … ")
        assert whole.rstrip().endswith("…")
        assert whole.count(" … ") >= 2
        assert set(whole.split()) <= {*before.split(), "…", "Ioo", "3"}, "no word is broken"


def test_what_the_base_did_meanwhile_is_not_the_pull_request_s(clone: Clone) -> None:
    clone.git("checkout", "-q", "-b", "pull")
    clone.commit({"B.lean": "theorem b : 1 = 1 := sorry\n"})
    clone.git("checkout", "-q", "main")
    clone.commit({"C.lean": "theorem c : 1 = 1 := sorry\n"})
    assert clone.kinds("main", "pull") == [("opened", "b")]
    assert clone.kinds("pull", "main") == [("opened", "c")]


def test_what_is_staged_is_compared_before_it_is_committed(clone: Clone) -> None:
    (clone.root / "A.lean").write_text(BASE.replace(":= rfl", ":= sorry"))
    assert clone.kinds("--staged") == []
    clone.git("add", "A.lean")
    assert clone.kinds("--staged") == [("opened", "Demo.done")]
    (clone.root / "A.lean").write_text(BASE)
    assert clone.kinds("--staged") == [("opened", "Demo.done")]


def test_the_first_commit_of_a_repository_is_compared_with_nothing(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.git("init", "-q")
    (tmp_path / "A.lean").write_text("theorem a : 1 = 1 := sorry\n")
    clone.git("add", "A.lean")
    assert clone.kinds("--staged") == [("opened", "a")]


def test_files_are_chosen_by_patterns(clone: Clone) -> None:
    clone.commit({"B/T.lean": "axiom b : False\n", "C.lean": "axiom c : False\n"})
    assert clone.kinds("HEAD~1", "--exclude", "B/**") == [("axiom", "c")]
    assert clone.kinds("HEAD~1", "--include", "B/*.lean") == [("axiom", "b")]


def test_a_shallow_clone_says_how_to_get_the_history(clone: Clone, tmp_path: Path) -> None:
    start = clone.head()
    clone.commit(edited("1 = 1", "2 = 2"))
    clone.git("branch", "old", start)
    clone.git("config", "uploadpack.allowAnySHA1InWant", "true")
    shallow = Clone(tmp_path / "shallow")
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{clone.root}", shallow.root], check=True)
    lacking = shallow.run("origin/old").exception
    assert isinstance(lacking, CloneError)
    assert "origin/old is no commit here; fetch it" in str(lacking)
    clone.git("checkout", "-q", "old")
    clone.commit({"B.lean": ""})
    shallow.git("fetch", "-q", "--depth=1", "origin", "old:old")
    apart = shallow.run("old").exception
    assert isinstance(apart, CloneError)
    assert "fetch-depth: 0" in str(apart)


@pytest.mark.parametrize(
    ("arguments", "said"), [((), "name the branch"), (("--staged", "main", "x"), "no HEAD")]
)
def test_a_wrong_command_line_is_refused(clone: Clone, arguments: tuple[str, ...], said: str) -> None:
    result = clone.run(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert said in " ".join(result.output.split())


def test_a_folder_that_is_no_clone_is_named(tmp_path: Path) -> None:
    error = Clone(tmp_path).run("main").exception
    assert isinstance(error, CloneError)
    assert str(tmp_path) in str(error)
    assert "not a git repository" in str(error)


HOSTILE = "::error file=A.lean::x\n##[error]y\u202e`|<b>.lean"


@pytest.fixture(scope="module")
def hostile(original: Clone, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A pull request whose names are commands to a runner, and whose files are none that are read."""
    clone = Clone(shutil.copytree(original.root, tmp_path_factory.mktemp("hostile") / "clone"))
    (clone.root / "L.lean").symlink_to("/etc/passwd")
    (clone.root / "Folder").symlink_to("/")
    (clone.root / "README.md").symlink_to("A.lean")
    (clone.root / os.fsdecode(b"\xff.lean")).write_text("axiom x : False\n")
    clone.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},Sub")
    clone.git("config", "core.protectNTFS", "false")
    clone.git("config", "core.compression", "0")
    (clone.root / "Big.lean").write_bytes(b"-" * (16 * 2**20 + 1))
    (clone.root / HOSTILE).write_text("theorem «::error::\u202eq[a](b)» : answer(1) = 1 := sorry\n")
    clone.git("add", "-A", ":!Sub")
    clone.git("commit", "-q", "-m", "x")
    return clone


def test_what_is_not_read_is_said_and_no_name_is_a_command_to_a_runner(hostile: Clone) -> None:
    result = hostile.run("HEAD~1", "--fail-on", "unread")
    assert result.exit_code == ExitCode.DIFFERENCES
    lines = result.stdout.splitlines()
    assert not any(line.lstrip().startswith("::") or "##[" in line or "\u202e" in line for line in lines)
    findings = hostile.document("HEAD~1")["findings"]
    assert [item["kind"] for item in findings if item["path"] == HOSTILE] == ["hidden", "opened"]
    found = {item["path"]: (item["kind"], item["message"]) for item in findings}
    assert found["L.lean"] == ("unread", "a symbolic link, which is not followed")
    assert found["Folder"] == ("unread", "a symbolic link, which is not followed")
    assert found["Sub"] == ("unread", "a submodule, which is not followed")
    assert found["Big.lean"] == ("unread", "16777217 bytes, more than 16777216; not scanned")
    assert found["\\xff.lean"] == ("unread", "the file's name is not valid UTF-8; not scanned")
    assert "README.md" not in found


def test_more_variables_than_are_compared_are_said_to_be_unread(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone.commit(edited("theorem uses", "variable (r : Prop)\nvariable (s : Prop)\ntheorem uses"))
    monkeypatch.setattr("pipeline.meaning.MOST_IN_FORCE", 3)
    (result,) = clone.document("HEAD~1")["findings"]
    assert (result["kind"], result["line"]) == ("unread", 17)


def test_thousands_of_open_sections_with_variables_are_compared_in_full(clone: Clone) -> None:
    sections = "".join(f"section\nvariable (p{number} : Prop)\n" for number in range(1500))
    theorems = "".join(f"theorem t{number} (h : p{number}) : p{number} := h\n" for number in range(1500))
    clone.commit({"B.lean": sections + theorems})
    clone.commit({"B.lean": f"{sections}variable (p7 : Nat)\n{theorems}"})
    assert clone.kinds("HEAD~1") == [("statement", "t7")]


def test_the_page_has_every_kind_with_its_meaning() -> None:
    page = (DOCS / "pull-requests.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `([\w ]+)` \| (.+) \|$", page, re.MULTILINE)) == dict(KINDS)


def runner_commands(output: str) -> list[tuple[str, dict[str, str], str]]:
    """Read a runner's commands as GitHub's runner does: level, properties, message."""
    result = []
    for line in output.splitlines():
        if command := re.match(r"::(error|warning|notice) (.*?)::(.*)", line.lstrip()):
            level, named, message = command.groups()
            properties = dict(pair.split("=", 1) for pair in named.split(","))
            result.append(
                (level, {name: decoded(value) for name, value in properties.items()}, decoded(message))
            )
        else:
            assert "##[" not in line
    return result


def decoded(text: str) -> str:
    for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, character)
    return text


def test_github_gets_annotations_with_what_fails_first(clone: Clone) -> None:
    clone.commit(edited(":= rfl", ":= sorry") | {"B.lean": "axiom b : False\n"})
    clone.commit(
        {
            "A.lean": BASE.replace("1 = 1 := rfl", "2 = 2 := sorry").replace("· sorry", "· exact h.2"),
            "B.lean": "axiom b : False\n",
        }
    )
    result = clone.run("HEAD~2", "--format", "github", "--fail-on", "axiom")
    found = runner_commands(result.stdout)
    assert [level for level, _, _ in found] == ["error", "warning", "warning", "notice"]
    assert found[0] == (
        "error",
        {"title": "everlean: axiom", "file": "B.lean", "line": "1", "col": "1"},
        "the axiom b",
    )
    (statement,) = [message for _, about, message in found if about["title"] == "everlean: statement"]
    assert statement == "the statement of Demo.done changed\n- : 1 = 1\n+ : 2 = 2"


def test_no_format_lets_a_name_be_more_than_text(hostile: Clone) -> None:
    result = runner_commands(hostile.run("HEAD~1", "--format", "github").stdout)
    assert {level for level, _, _ in result} == {"warning"}
    assert all(about.keys() <= {"title", "file", "line", "col"} for _, about, _ in result)
    text = hostile.run("HEAD~1", "--format", "markdown").stdout
    # The name has a backtick, so that its code has two around it; no HTML and no table is outside of code.
    outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
    assert "<b>" in text
    assert not set("<|`") & set(outside)
    assert "\u202e" not in text
    log = json.loads(hostile.run("HEAD~1", "--format", "sarif").stdout)
    uris = {
        item["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for item in log["runs"][0]["results"]
    }
    assert not any("](" in item["message"]["text"] for item in log["runs"][0]["results"])
    assert "%3A%3Aerror%20file%3DA.lean%3A%3Ax%0A%23%23%5Berror%5Dy%E2%80%AE%60%7C%3Cb%3E.lean" in uris


@pytest.mark.parametrize("form", ["json", "sarif", "github"])
def test_what_a_program_reads_is_the_same_at_a_terminal(
    hostile: Clone, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    plain = hostile.run("HEAD~1", "--format", form).stdout
    assert max(map(len, plain.splitlines())) > 40
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    assert hostile.run("HEAD~1", "--format", form).stdout == plain


def test_sarif_has_what_a_forge_asks_for(clone: Clone, tmp_path: Path) -> None:
    clone.commit({"A.lean": BASE.replace(":= rfl", ":= sorry"), "B.lean": "axiom b : False\n"})
    clone.commit({"A.lean": None, "B.lean": "\n\naxiom b : False\n"})
    file = tmp_path / "found.sarif"
    result = clone.run("HEAD~2", "--fail-on", "axiom", "--write", f"sarif={file}")
    assert result.exit_code == ExitCode.DIFFERENCES
    log = json.loads(file.read_text())
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert (log["version"], rules) == ("2.1.0", list(KINDS))
    axiom, removed = (item for item in run["results"] if item["ruleId"] != "deleted")
    assert (axiom["level"], removed["level"]) == ("error", "warning")
    assert all(rules[item["ruleIndex"]] == item["ruleId"] for item in run["results"])
    place = axiom["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == (
        "B.lean",
        {"startLine": 3, "startColumn": 1},
    )
    assert "region" not in removed["locations"][0]["physicalLocation"], "the later version has no such place"
    (earlier, *_) = json.loads(clone.run("HEAD~2", "HEAD~1", "--format", "sarif").stdout)["runs"][0][
        "results"
    ][::-1]
    assert earlier["partialFingerprints"] == axiom["partialFingerprints"], "a line higher it is the same"


def test_a_summary_fits_into_a_comment(clone: Clone) -> None:
    clone.commit({"B.lean": "".join(f"axiom {'b' * 90}{number} : False\n" for number in range(1000))})
    text = clone.run("HEAD~1", "--format", "markdown").stdout
    assert text.startswith("**everlean**: 1,000 axiom in 1 changed Lean file")
    assert len(text) < 65_536
    shown = text.count("- **axiom**")
    assert f"and {1000 - shown:,} more" in text


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--format", "xml", "none of text"),
        ("--write", "markdown", "names no file"),
        ("--write", "text=a", "none of"),
    ],
)
def test_a_format_that_there_is_not_is_refused(clone: Clone, option: str, value: str, said: str) -> None:
    result = clone.run("HEAD", option, value)
    assert result.exit_code == ExitCode.USAGE
    assert said in " ".join(result.output.split())


# ---- where it runs by itself

ROOT = DOCS.parent
INSTALLED = Path(sys.executable).parent


def loaded(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_action_s_own_script_checks_a_pull_request(clone: Clone, tmp_path: Path) -> None:
    base = clone.head()
    clone.commit({"B.lean": "axiom b : False\n"})
    head = clone.head()
    action = loaded("action.yml")
    _, install, check = action["runs"]["steps"]
    (lock,) = re.findall(r"\$GITHUB_ACTION_PATH/([\w/.]+)", install["run"])
    assert (ROOT / lock).is_file()
    named = {
        name: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value) for name, value in check["env"].items()
    }
    assert {match[1] for match in named.values() if match} == set(action["inputs"])
    assert "${{" not in install["run"] + check["run"], "an input in the text of a script could be code"
    (tmp_path / "everlean").symlink_to(INSTALLED.parent)
    options = {
        "BASE": base,
        "HEAD": head,
        "FAIL_ON": action["inputs"]["fail-on"]["default"],
        "SARIF": str(tmp_path / "s"),
    }
    result = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", check["run"]],
        capture_output=True, text=True, cwd=tmp_path, check=False,
        env=os.environ | options | {"FOLDER": str(clone.root), "RUNNER_TEMP": str(tmp_path),
                                  "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")},
    )  # fmt: skip
    assert result.returncode == ExitCode.DIFFERENCES, result.stderr
    assert result.stdout.startswith("::error title=everlean%3A axiom,file=B.lean,line=1,col=1::the axiom b\n")
    assert "- **axiom** `B.lean:1:0`: `the axiom b`" in (tmp_path / "summary").read_text()
    assert json.loads((tmp_path / "s").read_text())["version"] == "2.1.0"


def test_the_template_for_gitlab_checks_a_merge_request(clone: Clone, tmp_path: Path) -> None:
    base = clone.head()
    clone.commit({"B.lean": "axiom b : False\n"})
    head = clone.head()
    job = loaded("release/gitlab.yml")["everlean"]
    given = job["variables"] | {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "CI_COMMIT_SHA": head}
    (script,) = job["script"]
    result = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, cwd=clone.root, check=False,
        env=os.environ | given | {"PATH": f"{INSTALLED}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert result.returncode == ExitCode.DIFFERENCES, result.stderr
    assert all((clone.root / name).is_file() for name in job["artifacts"]["paths"])


def test_the_hook_stops_a_commit_with_an_axiom(clone: Clone) -> None:
    (hook,) = loaded(".pre-commit-hooks.yaml")
    script = clone.root / ".git" / "hooks" / "pre-commit"
    script.parent.mkdir()
    command = shlex.join([*hook["entry"].split(), *hook["args"]])
    script.write_text(f"#!/bin/sh\nPATH={shlex.quote(str(INSTALLED))}:$PATH exec {command}\n")
    script.chmod(0o755)
    (clone.root / "A.lean").write_text(BASE + "axiom cheat : False\n")
    # `commit -a` stages in an index of its own, which git names to the hook.
    with pytest.raises(subprocess.CalledProcessError) as stopped:
        clone.git("commit", "-q", "-a", "-m", "x")
    assert "axiom: the axiom cheat" in stopped.value.stdout + stopped.value.stderr
    assert clone.git("rev-list", "--count", "HEAD") == "1"
    (clone.root / "A.lean").write_text(BASE.replace("· sorry", "· exact h.2"))
    clone.git("commit", "-q", "-a", "-m", "x")
    assert clone.git("rev-list", "--count", "HEAD") == "2"


PAGE = (DOCS / "pull-requests.md").read_text(encoding="utf-8")


def test_the_page_s_commands_run(clone: Clone) -> None:
    clone.git("update-ref", "refs/remotes/origin/main", "HEAD")
    clone.commit({"B.lean": "axiom b : False\n"})
    blocks = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    commands = [
        line.split() for block in blocks for line in block.splitlines() if line.startswith("everlean ")
    ]
    assert len(commands) >= 4
    for command in commands:
        words = [str(clone.root / "x.sarif") if word == "FILE" else word for word in command[2:]]
        words = [word.replace("=", f"={clone.root}/") if "=" in word else word for word in words]
        result = clone.run(*words)
        assert result.exit_code == (ExitCode.DIFFERENCES if "--fail-on" in words else ExitCode.OK), (
            result.output
        )


def test_the_page_s_workflows_give_what_the_action_and_the_hook_take() -> None:
    workflow, gitlab, hooks = (
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    )
    checkout, check = workflow["jobs"]["sorries"]["steps"][:2]
    assert checkout["with"] == {"fetch-depth": 0}
    assert check["with"].keys() <= loaded("action.yml")["inputs"].keys()
    policies = [check["with"]["fail-on"], hooks["repos"][0]["hooks"][0]["args"][1]]
    assert all(set(policy.split(",")) <= {*KINDS, "any"} for policy in policies)
    assert hooks["repos"][0]["hooks"][0]["id"] == loaded(".pre-commit-hooks.yaml")[0]["id"]
    assert (ROOT / gitlab["include"][0]["file"].lstrip("/")).is_file()

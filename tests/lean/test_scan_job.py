"""What the scan job says of the commits of a repository, line by line; it runs in this process."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.protocol import Reporter, reported
from pipeline.jobs.specs import ScanKnown, ScanSpec
from pipeline.scan import scan_commit
from store.domain.identity import event_id
from store.domain.records import ScannedFile
from store.events.base import EventBody
from store.events.registry import EVENT_TYPES
from tests.support.daemon.remote import Remote
from tests.support.fillings import FILLINGS
from tests.support.specs import job_spec

KEY = "local/tests/repo"
PROVED = "theorem a : True := by\n  trivial\n"
OPEN = "theorem a : True := by\n  sorry\n"


class Upstream(Remote):
    """A repository whose own folder the job reads as the mirror."""

    def change(self, files: Mapping[str, str | bytes | None]) -> str:
        """Write these files (None removes one) and commit; return the sha."""
        for name, content in files.items():
            path = self.path / name
            if content is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        return self.commit_all()

    def commit_all(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "more")
        return self.git("rev-parse", "HEAD")


@dataclass
class Outcome:
    """What one run of the job printed."""

    status: int
    lines: list[dict[str, Any]]
    staged: dict[str, bytes]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for line in self.lines if line["line"] == "events" for event in line["events"]]

    @property
    def bodies(self) -> list[EventBody]:
        return [EVENT_TYPES[event["type"]].model_validate(event["data"]) for event in self.events]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.events if event["type"] == kind]

    @property
    def summary(self) -> dict[str, Any]:
        assert self.lines[-1]["line"] == "result", self.lines[-1]
        summary: dict[str, Any] = self.lines[-1]["summary"]
        return summary

    def scan(self, path: str) -> ScannedFile:
        (data,) = (item for item in self.of("file_scanned") if item["path"] == path)
        return ScannedFile.from_json(json.loads(self.staged[data["scan"]["sha256"]]))


@dataclass
class Scans:
    """Runs the job commit by commit, and keeps the sorries, the projects and the challenges as the database would."""

    upstream: Upstream
    folder: Path
    include: list[str] = field(default_factory=lambda: ["**/*.lean"])
    exclude: list[str] = field(default_factory=list)
    living: dict[str, dict[str, Any]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    projects: list[dict[str, str]] = field(default_factory=list)
    challenges: list[str] = field(default_factory=list)
    base: str | None = None
    runs: int = 0

    def run(self, commit: str, **changed: Any) -> Outcome:
        """One attempt; changes nothing here."""
        self.runs += 1
        root = self.folder / str(self.runs)
        root.mkdir(parents=True)
        parameters = {
            "mirror": str(self.upstream.path / ".git"),
            "repository": KEY,
            "branch": "main",
            "sha": commit,
            "base": self.base,
            "include": self.include,
            "exclude": self.exclude,
            "known": {
                "sorries": [{"sorry": key, "place": place} for key, place in self.living.items()],
                "closed": sorted(self.closed),
                "projects": self.projects,
                "challenges": self.challenges,
                **{name: changed.pop(name) for name in ScanKnown.model_fields if name in changed},
                **changed.pop("known", {}),
            },
            **changed,
        }
        spec = job_spec(ScanSpec, "scan", parameters, root, attempt=self.runs)
        said = io.StringIO()
        reporter = Reporter(spec, said)
        status = reported(reporter, lambda: scan_commit(spec, reporter))
        lines = [json.loads(line) for line in said.getvalue().splitlines()]
        staged = {file.name: file.read_bytes() for file in (root / "staging").glob("*")}
        return Outcome(status, lines, staged)

    def step(self, files: Mapping[str, str | bytes | None], **changed: Any) -> Outcome:
        """Commit, scan, and take the events in."""
        return self.take(self.upstream.change(files), **changed)

    def take(self, sha: str, **changed: Any) -> Outcome:
        outcome = self.run(sha, **changed)
        assert outcome.status == 0, outcome.lines
        for event in outcome.events:
            data = event["data"]
            if event["type"] in ("sorry_opened", "sorry_moved", "sorry_changed"):
                self.living[data["sorry"]] = data["place"]
                self.closed.discard(data["sorry"])
            elif event["type"] in ("sorry_filled", "sorry_removed"):
                del self.living[data["sorry"]]
                self.closed.add(data["sorry"])
            elif event["type"] == "commit_scanned":
                self.projects, self.challenges = data["projects"], data["challenges"]
        self.base = sha
        return outcome


@pytest.fixture
def scans(tmp_path: Path) -> Scans:
    return Scans(Upstream(tmp_path / "tree"), tmp_path / "jobs")


def test_a_first_scan_reads_every_lean_file_of_the_commit(scans: Scans) -> None:
    outcome = scans.step({"A.lean": OPEN, "B/C.lean": "import A\n" + PROVED, "README.md": "sorry"})
    assert outcome.types == [
        "file_scanned",
        "file_scanned",
        "sorry_opened",
        "theorems_followed",
        "commit_scanned",
    ]
    assert outcome.scan("B/C.lean").imports == ("A",)
    (opened,) = outcome.of("sorry_opened")
    assert (opened["place"]["path"], opened["place"]["line"], opened["reopened"]) == ("A.lean", 2, False)
    assert opened["place"]["blob"] == scans.upstream.git("rev-parse", "HEAD:A.lean")
    (commit,) = outcome.of("commit_scanned")
    assert (commit["base"], commit["files_scanned"], commit["files_removed"], commit["files_failed"]) == (
        None,
        2,
        0,
        0,
    )
    assert outcome.summary["sorries"] == 1


def test_what_is_left_for_people_is_known_by_its_text_comments_too(scans: Scans) -> None:
    outcome = scans.step({"Book.lean": f"/-! # Exercises -/\n-- EXERCISE 1\n{OPEN}", "Plain.lean": OPEN})
    words = {item["path"]: item["exercise_words"] for item in outcome.of("file_scanned")}
    assert words == {"Book.lean": 2, "Plain.lean": 0}


def test_events_are_one_valid_batch_with_ids_of_their_natural_keys(scans: Scans) -> None:
    outcome = scans.step({"A.lean": OPEN})
    assert sum(line["line"] == "events" for line in outcome.lines) == 1
    assert [body.type for body in outcome.bodies] == outcome.types
    sha = scans.base or ""
    (opened,) = outcome.of("sorry_opened")
    assert [event["event_id"] for event in outcome.events] == [
        event_id("file_scanned", KEY, "main", sha, "A.lean"),
        event_id("sorry_opened", KEY, "main", sha, opened["sorry"]),
        event_id("theorems_followed", KEY, "main", sha),
        event_id("commit_scanned", KEY, "main", sha),
    ]
    assert {event["stream"] for event in outcome.events} == {f"repository:{KEY}"}


def test_payloads_are_staged_under_their_hashes(scans: Scans) -> None:
    outcome = scans.step({"A.lean": OPEN, "B.lean": PROVED})
    cited = [item["scan"] for item in outcome.of("file_scanned")]
    cited += [item["steps"] for item in outcome.of("theorems_followed")]
    assert {item["sha256"] for item in cited} == set(outcome.staged)
    for digest, payload in outcome.staged.items():
        assert hashlib.sha256(payload).hexdigest() == digest
    sizes = {item["sha256"]: item["size_bytes"] for item in cited}
    assert sizes == {digest: len(payload) for digest, payload in outcome.staged.items()}


@pytest.mark.parametrize(
    ("text", "challenges"),
    [
        (
            '{"challenge_module": "Demo.Challenge", "solution_module": "S", "theorem_names": ["t"]}',
            ["Demo.Challenge"],
        ),
        ('{"challenge_module": "../../etc/passwd"}', []),
        ('{"challenge_module": ["A"]}', []),
        ("[" * 100_000, []),
        ("{", []),
    ],
)
def test_the_commit_says_which_module_its_comparator_json_calls_the_challenge(
    scans: Scans, text: str, challenges: list[str]
) -> None:
    outcome = scans.step({"A.lean": OPEN, "comparator.json": text})
    assert outcome.of("commit_scanned")[0]["challenges"] == challenges
    assert outcome.summary["sorries"] == 1, "it is shown all the same"


def test_the_comparator_json_of_each_folder_is_read_once_and_remembered(scans: Scans) -> None:
    def named(changes: dict[str, str | None]) -> list[str]:
        (closed,) = scans.step(changes).of("commit_scanned")
        return list(closed["challenges"])

    assert named({"A.lean": OPEN, "one/comparator.json": '{"challenge_module": "One.Challenge"}'}) == [
        "One.Challenge"
    ]
    assert named({"A.lean": PROVED}) == ["One.Challenge"], "nothing said otherwise"
    assert named({"two/b/comparator.json": '{"challenge_module": "Two"}'}) == ["One.Challenge", "Two"]
    assert named({"one/comparator.json": "{}"}) == ["Two"]
    assert named({"two/b/comparator.json": None}) == []
    assert named({"my-comparator.json": '{"challenge_module": "Three"}'}) == []
    # As lean-eval generates its workspaces.
    asked = '{"challenge_module": "Challenge", "solution_module": "Solution", "theorem_names": ["t"]}'
    assert named({"generated/t/config.json": asked}) == ["Challenge"]
    assert named({"web/config.json": '{"challenge_module": "Other"}'}) == ["Challenge"], "another program's"


@pytest.mark.parametrize(
    ("attributes", "marked"),
    [
        ("@[exercise] ", True),
        ("@[simp, Book.Exercise 3]\n", True),
        ('/-- @[simp] -/ @[local simp] @[challenge "no. 1"] private ', True),
        ("@[simp] ", False),
        ("@[exercises, my_exercise, exercise.ext, exercise'] ", False),
        ("/- @[exercise] -/ ", False),
        ('@[simp "exercise, exercise"] ', False),
    ],
)
def test_the_file_says_which_unproved_declarations_an_attribute_marks(
    scans: Scans, attributes: str, marked: bool
) -> None:
    text = f"{attributes}theorem a : True := sorry\n@[exercise] theorem b : True := trivial\n"
    outcome = scans.step({"A.lean": text})
    assert outcome.of("file_scanned")[0]["marked"] == (["a"] if marked else [])
    assert outcome.summary["sorries"] == 1, "it is shown all the same"


def test_a_later_scan_reads_only_what_changed(scans: Scans) -> None:
    scans.step({"A.lean": OPEN, "B.lean": PROVED})
    outcome = scans.step({"C.lean": PROVED})
    assert [item["path"] for item in outcome.of("file_scanned")] == ["C.lean"]
    assert outcome.types == ["file_scanned", "theorems_followed", "commit_scanned"]


def test_a_life_from_commit_to_commit(scans: Scans) -> None:
    (opened,) = scans.step({"A.lean": OPEN, "B.lean": PROVED}).of("sorry_opened")
    (moved,) = scans.step({"A.lean": "\n" + OPEN}).of("sorry_moved")
    (filed,) = scans.step({"A.lean": None, "D/A.lean": "\n" + OPEN}).of("sorry_moved")
    (changed,) = scans.step({"D/A.lean": OPEN.replace("True", "1 = 1")}).of("sorry_changed")
    (filled,) = scans.step({"D/A.lean": PROVED.replace("True", "1 = 1")}).of("sorry_filled")
    (again,) = scans.step({"D/A.lean": OPEN}).of("sorry_opened")
    (removed,) = scans.step({"D/A.lean": None}).of("sorry_removed")
    steps = (opened, moved, filed, changed, filled, again, removed)
    assert {item["sorry"] for item in steps} == {opened["sorry"]}
    assert (moved["what"], filed["what"], filled["by"], again["reopened"]) == (
        ["line"],
        ["file"],
        "people",
        True,
    )


def test_a_macro_of_an_unchanged_file_and_another_s_sorry_do_not_fill(scans: Scans) -> None:
    scans.step(
        {
            "Easy.lean": 'macro "easy" : tactic => `(tactic| sorry)\n',
            "Gap.lean": "theorem gap : 1 = 2 := sorry\n",
            "A.lean": "import Easy\nimport Gap\ntheorem a : 1 = 2 := by\n  sorry\ntheorem b : 1 = 2 := by\n  sorry\n",
        }
    )
    outcome = scans.step(
        {
            "A.lean": "import Easy\nimport Gap\ntheorem a : 1 = 2 := by\n  easy\ntheorem b : 1 = 2 := by\n  exact gap\n"
        }
    )
    (gone,) = outcome.of("sorry_removed")
    assert (gone["how"], "easy" in gone["detail"]) == ("hidden", True)
    (filled,) = outcome.of("sorry_filled")
    assert filled["rests_on"] == ["gap"]


def test_a_moved_file_is_one_gone_and_one_read(scans: Scans) -> None:
    scans.step({"A.lean": OPEN})
    outcome = scans.step({"A.lean": None, "B.lean": OPEN})
    assert outcome.types == [
        "file_scanned",
        "file_removed",
        "sorry_moved",
        "theorems_followed",
        "commit_scanned",
    ]
    assert outcome.of("file_removed")[0]["path"] == "A.lean"


def test_a_proof_of_ours_is_recognised_in_the_source(scans: Scans) -> None:
    first = scans.step({"A.lean": OPEN, "B.lean": PROVED})
    (sorry,) = scans.living
    proof = {
        "proof": "f" * 16,
        "sorry": sorry,
        "declaration_text_hash": first.scan("B.lean").declarations[0].text_hash,
    }
    (filled,) = scans.step({"A.lean": "-- thanks\n" + PROVED}, proofs=[proof]).of("sorry_filled")
    assert (filled["by"], filled["proof"]) == ("us", "f" * 16)


def test_paths_are_taken_or_left_as_the_patterns_say(scans: Scans) -> None:
    scans.include, scans.exclude = ["Lib/**/*.lean", "*.lean"], ["Lib/Old/**"]
    names = ["A.lean", "Lib/B.lean", "Lib/C/D.lean", "Lib/Old/E.lean", "Test/F.lean"]
    outcome = scans.step(dict.fromkeys(names, OPEN))
    assert [item["path"] for item in outcome.of("file_scanned")] == ["A.lean", "Lib/B.lean", "Lib/C/D.lean"]


def test_a_newly_excluded_file_leaves_with_its_sorries(scans: Scans) -> None:
    scans.step({"A.lean": OPEN, "Old/B.lean": "theorem b : True := sorry\n"})
    scans.exclude = ["Old/**"]
    outcome = scans.step({"A.lean": OPEN + "\n"})
    assert [item["path"] for item in outcome.of("file_removed")] == ["Old/B.lean"]
    assert outcome.types.count("sorry_removed") == 1


def test_links_and_submodules_are_not_followed(scans: Scans) -> None:
    tree = scans.upstream.path
    first = scans.step({"A.lean": OPEN, "B.lean": PROVED})
    assert len(first.of("file_scanned")) == 2
    (tree / "B.lean").unlink()
    (tree / "B.lean").symlink_to("/etc/passwd")
    scans.upstream.git("update-index", "--add", "--cacheinfo", f"160000,{scans.base},Sub.lean")
    sha = scans.upstream.commit_all()
    outcome = scans.take(sha)
    assert outcome.of("file_scanned") == []
    assert [item["path"] for item in outcome.of("file_removed")] == ["B.lean"]
    scans.base = None
    assert [item["path"] for item in scans.run(sha).of("file_scanned")] == ["A.lean"]


def test_file_names_of_any_kind_are_read(scans: Scans) -> None:
    names = [
        "a b.lean",
        'q"uote.lean',
        "new\nline.lean",
        "tab\t.lean",
        "π/«x».lean",
        "-dash.lean",
        ":colon.lean",
    ]
    outcome = scans.step(dict.fromkeys(names, OPEN))
    assert sorted(item["path"] for item in outcome.of("file_scanned")) == sorted(names)
    assert len(scans.living) == len(names)
    again = scans.step({names[2]: PROVED, names[4]: None})
    assert sorted(again.types) == [
        "commit_scanned",
        "file_removed",
        "file_scanned",
        "sorry_filled",
        "sorry_removed",
        "theorems_followed",
    ]


def test_a_file_name_that_is_no_utf8_is_reported(scans: Scans) -> None:
    (scans.upstream.path / os.fsdecode(b"caf\xe9.lean")).write_text(OPEN)
    outcome = scans.take(scans.upstream.commit_all())
    (data,) = outcome.of("file_scanned")
    assert data["path"] == "caf\\xe9.lean"
    assert "not valid UTF-8" in data["error"]
    assert outcome.summary["files_failed"] == 1


def test_files_that_cannot_be_read_in_full_are_reported_and_stop_nothing(scans: Scans) -> None:
    huge = b"-- " + b"x" * (16 * 1024 * 1024)
    outcome = scans.step(
        {
            "A.lean": OPEN.encode() + b"-- \xff",
            "B.lean": OPEN + "/- ",
            "C.lean": huge,
            "D.lean": OPEN,
            "E.lean": b"",
        }
    )
    errors = {item["path"]: item["error"] for item in outcome.of("file_scanned")}
    assert {path: bool(error) for path, error in errors.items()} == {
        "A.lean": True,
        "B.lean": True,
        "C.lean": True,
        "D.lean": False,
        "E.lean": False,
    }
    assert "16777219 bytes" in errors["C.lean"]
    assert outcome.types.count("sorry_opened") == 3
    assert outcome.of("commit_scanned")[0]["files_failed"] == 3


def test_files_that_git_writes_otherwise_than_they_are_committed_are_named(scans: Scans) -> None:
    scans.step({"A.lean": OPEN, "b/B.lean": PROVED, "b/C.lean": PROVED})
    attributes = {
        ".gitattributes": "* text=auto\n*.lean ident\n",
        "b/.gitattributes": "C.lean -ident eol=crlf\n",
    }
    outcome = scans.step(attributes)
    assert outcome.of("sorry_removed") == outcome.of("sorry_opened") == []
    bodies = {file["path"]: file["error"] for file in outcome.of("file_scanned")}
    said = "has git write it with {}: what is built is not what was read"
    assert bodies == {
        "A.lean": f".gitattributes {said.format('ident')}",
        "b/B.lean": f".gitattributes {said.format('ident')}",
        "b/C.lean": f"b/.gitattributes {said.format('eol=crlf')}",
    }


def test_the_same_scan_twice_asks_for_the_same_facts(scans: Scans) -> None:
    scans.step({"A.lean": OPEN * 2, "B.lean": "example : True := sorry\n" * 2})
    sha = scans.upstream.change({"A.lean": OPEN, "B.lean": None, "C.lean": "example : True := sorry\n"})
    one, other = scans.run(sha), scans.run(sha)
    for outcome in (one, other):
        outcome.events[-1]["data"].pop("seconds")
    assert one.events == other.events


def test_of_a_file_with_too_many_sorries_the_first_are_followed_and_the_rest_is_counted(scans: Scans) -> None:
    limits = {"sorries_per_file": 2}
    outcome = scans.step(
        {"A.lean": "".join(f"theorem a{n} : {n} = {n} := sorry\n" for n in range(5))}, limits=limits
    )
    assert [item["place"]["declaration"] for item in outcome.of("sorry_opened")] == ["a0", "a1"]
    (file,) = outcome.of("file_scanned")
    assert (file["n_sorries"], file["sorries_taken"]) == (5, 2)
    assert outcome.summary["sorries_not_taken"] == 3


def test_a_sorry_that_is_pushed_beyond_the_limit_has_moved_and_is_neither_filled_nor_removed(
    scans: Scans,
) -> None:
    old = "theorem old : 1 = 1 := sorry\n"
    limits = {"sorries_per_file": 2, "declarations_per_file": 2}
    scans.step({"A.lean": old}, limits=limits)
    new = "".join(f"theorem n{n} : {n} = {n} := sorry\n" for n in range(5))
    outcome = scans.step({"A.lean": new + old}, limits=limits)
    assert [item["place"]["declaration"] for item in outcome.of("sorry_moved")] == ["old"]
    assert [item["place"]["declaration"] for item in outcome.of("sorry_opened")] == ["n0"]
    assert not {"sorry_filled", "sorry_removed"} & {*outcome.types}
    (file,) = outcome.of("file_scanned")
    assert (file["n_declarations"], file["declarations_taken"], file["sorries_taken"]) == (6, 2, 2)
    (followed,) = outcome.of("theorems_followed")
    assert followed["counts"] == {"appeared": 2}, "of what is beyond the limit nothing is said"
    outcome = scans.step({"A.lean": old.replace("sorry", "rfl")}, limits=limits)
    assert len(outcome.of("sorry_filled")) == 1, "it was followed all the time"


def test_the_limits_of_a_branch_and_of_a_commit_count_over_all_files(scans: Scans) -> None:
    limits = {"sorries": 3, "declarations": 3}
    outcome = scans.step({"A.lean": "example : True := sorry\n" * 2}, limits=limits)
    assert {item["sorries_taken"] for item in outcome.of("file_scanned")} == {None}
    outcome = scans.step(
        {"B.lean": "theorem b : True := sorry\ntheorem c : False := sorry\n" * 2}, limits=limits
    )
    (file,) = outcome.of("file_scanned")
    assert (file["sorries_taken"], file["declarations_taken"], len(scans.living)) == (1, 3, 3)


def test_the_limits_of_a_repository_count_what_its_other_branches_have_and_what_a_file_frees(
    scans: Scans,
) -> None:
    limits = {"sorries_of_repository": 10, "declarations_of_repository": 10}
    source = "".join(f"theorem a{n} : {n} = {n} := sorry\n" for n in range(5))
    outcome = scans.step({"A.lean": source}, limits=limits, known={"sorries_of_others": 7, "declarations": 6})
    (file,) = outcome.of("file_scanned")
    assert (file["sorries_taken"], file["declarations_taken"]) == (3, 4)
    # Scanned alone the file of five frees what its earlier version had: ten are there, and five of them its own.
    outcome = scans.step({"A.lean": source + "\n"}, limits=limits, known={"declarations": 10})
    (file,) = outcome.of("file_scanned")
    assert (file["sorries_taken"], file["declarations_taken"]) == (None, None)


def test_branches_at_one_commit_are_scanned_along_as_long_as_the_repository_has_room(scans: Scans) -> None:
    source = "".join(f"theorem a{n} : {n} = {n} := sorry\n" for n in range(5))
    sha = scans.upstream.change({"A.lean": source})
    for limits, branches in (
        ({"sorries_of_repository": 16, "declarations_of_repository": 100}, ["main", "b", "c"]),
        ({"sorries_of_repository": 100, "declarations_of_repository": 14}, ["main", "b"]),
        ({"sorries_of_repository": 4}, ["main"]),
        ({}, ["main", "b", "c", "d"]),
    ):
        outcome = scans.run(sha, alike=["b", "c", "d"], limits=limits)
        assert [item["branch"] for item in outcome.of("commit_scanned")] == branches
    assert [item["sorries_taken"] for item in outcome.of("file_scanned")] == [None] * 4


def test_a_large_scan_goes_in_parts_of_bounded_lines_that_one_event_closes(scans: Scans) -> None:
    source = "".join(f"theorem a{n} : {n} = {n} := sorry\n" for n in range(700))
    long = f"theorem long : {' = '.join(['1'] * 30_000)} := sorry\n"
    outcome = scans.step({"A.lean": source, "B.lean": long})
    parts = [line["events"] for line in outcome.lines if line["line"] == "events"]
    assert [len(part) <= 301 for part in parts] == [True] * 3
    assert [outcome.types[0], outcome.types[-1]] == ["scan_begun", "commit_scanned"]
    assert outcome.types.count("sorry_opened") == 701
    assert max(len(json.dumps(part)) for part in parts) < 1 << 20
    (statement,) = [
        item["place"]["statement"] for item in outcome.of("sorry_opened") if item["place"]["path"] == "B.lean"
    ]
    assert 16_384 < len(statement) < 16_500, "of a statement that long the beginning is kept"
    again = scans.run(scans.base or "")
    assert not {event["event_id"] for event in again.events} & {
        event["event_id"] for event in outcome.events
    }, "the next attempt replaces it whole"


def test_a_long_statement_with_many_sorries_is_kept_by_its_beginning(scans: Scans) -> None:
    """Each of its sorries has it in its place: 1,500 times 16,384 characters would be in the daemon's hands."""
    long = f"theorem long : {' = '.join(['1'] * 30_000)} := by\n"
    outcome = scans.step({"A.lean": long + "  have : 1 = 1 := sorry\n" * 1500})
    opened = outcome.of("sorry_opened")
    assert len(opened) == 1500
    assert max(len(item["place"]["statement"]) for item in opened) < 400
    assert {item["place"]["statement_hash"] for item in opened} == {opened[0]["place"]["statement_hash"]}
    assert sum(len(json.dumps(line)) for line in outcome.lines) < 3 << 20


def test_a_scan_that_goes_on_says_of_each_commit_what_scans_of_their_own_would_have_said(
    scans: Scans,
) -> None:
    files: list[dict[str, str | bytes | None]] = [
        {"A.lean": OPEN},
        {"A.lean": "-- a line\n" + OPEN},
        {"A.lean": PROVED},
        {"A.lean": None, "B.lean": OPEN},
    ]
    shas = [scans.upstream.change(one) for one in files]
    together = scans.run(shas[0], then=shas[1:])
    assert together.summary["commits"] == 4
    alone = [event for sha in shas for event in scans.take(sha).events]
    for event in (*together.events, *alone):
        event["data"].pop("seconds", None)
    assert together.events == alone
    assert {"sorry_moved", "sorry_filled", "sorry_opened"} < {*together.types}


def test_one_scan_is_that_of_all_branches_at_the_commit(scans: Scans) -> None:
    sha = scans.upstream.change({"A.lean": OPEN, "B.lean": PROVED})
    outcome = scans.run(sha, alike=["one", "two"])
    of = {
        name: [
            (event["type"], {key: value for key, value in event["data"].items() if key != "branch"})
            for event in outcome.events
            if event["data"]["branch"] == name
        ]
        for name in ("main", "one", "two")
    }
    assert of["main"] == of["one"] == of["two"] != []
    assert len({event["event_id"] for event in outcome.events}) == len(outcome.events)


def test_a_merge_is_compared_with_the_scanned_commit_only(scans: Scans) -> None:
    upstream = scans.upstream
    scans.step({"A.lean": OPEN})
    upstream.git("checkout", "-q", "-b", "side")
    upstream.change({"B.lean": PROVED})
    upstream.git("checkout", "-q", "main")
    scans.step({"C.lean": PROVED})
    upstream.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    outcome = scans.take(upstream.commit_all())
    assert [item["path"] for item in outcome.of("file_scanned")] == ["B.lean"]


def test_a_sorry_whose_earlier_file_is_gone_from_the_mirror_is_still_followed(scans: Scans) -> None:
    (opened,) = scans.step({"A.lean": OPEN}).of("sorry_opened")
    scans.living[opened["sorry"]]["blob"] = "0" * 40
    (moved,) = scans.step({"A.lean": "\n" + OPEN}).of("sorry_moved")
    assert moved["sorry"] == opened["sorry"]


def test_progress_is_told(scans: Scans) -> None:
    outcome = scans.step({"A.lean": OPEN, "B.lean": OPEN})
    progress = [line for line in outcome.lines if line["line"] == "progress"]
    assert (progress[0]["done"], progress[0]["total"]) == (0, 2)
    assert (progress[-1]["done"], progress[-1]["total"]) == (2, 2)


@pytest.mark.parametrize(
    ("changed", "reason", "deterministic"),
    [
        ({"sha": "1" * 40}, "commit_missing", False),
        ({"base": "1" * 40}, "base_missing", False),
        ({"mirror": "/nonexistent"}, "mirror_missing", False),
        ({"include": ["[z-a].lean"]}, "bad_pattern", True),
    ],
)
def test_what_is_missing_is_a_failure_with_its_remedy(
    scans: Scans, changed: dict[str, Any], reason: str, deterministic: bool
) -> None:
    sha = scans.upstream.change({"A.lean": OPEN})
    outcome = scans.run(sha, **changed)
    last = outcome.lines[-1]
    assert (outcome.status, last["line"], last["reason"]) == (1, "failure", reason)
    assert last["remedy"]
    assert last["deterministic"] is deterministic
    assert outcome.events == []


def test_a_tip_scanned_with_other_patterns_is_compared_with_the_files_that_are_known(scans: Scans) -> None:
    scans.exclude = ["New/**"]
    first = scans.step(
        {"A.lean": OPEN, "Old/B.lean": "theorem b : True := sorry\n", "New/C.lean": "def c := 3\n"}
    )
    known = {item["path"]: item["blob"] for item in first.of("file_scanned")}
    assert list(known) == ["A.lean", "Old/B.lean"]
    scans.exclude = ["Old/**"]
    outcome = scans.take(str(scans.base), files=known)
    assert [item["path"] for item in outcome.of("file_scanned")] == ["New/C.lean"]
    assert [item["path"] for item in outcome.of("file_removed")] == ["Old/B.lean"]
    assert outcome.types.count("sorry_removed") == 1
    (commit,) = outcome.of("commit_scanned")
    assert (commit["base"], commit["exclude"]) == (commit["sha"], ["Old/**"])


def test_a_lost_base_is_no_obstacle_where_the_files_are_known(scans: Scans) -> None:
    first = scans.step({"A.lean": OPEN, "B.lean": PROVED})
    known = {item["path"]: item["blob"] for item in first.of("file_scanned")}
    sha = scans.upstream.change({"A.lean": "-- more\n" + OPEN, "B.lean": None})
    outcome = scans.run(sha, base="1" * 40, files=known)
    assert outcome.types == [
        "file_scanned",
        "file_removed",
        "sorry_moved",
        "theorems_followed",
        "commit_scanned",
    ]


def test_a_commit_s_lake_projects_are_found_and_followed(scans: Scans) -> None:
    def told(outcome: Outcome) -> list[tuple[str, str]]:
        (closed,) = outcome.of("commit_scanned")
        return [(one["folder"], one["toolchain"]) for one in closed["projects"]]

    files = {"lean/lakefile.toml": "", "lean/lean-toolchain": "v4.20.0\n", "lean/A.lean": OPEN}
    assert told(scans.step(files)) == [("lean", "v4.20.0")]
    assert told(scans.step({"lean/A.lean": PROVED})) == [("lean", "v4.20.0")], "nothing says otherwise"
    assert told(scans.step({"lean/lean-toolchain": None, "lean-toolchain": "v4.22.0\n"})) == [
        ("lean", "v4.22.0")
    ]
    assert told(scans.step({"book/lakefile.lean": "", "book/lean-toolchain": "v4.21.0\n"})) == [
        ("book", "v4.21.0"),
        ("lean", "v4.22.0"),
    ]
    assert told(scans.step({"book/lakefile.lean": None, "lean/lakefile.toml": None})) == [("", "v4.22.0")]


@pytest.mark.parametrize("case", [case for case, filling in FILLINGS.items() if len(filling.before) > 1])
def test_the_life_of_a_sorry_says_how_it_went_where_other_files_tell(scans: Scans, case: str) -> None:
    filling = FILLINGS[case]
    scans.step(dict(filling.before))
    outcome = scans.step(dict(filling.after))
    if filling.how == "filled":
        (filled,) = outcome.of("sorry_filled")
        assert bool(filled["rests_on"]) == ("rests on" in filling.kinds)
    else:
        (gone,) = outcome.of("sorry_removed")
        assert gone["how"] == filling.how

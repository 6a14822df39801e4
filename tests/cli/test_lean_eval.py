"""`everlean export lean-eval`: the workspaces in which every sorry has a verified proof, as a submission is read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from daemon.settings import load
from pipeline.lean.source.scanner import scan_source
from store.domain.identity import slug
from store.events.repositories import BranchCreated
from store.events.scans import SorryOpened
from tests.support import events
from tests.support.events import REPOSITORY
from tests.support.state_folder import StateFolder

ONE = """\
import Submission.Helpers

namespace Submission

theorem one_more (n : Nat) : n < n + 1 := by
  sorry

end Submission
"""
HELPERS = "/-! Nothing yet. -/\n"


def workspace(name: str, text: str = ONE, *, lakefile: str | None = None) -> dict[str, str]:
    """A workspace of the shape that lean-eval generates."""
    return {
        f"generated/{name}/lakefile.toml": lakefile
        or f'name = "{name}"\n\n[[lean_lib]]\nname = "Submission"\n',
        f"generated/{name}/Submission.lean": text,
        f"generated/{name}/Submission/Helpers.lean": HELPERS,
        f"generated/{name}/Challenge.lean": "theorem one_more (n : Nat) : n < n + 1 := by\n  sorry\n",
        f"generated/{name}/holes.json": "{}",
    }


class Benchmark:
    def __init__(self, folder: StateFolder, files: dict[str, str]) -> None:
        self.folder, self.work = folder, folder.root / "work"
        for path, text in files.items():
            place = self.work / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "workspaces")
        self.sha = self.git("rev-parse", "HEAD")
        mirror = load(folder.config).paths.mirrors / f"{slug(REPOSITORY)}.git"
        self.git("clone", "-q", "--bare", str(self.work), str(mirror))
        folder.add("r", events.watched())
        folder.add("r", BranchCreated(repository=REPOSITORY, branch="main", tip=self.sha, is_default=True))
        folder.add("r", events.observed(self.sha))

    def git(self, *words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(self.work), *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    def prove(self, path: str, *texts: str | None) -> None:
        """Open the sorries of a file and verify a proof of each that has a text."""
        data = (self.work / path).read_bytes()
        scan, blob = scan_source(data, path=path), self.git("rev-parse", f"HEAD:{path}")
        self.folder.blob(events.PATCH)
        for number, (item, text) in enumerate(zip(scan.sorries, texts, strict=True)):
            sorry, place = f"{path}-{number}", events.place(scan, item, blob=blob)
            life = {"repository": REPOSITORY, "branch": "main", "sha": self.sha, "reopened": False}
            self.folder.add("r", SorryOpened(**life, sorry=sorry, place=place))
            if text is not None:
                result = events.proof_found(sorry, place, commit=self.sha)
                result = result.model_copy(
                    update={"replacement": text, "tactics": (text,), "proof": f"p-{sorry}"}
                )
                self.folder.add(f"proof:{result.proof}", result)
                self.folder.add(f"proof:{result.proof}", events.proof_verified(result))

    def export(self, out: str = "out") -> dict[str, object]:
        self.folder.add("r", events.commit_scanned(self.sha))
        self.folder.write()
        answer = self.folder.everlean("export", "lean-eval", out, "--repo", REPOSITORY, "--json")
        assert answer.code == 0, answer.err
        return answer.json


def test_a_solved_workspace_goes_out_with_what_a_submission_is_read_for_and_no_more(
    folder: StateFolder,
) -> None:
    benchmark = Benchmark(folder, workspace("one_more") | workspace("other"))
    benchmark.prove("generated/one_more/Submission.lean", "exact Nat.lt_succ_self n")
    document = benchmark.export()
    assert [one["problem"] for one in document["workspaces"]] == ["one_more"]  # type: ignore[attr-defined]
    out = folder.root / "out"
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == [
        "one_more/Submission.lean",
        "one_more/Submission/Helpers.lean",
        "one_more/lakefile.toml",
    ]
    filled = ONE.replace("sorry", "exact Nat.lt_succ_self n")
    assert (out / "one_more" / "Submission.lean").read_text() == filled
    assert (out / "one_more" / "Submission" / "Helpers.lean").read_text() == HELPERS


def test_a_workspace_with_a_sorry_left_is_named_and_nothing_is_written(folder: StateFolder) -> None:
    two = ONE.replace("end Submission", "theorem two : 1 = 1 := by\n  sorry\n\nend Submission")
    benchmark = Benchmark(folder, workspace("half", two))
    benchmark.prove("generated/half/Submission.lean", None, "rfl")
    document = benchmark.export()
    assert document["left_out"] == {"generated/half": "Submission.lean still has 1 without a verified proof"}
    assert (document["path"], (folder.root / "out").exists()) == (None, False)


def test_every_sorry_of_a_file_is_filled(folder: StateFolder) -> None:
    two = ONE.replace("end Submission", "theorem two : 1 = 1 := by\n  sorry\n\nend Submission")
    benchmark = Benchmark(folder, workspace("both", two))
    benchmark.prove("generated/both/Submission.lean", "omega", "rfl")
    benchmark.export()
    text = (folder.root / "out" / "both" / "Submission.lean").read_text()
    assert text == two.replace("sorry", "omega", 1).replace("sorry", "rfl", 1)


@pytest.mark.parametrize(
    ("lakefile", "reason"),
    [
        ('name = "../../outside"\n', "its lakefile.toml names no problem"),
        ("name = 3\n", "its lakefile.toml names no problem"),
        ('name = ".hidden"\n', "its lakefile.toml names no problem"),
        ("name = \n", "its lakefile.toml cannot be read"),
    ],
)
def test_a_lakefile_that_names_no_problem_makes_no_folder(
    folder: StateFolder, lakefile: str, reason: str
) -> None:
    benchmark = Benchmark(folder, workspace("bad", lakefile=lakefile))
    benchmark.prove("generated/bad/Submission.lean", "exact Nat.lt_succ_self n")
    document = benchmark.export()
    assert str(document["left_out"]["generated/bad"]).startswith(reason)  # type: ignore[index]
    assert not (folder.root / "out").exists()


def test_of_two_workspaces_of_one_problem_the_second_is_named(folder: StateFolder) -> None:
    twice = 'name = "same"\n'
    benchmark = Benchmark(folder, workspace("a", lakefile=twice) | workspace("b", lakefile=twice))
    for name in "ab":
        benchmark.prove(f"generated/{name}/Submission.lean", "exact Nat.lt_succ_self n")
    assert benchmark.export()["left_out"] == {"generated/b": "generated/a has the same problem"}


def test_a_folder_that_is_there_and_an_unknown_branch_are_refused(folder: StateFolder) -> None:
    benchmark = Benchmark(folder, workspace("one_more"))
    benchmark.export()
    (folder.root / "there").mkdir()
    answer = folder.everlean("export", "lean-eval", "there", "--repo", REPOSITORY)
    assert (answer.code, "is there already" in answer.err) == (1, True)
    answer = folder.everlean("export", "lean-eval", "new", "--repo", REPOSITORY, "--branch", "none")
    assert (answer.code, "has no branch none" in answer.err) == (1, True)


def test_the_files_are_kept_as_they_are_byte_for_byte(folder: StateFolder, tmp_path: Path) -> None:
    benchmark = Benchmark(folder, workspace("crlf", ONE.replace("\n", "\r\n")))
    (benchmark.work / "generated/crlf/Submission.lean").write_bytes(ONE.replace("\n", "\r\n").encode())
    benchmark.prove("generated/crlf/Submission.lean", "exact Nat.lt_succ_self n")
    benchmark.export()
    data = (folder.root / "out" / "crlf" / "Submission.lean").read_bytes()
    assert data == ONE.replace("sorry", "exact Nat.lt_succ_self n").replace("\n", "\r\n").encode()

"""`everlean proofs apply` in a real clone: what fits becomes a commit, and where it cannot, nothing has changed."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.gate.patch import PatchHeader, build_patch
from pipeline.lean.source.scanner import scan_source
from pipeline.lean.source.splice import Replacement, splice
from store.domain.identity import git_blob, short_hash
from store.events.proofs import CheckedVersion, ProofChecked, ProofFound, ProofVerified
from store.events.repositories import RepositoryWatched
from tests.support.daemon.remote import Remote
from tests.support.events import ALL_PASSED
from tests.support.reference import DOCS
from tests.support.state_folder import (
    COMMAND,
    Answer,
    StateFolder,
    environment,
    make_folder,
)
from tests.support.verbs import hold_to_schema

KEY = "local/remotes/demo"
PATH = "Demo/Basic.lean"
FILE = """import Init

namespace Demo
open Nat

theorem one : 1 = 1 := by
  sorry

theorem two : 2 = 2 ∧ True := by
  constructor
  · sorry
  · sorry

theorem three : 3 = 3 := sorry

end Demo
"""
FILLED = (
    FILE.replace("by\n  sorry", "by\n  intros\n  rfl")
    .replace("· sorry\n  · sorry", "· rfl\n  · trivial")
    .replace(":= sorry", ":= rfl")
)


@dataclass
class World:
    """A watched repository, a clone of it, and a daemon's state that has proofs for it."""

    folder: StateFolder
    remote: Remote
    clone: Remote
    sha: str

    def proof(
        self,
        name: str,
        old: str,
        new: str,
        *,
        state: str = "verified",
        text: str = FILE,
        at: int = 0,
        write: bool = True,
    ) -> str:
        """Record a proof that puts `new` in the place of `old` in a declaration; return its id."""
        data = text.encode()
        declared = data.index(f"theorem {name} ".encode())
        start = data.index(old.encode(), declared)
        replacement = Replacement(start, start + len(old.encode()), new)
        after = scan_source(splice(data, replacement), path=PATH).declarations
        (hashed,) = (one.text_hash for one in after if one.name == f"Demo.{name}")
        blob, proof = git_blob(data, like=self.sha), short_hash(name, new, state, str(at))
        sorry, stream = short_hash(name, str(at)), f"proof:{proof}"
        self.folder.add(stream, ProofFound(
            proof=proof, sorry=sorry, repository=KEY, branch="main", sha=self.sha, path=PATH, blob=blob,
            byte_start=start, byte_end=start + len(old.encode()), declaration=f"Demo.{name}",
            declaration_text_hash=hashed, replacement=new, parts=(), tactics=(new,), prover="tactics", rung=0,
            toolchain="t", job="prove-1",
        ))  # fmt: skip
        header = PatchHeader(
            sorry=sorry, proof=proof, repository=KEY, sha=self.sha, declaration=f"Demo.{name}",
            prover="tactics, rung 0", toolchain="t", verified=state == "verified", grade="L1",
            kernel="leanchecker", axioms=(), not_checked=(),
        )  # fmt: skip
        filled = splice(data, replacement)
        blobs = (blob, git_blob(filled, like=blob))
        patch = self.folder.blob(build_patch(header, path=PATH, before=data, after=filled, blobs=blobs))
        if state == "verified":
            self.folder.add(stream, ProofVerified(
                proof=proof, sorry=sorry, checks=ALL_PASSED, not_checked=(), axioms=(), grade="L1",
                kernel="leanchecker", version=CheckedVersion(sha=self.sha, blob=blob, byte_start=start), patch=patch,
                job="check-1", toolchain="t", material=None,
            ))  # fmt: skip
        else:
            self.folder.add(stream, ProofChecked(
                proof=proof, sorry=sorry, checks=(), not_checked=("kernel",), disagreement="",
                patch=patch, job="check-1",
            ))  # fmt: skip
        if write:
            self.folder.write()
        return proof

    def proofs(self) -> dict[str, str]:
        """Record one of each declaration; the two sorries of `two` are filled together, and so by two proofs."""
        both, filled = "sorry\n  · sorry", "rfl\n  · trivial"
        return {
            "one": self.proof("one", "sorry", "intros\n  rfl", write=False),
            "two": self.proof("two", both, filled, write=False),
            "two again": self.proof("two", both, filled, at=1, write=False),
            "three": self.proof("three", "sorry", "rfl"),
        }

    def apply(self, *arguments: str) -> Answer:
        return self.folder.everlean("proofs", "apply", *arguments, cwd=self.clone.path)

    def refused(self, *arguments: str, code: int = 1) -> str:
        """Apply, and expect a refusal that leaves the clone as it was."""
        before = self.state()
        answer = self.apply(*arguments)
        assert (answer.code, answer.out) == (code, ""), answer
        assert self.state() == before
        return answer.err

    def state(self) -> tuple[str, ...]:
        """What a person sees of the clone."""
        git = self.clone.git
        told = (
            git("symbolic-ref", "-q", "HEAD"),
            git("for-each-ref", "--format=%(refname) %(objectname)"),
            git("status", "--porcelain"),
        )
        return (*told, self.text())

    def text(self) -> str:
        return (self.clone.path / PATH).read_bytes().decode()

    def subjects(self) -> list[str]:
        return self.clone.git("log", "--reverse", "--format=%s", f"{self.sha}..HEAD").splitlines()


@pytest.fixture
def world(tmp_path: Path) -> World:
    remote = Remote(tmp_path / "remotes" / "demo")
    sha = remote.commit("first", {PATH: FILE})
    remote.git("clone", "--quiet", str(remote.path), str(tmp_path / "mine"))
    clone = Remote.at(tmp_path / "mine")
    clone.git("config", "user.name", "Grace")
    clone.git("config", "user.email", "grace@example.org")
    folder = make_folder(tmp_path)
    folder.add(f"repository:{KEY}", RepositoryWatched(projects=(),
        repository=KEY, url=str(remote.path), branches=(), include=("**/*.lean",), exclude=(), every_s=300.0,
        enabled=True, opt_out=False,
    ))  # fmt: skip
    folder.write()
    return World(folder, remote, clone, sha)


# --- what goes well -------------------------------------------------------------------------------------------


def test_all_verified_proofs_become_a_commit_each_on_a_new_branch(world: World) -> None:
    proofs = world.proofs()
    answer = world.apply("--verified", "--branch", "fill")
    assert answer.code == 0, answer.err
    assert world.text() == FILLED
    assert world.subjects() == ["prove Demo.one", "prove Demo.two", "prove Demo.three"]
    assert world.clone.git("symbolic-ref", "--short", "HEAD") == "fill"
    assert world.clone.git("rev-parse", "main") == world.sha
    assert world.clone.git("status", "--porcelain") == ""
    people = set(world.clone.git("log", "--format=%an <%ae>, %cn", f"{world.sha}..HEAD").splitlines())
    assert people == {"everlean <everlean@localhost>, Grace"}
    body = world.clone.git("show", "--no-patch", "--format=%b", "HEAD~2")
    assert body.startswith("A proof of Demo.one, found by everlean and verified by Lean\n\nGrade: ")
    assert "\nAxioms: none\n" in body
    assert f"\nEverlean-Proof: {proofs['one']}\n" in body
    for name in ("one", "three"):
        assert proofs[name] in answer.out
    assert "3 proofs applied on the new branch fill" in answer.out
    assert answer.err == ""


def test_the_series_is_one_that_git_takes_elsewhere(world: World, tmp_path: Path) -> None:
    """`git format-patch` of the branch and `git am` in another clone: the same files."""
    world.proofs()
    assert world.apply("--verified", "--branch", "fill").code == 0
    world.clone.git("format-patch", "--quiet", "--output-directory", str(tmp_path / "series"), "main")
    mails = sorted(map(str, (tmp_path / "series").iterdir()))
    world.remote.git("am", "--quiet", *mails)
    assert (world.remote.path / PATH).read_text() == FILLED


def test_without_a_branch_the_one_that_is_checked_out_goes_on(world: World) -> None:
    proofs = world.proofs()
    document = world.apply(proofs["three"][:6], "--json").json
    hold_to_schema("proofs apply", document)
    assert world.subjects() == ["prove Demo.three"]
    assert world.clone.git("symbolic-ref", "--short", "HEAD") == "main"
    (applied,) = document["applied"]
    assert (applied["commit"], applied["proof"]) == (world.clone.git("rev-parse", "HEAD"), proofs["three"])
    assert (document["branch"], document["head"], document["left_out"]) == (None, world.sha, [])


def test_the_configured_author_is_the_commits_author(world: World) -> None:
    with world.folder.config.open("a") as config:
        config.write('author = "Bot of Ünsorry <bot@example.org>"\n')
    assert world.apply(world.proofs()["one"]).code == 0
    assert world.clone.git("log", "-1", "--format=%an <%ae>") == "Bot of Ünsorry <bot@example.org>"


def test_another_folder_is_named_with_clone(world: World) -> None:
    proof = world.proofs()["one"]
    inside = world.clone.path / "Demo"
    answer = world.folder.everlean("proofs", "apply", proof, "--clone", str(inside))
    assert answer.code == 0, answer.err
    assert world.subjects() == ["prove Demo.one"]


def test_two_proofs_with_the_same_text_are_one_commit(world: World) -> None:
    proofs = world.proofs()
    document = world.apply(proofs["two"], proofs["two again"], "--json").json
    assert world.subjects() == ["prove Demo.two"]
    assert [(one["proof"], one["others"]) for one in document["applied"]] == [
        (proofs["two"], [proofs["two again"]])
    ]


def test_of_two_verified_proofs_of_a_sorry_the_one_that_was_checked_last_is_taken(world: World) -> None:
    world.proof("three", "sorry", "rfl")
    world.proof("three", "sorry", "by rfl")
    answer = world.apply("--verified")
    assert (answer.code, answer.err) == (0, "")
    assert "three : 3 = 3 := by rfl" in world.text()


def test_bytes_and_the_mode_of_a_file_stay(world: World) -> None:
    text = FILE.replace("\n", "\r\n").removesuffix("\r\n")
    (world.remote.path / PATH).write_bytes(text.encode())
    (world.remote.path / PATH).chmod(0o755)
    world.remote.git("add", "--all")
    world.sha = world.remote.commit("crlf", {"README": "x"})
    world.clone.git("pull", "--quiet")
    assert world.apply(world.proof("three", "sorry", "rfl", text=text)).code == 0
    assert world.text() == text.replace(":= sorry", ":= rfl")
    assert world.clone.git("ls-tree", "HEAD", PATH).startswith("100755")


# --- a HEAD that is not the commit that was checked -----------------------------------------------------------


def moved(world: World, old: str, new: str) -> None:
    assert FILE.count(old) == 1
    world.clone.commit("on", {PATH: FILE.replace(old, new)})
    world.sha = world.clone.git("rev-parse", "HEAD")


def test_a_file_that_changed_elsewhere_takes_the_proofs_at_their_new_places_and_says_that_none_saw_them_there(
    world: World,
) -> None:
    world.proofs()
    old, new = "theorem one", "theorem zero : 0 = 0 := rfl\n\ntheorem one"
    moved(world, old, new)
    answer = world.apply("--verified")
    assert answer.code == 0, answer.err
    assert world.text() == FILLED.replace(old, new)
    assert "no Lean has seen these there" in answer.err
    body = world.clone.git("show", "--no-patch", "--format=%b", "HEAD")
    assert f"Applied to: {world.sha}, where no Lean has checked it" in body


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("theorem three : 3 = 3", "theorem three : 3 = 4", "Demo.three reads otherwise"),
        ("theorem three : 3 = 3 := sorry\n", "", "Demo.three is not in it any more"),
        ("3 := sorry", "3 := by rfl", "Demo.three reads otherwise"),
        ("theorem three", "open Int in\ntheorem three", "Demo.three reads otherwise"),
        ("theorem three", "variable (n : Nat)\ntheorem three", "what is imported, open or a variable"),
    ],
)
def test_what_does_not_fit_is_left_out_with_its_reason_and_the_rest_is_applied(
    world: World, old: str, new: str, reason: str
) -> None:
    proofs = world.proofs()
    moved(world, old, new)
    answer = world.apply("--verified", "--branch", "fill")
    assert answer.code == 0, answer.err
    assert world.subjects() == ["prove Demo.one", "prove Demo.two"]
    (line,) = (line for line in answer.err.splitlines() if "left out" in line)
    assert line.startswith(f"everlean: left out: proof {proofs['three']} of Demo.three: {PATH} changed since")
    assert reason in line


def test_another_import_leaves_all_of_the_file_out(world: World) -> None:
    world.proofs()
    moved(world, "import Init", "import Init\nimport Std")
    said = world.refused("--verified")
    assert said.count("left out") == 4
    assert "is new there (4 verified proofs, 0 of them there already)" in said


def test_a_named_proof_that_does_not_fit_stops_the_others(world: World) -> None:
    proofs = world.proofs()
    moved(world, "3 = 3", "3 = 4")
    said = world.refused(proofs["one"], proofs["three"])
    assert f"proof {proofs['three']} of Demo.three" in said
    assert "nothing was changed" in said
    assert proofs["one"] not in said


def test_what_is_there_already_is_not_applied_again(world: World) -> None:
    proofs = world.proofs()
    assert world.apply(proofs["three"]).code == 0
    assert "it is there already" in world.refused(proofs["three"])
    assert world.apply("--verified").code == 0
    assert world.text() == FILLED
    assert "4 of them there already" in world.refused("--verified")


def test_a_file_that_is_gone_or_a_link_takes_nothing(world: World) -> None:
    proof = world.proofs()["one"]
    (world.clone.path / PATH).rename(world.clone.path / "Elsewhere.lean")
    (world.clone.path / PATH).symlink_to("../Elsewhere.lean")
    world.clone.commit("a link", {"README": "x"})
    assert f"{PATH} is no file at HEAD" in world.refused(proof)


# --- what is refused ------------------------------------------------------------------------------------------


def test_what_is_not_verified_is_applied_only_by_its_id_and_with_candidate(world: World) -> None:
    proof = world.proof("one", "sorry", "rfl", state="candidate")
    assert "no proof is verified yet" in world.refused("--verified")
    assert "not verified; add --candidate" in world.refused(proof)
    assert "name each unverified proof" in world.refused("--verified", "--candidate", code=2)
    applied = world.apply(proof, "--candidate")
    assert applied.code == 0
    assert f"not verified, and so no proof yet: {proof}" in applied.err
    assert world.subjects() == ["Not verified: a candidate for a proof of Demo.one"]


@pytest.mark.parametrize("arguments", [[], ["--verified", "d0"]], ids=["neither", "both"])
def test_ids_or_verified_have_to_be_given(world: World, arguments: list[str]) -> None:
    assert "--verified" in world.refused(*arguments, code=2)


def test_changes_that_are_not_committed_are_refused_and_files_that_git_does_not_know_are_not(
    world: World,
) -> None:
    proof = world.proofs()["one"]
    (world.clone.path / "notes.txt").write_text("mine")
    (world.clone.path / PATH).write_text(FILE + "-- mine\n")
    said = world.refused(proof)
    assert PATH in said
    assert "git stash" in said
    world.clone.git("checkout", "--quiet", PATH)
    assert world.apply(proof).code == 0


def test_a_branch_that_is_there_or_cannot_be_is_refused(world: World) -> None:
    proof = world.proofs()["one"]
    world.clone.git("branch", "fill")
    assert "git branch -D fill" in world.refused(proof, "--branch", "fill")
    assert "is no name for a branch" in world.refused(proof, "--branch", "a..b")


def test_where_git_refuses_at_the_end_nothing_has_changed(world: World) -> None:
    """Another git holds the index: all commits are made by then, and no branch shows them."""
    world.proofs()
    lock = world.clone.path / ".git" / "index.lock"
    lock.touch()
    for arguments in (["--verified"], ["--verified", "--branch", "fill"]):
        assert "index.lock" in world.refused(*arguments)
    lock.unlink()
    assert world.apply("--verified", "--branch", "fill").code == 0


def test_a_clone_whose_user_git_does_not_know_is_refused_with_git_s_remedy(world: World) -> None:
    proof = world.proofs()["one"]
    for name in ("user.name", "user.email"):
        world.clone.git("config", "--unset", name)
    world.clone.git("config", "user.useConfigOnly", "true")
    assert "user.email" in world.refused(proof)


def test_a_clone_of_another_repository_is_refused_with_its_remotes(world: World, tmp_path: Path) -> None:
    proof = world.proofs()["one"]
    world.clone.git("remote", "set-url", "origin", "https://github.com/me/fork.git")
    said = world.refused(proof)
    for told in ("github.com/me/fork", KEY, "git remote add upstream"):
        assert told in said
    world.clone.git("remote", "add", "upstream", str(world.remote.path))
    assert world.apply(proof).code == 0
    nowhere = world.folder.everlean("proofs", "apply", proof, "--clone", str(tmp_path / "state"))
    assert nowhere.code == 1
    assert "is no work tree of git's" in nowhere.err


def test_the_watched_repository_itself_is_a_clone_of_it(world: World) -> None:
    proof = world.proofs()["one"]
    world.remote.git("config", "user.name", "Ada")
    world.remote.git("config", "user.email", "ada@example.org")
    answer = world.folder.everlean("proofs", "apply", proof, "--clone", str(world.remote.path))
    assert answer.code == 0, answer.err


def test_a_proof_of_another_repository_is_refused(world: World) -> None:
    proof = world.proofs()["one"]
    other: Any = {"repository": "local/remotes/other", "url": str(world.clone.path)}
    world.folder.add("repository:local/remotes/other", RepositoryWatched(projects=(),
        **other, branches=(), include=("**/*.lean",), exclude=(), every_s=300.0, enabled=True, opt_out=False,
    ))  # fmt: skip
    world.folder.write()
    world.clone.git("remote", "remove", "origin")
    assert f"is of {KEY}, and the clone is one of local/remotes/other" in world.refused(proof)


# --- the page -------------------------------------------------------------------------------------------------


def test_the_commands_of_the_page_take_proofs_over(world: World, tmp_path: Path) -> None:
    """docs/proving.md, "Taking proofs over", word for word in a shell; only `lake` is a stand-in."""
    proof = world.proofs()["three"]
    section = (DOCS / "proving.md").read_text("utf-8").split("\n## Taking proofs over\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    home = tmp_path / "home"
    (home / "src").mkdir(parents=True)
    (home / "src" / "project").symlink_to(world.clone.path)
    (home / "lake").write_text('#!/bin/sh\necho lake "$@"\n')
    (home / "lake").chmod(0o755)
    result = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "".join(blocks).replace(" ID ", f" {proof[:6]} ")],
        env={
            **environment(home),
            "EVERLEAN_CONFIG": str(world.folder.config),
            "PATH": f"{home}:{COMMAND.parent}:{os.environ['PATH']}",
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 proofs applied on the new branch everlean" in result.stdout
    assert "lake build" in result.stdout
    assert "+theorem three : 3 = 3 := rfl" in result.stdout
    assert world.subjects() == ["prove Demo.three"], "main has the one of `git am`"
    assert world.clone.git("show", f"everlean:{PATH}") + "\n" == FILLED

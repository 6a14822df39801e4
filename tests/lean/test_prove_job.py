"""The prove job and the check job on the demo project: real processes, with the simulator in Lean's place."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.backend import LeanBackend, find_leans, simulator
from pipeline.lean.pool import PoolLimits
from pipeline.lean.source.scanner import scan_source
from store.domain.identity import short_hash
from store.events.base import EventBody
from store.events.proofs import AttemptFinished, ProofChecked, ProofFound, ProofRejected
from store.events.registry import EVENT_TYPES
from tests.support.job_processes import JobProcesses

DEMO = Path(__file__).parents[2] / "examples" / "demo-project"
CLASSICAL = {"Demo.Open.drop_double", "Demo.Open.peirce"}
FALSE = {"Demo.Open.off_by_one", "Demo.Open.anything_goes", "Demo.Open.affirm_the_consequent"}
CONDITIONAL = {"Demo.mystery_is_itself"}


def git(*arguments: str, at: Path) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=at, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass
class Project:
    """The demo project as a git repository."""

    folder: Path
    jobs: JobProcesses

    def __post_init__(self) -> None:
        shutil.copytree(DEMO, self.folder)
        git("init", "-q", "-b", "main", at=self.folder)
        self.commit("base")

    def commit(self, message: str) -> None:
        git("add", "-A", at=self.folder)
        git("commit", "-q", "-m", message, at=self.folder)

    @property
    def sha(self) -> str:
        return git("rev-parse", "HEAD", at=self.folder)

    def sorries(self) -> Iterator[dict[str, Any]]:
        for file in sorted(self.folder.rglob("*.lean")):
            path = file.relative_to(self.folder).as_posix()
            scanned = scan_source(file.read_bytes(), path=path)
            blob = git("rev-parse", f"HEAD:{path}", at=self.folder)
            for sorry in scanned.sorries:
                declaration = scanned.declarations[sorry.index]
                yield {
                    "sorry": short_hash(path, declaration.name, str(sorry.ordinal), str(sorry.byte_start)),
                    "path": path,
                    "blob": blob,
                    "byte_start": sorry.byte_start,
                    "byte_end": sorry.byte_end,
                    "declaration": declaration.name,
                    "kind": declaration.kind,
                    "ordinal": sorry.ordinal,
                }


@dataclass
class Outcome:
    """What a job printed."""

    returncode: int
    last: dict[str, Any]
    bodies: list[EventBody] = field(default_factory=list)
    batches: list[list[str]] = field(default_factory=list)
    staging: Path = Path()

    def attempts(self) -> list[AttemptFinished]:
        return [body for body in self.bodies if isinstance(body, AttemptFinished)]

    def proofs(self) -> list[ProofFound]:
        return [body for body in self.bodies if isinstance(body, ProofFound)]


def run_job(jobs: JobProcesses, kind: str, parameters: dict[str, Any], folder: Path) -> Outcome:
    folder.mkdir(parents=True)
    done = jobs.run(kind, parameters, folder, name=f"{kind}-1")
    assert done.lines, done.stderr
    (attempt,) = folder.iterdir()
    outcome = Outcome(done.returncode, done.last, staging=attempt / "staging")
    for line in done.lines:
        if line["line"] == "events":
            outcome.batches.append([event["type"] for event in line["events"]])
            for event in line["events"]:
                outcome.bodies.append(EVENT_TYPES[event["type"]].model_validate(event["data"]))
    return outcome


def prove(project: Project, at: Path, **changes: Any) -> Outcome:
    parameters: dict[str, Any] = {
        "repository": "local/x/demo",
        "branch": "main",
        "sha": project.sha,
        "worktree": str(project.folder),
        "lean": simulator(),
        "limits": PoolLimits(),
        "rung": {"number": 0},
        "budget": {"seconds": 20, "nodes": 200, "tactic_timeout_s": 5},
        "budget_key": "small",
        "parallel": 2,
        "sorries": list(project.sorries()),
    }
    return run_job(project.jobs, "prove", {**parameters, **changes}, at)


def check(project: Project, proof: ProofFound, folder: Path, *, lean: LeanBackend | None = None) -> Outcome:
    backend = lean or simulator()
    parameters = {
        "worktree": str(project.folder),
        "lean": backend,
        "proof": proof,
        "search": {
            "model": "m-1",
            "weights": "0a1b",
            "seed": 7,
            "nodes": 3,
            "repl_calls": 9,
            "seconds": 1.25,
            "prompt_tokens": 900,
            "completion_tokens": 100,
            "usd": 0.0125,
        },
    }
    return run_job(project.jobs, "check", parameters, folder)


@pytest.fixture(scope="module")
def jobs() -> JobProcesses:
    return JobProcesses(("prove", "prove.__main__", "check"))


@pytest.fixture(scope="module")
def project(jobs: JobProcesses, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("demo") / "demo", jobs)


@pytest.fixture(scope="module")
def proved(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return prove(project, tmp_path_factory.mktemp("prove") / "job")


def test_the_base_commit_s_sorries_are_filled_but_for_those_that_cannot_be(
    project: Project, proved: Outcome
) -> None:
    assert proved.returncode == 0, proved.last
    wanted = {item["sorry"]: item for item in project.sorries()}
    attempts = {body.sorry: body for body in proved.attempts()}
    assert attempts.keys() == wanted.keys()
    for sorry, item in wanted.items():
        outcome, detail = attempts[sorry].outcome, attempts[sorry].detail
        if item["declaration"] in FALSE:
            assert outcome == "disproved", (item["declaration"], outcome, detail)
            assert "a proof of the negation was accepted; false as it stands, by " in detail
        elif item["declaration"] in CLASSICAL:
            assert outcome in ("exhausted", "budget"), (item["declaration"], outcome, detail)
        elif item["kind"] == "def":
            assert outcome == "unsupported"
            assert "may not be invented" in detail
        else:
            assert outcome == "found", (item["declaration"], outcome, detail)


def test_every_batch_is_one_sorry_s(proved: Outcome) -> None:
    assert {tuple(batch) for batch in proved.batches} == {
        ("proof_found", "attempt_finished"),
        ("attempt_finished",),
    }


def test_the_same_work_finds_the_same_proofs(project: Project, proved: Outcome, tmp_path: Path) -> None:
    again = prove(project, tmp_path / "job", parallel=1)
    assert {body.proof for body in again.proofs()} == {body.proof for body in proved.proofs()}


def test_two_sorries_of_one_declaration_get_one_text_that_fills_both(proved: Outcome) -> None:
    both = [body for body in proved.proofs() if body.declaration == "Demo.Negation.neither"]
    assert len(both) == 2
    assert len({(body.byte_start, body.byte_end, body.replacement) for body in both}) == 1
    assert len({body.proof for body in both}) == 2
    assert "have hq" in both[0].replacement


def test_a_checked_proof_is_a_candidate_whose_patch_applies(
    project: Project, proved: Outcome, tmp_path: Path
) -> None:
    proofs = [body for body in proved.proofs() if body.declaration not in CONDITIONAL]
    for number, proof in enumerate(proofs[::7]):
        outcome = check(project, proof, tmp_path / f"check{number}")
        assert outcome.returncode == 0, outcome.last
        (body,) = outcome.bodies
        assert isinstance(body, ProofChecked), body
        assert body.not_checked == ("compile", "axioms", "kernel")
        patch = (outcome.staging / body.patch.sha256).read_bytes()
        assert patch.startswith(b"A candidate for a proof of ")
        cost = b"Cost: 1.2 s, 3 states, 9 calls of Lean, 1000 tokens, $0.0125\n"
        assert b"Model: m-1 (weights sha256:0a1b)\nSeed: 7\n" + cost in patch
        file = tmp_path / f"{number}.patch"
        file.write_bytes(patch)
        git("apply", "--check", str(file), at=project.folder)


def test_a_proof_that_rests_on_a_sorry_is_refused_as_conditional(
    project: Project, proved: Outcome, tmp_path: Path
) -> None:
    (proof,) = [body for body in proved.proofs() if body.declaration in CONDITIONAL]
    (body,) = check(project, proof, tmp_path / "check").bodies
    assert isinstance(body, ProofRejected)
    assert body.conditional_on == ("Demo.mystery",)
    assert body.step == "axioms"


def altered(proof: ProofFound, replacement: str) -> ProofFound:
    return proof.model_copy(update={"replacement": replacement})


@pytest.mark.parametrize(
    ("replacement", "step"),
    [
        ("by exact sorryAx _ false", "text"),
        ("h\n\ntheorem more : True := trivial", "text"),
        ("id or_swap", "statement"),
    ],
)
def test_a_bad_proof_is_rejected_at_the_first_check_that_sees_it(
    project: Project, proved: Outcome, tmp_path: Path, replacement: str, step: str
) -> None:
    proof = next(body for body in proved.proofs() if body.declaration == "Demo.or_swap")
    data = (project.folder / proof.path).read_bytes()
    patched = data[: proof.byte_start] + replacement.encode() + data[proof.byte_end :]
    hashes = {one.name: one.text_hash for one in scan_source(patched, path=proof.path).declarations}
    bad = altered(proof, replacement).model_copy(update={"declaration_text_hash": hashes["Demo.or_swap"]})
    (body,) = check(project, bad, tmp_path / "check").bodies
    assert isinstance(body, ProofRejected), body
    assert body.step == step


def test_a_file_of_another_version_is_not_judged(project: Project, proved: Outcome, tmp_path: Path) -> None:
    proof = proved.proofs()[0].model_copy(update={"blob": "0" * 40})
    outcome = check(project, proof, tmp_path / "check")
    assert outcome.returncode == 1
    assert outcome.last["reason"] == "other_version"
    assert not outcome.bodies


def test_a_broken_file_fails_alone(jobs: JobProcesses, tmp_path: Path) -> None:
    project = Project(tmp_path / "demo", jobs)
    logic = project.folder / "Demo" / "Arithmetic.lean"
    logic.write_text(logic.read_text().replace(": dozen = 12 := rfl", ": dozen = 13 := rfl"))
    project.commit("break it")
    outcome = prove(project, tmp_path / "job")
    assert outcome.returncode == 0
    by_path = {item["sorry"]: item["path"] for item in project.sorries()}
    broken = [body for body in outcome.attempts() if by_path[body.sorry] == "Demo/Arithmetic.lean"]
    assert {body.outcome for body in broken} == {"error", "unsupported"}
    assert any("text before the declaration" in body.detail for body in broken)
    assert sum(body.outcome == "found" for body in outcome.attempts()) > 8


def test_without_lean_the_job_fails_and_says_so(project: Project, tmp_path: Path) -> None:
    nothing = find_leans(backend="none", repl="", sandbox="none").summary
    outcome = prove(project, tmp_path / "job", lean=nothing)
    assert outcome.returncode == 1
    assert outcome.last["reason"] == "no_lean"


def test_the_pool_s_bounds_are_the_job_s_to_set(project: Project, proved: Outcome, tmp_path: Path) -> None:
    limits = PoolLimits(processes=1, memory_bytes=1 << 30, calls=10)
    some = [item for item in project.sorries() if item["path"] == "Demo/Negation.lean"]
    outcome = prove(project, tmp_path / "job", sorries=some, limits=limits)
    paths = {body.path for body in outcome.proofs()}
    assert paths == {"Demo/Negation.lean"}
    assert {body.proof for body in outcome.proofs()} == {
        body.proof for body in proved.proofs() if body.path in paths
    }
    refused = prove(project, tmp_path / "refused", limits={"processes": 0})
    assert refused.last["reason"] == "bad_spec"


def test_a_spec_that_cannot_be_read_is_named(project: Project, tmp_path: Path) -> None:
    outcome = prove(project, tmp_path / "job", budget={})
    assert outcome.last["reason"] == "bad_spec"
    assert outcome.last["deterministic"] is True


def test_a_project_below_the_root_is_searched_and_its_patch_is_the_repository_s(
    jobs: JobProcesses, tmp_path: Path
) -> None:
    whole = Project(tmp_path / "whole", jobs)
    (whole.folder / "lean").mkdir()
    for one in whole.folder.iterdir():
        if one.name not in (".git", "lean"):
            one.rename(whole.folder / "lean" / one.name)
    whole.commit("moved")
    hard = FALSE | CLASSICAL | CONDITIONAL
    easy = (one for one in whole.sorries() if one["kind"] == "theorem" and one["declaration"] not in hard)
    wanted = [next(easy)]
    outcome = prove(whole, tmp_path / "prove", folder="lean", sorries=wanted)
    assert outcome.returncode == 0, outcome.last
    (found,) = outcome.proofs()
    assert found.path == wanted[0]["path"]
    assert found.path.startswith("lean/")
    parameters = {"worktree": str(whole.folder), "lean": simulator(), "proof": found, "folder": "lean"}
    judged = run_job(jobs, "check", parameters, tmp_path / "check")
    (verdict,) = judged.bodies
    assert isinstance(verdict, ProofChecked), verdict
    patch = (judged.staging / verdict.patch.sha256).read_text()
    assert f"+++ b/{found.path}\n" in patch
    git("apply", "--check", str(judged.staging / verdict.patch.sha256), at=whole.folder)

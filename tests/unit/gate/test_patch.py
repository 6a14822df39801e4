"""The patch file: real git takes it, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.gate.patch import PatchHeader, build_patch
from store.documents.grades import kernel_text
from store.events.proofs import Grade
from tests.support.daemon.remote import Remote, git


def header(*, verified: bool = False, grade: Grade = "L1", kernel: str = "") -> PatchHeader:
    return PatchHeader(
        sorry="aa",
        proof="bb",
        repository="github.com/demo/one",
        sha="0" * 40,
        declaration="Demo.t",
        prover="tactics, rung 0",
        toolchain="leanprover/lean4:v4.28.0",
        verified=verified,
        grade=grade,
        axioms=("propext",),
        not_checked=("kernel",),
        kernel=kernel,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return Remote(tmp_path / "repository").path


def applied(repository: Path, path: str, before: bytes, after: bytes) -> bytes:
    """Build the patch, let git apply it to a work tree with `before`, return what is there then."""
    file = repository / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(before)
    blobs = [git(repository, "hash-object", "--stdin", data=data) for data in (before, after)]
    patch = build_patch(header(), path=path, before=before, after=after, blobs=(blobs[0], blobs[1]))
    git(repository, "apply", "--check", "-", data=patch)
    git(repository, "apply", "-", data=patch)
    return file.read_bytes()


LONG = b"".join(b"line %d\n" % number for number in range(20))


@pytest.mark.parametrize("path", ["A.lean", "a folder/Ünïcode ℕ.lean", 'odd "name"\\.lean', "tab\tname.lean"])
def test_git_applies_it_whatever_the_path(repository: Path, path: str) -> None:
    after = LONG.replace(b"line 9\n", b"line nine\nand more\n")
    assert applied(repository, path, LONG, after) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"sorry", b"rfl"),
        (b"a\nsorry", b"a\nrfl\nmore"),
        (b"a\nsorry\n", b"a\nrfl\n"),
        (b"a\r\n  sorry\r\nb\r\n", b"a\r\n  intro h\r\n  exact h\r\nb\r\n"),
        (b"a\r\nsorry", b"a\r\nrfl"),
        (b"sorry\n" + LONG, b"rfl\n" + LONG),
        (LONG + b"sorry\n", LONG + b"rfl\n"),
        ("é ⟨sorry⟩\n".encode(), "é ⟨(by rfl)⟩\n".encode()),
        (b"a\n\x0csorry\x0b\n", b"a\n\x0crfl\x0b\n"),
        (b"b\rsorry\rb\n", b"b\rrfl\rb\n"),
        (b"-- a\n--- b\nsorry\n", b"-- a\n--- b\nrfl\n"),
    ],
)
def test_bytes_are_exact(repository: Path, before: bytes, after: bytes) -> None:
    assert applied(repository, "A.lean", before, after) == after


@given(
    head=st.binary(max_size=40).filter(lambda data: b"\0" not in data),
    tail=st.binary(max_size=40).filter(lambda data: b"\0" not in data),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_comes_out_as_meant(repository: Path, head: bytes, tail: bytes) -> None:
    after = head + b"exact h\n  done" + tail
    assert applied(repository, "A.lean", head + b"sorry" + tail, after) == after


def test_a_patch_shows_its_evidence() -> None:
    patch = build_patch(header(), path="A.lean", before=b"a\n", after=b"b\n", blobs=("1", "2"))
    text = patch[: patch.index(b"\ndiff --git a/A.lean")].decode()
    for part in ("Demo.t", "Not checked: kernel", "0" * 40, "v4.28.0", "\nEverlean-Proof: bb\n"):
        assert part in text


def test_no_line_of_a_patch_s_header_has_a_character_that_a_terminal_acts_on() -> None:
    evidence = "\x1b[2Jclear \u202edeifirev"
    lines = replace(header(), declaration=f"Demo.{evidence}", prover=evidence).lines()
    assert all(line.isprintable() for line in lines)
    assert sum("�[2Jclear �deifirev" in line for line in lines) == 3


@pytest.mark.parametrize(
    ("verified", "grade", "said", "graded"),
    [
        (True, "L1", "and verified by Lean", "kernel replayed all"),
        (True, "L2", "and verified by Lean, and by all kernels that come with it", "all kernels of its Lean"),
        (True, "L0", "accepted by Lean; no kernel replayed all", "L0: no kernel replayed all"),
        (False, "L0", "it is not verified", None),
    ],
)
def test_the_first_line_says_whether_it_was_verified_and_by_which_grade(
    verified: bool, grade: Grade, said: str, graded: str | None
) -> None:
    patch = build_patch(
        header(verified=verified, grade=grade), path="A.lean", before=b"a\n", after=b"b\n", blobs=("1", "2")
    ).decode()
    first = patch.splitlines()[0]
    assert said in first
    assert first.startswith("A proof of" if verified else "A candidate for")
    assert ("verified" in first) is (not verified or grade != "L0")
    second = header(verified=True, grade=grade, kernel="leanchecker, nanoda_bin 0.4.10")
    assert "Grade: " + kernel_text(grade, second.kernel) in second.lines()
    assert kernel_text(grade, second.kernel).endswith(", by leanchecker, nanoda_bin 0.4.10")
    grades = [line for line in patch.splitlines() if line.startswith("Grade: ")]
    assert len(grades) == (graded is not None)
    assert all(graded in line and line.endswith("no second kernel") for line in grades if graded)


def test_evidence_cannot_pass_for_a_part_of_the_diff() -> None:
    patch = build_patch(header(), path="A.lean", before=b"a\n", after=b"b\n", blobs=("1", "2"))
    assert sum(line.startswith(b"diff --git") for line in patch.splitlines()) == 1

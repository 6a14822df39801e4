"""`everlean proofs`: of each sorry the best proof that fits the tip; of one proof, what found and what judged it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from store.events.base import EventBody
from store.events.proofs import (
    AttemptFinished,
    CheckedVersion,
    LeanStatement,
    Material,
    ProofFound,
    ProofRejected,
    ProofVerified,
)
from store.events.repositories import BranchDeleted
from store.events.scans import FileRemoved, FileScanned, SorryFilled, SorryRemoved
from tests.support.events import ALL_PASSED, closure_judged
from tests.support.state_folder import (
    BLOB,
    CANDIDATE,
    OTHER_SORRY,
    PATCH,
    PROOF,
    REPOSITORY,
    SORRY,
    TIP,
    StateFolder,
)

HERE: dict[str, Any] = {"repository": REPOSITORY, "branch": "main", "sha": TIP}
SECOND = "e0" * 8


def found(proof: str = SECOND, **changes: Any) -> ProofFound:
    body = ProofFound(
        **HERE, proof=proof, sorry=SORRY, path="Demo.lean", blob=BLOB, byte_start=10, byte_end=15,
        declaration="Demo.alpha", declaration_text_hash="1" * 16, replacement="by decide", parts=(),
        tactics=("decide",), prover="generator", rung=2, toolchain="v4.21.0", job="prove-second",
    )  # fmt: skip
    return body.model_copy(update=changes)


def verified(folder: StateFolder, proof: str = SECOND, **changes: Any) -> ProofVerified:
    body = ProofVerified(
        proof=proof, sorry=SORRY, checks=ALL_PASSED, not_checked=(), axioms=(), grade="L1",
        kernel="leanchecker", version=CheckedVersion(sha=TIP, blob=BLOB, byte_start=10),
        patch=folder.blob(PATCH.encode()), job="check-second", toolchain="v4.21.0", material=None,
    )  # fmt: skip
    return body.model_copy(update=changes)


def tell(folder: StateFolder, *bodies: EventBody) -> None:
    for body in bodies:
        proof = getattr(body, "proof", None)
        folder.add(f"proof:{proof}" if proof else f"repository:{REPOSITORY}", body)
    folder.write()


def test_verified_proofs_are_listed_by_what_they_rest_on_and_who_vouches(filled: StateFolder) -> None:
    kernels = "leanchecker of v4.21.0, nanoda_bin 0.3.1"
    one = found(sorry=OTHER_SORRY)
    rests = filled.blob(
        b'{"Base":["Base.swap","Base.half","_private.Base.0.Base.own"],"Init.Core":["propext"]}'
    )
    judged = closure_judged(one).model_copy(update={"rests_on": rests, "job": "check-second"})
    tell(filled, one, verified(filled, kernel=kernels, sorry=OTHER_SORRY), judged)

    def listed(name: str) -> list[str]:
        answer = filled.everlean("proofs", "--all", "--json", "--rests-on", name)
        return [proof["proof"] for proof in answer.json["proofs"]]

    for name in ("Base.swap", "Base.own", "Base", "propext", "nanoda_bin 0.3.1"):
        assert listed(name) == [SECOND]
    for name in ("swap", "own", "Base.hal", "nanoda_bin", "Base.swap,"):
        assert listed(name) == []
    assert set(listed("v4.21.0")) == {PROOF, SECOND}
    # Of the other one nobody recorded it, and that is said.
    assert (
        "what 1 other verified one rests on was not recorded"
        in filled.everlean("proofs", "--rests-on", "Base").out
    )


def test_a_sorry_and_its_proof_show_lean_s_statement_and_what_its_header_lacks(filled: StateFolder) -> None:
    lean = LeanStatement(
        name="Demo.alpha", type="∀ (hyp : False), A", whole=True, sha256="a" * 64, not_in_header=("(hyp : False)",),
        below=(), more=0,
    )  # fmt: skip
    material = Material(
        statement=": A", lean=lean, statement_sha256="b" * 64, file_sha256="c" * 64, inputs=(), modules=0,
        modules_sha256="d" * 64,
    )  # fmt: skip
    tell(filled, verified(filled, PROOF, material=material))
    for words in (("proofs", "show", PROOF), ("sorries", "show", SORRY)):
        text = " ".join(filled.everlean(*words).out.split())
        assert "Lean's statement Demo.alpha : ∀ (hyp : False), A not in its header (hyp : False)" in text, (
            words
        )


def listed(folder: StateFolder, *options: str) -> list[str]:
    return [row["proof"] for row in folder.everlean("proofs", *options, "--json").json["proofs"]]


def changed_file(folder: StateFolder) -> FileScanned:
    scan = folder.blob(
        b'{"path": "Demo.lean", "error": null, "imports": [], "declarations": [], "sorries": []}'
    )
    return FileScanned(
        **HERE, path="Demo.lean", blob="c" * 40, error=None, n_declarations=0, n_sorries=0, exercise_words=0,
        declarations_taken=None, sorries_taken=None, marked=(), scan=scan,
    )  # fmt: skip


def test_a_sorry_has_one_row_its_best_proof(filled: StateFolder) -> None:
    assert listed(filled) == [PROOF, CANDIDATE]
    tell(filled, found())
    assert listed(filled) == [PROOF, CANDIDATE], "a candidate does not surpass what is verified"
    tell(filled, verified(filled))
    assert listed(filled) == [CANDIDATE, SECOND], "a kernel replayed it"
    assert listed(filled, "--all") == [PROOF, CANDIDATE, SECOND]
    said = filled.everlean("proofs").out
    assert said.splitlines()[-1].endswith(
        "; not shown: 0 stale, 1 that others of their sorry surpass (--all)"
    )
    assert "not shown" not in filled.everlean("proofs", "--all").out


def test_a_filter_comes_before_the_choice(filled: StateFolder) -> None:
    tell(filled, found())
    assert listed(filled, "--state", "candidate") == [CANDIDATE, SECOND]
    assert listed(filled, "--sorry", SORRY) == [PROOF]
    assert listed(filled, "--sorry", SORRY, "--all") == [PROOF, SECOND]


def test_a_sorry_is_named_by_the_beginning_of_its_id_and_one_that_is_not_there_is_an_error(
    filled: StateFolder,
) -> None:
    assert listed(filled, "--sorry", SORRY[:8]) == [PROOF]
    none = filled.everlean("proofs", "--sorry", "zz")
    assert (none.code, none.out) == (1, "")
    assert 'no sorry has an id that starts with "zz"' in none.err


def test_a_proof_with_a_patch_shows_the_lines_that_it_changes_and_one_without_shows_its_text(
    filled: StateFolder,
) -> None:
    tell(filled, found(replacement="constructor\n  · simp"))
    shown = filled.everlean("proofs", "show", SECOND).out
    assert "replacement\n  constructor\n    · simp\n" in shown
    hunk = PATCH[PATCH.index("@@") :].split("\n", 1)[1]
    shown = filled.everlean("proofs", "show", PROOF).out
    assert "change\n" + "".join(f"  {line}\n" for line in hunk.splitlines()) in shown
    assert "replacement" not in shown


STALE: dict[str, Callable[[StateFolder], EventBody]] = {
    "its file changed": changed_file,
    "its file is gone": lambda _folder: FileRemoved(**HERE, path="Demo.lean"),
    "its sorry is filled": lambda _folder: SorryFilled(**HERE, sorry=SORRY, by="people", proof=None),
    "its sorry is gone": lambda _folder: SorryRemoved(**HERE, sorry=SORRY),
    "its branch is not followed any more": lambda _folder: BranchDeleted(
        repository=REPOSITORY, branch="main", last=TIP
    ),
}


@pytest.mark.parametrize("reason", STALE)
def test_a_stale_proof_is_left_out_and_marked_with_its_reason_where_all_are_listed(
    reason: str, filled: StateFolder
) -> None:
    tell(filled, STALE[reason](filled))
    assert PROOF not in listed(filled)
    (row,) = (
        row for row in filled.everlean("proofs", "--all", "--json").json["proofs"] if row["proof"] == PROOF
    )
    assert row["stale"] == reason
    (line,) = (line for line in filled.everlean("proofs", "--all").out.splitlines() if PROOF[:8] in line)
    assert f"stale: {reason}" in line
    shown = filled.everlean("proofs", "show", PROOF)
    assert reason in shown.out.split(" stale ")[1]
    assert f"everlean: stale, {reason}" in filled.everlean("proofs", "patch", PROOF).err
    (proof,) = filled.everlean("sorries", "show", SORRY, "--json").json["proofs"]
    assert proof["stale"] == reason


def test_where_all_are_stale_the_list_says_so(filled: StateFolder) -> None:
    tell(filled, changed_file(filled))
    assert filled.everlean("proofs").out == (
        "0 proofs; not shown: 2 stale, 0 that others of their sorry surpass (--all)\n"
    )


def test_a_proof_that_was_checked_again_on_the_changed_file_fits(filled: StateFolder) -> None:
    again = CheckedVersion(sha="c" * 40, blob="c" * 40, byte_start=12)
    tell(filled, changed_file(filled), verified(filled, PROOF, version=again))
    assert listed(filled) == [PROOF]
    assert "the tip of main" in filled.everlean("proofs", "show", PROOF).out
    assert "stale" not in filled.everlean("proofs", "patch", PROOF).err


def test_a_text_that_fills_two_sorries_of_a_declaration_is_one_row(filled: StateFolder) -> None:
    tell(filled, found(), verified(filled))
    twin = found("e1" * 8, sorry=OTHER_SORRY)
    tell(filled, twin, verified(filled, twin.proof, sorry=OTHER_SORRY))
    assert listed(filled) == [SECOND, twin.proof]
    lines = filled.everlean("proofs").out.splitlines()
    (line,) = (line for line in lines if "by decide" in line)
    assert SECOND[:8] in line
    assert "Demo.alpha (2 sorries)" in line


def test_what_found_a_proof_and_what_judged_it_are_named_apart(filled: StateFolder) -> None:
    attempt = AttemptFinished(
        **HERE, sorry=SORRY, blob=BLOB, prover="generator", rung=2, model="tactics-3", seed=0, budget="b",
        outcome="found", detail=f"by the tactics of proof {PROOF}", best="", goals_left=0, nodes=1, repl_calls=1,
        seconds=0.1, prompt_tokens=0, completion_tokens=0, usd=None, tree=None, job="prove-second",
    )  # fmt: skip
    tell(filled, found(), attempt, verified(filled))
    shown = filled.everlean("proofs", "show", SECOND).out
    text = " ".join(shown.split())
    for fact in (
        "found by generator, rung 2, with v4.21.0",
        "model tactics-3",
        f"how by the tactics of proof {PROOF}",
        "found in prove-second",
        "checked in check-second",
    ):
        assert fact in text
    document = filled.everlean("proofs", "show", SECOND, "--json").json["proof"]
    assert (document["job"], document["checked_job"], document["stale"]) == (
        "prove-second",
        "check-second",
        None,
    )


def test_why_a_sorry_with_a_proof_was_searched_again_is_said(filled: StateFolder) -> None:
    assert "found again" not in filled.everlean("proofs", "show", PROOF).out
    tell(filled, found(blob="c" * 40))
    assert (
        f"found again after proof {PROOF}: Demo.lean changed, and a proof is of one version of a file"
        in " ".join(filled.everlean("proofs", "show", SECOND).out.split())
    )
    third = found("e2" * 8, blob="c" * 40, replacement="by omega")
    rejected = ProofRejected(
        proof=SECOND,
        sorry=SORRY,
        step="compile",
        reason="no",
        checks=(),
        conditional_on=(),
        job="c",
    )
    tell(filled, rejected, third)
    assert f"after proof {SECOND}, which is rejected, for the same version of the file" in " ".join(
        filled.everlean("proofs", "show", third.proof).out.split()
    )

"""`everlean theorems`: what stands, and what each theorem was before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from store.domain.identity import theorem_id
from store.domain.life import TheoremAfter, TheoremBefore, TheoremStep, counted
from store.domain.records import ConstantUse, TracedFile, TracedTheorem
from store.events.scans import TheoremsFollowed
from tests.support.state_folder import OTHER_SORRY, REPOSITORY, record_traced, scan

NEXT, LAST = "c" * 40, "e" * 40
ALPHA = theorem_id(REPOSITORY, "Demo.alpha", "0" * 16)
BETA = theorem_id(REPOSITORY, "Demo.beta", f"{1:016x}")


def follow(folder: Any, sha: str, *steps: TheoremStep) -> None:
    payload = json.dumps([step.as_json() for step in steps]).encode()
    folder.add(
        f"repository:{REPOSITORY}",
        TheoremsFollowed(
            repository=REPOSITORY,
            branch="main",
            sha=sha,
            baseline=False,
            unread=(),
            counts=counted(steps),
            steps=folder.blob(payload),
        ),
    )
    folder.write()


ALPHA_BEFORE = TheoremBefore("Demo.alpha", "theorem", "Demo.lean", "0" * 16, "0" * 16)
BETA_BEFORE = TheoremBefore("Demo.beta", "theorem", "Demo.lean", f"{1:016x}", f"{1:016x}")
OMEGA = TheoremAfter("Demo.omega", "lemma", "New.lean", ": omega = omega", "0" * 16, "4" * 16, 1)
RESTATED = TheoremAfter("Demo.omega", "lemma", "New.lean", ": True\x1b[31m", "5" * 16, "6" * 16, 0)
OMEGA_BEFORE = TheoremBefore("Demo.omega", "lemma", "New.lean", "0" * 16, "4" * 16)


@pytest.fixture
def grown(filled: Any) -> Any:
    """Alpha was renamed and moved, then restated; beta was deleted."""
    follow(
        filled,
        NEXT,
        TheoremStep(("renamed", "file_moved", "reproved"), ALPHA_BEFORE, OMEGA),
        TheoremStep(("deleted",), BETA_BEFORE, None),
    )
    follow(filled, LAST, TheoremStep(("restated",), OMEGA_BEFORE, RESTATED))
    return filled


def test_a_theorem_is_shown_with_its_place_and_its_history(filled: Any) -> None:
    document = filled.everlean("theorems", "show", "Demo.alpha", "--json").json
    (branch,) = document["branches"]
    assert (document["theorem"], branch["theorem"], branch["state"]) == (ALPHA, ALPHA, "present")
    assert (branch["place"]["path"], branch["place"]["line"]) == ("Demo.lean", 1)
    (version,) = branch["history"]
    assert (version["steps"], version["name"], version["sha"]) == (["appeared"], "Demo.alpha", "a" * 40)


def test_the_whole_history_is_shown_under_every_name_that_the_theorem_had(grown: Any) -> None:
    for asked in (
        "Demo.omega",
        "Demo.alpha",
        ALPHA,
        ALPHA[:7],
        theorem_id(REPOSITORY, "Demo.omega", "5" * 16),
        "omega",
    ):
        document = grown.everlean("theorems", "show", asked, "--json").json
        (branch,) = document["branches"]
        assert document["theorem"] == ALPHA, asked
    assert [version["steps"] for version in branch["history"]] == [
        ["appeared"],
        ["renamed", "file_moved", "reproved"],
        ["restated"],
    ]
    assert branch["place"] is None, "no scan has told where it stands"
    said = grown.everlean("theorems", "show", "Demo.omega").out
    for line in (
        "Demo.alpha -> Demo.omega",
        "Demo.lean -> New.lean",
        "sorries: 0 -> 1",
        "renamed, file_moved, reproved",
        NEXT[:10],
    ):
        assert line in said
    assert "- : omega = omega\n    + : True\ufffd[31m\n" in said, (
        "control characters never reach the terminal"
    )


def test_a_deleted_theorem_is_shown_with_where_it_was(grown: Any) -> None:
    document = grown.everlean("theorems", "show", BETA, "--json").json
    (branch,) = document["branches"]
    assert (branch["state"], branch["place"], branch["statement"]) == ("deleted", None, ": beta = beta")
    assert "was in Demo.lean" in grown.everlean("theorems", "show", "Demo.beta").out


def test_a_theorem_that_is_a_lemma_now_is_shown_as_one(filled: Any) -> None:
    assert "theorem Demo.alpha" in filled.everlean("theorems", "show", "Demo.alpha").out
    scan(filled, ["alpha", "beta"], kind="lemma")
    filled.write()
    said = filled.everlean("theorems", "show", "Demo.alpha").out
    assert "lemma Demo.alpha" in said
    assert said.count("appeared") == 1, "it is no step of its life"


def test_the_life_as_of_an_earlier_event_is_the_one_known_then(grown: Any) -> None:
    history = grown.everlean("theorems", "show", "Demo.omega", "--json").json["branches"][0]["history"]
    then = str(history[1]["seq"])
    (branch,) = grown.everlean("theorems", "show", ALPHA, "--as-of", then, "--json").json["branches"]
    assert (branch["name"], branch["versions"], len(branch["history"])) == ("Demo.omega", 2, 2)


def test_what_is_not_known_or_not_clear_is_an_error_with_its_remedy(grown: Any) -> None:
    nothing = grown.everlean("theorems", "show", "Demo.nothing")
    assert nothing.code == 1
    assert "`everlean theorems` lists them" in nothing.err
    scan(grown, ["gamma"], path="Gamma.lean")
    grown.write()
    unfollowed = grown.everlean("theorems", "show", "Demo.gamma")
    assert unfollowed.code == 1
    assert "not followed yet" in unfollowed.err
    twins = [
        TheoremAfter("Demo.twin", "theorem", path, ": True", "8" * 16, "9" * 16, 0)
        for path in ("A.lean", "B.lean")
    ]
    follow(grown, "f" * 40, *(TheoremStep(("appeared",), None, twin) for twin in twins))
    unclear = grown.everlean("theorems", "show", "Demo.twin")
    assert unclear.code == 1
    assert "name one by its id" in unclear.err
    assert "A.lean" in unclear.err
    assert "B.lean" in unclear.err


def test_what_states_the_same_is_told_of_a_sorry_and_of_a_theorem(filled: Any) -> None:
    symm = ConstantUse("Eq.symm", (".lake/packages/lean4/src/lean/Init/Core.lean", (1, 1), (1, 8)))
    theorems = tuple(
        TracedTheorem(name, "", (line, 1), (line, 9), (), sorry=sorry, type=name, alike=(symm,))
        for line, (name, sorry) in enumerate({"Demo.alpha": False, "Demo.beta": True}.items(), 1)
    )
    record_traced(filled, [TracedFile("Demo.lean", (), (), theorems)], repository=REPOSITORY)
    where = "Eq.symm in .lake/packages/lean4/src/lean/Init/Core.lean"
    (row,) = filled.everlean("theorems", "upstream", "--json").json["theorems"]
    assert (row["name"], row["upstream"], row["line"]) == ("Demo.alpha", "Eq.symm", 1)
    assert "Demo.alpha" in filled.everlean("theorems", "upstream").out
    assert f"upstream too  {where}" in filled.everlean("theorems", "show", "Demo.alpha").out
    assert f"proved too as  {where}" in filled.everlean("sorries", "show", OTHER_SORRY).out

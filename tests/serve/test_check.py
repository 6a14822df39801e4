"""POST /check over a real socket: the daemon's gate in a process of its own, on a commit of a real mirror; without
Lean, and on one that says yes to everything. With Lean itself: `test_on_lean.py`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs import child
from pipeline.lean.source.scanner import scan_source
from pipeline.serve.checkouts import known_sorry
from pipeline.serve.schemas import Problem
from store.domain.identity import sorry_id
from store.events.scans import SorryFilled
from tests.support.events import BRANCH, REPOSITORY
from tests.support.lean.credulous import TOOLCHAIN, Credulous, Rule
from tests.support.serve import Served, World, credulous_elan, post, streamed

SOURCE = """namespace Demo

theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by
  sorry

theorem same (p : Prop) : p → p := by
  sorry

end Demo
"""
FILES = {"Demo/A.lean": SOURCE, "lakefile.toml": 'name = "demo"\n', "lean-toolchain": f"{TOOLCHAIN}\n"}
SWAP = "exact ⟨h.2, h.1⟩"
TOKEN = "so-that-lean-may-run-without-a-sandbox"
SCANNED = scan_source(SOURCE.encode(), path="Demo/A.lean")
SAME = sorry_id(REPOSITORY, "Demo.same", SCANNED.declarations[1].statement_hash, 0)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"), FILES)


@pytest.fixture(scope="module")
def served(world: World) -> Iterator[Served]:
    with Served(world.spec()) as it:
        yield it


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Credulous]:
    folder, tools = credulous_elan(tmp_path_factory.mktemp("elan"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELAN_HOME", str(folder))
        yield tools


@pytest.fixture(scope="module")
def lean(tools: Credulous, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose Lean says yes to everything: what is refused there the gate refuses."""
    world = World(tmp_path_factory.mktemp("lean"), FILES)
    spec = world.spec(lean="auto")
    feed = tmp_path_factory.mktemp("feed") / "advisories.toml"
    feed.write_text(
        '[[advisory]]\nid = "lean4#1"\npublished = 2027-01-01\ntitle = "t"\nsource = "s"\nfixed.lean = []\n',
        "utf-8",
    )
    spec = replace(spec, lean=replace(spec.lean, advisories=str(feed)))
    with Served(spec, token=TOKEN) as it:
        yield it


def check(served: Served, proof: str, **more: Any) -> Any:
    """Ask about the first theorem of the file, unless `more` says otherwise."""
    body = {
        "repository": REPOSITORY,
        "path": "Demo/A.lean",
        "sorry": {"declaration": "Demo.swap"},
        "proof": proof,
    }
    status, answer = post(served.port, "/check", body | more, token=TOKEN)
    assert status == 200, answer
    return answer


def refused(served: Served, **more: Any) -> tuple[int, Any]:
    return post(
        served.port, "/check", {"repository": REPOSITORY, "path": "Demo/A.lean", "proof": "rfl"} | more
    )


def test_what_not_all_could_be_judged_of_is_unknown_and_says_so(served: Served, world: World) -> None:
    before = world.position()
    answer = check(served, SWAP)
    assert answer["verdict"] == "unknown"
    assert "no Lean judged it" in answer["reason"]
    passed = {one["step"] for one in answer["findings"] if one["verdict"] == "passed"}
    assert passed == {"text", "shape", "statement"}
    assert answer["not_checked"] == ["compile", "axioms", "kernel"]
    assert answer["axioms"] == []
    assert (answer["commit"], answer["file"], answer["branch"]) == (world.sha, "commit", "main")
    assert "nothing of it is recorded" in answer["advisory"]
    assert world.position() == before, "and nothing is"
    assert list((world.folder / "scratch").iterdir()) == [], "nor left on the disk"


@pytest.mark.parametrize(
    ("trap", "step"),
    [
        ("exact sorryAx _", "text"),
        pytest.param("exact (by native_decide)", "text", marks=pytest.mark.slow),
        pytest.param("trivial\n\naxiom cheat : False", "text", marks=pytest.mark.slow),
    ],
)
def test_traps_are_rejected_where_lean_itself_says_yes(lean: Served, trap: str, step: str) -> None:
    answer = check(lean, trap)
    assert answer["verdict"] == "rejected"
    assert [one["step"] for one in answer["findings"] if one["verdict"] == "failed"] == [step]
    assert answer["axioms"] == []


def test_what_passes_every_check_of_lean_s_is_accepted(lean: Served, tools: Credulous) -> None:
    tools.believe(Rule("", axioms=("propext",)))
    answer = check(lean, SWAP)
    assert answer["verdict"] == "accepted", answer
    assert (answer["axioms"], answer["toolchain"]) == (["propext"], TOOLCHAIN)
    assert (answer["grade"], answer["kernel"]) == ("L1", "leanchecker of v4.34.1")
    assert (answer["reason"], answer["remedy"]) == ("", "")
    assert answer["in_doubt"] == "IN DOUBT: lean4#1"
    assert answer["sorry"]["line"] == 4


@pytest.mark.slow
def test_a_proof_that_rests_on_sorry_is_conditional_and_rejected(lean: Served, tools: Credulous) -> None:
    tools.believe(Rule("h\\.2", axioms=("sorryAx",), sorried=("Demo.lemma",)))
    answer = check(lean, SWAP)
    assert (answer["verdict"], answer["conditional_on"]) == ("rejected", ["Demo.lemma"])
    assert answer["axioms"] == []


def test_a_file_that_is_not_committed_is_judged_as_it_was_sent(served: Served) -> None:
    text = "theorem fresh : True := by\n  sorry\n"
    answer = check(served, "trivial", path="Demo/New.lean", text=text, sorry={"line": 2, "column": 5})
    assert (answer["verdict"], answer["file"], answer["path"]) == ("unknown", "sent", "Demo/New.lean")
    assert answer["sorry"]["declaration"] == "fresh"


def test_a_sorry_may_be_named_by_its_id_alone(served: Served) -> None:
    body = {"repository": REPOSITORY, "proof": "exact sorryAx _", "sorry": {"id": SAME}}
    status, answer = post(served.port, "/check", body)
    assert (status, answer["verdict"], answer["path"]) == (200, "rejected", "Demo/A.lean")
    assert answer["sorry"] == {
        "id": SAME,
        "declaration": "Demo.same",
        "ordinal": 0,
        "line": 7,
        "column": 3,
        "byte_start": 123,
        "byte_end": 128,
    }


PAIR = "theorem pair : True ∧ True := by\n  constructor\n  · exact (sorry)\n  · exact (sorry)\n"


def pair(served: Served, first: str, second: str, *, place: Any) -> tuple[int, Any]:
    body = {
        "repository": REPOSITORY,
        "path": "Demo/Pair.lean",
        "text": PAIR + "theorem one : True := sorry\n",
        "sorry": {"declaration": "pair", "ordinal": 0},
        "proof": first,
        "others": [{"sorry": place, "proof": second}],
    }
    return post(served.port, "/check", body)


def test_several_sorries_of_a_declaration_are_judged_as_one_text(served: Served) -> None:
    second = {"declaration": "pair", "ordinal": 1}
    status, answer = pair(served, "True.intro", "True.intro", place=second)
    assert (status, answer["verdict"], answer["conditional_on"]) == (200, "unknown", []), answer
    passed = {one["step"] for one in answer["findings"] if one["verdict"] == "passed"}
    assert passed == {"text", "shape", "statement"}
    assert [one["sorry"]["line"] for one in answer["others"]] == [4]
    assert answer["sorry"]["line"] == 3
    assert answer["others"][0]["proof"] != answer["proof"]
    _, trap = pair(served, "True.intro", "by admit", place=second)
    assert trap["verdict"] == "rejected"
    assert trap["reason"].startswith("the text for the sorry in line 4, column 12: the word admit")
    for place, word in (({"declaration": "one"}, "other_declaration"), ({"line": 3}, "filled_twice")):
        status, refused = pair(served, "True.intro", "True.intro", place=place)
        assert (status, refused["error"]) == (422, word)
    many = {
        "repository": REPOSITORY,
        "path": "Demo/Pair.lean",
        "text": "theorem pair : True := by\n" + "  · exact (sorry)\n" * 90,
        "sorry": {"ordinal": 0},
        "proof": "a" * 100_000,
        "others": [{"sorry": {"ordinal": at}, "proof": "b"} for at in range(1, 90)],
    }
    status, refused = post(served.port, "/check", many)
    assert (status, refused["error"]) == (422, "too_large_together"), refused


def test_a_theorem_stated_otherwise_is_not_the_sorry_of_that_name(served: Served, lean: Served) -> None:
    other = {"text": SOURCE.replace("same (p : Prop) : p → p", "same : True"), "proof": "trivial"}
    status, answer = refused(served, **other, sorry={"id": SAME})
    assert (status, answer["error"]) == (409, "other_statement"), answer
    assert check(served, **other, sorry={"declaration": "Demo.same"})["sorry"]["id"] != SAME
    fill = {"repository": REPOSITORY, "path": "Demo/A.lean", "text": other["text"], "sorry": {"id": SAME}}
    with streamed(lean.port, "/fill", fill, token=TOKEN) as events:
        assert [data["error"] for name, data in events if name == "error"] == ["other_statement"]


def test_a_sorry_is_known_where_it_stands_open_and_nowhere_else(tmp_path: Path) -> None:
    world, view = World(tmp_path, FILES), tmp_path / "database.db"

    def known(branch: str | None) -> str:
        return known_sorry(view, repository=REPOSITORY, sorry=SAME, branch=branch).declaration

    assert (known(BRANCH), known(None)) == ("Demo.same", "Demo.same")
    with pytest.raises(Problem, match=r"branch other of .* has no sorry"):
        known("other")
    world.record(
        SorryFilled(repository=REPOSITORY, branch=BRANCH, sha=world.sha, sorry=SAME, by="people", proof=None)
    )
    for branch in (BRANCH, None):
        with pytest.raises(Problem, match=r"has no sorry .* that is open"):
            known(branch)


def test_a_commit_that_is_not_the_newest_of_a_branch_is_said_to_be_of_none(
    served: Served, world: World
) -> None:
    stray = world.stray_commit()
    answer = check(served, "exact sorryAx _", commit=stray, branch=BRANCH)
    assert (answer["commit"], answer["branch"]) == (stray, "")
    assert check(served, "exact sorryAx _", commit=world.sha)["branch"] == BRANCH


def test_a_job_that_takes_more_memory_than_it_may_ends_without_a_verdict(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fork has most of its memory from the process before it, and may be done before it is looked at.
    monkeypatch.setattr(child, "subprocess", subprocess)
    spec = world.spec()
    lean = replace(spec.lean, memory_bytes=2**24, scratch=world.folder / "small" / "scratch")
    with Served(replace(spec, lean=lean)) as it:
        answer = check(it, SWAP)
    assert (answer["verdict"], answer["findings"]) == ("unknown", [])


def test_a_build_that_is_missing_is_unknown_and_a_trap_is_one_all_the_same(
    tools: Credulous, tmp_path: Path
) -> None:
    world = World(tmp_path, FILES)
    spec = world.spec(lean="auto", built=True)
    with Served(spec, token=TOKEN) as it:
        answer = check(it, SWAP)
        assert answer["verdict"] == "unknown"
        assert "no build" in answer["reason"]
        assert answer["remedy"]
        assert {one["step"] for one in answer["findings"] if one["verdict"] == "passed"} == {
            "text",
            "shape",
            "statement",
        }
        assert check(it, "exact sorryAx _", sorry={"line": 4})["verdict"] == "rejected"
        file = {"repository": REPOSITORY, "path": "Demo/A.lean"}
        with streamed(it.port, "/fill", file, token=TOKEN) as events:
            (_, failed), (_, summary) = events
        assert (failed["error"], summary["ended"]) == ("no_lean", "failed"), "there is nothing to search with"
        assert "no build" in failed["reason"]


def test_nothing_that_a_client_chose_is_run_without_a_sandbox_for_whoever_reaches_the_port(
    tools: Credulous, tmp_path: Path
) -> None:
    world = World(tmp_path, FILES)
    asked = {"repository": REPOSITORY, "path": "Demo/A.lean", "rungs": [4]}
    text, stray = {"text": "#eval 1\ntheorem t : True := sorry\n"}, {"commit": world.stray_commit()}
    with Served(world.spec(lean="auto")) as it:
        status, answer = refused(it, sorry={"line": 4})
        assert (status, answer["error"]) == (403, "no_sandbox")
        assert "the proof of a request" in answer["reason"]
        told = []
        for more in (text, stray, {}, {"commit": world.sha}):
            with streamed(it.port, "/fill", asked | more) as events:
                told.append([data.get("error", "") for name, data in events if name in ("error", "begun")])
    assert told == [["no_sandbox"], ["no_sandbox"], [""], [""]]


@pytest.mark.parametrize(
    "path",
    [
        "../outside.lean",
        "/etc/passwd.lean",
        "Demo/../../x.lean",
        ".lake/packages/mathlib/M.lean",
        "Demo//A.lean",
        "Demo/A.txt",
        "lakefile.lean",
        "a" * 300 + ".lean",
    ],
)
@pytest.mark.parametrize("text", [None, "theorem t : True := by\n  sorry\n"])
def test_no_path_leads_out_of_the_worktree(served: Served, world: World, path: str, text: str | None) -> None:
    before = {one for one in world.folder.rglob("*") if "scratch" not in one.parts}
    status, answer = refused(served, path=path, text=text)
    assert (status, answer["error"]) == (422, "bad_path")
    assert {one for one in world.folder.rglob("*") if "scratch" not in one.parts} == before


@pytest.mark.parametrize(
    ("changes", "status", "word"),
    [
        ({"repository": "example.org/no/such"}, 404, "unknown_repository"),
        ({"branch": "no-such"}, 404, "unknown_branch"),
        ({"commit": "0" * 40}, 404, "unknown_commit"),
        ({"commit": "HEAD"}, 422, "invalid_request"),
        ({"path": "Demo/None.lean"}, 404, "unknown_file"),
        ({"path": None}, 422, "no_path"),
        ({"sorry": None}, 409, "which_sorry"),
        ({"sorry": {"line": 1}}, 404, "no_such_sorry"),
        ({"sorry": {"id": "0" * 16}}, 404, "unknown_sorry"),
        ({"text": "theorem t : True := trivial\n"}, 404, "no_such_sorry"),
        ({"path": "Demo/A.lean/B.lean", "text": "example : True := sorry\n"}, 422, "bad_path"),
        ({"proof": ""}, 422, "invalid_request"),
        ({"unknown": 1}, 422, "invalid_request"),
    ],
)
def test_what_cannot_be_judged_is_told_with_a_remedy(
    served: Served, changes: dict[str, Any], status: int, word: str
) -> None:
    found, answer = refused(served, **changes)
    assert (found, answer["error"]) == (status, word), answer
    assert answer["remedy"]
    assert answer["reason"] in answer["detail"]

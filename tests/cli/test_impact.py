"""`unsorry sorries --by impact`: the sorries on which most rests come first, and unknown is said."""

from __future__ import annotations

import pytest

from store.domain.records import ConstantUse, Premise, TracedFile, TracedTheorem
from tests.support.state_folder import OTHER_SORRY, REPOSITORY, SORRY, StateFolder, record_traced

NAMES = ("Demo.beta", "Demo.near", "Demo.far")


@pytest.fixture
def traced(filled: StateFolder) -> StateFolder:
    """Two theorems rest on Demo.beta; nothing is known of Demo.alpha, which is in no traced file."""
    theorems = tuple(
        TracedTheorem(name, f"theorem {name} : p :=", (line, 1), (line, 9), (), premises=uses)
        for line, (name, uses) in enumerate(
            zip(NAMES, [(), (ConstantUse("Demo.beta"),), (ConstantUse("Demo.near"),)], strict=True), 1
        )
    )
    premises = tuple(Premise(one.full_name, "", one.start, one.end, "x") for one in theorems)
    record_traced(
        filled, [TracedFile("Demo.lean", (), premises, theorems)], repository=REPOSITORY, simulated=True
    )
    return filled


def test_the_most_comes_first_and_the_unknown_last(traced: StateFolder) -> None:
    found = traced.unsorry("sorries", "--by", "impact", "--all", "--json").json["sorries"]
    assert [(row["sorry"], row["impact"]["theorems"], row["impact"]["direct"]) for row in found] == [
        (OTHER_SORRY, 2, 1),
        (SORRY, None, None),
    ]
    assert found[0]["impact"]["simulated"], "the simulator's trace is marked"
    assert found[1]["impact"]["unknown"] == "the trace does not name the declaration"


def test_people_read_it_as_words(traced: StateFolder) -> None:
    first, second = [
        line
        for line in traced.unsorry("sorries", "--by", "impact", "--all").out.splitlines()
        if "Demo." in line
    ]
    assert ("2 theorems SIMULATED" in first, "Demo.beta" in first) == (True, True)
    assert ("unknown" in second, "Demo.alpha" in second) == (True, True)
    said = traced.unsorry("sorries", "show", OTHER_SORRY).out
    assert "2 theorems SIMULATED, 1 of them directly (trace of 1111111111)" in said
    assert "unknown: the trace does not name the declaration" in traced.unsorry("sorries", "show", SORRY).out


def test_without_a_trace_all_is_unknown_and_in_the_order_of_places(filled: StateFolder) -> None:
    found = filled.unsorry("sorries", "--by", "impact", "--all", "--json").json["sorries"]
    assert [(row["line"], row["impact"]["unknown"]) for row in found] == [
        (14, "the branch has no trace yet"),
        (20, "the branch has no trace yet"),
    ]
    assert filled.unsorry("sorries", "--json").json["sorries"][0]["impact"] is None, "nobody asked"


def test_another_order_is_refused(filled: StateFolder) -> None:
    answer = filled.unsorry("sorries", "--by", "size")
    assert (answer.code, "place, impact" in answer.err) == (2, True)

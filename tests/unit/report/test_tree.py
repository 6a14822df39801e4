"""A search tree as text, as a page, and in the report beside the proof that it found; and never without end."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pipeline.prove.tree import Tree, TreeNode, TriedTactic
from pipeline.report import tree as search_tree
from pipeline.report.gather import Blob, ReportData, gather, gather_at
from pipeline.report.page import render
from pipeline.report.sections import search
from store.errors import DatabaseCorruptError
from store.events.base import EventBody
from store.log.envelope import Expect, NewEvent
from store.view import queries
from store.view.view import View
from tests.support.events import (
    PATCH,
    attempt,
    declaration,
    place,
    proof_found,
    proof_verified,
    scanned,
    sha,
    stage,
    watched,
)
from tests.support.memory_log import MemoryLog
from tests.support.pages import accessible, harmless

HOSTILE = (
    '</pre></td><script>alert("x")</script><img src=x onerror=y>&amp;\x1b[2J\u202e\x00 \' onmouseover="x" ]]>'
)
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"


def node(number: int, parent: int | None, tactic: str = "t", *goals: str, outcome: str = "open") -> TreeNode:
    return TreeNode(number, parent, tactic, goals, min(number, 1), 2.5, -1.25, 3.0, outcome)  # type: ignore[arg-type]


def proved(tactic: str = "intro h") -> Tree:
    tried = (TriedTactic("omega", "failed", "not arithmetic"), TriedTactic(tactic, "step", "", -1.25, 1))
    nodes = (
        replace(node(0, None, "", "p : Prop\n⊢ p → p", outcome="proved"), tried=tried),
        node(1, 0, tactic, "p : Prop\nh : p\n⊢ p", outcome="proved"),
        node(2, 1, "exact h", outcome="proved"),
        node(3, 0, "skip", "p : Prop\n⊢ p → p", outcome="dead"),
    )
    return Tree("found", "", "proved with 2 tactics", nodes, (0, 1, 2))


def hostile() -> Tree:
    tried = (TriedTactic(HOSTILE, "failed", HOSTILE), TriedTactic(HOSTILE, "step", HOSTILE, 0, 1))
    root = replace(node(0, None, "", HOSTILE), tried=tried)
    return Tree("budget", "nodes", HOSTILE, (root, node(1, 0, HOSTILE, HOSTILE, HOSTILE)))


def deep(number: int) -> Tree:
    steps = (node(at, at - 1, f"step {at} " * 9, "⊢ goal") for at in range(1, number))
    return Tree("budget", "seconds", "far", (node(0, None, "", "⊢ goal"), *steps))


def fanned(number: int, width: int) -> Tree:
    return Tree("budget", "", "", (node(0, None), *(node(at, (at - 1) // width) for at in range(1, number))))


def large(states: int) -> Tree:
    goals = "h : " + "x = x ∧ " * 400
    nodes = tuple(node(at, at - 1 if at else None, f"step {at}", goals) for at in range(states))
    return Tree("found", "", "far", nodes, tuple(range(states)))


# ---- as text


def test_the_text_marks_the_proof_and_nothing_else() -> None:
    text = search_tree.text(replace(proved(), nodes_left_out=4))
    lines = text.splitlines()
    assert lines[0] == "Proof found. Proved with 2 tactics"
    assert "*   └ 2 exact h  [proved, 2.5, log p -1.25, 3 steps left]" in lines
    assert [line[0] for line in lines if "skip" in line] == [" "]
    assert "in vain: omega" in text
    assert "4 more states are left out." in lines


@pytest.mark.parametrize("tree", [deep(400), hostile(), proved(), fanned(300, 2)])
def test_the_text_fits_its_width_and_moves_no_terminal(tree: Tree) -> None:
    text = search_tree.text(tree)
    assert max(map(len, text.splitlines())) <= 100
    assert not [char for char in text if char != "\n" and not char.isprintable()]


def test_the_text_says_why_the_search_ended() -> None:
    assert search_tree.text(deep(2)).startswith("Stopped by its budget of seconds. Far")
    gone = replace(deep(2), outcome="exhausted", limit="")
    assert search_tree.text(gone).startswith("No proof: nothing is left to try.")


# ---- as a page


def picture(page: str) -> ET.Element:
    return ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def test_the_page_s_picture_has_each_state_and_the_proof_and_the_list_says_the_same() -> None:
    page = search_tree.html(proved(), title="A search")
    groups = [one.get("class") for one in picture(page).iter(f"{SVG}g")]
    assert sorted(filter(None, groups)) == ["dead", "proved way", "proved way", "proved way"]
    assert [one.get("class") for one in picture(page).iter(f"{SVG}path")].count("way") == 2
    reader = harmless(page)
    accessible(reader)
    assert {"s0", "s1", "s2", "s3"} <= {value for _, name, value in reader.attributes if name == "id"}
    assert "intro h\nexact h" in reader.words


def test_hostile_text_stays_text_on_the_page() -> None:
    page = search_tree.html(hostile(), title=HOSTILE)
    reader = harmless(page)
    assert picture(page) is not None
    assert any('<script>alert("x")</script>' in words for words in reader.words)


def test_a_picture_too_large_to_look_at_is_cut_and_says_so() -> None:
    page = search_tree.html(deep(search_tree.DRAWN + 50))
    assert f"The picture shows {search_tree.DRAWN} of {search_tree.DRAWN + 50} states." in page
    assert page.count('<li class="state') == search_tree.DRAWN + 50


def test_boxes_do_not_lie_on_one_another() -> None:
    boxes = picture(search_tree.html(fanned(100, 3))).iter(f"{SVG}rect")
    places = [(one.get("x"), one.get("y")) for one in boxes]
    assert len(set(places)) == len(places) == 100


# ---- in the report


class Told:
    """A log of proofs with the trees behind them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = MemoryLog()
        self.add(watched())
        self.count = 0

    def add(self, body: EventBody, blobs: dict[str, Path] | None = None) -> None:
        _, patch = stage(self.folder / "staging", PATCH)
        self.log.append(
            [NewEvent("proofs", body)], expect={"proofs": Expect.ANY}, blobs={**patch, **(blobs or {})}
        )

    def proof(
        self, tree: Tree | bytes | None, *, name: str = "Demo.a", simulated: bool = False, tried: bool = True
    ) -> str:
        """Record a proof, verified unless it is simulated, and the attempt that found it with this tree."""
        self.count += 1
        scan = scanned("A.lean", [declaration(name)], with_sorry=[name])
        spot = place(scan, scan.sorries[0], blob=sha("blob", str(self.count)))
        sorry = f"{self.count:016x}"
        found = proof_found(sorry, spot, commit=sha("commit"), simulated=simulated)
        self.add(found)
        if tried:
            body = attempt(sorry, spot, commit=sha("commit")).model_copy(update={"simulated": simulated})
            blobs: dict[str, Path] = {}
            if tree is not None:
                data = tree if isinstance(tree, bytes) else json.dumps(tree.as_json()).encode()
                reference, blobs = stage(self.folder / "staging", data)
                body = body.model_copy(update={"tree": reference})
            self.add(body, blobs)
        if not simulated:
            self.add(proof_verified(found))
        return found.proof

    def gathered(self, *, log: bool = True, blob: Blob | None = None) -> ReportData:
        path = self.folder / "database.db"
        with View.open(path, self.log.reader()) as view:
            view.catch_up()
        connection = queries.connect(path)
        try:
            return gather(connection, made_at=WHEN, blob=blob or (self.log.reader().blob if log else None))
        finally:
            connection.close()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path)
    with made.log:
        yield made


def test_a_verified_proof_is_shown_with_its_steps_its_tree_and_a_table_of_its_states(told: Told) -> None:
    proof = told.proof(proved())
    data = told.gathered()
    html = render(data).html["proofs.html"]
    assert data.verified[0].tree == proved()
    assert "The proof step by step" in html
    assert "4 states (3 proved, 1 dead), 2 tactics tried." in html
    picture = html.split(f'aria-label="Search tree of proof {proof}">')[1].split("</figure>")[0]
    svg = ET.fromstring(picture.removeprefix('<div class="map">').removesuffix("</div>"))
    assert svg.get("role") == "img"
    assert f"search tree of proof {proof}" in (svg.get("aria-label") or "")
    assert picture.count('class="proved way"') == 3
    table = html.split(f"States of the search, proof {proof}")[-1].split("</table>")[0]
    assert table.count("<tr>") - 1 == 4
    assert table.count(", on the way of the proof") == 3


def test_what_the_simulator_proved_is_marked_in_its_tree_and_is_no_verified_proof(told: Told) -> None:
    told.proof(proved(), simulated=True)
    data = told.gathered()
    html = render(data).html["proofs.html"]
    assert (data.verified, len(data.others)) == ((), 1)
    assert "SIMULATED: The proof step by step" in html
    assert 'aria-label="SIMULATED: search tree of proof' in html
    assert "The newest proofs that Lean verified" not in html


@pytest.mark.parametrize(
    ("tree", "tried", "log", "said"),
    [
        (None, True, True, "none was kept"),
        (proved(), False, True, "the attempt that found it is not recorded"),
        (proved(), True, False, "it is in the log, which was not at hand"),
        (b"{}", True, True, "it cannot be read: tree.version: None"),
        (b"\xff", True, True, "it cannot be read"),
        (b"[" * 100_000, True, True, "it cannot be read"),
    ],
)
def test_where_there_is_no_tree_the_page_says_why(
    tree: Tree | bytes | None, tried: bool, log: bool, said: str, told: Told
) -> None:
    told.proof(tree, tried=tried)
    html = render(told.gathered(log=log)).html["proofs.html"]
    assert "The tree of its search is not shown: " + said in html
    assert 'class="map"' not in html


def test_a_page_of_the_log_that_is_damaged_costs_one_tree_and_not_the_report(told: Told) -> None:
    told.proof(proved(), name="Demo.a")
    told.proof(proved("intro g"), name="Demo.b")
    read, damaged = told.log.reader().blob, [True]

    def blob(sha256: str) -> bytes:
        if damaged:
            damaged.pop()
            raise DatabaseCorruptError("the log is damaged")
        return read(sha256)

    data = told.gathered(blob=blob)
    assert sorted((one.tree is not None, one.no_tree) for one in data.verified) == [
        (False, "it cannot be read: the log is damaged"),
        (True, ""),
    ]


def test_without_a_log_that_can_be_read_the_page_is_made_and_says_why(told: Told) -> None:
    told.proof(proved())
    told.gathered()
    (told.folder / "events.db").write_text("no database at all, and longer than a header of one would be" * 9)
    with closing(queries.connect(told.folder / "database.db")) as view:
        (one,) = gather_at(view, told.folder / "events.db", made_at=WHEN).verified
    assert one.tree is None
    assert "it cannot be read: " in one.no_tree
    assert "no SQLite database" in one.no_tree


def test_a_hostile_tree_does_nothing_in_the_report(told: Told) -> None:
    first, *rest = proved(HOSTILE).nodes
    told.proof(replace(proved(), nodes=(replace(first, goals=(HOSTILE,)), *rest)), name="Demo.b")
    html = render(told.gathered()).html["proofs.html"]
    harmless(html)
    assert "&lt;script&gt;" in html


def test_a_large_tree_is_drawn_in_part_and_the_page_says_where_the_rest_is() -> None:
    html = search(large(500), proof="abc", simulated=False)
    assert "40 are shown, `everlean proofs tree abc` has all" in html
    assert "The proof step by step, the first 40 of 499" in html
    assert len(html) < 200_000


def test_of_many_trees_the_newest_are_drawn_until_the_page_is_full(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.report.gather.MOST_TREES", 3)
    for _ in range(5):
        told.proof(proved())
    html = render(told.gathered()).html["proofs.html"]
    assert html.count('<div class="map">') == 3
    assert html.count("only the newest 3 are drawn here") == 2
    monkeypatch.setattr("pipeline.report.sections.MOST_TREE_CHARACTERS", 1)
    html = render(told.gathered()).html["proofs.html"]
    assert html.count('<div class="map">') == 1
    assert html.count("the page is full of trees already") == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_picture_has_room_for_no_state_that_it_leaves_out(seed: int) -> None:
    chance = random.Random(seed)
    states = [
        node(at, chance.randrange(max(0, at - 4), at) if at else None, f"step {at}") for at in range(60)
    ]
    shown = {
        one.number
        for one in search_tree.drawing(Tree("budget", "", "", tuple(states)), name="t", most=25).states
    }
    assert len(shown) <= 25
    for state in states:
        missing, at = 0, state
        while at.number not in shown:
            missing += 1
            if at.parent is None:
                break
            at = states[at.parent]
        assert missing == 0 or len(shown) + missing > 25
        assert state.number not in shown or state.parent is None or state.parent in shown


def test_a_deep_tree_is_drawn_in_the_time_of_a_flat_one() -> None:
    deep = tuple(node(at, at - 1 if at else None, "step") for at in range(20_000))
    began = time.process_time()
    assert len(search_tree.drawing(Tree("budget", "", "", deep), name="t", most=40).states) == 40
    assert time.process_time() - began < 2.0, "climbed from each of its states it takes a minute"

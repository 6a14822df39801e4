from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

from pipeline.prove.tree import Tree, TreeNode, Tried
from pipeline.report import tree as search_tree

HOSTILE = '</pre><script>alert("x")</script>&amp;\x1b[2J\u202e\x00 \' onmouseover="x" ]]>'


def node(number: int, parent: int | None, tactic: str = "t", *goals: str, outcome: str = "open") -> TreeNode:
    depth = 0 if parent is None else 1
    return TreeNode(
        number,
        parent,
        tactic,
        goals or (f"p : Prop\n⊢ goal{number}",),
        depth,
        2.5,
        -1.25,
        3.0,
        outcome,  # type: ignore[arg-type]
    )


def proved() -> Tree:
    root = dataclasses.replace(
        node(0, None, "", "⊢ p → p", outcome="proved"),
        tried=(Tried("omega", "failed", "not arithmetic"), Tried("intro h", "step", "", -1.25, 1)),
    )
    done = dataclasses.replace(node(2, 1, "assumption", outcome="proved"), goals=())
    return Tree(
        "found", "", "proved with 2 tactics",
        (root, node(1, 0, "intro h", outcome="proved"), done, node(3, 0, "skip", outcome="dead")), (0, 1, 2), 4,
    )  # fmt: skip


def hostile() -> Tree:
    root = dataclasses.replace(
        node(0, None, "", HOSTILE),
        tried=(Tried(HOSTILE, "failed", HOSTILE), Tried(HOSTILE, "step", HOSTILE, 0, 1)),
    )
    return Tree("budget", "nodes", HOSTILE, (root, node(1, 0, HOSTILE, HOSTILE, HOSTILE)))


def deep(number: int) -> Tree:
    nodes = (node(0, None, ""), *(node(at, at - 1, f"step {at} " * 9) for at in range(1, number)))
    return Tree("budget", "seconds", "far", nodes)


def test_the_text_marks_the_proof_and_nothing_else() -> None:
    lines = search_tree.text(proved()).splitlines()
    assert lines[0] == "Proof found. Proved with 2 tactics"
    assert "* └ 2 assumption  [proved, 2.5, log p -1.25, 3 steps left]" in [
        line.replace("*   └", "* └") for line in lines
    ]
    assert [line[0] for line in lines if "skip" in line] == [" "]
    assert "in vain: omega" in search_tree.text(proved())
    assert "4 more states are left out." in lines


def test_the_text_fits_its_width_however_deep_and_wide_the_tree_is() -> None:
    for tree in (deep(400), hostile(), proved()):
        lines = search_tree.text(tree).splitlines()
        assert max(map(len, lines)) <= 100
    fanned = Tree("budget", "", "", (node(0, None), *(node(at, (at - 1) // 2) for at in range(1, 300))))
    assert max(map(len, search_tree.text(fanned).splitlines())) <= 100


def test_the_text_says_why_the_search_ended() -> None:
    assert search_tree.text(deep(2)).startswith("Stopped by its budget of seconds. Far")
    gone = dataclasses.replace(deep(2), outcome="exhausted", limit="")
    assert search_tree.text(gone).startswith("No proof: nothing is left to try.")


def test_nothing_in_the_text_moves_a_terminal() -> None:
    shown = search_tree.text(hostile())
    assert not [char for char in shown if char != "\n" and not char.isprintable()]


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


def test_the_page_s_picture_is_well_formed_and_has_each_state_and_the_proof() -> None:
    page = search_tree.html(proved(), title="A search")
    svg = ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    space = "{http://www.w3.org/2000/svg}"
    groups = [one.get("class") for one in svg.iter(f"{space}g")]
    assert sorted(filter(None, groups)) == ["dead", "proved way", "proved way", "proved way"]
    assert [one.get("class") for one in svg.iter(f"{space}path")].count("way") == 2
    reader = read(page)
    ids = {attrs.get("id") for _, attrs in reader.tags}
    links = {attrs["href"] for tag, attrs in reader.tags if tag == "a"}
    assert {"s0", "s1", "s2", "s3"} <= ids
    assert all(link and link[1:] in ids for link in links), "a link leads nowhere"
    assert any("intro h\nassumption" in words for words in reader.words)


def test_hostile_text_stays_text_and_the_page_loads_nothing() -> None:
    page = search_tree.html(hostile(), title=HOSTILE)
    reader = read(page)
    tags = {tag for tag, _ in reader.tags}
    assert "script" not in tags
    assert not [name for _, attrs in reader.tags for name in attrs if name.startswith("on")]
    assert not [attrs for _, attrs in reader.tags if "src" in attrs or "http" in str(attrs.get("href"))]
    assert not {"\x1b", "\u202e", "\x00"} & set(page)
    ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    assert any('<script>alert("x")</script>' in words for words in reader.words)


def test_a_picture_too_large_to_look_at_is_cut_and_says_so() -> None:
    large = deep(search_tree.DRAWN + 50)
    page = search_tree.html(large)
    assert f"The picture shows {search_tree.DRAWN} of {search_tree.DRAWN + 50} states." in page
    assert page.count('<li class="state') == search_tree.DRAWN + 50


def test_boxes_do_not_lie_on_one_another() -> None:
    tree = Tree("budget", "", "", (node(0, None), *(node(at, (at - 1) // 3) for at in range(1, 100))))
    page = search_tree.html(tree)
    svg = ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    places = [(one.get("x"), one.get("y")) for one in svg.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(set(places)) == len(places) == 100

"""A search as it was: every state that it reached, what was tried there and what came of it. For people and for later.

A value of plain data, bounded in size, that goes through JSON and back. States are numbered in the order of their
discovery; 0 is the root. `pipeline.report.tree` shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

NodeOutcome = Literal["expanded", "proved", "dead", "open", "lost"]
TriedOutcome = Literal["proved", "step", "repeated", "failed", "unparsed", "sorry", "killed"]
Ended = Literal["found", "exhausted", "budget"]
T = TypeVar("T")

VERSION = 1


class TreeError(ValueError):
    """The data is no search tree; the message says where."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A tactic that was tried on a state.

    Attributes:
        tactic: its text, shortened where it is very long.
        outcome: "proved": no goal was left. "step": a state that was new. "repeated": one that was known. "failed" and
            "unparsed": Lean's word, or the text policy's. "sorry": it ran, with a sorry or unsafe code. "killed": it
            ended the Lean process each time.
        reason: why, shortened; "" where there is nothing to say.
        log_probability: the model's; 0 where there is no model.
        to: the number of the state that it led to, if any.
    """

    tactic: str
    outcome: TriedOutcome
    reason: str = ""
    log_probability: float = 0.0
    to: int | None = None


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A state.

    Attributes:
        number: in the order of discovery.
        parent: the state that the best way here comes from; None for the root.
        tactic: that led here from it; "" for the root.
        goals: what is open, as text; () where nothing is.
        depth: steps from the root.
        score: lower came first.
        log_probability: the sum on the way here.
        remaining: steps left, where a progress model was asked.
        outcome: "proved": a proof goes through it. "dead": expanded, and nothing open comes after it. "expanded":
            something open does. "open": not expanded, or not to the end. "lost": it went down with its process.
        tried: in order, without what is left out.
        tried_left_out: how many tried tactics are not in `tried`.
    """

    number: int
    parent: int | None
    tactic: str
    goals: tuple[str, ...]
    depth: int
    score: float
    log_probability: float
    remaining: float | None
    outcome: NodeOutcome
    tried: tuple[Tried, ...] = ()
    tried_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole search.

    Attributes:
        outcome: how it ended.
        limit: which of the budget's limits ended it: "nodes", "seconds", "calls"; "" where none did.
        best: how far it got, in one line.
        nodes: by number, ascending; the root is there.
        proof: numbers of the states on the proof's way, from the root on; () without one.
        nodes_left_out: how many states are not in `nodes`.
    """

    outcome: Ended
    limit: str
    best: str
    nodes: tuple[TreeNode, ...]
    proof: tuple[int, ...] = ()
    nodes_left_out: int = 0

    def node(self, number: int) -> TreeNode:
        """Return a state by its number.

        Raises:
            KeyError: it is not there.
        """
        for node in self.nodes:
            if node.number == number:
                return node
        raise KeyError(f"the tree has no state {number}")

    def as_json(self) -> dict[str, Any]:
        """Return plain data for `json.dumps`; infinite numbers are strings in it."""
        return {
            "version": VERSION,
            "outcome": self.outcome,
            "limit": self.limit,
            "best": self.best,
            "nodes": [_node_json(node) for node in self.nodes],
            "proof": list(self.proof),
            "nodes_left_out": self.nodes_left_out,
        }

    @classmethod
    def from_json(cls, raw: object) -> Tree:
        """Read what `as_json` made.

        Raises:
            TreeError: it is something else, or does not hang together.
        """
        table = _table(raw, "tree")
        if table.get("version") != VERSION:
            raise TreeError(f"tree.version: {table.get('version')!r}, and this version reads {VERSION}")
        tree = cls(
            outcome=_word(table, "outcome", "tree", get_args(Ended)),
            limit=_text(table, "limit", "tree"),
            best=_text(table, "best", "tree"),
            nodes=_list(table, "nodes", "tree", _node),
            proof=_list(table, "proof", "tree", _natural_at),
            nodes_left_out=_natural(table, "nodes_left_out", "tree"),
        )
        _check(tree)
        return tree


def _check(tree: Tree) -> None:
    """See that the tree is one: a root, parents that are there, no circle, a proof that is a way from the root."""
    numbers = [node.number for node in tree.nodes]
    if numbers != sorted(set(numbers)) or not numbers or numbers[0] != 0:
        raise TreeError("tree.nodes: not numbered upwards from 0")
    parents = {node.number: node.parent for node in tree.nodes}
    for number, parent in parents.items():
        if (parent is None) != (number == 0) or (parent is not None and parent not in parents):
            raise TreeError(f"tree.nodes: state {number} has the parent {parent}, which cannot be")
    rooted = {0}
    for number in numbers:
        way: list[int] = []
        at: int | None = number
        while at is not None and at not in rooted:
            way.append(at)
            rooted.add(at)
            at = parents[at]
            if at in way:
                raise TreeError(f"tree.nodes: state {number} comes after itself")
    for before, after in zip((None, *tree.proof), tree.proof, strict=False):
        if parents.get(after, -1) != before:
            raise TreeError(f"tree.proof: state {after} does not come after {before}")


def _node_json(node: TreeNode) -> dict[str, Any]:
    return {
        "number": node.number,
        "parent": node.parent,
        "tactic": node.tactic,
        "goals": list(node.goals),
        "depth": node.depth,
        "score": number_json(node.score),
        "log_probability": number_json(node.log_probability),
        "remaining": None if node.remaining is None else number_json(node.remaining),
        "outcome": node.outcome,
        "tried": [
            {
                "tactic": one.tactic,
                "outcome": one.outcome,
                "reason": one.reason,
                "log_probability": number_json(one.log_probability),
                "to": one.to,
            }
            for one in node.tried
        ],
        "tried_left_out": node.tried_left_out,
    }


def _node(raw: object, where: str) -> TreeNode:
    table = _table(raw, where)
    return TreeNode(
        number=_natural(table, "number", where),
        parent=None if table.get("parent") is None else _natural(table, "parent", where),
        tactic=_text(table, "tactic", where),
        goals=_list(table, "goals", where, _text_at),
        depth=_natural(table, "depth", where),
        score=_number(table, "score", where),
        log_probability=_number(table, "log_probability", where),
        remaining=None if table.get("remaining") is None else _number(table, "remaining", where),
        outcome=_word(table, "outcome", where, get_args(NodeOutcome)),
        tried=_list(table, "tried", where, _tried),
        tried_left_out=_natural(table, "tried_left_out", where),
    )


def _tried(raw: object, where: str) -> Tried:
    table = _table(raw, where)
    return Tried(
        tactic=_text(table, "tactic", where),
        outcome=_word(table, "outcome", where, get_args(TriedOutcome)),
        reason=_text(table, "reason", where),
        log_probability=_number(table, "log_probability", where),
        to=None if table.get("to") is None else _natural(table, "to", where),
    )


# ---- strict reading: each says the path at which it stumbles


def _table(raw: object, where: str) -> Mapping[str, object]:
    if not isinstance(raw, Mapping):
        raise TreeError(f"{where}: expected an object, got {_shown(raw)}")
    return raw


def _text(table: Mapping[str, object], key: str, where: str) -> str:
    return _text_at(table.get(key), f"{where}.{key}")


def _text_at(raw: object, where: str) -> str:
    if not isinstance(raw, str):
        raise TreeError(f"{where}: expected a string, got {_shown(raw)}")
    return raw


def _natural(table: Mapping[str, object], key: str, where: str) -> int:
    return _natural_at(table.get(key), f"{where}.{key}")


def _natural_at(raw: object, where: str) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or raw < 0:
        raise TreeError(f"{where}: expected a number from 0 on, got {_shown(raw)}")
    return raw


def _number(table: Mapping[str, object], key: str, where: str) -> float:
    try:
        return number_of(table.get(key))
    except ValueError as error:
        raise TreeError(f"{where}.{key}: {error}") from error


def _word(table: Mapping[str, object], key: str, where: str, words: tuple[Any, ...]) -> Any:
    if table.get(key) not in words:
        raise TreeError(f"{where}.{key}: expected one of {', '.join(words)}, got {_shown(table.get(key))}")
    return table[key]


def _list(
    table: Mapping[str, object], key: str, where: str, one: Callable[[object, str], T]
) -> tuple[T, ...]:
    raw = table.get(key)
    if not isinstance(raw, list):
        raise TreeError(f"{where}.{key}: expected a list, got {_shown(raw)}")
    return tuple(one(item, f"{where}.{key}[{at}]") for at, item in enumerate(raw))


def _shown(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "..."


def number_json(number: float) -> float | str:
    """Return a number for JSON, which has no infinite ones: they are "inf", "-inf" and "nan"."""
    return number if math.isfinite(number) else str(number)


def number_of(raw: object) -> float:
    """Read what `number_json` made.

    Raises:
        ValueError: it is no number.
    """
    if raw in ("inf", "-inf", "nan"):
        return float(str(raw))
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise ValueError(f"expected a number, got {_shown(raw)}")
    try:
        number = float(raw)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"expected a number, got {_shown(raw)}")
    return number

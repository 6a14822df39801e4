"""The record of a search: its states, the tactics tried on each, and their outcomes.

A value of plain data, bounded in size, that goes through JSON and back. States are numbered in the order of their
discovery; 0 is the root.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, StrictStr, TypeAdapter, ValidationError

from store.text import shown

NodeOutcome = Literal["expanded", "proved", "dead", "open", "lost"]
TriedOutcome = Literal["proved", "step", "repeated", "failed", "unparsed", "sorry", "killed"]
Ended = Literal["found", "exhausted", "budget"]

VERSION = 1


class TreeError(ValueError):
    """The data is no search tree; the message names the place."""


def number_json(number: float) -> float | str:
    """Return a number for JSON; infinite ones and NaN become "inf", "-inf" and "nan"."""
    return number if math.isfinite(number) else str(number)


def number_of(raw: object) -> float:
    """Read the result of `number_json`.

    Raises:
        ValueError: it is no number.
    """
    if raw in ("inf", "-inf", "nan"):
        return float(str(raw))
    number = math.inf
    if isinstance(raw, int | float) and not isinstance(raw, bool) and abs(raw) <= sys.float_info.max:
        number = float(raw)
    if not math.isfinite(number):
        raise ValueError(f"expected a number, got {shown(raw)}")
    return number


Number = Annotated[float, BeforeValidator(number_of), PlainSerializer(number_json, return_type=Any)]
Natural = Annotated[int, Field(strict=True, ge=0)]


@dataclass(frozen=True, slots=True)
class TriedTactic:
    """A tactic tried on a state.

    Attributes:
        tactic: its text, shortened if it is very long.
        outcome: "proved": no goal was left. "step": a new state. "repeated": a known one. "failed" and "unparsed": the
            judgement of Lean, or of the text policy. "sorry": it ran, with a sorry or unsafe code. "killed": it ended
            the Lean process each time.
        reason: for the outcome, shortened; empty without one.
        log_probability: the model's; 0 without a model.
        to: the number of the resulting state, if any.
    """

    tactic: StrictStr
    outcome: TriedOutcome
    reason: StrictStr = ""
    log_probability: Number = 0.0
    to: Natural | None = None


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A state.

    Attributes:
        number: in the order of discovery.
        parent: the previous state on the best way here; null for the root.
        tactic: from the parent to here; empty for the root.
        goals: the open ones, as Lean prints them; empty without any.
        depth: steps from the root.
        score: lower came first.
        log_probability: the sum on the way here.
        remaining: estimated steps left, from a progress model.
        outcome: "proved": a proof goes through it. "dead": expanded, and without open states after it. "expanded": with
            open states after it. "open": not expanded, or not to the end. "lost": lost with its process.
        tried: in order, without the omitted ones.
        tried_left_out: the number of further tactics tried.
    """

    number: Natural
    parent: Natural | None
    tactic: StrictStr
    goals: tuple[StrictStr, ...]
    depth: Natural
    score: Number
    log_probability: Number
    remaining: Number | None
    outcome: NodeOutcome
    tried: tuple[TriedTactic, ...] = ()
    tried_left_out: Natural = 0


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole search.

    Attributes:
        outcome: of the search.
        limit: the limit of the budget that ended it: "nodes", "seconds", "calls"; empty for none.
        best: the progress, in one line.
        nodes: by number, ascending, the root among them.
        proof: numbers of the states on the proof's way, from the root on; empty without one.
        nodes_left_out: the number of further states.
    """

    outcome: Ended
    limit: StrictStr
    best: StrictStr
    nodes: tuple[TreeNode, ...]
    proof: tuple[Natural, ...] = ()
    nodes_left_out: Natural = 0

    @property
    def goals_left(self) -> int | None:
        """Open goals of the state with the fewest; the root does not count."""
        if self.outcome == "found":
            return 0
        return min((len(node.goals) for node in self.nodes if node.number), default=None)

    def node(self, number: int) -> TreeNode:
        """Return a state by its number.

        Raises:
            KeyError: the tree does not have it.
        """
        for node in self.nodes:
            if node.number == number:
                return node
        raise KeyError(f"the tree has no state {number}")

    def as_json(self) -> dict[str, Any]:
        """Return plain data for `json.dumps`; infinite numbers are strings in it."""
        return {"version": VERSION, **_TREES.dump_python(self, mode="json")}

    @classmethod
    def from_json(cls, raw: object) -> Tree:
        """Read the result of `as_json`.

        Raises:
            TreeError: it is something else, or inconsistent.
        """
        if not isinstance(raw, Mapping):
            raise TreeError(f"tree: expected an object, got {shown(raw)}")
        if raw.get("version") != VERSION:
            raise TreeError(f"tree.version: {raw.get('version')!r}, and this version reads {VERSION}")
        try:
            tree = _TREES.validate_python(raw)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            raise TreeError(f"tree{place}: {message} (it is {shown(first['input'])})") from error
        _check(tree)
        return tree


_TREES = TypeAdapter(Tree)


def _check(tree: Tree) -> None:
    """Check for a root, existing parents, no cycle, and a proof along a way from the root."""
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

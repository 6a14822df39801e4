"""Our own verified proofs, as rows for a tactic model: expert iteration.

A job's dataset has the log's verified proofs at its making:

    <chain>/.datasets/<job>/accepted.json      {"rows": {repository: [row, …]}, "left_out": {reason: number}}

A proof counts only if the gate verified it. Its states are those of the search's tree, as Lean printed them. Some
proofs are left out, and counted by reason:

    held_out      the proof's theorem is on val or test of the split `random`, by its name or its statement, or would
                  be drawn there; or a step is at the goal of such a theorem, under any names of hypotheses; or the
                  proof brings in one that is itself left out for this, or is not accepted
    no_states     no search tree has the states: the proof was written whole, or is not the tree's own
    shortened     the tree has a state cut short
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipeline.lean.goal_text import GOAL_END, hypotheses, joined, single_lines
from pipeline.models.errors import DatasetError
from pipeline.models.tactics.rows import Row, of_steps
from store.files import write_whole
from store.log.reader import LogReader
from store.view import model_queries, queries
from store.view.rows import ProofRow

ACCEPTED = "accepted.json"
HELD_OUT = "held_out"
NO_STATES = "no_states"
SHORTENED = "shortened"

_CITED = re.compile(r"_([0-9a-f]{8})\b")
"""The end of the name of a proof brought in by a search: its id, or a hash of its text (`pipeline.prove.lemmas`)."""
_WORD = re.compile(r"[^\W\d][\w'✝]*")


@dataclass(frozen=True, slots=True)
class AcceptedProofs:
    """The steps of accepted proofs by repository, each once, the oldest proof's first.

    `left_out` has the numbers of proofs left out, by reason.
    """

    rows: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)


def count_proofs(rows: Iterable[Row]) -> int:
    """Return the number of accepted proofs behind rows."""
    return len({row.proof for row in rows if row.proof})


_READER = TypeAdapter(AcceptedProofs)


def accepted(view: sqlite3.Connection, log: LogReader, *, repositories: Collection[str]) -> AcceptedProofs:
    """Return the rows of these repositories' accepted proofs.

    Args:
        view: of the log.
        log: has the trees.
        repositories: their keys.

    Raises:
        LogError: the view or a payload cannot be read.
    """
    rows = model_queries.accepted_proofs(view, repositories=repositories)
    if not rows:
        return AcceptedProofs()
    # Of all repositories: a lemma may be brought in from a branch's other theorems.
    known = {row.proof[:8] for row in rows if not model_queries.is_held_out(view, row)}
    goals = {_nameless(state) for state in model_queries.held_out_goals(view)}
    result: dict[str, dict[tuple[str, str], Row]] = {}
    left_out: Counter[str] = Counter()
    for row in rows:
        cites = {short for tactic in row.tactics for short in _CITED.findall(tactic)}
        if not {row.proof[:8], *cites} <= known:
            left_out[HELD_OUT] += 1
            continue
        steps = _steps(view, log, row)
        if isinstance(steps, str):
            left_out[steps] += 1
        elif not goals.isdisjoint(_nameless(state) for state, _ in steps):
            left_out[HELD_OUT] += 1
        else:
            like = Row(
                "",
                "",
                row.declaration,
                row.path,
                0,
                commit=row.checked_sha,
                start=_place(view, row),
                proof=row.proof,
            )
            own = result.setdefault(row.repository, {})
            for step in of_steps(steps, like, Counter()):
                own.setdefault((step.state, step.tactic), step)
    return AcceptedProofs(
        {repository: tuple(own.values()) for repository, own in sorted(result.items())}, dict(left_out)
    )


def write_accepted(dataset: Path, proofs: AcceptedProofs) -> None:
    """Write accepted proofs beside a dataset.

    Raises:
        OSError: the disk refused.
    """
    write_whole(dataset / ACCEPTED, _READER.dump_json(proofs).decode())


def read_accepted(dataset: Path) -> AcceptedProofs:
    """Return the accepted proofs beside a dataset; none without a file.

    Raises:
        DatasetError: the file is damaged.
    """
    path = dataset / ACCEPTED
    try:
        return _READER.validate_json(path.read_bytes())
    except FileNotFoundError:
        return AcceptedProofs()
    except ValidationError as error:
        raise DatasetError(
            f"{path} does not hold accepted proofs. Remove {dataset}: it is exported again"
        ) from error


def _steps(view: sqlite3.Connection, log: LogReader, row: ProofRow) -> list[tuple[str, str]] | str:
    """Return a proof's states and tactics, or the reason for leaving it out."""
    attempt = queries.behind(row, queries.attempts(view, sorry=row.sorry))
    if attempt is None or attempt.tree_sha256 is None:
        return NO_STATES
    tree: Any = json.loads(log.blob(attempt.tree_sha256))
    nodes = {node["number"]: node for node in tree["nodes"]}
    way = [nodes[number] for number in tree["proof"]]
    if len(way) != len(row.tactics) + 1:
        return NO_STATES
    steps = []
    for node, after, tactic in zip(way, way[1:], row.tactics, strict=False):
        # The tree has the beginning of a long tactic.
        if not tactic.startswith(after["tactic"].removesuffix("…")) or not node["goals"]:
            return NO_STATES
        if any(goal.endswith("…") or goal.startswith("… and ") for goal in node["goals"]):
            return SHORTENED
        steps.append((joined(node["goals"]), tactic))
    return steps


def _place(view: sqlite3.Connection, row: ProofRow) -> tuple[int, int] | None:
    places = [
        (sorry.line, sorry.column + 1)
        for sorry in queries.sorries_by_prefix(view, row.sorry)
        if (sorry.repository, sorry.branch) == (row.repository, row.branch)
    ]
    return places[0] if places else None


def _nameless(state: str) -> str:
    """Return the first goal of a state without its tag, independent of its hypotheses' names."""
    goal = state.split(GOAL_END)[0]
    lines, own = single_lines(goal), hypotheses(goal)
    names = [name for line in lines if (name := line.partition(" : ")[0]) in own]
    known = {name: f"x{number}" for number, name in enumerate(dict.fromkeys(names))}
    text = " ".join(" ".join(line.split()) for line in lines)
    return _WORD.sub(lambda word: known.get(word[0], word[0]), text)

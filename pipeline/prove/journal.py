"""What a search has asked and been answered, on disk, so that one that was killed goes on where it was.

One search's file (`journal_file.py`). The first line says which search it is of (`Identity`); then, in order, what the
proposer answered, what came of each tactic, and each expansion's end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.lean.client.errors import MalformedReply
from pipeline.lean.client.goals import goals_from_json
from pipeline.prove.graph import Graph, Node
from pipeline.prove.journal_file import JournalError, JournalFile
from pipeline.prove.proposing import Candidate
from pipeline.prove.tree import number_json, number_of
from pipeline.prove.trying import Ran

VERSION = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """What two runs must have in common for one to go on with the other's work, all as text.

    Attributes:
        root: the root's goals (`canonical`).
        prover, model: who proposes; model "" where there is none.
        budget, scoring: their `repr`.
        seed: of what is drawn.
        progress: whether a progress model is asked.
    """

    root: str
    prover: str
    model: str
    budget: str
    scoring: str
    seed: int
    progress: bool


@dataclass(slots=True)
class Spent:
    """What a search has used up so far: tactics sent, requests with replays and setups, seconds."""

    calls: int = 0
    repl_calls: int = 0
    seconds: float = 0.0


class Journal(JournalFile):
    """The journal of one search."""

    def __init__(self, path: Path, *, prover: str, model: str = "") -> None:
        """Args:
        path: of the file; its folder is made where it is missing.
        prover, model: who proposes: a journal of another's answers is not gone on with.
        """
        super().__init__(path)
        self.prover = prover
        self.model = model

    def begin(self, identity: Identity, replay: Callable[[list[Mapping[str, Any]]], None]) -> None:
        """Open the journal and hand what is in it to `replay`, if it is this search's (`JournalFile._begin`)."""
        self._begin({"search": VERSION, **asdict(identity)}, replay)

    def answered(self, node: Node, candidates: Sequence[Candidate]) -> None:
        """Keep what the proposer said about a state."""
        self._write({"node": node.number, "answered": [_candidate_json(one) for one in candidates]})

    def tried(self, node: Node, candidate: Candidate, ran: Ran, spent: Spent) -> None:
        """Keep what came of a tactic."""
        self._write(
            {
                "node": node.number,
                "tried": _candidate_json(candidate),
                "tactic": ran.tactic,
                "outcome": ran.outcome,
                "reason": ran.reason,
                "goals": [goal.to_json() for goal in ran.goals],
                "first": ran.first,
                "parsed": ran.parsed,
                "spent": _spent_json(spent),
            }
        )

    def expanded(self, node: Node, remaining: Sequence[float] | None, spent: Spent, *, lost: bool) -> None:
        """Keep that a state is expanded, or was lost on the way, with the progress model's word on its ways on."""
        left = None if remaining is None else [number_json(value) for value in remaining]
        self._write(
            {"node": node.number, "expanded": not lost, "remaining": left, "spent": _spent_json(spent)}
        )


def replay(
    graph: Graph, lines: Sequence[Mapping[str, Any]], *, saw: Callable[[Candidate, bool], None]
) -> Spent:
    """Bring a new graph to where the lines leave off; `saw` hears what Lean could parse.

    Raises:
        JournalError: the lines do not fit together.
    """
    spent = Spent()
    for number, line in enumerate(lines, start=2):
        try:
            at = line["node"]
            if not isinstance(at, int) or not 0 <= at < len(graph.nodes):
                raise ValueError(f"there is no state {at!r}")
            node = graph.nodes[at]
            if "answered" in line:
                node.answered = [_candidate(raw) for raw in line["answered"]]
                continue
            if "tried" in line:
                candidate, ran = _candidate(line["tried"]), _ran(line)
                if ran.parsed is not None:
                    saw(candidate, ran.parsed)
                graph.took(node, candidate, ran)
            else:
                _expanded(graph, node, line)
            spent = _spent(line["spent"])
        except (KeyError, TypeError, ValueError, AttributeError, MalformedReply) as error:
            raise JournalError(f"line {number} does not fit: {type(error).__name__}: {error}") from error
    # The expansion that finds the proof has no end of its own.
    graph.expanded += graph.proved is not None
    return spent


def _expanded(graph: Graph, node: Node, line: Mapping[str, Any]) -> None:
    left = line["remaining"]
    remaining = None if left is None else [number_of(value) for value in left]
    if remaining is not None and len(remaining) != len(node.fresh):
        raise ValueError(f"{len(remaining)} estimates for {len(node.fresh)} ways")
    graph.rank(node, remaining)
    graph.expanded += 1
    if line["expanded"]:
        graph.close(node)
    # Else it went down with a process that is long gone: it is open again.


def _ran(line: Mapping[str, Any]) -> Ran:
    return Ran(
        tactic=str(line["tactic"]),
        outcome=line["outcome"],
        reason=str(line["reason"]),
        goals=goals_from_json(line["goals"], "goals"),
        first=int(line["first"]),
        parsed=line["parsed"],
    )


def _candidate_json(candidate: Candidate) -> list[Any]:
    return [
        candidate.text,
        candidate.template,
        number_json(candidate.cost),
        candidate.commits,
        number_json(candidate.log_probability),
        candidate.tokens,
    ]


def _candidate(raw: Any) -> Candidate:
    text, template, cost, commits, log_probability, tokens = raw
    return Candidate(
        str(text), str(template), number_of(cost), bool(commits), number_of(log_probability), int(tokens)
    )


def _spent_json(spent: Spent) -> list[float]:
    return [spent.calls, spent.repl_calls, round(spent.seconds, 4)]


def _spent(raw: Any) -> Spent:
    calls, repl_calls, seconds = raw
    return Spent(int(calls), int(repl_calls), float(seconds))

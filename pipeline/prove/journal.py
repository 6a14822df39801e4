"""The journal of a search: its requests and answers on disk, so that a killed one resumes.

One search's file (`journal_file.py`). The first line says which search it is of (`Identity`); then, in order, what the
proposer answered, what came of each tactic, and each expansion's end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pipeline.lean.client.errors import MalformedReply
from pipeline.lean.client.messages import goals_from_json
from pipeline.prove.graph import Candidate, Graph, Node, TacticResult
from pipeline.prove.tree import number_json, number_of

# ---- A file of JSON lines that work is written down in while it is done, so that what was killed goes on where it wa
# It is only appended to. The first line says which work it is of. Each line is handed to the system at once; one that
# a kill has torn at the end is cut off. A journal of other work, or a damaged one, is set aside under another name,
# and the work begins anew. What the lines say is a search's (`journal.py`) or an author's (`kept.py`).


ASIDE = ".aside"


class JournalError(Exception):
    """A journal cannot be read, or is another work's; the message says why."""


class JournalFile:
    """One journal. Also a context that closes it.

    Attributes:
        refused: why what was found at the path was set aside; "" where nothing was.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        """Args:
        path: of the file; its folder is made where it is missing.
        durable: whether a line is on the disk before the work goes on: the machine may stop, too.
        """
        self.path = path
        self.refused = ""
        self._durable = durable
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; more may be written only after the next `begin`."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _begin(self, header: Mapping[str, Any], replay: Callable[[list[Mapping[str, Any]]], None]) -> None:
        """Open the journal and hand what is in it to `replay`, if it is this work's.

        What is not, and what `replay` raises `JournalError` at, is set aside; `replay` has then been given a list of
        lines that it refused, or none. Raises OSError where the file cannot be written.
        """
        self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            good, lines = self._read()
            if lines:
                if lines[0] != header:
                    raise JournalError(_difference(lines[0], header))
                replay(lines[1:])
        except JournalError as error:
            self.refused = str(error)
            self._set_aside()
            good, lines = 0, []
        self._file = self.path.open("ab")
        if self._file.tell() != good:
            self._file.truncate(good)
        if not lines:
            self._write(header)

    def _write(self, entry: Mapping[str, Any]) -> None:
        assert self._file is not None, "a journal is written between its beginning and close"
        # Half a character, which a model may write, has no UTF-8: it stays escaped.
        self._file.write(json.dumps(entry, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n")
        self._file.flush()
        if self._durable:
            os.fsync(self._file.fileno())

    def _read(self) -> tuple[int, list[Mapping[str, Any]]]:
        """Return the length of what is whole, and its lines."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return 0, []
        good = data.rfind(b"\n") + 1
        lines: list[Mapping[str, Any]] = []
        for number, line in enumerate(data[:good].split(b"\n")[:-1], start=1):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise JournalError(f"line {number} is damaged: {error}") from error
            if not isinstance(entry, dict):
                raise JournalError(f"line {number} is no JSON object")
            lines.append(entry)
        return good, lines

    def _set_aside(self) -> None:
        self.path.replace(self.path.with_name(self.path.name + ASIDE))


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    other = [name for name in wanted if found.get(name) != wanted[name]]
    return f"it is of other work, with another {', '.join(other) or 'header'}"


VERSION = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The key of a search, as text: a run resumes another one's journal only under the same key.

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
class SearchCost:
    """The cost of a search so far: tactics sent, requests with replays and setups, seconds."""

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

    def tried(self, node: Node, candidate: Candidate, ran: TacticResult, spent: SearchCost) -> None:
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

    def expanded(
        self, node: Node, remaining: Sequence[float] | None, spent: SearchCost, *, lost: bool
    ) -> None:
        """Keep that a state is expanded, or was lost on the way, with the progress model's word on its ways on."""
        left = None if remaining is None else [number_json(value) for value in remaining]
        self._write(
            {"node": node.number, "expanded": not lost, "remaining": left, "spent": _spent_json(spent)}
        )


def replay(
    graph: Graph, lines: Sequence[Mapping[str, Any]], *, saw: Callable[[Candidate, bool], None]
) -> SearchCost:
    """Bring a new graph to where the lines leave off; `saw` hears what Lean could parse.

    Raises:
        JournalError: the lines do not fit together.
    """
    spent = SearchCost()
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


def _ran(line: Mapping[str, Any]) -> TacticResult:
    return TacticResult(
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


def _spent_json(spent: SearchCost) -> list[float]:
    return [spent.calls, spent.repl_calls, round(spent.seconds, 4)]


def _spent(raw: Any) -> SearchCost:
    calls, repl_calls, seconds = raw
    return SearchCost(int(calls), int(repl_calls), float(seconds))

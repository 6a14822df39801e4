"""The journal of a search: its requests and answers on disk, so that a killed search resumes.

The first line identifies the search (`Identity`); then follow, in order, the proposer's answers, the result of each
tactic, and the end of each expansion.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pipeline.jobs.protocol import JobError
from pipeline.lean.client.errors import MalformedReply
from pipeline.lean.client.messages import goals_from_json
from pipeline.prove.graph import Candidate, Graph, Node, TacticResult
from pipeline.prove.tree import number_json, number_of
from store.files import sync

# ---- The file of a journal: JSON lines, append-only
# The first line identifies the work. Each line goes to the system at once; a last line that a kill has torn is cut
# off. A journal of other work, or a damaged one, is set aside under another name, and the work begins anew. The lines
# are a search's (`Journal`) or an author's (`whole_declaration.AnswerJournal`).


ASIDE = ".aside"


class JournalError(Exception):
    """A journal cannot be read, or is of other work; the message gives the reason."""


class JournalFile:
    """One journal, and a context that closes it.

    Attributes:
        refused: the reason for setting a file aside that was at the path; "" if none was.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        """Args:
        path: of the file; a missing folder is made.
        durable: whether each line is synced to the disk, for a machine that stops.
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
        """Close the file; `begin` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            with self._writable():
                file.close()

    def _begin(self, header: Mapping[str, Any], replay: Callable[[list[Mapping[str, Any]]], None]) -> None:
        """Open the journal and pass its lines to `replay`, if it is of this work.

        A journal of other work, or one that `replay` refuses with `JournalError`, is set aside.

        Raises:
            JobError: the file cannot be written.
        """
        self.close()
        with self._writable():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                good, lines = self._read()
                if lines:
                    if lines[0] != header:
                        raise JournalError(_difference(lines[0], header))
                    replay(lines[1:])
            except JournalError as error:
                self.refused = str(error)
                self.path.replace(self.path.with_name(self.path.name + ASIDE))
                good, lines = 0, []
            self._file = self.path.open("ab")
            if self._file.tell() != good:
                self._file.truncate(good)
        if not lines:
            self._write(header)

    def _write(self, entry: Mapping[str, Any]) -> None:
        assert self._file is not None, "a journal is written between its beginning and close"
        # Half a character, which a model may write, has no UTF-8 and stays escaped.
        line = json.dumps(entry, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
        with self._writable():
            self._file.write(line)
            self._file.flush()
            if self._durable:
                sync(self._file.fileno())

    @contextmanager
    def _writable(self) -> Iterator[None]:
        """Turn a refusal of the system into the job's failure, so that no sorry counts as tried because of it."""
        try:
            yield
        except OSError as error:
            raise JobError(
                "journal",
                f"the journal {self.path} cannot be kept: {error.strerror or error}",
                remedy="make room there, or let this user write; the job is tried again",
            ) from error

    def _read(self) -> tuple[int, list[Mapping[str, Any]]]:
        """Return the length of the whole lines, and the lines."""
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


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    other = [name for name in wanted if found.get(name) != wanted[name]]
    return f"it is of other work, with another {', '.join(other) or 'header'}"


VERSION = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The key of a search, as text: a run resumes another run's journal only under the same key.

    Attributes:
        root: the root's goals (`canonical`).
        prover, model: of the proposer; model "" for none.
        budget, scoring: their `repr`.
        seed: of the sampling.
        progress: whether there is a progress model.
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
        path: of the file; a missing folder is made.
        prover, model: of the proposer: a journal of another proposer's answers is not resumed.
        """
        super().__init__(path)
        self.prover = prover
        self.model = model

    def begin(self, identity: Identity, replay: Callable[[list[Mapping[str, Any]]], None]) -> None:
        """Open the journal and pass its lines to `replay`, if it is of this search (`JournalFile._begin`)."""
        self._begin({"search": VERSION, **asdict(identity)}, replay)

    def answered(self, node: Node, candidates: Sequence[Candidate]) -> None:
        """Write the proposer's answer for a state."""
        self._write({"node": node.number, "answered": [_candidate_json(one) for one in candidates]})

    def tried(self, node: Node, candidate: Candidate, ran: TacticResult, spent: SearchCost) -> None:
        """Write the result of a tactic."""
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
        """Write the end of an expansion, or the loss of its state, with the progress model's estimates."""
        left = None if remaining is None else [number_json(value) for value in remaining]
        self._write(
            {"node": node.number, "expanded": not lost, "remaining": left, "spent": _spent_json(spent)}
        )


def replay(
    graph: Graph, lines: Sequence[Mapping[str, Any]], *, saw: Callable[[Candidate, bool], None]
) -> SearchCost:
    """Bring a new graph to the state of the last line; `saw` receives what Lean could parse.

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
    # The expansion that finds the proof writes no end.
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
    # Else it was lost with its process: it is open again.


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

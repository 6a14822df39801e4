"""One candidate on one state, up to what it comes to. Whatever the text is, there is an answer.

The text policy is asked before Lean: what may not stand in a proof costs no request. What failed on a goal is
remembered, so that it is not tried on it again, in this search or in another of the same declaration.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.lean.client.messages import Goal, Message, TacticParseError
from pipeline.lean.goal_text import ambiguous
from pipeline.lean.pool.session import Answer, Session, Stepped, TacticKilled
from pipeline.lean.pool.states import State, canonical
from pipeline.lean.source.forbidden import complaints
from pipeline.models.tactics.requests import LONGEST
from pipeline.prove.proposing import Candidate
from pipeline.prove.tree import TriedOutcome

_SUGGESTION = re.compile(r"Try this:\s*(?:\[apply\]\s*)?(.+)", re.DOTALL)
_REASON = 200


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a candidate.

    Attributes:
        tactic: what was run last: `exact?` makes way for what it suggests.
        outcome: "step" where it ran, whatever is left then; "proved" and "repeated" are for the search to say.
        reason: why not, in a line.
        goals: the search's own goals afterwards; () for a finished proof, and where it did not run.
        first: index of the first of them in the state.
        state: the session's handle; None where there is none, or none any more.
        parsed: whether Lean could parse the candidate; None where Lean did not say.
    """

    tactic: str
    outcome: TriedOutcome
    reason: str = ""
    goals: tuple[Goal, ...] = ()
    first: int = 0
    state: State | None = None
    parsed: bool | None = None


class Failures:
    """What failed on which goal. Searches of one declaration may share it; what fails for one fails for all."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str], Ran] = {}

    def known(self, seen: str, tactic: str) -> Ran | None:
        return self._failed.get((seen, tactic))

    def note(self, seen: str, tactic: str, ran: Ran) -> None:
        """Remember what failed; what ran or ended a process is left alone, and what may be read in two ways."""
        if seen and ran.outcome in ("failed", "unparsed", "sorry"):
            self._failed[seen, tactic] = ran


def seen_by_tactics(goals: tuple[Goal, ...]) -> str:
    """Render what a tactic sees: the first goal, names and all, and the others where they may share unknowns.

    "" where that may be read in two ways.
    """
    if ambiguous(goals):
        return ""
    first = canonical(goals[:1])
    return canonical(goals) if "?" in first else first


class Trying:
    """Tries candidates for one search.

    Attributes:
        calls: tactics that were sent to Lean, what was suggested by others counted; the session's replays are not.
    """

    def __init__(
        self,
        session: Session,
        *,
        siblings: frozenset[str],
        timeout_s: float,
        failures: Failures,
    ) -> None:
        self._session = session
        self._siblings = siblings
        self._timeout_s = timeout_s
        self._failures = failures
        # Of the goals at hand: all candidates of a state come one after the other.
        self._seen: tuple[tuple[Goal, ...], str] = ((), "")
        self.calls = 0
        self._timed = 0
        self._seconds = 0.0

    @property
    def mean_s(self) -> float:
        """Seconds that a tactic took, on average over those for which a process was at hand; 0 before the first."""
        return self._seconds / self._timed if self._timed else 0.0

    async def run(self, state: State, goals: tuple[Goal, ...], first: int, candidate: Candidate) -> Ran:
        """Try a candidate.

        Raises:
            ReplError: as `Session.tactic`.
        """
        text = candidate.text
        if refused := _refused(text):
            return Ran(text, "failed", refused)
        if self._seen[0] is not goals:
            self._seen = (goals, seen_by_tactics(goals))
        if (known := self._failures.known(self._seen[1], text)) is not None:
            # Lean is not asked, so it says nothing new about what it can parse.
            return dataclasses.replace(known, parsed=None)
        answer = await self._send(state, first, text)
        ran = self._read(text, answer)
        if ran.outcome == "step" and text.endswith("?") and isinstance(answer, Stepped):
            # `exact?` found something: what it suggests is the proof, not the looking for it.
            self._session.release([answer.state])
            ran = await self._suggested(state, first, text, answer.messages)
        self._failures.note(self._seen[1], text, ran)
        return ran

    async def _suggested(self, state: State, first: int, text: str, messages: Sequence[Message]) -> Ran:
        suggestion = _suggestion(messages)
        if suggestion is None:
            return Ran(text, "failed", "it ran, and suggests nothing", parsed=True)
        if refused := _refused(suggestion):
            return Ran(suggestion, "failed", f"suggested by {text}: {refused}"[:_REASON], parsed=True)
        ran = self._read(suggestion, await self._send(state, first, suggestion))
        return dataclasses.replace(ran, parsed=True)

    async def again(self, state: State, first: int, tactic: str) -> Answer:
        """Run a tactic that succeeded before, with patience: the machine may be busier than it was."""
        return await self._session.tactic(state, tactic, goal=first or None, timeout_s=self._timeout_s * 3)

    async def _send(self, state: State, first: int, text: str) -> Answer:
        began, held = time.monotonic(), self._session.process_id is not None
        self.calls += 1
        answer = await self._session.tactic(state, text, goal=first or None, timeout_s=self._timeout_s)
        if held:
            self._timed += 1
            self._seconds += time.monotonic() - began
        return answer

    def _read(self, text: str, answer: Answer) -> Ran:
        if isinstance(answer, TacticKilled):
            return Ran(text, "killed", _line(answer.reason))
        if isinstance(answer, TacticParseError):
            return Ran(text, "unparsed", _line(answer.text), parsed=False)
        if not isinstance(answer, Stepped):
            return Ran(text, "failed", _line(answer.reason), parsed=True)
        if answer.has_sorry or answer.has_unsafe:
            self._session.release([answer.state])
            what = "a sorry" if answer.has_sorry else "unsafe code"
            return Ran(text, "sorry", f"it rests on {what}", parsed=True)
        own, at = self.own(answer.state.goals)
        return Ran(text, "step", goals=own, first=at, state=answer.state, parsed=True)

    def own(self, goals: Sequence[Goal]) -> tuple[tuple[Goal, ...], int]:
        """Return the goals that belong to this search, and the index of the first of them in the state."""
        mine = [(at, goal) for at, goal in enumerate(goals) if goal.name not in self._siblings]
        return tuple(goal for _, goal in mine), mine[0][0] if mine else 0


def normalised(text: str) -> str:
    """Return a tactic with its white space as one would write it; indentation, which Lean reads, stays."""
    lines = [line for line in text.expandtabs(2).split("\n") if line.strip()]
    indents = [len(line) - len(line.lstrip()) for line in lines]
    # The first line's own indentation says nothing.
    return "\n".join(
        " " * (indent if at else 0) + " ".join(line.split())
        for at, (line, indent) in enumerate(zip(lines, indents, strict=True))
    )


@functools.lru_cache(maxsize=4096)
def _refused(text: str) -> str:
    """Return why a text is not even tried; "" where it is. The curated tactics come again at every state."""
    if not text.strip():
        return "the text is empty"
    if len(text) > LONGEST:
        return f"the text has {len(text)} characters, and no tactic has more than {LONGEST}"
    # What looks for a proof may be run, because not it but what it finds becomes part of the proof.
    found = complaints(text.removesuffix("?"))
    return f"the text policy refuses {found[0]}"[:_REASON] if found else ""


def _suggestion(messages: Sequence[Message]) -> str | None:
    for message in messages:
        found = _SUGGESTION.search(message.data)
        if found:
            lines = [line for line in found.group(1).splitlines() if line.strip()]
            return " ".join(line.strip() for line in lines) if lines else None
    return None


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON else line[: _REASON - 1] + "…"

"""Goal states and options: what the REPL keeps between requests.

A state never changes. Ids count from 0, every command that makes states draws from the one counter, a request
that fails draws none, and only `reset` starts it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pipeline.lean.simulator.meta import Meta
from pipeline.lean.simulator.protocol import Json, Payload, Refusal
from pipeline.lean.simulator.terms import MVar, Term

FragmentKind = Literal["tactic", "calc", "conv"]


class Fragment(NamedTuple):
    """The mode that a goal is in; `previous` is the right-hand side of a calc goal's last step."""

    kind: Literal["calc", "conv"]
    previous: Term | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A goal state: holes, the goals that are shown, the root that they serve.

    `dormant` are the siblings that steps without `autoResume` have put aside: still open, no longer shown.
    `parents` are the goals that the last step worked on. `broken_root`: a step of the form `have` made the root
    a term that is none (as the REPL does), so that a state without goals proves nothing. `hides_root`: the
    root's term is never shown, as in states made of a unit's sorrys.
    """

    meta: Meta
    goals: tuple[MVar, ...]
    root: MVar
    dormant: tuple[MVar, ...] = ()
    parents: tuple[MVar, ...] = ()
    fragments: Mapping[int, Fragment] = field(default_factory=dict)
    broken_root: bool = False
    hides_root: bool = False


class States:
    """All goal states, by id."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._states)

    def table(self) -> Mapping[int, State]:
        """Return all states by id, for whoever looks at them from outside."""
        return self._states

    def add(self, state: State) -> int:
        number = self._next
        self._next += 1
        self._states[number] = state
        return number

    def mark(self) -> int:
        """Return where the ids are, for `rewind`."""
        return self._next

    def rewind(self, mark: int) -> None:
        """Take back the ids given out since `mark`: the request that drew them has failed."""
        self.delete(range(mark, self._next))
        self._next = mark

    def get(self, number: int) -> State:
        """Return a state.

        Raises:
            Refusal: there is none of that id.
        """
        state = self._states.get(number)
        if state is None:
            raise Refusal("index", f"Invalid state index {number}")
        return state

    def delete(self, numbers: Iterable[int]) -> None:
        """Drop states; ids that are unknown do not matter."""
        for number in numbers:
            self._states.pop(number, None)

    def reset(self) -> int:
        """Drop all states, start the ids again, and return how many states there were."""
        count = len(self._states)
        self._states.clear()
        self._next = 0
        return count


class Options:
    """The REPL's options, by their wire names and with their defaults."""

    def __init__(self) -> None:
        self._flags = {
            "printJsonPretty": False,
            "printExprPretty": True,
            "printExprAST": False,
            "printDependentMVars": False,
            "noRepeat": False,
            "printAuxDecls": False,
            "printImplementationDetailHyps": False,
            "automaticMode": True,
        }
        self.timeout_ms = 0

    def __getitem__(self, name: str) -> bool:
        return self._flags[name]

    def set(self, payload: Payload) -> None:
        """Change the options that the request names."""
        for name, value in payload.values().items():
            if name == "timeout":
                assert isinstance(value, int)
                self.timeout_ms = value % (1 << 32)
            else:
                self._flags[name] = value is True

    def values(self) -> Json:
        return {**self._flags, "timeout": self.timeout_ms}

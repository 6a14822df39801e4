"""What LeanDojo-v2's tactic provers have in common: a generator that all searches of a prover ask together, the search,
and one tactic at a time. The provers themselves are in `pipeline.prove.provers`.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from pipeline.lean.client.errors import ReplError
from pipeline.lean.client.messages import Goal
from pipeline.lean.goal_text import as_lean_prints, split_goals
from pipeline.lean.pool.session import Session
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.requests import Decoding, Request, Suggestions
from pipeline.models.tactics.service import GenerationService
from pipeline.models.text import state_of
from pipeline.prove.declaration import CannotAttempt, Way, prove_declaration
from pipeline.prove.effort import Outcome, Worked
from pipeline.prove.generating import GeneratorProposer, Retrieve
from pipeline.prove.proof_text import read_proof
from pipeline.prove.proposing import Asked
from pipeline.prove.restated import Restated, StatementError, of_goal, of_theorem
from pipeline.prove.retrieving import Place, PremiseFinder, Retrieval
from pipeline.prove.scoring import ModelScoring
from pipeline.prove.search import Budget
from pipeline.prove.server import LoopThread, Server, checked
from pipeline.prove.tree import Tree
from pipeline.prove.whole import Author, AuthorError, WholeAsk

BUDGET = Budget(nodes=256, seconds=600.0, tactic_timeout_s=30.0)
"""Of one search, where none is named."""
CANDIDATE = "a candidate until the gate has checked it"
SIMULATED = "the simulator took it, which proves nothing"

_OFFERED = 1024
_ENDED = {"budget": "the budget ended the search", "exhausted": "no tactic is left to try"}
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProverResult:
    """How a search ended; the first four are Pantograph's.

    Attributes:
        n_goals_root: goals that the search began with.
        duration: in seconds.
        success: whether a proof was found that Lean took as a whole text. It is a candidate until the gate has
            checked it (axioms, the kernel's word, the file as a whole).
        steps: states expanded.
        outcome: "found"; "exhausted": nothing is left to try; "budget"; "error": see `detail`.
        detail: why there is no proof, in words; "" where there is one.
        best: how far it got, one line for people.
        proof: what Lean took in the place of the proof; "" without one.
        whole_file: whether the theorem's own file was the context.
        simulated: whether the simulator stood in for Lean: then nothing is proved.
        tree: the search; None where it did not begin.
    """

    n_goals_root: int
    duration: float
    success: bool
    steps: int
    outcome: Outcome
    detail: str = ""
    best: str = ""
    proof: str = ""
    whole_file: bool = False
    simulated: bool = False
    tree: Tree | None = None


class Asking(Protocol):
    """Who answers a prover's questions, on an event loop of its own; asked from the loops of servers."""

    loop: LoopThread

    async def suggest(self, request: Request) -> Suggestions: ...

    def retrieving(self, place: Place) -> Retrieve | None:
        """Return what finds premises for goals of that place; None for a model that is shown none."""

    async def tactics(self, state: str, place: Place, decoding: Decoding, seed: int) -> list[str]:
        """Return tactics for a state, the likeliest first. Runs on `loop`."""

    def close(self) -> None: ...


A = TypeVar("A", bound=Asking)


class Prover(ABC, Generic[A]):
    """What all provers have in common: who is asked, by all of a prover's searches together, and the search.

    Attributes:
        theorem: whose states `next_tactic` is asked about; None: of no theorem that is known.
    """

    def __init__(self, *, decoding: Decoding, budget: Budget, seed: int) -> None:
        self.theorem: Any = None
        self._decoding = decoding
        self._budget = budget
        self._seed = seed
        self._offered: OrderedDict[tuple[str, Place], deque[str]] = OrderedDict()
        self._asking: A | None = None
        self._lock = threading.Lock()

    def search(
        self,
        server: Server,
        goal: str | None = None,
        theorem: Any = None,
        verbose: bool = False,
    ) -> tuple[ProverResult, list[str] | None]:
        """Search for a proof, of one of the two.

        Success means a candidate: Lean took the text where it stands, and only the gate's check makes it a proof.
        Several threads may search at once, on one server too.

        Args:
            server: runs Lean (`pipeline.prove.server.Server`).
            goal: a proposition, or a goal as Lean prints it.
            theorem: a record of `store.leandojo`: as it stands in its file where the server's project has that, else
                by its statement; or anything with `theorem_statement`; or the text of a theorem.
            verbose: whether to print what happens.

        Returns:
            how it ended, and the tactics in their order; None for these without a proof.

        Raises:
            TypeError: the server is PyPantograph's.
            ValueError: not exactly one of goal and theorem is given.
            ServerError: the server is closed.
        """
        ours = checked(server)
        if (goal is None) == (theorem is None):
            raise ValueError("search takes a goal or a theorem: exactly one of them")
        say = _say if verbose else _nothing
        try:
            restated = of_theorem(theorem, ours) if goal is None else of_goal(goal, ours.imports)
        except StatementError as error:
            say(f"nothing to search: {error}")
            return ProverResult(0, 0.0, False, 0, "error", str(error), simulated=ours.simulated), None
        say(f"searching: {restated.declaration.text.strip()}")
        result, tactics = ours.run(self._searched(ours, restated))
        if tactics is None:
            say(
                f"no proof ({result.outcome}) after {result.steps} states, {result.duration:.1f} s: {result.detail}"
            )
        else:
            say("\n".join([f"found after {result.steps} states, {result.duration:.1f} s:", *tactics]))
            say(f"This is {CANDIDATE}{f'; {SIMULATED}' if ours.simulated else ''}.")
        return result, tactics

    def next_tactic(self, state: Any, goal_id: int = 0) -> str | None:
        """Return the model's likeliest tactic for a goal; asked again about the same goal, the next one, so that who
        tries them one by one comes to the end of them.

        Args:
            state: a proposition, goals as Lean prints them, or an object with `goals` (Pantograph's, or a session's).
            goal_id: which of the goals, from 0.

        Returns:
            None where there is none (left); the log says why.

        Raises:
            ValueError: the state has no such goal.
        """
        text = _state_text(state, goal_id)
        place = self._place()
        with self._lock:
            offered = self._offered.get((text, place))
        if offered is None:
            asking = self._open()
            offered = deque(asking.loop.run(asking.tactics(text, place, self._decoding, self._seed)))
            if not offered:
                # Who failed to answer may do so the next time.
                return None
            with self._lock:
                self._offered[text, place] = offered
                if len(self._offered) > _OFFERED:
                    self._offered.popitem(last=False)
        return offered.popleft() if offered else None

    def reset(self) -> None:
        """Forget which tactics `next_tactic` has returned."""
        with self._lock:
            self._offered.clear()

    @abstractmethod
    def generate_whole_proof(self, theorem: Any, server: Server | None = None) -> str:
        """Return a whole proof of a theorem, as text that may stand behind its `:=`; "" where there is none.

        What it returns is a candidate until the gate has checked it.
        """

    def close(self) -> None:
        """End the prover's threads; it may be used again, and starts others then."""
        with self._lock:
            asking, self._asking = self._asking, None
        if asking is not None:
            asking.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _begin(self) -> A:
        """Return who is asked from now on."""

    def _place(self) -> Place:
        return Place()

    def _open(self) -> A:
        with self._lock:
            if self._asking is None:
                self._asking = self._begin()
            return self._asking

    async def _searched(self, server: Server, restated: Restated) -> tuple[ProverResult, list[str] | None]:
        asking = self._open()
        proposer = GeneratorProposer(
            asking, decoding=self._decoding, retrieve=asking.retrieving(restated.place)
        )
        key = server.key(restated.imports)
        worked, problem = Worked(), ""
        try:
            async with Session(await server.pool(), key, restated.setup) as session:
                worked = await prove_declaration(
                    session,
                    restated.declaration,
                    way=Way(proposer, scoring=ModelScoring(), seed=self._seed),
                    budget=self._budget,
                )
        except (CannotAttempt, ReplError) as error:
            problem = str(error)
        return _result(worked, problem, proposer.reason, restated, server.simulated)


class TacticProver(Prover["_Asking"]):
    """A prover with a generator of its own, asked through one service."""

    def __init__(self, generator: Generator, *, decoding: Decoding, budget: Budget, seed: int) -> None:
        super().__init__(decoding=decoding, budget=budget, seed=seed)
        self.generator = generator

    def _finder(self) -> PremiseFinder | None:
        return None

    def _begin(self) -> _Asking:
        return _Asking(self.generator, self._finder())


class _Asking:
    """A prover's models on an event loop of their own, asked from the loops of servers (`generating.Suggests`)."""

    def __init__(self, generator: Generator, finder: PremiseFinder | None) -> None:
        self.loop = LoopThread("prover")
        self._service = GenerationService(generator)
        self._retrieval = None if finder is None else Retrieval(finder)
        self._held = AsyncExitStack()
        self.loop.run(self._start())

    async def suggest(self, request: Request) -> Suggestions:
        return await self.loop.of_another_loop(self._service.suggest(request))

    def retrieving(self, place: Place) -> Retrieve | None:
        retrieval = self._retrieval
        if retrieval is None:
            return None

        async def premises(asked: Asked) -> tuple[str, ...]:
            found: Coroutine[Any, Any, tuple[str, ...]] = retrieval.premises(state_of(asked.goals), place)
            return await self.loop.of_another_loop(found)

        return premises

    async def tactics(self, state: str, place: Place, decoding: Decoding, seed: int) -> list[str]:
        """Return tactics for a state, the likeliest first. Runs on this loop."""
        premises = () if self._retrieval is None else await self._retrieval.premises(state, place)
        found = await self._service.suggest(Request(state, premises, decoding, seed))
        if not found.tactics:
            why = found.error or ", ".join(f"{name} {count}" for name, count in found.left_out.items())
            _log.warning("no tactic for a goal: %s", why or "the model said nothing")
        return [one.tactic for one in found.tactics]

    def close(self) -> None:
        self.loop.run(self._held.aclose())
        self.loop.close()

    async def _start(self) -> None:
        if self._retrieval is not None:
            await self._held.enter_async_context(self._retrieval)
        await self._held.enter_async_context(self._service)


async def first_proof(author: Author, ask: WholeAsk) -> str:
    """Return the first proof that an author writes, which Lean has not seen; "" without one, and the log says why."""
    try:
        written = await author.write(ask)
    except AuthorError as error:
        _log.warning("no whole proof: %s", error)
        return ""
    why = written.missing
    for text in written.texts:
        read = read_proof(text, ask.declaration, ordinal=ask.ordinal)
        if read.proofs:
            return read.proofs[0]
        why = read.why
    _log.warning("no whole proof: %s", why or "the model said nothing")
    return ""


def _result(
    worked: Worked, problem: str, said: str, restated: Restated, simulated: bool
) -> tuple[ProverResult, list[str] | None]:
    whole: dict[str, Any] = {"whole_file": restated.whole_file, "simulated": simulated}
    if worked.solved:
        (solved,) = worked.solved.values()
        effort, proof = solved.effort, restated.proof(solved.replacement)
        return ProverResult(
            1, effort.seconds, True, effort.nodes, "found", "", effort.best, proof, tree=effort.tree, **whole
        ), list(solved.tactics)
    if not worked.unsolved:
        return ProverResult(0, 0.0, False, 0, "error", problem, **whole), None
    effort, outcome = worked.unsolved[-1][1], worked.unsolved[-1][1].outcome
    why = [problem, effort.detail or said]
    if outcome == "found":
        outcome = "error"
        why.append(f"a proof was found and Lean does not take it as a whole text: {worked.unplaced}")
    detail = "; ".join(filter(None, why)) or _ENDED.get(outcome, "")
    return ProverResult(
        1, effort.seconds, False, effort.nodes, outcome, detail, effort.best, tree=effort.tree, **whole
    ), None


def _state_text(state: Any, goal_id: int) -> str:
    """Return a state as the datasets have it, the goal that is asked about first."""
    if isinstance(state, str):
        goals = split_goals(state) if "⊢" in state or state.strip() == "" else [f"⊢ {state.strip()}"]
    else:
        goals = [as_lean_prints(goal) if isinstance(goal, Goal) else str(goal) for goal in state.goals]
    if not 0 <= goal_id < len(goals):
        raise ValueError(f"goal_id is {goal_id}, and the state has {len(goals)} goals")
    return "\n\n".join([goals[goal_id], *goals[:goal_id], *goals[goal_id + 1 :]])


def _say(line: str) -> None:
    print(line)  # noqa: T201 - asked for


def _nothing(_: str) -> None:
    return

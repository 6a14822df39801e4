"""LeanDojo-v2's provers: `HFProver` asks a causal model or a LoRA adapter, `RetrievalProver` ReProver's generator with
retrieved premises.

    prover = HFProver("outputs/sft")
    with Server(project="/path/to/repository", imports=["Mathlib"]) as server:
        result, tactics = prover.search(server, goal="∀ p : Prop, p → p")

Prompts are those that the trainer used. The search is the prove job's: best first, budgeted, all searches of a prover
batched together. What it finds was tried as a whole text in its place; it is a candidate all the same until the gate
has checked it.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from pipeline.jobs.specs import Budget, EndpointSpec
from pipeline.lean.client.errors import ReplError
from pipeline.lean.client.messages import Goal
from pipeline.lean.goal_text import as_lean_prints, split_goals
from pipeline.lean.pool.session import Session
from pipeline.loop_thread import LoopThread
from pipeline.models.config import Device
from pipeline.models.endpoint.client import open_client
from pipeline.models.endpoint.errors import Usage
from pipeline.models.errors import ModelError
from pipeline.models.libraries import device_of
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import ADAPTER
from pipeline.models.tactics.requests import Decoding, Request, Suggestions
from pipeline.models.tactics.service import GenerationService
from pipeline.models.text import state_of
from pipeline.prove.authors import ExternalAuthor, HFAuthor
from pipeline.prove.declaration import CannotAttempt, Way, prove_declaration
from pipeline.prove.effort import Outcome, Worked
from pipeline.prove.generator import TACTIC_TOKENS, EndpointSuggests, GeneratorProposer, Retrieve
from pipeline.prove.graph import Asked, ModelScoring
from pipeline.prove.lean_server import (
    Restated,
    Server,
    StatementError,
    checked,
    of_goal,
    of_theorem,
)
from pipeline.prove.retrieval import Place, PremiseFinder, Retrieval, read_corpus
from pipeline.prove.tree import Tree
from pipeline.prove.whole_proof import (
    Author,
    AuthorError,
    Cost,
    Filling,
    WholeAsk,
    WholeBudget,
    WholeResult,
    Written,
    prove_whole,
    read_proof,
)

# ---- What LeanDojo-v2's tactic provers have in common
# A generator that all searches of a prover ask together, the search, and one tactic at a time. The provers themselves
# are in `pipeline.prove.compat`.


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
            server: runs Lean (`pipeline.prove.lean_server.Server`).
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


class HFProver(TacticProver):
    """Proves with a causal model (or an encoder-decoder) alone: a folder, a hub name, or a LoRA adapter's folder."""

    def __init__(
        self,
        ckpt_path: str | Path,
        use_lora: bool = False,
        device: Device = "auto",
        *,
        decoding: Decoding | None = None,
        budget: Budget = BUDGET,
        seed: int = 0,
        whole_tokens: int = 512,
    ) -> None:
        """Load the model.

        Args:
            ckpt_path: as a trainer wrote it, with its tokenizer.
            use_lora: whether it is an adapter. One that is found is used either way.
            device: "auto" is a GPU where there is one.
            decoding: how many tactics for a state, and how; None: 8 beams.
            budget: of one search.
            seed: of what is drawn.
            whole_tokens: of a whole proof, at most.

        Raises:
            ModelError: it cannot be used; or it is no adapter and should be one.
            ConfigError: there is no such device.
        """
        if use_lora and Path(ckpt_path).is_dir() and not (Path(ckpt_path) / ADAPTER).is_file():
            raise ModelError(
                f"{ckpt_path} is no LoRA adapter (it has no {ADAPTER}). Leave use_lora out, or name the folder that a "
                "trainer with lora_config wrote"
            )
        super().__init__(
            Generator.load(ckpt_path, device=device),
            decoding=decoding or Decoding(),
            budget=budget,
            seed=seed,
        )
        self._model = str(ckpt_path)
        self._whole_tokens = whole_tokens

    def generate_whole_proof(self, theorem: Any, server: Server | None = None) -> str:
        """Return the model's likeliest proof; Lean is not asked about it.

        Args:
            theorem: as `search` takes it.
            server: whose project has the theorem's file, which the model is then shown; None: the statement alone.

        Returns:
            text that may stand behind the theorem's `:=`: a candidate until the gate has checked it. "" where the
            model wrote none; the log says why.

        Raises:
            StatementError: the theorem cannot be stated.
        """
        restated = of_theorem(theorem, None if server is None else checked(server))
        context = restated.context if restated.whole_file else ""
        ask = WholeAsk(context, restated.declaration.text, seed=self._seed)
        return self._open().loop.run(self._written(ask))

    async def _written(self, ask: WholeAsk) -> str:
        async with HFAuthor(self.generator, self._model, max_tokens=self._whole_tokens) as author:
            return await first_proof(author, ask)


class RetrievalProver(TacticProver):
    """Proves with ReProver's generator, which is shown the premises nearest to the goal."""

    def __init__(
        self,
        ret_ckpt_path: str | Path,
        gen_ckpt_path: str | Path,
        indexed_corpus_path: str | Path,
        *,
        device: Device = "auto",
        premises: int = 10,
        indices: str | Path | None = None,
        decoding: Decoding | None = None,
        budget: Budget = BUDGET,
        seed: int = 0,
    ) -> None:
        """Load both models and the corpus; embed what of that is not embedded yet.

        Args:
            ret_ckpt_path: the retriever: a folder (a checkpoint of the chain), a hub name, or LeanDojo's `.ckpt`.
            gen_ckpt_path: the tactic generator.
            indexed_corpus_path: a corpus.jsonl, or the folder of a dataset.
            device: "auto" is a GPU where there is one.
            premises: how many a goal is shown with.
            indices: a folder that keeps embeddings; None: the corpus is embedded anew each time.
            decoding: how many tactics for a state, and how; None: 8 beams.
            budget: of one search.
            seed: of what is drawn.

        Raises:
            ModelError: the generator cannot be used.
            LearningError: the retriever or the corpus cannot be used.
            ConfigError: there is no such device.
        """
        super().__init__(
            Generator.load(gen_ckpt_path, device=device),
            decoding=decoding or Decoding(),
            budget=budget,
            seed=seed,
        )
        self._premises = PremiseFinder.load(
            ret_ckpt_path,
            read_corpus(indexed_corpus_path),
            device=device_of(device),
            premises=premises,
            indices=None if indices is None else Path(indices),
        )

    def generate_whole_proof(self, theorem: Any, server: Server | None = None) -> str:
        """Search for a proof and return it as text; LeanDojo's RetrievalProver has no whole proofs.

        Args:
            theorem: as `search` takes it.
            server: runs Lean; None: one is made for the search alone, with nothing but Lean's own modules.

        Returns:
            text that Lean took behind the theorem's `:=`: a candidate until the gate has checked it. "" where none was
            found; the log says why.

        Raises:
            ServerError: no server was given, and there is no Lean here.
        """
        if server is None:
            with Server() as own:
                return self.generate_whole_proof(theorem, own)
        result, _ = self.search(server, theorem=theorem)
        if not result.success:
            _log.warning("no whole proof (%s): %s", result.outcome, result.detail)
        return result.proof

    def _finder(self) -> PremiseFinder:
        return self._premises

    def _place(self) -> Place:
        path, start = getattr(self.theorem, "file_path", None), getattr(self.theorem, "start", None)
        if path is None or start is None:
            return Place()
        line, column = start
        return Place(str(path), (int(line), int(column)), str(getattr(self.theorem, "full_name", "")), ())


# ---- `ExternalProver`: LeanDojo-v2's prover that asks a model behind an OpenAI-compatible endpoint
#
#     prover = ExternalProver("org/model", base_url="http://127.0.0.1:8000/v1")
#     with Server(project="/path/to/repository", imports=["Mathlib"]) as server:
#         result, tactics = prover.search(server, goal="∀ p : Prop, p → p")
#         proof = prover.generate_whole_proof("theorem t (p : Prop) : p → p", server)
# It is the other provers' search, with another model to ask. An endpoint tells no probabilities: of the tactics that
# it suggests for a state, those that it suggests more often are tried first.


ROUTER = "https://router.huggingface.co/v1"
"""Hugging Face's, which LeanDojo-v2 asks; its key is in HF_TOKEN."""
CREDENTIAL = "unsorry-model-key"
KEY_VARIABLE = "UNSORRY_MODEL_KEY"
_ROUTER_KEY = "HF_TOKEN"


class ExternalProver(Prover["_Endpoint"]):
    """Proves with a model behind an endpoint. It costs money where the endpoint does: `usage` says how much."""

    def __init__(
        self,
        model_name: str,
        *,
        base_url: str = ROUTER,
        credential: str = CREDENTIAL,
        key_variable: str = "",
        usd_per_day: float | None = None,
        usd_per_million_prompt: float | None = None,
        usd_per_million_completion: float | None = None,
        ledger: str | Path | None = None,
        timeout_s: float = 120.0,
        retries: int = 4,
        candidates: int = 4,
        temperature: float = 0.6,
        max_tokens: int = TACTIC_TOKENS,
        whole_tokens: int = 2048,
        proofs: int = 1,
        repairs: int = 2,
        budget: Budget = BUDGET,
        seed: int = 0,
    ) -> None:
        """Nothing is asked yet.

        Args:
            model_name: as the endpoint names it.
            base_url: of the endpoint.
            credential: name of systemd's credential with the key.
            key_variable: name of the environment variable with the key; "": UNSORRY_MODEL_KEY, and HF_TOKEN for Hugging
                Face's router.
            usd_per_day: a cap for the UTC day, over all that is in the ledger; None: no cap. It takes the prices and a
                ledger.
            usd_per_million_prompt, usd_per_million_completion: the prices.
            ledger: a file that several processes may share.
            timeout_s, retries: see `pipeline.models.endpoint.dialect.Endpoint`.
            candidates, temperature, max_tokens: answers for a state, how they are drawn, and their tokens at most.
            whole_tokens: of a whole proof, at most.
            proofs, repairs: whole proofs a turn, and turns after the first.
            budget: of one search.
            seed: of what is drawn, where the endpoint listens to it.

        Raises:
            ExternalError: the address cannot be meant, the key cannot be used, or the cap could not be held.
        """
        decoding = Decoding(candidates, "sampling", temperature, max_tokens=max_tokens)
        super().__init__(decoding=decoding, budget=budget, seed=seed)
        self._spec = EndpointSpec(
            base_url=base_url,
            model=model_name,
            credential=credential,
            key_variable=key_variable or (_ROUTER_KEY if base_url.startswith(ROUTER) else KEY_VARIABLE),
            timeout_s=timeout_s,
            retries=retries,
            ledger=None if ledger is None else Path(ledger),
            cap_usd=usd_per_day,
            usd_per_million_prompt=usd_per_million_prompt,
            usd_per_million_completion=usd_per_million_completion,
        )
        self._whole_tokens, self._proofs, self._repairs = whole_tokens, proofs, repairs
        self._spent = Usage()
        # What cannot be meant is said here, and not at the first question.
        self._begin().close()

    @property
    def usage(self) -> Usage:
        """Tokens and money so far; `usd` is None where no prices are given."""
        return self._spent if self._asking is None else self._spent + self._asking.usage

    def generate_whole_proof(self, theorem: Any, server: Server | None = None) -> str:
        """Return a whole proof.

        Args:
            theorem: as `search` takes it.
            server: runs Lean: its errors go back to the model for `repairs` turns, and what is returned is a text that
                Lean took. None: Lean is not asked, and the first text is returned.

        Returns:
            text that may stand behind the theorem's `:=`: a candidate until the gate has checked it. "" where there is
            none; the log says why.

        Raises:
            StatementError: the theorem cannot be stated.
        """
        ours = None if server is None else checked(server)
        restated = of_theorem(theorem, ours)
        asking = self._open()
        if ours is None:
            return asking.loop.run(first_proof(asking, self._ask(restated, count=1)))
        result = ours.run(self._proved(ours, restated, asking))
        if result.found is None:
            _log.warning("no whole proof (%s): %s; %s", result.outcome, result.detail, result.best)
        return result.found or ""

    def close(self) -> None:
        self._spent = self.usage
        super().close()

    def _begin(self) -> _Endpoint:
        return _Endpoint(self._spec, self._whole_tokens)

    def _ask(self, restated: Restated, *, count: int) -> WholeAsk:
        context = restated.context if restated.whole_file else ""
        return WholeAsk(context, restated.declaration.text, count=count, seed=self._seed)

    async def _proved(self, server: Server, restated: Restated, asking: _Endpoint) -> WholeResult:
        key = server.key(restated.imports)
        async with Session(await server.pool(), key, restated.setup) as session:
            (sorry,) = restated.declaration.sorries
            timeout_s = max(self._budget.tactic_timeout_s, 10.0)
            return await prove_whole(
                self._ask(restated, count=self._proofs),
                author=asking,
                check=Filling(session, restated.declaration, sorry, timeout_s=timeout_s),
                budget=WholeBudget(self._budget.seconds),
                repairs=self._repairs,
                judge=session.judge,
            )


class _Endpoint:
    """An endpoint on an event loop of its own, asked from the loops of servers (`tactic_prover.Asking`)."""

    name = ExternalAuthor.name

    def __init__(self, spec: EndpointSpec, whole_tokens: int) -> None:
        self._client = open_client(spec)
        self.loop = LoopThread("external")
        self._suggests = EndpointSuggests(self._client)
        self._author = ExternalAuthor(self._client, max_tokens=whole_tokens)
        self._written = Usage()

    @property
    def model(self) -> str:
        return self._client.endpoint.model

    @property
    def usage(self) -> Usage:
        return self._suggests.usage + self._written

    async def suggest(self, request: Request) -> Suggestions:
        return await self.loop.of_another_loop(self._suggests.suggest(request))

    async def write(self, ask: WholeAsk) -> Written:
        return await self.loop.of_another_loop(self._write(ask))

    def retrieving(self, place: Place) -> Retrieve | None:  # noqa: ARG002 - it is the protocol's
        return None

    async def tactics(self, state: str, place: Place, decoding: Decoding, seed: int) -> list[str]:  # noqa: ARG002
        """Return tactics for a state, the likeliest first. Runs on this loop."""
        found = await self._suggests.suggest(Request(state, (), decoding, seed))
        if not found.tactics:
            why = found.error or ", ".join(f"{name} {count}" for name, count in found.left_out.items())
            _log.warning("no tactic for a goal: %s", why or "the model said nothing")
        return [one.tactic for one in found.tactics]

    def close(self) -> None:
        self.loop.run(self._client.close())
        self.loop.close()

    async def _write(self, ask: WholeAsk) -> Written:
        try:
            written = await self._author.write(ask)
        except AuthorError as error:
            self._written += _usage(error.cost)
            raise
        self._written += _usage(written.cost)
        return written


def _usage(cost: Cost) -> Usage:
    return Usage(cost.prompt_tokens, cost.completion_tokens, cost.usd)

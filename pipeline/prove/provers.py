"""Provers for programs of one's own, under LeanDojo-v2's names.

    prover = HFProver("outputs/sft")
    with Server(project="/path/to/repository", imports=["Mathlib"]) as server:
        result, tactics = prover.search(server, goal="∀ p : Prop, p → p")

Prompts are the trainer's. The search is the prove job's: best first, budgeted, with the requests of all searches of a
prover in one batch. Lean accepted every returned proof as a whole text in its place; it is a candidate until the gate
has checked it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pipeline.endpoint.client import ChatClient
from pipeline.endpoint.errors import Usage
from pipeline.jobs.specs import CORPUS, Budget, EndpointSpec
from pipeline.lean.client.errors import ReplError
from pipeline.lean.client.messages import Goal
from pipeline.lean.goal_text import as_lean_prints, split_goals
from pipeline.lean.source.splice import Replacement
from pipeline.loop_thread import LoopThread
from pipeline.models.adapters import ADAPTER, model_for
from pipeline.models.config import Device
from pipeline.models.errors import DatasetError, ModelError
from pipeline.models.model_files import begun
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.finder import Finder, Place
from pipeline.models.retriever.index import load_retriever
from pipeline.models.tactics.generate import load_generator
from pipeline.models.tactics.requests import Decoding, Request, Suggestion, Suggestions
from pipeline.models.tactics.service import Batching
from pipeline.prove.authors import TACTIC_TOKENS, EndpointModel, HFAuthor
from pipeline.prove.curated import CuratedTactics
from pipeline.prove.declaration import CannotAttempt, DeclarationProver
from pipeline.prove.effort import DeclarationResult, Effort, Outcome
from pipeline.prove.generator import GeneratorProposer, Suggest
from pipeline.prove.graph import ModelScoring
from pipeline.prove.premises import Retrieval, ShownPremises
from pipeline.prove.rungs import Engine, FilePlace, ladder, proposing
from pipeline.prove.search import SearchMethod
from pipeline.prove.server import (
    RestatedTheorem,
    Server,
    StatementError,
    checked,
    place_of,
    restate_goal,
    restate_theorem,
)
from pipeline.prove.tree import Tree
from pipeline.prove.whole_proof import Author, AuthorAnswers, WholeAsk, WholeProofMethod, prove_whole

BUDGET = Budget(nodes=256, seconds=600.0, tactic_timeout_s=30.0)
"""The default budget of one search."""
ROUTER = "https://router.huggingface.co/v1"
"""Hugging Face's, LeanDojo-v2's default; its key is in HF_TOKEN."""

_OFFERED = 1024
_ENDED = {"budget": "the budget ended the search", "exhausted": "no tactic is left to try"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProverResult:
    """The end of a search; the first four fields are Pantograph's.

    Attributes:
        n_goals_root: goals at the beginning.
        duration: in seconds.
        success: whether Lean accepted a proof as a whole text. It is a candidate until the gate has checked it.
        steps: expanded states.
        outcome: "found"; "exhausted": nothing is left to try; "budget"; "error": see `detail`.
        detail: the reason for no proof; "" with one.
        best: the progress, in a line for people.
        proof: the proof's text as accepted by Lean; "" without one.
        whole_file: whether the theorem's own file was the context.
        tree: the search; None if it did not begin.
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
    tree: Tree | None = None


class _Model:
    """A prover's model on an event loop of its own; searches send requests from the loops of their servers."""

    def __init__(
        self, suggest: Suggest, *held: AbstractAsyncContextManager[Any], retrieval: Retrieval | None = None
    ) -> None:
        """Args:
        suggest: asks the model; runs on `loop`.
        held: its resources, open until the end.
        retrieval: its source of premises; None: no premises.
        """
        self.loop = LoopThread("prover")
        self._asked = suggest
        self._retrieval = retrieval
        self._held = AsyncExitStack()
        self.loop.run(self._open(held))

    async def suggest(self, request: Request) -> Suggestions:
        return await self.loop.of_another_loop(self._asked(request))

    async def tactics(self, state: str, place: Place, decoding: Decoding, seed: int) -> list[str]:
        """Return tactics for a state, the likeliest first. Runs on `loop`."""
        premises = () if self._retrieval is None else await self._retrieval.at(place)(state)
        shown = tuple(premise.serialize() for premise in premises)
        result = await self._asked(Request(state, shown, decoding, seed))
        if not result.tactics:
            why = result.error or ", ".join(f"{name} {count}" for name, count in result.left_out.items())
            _log.warning("no tactic for a goal: %s", why or "the model returned nothing")
        return [one.tactic for one in result.tactics]

    def shown(self, place: Place) -> ShownPremises | None:
        """Return the premises for goals of a place; None for a model without premises."""
        if self._retrieval is None:
            return None
        find = self._retrieval.at(place)
        return ShownPremises(lambda state: self.loop.of_another_loop(find(state)))

    def close(self) -> None:
        self.loop.run(self._held.aclose())
        self.loop.close()

    async def _open(self, held: Iterable[AbstractAsyncContextManager[Any]]) -> None:
        for one in held:
            await self._held.enter_async_context(one)


class Prover:
    """A model and a search. Requests of several searches at once go to the model in one batch.

    Subclasses define `next_tactic`, and `generate_whole_proof` if they write whole proofs.

    Attributes:
        theorem: the theorem behind the states for `next_tactic`; None: if unknown.
    """

    def __init__(self, *, decoding: Decoding | None = None, budget: Budget = BUDGET, seed: int = 0) -> None:
        self.theorem: Any = None
        self._decoding = decoding or Decoding()
        self._budget = budget
        self._seed = seed
        self._offered: OrderedDict[tuple[str, Place], deque[str]] = OrderedDict()
        self._model: _Model | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of its attempts in the record: another name is tried anew."""
        return type(self).__qualname__

    def engine(self, *, whole: bool = False) -> Engine:
        """Return the prover as an engine of the prove job.

        Args:
            whole: whether it writes whole proofs, instead of tactics for a search.
        """
        if whole:
            return replace(ladder(), wholly=WholeProofMethod(self._write_whole, proofs=1, repairs=0))
        model = self._open()

        def show(place: FilePlace, name: str, position: tuple[int, int]) -> ShownPremises | None:
            return model.shown(Place(place.path, position, name, place.imports))

        return Engine(proposing(model.suggest, self._decoding), show, scoring=ModelScoring())

    def search(
        self,
        server: Server,
        goal: str | None = None,
        theorem: Any = None,
        verbose: bool = False,
    ) -> tuple[ProverResult, list[str] | None]:
        """Search for a proof of a goal or of a theorem.

        Several threads may search at once, on one server too.

        Args:
            server: runs Lean.
            goal: a proposition, or a goal as Lean prints it.
            theorem: as `restate_theorem` takes it.
            verbose: whether to print the progress.

        Returns:
            the result, and the tactics in their order; None for these without a proof.

        Raises:
            TypeError: the server is PyPantograph's.
            ValueError: not exactly one of goal and theorem is given.
            ServerError: the server is closed.
        """
        ours = checked(server)
        if (goal is None) == (theorem is None):
            raise ValueError("search takes a goal or a theorem: exactly one of them")
        try:
            restated = restate_theorem(theorem, ours) if goal is None else restate_goal(goal, ours.imports)
        except StatementError as error:
            if verbose:
                _print(f"nothing to search: {error}")
            return ProverResult(0, 0.0, False, 0, "error", str(error)), None
        if verbose:
            _print(f"searching: {restated.declaration.text.strip()}")
        model = self._open()
        proposer = GeneratorProposer(
            model.suggest, decoding=self._decoding, premises=model.shown(restated.place)
        )
        method = SearchMethod(proposer, scoring=ModelScoring(), seed=self._seed)
        result, tactics = ours.run(self._prove(ours, restated, method))
        if verbose:
            head = f"after {result.steps} states, {result.duration:.1f} s"
            if tactics is None:
                _print(f"no proof ({result.outcome}) {head}: {result.detail}")
            else:
                candidate = "This is a candidate until the gate has checked it."
                _print("\n".join([f"found {head}:", *tactics, candidate]))
        return result, tactics

    def next_tactic(self, state: Any, goal_id: int = 0) -> str | None:
        """Return the model's likeliest tactic for a goal, and the next one with each repeated call.

        Args:
            state: a proposition, goals as Lean prints them, or an object with `goals` (Pantograph's, or a session's).
            goal_id: the index of the goal, from 0.

        Returns:
            None if no tactic is left; the log says why.

        Raises:
            ValueError: the state has no such goal.
        """
        text, place = _state_text(state, goal_id), place_of(self.theorem)
        with self._lock:
            offered = self._offered.get((text, place))
        if offered is None:
            model = self._open()
            offered = deque(model.loop.run(model.tactics(text, place, self._decoding, self._seed)))
            if not offered:
                # Not kept: the next call asks the model again.
                return None
            with self._lock:
                self._offered[text, place] = offered
                if len(self._offered) > _OFFERED:
                    self._offered.popitem(last=False)
        with self._lock:
            return offered.popleft() if offered else None

    def reset(self) -> None:
        """Forget the tactics returned by `next_tactic`."""
        with self._lock:
            self._offered.clear()

    def generate_whole_proof(self, theorem: Any, server: Server | None = None) -> str:
        """Return a whole proof of a theorem, as text to follow its `:=`; "" without one, and the log says why.

        It is a candidate until the gate has checked it. Here it comes from a search; without a server, on one with
        Lean's own modules alone.

        Args:
            theorem: as `restate_theorem` takes it.
            server: see each prover.

        Raises:
            StatementError: the theorem cannot be stated.
            ServerError: the caller gave no server, and there is no Lean here.
        """
        if server is None:
            with Server() as own:
                return self.generate_whole_proof(theorem, own)
        return _proof_of(self.search(server, theorem=theorem)[0])

    def close(self) -> None:
        """End the prover's threads; the next call starts them again."""
        with self._lock:
            model, self._model = self._model, None
        if model is not None:
            model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> _Model:
        if type(self).next_tactic is Prover.next_tactic:
            raise TypeError(
                f"{type(self).__qualname__} has no next_tactic(state, goal_id) of its own; define it"
            )
        return _Model(self._suggest_next)

    async def _suggest_next(self, request: Request) -> Suggestions:
        def ask() -> list[str]:
            result: list[str] = []
            while len(result) < request.decoding.candidates:
                tactic = self.next_tactic(request.state, 0)
                if tactic is None or tactic in result:
                    break
                result.append(tactic)
            return result

        tactics = await asyncio.to_thread(ask)
        return Suggestions(tuple(Suggestion(one, -float(at)) for at, one in enumerate(tactics)), {})

    async def _write_whole(self, ask: WholeAsk) -> AuthorAnswers:
        text = await asyncio.to_thread(self.generate_whole_proof, ask.declaration.text)
        return AuthorAnswers((text,)) if text else AuthorAnswers((), missing="the prover wrote no proof")

    def _open(self) -> _Model:
        with self._lock:
            if self._model is None:
                self._model = self._start()
            return self._model

    async def _prove(
        self,
        server: Server,
        restated: RestatedTheorem,
        method: SearchMethod,
        wholly: WholeProofMethod | None = None,
    ) -> tuple[ProverResult, list[str] | None]:
        worked, problem = DeclarationResult(), ""
        try:
            async with server.session(restated) as session:
                prover = DeclarationProver(session, restated.declaration, self._budget, method, wholly=wholly)
                worked = await prover.prove()
        except (CannotAttempt, ReplError) as error:
            problem = str(error)
        return _result(worked, problem, method.proposer.reason, restated)


def _proof_of(result: ProverResult) -> str:
    if not result.success:
        _log.warning("no whole proof: %s: %s", result.outcome, result.detail)
    return result.proof


def _result(
    worked: DeclarationResult, problem: str, reason: str, restated: RestatedTheorem
) -> tuple[ProverResult, list[str] | None]:
    solved = next(iter(worked.solved.values()), None)
    efforts = [effort for _, effort in worked.unsolved] if solved is None else [solved.effort]
    effort = efforts[-1] if efforts else Effort("error")
    outcome, detail, proof = effort.outcome, "", ""
    if solved is not None:
        proof = restated.proof(solved.replacement)
    else:
        why = [problem, effort.detail or reason]
        if outcome == "found":
            outcome = "error"
            why.append(f"a proof was found and Lean does not take it as a whole text: {worked.unplaced}")
        detail = "; ".join(filter(None, why)) or _ENDED.get(outcome, "")
    result = ProverResult(
        min(len(efforts), 1),
        effort.seconds,
        solved is not None,
        effort.nodes,
        outcome,
        detail,
        effort.best,
        proof,
        restated.whole_file,
        effort.tree,
    )
    return result, None if solved is None else list(solved.tactics)


async def _unseen(ask: WholeAsk, author: Author) -> str:
    """Return an author's first readable proof; "" without one, and the log says why. Lean sees none."""

    async def take(proof: str, _seconds: float) -> Replacement:
        return Replacement(0, 0, proof)

    effort = await prove_whole(ask, WholeProofMethod(author, proofs=1, repairs=0), take, seconds=inf)
    if effort.written is None:
        _log.warning("no whole proof: %s; %s", effort.detail, effort.best)
        return ""
    return effort.written.text


def _state_text(state: Any, goal_id: int) -> str:
    """Return a state as the datasets have it, the requested goal first."""
    if isinstance(state, str):
        goals = split_goals(state) if "⊢" in state or state.strip() == "" else [f"⊢ {state.strip()}"]
    else:
        goals = [as_lean_prints(goal) if isinstance(goal, Goal) else str(goal) for goal in state.goals]
    if not 0 <= goal_id < len(goals):
        raise ValueError(f"goal_id is {goal_id}, and the state has {len(goals)} goals")
    return "\n\n".join([goals[goal_id], *goals[:goal_id], *goals[goal_id + 1 :]])


class _AnyProver(Prover):
    """An object of the caller's with `next_tactic`, and `generate_whole_proof` where it writes whole proofs."""

    def __init__(self, prover: Any) -> None:
        super().__init__()
        self._prover = prover

    @property
    def name(self) -> str:
        return str(getattr(self._prover, "name", "") or type(self._prover).__qualname__)

    def next_tactic(self, state: Any, goal_id: int = 0) -> str | None:
        result: str | None = self._prover.next_tactic(state, goal_id)
        return result

    def generate_whole_proof(self, theorem: Any, server: Server | None = None) -> str:
        if not hasattr(self._prover, "generate_whole_proof"):
            return super().generate_whole_proof(theorem, server)
        return str(self._prover.generate_whole_proof(theorem) or "")


def as_prover(prover: Any) -> Prover:
    """Return a prover, made of whatever has `next_tactic`.

    Raises:
        TypeError: it has not.
    """
    if isinstance(prover, Prover):
        return prover
    if not callable(getattr(prover, "next_tactic", None)):
        raise TypeError(f"{type(prover).__qualname__} is no prover: it has no next_tactic(state, goal_id)")
    return _AnyProver(prover)


def _print(text: str) -> None:
    print(text)  # noqa: T201 - the caller's `verbose`


class HFProver(Prover):
    """A prover with a causal model (or an encoder-decoder): a folder, a hub name, or a LoRA adapter's folder."""

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
            ckpt_path: a trainer's folder, with its tokenizer.
            use_lora: require an adapter. An adapter found there is used either way.
            device: "auto" is a GPU if there is one.
            decoding: the number of tactics for a state, and the sampling; None: 8 beams.
            budget: of one search.
            seed: of the sampling.
            whole_tokens: the maximum of a whole proof.

        Raises:
            ModelError: it cannot be used; or it is no adapter and should be one.
            ConfigError: there is no such device.
        """
        if use_lora and Path(ckpt_path).is_dir() and not (Path(ckpt_path) / ADAPTER).is_file():
            raise ModelError(
                f"{ckpt_path} is no LoRA adapter (it has no {ADAPTER}). Leave use_lora out, or name the folder that a "
                "trainer with lora_config wrote"
            )
        super().__init__(decoding=decoding, budget=budget, seed=seed)
        self.generator = load_generator(ckpt_path, device=device)
        self._name = str(ckpt_path)
        self._whole_tokens = whole_tokens

    @property
    def name(self) -> str:
        """The folder or hub name; a folder's name ends with the identity of its weights."""
        weights = begun(Path(self._name)) if Path(self._name).is_dir() else None
        return f"{self._name}@{weights[:12]}" if weights else self._name

    def generate_whole_proof(self, theorem: Any, server: Server | None = None) -> str:
        """Return the model's likeliest proof, without Lean; the server's project gives the model the theorem's file."""
        restated = restate_theorem(theorem, None if server is None else checked(server))
        return self._open().loop.run(self._write(restated.asked(seed=self._seed)))

    async def _write(self, ask: WholeAsk) -> str:
        async with HFAuthor(self.generator, max_tokens=self._whole_tokens) as author:
            return await _unseen(ask, author.write)

    def _start(self) -> _Model:
        service = Batching(self.generator.suggest)
        return _Model(service.ask, service)


class RetrievalProver(Prover):
    """A prover with ReProver's generator and the premises nearest to the goal."""

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
        """Load both models and the corpus; embed new premises.

        Args:
            ret_ckpt_path: the retriever: a folder (a checkpoint of the chain), a hub name, or LeanDojo's `.ckpt`.
            gen_ckpt_path: the tactic generator.
            indexed_corpus_path: a corpus.jsonl, or the folder of a dataset.
            device, decoding, budget, seed: see `HFProver`.
            premises: the number for each goal.
            indices: a folder for embeddings; None: the corpus is embedded anew each time.

        Raises:
            ModelError: the generator cannot be used.
            LearningError: the retriever or the corpus cannot be used.
            ConfigError: there is no such device.
        """
        super().__init__(decoding=decoding, budget=budget, seed=seed)
        self.generator = load_generator(gen_ckpt_path, device=device)
        self._finder = Finder(
            read_corpus(indexed_corpus_path),
            premises=premises,
            retriever=load_retriever(model_for(ret_ckpt_path, None), device=device),
            words=False,
            indices=None if indices is None else Path(indices),
        )

    def _start(self) -> _Model:
        retrieval, service = Retrieval(self._finder), Batching(self.generator.suggest)
        return _Model(service.ask, retrieval, service, retrieval=retrieval)


def read_corpus(path: str | Path) -> Corpus:
    """Return the corpus of a file `corpus.jsonl`, or of a dataset's folder.

    Raises:
        DatasetError: it is LeanDojo's pickled index, whose reading would run code; or it cannot be read.
    """
    path = Path(path)
    if path.suffix in (".pickle", ".pkl"):
        raise DatasetError(
            f"{path} is a pickle, and reading one runs code. Name the corpus.jsonl that it was made from: its premises "
            "are embedded again"
        )
    return Corpus(path / CORPUS if path.is_dir() else path)


class ExternalProver(Prover):
    """A prover with a model behind an OpenAI-compatible endpoint, possibly at a cost: see `usage`."""

    def __init__(
        self,
        model_name: str = "deepseek-ai/DeepSeek-Prover-V2-671B:novita",
        *,
        base_url: str = ROUTER,
        credential: str = "everlean-model-key",
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
        """Check the address, the key and the cap; send nothing yet.

        Args:
            model_name: as the endpoint names it.
            base_url: of the endpoint.
            credential: name of systemd's credential with the key.
            key_variable: name of the environment variable with the key; "": EVERLEAN_MODEL_KEY, and HF_TOKEN for
                Hugging Face's router.
            usd_per_day: a cap for the UTC day, over all of the ledger; None: no cap. It needs the prices and a ledger.
            usd_per_million_prompt, usd_per_million_completion: the prices.
            ledger: the path of the ledger's files, shared by several processes (`pipeline.endpoint.spending`).
            timeout_s, retries: see `pipeline.jobs.specs.EndpointSpec`.
            candidates, temperature, max_tokens: answers for a state, their sampling, and their maximum of tokens.
            whole_tokens: the maximum of a whole proof.
            proofs, repairs: whole proofs a turn, and turns after the first.
            budget: of one search.
            seed: of the sampling, for endpoints that support it.

        Raises:
            ExternalError: the address, the key or the cap cannot be used.
        """
        decoding = Decoding(candidates, "sampling", temperature, max_tokens=max_tokens)
        super().__init__(decoding=decoding, budget=budget, seed=seed)
        own_key = "HF_TOKEN" if base_url.startswith(ROUTER) else "EVERLEAN_MODEL_KEY"
        self._spec = EndpointSpec(
            base_url=base_url,
            model=model_name,
            credential=credential,
            key_variable=key_variable or own_key,
            timeout_s=timeout_s,
            retries=retries,
            ledger=None if ledger is None else Path(ledger),
            cap_usd=usd_per_day,
            usd_per_million_prompt=usd_per_million_prompt,
            usd_per_million_completion=usd_per_million_completion,
        )
        self._whole_tokens, self._proofs, self._repairs = whole_tokens, proofs, repairs
        self._earlier = Usage()
        self._endpoint: EndpointModel | None = None
        # An unusable setting is refused here, not with the first request.
        self._start().close()
        self._endpoint = None

    @property
    def usage(self) -> Usage:
        """Tokens and money so far; `usd` is None without prices."""
        return self._earlier if self._endpoint is None else self._earlier + self._endpoint.usage

    def generate_whole_proof(self, theorem: Any, server: Server | None = None) -> str:
        """Return a whole proof accepted by Lean, after at most `repairs` turns with Lean's errors.

        Without a server it is the model's first text, unseen by Lean.
        """
        ours = None if server is None else checked(server)
        restated = restate_theorem(theorem, ours)
        model, endpoint = self._open(), self._endpoint
        assert endpoint is not None
        if ours is None:
            return model.loop.run(_unseen(restated.asked(seed=self._seed), endpoint.write))

        async def author(asked: WholeAsk) -> AuthorAnswers:
            return await model.loop.of_another_loop(endpoint.write(asked))

        method = SearchMethod(CuratedTactics(), seed=self._seed)
        wholly = WholeProofMethod(author, self._proofs, self._repairs)
        return _proof_of(ours.run(self._prove(ours, restated, method, wholly))[0])

    @property
    def name(self) -> str:
        return self._spec.model

    def close(self) -> None:
        self._earlier, self._endpoint = self.usage, None
        super().close()

    def _start(self) -> _Model:
        client = ChatClient(self._spec)
        self._endpoint = EndpointModel(client, whole_tokens=self._whole_tokens)
        return _Model(self._endpoint.suggest, client)

"""`ExternalProver`: LeanDojo-v2's prover that asks a model behind an OpenAI-compatible endpoint.

    prover = ExternalProver("org/model", base_url="http://127.0.0.1:8000/v1")
    with Server(project="/path/to/repository", imports=["Mathlib"]) as server:
        result, tactics = prover.search(server, goal="∀ p : Prop, p → p")
        proof = prover.generate_whole_proof("theorem t (p : Prop) : p → p", server)

It is the other provers' search, with another model to ask. An endpoint tells no probabilities: of the tactics that it
suggests for a state, those that it suggests more often are tried first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.lean.pool.session import Session
from pipeline.models.endpoint.client import open_client
from pipeline.models.endpoint.errors import Usage
from pipeline.models.tactics.requests import Decoding, Request, Suggestions
from pipeline.prove.authors import ExternalAuthor
from pipeline.prove.endpoint_tactics import TACTIC_TOKENS, EndpointSuggests
from pipeline.prove.filling import Filling
from pipeline.prove.generating import Retrieve
from pipeline.prove.restated import Restated, of_theorem
from pipeline.prove.retrieving import Place
from pipeline.prove.search import Budget
from pipeline.prove.server import LoopThread, Server, checked
from pipeline.prove.tactic_prover import BUDGET, Prover, first_proof
from pipeline.prove.whole import AuthorError, Cost, WholeAsk, WholeBudget, WholeResult, Written, prove_whole

ROUTER = "https://router.huggingface.co/v1"
"""Hugging Face's, which LeanDojo-v2 asks; its key is in HF_TOKEN."""
CREDENTIAL = "unsorry-model-key"
KEY_VARIABLE = "UNSORRY_MODEL_KEY"
_ROUTER_KEY = "HF_TOKEN"

_log = logging.getLogger(__name__)


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
        self._part: dict[str, Any] = {
            "base_url": base_url,
            "model": model_name,
            "credential": credential,
            "key_variable": key_variable or (_ROUTER_KEY if base_url.startswith(ROUTER) else KEY_VARIABLE),
            "timeout_s": timeout_s,
            "retries": retries,
            "ledger": ledger,
            "cap_usd": usd_per_day,
            "usd_per_million_prompt": usd_per_million_prompt,
            "usd_per_million_completion": usd_per_million_completion,
        }
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
        return _Endpoint(self._part, self._whole_tokens)

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

    def __init__(self, part: Mapping[str, Any], whole_tokens: int) -> None:
        self._client = open_client(part)
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

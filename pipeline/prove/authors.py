"""Models that write proofs: one behind an endpoint, for tactics or whole proofs, and a local causal model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline.endpoint.client import Chat, ChatClient
from pipeline.endpoint.dialect import Ask
from pipeline.endpoint.errors import ExternalError, Usage
from pipeline.lean.tactic_text import read_tactic
from pipeline.models.errors import LearningError
from pipeline.models.tactics.prompt import WholeProof, messages
from pipeline.models.tactics.requests import (
    Completion,
    Decoding,
    Mode,
    Prompt,
    Request,
    Suggestion,
    Suggestions,
)
from pipeline.models.tactics.service import Batching
from pipeline.models.text import CUT
from pipeline.prove.whole_proof import AuthorAnswers, WholeAsk

if TYPE_CHECKING:
    from pipeline.models.tactics.generate import Generator

TACTIC_TOKENS = 1024
"""The default maximum of an endpoint's answer: a tactic, and the model's thinking before it."""
_CONTEXT_CHARACTERS = 24_000
"""The maximum of the file before the declaration for an endpoint, which charges for it each time."""
_PROMPT_TOKENS = 4096
"""The maximum of a prompt for a local model; a longer one takes too long for a search."""


class EndpointModel:
    """A model behind an endpoint. `usage` is the sum over its requests."""

    def __init__(self, client: ChatClient, *, whole_tokens: int = 8192) -> None:
        """Args:
        client: sends the requests; the caller closes it.
        whole_tokens: the maximum of a whole proof, with the model's thinking.
        """
        self.usage = Usage()
        self._client = client
        self._whole_tokens = whole_tokens

    async def suggest(self, request: Request) -> Suggestions:
        """Return tactics, the most frequent first; `error` gives the reason for none.

        An endpoint returns no probabilities: a tactic suggested more often for a state counts as likelier.
        """
        decoding, state = request.decoding, request.state
        if decoding.prefix:
            state += f"\n\nThe tactic has to begin with: {decoding.prefix}"
        ask = Ask(
            messages(state, request.premises),
            TACTIC_TOKENS if decoding.max_tokens is None else decoding.max_tokens,
            decoding.temperature if decoding.mode == "sampling" else None,
            request.seed,
        )
        try:
            chat = await self._ask(ask, decoding.candidates)
        except ExternalError as error:
            return Suggestions((), {}, error.usage, str(error), error.reason)
        left_out = Counter(chat.left_out)
        beginning = read_tactic(decoding.prefix).tactic or decoding.prefix.strip()
        result: Counter[str] = Counter()
        for text in chat.texts:
            said = read_tactic(text)
            if said.flaw is not None:
                left_out[said.flaw] += 1
            elif not said.tactic.startswith(beginning):
                left_out["other_beginning"] += 1
            else:
                result[said.tactic] += 1
        left_out["repeated"] = result.total() - len(result)
        # Equally frequent ones keep the order of their first mention.
        tactics = tuple(
            Suggestion(tactic, math.log(times / result.total())) for tactic, times in result.most_common()
        )
        return Suggestions(tactics, +left_out, chat.usage)

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        """Return whole proofs (`whole_proof.Author`)."""
        context = ask.declaration.context
        if len(context) > _CONTEXT_CHARACTERS:
            context = f"{CUT}\n{context[-_CONTEXT_CHARACTERS:].partition(chr(10))[2]}"
        request = Ask(_asked(ask, context).messages(), self._whole_tokens, seed=ask.seed)
        try:
            chat = await self._ask(request, ask.count, ask.seconds)
        except ExternalError as error:
            return AuthorAnswers((), error.usage, error=str(error), reason=error.reason)
        missing = "; ".join(filter(None, (chat.missing, _of_no_use(chat.left_out))))
        return AuthorAnswers(chat.texts, chat.usage, missing)

    async def _ask(self, ask: Ask, count: int, seconds: float | None = None) -> Chat:
        try:
            chat = await self._client.complete(ask, count=count, seconds=seconds)
        except ExternalError as error:
            self.usage += error.usage
            raise
        self.usage += chat.usage
        return chat


class HFAuthor(Batching[Prompt, list[Completion]]):
    """A local causal model. Requests for several sorries go to it in one batch. A context, on one event loop."""

    def __init__(
        self,
        generator: Generator,
        *,
        max_tokens: int = 8192,
        temperature: float = 0.7,
        enable_thinking: bool = False,
    ) -> None:
        """Args:
        generator: for exclusive use while the context is open.
        max_tokens: of one answer, with the model's thinking; at most half of the model's positions.
        temperature: of sampling; a single answer is the likeliest.
        enable_thinking: whether the model thinks before it answers.
        """
        super().__init__(generator.complete)
        self._generator = generator
        self._answer_tokens = min(max_tokens, generator.positions // 2)
        self._prompt_tokens = min(_PROMPT_TOKENS, generator.positions - self._answer_tokens)
        self._temperature = temperature
        self._enable_thinking = enable_thinking

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        """Return whole proofs (`whole_proof.Author`). `ask.seconds` is ignored: a generation runs to its end."""
        try:
            prompt = self._generator.prompts.whole_proof_ids(
                _asked(ask, ask.declaration.context),
                max_length=self._prompt_tokens,
                enable_thinking=self._enable_thinking,
            )
            mode: Mode = "sampling" if ask.count > 1 else "beams"
            decoding = Decoding(ask.count, mode, self._temperature, max_tokens=self._answer_tokens)
            answers = await self.ask(Prompt(tuple(prompt), decoding, ask.seed))
        except LearningError as error:
            return AuthorAnswers((), error=str(error), reason=error.reason)
        # Any error of a model or its libraries concerns this sorry alone.
        except (RuntimeError, ValueError, IndexError) as error:
            return AuthorAnswers((), error=f"the model failed: {error}", reason="model_failed")
        texts: list[str] = []
        left_out: Counter[str] = Counter()
        for one in answers:
            text = self._generator.text(one.ids)
            if math.isnan(one.log_probability):
                left_out["no_numbers"] += 1
            elif not one.ended:
                left_out["cut_off"] += 1
            elif not text.strip():
                left_out["empty"] += 1
            else:
                texts.append(text)
        usage = Usage(len(prompt), sum(len(one.ids) + one.ended for one in answers))
        return AuthorAnswers(tuple(dict.fromkeys(texts)), usage, _of_no_use(left_out))


def _asked(ask: WholeAsk, context: str) -> WholeProof:
    failed = [(one.text, one.errors) for one in ask.earlier]
    return WholeProof(ask.declaration.text, context, ask.goal, ask.premises, failed)


def _of_no_use(left_out: Mapping[str, int]) -> str:
    """Return the unusable answers, for people; "" for none."""
    if not left_out:
        return ""
    text = ", ".join(f"{number} {why.replace('_', ' ')}" for why, number in sorted(left_out.items()))
    return f"answers of no use: {text}" + ("; raise max_tokens" if "cut_off" in left_out else "")

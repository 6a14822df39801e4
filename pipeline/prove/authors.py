"""Authors of whole proofs: a model behind an endpoint, or a local causal model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pipeline.endpoint.client import Chat, ChatClient
from pipeline.endpoint.dialect import Ask
from pipeline.endpoint.errors import ExternalError, Usage
from pipeline.models.errors import LearningError
from pipeline.models.tactics.prompt import whole_proof_messages
from pipeline.models.text import CUT
from pipeline.prove.whole_proof import AuthorAnswers, AuthorError, Cost, WholeAsk

if TYPE_CHECKING:
    from pipeline.models.tactics.generate import Generator
    from pipeline.models.tactics.requests import Completion
    from pipeline.models.tactics.service import Batching

_CONTEXT_CHARACTERS = 24_000
"""The maximum of the file before the declaration for an endpoint, which charges for it each time."""
_PROMPT_TOKENS = 4096
"""The maximum of a prompt for a local model; a longer one takes longer than a search has time."""


class ExternalAuthor:
    """A model behind an endpoint. `usage` is the sum over its requests."""

    name = "external"

    def __init__(self, client: ChatClient, *, max_tokens: int = 8192) -> None:
        """Args:
        client: sends the requests; the caller closes it.
        max_tokens: of one answer, with the model's thinking.
        """
        self.usage = Usage()
        self._client = client
        self._max_tokens = max_tokens

    @property
    def model(self) -> str:
        return self._client.endpoint.model

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        """Return the endpoint's answers. See `Author`."""
        messages = whole_proof_messages(
            ask.declaration,
            context=end_of(ask.context, _CONTEXT_CHARACTERS),
            goal=ask.goal,
            premises=ask.premises,
            failed=[(one.text, one.errors) for one in ask.earlier],
        )
        asked = Ask(messages, self._max_tokens, seed=ask.seed)
        try:
            chat = await self._client.complete(asked, count=ask.count, seconds=ask.seconds)
        except ExternalError as error:
            self.usage += error.usage
            raise AuthorError(str(error), reason=error.reason, cost=_cost(error.usage)) from error
        self.usage += chat.usage
        return _written(chat)


class HFAuthor:
    """A local causal model. Requests for several sorries go to it in one batch. A context, on one event loop."""

    name = "whole"

    def __init__(
        self,
        generator: Generator,
        model: str,
        *,
        max_tokens: int = 8192,
        temperature: float = 0.7,
        enable_thinking: bool | None = None,
    ) -> None:
        """Args:
        generator: for exclusive use while the context is open.
        model: its name, for the record.
        max_tokens: of one answer, with the model's thinking; at most half of the model's positions.
        temperature: of sampling; a single answer is the likeliest.
        enable_thinking: whether the model is told to think before it answers; None: as for tactics.
        """
        from pipeline.models.tactics.service import Batching

        self.model = model
        self._generator = generator
        self._answer_tokens = min(max_tokens, generator.positions // 2)
        self._prompt_tokens = min(_PROMPT_TOKENS, generator.positions - self._answer_tokens)
        self._temperature = temperature
        self._enable_thinking = enable_thinking
        self._service: Batching[_Prompt, list[Completion] | str] = Batching(self._complete, name="author")

    async def __aenter__(self) -> HFAuthor:
        await self._service.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._service.close()

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        """Return the model's answers. See `Author`. `ask.seconds` is ignored: a generation runs to its end."""
        try:
            prompt = self._generator.prompts.whole_proof_ids(
                ask.declaration,
                context=ask.context,
                goal=ask.goal,
                premises=ask.premises,
                failed=[(one.text, one.errors) for one in ask.earlier],
                max_length=self._prompt_tokens,
                enable_thinking=self._enable_thinking,
            )
            answers = await self._service.ask(_Prompt(tuple(prompt), ask.count, ask.seed))
        except LearningError as error:
            raise AuthorError(str(error), reason=error.reason) from error
        # Any error of a model or its libraries concerns this sorry alone.
        except (RuntimeError, ValueError, IndexError) as error:
            raise AuthorError(f"the model failed: {error}", reason="model_failed") from error
        if isinstance(answers, str):
            raise AuthorError(answers, reason="out_of_memory")
        texts: list[str] = []
        left_out: Counter[str] = Counter()
        for one in answers:
            text = self._generator.text(one)
            if math.isnan(one.log_probability):
                left_out["no_numbers"] += 1
            elif not one.ended:
                left_out["cut_off"] += 1
            elif not text.strip():
                left_out["empty"] += 1
            else:
                texts.append(text)
        written = sum(len(one.ids) + one.ended for one in answers)
        return AuthorAnswers(tuple(dict.fromkeys(texts)), len(prompt), written, None, of_no_use(left_out))

    def _complete(self, wanted: Sequence[_Prompt]) -> list[list[Completion] | str]:
        """Answer a batch, grouped by the number of answers. Runs in the service's thread."""
        from pipeline.models.tactics.requests import Decoding

        found: dict[int, list[Completion] | str] = {}
        for count in sorted({one.count for one in wanted}):
            members = [number for number, one in enumerate(wanted) if one.count == count]
            several: dict[str, Any] = {"mode": "sampling", "temperature": self._temperature}
            decoding = Decoding(count, max_tokens=self._answer_tokens, **(several if count > 1 else {}))
            answers = self._generator.complete(
                [wanted[number].prompt for number in members],
                decoding,
                seeds=[wanted[number].seed for number in members],
            )
            found.update(zip(members, answers, strict=True))
        return [found[number] for number in range(len(wanted))]


@dataclass(frozen=True, slots=True)
class _Prompt:
    prompt: tuple[int, ...]
    count: int
    seed: int


def end_of(text: str, longest: int) -> str:
    """Return the last lines of a text, at most `longest` characters, with a mark if some were cut."""
    if len(text) <= longest:
        return text
    kept = text[len(text) - longest :]
    return f"{CUT}\n{kept.partition(chr(10))[2]}"


def of_no_use(left_out: Mapping[str, int]) -> str:
    """Return the unusable answers, for people; "" for none."""
    if not left_out:
        return ""
    said = ", ".join(f"{number} {why.replace('_', ' ')}" for why, number in sorted(left_out.items()))
    return f"answers of no use: {said}" + ("; raise max_tokens" if "cut_off" in left_out else "")


def _written(chat: Chat) -> AuthorAnswers:
    cost = _cost(chat.usage)
    return AuthorAnswers(
        chat.texts,
        cost.prompt_tokens,
        cost.completion_tokens,
        cost.usd,
        "; ".join(filter(None, (chat.missing, of_no_use(chat.left_out)))),
    )


def _cost(usage: Usage) -> Cost:
    return Cost(usage.prompt_tokens, usage.completion_tokens, usage.usd)

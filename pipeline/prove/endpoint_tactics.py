"""Tactics for states from an endpoint, for searches that would ask a model here otherwise.

An endpoint tells no probabilities: of the tactics that it suggests for a state, those that it suggests more often are
taken for the likelier ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from pipeline.models.endpoint.client import ChatClient
from pipeline.models.endpoint.dialect import Ask
from pipeline.models.endpoint.errors import ExternalError, Usage
from pipeline.models.tactics.prompt import messages
from pipeline.models.tactics.requests import Request, Suggestion, Suggestions, read_tactic

TACTIC_TOKENS = 1024
"""Of an answer at most, where nobody says otherwise: a tactic, and what the model thinks before it."""


class EndpointSuggests:
    """Tactics for states from an endpoint (`generating.Suggests`). A failure concerns the state at hand.

    Attributes:
        usage: what all of it took.
    """

    def __init__(
        self,
        client: ChatClient,
        *,
        max_tokens: int = TACTIC_TOKENS,
        ends: Callable[[str, str], Exception | None] = lambda _reason, _message: None,
    ) -> None:
        """Args:
        client: asks; whoever made it closes it.
        max_tokens: of one answer, with what the model thinks before it.
        ends: returns what to raise for a failure, by its reason and message, that concerns all states; else None.
        """
        self.usage = Usage()
        self._client = client
        self._max_tokens = max_tokens
        self._ends = ends

    async def suggest(self, request: Request) -> Suggestions:
        """Return tactics, those suggested most often first; `error` says why there are none at all.

        Raises:
            Exception: what `ends` returned.
        """
        decoding = request.decoding
        ask = Ask(
            messages(request.state, request.premises),
            self._max_tokens if decoding.max_tokens is None else decoding.max_tokens,
            decoding.temperature if decoding.mode == "sampling" else None,
            request.seed,
        )
        try:
            chat = await self._client.complete(ask, count=decoding.candidates)
        except ExternalError as error:
            self.usage += error.usage
            if (ends := self._ends(error.reason, str(error))) is not None:
                raise ends from error
            spent = error.usage
            return Suggestions(
                (), {}, str(error), spent.prompt_tokens, spent.completion_tokens, spent.usd, error.reason
            )
        self.usage += chat.usage
        left_out = Counter(chat.left_out)
        found: Counter[str] = Counter()
        for text in chat.texts:
            said = read_tactic(text)
            if said.flaw is None:
                found[said.tactic] += 1
            else:
                left_out[said.flaw] += 1
        left_out["repeated"] = found.total() - len(found)
        # The order of the first mention stays among those as frequent.
        tactics = tuple(
            Suggestion(tactic, math.log(times / found.total()), 1) for tactic, times in found.most_common()
        )
        return Suggestions(
            tactics,
            +left_out,
            prompt_tokens=chat.usage.prompt_tokens,
            written_tokens=chat.usage.completion_tokens,
            usd=chat.usage.usd,
        )

"""Requests to an endpoint, and its answers, read strictly and without trust.

Endpoints that claim compatibility with OpenAI differ in their parameters. Requests are kept plain, and a parameter
refused once is left out from then on (`Dialect`):

    Anthropic   `n` must be exactly 1, `seed` is ignored, a temperature above 1 is 1; newer models take `temperature` or
                `top_p`, not both, so the second is never sent (https://docs.anthropic.com/en/api/openai-sdk,
                https://github.com/cloud-apim/otoroshi-llm-extension/issues/140)
    Google      takes `n`; an error comes in a list (https://ai.google.dev/api/compatibility)
    OpenAI      newer models take `max_completion_tokens` alone, and no temperature
                (https://github.com/ThinkInAIXYZ/deepchat/issues/336)
    Hugging Face's router (https://router.huggingface.co/v1) passes on to providers, which differ; 402 where the
                account has no credit (https://huggingface.co/docs/inference-providers/pricing)
    vLLM        takes all of it, and needs no key unless started with --api-key
                (https://docs.vllm.ai/en/v0.8.1/serving/openai_compatible_server.html)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from store.text import clean, cut

Flaw = Literal["", "empty", "cut_off", "refused"]
_MOST_TOKENS = 10**9
"""Maximum tokens of one answer. No model reads or writes as much, so a longer number is not a count."""
_LONGEST_SAID = 300
_TAGS = re.compile(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>")
_REFUSALS = frozenset({"content_filter", "refusal", "safety"})
_SPENT = re.compile(r"insufficient_quota|enforced_spend_limit_reached")


class NotUnderstoodError(Exception):
    """An answer is no chat completion; the message describes it."""


class ChatMessage(TypedDict):
    """One turn: role "system", "user" or "assistant"."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One completion. `flaw` is "" or the reason why its text is unusable: empty, truncated at the limit of tokens, or
    refused by the model."""

    text: str
    flaw: Flaw = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An endpoint's answer; `tokens` are those of the prompt and of all completions, None if the endpoint gives no
    numbers; `data` is the answer as sent.
    """

    choices: tuple[Choice, ...]
    tokens: tuple[int, int] | None
    data: bytes


@dataclass(frozen=True, slots=True)
class Complaint:
    """An endpoint's error: the text, the parameter named in it ("" for none), and whether the account is out of money,
    so that waiting is useless.
    """

    text: str
    parameter: str = ""
    spent: bool = False


def read_answer(data: bytes) -> Answer:
    """Read the body of a 200.

    Content may be a string, a list of parts, or null. Thinking tokens count as completion: some endpoints leave them
    out of `completion_tokens`, and have them in `total_tokens` (Gemini's counts do:
    https://github.com/mozilla-ai/any-llm/issues/1290).

    Raises:
        NotUnderstoodError: the body is no chat completion.
    """
    try:
        result = json.loads(data)
    except (ValueError, RecursionError):
        raise NotUnderstoodError(f"it answered 200, but not with JSON: {shown(data)}") from None
    if isinstance(result, list) and len(result) == 1:
        result = result[0]
    if not isinstance(result, dict):
        raise NotUnderstoodError(f"it answered 200, but not with a JSON object: {shown(data)}")
    choices = result.get("choices")
    if not isinstance(choices, list) or not choices:
        # Some routers report a failure of their backend with 200.
        raise NotUnderstoodError(f"it answered 200 without choices: {complaint(data).text}")
    return Answer(tuple(_choice(one) for one in choices), _tokens(result.get("usage")), data)


def complaint(data: bytes) -> Complaint:
    """Read the body of an error: an object for OpenAI, the same in a list for Google, possibly at the top for vLLM
    (https://github.com/n4ze3m/page-assist/issues/406); a page for a proxy.
    """
    try:
        result = json.loads(data)
    except (ValueError, RecursionError):
        return Complaint(shown(data))
    if isinstance(result, list) and result:
        result = result[0]
    if not isinstance(result, dict):
        return Complaint(shown(data))
    error = result.get("error", result)
    if isinstance(error, str):
        return Complaint(_sentence(error))
    if not isinstance(error, dict):
        return Complaint(shown(data))
    message = error.get("message") or error.get("detail") or ""
    text = _sentence(message if isinstance(message, str) else json.dumps(message))
    parameter = error.get("param")
    spent = bool(_SPENT.search(json.dumps(error)[:10_000]))
    return Complaint(text or shown(data), parameter if isinstance(parameter, str) else "", spent)


def shown(data: bytes) -> str:
    """Return the beginning of a body on one line; of a page, its text."""
    text = data[:4_000].decode("utf-8", "replace")
    if text.lstrip()[:1] == "<":
        return f"a page ({_sentence(_TAGS.sub(' ', text)) or 'empty'})"
    return _sentence(text) or "nothing"


def _choice(found: Any) -> Choice:
    message = found.get("message") if isinstance(found, dict) else None
    if not isinstance(message, dict):
        return Choice("", "empty")
    text = _content(message.get("content"))
    finish = found.get("finish_reason")
    if message.get("refusal") or (isinstance(finish, str) and finish.lower() in _REFUSALS):
        return Choice(text, "refused")
    if finish == "length":
        return Choice(text, "cut_off")
    return Choice(text) if text.strip() else Choice("", "empty")


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") if isinstance(part, dict) else part for part in content]
    return "".join(part for part in parts if isinstance(part, str))


def _tokens(usage: Any) -> tuple[int, int] | None:
    """Return an endpoint's counts of tokens; None if it gives none, or impossible ones."""
    if not isinstance(usage, dict):
        return None
    prompt, completion, total = (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
        else None
        for value in (usage.get(key) for key in ("prompt_tokens", "completion_tokens", "total_tokens"))
    )
    if prompt is None or (completion is None and total is None):
        return None
    return prompt, max(completion or 0, (total or 0) - prompt)


def _sentence(text: str) -> str:
    return cut(clean(text), _LONGEST_SAID)


_SEVERAL_REFUSED = re.compile(
    r"(?i)['\"`]n['\"`]|\bn\b[:,]? (must|should|has to)|(multiple|only one) candidate"
)
_UNSUPPORTED = re.compile(r"(?i)not supported|unsupported|not support|unknown|unrecognized|cannot find field")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: the messages, and the sampling of the answers. `temperature` and `seed`: None for the endpoint's."""

    messages: Sequence[ChatMessage]
    max_tokens: int
    temperature: float | None = None
    seed: int | None = None

    @property
    def most_prompt_tokens(self) -> int:
        """The most tokens possible in the messages: a token has at least a byte, and each message has some marks."""
        return sum(len(one["content"].encode("utf-8", "replace")) + 16 for one in self.messages) + 16


@dataclass(slots=True)
class Dialect:
    """The parameters accepted by an endpoint, as far as known. `several`: more than one answer to a request."""

    several: bool = True
    limit: str = "max_tokens"
    left_out: set[str] = field(default_factory=set)

    def body(self, model: str, ask: Ask, count: int) -> dict[str, Any]:
        """Return the body of a request for `count` answers."""
        result: dict[str, Any] = {"model": model, "messages": [dict(one) for one in ask.messages]}
        result[self.limit] = ask.max_tokens
        if count > 1:
            result["n"] = count
        # Google's takes 32 bits.
        seed = None if ask.seed is None else ask.seed % 2**31
        optional = {"temperature": ask.temperature, "seed": seed}
        return result | {
            name: value for name, value in optional.items() if value is not None and name not in self.left_out
        }

    def learn(self, sent: Mapping[str, Any], complaint: Complaint) -> bool:
        """Change the dialect after a refusal, and return whether another try makes sense."""
        if "n" in sent and (complaint.parameter == "n" or _SEVERAL_REFUSED.search(complaint.text)):
            self.several = False
            return True
        unsupported = bool(_UNSUPPORTED.search(complaint.text))
        if "max_tokens" in sent and unsupported and _names(complaint, "max_tokens"):
            self.limit = "max_completion_tokens"
            return True
        for name in ("temperature", "seed"):
            if name in sent and _names(complaint, name):
                self.left_out.add(name)
                return True
        return False


def _names(complaint: Complaint, parameter: str) -> bool:
    return complaint.parameter == parameter or bool(re.search(rf"\b{parameter}\b", complaint.text))

"""What an endpoint says, read strictly where it matters and without trust: completions, usage, and its complaints."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

Flaw = Literal["", "empty", "cut_off", "refused"]

_MOST_TOKENS = 10**9
"""What one answer may have taken. No model reads or writes as much; what has more digits yet fits into no number."""
_LONGEST_SAID = 300
_TAGS = re.compile(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>")
_REFUSALS = frozenset({"content_filter", "refusal", "safety"})
_SPENT = re.compile(r"insufficient_quota|enforced_spend_limit_reached")


class NotUnderstoodError(Exception):
    """An answer is not what a chat completion looks like; the message says what it is instead."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One completion. `flaw` says why its text is of no use: it is empty, was cut off at the limit of tokens, or the
    model refused; "" where it is whole."""

    text: str
    flaw: Flaw = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An endpoint's answer; `tokens` are those of the prompt and of all completions, None where it does not say."""

    choices: tuple[Choice, ...]
    tokens: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error as an endpoint words it: the text, the parameter that it names ("" for none), and whether it says that
    an account has nothing left to spend, which no waiting mends."""

    text: str
    parameter: str = ""
    spent: bool = False


def read_answer(data: bytes) -> Answer:
    """Read the body of a 200.

    Content may be a string, a list of parts, or null. Tokens that a model thought with are counted as completion: some
    endpoints leave them out of `completion_tokens`, and have them in `total_tokens` (Gemini's counts do:
    https://github.com/mozilla-ai/any-llm/issues/1290).

    Raises:
        NotUnderstoodError: it is no chat completion.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise NotUnderstoodError(f"it answered 200 with what is no JSON: {said(data)}") from None
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, dict):
        raise NotUnderstoodError(f"it answered 200 with what is no object: {said(data)}")
    choices = found.get("choices")
    if not isinstance(choices, list) or not choices:
        # Some routers report the failure of what is behind them with 200.
        raise NotUnderstoodError(f"it answered 200 without choices: {complaint(data).text}")
    return Answer(tuple(_choice(one) for one in choices), _tokens(found.get("usage")))


def complaint(data: bytes) -> Complaint:
    """Read the body of an error. OpenAI's has an object, Google's the same in a list, vLLM's may have it at the top
    (https://github.com/n4ze3m/page-assist/issues/406); a proxy's is a page."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return Complaint(said(data))
    if isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, dict):
        return Complaint(said(data))
    error = found.get("error", found)
    if isinstance(error, str):
        return Complaint(_cut(error))
    if not isinstance(error, dict):
        return Complaint(said(data))
    message = error.get("message") or error.get("detail") or ""
    text = _cut(message if isinstance(message, str) else json.dumps(message))
    parameter = error.get("param")
    spent = bool(_SPENT.search(json.dumps(error)[:10_000]))
    return Complaint(text or said(data), parameter if isinstance(parameter, str) else "", spent)


def said(data: bytes) -> str:
    """Return the beginning of a body on one line; of a page, its text."""
    text = data[:4_000].decode("utf-8", "replace")
    if text.lstrip()[:1] == "<":
        return f"a page ({_cut(_TAGS.sub(' ', text)) or 'empty'})"
    return _cut(text) or "nothing"


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
    """Return what an endpoint counted; None where it did not, or where it cannot be meant."""
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


def _cut(text: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in " ".join(text.split()))
    return text if len(text) <= _LONGEST_SAID else f"{text[:_LONGEST_SAID]} …"

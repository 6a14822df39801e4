"""Where a model is asked, and how the endpoint there wants to be spoken to.

Endpoints that call themselves compatible with OpenAI's differ in what they take. They are asked in the plainest way,
and what one complains of is left out from then on (`Dialect`):

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

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pipeline.external.answers import Complaint
from pipeline.external.errors import EndpointError

if TYPE_CHECKING:
    from pipeline.tactics.prompt import ChatMessage

_PATH = "/chat/completions"
_SEVERAL_REFUSED = re.compile(
    r"(?i)['\"`]n['\"`]|\bn\b[:,]? (must|should|has to)|(multiple|only one) candidate"
)
_UNSUPPORTED = re.compile(r"(?i)not supported|unsupported|not support|unknown|unrecognized|cannot find field")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint and a model there. Checked when made.

    Attributes:
        base_url: what "/chat/completions" is put behind, as "https://api.anthropic.com/v1".
        model: its name there.
        timeout_s: of one request, from its start to its answer's last byte.
        connect_timeout_s: for the connection alone.
        retries: how often a request is sent again that met an overloaded or unreachable endpoint.
        concurrency: requests that are under way at once.
        longest_answer_bytes: what is longer is not read.
        longest_wait_s: an endpoint that wants to be left alone for longer (Retry-After) is given up instead.

    Raises:
        EndpointError: the address is none that may be asked.
    """

    base_url: str
    model: str
    timeout_s: float = 300.0
    connect_timeout_s: float = 10.0
    retries: int = 4
    concurrency: int = 4
    longest_answer_bytes: int = 8 << 20
    longest_wait_s: float = 120.0

    def __post_init__(self) -> None:
        remedy = 'write it as "https://api.anthropic.com/v1" or "http://127.0.0.1:8000/v1"'
        try:
            parts = urlsplit(self.base_url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise EndpointError("bad_request", f"base_url is no valid URL; {remedy}") from None
        if parts.scheme not in ("http", "https") or not host:
            raise EndpointError("bad_request", f'base_url "{self.base_url}" is no http(s) address; {remedy}')
        if "@" in parts.netloc:
            raise EndpointError(
                "bad_request",
                f"base_url carries credentials (not shown); name the key's source instead, and {remedy}",
            )
        if parts.query or parts.fragment:
            raise EndpointError("bad_request", f'base_url has a part after "?" or "#"; {remedy}')
        if not self.model:
            raise EndpointError("bad_request", f"no model is named for {self.base_url}; set model")

    @property
    def url(self) -> str:
        """Where requests go."""
        return self.base_url.rstrip("/").removesuffix(_PATH) + _PATH

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def is_encrypted(self) -> bool:
        return urlsplit(self.base_url).scheme == "https"

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine's loopback address."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check_key(self, key: str | None) -> None:
        """Refuse to send a key where everybody on the way can read it.

        Raises:
            EndpointError: it would go over the net unencrypted.
        """
        if key and not self.is_encrypted and not self.is_local:
            raise EndpointError(
                "bad_request",
                f"{self.base_url} would get the key unencrypted; use its https address, or no key",
            )


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked: the messages, and how the answers are drawn. `temperature` and `seed`: None for the endpoint's."""

    messages: Sequence[ChatMessage]
    max_tokens: int
    temperature: float | None = None
    seed: int | None = None

    @property
    def most_prompt_tokens(self) -> int:
        """How many tokens the messages are at most: none is less than a byte, and each message has some marks."""
        return sum(len(one["content"].encode("utf-8", "replace")) + 16 for one in self.messages) + 16


@dataclass(slots=True)
class Dialect:
    """What an endpoint takes, as far as is known. `several`: more than one answer to a request."""

    several: bool = True
    limit: str = "max_tokens"
    left_out: set[str] = field(default_factory=set)

    def body(self, model: str, ask: Ask, count: int) -> dict[str, Any]:
        """Return a request for so many answers."""
        made: dict[str, Any] = {"model": model, "messages": [dict(one) for one in ask.messages]}
        made[self.limit] = ask.max_tokens
        if count > 1:
            made["n"] = count
        # Google's takes 32 bits.
        seed = None if ask.seed is None else ask.seed % 2**31
        optional = {"temperature": ask.temperature, "seed": seed}
        return made | {
            name: value for name, value in optional.items() if value is not None and name not in self.left_out
        }

    def learn(self, sent: Mapping[str, Any], complaint: Complaint) -> bool:
        """Say whether a refused request can be put otherwise, and remember how."""
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

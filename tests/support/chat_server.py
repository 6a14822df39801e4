"""A local endpoint that behaves like an OpenAI-compatible one, well or badly: for this project's tests, and for yours.

    with ChatServer([Says("```lean\nby simp\n```"), Fails(429, retry_after="2")]) as server:
        ...  # base_url = server.url; server.requests has what came in

Each request takes the next reply of the script; when it is used up, the last one answers for good. Not covered:
streaming, tools, everything beside POST /v1/chat/completions.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Says:
    """An answer with this text, or with these in turn, as many as requested.

    `usage` are the tokens that it counts (prompt, completion), `total` its own idea of their sum; None: it does not
    say. `message` is put over the usual message, whatever it holds.
    """

    text: str | Sequence[str]
    finish: str = "stop"
    usage: tuple[int, int] | None = (10, 5)
    total: int | None = None
    message: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fails:
    """An error: OpenAI's object with a message, and the parameter that is at fault."""

    status: int
    message: str = "something went wrong"
    parameter: str | None = None
    retry_after: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Sends:
    """These bytes, as they are."""

    body: bytes
    status: int = 200
    content_type: str = "text/html"


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer. `hangs_up`: the connection is closed at once; else it stays open until the server ends."""

    hangs_up: bool = False


class PassingTime:
    """Time for a `ChatClient` that advances when a task sleeps, so that tests do not wait.

    Attributes:
        seconds: how much has passed.
        slept: every wait, in seconds.
    """

    def __init__(self, start: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []
        self._start = start

    def clock(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.seconds)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)


Reply = Says | Fails | Sends | Silence


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came in: its path, the header with the key, and its JSON."""

    path: str
    authorization: str | None
    body: dict[str, Any]


class ChatServer:
    """The endpoint, on a free port of the loopback address, in threads of its own.

    Attributes:
        requests: what came in, in order.
        several: whether it takes `n`; "ignored": it gives one answer for any `n`; "refused": 400, as Anthropic's
            documentation has it.
    """

    def __init__(
        self,
        script: Sequence[Reply] | Callable[[Mapping[str, Any]], Reply] = (Says("rfl"),),
        *,
        key: str | None = None,
        several: str = "taken",
    ) -> None:
        """Args:
        script: the replies, or what makes one of a request's JSON.
        key: what requests must bring; None: whatever they bring.
        several: see the class.
        """
        self.requests: list[Asked] = []
        self.several = several
        self._script = script
        self._key = key
        self._texts = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The endpoint's base_url."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def reply_to(self, asked: Asked) -> Reply:
        """Return the reply to a request, and write the request down."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(asked)
        if self._key is not None and asked.authorization != f"Bearer {self._key}":
            return Fails(401, f"Incorrect API key provided: {asked.authorization}")
        if asked.path != "/v1/chat/completions":
            return Fails(404, f"no such path: {asked.path}")
        if asked.body.get("n", 1) > 1 and self.several == "refused":
            return Fails(400, "n: must be exactly 1")
        if callable(self._script):
            return self._script(asked.body)
        return self._script[min(number, len(self._script) - 1)]

    def wait_for_the_end(self) -> None:
        """Come back when the server ends."""
        self._ended.wait()

    def completion(self, reply: Says, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON of an answer."""
        count = 1 if self.several == "ignored" else body.get("n", 1)
        texts = [reply.text] if isinstance(reply.text, str) else list(reply.text)
        choices = []
        for index in range(count):
            with self._lock:
                text = texts[self._texts % len(texts)]
                self._texts += 1
            message = {"role": "assistant", "content": text, **reply.message}
            choices.append({"index": index, "message": message, "finish_reason": reply.finish})
        made = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": body.get("model"),
            "choices": choices,
        }
        if reply.usage is not None:
            prompt, completion = reply.usage
            total = prompt + completion if reply.total is None else reply.total
            made["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
        return made


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            reply = server.reply_to(Asked(self.path, self.headers.get("authorization"), body))
            if isinstance(reply, Silence):
                if not reply.hangs_up:
                    server.wait_for_the_end()
                self.close_connection = True
            elif isinstance(reply, Says):
                self._send(200, json.dumps(server.completion(reply, body)).encode())
            elif isinstance(reply, Sends):
                self._send(reply.status, reply.body, content_type=reply.content_type)
            else:
                error = {"message": reply.message, "type": "invalid_request_error", "param": reply.parameter}
                headers = {"retry-after": reply.retry_after, "location": reply.location}
                self._send(reply.status, json.dumps({"error": error}).encode(), headers)

        def _send(
            self,
            status: int,
            data: bytes,
            headers: Mapping[str, str | None] | None = None,
            *,
            content_type: str = "application/json",
        ) -> None:
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(data)))
            for name, value in (headers or {}).items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Write nothing: the tests' output is theirs."""

    return Handler

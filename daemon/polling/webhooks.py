"""GitHub's webhooks, as hints only: a signed request has its repository polled soon, and nothing else.

Off unless `[github] webhook_port` sets a port on 127.0.0.1; something else must bring the requests there. A
webhook is believed only in that its repository may have changed, so a forged or repeated one could at the
most cost a poll, and without the secret not even that: the signature over the whole body is checked first, in
constant time. A lost one costs nothing but time.

    POST /   202: {"polling": [...]}; 200 for GitHub's ping; 400 no JSON, or no signature where one belongs;
             401 another secret; 413 too long; 415 another content type; 429 too many
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from daemon.place.peers import ADDRESS, LoopbackServer, PortError
from daemon.settings import Settings
from daemon.state.clock import Allowance
from daemon.state.context import Problems
from pipeline.connections import Sparing
from pipeline.endpoint.errors import CredentialError

PROBLEM = "webhooks"
MOST_BODY_BYTES = 2 * 2**20
MOST_A_MINUTE = 120
_PATIENCE_S = 10.0
_SETTING = "[github] webhook_port"
_NO_SECRET = (
    f"{_SETTING} is set and there is no secret, so nothing listens; name a file with it in webhook_secret_file,"
    " or give the service the credential webhook-secret"
)

log = structlog.get_logger("daemon.webhooks")

Hint = Callable[[str, int | None], Awaitable[Sequence[str]]]
"""Takes owner/name and the forge's number of a repository; returns the keys of the polled repositories."""


class Webhooks:
    """The listener, by the settings in force."""

    def __init__(self, *, hint: Hint, problems: Problems) -> None:
        self._hint = hint
        self._problems = problems
        self._server: LoopbackServer | None = None
        self._secret = ""

    @property
    def port(self) -> int | None:
        """The port it listens on; None while it does not."""
        return self._server.port if self._server is not None else None

    async def take_up(self, settings: Settings) -> None:
        """Listen by these settings; a failure is a problem and stops nothing."""
        port = settings.github.webhook_port
        try:
            self._secret = settings.github.read_webhook_secret() or "" if port else ""
            problem = _NO_SECRET if port and not self._secret else ""
        except CredentialError as error:
            self._secret, problem = "", f"{_SETTING}: the secret cannot be read, so nothing listens: {error}"
        try:
            if self._server is not None and (not self._secret or self._server.port != port):
                await self.stop()
            if self._secret and self._server is None:
                application = application_of(
                    secret=lambda: self._secret, hint=self._hint, allowance=Allowance(MOST_A_MINUTE)
                )
                self._server = await LoopbackServer.start(application, port=port, setting=_SETTING)
                log.info("webhooks_listen", address=f"{ADDRESS}:{port}")
        except PortError as error:
            problem = str(error)
        if not problem:
            self._problems.clear(PROBLEM)
        elif self._problems.set(PROBLEM, problem):
            log.warning("webhooks_off", reason=problem)

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()


def application_of(*, secret: Callable[[], str], hint: Hint, allowance: Allowance) -> Starlette:
    """Return the application for GitHub's requests; `secret` gives the secret in force."""
    sparing = Sparing()

    async def delivered(request: Request) -> JSONResponse:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _refused(415, "choose the content type application/json in the webhook's settings")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                body = await _body(request)
        except (TimeoutError, ClientDisconnect):
            return _refused(408, "the body did not come")
        if body is None:
            return _refused(413, f"more than {MOST_BODY_BYTES} bytes; the repository is polled in any case")
        signature = request.headers.get("x-hub-signature-256")
        if signature is None:
            return _refused(400, "no X-Hub-Signature-256; give the webhook the secret of webhook_secret_file")
        if not signed(body, signature, secret=secret()):
            left_out = sparing.line("signature")
            if left_out is not None:
                log.warning("webhook_refused", reason="signature", left_out=left_out)
            return _refused(401, "signed with another secret than that of webhook_secret_file")
        # Only a holder of the secret can use it up.
        if not allowance.take():
            return _refused(
                429, "too many requests; this is a hint, and the repository is polled in any case"
            )
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            return _refused(400, "the body is no JSON")
        if request.headers.get("x-github-event") == "ping":
            return JSONResponse({"pong": True})
        name, number = named(content)
        polling = list(await hint(name, number)) if name else []
        log.info("webhook_heeded", repository=name or "", polling=polling)
        return JSONResponse({"polling": polling}, status_code=202)

    return Starlette(routes=[Route("/", delivered, methods=["POST"])])


def signed(body: bytes, signature: str, *, secret: str) -> bool:
    """Return whether this is the signature of these bytes, in constant time."""
    mine = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return bool(secret) and hmac.compare_digest(mine.encode(), signature.encode(errors="replace"))


def named(content: Any) -> tuple[str | None, int | None]:
    """Return owner/name and number of a webhook's repository, None for missing ones."""
    repository = content.get("repository") if isinstance(content, dict) else None
    if not isinstance(repository, dict):
        return None, None
    name, number = repository.get("full_name"), repository.get("id")
    fit = isinstance(name, str) and name.count("/") == 1 and len(name) <= 200 and name.isprintable()
    return (name if fit else None), (number if isinstance(number, int) else None)


async def _body(request: Request) -> bytes | None:
    """Return the body, None if it exceeds the limit."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 10 or int(length) > MOST_BODY_BYTES:
        return None
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            return None
    return bytes(body)


def _refused(status: int, why: str) -> JSONResponse:
    return JSONResponse({"error": why}, status_code=status)

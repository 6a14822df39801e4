"""Authorise requests: the client needs the token, and pages of other origins are refused.

    401   no token, or another one (with WWW-Authenticate, as RFC 6750 has it)
    403   a page of another origin sent the request
    421   only this machine was meant to ask, and the request names another one (DNS rebinding)

`/health` and `/ready` need no token, so that monitoring works without it: they report the models' names and states, and
nothing of any request.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.endpoint.credentials import read_key
from pipeline.endpoint.errors import CredentialError
from pipeline.loopback import names_this_machine
from pipeline.serve.schemas import Problem, problem_response
from pipeline.serve.spec import ServeSpec

OPEN = frozenset({"/health", "/ready"})
_CHALLENGE = 'Bearer realm="everlean"'


def read_token(spec: ServeSpec, *, environment: Mapping[str, str] | None = None) -> str | None:
    """Read and return the token required from clients; None if none is configured.

    Raises:
        CredentialError: the token cannot be used, or none is configured and other machines can reach the server.
    """
    place = spec.token
    token = read_key(place, environment=environment)
    if token is None and spec.open:
        raise CredentialError(
            f"other machines can reach {spec.host}, and there is no token; name a file with one in [serve] token_file,"
            f" or set ${place.variable}, or listen on 127.0.0.1"
        )
    return token


class TokenGuard:
    """Passes requests with the token; all requests if no token is configured."""

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self._app = app
        self._token = None if token is None else token.encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._token is None or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = sent[0].partition(b" ") if len(sent) == 1 else (b"", b"", b"")
        if scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token):
            await self._app(scope, receive, send)
            return
        refusal = Problem(
            401,
            "no_token",
            "the token is another one" if sent else "the request carries no token",
            'send the header "Authorization: Bearer TOKEN"',
            headers={"WWW-Authenticate": f'{_CHALLENGE}, error="invalid_token"' if sent else _CHALLENGE},
        )
        await problem_response(refusal)(scope, receive, send)


class HereGuard:
    """Refuses requests that a web page made a browser send. `alone`: only this machine may use the server."""

    def __init__(self, app: ASGIApp, *, alone: bool) -> None:
        self._app = app
        self._alone = alone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await problem_response(refusal)(scope, receive, send)

    def _refusal(self, headers: Headers) -> Problem | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._alone and not names_this_machine(host):
            return Problem(
                421,
                "other_host",
                "it answers this machine only, and the request names another one",
                "ask for 127.0.0.1 or localhost",
            )
        # A client other than a browser has no origin.
        if origin is not None and origin.partition("://")[2] != host:
            return Problem(
                403,
                "other_origin",
                "the request comes from a page of another origin",
                "ask from a program",
            )
        return None

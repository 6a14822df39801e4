"""Requests to GitHub's REST API on behalf of a person who waits for them, and what a refusal means to that person.

The poller's errors end with "it is tried again by itself"; here nothing is, so each says what to do. Owns no request:
`daemon.pull_requests` makes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import httpx2

from daemon.git_errors import RemoteError
from daemon.git_names import is_sha
from daemon.github import GitHub
from daemon.redact import redact

_AGAIN = "run the same command again: what was done already is found and gone on with"
_NEEDED = (
    'a classic token needs the scope "repo" (public_repo for public repositories), a fine-grained one write access to'
    " contents and pull requests"
)


class ProposalError(Exception):
    """A proof is not proposed; the message names the thing, the reason and the remedy.

    `status` is the HTTP status that it comes from, None where it comes from none.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Calls:
    """The client of one API for one conversation; `secrets` appear in no message."""

    def __init__(self, github: GitHub, *, secrets: Collection[str] = ()) -> None:
        self._github = github
        self._secrets = secrets

    async def ask(
        self,
        method: str,
        address: str,
        *,
        what: str,
        body: Mapping[str, Any] | None = None,
        absent: Collection[int] = (),
    ) -> Any:
        """Make one request; return the JSON that came back, None where the status is one of `absent`.

        `what` says in words what the request is for.

        Raises:
            ProposalError: refused, rate limited, out of reach, or no answer that could be understood.
        """
        try:
            answer = await self._github.call(method, address, what=what, body=body)
        except RemoteError as error:
            raise ProposalError(self._hidden(f"{error}; {_unanswered(error)}")) from error
        if answer.status_code in absent:
            return None
        if not 200 <= answer.status_code < 300:
            raise ProposalError(self._hidden(self._refused(answer, what)), status=answer.status_code)
        try:
            return answer.json()
        except ValueError as error:
            raise self.strange(what) from error

    def strange(self, what: str) -> ProposalError:
        """Return the error for an answer that GitHub would not give."""
        return ProposalError(
            f"{what}: {self._github.api_url} did not answer as GitHub does; check [github] api_url, and whether a proxy"
            " or a login page is in between"
        )

    def field(self, content: Any, *names: str, what: str) -> Any:
        """Return the value of `a.b.c` in an answer.

        Raises:
            ProposalError: there is none.
        """
        for name in names:
            if not isinstance(content, dict) or content.get(name) is None:
                raise self.strange(what)
            content = content[name]
        return content

    def text(self, content: Any, *names: str, what: str) -> str:
        """Return the text at `a.b.c` in an answer, as `field`."""
        value = self.field(content, *names, what=what)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise self.strange(what)
        return value

    def sha(self, content: Any, *names: str, what: str) -> str:
        """Return the object id at `a.b.c` in an answer, as `field`."""
        value = self.text(content, *names, what=what)
        if not is_sha(value):
            raise self.strange(what)
        return value

    def items(self, content: Any, what: str) -> list[dict[str, Any]]:
        """Return an answer that is a list of objects.

        Raises:
            ProposalError: it is not.
        """
        if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
            raise self.strange(what)
        return content

    def _refused(self, answer: httpx2.Response, what: str) -> str:
        status, said = answer.status_code, _said(answer)
        told = f"{what}: {self._github.api_url} answered {status}{f' ({said})' if said else ''}"
        match status:
            case 401:
                return f"{told}; the token is invalid or expired: make a new one and name it in [github] token_file"
            case 403 if "rate limit" in said.lower():
                return f"{told}; wait a few minutes, then {_AGAIN}"
            case 403:
                return f"{told}; the token may not do this: {_NEEDED}"
            case 404 | 410 | 451:
                return f"{told}; it is gone, or the token may not see it or write there: {_NEEDED}"
            case 409 | 422:
                return f"{told}; see what it says, then {_AGAIN}"
            case _:
                return f"{told}; try again later: {_AGAIN}"

    def _hidden(self, text: str) -> str:
        return redact(text, secrets=self._secrets)


def _unanswered(error: RemoteError) -> str:
    if error.problem == "rate_limited":
        return f"wait until then, and {_AGAIN}"
    return f"whether it was done is not known; check the network, then {_AGAIN}"


def _said(answer: httpx2.Response) -> str:
    """GitHub's message and what it lists of errors, in one line."""
    try:
        content = answer.json()
    except ValueError:
        return ""
    if not isinstance(content, dict):
        return ""
    errors = content.get("errors")
    details = [
        str(item.get("message") or item.get("code") or "") if isinstance(item, dict) else str(item)
        for item in (errors if isinstance(errors, list) else [])
    ]
    parts = [str(content.get("message") or ""), *details]
    return " ".join("; ".join(part for part in parts if part).split())[:500]

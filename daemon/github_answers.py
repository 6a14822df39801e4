"""What GitHub's answers mean: statuses as the problems of `RepositoryFailed`, and their JSON read with suspicion."""

from __future__ import annotations

from typing import Any

import httpx2

from daemon.git_errors import RemoteError, remedy_for
from store.events import RepositoryProblem

REFUSED_REMEDY = (
    "the token is invalid, expired or revoked: make a new one and put it where the old one was"
    " ([github] token_file, the credential github-token or $UNSORRY_GITHUB_TOKEN)"
)
_NO_ACCESS = (
    "the token lacks read access to this repository, or its organisation wants the token authorised;"
    " make a new one, or authorise it"
)
_GONE = "; a private repository looks the same to a token without access"
_BLOCKED = "GitHub blocks the repository for legal reasons; remove the entry, or set enabled = false until it is back"


def refusal(status: int, *, said: str, what: str, api_url: str) -> RemoteError:
    """Return the error for a status that is neither an answer nor a limit; `said` is its message."""
    told = f"{what}: {api_url} answered {status}{f' ({said})' if said else ''}"
    problem: RepositoryProblem
    match status:
        case 401:
            problem, remedy = "auth_failed", REFUSED_REMEDY
        case 403:
            problem, remedy = "auth_failed", _NO_ACCESS
        case 404 | 410:
            problem, remedy = "gone", remedy_for("gone") + _GONE
        case 451:
            problem, remedy = "gone", _BLOCKED
        case 409:
            problem, remedy, told = "empty", remedy_for("empty"), f"{what}: the repository is empty"
        case _:
            problem, remedy = "unreachable", remedy_for("unreachable")
    return RemoteError(problem, told, remedy=remedy)


def not_understood(what: str) -> RemoteError:
    """Return the error for an answer that GitHub would not give."""
    return RemoteError(
        "unreachable",
        f"{what}: the API's answer is not what GitHub sends; is there a proxy or a login page in between?",
        remedy="check api_url in config.toml",
    )


def message(answer: httpx2.Response) -> str:
    """Return what an answer says of itself, in one short line; "" where it says nothing."""
    if answer.status_code == 304:
        return ""
    try:
        content = answer.json()
    except ValueError:
        return ""
    said = content.get("message") if isinstance(content, dict) else None
    return " ".join(said.split())[:200] if isinstance(said, str) else ""


def json_object(answer: httpx2.Response, what: str) -> dict[str, Any]:
    """Return an answer that is an object.

    Raises:
        RemoteError: it is not.
    """
    content = _json(answer, what)
    if not isinstance(content, dict):
        raise not_understood(what)
    return content


def json_list(answer: httpx2.Response, what: str) -> list[dict[str, Any]]:
    """Return an answer that is a list of objects.

    Raises:
        RemoteError: it is not.
    """
    content = _json(answer, what)
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise not_understood(what)
    return content


def text(value: Any) -> str | None:
    """Return a text that is one and not empty."""
    return value if isinstance(value, str) and value else None


def number(value: Any) -> int | None:
    """Return a whole number that is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _json(answer: httpx2.Response, what: str) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        raise not_understood(what) from error

"""Client of GitHub's REST API: one conditional request at a time, inside its rate limits.

Owns the requests and the rule for whom they are made; the limits are `daemon.github_limits`', what answers mean is
`daemon.github_answers`'. Knows nothing of events.

An unchanged repository costs one conditional request: the list of its branches. What the repository itself says (its
default branch, its name, whether it is archived) is asked where the list changed, where it was redirected, and where
the caller wants it.

Who is asked about what: `[github] api_url` names the API; empty and with a token it is https://api.github.com. It
answers for the watchlist entries on the forge that it belongs to, and for no others (nor does the token go
anywhere else):
    - the entry's host is the API's own host (GitHub Enterprise: https://HOST/api/v3 for https://HOST/owner/name);
    - the API's host is `api.` plus the entry's host (api.github.com for github.com);
    - the API is on this machine's loopback address and the entry is a local path: a local server speaking for
      local repositories, which is how tests run.
Every other entry, and every entry where neither a token nor `api_url` is configured, is read by `git ls-remote`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from daemon.git_errors import RemoteError
from daemon.github_answers import json_list, json_object, number, text
from daemon.github_limits import Quota
from daemon.github_transport import REDIRECTS, Transport

PUBLIC_API = "https://api.github.com"
_BRANCHES = "refs/heads/"
_MOST_PAGES = 50


@dataclass(frozen=True, slots=True)
class ForgeAnswer:
    """What the forge says. `heads` is None where its 304 says that no branch changed.

    `asked` says whether the repository itself was asked about, `about` whether it answered with anything new: without
    it the names, the number and `archived` are not known, and the default branch is the one that the caller knew.
    `moved`: the address that was asked redirects to another.
    """

    heads: Mapping[str, str] | None
    default_branch: str | None
    full_name: str | None = None
    forge_id: int | None = None
    clone_url: str | None = None
    archived: bool = False
    about: bool = False
    asked: bool = False
    moved: bool = False
    etags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the last look at a repository left behind, for the next one to be cheaper.

    `number`: of one whose address redirects, the number that it has there. Asked by that, no redirect is paid for.
    """

    etags: Mapping[str, str] = field(default_factory=dict)
    default_branch: str | None = None
    moved: bool = False
    number: int | None = None


NOTHING = Remembered()


class GitHub:
    """A client for one API. Serial on purpose: GitHub asks for no concurrency per token.

    Args:
        renew: called when the token is refused; returns the token as it is now, which may be a new one.
    """

    def __init__(
        self,
        *,
        api_url: str,
        token: str | None,
        timeout_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        renew: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.api_url = (api_url or PUBLIC_API).rstrip("/")
        self._host = urlsplit(self.api_url).netloc.lower()
        self._transport = Transport(
            api_url=self.api_url, token=token, timeout_s=timeout_s, now=now, renew=renew
        )
        self._turn = asyncio.Lock()

    @property
    def requests(self) -> Counter[str]:
        """Requests made, by the owner/name that they were about."""
        return self._transport.requests

    @property
    def token_refused(self) -> bool:
        """Whether the API refuses the token that is in use."""
        return self._transport.token_refused

    def is_for(self, *, api_url: str, token: str | None, timeout_s: float) -> bool:
        """Whether a client made from these would be the same."""
        wanted = (api_url or PUBLIC_API).rstrip("/"), token, timeout_s
        return wanted == (self.api_url, self._transport.token, self._transport.timeout_s)

    @property
    def quotas(self) -> Mapping[str, Quota]:
        """Return the remaining quotas by resource, as the last answers reported them."""
        return self._transport.limits.quotas

    def name_of(self, key: str) -> str | None:
        """Return owner/name where this API answers for the repository, else None."""
        host, _, name = key.partition("/")
        if name.count("/") != 1:
            return None
        mine = host in (self._host, self._host.removeprefix("api.")) or (
            host == "local" and _is_loopback(urlsplit(self.api_url).hostname or "")
        )
        return name if mine else None

    def token_for(self, url: str) -> str | None:
        """Return the token where git may send it to this URL's host."""
        parts = urlsplit(url)
        host = parts.netloc.lower()
        if parts.scheme == "https" and host in (self._host, self._host.removeprefix("api.")):
            return self._transport.token
        return None

    async def look(
        self, name: str, *, remembered: Remembered = NOTHING, ask_about: bool = False
    ) -> ForgeAnswer:
        """Ask for all branches, and where there is a reason (or `ask_about`) for the repository itself.

        Each is asked only whether it changed since the ETag that is remembered. With `ask_about` it is asked by its
        name, whatever number is remembered: somebody may have given it its old name back, or to another one. So is one
        whose number is nobody's any more.

        Raises:
            RemoteError: gone, private, rate limited, empty, or out of reach.
        """
        began = time.monotonic()
        async with self._turn:
            failed = self._transport.failed
            if failed is not None and failed[0] >= began:
                # Whoever stood in line while the API was out of reach has the answer too, without another timeout.
                raise failed[1]
            known = remembered.default_branch
            if remembered.number is not None and not ask_about:
                base = f"/repositories/{remembered.number}"
            else:
                base = "/repos/" + quote(name)
            try:
                heads, etag, moved = await self._heads(base, etag=remembered.etags.get("branches"), what=name)
            except RemoteError as error:
                if error.problem != "gone" or base.startswith("/repos/"):
                    raise
                remembered, ask_about, base = NOTHING, True, "/repos/" + quote(name)
                heads, etag, moved = await self._heads(base, etag=None, what=name)
            moved = moved or base.startswith("/repositories/")
            fresh = {"branches": etag} if etag else {}
            if not (ask_about or known is None or heads is not None or moved != remembered.moved):
                if about := remembered.etags.get("repository"):
                    fresh["repository"] = about
                return ForgeAnswer(None, known, moved=moved, etags=fresh)
            # Of one that moved the number is wanted, which a 304 does not say.
            about = None if moved and remembered.number is None else remembered.etags.get("repository")
            answer, _ = await self._transport.get(base, etag=about, what=name)
            if answer.status_code == 304:
                fresh["repository"] = remembered.etags["repository"]
                return ForgeAnswer(heads, known, moved=moved, asked=True, etags=fresh)
            content = json_object(answer, name)
            default = text(content.get("default_branch")) or known
            if heads is None and default != known:
                # Another default branch means other branches to watch: the list is wanted, whatever its ETag says.
                heads, etag, _ = await self._heads(base, etag=None, what=name)
                fresh = {"branches": etag} if etag else {}
            if etag := answer.headers.get("etag"):
                fresh["repository"] = etag
            return ForgeAnswer(
                heads,
                default,
                full_name=text(content.get("full_name")),
                forge_id=number(content.get("id")),
                clone_url=text(content.get("clone_url")),
                archived=content.get("archived") is True,
                about=True,
                asked=True,
                moved=moved,
                etags=fresh,
            )

    async def call(
        self, method: str, address: str, *, what: str, body: Mapping[str, Any] | None = None
    ) -> httpx2.Response:
        """Make one request; what its status means is the caller's to say. Only a question follows redirects.

        Raises:
            RemoteError: rate limited, out of reach, or redirected to another host.
        """
        async with self._turn:
            for _ in range(4):
                answer = await self._transport.send(
                    address, etag=None, what=what, method=method, body=body, read_refusals=False
                )
                if method != "GET" or answer.status_code not in REDIRECTS:
                    break
                address = self._transport.same_host(answer.headers.get("location", ""), what)
            return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    # --- one request ----------------------------------------------------------------------------------------

    async def _heads(
        self, base: str, *, etag: str | None, what: str
    ) -> tuple[dict[str, str] | None, str | None, bool]:
        heads: dict[str, str] = {}
        address: str | None = f"{base}/git/matching-refs/heads/"
        moved = False
        pages: list[httpx2.Response] = []
        while address is not None:
            if len(pages) == _MOST_PAGES:
                raise RemoteError(
                    "invalid",
                    f"{what}: more than {_MOST_PAGES} pages of branches",
                    remedy="watch it without the API: remove api_url and the token",
                )
            answer, redirected = await self._transport.get(address, etag=None if pages else etag, what=what)
            moved = moved or redirected
            if answer.status_code == 304:
                return None, etag, moved
            pages.append(answer)
            for item in json_list(answer, what):
                ref, target = item.get("ref"), item.get("object")
                sha = target.get("sha") if isinstance(target, dict) else None
                if isinstance(ref, str) and isinstance(sha, str) and ref.startswith(_BRANCHES):
                    heads[ref.removeprefix(_BRANCHES)] = sha
            following = answer.links.get("next", {}).get("url")
            address = self._transport.same_host(following, what) if following else None
        # An ETag speaks for its page only: of several pages the later ones could change unseen.
        return heads, pages[0].headers.get("etag") if len(pages) == 1 else None, moved


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""Client of GitHub's REST API: one request at a time unless one is slow, inside its rate limits.

Owns the questions, the choice of repositories for the API, the token in use (`Forge`), and the requests for a
waiting person (`Calls`). The poller's errors are retried by themselves; those of `Calls` have remedies.

An unchanged repository costs one conditional request: the list of its branches. The repository itself (its
default branch, its name, whether it is archived) is asked about if the list changed, if the address was
redirected, and if the caller wants it.

The API: `[github] api_url`; if empty and with a token, https://api.github.com. It answers for the watchlist's
entries on its own forge, and for no others (nor does the token go anywhere else):

- the entry's host is the API's own host (GitHub Enterprise: https://HOST/api/v3 for https://HOST/owner/name);
- the API's host is `api.` plus the entry's host (api.github.com for github.com);
- the API is on this machine's loopback address, the entry is a local path, and there is no token or
  `[github] local_repositories` is set: a local server for local repositories, as in the tests.

`git ls-remote` reads every other entry, and every entry without a token and `api_url`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import structlog
from pydantic import BaseModel, ConfigDict

from daemon.polling.errors import RemoteError
from daemon.polling.git import RemoteState
from daemon.polling.git_process import is_sha
from daemon.polling.github_transport import (
    REFUSED_REMEDY,
    Transport,
    json_list,
    json_object,
    message,
    number,
    text,
)
from daemon.polling.turns import Turns
from daemon.settings import Settings
from pipeline.endpoint.errors import CredentialError
from pipeline.http_client import Answer, NotJsonError
from pipeline.loopback import is_loopback
from pipeline.redact import redact

PUBLIC_API = "https://api.github.com"
_BRANCHES = "refs/heads/"
_MOST_PAGES = 50
_PATIENCE = 1 / 60
"""Share of the timeout after which the next question begins beside a slow one."""
_MOST_BYTES = 16 * 2**20


class RequestMemory(BaseModel):
    """State of the last request for a repository, which makes the next one cheaper.

    `moved`: the address redirects, to the repository with this `number`. A request by number costs no
    redirect.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    etags: dict[str, str] = {}
    default: str | None = None
    moved: bool = False
    number: int | None = None


NOTHING = RequestMemory()


class GitHub(Transport):
    """A client for one API. One request at a time, by GitHub's rule, unless one is slow.

    Args:
        local: whether an API on the loopback hears, with the token, of repositories that are paths.
        renew: called when the token is refused; returns the present token, perhaps a new one.
    """

    def __init__(
        self,
        *,
        api_url: str,
        token: str | None,
        timeout_s: float,
        local: bool = False,
        renew: Callable[[], str | None] = lambda: None,
    ) -> None:
        api_url = (api_url or PUBLIC_API).rstrip("/")
        super().__init__(api_url=api_url, token=token, timeout_s=timeout_s, renew=renew)
        self._host = urlsplit(api_url).netloc.lower()
        self._local = local
        self._turns = Turns(1)

    def is_for(self, *, api_url: str, token: str | None, timeout_s: float, local: bool) -> bool:
        """Return whether a client made from these settings would be the same."""
        settings = (api_url or PUBLIC_API).rstrip("/"), token, timeout_s, local
        return settings == (self.api_url, self.token, self.timeout_s, self._local)

    def name_of(self, key: str) -> str | None:
        """Return owner/name if this API answers for the repository, else None."""
        host, _, name = key.partition("/")
        if name.count("/") != 1:
            return None
        mine = host in (self._host, self._host.removeprefix("api.")) or (
            host == "local"
            and (self._local or not self.token)
            and is_loopback(urlsplit(self.api_url).hostname or "")
        )
        return name if mine else None

    def token_for(self, url: str) -> str | None:
        """Return the token if git may send it to this URL's host."""
        parts = urlsplit(url)
        host = parts.netloc.lower()
        if parts.scheme == "https" and host in (self._host, self._host.removeprefix("api.")):
            return self.token
        return None

    async def look(
        self, name: str, *, remembered: RequestMemory = NOTHING, ask_about: bool = False
    ) -> RemoteState:
        """Query all branches and, if there is a reason (or `ask_about`), the repository itself.

        Each request is conditional on the remembered ETag. With `ask_about` the repository is asked by its
        name, whatever the remembered number: its old name may have been given back, or to another one. So is
        one whose number no longer exists, or has news: git fetches them by the name.

        Raises:
            RemoteError: gone, private, rate limited, empty, or out of reach.
        """
        async with self._asking(name):
            last_default = remembered.default
            if remembered.number is not None and not ask_about:
                base = f"/repositories/{remembered.number}"
            else:
                base = "/repos/" + quote(name)
            gone = False
            try:
                heads, etag, moved = await self._heads(base, etag=remembered.etags.get("branches"), what=name)
            except RemoteError as error:
                if error.problem not in ("not_found", "gone") or base.startswith("/repos/"):
                    raise
                gone = True
            if gone or (heads is not None and base.startswith("/repositories/")):
                remembered, ask_about, base = NOTHING, True, "/repos/" + quote(name)
                heads, etag, moved = await self._heads(base, etag=None, what=name)
            moved = moved or base.startswith("/repositories/")
            fresh = {"branches": etag} if etag else {}
            if not (ask_about or last_default is None or heads is not None or moved != remembered.moved):
                if about := remembered.etags.get("repository"):
                    fresh["repository"] = about
                return RemoteState(None, last_default, moved=moved, etags=fresh)
            # A moved repository's number is needed, and a 304 lacks it.
            about = None if moved and remembered.number is None else remembered.etags.get("repository")
            answer, _ = await self.get(base, etag=about, what=name)
            if answer.status == 304:
                fresh["repository"] = remembered.etags["repository"]
                return RemoteState(heads, last_default, moved=moved, asked=True, etags=fresh)
            content = json_object(answer, name)
            default = text(content.get("default_branch")) or last_default
            if heads is None and default != last_default:
                # Another default branch means other branches to watch: the list is needed, whatever its ETag.
                heads, etag, _ = await self._heads(base, etag=None, what=name)
                fresh = {"branches": etag} if etag else {}
            if etag := answer.headers.get("etag"):
                fresh["repository"] = etag
            return RemoteState(
                heads,
                default,
                full_name=text(content.get("full_name")),
                number=number(content.get("id")),
                clone_url=text(content.get("clone_url")),
                archived=content.get("archived") is True,
                private=content.get("private") is True,
                asked=True,
                moved=moved,
                etags=fresh,
            )

    async def call(
        self, method: str, address: str, *, what: str, body: Mapping[str, Any] | None = None
    ) -> Answer:
        """Make one request; the caller reads its status. Only a question follows redirects.

        Raises:
            RemoteError: rate limited, out of reach, or redirected to another host.
        """
        async with self._asking(what):
            if method == "GET":
                answer, _ = await self.follow(address, what=what, read_refusals=False)
                return answer
            return await self.send(address, what=what, method=method, body=body, read_refusals=False)

    @asynccontextmanager
    async def _asking(self, what: str) -> AsyncIterator[None]:
        """Make the requests of one question, in turn and within one deadline.

        GitHub wants one request of a token at a time. A slow question loses its turn: others may be answered
        quickly.

        Raises:
            RemoteError: the time is up.
        """
        async with self._turns.one(patience_s=self.timeout_s * _PATIENCE):
            try:
                async with asyncio.timeout(self.timeout_s):
                    yield
            except TimeoutError:
                late = f"it did not answer within {self.timeout_s:g} s"
                raise self.unanswered(what, late) from None

    # --- one request ----------------------------------------------------------------------------------------

    async def _heads(
        self, base: str, *, etag: str | None, what: str
    ) -> tuple[dict[str, str] | None, str | None, bool]:
        heads: dict[str, str] = {}
        address: str | None = f"{base}/git/matching-refs/heads/"
        moved = False
        first_etag: str | None = None
        pages = read = 0
        while address is not None:
            if pages == _MOST_PAGES or read > _MOST_BYTES:
                raise RemoteError(
                    "invalid",
                    f"{what}: more than {_MOST_PAGES} pages or {_MOST_BYTES // 2**20} MiB of branches",
                    remedy="watch it without the API: remove api_url and the token",
                )
            answer, redirected = await self.get(address, etag=None if pages else etag, what=what)
            moved = moved or redirected
            if answer.status == 304:
                return None, etag, moved
            pages, read = pages + 1, read + len(answer.data)
            first_etag = answer.headers.get("etag") if pages == 1 else None
            for item in json_list(answer, what):
                ref, target = item.get("ref"), item.get("object")
                sha = target.get("sha") if isinstance(target, dict) else None
                if isinstance(ref, str) and isinstance(sha, str) and ref.startswith(_BRANCHES):
                    heads[ref.removeprefix(_BRANCHES)] = sha
            address = self.same_host(answer.following, what) if answer.following else None
        # An ETag covers its page only: of several pages the later ones could change unseen.
        return heads, first_etag, moved


log = structlog.get_logger("daemon.forge")


class Forge:
    """The token in use and its client, read again with every reload.

    Args:
        renewed: called when a refused token has given way to a new one.
    """

    def __init__(self, *, renewed: Callable[[], None] = lambda: None) -> None:
        self.github: GitHub | None = None
        self._renewed = renewed
        self._unusable = ""
        self._token: str | None = None
        self._settings: Settings | None = None

    @property
    def problem(self) -> str:
        """Return why the token cannot be used; "" if it can, or if no token is configured."""
        if self._unusable:
            return self._unusable
        if self.github is not None and self.github.token_refused:
            return f"the GitHub token is refused by {self.github.api_url}; {REFUSED_REMEDY}"
        return ""

    def connect(self, settings: Settings) -> GitHub | None:
        """Apply the token, and make the client for it or an `api_url`; return the old client, to close.

        An equal client stays, with its knowledge of limits.
        """
        self._settings = settings
        token, before = self._read(), self.github
        api_url, timeout_s = settings.github.api_url, settings.poll.timeout_s
        local = settings.github.local_repositories
        same = before is not None and before.is_for(
            api_url=api_url, token=token, timeout_s=timeout_s, local=local
        )
        self._token = token
        if same and (token or api_url):
            return None
        self.github = (
            GitHub(api_url=api_url, token=token, timeout_s=timeout_s, local=local, renew=self._renew)
            if token or api_url
            else None
        )
        return before

    def token_for(self, url: str) -> str | None:
        """Return the secret that git may show to this URL's host."""
        return self.github.token_for(url) if self.github else None

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets to keep out of every log."""
        return (self._token,) if self._token else ()

    def _renew(self) -> str | None:
        """Read the token again, as the one in use is refused."""
        token = self._read()
        if token is not None and token != self._token:
            self._token = token
            log.info("token_renewed")
            self._renewed()
        return token

    def _read(self) -> str | None:
        """Return the current token; None if none can be used, for the reason in `problem`."""
        if self._settings is None:
            return None
        try:
            token = self._settings.github.read_token()
        except CredentialError as error:
            unusable = f"the GitHub token cannot be used: {error}"
            if unusable != self._unusable:
                log.warning("token_unusable", reason=str(error))
            self._unusable = unusable
            return None
        self._unusable = ""
        return token


_AGAIN = "run the same command again: what was done already is found and gone on with"
_NEEDED = (
    'a classic token needs the scope "repo" (public_repo for public repositories), a fine-grained one write access to'
    " contents and pull requests"
)


class ProposalError(Exception):
    """A proof is not proposed; the message names the thing, the reason and the remedy.

    `status` is the HTTP status behind it, None without one.
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
        """Make one request; return the JSON of the answer, None if the status is one of `absent`.

        `what` is the purpose of the request, in words.

        Raises:
            ProposalError: refused, rate limited, out of reach, or an answer that could not be understood.
        """
        try:
            answer = await self._github.call(method, address, what=what, body=body)
        except RemoteError as error:
            raise ProposalError(self._hidden(f"{error}; {_unanswered(error)}")) from error
        if answer.status in absent:
            return None
        if not 200 <= answer.status < 300:
            raise ProposalError(self._hidden(self._refused(answer, what)), status=answer.status)
        try:
            return answer.json()
        except NotJsonError as error:
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
        """Return an answer's list of objects.

        Raises:
            ProposalError: it is none.
        """
        if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
            raise self.strange(what)
        return content

    def _refused(self, answer: Answer, what: str) -> str:
        status, reason = answer.status, message(answer)
        text = f"{what}: {self._github.api_url} answered {status}{f' ({reason})' if reason else ''}"
        match status:
            case 401:
                return f"{text}; the token is invalid or expired: make a new one and name it in [github] token_file"
            case 403 if "rate limit" in reason.lower():
                return f"{text}; wait a few minutes, then {_AGAIN}"
            case 403:
                return f"{text}; the token may not do this: {_NEEDED}"
            case 404 | 410 | 451:
                return f"{text}; it is gone, or the token may not see it or write there: {_NEEDED}"
            case 409 | 422:
                return f"{text}; see what it says, then {_AGAIN}"
            case _:
                return f"{text}; try again later: {_AGAIN}"

    def _hidden(self, text: str) -> str:
        return redact(text, secrets=self._secrets)


def _unanswered(error: RemoteError) -> str:
    if error.problem == "rate_limited":
        return f"wait until then, and {_AGAIN}"
    return f"whether it was done is not known; check the network, then {_AGAIN}"

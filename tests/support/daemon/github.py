"""A local server that behaves like GitHub's API where we can tell: ETags, limits, renames, privacy, proposals.

The branches are those of real git repositories on disk. Use it as a context manager:

    with GitHubServer() as github:
        github.add("owner/name", Path("/some/repository"))
        ...  # [github] api_url = github.url

Covered: GET /repos/OWNER/NAME and /repositories/ID, .../git/matching-refs/PREFIX with pagination, If-None-Match and
304 (which costs no quota when authorised), the x-ratelimit headers with 403, 429 with retry-after, 301 after a
rename, 404 for what is gone or private, 401 for a bad token, 451, 409 for an empty repository, secondary limits with
and without retry-after; GET /user, forks, and what `tests.support.daemon.github_writes` covers. Not covered: all else.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.daemon import refs
from tests.support.daemon.github_writes import Writable, Writes, fork

_NOTICES_END_S = 0.02


@dataclass(slots=True)
class FakeRepository:
    """A repository of the fake forge. `status` other than 200 is what every request about it gets."""

    name: str
    path: Path
    forge_id: int
    private: bool = False
    status: int = 200
    default_branch: str | None = None
    archived: bool = False
    extra_refs: dict[str, str] = field(default_factory=dict)
    """Refs that no git would store, as a hostile server may send them."""


@dataclass(frozen=True, slots=True)
class Found:
    """A repository that the search knows. `created` is a day, `toolchain` "" where it has none."""

    name: str
    created: str
    size_kb: int = 10
    toolchain: str = "leanprover/lean4:v4.35.0\n"
    stars: int = 0
    fork: bool = False
    archived: bool = False

    @property
    def node_id(self) -> str:
        return f"R_{self.name}"

    def node(self) -> dict[str, Any]:
        """Return what GraphQL says of it."""
        return {
            "url": f"https://github.com/{self.name}",
            "isArchived": self.archived,
            "isFork": self.fork,
            "stargazerCount": self.stars,
            "toolchain": {"text": self.toolchain} if self.toolchain else None,
        }


@dataclass(frozen=True, slots=True)
class Request:
    """A request that came in, and the status that it got."""

    path: str
    authorization: str | None
    if_none_match: str | None
    status: int
    method: str = "GET"


@dataclass(slots=True)
class Failure:
    """The next request with this method, whose path ends so, gets `status`.

    `done`: what it asks for is done before, as where an answer is lost on its way.
    """

    method: str
    ending: str
    status: int
    done: bool = False
    message: str = "made to fail"


@dataclass(slots=True)
class _Answer:
    status: int
    content: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class GitHubServer:
    """The server, on a free port of the loopback address, in its own thread."""

    def __init__(self, *, token: str | None = None, page_size: int = 100) -> None:
        self.token = token
        self.page_size = page_size
        self.requests: list[Request] = []
        self.remaining: int | None = None
        """Requests left before the primary limit; None for no limit."""
        self.reset_at = time.time() + 3600
        self.retry_after_s: int | None = None
        """Answer everything with 429 and this `retry-after`."""
        self.secondary = False
        """Answer everything with 403 for a secondary limit, and without saying for how long."""
        self.redirect: str | None = None
        """Answer everything with 301 to this address, as a hijacked forge might."""
        self.login = "proposer"
        """Whose the token is."""
        self.failures: list[Failure] = []
        """What fails once, in any order."""
        self.found: list[Found] = []
        """What its search knows."""
        self.fork_ready_after = 0
        """How many questions about a new fork's branches are answered with 404."""
        self._repositories: dict[str, FakeRepository] = {}
        self._writable: dict[str, Writable] = {}
        self._moved: dict[str, int] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_NOTICES_END_S,), name="github", daemon=True
        )

    @property
    def url(self) -> str:
        """The value for `[github] api_url`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def add(
        self,
        name: str,
        path: Path,
        *,
        private: bool = False,
        may_push: bool = False,
        forge_id: int | None = None,
    ) -> FakeRepository:
        """Serve the repository at `path` as owner/name; `may_push`: the token permits pushes."""
        repository = FakeRepository(
            name, path, forge_id=forge_id or 1000 + len(self._repositories), private=private
        )
        self._repositories[name.lower()] = repository
        self._writable[name.lower()] = Writable(name, path, may_push=may_push)
        return repository

    def pulls(self, name: str) -> list[dict[str, Any]]:
        """Return the pull requests of a repository, to look at and to change."""
        return self._writable[name.lower()].pulls

    def made(self, *methods: str) -> list[str]:
        """Return what was asked with these methods, as "METHOD path", in order."""
        return [f"{one.method} {one.path}" for one in self.requests if one.method in methods]

    def rename(self, old: str, new: str) -> None:
        """Rename as GitHub does: the old address answers 301 to the repository's number from now on."""
        repository = self._repositories.pop(old.lower())
        repository.name = new
        self._repositories[new.lower()] = repository
        writable = self._writable[new.lower()] = self._writable.pop(old.lower())
        writable.name = new
        self._moved[old.lower()] = repository.forge_id

    def remove(self, name: str) -> None:
        """Delete the repository: 404 from now on."""
        del self._repositories[name.lower()]

    def __enter__(self) -> GitHubServer:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    # --- answering ----------------------------------------------------------------------------------------

    def _answer(
        self,
        target: str,
        *,
        authorization: str | None,
        if_none_match: str | None,
        method: str = "GET",
        body: dict[str, Any] | None = None,
    ) -> _Answer:
        if self.retry_after_s is not None:
            message = {"message": "You have exceeded a secondary rate limit"}
            return _Answer(429, message, {"retry-after": str(self.retry_after_s)})
        if self.secondary:
            return _Answer(
                403, {"message": "You have exceeded a secondary rate limit. Please wait a few minutes."}
            )
        if self.redirect is not None:
            return _Answer(301, {"message": "Moved Permanently"}, {"location": self.redirect})
        known = authorization is not None and self.token is not None and self.token in authorization
        if authorization is not None and self.token is not None and not known:
            return _Answer(401, {"message": "Bad credentials"})
        if self.remaining == 0:
            return _Answer(403, {"message": "API rate limit exceeded"}, self._limits())
        failure = next(
            (one for one in self.failures if (one.method, True) == (method, target.endswith(one.ending))),
            None,
        )
        if failure is not None:
            self.failures.remove(failure)
            if failure.done:
                self._content(target, known=known, method=method, body=body)
            return _Answer(failure.status, {"message": failure.message})
        answer = self._content(target, known=known, method=method, body=body)
        if answer.status == 200 and method == "GET":
            etag = _etag(answer.content, authorization)
            answer.headers["etag"] = etag
            if etag == if_none_match:
                answer = _Answer(304, None, {**answer.headers})
        if self.remaining is not None and not (answer.status == 304 and known):
            self.remaining -= 1
        answer.headers.update(self._limits())
        return answer

    def _limits(self) -> dict[str, str]:
        if self.remaining is None:
            return {}
        return {
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": str(self.remaining),
            "x-ratelimit-reset": str(int(self.reset_at)),
            "x-ratelimit-resource": "core",
        }

    def _content(
        self, target: str, *, known: bool, method: str = "GET", body: dict[str, Any] | None = None
    ) -> _Answer:
        parts = urlsplit(target)
        words = unquote(parts.path).strip("/").split("/")
        if words == ["user"]:
            return _Answer(200, {"login": self.login}) if known else _Answer(401, {"message": "Requires it"})
        if words == ["search", "repositories"]:
            return self._search(parse_qs(parts.query))
        if words == ["graphql"]:
            ids = (body or {})["variables"]["ids"]
            nodes = {one.node_id: one.node() for one in self.found}
            return _Answer(200, {"data": {"nodes": [nodes.get(one) for one in ids]}})
        repository: FakeRepository | None = None
        if words[0] == "repos" and len(words) >= 3:
            name, rest = "/".join(words[1:3]).lower(), words[3:]
            if name in self._moved and name not in self._repositories:
                location = "/".join([self.url, "repositories", str(self._moved[name]), *rest])
                trailing = "/" if parts.path.endswith("/") else ""
                return _Answer(301, {"message": "Moved Permanently"}, {"location": location + trailing})
            repository = self._repositories.get(name)
        elif words[0] == "repositories" and len(words) >= 2:
            rest = words[2:]
            repository = next((r for r in self._repositories.values() if str(r.forge_id) == words[1]), None)
        if repository is None or (repository.private and not known):
            return _Answer(404, {"message": "Not Found"})
        if repository.status != 200:
            return _Answer(repository.status, {"message": f"status {repository.status}"})
        if not rest and method == "GET":
            return _Answer(200, self._about(repository))
        if rest[:2] == ["git", "matching-refs"]:
            return self._refs(repository, prefix="refs/" + "/".join(rest[2:]), target=target)
        if method != "GET" and not known:
            return _Answer(404, {"message": "Not Found"})
        if (method, rest) == ("POST", ["forks"]):
            return _Answer(202, self._about(self._fork(repository)))
        writes = Writes(self._writable[repository.name.lower()], others=self._writable)
        return _Answer(*writes.answer(method, rest, parts.query, body or {}))

    def _search(self, query: dict[str, list[str]]) -> _Answer:
        """Answer a search for a language, days and sizes, of which a thousand are given at most."""
        ranges = dict(word.split(":") for word in query["q"][0].split())
        (page,), (size,) = query["page"], query["per_page"]
        first, last = ranges["created"].split("..")
        low, high = map(int, ranges.get("size", f"0..{2**31}").split(".."))
        have = [one for one in self.found if first <= one.created <= last and low <= one.size_kb <= high]
        begin = (int(page) - 1) * int(size)
        if begin >= 1000:
            return _Answer(422, {"message": "Only the first 1000 search results are available"})
        items = [{"node_id": one.node_id} for one in have[begin : begin + int(size)]]
        return _Answer(200, {"total_count": len(have), "incomplete_results": False, "items": items})

    def _fork(self, repository: FakeRepository) -> FakeRepository:
        """Return the fork by the token's owner; create it if missing."""
        name = f"{self.login}/{repository.name.split('/')[1]}"
        if name.lower() not in self._repositories:
            path = repository.path.with_name(f"{repository.path.name}-of-{self.login}.git")
            fork(repository.path, path)
            self.add(name, path, may_push=True)
            made = self._writable[name.lower()]
            made.fork_of, made.ready_after = repository.path, self.fork_ready_after
        return self._repositories[name.lower()]

    def _about(self, repository: FakeRepository) -> dict[str, Any]:
        return {
            "id": repository.forge_id,
            "full_name": repository.name,
            "private": repository.private,
            "default_branch": repository.default_branch or refs.default_branch(repository.path),
            "archived": repository.archived,
            "clone_url": f"https://github.com/{repository.name}.git",
            "permissions": {"push": self._writable[repository.name.lower()].may_push},
        }

    def _refs(self, repository: FakeRepository, *, prefix: str, target: str) -> _Answer:
        every = [(sha, f"refs/heads/{name}") for name, sha in refs.heads(repository.path).items()]
        every += [(sha, name) for name, sha in repository.extra_refs.items()]
        if not every:
            return _Answer(409, {"message": "Git Repository is empty."})
        found = [
            {"ref": name, "object": {"sha": sha, "type": "commit"}}
            for sha, name in every
            if name.startswith(prefix)
        ]
        page = int(parse_qs(urlsplit(target).query).get("page", ["1"])[0])
        shown = found[(page - 1) * self.page_size : page * self.page_size]
        headers = {}
        if page * self.page_size < len(found):
            path = urlsplit(target).path
            headers["link"] = f'<{self.url}{path}?page={page + 1}>; rel="next"'
        return _Answer(200, shown, headers)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body in one piece: of two the second waits for the first one's acknowledgement, 40 ms.
            wbufsize = 65536

            def do_GET(self) -> None:
                self._do("GET")

            def do_POST(self) -> None:
                self._do("POST")

            def do_PATCH(self) -> None:
                self._do("PATCH")

            def _do(self, method: str) -> None:
                sent = self.rfile.read(int(self.headers.get("content-length", "0")))
                authorization = self.headers.get("Authorization")
                condition = self.headers.get("If-None-Match")
                with outer._lock:
                    answer = outer._answer(
                        self.path,
                        authorization=authorization,
                        if_none_match=condition,
                        method=method,
                        body=json.loads(sent) if sent else None,
                    )
                    outer.requests.append(Request(self.path, authorization, condition, answer.status, method))
                body = b"" if answer.content is None else json.dumps(answer.content).encode()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status != 304:
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Write nothing on standard error; `requests` has it all."""

        return Handler


def _etag(content: Any, authorization: str | None) -> str:
    # As on GitHub, another token means another ETag for the same content.
    text = json.dumps(content, sort_keys=True) + (authorization or "")
    return f'W/"{hashlib.sha256(text.encode()).hexdigest()}"'

"""Find Lean 4 repositories to watch: in Reservoir's index, among the requirements of watched ones, on GitHub.

Each source is asked by itself, and a silent one costs the others nothing. Nothing is added to a watchlist.

GitHub returns 1,000 repositories of a query at most. So a query covers those created between two days; if
there are more, the span is halved, and a day is divided by the sizes of repositories. A repository in Lean
may be one of Lean 3: its `lean-toolchain`, asked by GraphQL for a hundred at a time, decides.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from daemon.polling.errors import RemoteError
from daemon.polling.git import Git
from daemon.polling.github import GitHub
from daemon.polling.github_transport import json_object, not_understood, refusal, text
from daemon.settings import Settings
from daemon.settings.types import repository_key, resolve_url
from pipeline.endpoint.errors import CredentialError
from pipeline.jobs.mirror import Mirror
from pipeline.jobs.protocol import JobError
from pipeline.lean.source.manifest import MOST_BYTES, ManifestError, read_manifest

RESERVOIR = "https://github.com/leanprover/reservoir-index"
FIRST_DAY = date(2013, 1, 1)
"""No repository in Lean is older."""
_MOST_FOUND = 1000
"""GitHub's most results of a query."""
_PAGE = 100
_LARGEST_KB = 2**31
_MOST_QUESTIONS = 2000
"""Enough for 100,000 repositories."""
_LARGEST_ENTRY = 16 * 1024
_LONGEST_WAIT_S = 3700.0
_ABOUT = """
query($ids: [ID!]!) {
  nodes(ids: $ids) {
    ... on Repository {
      url isArchived isFork stargazerCount
      toolchain: object(expression: "HEAD:lean-toolchain") { ... on Blob { text } }
    }
  }
}
"""


@dataclass(frozen=True, slots=True)
class Named:
    """A repository as a source names it. `url` is a stranger's; None: not in the source."""

    url: str
    stars: int | None = None
    toolchain: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """An unwatched repository.

    Attributes:
        repository: its key.
        toolchain: its release of Lean; None: unknown.
        stars: None: unknown.
        sources: the sources with its name.
    """

    repository: str
    url: str
    toolchain: str | None
    stars: int | None
    sources: tuple[str, ...]


def candidates(
    named: Mapping[str, Iterable[Named]], *, known: Collection[str]
) -> tuple[list[Candidate], int]:
    """Return the sources' repositories, most stars first, and the number of known ones among them.

    Addresses other than https are left out: this machine opens no stranger's path or ssh address.

    Args:
        named: by source.
        known: the keys of the watchlist.
    """
    result: dict[str, Candidate] = {}
    # Forges ignore case in the names of owners and repositories.
    watched, left_out = {key.lower() for key in known}, set[str]()
    for source, ones in named.items():
        for one in ones:
            try:
                if not one.url.startswith("https://"):
                    continue
                key = repository_key(resolve_url(one.url, base=Path("/")))
            except ValueError:
                continue
            place = key.lower()
            if place in watched:
                left_out.add(place)
                continue
            before = result.get(place, Candidate(key, one.url, None, None, ()))
            result[place] = replace(
                before,
                toolchain=before.toolchain or one.toolchain,
                stars=one.stars if before.stars is None else before.stars,
                sources=tuple(dict.fromkeys((*before.sources, source))),
            )
    return sorted(result.values(), key=lambda one: (-(one.stars or 0), one.repository)), len(left_out)


def ask_outside(
    settings: Settings, *, index: str | None, github: bool, say: Callable[[str], None]
) -> tuple[dict[str, list[Named]], dict[str, str]]:
    """Ask Reservoir's index and GitHub; return the repositories of each, and the reasons of failures.

    Args:
        index: the URL of the index; None: it is not asked.
        github: whether to ask GitHub, whose search needs a token.
        say: takes sentences about waits.
    """
    by_source, problems = dict[str, list[Named]](), dict[str, str]()

    async def ask() -> None:
        api, token = settings.github, None
        try:
            token = api.read_token()
        except CredentialError as error:
            problems["github"] = f"the token cannot be used: {error}"
        client = GitHub(api_url=api.api_url, token=token, timeout_s=settings.poll.timeout_s)
        try:
            if index is not None:
                git = Git(timeout_s=settings.poll.timeout_s, token=client.token_for)
                with tempfile.TemporaryDirectory(prefix="everlean-index-") as folder:
                    by_source["reservoir"] = await in_reservoir(git, index, folder=Path(folder))
        except RemoteError as error:
            problems["reservoir"] = f"{error}; {error.remedy}"
        except JobError as error:  # its remedy is one for mirrors
            problems["reservoir"] = str(error)
        try:
            if github and token is None:
                problems.setdefault(
                    "github", "its search needs a token: see [github] in docs/configuration.md"
                )
            elif github:
                search = Search(client, say=say)
                by_source["github"] = search.found
                await search.run()
        except RemoteError as error:
            problems["github"] = f"{error}; {error.remedy}"
        finally:
            await client.close()

    asyncio.run(ask())
    return by_source, problems


# ---- Reservoir


async def in_reservoir(git: Git, index: str, *, folder: Path) -> list[Named]:
    """Return the repositories of Reservoir's index, a git repository with a file for each package.

    Args:
        index: its URL.
        folder: an empty one, for the clone.

    Raises:
        RemoteError: it cannot be fetched.
        JobError: the clone cannot be read.
    """
    clone = await git.shallow_clone(index, folder=folder, contents=f"blob:limit={_LARGEST_ENTRY}")
    with Mirror(clone) as contents:
        entries = [file.blob for file in contents.files("HEAD") if file.path.endswith("/metadata.json")]
        return [named for blob in entries for named in _sources_of(_entry(contents, blob))]


def _entry(contents: Mirror, blob: str) -> bytes:
    """Return a package's entry; b"" for a large one, neither fetched nor read."""
    try:
        data = contents.read(blob, most_bytes=_LARGEST_ENTRY)
    except JobError as error:
        if error.reason != "object_missing":
            raise
        return b""
    return b"" if isinstance(data, int) else data


def _sources_of(data: bytes) -> Iterator[Named]:
    """Yield the addresses in a package's entry; none if it is not a valid entry."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return
    sources = content.get("sources") if isinstance(content, dict) else None
    for source in sources if isinstance(sources, list) else ():
        if isinstance(source, dict) and (url := text(source.get("gitUrl"))):
            yield Named(url, _count(content.get("stars")))


# ---- Requirements


def required_by(mirror: Path, manifests: Iterable[str]) -> list[Named]:
    """Return the repositories required by manifests in a mirror (git blobs); a refused manifest has none.

    Raises:
        JobError: there is no such mirror, or it lacks one.
    """
    result: list[Named] = []
    with Mirror(mirror) as contents:
        for blob in manifests:
            data = contents.read(blob, most_bytes=MOST_BYTES)
            with suppress(ManifestError):
                result += [
                    Named(one.url) for one in read_manifest(b"" if isinstance(data, int) else data).packages
                ]
    return result


# ---- GitHub


class Search:
    """A search of GitHub for Lean 4 repositories, within its limits.

    Args:
        say: takes a sentence when the search waits for a limit to end.
        today: the last day of a repository's creation.
    """

    def __init__(self, github: GitHub, *, say: Callable[[str], None], today: date | None = None) -> None:
        self._github = github
        self._say = say
        self._today = today or datetime.now(UTC).date()
        self._questions = 0
        self.found: list[Named] = []
        """Lean 4 repositories, without forks and archived ones, also if the search ended with an error."""

    async def run(self) -> None:
        """Search.

        Raises:
            RemoteError: GitHub does not answer, refuses the token, or answers as it would not.
        """
        ids: list[str] = []
        async for one in self._of_language(FIRST_DAY, self._today):
            ids.append(one)
            if len(ids) == _PAGE:
                self.found += await self._lean_4_of(ids)
                ids = []
        if ids:
            self.found += await self._lean_4_of(ids)

    async def _of_language(
        self, first: date, last: date, sizes: tuple[int, int] | None = None
    ) -> AsyncIterator[str]:
        """Yield the ids of repositories in Lean created between two days; of `sizes`, in kilobytes."""
        words = f"language:Lean created:{first}..{last}"
        if sizes is not None:
            words += f" size:{sizes[0]}..{sizes[1]}"
        count, ids = await self._page(words, 1)
        if count > _MOST_FOUND and (halves := _halves(first, last, sizes)):
            for half in halves:
                async for one in self._of_language(*half):
                    yield one
            return
        for one in ids:
            yield one
        for page in range(2, -(-min(count, _MOST_FOUND) // _PAGE) + 1):
            for one in (await self._page(words, page))[1]:
                yield one

    async def _page(self, words: str, page: int) -> tuple[int, list[str]]:
        """Return the number of repositories of a query, and the ids on one page."""
        query = urlencode({"q": words, "per_page": _PAGE, "page": page}, quote_via=quote)
        what = "repositories in Lean"
        content = await self._request(f"/search/repositories?{query}", what)
        count, items = content.get("total_count"), content.get("items")
        if type(count) is not int or not isinstance(items, list):
            raise not_understood(what)
        ids = (text(item.get("node_id")) for item in items if isinstance(item, dict))
        return count, [one for one in ids if one]

    async def _lean_4_of(self, ids: list[str]) -> list[Named]:
        """Return those of these repositories with a toolchain of Lean 4."""
        what = "toolchains of repositories"
        # An Enterprise server has its GraphQL beside /api/v3, github.com beside nothing.
        address = f"{self._github.api_url.removesuffix('/v3')}/graphql"
        body = {"query": _ABOUT, "variables": {"ids": ids}}
        content = await self._request(address, what, method="POST", body=body)
        data = content.get("data")
        nodes = data.get("nodes") if isinstance(data, dict) else None
        if not isinstance(nodes, list):
            raise not_understood(what)
        return [named for node in nodes if isinstance(node, dict) and (named := _lean_4(node))]

    async def _request(self, address: str, what: str, **request: Any) -> dict[str, Any]:
        """Return an answer; if a limit is used up, wait for its end."""
        self._questions += 1
        if self._questions > _MOST_QUESTIONS:
            raise RemoteError(
                "invalid",
                f"{what}: {self._github.api_url} has more after {_MOST_QUESTIONS} answers",
                remedy="check api_url in config.toml",
            )
        while True:
            try:
                answer, _ = await self._github.follow(address, what=what, **request)
                break
            except RemoteError as error:
                if error.retry_at is None or error.problem != "rate_limited":
                    raise
                wait_s = max((error.retry_at - datetime.now(UTC)).total_seconds(), 1.0)
                if wait_s > _LONGEST_WAIT_S:
                    raise
                self._say(f"{error}; the search goes on then")
                await asyncio.sleep(wait_s)
        if answer.status != 200:
            raise refusal(answer.status, what=what, api_url=self._github.api_url)
        return json_object(answer, what)


_Part = tuple[date, date, tuple[int, int] | None]


def _halves(first: date, last: date, sizes: tuple[int, int] | None) -> tuple[_Part, ...]:
    """Return the two halves of a span of days, or of a day's sizes; nothing for a single size."""
    if first < last:
        middle = first + (last - first) // 2
        return (first, middle, sizes), (middle + timedelta(days=1), last, sizes)
    low, high = sizes or (0, _LARGEST_KB)
    if low == high:
        return ()
    # Most repositories are small, so the middle is one of magnitudes.
    between = min(max(int((max(low, 1) * high) ** 0.5), low), high - 1)
    return (first, last, (low, between)), (first, last, (between + 1, high))


def _lean_4(node: dict[str, Any]) -> Named | None:
    blob = node.get("toolchain")
    toolchain = text(blob.get("text")) if isinstance(blob, dict) else None
    url = text(node.get("url"))
    if not url or node.get("isFork") or node.get("isArchived") or not toolchain:
        return None
    release = toolchain.strip().rpartition(":")[2]
    if not toolchain.startswith("leanprover/lean4"):
        return None
    return Named(url, _count(node.get("stargazerCount")), release[:50])


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None

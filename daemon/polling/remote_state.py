"""State of a remote: one look at it, through the forge's API or through git, and what is remembered for the next.

The memo (ETags, and the history that they belong to) is JSON in `poll_states.etag`, so it survives a restart. All of it
can be forgotten at any time; that costs one poll without conditions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from daemon.polling.git import Git
from daemon.polling.github import GitHub, Remembered
from daemon.redact import redact
from daemon.settings import Repo
from store.domain.identity import short_hash
from store.events.repositories import RepositoryRenamed


@dataclass(frozen=True, slots=True)
class Memo:
    """`basis` names the history that the ETags belong to, `entry` the watchlist's entry that was polled.

    Times are ISO 8601 in UTC. `about_at`: when the remote was last asked for its default branch, `changed_at`: when a
    poll last found something new. `failures` counts those in a row. `moved`: the address redirects, to the repository
    with the `number`.
    """

    basis: str = ""
    entry: str = ""
    etags: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    moved: bool = False
    number: int | None = None
    about_at: str = ""
    changed_at: str = ""
    failures: int = 0

    def dump(self) -> str:
        """Return it as it is stored."""
        return json.dumps(asdict(self), sort_keys=True)


def load_memo(stored: str | None) -> Memo:
    """Read what is stored; what cannot be read, as an earlier version's, is forgotten."""
    try:
        content = json.loads(stored or "{}")
    except ValueError:
        return Memo()
    if not isinstance(content, dict):
        return Memo()
    known = {one.name: content[one.name] for one in fields(Memo) if one.name in content}
    memo = Memo(**known)
    return memo if _sound(memo) else Memo()


def entry_of(repo: Repo) -> str:
    """Return a name for what the watchlist asks of a repository: with another one it is polled at once."""
    return short_hash("entry", repo.url, str(repo.every_s), *repo.branches)


def basis_of(repo: Repo, branches: Mapping[str, tuple[str, bool]]) -> str:
    """Return a name for the history that an answer was compared with: with any other a 304 would hide something."""
    tips = (f"{name}={tip}={live}" for name, (tip, live) in sorted(branches.items()))
    return short_hash("etag", *repo.branches, "|", *tips)


def seconds_since(text: str, now: datetime) -> float | None:
    """Return how long ago a time of a memo was; None where there is none, or it lies in the future."""
    try:
        seconds = (now - datetime.fromisoformat(text)).total_seconds()
    except (TypeError, ValueError):
        return None
    return seconds if seconds >= 0 else None


def _sound(memo: Memo) -> bool:
    """Whether every field has its type: the file is ours, but not for ever of this version."""
    texts: list[Any] = [memo.basis, memo.entry, memo.about_at, memo.changed_at]
    etags = memo.etags
    return (
        all(isinstance(one, str) for one in texts)
        and isinstance(etags, dict)
        and all(isinstance(one, str) for pair in etags.items() for one in pair)
        and (memo.default is None or isinstance(memo.default, str))
        and isinstance(memo.moved, bool)
        and (memo.number is None or type(memo.number) is int)
        and isinstance(memo.failures, int)
    )


_ASK_ABOUT_EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Look:
    """What a remote says. `heads` is None where nothing changed; `archived` None where it was not asked.

    `moved`: its address redirects; `number` is then what it has at its forge, None where it did not say.
    """

    heads: Mapping[str, str] | None
    default_branch: str | None
    asked_about: bool = False
    archived: bool | None = None
    renamed: RepositoryRenamed | None = None
    moved: bool = False
    number: int | None = None
    etags: Mapping[str, str] = field(default_factory=dict)


async def look(
    repo: Repo,
    *,
    git: Git,
    github: GitHub | None,
    memo: Memo,
    usable: bool,
    ask_all: bool,
    now: datetime,
) -> Look:
    """Look at the repository's remote.

    Args:
        memo: what the last poll left.
        usable: whether its ETags belong to the history that we have.
        ask_all: ask for everything, also what is asked for once an hour.

    Raises:
        RemoteError: it cannot be read.
    """
    name = github.name_of(repo.key) if github else None
    if github is None or name is None:
        return await _through_git(repo, git)
    since = seconds_since(memo.about_at, now)
    ask_about = ask_all or since is None or since > _ASK_ABOUT_EVERY_S
    remembered = Remembered(memo.etags, memo.default, memo.moved, memo.number) if usable else Remembered()
    answer = await github.look(name, remembered=remembered, ask_about=ask_about)
    renamed = None
    if answer.full_name is not None and answer.full_name.lower() != name.lower():
        renamed = RepositoryRenamed(
            repository=repo.key,
            new_url=redact(answer.clone_url or answer.full_name),
            forge_id=answer.forge_id,
        )
    return Look(
        answer.heads,
        answer.default_branch,
        asked_about=answer.asked,
        archived=answer.archived if answer.about else None,
        renamed=renamed,
        moved=answer.moved,
        number=answer.forge_id,
        etags=answer.etags,
    )


async def _through_git(repo: Repo, git: Git) -> Look:
    refs = await git.ls_remote(repo.url)
    return Look(refs.heads, refs.default_branch)

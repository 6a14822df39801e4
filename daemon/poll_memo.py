"""What a poll leaves for the next one, in the view and so across restarts: ETags, and what they are worth.

It stands as JSON in `poll_states.etag`. All of it can be forgotten at any time; that costs one poll without conditions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from daemon.settings import Repo
from store.identity import short_hash


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


def load(stored: str | None) -> Memo:
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

"""One look at a remote, through the forge's API or through git: which branches, which of them is the default.

Owns the choice of the way, and what has to be asked how often. What the answer means is `daemon.poll_changes`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from daemon.git import Git
from daemon.github import GitHub, Remembered
from daemon.poll_memo import Memo, seconds_since
from daemon.redact import redact
from daemon.settings import Repo
from store.events import RepositoryRenamed

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

"""The repositories of an agent as folders, built where Lean is real: where its trainer's reward runs tactics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from daemon.agents.bringing import Pinned
from daemon.agents.errors import AgentError
from daemon.agents.workshop import OpenShop, in_a_loop
from daemon.paths import slug
from daemon.polling.errors import GitError
from daemon.settings import Settings
from pipeline.lean.build.build_cache import Attached, BuildMissingError, attach, empty_lake
from pipeline.models.tactics.goals import GoalContext, SourcePlaces


class _Places:
    """Finds a row's place in the checkout of its repository and commit."""

    def __init__(self, found: Mapping[tuple[str, str], SourcePlaces]) -> None:
        self._found = found

    def __call__(self, row: Mapping[str, Any]) -> GoalContext | None:
        places = self._found.get((str(row.get("url")), str(row.get("commit"))))
        return None if places is None else places(row)


@contextmanager
def in_checkouts(
    trainer: Any, repos: Sequence[Pinned], settings: Settings, open_shop: OpenShop
) -> Iterator[None]:
    """Check the repositories out for a trainer whose reward asks Lean and that knows no place for it; else nothing.

    Raises:
        AgentError: one cannot be checked out, or its build is gone.
    """
    if not getattr(trainer, "wants_places", False):
        yield
        return
    held: list[Attached] = []
    folders = {pinned: settings.paths.worktrees / f"agent-{slug(pinned.key)}" for pinned in repos}
    try:
        in_a_loop(partial(_check_out, folders, settings, open_shop, held))
        trainer.places = _Places(
            {
                (pinned.url, pinned.commit): SourcePlaces(pinned.lean, folder)
                for pinned, folder in folders.items()
            }
        )
        yield
    finally:
        trainer.places = None
        for one in held:
            one.close()
        in_a_loop(partial(_remove, folders, settings, open_shop))


async def _check_out(
    folders: Mapping[Pinned, Path], settings: Settings, open_shop: OpenShop, held: list[Attached]
) -> None:
    async with open_shop() as shop:
        for pinned, folder in folders.items():
            mirror = settings.paths.mirrors / f"{slug(pinned.key)}.git"
            try:
                await shop.git.worktree_add(mirror, folder, pinned.commit)
                if pinned.lean.kind == "pantograph" and settings.build.enabled:
                    held.append(
                        await asyncio.to_thread(
                            attach, folder, settings.paths.cache, pinned.key, pinned.commit
                        )
                    )
                else:
                    await asyncio.to_thread(empty_lake, folder)
            except GitError as error:
                raise AgentError(f"{pinned}: cannot be checked out: {error}; {error.remedy}") from error
            except BuildMissingError as error:
                raise AgentError(
                    f"{pinned}: {error}; set the repository up again, which builds it"
                ) from error


async def _remove(folders: Mapping[Pinned, Path], settings: Settings, open_shop: OpenShop) -> None:
    async with open_shop() as shop:
        for pinned, folder in folders.items():
            if folder.exists():
                await shop.git.worktree_remove(settings.paths.mirrors / f"{slug(pinned.key)}.git", folder)

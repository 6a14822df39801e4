"""The steps of `everlean setup`: elan, and each Lean version named by the watched repositories."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon.health.requirements import needs_of
from daemon.place.instance import Instance
from daemon.polling.errors import RemoteError
from daemon.polling.git import Git
from daemon.polling.github import GitHub
from daemon.settings import Settings
from pipeline.endpoint.errors import CredentialError
from pipeline.lean.install import BusyError, InstallError, installing
from pipeline.lean.sandbox.command import bubblewrap_problem
from pipeline.lean.toolchain.versions import VersionError, elan_home, find_elan, parse_version
from store.domain.identity import repository_key
from store.text import clean, size

_MARKER = "lean-toolchain"
_ELAN_BYTES = 20 * 10**6
_SPARE_BYTES = 2 * 2**30
_LEAN_BYTES = 2_800 * 10**6
"""The disk space of one Lean: ~/.elan of v4.32.2, measured by others (infinity-cosmos, pull request 206)."""


class SetupError(Exception):
    """Something cannot be set up; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of setup."""

    name: str
    there: bool
    """nothing is to be done"""
    detail: str
    size_bytes: int = 0
    """about"""
    by_hand: str = ""
    """a person's part, or empty"""


def programs(settings: Settings) -> list[Step]:
    """Return a step for each program required by Lean and its sandbox."""
    steps = []
    sandboxed = settings.lean.sandbox == "bubblewrap"
    for name, package in (
        ("git", "git"),
        *([("bwrap", "bubblewrap")] if sandboxed else []),
        ("curl", "curl"),
    ):
        result = shutil.which(name)
        by_hand = "" if result else f"install {package} (Debian: sudo apt install {package})"
        steps.append(Step(package, result is not None, result or "not on PATH", by_hand=by_hand))
    if sandboxed and steps[1].there and (problem := bubblewrap_problem()) is not None:
        steps[1] = Step(
            "bubblewrap", False, problem, by_hand="allow unprivileged user namespaces (docs/install.md)"
        )
    elan = find_elan()
    return [
        *steps,
        Step("elan", elan is not None, str(elan or f"to be installed in {elan_home()}"), _ELAN_BYTES),
    ]


def versions(instance: Instance, settings: Settings) -> list[Step]:
    """Return a step for each Lean version of a watched repository, from a scan or its remote."""
    if settings.lean.backend == "none":
        return [Step("Lean", True, 'none is used: [lean] backend = "none"')]
    by_toolchain: dict[str, list[str]] = {}
    for need in needs_of(instance, settings) or ():
        for place in need.places:
            by_toolchain.setdefault(need.toolchain, []).append(place.repository)
    keys = {repository for repositories in by_toolchain.values() for repository in repositories}
    steps = []
    for url in (repo.url for repo in settings.repos if repository_key(repo.url) not in keys):
        try:
            by_toolchain.setdefault(_remote_toolchain(url, settings), []).append(repository_key(url))
        except SetupError as error:
            steps.append(Step(repository_key(url), False, str(error), by_hand="then run this again"))
    for toolchain, repositories in sorted(by_toolchain.items()):
        places = ", ".join(sorted(set(repositories)))
        try:
            version = parse_version(toolchain)
        except VersionError as error:
            steps.append(Step(places, False, str(error), by_hand="no released Lean, so it is not used"))
            continue
        there = (version.sysroot / "bin" / "lean").is_file()
        steps.append(Step(version.release, there, f"named by {places}", _LEAN_BYTES))
    return steps


def _remote_toolchain(url: str, settings: Settings) -> str:
    """Return the `lean-toolchain` of a remote not scanned yet.

    Raises:
        SetupError: it has none, or cannot be asked.
    """

    async def ask(folder: str) -> str | None:
        github = GitHub(
            api_url=settings.github.api_url,
            token=settings.github.read_token(),
            timeout_s=settings.poll.timeout_s,
        )
        try:
            git = Git(timeout_s=settings.poll.timeout_s, token=github.token_for)
            return await git.file_of(url, _MARKER, folder=Path(folder))
        finally:
            await github.close()

    try:
        with tempfile.TemporaryDirectory(prefix="everlean-setup-") as folder:
            result = asyncio.run(ask(folder))
    except (RemoteError, CredentialError, OSError, ValueError) as error:
        remedy = clean(getattr(error, "remedy", ""))
        raise SetupError(f"{clean(str(error))}; {remedy}".removesuffix("; ")) from error
    if not result:
        raise SetupError(
            f"no {_MARKER} at its root; those of Lake projects in its folders are known once the daemon has scanned it"
        )
    return result.strip()


def free_room() -> int:
    """Return the free bytes of the present or future disk of elan's folder."""
    home = elan_home()
    while not home.exists():
        home = home.parent
    return shutil.disk_usage(home).free


def hold_room(steps: Sequence[Step]) -> None:
    """Refuse steps without room on the disk.

    Raises:
        SetupError: with the needed and the free space.
    """
    needed, free = sum(step.size_bytes for step in steps) + _SPARE_BYTES, free_room()
    if needed > free:
        raise SetupError(
            f"not enough room: about {size(needed)} are needed, 2 GiB of them to spare, and {size(free)} are free; set"
            " ELAN_HOME to a folder of a larger disk, or free some"
        )


def install(steps: Iterable[Step], settings: Settings, *, elan: str, say: Callable[[str], None]) -> list[str]:
    """Do these steps, one after the other; return their names.

    Args:
        elan: the place of elan's release, "" for GitHub.
        say: gets a line for people about each step.

    Raises:
        SetupError: one failed; installations before it stay.
        BusyError: another process installs.
    """
    done = []
    try:
        with installing(settings.paths.cache / "setup", sandbox=settings.lean.sandbox, say=say) as installer:
            for step in steps:
                if step.name == "elan":
                    installer.elan(elan)
                else:
                    installer.lean(parse_version(step.name))
                done.append(step.name)
    except BusyError:
        raise
    except InstallError as error:
        raise SetupError(f"{error}\neverlean setup goes on from here when it is run again") from error
    return done

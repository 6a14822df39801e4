"""Known faults of kernels, and the verified proofs resting on faulty kernels.

A kernel with a fault is no witness. A proof is in doubt if all its witnesses have one: not refuted, but without
support. Two faults add up, since one proof can use both; so one witness must be free of all of them. Unknown kernels
and unreadable versions count as faulty.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

from pipeline.lean.toolchain.versions import VersionError, parse_version

FEED = Path(__file__).with_name("advisories.toml")
LEAN, LEANCHECKER, FROM_EXPORT, NANODA = "lean", "leanchecker", "leanchecker --from-export", "nanoda"
_OF_THE_TOOLCHAIN = (LEAN, LEANCHECKER, FROM_EXPORT)
_NUMBERED = re.compile(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?:-([a-z]+)(\d{0,6}))?", re.ASCII)
_KEYS = {"id", "published", "title", "source", "safe", "fixed"}


class FeedError(ValueError):
    """A file of advisories cannot be read; the message names the file, the place and the fault."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A program that judged a proof: its name in the advisories, and the version it reports ("": none)."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


@dataclass(frozen=True, slots=True)
class Advisory:
    """A fault. `fixed` maps a kernel to the first version of each line without it; `safe` kernels never had it."""

    id: str
    published: date
    title: str
    source: str
    safe: frozenset[str]
    fixed: tuple[tuple[str, tuple[str, ...]], ...]

    def affects(self, kernel: Kernel) -> bool:
        """Return whether this kernel has the fault; an unknown one has."""
        if kernel.name in self.safe:
            return False
        return not any(
            _reached(kernel.version, good)
            for name, versions in self.fixed
            if name == kernel.name
            for good in versions
        ) and not _newer_line(kernel, self)


def _newer_line(kernel: Kernel, advisory: Advisory) -> bool:
    """Return whether the kernel's line of releases begins after the newest line with the fix."""
    ours = _numbers(kernel.version)
    lines = [
        result[:2]
        for name, versions in advisory.fixed
        if name == kernel.name
        for one in versions
        if (result := _numbers(one)) is not None
    ]
    return ours is not None and bool(lines) and ours[:2] > max(lines)


def _reached(version: str, good: str) -> bool:
    """Return whether a version belongs to the line of a fixed version, and is not older."""
    ours, theirs = _numbers(version), _numbers(good)
    if ours is not None and theirs is not None:
        return ours[:2] == theirs[:2] and ours >= theirs
    # Names of nightlies hold their dates, which sort as text.
    both = version.startswith("nightly-") and good.startswith("nightly-")
    return both and version[: len("nightly-2026-01-01")] >= good


def _numbers(version: str) -> tuple[int, int, int, int, int] | None:
    """Return a version as sortable numbers: a candidate or a beta comes before its release."""
    match = _NUMBERED.fullmatch(version)
    if match is None:
        return None
    major, minor, patch, stage, count = match.groups()
    return int(major), int(minor), int(patch), int(stage is None), int(count or 0)


# ---- the feed


@cache
def shipped() -> tuple[Advisory, ...]:
    """Return the advisories of this version of everlean."""
    return read_feed(FEED)


def known(setting: str) -> tuple[Advisory, ...]:
    """Return the advisories in force: from the file of `[certificates] advisories`, else from this version.

    Raises:
        FeedError: the file cannot be read.
    """
    return read_feed(Path(setting)) if setting else shipped()


def read_feed(path: Path) -> tuple[Advisory, ...]:
    """Read a file of advisories.

    Raises:
        FeedError: it is no such file; none of it counts.
    """
    try:
        raw = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise FeedError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FeedError(f"{path}: {error}") from error
    entries = raw.get("advisory")
    if not isinstance(entries, list) or not entries or set(raw) != {"advisory"}:
        raise FeedError(f"{path}: it has to be a list of [[advisory]], and nothing else")
    result = tuple(_read(path, number, one) for number, one in enumerate(entries, 1))
    if len({one.id for one in result}) != len(result):
        raise FeedError(f"{path}: two advisories have the same id")
    return result


def _read(path: Path, number: int, raw: object) -> Advisory:
    where = f"{path}: advisory {number}"
    if not isinstance(raw, dict) or not _KEYS - {"safe"} <= set(raw) <= _KEYS:
        raise FeedError(
            f"{where}: it needs {', '.join(sorted(_KEYS - {'safe'}))}, may have safe, and no more"
        )
    published, safe, fixed = raw["published"], raw.get("safe", []), raw["fixed"]
    texts = [raw["id"], raw["title"], raw["source"], *(safe if isinstance(safe, list) else [None])]
    if not isinstance(fixed, dict) or not all(isinstance(one, list) for one in fixed.values()):
        raise FeedError(f"{where}: fixed has to be lists of versions by kernel")
    texts += [one for versions in fixed.values() for one in versions]
    if not all(isinstance(one, str) and one and one.isprintable() for one in texts) or not isinstance(
        published, date
    ):
        raise FeedError(f"{where}: id, title, source, kernels and versions are texts, published is a date")
    for version in (one for versions in fixed.values() for one in versions):
        if _numbers(version) is None and not re.fullmatch(r"nightly-\d{4}-\d\d-\d\d", version):
            raise FeedError(f"{where}: {version!r} is no version; write v4.33.0 or nightly-2026-08-11")
    return Advisory(
        id=raw["id"],
        published=published,
        title=raw["title"],
        source=raw["source"],
        safe=frozenset(safe),
        fixed=tuple((name, tuple(versions)) for name, versions in sorted(fixed.items())),
    )


# ---- proofs


def witnesses(grade: str, kernel: str, toolchain: str) -> tuple[Kernel, ...]:
    """Return a verified proof's witnesses.

    Those are the kernels in the event's `kernel`, which replayed all of it; without any, the Lean that compiled it.
    """
    names = [one for one in kernel.split(", ") if one] if grade != "L0" else []
    return tuple(_kernel(one, toolchain) for one in names or [LEAN])


def _kernel(said: str, toolchain: str) -> Kernel:
    try:
        release = parse_version(toolchain).release
    except VersionError:
        release = ""
    if said in _OF_THE_TOOLCHAIN:
        return Kernel(said, release)
    name, of, version = said.rpartition(" of ")
    if not of:
        name, _, version = said.partition(" ")
    return Kernel(NANODA if name.startswith(NANODA) else name, version)


def against(kernels: Iterable[Kernel], advisories: Sequence[Advisory]) -> tuple[Advisory, ...]:
    """Return the advisories that put a proof with these witnesses in doubt; none if one witness has no fault."""
    faults = [[one for one in advisories if one.affects(kernel)] for kernel in kernels]
    if not all(faults):
        return ()
    named = {one.id for item in faults for one in item}
    return tuple(one for one in advisories if one.id in named)


def is_sound(toolchain: str, advisories: Sequence[Advisory]) -> bool:
    """Return whether a toolchain's own replay has no known fault."""
    return not against([_kernel(LEANCHECKER, toolchain)], advisories)


def told(found: Iterable[Advisory]) -> str:
    """Return advisories for people."""
    return "; ".join(f"{one.id}: {one.title} ({one.source})" for one in found)

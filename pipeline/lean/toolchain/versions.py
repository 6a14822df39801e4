"""Names of Lean versions, and their places in elan's folder.

Two names of one version are equal (`4.21.0`, `v4.21.0`, `leanprover/lean4:v4.21.0`), by elan's rules. Only releases of
the Lean developers are accepted: a toolchain decides what counts as proved, so a fork's is refused. So are channels
(`stable`, `nightly`), which mean another version tomorrow.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from store.text import shown

RELEASES = "leanprover/lean4"
NIGHTLIES = "leanprover/lean4-nightly"
CHANNELS = ("stable", "beta", "nightly", "lean-toolchain")

_NUMBERED = re.compile(r"v?(\d{1,3}\.\d{1,4}\.\d{1,4}(?:-rc\d{1,3})?)", re.ASCII)
_NIGHTLY = re.compile(r"nightly-\d{4}-\d\d-\d\d(?:-rev\d{1,3})?", re.ASCII)


class VersionError(ValueError):
    """A text names no Lean version that can be installed; the message says why."""


@dataclass(frozen=True, slots=True)
class LeanVersion:
    """One Lean version, such as `v4.21.0` or `nightly-2025-08-01` (`release`) of the repository `origin`."""

    origin: str
    release: str

    @property
    def toolchain(self) -> str:
        """The full name, as written in `lean-toolchain`: `leanprover/lean4:v4.21.0`."""
        return f"{self.origin}:{self.release}"

    @property
    def sysroot(self) -> Path:
        """Its place under elan, there or not: `$ELAN_HOME/toolchains/leanprover--lean4---v4.21.0`."""
        return elan_home() / "toolchains" / self.toolchain.replace("/", "--").replace(":", "---")

    def __str__(self) -> str:
        return self.release


def parse_version(text: str) -> LeanVersion:
    """Read a version as a person or a `lean-toolchain` file names it.

    Raises:
        VersionError: it is no version, a channel, or a toolchain of others than the Lean developers.
    """
    name = text.strip()
    origin, colon, release = name.rpartition(":")
    if release in CHANNELS:
        raise VersionError(
            f"{shown(name)}: a channel, which means another version from day to day; name the version itself"
            " (v4.21.0, v4.22.0-rc3, nightly-2025-08-01)"
        )
    numbered, nightly = _NUMBERED.fullmatch(release), _NIGHTLY.fullmatch(release)
    if origin.endswith("/lean") and release.startswith("3."):
        raise VersionError(f"{shown(name)}: Lean 3, another language, whose projects are scanned and no more")
    if numbered is None and nightly is None:
        raise VersionError(
            f"{shown(name)}: no Lean version; write it like v4.21.0, v4.22.0-rc3 or nightly-2025-08-01"
        )
    # elan looks for nightlies in the repository of nightlies, whatever was written.
    expected = (RELEASES,) if numbered else (RELEASES, NIGHTLIES)
    if colon and origin not in expected:
        raise VersionError(
            f"{shown(name)}: not a toolchain of {expected[-1]}; what another compiler accepts is no proof"
        )
    return LeanVersion(RELEASES, f"v{numbered[1]}") if numbered else LeanVersion(NIGHTLIES, release)


def is_at_most(one: str, other: str) -> bool:
    """Return whether a toolchain equals or precedes another in Lake's order: of one sort, by number or date."""
    try:
        first, second = parse_version(one), parse_version(other)
    except VersionError:
        return one == other
    return first.origin == second.origin and _order(first.release) <= _order(second.release)


def _order(release: str) -> tuple[list[int], float]:
    numbers, _, candidate = release.removeprefix("v").partition("-rc")
    if not candidate and not numbers[0].isdigit():
        return [int(one) for one in re.findall(r"\d+", release)], 0
    return [int(one) for one in numbers.split(".")], float(candidate or "inf")


def elan_home() -> Path:
    """Return elan's folder: `$ELAN_HOME`, else `~/.elan`."""
    return Path(os.environ.get("ELAN_HOME") or Path.home() / ".elan").absolute()


def find_elan() -> Path | None:
    """Return the program elan, on PATH or from its installer's folder."""
    result = shutil.which("elan") or shutil.which(elan_home() / "bin" / "elan")
    return Path(result).absolute() if result else None

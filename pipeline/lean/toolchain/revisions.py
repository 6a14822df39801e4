"""Lean versions: how they are named, and which revision of Pantograph's source is built for each.

Two names of one version are equal here (`4.21.0`, `v4.21.0`, `leanprover/lean4:v4.21.0`); the rules are elan's.
Standard library only; looks at nothing outside.

Only the Lean developers' own releases are names: a toolchain decides what counts as proved, so a fork's is refused.
Channels (`stable`, `nightly`) are refused too: they mean another version tomorrow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PANTOGRAPH = "https://github.com/leanprover/Pantograph.git"
RELEASES = "leanprover/lean4"
NIGHTLIES = "leanprover/lean4-nightly"
CHANNELS = ("stable", "beta", "nightly", "lean-toolchain")

_NUMBERED = re.compile(r"v?(\d{1,3}\.\d{1,4}\.\d{1,4}(?:-rc\d{1,3})?)", re.ASCII)
_NIGHTLY = re.compile(r"nightly-\d{4}-\d\d-\d\d(?:-rev\d{1,3})?", re.ASCII)
_SHA = re.compile(r"[0-9a-f]{40}")
_SHOWN = 80


class VersionError(ValueError):
    """A text names no Lean version that can be installed; the message says why."""


@dataclass(frozen=True, slots=True)
class LeanVersion:
    """One Lean version. `release` is what its folder in our cache is called: `v4.21.0`, `nightly-2025-08-01`."""

    origin: str
    release: str

    @property
    def toolchain(self) -> str:
        """The full name, as it stands in `lean-toolchain`: `leanprover/lean4:v4.21.0`."""
        return f"{self.origin}:{self.release}"

    @property
    def elan_folder(self) -> str:
        """What elan calls the folder below `$ELAN_HOME/toolchains`."""
        return self.toolchain.replace("/", "--").replace(":", "---")

    def __str__(self) -> str:
        return self.release


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit of Pantograph for one Lean version, and how that is known.

    `certain` means that the `lean-toolchain` of that very commit was read; the others are what upstream's notes say
    of the release. Building checks it in any case, so that a wrong entry here is a refusal and not a wrong build.
    """

    release: str
    sha: str
    pantograph: str
    certain: bool
    source: str


def parse_version(text: str) -> LeanVersion:
    """Read a version as a person or a `lean-toolchain` file names it.

    Raises:
        VersionError: it is no version, a channel, or a toolchain that is not the Lean developers'.
    """
    name = text.strip()
    origin, colon, release = name.rpartition(":")
    if release in CHANNELS:
        raise VersionError(
            f"{_shown(name)}: a channel, which means another version from day to day; name the version itself"
            " (v4.21.0, v4.22.0-rc3, nightly-2025-08-01)"
        )
    numbered, nightly = _NUMBERED.fullmatch(release), _NIGHTLY.fullmatch(release)
    if numbered is None and nightly is None:
        raise VersionError(
            f"{_shown(name)}: no Lean version; write it like v4.21.0, v4.22.0-rc3 or nightly-2025-08-01"
        )
    # elan looks for nightlies in the repository of nightlies, whatever was written.
    expected = (RELEASES,) if numbered else (RELEASES, NIGHTLIES)
    if colon and origin not in expected:
        raise VersionError(
            f"{_shown(name)}: not a toolchain of {expected[-1]}; what another compiler accepts is no proof"
        )
    return LeanVersion(RELEASES, f"v{numbered[1]}") if numbered else LeanVersion(NIGHTLIES, release)


def parse_sha(text: str) -> str:
    """Return a full commit id in lower case.

    Raises:
        VersionError: it is not one; an abbreviation or a branch may come to mean another commit.
    """
    sha = text.strip().lower()
    if _SHA.fullmatch(sha) is None:
        raise VersionError(f"{_shown(text)}: not a full commit id (40 hexadecimal digits)")
    return sha


def revision_for(version: LeanVersion) -> Revision | None:
    """Return the revision that is built for a version, or None where none is known."""
    return _BY_RELEASE.get(version.release)


def known_releases() -> tuple[str, ...]:
    """Return every release with a revision, oldest first."""
    return tuple(_BY_RELEASE)


def _shown(text: str) -> str:
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return repr(cut)


_READ = "lean-toolchain and Pantograph/Version.lean of that commit"
_NOTES = "stanford-centaur/PyPantograph: its src submodule, and "

# Where several commits fit, the last of a release of Pantograph was taken.
REVISIONS = (
    Revision("v4.9.0", "f19395bbea83812aa6f31acc3d64e196e5a44345", "0.3.2", True, _READ),
    Revision("v4.17.0", "3c07188cdf81e5e8266506a8f05e8dca4095bb71", "0.3.0", True, _READ),
    Revision("v4.18.0", "120eb9029106b999d8eea6ef9f5675144bacd13d", "0.3.1", True, _READ),
    Revision("v4.19.0", "8fd3649f32c426805fb2f1a079480399950d7e3e", "0.3.2", True, _READ),
    Revision("v4.20.1", "4c7f77b7ca0d3d82c921061cbc68ce1352355321", "0.3.3", True, _READ),
    Revision("v4.21.0", "757db11a77dfb9f2f62330c596a7e42565b3b143", "0.3.4", True, _READ),
    Revision(
        "v4.22.0", "f6d34efd989cf37c6d564f427bbd6b0dbd3e9795", "0.3.7", False, _NOTES + "pull request 139"
    ),
    Revision(
        "v4.23.0", "03513a2017fa33f7d8404c85ca4e57c90a2f9ec1", "0.3.9", False, _NOTES + "pull request 159"
    ),
    Revision("v4.25.2", "8daf04aa5522701647e3b805271aa283588dccfb", "0.3.11", False, _NOTES + "issue 164"),
    Revision(
        "v4.27.0", "5fcb75427604cd93219aca547feb75d79433d9e3", "0.3.13", False, _NOTES + "pull request 169"
    ),
    Revision(
        "v4.29.1", "842c0fe6e76b0771cc7f7939604c7a0b90e17433", "0.3.15", False, _NOTES + "pull request 171"
    ),
)
_BY_RELEASE = {revision.release: revision for revision in REVISIONS}

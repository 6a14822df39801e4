"""The key of an endpoint: read from the service manager or the environment, never from a configuration file.

A job has neither: it inherits a pipe with the key (`pipeline.jobs.child`), and reads it once.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from pipeline.endpoint.errors import CredentialError
from pipeline.jobs.protocol import HUB_PIPE, KEY_PIPE, KEY_PROBLEM, NO_KEY, JobKey
from pipeline.jobs.spec import HUB_KEY, KeyPlace

FOLDER = "CREDENTIALS_DIRECTORY"
"""The environment variable with the folder of a unit's credentials, set by systemd (LoadCredential=)."""
_MOST_BYTES = 4096


def read_key(place: KeyPlace | None = None, *, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the key: the daemon's, else the one of its place; None if all are missing, since a local server may need
    none.

    Args:
        place: of the key; None: the daemon hands it over.
        environment: instead of the process's.

    Raises:
        CredentialError: other users can read the file, it is unreadable, or its content is not a key.
    """
    known = os.environ if environment is None else environment
    if KEY_PROBLEM in known:
        raise CredentialError(known[KEY_PROBLEM])
    if KEY_PIPE in known:
        return _handed_over(int(known[KEY_PIPE]))
    place = place or KeyPlace()
    folder = known.get(FOLDER, "")
    if place.credential and folder:
        if place.credential in (".", "..") or "/" in place.credential:
            raise CredentialError(
                f'"{place.credential}" is no name of a credential: write the part before ":" in LoadCredential='
            )
        path = Path(folder) / place.credential
        if path.exists():
            return _read_file(path)
    if place.file:
        return _read_file(Path(place.file))
    value = known.get(place.variable, "").strip() if place.variable else ""
    return _checked(value, f"the environment variable {place.variable}") if value else None


def key_source(place: KeyPlace) -> str | None:
    """Return the source of a key, for people; None if its place has no key."""
    folder = os.environ.get(FOLDER, "")
    if place.credential and folder and (Path(folder) / place.credential).is_file():
        return f"systemd credential {place.credential}"
    if place.file:
        return f"file {place.file}"
    there = bool(place.variable and os.environ.get(place.variable, "").strip())
    return f"environment variable {place.variable}" if there else None


def job_key(place: KeyPlace | None) -> JobKey:
    """Return a job's share of the key in this place: an unusable key is for the job to report."""
    if place is None:
        return NO_KEY
    try:
        key = read_key(place)
    except CredentialError as error:
        return JobKey(problem=str(error), hub=place.hub)
    return JobKey(key, hub=place.hub)


def take_hub_key() -> None:
    """Let the libraries of this process, a job, download with the hub's key, if it got one.

    Only this process sees the variable: it is not in /proc, and Lean's processes get a written-out environment.
    """
    descriptor = os.environ.pop(HUB_PIPE, None)
    if descriptor is not None:
        os.environ[HUB_KEY.variable] = _handed_over(int(descriptor))


def use_hub_key() -> None:
    """Do the same in a process other than a job: the key comes from the service manager or the environment.

    An unusable key is left out: a public model needs none.
    """
    if (key := job_key(HUB_KEY).key) is not None:
        os.environ[HUB_KEY.variable] = key


@functools.cache
def _handed_over(descriptor: int) -> str:
    """Empty the pipe, so that a child of this process cannot read the key."""
    with os.fdopen(descriptor, "rb") as pipe:
        return _checked(pipe.read(_MOST_BYTES).decode("ascii", errors="replace"), "the daemon's pipe")


def _read_file(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) and mode & stat.S_IROTH:
            raise CredentialError(
                f'"{path}" can be read by every user of this machine; run: chmod 600 {path}'
            )
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise CredentialError(
            f'"{path}" cannot be read ({error.strerror}); write the key into it as its only line, mode 600, owned by '
            "the daemon's user"
        ) from None
    return _checked(data.decode("ascii", errors="replace").strip(), f'"{path}"')


def _checked(key: str, where: str) -> str:
    # It becomes a header: a line end in it would begin another one.
    if not key or len(key) >= _MOST_BYTES or not key.isascii() or not key.isprintable() or " " in key:
        raise CredentialError(f"{where} holds no key; write the key into it as its only line")
    return key

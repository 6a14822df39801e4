"""The key of an endpoint: read where the service manager or the environment has it, never from a configuration file."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from pipeline.external.errors import CredentialError

FOLDER = "CREDENTIALS_DIRECTORY"
"""The environment variable in which systemd says where a unit's credentials are (LoadCredential=)."""


def read_key(
    *, credential: str = "", variable: str = "", environment: Mapping[str, str] | None = None
) -> str | None:
    """Return the key, read now: systemd's credential, else the environment variable; None where there is neither.

    A local server may need none, so that there being none is no error here.

    Args:
        credential: the credential's name, as in `LoadCredential=NAME:/etc/unsorry/NAME`; "" for none.
        variable: the name of an environment variable; "" for none.
        environment: instead of the process's.

    Raises:
        CredentialError: the file is open to everybody or cannot be read, or what is found is no key.
    """
    known = os.environ if environment is None else environment
    folder = known.get(FOLDER, "")
    if credential and folder:
        if credential in (".", "..") or "/" in credential:
            raise CredentialError(
                f'"{credential}" is no name of a credential: write the part before ":" in LoadCredential='
            )
        path = Path(folder) / credential
        if path.exists():
            return _read_file(path)
    value = known.get(variable, "").strip() if variable else ""
    return _checked(value, f"the environment variable {variable}") if value else None


def _read_file(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) and mode & stat.S_IROTH:
            raise CredentialError(
                f'"{path}" can be read by every user of this machine; run: chmod 600 {path}'
            )
        data = path.read_bytes()
    except OSError as error:
        raise CredentialError(
            f'"{path}" cannot be read ({error.strerror}); write the key into it as its only line, mode 600, owned by '
            "the daemon's user"
        ) from None
    return _checked(data.decode("ascii", errors="replace").strip(), f'"{path}"')


def _checked(key: str, where: str) -> str:
    # It becomes a header: a line end in it would begin another one.
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise CredentialError(f"{where} holds no key; write the key into it as its only line")
    return key

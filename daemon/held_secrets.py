"""Every secret that this process could give away, so that none gets into a log: what lies in systemd's folder of
credentials, in the files that the settings name, and in the variables that are meant for secrets.

Reads and remembers nothing; whether one of them can be used is the business of who uses it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from daemon.settings import Settings
from pipeline.external.credentials import FOLDER

_VARIABLE = re.compile(r"UNSORRY_\w*(TOKEN|KEY|SECRET|URL)$")
_MOST_BYTES = 4096
_SHORTEST = 6
"""What is shorter would star out half of every line, and is no secret that anybody keeps."""


def held_secrets(settings: Settings) -> tuple[str, ...]:
    """Return them as they are now."""
    found = {value.strip() for value in (*_of_files(settings), *_of_variables(settings))}
    return tuple(sorted(value for value in found if len(value) >= _SHORTEST))


def _of_files(settings: Settings) -> Iterator[str]:
    places = [
        Path(name)
        for name in (
            settings.github.token_file,
            settings.github.webhook_secret_file,
            settings.serve.token_file,
        )
        if name
    ]
    if folder := os.environ.get(FOLDER):
        with contextlib.suppress(OSError):  # then nobody here can read a secret in it
            places += sorted(Path(folder).iterdir())
    for place in places:
        try:
            with place.open("rb") as file:
                yield file.read(_MOST_BYTES).decode("utf-8", errors="ignore")
        except OSError:
            continue


def _of_variables(settings: Settings) -> Iterator[str]:
    named = {settings.prove.external.key_variable, *(model.key_variable for model in settings.serve.models)}
    yield from (value for name, value in os.environ.items() if _VARIABLE.fullmatch(name) or name in named)

"""Give a child the keys that it needs, and no other: by a pipe that is empty once it is read.

Not by a variable, which every process of this user finds in /proc/PID/environ for as long as the job runs; not by a
file, which would outlive it; and not by systemd's folder of credentials, in which the GitHub token lies too. The other
end is `pipeline.external.credentials`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pipeline.external.credentials import KEY_PIPE, KEY_PROBLEM, KeyPlace, read_key
from pipeline.external.errors import CredentialError


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What a child is started with: descriptors that it inherits, and variables that say which they are."""

    descriptors: tuple[int, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def handed_over(place: KeyPlace | None) -> Iterator[HandedOver]:
    """Yield what a child needs to read the key that is in this place now; nothing where there is none.

    A key that cannot be used is the job's to report: it is told why, and not the key.
    """
    try:
        key = None if place is None else read_key(credential=place.credential, variable=place.variable)
    except CredentialError as error:
        yield HandedOver(variables={KEY_PROBLEM: str(error)})
        return
    if key is None:
        yield HandedOver()
        return
    read, write = os.pipe()
    try:
        # A key is shorter than any pipe's buffer (`read_key`), so this does not wait for a reader.
        os.write(write, key.encode("ascii"))
        os.close(write)
        yield HandedOver((read,), {KEY_PIPE: str(read)})
    finally:
        os.close(read)

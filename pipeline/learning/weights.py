"""Which files of a model are its weights, in one part or in several, and the one digest and size of all of them.

Standard library only: the daemon looks whether a checkpoint's weights are there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping

_INDEX = "model.safetensors.index.json"
_PART = re.compile(r"model-\d+-of-\d+\.safetensors")
_WHOLE = ("adapter_model.safetensors", "model.safetensors", _INDEX, "pytorch_model.bin")


def weights_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the names of a folder's files with the weights, in order; () where there is none.

    An adapter's folder has the adapter. A large model is in several parts, beside an index that names them.
    """
    first = next((name for name in _WHOLE if name in names), None)
    if first is None:
        return ()
    parts = sorted(filter(_PART.fullmatch, names)) if first == _INDEX else ()
    return (first, *parts)


def weights_digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 of weights from that of each file, by name: the file's own, or one of all parts' names and
    digests; "" where no file is weights."""
    names = weights_of(files)
    if len(names) < 2:
        return "".join(files[name] for name in names)
    return hashlib.sha256(json.dumps([[name, files[name]] for name in names]).encode()).hexdigest()

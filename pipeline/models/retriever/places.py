"""The place of a goal's theorem, and the premises accessible there. Imports no torch.

As in training, a theorem may use the premises of all files its file imports, and those above it in its own: never
itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.models.datasets import Position
from pipeline.models.retriever.corpus import Corpus


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a goal's theorem.

    Attributes:
        path: of its file, as in the corpus; None: no file.
        position: of its beginning: (line, column) from 1; None: no premise of its own file counts.
        name: its full name. A theorem of that file in the corpus keeps its traced position, however lines have
            moved since.
        imports: modules its file imports, for a file missing in the corpus. None, with a path of None: every premise
            counts.
    """

    path: str | None = None
    position: Position | None = None
    name: str = ""
    imports: tuple[str, ...] | None = None


def accessible(corpus: Corpus, place: Place) -> npt.NDArray[np.bool_]:
    """Return a mask of the premises accessible to a theorem at a place: bool, shape (len(corpus),)."""
    if place.path is not None and place.path in corpus:
        mask: npt.NDArray[np.bool_] = corpus.imported_files(place.path)[corpus.file_of_premise]
        position = _as_traced(corpus, place)
        if position is not None:
            mask[corpus.before(place.path, position)] = True
        return mask
    if place.imports is None and place.path is None:
        return np.ones(len(corpus), dtype=np.bool_)
    files = np.zeros(corpus.num_files, dtype=np.bool_)
    targets = {f"{module.replace('.', '/')}.lean" for module in place.imports or ()}
    for number, file in enumerate(corpus.files):
        # A library's files are below its own folder: ".lake/packages/mathlib/Mathlib/Order/Basic.lean".
        if file.path in targets or any(file.path.endswith(f"/{path}") for path in _ends(file.path, targets)):
            files |= corpus.imported_files(file.path)
            files[number] = True
    result: npt.NDArray[np.bool_] = files[corpus.file_of_premise]
    return result


def _as_traced(corpus: Corpus, place: Place) -> Position | None:
    assert place.path is not None
    known = (premise.start for premise in corpus.get_premises(place.path) if premise.full_name == place.name)
    return next(known, place.position)


def _ends(path: str, wanted: set[str]) -> list[str]:
    """Return the wanted paths with the same last part, the only possible ends of this path."""
    last = path.rpartition("/")[2]
    return [one for one in wanted if one.rpartition("/")[2] == last]

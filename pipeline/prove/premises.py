"""The premises for a declaration's goals, at every rung, and their names in tactics.

A trained retriever, BM25 or both find them, through one lookup a declaration; the queries of all open searches are
embedded in one batch. No failure of the retriever ends a search: the goal then has no premises, and `reason` goes into
the attempt's record.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from pipeline.lean.source.declarations import written_name
from pipeline.models.tactics.service import Batching, GenerationStoppedError
from store.text import first_line

if TYPE_CHECKING:
    from pipeline.models.retriever.corpus import Premise
    from pipeline.models.retriever.finder import Finder, Place

Find = Callable[[str], Coroutine[Any, Any, tuple["Premise", ...]]]
"""Returns the premises nearest to a state, the nearest first."""

_BATCH = 32
_PRIVATE = re.compile(r"(?:@\[[^\]]*\]\s*)*(?:[a-z]+\s+)*?private\s")
_log = logging.getLogger(__name__)


class Retrieval(Batching["tuple[str, Place]", "tuple[Premise, ...]"]):
    """A finder for all the searches of a job. A context, on one event loop."""

    def __init__(self, finder: Finder) -> None:
        """Hold a finder for exclusive use while the context is open."""
        super().__init__(finder.find, at_once=_BATCH)

    def at(self, place: Place) -> Find:
        """Return the lookup for the states of a declaration at that place."""
        return lambda state: self.ask((state, place))


class ShownPremises:
    """The premises for one declaration's goals. Make one for each: it counts.

    Attributes:
        path: of the declaration's file.
        asked: requests for premises.
        failed: requests without premises after a failure of the retriever.
    """

    def __init__(self, find: Find, path: str = "") -> None:
        self.path = path
        self.asked = self.failed = 0
        self._find = find
        self._failure = ""

    async def nearest(self, state: str) -> tuple[Premise, ...]:
        """Return the premises for a state, the nearest first; none on a failure (see `reason`).

        Raises:
            GenerationStoppedError: the service is closed, and every search ends.
        """
        self.asked += 1
        try:
            return await self._find(state)
        except GenerationStoppedError:
            raise
        # Any error of a model or its libraries: the state is shown none, and the attempt says so.
        except Exception as error:  # noqa: BLE001
            self.failed += 1
            if not self._failure:
                self._failure = first_line(error)
                _log.warning("a search gets no premises: %s", self._failure)
            return ()

    async def texts(self, state: str) -> tuple[str, ...]:
        """Return the marked code of the premises for a state, as models read it."""
        return tuple(premise.serialize() for premise in await self.nearest(state))

    async def names(self, state: str, most: int) -> tuple[str, ...]:
        """Return the names of the first few premises for a state, if a tactic can write them."""
        result = (citable(premise, self.path) for premise in await self.nearest(state))
        return tuple(dict.fromkeys(name for name in result if name is not None))[:most]

    @property
    def reason(self) -> str:
        """Return the retriever's failure, for people; "" without any."""
        if not self.failed:
            return ""
        return f"no premises were found for {self.failed} of {self.asked} states: {self._failure}"


def citable(premise: Premise, path: str) -> str | None:
    """Return a premise's name as a tactic in a file of this path writes it; None where none can."""
    if premise.path != path and _PRIVATE.match(premise.code):
        return None
    return written_name(premise.full_name)


def rooted(name: str, taken: Collection[str]) -> str:
    """Return a constant's name, safe from these hypotheses' names."""
    return f"_root_.{name}" if name.partition(".")[0] in taken else name

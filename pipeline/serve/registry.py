"""The models of the server by name, each in its place; and who looks which checkpoint is in use, and puts it there.

Every two seconds the view is asked which checkpoints were promoted last. What is newer than what stands in a place is
loaded beside it and takes its place; what cannot be loaded leaves the place as it is, and is tried again after a while
that doubles. What a source stands for, and whether it may be used: `pipeline.serve.origins`. A retriever takes
another's place with vectors of all premises that the other had, so that nobody waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pipeline.serve.limits import share
from pipeline.serve.loading import Loader, LoadError, Nearest
from pipeline.serve.measures import Measures
from pipeline.serve.order import ENCODING, GENERATING, PROMOTED, ModelOrder, ProgressOrder, ServeOrder
from pipeline.serve.origins import Origin, Wanted, origins
from pipeline.serve.problems import Problem
from pipeline.serve.swapping import About, Model, Place
from pipeline.serve.wire import ModelInfo, ModelsResponse, ReadyResponse

if TYPE_CHECKING:
    from pipeline.serve.encoding import EncodingModel
    from pipeline.serve.generating import GeneratingModel
    from pipeline.serve.progress import RatingModel
    from pipeline.serve.retrievers import LoadedRetriever

LOOK_S = 2.0
_FIRST_REST_S = 30.0
_LONGEST_REST_S = 3600.0
_PROGRESS = "progress"
_TRAINED = {"tactics": "tactics", "retrieval": "retriever", "retriever": "retriever", _PROGRESS: "progress"}
"""Which of the daemon's models a kind takes, where it takes the promoted one."""
_FINDING = ("retriever", "retrieval")
"""The kinds that find premises."""

_log = logging.getLogger(__name__)

Warm = Callable[["LoadedRetriever", "LoadedRetriever"], Awaitable[None]]
"""Has the second find premises wherever the first does, before it takes its place."""


@dataclass(eq=False, slots=True)
class _Entry:
    """A place and what belongs there, of all its `parts`. `source` is what was loaded, or tried, last; where that
    failed it is tried again at `again_at`, after `rest_s`. `arriving`: it is loaded, and not in its place yet."""

    kind: str
    wanted: str
    parts: tuple[Wanted, ...]
    place: Place[Any]
    load: Callable[[str, tuple[About, ...]], Model]
    source: str = ""
    rest_s: float = 0.0
    again_at: float = 0.0
    arriving: asyncio.Task[None] | None = None


class Registry:
    """The models of one order. A context, on one event loop; entered, it begins to load.

    Args:
        order: which there are.
        measures: count batches, swaps, and who waits.
        nearest, warm: `rooms.premises`': find premises for what is shown them, and make a retriever ready for it.
        look_s: how often the view is asked.
    """

    def __init__(
        self,
        order: ServeOrder,
        *,
        measures: Measures,
        nearest: Nearest,
        warm: Warm,
        look_s: float = LOOK_S,
    ) -> None:
        self.order = order
        self.measures = measures
        self._look_s = look_s
        self._warm = warm
        self._loader = Loader(order, measures=measures, nearest=nearest)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")
        self._entries = {model.name: self._entry(model) for model in order.models}
        self._progress = None if order.progress is None else self._progress_entry(order.progress)
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch(), name="registry")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        beside = {
            one for one in (self._watching, *(entry.arriving for entry in self._all())) if one is not None
        }
        for task in beside:
            task.cancel()
        if beside:
            await asyncio.wait(beside)
        self._thread.shutdown(wait=False, cancel_futures=True)
        for entry in self._all():
            await entry.place.close()

    # ---- what is asked of it

    def generator(self, name: str) -> Place[GeneratingModel]:
        """Return the place of a model that generates.

        Raises:
            Problem: 404, there is none of this name; 409, it encodes.
        """
        return self._of_kind(name, GENERATING, "generates no tactics", "/encode")

    def encoder(self, name: str) -> Place[EncodingModel]:
        """Return the place of a model that encodes.

        Raises:
            Problem: 404, there is none of this name; 409, it generates.
        """
        return self._of_kind(name, ENCODING, "encodes nothing", "/generate")

    def progress(self) -> Place[RatingModel]:
        """Return the place of the progress model.

        Raises:
            Problem: 400, the server has none.
        """
        if self._progress is None:
            raise Problem(
                400,
                "no_progress_model",
                "use_reward asks for the steps that remain, and the server has no progress model",
                "set LEANPROGRESS_MODEL, or [serve.progress] model, and start it anew; or leave use_reward out",
            )
        return self._progress.place

    @asynccontextmanager
    async def retriever(self) -> AsyncIterator[LoadedRetriever]:
        """Have a retriever: the promoted one where there is one, else the first of the order.

        Raises:
            Problem: 404, the order has none; 503, it is not there yet.
        """
        having = [one for one in self.order.models if one.kind in _FINDING]
        if not having:
            raise Problem(
                404,
                "no_retriever",
                "the server has no retriever",
                'add a model with kind = "retriever" under [[serve.models]]',
            )
        first = min(
            having, key=lambda one: (not self._entries[one.name].place.loaded, one.source != PROMOTED)
        )
        entry = self._entries[first.name]
        async with entry.place.use() as model:
            yield _retriever(entry, model)

    def models(self) -> ModelsResponse:
        """Return what there is, in the order of the order."""
        return ModelsResponse(
            models=[_info(entry) for entry in self._entries.values()],
            progress=None if self._progress is None else _info(self._progress),
            simulated=self.order.simulated,
        )

    def ready(self) -> ReadyResponse:
        """Say whether requests can be answered: none is being loaded, and one is there."""
        loading = [entry.place.name for entry in self._all() if entry.place.state == "loading"]
        reason = ""
        if loading:
            reason = f"still loading: {', '.join(loading)}"
        elif self._entries and not any(entry.place.loaded for entry in self._entries.values()):
            # Whoever has no token is told no paths.
            states = ", ".join(f"{name} is {entry.place.state}" for name, entry in self._entries.items())
            reason = f"no model is there: {states}; GET /models says why"
        return ReadyResponse(
            ready=not reason,
            reason=reason,
            models={name: entry.place.state for name, entry in self._entries.items()},
            progress=None if self._progress is None else self._progress.place.state,
        )

    def _of_kind(self, name: str, kinds: frozenset[str], not_so: str, rather: str) -> Place[Any]:
        fitting = [one.name for one in self.order.models if one.kind in kinds]
        names = ", ".join(fitting) or "none"
        entry = self._entries.get(name)
        if entry is None:
            raise Problem(
                404,
                "unknown_model",
                f'there is no model "{name[:200]}"',
                f"ask one of these: {names}; GET /models says how they stand",
            )
        if entry.kind not in kinds:
            raise Problem(
                409,
                "wrong_kind",
                f'the model "{name}" {not_so}',
                f"POST to {rather}, or ask one of these: {names}",
            )
        return entry.place

    # ---- what it does by itself

    async def _watch(self) -> None:
        while True:
            try:
                wanted = {part for entry in self._all() for part in entry.parts}
                found = await asyncio.to_thread(origins, self.order, wanted)
                for entry in self._all():
                    await self._look(entry, [found[part] for part in entry.parts])
            # A defect of ours ends no model that is there.
            except Exception:  # noqa: BLE001
                _log.exception("the models could not be looked after; it is tried again")
            await asyncio.sleep(self._look_s)

    async def _look(self, entry: _Entry, found: Sequence[Origin | str]) -> None:
        """Load what belongs into a place and is not there."""
        if entry.arriving is not None and not entry.arriving.done():
            return
        parts = [part for part in found if isinstance(part, Origin)]
        if len(parts) < len(found):
            why = "; ".join(part for part in found if isinstance(part, str))
            entry.place.cannot("waiting" if entry.wanted == PROMOTED else "failed", why)
            return
        source, abouts = parts[0].source, tuple(part.about for part in parts)
        if source == entry.source and not entry.rest_s:
            entry.place.stands()
            return
        if source != entry.source:
            entry.source, entry.rest_s = source, 0.0
        elif time.monotonic() < entry.again_at:
            return
        if not entry.rest_s and not entry.place.loaded:
            entry.place.cannot("loading", "it is being loaded")
        begun = time.monotonic()
        try:
            loop = asyncio.get_running_loop()
            model = await loop.run_in_executor(self._thread, partial(entry.load, source, abouts))
        except LoadError as error:
            self._rest(entry, str(error))
            return
        # What takes long here keeps no other model from being looked after.
        entry.arriving = asyncio.create_task(
            self._put(entry, model, begun), name=f"arriving:{entry.place.name}"
        )
        await asyncio.wait({entry.arriving}, timeout=self._look_s)

    async def _put(self, entry: _Entry, model: Any, begun: float) -> None:
        """Put a model that was loaded in its place, when it is ready for what the one before did."""
        before = entry.place.model
        try:
            if before is not None and entry.kind in _FINDING:
                entry.place.cannot("loading", "the premises are being embedded for the newer checkpoint")
                await self._warm(_retriever(entry, before), _retriever(entry, model))
            await entry.place.put(model)
        except Problem as problem:
            self._rest(entry, str(problem))
            return
        # It is tried again, as what cannot be loaded.
        except Exception as error:  # noqa: BLE001
            _log.exception("%s could not be put in its place", entry.place.name)
            self._rest(entry, f"{type(error).__name__}: {error}")
            return
        entry.rest_s = 0.0
        if before is not None:
            self.measures.swapped(entry.place.name)
        _log.info("%s is now %s (%.1f s)", entry.place.name, entry.source, time.monotonic() - begun)

    def _rest(self, entry: _Entry, why: str) -> None:
        entry.rest_s = min(_LONGEST_REST_S, 2 * entry.rest_s or _FIRST_REST_S)
        entry.again_at = time.monotonic() + entry.rest_s
        entry.place.cannot("failed", why)
        _log.warning("%s is not loaded (again in %.0f s): %s", entry.place.name, entry.rest_s, why)

    def _all(self) -> list[_Entry]:
        return [*self._entries.values(), *([] if self._progress is None else [self._progress])]

    def _entry(self, order: ModelOrder) -> _Entry:
        place: Place[Any] = Place(
            order.name, waiting=partial(self.measures.waiting, order.name), most=share(self.order.limits)
        )
        parts = [(_TRAINED.get(order.kind, ""), order.source)]
        if order.kind == "retrieval":
            parts.append(("tactics", order.generator))
        return _Entry(order.kind, order.source, tuple(parts), place, partial(self._loader.model, order))

    def _progress_entry(self, order: ProgressOrder) -> _Entry:
        place: Place[Any] = Place(
            _PROGRESS, waiting=partial(self.measures.waiting, _PROGRESS), most=share(self.order.limits)
        )
        source = order.source
        if source.startswith("~"):
            source = str(Path(source).expanduser())
        parts = ((_PROGRESS, source),)
        return _Entry(_PROGRESS, source, parts, place, partial(self._loader.progress, order))


def _retriever(entry: _Entry, model: Any) -> LoadedRetriever:
    found: LoadedRetriever = model.retriever if entry.kind == "retrieval" else model
    return found


def _info(entry: _Entry) -> ModelInfo:
    place = entry.place
    return ModelInfo(
        name=place.name,
        kind=entry.kind,
        source=entry.wanted,
        state=place.state,
        loaded=place.loaded,
        reason=place.reason,
        checkpoint=place.about.checkpoint,
        simulated=place.about.simulated,
    )

"""The models of the server by name: which checkpoint belongs to each, how it loads, how it replaces another.

Every two seconds the view is asked which checkpoints were promoted last. A newer one is loaded beside the one in use
and takes the next request; the one before is closed after its last. A retriever first gets vectors of all premises
that the one before had. What cannot be loaded leaves the model as it is, and is tried again after a doubling back-off.

A checkpoint of the daemon's is named by promotion or by its folder; either way the view says what it learned from. What
learned from the simulator is used where the simulator judges, and nowhere else.

Models load in one thread, one after the other: transformers' loading is not made for two at once. torch and
transformers are imported with the first model (`pipeline.serve.engines`), so that the server answers `/health` before.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar
from weakref import WeakValueDictionary

from pipeline.models.endpoint.errors import ExternalError
from pipeline.models.errors import LearningError
from pipeline.serve.limits import full, share
from pipeline.serve.measures import Measures
from pipeline.serve.order import ENCODING, GENERATING, PROMOTED, Device, ModelOrder, ProgressOrder, ServeOrder
from pipeline.serve.schemas import ModelInfo, ModelsResponse, Problem, ReadyResponse, State
from store.errors import LogError
from store.view.queries import basic as queries
from store.view.queries import models as model_queries
from store.view.rows import CheckpointRow

if TYPE_CHECKING:
    from pipeline.serve.engines import EncodingModel, GeneratingModel, LoadedRetriever, RatingModel, Retriever


RETRY_AFTER_S = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class About:
    """What a model is. `checkpoint` is its id, "" where it is none of the daemon's; `simulated`: it learned from the
    simulator."""

    checkpoint: str = ""
    simulated: bool = False


class Model(Protocol):
    """A model that was loaded. Started and closed on the server's loop."""

    about: About

    async def start(self) -> None: ...

    async def close(self) -> None: ...


M = TypeVar("M", bound=Model)


@dataclass(eq=False, slots=True)
class _Held(Generic[M]):
    model: M
    users: int = 0
    retired: bool = False


class Place(Generic[M]):
    """A name and the model that it stands for now. Used on one event loop.

    Attributes:
        state: see `wire.ModelInfo`.
        reason: why it cannot be asked, or why the newer checkpoint is not the one in use; "" where neither.
    """

    def __init__(
        self,
        name: str,
        *,
        waiting: Callable[[int], None] = lambda _count: None,
        most: int | None = None,
    ) -> None:
        """Args:
        name: what requests call it.
        waiting: told how many requests have it, whenever that changes.
        most: how many requests may have it at once; None: any number.
        """
        self.name = name
        self.state: State = "loading"
        self.reason = "it has not been loaded yet"
        self._waiting = waiting
        self._most = most
        self._users = 0
        self._held: _Held[M] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def loaded(self) -> bool:
        return self._held is not None

    @property
    def model(self) -> M | None:
        """The model that is here now; whoever asks it something has it by `use`."""
        return None if self._held is None else self._held.model

    @property
    def about(self) -> About:
        return About() if self._held is None else self._held.model.about

    @asynccontextmanager
    async def use(self) -> AsyncIterator[M]:
        """Have the model for a request: it is not closed meanwhile, whatever takes its place.

        Raises:
            Problem: 503, there is none now; 429, it has as many requests as it may have.
        """
        held = self._held
        if held is None:
            raise Problem(
                503,
                f"model_{self.state}",
                f'the model "{self.name}" cannot be asked: {self.reason}',
                "GET /ready says when it is there"
                if self.state == "loading"
                else "GET /models says how it stands",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        if self._most is not None and self._users >= self._most:
            raise full(
                f'{self._users} requests ask the model "{self.name}" or wait for it, and it takes no more'
            )
        held.users += 1
        self._moved(1)
        try:
            yield held.model
        finally:
            held.users -= 1
            self._moved(-1)
            self._close_unused(held)

    async def put(self, model: M) -> None:
        """Have requests from now on answered by this model."""
        await model.start()
        before, self._held = self._held, _Held(model)
        self.state, self.reason = "loaded", ""
        if before is not None:
            before.retired = True
            self._close_unused(before)

    def cannot(self, state: State, reason: str) -> None:
        """Say why there is no model, or no newer one: the one that is there goes on."""
        self.reason = reason
        if self._held is None:
            self.state = state

    def stands(self) -> None:
        """Say that the model that is here is the one that belongs here."""
        if self._held is not None:
            self.reason = ""

    async def close(self) -> None:
        """Close the model that is here and those before it. Who still waits for an answer hears that there is none."""
        held, self._held = self._held, None
        self.state, self.reason = "failed", "the server ends"
        if held is not None:
            await self._closed(held.model)
        while self._closing:
            await asyncio.wait(self._closing)

    def _moved(self, by: int) -> None:
        self._users += by
        self._waiting(self._users)

    def _close_unused(self, held: _Held[M]) -> None:
        if not held.retired or held.users:
            return
        closing = asyncio.create_task(self._closed(held.model), name=f"close:{self.name}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _closed(self, model: M) -> None:
        try:
            await model.close()
        # It is nobody's any more; what else it did cannot be asked of it.
        except Exception:  # noqa: BLE001
            _log.exception("the model that %s stood for was not closed as it should", self.name)


Wanted = tuple[str, str]
"""One of the daemon's models ("retriever", "tactics", "progress"), which "promoted" is of; and a source."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A source that may be loaded here: a folder, or the name of a hub or an endpoint; and what it is."""

    source: str
    about: About


def origins(order: ServeOrder, wanted: Iterable[Wanted]) -> Mapping[Wanted, Origin | str]:
    """Return what each source stands for; a text says why nothing may be loaded for it now."""
    found: dict[Wanted, Origin | str] = {}
    asked: dict[Wanted, Path | None] = {}
    for one in wanted:
        inside = None if one[1] == PROMOTED else _inside(order.checkpoints, one[1])
        if one[1] == PROMOTED or inside is not None:
            asked[one] = inside
        else:
            found[one] = Origin(one[1], About())
    if not asked:
        return found
    try:
        with closing(queries.connect(order.view)) as view:
            for one, inside in asked.items():
                model, source = one
                found[one] = (
                    _promoted(order, view, model) if inside is None else _named(order, view, source, inside)
                )
    except (LogError, sqlite3.Error) as error:
        found.update(dict.fromkeys(asked, f"the view cannot be read: {error}"))
    return found


def _inside(checkpoints: Path, source: str) -> Path | None:
    """Return a folder's path below that of the checkpoints; None where it lies elsewhere, or is no folder."""
    folder = Path(source)
    if not folder.is_dir():
        return None
    folder, checkpoints = folder.resolve(), checkpoints.resolve()
    return folder.relative_to(checkpoints) if folder.is_relative_to(checkpoints) else None


def _promoted(order: ServeOrder, view: sqlite3.Connection, model: str) -> Origin | str:
    row = model_queries.checkpoint_in_use(view, model)
    if row is None:
        return f"no checkpoint of the {model} model has been promoted yet"
    return _allowed(
        order,
        row,
        str(order.checkpoints / model / row.checkpoint),
        f"the promoted checkpoint {row.checkpoint}",
    )


def _named(order: ServeOrder, view: sqlite3.Connection, source: str, inside: Path) -> Origin | str:
    model, checkpoint = (*inside.parts, "", "")[:2]
    rows = (row for row in model_queries.checkpoints(view, model) if row.checkpoint == checkpoint)
    row = next(rows, None)
    if row is None:
        return (
            f"{inside} lies where the checkpoints do, and the view knows none of that name, so that nobody can tell "
            "what it learned from; name a checkpoint of `unsorry models`, or keep it in another folder"
        )
    return _allowed(order, row, source, f"the checkpoint {checkpoint}")


def _allowed(order: ServeOrder, row: CheckpointRow, source: str, what: str) -> Origin | str:
    if row.simulated and not order.simulated:
        return f"{what} learned from the simulator, and Lean judges here"
    return Origin(source, About(row.checkpoint, row.simulated))


Nearest = Callable[["LoadedRetriever", str, int], Awaitable[tuple[str, ...]]]
"""Returns the marked code of the premises nearest to a state, of so many, the nearest first."""


class LoadError(Exception):
    """A model cannot be loaded; the message says why and what to do."""


class Loader:
    """Loads the models of one order.

    Args:
        order: says where they compute, and how much goes together.
        measures: count their batches.
        nearest: finds premises for what is shown them.
    """

    def __init__(self, order: ServeOrder, *, measures: Measures, nearest: Nearest) -> None:
        self._order = order
        self._measures = measures
        self._nearest = nearest
        # The retriever in use may stand under several names.
        self._retrievers: WeakValueDictionary[tuple[str, str], Retriever] = WeakValueDictionary()

    def model(self, order: ModelOrder, source: str, abouts: tuple[About, ...]) -> Model:
        """Return a model, loaded and not started.

        Args:
            order: what is wanted.
            source: the folder, or the name of the hub or at the endpoint, that the order's source stands for now.
            abouts: what that is, and what the order's generator is where it has one.

        Raises:
            LoadError: it cannot be loaded.
        """
        try:
            return self._model(order, source, abouts)
        except Exception as error:
            raise _unloadable(source, error) from error

    def progress(self, order: ProgressOrder, source: str, abouts: tuple[About, ...]) -> RatingModel:
        """Return the progress model, loaded and not started.

        Raises:
            LoadError: it cannot be loaded.
        """
        try:
            from pipeline.serve.engines import RatingModel, load_progress

            predicting = load_progress(order, source)
            (about,) = abouts
            return RatingModel(predicting, about=about, limits=self._order.limits, measures=self._measures)
        except Exception as error:
            raise _unloadable(source, error) from error

    def _model(self, order: ModelOrder, source: str, abouts: tuple[About, ...]) -> Model:
        about = abouts[0]
        device: Device = order.device or self._order.device
        match order.kind:
            case "endpoint":
                return self._endpoint(order)
            case "encoder":
                return self._encoder(order, source, about, device)
            case "retriever":
                return self._retriever(order.name, source, about, device)
            case "retrieval":
                return self._with_premises(order, source, about, abouts[1], device)
            case _:
                return self._generator(order, source, about, device)

    def _generator(self, order: ModelOrder, source: str, about: About, device: Device) -> GeneratingModel:
        from pipeline.serve.engines import LocalGenerator, decoding_of, load_generator

        generator = load_generator(source, device=device, kind=order.kind)
        return LocalGenerator(
            order.name,
            generator,
            decoding_of(order),
            about=about,
            limits=self._order.limits,
            measures=self._measures,
        )

    def _with_premises(
        self, order: ModelOrder, source: str, about: About, generator: About, device: Device
    ) -> GeneratingModel:
        from pipeline.serve.engines import RetrievalGenerator, decoding_of, load_generator

        return RetrievalGenerator(
            order.name,
            load_generator(order.generator, device=device, kind=order.kind),
            decoding_of(order),
            about=About(about.checkpoint, about.simulated or generator.simulated),
            retriever=self._retriever(order.name, source, about, device),
            nearest=self._nearest,
            premises=order.premises,
            limits=self._order.limits,
            measures=self._measures,
        )

    def _retriever(self, name: str, source: str, about: About, device: Device) -> LoadedRetriever:
        from pipeline.models.libraries import device_of
        from pipeline.serve.engines import LoadedRetriever, Retriever

        where = device_of(device)
        found = self._retrievers.get((source, where.type))
        if found is None:
            found = self._retrievers[source, where.type] = Retriever.load(source, device=where)
        return LoadedRetriever(name, found, about=about, limits=self._order.limits, measures=self._measures)

    def _encoder(self, order: ModelOrder, source: str, about: About, device: Device) -> Model:
        from pipeline.models.libraries import device_of
        from pipeline.serve.engines import EncodingModel, HubEncoder

        return EncodingModel(
            order.name,
            HubEncoder(source, device=device_of(device)),
            about=about,
            limits=self._order.limits,
            measures=self._measures,
        )

    def _endpoint(self, order: ModelOrder) -> Model:
        from pipeline.jobs.specs import EndpointSpec
        from pipeline.models.endpoint.client import open_client
        from pipeline.serve.engines import EndpointGenerator, decoding_of

        assert order.endpoint is not None
        endpoint = EndpointSpec(**asdict(order.endpoint), model=order.source)
        # No client is to wait for another's answer: each request is as many calls as it has candidates.
        client = open_client(endpoint, concurrency=share(self._order.limits) * order.candidates)
        return EndpointGenerator(order.name, client, decoding_of(order))


def _unloadable(source: str, error: Exception) -> LoadError:
    from pipeline.serve.engines import first_line

    if isinstance(error, LearningError | ExternalError):
        return LoadError(str(error))
    # What is not ours to word may need its traceback.
    _log.error("%s cannot be loaded", source, exc_info=error)
    return LoadError(
        f"{source} cannot be loaded: {type(error).__name__}: {first_line(error)}; is there room for it, and is the "
        "device free?"
    )


LOOK_S = 2.0
_FIRST_REST_S = 30.0
_LONGEST_REST_S = 3600.0
_PROGRESS = "progress"
_TRAINED = {"tactics": "tactics", "retrieval": "retriever", "retriever": "retriever", _PROGRESS: "progress"}
"""Which of the daemon's models a kind takes, where it takes the promoted one."""
_FINDING = ("retriever", "retrieval")
"""The kinds that find premises."""


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

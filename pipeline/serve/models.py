"""The registry of models: resolves the checkpoint of each name, loads it, and replaces it when another is promoted.

Every two seconds the registry reads the promoted checkpoints from the view. A newer one is loaded beside the one in use
and takes the next request; the old one is closed after its last. A new retriever first embeds all premises of the
former one. A model that cannot be loaded leaves the old one in place, and is tried again after a doubling back-off.

Promotion or its folder identifies a checkpoint of the daemon's; either way the view records its provenance.

Models load in one thread, one after the other: transformers cannot load two at once. torch and transformers are
imported with the first model (`pipeline.serve.engines`), so that the server answers `/health` before.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar
from weakref import WeakValueDictionary

from pipeline.endpoint.errors import ExternalError
from pipeline.models.errors import LearningError
from pipeline.serve.limits import full, share
from pipeline.serve.measures import Measures
from pipeline.serve.schemas import ModelInfo, ModelsResponse, Problem, ReadyResponse, State
from pipeline.serve.spec import (
    ENCODING,
    GENERATING,
    PROMOTED,
    ModelSpec,
    Provenance,
    RewardSpec,
    ServeSpec,
)
from store.backoff import Backoff
from store.errors import LogError
from store.text import first_line
from store.view import model_queries, queries

if TYPE_CHECKING:
    from pipeline.models.retriever.index import Retriever
    from pipeline.serve.engines import EncodingModel, GeneratingModel, LoadedRetriever, RatingModel, Terms


RETRY_AFTER_S = 5

_log = logging.getLogger(__name__)


class Model(Protocol):
    """A loaded model. Started and closed on the server's loop."""

    provenance: Provenance

    async def start(self) -> None: ...

    async def close(self) -> None: ...


M = TypeVar("M", bound=Model)


@dataclass(eq=False, slots=True)
class _LoadedModel(Generic[M]):
    model: M
    users: int = 0
    retired: bool = False


class ModelSlot(Generic[M]):
    """A named model slot: hot-swaps checkpoints without dropping requests. Used on one event loop.

    Attributes:
        state: see `schemas.ModelInfo`.
        reason: why the slot has no model, or not the newest checkpoint; "" otherwise.
    """

    def __init__(
        self,
        name: str,
        *,
        waiting: Callable[[int], None] = lambda _count: None,
        most: int | None = None,
    ) -> None:
        """Args:
        name: its name in requests.
        waiting: receives the number of requests in the slot, at each change.
        most: maximum of requests at once; None: no limit.
        """
        self.name = name
        self.state: State = "loading"
        self.reason = "it has not been loaded yet"
        self._waiting = waiting
        self._most = most
        self._users = 0
        self._loaded: _LoadedModel[M] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def loaded(self) -> bool:
        return self._loaded is not None

    @property
    def model(self) -> M | None:
        """The loaded model. Requests borrow it by `use`."""
        return None if self._loaded is None else self._loaded.model

    @property
    def provenance(self) -> Provenance:
        return Provenance() if self._loaded is None else self._loaded.model.provenance

    @asynccontextmanager
    async def use(self) -> AsyncIterator[M]:
        """Borrow the model for a request: it is not closed meanwhile, even if another replaces it.

        Raises:
            Problem: 503, no model is loaded; 429, the slot is full.
        """
        held = self._loaded
        if held is None:
            raise Problem(
                503,
                f"model_{self.state}",
                f'the model "{self.name}" cannot be asked: {self.reason}',
                "GET /ready reports when it is loaded"
                if self.state == "loading"
                else "GET /models shows its state",
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
        """Serve later requests with this model."""
        await model.start()
        before, self._loaded = self._loaded, _LoadedModel(model)
        self.state, self.reason = "loaded", ""
        if before is not None:
            before.retired = True
            self._close_unused(before)

    def set_unavailable(self, state: State, reason: str) -> None:
        """Record why no model, or no newer one, could be loaded. A loaded model stays in use."""
        self.reason = reason
        if self._loaded is None:
            self.state = state

    def set_current(self) -> None:
        """Record that the loaded model is the newest."""
        if self._loaded is not None:
            self.reason = ""

    async def close(self) -> None:
        """Close all models of the slot. Requests still waiting for an answer fail."""
        held, self._loaded = self._loaded, None
        self.state, self.reason = "failed", "the server ends"
        if held is not None:
            await self._closed(held.model)
        while self._closing:
            await asyncio.wait(self._closing)

    def _moved(self, by: int) -> None:
        self._users += by
        self._waiting(self._users)

    def _close_unused(self, held: _LoadedModel[M]) -> None:
        if not held.retired or held.users:
            return
        closing = asyncio.create_task(self._closed(held.model), name=f"close:{self.name}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _closed(self, model: M) -> None:
        try:
            await model.close()
        # No request uses it any more, so a failure affects no answer.
        except Exception:  # noqa: BLE001
            _log.exception("the old model of %s failed to close", self.name)


ModelSource = tuple[str, str]
"""A trained model's kind ("retriever", "tactics", "progress"), for "promoted", and a source."""


@dataclass(frozen=True, slots=True)
class ResolvedSource:
    """A loadable source: a folder, or the name at a hub or an endpoint; and its provenance."""

    source: str
    provenance: Provenance


def resolve_sources(
    spec: ServeSpec, wanted: Iterable[ModelSource]
) -> Mapping[ModelSource, ResolvedSource | str]:
    """Resolve each source; a text is the reason why nothing may be loaded for it now."""
    result: dict[ModelSource, ResolvedSource | str] = {}
    request: dict[ModelSource, Path | None] = {}
    for one in wanted:
        inside = None if one[1] == PROMOTED else _inside(spec.checkpoints, one[1])
        if one[1] == PROMOTED or inside is not None:
            request[one] = inside
        else:
            result[one] = ResolvedSource(one[1], Provenance())
    if not request:
        return result
    try:
        with closing(queries.connect(spec.view)) as view:
            for one, inside in request.items():
                model, source = one
                result[one] = (
                    _promoted(spec, view, model) if inside is None else _resolve(view, source, inside)
                )
    except (LogError, sqlite3.Error) as error:
        result.update(dict.fromkeys(request, f"the view cannot be read: {error}"))
    return result


def _inside(checkpoints: Path, source: str) -> Path | None:
    """Return a folder's path below the checkpoints' folder; None if it is elsewhere, or no folder."""
    folder = Path(source)
    if not folder.is_dir():
        return None
    folder, checkpoints = folder.resolve(), checkpoints.resolve()
    return folder.relative_to(checkpoints) if folder.is_relative_to(checkpoints) else None


def _promoted(spec: ServeSpec, view: sqlite3.Connection, model: str) -> ResolvedSource | str:
    row = model_queries.checkpoint_in_use(view, model)
    if row is None:
        return f"no checkpoint of the {model} model has been promoted yet"
    return ResolvedSource(str(spec.checkpoints / model / row.checkpoint), Provenance(row.checkpoint))


def _resolve(view: sqlite3.Connection, source: str, inside: Path) -> ResolvedSource | str:
    model, checkpoint = (*inside.parts, "", "")[:2]
    rows = (row for row in model_queries.checkpoints(view, model) if row.checkpoint == checkpoint)
    row = next(rows, None)
    if row is None:
        return (
            f"{inside} lies where the checkpoints do, and the view knows none of that name, so its "
            "provenance is unknown; name a checkpoint of `everlean models`, or keep it in another folder"
        )
    return ResolvedSource(source, Provenance(row.checkpoint))


Nearest = Callable[["LoadedRetriever", str, int], Awaitable[tuple[str, ...]]]
"""Returns the marked code of the given number of premises nearest to a state, the nearest first."""


class LoadError(Exception):
    """A model cannot be loaded; the message names the reason and the remedy."""


class Loader:
    """Loads the models of one specification.

    Args:
        spec: of the server: devices and batch limits.
        measures: measures of their batches.
        nearest: finds premises for generators that read them.
    """

    def __init__(self, spec: ServeSpec, *, measures: Measures, nearest: Nearest) -> None:
        self._spec = spec
        self._measures = measures
        self._nearest = nearest
        # Several names may share the retriever in use.
        self._retrievers: WeakValueDictionary[str, Retriever] = WeakValueDictionary()

    def model(self, spec: ModelSpec, source: str, provenance: Provenance) -> Model:
        """Return a model, loaded and not started.

        Args:
            spec: the model to load.
            source: the resolved source: a folder, or a name at the hub or an endpoint.
            provenance: of the source.

        Raises:
            LoadError: the model cannot be loaded.
        """
        try:
            return self._model(spec, source, provenance)
        except Exception as error:
            raise _unloadable(source, error) from error

    def progress(self, spec: RewardSpec, source: str, provenance: Provenance) -> RatingModel:
        """Return the progress model, loaded and not started.

        Raises:
            LoadError: it cannot be loaded.
        """
        try:
            from pipeline.models.progress.model import ProgressModel
            from pipeline.serve.engines import RatingModel

            predicting = ProgressModel(source, device=spec.device)
            return RatingModel(predicting, self._terms(provenance))
        except Exception as error:
            raise _unloadable(source, error) from error

    def _model(self, spec: ModelSpec, source: str, provenance: Provenance) -> Model:
        if spec.kind == "endpoint":
            return self._endpoint(spec)
        from pipeline.models.retriever.index import load_retriever
        from pipeline.models.tactics.generate import load_generator
        from pipeline.serve.engines import EncodingModel, LocalGenerator, RetrievalGenerator, decoding_of

        device, terms = self._spec.device, self._terms(provenance)
        match spec.kind:
            case "encoder":
                encoder = replace(load_retriever(source, device=device), unit=False)
                return EncodingModel(spec.name, encoder, terms)
            case "retriever":
                return self._retriever(spec, source, terms)
            case "retrieval":
                return RetrievalGenerator(
                    spec.name,
                    load_generator(spec.generator, device=device),
                    decoding_of(spec),
                    terms,
                    retriever=self._retriever(spec, source, terms),
                    nearest=self._nearest,
                )
        generator = load_generator(source, device=device, repository=spec.repository or None)
        return LocalGenerator(spec.name, generator, decoding_of(spec), terms)

    def _terms(self, provenance: Provenance) -> Terms:
        from pipeline.serve.engines import Terms

        return Terms(provenance, self._spec.limits, self._measures)

    def _retriever(self, spec: ModelSpec, source: str, terms: Terms) -> LoadedRetriever:
        from pipeline.models.retriever.index import load_retriever
        from pipeline.serve.engines import LoadedRetriever

        result = self._retrievers.get(source)
        if result is None:
            result = self._retrievers[source] = load_retriever(source, device=self._spec.device)
        return LoadedRetriever(spec.name, result, terms, repository=spec.repository)

    def _endpoint(self, spec: ModelSpec) -> Model:
        from pipeline.endpoint.client import ChatClient
        from pipeline.serve.engines import EndpointGenerator, decoding_of

        assert spec.endpoint is not None
        # No client is to wait for another's answer: each request is as many calls as it has candidates.
        client = ChatClient(spec.endpoint, concurrency=share(self._spec.limits) * spec.candidates)
        return EndpointGenerator(spec.name, client, decoding_of(spec))


def _unloadable(source: str, error: Exception) -> LoadError:
    if isinstance(error, LearningError | ExternalError):
        return LoadError(str(error))
    # An error of a library may need its traceback.
    _log.error("%s cannot be loaded", source, exc_info=error)
    return LoadError(
        f"{source} cannot be loaded: {type(error).__name__}: {first_line(error)}; is there room for it, and is the "
        "device free?"
    )


LOOK_S = 2.0
_LOAD_AGAIN = Backoff(30.0, 3600.0)
"""Loading a model competes with the loaded ones for GPU and disk."""
_PROGRESS = "progress"
_TRAINED = {"tactics": "tactics", "retrieval": "retriever", "retriever": "retriever", _PROGRESS: "progress"}
"""The trained model of each kind of source that can be promoted."""
_FINDING = ("retriever", "retrieval")
"""The kinds with premise finders."""


Warm = Callable[["LoadedRetriever", "LoadedRetriever"], Awaitable[None]]
"""Prepares the second retriever's premises wherever the first has some, before it takes its place."""


@dataclass(eq=False, slots=True)
class _Entry:
    """A place and its model, made of all its `parts`. `source` is the one loaded, or tried, last; after `failures`
    failures it is tried again at `again_at`. `arriving`: it is loaded, but not yet in its place.
    """

    kind: str
    wanted: str
    parts: tuple[ModelSource, ...]
    slot: ModelSlot[Any]
    load: Callable[[str, Provenance], Model]
    source: str = ""
    failures: int = 0
    again_at: float = 0.0
    arriving: asyncio.Task[None] | None = None


class Registry:
    """The models of the server. An async context on one event loop; loading runs while it is open.

    Args:
        spec: of the server.
        measures: count batches, swaps and waiting requests.
        nearest, warm: find premises for a generator, and embed them for a new retriever (`Workspace.premises`).
        look_s: seconds between readings of the view.
    """

    def __init__(
        self,
        spec: ServeSpec,
        *,
        measures: Measures,
        nearest: Nearest,
        warm: Warm,
        look_s: float = LOOK_S,
    ) -> None:
        self.spec = spec
        self.measures = measures
        self._look_s = look_s
        self._warm = warm
        self._loader = Loader(spec, measures=measures, nearest=nearest)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")
        self._entries = {model.name: self._entry(model) for model in spec.models}
        self._progress = None if spec.progress is None else self._progress_entry(spec.progress)
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
            await entry.slot.close()

    # ---- requests

    def generator(self, name: str) -> ModelSlot[GeneratingModel]:
        """Return the slot of a generating model.

        Raises:
            Problem: 404, no model has this name; 409, it encodes.
        """
        return self._of_kind(name, GENERATING, "generates no tactics", "/encode")

    def encoder(self, name: str) -> ModelSlot[EncodingModel]:
        """Return the slot of an encoding model.

        Raises:
            Problem: 404, no model has this name; 409, it generates.
        """
        return self._of_kind(name, ENCODING, "encodes nothing", "/generate")

    def progress(self) -> ModelSlot[RatingModel]:
        """Return the slot of the progress model.

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
        return self._progress.slot

    @asynccontextmanager
    async def retriever(self) -> AsyncIterator[LoadedRetriever | None]:
        """Borrow a retriever: the promoted one if it is loaded, else the first of the specification. None: the server
        has none, or it waits for the first to be promoted.

        Raises:
            Problem: 503, it is not loaded yet.
        """
        having = [one for one in self.spec.models if one.kind in _FINDING]
        if all(self._entries[one.name].slot.state == "waiting" for one in having):
            yield None
            return
        first = min(having, key=lambda one: (not self._entries[one.name].slot.loaded, one.source != PROMOTED))
        entry = self._entries[first.name]
        async with entry.slot.use() as model:
            yield _retriever(entry, model)

    def models(self) -> ModelsResponse:
        """Describe the models, in the order of the specification."""
        return ModelsResponse(
            models=[_info(entry) for entry in self._entries.values()],
            progress=None if self._progress is None else _info(self._progress),
        )

    def ready(self) -> ReadyResponse:
        """Report readiness: no model is being loaded, and at least one is loaded."""
        loading = [entry.slot.name for entry in self._all() if entry.slot.state == "loading"]
        reason = ""
        if loading:
            reason = f"still loading: {', '.join(loading)}"
        elif self._entries and not any(entry.slot.loaded for entry in self._entries.values()):
            # A client without a token must not learn paths.
            states = ", ".join(f"{name} is {entry.slot.state}" for name, entry in self._entries.items())
            reason = f"no model is there: {states}; GET /models says why"
        return ReadyResponse(
            ready=not reason,
            reason=reason,
            models={name: entry.slot.state for name, entry in self._entries.items()},
            progress=None if self._progress is None else self._progress.slot.state,
        )

    def _of_kind(self, name: str, kinds: frozenset[str], not_so: str, rather: str) -> ModelSlot[Any]:
        fitting = [one.name for one in self.spec.models if one.kind in kinds]
        names = ", ".join(fitting) or "none"
        entry = self._entries.get(name)
        if entry is None:
            raise Problem(
                404,
                "unknown_model",
                f'there is no model "{name[:200]}"',
                f"ask one of these: {names}; GET /models shows their states",
            )
        if entry.kind not in kinds:
            raise Problem(
                409,
                "wrong_kind",
                f'the model "{name}" {not_so}',
                f"POST to {rather}, or ask one of these: {names}",
            )
        return entry.slot

    # ---- loading

    async def _watch(self) -> None:
        while True:
            try:
                targets = {part for entry in self._all() for part in entry.parts}
                result = await asyncio.to_thread(resolve_sources, self.spec, targets)
                for entry in self._all():
                    await self._look(entry, [result[part] for part in entry.parts])
            # A defect must not stop the loaded models.
            except Exception:  # noqa: BLE001
                _log.exception("checking for new checkpoints failed; it will be retried")
            await asyncio.sleep(self._look_s)

    async def _look(self, entry: _Entry, found: Sequence[ResolvedSource | str]) -> None:
        """Load the model of a slot, unless it is loaded already."""
        if entry.arriving is not None and not entry.arriving.done():
            return
        parts = [part for part in found if isinstance(part, ResolvedSource)]
        if len(parts) < len(found):
            why = "; ".join(part for part in found if isinstance(part, str))
            entry.slot.set_unavailable("waiting" if entry.wanted == PROMOTED else "failed", why)
            return
        source, provenance = parts[0].source, parts[0].provenance
        if source == entry.source and not entry.failures:
            entry.slot.set_current()
            return
        if source != entry.source:
            entry.source, entry.failures = source, 0
        elif time.monotonic() < entry.again_at:
            return
        if not entry.failures and not entry.slot.loaded:
            entry.slot.set_unavailable("loading", "it is being loaded")
        begun = time.monotonic()
        try:
            loop = asyncio.get_running_loop()
            model = await loop.run_in_executor(self._thread, partial(entry.load, source, provenance))
        except LoadError as error:
            self._rest(entry, str(error))
            return
        # Warming may take long; other models must not wait for it.
        entry.arriving = asyncio.create_task(
            self._put(entry, model, begun), name=f"arriving:{entry.slot.name}"
        )
        await asyncio.wait({entry.arriving}, timeout=self._look_s)

    async def _put(self, entry: _Entry, model: Any, begun: float) -> None:
        """Install a loaded model in its slot, after a retriever has embedded the premises of the old one."""
        before = entry.slot.model
        try:
            if before is not None and entry.kind in _FINDING:
                entry.slot.set_unavailable(
                    "loading", "the premises are being embedded for the newer checkpoint"
                )
                await self._warm(_retriever(entry, before), _retriever(entry, model))
            await entry.slot.put(model)
        except Problem as problem:
            self._rest(entry, str(problem))
            return
        # Retried like a failure to load.
        except Exception as error:  # noqa: BLE001
            _log.exception("%s could not be installed", entry.slot.name)
            self._rest(entry, f"{type(error).__name__}: {error}")
            return
        entry.failures = 0
        if before is not None:
            self.measures.swapped(entry.slot.name)
        _log.info("%s is now %s (%.1f s)", entry.slot.name, entry.source, time.monotonic() - begun)

    def _rest(self, entry: _Entry, why: str) -> None:
        entry.failures += 1
        rest_s = _LOAD_AGAIN.wait_s(entry.failures)
        entry.again_at = time.monotonic() + rest_s
        entry.slot.set_unavailable("failed", why)
        _log.warning("%s is not loaded (again in %.0f s): %s", entry.slot.name, rest_s, why)

    def _all(self) -> list[_Entry]:
        return [*self._entries.values(), *([] if self._progress is None else [self._progress])]

    def _entry(self, spec: ModelSpec) -> _Entry:
        slot: ModelSlot[Any] = ModelSlot(
            spec.name, waiting=partial(self.measures.waiting, spec.name), most=share(self.spec.limits)
        )
        parts = [(_TRAINED.get(spec.kind, ""), spec.source)]
        if spec.kind == "retrieval":
            parts.append(("tactics", spec.generator))
        return _Entry(spec.kind, spec.source, tuple(parts), slot, partial(self._loader.model, spec))

    def _progress_entry(self, spec: RewardSpec) -> _Entry:
        slot: ModelSlot[Any] = ModelSlot(
            _PROGRESS, waiting=partial(self.measures.waiting, _PROGRESS), most=share(self.spec.limits)
        )
        source = spec.source
        if source.startswith("~"):
            source = str(Path(source).expanduser())
        parts = ((_PROGRESS, source),)
        return _Entry(_PROGRESS, source, parts, slot, partial(self._loader.progress, spec))


def _retriever(entry: _Entry, model: Any) -> LoadedRetriever:
    result: LoadedRetriever = model.retriever if entry.kind == "retrieval" else model
    return result


def _info(entry: _Entry) -> ModelInfo:
    slot = entry.slot
    return ModelInfo(
        name=slot.name,
        kind=entry.kind,
        source=entry.wanted,
        state=slot.state,
        loaded=slot.loaded,
        reason=slot.reason,
        checkpoint=slot.provenance.checkpoint,
    )

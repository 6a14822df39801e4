"""Load a model of the order. In one thread, one after the other: transformers' loading is not made for two at once.

torch and transformers are imported here, when the first model wants them, so that the server answers `/health` before.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from pipeline.external.errors import ExternalError
from pipeline.learning.errors import LearningError
from pipeline.serve.limits import share
from pipeline.serve.measures import Measures
from pipeline.serve.order import Device, ModelOrder, ProgressOrder, ServeOrder
from pipeline.serve.swapping import About, Model

if TYPE_CHECKING:
    from pipeline.serve.generating import GeneratingModel
    from pipeline.serve.progress import RatingModel
    from pipeline.serve.retrievers import LoadedRetriever, Retriever

Nearest = Callable[["LoadedRetriever", str, int], Awaitable[tuple[str, ...]]]
"""Returns the marked code of the premises nearest to a state, of so many, the nearest first."""

_log = logging.getLogger(__name__)


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
            from pipeline.serve.progress import RatingModel, load_progress

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
        from pipeline.serve.generating import LocalGenerator, decoding_of, load_generator

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
        from pipeline.serve.generating import RetrievalGenerator, decoding_of, load_generator

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
        from pipeline.serve.retrievers import LoadedRetriever, Retriever
        from pipeline.tactics.settings import device_of

        where = device_of(device)
        found = self._retrievers.get((source, where.type))
        if found is None:
            found = self._retrievers[source, where.type] = Retriever.load(source, device=where)
        return LoadedRetriever(name, found, about=about, limits=self._order.limits, measures=self._measures)

    def _encoder(self, order: ModelOrder, source: str, about: About, device: Device) -> Model:
        from pipeline.serve.encoding import EncodingModel, HubEncoder
        from pipeline.tactics.settings import device_of

        return EncodingModel(
            order.name,
            HubEncoder(source, device=device_of(device)),
            about=about,
            limits=self._order.limits,
            measures=self._measures,
        )

    def _endpoint(self, order: ModelOrder) -> Model:
        from pipeline.external.opening import open_client
        from pipeline.serve.generating import EndpointGenerator, decoding_of

        assert order.endpoint is not None
        part = {**asdict(order.endpoint), "model": order.source}
        # No client is to wait for another's answer: each request is as many calls as it has candidates.
        client = open_client(part, concurrency=share(self._order.limits) * order.candidates)
        return EndpointGenerator(order.name, client, decoding_of(order))


def _unloadable(source: str, error: Exception) -> LoadError:
    from pipeline.serve.asking import first_line

    if isinstance(error, LearningError | ExternalError):
        return LoadError(str(error))
    # What is not ours to word may need its traceback.
    _log.error("%s cannot be loaded", source, exc_info=error)
    return LoadError(
        f"{source} cannot be loaded: {type(error).__name__}: {first_line(error)}; is there room for it, and is the "
        "device free?"
    )

"""What all clients ask of one model, in batches (`pipeline.tactics.service`), and what is told where it fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from pipeline.serve.measures import Measures
from pipeline.serve.order import Limits
from pipeline.serve.problems import Problem
from pipeline.tactics.service import Batching, GenerationStoppedError

_log = logging.getLogger(__name__)

_told: set[tuple[str, type[Exception], tuple[str, int] | None]] = set()
"""Which failures stand in the log with their traceback: as many as there are models, and lines that raise."""

Q = TypeVar("Q")
A = TypeVar("A")


def batching(
    name: str,
    answer: Callable[[Sequence[Q]], Sequence[A]],
    together: Callable[[Sequence[Q]], Sequence[int]] | None = None,
    *,
    limits: Limits,
    measures: Measures,
) -> Batching[Q, A]:
    """Return what gathers requests for the model of this name into batches as the limits have it, and counts them."""

    def counted(asked: Sequence[Q]) -> Sequence[A]:
        measures.batch(name, len(asked))
        return answer(asked)

    return Batching(counted, together, at_once=limits.batch, wait_s=limits.batch_wait_s, name=f"model:{name}")


async def ask(name: str, service: Batching[Q, A], asked: Q) -> A:
    """Return a model's answer.

    Raises:
        Problem: there is none. Whatever a model and its libraries raise, one request fails and the server goes on.
    """
    try:
        return await service.ask(asked)
    except Problem:
        raise
    except GenerationStoppedError as error:
        raise Problem(
            503,
            "model_stopped",
            f'the model "{name}" answers no more',
            "ask again: the server may be starting anew",
        ) from error
    except Exception as error:
        _tell(name, error)
        raise failed(name, first_line(error)) from error


def _tell(name: str, error: Exception) -> None:
    """Log where a model failed: with its traceback the first time, a line for each that fails as one before."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    line = None if where is None else (where.tb_frame.f_code.co_filename, where.tb_lineno)
    known = (name, type(error), line)
    if known in _told:
        _log.error("the model %s failed again: %s: %s", name, type(error).__name__, first_line(error))
        return
    _told.add(known)
    _log.error("the model %s failed", name, exc_info=error)


def failed(name: str, why: str) -> Problem:
    """Return what is told where a model gave no answer."""
    return Problem(
        500,
        "model_failed",
        f'the model "{name}" failed: {why}',
        "ask otherwise; GET /models and the log say more",
    )


def first_line(error: BaseException) -> str:
    """Return what an error says, in one line."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__

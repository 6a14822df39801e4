"""Ends that are waited for, whoever has left: a cancelled request leaves neither a process nor a file behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns. A cancellation comes through when the work has ended, and not before.

    Raises:
        CancelledError: this was cancelled meanwhile; what the work failed with is its cause.
        Exception: what the work raised.
    """
    working = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if working.cancelled() else working.exception())
    return working.result()

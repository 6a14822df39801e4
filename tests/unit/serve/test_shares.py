"""One model takes a share of the queue, and no more; another's place is as free as before."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.serve.limits import share
from pipeline.serve.models import ModelSlot
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import Limits, Provenance


class Nothing:
    provenance = Provenance()

    async def start(self) -> None: ...

    async def close(self) -> None: ...


def test_a_share_is_half_of_the_queue_and_never_nothing() -> None:
    assert [share(Limits(queue=queue)) for queue in (1, 2, 3, 256)] == [1, 1, 2, 128]


def test_a_model_takes_its_share_of_requests_and_refuses_the_next_until_one_is_answered() -> None:
    async def main() -> None:
        slot: ModelSlot[Nothing] = ModelSlot("slow", most=1)
        await slot.put(Nothing())
        async with slot.use():
            with pytest.raises(Problem, match='"slow"') as refused:
                async with slot.use():
                    raise AssertionError
            assert (refused.value.status, refused.value.error) == (429, "queue_full")
            assert "Retry-After" in refused.value.headers
        async with slot.use():
            pass
        await slot.close()

    asyncio.run(main())

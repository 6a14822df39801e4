"""A model that fails at every request does not fill the log with tracebacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from pipeline.serve.engines import EncodingModel, Terms
from pipeline.serve.measures import Measures
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import Limits, Provenance


def test_a_failure_has_its_traceback_once_and_a_line_each_time(caplog: pytest.LogCaptureFixture) -> None:
    class Fails:
        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            if texts[0] == "other":
                raise KeyError("other")
            raise ValueError(f"no {texts[0]}")

    async def main() -> None:
        fails: Any = Fails()
        model = EncodingModel("told-once", fails, Terms(Provenance(), Limits(), Measures()))
        await model.start()
        try:
            for asked in ("a", "b", "other", "c"):
                with pytest.raises(Problem, match="told-once"):
                    await model.encode(asked)
        finally:
            await model.close()

    with caplog.at_level(logging.ERROR, "pipeline.serve.engines"):
        asyncio.run(main())
    assert [record.exc_info is not None for record in caplog.records] == [True, False, True, False]
    assert "no b" in caplog.records[1].getMessage()

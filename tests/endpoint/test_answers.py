"""What was paid for is kept by the hash of its request, and not asked for again."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.endpoint.answers import KEPT_S, PaidAnswers
from pipeline.endpoint.client import Chat, ChatClient
from pipeline.endpoint.dialect import Ask
from pipeline.endpoint.errors import EndpointError
from pipeline.jobs.specs import EndpointSpec
from tests.support.chat_server import ChatServer, Fails, Says

ASK = Ask([{"role": "user", "content": "⊢ p"}], max_tokens=64, temperature=0.6, seed=7)


def asked(
    folder: Path,
    server: ChatServer,
    *asks: Ask,
    model: str = "m",
    **costs: Any,
) -> list[Chat]:
    """Ask with a client of its own, as a job that begins again does."""

    async def main() -> list[Chat]:
        endpoint = EndpointSpec(
            base_url=server.url, model=model, retries=0, answers=folder / "answers", **costs
        )
        async with ChatClient(endpoint) as client:
            return [await client.complete(ask) for ask in asks]

    return asyncio.run(main())


def test_the_same_request_is_answered_as_before_and_costs_once(tmp_path: Path) -> None:
    with ChatServer([Says("rfl", usage=(10, 2)), Fails(500)]) as server:
        (first,) = asked(tmp_path, server, ASK)
        again, repeated = asked(tmp_path, server, ASK, ASK)
        assert len(server.requests) == 1
    assert first.texts == again.texts == repeated.texts == ("rfl",)
    assert first.usage == again.usage, "who begins again has the cost of what it goes on with"
    assert repeated.usage.prompt_tokens == 0, "and once"


def test_another_request_is_another_one_and_without_a_seed_each_is(tmp_path: Path) -> None:
    others = (
        replace(ASK, seed=8),
        replace(ASK, temperature=0.7),
        replace(ASK, max_tokens=65),
        replace(ASK, messages=[{"role": "user", "content": "⊢ q"}]),
    )
    unseeded = replace(ASK, seed=None)
    with ChatServer([Says("rfl")]) as server:
        asked(tmp_path, server, ASK, *others, unseeded, unseeded)
        asked(tmp_path, server, ASK, model="other")
        assert len(server.requests) == 8


def test_what_is_paid_needs_no_room_in_the_day_s_cap(tmp_path: Path) -> None:
    with ChatServer([Says("rfl", usage=(10, 2))]) as server:
        costs: dict[str, Any] = {"usd_per_million_prompt": 1.0, "usd_per_million_completion": 1.0}
        costs["ledger"] = tmp_path / "ledger"
        asked(tmp_path, server, ASK, **costs)
        assert asked(tmp_path, server, ASK, **costs, cap_usd=0.0)[0].texts == ("rfl",)


def test_a_damaged_answer_is_asked_for_again_and_an_old_one_goes(tmp_path: Path) -> None:
    with ChatServer([Says("rfl")]) as server:
        asked(tmp_path, server, ASK, replace(ASK, seed=8))
        one, other = (tmp_path / "answers").iterdir()
        one.write_bytes(b"{")
        os.utime(other, (0, other.stat().st_mtime - KEPT_S - 60))
        asked(tmp_path, server, ASK, replace(ASK, seed=8))
        assert len(server.requests) == 4


def test_what_is_kept_is_for_its_owner_alone_and_holds_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLEAN_KEY_OF_TESTS", "sk-secret")
    with ChatServer([Says("rfl"), Says("-- Bearer sk-secret")]) as server:
        asked(tmp_path, server, ASK, replace(ASK, seed=8), key_variable="EVERLEAN_KEY_OF_TESTS")
    (kept,) = (tmp_path / "answers").iterdir()
    assert "rfl" in kept.read_text("utf-8")
    assert stat.S_IMODE((tmp_path / "answers").stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_paid(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("a file")
    with pytest.raises(EndpointError, match="cannot be kept"):
        PaidAnswers(tmp_path / "answers", "https://host/v1", "m")

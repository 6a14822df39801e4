"""What keeps the server running goes on when it fails itself, and keeps the server's log short."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from daemon import serve_process
from daemon.gpus import Gpus
from daemon.serving import PROBLEM, Patience, Serving
from daemon.settings import Settings, parse


def test_a_defect_is_a_problem_that_is_told_and_the_next_turn_comes(tmp_path: Path) -> None:
    settings = parse(b"", path=tmp_path / "config.toml")
    looks = 0

    def failing() -> Settings:
        nonlocal looks
        looks += 1
        if looks <= 2:
            raise KeyError("a defect")
        return settings

    async def main() -> None:
        gpus = Gpus(tmp_path / "gpus", library=lambda: None, is_there=lambda: False, visible="")
        problems: dict[str, str] = {}
        told: list[str] = []
        one = Serving(settings=failing, gpus=gpus, problems=problems, patience=Patience(first_rest=0.001))
        task = asyncio.create_task(one.run())
        while looks <= 2 or PROBLEM in problems:
            told += problems.values()
            await asyncio.sleep(0)
        assert "KeyError: 'a defect'" in told[0]
        assert "the daemon's log" in told[0]
        assert not task.done()
        assert one.status()["state"] == "off"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gpus.close()

    with capture_logs() as logs:
        asyncio.run(asyncio.wait_for(main(), 20))
    assert [one["event"] for one in logs].count("serve_failed") == 2


def test_a_long_log_begins_anew_under_the_one_that_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_process, "_LOG_BYTES", 10)
    path = tmp_path / "server.log"
    serve_process._cut(path)  # there is none yet
    with path.open("ab", buffering=0) as server:
        server.write(b"0123456789")
        serve_process._cut(path)
        assert path.read_bytes() == b"0123456789", "it is not too long"
        server.write(b"a")
        serve_process._cut(path)
        server.write(b"after")
    assert path.read_bytes() == b"after"
    assert (tmp_path / "server.log.1").read_bytes() == b"0123456789a"

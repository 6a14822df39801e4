"""A changed config.toml is noticed however it is written, and takes effect as a whole or not at all."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.settings import ConfigError, Settings, load
from daemon.settings.reload import ConfigWatcher, reload


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "config.toml"
    path.parent.mkdir()
    path.write_text('[daemon]\nstate_dir = "state"\n')
    return path


def test_a_valid_change_gives_the_new_settings(config: Path) -> None:
    current = load(config)
    config.write_text('[daemon]\nstate_dir = "state"\n[poll]\nevery = "1m"\n')
    new = reload(current, config)
    assert isinstance(new, Settings)
    assert new.poll.every_s == 60.0


def test_one_mistake_refuses_the_whole_file(config: Path) -> None:
    current = load(config)
    config.write_text('[daemon]\nstate_dir = "state"\n[poll]\nevery = "1m"\nslowest = 3\n')
    assert isinstance(reload(current, config), ConfigError)


def test_moving_the_folders_of_a_running_daemon_is_refused_with_its_line(config: Path) -> None:
    current = load(config)
    config.write_text('[daemon]\nstate_dir = "elsewhere"\ncache_dir = "state/cache"\n')
    refused = reload(current, config)
    assert isinstance(refused, ConfigError)
    assert [line.split(": ")[1] for line in refused.errors] == ["daemon.state_dir", "daemon.runtime_dir"]
    assert refused.errors[0].startswith("config.toml:2: ")
    assert "restart the daemon" in refused.errors[0]


def test_another_engine_is_refused_while_the_daemon_runs(config: Path) -> None:
    current = load(config)
    config.write_text('[daemon]\nstate_dir = "state"\n[engine]\nkind = "ray"\naddress = "10.0.0.5:6379"\n')
    refused = reload(current, config)
    assert isinstance(refused, ConfigError)
    assert refused.errors[0].startswith("config.toml:3: engine: cannot change while the daemon runs")


def test_ray_needs_an_address(config: Path) -> None:
    config.write_text('[daemon]\nstate_dir = "state"\n[engine]\nkind = "ray"\n')
    with pytest.raises(ConfigError, match="needs an address"):
        load(config)


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def renamed_over(path: Path, text: str) -> None:
    new = path.with_name("config.toml.new")
    new.write_text(text)
    new.replace(path)


def moved_in_from_outside(path: Path, text: str) -> None:
    new = path.parent.parent / "outside.toml"
    new.write_text(text)
    new.replace(path)


def as_vim_does(path: Path, text: str) -> None:
    backup = path.with_name("config.toml~")
    path.rename(backup)
    path.write_text(text)
    backup.unlink()


def removed(path: Path, _text: str) -> None:
    path.unlink()


async def watch(path: Path, act: Callable[[], None], *, wait_s: float = 5.0) -> int:
    """Return how often the watcher called, at the latest `wait_s` after `act`, and 0.3 s after the first call."""
    calls = 0
    called = asyncio.Event()

    def changed() -> None:
        nonlocal calls
        calls += 1
        called.set()

    watcher = ConfigWatcher(path, changed=changed, debounce_s=0.1)
    watcher.start()
    try:
        act()
        try:
            await asyncio.wait_for(called.wait(), timeout=wait_s)
            await asyncio.sleep(0.3)
        except TimeoutError:
            return 0
    finally:
        watcher.stop()
    return calls


@pytest.mark.parametrize("write", [in_place, renamed_over, moved_in_from_outside, as_vim_does, removed])
def test_every_way_to_change_the_file_is_one_call(write: Callable[[Path, str], None], config: Path) -> None:
    assert asyncio.run(watch(config, lambda: write(config, "[poll]\n"))) == 1


def test_reading_the_file_or_changing_a_neighbour_is_no_change(config: Path) -> None:
    def act() -> None:
        config.read_text()
        config.with_name("other.toml").write_text("x")
        os.utime(config.with_name("other.toml"))

    assert asyncio.run(watch(config, act, wait_s=0.6)) == 0


def test_a_folder_that_is_deleted_and_made_again_is_watched_again(config: Path) -> None:
    async def story() -> int:
        calls = 0
        again = asyncio.Event()

        def changed() -> None:
            nonlocal calls
            calls += 1
            again.set()

        async def look_again() -> None:
            while True:
                await asyncio.sleep(0.1)
                await watcher.look_again()

        watcher = ConfigWatcher(config, changed=changed, debounce_s=0.05)
        watcher.start()
        looking = asyncio.create_task(look_again())
        try:
            shutil.rmtree(config.parent)
            await asyncio.wait_for(again.wait(), timeout=5)
            again.clear()
            config.parent.mkdir()
            in_place(config, "[poll]\n")
            await asyncio.wait_for(again.wait(), timeout=5)
        finally:
            looking.cancel()
            watcher.stop()
        return calls

    assert asyncio.run(story()) >= 2


def test_after_stop_nothing_is_called(config: Path) -> None:
    async def story() -> int:
        calls: list[int] = []
        watcher = ConfigWatcher(config, changed=lambda: calls.append(1), debounce_s=1.0)
        watcher.start()
        in_place(config, "[poll]\n")
        await asyncio.sleep(0.02)
        watcher.stop()
        await asyncio.sleep(1.3)
        return len(calls)

    assert asyncio.run(story()) == 0

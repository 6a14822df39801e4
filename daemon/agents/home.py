"""Settings and folders of an agent: the daemon's, with the caller's own in their place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon.agents.errors import AgentError
from daemon.lock import DaemonLock, make_folder
from daemon.paths import ConfigNotFoundError, Paths, find_config
from daemon.settings import ConfigError, Settings, load, parse
from pipeline.lean.backend import CHOICES

PURPOSE = "an agent"


def settings_for(
    *, config: str | Path | None = None, state_dir: str | Path | None = None, lean: str | None = None
) -> Settings:
    """Return the settings of the daemon whose store an agent shares.

    Args:
        config: a config.toml; None: the one that `unsorry` would find, and the defaults where there is none.
        state_dir: the folder of the store instead, with its cache in it, as `[daemon] state_dir` has it.
        lean: `[lean] backend` instead; "simulator" is for trying things out where there is no Lean.

    Raises:
        AgentError: the file, or `lean`, is not valid.
    """
    settings = _configured(None if config is None else Path(config))
    changed: dict[str, Any] = {}
    if state_dir is not None:
        state = Path(os.path.normpath(Path.cwd() / Path(state_dir).expanduser()))
        if state != settings.paths.state:
            changed["paths"] = Paths(state=state, cache=state / "cache", runtime=state / "run")
    if lean is not None:
        if lean not in CHOICES:
            raise AgentError(f"lean is {lean!r}: it takes one of {', '.join(CHOICES)}")
        changed["lean"] = settings.lean.model_copy(update={"backend": lean})
    # What an agent is for is on, whatever the daemon does by itself.
    changed["trace"] = settings.trace.model_copy(update={"enabled": True})
    return settings.model_copy(update=changed)


def _configured(config: Path | None) -> Settings:
    try:
        return load(find_config(config))
    except ConfigNotFoundError as error:
        if config is not None or os.environ.get("UNSORRY_CONFIG"):
            raise AgentError(str(error)) from error
        return parse(b"", path=Path("config.toml"))
    except ConfigError as error:
        raise AgentError("\n".join(error.errors)) from error


@contextmanager
def held(settings: Settings) -> Iterator[None]:
    """Hold the state folder for the length of the block, so that this process alone writes its log.

    Raises:
        daemon.lock.AlreadyRunningError: a daemon has it, or another agent or command; the message says who.
        daemon.lock.FolderError: a folder cannot be made.
    """
    for folder in (settings.paths.state, settings.paths.cache):
        make_folder(folder)
    lock = DaemonLock.acquire(settings.paths.lock, purpose=PURPOSE)
    try:
        yield
    finally:
        lock.release()

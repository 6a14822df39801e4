"""config.toml -> Settings, or all its errors at once.

`load` reads the file at each call; there is no global instance.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from daemon.place.paths import Paths, resolve_paths
from daemon.settings.errors import (
    ConfigError,
    Location,
    Mistake,
    line_index,
    line_of,
    mistakes,
    setting_name,
    syntax_error,
)
from daemon.settings.models import Prove, Serve, Train, lacking
from daemon.settings.schema import (
    Build,
    Cache,
    Certificates,
    ConfigFile,
    Daemon,
    Engine,
    GitHub,
    Jobs,
    Lean,
    Log,
    Metrics,
    Notify,
    Poll,
    RepoEntry,
    Report,
    Scan,
    Schedule,
    Trace,
    unreachable,
)
from daemon.settings.types import repository_key, resolve_url

__all__ = ["ConfigError", "Repo", "Settings", "load", "parse", "repository_key"]


class Repo(BaseModel):
    """A watched repository with every value settled: `url` absolute, `every_s` its own or [poll]'s."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    key: str
    url: str
    branches: tuple[str, ...]
    every_s: float
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    projects: tuple[str, ...] = ()
    exercises: tuple[str, ...]
    enabled: bool
    opt_out: bool
    pull_requests: bool
    try_bumps: Literal["never", "weekly"] = "never"
    priority: int = 0


class Settings(BaseModel):
    """The settings in force. `digest` is the SHA-256 of the file at `path`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    path: Path
    digest: str
    paths: Paths
    daemon: Daemon
    poll: Poll
    github: GitHub
    lean: Lean
    build: Build
    scan: Scan
    trace: Trace
    jobs: Jobs
    engine: Engine
    schedule: Schedule
    prove: Prove
    train: Train
    cache: Cache
    log: Log
    certificates: Certificates
    notify: Notify
    metrics: Metrics
    report: Report
    serve: Serve
    repos: tuple[Repo, ...]
    _lines: dict[Location, int] = PrivateAttr(default_factory=dict)

    def public(self) -> dict[str, Any]:
        """Return the whole as plain JSON data, for the log and for people. There is no secret in it."""
        return self.model_dump(mode="json", exclude={"path", "digest"})

    def line(self, location: Location) -> int | None:
        """Return the setting's line in config.toml, or None for a default."""
        return self._lines.get(location)


def load(path: Path) -> Settings:
    """Read and check the file.

    Raises:
        ConfigError: with every mistake in it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        line = f"{path.name}:1: file: cannot be read ({path}: {reason}); check its path and permissions"
        raise ConfigError((line,), path=path, digest=hashlib.sha256(b"").hexdigest()) from error
    return parse(data, path=path)


def parse(data: bytes, *, path: Path) -> Settings:
    """Check the bytes of a configuration file for `path`; like `load`."""
    digest = hashlib.sha256(data).hexdigest()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"{path.name}:{line}: syntax: is not UTF-8; save the file as UTF-8 text"
        raise ConfigError((message,), path=path, digest=digest) from error
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = syntax_error(error, name=path.name, text=text)
        raise ConfigError((message,), path=path, digest=digest) from error
    lines = line_index(text)
    paths = resolve_paths(raw["daemon"] if isinstance(raw.get("daemon"), dict) else {}, config=path)
    result: list[Mistake] = []
    file: ConfigFile | None = None
    try:
        file = ConfigFile.model_validate(raw, context={"base": path.absolute().parent})
    except ValidationError as error:
        result += mistakes(error, model=ConfigFile, lines=lines)
    result += _duplicates(raw, lines=lines, base=path.absolute().parent)
    if file is not None:
        rungs: Location = ("prove", "rungs")
        result += [Mistake(line_of(lines, rungs), setting_name(rungs), why) for why in lacking(file.prove)]
        served: Location = ("report", "serve")
        unserved = unreachable(file.report, file.metrics)
        result += [Mistake(line_of(lines, served), setting_name(served), why) for why in unserved]
    if result or file is None:
        raise ConfigError(tuple(item.render(path.name) for item in sorted(result)), path=path, digest=digest)
    settings = Settings(
        path=path.absolute(),
        digest=digest,
        paths=paths,
        repos=tuple(settled(entry, poll=file.poll) for entry in file.repos),
        **{name: getattr(file, name) for name in ConfigFile.model_fields if name != "repos"},
    )
    settings._lines.update(lines)
    return settings


def settled(entry: RepoEntry, *, poll: Poll) -> Repo:
    """Return an entry of the watchlist, with [poll]'s values for its missing ones."""
    return Repo(
        key=repository_key(entry.url),
        url=entry.url,
        branches=entry.branches,
        every_s=poll.every_s if entry.every_s is None else entry.every_s,
        include=entry.include,
        exclude=entry.exclude,
        projects=entry.projects,
        exercises=entry.exercises,
        enabled=entry.enabled,
        opt_out=entry.opt_out,
        pull_requests=entry.pull_requests,
        try_bumps=entry.try_bumps,
        priority=entry.priority,
    )


def _duplicates(raw: dict[str, Any], *, lines: dict[Location, int], base: Path) -> list[Mistake]:
    """Return the entries with a repository listed before, among those with a valid URL."""
    entries = raw.get("repos")
    result: list[Mistake] = []
    first: dict[str, int] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        url = entry.get("url") if isinstance(entry, dict) else None
        if not isinstance(url, str):
            continue
        try:
            key = repository_key(resolve_url(url, base=base))
        except ValueError:
            continue  # reported as this entry's own mistake
        # GitHub's owners and names ignore case, and two keys differing only by case would share a mirror on
        # some disks.
        earlier = first.setdefault(key.casefold(), index)
        if earlier != index:
            location: Location = ("repos", index, "url")
            other = line_of(lines, ("repos", earlier, "url"))
            message = (
                f'is the same repository as repos[{earlier}] on line {other} ("{key}"); remove one of the two'
            )
            result.append(Mistake(line_of(lines, location), setting_name(location), message))
    return result

"""The sections of config.toml as frozen pydantic models: names, defaults, limits.

`docs/configuration.md` describes each setting and a test compares the two. An attribute is named like its setting,
with its unit at the end (`every` -> `every_s`). No secret is ever held: `GitHub.read_token` reads it when it is used.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo

from daemon.due import Kind
from daemon.peers import group_id
from daemon.settings_fields import (
    Branches,
    Flag,
    Globs,
    Hosts,
    Section,
    Text,
    base_of,
    duration,
    size,
    table_list,
)
from daemon.settings_notify import Metrics, Notify
from daemon.settings_prove import Prove
from daemon.settings_report import Report
from daemon.settings_schedule import Limit, Limits, Schedule
from daemon.settings_serve import Serve
from daemon.settings_train import Train
from daemon.settings_types import resolve_url
from pipeline.lean.sandbox.hosts import DEFAULT_HOSTS

TOKEN_CREDENTIAL = "github-token"  # noqa: S105 - the name of a systemd credential, not a secret
TOKEN_VARIABLE = "UNSORRY_GITHUB_TOKEN"  # noqa: S105 - the name of an environment variable
WEBHOOK_CREDENTIAL = "webhook-secret"
WEBHOOK_VARIABLE = "UNSORRY_WEBHOOK_SECRET"


EXERCISES = ("**/*[Ee]xercise*/**", "**/*[Ee]xercise*.lean")


def _duration_or_default(value: Any) -> Any:
    return None if value in ("", None) else _POLL_EVERY(value)


def _repository_url(value: str, info: ValidationInfo) -> str:
    return resolve_url(value, base=base_of(info))


def _program(value: str, info: ValidationInfo) -> str:
    """A bare name is looked up on PATH when it is used; a path is relative to the configuration file."""
    return os.path.normpath(base_of(info) / Path(value).expanduser()) if "/" in value else value


def _api_url(value: str) -> str:
    if not value:
        return value
    remedy = 'write "https://api.github.com" or "https://github.example.org/api/v3"'
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"is no valid URL; {remedy}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"must be an https URL; {remedy}")
    if "@" in parts.netloc:
        raise ValueError("carries credentials (not shown); name a file with the token in token_file instead")
    if parts.query or parts.fragment:
        raise ValueError(f'has a part after "?" or "#"; {remedy}')
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError(f"would send the token unencrypted; {remedy}")
    return value.rstrip("/")


def _token_file(value: str, info: ValidationInfo) -> str:
    if not value:
        return value
    path = base_of(info) / Path(value).expanduser()
    try:
        _read_token_file(path)
    except OSError as error:
        raise ValueError(
            f'cannot be read ("{path}": {error.strerror or error}); create it with the token as its only line,'
            " mode 600 and owned by the daemon's user"
        ) from None
    return str(path)


def _read_token_file(path: Path) -> str:
    """Return the token; ValueError where the file is open to everybody or holds no token."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        raise ValueError(f'"{path}" can be read by every user of this machine; run: chmod 600 {path}')
    token = path.read_bytes().decode("ascii", errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f'"{path}" holds no token; write the token into it as its only line')
    return token


def _existing_group(value: str) -> str:
    if value:
        try:
            group_id(value)
        except KeyError:
            raise ValueError(
                f'names a group that is not there, "{value}"; create it (groupadd), or write control_group = ""'
            ) from None
    return value


_POLL_EVERY = duration(minimum_s=1, maximum_s=30 * 86400, example="5m")


class Daemon(Section):
    """[daemon]: folders, logs, stopping."""

    state_dir: Text = Field("", examples=["/var/lib/unsorry"])
    cache_dir: Text = Field("", examples=["/var/cache/unsorry"])
    runtime_dir: Text = Field("", examples=["/run/unsorry"])
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", examples=["info"])
    log_format: Literal["auto", "json", "console"] = Field("auto", examples=["auto"])
    shutdown_timeout_s: Annotated[
        float, BeforeValidator(duration(minimum_s=1, maximum_s=3600, example="20s"))
    ] = Field(20.0, alias="shutdown_timeout", examples=["20s"])
    control_group: Annotated[Text, AfterValidator(_existing_group)] = Field("", examples=["root"])


class Poll(Section):
    """[poll]: how often the remotes are asked."""

    every_s: Annotated[float, BeforeValidator(_POLL_EVERY)] = Field(300.0, alias="every", examples=["5m"])
    jitter_s: Annotated[float, BeforeValidator(duration(minimum_s=0, maximum_s=3600, example="10s"))] = Field(
        10.0, alias="jitter", examples=["10s"]
    )
    timeout_s: Annotated[float, BeforeValidator(duration(minimum_s=1, maximum_s=3600, example="60s"))] = (
        Field(60.0, alias="timeout", examples=["60s"])
    )
    slowest_s: Annotated[float, BeforeValidator(_POLL_EVERY)] = Field(
        3600.0, alias="slowest", examples=["1h"]
    )


def _read_secret(credential: str, file: str, variable: str) -> str | None:
    if folder := os.environ.get("CREDENTIALS_DIRECTORY"):
        path = Path(folder) / credential
        if path.is_file():
            return _read_token_file(path)
    if file:
        return _read_token_file(Path(file))
    return os.environ.get(variable, "").strip() or None


class GitHub(Section):
    """[github]: the API, used when a token or `api_url` is configured, and its webhooks."""

    api_url: Annotated[Text, AfterValidator(_api_url)] = Field("", examples=["https://api.github.com"])
    token_file: Annotated[Text, AfterValidator(_token_file)] = Field(
        "", examples=["/etc/unsorry/github-token"]
    )
    webhook_port: Annotated[int, Strict()] = Field(0, ge=0, le=65535, examples=[8477])
    webhook_secret_file: Annotated[Text, AfterValidator(_token_file)] = Field(
        "", examples=["/etc/unsorry/webhook-secret"]
    )

    def read_token(self) -> str | None:
        """Return the token, read now: systemd's credential, else `token_file`, else the environment.

        Raises:
            ValueError: the file is open to everybody or holds no token.
            OSError: the file has gone or cannot be read.
        """
        return _read_secret(TOKEN_CREDENTIAL, self.token_file, TOKEN_VARIABLE)

    def read_webhook_secret(self) -> str | None:
        """Return the secret that webhooks are signed with, read now: from the places of the token, by other names.

        Raises:
            ValueError: the file is open to everybody or holds no secret.
            OSError: the file has gone or cannot be read.
        """
        return _read_secret(WEBHOOK_CREDENTIAL, self.webhook_secret_file, WEBHOOK_VARIABLE)


class Lean(Section):
    """[lean]: what checks proofs. `auto` never picks the simulator."""

    backend: Literal["auto", "pantograph", "simulator", "none"] = Field("auto", examples=["auto"])
    repl: Annotated[Text, AfterValidator(_program)] = Field("", examples=["/opt/pantograph/repl"])
    sandbox: Literal["bubblewrap", "none"] = Field("bubblewrap", examples=["bubblewrap"])
    repls: Annotated[int, Strict()] = Field(2, ge=1, le=256, examples=[2])
    repl_memory_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**28, example="8G"))] = Field(
        2**33, alias="repl_memory", examples=["8G"]
    )
    repl_calls: Annotated[int, Strict()] = Field(20_000, ge=1, examples=[20_000])


class Build(Section):
    """[build]: fetching dependencies and `lake build`, where Lean is real."""

    enabled: Flag = Field(True, examples=[True])
    timeout_s: Annotated[float, BeforeValidator(duration(minimum_s=1, maximum_s=7 * 86400, example="2h"))] = (
        Field(7200.0, alias="timeout", examples=["2h"])
    )
    memory_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**28, example="16G"))] = Field(
        2**34, alias="memory", examples=["16G"]
    )
    disk_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**20, example="30G"))] = Field(
        30 * 2**30, alias="disk", examples=["30G"]
    )
    hosts: Hosts = Field(DEFAULT_HOSTS, examples=[["github.com", "*.githubusercontent.com"]])


class Trace(Section):
    """[trace]: what Lean says of every theorem of a commit."""

    enabled: Flag = Field(True, examples=[True])
    file_timeout_s: Annotated[
        float, BeforeValidator(duration(minimum_s=1, maximum_s=86400, example="10m"))
    ] = Field(600.0, alias="file_timeout", examples=["10m"])
    parallel: Annotated[int, Strict()] = Field(2, ge=1, le=256, examples=[2])


class Cache(Section):
    """[cache]: how much builds and their packages may take on disk."""

    size_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**20, example="200G"))] = Field(
        200 * 2**30, alias="size", examples=["200G"]
    )


class Jobs(Section):
    """[jobs]: limits of the child processes."""

    max_running: Annotated[int, Strict()] = Field(2, ge=1, le=256, examples=[2])
    memory_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**28, example="4G"))] = Field(
        2**32, alias="memory", examples=["4G"]
    )
    timeout_s: Annotated[
        float, BeforeValidator(duration(minimum_s=1, maximum_s=7 * 86400, example="30m"))
    ] = Field(1800.0, alias="timeout", examples=["30m"])
    max_attempts: Annotated[int, Strict()] = Field(3, ge=1, le=100, examples=[3])
    retry_base_s: Annotated[
        float, BeforeValidator(duration(minimum_s=0.1, maximum_s=86400, example="30s"))
    ] = Field(30.0, alias="retry_base", examples=["30s"])
    keep: Annotated[int, Strict()] = Field(200, ge=1, examples=[200])
    limits: Limits = Field(default_factory=dict)

    def limit(self, kind: Kind) -> Limit:
        """Return the limits that a kind has for itself."""
        found: Limit = self.limits.get(kind, Limit())
        return found

    def timeout_of(self, kind: Kind) -> float:
        """Return the longest time of a kind that has it from this table, in seconds."""
        own = self.limit(kind).timeout_s
        return self.timeout_s if own is None else own


class RepoEntry(Section):
    """[[repos]] as written: `every` may be left to [poll]."""

    url: Annotated[Text, AfterValidator(_repository_url)] = Field(examples=["https://github.com/owner/name"])
    branches: Branches = Field((), examples=[["main", "release/*"]])
    every_s: Annotated[float | None, BeforeValidator(_duration_or_default)] = Field(
        None, alias="every", examples=["5m"]
    )
    include: Globs = Field(("**/*.lean",), examples=[["Mathlib/**/*.lean"]])
    exclude: Globs = Field((), examples=[["Archive/**"]])
    exercises: Globs = Field(EXERCISES, examples=[["Exercises/**"]])
    enabled: Flag = Field(True, examples=[True])
    opt_out: Flag = Field(False, examples=[False])
    pull_requests: Flag = Field(False, examples=[True])
    priority: Annotated[int, Strict()] = Field(0, ge=-100, le=100, examples=[1])


class ConfigFile(Section):
    """The file as written; the models of its sections hold the defaults."""

    daemon: Daemon = Field(default_factory=Daemon)
    poll: Poll = Field(default_factory=Poll)
    github: GitHub = Field(default_factory=GitHub)
    lean: Lean = Field(default_factory=Lean)
    build: Build = Field(default_factory=Build)
    trace: Trace = Field(default_factory=Trace)
    jobs: Jobs = Field(default_factory=Jobs)
    schedule: Schedule = Field(default_factory=Schedule)
    prove: Prove = Field(default_factory=Prove)
    train: Train = Field(default_factory=Train)
    cache: Cache = Field(default_factory=Cache)
    notify: Notify = Field(default_factory=Notify)
    metrics: Metrics = Field(default_factory=Metrics)
    report: Report = Field(default_factory=Report)
    serve: Serve = Field(default_factory=Serve)
    repos: Annotated[tuple[RepoEntry, ...], BeforeValidator(table_list)] = Field(())

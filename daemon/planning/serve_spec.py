"""Specify and start the server for editors (`pipeline.serve.spec`).

The specification comes from the settings and the environment's LEANPROGRESS_ variables, shared with
LeanDojo's server: they go before [serve.progress].
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from daemon.jobs.gpus import Gpus, NoGpuError, chosen
from daemon.place.paths import Paths
from daemon.planning.ladder import ladder_of, spending
from daemon.planning.proving import SEED
from daemon.settings import Settings
from daemon.settings.models import ServeModel
from pipeline.jobs.ladder import Ladder
from pipeline.jobs.specs import EndpointSpec
from pipeline.lean.pool import PoolLimits
from pipeline.serve.auth import read_token
from pipeline.serve.checkouts import BY_HAND
from pipeline.serve.spec import (
    PROMOTED,
    LeanSpec,
    Limits,
    ModelSpec,
    RepositorySpec,
    RewardSpec,
    ServeSpec,
)
from store.domain.identity import slug

_DEFAULT_MODELS = (
    ModelSpec("tactics", "tactics", PROMOTED),
    ModelSpec("retriever", "retriever", PROMOTED),
)
_NEEDED = ("fastapi", "torch", "transformers", "safetensors", "peft")


class ServeError(Exception):
    """The server cannot start; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The GPU of the server: its lock, and the value of CUDA_VISIBLE_DEVICES (None: the daemon's)."""

    lock: Path
    visible: str | None


def spec_of(
    settings: Settings,
    *,
    scratch: str,
    host: str | None = None,
    port: int | None = None,
    lease: Lease | None = None,
    reload: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> ServeSpec:
    """Build the specification from the settings.

    Args:
        scratch: the name of this server's own folder in the cache.
        host, port: instead of those of [serve].
        lease: the GPU, if [serve] device asks for one.
        reload: the command to read the settings again, for SIGHUP.
        environment: instead of the process's.
    """
    serve, paths, lean = settings.serve, settings.paths, settings.lean
    return ServeSpec(
        host=serve.host if host is None else host,
        port=serve.port if port is None else port,
        view=paths.database_db,
        events=paths.events_db,
        checkpoints=paths.models,
        indices=paths.embeddings / "retriever",
        models=tuple(_model(model, settings) for model in serve.models) or _DEFAULT_MODELS,
        lean=LeanSpec(
            backend=lean.backend,
            repl=lean.repl,
            sandbox=lean.sandbox,
            second_kernel=lean.second_kernel,
            advisories=settings.certificates.advisories,
            as_root=lean.as_root,
            cache=paths.cache,
            scratch=paths.cache / "serve" / scratch,
            pool=PoolLimits(
                processes=lean.repls,
                memory_bytes=lean.repl_memory_bytes,
                calls=lean.repl_calls,
            ),
            repositories=tuple(
                RepositorySpec(repo.key, paths.mirrors / f"{slug(repo.key)}.git")
                for repo in settings.repos
                if repo.enabled
            ),
            ladder=_ladder(settings),
            seed=SEED,
            built=settings.build.enabled,
            memory_bytes=settings.jobs.limit("check").memory_bytes or settings.jobs.memory_bytes,
            start_timeout_s=lean.start_timeout_s,
        ),
        progress=_progress(settings, os.environ if environment is None else environment),
        limits=Limits(lean_processes=lean.repls),
        device=serve.device,
        token=serve.token,
        gpu_lock=None if lease is None else lease.lock,
        visible="" if lease is None else lease.visible,
        reload=reload,
    )


def why_not_servable(spec: ServeSpec) -> str:
    """Return the server's missing requirement, as "reason: remedy"; "" if nothing is missing.

    The libraries are looked for and not imported.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        extras = "its extra `serve`" if missing == ["fastapi"] else "its extras `serve` and `train`"
        return f"{', '.join(missing)} not installed: install everlean with {extras} (docs/install.md)"
    progress = spec.progress
    if progress is not None and progress.device.startswith("cuda") and spec.gpu_lock is None:
        return (
            f'the progress model is to compute on "{progress.device}" (LEANPROGRESS_DEVICE), and the server has no'
            ' GPU: write device = "cuda" under [serve], or "cpu" there'
        )
    return ""


def _ladder(settings: Settings) -> Ladder:
    """Return the ladder of `/fill`: that of [prove], on the server's device."""
    ladder = ladder_of(settings)
    return ladder.only(ladder.rungs if settings.prove.enabled else (0,), device=settings.serve.device)


def _model(model: ServeModel, settings: Settings) -> ModelSpec:
    return ModelSpec(
        name=model.name,
        kind=model.kind,
        source=model.model or PROMOTED,
        repository=model.repository,
        generator=model.generator,
        candidates=model.candidates,
        max_tokens=model.max_tokens,
        endpoint=_endpoint(model, settings) if model.kind == "endpoint" else None,
    )


def _endpoint(model: ServeModel, settings: Settings) -> EndpointSpec:
    return EndpointSpec(
        base_url=model.base_url,
        model=model.model,
        credential=model.credential,
        key_variable=model.key.variable,
        # No client waits longer than this.
        timeout_s=Limits().seconds,
        ledger=spending(settings),
        cap_usd=model.usd_per_day,
        usd_per_million_prompt=model.usd_per_million_prompt,
        usd_per_million_completion=model.usd_per_million_completion,
    )


def _progress(settings: Settings, environment: Mapping[str, str]) -> RewardSpec | None:
    source = environment.get("LEANPROGRESS_MODEL", "").strip() or settings.serve.progress.model
    device = environment.get("LEANPROGRESS_DEVICE", "").strip() or "auto"
    if not source:
        return None
    # A relative folder starts where the variable was read; the server works elsewhere.
    folder = Path(source).expanduser()
    return RewardSpec(str(folder.absolute()) if folder.is_dir() else source, device)


# ---- How a process becomes the server


def become_server(settings: Settings, *, host: str | None, port: int | None) -> NoReturn:
    """Replace this process by the server for editors.

    Args:
        host, port: instead of those of [serve].

    Raises:
        ServeError: it cannot start here, for the reason in the message.
        CredentialError: its token cannot be used, or it needs one.
    """
    spec = spec_of(
        settings,
        scratch=f"{BY_HAND}{os.getpid()}",
        host=host,
        port=port,
        lease=_lease_of(settings),
        reload=_reload_command(settings.path, host, port),
    )
    missing = why_not_servable(spec)
    if missing:
        raise ServeError(missing)
    read_token(spec)
    # If all models are named, no store is needed; requests for the daemon's data then get an error.
    if any(model.source == PROMOTED for model in spec.models):
        check_store(settings.paths)
    _check_port(spec)
    _become(spec)


def _lease_of(settings: Settings) -> Lease | None:
    """Return a GPU to lock, if [serve] device asks for one; the server's own process takes the lock."""
    if settings.serve.device == "cpu":
        return None
    gpus = Gpus(settings.paths.runtime / "gpus")
    all_gpus = gpus.seen({})
    gpus.close()
    try:
        free = chosen(all_gpus, device=settings.serve.device)
    except NoGpuError as error:
        raise ServeError(
            f'{error}; {error.remedy}, or write device = "cpu" under [serve] in {settings.path}'
        ) from error
    if free is None:
        return None
    return Lease(gpus.lock(free.uuid), free.uuid or None)


def check_store(paths: Paths) -> None:
    """Refuse to start before a daemon has made a database."""
    if not paths.database_db.exists():
        raise ServeError(
            f"{paths.database_db}: missing, and the server reads from it which models there are; run the daemon once"
            " (`everlean run`), or name a model for each of [[serve.models]]"
        )


def _check_port(spec: ServeSpec) -> None:
    """Name the process at the address before anything heavy is loaded; the server's own bind decides."""
    family = socket.AF_INET6 if ":" in spec.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((spec.host, spec.port))
        except OSError as error:
            raise ServeError(
                f"{shown_host(spec.host)}:{spec.port} cannot be listened on: {error.strerror or error}; choose another"
                " port with --port, or end what listens there (perhaps everlean-serve.service)"
            ) from error


def _reload_command(config: Path, host: str | None, port: int | None) -> tuple[str, ...]:
    """Return the command to start again with the settings of that time."""
    options = [] if host is None else ["--host", host]
    options += [] if port is None else ["--port", str(port)]
    return (sys.executable, "-P", "-m", "daemon.cli", "serve", "--config", str(config.absolute()), *options)


def _become(spec: ServeSpec) -> NoReturn:
    """Become the server. The specification is in no file: this process reads it from an inherited
    descriptor."""
    descriptor = os.memfd_create("everlean-serve-spec", 0)
    os.write(descriptor, spec.as_json().encode("utf-8"))
    path = Path("/proc/self/fd") / str(descriptor)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "pipeline.serve", str(path)])  # noqa: S606 - no shell


def shown_host(host: str) -> str:
    """Return a host in its form before a port."""
    return f"[{host}]" if ":" in host else host

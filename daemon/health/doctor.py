"""The checks of `everlean doctor`: installed and missing things, each with its remedy.

Reads and reports, changes nothing. Programs print their version within a time limit; nothing of a watched
repository is run.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from daemon.health.requirements import why_not_trainable
from daemon.place.paths import ConfigNotFoundError, Paths, find_config, paths_from_config
from daemon.settings import ConfigError, Settings, load
from daemon.settings.models import Train
from pipeline.endpoint.credentials import key_source
from pipeline.jobs.spec import HUB_KEY
from pipeline.lean.build.lake import SYSTEM_PATH
from store.text import listed

if TYPE_CHECKING:
    from pipeline.lean.backend import Leans

Verdict = Literal["ok", "warning", "missing"]
VERSION_TIMEOUT_S = 10.0
LOW_DISK_BYTES = 2 * 2**30
LEAN = "lean backend"
"""The finding without which the daemon watches and proves nothing."""
GIT_MINIMUM = (2, 31)  # GIT_CONFIG_COUNT: an older git reads none of the configuration that keeps it safe
SQLITE_MINIMUM = (3, 37)  # STRICT tables
PYTHON_MINIMUM = (3, 11)
RAY_MINIMUM = (2, 60)  # before, its tokens did not guard everything


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. Without an `essential` thing the daemon cannot do its first job, watching."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ""
    essential: bool = False


def examine(config: Path | None) -> list[Finding]:
    """Run every check."""
    settings, paths, about_config = _configuration(config)
    return [
        _python(),
        git_finding(),
        sqlite_finding(sqlite3.sqlite_version_info),
        daemon_package(importlib.util.find_spec("daemon"), _distribution_version("python-daemon")),
        about_config,
        *_folders(paths),
        _bubblewrap(settings),
        _elan(settings),
        *_lean_backend(settings, paths),
        _gpu(),
        _training(settings),
        *_environment(settings),
        *_ray(settings),
        *_programs(settings),
    ]


def _environment(settings: Settings | None) -> Iterator[Finding]:
    """Report the source of tokens and of other environment variables; no secret values."""
    if settings is None:
        return
    from daemon.settings.in_force import token_source

    if (source := token_source(settings)) is not None:
        yield Finding("github token", "ok", source)
    if (place := key_source(HUB_KEY)) is not None:
        yield Finding(
            "hub token", "ok", f"{place}; jobs that name a model of Hugging Face's hub are handed it"
        )
    for name, meaning in (
        ("LEANPROGRESS_MODEL", "`everlean serve` rates tactics with it, before [serve.progress] model"),
        ("RAID_DIR", "scripts written for LeanDojo-v2 have their files there"),
    ):
        if value := os.environ.get(name, "").strip():
            yield Finding(name.lower(), "ok", f"environment variable {name} is {value}: {meaning}")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON_MINIMUM:
        return Finding("python", "missing", version, "install Python 3.11 or newer", essential=True)
    return Finding("python", "ok", f"{version} at {sys.executable}", essential=True)


def git_finding() -> Finding:
    """Judge git, without which nothing can be watched."""
    remedy = "install git 2.31 or newer (Debian: apt install git)"
    version = _version_of("git", "--version")
    if version is None:
        return Finding("git", "missing", "not on PATH", remedy, essential=True)
    number = version_tuple(version)
    if not number:
        return Finding("git", "missing", f"`git --version` said: {version}", remedy, essential=True)
    verdict: Verdict = "ok" if number >= GIT_MINIMUM else "missing"
    return Finding("git", verdict, version, "" if verdict == "ok" else remedy, essential=True)


def sqlite_finding(version: tuple[int, ...]) -> Finding:
    """Judge a SQLite version: STRICT tables are needed, and the WAL-reset bug is worth knowing of."""
    text = ".".join(map(str, version))
    if version < SQLITE_MINIMUM:
        return Finding(
            "sqlite", "missing", text, "use a Python whose sqlite3 has SQLite 3.37 or newer", essential=True
        )
    if has_wal_reset_bug(version):
        return Finding(
            "sqlite",
            "ok",
            f"{text}; let no other program write to the state folder's databases (litestream, a SQLite shell): before"
            " 3.51.3, but for 3.50.7 and 3.44.6, two writers can damage one (the WAL-reset bug), and everlean is one",
            essential=True,
        )
    return Finding("sqlite", "ok", text, essential=True)


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Return whether a version has the bug: 3.7.0 to 3.51.2, except from 3.44.6 and 3.50.7 on in their
    series."""
    release, patch = version[:2], version[2] if len(version) > 2 else 0
    if release < (3, 7) or version >= (3, 51, 3):
        return False
    return not ((release == (3, 44) and patch >= 6) or (release == (3, 50) and patch >= 7))


def daemon_package(spec: importlib.machinery.ModuleSpec | None, python_daemon: str | None) -> Finding:
    """Judge whether the import name `daemon` is ours; PyPI's python-daemon uses it as well."""
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    remedy = "pip uninstall python-daemon, then install everlean again; keep them in different environments"
    if origin is None or not (origin.parent / "health" / "doctor.py").is_file():
        return Finding("daemon package", "missing", f"`import daemon` finds {origin}", remedy, essential=True)
    if python_daemon is not None:
        return Finding(
            "daemon package",
            "warning",
            f"python-daemon {python_daemon} is installed beside everlean and has the same import name",
            remedy,
            essential=True,
        )
    return Finding("daemon package", "ok", str(origin.parent), essential=True)


def _configuration(config: Path | None) -> tuple[Settings | None, Paths | None, Finding]:
    name = "configuration"
    try:
        path = find_config(config)
    except ConfigNotFoundError as error:
        return (
            None,
            None,
            Finding(name, "missing", str(error), "write one: docs/configuration.md", essential=True),
        )
    try:
        settings = load(path)
    except ConfigError as error:
        try:
            paths = paths_from_config(path)
        except OSError:
            paths = None
        detail = f"{path} has {len(error.errors)} mistake(s), the first: {error.errors[0]}"
        return (
            None,
            paths,
            Finding(name, "missing", detail, "everlean config check lists them all", essential=True),
        )
    return settings, settings.paths, Finding(name, "ok", f"{path} is valid", essential=True)


def _folders(paths: Paths | None) -> Iterator[Finding]:
    if paths is None:
        return
    for name, folder in (
        ("state folder", paths.state),
        ("cache folder", paths.cache),
        ("runtime folder", paths.runtime),
    ):
        existing = folder
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        where = str(folder) if existing == folder else f"{folder} (to be made in {existing})"
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            yield Finding(
                name,
                "missing",
                f"{where} cannot be written by this user",
                f"give it to the daemon's user, or set another folder under [daemon] (chown {folder})",
                essential=True,
            )
            continue
        free = shutil.disk_usage(existing).free
        text = f"{where}, {free / 2**30:.1f} GiB free"
        if free < LOW_DISK_BYTES and name != "runtime folder":
            yield Finding(name, "warning", text, "free some space: mirrors and the log grow", essential=True)
        else:
            yield Finding(name, "ok", text, essential=True)


def _bubblewrap(settings: Settings | None) -> Finding:
    from pipeline.lean.sandbox.command import bubblewrap_problem

    if settings is not None and settings.lean.sandbox == "none":
        return Finding(
            "bubblewrap",
            "warning",
            'not used: [lean] sandbox = "none" lets code of the watched repositories run unconfined',
            'write sandbox = "bubblewrap" unless you trust every watched repository',
        )
    remedy = "install bubblewrap (Debian: apt install bubblewrap), or watch without Lean"
    program = shutil.which("bwrap")
    if program is None:
        return Finding(
            "bubblewrap", "missing", "bwrap is not on PATH; Lean will not be run without it", remedy
        )
    problem = bubblewrap_problem()
    if problem is not None:
        return Finding(
            "bubblewrap",
            "missing",
            problem,
            "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, AppArmor, container flags)",
        )
    return Finding("bubblewrap", "ok", f"{_version_of('bwrap', '--version') or program}, tried")


def _elan(settings: Settings | None) -> Finding:
    from pipeline.lean.toolchain.versions import elan_home, find_elan

    elan = find_elan()
    if elan is None and settings is not None and settings.lean.backend == "none":
        return Finding("elan", "ok", 'not used: [lean] backend = "none"')
    if elan is None:
        detail = f"not on PATH and not in {elan_home() / 'bin'}: without it no Lean is installed, and nothing is proved"
        return Finding("elan", "missing", detail, "everlean setup")
    return Finding("elan", "ok", f"{_version_of(str(elan), '--version') or 'elan'} at {elan}")


def _lean_backend(settings: Settings | None, paths: Paths | None) -> Iterator[Finding]:
    """Check Lean's program, and the versions missing for watched branches."""
    from pipeline.lean.backend import NOT_AS_ROOT, find_leans

    lean = settings.lean if settings is not None else None
    result = find_leans(
        backend="auto" if lean is None else lean.backend,
        repl="" if lean is None else lean.repl,
        sandbox="bubblewrap" if lean is None else lean.sandbox,
        as_root=lean is None or lean.as_root,
    )
    summary = result.summary
    if summary.kind == "none":
        off = lean is not None and lean.backend == "none"
        yield Finding(
            LEAN,
            "ok" if off else "missing",
            summary.detail,
            ""
            if off
            else "run everlean as another user (docs/install.md)"
            if summary.detail == NOT_AS_ROOT
            else "everlean setup (docs/install.md)",
        )
    else:
        yield Finding(LEAN, "ok", summary.detail)
    if paths is not None:
        yield from _needs(paths, result)


def _needs(paths: Paths, leans: Leans) -> Iterator[Finding]:
    """Check that a toolchain and a REPL run each Lean version of the scanned branches."""
    from daemon.health.requirements import needs
    from store.errors import LogError
    from store.sqlite import translated
    from store.view import queries

    if not paths.database_db.exists() or (leans.fixed is not None and leans.fixed.kind == "none"):
        return
    try:
        with translated(paths.database_db), closing(queries.connect(paths.database_db)) as database:
            needed = needs(database, leans)
    except LogError as error:
        yield Finding("lean versions", "warning", f"what the repositories need cannot be read: {error}")
        return
    if any(need.toolchain for need in needed):
        yield curl_finding()
    for need in needed:
        places = listed([str(place) for place in need.places], 3)
        # With one program for all versions it is not for want of a build.
        remedy = need.remedy if leans.fixed is None else f"see `{LEAN}`"
        yield Finding(
            f"lean {need.version or 'version'}",
            "ok" if need.met else "missing",
            f"needed by {places}: {need.backend.detail}",
            "" if need.met else remedy,
        )


def curl_finding(search: str = SYSTEM_PATH) -> Finding:
    """Judge whether curl is where lake finds it: Mathlib's `cache get` downloads with it."""
    program = shutil.which("curl", path=search)
    if program is not None:
        return Finding("curl", "ok", program)
    return Finding(
        "curl",
        "warning",
        f"not in {search}: without it `lake exe cache get` fetches nothing, and Mathlib is built from its source,"
        " which takes hours",
        "install curl (Debian: apt install curl)",
    )


def _gpu() -> Finding:
    if shutil.which("nvidia-smi") is None:
        present = Path("/proc/driver/nvidia/version").exists()
        detail = "a driver is loaded but nvidia-smi is not on PATH" if present else "none found"
        return Finding(
            "gpu", "ok", f"{detail}; only training and proving with models use one (an NVIDIA driver)"
        )
    output = _run("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    if output is None or output.returncode != 0 or not output.stdout.strip():
        reason = "no answer" if output is None else (output.stderr or output.stdout).strip().splitlines()[:1]
        return Finding(
            "gpu", "missing", f"nvidia-smi fails: {reason}", "check the NVIDIA driver: dmesg | grep -i nvrm"
        )
    return Finding("gpu", "ok", "; ".join(line.strip() for line in output.stdout.strip().splitlines()))


def _training(settings: Settings | None) -> Finding:
    train = Train() if settings is None else settings.train
    if not train.enabled:
        return Finding("training", "ok", "switched off: [train] enabled = false")
    waits = why_not_trainable(train)
    if waits:
        detail, _, remedy = waits.partition(": ")
        return Finding("training", "missing", detail, remedy)
    where = "a GPU" if train.device == "cuda" else "the processor"
    return Finding("training", "ok", f"the libraries are there; it runs on {where}")


def _ray(settings: Settings | None) -> Iterator[Finding]:
    """Judge the requirements of `[engine] kind = "ray"` on this machine."""
    if settings is None or settings.engine.kind != "ray":
        return
    version = _distribution_version("ray")
    if version is None or version_tuple(version) < RAY_MINIMUM:
        there = "not installed" if version is None else f"{version}, and 2.60 is needed"
        yield Finding("ray", "missing", there, "pip install 'everlean[ray]' on each machine of the cluster")
        return
    token = Path(settings.engine.token_file or Path.home() / ".ray" / "auth_token")
    try:
        with token.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        remedy = "write the cluster's token there, for this user to read, or name its file as token_file under [engine]"
        yield Finding("ray", "missing", f"{version}; no token at {token}: {error.strerror}", remedy)
        return
    if mode & 0o077:
        yield Finding(
            "ray", "warning", f"{version}; others can read the token in {token}", f"chmod 600 {token}"
        )
    else:
        yield Finding("ray", "ok", f"{version}; the cluster at {settings.engine.address}, with a token")


def _programs(settings: Settings | None) -> Iterator[Finding]:
    """Judge the requirements of each of `[[prove.programs]]` on this machine; the sandbox is judged above."""
    from pipeline.endpoint.credentials import job_key
    from pipeline.lean.sandbox.command import find_program

    for program in () if settings is None else settings.prove.programs:
        name = f"program {program.name}"
        result = find_program(program.run)
        missing = [path for path in program.readable if not Path(path).exists()]
        key = job_key(program.key)
        if isinstance(result, str):
            yield Finding(name, "missing", result, "install it for the daemon's user, or set its path in run")
        elif missing:
            yield Finding(name, "missing", f"not there: {listed(missing, 3)}", "correct its readable")
        elif program.key is not None and key.key is None:
            why = key.problem or f"there is no credential {program.credential} and no ${program.key.variable}"
            yield Finding(
                name, "warning", why, "see docs/install.md; a shell does not see a service's credentials"
            )
        else:
            yield Finding(name, "ok", f"{result}; its network: {', '.join(program.network) or 'none'}")


def version_tuple(text: str) -> tuple[int, ...]:
    """Return the first dotted number in a program's version line; empty if it has none."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _version_of(program: str, option: str) -> str | None:
    result = _run(program, option)
    if result is None or result.returncode != 0:
        return None
    return next(iter((result.stdout or result.stderr).strip().splitlines()), None)


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run a program that answers at once; None if it is missing or does not answer."""
    try:
        return subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # "not there" and "does not answer" are both findings of the caller


def _distribution_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

"""`everlean doctor`, `version`, `setup`, `toolchain`: what is installed and missing; Lean versions and REPL builds."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from daemon.cli.context import CliError, Config, ExitCode, Json, locate
from daemon.cli.render import emit_json, fields, note, say, styled, table
from daemon.instance import Instance
from daemon.paths import SYSTEM_CONFIG
from store.documents.document import of_row
from store.text import ago, clean, clean_block, counted, listed, size, span

if TYPE_CHECKING:
    from daemon.doctor import Finding
    from daemon.requirements import Need
    from daemon.settings import Settings
    from daemon.setup import Step
    from pipeline.lean.toolchain.toolchains import LeanVersion, Toolchain, Toolchains

Version = Annotated[
    str, typer.Argument(metavar="VERSION", help="v4.21.0, v4.22.0-rc3, nightly-2025-08-01, or the full name.")
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="List, install or remove the REPL builds for Lean versions.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("list", help="Show the builds, and which versions the watched repositories need.")(list_)
    group.command("install", help="Fetch a Lean version and Pantograph's source for it, and build its REPL.")(
        install
    )
    group.command("remove", help="Remove the build for a Lean version, unless a job uses it.")(remove)
    app.add_typer(group, name="toolchain")
    app.command("setup", help="Install elan and the Lean versions that the watched repositories name.")(setup)
    app.command("doctor", help="Check what is installed and what is missing.")(doctor)
    node = typer.Typer(
        help="Look at a machine that is to run the daemon's jobs ([engine]).",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    node.command("check", help="Say whether this machine can run jobs of a daemon on another one.")(
        check_node
    )
    app.add_typer(node, name="node")
    app.command("version", help="Show the version of everlean, Python and SQLite.")(version)


@dataclass(frozen=True, slots=True)
class Build:
    toolchain: str
    """Its Lean, as `lean-toolchain` names it."""
    version: str
    state: Literal["ok", "damaged"]
    problem: str
    """Why it is damaged; empty if it is not."""
    folder: Path
    sysroot: str
    """Elan's folder of its Lean."""
    revision: str
    """Pantograph's commit."""
    source: str
    """Where Pantograph came from."""
    says: str
    """To `--version`."""
    built_at: str | None
    seconds: float
    size_bytes: int
    pids: list[int]
    """The processes that use it."""


@dataclass(frozen=True, slots=True)
class NeedingBranch:
    repository: str
    branch: str


@dataclass(frozen=True, slots=True)
class NeededLean:
    toolchain: str
    """as in `lean-toolchain`"""
    version: str
    branches: list[NeedingBranch]
    kind: str
    """what runs it: `pantograph`, `server`, `simulator`, `none`"""
    detail: str


@dataclass(frozen=True, slots=True)
class Known:
    version: str
    revision: str
    pantograph: str
    """its version"""
    certain: bool
    """its `lean-toolchain` was read"""
    source: str
    """of that fact"""


@dataclass(frozen=True, slots=True)
class Listed:
    folder: Path
    """where the builds are: `toolchains` in the cache folder"""
    elan: Path | None
    """the program that installs Lean, or null"""
    checked: bool
    """whether every file was read (`--check`)"""
    toolchains: list[Build]
    """the builds"""
    needs: list[NeededLean] | None
    """the Lean versions of the watched branches; null before a daemon ran"""
    known: list[Known]
    """versions with a known commit of Pantograph"""


@dataclass(frozen=True, slots=True)
class Installed:
    made: bool
    """false: a sound build of that revision was there already"""
    toolchain: Build


@dataclass(frozen=True, slots=True)
class Removed:
    removed: str
    """the full name of its Lean version"""
    folder: Path
    """where it was"""
    size_bytes: int
    """what that freed"""


def list_(
    check: Annotated[
        bool, typer.Option("--check", help="Read every file and compare it with what was built.")
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from daemon.requirements import needs_of
    from pipeline.lean.toolchain.toolchains import REVISIONS, find_elan

    instance = locate(config)
    settings, cache = _settings(instance), _cache(instance)
    found = [(item, cache.check(item) if check else item.problem) for item in cache.installed()]
    needed = needs_of(instance, settings)
    elan = find_elan()
    if as_json:
        listed = Listed(
            folder=cache.folder,
            elan=elan,
            checked=check,
            toolchains=[_described(cache, item, problem) for item, problem in found],
            needs=None if needed is None else [_need(item) for item in needed],
            known=[of_row(Known, item, version=item.release, revision=item.sha) for item in REVISIONS],
        )
        emit_json(listed, instance.head)
    else:
        _show(cache, found, needed, checked=check)
        if elan is None:
            say("elan is not installed: everlean setup installs it")
    if any(problem for _, problem in found):
        raise typer.Exit(ExitCode.FAILURE)


def install(
    version: Version,
    revision: Annotated[
        str,
        typer.Option(
            "--revision", metavar="SHA", help="Build this commit of Pantograph; it must be made for VERSION."
        ),
    ] = "",
    source: Annotated[
        str,
        typer.Option("--source", metavar="URL", help="Fetch Pantograph from this copy of its repository."),
    ] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    from pipeline.lean.repl_install import install as make
    from pipeline.lean.toolchain.toolchains import PANTOGRAPH, ToolchainBusyError, ToolchainError

    wanted = _version(version)
    instance = locate(config)
    settings, cache = _settings(instance), _cache(instance)
    try:
        done = make(
            cache,
            wanted,
            sandbox=settings.lean.sandbox,
            revision=revision,
            source=source or PANTOGRAPH,
            say=lambda text: note(clean_block(text)),
        )
    except ToolchainBusyError as error:
        raise CliError(clean_block(str(error)), code=ExitCode.ALREADY_RUNNING) from error
    except ToolchainError as error:
        raise CliError(clean_block(str(error))) from error
    if as_json:
        made = _described(cache, done.toolchain, done.toolchain.problem)
        emit_json(Installed(done.made, made), instance.head)
        return
    what = f"built in {span(done.toolchain.seconds)}" if done.made else "there already"
    say(f"{done.toolchain.toolchain}: {what}: {done.toolchain.repl}")
    fields((("answers as", done.toolchain.says), ("revision", done.toolchain.revision)))


# ---- Everything at once: elan, and each Lean version that the watched repositories name


_MATHLIB = (
    "a branch that needs Mathlib takes about 7 GB more when it is first built: its cache of compiled files"
)


@dataclass(frozen=True, slots=True)
class SetUp:
    steps: list[Step]
    """the steps, in order"""
    installed: list[str]
    """the names that this run installed"""


def setup(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is missing, and do nothing.")] = False,
    elan: Annotated[
        str,
        typer.Option(
            "--elan", metavar="FILE|URL", help="elan's release (.tar.gz), where GitHub is out of reach."
        ),
    ] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    from daemon.setup import SetupError, hold_room, programs, versions
    from daemon.setup import install as install_steps
    from pipeline.lean.toolchain.toolchains import ToolchainBusyError, ToolchainError

    instance = locate(config)
    settings = _settings(instance)
    if instance.config == SYSTEM_CONFIG and os.geteuid() == 0:
        raise CliError(
            "root's Lean is not the service's; run it as its user: sudo -H -u everlean everlean setup"
        )
    checked = (*programs(settings), *versions(instance, settings))
    missing = [step for step in checked if not step.there]
    doable = [step for step in missing if not step.by_hand]
    if not as_json:
        _show_steps(checked, doable)
    if as_json and (dry_run or not doable):
        emit_json(SetUp([*checked], []))
    if doable and not dry_run:
        try:
            hold_room(doable)
        except SetupError as error:
            raise CliError(str(error)) from error
        _agree(yes=yes)
        try:
            done = install_steps(doable, settings, elan=elan, say=_tell)
        except ToolchainBusyError as error:
            raise CliError(clean_block(str(error)), code=ExitCode.ALREADY_RUNNING) from error
        except ToolchainError as error:
            raise CliError(
                f"{clean_block(str(error))}\neverlean setup goes on from here when it is run again"
            ) from error
        if as_json:
            emit_json(SetUp([*checked], done))
        else:
            say(f"installed: {', '.join(done)}; a daemon that runs finds it within a minute")
    # Without curl Mathlib is built from its source: slower, and no failure.
    if any(step.by_hand for step in missing if step.name != "curl"):
        raise typer.Exit(ExitCode.FAILURE)


def _show_steps(steps: Sequence[Step], doable: Sequence[Step]) -> None:
    table(
        ("", "WHAT", "DETAIL"),
        [("ok" if step.there else "missing", step.name, step.by_hand or step.detail) for step in steps],
        shrink=(2,),
    )
    if not doable:
        say("nothing is to be installed")
        return
    from daemon.setup import free_room

    takes = sum(step.size_bytes for step in doable)
    names = ", ".join(step.name for step in doable)
    say(f"to install: {names}; about {size(takes)}, of {size(free_room())} that are free")
    say(f"minutes each, most of it download; {_MATHLIB}")


def _agree(*, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CliError("no terminal to ask at; --yes installs, --dry-run only shows", code=ExitCode.USAGE)
    if not typer.confirm("install it?", err=True):
        raise typer.Exit(ExitCode.FAILURE)


def _tell(text: str) -> None:
    note(clean_block(text))


def remove(version: Version, config: Config = None, as_json: Json = False) -> None:
    from pipeline.lean.toolchain.toolchains import ToolchainBusyError, ToolchainError

    wanted = _version(version)
    instance = locate(config)
    cache = _cache(instance)
    try:
        removed = cache.remove(wanted)
    except ToolchainBusyError as error:
        raise CliError(str(error), code=ExitCode.ALREADY_RUNNING) from error
    except ToolchainError as error:
        raise CliError(clean(str(error))) from error
    if as_json:
        emit_json(Removed(removed.toolchain, removed.folder, removed.size_bytes), instance.head)
        return
    say(f"{removed.toolchain}: removed from {cache.folder} ({size(removed.size_bytes)})")
    if removed.sysroot:
        say(f"elan's own copy of Lean stays: elan toolchain uninstall {removed.toolchain}")


def _version(text: str) -> LeanVersion:
    from pipeline.lean.toolchain.toolchains import VersionError, parse_version

    try:
        return parse_version(text)
    except VersionError as error:
        raise typer.BadParameter(str(error), param_hint="VERSION") from error


def _cache(instance: Instance) -> Toolchains:
    from pipeline.lean.toolchain.toolchains import Toolchains

    return Toolchains(instance.paths.toolchains)


def _settings(instance: Instance) -> Settings:
    from daemon.settings import ConfigError, load

    try:
        return load(instance.config)
    except ConfigError as error:
        raise CliError(
            f"{clean(error.errors[0])}; `everlean config check` lists every mistake", code=ExitCode.BAD_CONFIG
        ) from error


def _described(cache: Toolchains, item: Toolchain, problem: str) -> Build:
    return of_row(
        Build,
        item,
        version=item.version.release,
        state="damaged" if problem else "ok",
        problem=problem,
        built_at=item.built_at or None,
        pids=list(cache.users(item.version)),
    )


def _need(item: Need) -> NeededLean:
    branches = [NeedingBranch(repository, branch) for repository, branch in item.branches]
    return of_row(NeededLean, item, branches=branches, kind=item.backend.kind)


def _show(
    cache: Toolchains,
    found: list[tuple[Toolchain, str]],
    needed: tuple[Need, ...] | None,
    *,
    checked: bool,
) -> None:
    if found:
        damaged = sum(bool(problem) for _, problem in found)
        state = f", {damaged} damaged" if damaged else ", every file as it was built" if checked else ""
        say(f"{counted(len(found), 'build')} in {cache.folder}{state}")
        rows = []
        for item, problem in found:
            users = cache.users(item.version)
            rows.append(
                (
                    item.version.release,
                    problem or (f"ok, used by {counted(len(users), 'job')}" if users else "ok"),
                    item.says,
                    item.revision[:12],
                    ago(item.built_at) if item.built_at else "unknown",
                    size(item.size_bytes),
                )
            )
        table(("VERSION", "STATE", "PANTOGRAPH", "REVISION", "BUILT", "SIZE"), rows)
        for item, problem in found:
            if problem:
                say(
                    f"{item.version} is not used: run `everlean toolchain install {item.version}` to make it anew"
                )
    else:
        say(f"no builds in {cache.folder}")
    if needed is None:
        say("no daemon has recorded yet what the watched repositories need")
        return
    for need in needed:
        names = [f"{repository} ({branch})" for repository, branch in need.branches]
        label = need.version or (clean(need.toolchain) if need.toolchain else "no lean-toolchain")
        say(f"{label}: needed by {clean(listed(names, 3))}")
        say(f"  {'' if need.met else 'missing: '}{clean(need.detail)}")


_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "missing": ("missing", "red")}


def doctor(config: Config = None, as_json: Json = False) -> None:
    from daemon.doctor import LEAN, examine

    findings = examine(config)
    lacking = [item for item in findings if item.essential and item.verdict == "missing"]
    proves = all(item.verdict != "missing" for item in findings if item.name == LEAN)
    if as_json:
        emit_json(Examination(proves and not lacking, findings))
    else:
        others = sum(item.verdict != "ok" for item in findings) - len(lacking)
        if lacking:
            say(
                styled(f"everlean cannot run here: {', '.join(item.name for item in lacking)}", "bold", "red")
            )
        elif not proves:
            say(
                styled(
                    "everlean can watch here and prove nothing: there is no Lean (everlean setup)",
                    "bold",
                    "red",
                )
            )
        else:
            rest = f"; {counted(others, 'optional thing')} could be better" if others else ""
            say(styled(f"everlean can run here{rest}", "bold"))
        width = max(len(item.name) for item in findings)
        for item in findings:
            mark, colour = _MARKS[item.verdict]
            say(f"  {styled(f'{mark:<7}', colour)}  {item.name:<{width}}  {clean(item.detail)}")
            if item.remedy:
                say(f"{' ' * (width + 13)}-> {clean(item.remedy)}")
    if lacking or not proves:
        raise typer.Exit(ExitCode.FAILURE)


@dataclass(frozen=True, slots=True)
class Examination:
    ok: bool
    """nothing essential is missing, and there is a Lean"""
    checks: list[Finding]
    """the checks, in order"""


def check_node(as_json: Json = False) -> None:
    from daemon.doctor import ray_problem
    from daemon.jobs.gpus import cuda_is_there
    from daemon.jobs.node import examined
    from daemon.jobs.node_files import node_paths
    from daemon.jobs.wire import WireLean

    found = examined(node_paths(), WireLean(kind="server", toolchain="", sandbox="bubblewrap", as_root=True))
    problems = list(found.problems)
    ray = ray_problem()
    problems += [ray] if ray else []
    leans = [NodeLean(kind, toolchain) for kind, toolchain in found.leans]
    at = datetime.fromtimestamp(found.clock, UTC).isoformat(timespec="seconds")
    answer = NodeCheck(
        not problems,
        found.host,
        found.version,
        at,
        found.folder,
        found.free_bytes,
        leans,
        cuda_is_there(),
        problems,
    )
    if as_json:
        emit_json(answer)
    else:
        say(
            styled(
                f"{found.host} {'can' if answer.ok else 'cannot'} run jobs of a daemon on another machine",
                "bold",
            )
        )
        for problem in problems:
            say(f"  -> {clean(problem)}")
        say(f"  {found.version}; {at}; {clean(found.folder)}: {found.free_bytes / 2**30:.1f} GiB free")
        for lean in leans:
            say(f"  Lean: {clean(lean.toolchain or 'version unknown')} ({lean.kind})")
        if not leans:
            say("  no Lean: it can scan, if the daemon's machine has none either")
    if problems:
        raise typer.Exit(ExitCode.FAILURE)


@dataclass(frozen=True, slots=True)
class NodeLean:
    kind: str
    """`pantograph` or `server`"""
    toolchain: str
    """as `lean-toolchain` names it"""


@dataclass(frozen=True, slots=True)
class NodeCheck:
    ok: bool
    """nothing keeps it from running jobs; the daemon also compares versions, clock and Lean with its own"""
    host: str
    version: str
    """of everlean and Python: a node has to have the daemon's"""
    clock: str
    """UTC; more than a minute away from the daemon's is too far"""
    folder: str
    """where it works: `$EVERLEAN_NODE_FOLDER`, else `~/.cache/everlean-node`"""
    free_bytes: int
    """on the folder's disk"""
    leans: list[NodeLean]
    """the Lean backends installed here; a node needs every one that the daemon's machine has"""
    gpu: bool
    """there is one, which no job of another machine uses yet"""
    problems: list[str]
    """why jobs cannot run here, each with its remedy"""


def version(config: Config = None, as_json: Json = False) -> None:  # noqa: ARG001 - as every verb
    if as_json:
        emit_json(Versions(metadata.version("everlean"), platform.python_version(), sqlite3.sqlite_version))
        return
    say(version_text())


@dataclass(frozen=True, slots=True)
class Versions:
    version: str
    """of everlean"""
    python: str
    """of the interpreter"""
    sqlite: str
    """of the library"""


def version_text() -> str:
    """The line that `everlean version` and `everlean --version` show."""
    return (
        f"everlean {metadata.version('everlean')} (Python {platform.python_version()},"
        f" SQLite {sqlite3.sqlite_version})"
    )

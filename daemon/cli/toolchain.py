"""`unsorry toolchain`: the REPL builds for Lean versions: which there are, which are needed; make and remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.context import CliError, Config, ExitCode, Instance, Json, locate, view
from daemon.cli.render import (
    ago,
    clean,
    clean_block,
    counted,
    emit_json,
    fields,
    note,
    say,
    size,
    span,
    table,
)

if TYPE_CHECKING:
    from daemon.requirements import Need
    from daemon.settings import Settings
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


def list_(
    check: Annotated[
        bool, typer.Option("--check", help="Read every file and compare it with what was built.")
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from pipeline.lean.toolchain.toolchains import REVISIONS, find_elan

    instance = locate(config)
    settings, cache = _settings(instance), _cache(instance)
    found = [(item, cache.check(item) if check else item.problem) for item in cache.installed()]
    needed = _needs(instance, settings)
    elan = find_elan()
    if as_json:
        emit_json(
            {
                "daemon": instance.daemon_json,
                "folder": cache.folder,
                "elan": elan,
                "checked": check,
                "toolchains": [_described(cache, item, problem) for item, problem in found],
                "needs": None if needed is None else [_need(item) for item in needed],
                "known": [
                    {
                        "version": item.release,
                        "revision": item.sha,
                        "pantograph": item.pantograph,
                        "certain": item.certain,
                        "source": item.source,
                    }
                    for item in REVISIONS
                ],
            }
        )
    else:
        _show(cache, found, needed, checked=check)
        if elan is None:
            say("elan is not installed, so nothing can be installed here: https://github.com/leanprover/elan")
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
        emit_json({"daemon": instance.daemon_json, "made": done.made, "toolchain": made})
        return
    what = f"built in {span(done.toolchain.seconds)}" if done.made else "there already"
    say(f"{done.toolchain.toolchain}: {what}: {done.toolchain.repl}")
    fields((("answers as", done.toolchain.says), ("revision", done.toolchain.revision)))


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
        emit_json(
            {
                "daemon": instance.daemon_json,
                "removed": removed.toolchain,
                "folder": removed.folder,
                "size_bytes": removed.size_bytes,
            }
        )
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
            f"{clean(error.errors[0])}; `unsorry config check` lists every mistake", code=ExitCode.BAD_CONFIG
        ) from error


def _needs(instance: Instance, settings: Settings) -> tuple[Need, ...] | None:
    """Return the Lean versions that the watched branches need; None before a daemon recorded anything."""
    from daemon.requirements import needs
    from pipeline.lean.backend import find_leans

    if not instance.paths.database_db.exists():
        return None
    lean = settings.lean
    leans = find_leans(
        backend=lean.backend,
        repl=lean.repl,
        sandbox=lean.sandbox,
        toolchains=instance.paths.toolchains,
        as_root=lean.as_root,
    )
    with view(instance, quiet=True) as database:
        return needs(database, leans)


def _described(cache: Toolchains, item: Toolchain, problem: str) -> dict[str, Any]:
    return {
        "toolchain": item.toolchain,
        "version": item.version.release,
        "state": "damaged" if problem else "ok",
        "problem": problem,
        "folder": item.folder,
        "sysroot": item.sysroot,
        "revision": item.revision,
        "source": item.source,
        "says": item.says,
        "built_at": item.built_at or None,
        "seconds": item.seconds,
        "size_bytes": item.size_bytes,
        "pids": list(cache.users(item.version)),
    }


def _need(item: Need) -> dict[str, Any]:
    return {
        "toolchain": item.toolchain,
        "version": item.version,
        "branches": [{"repository": repository, "branch": branch} for repository, branch in item.branches],
        "kind": item.backend.kind,
        "detail": item.detail,
    }


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
                    f"{item.version} is not used: run `unsorry toolchain install {item.version}` to make it anew"
                )
    else:
        say(f"no builds in {cache.folder}")
    if needed is None:
        say("no daemon has recorded yet what the watched repositories need")
        return
    for need in needed:
        names = [f"{repository} ({branch})" for repository, branch in need.branches]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        label = need.version or (clean(need.toolchain) if need.toolchain else "no lean-toolchain")
        say(f"{label}: needed by {clean(', '.join(names[:3]))}{more}")
        say(f"  {'' if need.met else 'missing: '}{clean(need.detail)}")

"""`everlean config`: check the file, or show the settings in force with their sources."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import GROUPS, Call, CliError, ExitCode, verb
from daemon.cli.render import note, say, styled
from store.text import clean, counted

if TYPE_CHECKING:
    from daemon.settings import Settings
    from daemon.settings.explained import Explained
    from daemon.settings.in_force import SettingInForce

GROUPS["config"] = "Check the configuration, show it, or explain a setting."
_ERROR = re.compile(r"(?P<file>.*?):(?P<line>\d+): (?P<setting>.*?): (?P<message>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Mistake:
    """All but the message is null if the message names no place."""

    file: str | None
    line: int | None
    setting: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Judged:
    path: Path
    valid: bool
    """whether it has no mistake"""
    errors: list[Mistake]
    """its mistakes"""
    repositories: int | None = None
    """the number of watched repositories (only if valid)"""


@dataclass(frozen=True, slots=True)
class InForce:
    path: Path
    digest: str
    """SHA-256 of the file's bytes"""
    settings: list[SettingInForce]
    """all of them"""
    folders: dict[str, str]
    """`state`, `cache`, `runtime`, as resolved"""
    github_token: str | None
    """its source, or null"""


@verb("config check", Judged)
def check(call: Call) -> Answer:
    """List every mistake in the configuration; exit 78 if there is one."""
    from daemon.settings import ConfigError, load

    path = call.instance.config
    try:
        settings = load(path)
    except ConfigError as error:
        judged = Judged(path, valid=False, errors=[_parsed(line) for line in error.errors])
        return Answer(judged, "\n".join(map(clean, error.errors)), ExitCode.BAD_CONFIG)
    judged = Judged(path, valid=True, errors=[], repositories=len(settings.repos))

    def write() -> None:
        say(f"{path} is valid: {counted(len(settings.repos), 'repository')}")
        for line in _not_here(settings):
            note(f"everlean: {clean(line)}")

    return Answer(judged, write)


def _not_here(settings: Settings) -> Iterator[str]:
    """Yield the things a valid file names and this machine lacks now."""
    if not settings.repos:
        yield "it watches nothing: `everlean repos add URL` adds a repository"
    for repo in settings.repos:
        if repo.url.startswith("/") and not Path(repo.url).is_dir():
            yield f"{repo.url}: no such folder now; name a clone's folder or a URL"
    if settings.notify.command.run and shutil.which(program := settings.notify.command.run[0]) is None:
        yield f"[notify.command] run: {program} is no program here now"
    scheme, separator, _ = settings.log.ship.partition("://")
    if separator:
        from fsspec import available_protocols

        if scheme not in (protocols := available_protocols()):
            near = get_close_matches(scheme, protocols, 1, 0.5)
            hint = f"; is {near[0]}:// meant?" if near else ""
            yield f"[log] ship: fsspec knows no {scheme}://{hint}"


def _parsed(line: str) -> Mistake:
    match = _ERROR.fullmatch(line)
    if match is None:
        return Mistake(None, None, None, line)
    return Mistake(match["file"], int(match["line"]), match["setting"], match["message"])


@dataclass(frozen=True, slots=True)
class Meanings:
    settings: list[Explained]


@verb("config explain", Meanings)
def explain(
    call: Call,  # noqa: ARG001 - it asks nothing of a daemon
    name: Annotated[
        str,
        typer.Argument(metavar="SETTING", help="A setting such as notify.digest, or a table such as notify."),
    ],
) -> Answer:
    """Explain a setting, or all of a table: its default, its limits, when to change it."""
    from daemon.settings.explained import explained

    every = explained()
    result = [one for one in every if one.name == name or one.table.strip("[]") == name]
    if not result:
        names = {one.name for one in every} | {one.table.strip("[]") for one in every}
        near = get_close_matches(name, names, 1) or [one for one in sorted(names) if one.endswith(f".{name}")]
        hint = f"; is {near[0]} meant?" if near else "; `everlean config show` lists all"
        raise CliError(f'no setting and no table is called "{name}"{hint}')

    def write() -> None:
        for one in result:
            say(f"{styled(one.name, 'bold')} = {one.default_text.replace('`', '')}")
            say(f"  {one.meaning}")

    return Answer(Meanings(result), write)


@verb("config show", InForce)
def show(call: Call) -> Answer:
    """Show every setting in force and the line that sets it."""
    from daemon.settings.in_force import effective, token_source

    settings = call.settings
    folders = {name: str(getattr(settings.paths, name)) for name in ("state", "cache", "runtime")}
    result = InForce(
        call.instance.config, settings.digest, effective(settings), folders, token_source(settings)
    )
    return Answer(result, lambda: _show(result))


def _show(document: InForce) -> None:
    say(styled(f"# {document.path}", "dim"), wrap=False)
    width = max(len(f"{item.name} = {item.toml}") for item in document.settings)
    for item in document.settings:
        origin = f"line {item.line}" if item.line is not None else "default"
        setting = clean(f"{item.name} = {item.toml}").ljust(min(width, 60))
        say(f"{setting}  {styled('# ' + origin, 'dim')}", wrap=False)
    for name, folder in document.folders.items():
        say(styled(f"# {name} folder: {folder}", "dim"), wrap=False)
    say(styled(f"# GitHub token: {document.github_token or 'none'}", "dim"))

"""`everlean config`: check the file, or show what is in force and where each value comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from daemon.cli.context import Config, ExitCode, Json, locate
from daemon.cli.render import emit_json, note, say, styled
from store.text import clean, counted

if TYPE_CHECKING:
    from daemon.settings import ConfigError, Settings
    from daemon.settings.in_force import SettingInForce

_ERROR = re.compile(r"(?P<file>.*?):(?P<line>\d+): (?P<setting>.*?): (?P<message>.*)", re.DOTALL)


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Check the configuration, or show it.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command("check", help="List every mistake in the configuration; exit 78 if there is one.")(check)
    group.command("show", help="Show every setting in force and the line that sets it.")(show)
    app.add_typer(group, name="config")


@dataclass(frozen=True, slots=True)
class Mistake:
    """All but the message is null where the message names no place."""

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
    """how many it watches (only if valid)"""


@dataclass(frozen=True, slots=True)
class InForce:
    path: Path
    digest: str
    """SHA-256 of the file's bytes"""
    settings: list[SettingInForce]
    """all of them"""
    folders: dict[str, str]
    """`state`, `cache`, `runtime`, as they come out"""
    github_token: str | None
    """where it would come from, or null"""


def check(config: Config = None, as_json: Json = False) -> None:
    from daemon.settings import ConfigError, load

    instance = locate(config)
    try:
        settings = load(instance.config)
    except ConfigError as error:
        if as_json:
            emit_json(Judged(instance.config, valid=False, errors=[_parsed(line) for line in error.errors]))
        else:
            for line in error.errors:
                say(clean(line))
        raise typer.Exit(ExitCode.BAD_CONFIG) from error
    if as_json:
        emit_json(Judged(instance.config, valid=True, errors=[], repositories=len(settings.repos)))
        return
    say(f"{instance.config} is valid: {counted(len(settings.repos), 'repository')}")
    for url in (
        repo.url for repo in settings.repos if repo.url.startswith("/") and not Path(repo.url).is_dir()
    ):
        note(f"everlean: {clean(url)}: no such folder now; name a clone's folder or a URL")


def show(config: Config = None, as_json: Json = False) -> None:
    from daemon.settings.in_force import effective, token_source

    instance = locate(config)
    settings = loaded(instance.config)
    shown = effective(settings)
    folders = {name: str(getattr(settings.paths, name)) for name in ("state", "cache", "runtime")}
    token = token_source(settings)
    if as_json:
        emit_json(InForce(instance.config, settings.digest, shown, folders, token))
        return
    say(styled(f"# {instance.config}", "dim"))
    width = max(len(f"{item.name} = {item.toml}") for item in shown)
    for item in shown:
        origin = f"line {item.line}" if item.line is not None else "default"
        say(f"{clean(f'{item.name} = {item.toml}'):<{min(width, 60)}}  {styled('# ' + origin, 'dim')}")
    for name, folder in folders.items():
        say(styled(f"# {name} folder: {folder}", "dim"))
    say(styled(f"# GitHub token: {token or 'none'}", "dim"))


def refuse(error: ConfigError) -> None:
    """Write the mistakes to standard error, one a line."""
    for line in error.errors:
        note(clean(line))


def loaded(config: Path) -> Settings:
    """Load the settings; with mistakes in them, name each and end with the code for that."""
    from daemon.settings import ConfigError, load

    try:
        return load(config)
    except ConfigError as error:
        refuse(error)
        raise typer.Exit(ExitCode.BAD_CONFIG) from error


def _parsed(line: str) -> Mistake:
    match = _ERROR.fullmatch(line)
    if match is None:
        return Mistake(None, None, None, line)
    return Mistake(match["file"], int(match["line"]), match["setting"], match["message"])

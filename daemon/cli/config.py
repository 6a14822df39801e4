"""`everlean config`: check the file, or show what is in force and where each value comes from."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from daemon.cli.context import Config, ExitCode, Json, locate
from daemon.cli.render import emit_json, note, say, styled
from store.text import clean, counted

if TYPE_CHECKING:
    from pydantic import BaseModel

    from daemon.settings import ConfigError, Settings

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
class SettingInForce:
    name: str
    value: object
    """durations in seconds, sizes in bytes"""
    toml: str
    """as one would write it"""
    origin: Literal["default", "file"]
    line: int | None


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
    from daemon.settings import ConfigError, load

    instance = locate(config)
    try:
        settings = load(instance.config)
    except ConfigError as error:
        refuse(error)
        raise typer.Exit(ExitCode.BAD_CONFIG) from error
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


def effective(settings: Settings) -> list[SettingInForce]:
    """Return every setting: its name, its value in the models' unit, as TOML, and the line that sets it."""
    from daemon.settings.schema import ConfigFile, RepoEntry

    found = []
    for section in ConfigFile.model_fields:
        if section == "repos":
            continue
        found += _table(settings, (section,), getattr(settings, section))
    for index, repo in enumerate(settings.repos):
        for attribute, setting in RepoEntry.model_fields.items():
            key = setting.alias or attribute
            found.append(_item(settings, ("repos", index, key), attribute, getattr(repo, attribute)))
    return found


def _table(settings: Settings, location: tuple[str | int, ...], values: BaseModel) -> list[SettingInForce]:
    """The settings of a table, and after them those of the tables below it."""
    found, below = [], []
    for attribute, setting in type(values).model_fields.items():
        at, value = (*location, setting.alias or attribute), getattr(values, attribute)
        if hasattr(type(value), "model_fields"):
            below += _table(settings, at, value)
        elif isinstance(value, tuple) and value and hasattr(type(value[0]), "model_fields"):
            for index, table in enumerate(value):
                below += _table(settings, (*at, index), table)
        else:
            found.append(_item(settings, at, attribute, value))
    return found + below


def token_source(settings: Settings) -> str | None:
    """Describe where the GitHub token would come from; never the token."""
    from daemon.settings.schema import TOKEN_CREDENTIAL, TOKEN_VARIABLE

    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if folder and (Path(folder) / TOKEN_CREDENTIAL).is_file():
        return f"systemd credential {TOKEN_CREDENTIAL}"
    if settings.github.token_file:
        return f"file {settings.github.token_file}"
    return f"environment variable {TOKEN_VARIABLE}" if os.environ.get(TOKEN_VARIABLE, "").strip() else None


def _item(settings: Settings, location: tuple[str | int, ...], attribute: str, value: Any) -> SettingInForce:
    from daemon.settings.errors import setting_name

    line = settings.line(location)
    toml = toml_of(attribute, str(location[-1]), value)
    return SettingInForce(setting_name(location), value, toml, "default" if line is None else "file", line)


def toml_of(attribute: str, key: str, value: Any) -> str:
    """Return a value as config.toml writes it."""
    from daemon.settings.types import format_duration, format_size

    if attribute == f"{key}_points":
        return f"{value:g}"
    if value is None:
        return '""'
    if attribute.endswith("_s") or attribute.startswith("seconds_"):
        return f'"{format_duration(value)}"'
    if isinstance(value, float):
        return f"{value:g}"
    if attribute == f"{key}_bytes":
        return f'"{format_size(value)}"'
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _parsed(line: str) -> Mistake:
    match = _ERROR.fullmatch(line)
    if match is None:
        return Mistake(None, None, None, line)
    return Mistake(match["file"], int(match["line"]), match["setting"], match["message"])

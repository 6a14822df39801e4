"""The settings in force, each as TOML with its line in the file, and the source of the GitHub token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from daemon.settings import Settings
from daemon.settings.errors import setting_name
from daemon.settings.schema import ConfigFile, RepoEntry
from daemon.settings.types import key_of, toml_of
from pipeline.endpoint.credentials import key_source


@dataclass(frozen=True, slots=True)
class SettingInForce:
    name: str
    value: object
    """durations in seconds, sizes in bytes"""
    toml: str
    """the value in TOML"""
    origin: Literal["default", "file"]
    line: int | None


def effective(settings: Settings) -> list[SettingInForce]:
    """Return every setting: its name, its value in the models' unit and as TOML, and its line in the file."""
    result = []
    for section in ConfigFile.model_fields:
        if section == "repos":
            continue
        result += _table(settings, (section,), getattr(settings, section))
    for index, repo in enumerate(settings.repos):
        for attribute, setting in RepoEntry.model_fields.items():
            at = ("repos", index, key_of(attribute))
            result.append(_item(settings, at, setting, getattr(repo, attribute)))
    return result


def _table(settings: Settings, location: tuple[str | int, ...], values: BaseModel) -> list[SettingInForce]:
    """Return the settings of a table, and after them those of the tables below it."""
    result, below = [], []
    for attribute, setting in type(values).model_fields.items():
        at, value = (*location, key_of(attribute)), getattr(values, attribute)
        if hasattr(type(value), "model_fields"):
            below += _table(settings, at, value)
        elif isinstance(value, tuple) and value and hasattr(type(value[0]), "model_fields"):
            for index, table in enumerate(value):
                below += _table(settings, (*at, index), table)
        else:
            result.append(_item(settings, at, setting, value))
    return result + below


def token_source(settings: Settings) -> str | None:
    """Describe the source of the GitHub token; never the token."""
    return next(filter(None, map(key_source, settings.github.token_places)), None)


def _item(
    settings: Settings, location: tuple[str | int, ...], setting: FieldInfo, value: Any
) -> SettingInForce:
    line = settings.line(location)
    origin: Literal["default", "file"] = "default" if line is None else "file"
    return SettingInForce(setting_name(location), value, toml_of(setting, value), origin, line)

"""What the sections of config.toml are made of: a frozen model, texts, flags, durations, sizes, paths.

The reading itself is `daemon.settings_types`'; here are its pydantic faces, for `daemon.settings_models` and its like.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Strict, ValidationInfo

from daemon.settings_types import check_branch, check_glob, check_host, parse_duration, parse_size


class Section(BaseModel):
    """A table of the file: unknown names are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def duration(*, minimum_s: float, maximum_s: float, example: str) -> Callable[[Any], Any]:
    """Return the reader of a duration within limits, in seconds."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            shown = "true" if value is True else "false" if value is False else value
            raise ValueError(
                f'must be a string with a unit (got {shown}); write a duration such as "{example}"'
            )
        return parse_duration(value, minimum_s=minimum_s, maximum_s=maximum_s, example=example)

    return read


def size(*, minimum_bytes: int, example: str) -> Callable[[Any], Any]:
    """Return the reader of a size in bytes."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f'must be a string with a unit (got {value}); write a size such as "{example}"')
        return parse_size(value, minimum_bytes=minimum_bytes, example=example)

    return read


def left_out(value: Any) -> Any:
    """Read "" as a setting that is left out."""
    return None if value == "" else value


def base_of(info: ValidationInfo) -> Path:
    """Return the folder of the configuration file, which relative paths are relative to."""
    context = info.context or {}
    base = context.get("base", Path())
    return base if isinstance(base, Path) else Path()


def model_name(value: str, info: ValidationInfo) -> str:
    """Return the name of a model: of the hub as it is, of a folder as a whole path."""
    if not value.startswith((".", "~", "/")):
        return value
    return os.path.normpath(base_of(info) / Path(value).expanduser())


def table_list(value: Any) -> Any:
    """Read TOML's lists as tuples; anything else is pydantic's to refuse."""
    return tuple(value) if isinstance(value, list) else value


Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
ModelName = Annotated[Text, AfterValidator(model_name)]
Globs = Annotated[tuple[Annotated[Text, AfterValidator(check_glob)], ...], BeforeValidator(table_list)]
Hosts = Annotated[tuple[Annotated[Text, AfterValidator(check_host)], ...], BeforeValidator(table_list)]
Branches = Annotated[tuple[Annotated[Text, AfterValidator(check_branch)], ...], BeforeValidator(table_list)]

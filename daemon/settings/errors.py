"""Report a wrong config.toml: every mistake at once, each as `file:line: setting: reason; remedy`.

Turns pydantic's and tomllib's errors into those lines. Values are quoted only if they cannot hold a secret.
tomllib keeps no positions, so accepted text is walked again for the line of every key and table.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic_core import PydanticUndefined

from daemon.settings.types import toml_of

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

_TOML_POSITION = re.compile(r"(.*?) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_SECRET_NAMES = ("token", "password", "secret", "api_key", "apikey", "key", "github_token")
_PROGRAMS = {
    "string_type": "must be a string in quotes",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "tuple_type": "must be a list in square brackets",
}


_BOUNDS = {
    "greater_than_equal": "at least",
    "less_than_equal": "at most",
    "greater_than": "more than",
    "less_than": "less than",
}


class ConfigError(Exception):
    """The configuration is not valid.

    `errors` holds one line for each mistake, in file order; `digest` is the SHA-256 of the file as read.
    """

    def __init__(self, errors: tuple[str, ...], *, path: Path, digest: str) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors
        self.path = path
        self.digest = digest


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake: its place and its message."""

    line: int
    setting: str
    message: str

    def render(self, name: str) -> str:
        return f"{name}:{self.line}: {self.setting}: {self.message}"


def setting_name(location: Location) -> str:
    """Return a setting's name for people: ("repos", 0, "every") -> repos[0].every."""
    name = ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            name += f".{part}" if name else part
    return name


def syntax_error(error: tomllib.TOMLDecodeError, *, name: str, text: str) -> str:
    """Return the line for a file with invalid TOML."""
    match = _TOML_POSITION.fullmatch(str(error))
    if match is None:
        reason, line, column = str(error), 1, ""
    elif match[2]:
        reason, line, column = match[1], int(match[2]), f" at column {match[3]}"
    else:
        reason, line, column = match[1], text.count("\n") + 1, " at the end of the file"
    reason = reason[:1].lower() + reason[1:]
    return f'{name}:{line}: syntax: {reason}{column}; correct the line, strings are in quotes: every = "5m"'


def mistakes(
    error: ValidationError, *, model: type[BaseModel], lines: Mapping[Location, int]
) -> list[Mistake]:
    """Translate pydantic's errors."""
    result = []
    for details in error.errors(include_url=False):
        # A wrong key of a table has no place of its own for pydantic, which adds a part.
        location = tuple(part for part in details["loc"] if part != "[key]")
        message = _message(details, location, model=model)
        result.append(Mistake(line_of(lines, location), setting_name(location), message))
    return result


def suggestion(name: str, names: Collection[str]) -> str:
    """Return the nearest name, or the list of names."""
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"the names here are {', '.join(names)}"


def _message(details: ErrorDetails, location: Location, *, model: type[BaseModel]) -> str:
    kind = details["type"]
    fields, field = _field_at(location, model)
    name = str(location[-1])
    if kind == "extra_forbidden":
        if name.lower() in _SECRET_NAMES:
            return f"the configuration must not contain a secret; {_place_of_a_secret(location)}"
        return f"is no known setting; {suggestion(name, fields)}"
    if kind == "value_error":
        return details["msg"].removeprefix("Value error, ")
    example = _example(field, next(str(part) for part in reversed(location) if isinstance(part, str)))
    if kind == "missing":
        return f"is required; write {example}"
    got = _excerpt(details["input"])
    if kind == "literal_error":
        choices = re.findall("'([^']*)'", details["ctx"]["expected"])
        near = difflib.get_close_matches(str(details["input"]).lower(), choices, n=1)
        remedy = f'did you mean "{near[0]}"?' if near else f"write {example}"
        return f"must be one of {', '.join(choices)} (got {got}); {remedy}"
    if kind in _BOUNDS:
        word = _BOUNDS[kind]
        limit = next(iter(details["ctx"].values()))
        return f"must be {word} {limit} (got {got}); write {example}"
    if kind in ("model_type", "model_attributes_type"):
        if location[:1] == ("repos",):
            return f'must be a table (got {got}); write [[repos]] and below it url = "https://…"'
        return f"must be a table (got {got}); write [{setting_name(location)}] and the settings below it"
    if kind == "tuple_type" and location == ("repos",):
        return "must be an array of tables; write [[repos]] with two brackets on each side"
    if kind in _PROGRAMS:
        return f"{_PROGRAMS[kind]} (got {got}); write {example}"
    return f"{details['msg'][:1].lower()}{details['msg'][1:]}; write {example}"


def _place_of_a_secret(location: Location) -> str:
    match location[:1]:
        case ("prove",):
            return (
                "make it a credential of the service, and name that: "
                '[prove.external] credential = "everlean-model-key"'
            )
        case ("serve",):
            return 'put it in a file of mode 600 and name that file: [serve] token_file = "serve-token"'
        case ("notify",):
            return "make it the service's credential everlean-notify-secret, or its variable EVERLEAN_NOTIFY_SECRET"
    return 'put it in a file of mode 600 and name that file: [github] token_file = "github-token"'


def _field_at(location: Location, model: type[BaseModel]) -> tuple[dict[str, FieldInfo], FieldInfo | None]:
    """Return the fields of the location's table, and the last field named on the way."""
    fields = fields_of(model)
    field: FieldInfo | None = None
    for part in location[:-1]:
        if isinstance(part, str) and part in fields:
            field = fields[part]
            fields = fields_of(_table_of(field.annotation))
    return fields, fields.get(str(location[-1]), field)


def _table_of(annotation: Any) -> Any:
    """Return the model in a type: the type itself, or that of the tables in a list or in a table."""
    if hasattr(annotation, "model_fields"):
        return annotation
    return next(filter(None, map(_table_of, get_args(annotation))), None)


def fields_of(model: Any) -> dict[str, FieldInfo]:
    """Return the settings of a table by their names in the file; none without a table."""
    return {field.alias or name: field for name, field in getattr(model, "model_fields", {}).items()}


def _example(field: FieldInfo | None, name: str) -> str:
    value = field.examples[0] if field and field.examples else field and field.default
    if field is None or value in ("", None, PydanticUndefined):
        return f"{name} as docs/configuration.md says"
    return f"for instance {field.alias} = {toml_of(field, value)}"


def _excerpt(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # Only a URL can carry a token by mistake, and URLs are reported by their own check.
            return '"…"' if "://" in value or "@" in value else f'"{value[:60]}"'
        case int() | float():
            return str(value)
        case list() | tuple():
            return "[" + ", ".join(_excerpt(item) for item in value[:3]) + (", …]" if len(value) > 3 else "]")
        case dict():
            return "a table"
    return type(value).__name__


Location = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_OTHER_VALUE = re.compile(r"[^,\]}#\n]*")


def line_index(text: str) -> dict[Location, int]:
    """Map the location of every key, table and array element to its line, counted from 1.

    ("repos", 0, "every") is `every` in the first [[repos]] table, in any notation.
    """
    return _Walk(text).run()


def line_of(lines: Mapping[Location, int], location: Location) -> int:
    """Return the line of the location, or of its nearest parent with a line."""
    for end in range(len(location), 0, -1):
        if location[:end] in lines:
            return lines[location[:end]]
    return 1


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: dict[Location, int] = {}
        self._tables_in: dict[Location, int] = {}  # array of tables -> how many tables so far
        self._counted_to = 0
        self._line = 1

    def run(self) -> dict[Location, int]:
        prefix: Location = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                prefix = self._header()
            else:
                self._key_and_value(prefix)
            self._skip(_BLANK)
        return self._lines

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match.group()

    def _note(self, location: Location) -> None:
        self._line += self._text.count("\n", self._counted_to, self._at)
        self._counted_to = self._at
        self._lines.setdefault(location, self._line)

    def _header(self) -> Location:
        double = self._text.startswith("[[", self._at)
        self._at += 2 if double else 1
        self._skip(_SPACE)
        parts = self._key()
        location: Location = ()
        for part in parts[:-1] if double else parts:
            location = self._latest((*location, part))
        if double:
            array = (*location, parts[-1])
            self._note(array)
            index = self._tables_in.get(array, 0)
            self._tables_in[array] = index + 1
            location = (*array, index)
        self._note(location)
        self._at += 2 if double else 1
        return location

    def _latest(self, location: Location) -> Location:
        """Return the newest table of an array of tables, as a header below the array means it."""
        count = self._tables_in.get(location)
        return location if count is None else (*location, count - 1)

    def _key(self) -> tuple[str, ...]:
        parts: list[str] = []
        while True:
            if self._text[self._at] in "\"'":
                quoted = self._skip(_STRING)
                parts.append(str(tomllib.loads(f"key = {quoted}")["key"]))
            else:
                parts.append(self._skip(_BARE_KEY))
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return tuple(parts)
            self._at += 1
            self._skip(_SPACE)

    def _key_and_value(self, prefix: Location) -> None:
        location = prefix
        start = self._at
        parts = self._key()
        end, self._at = self._at, start
        for part in parts:
            location = (*location, part)
            self._note(location)
        self._at = end + 1  # the equals sign
        self._skip(_SPACE)
        self._value(location)

    def _value(self, location: Location) -> None:
        match self._text[self._at : self._at + 1]:
            case "[":
                self._at += 1
                index = 0
                self._skip(_BLANK)
                while not self._text.startswith("]", self._at):
                    self._note((*location, index))
                    self._value((*location, index))
                    index += 1
                    self._comma()
                self._at += 1
            case "{":
                self._at += 1
                self._skip(_BLANK)
                while not self._text.startswith("}", self._at):
                    self._key_and_value(location)
                    self._comma()
                self._at += 1
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_OTHER_VALUE)

    def _comma(self) -> None:
        self._skip(_BLANK)
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip(_BLANK)

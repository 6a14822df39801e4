"""Read durations, sizes, globs, branch names and URLs of config.toml, with their pydantic fields.

The readers are pure functions: each returns a value or raises ValueError with the reason and the remedy. No
message ever contains a URL's user-info part: people paste tokens there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    Strict,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from pipeline.endpoint.credentials import read_key
from pipeline.endpoint.errors import CredentialError
from pipeline.jobs.spec import KeyPlace
from store.domain.identity import SCP
from store.domain.identity import repository_key as repository_key
from store.events.projects import plain_folder

_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT])(?:i?B)?")
_HOST_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_SIZE_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_duration(text: str) -> float:
    """Return seconds for "90s", "5m", "1h30m", "500ms", "1.5d"."""
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise ValueError(f'is not a duration (got "{text}"); write a duration such as "5m"')
    return sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """Return the shortest text for `parse_duration`: 90.0 -> "1m30s"."""
    if seconds <= 0:
        return "0s"
    rest = round(seconds * 1000)
    text = ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def parse_size(text: str) -> int:
    """Return bytes for "512M", "4G", "1.5G"; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'is not a size (got "{text}"); write a size such as "4G"')
    return int(float(match[1]) * _SIZE_UNITS[match[2]])


def format_size(size_bytes: int) -> str:
    """Return a size in the largest unit with a whole number: 4294967296 -> "4G"."""
    for unit in ("T", "G", "M", "K"):
        if size_bytes >= _SIZE_UNITS[unit] and size_bytes % _SIZE_UNITS[unit] == 0:
            return f"{size_bytes // _SIZE_UNITS[unit]}{unit}"
    return f"{size_bytes / 1024:g}K"


def check_glob(pattern: str) -> str:
    """Return the pattern if it can match a path inside a repository."""
    remedy = 'write a path glob relative to the repository, such as "Mathlib/**/*.lean"'
    parts = pattern.split("/")
    if not pattern.strip():
        reason = "is an empty glob"
    elif pattern.startswith(("/", "~")):
        reason = f'is an absolute path (got "{pattern}")'
    elif "\\" in pattern:
        reason = f'has a backslash (got "{pattern}")'
    elif any(part in ("", ".", "..") for part in parts):
        reason = f'has an empty, "." or ".." part (got "{pattern}")'
    elif any("**" in part and part != "**" for part in parts):
        reason = f'has "**" beside other characters in one part (got "{pattern}")'
    elif not _brackets_close(pattern):
        reason = f'has a "[" that is never closed (got "{pattern}")'
    else:
        return pattern
    raise ValueError(f"{reason}; {remedy}")


def check_host(pattern: str) -> str:
    """Return the host name, or glob of one such as "*.example.org", if it can name a host by name."""
    remedy = 'write a host name such as "github.com", or "*.githubusercontent.com" for all below one'
    labels = pattern.removeprefix("*.").split(".")
    if len(pattern) > 253 or len(labels) < 2 or not all(_HOST_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f'is no host name (got "{pattern}"); {remedy}')
    if labels[-1].isdecimal():
        raise ValueError(f'is an address and no name (got "{pattern}"); {remedy}')
    return pattern.lower()


def check_folder(name: str) -> str:
    """Return the folder of a Lake project in its form everywhere, "" for the root."""
    folder = name.removeprefix("./").rstrip("/")
    if folder == ".":
        return ""
    if not folder or not plain_folder(folder):
        raise ValueError(
            f'is no folder of a repository (got "{name}"); write one with a lakefile, such as "lean4", or "." for the'
            " root"
        )
    return folder


def check_branch(name: str) -> str:
    """Return a branch name or glob if git could have such a branch (git-check-ref-format)."""
    plain = name.removeprefix("refs/heads/")
    if plain != name:
        raise ValueError(f'names a full ref (got "{name}"); write the branch alone: "{plain}"')
    if not name:
        raise ValueError('is an empty name; write a branch such as "main", or a glob such as "release/*"')
    bad = (
        name.startswith(("-", "/", "."))
        or name.endswith(("/", ".", ".lock"))
        or any(text in name for text in ("..", "//", "@{", "/."))
        or any(char in " ~^:\\" or ord(char) < 32 or ord(char) == 127 for char in name)
        or not _brackets_close(name)
    )
    if bad:
        raise ValueError(
            f'is no valid branch name or glob (got "{name}"); write a branch such as "main" or "release/*"'
        )
    return name


def resolve_url(url: str, *, base: Path) -> str:
    """Check a repository URL and return it; a path becomes absolute, relative to `base`.

    Raises:
        ValueError: unknown scheme, embedded credentials, no owner and name, or neither URL nor path.
    """
    remedy = 'write "https://github.com/owner/name", "ssh://git@host/owner/name", "file:///path" or "./path"'
    if not url.strip():
        raise ValueError(f"is empty; {remedy}")
    if any(ord(char) < 32 for char in url):
        raise ValueError(f"has a control character; {remedy}")
    scheme, separator, _ = url.partition("://")
    if not separator:
        return _resolve_schemeless(url, base=base, remedy=remedy)
    match scheme.lower():
        case "https" | "ssh":
            _check_remote(url, remedy=remedy)
            return url
        case "file":
            parts = urlsplit(url)
            if parts.netloc not in ("", "localhost") or len(Path(unquote(parts.path)).parts) < 2:
                raise ValueError('is no local file URL; write three slashes: "file:///srv/git/name"')
            return url
        case "http" | "git":
            raise ValueError(
                f'has the scheme "{scheme}", which anybody on the way can alter; use https or ssh'
            )
    raise ValueError(f'has the unknown scheme "{scheme[:20]}"; {remedy}')


def _resolve_schemeless(url: str, *, base: Path, remedy: str) -> str:
    if url.startswith("~"):
        return str(Path(url).expanduser())
    if url.startswith(("/", "./", "../")) or url in (".", ".."):
        return str((base / url).resolve())
    scp = SCP.fullmatch(url)
    if scp is None or url.startswith("-") or scp["host"].startswith("-"):
        raise ValueError(f"is neither a URL nor a path; {remedy}")
    if ":" in (scp["user"] or "") or scp["path"].startswith(":"):
        raise ValueError(f"carries a password (not shown); {remedy}")
    if len([part for part in scp["path"].split("/") if part]) < 2:
        raise ValueError(f"names no owner and repository; {remedy}")
    return url


def _check_remote(url: str, *, remedy: str) -> None:
    try:
        parts = urlsplit(url)
        host, password, _ = parts.hostname, parts.password, parts.port
    except ValueError:
        # `from None`: urllib's own message quotes the unreadable part, perhaps a token.
        raise ValueError(f"is no valid URL; {remedy}") from None
    if password is not None or (parts.scheme.lower() == "https" and "@" in parts.netloc):
        raise ValueError(
            "carries credentials (not shown); take them out of the URL and put the token in the file that"
            " [github] token_file names, or use an ssh url with a key (credential helpers are not asked)"
        )
    # A host that begins with "-" would be an option of ssh (CVE-2017-1000117).
    if not host or host.startswith("-") or parts.netloc.startswith("-"):
        raise ValueError(f"names no host; {remedy}")
    if len([part for part in parts.path.split("/") if part]) < 2:
        raise ValueError(f"names no owner and repository; {remedy}")
    if parts.query or parts.fragment:
        raise ValueError(f'has a part after "?" or "#"; {remedy}')
    if any(part in (".", "..") for part in parts.path.split("/")):
        raise ValueError(f'has a "." or ".." part; {remedy}')


def _brackets_close(pattern: str) -> bool:
    """Return whether every "[" has its "]"; the first character inside may be "]" itself, as in fnmatch."""
    position = 0
    while (start := pattern.find("[", position)) >= 0:
        inside = start + 2 if pattern[start + 1 : start + 2] == "!" else start + 1
        end = pattern.find("]", inside + 1)
        if end < 0:
            return False
        position = end + 1
    return True


_UNITS = ("_s", "_bytes", "_points")


def key_of(attribute: str) -> str:
    """Return an attribute's name in the file, without the unit."""
    return next((attribute.removesuffix(unit) for unit in _UNITS if attribute.endswith(unit)), attribute)


class Section(BaseModel):
    """A table of the file: unknown names are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=key_of)


@dataclass(frozen=True, slots=True)
class Duration:
    """The marker of a setting in seconds, with units in the file; "" is None if None is allowed."""

    least: str
    most: str

    def __str__(self) -> str:
        return f"{self.least} to {self.most}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _read(source, handler, self._seconds)

    def _seconds(self, text: str) -> float:
        seconds = parse_duration(text)
        for limit, beyond in ((self.least, float.__lt__), (self.most, float.__gt__)):
            if beyond(seconds, parse_duration(limit)):
                side = "least" if limit == self.least else "most"
                raise ValueError(
                    f'must be at {side} {limit} (got "{text}"); write a duration such as "{limit}"'
                )
        return seconds


@dataclass(frozen=True, slots=True)
class Size:
    """The marker of a setting in bytes, with units in the file; "" is None if None is allowed."""

    least: str

    def __str__(self) -> str:
        return f"at least {self.least}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _read(source, handler, self._bytes)

    def _bytes(self, text: str) -> int:
        size = parse_size(text)
        if size < parse_size(self.least):
            raise ValueError(
                f'must be at least {self.least} (got "{text}"); write a size such as "{self.least}"'
            )
        return size


def _read(source: Any, handler: GetCoreSchemaHandler, parse: Callable[[str], float]) -> CoreSchema:
    may_be_left_out = NoneType in get_args(source)

    def read(value: Any) -> float | None:
        if may_be_left_out and value in ("", None):
            return None
        if not isinstance(value, str):
            shown = str(value).lower() if isinstance(value, bool) else value
            raise ValueError(f"must be a string with a unit (got {shown}); write it in quotes, with its unit")
        return parse(value)

    return core_schema.no_info_before_validator_function(read, handler(source))


def toml_of(setting: FieldInfo, value: Any) -> str:
    """Return a value of a setting in TOML."""
    if value is None:
        return '""'
    for marker in setting.metadata:
        if isinstance(marker, Duration):
            return f'"{format_duration(value)}"'
        if isinstance(marker, Size):
            return f'"{format_size(value)}"'
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def left_out(value: Any) -> Any:
    """Read "" as a missing setting."""
    return None if value == "" else value


def base_of(info: ValidationInfo) -> Path:
    """Return the folder of the configuration file, the base of relative paths."""
    context = info.context or {}
    base = context.get("base", Path())
    return base if isinstance(base, Path) else Path()


def model_name(value: str, info: ValidationInfo) -> str:
    """Return the name of a model: the hub's as it is, a folder's as a whole path."""
    if not value.startswith((".", "~", "/")):
        return value
    return os.path.normpath(base_of(info) / Path(value).expanduser())


def key_file(value: str, info: ValidationInfo) -> str:
    """Return the whole path of a readable file with a key."""
    if not value:
        return value
    path = os.path.normpath(base_of(info) / Path(value).expanduser())
    try:
        read_key(KeyPlace(file=path), environment={})
    except CredentialError as error:
        raise ValueError(str(error)) from None
    return path


def command_line(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Return a program and its arguments: a name is looked up on PATH at its run; a path becomes whole."""
    if not value:
        return value
    first, *rest = value
    if not first or any("\0" in word for word in value):
        raise ValueError('names no program; write run = ["/usr/local/bin/tell", "--here"]')
    if "/" in first:
        first = os.path.normpath(base_of(info) / Path(first).expanduser())
    return (first, *rest)


def table_list(value: Any) -> Any:
    """Read TOML's lists as tuples; pydantic refuses anything else."""
    return tuple(value) if isinstance(value, list) else value


Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Integer = Annotated[int, Strict()]
ModelName = Annotated[Text, AfterValidator(model_name)]
Globs = Annotated[tuple[Annotated[Text, AfterValidator(check_glob)], ...], BeforeValidator(table_list)]
Folders = Annotated[tuple[Annotated[Text, AfterValidator(check_folder)], ...], BeforeValidator(table_list)]
Hosts = Annotated[tuple[Annotated[Text, AfterValidator(check_host)], ...], BeforeValidator(table_list)]
Branches = Annotated[tuple[Annotated[Text, AfterValidator(check_branch)], ...], BeforeValidator(table_list)]

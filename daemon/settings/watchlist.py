"""Entries of the watchlist added to config.toml and taken out of it, with every other byte of the file left as it is.

The text is changed by its lines and not by a parser's tree: a parser gives the comment above an entry to the entry
before it, and would remove the one with the other. Every change is parsed again before it counts.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.settings import ConfigError, Settings, parse
from store.files import written_whole

_ENTRY = re.compile(r"\s*\[\[\s*repos\s*\]\]")
_HEADER = re.compile(r"\s*\[")

BEGINNING = """\
# everlean: what differs from the defaults. docs/configuration.md describes every setting, `everlean config show` has
# those in force. The daemon reloads this file when it changes; `everlean config check` lists its mistakes.
"""


class EditError(Exception):
    """The file cannot be changed line by line; the message says why and what to do."""


def with_entry(text: str, url: str, *, branches: Sequence[str] = (), every: str | None = None) -> str:
    """Return the text with an entry at its end."""
    lines = ["[[repos]]", f"url = {_quoted(url)}"]
    if branches:
        lines.append(f"branches = [{', '.join(map(_quoted, branches))}]")
    if every is not None:
        lines.append(f"every = {_quoted(every)}")
    return f"{text.rstrip()}\n\n" + "\n".join(lines) + "\n"


def without_entry(text: str, index: int) -> str:
    """Return the text without an entry of the watchlist, its header and settings and nothing else.

    Raises:
        EditError: it is not written as a table of its own.
    """
    lines = text.splitlines(keepends=True)
    entries = [number for number, line in enumerate(lines) if _ENTRY.match(line)]
    before: list[Any] = tomllib.loads(text)["repos"]
    if len(entries) == len(before):
        first = entries[index]
        after = (number for number in range(first + 1, len(lines)) if _HEADER.match(lines[number]))
        end = next(after, len(lines))
        while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
            end -= 1  # a comment above the next entry is the next entry's
        changed = "".join(lines[:first] + lines[end:])
        try:
            if tomllib.loads(changed).get("repos", []) == before[:index] + before[index + 1 :]:
                return changed
        except tomllib.TOMLDecodeError:
            pass
    raise EditError("the entry is not written as a [[repos]] table of its own; take it out by hand")


@dataclass(frozen=True, slots=True)
class LeftOut:
    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class Extended:
    """A text with more entries: the keys of these, and what was left out."""

    text: str
    added: list[str]
    left_out: list[LeftOut]


def with_listed(
    settings: Settings, text: str, listed: Mapping[str, Sequence[str]], *, branches: bool
) -> Extended:
    """Return a text with an entry for each repository of a list that somebody else made.

    Args:
        settings: those of the text.
        listed: the branches that are named of each repository, by its URL.
        branches: watch these, not the default branch.
    """
    known = {repo.key for repo in settings.repos}
    added, left_out = list[str](), list[LeftOut]()
    for url, its in listed.items():
        entry = with_entry("", url, branches=its if branches else ())
        try:
            # A list is another's: no path and no ssh address of it becomes one that this machine opens.
            if not url.startswith("https://"):
                raise ValueError("only https addresses are taken from a list")
            if branches and any(set(name) & set("*?[") for name in its):
                raise ValueError("it names a branch with *, ? or [, which no branch has")
            (repo,) = parse(entry.encode(), path=settings.path).repos
        except (ConfigError, ValueError) as error:
            reasons = error.errors if isinstance(error, ConfigError) else [str(error)]
            left_out.append(LeftOut(url, "; ".join(reasons)))
            continue
        if repo.key in known:
            left_out.append(LeftOut(url, "it is in the watchlist"))
            continue
        known.add(repo.key)
        added.append(repo.key)
        text = f"{text.rstrip()}\n\n{entry.lstrip()}"
    return Extended(text, added, left_out)


def write(path: Path, text: str) -> Settings:
    """Replace the file as a whole by a text that is valid, and return its settings.

    Raises:
        ConfigError: the text has mistakes; nothing is written.
        OSError: the folder cannot be written.
    """
    settings = parse(text.encode(), path=path)
    place = path.resolve()  # a link stays one
    with written_whole(place, mode=0o600) as file:
        file.write(text.encode())
        if place.exists():
            there = place.stat()
            os.fchmod(file.fileno(), there.st_mode & 0o777)
            if (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), there.st_uid, there.st_gid)
        else:
            os.fchmod(file.fileno(), 0o644)
    return settings


def _quoted(text: str) -> str:
    """Return a TOML string; what JSON writes is one."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

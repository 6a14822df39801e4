"""Add and remove entries of config.toml's watchlist, and leave every other byte of the file as it is.

The text is changed by its lines and not by a parser's tree: a parser gives the comment above an entry to the
entry before it, and would remove the one with the other. Every change is parsed again before it counts.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.settings import ConfigError, Settings, parse
from store.documents.lookup import one_of
from store.files import written_whole

_ENTRY = re.compile(r"\s*\[\[\s*repos\s*\]\]")
_HEADER = re.compile(r"\s*\[")
_BRANCHES = re.compile(r"\s*branches\s*=")
_NO_TABLE = "the entry is not written as a [[repos]] table of its own; change it by hand"

BEGINNING = """\
# everlean: what differs from the defaults. docs/configuration.md describes every setting, `everlean config show` has
# those in force. The daemon reloads this file when it changes; `everlean config check` lists its mistakes.
"""


class EditError(Exception):
    """The file cannot be changed line by line; the message has the reason and the remedy."""


class RefusedTextError(EditError):
    """The file cannot be read, or the new text has mistakes; nothing is changed."""


def spelled(url: str) -> str:
    """Return a URL in the file's form.

    An existing folder by its whole path, `github.com/owner/name` with https, `owner/name` as GitHub's.

    Raises:
        EditError: it is the path of a missing folder.
    """
    if "://" not in url and Path(url).expanduser().is_dir():
        return str(Path(url).expanduser().resolve())
    if url.startswith(("/", "./", "../", "~")) or url in (".", ".."):
        raise EditError(f"{url}: no such folder; name a clone's folder or a URL")
    if re.fullmatch(r"[\w.-]+/[\w.-]+", url, re.ASCII):
        return f"https://github.com/{url}"
    bare = "://" not in url and ":" not in url and "@" not in url
    return f"https://{url}" if bare and url.count("/") == 2 and "." in url.split("/")[0] else url


def added(
    path: Path, urls: Iterable[str], *, branches: Sequence[str] = (), every: str | None = None
) -> list[str]:
    """Add repositories to the watchlist of a file, made if missing; return the keys of all.

    Raises:
        EditError: a URL is the path of a missing folder.
        RefusedTextError: the file cannot be read, or has mistakes then.
        OSError: it cannot be written.
    """
    text = _text_of(path) if path.exists() else BEGINNING
    for url in urls:
        text = with_entry(text, spelled(url), branches=branches, every=every)
    return _written(path, text)


def with_more_branches(path: Path, url: str, branches: Sequence[str]) -> tuple[str, list[str]] | None:
    """Add branches to a repository's; return its key and the keys of all, None if it is not watched.

    Raises:
        EditError: it names none, so the default branch would be lost; or it is not written as a table of its
            own.
        RefusedTextError, OSError: see `added`.
    """
    text = _text_of(path)
    try:
        (entry,) = parse(with_entry("", spelled(url)).encode(), path=path).repos
        watched = parse(text.encode(), path=path).repos
    except ConfigError as error:
        raise _refused(error) from error
    index = next((number for number, repo in enumerate(watched) if repo.key == entry.key), None)
    if index is None:
        return None
    if not watched[index].branches:
        example = ", ".join(map(_quoted, ("main", *branches)))
        raise EditError(
            f"{entry.key} is watched on its default branch; to keep that, name it too: write branches = [{example}] "
            f"below its url in {path}"
        )
    every = [*dict.fromkeys([*watched[index].branches, *branches])]
    lines = text.splitlines(keepends=True)
    first, end = _entry_lines(text, index)
    expected: list[Any] = tomllib.loads(text)["repos"]
    expected[index]["branches"] = every
    for place in range(first, end):
        if _BRANCHES.match(lines[place]):
            lines[place] = f"branches = [{', '.join(map(_quoted, every))}]\n"
    changed = "".join(lines)
    try:
        if tomllib.loads(changed)["repos"] == expected:
            return entry.key, _written(path, changed)
    except tomllib.TOMLDecodeError:
        pass
    raise EditError("its branches are not written in one line; add them by hand")


def listed_added(
    path: Path, listed: Mapping[str, Sequence[str]], *, branches: bool
) -> tuple[Extended, list[str]]:
    """Add the repositories of somebody else's list; return the extended text, and the keys of all.

    Raises:
        RefusedTextError, OSError: see `added`.
    """
    text = _text_of(path)
    try:
        settings = parse(text.encode(), path=path)
    except ConfigError as error:
        raise _refused(error) from error
    result = with_listed(settings, text, listed, branches=branches)
    if not result.added:
        return result, [repo.key for repo in settings.repos]
    return result, _written(path, result.text)


def removed(path: Path, name: str) -> tuple[str, list[str]]:
    """Take the repository with this name off the watchlist; return its key, and the keys of the others.

    Raises:
        UnresolvedError: the name fits none, or several.
        EditError: its entry is not written as a table of its own.
        RefusedTextError, OSError: see `added`.
    """
    text = _text_of(path)
    try:
        keys = [repo.key for repo in parse(text.encode(), path=path).repos]
    except ConfigError as error:
        raise _refused(error) from error
    key = one_of(keys, name, lists="everlean config show")
    try:
        changed = without_entry(text, keys.index(key))
    except EditError as error:
        raise EditError(f"{path}: {key}: {error}") from error
    return key, _written(path, changed)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedTextError(f"{path} cannot be read: {error}") from error


def _written(path: Path, text: str) -> list[str]:
    try:
        return [repo.key for repo in write(path, text).repos]
    except ConfigError as error:
        raise _refused(error) from error


def _refused(error: ConfigError) -> RefusedTextError:
    return RefusedTextError("\n".join(["nothing is changed:", *error.errors]))


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
    first, end = _entry_lines(text, index)
    before: list[Any] = tomllib.loads(text)["repos"]
    changed = "".join(lines[:first] + lines[end:])
    try:
        if tomllib.loads(changed).get("repos", []) == before[:index] + before[index + 1 :]:
            return changed
    except tomllib.TOMLDecodeError:
        pass
    raise EditError(_NO_TABLE)


def _entry_lines(text: str, index: int) -> tuple[int, int]:
    """Return the numbers of an entry's first line and of the line behind its last.

    Raises:
        EditError: it is not written as a table of its own.
    """
    lines = text.splitlines()
    entries = [number for number, line in enumerate(lines) if _ENTRY.match(line)]
    if len(entries) != len(tomllib.loads(text)["repos"]):
        raise EditError(_NO_TABLE)
    after = (number for number in range(entries[index] + 1, len(lines)) if _HEADER.match(lines[number]))
    end = next(after, len(lines))
    while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
        end -= 1  # a comment above the next entry is the next entry's
    return entries[index], end


@dataclass(frozen=True, slots=True)
class LeftOut:
    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class Extended:
    """A text with more entries: the keys of these, and the entries left out."""

    text: str
    added: list[str]
    left_out: list[LeftOut]


def with_listed(
    settings: Settings, text: str, listed: Mapping[str, Sequence[str]], *, branches: bool
) -> Extended:
    """Return a text with an entry for each repository of somebody else's list.

    Args:
        settings: those of the text.
        listed: the branches named for each repository, by its URL.
        branches: watch these, not the default branch.
    """
    keys = {repo.key for repo in settings.repos}
    added, left_out = list[str](), list[LeftOut]()
    for url, its in listed.items():
        entry = with_entry("", url, branches=its if branches else ())
        try:
            # A list is another's: this machine opens no path and no ssh address of it.
            if not url.startswith("https://"):
                raise ValueError("only https addresses are taken from a list")
            if branches and any(set(name) & set("*?[") for name in its):
                raise ValueError("it names a branch with *, ? or [, which no branch has")
            (repo,) = parse(entry.encode(), path=settings.path).repos
        except (ConfigError, ValueError) as error:
            reasons = error.errors if isinstance(error, ConfigError) else [str(error)]
            left_out.append(LeftOut(url, "; ".join(reasons)))
            continue
        if repo.key in keys:
            left_out.append(LeftOut(url, "it is in the watchlist"))
            continue
        keys.add(repo.key)
        added.append(repo.key)
        text = f"{text.rstrip()}\n\n{entry.lstrip()}"
    return Extended(text, added, left_out)


def write(path: Path, text: str) -> Settings:
    """Replace the whole file by a valid text, and return its settings.

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
    """Return a TOML string; JSON's form is one."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

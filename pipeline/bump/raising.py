"""Raise `lean-toolchain`, or a package of the manifest and the lakefile, in a worktree.

A lakefile is data here. In a TOML lakefile one string is replaced; the result counts only if the parser finds that
value changed and no other. A Lean lakefile is read by its tokens, along the syntax of `require`; computed values are
refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.bump.requirements import ManifestText, refused, update
from pipeline.lean.build.dependencies import PackageFiles
from pipeline.lean.source.imports import MOST_LAKEFILE_BYTES, read_lakefile_toml
from pipeline.lean.source.lexer import ID_FIRST, Token, tokens_of_text
from pipeline.lean.source.manifest import MANIFEST, MOST_BYTES, GitPackage, ManifestError, bare
from pipeline.lean.source.projects import LAKEFILES, TOOLCHAIN
from pipeline.lean.source.worktree import read_beginning, read_inside
from pipeline.lean.toolchain.versions import is_at_most

_LONGEST_TERM = 200
"""Tokens in brackets."""
_MARK = "#everlean-"
_REV = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_OF_GIT = "git#"
"""Prefix of a revision in a lakefile's version field."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The files of a bump with their old and new contents, and notes for people.

    `toolchain` is the raised package's own, "" if it names none.
    """

    files: dict[str, tuple[bytes, bytes]]
    notes: tuple[str, ...]
    toolchain: str = ""


FilesOf = Callable[[GitPackage], PackageFiles]


def raised(
    project: Path,
    *,
    toolchain: str,
    package: str,
    rev: str,
    files_of: FilesOf,
    schemes: tuple[str, ...] = ("https",),
) -> Raised:
    """Return a bump's changes; nothing is written.

    A package is raised to a full commit id: in the manifest, and in the lakefile if it names a revision. Its
    dependencies take the revisions of `lake update` (`pipeline.bump.requirements`).

    Raises:
        JobError: there is nothing to raise, it is there already, its place cannot be read, or the package is for
            another Lean.
    """
    result: dict[str, tuple[bytes, bytes]] = {}
    notes: list[str] = []
    names = ""
    if toolchain:
        result[TOOLCHAIN] = _read(project, TOOLCHAIN).encode(), toolchain.encode() + b"\n"
    if package:
        files, said = _package(project, package, rev, files_of, schemes, notes)
        result |= files
        names, project_has = said.toolchain, toolchain
        if not toolchain:
            project_has = read_beginning(project, TOOLCHAIN, most_bytes=1000).decode(errors="replace").strip()
        # Lake accepts a package for an earlier Lean. Mathlib's compiled files fit its own Lean alone.
        if project_has and (bare(package) == "mathlib" or not is_at_most(names or project_has, project_has)):
            check_lean(package, rev, names, project_has)
        elif names and names != project_has:
            notes.append(f"{package} at {rev[:12]} is for {names!r}, and the project for {project_has!r}.")
    changed = {path: both for path, both in result.items() if both[0].strip() != both[1].strip()}
    if toolchain and TOOLCHAIN not in changed:
        raise refused(f"the commit has {toolchain} already", "name another version")
    return Raised(changed, tuple(notes), names)


def check_lean(package: str, rev: str, names: str, toolchain: str) -> None:
    """Refuse a package for another Lean than the project's.

    Raises:
        JobError: its own lean-toolchain names another.
    """
    if names and names != toolchain:
        raise refused(
            f"{package} at {rev[:12]} is for {names!r}, and cannot be built with {toolchain}",
            f"raise Lean with it: ask with `--to` its version and `--package {package}={rev}`",
        )


def _package(
    project: Path, package: str, rev: str, files_of: FilesOf, schemes: tuple[str, ...], notes: list[str]
) -> tuple[dict[str, tuple[bytes, bytes]], PackageFiles]:
    if not _REV.fullmatch(rev):
        raise refused(f"{package}: {rev!r} is no full commit id", "name the commit by its 40 digits")
    name, before = bare(package), _read(project, MANIFEST, MOST_BYTES)
    manifest = _manifest(MANIFEST, before.encode(), schemes)
    entry = None if manifest is None else manifest.packages.get(name)
    if manifest is None or entry is None:
        raise refused(
            f"{MANIFEST} has no git package {name}, so there is nothing to raise", "name one that it has"
        )
    if entry.rev == rev:
        raise refused(f"the commit has {package} at {rev} already", "name another commit")
    lakefiles, pinned = _lakefiles(project, name, rev)
    if not lakefiles and not entry.inherited:
        raise refused(
            f"{MANIFEST} has {package}, and no lakefile requires it in a way that can be read",
            f"write its `require` into the lakefile as plain text, or remove it from {MANIFEST}",
        )
    if lakefiles and not pinned:
        notes.append(
            f"{', '.join(lakefiles)}: no revision of {package} is named there, so that it stays as it is."
        )
    # Lake compares the lakefile's revision with `inputRev`; a `require` without a revision has none or a branch there.
    keys = ("rev", "inputRev", "inputRev?") if pinned else ("rev",)
    fields = manifest.entries[name].fields
    manifest.put(name, {key: rev for key in keys if isinstance(fields.get(key), str)})
    one = replace(entry, rev=rev)
    try:
        said = files_of(one)
    except OSError as error:
        raise refused(
            f"{package} at {rev[:12]}: its manifest cannot be read: {error}", "name another commit of it"
        ) from error

    def manifest_of(other: str) -> ManifestText | None:
        if other == name:
            return _manifest(f"{package} at {rev[:12]}: its manifest", said.manifest, schemes)
        try:
            data = _data_of(project, manifest, other, files_of)
            return None if data is None else ManifestText(data, schemes=schemes)
        except (OSError, ManifestError):
            # Lake also goes on without it; only the raised package needs a readable manifest.
            return None

    notes += update(manifest, one, _required(project), manifest_of)
    files = {MANIFEST: (before, manifest.made(name)), **lakefiles}
    return {path: (old.encode(), new.encode()) for path, (old, new) in files.items()}, said


def _data_of(project: Path, manifest: ManifestText, name: str, files_of: FilesOf) -> bytes | None:
    """Return the manifest of a package required by the project itself, possibly a folder in it."""
    if name in manifest.packages:
        return files_of(manifest.packages[name]).manifest
    folder = PurePosixPath(manifest.entries[name].fields["dir"])
    return read_inside(project, str(folder / MANIFEST), most_bytes=MOST_BYTES)


def _manifest(what: str, data: bytes | None, schemes: tuple[str, ...]) -> ManifestText | None:
    try:
        return None if data is None else ManifestText(data, schemes=schemes)
    except ManifestError as error:
        raise refused(f"{what} cannot be read: {error}", "`lake update` writes one anew") from error


def _required(project: Path) -> set[str]:
    """Return the packages named by the lakefiles."""
    result: set[str] = set()
    for file in LAKEFILES:
        if (project / file).is_file():
            text = _read(project, file, MOST_LAKEFILE_BYTES)
            if file.endswith(".toml"):
                tables = read_lakefile_toml(text).get("require")
                names = (
                    (one.get("name") for one in tables if isinstance(one, dict))
                    if isinstance(tables, list)
                    else ()
                )
                result.update(bare(one) for one in names if isinstance(one, str))
            else:
                result.update(one.name for one in _requires(tokens_of_text(text)[0], text.encode()))
    return result


def _lakefiles(project: Path, name: str, rev: str) -> tuple[dict[str, tuple[str, str]], bool]:
    """Return the lakefiles with the package, before and after, and whether one names a revision."""
    result: dict[str, tuple[str, str]] = {}
    pinned = False
    for file in LAKEFILES:
        if (project / file).is_file():
            before = _read(project, file, MOST_LAKEFILE_BYTES)
            after = (_in_toml if file.endswith(".toml") else _in_lean)(file, before, name, rev)
            if after is not None:
                result[file] = before, after[0]
                pinned |= after[1]
    return result, pinned


# ---- lakefile.toml


def _in_toml(file: str, text: str, name: str, rev: str) -> tuple[str, bool] | None:
    """Return the text with the package's new revision, and whether it had one; None if it does not require the
    package.
    """
    try:
        table = _require_of(read_lakefile_toml(text), name)
    except ValueError as error:
        raise refused(f"{file} cannot be read: {error}", "mend it first") from error
    except LookupError as error:
        raise refused(f"{file} requires {name} twice", "leave one `require` of it") from error
    if table is None:
        return None
    version = table.get("version")
    if "rev" not in table and isinstance(version, str) and version.startswith(_OF_GIT):
        return _with(file, text, name, "version", _OF_GIT + rev), True
    if "rev" not in table:
        return text, False
    return _with(file, text, name, "rev", rev), True


def _require_of(data: dict[str, Any], name: str) -> dict[str, Any] | None:
    tables = data.get("require", [])
    tables = tables if isinstance(tables, list) else []
    result = [one for one in tables if isinstance(one, dict) and _is(one.get("name"), name)]
    if len(result) > 1:
        raise LookupError(name)
    return result[0] if result else None


def _with(file: str, text: str, name: str, key: str, value: str) -> str:
    """Return the text with another string at one key of a `require`; its parser confirms that nothing else changed."""
    wanted = read_lakefile_toml(text)
    table = _require_of(wanted, name)
    old = None if table is None else table.get(key)
    if table is None or not isinstance(old, str):
        raise refused(f"{file}: {key} is {old!r} and no string", "mend it first")
    table[key] = value
    # Each place with this key and value gets a mark of its own; the parser tells the table's from the others.
    places = re.compile(rf"(['\"]?){re.escape(key)}\1\s*[=:]\s*(['\"])(?P<value>{re.escape(old)})\2")
    numbers = itertools.count()
    marked = places.sub(lambda found: f"{found[0][:-1]}{_MARK}{next(numbers)}{found[0][-1]}", text)
    try:
        before, mark, number = str((_require_of(read_lakefile_toml(marked), name) or {}).get(key)).rpartition(
            _MARK
        )
        if (before, mark) != (old, _MARK):
            raise LookupError(key)  # written with an escape: no place in the text has this value
        place = [*places.finditer(text)][int(number)]
        made = f"{text[: place.start('value')]}{value}{text[place.end('value') :]}"
        is_exact = read_lakefile_toml(made) == wanted
    except (ValueError, LookupError):
        is_exact = False
    if not is_exact:
        raise refused(f"{file}: {key} = {old!r} cannot be found in its text", "write it as a plain string")
    return made


# ---- lakefile.lean


def _in_lean(file: str, text: str, name: str, rev: str) -> tuple[str, bool] | None:
    """Return the text with the package's new revision, and whether it had one; None if it does not require the
    package.
    """
    tokens, unclosed = tokens_of_text(text)
    if unclosed:
        raise refused(f"{file} cannot be read: {unclosed}", "mend it first")
    result = [one for one in _requires(tokens, text.encode()) if one.name == name]
    if not result:
        return None
    if len(result) > 1:
        raise refused(f"{file} requires {name} twice", "leave one `require` of it")
    (require,) = result
    if require.unread:
        raise refused(
            f"{file}: the `require` of {name} cannot be read at `{require.unread}`",
            "write its address and its revision as plain strings",
        )
    token = require.rev
    if token is None:
        return text, False
    data, before = text.encode(), _OF_GIT if token.text.startswith(f'"{_OF_GIT}') else ""
    made = data[: token.byte_start] + f'"{before}{rev}"'.encode() + data[token.byte_end :]
    return made.decode(), True


@dataclass(frozen=True, slots=True)
class _Require:
    """A `require`: its package, the string with its git revision if it has one, and the token at which reading
    failed.
    """

    name: str
    rev: Token | None = None
    unread: str = ""


_STRING = re.compile(r'"[^"\\]*"')
_WORD = re.compile(rf"[{ID_FIRST}«#]|@\[")


def _requires(tokens: Sequence[Token], data: bytes) -> Iterator[_Require]:
    """Yield the `require` commands of a lakefile: `require [scope /] name [@ [git] term] [from git term [@ term]]`."""
    for number, token in enumerate(tokens):
        if token.text == "require":
            yield _Reader(tokens, number + 1, data).require()


class _UnreadError(Exception):
    """The reader cannot read a `require`; the message is the token at fault."""


class _Reader:
    """A reader of one `require`, from its second token on."""

    def __init__(self, tokens: Sequence[Token], at: int, data: bytes) -> None:
        self._tokens, self._at, self._data = tokens, at, data

    def require(self) -> _Require:
        self._at += 2 * (self._text(1) == "/")
        name = bare(self._text())
        self._at += 1
        try:
            return _Require(name, self._rev())
        except _UnreadError as error:
            return _Require(name, unread=str(error))

    def _rev(self) -> Token | None:
        rev = None
        if self._takes("@"):
            of_git = self._takes("git")
            version = self._string()
            rev = version if of_git or version.text.startswith(f'"{_OF_GIT}') else None
        if self._takes("from"):
            if not self._takes("git"):
                return None  # a folder
            self._term()
            rev = self._string() if self._takes("@") else None
        if not self._is_over():
            raise _UnreadError(self._text())
        return rev

    def _text(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].text if at < len(self._tokens) else ""

    def _takes(self, text: str) -> bool:
        is_there = self._text() == text
        self._at += is_there
        return is_there

    def _string(self) -> Token:
        """Step over a plain string; a computed one is unknown."""
        if not _STRING.fullmatch(self._text()):
            raise _UnreadError(self._text())
        self._at += 1
        return self._tokens[self._at - 1]

    def _term(self) -> None:
        """Step over a string, a name or brackets."""
        text = self._text()
        if not (_STRING.fullmatch(text) or text == "(" or re.match(f"[{ID_FIRST}«]", text)):
            raise _UnreadError(text)
        self._at += 1
        begin, depth = self._at, int(text == "(")
        while depth:
            if not self._text() or self._at - begin > _LONGEST_TERM:
                raise _UnreadError(text)
            depth += {"(": 1, ")": -1}.get(self._text(), 0)
            self._at += 1

    def _is_over(self) -> bool:
        """Return whether the `require` ends here: a clause after it, or another command in its own line."""
        if self._at >= len(self._tokens) or self._text() in ("/", "with"):
            return True
        start = self._tokens[self._at].byte_start
        line = self._data[self._data.rfind(b"\n", 0, start) + 1 : start]
        return not line.strip() and _WORD.match(self._text()) is not None


# ---- names and files


def _is(value: object, name: str) -> bool:
    return isinstance(value, str) and bare(value) == name


def _read(project: Path, name: str, most_bytes: int = 1000) -> str:
    try:
        return read_inside(project, name, most_bytes=most_bytes).decode()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise refused(
            f"{name} cannot be read: {why}", "the file has to be there, plain and in UTF-8"
        ) from error

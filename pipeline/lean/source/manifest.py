"""Read a project's `lake-manifest.json`: its required packages, and their places.

Every version of the format since Lean 4.0 is read (numbers 1 to 7, then "1.0.0" and on). The file is untrusted: the
result is safe to put into a path, a git command line and a lakefile.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from store.text import shown

MANIFEST = "lake-manifest.json"
MOST_BYTES = 4 * 2**20
MOST_PACKAGES = 200
_LONGEST_FOLDER = 255
"""In the cache a folder's whole path is one name."""
_NAME = re.compile(r"[^\W\d_][\w'-]*(\.[^\W\d_][\w'-]*)*", re.ASCII)
_REV = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_INPUT_REV = re.compile(r"[\w][\w./+@-]{0,200}", re.ASCII)
_SCOPE = re.compile(r"[\w.-]{1,100}", re.ASCII)
_URL = re.compile(r"[A-Za-z0-9:/@._~%+-]{1,500}")


class ManifestError(Exception):
    """The manifest is refused; the message names the package and its fault."""


@dataclass(frozen=True, slots=True)
class GitPackage:
    """A package at one commit. `subdir` is "" for the repository's root, `input_rev` "" if none was named."""

    name: str
    url: str
    rev: str
    input_rev: str
    subdir: str
    config_file: str
    manifest_file: str
    inherited: bool
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """`paths` are the folders (relative, inside the project) of packages in the project itself."""

    packages: tuple[GitPackage, ...]
    paths: tuple[str, ...]


def read_manifest(data: bytes, *, schemes: tuple[str, ...] = ("https",)) -> Manifest:
    """Read a manifest.

    Raises:
        ManifestError: it is no manifest, or names something unsafe: a revision that is no full commit id, a URL of
            another scheme or with anything but a plain address in it, an invalid package name, a folder outside of the
            project or of the package.
    """
    if len(data) > MOST_BYTES:
        raise ManifestError(f"a manifest has at most {MOST_BYTES} bytes")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"no JSON: {error}") from error
    entries = raw.get("packages") if isinstance(raw, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ManifestError("no list of packages in it")
    if len(entries) > MOST_PACKAGES:
        raise ManifestError(f"{len(entries)} packages; at most {MOST_PACKAGES} are fetched")
    packages: dict[str, GitPackage] = {}
    paths: list[str] = []
    for entry in entries:
        kind, fields = unwrapped(entry)
        name = _name(fields.get("name"))
        if kind == "path":
            paths.append(_folder(fields.get("dir"), name))
        elif kind == "git":
            if name in packages:
                raise ManifestError(f"package {name}: named twice")
            packages[name] = _git_package(name, fields, schemes)
        else:
            raise ManifestError(f"package {name}: type {kind!r} is neither git nor path")
    return Manifest(tuple(packages.values()), tuple(dict.fromkeys(paths)))


def package_folders(project: Path) -> tuple[Path, ...]:
    """Return the folders of the packages that do not lie in `.lake/packages` by their name alone.

    They are packages in the project itself, and folders inside a fetched package. A project with a missing or refused
    manifest has none: it was not built either.
    """
    path = project / MANIFEST
    if path.is_symlink() or not path.is_file():
        return ()
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    try:
        manifest = read_manifest(data, schemes=("https", "file"))
    except ManifestError:
        return ()
    fetched = project / ".lake" / "packages"
    inside = (fetched / one.name / one.subdir for one in manifest.packages if one.subdir)
    return (*(project / folder for folder in manifest.paths), *inside)


def path_packages(data: bytes) -> tuple[str, ...]:
    """Return the folders of the packages in the project itself, even if the rest of the manifest is refused."""
    result = []
    with suppress(ValueError, RecursionError):
        raw = json.loads(data)
        entries = raw.get("packages") if isinstance(raw, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            kind, fields = unwrapped(entry) if isinstance(entry, dict) else ("", {})
            with suppress(ManifestError):
                if kind == "path":
                    result.append(_folder(fields.get("dir"), "of this project"))
    return tuple(dict.fromkeys(result))


def unwrapped(entry: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an entry's type and fields: older manifests wrap them, `{"git": {…}}`; the oldest know only git."""
    for kind in ("git", "path"):
        inner = entry.get(kind)
        if isinstance(inner, dict):
            return kind, inner
    kind = entry.get("type", "git" if "url" in entry else "")
    return str(kind), entry


def _git_package(name: str, fields: dict[str, Any], schemes: tuple[str, ...]) -> GitPackage:
    rev = fields.get("rev")
    if not isinstance(rev, str) or _REV.fullmatch(rev) is None:
        raise ManifestError(f"package {name}: rev {shown(rev)} is no full commit id")
    input_rev = fields.get("inputRev", fields.get("inputRev?"))
    input_rev = input_rev if isinstance(input_rev, str) and _INPUT_REV.fullmatch(input_rev) else ""
    subdir, scope = fields.get("subDir", fields.get("subDir?")), fields.get("scope")
    return GitPackage(
        name=name,
        url=_url(fields.get("url"), name, schemes),
        rev=rev,
        input_rev=input_rev,
        subdir="" if subdir in (None, "", ".") else _inside(subdir, f"package {name}: subDir"),
        config_file=_inside(fields.get("configFile", "lakefile.lean"), f"package {name}: configFile"),
        manifest_file=_inside(
            fields.get("manifestFile") or "lake-manifest.json", f"package {name}: manifestFile"
        ),
        inherited=fields.get("inherited") is True,
        scope=scope if isinstance(scope, str) and _SCOPE.fullmatch(scope) else "",
    )


def bare(name: str) -> str:
    """Return a package's name without a string's or Lean's quotes."""
    return name.strip('"').replace("«", "").replace("»", "")


def _name(value: object) -> str:
    text = bare(value) if isinstance(value, str) and '"' not in value else ""
    if _NAME.fullmatch(text) is None or len(text) > 100:
        raise ManifestError(f"{shown(value)} is no name of a package")
    return text


def _url(value: object, name: str, schemes: tuple[str, ...]) -> str:
    text = value if isinstance(value, str) else ""
    if _URL.fullmatch(text) is None:
        raise ManifestError(f"package {name}: url {shown(value)} is no plain address")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ManifestError(f"package {name}: url {shown(value)}: {error}") from error
    if parts.scheme not in schemes:
        raise ManifestError(f"package {name}: url {shown(value)}: only {', '.join(schemes)} can be fetched")
    if "@" in parts.netloc:
        raise ManifestError(f"package {name}: url {shown(value)} has a user or a password in it")
    if (not host and parts.scheme != "file") or parts.netloc.startswith("-"):
        raise ManifestError(f"package {name}: url {shown(value)} names no host")
    return text


def _folder(value: object, name: str) -> str:
    """Return the folder of a package in the project itself; it may have compiled files of its own."""
    what = f"package {name}: dir"
    text = _inside(value, what)
    parts = PurePosixPath(text).parts
    # A colon would part it in Lean's list of folders to search.
    if not parts or {".git", ".lake"} & set(parts) or ":" in text:
        raise ManifestError(f"{what}: {shown(value)} is no folder for a package")
    if len(quote(text, safe="")) > _LONGEST_FOLDER:
        raise ManifestError(f"{what}: {shown(value)} is too long")
    return text


def _inside(value: object, what: str) -> str:
    text = value if isinstance(value, str) else ""
    path = PurePosixPath(text)
    bad = not text or len(text) > 500 or "\\" in text or any(ord(letter) < 32 for letter in text)
    if bad or '"' in text or path.is_absolute() or ".." in path.parts:
        raise ManifestError(f"{what}: {shown(value)} is no folder or file inside")
    return str(path)

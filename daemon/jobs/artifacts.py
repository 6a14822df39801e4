"""Artifacts: what an attempt on another machine needs, as files named by their SHA-256 in a store behind fsspec.

    <url>/<sha256>             the content: a pack of a commit, an input, a folder as a tar file
    <url>/names/<sha256>       what was made of a named thing (a commit, a build): the SHA-256 of its content

The daemon uploads and nodes download. A file is uploaded once, and its hash is verified after each download. A store
is a folder or any URL that fsspec knows (`s3://bucket/folder`). Credentials come from the environment or from fsspec's
own configuration: the daemon's may write, a node's need only read.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tarfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.lean.build.build_cache import remove_tree
from store.files import written_whole

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_CHUNK = 2**20
_UNUSED_S = 14 * 24 * 3600.0
_TOUCH_AFTER_S = 24 * 3600.0
_IN_USE_S = 2 * _TOUCH_AFTER_S
_MARK = b"artifacts of everlean\n"
_OURS = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.[0-9a-f]{16}\.tmp")
"""A content, and what `written_whole` left of one when the process that put it was killed."""


class ArtifactError(Exception):
    """A content cannot be put or got; the message names the store, the reason and the remedy."""


class Artifacts:
    """A store of contents. Its methods block, and any number of threads and processes may use one store.

    Raises, from each method:
        ArtifactError: the store cannot be reached, refuses, or has no program for its kind here.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        with self._asked("opened"):
            from fsspec.core import url_to_fs

            self._files: AbstractFileSystem
            self._files, root = url_to_fs(url)
            self._root = root.rstrip("/")
        kind = self._files.protocol
        self._folder = (
            Path(self._root) if {"file", "local"} & {*([kind] if isinstance(kind, str) else kind)} else None
        )

    def put(self, source: Path | bytes) -> str:
        """Add a content, whole or not at all, unless it is there; return its SHA-256."""
        if isinstance(source, bytes):
            digest = hashlib.sha256(source).hexdigest()
        else:
            with source.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        if not self.has(digest):
            self._write(digest, source)
        return digest

    def has(self, digest: str) -> bool:
        """Return whether a content is there. In a folder it then counts as used."""
        with self._asked("looked for", digest):
            if self._folder is None:
                return bool(self._files.exists(f"{self._root}/{digest}"))
            path = self._folder / digest
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _TOUCH_AFTER_S:
                    path.touch()
                return True
        return False

    def get(self, digest: str, target: Path) -> None:
        """Copy a content to a new file, verified.

        Raises:
            ArtifactError: it is not there, or is not what it is named by; there is no file then.
            OSError: the disk refused.
        """
        new = target.with_name(f".{uuid.uuid4().hex}")
        hashed = hashlib.sha256()
        try:
            with new.open("wb") as copy, self._opened(digest) as chunks:
                for chunk in chunks:
                    hashed.update(chunk)
                    copy.write(chunk)
            if hashed.hexdigest() != digest:
                raise ArtifactError(
                    f"{self.url}/{digest} was changed: its SHA-256 is {hashed.hexdigest()}; remove it, and it is put"
                    " anew"
                )
            new.rename(target)
        finally:
            new.unlink(missing_ok=True)

    def named(self, name: str) -> str:
        """Return the SHA-256 of a thing's content, "" where the store has none.

        Args:
            name: says all that the content depends on.
        """
        label = _label(name)
        with self._asked("read", label):
            try:
                digest: str = self._files.cat_file(f"{self._root}/{label}").decode("ascii")
            except FileNotFoundError:
                return ""
        return digest if self.has(digest) and self.has(label) else ""

    def put_named(self, name: str, source: Path) -> str:
        """Add the content of a thing of this name; return its SHA-256."""
        digest = self.put(source)
        self._write(_label(name), digest.encode("ascii"))
        return digest

    def mark(self) -> None:
        """Upload the marker that `look` checks."""
        self.put(_MARK)

    def look(self) -> None:
        """Find out whether this machine reads what the daemon's writes."""
        with self._opened(hashlib.sha256(_MARK).hexdigest()) as chunks:
            for _ in chunks:
                pass

    def sweep(self, most_bytes: int) -> None:
        """Remove from a folder what is long unused or too much; other stores have rules of their own for that."""
        if self._folder is not None and self._folder.is_dir():
            with self._asked("swept"):
                found = (*self._folder.iterdir(), *self._folder.glob("names/*"))
                sweep_files((path for path in found if _OURS.fullmatch(path.name)), most_bytes)

    def _write(self, name: str, source: Path | bytes) -> None:
        with self._asked("written", name):
            if self._folder is not None:
                _put_whole(self._folder / name, source)
                return
            target = f"{self._root}/{name}"
            self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
            # Whole or not at all: what is open has no name yet.
            with self._files.open(target, "wb", autocommit=False) as file:
                if isinstance(source, bytes):
                    file.write(source)
                else:
                    with source.open("rb") as content:
                        shutil.copyfileobj(content, file, _CHUNK)
            file.commit()

    @contextmanager
    def _opened(self, digest: str) -> Iterator[Iterator[bytes]]:
        with self._asked("read", digest):
            file = self._files.open(f"{self._root}/{digest}", "rb")

        def chunks() -> Iterator[bytes]:
            while True:
                with self._asked("read", digest):
                    chunk: bytes = file.read(_CHUNK)
                if not chunk:
                    return
                yield chunk

        with file:
            yield chunks()

    @contextmanager
    def _asked(self, what: str, name: str = "") -> Iterator[None]:
        """Turn whatever a store's own program raises into one error."""
        try:
            yield
        except ArtifactError:
            raise
        except Exception as error:
            raise ArtifactError(
                f"{self.url}: {name or 'it'} cannot be {what} ({type(error).__name__}: {error}); check that this "
                "machine reaches it, the credentials in its environment, and that the package for its kind of URL is "
                "installed (s3fs for s3://)"
            ) from error


def _label(name: str) -> str:
    return f"names/{hashlib.sha256(name.encode()).hexdigest()}"


def sweep_files(paths: Iterable[Path], most_bytes: int) -> None:
    """Remove the files that were not used for two weeks, and of what is beyond a bound those unused for the longest
    time, but none that was used within two days. The modification time is that of the last use.

    Raises:
        OSError: one cannot be removed.
    """
    now, left = time.time(), 0
    files: list[tuple[float, int, Path]] = []
    for path in paths:
        with suppress(FileNotFoundError):
            about = path.lstat()
            if stat.S_ISREG(about.st_mode):
                files.append((now - about.st_mtime, about.st_size, path))
                left += about.st_size
    for unused_s, size, path in sorted(files, reverse=True):
        if unused_s > _UNUSED_S or (left > most_bytes and unused_s > _IN_USE_S):
            path.unlink(missing_ok=True)
            left -= size


def _put_whole(target: Path, source: Path | bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(target) as file:
        if isinstance(source, bytes):
            file.write(source)
        else:
            with source.open("rb") as content:
                shutil.copyfileobj(content, file, _CHUNK)


def pack_folder(folder: Path, target: Path) -> Path:
    """Write a folder into a tar file, the same bytes for the same names, rights and contents; return the file.

    Raises:
        OSError: something cannot be read, or the disk refused.
    """

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        return member

    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name, filter=plain)
    return target


def unpack_folder(source: Path, folder: Path) -> None:
    """Make a folder of a tar file, whole or not at all, unless it is there; it grows beside the tar file.

    Raises:
        OSError: the disk refused.
        tarfile.TarError: it is no tar file, or would write outside the folder.
    """
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = source.with_name(f".new-{uuid.uuid4().hex}")
    try:
        new.mkdir()
        with tarfile.open(source) as tar:
            tar.extractall(new, filter="tar")
        if (new / "lock").is_file():
            os.utime(new / "lock")  # by which a cache says when an entry was used last
        try:
            new.rename(folder)
        except OSError:
            if not folder.exists():  # someone else made it meanwhile
                raise
    finally:
        remove_tree(new)

"""Inputs of jobs: its reads of the log and the view, frozen in files before it begins and named by their hash.

    <state>/inputs/<sha256>                         the content, once, read-only
    <state>/inputs/kept/<of>/<key>-<sha256>         what later jobs need too, as long as its key is the newest
    <state>/jobs/<job>/inputs/<name>, .inputs.json  the inputs of one job, and the list of them

The names in a job's folder and under `kept` are hard links: a content without another name is removed. All attempts of
a job have the same inputs, so a preempted one goes on with its own. The specification lists each by name and hash
(`pipeline.jobs.protocol.JobSpec`), and the job verifies the hash.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from store.files import Lock, lock, sync

_LIST = ".inputs.json"
_KEPT = "kept"
_NEW = "new-"
_CONTENT = re.compile("[0-9a-f]{64}")
_HALF_MADE_S = 24 * 3600.0
_UNUSED_S = 30 * 24 * 3600.0


class InputError(Exception):
    """An input is missing, or differs from the specification."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input: its name, which may have slashes, its SHA-256 and its size."""

    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a job, and the folder with their names."""

    folder: Path
    files: tuple[Input, ...] = ()

    def __contains__(self, name: str) -> bool:
        return any(one.name == name for one in self.files)

    def path(self, name: str) -> Path:
        """Return the file of an input, verified.

        Raises:
            InputError: the job has no such input, or the file has another content.
        """
        one = next((one for one in self.files if one.name == name), None)
        if one is None:
            raise InputError(f"there is no input {name}")
        path = self.folder / name
        try:
            with path.open("rb") as file:
                result = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"the input {path} cannot be read: {error.strerror}") from error
        if result != one.sha256:
            raise InputError(f"the input {path} is damaged: its SHA-256 is {result}, and not {one.sha256}")
        return path

    def as_json(self) -> dict[str, object]:
        return {"folder": str(self.folder), "files": [asdict(one) for one in self.files]}

    @classmethod
    def of_json(cls, data: Mapping[str, object]) -> Inputs:
        """Read the result of `as_json`.

        Raises:
            KeyError, TypeError, ValueError: it is invalid.
        """
        files = data["files"]
        if not isinstance(files, list):
            raise TypeError(f"files is {files!r}, and takes a list")
        return cls(Path(str(data["folder"])), tuple(Input(**one) for one in files))


class InputStore:
    """The folder of contents. Any number of processes may share it: each change is made with the folder locked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def freeze(self, place: Path, given: Mapping[str, bytes | Path | Input]) -> Inputs:
        """Put inputs into a job's folder, all or none even after a power cut, in place of earlier ones.

        Args:
            place: the folder to make.
            given: by name the content, a file to move away from the same disk, or the store's own.

        Raises:
            OSError: the disk refused; `place` is empty.
        """
        new = place.with_name(f".{_NEW}{place.name}")
        self.forget(place)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            files = []
            with self._locked():
                for name, source in given.items():
                    one = source if isinstance(source, Input) else self._put(source)
                    (new / name).parent.mkdir(parents=True, exist_ok=True)
                    _link(self.folder / one.sha256, new / name)
                    files.append(Input(name, one.sha256, one.size_bytes))
            inputs = Inputs(place, tuple(files))
            (new / _LIST).write_text(json.dumps(inputs.as_json()), encoding="utf-8")
            sync(new / _LIST)
            for folder, _, _ in os.walk(new):
                sync(Path(folder))
            new.rename(place)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return inputs

    @staticmethod
    def frozen(place: Path) -> Inputs | None:
        """Return the inputs in a job's folder; None without any, or if their list is damaged."""
        try:
            return Inputs.of_json(json.loads((place / _LIST).read_bytes()))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def forget(self, place: Path, *, damaged: bool = False) -> None:
        """Remove a job's inputs, and unused contents.

        `damaged`: also contents with another hash than their name, even if used.
        """
        there = self.frozen(place)
        shutil.rmtree(place, ignore_errors=True)
        if there is not None and self.folder.is_dir():
            with self._locked():
                for one in there.files:
                    if damaged:
                        self._drop_damaged(one.sha256)
                    self._drop(one.sha256)

    def keep(self, of: str, key: str, source: Path) -> Input:
        """Keep a file's content for later jobs, in place of the former one for the same thing; return it.

        Raises:
            OSError: the disk refused.
        """
        folder = self.folder / _KEPT / of
        folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            one = self._put(source)
            sync(self.folder)  # first: later jobs link to its name there
            kept = folder / f"{key}-{one.sha256}"
            with suppress(FileExistsError):
                os.link(self.folder / one.sha256, kept)
            for other in folder.iterdir():
                if other != kept:
                    other.unlink(missing_ok=True)
                    self._drop(other.name.rpartition("-")[2])
            sync(folder)
        return one

    def kept(self, of: str, key: str) -> Input | None:
        """Return the content kept for a thing under this key; None if missing."""
        for path in (self.folder / _KEPT / of).glob(f"{key}-*"):
            with suppress(FileNotFoundError):
                os.utime(path)  # it is in use: see `sweep`
                return Input("", path.name.rpartition("-")[2], path.stat().st_size)
        return None

    def is_whole(self, one: Input) -> bool:
        """Return whether a content has the hash in its name; a damaged one is removed, even if used."""
        with self._locked():
            self._drop_damaged(one.sha256)
            return self.file(one).exists()

    def file(self, one: Input) -> Path:
        """Return the file of a content."""
        return self.folder / one.sha256

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield an empty folder on the same disk for new contents; it is removed at the end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=_NEW, dir=self.folder, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def sweep(self) -> None:
        """Remove unused files: half-made for a day, kept and unused for a month, and contents without another name."""
        if not self.folder.is_dir():
            return
        now = time.time()
        with self._locked():
            for path in self.folder.glob(f"{_KEPT}/*/*"):
                if now - path.stat().st_mtime > _UNUSED_S:
                    path.unlink()
            for path in self.folder.iterdir():
                if _CONTENT.fullmatch(path.name):
                    self._drop(path.name)
                elif path.name != _KEPT and now - path.stat().st_mtime > _HALF_MADE_S:
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink()

    def _locked(self) -> Lock:
        self.folder.mkdir(parents=True, exist_ok=True)
        return lock(self.folder, create=False)

    def _put(self, source: bytes | Path) -> Input:
        """Add a content; the folder is locked. A power cut may lose its name here; its links survive."""
        if isinstance(source, bytes):
            digest, size = hashlib.sha256(source).hexdigest(), len(source)
        else:
            with source.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = source.stat().st_size
        place = self.folder / digest
        if not place.exists():
            new = self.folder / f"{_NEW}{digest}"
            if isinstance(source, bytes):
                new.unlink(missing_ok=True)
                new.write_bytes(source)
            else:
                shutil.move(source, new)
            new.chmod(0o444)
            sync(new)
            new.rename(place)
        return Input("", digest, size)

    def _drop(self, digest: str) -> None:
        """Remove a content without another name; the folder is locked."""
        path = self.folder / digest
        with suppress(FileNotFoundError):
            if path.stat().st_nlink == 1:
                path.unlink()

    def _drop_damaged(self, digest: str) -> None:
        with suppress(FileNotFoundError):
            with self.file(Input("", digest, 0)).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                    return
            for path in (*self.folder.glob(f"{_KEPT}/*/*-{digest}"), self.folder / digest):
                path.unlink()


def _link(content: Path, name: Path) -> None:
    try:
        os.link(content, name)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(content, name)  # on another disk
        sync(name)

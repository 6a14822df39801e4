"""The meaning of the constants of Lean's own library and of trusted packages, independent of the project.

A kernel accepts an export's content, and the process that writes one reads compiled files of the project. So another
process, reading the library alone, answers on the same names, and the export's library constants are compared with its
answer. It also tells which names are the library's.

The daemon's cache keeps the digests, a file for each module, so each constant is written out once. A file's name is a
digest of its sources: the module's compiled files, its Lean, and the programs making the digests. An incomplete file
counts for nothing, and is made anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.gate.accepted import digest_of, digest_of_texts
from pipeline.gate.answers import Answer, BuiltModule, Constants
from pipeline.gate.questions import QUESTIONS, ask_constants
from pipeline.lean import export as reader
from pipeline.lean.build.build_cache import CONSTANTS
from pipeline.lean.build.lake import LakeRunner
from pipeline.lean.export import Export, Name, shown
from pipeline.lean.program_text import program_text
from pipeline.lean.source.imports import CORE, closure, compiled_file
from store.files import write_whole


@dataclass(frozen=True, slots=True)
class Vouched:
    """The module of each name the library declares, and the digest of its meaning there."""

    homes: Mapping[Name, str]
    digests: Mapping[Name, bytes]


@dataclass(frozen=True, slots=True)
class Library:
    """The `folders` of compiled modules no project can write to, Lean's own first, and the cache, if any."""

    runner: LakeRunner
    folders: Sequence[Path]
    cache: Path | None = None

    def differs(self, whole: Answer, answer: Answer, *, imports: Iterable[str]) -> str | None:
        """Return the difference between a closure's export and the library, or None.

        Args:
            whole: the answer with that export.
            answer: the answer about the statement, with the modules of the constants below the proof.
            imports: of the proof's file, by its text.

        Raises:
            UnknownError: the library gave no answer.
        """
        vouched = self._vouched(tuple(whole.export.declared), self._modules(answer, imports))
        return _difference(whole.export, vouched) or self._pretended(answer, vouched)

    def _modules(self, answer: Answer, imports: Iterable[str]) -> list[str]:
        """Return the modules of the library that the project imports: by its text, and by its answer.

        The imports of a stranger's package are not read: with one, all of Lean's own may be imported. A file of the
        project may have the name of a package's module.
        """
        read = closure(self.runner.project, imports)
        result = {"Init", *filter(self._has, {*read.outside, *(one.module for one in read.files)})}
        if not read.complete or not read.outside <= result:
            if len(self.folders) > 1:
                unread = sorted(read.outside - result)[:3]
                raise UnknownError(
                    "some imports of the file could not be read, so its use of packages is unknown"
                    + (f"; no folder that the lakefile names has {', '.join(unread)}" if unread else "")
                )
            result.update(filter(self._has, CORE - {"Lake"}))
        result.update(one.name for one in answer.modules if self._is_of(one))
        return sorted(result)

    def _has(self, module: str) -> bool:
        return any(compiled_file(folder, module).is_file() for folder in self.folders)

    def _is_of(self, module: BuiltModule) -> bool:
        return any(module.lies_in(folder) for folder in self.folders)

    def _pretended(self, answer: Answer, vouched: Vouched) -> str | None:
        """Return a complaint about a name the project claims for the library, and the library does not declare."""
        known = {_plain(".".join(part.removeprefix("#") for part in name)) for name in vouched.homes}
        for one in filter(self._is_of, answer.modules):
            for name in answer.rests.get(one.name, ()):
                if _plain(name) not in known:
                    return f"it takes {name} from {one.name}, which declares none"
        return None

    def _vouched(self, names: Sequence[Name], modules: Sequence[str]) -> Vouched:
        found = self._ask(names, modules, write=self.cache is None)
        if self.cache is None:
            return Vouched(found.homes, found.digests)
        files = {home: self._file(found, home, self.cache) for home in set(found.homes.values())}
        kept = {home: _read(file) for home, file in files.items()}
        missing = [name for name, home in found.homes.items() if name not in kept[home]]
        if missing:
            written = self._ask(missing, modules, write=True)
            for name in missing:
                kept[found.homes[name]][name] = written.digests[name]
            for home in {found.homes[name] for name in missing}:
                files[home].parent.mkdir(parents=True, exist_ok=True)
                write_whole(files[home], _text(kept[home]))
        return Vouched(found.homes, {name: kept[home][name] for name, home in found.homes.items()})

    def _ask(self, names: Sequence[Name], modules: Sequence[str], *, write: bool) -> Constants:
        found = ask_constants(self.runner, folders=self.folders, modules=modules, names=names, write=write)
        if isinstance(found, str):
            raise UnknownError(f"the meaning of Lean's own constants is unknown: {found}")
        if write and (lost := found.homes.keys() - found.digests.keys()):
            raise UnknownError(
                f"the meaning of {shown(min(lost))} is unknown: {QUESTIONS.name} did not write it"
            )
        return found

    def _file(self, found: Constants, module: str, cache: Path) -> Path:
        files = (
            part for file in found.modules[module].files for part in (file.name, digest_of(file, stays=True))
        )
        key = digest_of_texts(CONSTANTS, _programs(), found.lean, module, *files)
        return cache / CONSTANTS / key[:2] / key


class UnknownError(Exception):
    """The meaning of the library's constants is unknown; the text has the reason."""


def _difference(export: Export, vouched: Vouched) -> str | None:
    """Return a complaint about the export's first constant or axiom that differs from the library's."""
    for name, home in sorted(vouched.homes.items()):
        if export.declared[name].digest != vouched.digests[name]:
            return f"it has another {shown(name)} than {home}"
    if foreign := sorted(export.axioms - vouched.homes.keys()):
        return f"its axiom {shown(foreign[0])} is not of Lean's own library"
    return None


def _plain(name: str) -> str:
    return name.replace("«", "").replace("»", "")


def _programs() -> str:
    """Return the digest of the programs making the digests of constants."""
    text = program_text(QUESTIONS, "Nodes", "Printer") + Path(reader.__file__).read_bytes()
    return hashlib.sha256(text).hexdigest()


def _text(constants: Mapping[Name, bytes]) -> str:
    body = "".join(f"{digest.hex()} {json.dumps(name)}\n" for name, digest in sorted(constants.items()))
    return f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def _read(file: Path) -> dict[Name, bytes]:
    """Return the digests of a file of the cache, none if it is incomplete."""
    try:
        digest, _, body = file.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return {}
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return {}
    lines = (line.split(" ", 1) for line in body.decode().splitlines())
    return {tuple(json.loads(name)): bytes.fromhex(text) for text, name in lines}

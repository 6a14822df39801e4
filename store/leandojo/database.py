"""LeanDojo-v2's `DynamicDatabase` under its own name: a file of its format, or a daemon's state folder to read.

    from store.leandojo import DynamicDatabase, Repository

    database = DynamicDatabase("dynamic_database.json")
    database.add_repository(Repository.from_dict(...))
    database.export_merged_data(database.repositories, Path("merged"))
    database.to_json()

The repositories are objects in memory, as LeanDojo has them: whatever changes them, `add_repository`,
`update_repository` and `delete_repository` among it, is written by `to_json` alone, and never into a daemon's log.

What differs from LeanDojo-v2: opening a file leaves it as it is; files are written whole or not at all; the splits of
an export are for life (`compat=True` gives LeanDojo's own). Keys that LeanDojo does not have are not kept, as it keeps
none either: `unsorry import leandojo` and `unsorry export leandojo --as-imported` do.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from store.curriculum import compat_difficulty, curriculum, difficulty, rating
from store.domain.records import holds_sorry
from store.errors import LogError
from store.leandojo.choosing import Chosen, choose, in_order
from store.leandojo.exporting import Mode, export_chosen, one_moment, write_database
from store.leandojo.folder import written_whole
from store.leandojo.models import Repository, Theorem
from store.leandojo.reading import import_leandojo
from store.leandojo.records import ImportFormatError, load
from store.log.reader import LogReader
from store.sqlite import translated
from store.view import queries

Tracer = Callable[[str, str, bool], Repository | None]
"""Called with url, commit and whether to trace dependencies too; returns what it found, None where it could not."""

_GIVEN = "the repositories given"
_CORRECT = "correct that and try again"
_log = logging.getLogger(__name__)


class TracerMissingError(LogError):
    """A repository is to be traced, and the database has no tracer."""


class DynamicDatabase:
    """A collection of traced repositories; see the module."""

    def __init__(
        self,
        json_path: str | Path = "dynamic_database.json",
        tracer: Tracer | None = None,
        *,
        also: Collection[str] = (),
    ) -> None:
        """Open a database file, or a daemon's state folder; a file that does not exist is an empty database.

        Args:
            json_path: of either.
            tracer: traces commits for `trace_repository`.
            also: of a state folder, ids of traces that are wanted although there are newer ones of their repositories.

        Raises:
            store.leandojo.records.ImportFormatError: the file is no such database.
            LogError: the folder is no state folder, or the disk refused.
        """
        path = Path(json_path)
        self.json_path: str | None = None
        self._tracer = tracer
        self._also = also
        self._state: Path | None = None
        if path.is_dir():
            if not (path / "events.db").is_file():
                raise LogError(f"{path}: is a folder without events.db; name a state folder, or a .json file")
            self._state = path
            return
        self.json_path = str(json_path)
        self.repositories = _repositories(load(path), path) if path.exists() else []

    @cached_property
    def repositories(self) -> list[Repository]:
        """The repositories, of a state folder read at first use. The list and what is in it may be changed."""
        with self._opened() as (log, view, known), tempfile.TemporaryFile() as file:
            write_database(file, list(known.values()), log=log, view=view, infinity=True)
            file.seek(0)
            return [Repository.from_dict(item) for item in json.load(file)["repositories"]]

    def add_repository(self, repo: Repository) -> None:
        """Append a repository; one that is there already is left as it is."""
        if repo in self.repositories:
            _log.info("repository %s with commit %s is in the database already", repo.url, repo.commit)
            return
        self.repositories.append(repo)

    def get_repository(self, url: str, commit: str) -> Repository | None:
        """Return the first repository of that url and commit."""
        return next((repo for repo in self.repositories if (repo.url, repo.commit) == (url, commit)), None)

    def update_repository(self, updated_repo: Repository) -> None:
        """Put a repository in the place of the equal one.

        Raises:
            ValueError: no repository is equal to it.
        """
        if updated_repo not in self.repositories:
            raise ValueError(
                f"Repository '{updated_repo.url}' with commit '{updated_repo.commit}' not found; add it first "
                "(`add_repository`)"
            )
        self.repositories[self.repositories.index(updated_repo)] = updated_repo

    def delete_repository(self, url: str, commit: str) -> None:
        """Take the first repository of that url and commit out.

        Raises:
            ValueError: the database has no such repository.
        """
        found = self.get_repository(url, commit)
        if found is None:
            raise ValueError(f"Repository '{url}' with commit '{commit}' not found.")
        self.repositories.remove(found)

    def print_database_contents(self) -> None:
        """Print which repositories the database has."""
        lines = [f"  - {repo.url} (commit: {repo.commit})\n" for repo in self.repositories]
        sys.stdout.writelines(["Current database contents:\n", *lines])

    def export_merged_data(
        self, repositories: Sequence[Repository], output_path: str | Path, *, compat: bool = False
    ) -> None:
        """Write these repositories, which must be in the database, as a dataset folder; see `exporting`.

        Those of a state folder are written as its log has them, whatever was changed in the objects.

        Raises:
            ValueError: one is not in the database, or none is given.
            NotReplaceableError: something lies at `output_path` that no export made.
        """
        if not repositories:
            raise ValueError("no repository to export; give some of `repositories`")
        out = Path(output_path).absolute()
        with self._opened() as (log, view, known):
            absent = [repo for repo in repositories if repo.identity not in known]
            if absent:
                raise ValueError(
                    f"Repository '{absent[0].url}' with commit '{absent[0].commit}' is not in the database; add it "
                    "first (`add_repository`)"
                )
            with translated(out):
                out.parent.mkdir(parents=True, exist_ok=True)
            chosen = [Chosen(known[repo.identity].row, in_dataset=True) for repo in repositories]
            if not compat:
                chosen = in_order(view, [(item.row, True) for item in chosen])
            mode = Mode.COMPAT if compat else Mode.FOR_LIFE
            export_chosen(out, chosen, log=log, view=view, mode=mode, with_database=False)

    def sort_repositories_by_difficulty(self, *, compat: bool = False) -> list[Repository]:
        """Rate every theorem, save that, and return the repositories with most easy theorems first.

        A rating is e^steps; None for a proof by a term, a proof that holds a sorry, and one of more than 709 steps
        (`compat`: LeanDojo's own, infinity for a sorry). Several commits of one repository stand together, where
        the newest of them does.

        Raises:
            store.curriculum.CompatError: `compat`, and LeanDojo-v2 fails on these theorems.
        """
        for repo in self.repositories:
            for theorem in repo.get_all_theorems:
                theorem.difficulty_rating = _rating(theorem, compat=compat)
        with self._opened() as (_, view, known):
            found = curriculum(view, compat=compat, simulated=True).repositories
        order = {item.trace if compat else item.repository: item.order for item in found}

        def place(repo: Repository) -> float:
            item = known.get(repo.identity)
            if item is None:
                return math.inf
            return order.get(item.row.trace if compat else item.row.repository, math.inf)

        if self.json_path is not None:
            self.to_json(compat=compat)
        return sorted(self.repositories, key=place)

    def trace_repository(self, url: str, commit: str, build_deps: bool = False) -> Repository | None:
        """Trace a commit, add it, and return it; None where the tracer could not.

        Raises:
            TracerMissingError: no tracer was given.
        """
        if self._tracer is None:
            raise TracerMissingError(
                f"{url}: this database has no tracer; open DynamicDatabase(path, tracer=...) with a function (url, "
                "commit, build_deps) -> Repository, or add what LeanDojo traced (Repository.from_dict, add_repository)"
            )
        repo = self._tracer(url.removesuffix(".git"), commit, build_deps)
        if repo is not None:
            (self.update_repository if repo in self.repositories else self.add_repository)(repo)
        return repo

    def discover_repositories(self, *_given: object, **_named: object) -> NoReturn:
        """Refuse: people choose what is traced, no web search does.

        Raises:
            TracerMissingError: always; it says what to do.
        """
        raise TracerMissingError(
            "nothing here searches GitHub for repositories; name the ones that you want: in the config.toml of a "
            "daemon that watches them, or with trace_repository(url, commit). Their order is then that of "
            "sort_repositories_by_difficulty()"
        )

    def to_dict(self) -> dict[str, Any]:
        return {"repositories": [repo.to_dict() for repo in self.repositories]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], tracer: Tracer | None = None) -> DynamicDatabase:
        """Make a database that has no file; its `to_json` needs a path.

        Raises:
            store.leandojo.records.ImportFormatError: the data are no database.
        """
        database = cls.__new__(cls)
        database.json_path, database._tracer, database._also, database._state = None, tracer, (), None
        database.repositories = _repositories(data, _GIVEN)
        return database

    def to_json(self, file_path: str | Path | None = None, *, compat: bool = False) -> None:
        """Write the database to a file, whole or not at all; without a path, to the file that was opened.

        A rating that is infinite is written as null; with `compat` as LeanDojo's bare `Infinity`, which is no JSON.

        Raises:
            ValueError: no path, and the database was not opened from a file; or a value that is no JSON.
        """
        if file_path is None and self.json_path is None:
            raise ValueError("this database was not opened from a file: give to_json a path")
        path = Path(file_path if file_path is not None else str(self.json_path))
        data = self.to_dict()
        for repo in () if compat else data["repositories"]:
            for name in ("proven_theorems", "sorry_theorems_proved", "sorry_theorems_unproved"):
                for theorem in repo[name]:
                    if theorem["difficulty_rating"] == math.inf:
                        theorem["difficulty_rating"] = None
        try:
            text = json.dumps(data, indent=2, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            reason = f"cannot be written as JSON ({error})"
            raise ImportFormatError(_GIVEN, "", reason, remedy=_CORRECT) from error
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path) as out:
                out.write(text.encode())

    @classmethod
    def from_json(cls, file_path: str | Path, tracer: Tracer | None = None) -> DynamicDatabase:
        """Open a database file that exists.

        Raises:
            FileNotFoundError: it does not.
        """
        if not Path(file_path).is_file():
            raise FileNotFoundError(
                f"{file_path}: no such file; DynamicDatabase({str(file_path)!r}) is an empty one"
            )
        return cls(file_path, tracer)

    def update_json(self, file_path: str | Path) -> None:
        """Put this database's repositories into another file, beside and in the place of those that it has."""
        other = DynamicDatabase(file_path)
        for repo in self.repositories:
            (other.update_repository if repo in other.repositories else other.add_repository)(repo)
        other.to_json()

    @contextmanager
    def _opened(self) -> Iterator[tuple[LogReader, sqlite3.Connection, dict[tuple[str, ...], Chosen]]]:
        """Open a log with these repositories, one moment of its view, and their traces by what makes them equal.

        It is the state folder's; else one that lasts as long as the block.
        """
        with ExitStack() as held:
            folder = self._state
            if folder is None:
                folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="unsorry-")))
                self._import_into(folder)
            log = held.enter_context(LogReader.open(folder / "events.db"))
            view = held.enter_context(closing(queries.connect(folder / "database.db")))
            held.enter_context(one_moment(view))
            exists = view.execute("SELECT 1 FROM traces WHERE state = 'current' LIMIT 1").fetchone()
            chosen = choose(view, (), every_commit=True, simulated=True, also=self._also) if exists else []
            keys = ("url", "name", "commit", "lean_version", "lean_dojo_version")
            yield log, view, {tuple(item.head[key] for key in keys): item for item in chosen}

    def _import_into(self, folder: Path) -> None:
        path = folder / "dynamic_database.json"
        self.to_json(path, compat=True)
        try:
            import_leandojo(
                path,
                events_db=folder / "events.db",
                database_db=folder / "database.db",
                stage=folder / "import",
            )
        except ImportFormatError as error:
            # The temporary file is unknown to the caller.
            raise ImportFormatError(_GIVEN, error.place, error.reason, remedy=_CORRECT) from None


def _repositories(data: Any, source: Path | str) -> list[Repository]:
    if not isinstance(data, Mapping) or not isinstance(data.get("repositories"), list):
        raise ImportFormatError(source, "repositories", "is missing or no list", remedy=_CORRECT)
    found = []
    for index, item in enumerate(data["repositories"]):
        try:
            found.append(Repository.from_dict(item))
        except (TypeError, ValueError) as error:
            raise ImportFormatError(source, f"repositories[{index}]", str(error)) from error
    return found


def _rating(theorem: Theorem, *, compat: bool) -> float | None:
    steps = theorem.traced_tactics or []
    if compat:
        return compat_difficulty(len(steps), has_sorry=any("sorry" in step.tactic for step in steps))
    return rating(difficulty(len(steps), has_sorry=any(holds_sorry(step.tactic) for step in steps)))

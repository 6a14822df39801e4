"""LeanDojo-v2's `DynamicDatabase` under its own name, with our log behind it: nothing that was recorded is ever lost.

    from store.leandojo import DynamicDatabase, Repository

    database = DynamicDatabase("dynamic_database.json")
    database.add_repository(Repository.from_dict(...))
    database.export_merged_data(database.repositories, Path("merged"))

Beside `dynamic_database.json` lies `dynamic_database.json.unsorry`, with the log and its view. A file that is there
already, and every time one that somebody else has written, is imported when it is opened; it is never emptied. The path
of a daemon's state folder opens that one: to read at any time, to change while the daemon is stopped.

What differs from LeanDojo-v2: adding, updating and deleting are durable when they return; files are written whole or
not at all; a deleted repository stays in the log; splits are for life (`compat=True` gives LeanDojo's own).
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from store.curriculum import compat_difficulty, curriculum, difficulty, rating
from store.errors import LogError, translated
from store.leandojo.backing import Backing, identity, uncollected, written_whole
from store.leandojo.choosing import in_order
from store.leandojo.exporting import Mode, export_chosen, write_database
from store.leandojo.models import Theorem
from store.leandojo.repository import Repository
from store.trace_sorry import holds_sorry

Tracer = Callable[[str, str, bool], Repository | None]
"""Called with url, commit and whether to trace dependencies too; returns what it found, None where it could not."""

_log = logging.getLogger(__name__)


class TracerMissingError(LogError):
    """A repository is to be traced and nobody was given who could."""


class DynamicDatabase:
    """A collection of traced repositories; see the module."""

    def __init__(
        self,
        json_path: str | Path = "dynamic_database.json",
        tracer: Tracer | None = None,
        *,
        also: Collection[str] = (),
    ) -> None:
        """Open a database file, or a daemon's state folder; a file that is not there is made.

        Args:
            json_path: of either.
            tracer: traces commits for `trace_repository`.
            also: of a state folder, ids of traces that are wanted although there are newer ones of their repositories.

        Raises:
            store.leandojo.records.ImportFormatError: the file is no such database; it was not touched.
            LogError: the folder is no state folder, or the disk refused.
        """
        path = Path(json_path)
        self.json_path: str | None = None
        self._tracer = tracer
        self._repositories: list[Repository] | None = None
        if path.is_dir():
            if not (path / "events.db").is_file():
                raise LogError(f"{path}: is a folder without events.db; name a state folder, or a .json file")
            self._backing = Backing(path, also)
            return
        self.json_path = str(json_path)
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._backing = Backing(path.with_name(path.name + ".unsorry"))
            if not path.exists():
                self.to_json()
            elif not self._backing.knows(path):
                self._backing.take_in(path)
                self._backing.note(path)

    @property
    def repositories(self) -> list[Repository]:
        """The repositories, read from the log at first use. The list and what is in it may be changed: `to_json`,
        `export_merged_data` and `sort_repositories_by_difficulty` record what differs.
        """
        if self._repositories is None:
            self._repositories = self._backing.load()
        return self._repositories

    @repositories.setter
    def repositories(self, repositories: Sequence[Repository]) -> None:
        """Give the database other repositories, as changes to the list would."""
        if self._repositories is None:
            self._repositories = (
                self._backing.load()
            )  # what is there and not among the new ones is to be taken out
        self._repositories = list(repositories)

    def add_repository(self, repo: Repository) -> None:
        """Record a repository; one that is there already is left as it is."""
        if repo in self.repositories:
            _log.info("repository %s with commit %s is in the database already", repo.url, repo.commit)
            return
        self._backing.record([repo])
        self.repositories.append(repo)

    def get_repository(self, url: str, commit: str) -> Repository | None:
        """Return the first repository of that url and commit."""
        return next((repo for repo in self.repositories if (repo.url, repo.commit) == (url, commit)), None)

    def update_repository(self, updated_repo: Repository) -> None:
        """Record a repository in the place of the equal one.

        Raises:
            ValueError: there is none.
        """
        if updated_repo not in self.repositories:
            raise ValueError(
                f"Repository '{updated_repo.url}' with commit '{updated_repo.commit}' not found; add it first "
                "(`add_repository`)"
            )
        self._backing.record([updated_repo])
        self.repositories[self.repositories.index(updated_repo)] = updated_repo

    def delete_repository(self, url: str, commit: str) -> None:
        """Take the first repository of that url and commit out. The log keeps it.

        Raises:
            ValueError: there is none.
        """
        found = self.get_repository(url, commit)
        if found is None:
            raise ValueError(f"Repository '{url}' with commit '{commit}' not found.")
        self._backing.withdraw(identity(found))
        self.repositories.remove(found)

    def print_database_contents(self) -> None:
        """Print what repositories there are."""
        lines = [f"  - {repo.url} (commit: {repo.commit})\n" for repo in self.repositories]
        sys.stdout.writelines(["Current database contents:\n", *lines])

    def export_merged_data(
        self, repositories: Sequence[Repository], output_path: str | Path, *, compat: bool = False
    ) -> None:
        """Write these repositories, which must be in the database, as a dataset folder; see `exporting`.

        Raises:
            ValueError: one is not in the database, or none is given.
            NotReplaceableError: something lies at `output_path` that no export made.
        """
        if not repositories:
            raise ValueError("no repository to export; give some of `repositories`")
        with uncollected():
            self._export(repositories, Path(output_path).absolute(), compat=compat)

    def _export(self, repositories: Sequence[Repository], out: Path, *, compat: bool) -> None:
        self._backing.record_changes(self.repositories)
        absent = [repo for repo in repositories if identity(repo) not in self._backing.recorded]
        if absent:
            raise ValueError(
                f"Repository '{absent[0].url}' with commit '{absent[0].commit}' is not in the database; add it first "
                "(`add_repository`)"
            )
        with translated(out):
            out.parent.mkdir(parents=True, exist_ok=True)
        with self._backing.reading() as (log, view):
            chosen = self._backing.chosen(view, repositories)
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
        self._backing.record_changes(self.repositories)
        with self._backing.reading() as (_, view):
            found = curriculum(view, compat=compat, simulated=True).repositories
        order = {item.trace if compat else item.repository: item.order for item in found}

        def place(repo: Repository) -> float:
            recorded = self._backing.recorded[identity(repo)]
            return order.get(recorded.trace if compat else recorded.key, float("inf"))

        if self.json_path is not None:
            self.to_json()
        return sorted(self.repositories, key=place)

    def trace_repository(self, url: str, commit: str, build_deps: bool = False) -> Repository | None:
        """Trace a commit, record it at once, and return it; None where the tracer could not.

        Raises:
            TracerMissingError: no tracer was given.
        """
        if self._tracer is None:
            raise TracerMissingError(
                f"{url}: nobody here can trace it; open DynamicDatabase(path, tracer=...) with a function (url, "
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
        """Make a database of its own, whose log lasts as long as it does; `to_json` needs a path.

        Raises:
            store.leandojo.records.ImportFormatError: the data are no database.
        """
        folder = Path(tempfile.mkdtemp(prefix="unsorry-"))
        try:
            Backing(folder).take_in_json(data)
            database = cls(folder, tracer)
        except BaseException:
            shutil.rmtree(folder)
            raise
        weakref.finalize(database, shutil.rmtree, folder, ignore_errors=True)
        return database

    def to_json(self, file_path: str | Path | None = None, *, compat: bool = False) -> None:
        """Write the database to a file, whole or not at all; without a path, to the file that was opened.

        A rating that is infinite is written as null; with `compat` as LeanDojo's bare `Infinity`, which is no JSON.

        Raises:
            ValueError: no path, and the database was not opened from a file.
        """
        if file_path is None and self.json_path is None:
            raise ValueError("this database was not opened from a file: give to_json a path")
        path = Path(file_path if file_path is not None else str(self.json_path))
        with uncollected(), translated(path):
            self._backing.record_changes(self.repositories)
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._backing.reading() as (log, view), written_whole(path) as out:
                chosen = self._backing.chosen(view, self.repositories)
                write_database(out, chosen, log=log, view=view, infinity=compat)
            if self.json_path is not None and path.resolve() == Path(self.json_path).resolve():
                self._backing.note(path)

    @classmethod
    def from_json(cls, file_path: str | Path, tracer: Tracer | None = None) -> DynamicDatabase:
        """Open a database file that exists.

        Raises:
            FileNotFoundError: it does not.
        """
        if not Path(file_path).is_file():
            raise FileNotFoundError(
                f"{file_path}: no such file; DynamicDatabase({str(file_path)!r}) makes one"
            )
        return cls(file_path, tracer)

    def update_json(self, file_path: str | Path) -> None:
        """Put this database's repositories into another file, beside and in the place of those that it has."""
        other = DynamicDatabase(file_path)
        for repo in self.repositories:
            (other.update_repository if repo in other.repositories else other.add_repository)(repo)
        other.to_json()


def _rating(theorem: Theorem, *, compat: bool) -> float | None:
    steps = theorem.traced_tactics or []
    if compat:
        return compat_difficulty(len(steps), has_sorry=any("sorry" in step.tactic for step in steps))
    return rating(difficulty(len(steps), has_sorry=any(holds_sorry(step.tactic) for step in steps)))

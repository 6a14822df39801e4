"""LeanDojo-v2's database under its own names: a script ports by changing its imports.

The record classes are plain mutable dataclasses with LeanDojo's constructor arguments, attributes, equality,
hash and JSON. Positions are written as "(l, c)" and read in every form; lines and columns begin at 1.

`DynamicDatabase` differs in this: opening a file leaves it as it is; files are written whole or not at all;
the splits of an export are for life (`compat=True` gives LeanDojo's own). Keys unknown to LeanDojo are
dropped, as by LeanDojo: `everlean import leandojo` and `everlean export leandojo --as-imported` keep them.
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
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

from store.curriculum import compat_difficulty, curriculum, difficulty, rating
from store.domain.records import holds_sorry
from store.errors import LogError
from store.leandojo.choosing import ChosenTrace, choose, in_order
from store.leandojo.exporting import Mode, export_chosen, one_moment, write_database
from store.leandojo.folder import replaced_file
from store.leandojo.reading import HEAD, import_leandojo
from store.leandojo.records import (
    COUNTS,
    DATABASE,
    FILE,
    PREMISE,
    TACTIC,
    TEXTS,
    THEOREM,
    THEOREM_LISTS,
    USE,
    ImportFormatError,
    Kind,
    Shape,
    each,
    load,
    read,
    write,
)
from store.log.reader import LogReader
from store.sqlite import translated
from store.view import queries

_HEAD = ("url", "name", "commit", "lean_version", "lean_dojo_version")


class Pos(NamedTuple):
    """A place in a source file."""

    line_nb: int
    column_nb: int

    def __repr__(self) -> str:
        return f"({self.line_nb}, {self.column_nb})"


class _Record:
    """A record of LeanDojo's: its JSON has its attributes by name."""

    SHAPE: ClassVar[Shape]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **extra: Any) -> Self:
        """Read a record.

        Raises:
            ValueError: it is not in LeanDojo's format.
        """
        return cls._of({**read(cls.SHAPE, data), **extra})

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{name: _ATTRIBUTES.get(name, _as_it_is)(values[name]) for name in cls.SHAPE})

    def to_dict(self) -> dict[str, Any]:
        return write(self.SHAPE, self, DATABASE)


def _as_it_is(value: Any) -> Any:
    return value


@dataclass
class Annotation(_Record):
    """A premise named by a tactic: its full name, and the place of that name in its definition."""

    SHAPE = USE
    full_name: str
    def_path: str
    def_pos: Pos
    def_end_pos: Pos


@dataclass
class AnnotatedTactic(_Record):
    """A tactic step. `annotated_tactic` is its text with `<a>` marks, and one annotation a mark."""

    SHAPE = TACTIC
    tactic: str
    annotated_tactic: tuple[str, list[Annotation]]
    state_before: str
    state_after: str


@dataclass
class Theorem(_Record):
    """A theorem at its place. Equality is by name, file and both ends; it cannot be hashed."""

    SHAPE = THEOREM["database"]
    full_name: str
    file_path: Path
    start: Pos
    end: Pos
    url: str = field(compare=False)
    commit: str = field(compare=False)
    theorem_statement: str | None = field(default=None, compare=False)
    traced_tactics: list[AnnotatedTactic] | None = field(default_factory=list, compare=False)
    difficulty_rating: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.theorem_statement or self.full_name

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], url: str = "", commit: str = "") -> Theorem:  # type: ignore[override]
        return super().from_dict(data, url=url, commit=commit)


@dataclass
class Premise(_Record):
    """A declaration usable in proofs: the statement of a theorem, the whole text of anything else."""

    SHAPE = PREMISE
    full_name: str
    code: str
    start: Pos
    end: Pos
    kind: str


@dataclass
class PremiseFile(_Record):
    """A file of the corpus: the imported paths, and its premises."""

    SHAPE = FILE
    path: Path
    imports: list[str]
    premises: list[Premise]


def _count(*lists: str) -> property:
    return property(lambda record: sum(len(getattr(record, name)) for name in lists))


@dataclass(unsafe_hash=True)
class Repository:
    """A traced commit of a repository. Equal, and hashed, by url, name, commit and both versions."""

    url: str
    name: str
    commit: str
    lean_version: str
    lean_dojo_version: str
    metadata: dict[str, Any] = field(compare=False)
    proven_theorems: list[Theorem] = field(default_factory=list, compare=False)
    sorry_theorems_proved: list[Theorem] = field(default_factory=list, compare=False)
    sorry_theorems_unproved: list[Theorem] = field(default_factory=list, compare=False)
    premise_files: list[PremiseFile] = field(default_factory=list, compare=False)
    files_traced: list[Path] = field(default_factory=list, compare=False)
    pr_url: str | None = field(default=None, compare=False)

    total_theorems = _count(*THEOREM_LISTS)
    num_proven_theorems = _count("proven_theorems")
    num_sorry_theorems_proved = _count("sorry_theorems_proved")
    num_sorry_theorems_unproved = _count("sorry_theorems_unproved")
    num_sorry_theorems = _count("sorry_theorems_proved", "sorry_theorems_unproved")
    num_premise_files = _count("premise_files")
    num_files_traced = _count("files_traced")

    def __str__(self) -> str:
        return f"{self.name}_{self.commit}"

    @property
    def num_premises(self) -> int:
        return sum(len(file.premises) for file in self.premise_files)

    @property
    def get_all_theorems(self) -> list[Theorem]:
        """All theorems: the proven ones, the proved sorries, the others (a property, as in LeanDojo)."""
        return [*self.proven_theorems, *self.sorry_theorems_proved, *self.sorry_theorems_unproved]

    def get_theorem(self, full_name: str, file_path: str) -> Theorem | None:
        """Return the first theorem by this name in this file; the empty path is the folder itself."""
        target = file_path or "."
        return next(
            (
                theorem
                for theorem in self.get_all_theorems
                if theorem.full_name == full_name and str(theorem.file_path) == target
            ),
            None,
        )

    def update_theorem(self, theorem: Theorem) -> None:
        """Replace the equal theorem.

        Raises:
            ValueError: the repository has no such theorem.
        """
        for name in THEOREM_LISTS:
            theorems: list[Theorem] = getattr(self, name)
            if theorem in theorems:
                theorems[theorems.index(theorem)] = theorem
                return
        raise ValueError(
            f"Theorem '{theorem.full_name}' not found in {self}: no theorem of that name stands at {theorem.start} "
            f"in {theorem.file_path}; add it to a list instead"
        )

    def change_sorry_to_proven(self, theorem: Theorem, log_file: str) -> None:
        """Move a theorem to the proved sorries, and add a line to `log_file`.

        Raises:
            ValueError: it is not among the unproved ones.
            OSError: the line cannot be written; nothing was moved.
        """
        if theorem not in self.sorry_theorems_unproved:
            raise ValueError(
                f"The theorem '{theorem.full_name}' is not in the list of unproved sorry theorems of {self}."
            )
        moment = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        path = Path(log_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(
                f"{moment} - Theorem proved: {theorem.full_name} in {theorem.file_path} for repo {self.name} "
                f"(commit: {self.commit})\n"
            )
        self.sorry_theorems_unproved.remove(theorem)
        self.sorry_theorems_proved.append(theorem)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Repository:
        """Make a repository from a database's record.

        Raises:
            ValueError: it is not in LeanDojo's format.
        """
        values = read(_REPOSITORY, data)
        date = values["metadata"]["date_processed"]
        values["metadata"]["date_processed"] = datetime.fromisoformat(date) if isinstance(date, str) else date
        result = cls(**{name: values[name] for name in _REPOSITORY})
        result.files_traced = [Path(path) for path in values["files_traced"]]
        for theorem in result.get_all_theorems:
            theorem.url, theorem.commit = result.url, result.commit
        return result

    def to_dict(self) -> dict[str, Any]:
        values = write(_REPOSITORY, self, DATABASE)
        head = {name: values.pop(name) for name in (*_HEAD, "metadata")}
        return {**head, **{name: getattr(self, name) for name in COUNTS}, **values}


_ATTRIBUTES: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("start", "end", "def_pos", "def_end_pos"), Pos._make),
    **dict.fromkeys(("path", "file_path"), Path),
    "premises": lambda items: [Premise._of(item) for item in items],
    "traced_tactics": lambda items: [AnnotatedTactic._of(item) for item in items],
    "annotated_tactic": lambda pair: (pair[0], [Annotation._of(item) for item in pair[1]]),
}
"""Conversions of read values, by attribute; other attributes take the value as it is."""


def _list(of: type[_Record]) -> Kind:
    return Kind(
        lambda items: each(items, of.from_dict), lambda items, _style: [item.to_dict() for item in items], []
    )


_REPOSITORY: Shape = {
    **{name: kind for name, kind in HEAD.items() if name != "pr_url"},
    **{name: _list(Theorem) for name in THEOREM_LISTS},
    "premise_files": _list(PremiseFile),
    "files_traced": TEXTS._replace(missing=[]),
    "pr_url": HEAD["pr_url"],
}


Tracer = Callable[[str, str, bool], Repository | None]
"""Called with url, commit and whether to trace dependencies too; returns None on failure."""

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
        """Open a database file, or a daemon's state folder; a missing file is an empty database.

        Args:
            json_path: of either.
            tracer: traces commits for `trace_repository`.
            also: ids of older traces to keep, for a state folder with newer ones of their repositories.

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
        """The repositories, read from a state folder at first use. You may change the list and its contents."""
        with self._open_log() as (log, view, traces), tempfile.TemporaryFile() as file:
            write_database(file, list(traces.values()), log=log, view=view, infinity=True)
            file.seek(0)
            return [Repository.from_dict(item) for item in json.load(file)["repositories"]]

    def add_repository(self, repo: Repository) -> None:
        """Append a repository, unless it is there already."""
        if repo in self.repositories:
            _log.info("repository %s with commit %s is in the database already", repo.url, repo.commit)
            return
        self.repositories.append(repo)

    def get_repository(self, url: str, commit: str) -> Repository | None:
        """Return the first repository with this url and commit."""
        return next((repo for repo in self.repositories if (repo.url, repo.commit) == (url, commit)), None)

    def update_repository(self, updated_repo: Repository) -> None:
        """Replace the equal repository.

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
        """Remove the first repository with this url and commit.

        Raises:
            ValueError: the database has no such repository.
        """
        result = self.get_repository(url, commit)
        if result is None:
            raise ValueError(f"Repository '{url}' with commit '{commit}' not found.")
        self.repositories.remove(result)

    def print_database_contents(self) -> None:
        """Print the repositories of the database."""
        lines = [f"  - {repo.url} (commit: {repo.commit})\n" for repo in self.repositories]
        sys.stdout.writelines(["Current database contents:\n", *lines])

    def export_merged_data(
        self, repositories: Sequence[Repository], output_path: str | Path, *, compat: bool = False
    ) -> None:
        """Write these repositories of the database as a dataset folder; see `exporting`.

        Those of a state folder are written from its log, whatever the changes to the objects.

        Raises:
            ValueError: one is not in the database, or none is given.
            NotReplaceableError: `output_path` exists and is no export.
        """
        if not repositories:
            raise ValueError("no repository to export; give some of `repositories`")
        out = Path(output_path).absolute()
        with self._open_log() as (log, view, traces):
            absent = [repo for repo in repositories if _head(repo) not in traces]
            if absent:
                raise ValueError(
                    f"Repository '{absent[0].url}' with commit '{absent[0].commit}' is not in the database; add it "
                    "first (`add_repository`)"
                )
            with translated(out):
                out.parent.mkdir(parents=True, exist_ok=True)
            chosen = [ChosenTrace(traces[_head(repo)].row, in_dataset=True) for repo in repositories]
            if not compat:
                chosen = in_order(view, [(item.row, True) for item in chosen])
            mode = Mode.COMPAT if compat else Mode.FOR_LIFE
            export_chosen(out, chosen, log=log, view=view, mode=mode, with_database=False)

    def sort_repositories_by_difficulty(self, *, compat: bool = False) -> list[Repository]:
        """Rate every theorem, save the ratings, and return the repositories with most easy theorems first.

        A rating is e^steps; None for a proof by a term, a proof with a sorry, and one of more than 709 steps
        (`compat`: LeanDojo's own, infinity for a sorry). Several commits of one repository stand together, at
        the place of the newest.

        Raises:
            store.curriculum.CompatError: `compat`, and LeanDojo-v2 fails on these theorems.
        """
        for repo in self.repositories:
            for theorem in repo.get_all_theorems:
                theorem.difficulty_rating = _rating(theorem, compat=compat)
        with self._open_log() as (_, view, traces):
            repositories = curriculum(view, compat=compat).repositories
        order = {
            repository.trace if compat else repository.repository: repository.order
            for repository in repositories
        }

        def place(repo: Repository) -> float:
            item = traces.get(_head(repo))
            if item is None:
                return math.inf
            return order.get(item.row.trace if compat else item.row.repository, math.inf)

        if self.json_path is not None:
            self.to_json(compat=compat)
        return sorted(self.repositories, key=place)

    def trace_repository(self, url: str, commit: str, build_deps: bool = False) -> Repository | None:
        """Trace a commit, add it, and return it; None if the tracer failed.

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
        """Refuse: people choose the repositories to trace, no web search does.

        Raises:
            TracerMissingError: always; it names the alternatives.
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
        """Make a database without a file; its `to_json` needs a path.

        Raises:
            store.leandojo.records.ImportFormatError: the data are no database.
        """
        database = cls.__new__(cls)
        database.json_path, database._tracer, database._also, database._state = None, tracer, (), None
        database.repositories = _repositories(data, _GIVEN)
        return database

    def to_json(self, file_path: str | Path | None = None, *, compat: bool = False) -> None:
        """Write the database to a file, whole or not at all; without a path, to its own file.

        An infinite rating is written as null; with `compat` as LeanDojo's bare `Infinity`, which is no JSON.

        Raises:
            ValueError: no path, and the database was not opened from a file; or a value is no JSON.
        """
        if file_path is None and self.json_path is None:
            raise ValueError("this database was not opened from a file: give to_json a path")
        path = Path(file_path if file_path is not None else str(self.json_path))
        data = self.to_dict()
        for repo in () if compat else data["repositories"]:
            for name in THEOREM_LISTS:
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
            with replaced_file(path) as out:
                out.write(text.encode())

    @classmethod
    def from_json(cls, file_path: str | Path, tracer: Tracer | None = None) -> DynamicDatabase:
        """Open an existing database file.

        Raises:
            FileNotFoundError: it does not exist.
        """
        if not Path(file_path).is_file():
            raise FileNotFoundError(
                f"{file_path}: no such file; DynamicDatabase({str(file_path)!r}) is an empty one"
            )
        return cls(file_path, tracer)

    def update_json(self, file_path: str | Path) -> None:
        """Put this database's repositories into another file, beside its own, replacing equal ones."""
        other = DynamicDatabase(file_path)
        for repo in self.repositories:
            (other.update_repository if repo in other.repositories else other.add_repository)(repo)
        other.to_json()

    @contextmanager
    def _open_log(self) -> Iterator[tuple[LogReader, sqlite3.Connection, dict[tuple[str, ...], ChosenTrace]]]:
        """Open a log with these repositories, one moment of its view, and their traces by their `_head`.

        It is the state folder's, else a temporary one for the block.
        """
        with ExitStack() as held:
            folder = self._state
            if folder is None:
                folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="everlean-")))
                self._import_into(folder)
            log = held.enter_context(LogReader.open(folder / "events.db"))
            view = held.enter_context(closing(queries.connect(folder / "database.db")))
            held.enter_context(one_moment(view))
            exists = view.execute("SELECT 1 FROM traces WHERE state = 'current' LIMIT 1").fetchone()
            chosen = choose(view, (), every_commit=True, also=self._also) if exists else []
            yield log, view, {tuple(item.head[key] for key in _HEAD): item for item in chosen}

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


def _head(repo: Repository) -> tuple[str, ...]:
    return tuple(getattr(repo, name) for name in _HEAD)


def _repositories(data: Any, source: Path | str) -> list[Repository]:
    if not isinstance(data, Mapping) or not isinstance(data.get("repositories"), list):
        raise ImportFormatError(source, "repositories", "is missing or no list", remedy=_CORRECT)
    result = []
    for index, item in enumerate(data["repositories"]):
        try:
            result.append(Repository.from_dict(item))
        except (TypeError, ValueError) as error:
            raise ImportFormatError(source, f"repositories[{index}]", str(error)) from error
    return result


def _rating(theorem: Theorem, *, compat: bool) -> float | None:
    steps = theorem.traced_tactics or []
    if compat:
        return compat_difficulty(len(steps), has_sorry=any("sorry" in step.tactic for step in steps))
    return rating(difficulty(len(steps), has_sorry=any(holds_sorry(step.tactic) for step in steps)))

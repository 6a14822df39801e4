"""LeanDojo-v2's `Repository`: a traced commit with its theorems by how they are proved, and its corpus.

With LeanDojo's constructor arguments, attributes, equality, hash and JSON; see `store.leandojo.models`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from store.leandojo.models import PremiseFile, Theorem, require

_LISTS = ("proven_theorems", "sorry_theorems_proved", "sorry_theorems_unproved")
_NEEDED_OF_A_REPOSITORY = ("url", "name", "commit", "lean_version", "lean_dojo_version", "metadata")
_PATHS_OF_A_DATASET = ("theorems_folder", "premise_files_corpus", "files_traced")


@dataclass(eq=False)
class Repository:
    """A traced commit of a repository. Equal, and hashed, by url, name, commit and both versions."""

    url: str
    name: str
    commit: str
    lean_version: str
    lean_dojo_version: str
    metadata: dict[str, Any]
    proven_theorems: list[Theorem] = field(default_factory=list)
    sorry_theorems_proved: list[Theorem] = field(default_factory=list)
    sorry_theorems_unproved: list[Theorem] = field(default_factory=list)
    premise_files: list[PremiseFile] = field(default_factory=list)
    files_traced: list[Path] = field(default_factory=list)
    pr_url: str | None = None

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, Repository) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def __str__(self) -> str:
        return f"{self.name}_{self.commit}"

    def _identity(self) -> tuple[str, ...]:
        return self.url, self.name, self.commit, self.lean_version, self.lean_dojo_version

    @property
    def total_theorems(self) -> int:
        return self.num_proven_theorems + self.num_sorry_theorems

    @property
    def num_proven_theorems(self) -> int:
        return len(self.proven_theorems)

    @property
    def num_sorry_theorems_proved(self) -> int:
        return len(self.sorry_theorems_proved)

    @property
    def num_sorry_theorems_unproved(self) -> int:
        return len(self.sorry_theorems_unproved)

    @property
    def num_sorry_theorems(self) -> int:
        return self.num_sorry_theorems_proved + self.num_sorry_theorems_unproved

    @property
    def num_premise_files(self) -> int:
        return len(self.premise_files)

    @property
    def num_premises(self) -> int:
        return sum(len(file.premises) for file in self.premise_files)

    @property
    def num_files_traced(self) -> int:
        return len(self.files_traced)

    @property
    def get_all_theorems(self) -> list[Theorem]:
        """All theorems: the proven ones, the sorrys that were proved, the others (a property, as LeanDojo has it)."""
        return [*self.proven_theorems, *self.sorry_theorems_proved, *self.sorry_theorems_unproved]

    def get_theorem(self, full_name: str, file_path: str) -> Theorem | None:
        """Return the first theorem of that name in that file; the empty path is the folder itself."""
        wanted = file_path or "."
        return next(
            (
                theorem
                for theorem in self.get_all_theorems
                if theorem.full_name == full_name and str(theorem.file_path) == wanted
            ),
            None,
        )

    def update_theorem(self, theorem: Theorem) -> None:
        """Put a theorem in the place of the same one.

        Raises:
            ValueError: there is none.
        """
        for name in _LISTS:
            theorems: list[Theorem] = getattr(self, name)
            if theorem in theorems:
                theorems[theorems.index(theorem)] = theorem
                return
        raise ValueError(
            f"Theorem '{theorem.full_name}' not found in {self}: no theorem of that name stands at {theorem.start} "
            f"in {theorem.file_path}; add it to a list instead"
        )

    def get_premise_file(self, path: str) -> PremiseFile | None:
        return next((file for file in self.premise_files if str(file.path) == path), None)

    def get_file_traced(self, path: str) -> Path | None:
        return next((file for file in self.files_traced if str(file) == path), None)

    def change_sorry_to_proven(self, theorem: Theorem, log_file: str) -> None:
        """Move a theorem to the sorrys that were proved, and add a line to `log_file`.

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
        """Make one of a database's record, or of the paths of a dataset's files (`theorems_folder`, …).

        Raises:
            ValueError: a key or one of the dataset's paths is missing.
        """
        require(data, _NEEDED_OF_A_REPOSITORY, "Repository")
        metadata = dict(data["metadata"])
        if "date_processed" not in metadata:
            raise ValueError("Metadata must contain the 'date_processed' key")
        if isinstance(metadata["date_processed"], str):
            metadata["date_processed"] = datetime.fromisoformat(metadata["date_processed"])
        repository = cls(
            **{name: data[name] for name in _NEEDED_OF_A_REPOSITORY if name != "metadata"},
            metadata=metadata,
            pr_url=data.get("pr_url"),
        )
        if all(name in data for name in _PATHS_OF_A_DATASET):
            repository._read_dataset(data)
            return repository
        for name in _LISTS:
            theorems: list[Theorem] = getattr(repository, name)
            theorems += [
                Theorem.from_dict(item, repository.url, repository.commit) for item in data.get(name, ())
            ]
        repository.premise_files = [PremiseFile.from_dict(item) for item in data.get("premise_files", ())]
        repository.files_traced = [Path(item) for item in data.get("files_traced", ())]
        return repository

    def to_dict(self) -> dict[str, Any]:
        metadata = dict(self.metadata)
        if isinstance(metadata.get("date_processed"), datetime):
            metadata["date_processed"] = metadata["date_processed"].isoformat()
        return {
            "url": self.url,
            "name": self.name,
            "commit": self.commit,
            "lean_version": self.lean_version,
            "lean_dojo_version": self.lean_dojo_version,
            "metadata": metadata,
            "total_theorems": self.total_theorems,
            "num_proven_theorems": self.num_proven_theorems,
            "num_sorry_theorems": self.num_sorry_theorems,
            "num_sorry_theorems_proved": self.num_sorry_theorems_proved,
            "num_sorry_theorems_unproved": self.num_sorry_theorems_unproved,
            "num_premise_files": self.num_premise_files,
            "num_premises": self.num_premises,
            "num_files_traced": self.num_files_traced,
            **{name: [item.to_dict() for item in getattr(self, name)] for name in _LISTS},
            "premise_files": [item.to_dict() for item in self.premise_files],
            "files_traced": [str(item) for item in self.files_traced],
            "pr_url": self.pr_url,
        }

    def _read_dataset(self, data: Mapping[str, Any]) -> None:
        absent = [data[name] for name in _PATHS_OF_A_DATASET if not Path(data[name]).exists()]
        if absent:
            raise ValueError(
                f"{absent[0]}: there is no such file; name the files of a dataset that was exported"
            )
        for file in sorted(Path(data["theorems_folder"]).glob("*.json")):
            for item in json.loads(file.read_text(encoding="utf-8")):
                theorem = Theorem.from_dict(item, self.url, self.commit)
                # By these letters, as LeanDojo does it; the store itself looks for the token.
                unproved = any("sorry" in step.tactic for step in theorem.traced_tactics or ())
                (self.sorry_theorems_unproved if unproved else self.proven_theorems).append(theorem)
        self.premise_files = [
            PremiseFile.from_dict(item) for item in _json_lines(data["premise_files_corpus"])
        ]
        self.files_traced = [Path(item["traced_file_path"]) for item in _json_lines(data["files_traced"])]


def _json_lines(path: str | Path) -> Iterator[Any]:
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)

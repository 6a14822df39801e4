"""LeanDojo-v2's record classes under their own names, so that a script ports by changing its imports.

Plain mutable dataclasses with LeanDojo's constructor arguments, attributes, equality and JSON; `Repository` is in
`store.leandojo.repository`. What they do not have is the store behind them: that is `store.leandojo.face`. Positions
are written as "(l, c)" and read in every form; lines and columns begin at 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, eq=True, order=True)
class Pos:
    """A place in a source file."""

    line_nb: int
    column_nb: int

    @classmethod
    def from_str(cls, s: str) -> Pos:
        """Read "(l, c)" or "Pos(l, c)".

        Raises:
            ValueError: it is something else.
        """
        line, comma, column = s.removeprefix("Pos").removeprefix("(").removesuffix(")").partition(",")
        try:
            if not comma:
                raise ValueError
            return cls(int(line), int(column))
        except ValueError:
            raise ValueError(f'{s!r} is no position; write "(line, column)" or [line, column]') from None

    def __iter__(self) -> Iterator[int]:
        yield self.line_nb
        yield self.column_nb

    def __repr__(self) -> str:
        return f"({self.line_nb}, {self.column_nb})"


@dataclass
class Annotation:
    """A premise that a tactic names: its full name, and where that name stands in its definition."""

    full_name: str
    def_path: str
    def_pos: Pos
    def_end_pos: Pos

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Annotation:
        require(data, ("full_name", "def_path", "def_pos", "def_end_pos"), "Annotation")
        return cls(
            data["full_name"], data["def_path"], parse_pos(data["def_pos"]), parse_pos(data["def_end_pos"])
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "full_name": self.full_name,
            "def_path": str(self.def_path),
            "def_pos": repr(self.def_pos),
            "def_end_pos": repr(self.def_end_pos),
        }


@dataclass
class AnnotatedTactic:
    """A tactic step. `annotated_tactic` is its text with `<a>` marks, and one annotation a mark."""

    tactic: str
    annotated_tactic: tuple[str, list[Annotation]]
    state_before: str
    state_after: str

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AnnotatedTactic:
        require(data, ("tactic", "annotated_tactic", "state_before", "state_after"), "AnnotatedTactic")
        text, annotations = data["annotated_tactic"]
        return cls(
            tactic=data["tactic"],
            annotated_tactic=(text, [Annotation.from_dict(item) for item in annotations]),
            state_before=data["state_before"],
            state_after=data["state_after"],
        )

    def to_dict(self) -> dict[str, Any]:
        text, annotations = self.annotated_tactic
        return {
            "tactic": self.tactic,
            "annotated_tactic": [text, [item.to_dict() for item in annotations]],
            "state_before": self.state_before,
            "state_after": self.state_after,
        }


@dataclass(eq=False)
class Theorem:
    """A theorem at its place. Two are equal when name, file and both ends are; it cannot be hashed."""

    full_name: str
    file_path: Path
    start: Pos
    end: Pos
    url: str
    commit: str
    theorem_statement: str | None = None
    traced_tactics: list[AnnotatedTactic] | None = field(default_factory=list)
    difficulty_rating: float | None = None

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self.is_same_theorem(other) if isinstance(other, Theorem) else NotImplemented

    def __str__(self) -> str:
        return self.theorem_statement or self.full_name

    def is_same_theorem(self, other: Theorem) -> bool:
        return self.get_theorem_identifier() == other.get_theorem_identifier()

    def get_theorem_identifier(self) -> tuple[str, str, tuple[int, int], tuple[int, int]]:
        """Return (full name, path, (line, column) of the start, (line, column) of the end)."""
        return (
            self.full_name,
            str(self.file_path),
            (self.start.line_nb, self.start.column_nb),
            (self.end.line_nb, self.end.column_nb),
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], url: str, commit: str) -> Theorem:
        require(data, ("full_name", "file_path", "start", "end"), "Theorem")
        return cls(
            full_name=data["full_name"],
            theorem_statement=data.get("theorem_statement"),
            file_path=Path(data["file_path"]),
            start=parse_pos(data["start"]),
            end=parse_pos(data["end"]),
            url=url,
            commit=commit,
            traced_tactics=[AnnotatedTactic.from_dict(item) for item in data.get("traced_tactics") or []],
            difficulty_rating=data.get("difficulty_rating"),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "full_name": self.full_name,
            "theorem_statement": self.theorem_statement,
            "file_path": str(self.file_path),
            "start": repr(self.start),
            "end": repr(self.end),
            "url": self.url,
            "commit": self.commit,
            "traced_tactics": [item.to_dict() for item in self.traced_tactics or []],
            "difficulty_rating": self.difficulty_rating,
        }


@dataclass
class Premise:
    """A declaration that proofs may use: the statement of a theorem, the whole text of anything else."""

    full_name: str
    code: str
    start: Pos
    end: Pos
    kind: str

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Premise:
        require(data, ("full_name", "code", "start", "end", "kind"), "Premise")
        return cls(
            data["full_name"], data["code"], parse_pos(data["start"]), parse_pos(data["end"]), data["kind"]
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "full_name": self.full_name,
            "code": self.code,
            "start": repr(self.start),
            "end": repr(self.end),
            "kind": self.kind,
        }


@dataclass
class PremiseFile:
    """A file of the corpus: the paths that it imports, and its premises."""

    path: Path
    imports: list[str]
    premises: list[Premise]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PremiseFile:
        require(data, ("path", "imports", "premises"), "PremiseFile")
        return cls(
            Path(data["path"]), data["imports"], [Premise.from_dict(item) for item in data["premises"]]
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "imports": [str(item) for item in self.imports],
            "premises": [item.to_dict() for item in self.premises],
        }


def parse_pos(value: Any) -> Pos:
    """Read a position in any of LeanDojo's forms: "(l, c)", "Pos(l, c)", [l, c].

    Raises:
        ValueError: it is none of them.
    """
    if isinstance(value, str):
        return Pos.from_str(value)
    if isinstance(value, list | tuple) and len(value) == 2:
        return Pos(*value)
    raise ValueError(f'{value!r} is no position; write "(line, column)" or [line, column]')


def require(data: Mapping[str, Any], names: Iterable[str], what: str) -> None:
    """Refuse a record without these keys.

    Raises:
        ValueError: one is missing.
    """
    missing = [name for name in names if name not in data]
    if missing:
        raise ValueError(f"Invalid {what} data format: it has no {', '.join(repr(name) for name in missing)}")

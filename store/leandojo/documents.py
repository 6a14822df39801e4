"""Results of imports and exports, as documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from store.documents.document import of_row
from store.leandojo.exporting import ExportReport
from store.leandojo.reading import ImportedTrace, ImportReport
from store.text import counted


@dataclass(frozen=True, slots=True)
class Totals:
    theorems: int
    tactics: int
    premises: int
    files: int

    @classmethod
    def of(cls, traces: Sequence[ImportedTrace]) -> Totals:
        """Add up what traces have."""
        return cls(
            theorems=sum(item.recorded.n_theorems for item in traces),
            tactics=sum(item.recorded.n_tactics for item in traces),
            premises=sum(item.recorded.n_premises for item in traces),
            files=sum(item.recorded.files_traced for item in traces),
        )


@dataclass(frozen=True, slots=True)
class ImportedRepository:
    repository: str
    """its key; `leandojo.import/…` of a merged dataset"""
    url: str
    name: str
    commit: str
    lean_version: str
    lean_dojo_version: str
    trace: str
    already_imported: bool
    files_changed: int
    files_removed: int
    theorems: int
    tactics: int
    premises: int
    files: int

    @property
    def outcome(self) -> str:
        """Return what the import changed."""
        if self.already_imported:
            return "already imported"
        parts = [(self.files_changed, "changed"), (self.files_removed, "removed")]
        said = ", ".join(f"{counted(number, 'file')} {what}" for number, what in parts if number)
        return said or "order changed"


@dataclass(frozen=True, slots=True)
class Imported:
    path: Path
    form: str
    """`database` or `dataset`"""
    already_imported: bool
    """the log had all of it, nothing was written"""
    repositories: list[ImportedRepository]
    """one for each commit"""
    totals: Totals
    """counts"""
    notes: tuple[str, ...]
    """oddities that did no harm"""
    seconds: float
    position: int

    @classmethod
    def of(cls, report: ImportReport) -> Imported:
        """Describe an import."""
        repositories = [
            of_row(
                ImportedRepository,
                Totals.of([item]),
                repository=item.head.repository,
                url=item.head.url,
                name=item.head.name,
                commit=item.head.sha,
                lean_version=item.head.lean_version,
                lean_dojo_version=item.head.tracer_version,
                trace=item.recorded.trace,
                already_imported=item.recorded.repeated,
                files_changed=item.recorded.files_changed,
                files_removed=item.recorded.files_removed,
            )
            for item in report.traces
        ]
        return of_row(
            cls,
            report,
            already_imported=report.repeated,
            repositories=repositories,
            totals=Totals.of(report.traces),
            seconds=round(report.seconds, 3),
        )


@dataclass(frozen=True, slots=True)
class ExportedRepository:
    url: str
    commit: str
    in_dataset: bool
    """it is in the splits and the corpus"""


@dataclass(frozen=True, slots=True)
class Exported:
    path: Path
    mode: str
    """`for life`, `compat`, `as imported`, `as imported, compat`"""
    position: int
    repositories: list[ExportedRepository]
    """one for each commit"""
    theorems: dict[str, int]
    """number by list, such as `random/train`"""
    withheld: dict[str, int]
    """by split, theorems in no list: training on them would give a test away"""
    corpus_files: int
    """files in `corpus.jsonl`"""
    files_renamed: int
    """of these, files of another name than their path"""
    imports_left_out: int
    """imports of files that were not traced"""
    files_untraced: int
    """lines of `corpus.jsonl` without premises"""
    seconds: float

    @classmethod
    def of(cls, report: ExportReport) -> Exported:
        """Describe an export."""
        return of_row(
            cls,
            report,
            mode=report.mode.value,
            repositories=[
                ExportedRepository(item["url"], item["commit"], in_dataset)
                for item, in_dataset in report.repositories
            ],
            seconds=round(report.seconds, 3),
        )

"""A benchmark of time: the sorries filled by people in a repository's history, before and after a day.

    OUT/train.parquet     sorries filled before the day, each with its statement and the proof that people wrote
    OUT/test.parquet      those filled on the day or later
    OUT/known.parquet     the declarations of the last commit before the day: all that there was to learn from
    OUT/benchmark.json    the day, the repositories with the commits that were read, and the counts

A sorry counts as filled if `everlean diff` reports it for a step of the branch's first-parent line, and its proof cites
no declaration with a sorry. A commit's time is the latest on the line up to it: never before its ancestors', whatever
its own date. A row's id is a hash of the repository, the name, the statement and the commit, so the same rows get the
same ids in a repeated benchmark or one of a longer history.

Lean is not used: goals come from a daemon's log, if it has them, and premises are the declarations of `known` named in
a proof's text.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from pipeline.diff import CloneError, Fill, clone, filled_between
from pipeline.jobs.mirror import Mirror
from pipeline.jobs.protocol import JobError
from pipeline.lean.source.globs import path_filter
from pipeline.versions import Version, version_of
from store.domain.keywords import PROVABLE_KINDS
from store.files import folder_written_whole

PARTS = ("train", "test", "known")
_FILLED = (
    "id",
    "repository",
    "commit",
    "date",
    "path",
    "name",
    "kind",
    "statement",
    "goal",
    "proof",
    "premises",
)
_KNOWN = ("repository", "commit", "path", "line", "name", "statement", "proof", "premises")
_WORD = re.compile(r"[^\W\d][\w.'?!₀-₉]*")


class BenchmarkError(Exception):
    """The benchmark cannot be made; the message names the thing, the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Source:
    """A repository's git folder. By commit and name: `ours`, the proofs filled by everlean, and `goals`, Lean's
    goals.
    """

    repository: str
    git: Path
    ours: Collection[tuple[str, str]] = ()
    goals: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadHistory:
    repository: str
    known_at: str
    """the last commit before the day"""
    head: str
    """the last commit read"""
    commits: int
    """the commits of the first-parent line"""
    files_unread: int
    """missing or too large versions of files"""


@dataclass(frozen=True, slots=True)
class Benchmark:
    path: Path
    day: str
    repositories: list[ReadHistory]
    train: int
    """sorries filled by people before the day"""
    test: int
    """on the day or later"""
    known: int
    """declarations of the last commits before the day"""
    left_out: dict[str, int]
    """filled sorries left out, by reason"""


def make(out: Path, sources: Sequence[Source], day: date) -> Benchmark:
    """Write a benchmark into a new folder, and check it against the histories.

    Raises:
        BenchmarkError: a history has nothing before the day, the folder cannot be written, or the benchmark leaks.
    """
    rows: dict[str, list[dict[str, Any]]] = {part: [] for part in PARTS}
    left_out: dict[str, int] = {}
    read = [_read(source, day, rows, left_out) for source in sources]
    _keep_apart(rows, left_out)
    if out.exists():
        raise BenchmarkError(f"{out} is there already; name a new folder")
    counts = {part: len(rows[part]) for part in PARTS}
    benchmark = Benchmark(out, day.isoformat(), read, **counts, left_out=left_out)
    try:
        with folder_written_whole(out) as new:
            for part in PARTS:
                _write(new / f"{part}.parquet", rows[part])
            text = json.dumps(asdict(benchmark) | {"path": None}, indent=2, default=str)
            (new / "benchmark.json").write_text(text + "\n", encoding="utf-8")
            check(new, sources, day)
    except OSError as error:
        raise BenchmarkError(f"{out} cannot be written: {error.strerror}; name another folder") from error
    return benchmark


def rows_of(folder: Path, part: str) -> list[dict[str, Any]]:
    """Return the rows of a part of a benchmark, in its order."""
    from pyarrow import parquet

    result: list[dict[str, Any]] = parquet.read_table(folder / f"{part}.parquet").to_pylist()
    return result


def check(folder: Path, sources: Sequence[Source], day: date) -> None:
    """Look for leaks of a benchmark in git's log.

    Raises:
        BenchmarkError: a training row is not from before the day, or has a test statement.
    """
    learned, known, asked = rows_of(folder, "train"), rows_of(folder, "known"), rows_of(folder, "test")
    for source in sources:
        line = _line(source)
        before = {sha for sha, landed in line if landed.date() < day}
        for rows, side in ((learned, "not before"), (known, "not before"), (asked, "before")):
            for row in rows:
                early = row["commit"] in before
                if row["repository"] == source.repository and early is (side == "before"):
                    raise BenchmarkError(f"{row['name']} leaks: its commit {row['commit']} is {side} {day}")
    seen = {_statement_text(row["statement"]) for row in learned} | {
        _statement_text(row["statement"]) for row in known if row["proof"]
    }
    for row in asked:
        if _statement_text(row["statement"]) in seen:
            raise BenchmarkError(f"{row['name']} leaks: the training part has its statement")


# ---- a history


def _read(
    source: Source, day: date, rows: dict[str, list[dict[str, Any]]], left_out: dict[str, int]
) -> ReadHistory:
    line = _line(source)
    before = [sha for sha, landed in line if landed.date() < day]
    if not before:
        raise BenchmarkError(f"{source.repository} has no commit before {day}; name a later day")
    meant = path_filter((), ())
    unread = 0
    with Mirror(source.git) as mirror:
        known = []
        for item in mirror.files(before[-1]):
            if not (item.readable and meant(item.path)):
                continue
            version = version_of(mirror, item)
            unread += version.read.scan.error is not None and not version.data
            known += list(_declared(version))
        names = Names(name for _, _, name, _, _ in known)
        for path, at, name, statement, proof in known:
            rows["known"].append(
                {
                    "repository": source.repository,
                    "commit": before[-1],
                    "path": path,
                    "line": at,
                    "name": name,
                    "statement": statement,
                    "proof": proof,
                    "premises": names.in_proof(name, proof),
                }
            )
        for (base, _), (sha, landed) in pairwise(line):
            for one in filled_between(mirror, base, sha, meant=meant):
                reason = _reason(source, sha, one)
                if reason:
                    left_out[reason] = left_out.get(reason, 0) + 1
                    continue
                part = "train" if landed.date() < day else "test"
                rows[part].append(_row(source, sha, landed, one, names))
    return ReadHistory(source.repository, before[-1], line[-1][0], len(line), unread)


def _reason(source: Source, sha: str, one: Fill) -> str:
    if (sha, one.name) in source.ours:
        return "filled by everlean"
    if one.rests_on:
        return "its proof cites what has a sorry"
    if one.kind not in PROVABLE_KINDS:
        return "a value, and no proof"
    return ""


def _row(source: Source, sha: str, landed: datetime, one: Fill, names: Names) -> dict[str, Any]:
    key = (source.repository, one.name, one.statement, sha)
    return {
        "id": hashlib.sha256("\n".join(key).encode()).hexdigest()[:20],
        "repository": source.repository,
        "commit": sha,
        "date": landed.isoformat(),
        "path": one.path,
        "name": one.name,
        "kind": one.kind,
        "statement": one.statement,
        "goal": source.goals.get((sha, one.name), ""),
        "proof": one.proof,
        "premises": names.in_proof(one.name, one.proof),
    }


def _line(source: Source) -> list[tuple[str, datetime]]:
    """Return the first-parent line, oldest first, each commit with the latest time up to it."""
    try:
        with Mirror(source.git) as mirror:
            told = mirror.first_parents("HEAD")
    except JobError as error:
        raise BenchmarkError(f"{source.repository}: {error}") from error
    result, latest = [], 0
    for sha, seconds in told:
        latest = max(latest, seconds)
        result.append((sha, datetime.fromtimestamp(latest, UTC)))
    return result


def _declared(version: Version) -> Iterator[tuple[str, int, str, str, str]]:
    """Yield each declaration's path, line, name, statement and proof: "" with a sorry."""
    for index, one in enumerate(version.declarations):
        if one.kind in PROVABLE_KINDS and not one.name.rpartition(".")[2].startswith("_"):
            proof = "" if version.has_a_sorry(index) else version.proof_of(index)
            yield version.item.path, one.line, one.name, one.statement, proof


def _keep_apart(rows: dict[str, list[dict[str, Any]]], left_out: dict[str, int]) -> None:
    """Leave out test rows with the statement of a training row or of an earlier test row."""
    seen = {_statement_text(row["statement"]) for row in rows["train"]}
    seen |= {_statement_text(row["statement"]) for row in rows["known"] if row["proof"]}
    kept = []
    for row in rows["test"]:
        if _statement_text(row["statement"]) in seen:
            reason = "the same statement is proved before"
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            seen.add(_statement_text(row["statement"]))
            kept.append(row)
    rows["test"] = kept


def _statement_text(statement: str) -> str:
    return "".join(statement.split())


class Names:
    """The declarations citable in a proof's text."""

    def __init__(self, known: Iterator[str] | Collection[str]) -> None:
        self._full = frozenset(known)
        self._ends: dict[str, list[str]] = {}
        for name in self._full:
            parts = name.split(".")
            for at in range(1, len(parts)):
                self._ends.setdefault(".".join(parts[at:]), []).append(name)

    def in_proof(self, name: str, proof: str) -> list[str]:
        """Return the declarations named in a declaration's proof: in its own namespaces, in full, or by a unique
        ending.
        """
        own = name.split(".")[:-1]
        spaces = [".".join(own[:end]) + "." for end in range(len(own), 0, -1)]
        result: dict[str, None] = {}
        for word in _WORD.findall(proof):
            parts = word.removeprefix("_root_.").rstrip(".").split(".")
            for end in range(len(parts), 0, -1):
                head = ".".join(parts[:end])
                full = next((space + head for space in (*spaces, "") if space + head in self._full), None)
                ends = self._ends.get(head, ())
                # A short word may belong to anything.
                if full is None and len(ends) == 1 and ("." in head or "_" in head):
                    full = ends[0]
                if full is not None and full != name:
                    result[full] = None
                    break
        return list(result)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {"line": pa.int64(), "premises": pa.list_(pa.string())}
    columns = _KNOWN if path.stem == "known" else _FILLED
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def sources_of(folders: Sequence[Path], key: Callable[[str], str]) -> list[Source]:
    """Return clones as sources, by the key of their remote, or by the folder's name.

    Raises:
        BenchmarkError: a folder is no clone, or two are of one repository.
    """
    result: dict[str, Source] = {}
    for folder in folders:
        try:
            git = clone(folder)
        except CloneError as error:
            raise BenchmarkError(str(error).replace("name a clone with -C", "name a clone")) from error
        command = ["git", f"--git-dir={git}", "config", "--get", "remote.origin.url"]
        url = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        name = key(url) if url else folder.resolve().name
        if name in result:
            raise BenchmarkError(f"{folder} is {name} once more; name each repository once")
        result[name] = Source(name, git)
    return [*result.values()]

"""Several repositories in one dataset: their files in one corpus.jsonl, and their theorems in its splits.

LeanDojo's merge identifies a file by its path alone: of two repositories with a `Basic.lean`, or with two
versions of mathlib, the second one's premises vanish. Here a file is its path and its *closure*: a hash of
its premises and of the closures of its imports. The first file of a path keeps the path; another one of that
path is called `<host/owner/name>@<commit, 12 digits>/<path>`, also in the theorems and imports of its
repository.

The order is that of ReProver's loader: no path twice, imports before their users, no cycle. The loader also
needs a line for every file with a theorem or a premise of a proof; a file without a trace has a line without
premises. LeanDojo's own merge, for comparison, is `PathOnly`.

A `Merger` receives every theorem once and returns at the end the numbers of each list, "random/train" and so
on, in their order. The numbers are those of the spool with the records.
"""

from __future__ import annotations

import hashlib
import json
import random
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, ClassVar

from store.curriculum import CompatError
from store.domain.records import Position
from store.domain.splits import SIDES, SPLITS
from store.leandojo.choosing import ChosenTrace, TheoremFacts
from store.leandojo.records import FILE, Style, write

_PLAIN = Style(list, {})
_UNTRACED = "a path that proofs name and no trace has"


class Names(dict[str, str]):
    """The names of one trace's files in the export, by their paths in the repository.

    `look_ahead` claims an unclaimed path if the trace has it: if imports were not recorded whole, a proof may
    name a later file.
    """

    def __init__(self, merge: Merge, repository: str, sha: str, look_ahead: Callable[[str], None]) -> None:
        super().__init__()
        self._merge = merge
        self._prefix = f"{repository}@{sha[:12]}"
        self._look_ahead = look_ahead

    def __missing__(self, path: str) -> str:
        self._look_ahead(path)
        # A premise's file outside the trace must not be taken for another repository's file.
        return self[path] if path in self else self.claim(path, _UNTRACED)

    def claim(self, path: str, closure: str) -> str:
        """Give a path's file its name."""
        name = self._merge.claim(path, closure, self._prefix)
        self[path] = name
        return name


class ByClosure:
    """The merge described above.

    `imports_left_out` counts imports of files outside the trace, `files_untraced` lines without premises.
    """

    by_closure: ClassVar[bool] = True

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # the closure behind a name
        self._written: set[str] = set()
        self.imports_left_out = 0
        self.files_untraced = 0
        self.renamed = 0

    def claim(self, path: str, closure: str, prefix: str) -> str:
        """Return the path, or another name if another file has the path."""
        if self._owners.setdefault(path, closure) == closure:
            return path
        # One commit may have been traced by two Lean versions: then the closure tells them apart.
        for name in (f"{prefix}/{path}", f"{prefix}.{closure[:12]}/{path}"):
            exists = name in self._owners
            if self._owners.setdefault(name, closure) == closure:
                self.renamed += not exists
                return name
        raise AssertionError(f"two files with the closure {closure} and the path {path}")

    def line(self, data: Mapping[str, Any], names: Names, closures: Mapping[str, str]) -> str | None:
        """Return the line, its imports under their names here."""
        name = names[data["path"]]
        if name in self._written:
            return None
        self._written.add(name)
        imports = [names[item] for item in data["imports"] if item in closures]
        self.imports_left_out += len(data["imports"]) - len(imports)
        return corpus_line(data, name, imports)

    def untraced(self, names: Names) -> Iterator[str]:
        """Yield a line without premises for each file without a trace."""
        for name in names.values():
            if name not in self._written:
                self._written.add(name)
                self.files_untraced += 1
                yield corpus_line({"premises": ()}, name, ())


class PathOnly:
    """LeanDojo-v2's merge: every path is its own name, and the first file of a path counts."""

    by_closure: ClassVar[bool] = False

    def __init__(self) -> None:
        self._written: set[str] = set()

    def claim(self, path: str, _closure: str, _prefix: str, /) -> str:
        """Return the path."""
        return path

    def line(self, data: Mapping[str, Any], _names: Names, _closures: Mapping[str, str], /) -> str | None:
        """Return the line as recorded."""
        path = data["path"]
        if path in self._written:
            return None
        self._written.add(path)
        return corpus_line(data, path, data["imports"])

    def untraced(self, _names: Names, /) -> Iterator[str]:
        """Yield nothing."""
        return iter(())


Merge = ByClosure | PathOnly
"""A merge of files of several repositories. `by_closure`: closures count; otherwise none need be computed."""


def corpus_line(data: Mapping[str, Any], path: str, imports: Sequence[str]) -> str:
    """Return a `file_traced` payload's line of corpus.jsonl under this name, with these imports."""
    return json.dumps(write(FILE, {**data, "path": path, "imports": imports}, _PLAIN)) + "\n"


def closure_of(data: Mapping[str, Any], closures: Mapping[str, str]) -> str:
    """Hash a file's premises and the closures of its imports, from `closures` by path (32 hex digits)."""
    imports = [(path, closures.get(path, "")) for path in data["imports"]]
    text = json.dumps([data["premises"], imports], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# LeanDojo-v2 1.0.9's own splits, from the same input: for comparison, not for use. Their faults are kept: a
# split is drawn anew at each export, and theorems change sides as repositories grow; one theorem can be in a
# side several times; a commit that moves lines doubles every theorem. Only the time differs: theirs is
# quadratic, since they look theorems up in lists by equality (name, path, start, end), which after their own
# merging is the same as identity. `store.domain.splits` is ours.

COMPAT_SEED = 3407
COMPAT_HELD_OUT = 0.2
"""The share of val, and the share of test, before rounding down."""


@dataclass(frozen=True, slots=True)
class CompatTheorem:
    """A theorem as LeanDojo's export sees it. `item` is the caller's own, passed through.

    `premises` are the full names of all annotations of all tactics, in order, repetitions included.
    `processed` is its repository's `date_processed`: text (ISO 8601) or a datetime.
    """

    full_name: str
    file_path: str
    start: Position
    end: Position
    premises: Sequence[str]
    processed: str | datetime
    item: Any


Sides = dict[str, list[CompatTheorem]]


def compat_split(theorems: Iterable[CompatTheorem]) -> dict[str, Sides]:
    """Return {"random": {"train", "val", "test"}, "novel_premises": {…}}, each list in their order.

    `theorems` come repository by repository, in each the proven ones first, then the proved sorries, then the
    unproved: the order of their export.

    Raises:
        CompatError: some dates have a time zone and others do not.
    """
    rng = random.Random(COMPAT_SEED)  # noqa: S311 - theirs: what `random.seed(3407)` starts in the module's generator
    merged = _compat_merged(theorems)
    held_out = int(len(merged) * COMPAT_HELD_OUT)
    rng.shuffle(merged)
    n_train = len(merged) - 2 * held_out
    drawn = _compat_sides(merged[:n_train], merged[n_train:], held_out)
    return {"random": drawn, "novel_premises": _compat_by_premise(merged, held_out, rng)}


def _compat_sides(train: list[CompatTheorem], held: list[CompatTheorem], held_out: int) -> Sides:
    return {"train": train, "val": held[:held_out], "test": held[held_out:]}


def _compat_merged(theorems: Iterable[CompatTheorem]) -> list[CompatTheorem]:
    """Keep one theorem of each path, name and position, whatever its repository: the later processed one."""
    kept: dict[tuple[Any, ...], tuple[CompatTheorem, datetime]] = {}
    for theorem in theorems:
        processed = theorem.processed
        date = datetime.fromisoformat(processed) if isinstance(processed, str) else processed
        key = (str(PurePosixPath(theorem.file_path)), theorem.full_name, theorem.start, theorem.end)
        try:
            if key not in kept or date > kept[key][1]:
                kept[key] = (theorem, date)
        except TypeError as error:
            raise CompatError(
                f"{theorem.full_name} in {theorem.file_path}: {error}; LeanDojo-v2 cannot merge repositories when "
                "`date_processed` has a time zone in some and none in others. Export without --compat"
            ) from error
    return [theorem for theorem, _ in kept.values()]


def _compat_by_premise(theorems: list[CompatTheorem], held_out: int, rng: random.Random) -> Sides:
    users: dict[str, list[int]] = defaultdict(list)
    for number, theorem in enumerate(theorems):
        for premise in theorem.premises:
            users[premise].append(number)
    chosen: list[int] = []
    outside: set[int] = set()
    for numbers in sorted(users.values(), key=len):
        if len(chosen) >= 2 * held_out:
            break
        # Looked up before any of these is added: a theorem that uses a premise twice is in twice.
        chosen.extend([number for number in numbers if number not in outside])
        outside.update(numbers)
    train = [theorem for number, theorem in enumerate(theorems) if number not in outside]
    rng.shuffle(chosen)
    return _compat_sides(train, [theorems[number] for number in chosen], held_out)


class ForLife:
    """Each theorem once, on its side for life.

    Several commits of a repository share a theorem by name and statement, several repositories by a file with
    the same closure; the record traced last counts. `shared` are the paths of several traces; `repeated` the
    repositories with several.
    """

    def __init__(self, *, shared: frozenset[str], repeated: frozenset[str]) -> None:
        self._shared = shared
        self._repeated = repeated
        self._numbers = array("Q")
        self._sides = [array("b") for _ in SPLITS]
        self._places: dict[tuple[Any, ...], tuple[int, int]] = {}  # (our number, the time of its trace)

    def add(
        self, chosen: ChosenTrace, path: str, data: Mapping[str, Any], facts: TheoremFacts, number: int, /
    ) -> None:
        """Add a trace's theorem: `path` is its file's name in the export, `number` its record's."""
        keys = self._keys(chosen, path, data, facts)
        seq = chosen.row.seq
        place, latest = next(
            (self._places[key] for key in keys if key in self._places), (len(self._numbers), seq)
        )
        if latest > seq:
            return
        if latest == seq:  # within one trace two of a kind are two
            place = len(self._numbers)
            for column in (self._numbers, *self._sides):
                column.append(0)
        self._numbers[place] = number
        for sides, side in zip(self._sides, facts.sides, strict=True):
            sides[place] = -1 if side is None else SIDES.index(side)
        self._places |= dict.fromkeys(keys, (place, seq))

    def end_of_trace(self, _lists: Sequence[Sequence[int]], /) -> None:
        """Do nothing: the order is that of the additions."""

    def lists(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield each list of the dataset by its name."""
        for split, sides in zip(SPLITS, self._sides, strict=True):
            for code, side in enumerate(SIDES):
                result = (number for number, own in zip(self._numbers, sides, strict=True) if own == code)
                yield f"{split}/{side}", array("Q", result)

    def withheld(self) -> dict[str, int]:
        """Count the theorems in no file, by split."""
        return {split: sides.count(-1) for split, sides in zip(SPLITS, self._sides, strict=True)}

    def _keys(
        self, chosen: ChosenTrace, path: str, data: Mapping[str, Any], facts: TheoremFacts
    ) -> list[tuple[Any, ...]]:
        keys: list[tuple[Any, ...]] = []
        if chosen.row.repository in self._repeated:
            keys.append((chosen.row.repository, data["full_name"], facts.split_key))
        if path in self._shared:
            keys.append((path, data["full_name"], *data["start"], *data["end"]))
        return keys


class AsLeanDojo:
    """LeanDojo-v2's own merge and its splits, drawn anew at each export."""

    def __init__(self) -> None:
        self._of_trace: dict[int, CompatTheorem] = {}
        self._all: list[CompatTheorem] = []

    def add(
        self, chosen: ChosenTrace, path: str, data: Mapping[str, Any], _facts: TheoremFacts, number: int, /
    ) -> None:
        """Add a trace's theorem: `path` is its file's name in the export, `number` its record's."""
        self._of_trace[number] = CompatTheorem(
            full_name=data["full_name"],
            file_path=path,
            start=tuple(data["start"]),
            end=tuple(data["end"]),
            premises=[
                use["full_name"] for step in data["traced_tactics"] for use in step["annotated_tactic"][1]
            ],
            processed=chosen.head["metadata"]["date_processed"],
            item=number,
        )

    def end_of_trace(self, lists: Sequence[Sequence[int]], /) -> None:
        """Append the trace's theorems in the order of theirs."""
        self._all += [self._of_trace[number] for numbers in lists for number in numbers]
        self._of_trace = {}

    def lists(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield each list of the dataset by its name."""
        for split, sides in compat_split(self._all).items():
            for side, theorems in sides.items():
                yield f"{split}/{side}", [theorem.item for theorem in theorems]


Merger = ForLife | AsLeanDojo
"""A merge of theorems."""

"""LeanDojo's JSON records: their keys, the reading and writing of values, and its JSON files.

A read record has the log's form (`as_json` of `store.domain.records`): positions as [line, column], and
unknown keys in `extra`, for an export to return them. A `Flaw` is a mistake with its place inside the record;
the reader adds the place of the record. Files are read with the standard library: every string and number
equals `json.load`'s (with LeanDojo's bare `Infinity`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from store.errors import LogError
from store.sqlite import translated
from store.text import json_items, shown

Form = Literal["database", "dataset"]
"""dynamic_database.json, or the folder of splits and corpus; only the first has difficulties."""

THEOREM_LISTS = ("proven_theorems", "sorry_theorems_proved", "sorry_theorems_unproved")
COUNTS = (
    "total_theorems",
    "num_proven_theorems",
    "num_sorry_theorems",
    "num_sorry_theorems_proved",
    "num_sorry_theorems_unproved",
    "num_premise_files",
    "num_premises",
    "num_files_traced",
)

MAX_NESTING = 64
"""The deepest nesting of an unknown value; JSON parsers give up at some hundred."""

MAX_FILE_BYTES = 2 << 30
"""The largest readable dynamic_database.json: parsing it whole takes several times its size in memory."""

REMEDY = "correct it there, or write the file anew with the program that made it"


class ImportFormatError(LogError, ValueError):
    """A file is not in an import's format; the message has the file, the place, the reason and the remedy.

    `file` is a text for data given in memory.
    """

    def __init__(self, file: Path | str, place: str, reason: str, *, remedy: str = REMEDY) -> None:
        where = f"{file}: {place}" if place else str(file)
        super().__init__(f"{where}: {reason}; {remedy}. Nothing was imported")
        self.file = file
        self.place = place
        self.reason = reason


def load(path: Path, *, limit: int = MAX_FILE_BYTES) -> Any:
    """Return the value of a JSON file.

    Raises:
        ImportFormatError: it is no JSON in UTF-8, has a key twice, or is larger than `limit`.
        LogError: it cannot be read.
    """
    with translated(path):
        size = path.stat().st_size
        if size > limit:
            remedy = "split it by repository, or import the dataset folders"
            raise ImportFormatError(path, "", f"has {size} bytes, and {limit} are the most", remedy=remedy)
        data = path.read_bytes()
    try:
        return _DECODER.decode(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        _refuse_json(path, "", error)


def items(path: Path) -> Iterator[Any]:
    """Yield the values of a JSON list one after the other: a dataset's list may be larger than memory.

    Raises:
        ImportFormatError: it is no list.
        LogError: it cannot be read.
    """
    number = 0
    number = 0
    try:
        with translated(path), path.open(encoding="utf-8-sig", newline="") as file:
            for value in json_items(file, _DECODER):
                yield value
                number += 1
    except (ValueError, RecursionError) as error:
        _refuse_json(path, f"[{number}]", error)


def json_lines(path: Path) -> Iterator[Any]:
    """Yield the values of a file with one on each line.

    Raises:
        ImportFormatError: a line is no JSON.
        LogError: it cannot be read.
    """
    with translated(path), path.open("rb") as file:
        for number, line in enumerate(file):
            try:
                value = _DECODER.decode(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                _refuse_json(path, f"[{number}]", error)
            yield value


def _refuse_json(path: Path, place: str, error: ValueError | RecursionError) -> NoReturn:
    reason = f"no JSON: {error}"
    if isinstance(error, UnicodeDecodeError):
        place, reason = f"near byte {error.start}", f"no UTF-8 ({error.reason})"
    elif isinstance(error, RecursionError):
        reason = "nested too deeply"
    elif isinstance(error, json.JSONDecodeError):
        place = place or f"line {error.lineno}, column {error.colno}"
        reason = f"no JSON: {error.msg[:1].lower()}{error.msg[1:]}"
    remedy = "write the file anew, or take it from its source again"
    raise ImportFormatError(path, place, reason, remedy=remedy) from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f'the key "{next(key for key in keys if keys.count(key) > 1)}" is there twice')
    return result


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repetition)


def count(*lists: int, premise_files: int, premises: int, files_traced: int) -> dict[str, int]:
    """Return a repository's counts by LeanDojo's names; `lists` are the lengths of THEOREM_LISTS."""
    proven, proved, unproved = lists
    numbers = (proven + proved + unproved, proven, proved + unproved, proved, unproved)
    return dict(zip(COUNTS, (*numbers, premise_files, premises, files_traced), strict=True))


class Flaw(ValueError):  # noqa: N818 - people see it completed into an ImportFormatError
    """A mistake in a record, and its place in it ("traced_tactics[2].annotated_tactic")."""

    def __init__(self, reason: str, *place: str) -> None:
        super().__init__(f"{''.join(place).removeprefix('.')}: {reason}" if place else reason)
        self.reason = reason
        self.place = place

    def below(self, *place: str) -> Flaw:
        """Return the same flaw, seen from further above."""
        return Flaw(self.reason, *place, *self.place)

    def of(self, file: Path, place: str = "") -> ImportFormatError:
        """Return the error of the file with this flaw, at or below a place."""
        return ImportFormatError(file, f"{place}{''.join(self.place)}".removeprefix("."), self.reason)


@dataclass(frozen=True, slots=True)
class Style:
    """An export's form of positions, and its names for the paths in proofs."""

    position: Callable[[Iterable[int]], Any]
    paths: Mapping[str, str]


class Kind(NamedTuple):
    """The reader and the writer of a value (None: as it is). `missing` is its default, unless it is `...`."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Style], Any] | None = None
    missing: Any = ...


Shape = Mapping[str, Kind]
"""The keys of a record, in LeanDojo's order."""


def read(shape: Shape, data: Any) -> dict[str, Any]:
    """Return a record's values.

    Raises:
        Flaw: it is not in LeanDojo's format.
    """
    if type(data) is not dict:
        raise Flaw(f"should be an object, not {_kind(data)}")
    result = {}
    for key, kind in shape.items():
        value = data.get(key, kind.missing)
        if value is ...:
            raise Flaw("is missing", f".{key}")
        try:
            result[key] = kind.read(value)
        except Flaw as flaw:
            raise flaw.below(f".{key}") from None
    # Nearly every record has the format's keys only.
    if not data.keys() <= shape.keys():
        result["extra"] = foreign({key: value for key, value in data.items() if key not in shape})
    return result


def write(shape: Shape, record: Any, style: Style) -> dict[str, Any]:
    """Return LeanDojo's record of the values of `read`, or of an object with such attributes."""
    values = record if type(record) is dict else vars(record)
    result = {
        key: values[key] if kind.write is None else kind.write(values[key], style)
        for key, kind in shape.items()
    }
    return result | values["extra"] if "extra" in values else result


def foreign(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's keys unknown to the formats, if the log can hold their values.

    Raises:
        Flaw: one is nested deeper than the log's readers allow, or holds an infinite number or invalid
            Unicode.
    """
    for key, value in data.items():
        _as_utf8(key)
        _check_foreign(value, f".{key}")
    return dict(data)


def _check_foreign(value: Any, place: str) -> None:
    layer = [(place, value)]
    for _ in range(MAX_NESTING):
        below: list[tuple[str, Any]] = []
        for at, item in layer:
            if isinstance(item, dict):
                below += [(f"{at}.{key}", inner) for key, inner in item.items()]
                below += [(at, key) for key in item]
            elif isinstance(item, str):
                _as_utf8(item, at)
            elif isinstance(item, list):
                below += [(f"{at}[{index}]", inner) for index, inner in enumerate(item)]
            elif isinstance(item, float) and not math.isfinite(item):
                raise Flaw("is no finite number, and only a theorem's difficulty_rating may be Infinity", at)
        if not below:
            return
        layer = below
    raise Flaw(f"is nested more than {MAX_NESTING} deep", place)


def encoded(value: Any) -> bytes:
    """Return a value as compact JSON.

    Raises:
        Flaw: it holds half of a surrogate pair, possible in JSON and not in UTF-8.
    """
    return _as_utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _as_utf8(text: str, *place: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        reason = f"holds text that is no valid Unicode (half of a surrogate pair, \\u{half:04x})"
        raise Flaw(reason, *place) from None


def each(items: Any, convert: Callable[[Any], Any]) -> list[Any]:
    """Return the items of a list, converted.

    Raises:
        Flaw: it is no list, or an item is faulty.
    """
    if type(items) is not list:
        raise Flaw(f"should be a list, not {_kind(items)}")
    result = []
    for index, item in enumerate(items):
        try:
            result.append(convert(item))
        except Flaw as flaw:
            raise flaw.below(f"[{index}]") from None
    return result


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


# The kinds.

_POSITION = re.compile(r"(?:Pos)?\(\s*([0-9]{1,10})\s*,\s*([0-9]{1,10})\s*\)")
_LARGEST = 10**10 - 1
_TOO_LARGE = 2**1023  # for a float


def read_text(value: Any) -> str:
    if type(value) is not str:
        raise Flaw(f"should be a string, not {_kind(value)}")
    return value


def _read_text_or_null(value: Any) -> str | None:
    if value is not None and type(value) is not str:
        raise Flaw(f"should be a string or null, not {_kind(value)}")
    return value


def read_position(value: Any) -> list[int]:
    """Return [line, column] for "(12, 5)", "Pos(12, 5)" (as LeanAgent wrote it) or [12, 5].

    Raises:
        Flaw: it is none of these.
    """
    if isinstance(value, str):
        match = _POSITION.fullmatch(value)
        if match is not None:
            return [int(match[1]), int(match[2])]
    elif isinstance(value, list | tuple) and len(value) == 2:
        line, column = value
        # `type`, not `isinstance`: true is an int to Python.
        if type(line) is int and type(column) is int and 0 <= line <= _LARGEST and 0 <= column <= _LARGEST:
            return [line, column]
    raise Flaw(f'is no position (got {shown(value)}); write "(line, column)" or [line, column]')


def write_position(position: Iterable[int]) -> str:
    """Return "(12, 5)", the form of dynamic_database.json (a dataset's files have [12, 5])."""
    line, column = position
    return f"({line}, {column})"


def read_difficulty(value: Any) -> float | None:
    """Return a theorem's difficulty: None, a number, or infinity (a bare `Infinity` in the file).

    Raises:
        Flaw: it is something else, or NaN.
    """
    if value is None:
        return None
    if type(value) is int and abs(value) < _TOO_LARGE:
        return value
    if isinstance(value, float) and not math.isnan(value) and value != -math.inf:
        return value
    raise Flaw(f"is no difficulty (got {shown(value)}); write a number, null or Infinity")


def _read_annotated(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple) or len(value) != 2 or type(value[0]) is not str:
        raise Flaw("should be [text, list of premises]")
    try:
        return [value[0], each(value[1], lambda use: read(USE, use))]
    except Flaw as flaw:
        raise flaw.below("[1]") from None


def _list(shape: Shape, missing: Any = ...) -> Kind:
    return Kind(
        lambda items: each(items, lambda item: read(shape, item)),
        lambda items, style: [write(shape, item, style) for item in items or ()],
        missing,
    )


_TEXT = Kind(read_text)
# A script may have a path there.
_PATH = Kind(read_text, lambda path, _style: str(path))
OPTIONAL = Kind(_read_text_or_null, missing=None)
_AT = Kind(read_position, lambda value, style: style.position(value))

USE: Shape = {
    "full_name": _TEXT,
    "def_path": Kind(read_text, lambda path, style: style.paths[str(path)]),
    "def_pos": _AT,
    "def_end_pos": _AT,
}
TACTIC: Shape = {
    "tactic": _TEXT,
    "annotated_tactic": Kind(
        _read_annotated, lambda value, style: [value[0], [write(USE, use, style) for use in value[1]]]
    ),
    "state_before": _TEXT,
    "state_after": _TEXT,
}
PREMISE: Shape = {
    "full_name": Kind(_read_text_or_null),
    "code": _TEXT,
    "start": _AT,
    "end": _AT,
    "kind": _TEXT,
}
TEXTS = Kind(lambda items: each(items, read_text), lambda items, _: [str(item) for item in items])
FILE: Shape = {
    "path": _PATH,
    "imports": TEXTS,
    "premises": _list(PREMISE),
}
_THEOREM: Shape = {
    "url": OPTIONAL,
    "commit": OPTIONAL,
    "file_path": _PATH,
    "full_name": _TEXT,
    "theorem_statement": OPTIONAL,
    "start": _AT,
    "end": _AT,
    "traced_tactics": _list(TACTIC, []),
}
_DATABASE_ORDER = (
    "full_name",
    "theorem_statement",
    "file_path",
    "start",
    "end",
    "url",
    "commit",
    "traced_tactics",
)
THEOREM: Mapping[Form, Shape] = {
    "database": {
        **{key: _THEOREM[key] for key in _DATABASE_ORDER},
        "difficulty_rating": Kind(read_difficulty, missing=None),
    },
    "dataset": _THEOREM,
}
TRACED: Shape = {"traced_file_path": _TEXT}


class _AsTheyAre(dict[str, str]):
    def __missing__(self, path: str) -> str:
        return path


DATABASE = Style(write_position, _AsTheyAre())
"""The style of a dynamic_database.json."""

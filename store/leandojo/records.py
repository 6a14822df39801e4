"""LeanDojo's JSON records, checked and made into `store.domain.records` values: theorems, tactics, premises, files.

A `Flaw` says what is wrong and where inside the record; the reader adds the place of the record. Keys that the formats
do not have are kept in `extra`, so that an export gives them back. A file is read with the standard library, so that
every string and number comes out as `json.load` gives it (with LeanDojo's bare `Infinity`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from store.domain.records import Position, Premise, PremiseUse, TracedFile, TracedTactic, TracedTheorem
from store.errors import LogError
from store.sqlite import translated
from store.text import shown

Form = Literal["database", "dataset"]
"""dynamic_database.json, or the folder of splits and corpus; only the first has difficulties."""

MAX_NESTING = 64
"""How deep a value may be nested whose meaning is not known here; JSON parsers give up at some hundred."""

MAX_FILE_BYTES = 2 << 30
"""The largest dynamic_database.json that is read: it is parsed whole, which takes several times its size in memory."""

REMEDY = "correct it there, or write the file anew with the program that made it"

_USE = frozenset({"full_name", "def_path", "def_pos", "def_end_pos"})
_TACTIC = frozenset({"tactic", "annotated_tactic", "state_before", "state_after"})
_THEOREM = frozenset(
    {"full_name", "theorem_statement", "file_path", "start", "end", "url", "commit", "traced_tactics"}
)
_THEOREM_OF = {"database": _THEOREM | {"difficulty_rating"}, "dataset": _THEOREM}
_PREMISE = frozenset({"full_name", "code", "start", "end", "kind"})
_FILE = frozenset({"path", "imports", "premises"})

_T = TypeVar("_T")


class ImportFormatError(LogError, ValueError):
    """A file is not what an import takes; it names the file, the place in it, the reason and the remedy.

    `file` is a text where it is no file but what was given in memory.
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
    try:
        with translated(path), path.open(encoding="utf-8-sig", newline="") as file:
            text, at, number = file.read(_CHUNK), 0, 0
            while True:
                before, end = _AFTER_AN_ITEM if number else _FIRST_ITEM
                try:
                    found = before.match(text, at)
                    if found is None:
                        raise json.JSONDecodeError("a list of values should stand there", text, at)
                    value, stop = _DECODER.raw_decode(text, found.end())
                except (ValueError, RecursionError) as error:
                    # The end of the buffer may cut the value.
                    further = file.read(max(_CHUNK, len(text) - at))
                    if further:
                        text, at = text[at:] + further, 0
                        continue
                    if end.fullmatch(text, at):
                        return
                    _refuse_json(path, f"[{number}]", error)
                yield value
                at, number = stop, number + 1
    except UnicodeDecodeError as error:
        _refuse_json(path, "", error)


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
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f'the key "{next(key for key in keys if keys.count(key) > 1)}" is there twice')
    return made


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repetition)
_CHUNK = 1 << 20
# What comes before an item, and what ends the list there.
_FIRST_ITEM = re.compile(r"\s*\[\s*(?!\])"), re.compile(r"\s*\[\s*\]\s*")
_AFTER_AN_ITEM = re.compile(r"\s*,\s*"), re.compile(r"\s*\]\s*")


class Flaw(Exception):  # noqa: N818 - it is completed into an ImportFormatError before anybody sees it
    """A mistake in a record, and its place in it ("traced_tactics[2].annotated_tactic")."""

    def __init__(self, reason: str, *place: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place

    def below(self, *place: str) -> Flaw:
        """Return the same flaw, seen from further above."""
        return Flaw(self.reason, *place, *self.place)


def theorem(data: Any, *, form: Form) -> tuple[str, TracedTheorem]:
    """Return a theorem's file path and the theorem, with `url` and `commit` as they stand there.

    Raises:
        Flaw: it is not as LeanDojo writes it.
    """
    record = _object(data)
    difficulty = None
    if form == "database" and "difficulty_rating" in record:
        difficulty = _converted(record, "difficulty_rating", read_difficulty)
    made = TracedTheorem(
        full_name=text(record, "full_name"),
        statement=optional_text(record, "theorem_statement"),
        start=_position(record, "start"),
        end=_position(record, "end"),
        tactics=tuple(_each(record, "traced_tactics", _tactic, required=False)),
        difficulty=difficulty,
        url=optional_text(record, "url"),
        commit=optional_text(record, "commit"),
        extra=_unknown(record, _THEOREM_OF[form]),
    )
    return text(record, "file_path"), made


def premise_file(data: Any) -> TracedFile:
    """Return a line of corpus.jsonl, or a premise file of a database, as a file without theorems.

    Raises:
        Flaw: it is not as LeanDojo writes it.
    """
    record = _object(data)
    return TracedFile(
        path=text(record, "path"),
        imports=tuple(_each(record, "imports", _plain)),
        premises=tuple(_each(record, "premises", _premise)),
        theorems=(),
        extra=_unknown(record, _FILE),
    )


def traced_path(data: Any) -> str:
    """Return the path of a line of traced_files.jsonl.

    Raises:
        Flaw: it is not as LeanDojo writes it.
    """
    record = _object(data)
    unknown = record.keys() - {"traced_file_path"}
    if unknown:
        raise Flaw("is a key that such a line does not have", min(unknown))
    return text(record, "traced_file_path")


def refuse_foreign(value: Any) -> None:
    """Refuse, in the value of a key that the formats do not have, what the log cannot hold.

    Raises:
        Flaw: it is nested deeper than what reads the log can follow, or holds a number that is not finite.
    """
    layer = [("", value)]
    for _ in range(MAX_NESTING):
        below: list[tuple[str, Any]] = []
        for place, item in layer:
            if isinstance(item, dict):
                below += [(f"{place}.{key}", inner) for key, inner in item.items()]
            elif isinstance(item, list):
                below += [(f"{place}[{index}]", inner) for index, inner in enumerate(item)]
            elif isinstance(item, float) and not math.isfinite(item):
                raise Flaw(
                    "is no finite number, and only a theorem's difficulty_rating may be Infinity", place
                )
        if not below:
            return
        layer = below
    raise Flaw(f"is nested more than {MAX_NESTING} deep")


def encoded(value: Any) -> bytes:
    """Return a value as compact JSON.

    Raises:
        Flaw: it holds half of a surrogate pair, which JSON can name and UTF-8 cannot.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise Flaw(f"holds text that is no valid Unicode (half of a surrogate pair, \\u{half:04x})") from None


def text(record: Mapping[str, Any], key: str) -> str:
    """Return a string that must be there."""
    value = _required(record, key)
    if type(value) is not str:
        raise Flaw(f"should be a string, not {_kind(value)}", f".{key}")
    return value


def optional_text(record: Mapping[str, Any], key: str) -> str | None:
    """Return a string, or None where it is missing or null."""
    value = record.get(key)
    if value is not None and type(value) is not str:
        raise Flaw(f"should be a string or null, not {_kind(value)}", f".{key}")
    return value


def _tactic(data: Any) -> TracedTactic:
    record = _object(data)
    annotated = _required(record, "annotated_tactic")
    if type(annotated) is not list or len(annotated) != 2 or type(annotated[0]) is not str:
        raise Flaw("should be [text, list of premises]", ".annotated_tactic")
    if type(annotated[1]) is not list:
        raise Flaw(f"should be a list of premises, not {_kind(annotated[1])}", ".annotated_tactic[1]")
    uses = []
    for index, item in enumerate(annotated[1]):
        try:
            uses.append(_use(item))
        except Flaw as flaw:
            raise flaw.below(f".annotated_tactic[1][{index}]") from None
    return TracedTactic(
        tactic=text(record, "tactic"),
        annotated=annotated[0],
        premises=tuple(uses),
        state_before=text(record, "state_before"),
        state_after=text(record, "state_after"),
        extra=_unknown(record, _TACTIC),
    )


def _use(data: Any) -> PremiseUse:
    record = _object(data)
    return PremiseUse(
        full_name=text(record, "full_name"),
        def_path=text(record, "def_path"),
        def_pos=_position(record, "def_pos"),
        def_end_pos=_position(record, "def_end_pos"),
        extra=_unknown(record, _USE),
    )


def _premise(data: Any) -> Premise:
    record = _object(data)
    _required(record, "full_name")
    return Premise(
        full_name=optional_text(record, "full_name"),
        code=text(record, "code"),
        start=_position(record, "start"),
        end=_position(record, "end"),
        kind=text(record, "kind"),
        extra=_unknown(record, _PREMISE),
    )


def _plain(data: Any) -> str:
    if type(data) is not str:
        raise Flaw(f"should be a string, not {_kind(data)}")
    return data


def _each(
    record: Mapping[str, Any], key: str, convert: Callable[[Any], _T], *, required: bool = True
) -> list[_T]:
    items = _required(record, key) if required else record.get(key, [])
    if type(items) is not list:
        raise Flaw(f"should be a list, not {_kind(items)}", f".{key}")
    made = []
    for index, item in enumerate(items):
        try:
            made.append(convert(item))
        except Flaw as flaw:
            raise flaw.below(f".{key}[{index}]") from None
    return made


def _position(record: Mapping[str, Any], key: str) -> Position:
    return _converted(record, key, read_position)


def _converted(record: Mapping[str, Any], key: str, convert: Callable[[Any], _T]) -> _T:
    value = _required(record, key)
    try:
        return convert(value)
    except ValueError as error:
        raise Flaw(str(error), f".{key}") from None


def _within(check: Callable[[Any], None], value: Any, place: str) -> None:
    try:
        check(value)
    except Flaw as flaw:
        raise flaw.below(place) from None


def _required(record: Mapping[str, Any], key: str) -> Any:
    try:
        return record[key]
    except KeyError:
        raise Flaw("is missing", f".{key}") from None


def _object(data: Any) -> dict[str, Any]:
    if type(data) is not dict:
        raise Flaw(f"should be an object, not {_kind(data)}")
    return data


def _unknown(record: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    # Nearly every record has the format's keys only.
    if record.keys() <= known:
        return {}
    found = {key: record[key] for key in record if key not in known}
    for key, value in found.items():
        _within(refuse_foreign, value, f".{key}")
    return found


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


# Positions and difficulties, read strictly and written as LeanDojo writes them.

_TEXT = re.compile(r"(?:Pos)?\(\s*([0-9]{1,10})\s*,\s*([0-9]{1,10})\s*\)")
_LARGEST = 10**10 - 1
_TOO_LARGE = 2**1023  # for a float


def read_position(value: Any) -> Position:
    """Return (line, column) for "(12, 5)", "Pos(12, 5)" (as LeanAgent wrote it) or [12, 5].

    Raises:
        ValueError: it is none of these; the message is the reason alone.
    """
    if isinstance(value, str):
        found = _TEXT.fullmatch(value)
        if found is not None:
            return int(found[1]), int(found[2])
    elif isinstance(value, list) and len(value) == 2:
        line, column = value
        # `type`, not `isinstance`: true is an int to Python.
        if type(line) is int and type(column) is int and 0 <= line <= _LARGEST and 0 <= column <= _LARGEST:
            return line, column
    raise ValueError(f'is no position (got {shown(value)}); write "(line, column)" or [line, column]')


def write_position(position: Position) -> str:
    """Return "(12, 5)", the form of dynamic_database.json (a dataset's files have [12, 5])."""
    return f"({position[0]}, {position[1]})"


def read_difficulty(value: Any) -> float | None:
    """Return a theorem's difficulty: None, a number, or infinity (a bare `Infinity` in the file).

    Raises:
        ValueError: it is something else, or NaN.
    """
    if value is None:
        return None
    if type(value) is int and abs(value) < _TOO_LARGE:
        return value
    if isinstance(value, float) and not math.isnan(value) and value != -math.inf:
        return value
    raise ValueError(f"is no difficulty (got {shown(value)}); write a number, null or Infinity")

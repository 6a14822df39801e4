"""LeanDojo's JSON records, checked and made into `store.traced` values: theorems, tactics, premises, files.

A `Flaw` says what is wrong and where inside the record; the reader adds where the record stands. Keys that the formats
do not have are kept in `extra`, so that an export gives them back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from store.leandojo.positions import read_difficulty, read_position
from store.traced import Position, Premise, PremiseUse, TracedFile, TracedTactic, TracedTheorem

Form = Literal["database", "dataset"]
"""dynamic_database.json, or the folder of splits and corpus; only the first has difficulties."""

MAX_NESTING = 64
"""How deep a value may be nested whose meaning is not known here; JSON parsers give up at some hundred."""

_USE = frozenset({"full_name", "def_path", "def_pos", "def_end_pos"})
_TACTIC = frozenset({"tactic", "annotated_tactic", "state_before", "state_after"})
_THEOREM = frozenset(
    {"full_name", "theorem_statement", "file_path", "start", "end", "url", "commit", "traced_tactics"}
)
_THEOREM_OF = {"database": _THEOREM | {"difficulty_rating"}, "dataset": _THEOREM}
_PREMISE = frozenset({"full_name", "code", "start", "end", "kind"})
_FILE = frozenset({"path", "imports", "premises"})

_T = TypeVar("_T")


class Flaw(Exception):  # noqa: N818 - it is completed into an ImportFormatError before anybody sees it
    """What is wrong with a record, and where in it ("traced_tactics[2].annotated_tactic")."""

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


def refuse_unusual(data: Any, *, but: str | None = None) -> None:
    """Refuse numbers that are not finite, except under the key `but` of the record itself.

    Raises:
        Flaw: there is one; no JSON of ours could hold it.
    """
    if isinstance(data, dict):
        for key, value in data.items():
            if key != but:
                _within(refuse_unusual, value, f".{key}")
    elif isinstance(data, list):
        for index, value in enumerate(data):
            _within(refuse_unusual, value, f"[{index}]")
    elif isinstance(data, float) and not math.isfinite(data):
        raise Flaw("is no finite number, and only a theorem's difficulty_rating may be Infinity")


def refuse_deep(value: Any) -> None:
    """Refuse a value of somebody else's key that is nested deeper than what reads the log can follow.

    Raises:
        Flaw: it is.
    """
    layer = [value]
    for _ in range(MAX_NESTING):
        layer = [
            item
            for outer in layer
            if isinstance(outer, dict | list)
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not layer:
            return
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
    """Return a string, or None where there is none or it is null."""
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
        _within(refuse_deep, value, f".{key}")
    return found


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")

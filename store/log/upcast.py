"""Old event versions made current: pure functions from dict to dict, one for each (type, from_version).

Rows of the log are never rewritten; a reader walks v1 -> v2 -> ... -> current. To change an event's shape: raise
its `schema_version` in `store.events`, add the step here, and put a golden file of the old version in
tests/store/golden/.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from store.errors import MalformedEventError, UnknownEventError

if TYPE_CHECKING:
    from store.events.base import EventBody
    from store.log.envelope import StoredEvent

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the data of one version, returns that of the next; must not change its argument."""


def _commit_scanned_1(data: dict[str, Any]) -> dict[str, Any]:
    # Version 1 did not say which paths were meant. The defaults are the likeliest; where they are wrong, the tip
    # is scanned once more and says it itself.
    return {**data, "include": ["**/*.lean"], "exclude": []}


def _commit_scanned_2(data: dict[str, Any]) -> dict[str, Any]:
    # Version 2 did not look which Lean the commit is for; the tip is scanned once more and says it.
    return {**data, "toolchain": None, "manifest": None}


def _file_scanned_1(data: dict[str, Any]) -> dict[str, Any]:
    # Version 1 kept nothing of what comments say; the next scan of the file does.
    return {**data, "exercise_words": None}


def _file_scanned_2(data: dict[str, Any]) -> dict[str, Any]:
    # Version 2 knew no limits and took all.
    return {**data, "declarations_taken": None, "sorries_taken": None}


def _file_traced_1(data: dict[str, Any]) -> dict[str, Any]:
    # Version 1 knew no key: such a file is traced again.
    return {**data, "key": ""}


def _attempt_finished_1(data: dict[str, Any]) -> dict[str, Any]:
    # Version 1 knew rung 0 alone: no model, nothing drawn, nothing paid for; and it kept no tree.
    unknown = {"model": "", "seed": 0, "best": "", "prompt_tokens": 0, "completion_tokens": 0}
    return {**data, **unknown, "goals_left": None, "usd": None, "tree": None}


def _of_lean(data: dict[str, Any]) -> dict[str, Any]:
    # Version 1 did not say what was learned from. Nothing but Lean's traces had been learned from then.
    return {**data, "simulated": False}


def _proof_verified_1(data: dict[str, Any]) -> dict[str, Any]:
    # Version 1 had no grade. Its replay was of the proof's module alone, and by the toolchain's own program or by one
    # that the project had built, which is no witness.
    replayed = any(
        (check["step"], check["verdict"], check["by"]) == ("kernel", "passed", "leanchecker")
        for check in data["checks"]
    )
    graded = ("replayed_module", "leanchecker") if replayed else ("not_replayed", "")
    return {**data, "grade": graded[0], "kernel": graded[1], "version": None}


def _proof_verified_2(data: dict[str, Any]) -> dict[str, Any]:
    # Version 2 did not say which Lean had judged, nor what by its hashes: such a proof has no certificate.
    return {**data, "toolchain": "", "material": None}


_BUMP_TRIED_1_LONGEST = 20_000


def _bump_tried_1(data: dict[str, Any]) -> dict[str, Any]:
    # Version 1 cut longer texts without saying so.
    return {**data, "text_cut": len(data["text"]) >= _BUMP_TRIED_1_LONGEST}


def _bump_finished_1(data: dict[str, Any]) -> dict[str, Any]:
    # The first events of version 1 had no verdict either; the next step gives all mends one.
    return {**data, "unrecorded": 0}


def _with_no_cause(breaks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "follows": ""} for one in breaks]


def _bump_built_1(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "broken": _with_no_cause(data["broken"])}


def _bump_finished_2(data: dict[str, Any]) -> dict[str, Any]:
    # Until version 2 a mend was judged while other proofs were gaps; what that accepts need not hold in the commit.
    unjudged = {
        "verdict": "checked",
        "reason": "not judged in the commit as it is handed over",
        "axioms": [],
        "grade": "",
        "kernel": "",
        "doubts": [],
    }
    return {
        **data,
        "left": _with_no_cause(data["left"]),
        "mended": [{**one, **unjudged} for one in data["mended"]],
    }


UPCASTS: Mapping[tuple[str, int], Upcast] = MappingProxyType(
    {
        ("commit_scanned", 1): _commit_scanned_1,
        ("commit_scanned", 2): _commit_scanned_2,
        # Version 3 did not look for challenges; the next commit says them.
        ("commit_scanned", 3): lambda data: {**data, "challenges": None},
        ("file_scanned", 1): _file_scanned_1,
        ("file_scanned", 2): _file_scanned_2,
        # Version 3 did not look for attributes; the next scan of the file does.
        ("file_scanned", 3): lambda data: {**data, "marked": None},
        ("file_traced", 1): _file_traced_1,
        ("attempt_finished", 1): _attempt_finished_1,
        ("proof_verified", 1): _proof_verified_1,
        ("proof_verified", 2): _proof_verified_2,
        ("bump_tried", 1): _bump_tried_1,
        ("bump_built", 1): _bump_built_1,
        ("bump_finished", 1): _bump_finished_1,
        ("bump_finished", 2): _bump_finished_2,
        ("checkpoint_saved", 1): _of_lean,
        ("checkpoint_saved", 2): lambda data: {**data, "curve": None},
        ("checkpoint_promoted", 1): _of_lean,
        ("evaluation_finished", 1): _of_lean,
        ("evaluation_finished", 2): lambda data: {**data, "scores": None},
    }
)
"""All steps that this version knows."""


def upcast(
    event_type: str,
    version: int,
    data: dict[str, Any],
    *,
    seq: int,
    current: Mapping[str, int],
    steps: Mapping[tuple[str, int], Upcast] = UPCASTS,
) -> dict[str, Any]:
    """Return the data as the current version has them. `current` maps each known type to its version.

    Raises:
        UnknownEventError: no such type, a newer version, or a step is missing.
    """
    known = current.get(event_type)
    if known is None or version > known:
        raise UnknownEventError(seq, event_type, version, known=known)
    for step in range(version, known):
        function = steps.get((event_type, step))
        if function is None:
            raise UnknownEventError(seq, event_type, version, known=known)
        data = function(data)
    return data


def read_body(event: StoredEvent) -> EventBody:
    """Return what a stored event says, upcast and validated.

    Raises:
        UnknownEventError: the type or its version is not known here.
        MalformedEventError: the data do not have the shape of their type.
    """
    types = _event_types()
    body_type = types.get(event.type)
    try:
        if body_type is not None and event.schema_version == body_type.schema_version:
            # From the text itself: to make a dict of it first takes as long again as all the checks.
            return body_type.model_validate_json(event.data_json)
        versions = {name: cls.schema_version for name, cls in types.items()}
        data = upcast(event.type, event.schema_version, event.data, seq=event.seq, current=versions)
        return types[event.type].model_validate_json(json.dumps(data))
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEventError(event.seq, event.type, event.schema_version, _fault(error)) from error


@cache
def _event_types() -> Mapping[str, type[EventBody]]:
    # Not at the top of this file: a reader of the log that wants no bodies starts without pydantic.
    from store.events.registry import EVENT_TYPES

    return EVENT_TYPES


def _fault(error: Exception) -> str:
    """Return what is wrong with the data: the first field at fault, or the error of an upcast."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]

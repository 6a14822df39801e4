"""The wire format: commands with their request fields, the two dialects' error kinds, how a reply is printed.

`old` is the REPL of mid-2025 (0.3.4), `new` the one from 0.3.8 on. A command that a dialect does not have is
unknown there; a field that it does not have is ignored, as any field is that no one asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pipeline.lean.simulator.kernel import Meta
from pipeline.lean.simulator.terms import MVar, is_name, plain_name

Json = dict[str, object]
Dialect = Literal["old", "new"]
FieldKind = Literal["string", "bool", "natural", "name", "strings", "names", "naturals"]

# How the newer dialect calls what the older one told apart; everything else has one name.
_FOLDED = {
    "arguments": "command",
    "operation": "command",
    "parsing": "parse",
    "expr": "parse",
    "core": "io",
    "internal": "io",
}


class Refusal(Exception):  # noqa: N818 - named by what happened
    """An error object. `kind` is the older dialect's name, which is the finer one."""

    def __init__(self, kind: str, desc: str) -> None:
        super().__init__(desc)
        self.kind = kind
        self.desc = desc

    def reply(self, dialect: Dialect) -> Json:
        kind = self.kind if dialect == "old" else _FOLDED.get(self.kind, self.kind)
        return {"error": kind, "desc": self.desc}


class Field(NamedTuple):
    """One field of a request; `dialects` lists those that know it."""

    kind: FieldKind
    required: bool = False
    dialects: tuple[Dialect, ...] = ("old", "new")


class Request(NamedTuple):
    """The request of one command: the structure's name in Lean, its fields in their order."""

    type: str
    fields: Mapping[str, Field]
    dialects: tuple[Dialect, ...] = ("old", "new")


def _of(kind: FieldKind, *, only: Dialect | None = None) -> Field:
    return Field(kind, True, ("old", "new") if only is None else (only,))


def _maybe(kind: FieldKind) -> Field:
    return Field(kind)


_NEW: tuple[Dialect, ...] = ("new",)
_OPTION = _maybe("bool")
REQUESTS: dict[str, Request] = {
    "reset": Request("Reset", {}),
    "stat": Request("Stat", {}),
    "options.set": Request(
        "OptionsSet",
        {
            "printJsonPretty": _OPTION,
            "printExprPretty": _OPTION,
            "printDependentMVars": _OPTION,
            "timeout": _maybe("natural"),
        },
    ),
    "env.describe": Request("EnvDescribe", {}),
    "env.inspect": Request(
        "EnvInspect",
        {
            "name": _of("name"),
            "value": _maybe("bool"),
            "dependency": _maybe("bool"),
            "source": _maybe("bool"),
        },
    ),
    "goal.start": Request("GoalStart", {"expr": _maybe("string"), "copyFrom": _maybe("name")}),
    "goal.tactic": Request(
        "GoalTactic",
        {
            "stateId": _of("natural"),
            "goalId": _maybe("natural"),
            "tactic": _maybe("string"),
        },
    ),
    "goal.subsume": Request(
        "GoalSubsume",
        {
            "stateId": _of("natural"),
            "goal": _of("name"),
            "candidates": _of("names"),
            "srcStateId": _maybe("natural"),
        },
        _NEW,
    ),
    "goal.delete": Request("GoalDelete", {"stateIds": _of("naturals")}),
    "goal.print": Request(
        "GoalPrint",
        {
            "stateId": _of("natural"),
            "rootExpr": _maybe("bool"),
            "goals": _maybe("bool"),
        },
    ),
    "frontend.process": Request(
        "FrontendProcess",
        {
            "fileName": _maybe("string"),
            "file": _maybe("string"),
            "readHeader": _of("bool"),
            "inheritEnv": _of("bool"),
            "invocations": _maybe("string"),
            "sorrys": _of("bool", only="old"),
            "typeErrorsAsGoals": _of("bool", only="old"),
            "newConstants": _of("bool"),
        },
    ),
    "frontend.distil": Request(
        "FrontendDistil",
        {"file": _of("string"), "binderName": _maybe("name"), "ignoreValues": _of("bool")},
        _NEW,
    ),
    "frontend.track": Request("FrontendTrack", {"src": _of("string"), "dst": _of("string")}, _NEW),
}


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _all_of(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(test, value))


_TESTS: dict[FieldKind, tuple[Callable[[object], bool], str]] = {
    "string": (lambda value: isinstance(value, str), "String expected"),
    "bool": (lambda value: isinstance(value, bool), "Bool expected"),
    "natural": (_is_natural, "Natural number expected"),
    "name": (lambda value: isinstance(value, str), "String expected"),
    "strings": (_all_of(lambda value: isinstance(value, str)), "expected JSON array of String"),
    "names": (_all_of(lambda value: isinstance(value, str)), "expected JSON array of String"),
    "naturals": (_all_of(_is_natural), "expected JSON array of Natural number"),
}


class Payload:
    """The fields of one request after decoding: present ones have their kind, absent ones are None."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        value = self._fields[name]
        assert isinstance(value, str)
        return value

    def maybe_text(self, name: str) -> str | None:
        value = self._fields.get(name)
        assert value is None or isinstance(value, str)
        return value

    def number(self, name: str) -> int:
        value = self._fields[name]
        assert isinstance(value, int)
        return value

    def maybe_number(self, name: str) -> int | None:
        value = self._fields.get(name)
        assert value is None or isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        """Return a Bool; an optional one that is absent counts as false."""
        return self._fields.get(name) is True

    def maybe_flag(self, name: str) -> bool | None:
        value = self._fields.get(name)
        assert value is None or isinstance(value, bool)
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of strings; an optional one that is absent counts as empty."""
        return [str(item) for item in self._list(name)]

    def numbers(self, name: str) -> list[int]:
        return [item for item in self._list(name) if isinstance(item, int)]

    def has(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def values(self) -> Mapping[str, object]:
        return self._fields

    def _list(self, name: str) -> list[object]:
        value = self._fields.get(name)
        assert value is None or isinstance(value, list)
        return value or []


def decode(command: str, payload: object, dialect: Dialect) -> Payload:
    """Check a request's fields, as Lean's decoder does: in their order, null as absent, unknown ones ignored.

    Raises:
        Refusal: the dialect has no such command, or a field is missing or of another kind.
    """
    request = REQUESTS.get(command)
    if request is None or dialect not in request.dialects:
        raise Refusal("command", f"Unknown command {command}")
    given = {} if payload is None else payload
    if not isinstance(given, dict):
        # Lean's decoder looks every field up in what is no object and finds none.
        given = {}
    fields: Json = {}
    for name, spec in request.fields.items():
        if dialect not in spec.dialects:
            continue
        value = given.get(name)
        if value is None and not spec.required:
            continue
        test, expected = _TESTS[spec.kind]
        if test(value) and dialect == "new" and (strange := _strange_name(spec.kind, value)) is not None:
            expected = f"expected a `Name`, got '{json.dumps(strange, ensure_ascii=False)}'"
        elif test(value):
            fields[name] = _plain(spec.kind, value)
            continue
        shown = name if spec.required else f"{name}?"
        raise Refusal(
            "command", f"Unable to parse json: Pantograph.Protocol.{request.type}.{shown}: {expected}"
        )
    return Payload(fields)


def _names(kind: FieldKind, value: object) -> list[str]:
    """Return the names in a field's value; none where the field is of another kind."""
    if kind == "names" and isinstance(value, list):
        return [str(name) for name in value]
    return [str(value)] if kind == "name" else []


def _strange_name(kind: FieldKind, value: object) -> str | None:
    return next((n for n in _names(kind, value) if n != "[anonymous]" and not is_name(n)), None)


def _plain(kind: FieldKind, value: object) -> object:
    """Return the value, its names in the spelling that the environment has them in."""
    names = [plain_name(name) if is_name(name) else name for name in _names(kind, value)]
    if kind == "name":
        return names[0]
    return names if kind == "names" else value


def parse_line(line: bytes) -> tuple[str, object]:
    """Split a request line into command and payload: the object form, or the command, a space and the payload.

    Raises:
        Refusal: it is neither.
    """
    try:
        text = line.decode("utf-8")
        if text.lstrip().startswith("{"):
            request = json.loads(text)
            command, payload = request.get("cmd"), request.get("payload")
        else:
            # Without a space the command keeps its line end, and is unknown: so it is in the REPL.
            command, _, rest = text.partition(" ")
            payload = json.loads(rest) if rest.strip() else None
    except (ValueError, RecursionError) as error:
        raise Refusal("command", f"Unable to parse the request: {error}") from None
    if not isinstance(command, str):
        raise Refusal("command", "Unable to parse json: Pantograph.Protocol.Command.cmd: String expected")
    return command, payload


def render(reply: Json, *, pretty: bool = False) -> bytes:
    """Return the reply as Lean prints it: compact, raw UTF-8, keys in descending order."""
    text = (
        json.dumps(reply, ensure_ascii=False, indent=1, sort_keys=True)
        if pretty
        else json.dumps(_descending(reply), ensure_ascii=False, separators=(",", ":"))
    )
    return text.encode("utf-8", "replace")


def _descending(value: object) -> object:
    if isinstance(value, dict):
        return {key: _descending(value[key]) for key in sorted(value, reverse=True)}
    if isinstance(value, list):
        return [_descending(item) for item in value]
    return value


# ---- Goal states and options: what the REPL keeps between requests
# A state never changes. Ids count from 0, every command that makes states draws from the one counter, a request that
# fails draws none, and only `reset` starts it again.


@dataclass(frozen=True, slots=True)
class State:
    """A goal state: holes, the open goals, the root that they serve.

    `hides_root`: the root's term is never shown, as in states made of a unit's sorries.
    """

    meta: Meta
    goals: tuple[MVar, ...]
    root: MVar
    hides_root: bool = False


class States:
    """All goal states, by id."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._states)

    def table(self) -> Mapping[int, State]:
        """Return all states by id, for inspection from outside."""
        return self._states

    def add(self, state: State) -> int:
        number = self._next
        self._next += 1
        self._states[number] = state
        return number

    def mark(self) -> int:
        """Return where the ids are, for `rewind`."""
        return self._next

    def rewind(self, mark: int) -> None:
        """Release the ids given out since `mark`: the request that drew them has failed."""
        self.delete(range(mark, self._next))
        self._next = mark

    def get(self, number: int) -> State:
        """Return a state.

        Raises:
            Refusal: there is none of that id.
        """
        state = self._states.get(number)
        if state is None:
            raise Refusal("index", f"Invalid state index {number}")
        return state

    def delete(self, numbers: Iterable[int]) -> None:
        """Drop states; ids that are unknown do not matter."""
        for number in numbers:
            self._states.pop(number, None)

    def reset(self) -> int:
        """Drop all states, start the ids again, and return how many states there were."""
        count = len(self._states)
        self._states.clear()
        self._next = 0
        return count


class Options:
    """The REPL's options, by their wire names and with their defaults."""

    def __init__(self) -> None:
        self._flags = {
            "printJsonPretty": False,
            "printExprPretty": True,
            "printDependentMVars": False,
        }
        self.timeout_ms = 0

    def __getitem__(self, name: str) -> bool:
        return self._flags[name]

    def set(self, payload: Payload) -> None:
        """Change the options that the request names."""
        for name, value in payload.values().items():
            if name == "timeout":
                assert isinstance(value, int)
                self.timeout_ms = value % (1 << 32)
            else:
                self._flags[name] = value is True

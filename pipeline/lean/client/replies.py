"""The replies of the commands about environments, options, stored states and checks, as typed frozen values.

Decoding and `to_json` work as `goals.py` says. `requests.py` names for each request which of these (or of
`messages.py`) answers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.lean.client import wire
from pipeline.lean.client.goals import Expression, Message, Position, StateRef
from pipeline.lean.client.wire import Json

SubsumeResult = Literal["none", "subsumed", "cycle"]
_SUBSUME: dict[str, SubsumeResult] = {"none": "none", "subsumed": "subsumed", "cycle": "cycle"}


@dataclass(frozen=True, slots=True)
class Done:
    """The empty reply: the command did what it says and has nothing to tell."""

    def to_json(self) -> dict[str, object]:
        return {}


@dataclass(frozen=True, slots=True)
class Number:
    """A reply of one number: goal states (`nGoals`), symbols (`nSymbols`) or a byte offset (`pos`), as `key` says."""

    key: str
    value: int

    @classmethod
    def from_json(cls, raw: Json, *, key: str, where: str) -> Number:
        return cls(key, wire.natural(raw, key, where))

    def to_json(self) -> dict[str, object]:
        return {self.key: self.value}


@dataclass(frozen=True, slots=True)
class EnvDescription:
    """`env.describe`: what the environment imports directly, and all modules in it."""

    imports: tuple[str, ...]
    modules: tuple[str, ...]

    @classmethod
    def from_json(cls, raw: Json) -> EnvDescription:
        return cls(wire.texts(raw, "imports", "env.describe"), wire.texts(raw, "modules", "env.describe"))

    def to_json(self) -> dict[str, object]:
        return {"imports": list(self.imports), "modules": list(self.modules)}


@dataclass(frozen=True, slots=True)
class Symbols:
    """The older `env.catalog`: every symbol, each with its kind's letter in front."""

    symbols: tuple[str, ...]

    @classmethod
    def from_json(cls, raw: Json) -> Symbols:
        return cls(wire.texts(raw, "symbols", "env.catalog"))

    def to_json(self) -> dict[str, object]:
        return {"symbols": list(self.symbols)}


@dataclass(frozen=True, slots=True)
class Constant:
    """`env.inspect`. `value` and the dependencies are None unless asked for (and there).

    `value_dependency` comes only where the value is shown. The three infos (`inductInfo`, `constructorInfo`,
    `recursorInfo`) are kept as the wire's objects; at most one is there. Source places are missing for modules
    without sources at hand and for the current file.
    """

    type: Expression
    is_unsafe: bool
    module: str | None = None
    value: Expression | None = None
    type_dependency: tuple[str, ...] | None = None
    value_dependency: tuple[str, ...] | None = None
    public_name: str | None = None
    induct_info: Json | None = None
    constructor_info: Json | None = None
    recursor_info: Json | None = None
    source_uri: str | None = None
    source_start: Position | None = None
    source_end: Position | None = None

    @classmethod
    def from_json(cls, raw: Json) -> Constant:
        where = "env.inspect"
        return cls(
            type=Expression.from_json(raw.get("type"), f"{where}.type"),
            is_unsafe=wire.boolean(raw, "isUnsafe", where),
            module=wire.optional_text(raw, "module", where),
            value=wire.optional(raw, "value", where, Expression.from_json),
            type_dependency=wire.optional_texts(raw, "typeDependency", where),
            value_dependency=wire.optional_texts(raw, "valueDependency", where),
            public_name=wire.optional_text(raw, "publicName", where),
            induct_info=wire.optional(raw, "inductInfo", where, wire.object_),
            constructor_info=wire.optional(raw, "constructorInfo", where, wire.object_),
            recursor_info=wire.optional(raw, "recursorInfo", where, wire.object_),
            source_uri=wire.optional_text(raw, "sourceUri", where),
            source_start=wire.optional(raw, "sourceStart", where, Position.from_json),
            source_end=wire.optional(raw, "sourceEnd", where, Position.from_json),
        )

    def to_json(self) -> dict[str, object]:
        return wire.without_none(
            {
                "type": self.type.to_json(),
                "isUnsafe": self.is_unsafe,
                "module": self.module,
                "value": None if self.value is None else self.value.to_json(),
                "typeDependency": None if self.type_dependency is None else list(self.type_dependency),
                "valueDependency": None if self.value_dependency is None else list(self.value_dependency),
                "publicName": self.public_name,
                "inductInfo": self.induct_info,
                "constructorInfo": self.constructor_info,
                "recursorInfo": self.recursor_info,
                "sourceUri": self.source_uri,
                "sourceStart": None if self.source_start is None else self.source_start.to_json(),
                "sourceEnd": None if self.source_end is None else self.source_end.to_json(),
            }
        )


@dataclass(frozen=True, slots=True)
class Started:
    """`goal.start`: the new state and the name of its root; the goals are not told (see `goal.print`)."""

    state: StateRef
    root: str

    @classmethod
    def from_json(cls, raw: Json, *, generation: int) -> Started:
        state = StateRef(wire.natural(raw, "stateId", "goal.start"), generation)
        return cls(state, wire.text(raw, "root", "goal.start"))

    def to_json(self) -> dict[str, object]:
        return {"stateId": self.state.id, "root": self.root}


@dataclass(frozen=True, slots=True)
class Track:
    """`frontend.track`: whether `dst` keeps what `src` promises.

    `failure` is the reason when it does not. With an error message on either side nothing was compared, and
    `failure` is None too: ask `conforms`.
    """

    src_messages: tuple[Message, ...]
    dst_messages: tuple[Message, ...]
    failure: str | None = None

    @classmethod
    def from_json(cls, raw: Json) -> Track:
        where = "frontend.track"
        return cls(
            wire.list_(raw.get("srcMessages"), f"{where}.srcMessages", Message.from_json),
            wire.list_(raw.get("dstMessages"), f"{where}.dstMessages", Message.from_json),
            wire.optional_text(raw, "failure", where),
        )

    def to_json(self) -> dict[str, object]:
        return wire.without_none(
            {
                "srcMessages": [message.to_json() for message in self.src_messages],
                "dstMessages": [message.to_json() for message in self.dst_messages],
                "failure": self.failure,
            }
        )

    @property
    def compared(self) -> bool:
        """Say whether both texts compiled, so that they could be compared at all."""
        return not any(message.is_error for message in (*self.src_messages, *self.dst_messages))

    @property
    def conforms(self) -> bool:
        return self.compared and self.failure is None

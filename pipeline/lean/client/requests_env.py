"""The requests about the process, its options, terms and the environment (`reset` … `env.*`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pipeline.lean.client.replies import (
    Constant,
    Done,
    EnvDescription,
    Number,
    Symbols,
)
from pipeline.lean.client.request_base import Request, on_wire
from pipeline.lean.client.wire import Json


@dataclass(frozen=True, slots=True)
class Reset(Request[Number]):
    """Drop all states; answers how many there were. Ids start again at 0; environment and scope stay."""

    command: ClassVar[str] = "reset"

    def reply(self, raw: Json, _generation: int, /) -> Number:
        return Number.from_json(raw, key="nGoals", where=self.command)


@dataclass(frozen=True, slots=True)
class Stat(Request[Number]):
    """Count the states."""

    command: ClassVar[str] = "stat"

    def reply(self, raw: Json, _generation: int, /) -> Number:
        return Number.from_json(raw, key="nGoals", where=self.command)


@dataclass(frozen=True, slots=True)
class OptionsSet(Request[Done]):
    """Change the REPL's own options; what is None stays. `timeout` is in milliseconds, 0 for none.

    There is no field for `printJsonPretty`: it would spread answers over lines and so break the framing.
    """

    command: ClassVar[str] = "options.set"
    print_expr_pretty: bool | None = field(
        default=None, metadata=on_wire("printExprPretty", "bool", optional=True)
    )
    print_expr_ast: bool | None = field(default=None, metadata=on_wire("printExprAST", "bool", optional=True))
    print_dependent_mvars: bool | None = field(
        default=None, metadata=on_wire("printDependentMVars", "bool", optional=True)
    )
    no_repeat: bool | None = field(default=None, metadata=on_wire("noRepeat", "bool", optional=True))
    print_aux_decls: bool | None = field(
        default=None, metadata=on_wire("printAuxDecls", "bool", optional=True)
    )
    print_implementation_detail_hyps: bool | None = field(
        default=None, metadata=on_wire("printImplementationDetailHyps", "bool", optional=True)
    )
    automatic_mode: bool | None = field(
        default=None, metadata=on_wire("automaticMode", "bool", optional=True)
    )
    timeout: int | None = field(default=None, metadata=on_wire("timeout", "natural", optional=True))

    def __post_init__(self) -> None:
        if dict(self.extra).get("printJsonPretty"):
            raise ValueError("options.set: printJsonPretty breaks the one-line framing; leave it out")

    def reply(self, _raw: Json, _generation: int, /) -> Done:
        return Done()


@dataclass(frozen=True, slots=True)
class EnvDescribe(Request[EnvDescription]):
    """Ask for the environment's imports and modules."""

    command: ClassVar[str] = "env.describe"

    def reply(self, raw: Json, _generation: int, /) -> EnvDescription:
        return EnvDescription.from_json(raw)


@dataclass(frozen=True, slots=True)
class EnvCatalog(Request["Number | Symbols"]):
    """Write all symbols into a file, one a line, its kind's letter in front. The older dialect answers them instead.

    `module_prefix` is about the module that defines the symbol; the current file's have none. An older REPL
    ignores all three fields.
    """

    command: ClassVar[str] = "env.catalog"
    filename: str = field(metadata=on_wire("filename"))
    module_prefix: str | None = field(default=None, metadata=on_wire("modulePrefix", optional=True))
    invert_filter: bool = field(default=False, metadata=on_wire("invertFilter", "bool"))

    def reply(self, raw: Json, _generation: int, /) -> Number | Symbols:
        if "symbols" in raw:
            return Symbols.from_json(raw)
        return Number.from_json(raw, key="nSymbols", where=self.command)


@dataclass(frozen=True, slots=True)
class EnvInspect(Request[Constant]):
    """Describe a constant. `value`: True shows it, False hides it, None shows it for definitions only."""

    command: ClassVar[str] = "env.inspect"
    name: str = field(metadata=on_wire("name"))
    value: bool | None = field(default=None, metadata=on_wire("value", "bool", optional=True))
    dependency: bool | None = field(default=None, metadata=on_wire("dependency", "bool", optional=True))
    source: bool | None = field(default=None, metadata=on_wire("source", "bool", optional=True))

    def reply(self, raw: Json, _generation: int, /) -> Constant:
        return Constant.from_json(raw)

"""Imports: a module of the project is elaborated from its source; Lean's own stand for what is built in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipeline.lean.simulator.frontend import Frontend
from pipeline.lean.simulator.kernel import Environment
from pipeline.lean.simulator.prelude import initial_environment
from pipeline.lean.simulator.syntax import ParseError
from pipeline.lean.simulator.units import read_header

_BUILT_IN = frozenset({"Init", "Prelude", "Lean", "Std", "Mathlib", "Batteries", "Aesop"})
EMPTY = Environment()


class ImportFailure(Exception):  # noqa: N818 - named by what happened
    """A module cannot be imported."""


class Range(NamedTuple):
    """Where a declaration stands: lines from 1, columns in code points from 0, the end exclusive."""

    start: tuple[int, int]
    end: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Module:
    """One importable module; `path` is None for what is built in, whose declarations have no ranges."""

    name: str
    env: Environment
    imports: tuple[str, ...] = ()
    path: Path | None = None
    ranges: Mapping[str, Range] = field(default_factory=dict)


class Modules:
    """The modules of one project folder, each elaborated once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._done: dict[str, Module] = {}

    def environment(self, imports: Sequence[str]) -> Environment:
        """Return the environment that a file with these imports gets; one without any gets `Init`.

        Raises:
            ImportFailure: a file is missing, does not elaborate, or imports itself.
        """
        return self._joined(imports or ("Init",), ())

    def find(self, name: str) -> Module | None:
        """Return a module that has been imported, or is built in."""
        found = self._done.get(name)
        return found if found is not None else _built_in_modules().get(name)

    def closure(self, imports: Iterable[str]) -> list[str]:
        """Return the modules that these imports bring in, each once, a module after what it imports."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            module = self.find(name)
            if name not in found and module is not None:
                for inner in module.imports:
                    visit(inner)
                found[name] = None

        for name in imports:
            visit(name)
        return list(found)

    def _joined(self, imports: Sequence[str], chain: tuple[str, ...]) -> Environment:
        table = dict(initial_environment().table)
        for name in imports:
            for constant in self._module(name, chain).env.table.values():
                known = table.get(constant.name)
                if known is not None and known is not constant:
                    raise ImportFailure(
                        f"import {name} failed, environment already contains '{constant.name}' from {known.module}"
                    )
                table[constant.name] = constant
        return Environment(table)

    def _module(self, name: str, chain: tuple[str, ...]) -> Module:
        if name in chain:
            raise ImportFailure(f"import cycle: {' -> '.join([*chain, name])}")
        if name in self._done:
            return self._done[name]
        path = self.root.joinpath(*(part.strip("«»") for part in name.split("."))).with_suffix(".lean")
        if not path.is_file():
            if name.partition(".")[0] in _BUILT_IN:
                self._done[name] = _built_in_modules().get(name) or Module(
                    name, initial_environment(), ("Init",)
                )
                return self._done[name]
            raise ImportFailure(
                f"unknown module prefix '{name}': no file {path} (imports are resolved under --root)"
            )
        try:
            text = path.read_text("utf-8")
            header = read_header(text)
        except (OSError, UnicodeDecodeError) as error:
            raise ImportFailure(f"{path}: {error}") from error
        except ParseError as error:
            raise ImportFailure(f"{path}: {error.message}") from error
        env = self._joined(header.imports, (*chain, name))
        frontend = Frontend(env, module=name)
        for command in frontend.run(text, start=header.end):
            for note in command.notes:
                if note.severity == "error":
                    line = text.count("\n", 0, note.start) + 1
                    raise ImportFailure(f"import {name} failed: {path}:{line}: {note.text}")
        ranges = {constant: Range(*where) for constant, where in frontend.ranges.items()}
        self._done[name] = Module(name, frontend.env, header.imports or ("Init",), path.resolve(), ranges)
        return self._done[name]


@cache
def _built_in_modules() -> Mapping[str, Module]:
    """Return `Init` and the modules that the built-in constants say they come from."""
    env = initial_environment()
    names = sorted({constant.module for constant in env.table.values() if constant.module != "Init"})
    inner = {name: Module(name, env) for name in names}
    return {**inner, "Init": Module("Init", env, tuple(names))}

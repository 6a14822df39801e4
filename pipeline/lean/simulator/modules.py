"""Imports: a module of the project is elaborated from its source; Lean's own stand for what is built in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.lean.simulator.frontend import Frontend, read_header
from pipeline.lean.simulator.kernel import Environment
from pipeline.lean.simulator.prelude import initial_environment
from pipeline.lean.simulator.syntax import ParseError

_BUILT_IN = frozenset({"Init", "Prelude", "Lean", "Std", "Mathlib", "Batteries", "Aesop"})


class ImportFailure(Exception):  # noqa: N818 - named by what happened
    """A module cannot be imported."""


class Modules:
    """The modules of one project folder, each elaborated once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._done: dict[str, Environment] = {}

    def loaded(self) -> list[str]:
        return list(self._done)

    def environment(self, imports: Sequence[str]) -> Environment:
        """Return the environment that these imports give.

        Raises:
            ImportFailure: a file is missing, does not elaborate, or imports itself.
        """
        if not imports:
            # Lean files import Init unless they say `prelude`; so does this logic.
            return initial_environment()
        return self._joined(imports, ())

    def _joined(self, imports: Sequence[str], chain: tuple[str, ...]) -> Environment:
        table = dict(initial_environment().table)
        for name in imports:
            for constant in self._module(name, chain).table.values():
                known = table.get(constant.name)
                if known is not None and known is not constant:
                    raise ImportFailure(
                        f"import {name} failed, environment already contains '{constant.name}' from {known.module}"
                    )
                table[constant.name] = constant
        return Environment(table)

    def _module(self, name: str, chain: tuple[str, ...]) -> Environment:
        if name in chain:
            raise ImportFailure(f"import cycle: {' -> '.join([*chain, name])}")
        if name in self._done:
            return self._done[name]
        path = self.root.joinpath(*(part.strip("«»") for part in name.split("."))).with_suffix(".lean")
        if not path.is_file():
            if name.partition(".")[0] in _BUILT_IN:
                self._done[name] = initial_environment()
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
        self._done[name] = frontend.env
        return frontend.env

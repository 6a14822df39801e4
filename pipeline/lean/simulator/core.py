"""What all commands of one REPL share: its environment and scope, options, goal states and modules."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.lean.simulator.frontend import Frontend
from pipeline.lean.simulator.kernel import Environment
from pipeline.lean.simulator.meta import Meta
from pipeline.lean.simulator.modules import Modules, Range
from pipeline.lean.simulator.protocol import Dialect, Refusal
from pipeline.lean.simulator.scope import Scope, Session
from pipeline.lean.simulator.shapes import Shapes
from pipeline.lean.simulator.states import Options, States

SORRY_TEXTS: Mapping[Dialect, str] = {
    "old": "declaration uses 'sorry'",
    "new": "declaration uses `sorry`",
}


class Core:
    """The state of one REPL between requests."""

    def __init__(self, modules: Modules, env: Environment, imports: Sequence[str], dialect: Dialect) -> None:
        self.modules = modules
        self.env = env
        self.imports = tuple(imports)
        self.dialect: Dialect = dialect
        self.scope = Scope()
        self.ranges: dict[str, Range] = {}  # of the constants that belong to no module
        self.options = Options()
        self.states = States()

    def deadline(self) -> float | None:
        """Return when the present request's time is over, by the option `timeout`."""
        limit_ms = self.options.timeout_ms
        return time.monotonic() + limit_ms / 1000 if limit_ms else None

    def session(self, *, holes_for_sorry: bool = False, unlimited: bool = False) -> Session:
        return Session(self.scope, holes_for_sorry, deadline_s=None if unlimited else self.deadline())

    def shapes(self, meta: Meta) -> Shapes:
        return Shapes(meta, self.options)

    def inherit(self, frontend: Frontend, imports: Sequence[str] | None) -> None:
        """Go on in the environment and the scope that a file ended in; `imports` where it had a header."""
        self.env, self.scope = frontend.env, frontend.scope
        if imports is not None:
            self.imports, self.ranges = tuple(imports), {}
        self.ranges.update({name: Range(*where) for name, where in frontend.ranges.items()})


def read_text(name: str) -> str:
    """Return a file's text.

    Raises:
        Refusal: it cannot be read.
    """
    try:
        return Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal("io", f"{name}: {error}") from None


def write_text(name: str, text: str) -> None:
    """Write a file.

    Raises:
        Refusal: it cannot be written.
    """
    try:
        Path(name).write_text(text, "utf-8")
    except OSError as error:
        raise Refusal("io", f"{name}: {error}") from None

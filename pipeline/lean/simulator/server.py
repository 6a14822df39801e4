"""The protocol: one request object to one reply object, over states, options and the environment.

Speaks both dialects of `pantograph-repl`. Nothing in here knows logic; nothing outside knows the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pipeline.lean.simulator import VERSION
from pipeline.lean.simulator.core import Core
from pipeline.lean.simulator.environment_commands import ENVIRONMENT_COMMANDS
from pipeline.lean.simulator.frontend_commands import FRONTEND_COMMANDS
from pipeline.lean.simulator.goal_commands import GOAL_COMMANDS
from pipeline.lean.simulator.kernel import Environment, Exhausted
from pipeline.lean.simulator.meta import Interrupted
from pipeline.lean.simulator.modules import EMPTY, Modules
from pipeline.lean.simulator.protocol import Dialect, Json, Payload, Refusal, decode
from pipeline.lean.simulator.states import State


def reset(core: Core, _payload: Payload) -> Json:
    return {"nGoals": core.states.reset()}


def stat(core: Core, _payload: Payload) -> Json:
    return {"nGoals": len(core.states), "simulator": VERSION}


def options_set(core: Core, payload: Payload) -> Json:
    core.options.set(payload)
    return {}


def options_print(core: Core, _payload: Payload) -> Json:
    return core.options.values()


COMMANDS: dict[str, Callable[[Core, Payload], Json]] = {
    "reset": reset,
    "stat": stat,
    "options.set": options_set,
    "options.print": options_print,
    **ENVIRONMENT_COMMANDS,
    **GOAL_COMMANDS,
    **FRONTEND_COMMANDS,
}


class Server:
    """One REPL."""

    def __init__(
        self,
        modules: Modules,
        env: Environment,
        *,
        imports: Sequence[str] = ("Init",),
        dialect: Dialect = "new",
    ) -> None:
        self.core = Core(modules, env, imports, dialect)

    @classmethod
    def start(cls, modules: Modules, imports: Sequence[str], dialect: Dialect = "new") -> Server:
        """Start with these imports; without any the environment is empty, there is not even `Init`.

        Raises:
            ImportFailure: a module cannot be imported.
        """
        env = modules.environment(imports) if imports else EMPTY
        return cls(modules, env, imports=imports, dialect=dialect)

    @property
    def states(self) -> Mapping[int, State]:
        """The goal states, by id."""
        return self.core.states.table()

    @property
    def pretty(self) -> bool:
        return self.core.options["printJsonPretty"]

    def answer(self, command: str, payload: object) -> Json:
        """Serve one request."""
        dialect, mark = self.core.dialect, self.core.states.mark()
        try:
            fields = decode(command, payload, dialect)
            return COMMANDS[command](self.core, fields)
        except Exception as error:  # noqa: BLE001 - the loop's border: one bad request must not end the process
            self.core.states.rewind(mark)
            return self._refusal(error).reply(dialect)

    @staticmethod
    def _refusal(error: Exception) -> Refusal:
        match error:
            case Refusal():
                return error
            case Interrupted():
                return Refusal("internal", "interrupt")
            case Exhausted():
                return Refusal("core", str(error))
            case RecursionError():
                return Refusal("core", "maximum recursion depth has been reached (simulator)")
        import traceback

        traceback.print_exception(error)
        return Refusal("io", f"unexpected internal error: {error!r} (simulator)")

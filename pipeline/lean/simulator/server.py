"""The protocol: one request object to one reply object, over states, options and the environment.

Speaks both dialects of `pantograph-repl`. Nothing in here knows logic; nothing outside knows the wire.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from getopt import GetoptError, gnu_getopt
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pipeline.lean.simulator import VERSION
from pipeline.lean.simulator.commands import ENVIRONMENT_COMMANDS, FRONTEND_COMMANDS, GOAL_COMMANDS, Core
from pipeline.lean.simulator.frontend import EMPTY, ImportFailure, Modules
from pipeline.lean.simulator.kernel import Environment, Exhausted, Interrupted
from pipeline.lean.simulator.protocol import (
    Dialect,
    Json,
    Payload,
    Refusal,
    State,
    decode,
    parse_line,
    render,
)


def reset(core: Core, _payload: Payload) -> Json:
    return {"nGoals": core.states.reset()}


def stat(core: Core, _payload: Payload) -> Json:
    return {"nGoals": len(core.states), "simulator": VERSION}


def options_set(core: Core, payload: Payload) -> Json:
    core.options.set(payload)
    return {}


COMMANDS: dict[str, Callable[[Core, Payload], Json]] = {
    "reset": reset,
    "stat": stat,
    "options.set": options_set,
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


# ---- Faults on demand: what a real REPL does when it goes wrong, for tests and load runs
# A fault happens at one request (`crash@3`, counted from 1 in each process), at any request with a probability
# (`crash%0.01`), or always (`slow:20`). Which requests a probability picks depends on `--seed` alone.


HELP = """\
faults (--fault SPEC, any number of times; N counts requests from 1 in each process, P is a probability):
  crash@N  crash%P           die by SIGABRT instead of answering
  hang@N   hang%P            never answer, and go on reading nothing
  slow:MS                    wait MS milliseconds before every answer
  slow@N:MS  slow%P:MS       wait so before some answers
  stderr:BYTES               write that much noise on stderr at every request
  leak:BYTES                 keep that much more memory at every request
  panic@N  panic%P           write a Lean panic on stderr and answer all the same
  garbage@N  garbage%P       answer with a line that is no JSON
  truncated@N  truncated%P   write half an answer without a line end and die
  bigline@N:BYTES            make the answer at least so long, with a field that no one asked for
  interrupt@N  interrupt%P   answer as when the option `timeout` ended the request
  oom@N[:BYTES]              take that much memory (default 64 MiB), then die by SIGKILL
  exit-before-ready          die with an error before `ready.`
  slow-start:MS              wait before `ready.`
"""
_SPEC = re.compile(r"([a-z-]+?)(?:@(\d+)|%(\d*\.?\d+))?(?::(\d+))?")
_AT_REQUEST = frozenset(
    ("crash", "hang", "slow", "panic", "garbage", "truncated", "bigline", "interrupt", "oom")
)
_ALWAYS = frozenset(("slow", "stderr", "leak"))
_AT_START = frozenset(("exit-before-ready", "slow-start"))
_NEEDS_SIZE = frozenset(("slow", "stderr", "leak", "bigline", "slow-start"))
_DEFAULT_OOM_BYTES = 64 << 20


class BadFault(Exception):  # noqa: N818 - named by what happened
    """A `--fault` that says nothing that can be done."""


class Fault(NamedTuple):
    """One fault: at the request `at`, at any with `probability`, else always; `size` is bytes or milliseconds."""

    kind: str
    at: int = 0
    probability: float = 0.0
    size: int = 0


def parse_fault(spec: str) -> Fault:
    """Read a `--fault`.

    Raises:
        BadFault: it has another form than `HELP` lists.
    """
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise BadFault(f"--fault {spec}: not of the form KIND, KIND@N, KIND%P or KIND:SIZE; see --help")
    kind, at, probability, size = found.groups()
    timed = at is not None or probability is not None
    if kind not in (_AT_REQUEST if timed else _ALWAYS | _AT_START):
        raise BadFault(f"--fault {spec}: there is no such fault in this form; see --help")
    if kind in _NEEDS_SIZE and size is None:
        raise BadFault(f"--fault {spec}: a size is missing, as in {spec}:100")
    fault = Fault(kind, int(at or 0), float(probability or 0), int(size or 0))
    if timed and not (fault.at or 0 < fault.probability <= 1):
        raise BadFault(f"--fault {spec}: requests count from 1, a probability is above 0 and at most 1")
    return fault


class Faults:
    """The faults of one process; decides at each request, in the order of the command line."""

    def __init__(self, faults: Sequence[Fault], *, seed: int | None, dialect: Dialect) -> None:
        self._faults = tuple(faults)
        self._random = random.Random(seed)  # noqa: S311 - chooses failures, not secrets
        self._dialect: Dialect = dialect
        self._count = 0
        self._kept: list[bytearray] = []
        self._before: Mapping[str, Callable[[Fault], None]] = {
            "crash": self._crash,
            "hang": self._hang,
            "slow": self._slow,
            "stderr": self._stderr,
            "leak": self._leak,
            "panic": self._panic,
            "oom": self._oom,
        }

    @property
    def kept_bytes(self) -> int:
        """Return the memory that leaks have kept."""
        return sum(map(len, self._kept))

    def at_start(self) -> None:
        """Do what is to happen before `ready.`."""
        for fault in self._faults:
            if fault.kind == "slow-start":
                self._slow(fault)
            if fault.kind == "exit-before-ready":
                sys.stderr.write("uncaught exception: simulated failure before ready (--fault)\n")
                sys.stderr.flush()
                raise SystemExit(1)

    def around(self, answer: Callable[[], bytes]) -> bytes:
        """Answer one request, with what goes wrong before and after; returns the line to write."""
        self._count += 1
        chosen = [fault for fault in self._faults if self._happens(fault)]
        for fault in chosen:
            if fault.kind in self._before:
                self._before[fault.kind](fault)
        if any(fault.kind == "interrupt" for fault in chosen):
            line = render(Refusal("internal", "interrupt").reply(self._dialect))
        else:
            line = answer()
        for fault in chosen:
            if fault.kind == "garbage":
                line = b"stdout noise: this is no reply {"
            elif fault.kind == "bigline":
                line = self._padded(line, fault.size)
            elif fault.kind == "truncated":
                self._truncate(line)
        return line

    def _happens(self, fault: Fault) -> bool:
        if fault.kind in _AT_START:
            return False
        if fault.probability:
            # Always draw, so that one fault's choices do not depend on what else is asked for.
            return self._random.random() < fault.probability
        return fault.at in (0, self._count)

    @staticmethod
    def _crash(_fault: Fault) -> None:
        sys.stderr.write("libc++abi: terminating (simulated by --fault crash)\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGABRT)

    @staticmethod
    def _hang(_fault: Fault) -> None:
        while True:
            time.sleep(3600)

    @staticmethod
    def _slow(fault: Fault) -> None:
        time.sleep(fault.size / 1000)

    @staticmethod
    def _stderr(fault: Fault) -> None:
        line = "stdout: simulated noise (--fault stderr)\n"
        sys.stderr.write((line * (fault.size // len(line) + 1))[: fault.size - 1] + "\n")
        sys.stderr.flush()

    def _leak(self, fault: Fault) -> None:
        self._kept.append(_touched(fault.size))

    @staticmethod
    def _panic(_fault: Fault) -> None:
        sys.stderr.write("PANIC at Simulated.fault simulator:1:0: simulated by --fault panic\n")
        sys.stderr.flush()

    def _oom(self, fault: Fault) -> None:
        self._kept.append(_touched(fault.size or _DEFAULT_OOM_BYTES))
        os.kill(os.getpid(), signal.SIGKILL)

    @staticmethod
    def _padded(line: bytes, size: int) -> bytes:
        padding = f',"simulatorPadding":"{"x" * max(0, size - len(line))}"}}'.encode()
        return line[:-1] + (padding if line != b"{}" else padding[1:])

    @staticmethod
    def _truncate(line: bytes) -> None:
        sys.stdout.buffer.write(line[: len(line) // 2])
        sys.stdout.buffer.flush()
        os.kill(os.getpid(), signal.SIGABRT)


def _touched(size: int) -> bytearray:
    """Return memory that is really there."""
    memory = bytearray(size)
    memory[::4096] = b"\1" * len(range(0, size, 4096))
    return memory


def no_faults(dialect: Dialect = "new") -> Faults:
    return Faults((), seed=0, dialect=dialect)


# ---- The simulator's command line (`python -m pipeline.lean.simulator --help`) and its loop
# A line, and a line back.


RECURSION_LIMIT = 6000
_OPTIONS = ("help", "version", "root=", "dialect=", "fault=", "seed=")
_HELP = f"""\
usage: pipeline.lean.simulator [module ...] [--key=value ...] [options]

{VERSION}. Modules are files under --root, else built in; without any there is not even Init.

options:
  --help               show this and end
  --root DIR           the project's folder (default: here)
  --dialect new|old    the REPL to stand for: 0.3.8 and on, or 0.3.4 (default: new)
  --fault SPEC         see below
  --seed N             seed of the faults that have a probability (default: none)
  --version            show the version and end

{HELP}"""


def main(argv: Sequence[str] | None = None) -> int:
    try:
        options, imports = _read(sys.argv[1:] if argv is None else argv)
        if "--help" in options or "--version" in options:
            sys.stdout.write(_HELP if "--help" in options else f"{VERSION}\n")
            return 0
        dialect = _dialect(options.get("--dialect", ["new"])[-1])
        seed = int(options["--seed"][-1]) if "--seed" in options else None
        faults = Faults(
            [parse_fault(spec) for spec in options.get("--fault", [])], seed=seed, dialect=dialect
        )
    except (GetoptError, BadFault, ValueError) as error:
        return _complain(str(error))
    _complain(f"{VERSION}: a small logic that speaks Lean's protocol; nothing it accepts is checked by Lean")
    sys.setrecursionlimit(RECURSION_LIMIT)
    root = Path(options.get("--root", ["."])[-1])
    try:
        server = Server.start(Modules(root), imports, dialect)
    except ImportFailure as error:
        return _complain(f"uncaught exception: {error}")
    faults.at_start()
    serve(server, sys.stdin.buffer, sys.stdout.buffer, faults)
    return 0


def _read(argv: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the values of each option, and the modules. By getopt: argparse loads more (`shutil` too, at its first
    option), and a check starts three simulators.

    Raises:
        GetoptError: an option lacks its value, or is none of ours and sets none of Lean's.
    """
    ours = {f"--{option.rstrip('=')}" for option in _OPTIONS}
    # Core options come in any order between the others, and change nothing here.
    core = [word for word in argv if word.startswith("--") and word.partition("=")[0] not in ours]
    if bad := [word for word in core if "=" not in word]:
        raise GetoptError(f"uncaught exception: Options cannot be parsed: {bad[0]}")
    values: dict[str, list[str]] = {}
    given, imports = gnu_getopt([word for word in argv if word not in core], "", _OPTIONS)
    for name, value in given:
        values.setdefault(name, []).append(value)
    return values, imports


def _dialect(name: str) -> Dialect:
    match name:
        case "new" | "old":
            return name
    raise ValueError(f"--dialect {name}: there is new, and there is old")


def _complain(text: str) -> int:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    return 1


def serve(server: Server, source: BinaryIO, sink: BinaryIO, faults: Faults | None = None) -> None:
    """Answer requests until a blank line or the end."""
    wrong = no_faults() if faults is None else faults
    _write(sink, b"ready.")
    while line := source.readline():
        if not line.strip():
            return
        _write(sink, wrong.around(partial(_answer, server, line)))


def _write(sink: BinaryIO, line: bytes) -> None:
    sink.write(line + b"\n")
    sink.flush()


def _answer(server: Server, line: bytes) -> bytes:
    try:
        command, payload = parse_line(line)
    except Refusal as error:
        return render(error.reply(server.core.dialect))
    return render(server.answer(command, payload), pretty=server.pretty)

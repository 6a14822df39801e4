"""A program that speaks the REPL's protocol without any logic, and misbehaves on request or at random.

    python -I -S faulty_repl.py [--seed=N] [--marker=TEXT] [--fault=NAME=PROBABILITY]... [--start-fault=P] MODULE...

For tests and benchmarks of the client and the pool: it starts in a few milliseconds with the standard library alone.
What it answers is a function of what led there (`goal_text`), so that an answer can be told from another's. Each
process takes a number from the file `starts` in its working directory (its size), which seeds its dice.

Tactics: `close`, `split`, `fail`, `(` (no tactic), `fault NAME`, `fault NAME once` (in one process only), `grow MB`,
`drift` (leads elsewhere in each process), `sleep MS`; any other text is a step to one new goal. Faults: see `FAULTS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pipeline.lean.backend import LeanBackend

HUGE_BYTES = 100 * 1024 * 1024
FLOOD_BYTES = 3 * 1024 * 1024
STARTS = "starts"
Goals = list[tuple[str, str]]


def goal_text(env: Iterable[str], root: str, steps: Iterable[str] = ()) -> str:
    """Return the target that the goal has after these steps from this root, in an environment of these texts."""
    text = _hash("env", *env, "root", root)
    for step in steps:
        text = _hash(text, step)
    return text


def backend(
    *, seed: int = 0, marker: str = "", faults: Mapping[str, float] | None = None, start_fault: float = 0.0
) -> LeanBackend:
    """Return what starts this program as a (simulated) Lean."""
    # Here and not above: the program itself starts in a tenth of the time without the package.
    from pipeline.lean.backend import LeanBackend

    argv = [sys.executable, "-I", "-S", __file__, f"--seed={seed}", f"--start-fault={start_fault}"]
    argv += [f"--fault={name}={probability}" for name, probability in (faults or {}).items()]
    if marker:
        argv.append(f"--marker={marker}")
    return LeanBackend(
        kind="simulator",
        argv=tuple(argv),
        detail="a REPL without logic, for tests of the client",
        toolchain="",
        sandbox="none",
    )


class FaultyRepl:
    """One process: its environment, its states and its dice."""

    def __init__(self, number: int, dice: random.Random, faults: Mapping[str, float]) -> None:
        self.number = number
        self.dice = dice
        self.faults = faults
        self.timeout_s = 60.0
        self.env: list[str] = []
        self.states: dict[int, Goals] = {}
        self.next_state = 0
        self.next_name = number * 100_000
        self.ballast: list[bytes] = []

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            if not line.strip():
                return
            request = json.loads(line)
            command, payload = request["cmd"], request["payload"] or {}
            answer = self._answer(command, payload)
            # What is refused is what a client asks to find out the dialect; it may do so without danger.
            fault = None if command == "options.set" or "error" in answer else self._roll()
            if command == "goal.tactic":
                fault = self._asked(payload["tactic"]) or fault
            if fault is None:
                _say(answer)
            else:
                FAULTS[fault](self, answer)

    def _roll(self) -> str | None:
        point = self.dice.random()
        for name, probability in self.faults.items():
            point -= probability
            if point < 0:
                return name
        return None

    def _asked(self, tactic: str) -> str | None:
        match tactic.split():
            case ["fault", name]:
                return name
            case ["fault", name, "once"]:
                try:
                    os.close(os.open(f"fault-{name}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return None
                return name
        return None

    def _answer(self, command: str, payload: dict[str, Any]) -> dict[str, Any]:
        if (command == "goal.start" and "copyFrom" in payload) or (command == "goal.subsume" and not payload):
            # What a client asks to find out the dialect: this is the newest.
            return {"error": "command", "desc": "Unable to parse json: it holds too much or too little"}
        match command:
            case "options.set":
                self.timeout_s = payload.get("timeout", 0) / 1000 or self.timeout_s
                return {}
            case "frontend.process":
                if payload["inheritEnv"]:
                    self.env.append(payload["file"])
                return {"units": [self._unit(payload["file"])]}
            case "frontend.distil":
                count = payload["file"].count("sorry")
                goals = [self._goal(goal_text(self.env, payload["file"], [str(at)])) for at in range(count)]
                return {"targets": [{"stateId": self._keep(goals), "goals": _shown(goals)}] if count else []}
            case "goal.start":
                goals = [self._goal(goal_text(self.env, payload["expr"]))]
                return {"stateId": self._keep(goals), "root": "_uniq.0"}
            case "goal.print":
                flags = dict.fromkeys(("rootHasSorry", "rootHasUnsafe", "rootHasMVar"), False)
                return {"goals": _shown(self.states[payload["stateId"]]), "extraMVars": [], **flags}
            case "goal.tactic":
                return self._tactic(payload["stateId"], payload.get("goalId") or 0, payload["tactic"])
            case "goal.delete":
                for number in payload["stateIds"]:
                    self.states.pop(number, None)
                return {}
            case "stat":
                return {"nGoals": len(self.states)}
            case "reset":
                count, self.states, self.next_state = len(self.states), {}, 0
                return {"nGoals": count}
        return {"error": "command", "desc": f"Unknown command {command}"}

    def _unit(self, text: str) -> dict[str, Any]:
        messages = [_message("the text says #error")] if "#error" in text else []
        return {"boundary": [0, len(text.encode())], "messages": messages}

    def _tactic(self, number: int, site: int, tactic: str) -> dict[str, Any]:
        goals = self.states.get(number)
        if goals is None:
            return {"error": "index", "desc": f"Invalid state index {number}"}
        if site >= len(goals):
            return {"error": "index", "desc": f"Invalid goal index {site}"}
        target = goals[site][1]
        match tactic.split():
            case ["("]:
                return {"parseError": "<input>:1:1: unexpected end of input"}
            case ["fail"]:
                return {
                    "messages": [_message(f"no progress on {target}")],
                    "hasSorry": False,
                    "hasUnsafe": False,
                }
            case ["close"]:
                new = []
            case ["split"]:
                new = [self._goal(_hash(target, f"split {side}")) for side in (0, 1)]
            case ["drift"]:
                new = [self._goal(_hash(target, f"in process {self.number}"))]
            case ["grow", megabytes]:
                self.ballast.append(os.urandom(1024) * (1024 * int(megabytes)))
                new = [self._goal(_hash(target, tactic))]
            case ["sleep", milliseconds]:
                time.sleep(int(milliseconds) / 1000)
                new = [self._goal(_hash(target, tactic))]
            case _:
                new = [self._goal(_hash(target, tactic))]
        after = [*goals[:site], *new, *goals[site + 1 :]]
        return {
            "nextStateId": self._keep(after),
            "messages": [],
            "hasUnsafe": False,
            "hasSorry": False,
            "goals": _shown(after),
        }

    def _goal(self, target: str) -> tuple[str, str]:
        self.next_name += 1
        return f"_uniq.{self.next_name}", target

    def _keep(self, goals: Goals) -> int:
        number = self.next_state
        self.next_state += 1
        self.states[number] = goals
        return number


def _crash(_: FaultyRepl, __: dict[str, Any]) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _hang(_: FaultyRepl, __: dict[str, Any]) -> NoReturn:
    while True:
        time.sleep(60)


def _flood(_: FaultyRepl, answer: dict[str, Any]) -> None:
    line = b"stdout: " + b"noise " * 20 + b"\n"
    for _number in range(FLOOD_BYTES // len(line)):
        sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()
    _say(answer)


def _broken(_: FaultyRepl, answer: dict[str, Any]) -> None:
    text = json.dumps(answer)
    _write(text[: len(text) // 2].encode() + b"\n")


def _huge(_: FaultyRepl, answer: dict[str, Any]) -> None:
    _write(b'{"padding":"')
    for _number in range(HUGE_BYTES // (1 << 20)):
        _write(b"x" * (1 << 20))
    _write(b'",' + json.dumps({**answer, "more": 0}).encode()[1:] + b"\n")


def _panic(_: FaultyRepl, __: dict[str, Any]) -> None:
    sys.stderr.write("PANIC at Lean.Expr.bvar! Lean.Expr:1:2: bvar expected\n")
    sys.stderr.flush()
    # What follows a panic is a default value; this one would be a proof.
    _say({"nextStateId": 0, "messages": [], "hasSorry": False, "hasUnsafe": False, "goals": []})


def _late(repl: FaultyRepl, answer: dict[str, Any]) -> None:
    time.sleep(repl.timeout_s * repl.dice.uniform(0.2, 2.5))
    _say(answer)


def _exit_mid_line(_: FaultyRepl, answer: dict[str, Any]) -> NoReturn:
    _write(json.dumps(answer).encode()[:-1])
    os._exit(1)


def _close_output(_: FaultyRepl, __: dict[str, Any]) -> None:
    os.close(1)


def _orphan(_: FaultyRepl, __: dict[str, Any]) -> None:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)


FAULTS: dict[str, Callable[[FaultyRepl, dict[str, Any]], None]] = {
    "crash": _crash,
    "hang": _hang,
    "flood": _flood,
    "broken": _broken,
    "huge": _huge,
    "panic": _panic,
    "late": _late,
    "exit_mid_line": _exit_mid_line,
    "close_output": _close_output,
    "orphan": _orphan,
}
"""`flood` answers rightly after much noise on stderr, `huge` in a line of 100 MB, `late` sometimes too late; `panic`
answers with a lie; the others never answer. After `orphan` a child is left that holds the pipes open."""


def _hash(*parts: str) -> str:
    return "P" + hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def _shown(goals: Goals) -> list[dict[str, Any]]:
    return [
        {"name": name, "fragment": "tactic", "target": {"pp": target}, "vars": [_variable(target)]}
        for name, target in goals
    ]


def _variable(target: str) -> dict[str, Any]:
    return {"name": "_uniq.1", "userName": "h", "isInaccessible": False, "type": {"pp": f"{target} → False"}}


def _message(text: str) -> dict[str, Any]:
    at = {"line": 0, "column": 0}
    return {"fileName": "<Pantograph>", "severity": "error", "pos": at, "endPos": None, "data": text}


def _say(answer: dict[str, Any]) -> None:
    _write(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def _write(data: bytes) -> None:
    # A reader that has gone away is how most of these stories end.
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(1, data) :]


def _number() -> int:
    """Return the next process number in this working directory."""
    handle = os.open(STARTS, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        os.write(handle, b".")
        return os.lseek(handle, 0, os.SEEK_CUR)
    finally:
        os.close(handle)


def main(arguments: list[str]) -> None:
    if "--version" in arguments:
        _write(b"0.3.15\n")
        return
    given: dict[str, list[str]] = {}
    for argument in arguments:
        if argument.startswith("--"):
            name, _, value = argument[2:].partition("=")
            given.setdefault(name, []).append(value)
    faults = {
        name: float(value) for name, _, value in (item.partition("=") for item in given.get("fault", []))
    }
    number = _number()
    dice = random.Random(f"{given.get('seed', ['0'])[0]} {number}")
    if dice.random() < float(given.get("start-fault", ["0"])[0]):
        sys.exit("uncaught exception: the dice fell against this start")
    _write(b"ready.\n")
    FaultyRepl(number, dice, faults).serve()


if __name__ == "__main__":
    main(sys.argv[1:])

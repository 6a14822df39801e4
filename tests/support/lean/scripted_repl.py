"""A program that speaks the protocol of pantograph-repl without any logic, answers from a table, and fails as told.

    python -I -S scripted_repl.py [--script=JSON] [--dialect=newer|middle|older] [--seed=N] [--marker=TEXT]
        [--fault=NAME=PROBABILITY]... [--start-fault=P] MODULE...

It is not Lean, and says so. It starts in milliseconds, with the standard library alone. `tests.support.lean.scripted`
makes backends and executables of it; the table (`--script`) is described there, in `Script`.

What no table answers is answered by a rule: a text is one unit without messages, with a warning where it holds
`sorry` and an error where it holds `#error`; each sorry is a goal. Without a table a goal is a function of what led
to it (`goal_text`), so that an answer can be told from another's, and any tactic is a step to one new goal but
`close`, `split`, `fail`, `grow MB`, and `drift` (leads elsewhere in each process). With a table a tactic that it does
not name fails. Always there: `(` (no tactic), `sleep MS`, `fault NAME`, `fault NAME once` (in one process only).
Faults: see `FAULTS`. A process is known by its id; with a seed, it takes a number from the file `starts` in its
working directory (its size), and the two decide how its dice fall.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

VERSION = "0.3.15 (a stand-in for tests, not Lean)"
HUGE_BYTES = 100 * 1024 * 1024
FLOOD_BYTES = 3 * 1024 * 1024
STARTS = "starts"
Reply = dict[str, Any]


class Variable(NamedTuple):
    """One hypothesis."""

    name: str
    type: str
    value: str = ""


class Goal(NamedTuple):
    """One goal. `uid` is its name inside of the process."""

    target: str
    variables: tuple[Variable, ...] = ()
    case: str = ""
    uid: str = ""

    @property
    def text(self) -> str:
        """The goal as Lean prints it, a line for each hypothesis."""
        lines = [f"case {self.case}"] if self.case else []
        lines += [f"{v.name} : {v.type}" + (f" := {v.value}" if v.value else "") for v in self.variables]
        return "\n".join([*lines, f"⊢ {self.target}"])


def goal_of(text: str, beside: Goal | None = None) -> Goal:
    """Read a goal that is written as Lean prints it; a target alone has the hypotheses of the goal `beside` it."""
    head, turnstile, target = text.rpartition("⊢")
    if not turnstile:
        return Goal(text.strip(), () if beside is None else beside.variables)
    case, variables = "", []
    for line in filter(None, map(str.strip, head.splitlines())):
        if line.startswith("case "):
            case = line.removeprefix("case ")
            continue
        names, _, rest = line.partition(" : ")
        kind, _, value = rest.partition(" := ")
        variables += [Variable(name, kind, value) for name in names.split()]
    return Goal(target.strip(), tuple(variables), case)


def goal_text(env: Iterable[str], root: str, steps: Iterable[str] = ()) -> str:
    """Return the target that the goal has after these steps from this root, in an environment of these texts."""
    text = _hash("env", *env, "root", root)
    for step in steps:
        text = _hash(text, step)
    return text


class Fields(NamedTuple):
    """What a command's payload must hold: the name of its type in Lean, and (field, type in Lean) in order."""

    type: str
    required: tuple[tuple[str, str], ...] = ()
    older: tuple[tuple[str, str], ...] = ()
    """Required in the older dialect and in the middle one as well."""


_FLAGS = (("readHeader", "Bool"), ("inheritEnv", "Bool"), ("newConstants", "Bool"))
_GONE = (("sorrys", "Bool"), ("typeErrorsAsGoals", "Bool"))
_STATE = (("stateId", "Natural number"),)
COMMANDS = {
    "stat": Fields("Stat"),
    "reset": Fields("Reset"),
    "options.set": Fields("OptionsSet"),
    "goal.start": Fields("GoalStart"),
    "goal.tactic": Fields("GoalTactic", _STATE),
    "goal.print": Fields("GoalPrint", _STATE),
    "goal.delete": Fields("GoalDelete", (("stateIds", "Array"),)),
    "goal.subsume": Fields("GoalSubsume", _STATE),
    "frontend.process": Fields("FrontendProcess", _FLAGS, _GONE),
    "frontend.distil": Fields("FrontendDistil", (("file", "String"), ("ignoreValues", "Bool"))),
}
_TYPES = {"Bool": bool, "String": str, "Natural number": int, "Array": list}
UNKNOWN = {
    "newer": frozenset[str](),
    "middle": frozenset({"goal.subsume"}),
    "older": frozenset({"goal.subsume", "frontend.distil"}),
}
"""The commands that each dialect has not."""
_OLDER_WORDS = {"command": "arguments", "parse": "parsing", "io": "internal"}


class RefusedError(Exception):
    """The request is answered with an error object."""

    def __init__(self, kind: str, desc: str) -> None:
        super().__init__(desc)
        self.reply = {"error": kind, "desc": desc}


class ScriptedRepl:
    """One process: its environment, its states and its dice. `script` is the table, None without one."""

    def __init__(
        self,
        *,
        script: Mapping[str, Any] | None = None,
        dialect: str = "newer",
        number: int = 1,
        faults: Mapping[str, float] | None = None,
        dice: random.Random | None = None,
        first: Callable[[str], bool] | None = None,
    ) -> None:
        """`first` says whether this process is the first that comes to a fault."""
        self.dialect = dialect
        self.number = number
        self.dice = dice or random.Random(0)
        self.faults = faults or {}
        self.first = first or _first
        self.timeout_s = 60.0
        self.env: list[str] = []
        self.states: dict[int, tuple[Goal, ...]] = {}
        self.next_state = 0
        self.next_uid = number * 100_000
        self.ballast: list[bytes] = []
        self.wait_s = 0.0
        """How long the answer at hand takes."""
        table = script or {}
        self.scripted = script is not None
        self.sorries: dict[str, list[str]] = table.get("sorries", {})
        self.errors: dict[str, str] = table.get("errors", {})
        self.tactics = {
            (goal_of(goal).text if "⊢" in goal else goal, tactic): outcome
            for goal, tactic, outcome in table.get("tactics", [])
        }

    # ---- requests

    def fault(self, request: Reply, answer: Reply) -> list[str]:
        """Return the fault that this answer falls into, with its parameters; none mostly."""
        command, tactic = request["cmd"], (request["payload"] or {}).get("tactic", "")
        match tactic.split():
            case ["fault", name, "once"]:
                if self.first(name):
                    return [name]
            case ["fault", name, *at] if not at or name == "cut":
                return [name, *at]
        # What is refused is what a client asks to find out the dialect; it may do so without danger.
        if command == "options.set" or "error" in answer:
            return []
        point = self.dice.random()
        for name, probability in self.faults.items():
            point -= probability
            if point < 0:
                return [name]
        return []

    def answer(self, request: Reply) -> Reply:
        """Return the answer; `wait_s` says how long it takes."""
        self.wait_s = 0.0
        command = request["cmd"]
        payload = {name: value for name, value in (request["payload"] or {}).items() if value is not None}
        try:
            self._hold(command, payload)
            reply: Reply = getattr(self, "_" + command.replace(".", "_"))(payload)
        except RefusedError as error:
            reply = error.reply
        if self.wait_s > self.timeout_s:
            self.wait_s = self.timeout_s
            reply = {"error": self._word("io"), "desc": "interrupt"}
        return reply

    def _word(self, kind: str) -> str:
        """Return this dialect's name for an error's kind."""
        return kind if self.dialect == "newer" else _OLDER_WORDS.get(kind, kind)

    def _hold(self, command: str, payload: Reply) -> None:
        """Refuse what Lean's decoder refuses: an unknown command, a field that is missing or of another type."""
        known = COMMANDS.get(command)
        if known is None or command in UNKNOWN[self.dialect]:
            raise RefusedError("command", f"Unknown command {command}")
        required = known.required + (() if self.dialect == "newer" else known.older)
        for name, kind in required:
            if type(payload.get(name)) is not _TYPES[kind]:
                where = f"Pantograph.Protocol.{known.type}.{name}"
                raise RefusedError("command", f"Unable to parse json: {where}: {kind} expected")

    def _exactly_one(self, payload: Reply, *names: str) -> None:
        if len(payload.keys() & set(names)) != 1:
            raise RefusedError(
                self._word("command"), f"Exactly one of {{{', '.join(names)}}} must be supplied"
            )

    def _stat(self, _payload: Reply) -> Reply:
        return {"nGoals": len(self.states)}

    def _reset(self, _payload: Reply) -> Reply:
        count, self.states, self.next_state = len(self.states), {}, 0
        return {"nGoals": count}

    def _options_set(self, payload: Reply) -> Reply:
        self.timeout_s = payload.get("timeout", 0) / 1000 or self.timeout_s
        return {}

    # ---- texts

    def _frontend_process(self, payload: Reply) -> Reply:
        self._exactly_one(payload, "fileName", "file")
        text = payload["file"]
        if payload["inheritEnv"]:
            self.env.append(text)
        unit: Reply = {"boundary": [0, len(text.encode())], "messages": self._messages(text)}
        if self.dialect == "older" and payload["sorrys"] and "sorry" in text:
            goals = [goal for target in self._targets(text) for goal in target]
            at = text.encode().index(b"sorry")
            unit["goalStateId"] = self._keep(goals)
            unit |= {"goals": _shown(goals), "goalSrcBoundaries": [[at, at + len("sorry")]] * len(goals)}
        return {"units": [unit]}

    def _frontend_distil(self, payload: Reply) -> Reply:
        text = payload["file"]
        if errors := [one["data"] for one in self._messages(text) if one["severity"] == "error"]:
            raise RefusedError("io" if self.dialect == "newer" else "frontend", "\n".join(errors))
        targets = self._targets(text)
        return {"targets": [{"stateId": self._keep(goals), "goals": _shown(goals)} for goals in targets]}

    def _messages(self, text: str) -> list[Reply]:
        found = [
            _message(said, text=text, at=text.index(part))
            for part, said in {"#error": "the text says #error", **self.errors}.items()
            if part in text
        ]
        if "sorry" in text:
            word = "`sorry`" if self.dialect == "newer" else "'sorry'"
            said = f"declaration uses {word}"
            found.append(_message(said, "warning", text=text, at=text.index("sorry"), kind="hasSorry"))
        return found

    def _targets(self, text: str) -> list[list[Goal]]:
        """Return the goals of each declaration with a sorry."""
        named = [
            [self._new(goal) for goal in goals]
            for part, goals in self.sorries.items()
            if "sorry" in text.partition(part)[2]
        ]
        if named:
            return named
        # All of them are one declaration's.
        count = text.count("sorry")
        texts = [goal_text(self.env, text, [str(at)]) for at in range(count)]
        return [[self._new(one) for one in texts]] if texts else []

    # ---- goals and tactics

    def _goal_start(self, payload: Reply) -> Reply:
        self._exactly_one(payload, "expr", "copyFrom")
        if "copyFrom" in payload:
            raise RefusedError("index", f"Symbol not found: {payload['copyFrom']}")
        expr = payload["expr"]
        if expr in self.errors:
            raise RefusedError("elab", self.errors[expr])
        goal = self._new(expr if self.scripted else goal_text(self.env, expr))
        return {"stateId": self._keep([goal]), "root": goal.uid}

    def _goal_print(self, payload: Reply) -> Reply:
        goals = self._state(payload)
        flags = dict.fromkeys(("rootHasSorry", "rootHasUnsafe", "rootHasMVar"), False)
        return {"goals": _shown(goals) if payload.get("goals") else [], "extraMVars": [], **flags}

    def _goal_delete(self, payload: Reply) -> Reply:
        for number in payload["stateIds"]:
            self.states.pop(number, None)
        return {}

    def _state(self, payload: Reply) -> tuple[Goal, ...]:
        number = payload["stateId"]
        if number not in self.states:
            raise RefusedError("index", f"Invalid state index {number}")
        return self.states[number]

    def _goal_tactic(self, payload: Reply) -> Reply:
        goals, site = self._state(payload), payload.get("goalId", 0)
        if "tactic" not in payload:
            word = "command" if self.dialect == "newer" else "operation"
            ways = "tactic, mode, expr, have, let, draft"
            raise RefusedError(word, f"Exactly one of {{{ways}}} must be supplied")
        if not goals:
            raise RefusedError("exception", "no goals to be solved")
        if site >= len(goals):
            raise RefusedError("index", f"Invalid goal index {site}")
        tactic, goal = payload["tactic"].strip(), goals[site]
        if tactic == "(":
            return {"parseError": "<input>:1:1: unexpected end of input"}
        outcome = self._outcome(goal, tactic)
        if isinstance(outcome, str):
            outcome = {"messages": [outcome]}
        elif isinstance(outcome, list):
            outcome = {"goals": outcome}
        messages = [one if isinstance(one, dict) else _message(one) for one in outcome.get("messages", ())]
        flags = {name: outcome.get(name, False) for name in ("hasSorry", "hasUnsafe")}
        if "goals" not in outcome:
            return {"messages": messages, **flags} if "messages" in outcome else outcome
        for message in messages:
            message["severity"] = "information"
        # In automatic mode what a tactic makes comes before the goals that it was not for.
        made = [self._new(text, beside=goal) for text in outcome["goals"]]
        after = [*made, *goals[:site], *goals[site + 1 :]]
        return {"nextStateId": self._keep(after), "messages": messages, **flags, "goals": _shown(after)}

    def _outcome(self, goal: Goal, tactic: str) -> Any:
        """Return new goals, why it failed, or the fields of a reply."""
        for of in (goal.text, goal.target, ""):
            if (of, tactic) in self.tactics:
                return self.tactics[of, tactic]
        target = goal.target
        match tactic.split():
            case ["sleep", milliseconds]:
                self.wait_s = int(milliseconds) / 1000
                return [target if self.scripted else _hash(target, tactic)]
            case ["fault", *_] if self.scripted:
                return [target]
            case _ if self.scripted:
                return f"the script has nothing of {tactic!r} at\n{goal.text}"
            case ["fail"]:
                return f"no progress on {target}"
            case ["close"]:
                return []
            case ["split"]:
                return [_hash(target, f"split {side}") for side in (0, 1)]
            case ["drift"]:
                return [_hash(target, f"in process {self.number}")]
            case ["grow", megabytes]:
                self.ballast.append(os.urandom(1024) * (1024 * int(megabytes)))
        return [_hash(target, tactic)]

    def _new(self, text: str, beside: Goal | None = None) -> Goal:
        self.next_uid += 1
        goal = goal_of(text, beside)
        variables = goal.variables
        if not self.scripted:
            variables = (Variable("h", f"{goal.target} → False"),)
        return goal._replace(variables=variables, uid=f"_uniq.{self.next_uid}")

    def _keep(self, goals: Sequence[Goal]) -> int:
        number = self.next_state
        self.next_state += 1
        self.states[number] = tuple(goals)
        return number


def _first(fault: str) -> bool:
    """Return whether this is the first process here that comes to this fault."""
    try:
        os.close(os.open(f"fault-{fault}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _shown(goals: Iterable[Goal]) -> list[Reply]:
    return [
        {"name": goal.uid}
        | ({"userName": goal.case} if goal.case else {})
        | {
            "fragment": "tactic",
            "target": {"pp": goal.target},
            "vars": [_variable(number, one) for number, one in enumerate(goal.variables, 1)],
        }
        for goal in goals
    ]


def _variable(number: int, one: Variable) -> Reply:
    shown: Reply = {"name": f"_uniq.{number}", "userName": one.name, "isInaccessible": "✝" in one.name}
    return shown | {"type": {"pp": one.type}} | ({"value": {"pp": one.value}} if one.value else {})


def _message(
    said: str, severity: str = "error", *, text: str = "", at: int = 0, kind: str = "[anonymous]"
) -> Reply:
    before = text[:at]
    line = before.count("\n") + 1 if text else 0
    place = {"line": line, "column": at - (before.rfind("\n") + 1)}
    name = "<anonymous>" if text else "<Pantograph>"
    return {"fileName": name, "pos": place, "endPos": None, "severity": severity, "data": said, "kind": kind}


def _hash(*parts: str) -> str:
    return "P" + hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


# ---- The process


def _crash(_: ScriptedRepl, __: Reply) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _hang(_: ScriptedRepl, __: Reply) -> NoReturn:
    while True:
        time.sleep(60)


def _flood(_: ScriptedRepl, answer: Reply) -> None:
    line = b"stdout: " + b"noise " * 20 + b"\n"
    for _number in range(FLOOD_BYTES // len(line)):
        sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()
    _write(_line(answer))


def _broken(_: ScriptedRepl, answer: Reply) -> None:
    text = _line(answer)
    _write(text[: len(text) // 2] + b"\n")


def _huge(_: ScriptedRepl, answer: Reply) -> None:
    _write(b'{"padding":"')
    for _number in range(HUGE_BYTES // (1 << 20)):
        _write(b"x" * (1 << 20))
    _write(b'",' + json.dumps({**answer, "more": 0}).encode()[1:] + b"\n")


def _panic(_: ScriptedRepl, __: Reply) -> None:
    sys.stderr.write("PANIC at Lean.Expr.bvar! Lean.Expr:1:2: bvar expected\n")
    sys.stderr.flush()
    # What follows a panic is a default value; this one would be a proof.
    _write(_line({"nextStateId": 0, "messages": [], "hasSorry": False, "hasUnsafe": False, "goals": []}))


def _late(repl: ScriptedRepl, answer: Reply) -> None:
    time.sleep(repl.timeout_s * repl.dice.uniform(0.2, 2.5))
    _write(_line(answer))


def _cut(repl: ScriptedRepl, answer: Reply, at: str = "") -> NoReturn:
    line = _line(answer)
    _write(line[: int(at) if at else repl.dice.randrange(len(line))])
    os._exit(1)


def _close_output(_: ScriptedRepl, __: Reply) -> None:
    os.close(1)


def _orphan(_: ScriptedRepl, __: Reply) -> None:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)


FAULTS: dict[str, Callable[..., None]] = {
    "crash": _crash,
    "hang": _hang,
    "flood": _flood,
    "broken": _broken,
    "huge": _huge,
    "panic": _panic,
    "late": _late,
    "cut": _cut,
    "close_output": _close_output,
    "orphan": _orphan,
}
"""`flood` answers rightly after much noise on stderr, `huge` in a line of 100 MB, `late` sometimes too late; `panic`
answers with a lie; `cut N` ends after N bytes of its answer; the others never answer. After `orphan` a child is left
that holds the pipes open."""


def _line(answer: Reply) -> bytes:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


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


def main(arguments: Sequence[str]) -> None:
    if "--version" in arguments:
        _write(VERSION.encode() + b"\n")
        return
    given: dict[str, list[str]] = {}
    for argument in arguments:
        if argument.startswith("--"):
            name, _, value = argument[2:].partition("=")
            given.setdefault(name, []).append(value)
    number, dice = os.getpid(), random.Random()
    if "seed" in given:
        number = _number()
        dice = random.Random(f"{given['seed'][0]} {number}")
    repl = ScriptedRepl(
        script=json.loads(given["script"][0]) if "script" in given else None,
        dialect=given.get("dialect", ["newer"])[0],
        number=number,
        faults={name: float(p) for name, _, p in (one.partition("=") for one in given.get("fault", ()))},
        dice=dice,
    )
    if dice.random() < float(given.get("start-fault", ["0"])[0]):
        sys.exit("uncaught exception: the dice fell against this start")
    _write(b"ready.\n")
    for line in sys.stdin.buffer:
        if not line.strip():
            return
        request = json.loads(line)
        answer = repl.answer(request)
        if fault := repl.fault(request, answer):
            FAULTS[fault[0]](repl, answer, *fault[1:])
        else:
            time.sleep(repl.wait_s)
            _write(_line(answer))


if __name__ == "__main__":
    main(sys.argv[1:])

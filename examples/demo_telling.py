"""How the demo tells what happens: the log's events as lines for people who watch while they wait."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from daemon.paths import Paths
from store.errors import DatabaseMissingError
from store.log.envelope import StoredEvent
from store.log.reader import LogReader

WIDTH = 80


def say(text: str = "") -> None:
    print(text, flush=True)


def say_answer(line: str) -> None:
    """Show a line of a verb's answer, indented; what is longer than the screen goes on below."""
    for piece in textwrap.wrap(line, WIDTH - 4, subsequent_indent="  ") or [""]:
        say(f"  {piece}".rstrip())


@dataclass
class Names:
    """What the sorries and proofs of the log are called, for lines that know only their ids."""

    sorries: dict[str, str] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)

    def learn(self, event: StoredEvent) -> None:
        data = event.data
        if "place" in data:
            self.sorries[data["sorry"]] = data["place"]["declaration"]
        if event.type == "proof_found":
            self.proofs[data["proof"]] = data["declaration"]

    def sorry(self, data: dict[str, Any]) -> str:
        return self.sorries.get(data["sorry"], str(data["sorry"]))

    def proof(self, data: dict[str, Any]) -> str:
        return f"{self.proofs.get(data['proof'], '')} (proof {data['proof'][:8]})"


def _place(data: dict[str, Any]) -> str:
    place = data["place"]
    return f"{place['path']}:{place['line']}:{place['column']}  {place['declaration']}"


def _moved(data: dict[str, Any], _names: Names) -> str | None:
    real = [what for what in data["what"] if what != "context"]
    return f"moved      {_place(data)}  ({', '.join(real)})" if real else None


def _traced(data: dict[str, Any], _names: Names) -> str:
    shares = (
        f"{data[f'{what}_traced']} of {data[f'{what}_seen']} {what}"
        for what in ("files", "theorems", "tactics")
    )
    return f"traced     {data['sha'][:9]}  {', '.join(shares)}; {sum(data['gaps'].values())} gaps"


def _saved(data: dict[str, Any], _names: Names) -> str:
    start = f"on top of {data['parent']}" if data["parent"] else "from random weights"
    return f"trained    {data['model']} {data['checkpoint']}  {start}, {data['steps']} steps in {data['seconds']:.1f} s"


def _measured(data: dict[str, Any], _names: Names) -> str:
    metrics, measures = data["metrics"], MEASURES[data["model"]]
    shown = ", ".join(f"{label} {metrics[name]:.2f}" for label, name in measures)
    last = measures[-1][1]
    bounds = f"[{metrics[f'{last}_low']:.2f}, {metrics[f'{last}_high']:.2f}]"
    of = f"{data['split']} set {data['dataset'][:6]}"
    return f"measured   {data['checkpoint']}  {of}: {shown} {bounds}, n={data['n']}"


def _attempt(data: dict[str, Any], names: Names) -> str | None:
    if data["outcome"] == "found":
        return None  # the proof has its own line
    if data["outcome"] == "disproved":
        return f"DISPROVED  {names.sorry(data)}: {data['detail']}"
    asked = f"rung {data['rung']}, {_called(data['model'])}: " if data["rung"] else ""
    return f"left open  {names.sorry(data)}: {asked}{data['outcome']}, {data['detail']}"


def _found(data: dict[str, Any], _names: Names) -> str:
    rung = f" at rung {data['rung']}" if data["rung"] else ""
    return f"found      {data['declaration']}{rung}  by  {'; '.join(data['tactics'])}"


def _called(model: str) -> str:
    """Say which model: a checkpoint's id, or the untrained one in its folder."""
    return "the model untrained" if os.sep in model else f"tactics {model}"


MEASURES = {
    "retriever": (("R@1", "recall@1"), ("MRR", "mrr"), ("R@10", "recall@10")),
    "tactics": (("tactic@1", "tactic@1"), ("tactic@8", "tactic@8")),
}
"""The measurement of each model that the demo shows: the one that the promotion rule compares."""

LINES: dict[str, Callable[[dict[str, Any], Names], str | None]] = {
    "daemon_started": lambda d, _: f"daemon     process {d['pid']}, Lean: {d['lean']}",
    "commit_observed": lambda d, _: f"commit     {d['sha'][:9]}  {d['subject']}",
    "commit_scanned": lambda d, _: (
        f"scanned    {d['sha'][:9]}  {d['files_scanned']} files in {d['seconds']:.2f} s"
    ),
    "trace_measured": _traced,
    "sorry_opened": lambda d, _: f"sorry      {_place(d)}",
    "sorry_moved": _moved,
    "sorry_changed": lambda d, _: f"changed    {_place(d)}  is now  {d['place']['statement']}",
    "sorry_filled": lambda d, names: f"filled     {names.sorry(d)}  by {d['by']}",
    "sorry_removed": lambda d, names: (
        f"removed    {names.sorry(d)}: {d['detail'] or 'the declaration is gone'}"
    ),
    "attempt_finished": _attempt,
    "proof_found": _found,
    "proof_verified": lambda d, names: f"VERIFIED   {names.proof(d)}: Lean accepts it",
    "proof_checked": lambda d, names: (
        f"checked    {names.proof(d)}: not judged here: {', '.join(d['not_checked'])}"
    ),
    "proof_rejected": lambda d, names: f"rejected   {names.proof(d)} at {d['step']}: {d['reason']}",
    "checkpoint_saved": _saved,
    "evaluation_finished": _measured,
    "checkpoint_promoted": lambda d, _: f"in use     {d['model']} {d['checkpoint']}: {d['reason']}",
    "checkpoint_refused": lambda d, _: f"refused    {d['model']} {d['checkpoint']}: {d['reason']}",
    "job_failed": lambda d, _: f"FAILED     {d['job']}: {d['message']}",
    "job_interrupted": lambda d, _: f"broken off {d['job']}: {d['reason']}",
}
"""The line for each event type; other types are not shown."""


MARK = "  [simulated]"
BRIEF = frozenset(
    (
        *("trace_measured", "proof_found", "checkpoint_saved", "evaluation_finished", "checkpoint_promoted"),
        *("checkpoint_refused", "job_failed"),
    )
)
"""The types of which a brief telling tells."""


def describe(event: StoredEvent, names: Names) -> str | None:
    """One line for people, or None. Whatever the simulator did says so."""
    names.learn(event)
    line = LINES[event.type](event.data, names) if event.type in LINES else None
    return f"{line}{MARK}" if line and event.data.get("simulated") else line


@dataclass
class Teller:
    """Turns the log's events into lines, from where it last stopped. What people watch while they wait."""

    paths: Paths
    started: float = field(default_factory=time.monotonic)
    brief: bool = False
    """Tell only what the heading has not said: no mark, and no step on the way."""
    position: int = 0
    names: Names = field(default_factory=Names)

    def tell(self) -> None:
        if not self.paths.events_db.exists():
            return
        try:
            reader = LogReader.open(self.paths.events_db)
        except DatabaseMissingError:
            return  # the daemon is just beginning it
        try:
            for event in reader.read(after=self.position):
                self.position = event.seq
                line = describe(event, self.names)
                if line and self.brief:
                    line = (
                        line.removesuffix(MARK) if event.type in BRIEF and " val set " not in line else None
                    )
                if line:
                    say(f"  {time.monotonic() - self.started:5.1f}s  {line}")
        finally:
            reader.close()

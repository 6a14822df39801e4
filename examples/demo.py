"""`make demo`: one screen, a commit, a proof accepted by Lean, a false statement, and a person's proof.

A git repository is made from `examples/small-project`, and the real daemon watches it: it finds the sorries,
has Lean trace them, searches, checks its proofs, and writes patches. Then Ada proves one by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemon.place.paths import Paths
from examples.harness import (
    EXAMPLES,
    WIDTH,
    DemoError,
    begin,
    commit,
    cut,
    everlean,
    main,
    new_daemon,
    new_repository,
    say,
)
from pipeline.lean.source.splice import Replacement, splice
from store.log.envelope import StoredEvent
from store.view import queries
from tests.support.daemon.kills import settled
from tests.support.lean.wheel.lean import VERSION

PROJECT = EXAMPLES / "small-project"
BY_HAND = "rw [Nat.add_assoc, Nat.add_comm b c, ← Nat.add_assoc]"
_GREEN, _RED, _DIM, _PLAIN = "\033[32m", "\033[31m", "\033[2m", "\033[0m"


def run(directory: Path) -> None:
    """Show the whole screen."""
    tools = begin(directory, "everlean: from a commit to a proof")
    repository = new_repository(directory / "small")
    sha = commit(repository, "A small project", PROJECT, day=1)
    daemon = new_daemon(directory, watched=repository)
    config, paths = daemon.config, daemon.paths
    screen = Screen()
    with daemon:
        say(f"\nAda commits {sha[:7]}, a small project. The daemon finds its sorries:\n")
        daemon.wait("the end of the work", lambda _events: settled(paths, sha), screen.tell)
        show_patch(paths)
        accept(tools, directory, repository, paths)
        numbers = repository / "Small" / "Numbers.lean"
        text = numbers.read_text(encoding="utf-8")
        numbers.write_text(text.replace("  sorry", f"  {BY_HAND}"), encoding="utf-8")
        sha = commit(repository, "Prove add_right_comm", day=2)
        say(f"\nAda proves add_right_comm herself and commits {sha[:7]}:\n")
        daemon.wait("the end of the work", lambda _events: settled(paths, sha), screen.tell)
    end(config, paths, directory)


# ---- what happens


@dataclass
class Screen:
    """Prints a line for each event of interest to a maintainer."""

    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The name and the place of each sorry."""
    proofs: dict[str, str] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def tell(self, event: StoredEvent) -> None:
        for line in self._lines(event):
            say(line)

    def _lines(self, event: StoredEvent) -> Iterator[str]:
        data, sorry = event.data, event.data.get("sorry", "")
        match event.type:
            case "sorry_opened":
                place = data["place"]
                self.places[sorry] = (
                    place["declaration"].rpartition(".")[2],
                    f"{place['path']}:{place['line']}",
                )
            case "sorry_stated":
                goal = data["goal"].splitlines()[-1]
                name, place = self.places[sorry]
                yield f"  {place:22}{name:17}{_dim(cut(goal, WIDTH - 42))}"
            case "commit_traced" if not self.told:
                self.told.add("searching")
                yield "\nIt searches, and has each proof checked in the whole project:\n"
            case "proof_found":
                self.proofs[data["proof"]] = "; ".join(" ".join(one.split()) for one in data["tactics"])
            case "proof_checked" | "proof_verified" if data["proof"] not in self.told:
                self.told.add(data["proof"])
                if ("compile", "passed") not in ((one["step"], one["verdict"]) for one in data["checks"]):
                    raise DemoError(f"Lean did not compile the project with proof {data['proof']}")
                proof = cut(self.proofs[data["proof"]], WIDTH - 38)
                yield f"  {_green('accepted')}    {self.places[sorry][0]:17} by {proof}"
            case "proof_rejected":
                yield f"  {_red('refused')}     {self.places[sorry][0]:17} {cut(data['reason'], WIDTH - 35)}"
            case "attempt_finished" if data["outcome"] == "disproved" and sorry not in self.told:
                self.told.add(sorry)
                yield f"  {_red('false')}       {self.places[sorry][0]:17} its negation is proved"
            case "attempt_finished" if data["outcome"] not in ("found", "disproved"):
                yield f"  still open  {self.places[sorry][0]:17} {cut(data['detail'], WIDTH - 35)}"
            case "sorry_filled":
                yield f"  {_green('filled')}      {self.places[sorry][0]:17} by {data['by']}"
            case "job_failed":
                yield f"  {_red('FAILED')}      {data['job']}: {data['message']}"


def show_patch(paths: Paths) -> None:
    """Show the change of one patch, as a diff."""
    patches = sorted(paths.patches.rglob("*.patch"))
    if not patches:
        raise DemoError("no patch was written; that is not how the demo should end")
    say(f"\nOne of the patches, {patches[0].name}:\n")
    lines = patches[0].read_text(encoding="utf-8").splitlines()
    hunk = next(number for number, line in enumerate(lines) if line.startswith("@@"))
    changes = [
        number for number, line in enumerate(lines) if number > hunk and line[:1] in "+-" and line != "-- "
    ]
    for line in lines[changes[0] - 1 : changes[-1] + 1]:
        say("    " + {"+": _green, "-": _red}.get(line[:1], str)(line))


def accept(tools: Path, directory: Path, repository: Path, paths: Paths) -> None:
    """Compile a file with all of its proofs in it, and ask the kernel for their axioms.

    Raises:
        DemoError: Lean has an error, a sorry or an axiom of another origin.
    """
    view = queries.connect(paths.database_db)
    try:
        proofs = [one for one in queries.proofs(view) if one.path == "Small/Logic.lean"]
    finally:
        view.close()
    data = (repository / "Small" / "Logic.lean").read_bytes()
    for one in sorted(proofs, key=lambda one: one.byte_start, reverse=True):
        data = splice(data, Replacement(one.byte_start, one.byte_end, one.replacement))
    patched = directory / "Accepted.lean"
    patched.write_bytes(data + "".join(f"#print axioms {one.declaration}\n" for one in proofs).encode())
    done = subprocess.run(
        [tools / "bin" / "lean", "--json", patched], capture_output=True, text=True, check=False, timeout=60
    )
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    axioms = {name for one in messages for name in _axioms(one["data"])}
    bad = [one["data"] for one in messages if one["severity"] != "information"]
    bad += sorted(axioms - {"propext", "Classical.choice", "Quot.sound"})
    if done.returncode or bad or len(messages) != len(proofs):
        raise DemoError(f"Lean {VERSION} does not accept {patched}: {(bad or [done.stderr])[0]}")
    say(f"\n  Lean's kernel accepts the file with all {len(proofs)} proofs and without a sorry.")
    say(f"  Axioms, all of them Lean's own: {', '.join(sorted(axioms)) or 'none'}.")


def _axioms(output: str) -> set[str]:
    listed = output.partition("axioms: [")[2].rstrip("]").replace("\n", " ")
    return {name for name in listed.split(", ") if name}


def end(config: Path, paths: Paths, directory: Path) -> None:
    """Write the report, and list the results."""
    report = directory / "report"
    done = everlean(config, "report", "--out", str(report))
    if done.returncode:
        raise DemoError(f"everlean report failed: {done.stdout}{done.stderr}")
    n_patches = len(list(paths.patches.rglob("*.patch")))
    shown = os.path.relpath(config)
    say(f"\n{n_patches} patches are ready below {os.path.relpath(paths.patches)}.")
    say(f"The report: {os.path.relpath(report)}/index.html. Ask what else there is:")
    say(f"  .venv/bin/everlean status --config {shown}")
    say("Learning, editors, LeanDojo: make demo-learning demo-serve demo-leandojo")


# ---- how it looks


def _coloured() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _painted(colour: str, text: str) -> str:
    return f"{colour}{text}{_PLAIN}" if _coloured() else text


def _green(text: str) -> str:
    return _painted(_GREEN, text)


def _red(text: str) -> str:
    return _painted(_RED, text)


def _dim(text: str) -> str:
    return _painted(_DIM, text)


if __name__ == "__main__":
    sys.exit(main(run, __doc__))

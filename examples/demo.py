"""`make demo`: one screen, from a commit to a proof that Lean accepts, a false statement, and a person's proof.

A git repository is made of `examples/small-project`, and the real daemon watches it: it finds the sorries, has Lean
trace them, searches, checks what it found, and writes patches. Then Ada proves one by hand.

Lean is Lean 4.35.0 itself where its package can be had (`tests.support.lean.wheel`): elaborator, tactics, language
server and kernel, with a small library of our own in place of Lean's and a stand-in for lake. What a statement means is
that library's to say, so no proof is called verified. Elsewhere the simulator stands in, and the frame says so.
Everything stays in `demo-run/` until the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from daemon.paths import Paths, paths_from_config
from examples.demo_daemon import Daemon, add, everlean, prepare, wait_until, watch, work_off, write_config
from examples.demo_repositories import DemoError, git, new_repository
from examples.demo_telling import say
from pipeline.lean.source.splice import Replacement, splice
from pipeline.lean.toolchain.standins import SWITCH
from store.errors import DatabaseMissingError
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from store.view import queries
from tests.support.daemon.cluster import NO_RAY, Cluster
from tests.support.daemon.kills import settled
from tests.support.lean.real_gate import real_elan
from tests.support.lean.wheel.lean import VERSION, UnavailableError, toolchain

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "examples" / "small-project"
LEAN = f"""Lean {VERSION} itself: its tactics, its language server, its kernel. Its library
is a small one of our own here, and lake a stand-in: so nothing below is called
"verified", which takes Lean's own library and a second run of the kernel."""
SIMULATED = """[simulated] {why}.
The simulator stands in for Lean: nothing below was checked by Lean."""
BY_HAND = "rw [Nat.add_assoc, Nat.add_comm b c, ← Nat.add_assoc]"
_WIDTH = 80
_GREEN, _RED, _DIM, _BOLD, _PLAIN = "\033[32m", "\033[31m", "\033[2m", "\033[1m", "\033[0m"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=ROOT / "demo-run", help="where the run lives")
    parser.add_argument("--simulator", action="store_true", help="take the simulator where Lean is there too")
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="ray: jobs run on a node too"
    )
    arguments = parser.parse_args()
    try:
        run(arguments.directory.resolve(), simulator=arguments.simulator, engine=arguments.engine)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def run(directory: Path, *, simulator: bool, engine: str) -> None:
    say(_bold("everlean: from a commit to a proof\n"))
    daemon, tools, repository, sha = begin(directory, simulator=simulator, watched=engine == "local")
    config, paths = daemon.config, daemon.paths
    screen = Screen(paths)
    with ExitStack() as until_the_end:
        if engine == "ray":
            cluster = until_the_end.enter_context(node(directory, daemon.environment))
            add(config, "\n" + cluster.settings())
        until_the_end.callback(daemon.stop)
        daemon.start()
        if engine == "ray":
            # Not before the node is there: else all is done without it.
            wait_until(lambda: "ray_nodes" in daemon.log.read_text(encoding="utf-8"), 120, "the node of Ray")
            watch(config, repository)
        say(f"\nAda commits {sha[:7]}, a small project. The daemon finds its sorries:\n")
        work_off(daemon, screen.tell, sha, until=partial(settled, paths, sha))
        show_patch(paths)
        if tools is not None:
            accept(tools, directory, repository, paths)
        numbers = repository / "Small" / "Numbers.lean"
        text = numbers.read_text(encoding="utf-8")
        numbers.write_text(text.replace("  sorry", f"  {BY_HAND}"), encoding="utf-8")
        sha = commit(repository, "Prove add_right_comm", day=2)
        say(f"\nAda proves add_right_comm herself and commits {sha[:7]}:\n")
        work_off(daemon, screen.tell, sha, until=partial(settled, paths, sha))
    end(config, paths, directory)


def begin(
    directory: Path, *, simulator: bool = False, watched: bool = True
) -> tuple[Daemon, Path | None, Path, str]:
    """Make the folder with the small project and a daemon for it, and say which Lean there is.

    Args:
        watched: whether the daemon knows of the project from its start.

    Returns:
        The daemon, not yet started; Lean's toolchain, None: the simulator; the project and its commit.
    """
    prepare(directory)
    tools, frame = lean(simulator=simulator)
    environment = {}
    if tools is not None:
        home = real_elan(directory)
        # The stand-in for lake is refused everywhere else, and so is a toolchain that has it.
        environment = {"ELAN_HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}", SWITCH: "1"}
    for line in frame.split("\n"):
        say(f"│ {line}")
    repository = directory / "small"
    new_repository(repository)
    shutil.copytree(PROJECT, repository, dirs_exist_ok=True)
    sha = commit(repository, "A small project", day=1)
    backend = "auto" if tools is not None else "simulator"
    config = write_config(directory, repository if watched else None, backend)
    return (
        Daemon(config, paths_from_config(config), directory / "daemon.log", environment),
        tools,
        repository,
        sha,
    )


def node(directory: Path, environment: Mapping[str, str]) -> Cluster:
    """Return a cluster of Ray on this machine: its head, and one node for jobs."""
    if NO_RAY:
        raise DemoError(NO_RAY)
    return Cluster(directory / "cluster", environment=environment)


def lean(*, simulator: bool) -> tuple[Path | None, str]:
    """Return Lean's toolchain, built the first time, and what the frame says; without one, of the simulator."""
    try:
        if simulator:
            raise UnavailableError("It was asked for")
        return toolchain(), LEAN
    except UnavailableError as error:
        return None, SIMULATED.format(why=str(error).rstrip("."))


def commit(repository: Path, message: str, *, day: int) -> str:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", message, date=f"2026-01-0{day}T09:00:00Z")
    return git(repository, "rev-parse", "HEAD")


# ---- what happens


@dataclass
class Screen:
    """Tells of the log's events from where it last stopped: a line for what a maintainer wants to know."""

    paths: Paths
    position: int = 0
    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The name and the place of each sorry."""
    goals: dict[str, str] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.monotonic)

    def tell(self) -> None:
        if not self.paths.events_db.exists():
            return
        try:
            reader = LogReader.open(self.paths.events_db)
        except DatabaseMissingError:
            return  # the daemon is just beginning it
        with reader:
            for event in reader.read(after=self.position):
                self.position = event.seq
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
                yield f"  {place:22}{name:17}{_dim(_cut(goal, _WIDTH - 42))}"
            case "commit_traced" if not self.told:
                self.told.add("searching")
                yield "\nIt searches, and has each proof checked in the whole project:\n"
            case "proof_found":
                self.proofs[data["proof"]] = "; ".join(" ".join(one.split()) for one in data["tactics"])
            case "proof_checked" | "proof_verified" if data["proof"] not in self.told:
                self.told.add(data["proof"])
                if ("compile", "passed") not in ((one["step"], one["verdict"]) for one in data["checks"]):
                    raise DemoError(f"Lean did not compile the project with proof {data['proof']}")
                proof = _cut(self.proofs[data["proof"]], _WIDTH - 38)
                yield f"  {_green('accepted')}    {self.places[sorry][0]:17} by {proof}"
            case "proof_rejected":
                yield f"  {_red('refused')}     {self.places[sorry][0]:17} {_cut(data['reason'], _WIDTH - 35)}"
            case "attempt_finished" if data["outcome"] == "disproved" and sorry not in self.told:
                self.told.add(sorry)
                yield f"  {_red('false')}       {self.places[sorry][0]:17} its negation is proved"
            case "attempt_finished" if data["outcome"] not in ("found", "disproved"):
                yield f"  still open  {self.places[sorry][0]:17} {_cut(data['detail'], _WIDTH - 35)}"
            case "sorry_filled":
                yield f"  {_green('filled')}      {self.places[sorry][0]:17} by {data['by']}"
            case "job_failed":
                yield f"  {_red('FAILED')}      {data['job']}: {data['message']}"


def show_patch(paths: Paths) -> None:
    """Show what one patch changes, as a diff."""
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
        DemoError: Lean has an error, a sorry or an axiom that is not its own.
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


def _axioms(said: str) -> set[str]:
    listed = said.partition("axioms: [")[2].rstrip("]").replace("\n", " ")
    return {name for name in listed.split(", ") if name}


def end(config: Path, paths: Paths, directory: Path) -> None:
    """Write the report, and say what lies there."""
    report = directory / "report"
    done = everlean(config, "report", "--out", str(report))
    if done.returncode:
        raise DemoError(f"everlean report failed: {done.stdout}{done.stderr}")
    n_patches = len(list(paths.patches.rglob("*.patch")))
    shown = os.path.relpath(config)
    say(f"\n{n_patches} patches are ready below {os.path.relpath(paths.patches)}.")
    say(f"The report: {os.path.relpath(report)}/index.html. Ask what else there is:")
    say(f"  .venv/bin/everlean status --config {shown}")
    say("How it learns, serves editors, reads LeanDojo: make demo-learning demo-serve demo-leandojo")


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


def _bold(text: str) -> str:
    return _painted(_BOLD, text)


def _cut(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


if __name__ == "__main__":
    sys.exit(main())

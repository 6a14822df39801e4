"""`make demo`: the main job from start to end, on a small Lean project, with the embedded defaults.

It builds a git repository out of `examples/demo-project`, starts the daemon on it, makes the project's later
commits while the daemon runs, and ends when every sorry that can be filled is filled and checked, and its patch
lies there. Then a second repository joins the watchlist: a library that grows by one revision, from which a small
retriever learns twice, the second time on top of the first. A small tactic model learns there too, and is then asked
about the sorries that no fixed list of tactics fills. The server for editors answers what an editor would ask. Then the
demo shows the tree of a search, what was traced and what a trace lacks, a proof that the gate refused, a theorem's
life, and takes a small LeanDojo database in and out.
Everything stays in `demo-run/` until the next run. The daemon is the real one, started as systemd would start it;
should it die on the way, it is started again, as systemd would.

Lean is used where it is found. Where it is not, Lean 4.35.0 with a library of our own proves one file first, if its
package is installed; then the simulator stands in and every line about it says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.http.control_client import ControlError, request
from daemon.lock import holder
from daemon.paths import Paths, paths_from_config
from examples import demo_library
from examples.demo_lean import prove_with_lean
from examples.demo_repositories import (
    PROJECT,
    DemoError,
    base_commit,
    git,
    library_commit,
    new_repository,
    revise,
)
from examples.demo_serving import Editor, free_port
from examples.demo_telling import Teller, say
from pipeline.lean.backend import find_leans
from store.events.models import ModelKind
from store.view import model_queries, queries
from store.view.rows import CheckpointRow

ROOT = Path(__file__).resolve().parents[1]
COMMAND = str(Path(sys.executable).with_name("unsorry"))
LIBRARY = "atlas"
LEANDOJO = ROOT / "examples" / "leandojo" / "dynamic_database.json"
RENAMED = "Demo.or_regroup_right"
"""A theorem that a revision renames: its life is shown at the end."""
NEW_THEOREMS = 60
TOLERANCE = 10
"""Points of recall@10: on test sets of so few goals, one goal more or less is several points."""
LEARNING = """loss = "contrastive"
batch_size = 16
accumulate_grad_batches = 1
max_epochs = 2
lr = 2.0e-3
warmup_steps = 0
precision = "32-true"
num_workers = 0
max_seq_len = 64
data_max_seq_len = 64
fisher_samples = 64
"""
CLIMBING = """
[prove]
rungs = [0, 2]

[prove.generator]
device = "cpu"
seconds_per_sorry = "20s"
"""
TUNING = """epochs = 4
batch_size = 8
lr = 5.0e-3
max_seq_len = 256
"""
TRACED = "Demo.Negation.drop_triple"
"""A theorem that a person proved with tactics, one of which names another theorem: its trace is shown at the end."""
MARKER = ".unsorry-demo"
COMMIT_DEADLINE_S = 180.0
LOOK_S = 0.4
"""Seconds between two requests for progress: each answer costs the daemon time."""
QUIET_S = 1.0
"""How long the plan must stay empty, with nothing running, before a commit counts as worked off."""


@dataclass
class Daemon:
    """The daemon's process, kept up."""

    config: Path
    paths: Paths
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [COMMAND, "run", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # So small a model is trained faster by one thread than by several that wait for each other.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def keep_up(self) -> None:
        """Start the daemon again if it was killed; give up if it left on its own account."""
        assert self.process is not None
        status = self.process.poll()
        if status is None:
            return
        if status >= 0:
            tail = "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
            raise DemoError(
                f"the daemon ended by itself with status {status}; the end of {self.log}:\n{tail}"
            )
        say(f"          the daemon was killed (signal {-status}); starting it again, as systemd would")
        self.start()

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise DemoError(f"the daemon did not stop within 40 s of SIGTERM; see {self.log}") from None

    def idle_at(self, sha: str) -> bool:
        """Whether some branch is scanned up to `sha`, and neither a job runs nor one is due."""
        try:
            status, answer = request(self.paths, "GET", "/status")
        except ControlError:
            return False  # between two starts of the daemon the socket does not answer
        if status != 200 or answer["jobs"] or answer["queued"]:
            return False
        view = queries.connect(self.paths.database_db)
        try:
            return sha in {branch.scanned for branch in queries.branches(view)}
        finally:
            view.close()


def prepare(directory: Path) -> None:
    """Make an empty folder for this run. Only a folder that an earlier demo made is cleared."""
    if directory.exists():
        if not (directory / MARKER).exists():
            raise DemoError(f"{directory} exists and was not made by the demo; give another with --directory")
        config = directory / "config.toml"
        if config.exists() and (pid := holder(paths_from_config(config).lock)) is not None:
            say(f"stopping the daemon of an earlier demo (process {pid})")
            os.kill(pid, signal.SIGTERM)
            wait_until(
                lambda: holder(paths_from_config(config).lock) is None, 40, "the earlier daemon to stop"
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    (directory / MARKER).touch()


def wait_until(condition: Callable[[], bool], deadline_s: float, what: str) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise DemoError(f"waited {deadline_s:.0f} s for {what}")
        time.sleep(0.1)


def add(config: Path, text: str) -> None:
    """Add to the configuration while the daemon runs."""
    beside = config.with_suffix(".new")
    beside.write_text(config.read_text(encoding="utf-8") + text, encoding="utf-8")
    beside.rename(config)


def watch_too(config: Path, repository: Path, retriever: Path) -> None:
    """Add a repository to the watchlist, and how a retriever learns from it."""
    added = f"""
[[repos]]
url = {json.dumps(str(repository))}
every = "2s"

[train]
device = "cpu"
new_theorems = {NEW_THEOREMS}
tolerance = {TOLERANCE}

[train.retriever]
model_name = {json.dumps(str(retriever))}
{LEARNING}"""
    add(config, added)


def write_config(directory: Path, repository: Path, backend: str) -> Path:
    config = directory / "config.toml"
    config.write_text(
        f"""# Made by `make demo`. Everything that is not here has its default; see ../config.toml.
[daemon]
state_dir = "state"
cache_dir = "cache"
runtime_dir = "run"

[lean]
backend = "{backend}"

[[repos]]
url = {json.dumps(str(repository))}
every = "2s"
""",
        encoding="utf-8",
    )
    return config


def choose_backend(directory: Path) -> str:
    leans = find_leans(
        backend="auto", repl="", sandbox="bubblewrap", toolchains=directory / "cache" / "toolchains"
    )
    found = leans.for_toolchain((PROJECT / "lean-toolchain").read_text(encoding="utf-8"))
    if found.kind == "pantograph":
        say(f"Lean: {found.detail}")
        return "pantograph"
    prove_with_lean(directory)
    say(
        "A Lean toolchain with lake was not found: from here on the simulator stands in for Lean, and nothing shown"
        " below was checked by Lean."
    )
    return "simulator"


def work_off(daemon: Daemon, teller: Teller, sha: str, *, until: Callable[[], bool] = lambda: True) -> None:
    """Wait until the daemon has nothing left to do about `sha`, telling what happens meanwhile.

    Args:
        until: what must have come about as well; for work that begins only when the daemon has read its configuration.
    """
    end = time.monotonic() + COMMIT_DEADLINE_S
    quiet_since: float | None = None
    while True:
        daemon.keep_up()
        teller.tell()
        now = time.monotonic()
        quiet_since = (quiet_since or now) if daemon.idle_at(sha) and until() else None
        if quiet_since is not None and now - quiet_since >= QUIET_S:
            teller.tell()
            return
        if now > end:
            raise DemoError(
                f"commit {sha[:9]} was not worked off in {COMMIT_DEADLINE_S:.0f} s; see {daemon.log}"
            )
        time.sleep(LOOK_S)


def unsorry(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, *arguments, "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def show(config: Path, *arguments: str | Path) -> None:
    """Run a verb as a user would and print what it answers."""
    words = [os.path.relpath(word) if isinstance(word, Path) else word for word in arguments]
    say(f"$ unsorry {' '.join(words)}")
    done = unsorry(config, *words)
    if done.returncode:
        raise DemoError(f"unsorry {' '.join(words)} failed: {done.stdout}{done.stderr}")
    say(done.stdout)


@dataclass(frozen=True)
class Untrained:
    """The folders of the two models that learn, with random weights."""

    retriever: Path
    tactics: Path


def make_untrained(directory: Path) -> Untrained:
    """Make both. That loads torch, which takes longer than the making: so it is done beside the first commits."""
    from pipeline.models.tactics.prompt import SYSTEM
    from tests.support.tiny_models import make_tiny_causal, make_tiny_retriever

    texts = [SYSTEM, *demo_library.files(2).values()]
    return Untrained(
        make_tiny_retriever(directory / "retriever"),
        make_tiny_causal(directory / "tactics", layers=1, max_length=256, texts=texts),
    )


def learn(daemon: Daemon, teller: Teller, config: Path, directory: Path, retriever: Path) -> None:
    """Two revisions of a library, two tasks, one chain: the second is learned on top of the first, with EWC."""
    repository = directory / LIBRARY
    new_repository(repository)
    library_commit(repository, 1, "A library of relations, and what follows from it")
    watch_too(config, repository, retriever)
    say(
        f"\nAda adds {LIBRARY} to the watchlist. A tiny retriever with random weights learns from what is traced there:"
    )
    work_off(daemon, teller, git(repository, "rev-parse", "HEAD"))
    library_commit(repository, 2, "A second library beside the first")
    say(
        "\nAda commits: A second library beside the first. It is learned next, with EWC against forgetting the first:"
    )
    work_off(daemon, teller, git(repository, "rev-parse", "HEAD"))
    say()
    show(config, "models", "compare", *checkpoints(daemon, "retriever", 2))


def in_use(daemon: Daemon, model: ModelKind) -> bool:
    """Whether a checkpoint of the model is in use."""
    return any(row.promoted for row in made(daemon, model))


def made(daemon: Daemon, model: ModelKind) -> list[CheckpointRow]:
    """Return a model's checkpoints, the oldest first."""
    view = queries.connect(daemon.paths.database_db)
    try:
        return model_queries.checkpoints(view, model)
    finally:
        view.close()


def checkpoints(daemon: Daemon, model: ModelKind, wanted: int) -> list[str]:
    """Return the ids of a model's checkpoints, the oldest first, of which there must be so many."""
    chain = [row.checkpoint for row in made(daemon, model)]
    if len(chain) != wanted:
        raise DemoError(
            f"{len(chain)} checkpoints of the {model} model were made and not {wanted}; see {daemon.log} and "
            "`unsorry jobs`"
        )
    return chain


def climb(daemon: Daemon, teller: Teller, config: Path, directory: Path, tactics: Path) -> None:
    """A tactic model learns from the library; then rung 2 asks it about what rung 0 leaves open."""
    repository = directory / LIBRARY
    name = json.dumps(str(tactics))
    say("A tiny tactic model with random weights learns from what was traced there too:")
    add(config, f"\n[train.tactics]\nenabled = true\nmodel_name = {name}\n{TUNING}")
    work_off(
        daemon,
        teller,
        git(repository, "rev-parse", "HEAD"),
        until=lambda: in_use(daemon, "tactics"),
    )
    add(config, CLIMBING)
    message = "Leave some theorems open"
    library_commit(repository, 3, message)
    say(f"\nAda commits: {message}. What rung 0 does not prove, rung 2 asks the tactic model about:")
    work_off(daemon, teller, git(repository, "rev-parse", "HEAD"))
    checkpoints(daemon, "tactics", 1)
    say()
    show(config, "models", "list")
    show_tree(config, directory / "tree.html")


def show_tree(config: Path, page: Path) -> None:
    """Show the search behind a proof of rung 2, or where it found none, how far it came with a sorry."""
    proofs = json.loads(unsorry(config, "proofs", "--json").stdout)["proofs"]
    ids = [one["proof"] for one in proofs if one["rung"] == 2 and one["repository"].endswith(f"/{LIBRARY}")]
    mark = "  [simulated]" if any(one["simulated"] for one in proofs if one["proof"] in ids) else ""
    say(
        f"Rung 2 found a proof for {len(ids)} of the {demo_library.OPEN}."
        f" What each search tried stays to be seen:{mark}\n"
    )
    if not ids:
        answer = unsorry(config, "sorries", "--repo", LIBRARY, "--state", "open", "--json")
        ids = [sorry["sorry"] for sorry in json.loads(answer.stdout)["sorries"]]
    show(config, "proofs", "tree", ids[0])
    show(config, "proofs", "tree", ids[0], "--html", page)


def serve(daemon: Daemon, config: Path) -> None:
    """Run the server for editors beside the daemon, and ask it as an editor does."""
    port = free_port()
    say("\n`unsorry serve` is a server for editors; this is what it answers:\n")
    with (config.parent / "server.log").open("ab") as log:
        server = subprocess.Popen(
            [COMMAND, "serve", "--port", str(port), "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    editor = Editor(port, keep_up=daemon.keep_up)
    try:
        editor.wait()
        proofs = json.loads(unsorry(config, "proofs", "--json").stdout)["proofs"]
        sorries = json.loads(unsorry(config, "sorries", "--repo", LIBRARY, "--json").stdout)["sorries"]
        found = {one["sorry"]: one for one in proofs}
        asked = next((one for one in sorries if one["sorry"] in found and one["goal"]), None)
        if asked is None:
            raise DemoError(
                f"no sorry of {LIBRARY} has a goal and a proof; that is not how the demo should end"
            )
        editor.show(asked, found[asked["sorry"]])
    finally:
        editor.close()
        server.terminate()
        try:
            server.wait(timeout=40)
        except subprocess.TimeoutExpired:
            server.kill()
            raise DemoError("the server did not stop within 40 s of SIGTERM") from None


def show_traced(config: Path, folder: Path) -> None:
    """Export the project's own trace in LeanDojo's format, and print one theorem as it stands there."""
    show(config, "export", "leandojo", folder, "--repo", "project", "--simulated")
    metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    mark = "  SIMULATED: no Lean said this" if metadata["unsorry"]["simulated"] else ""
    for split in ("train", "val", "test"):
        path = folder / "random" / f"{split}.json"
        for theorem in json.loads(path.read_text(encoding="utf-8")):
            if theorem["full_name"] == TRACED:
                say(f"{theorem['file_path']} in {os.path.relpath(path)}:{mark}")
                say(f"  {theorem['theorem_statement']}")
                for step in theorem["traced_tactics"]:
                    _show_step(step)
                say()
                return
    raise DemoError(f"{folder}: {TRACED} is in none of its lists; that is not how the demo should end")


def _show_step(step: dict[str, Any]) -> None:
    annotated, premises = step["annotated_tactic"]
    say(f"    {annotated}")
    for name in ("before", "after"):
        *hypotheses, goal = step[f"state_{name}"].split("\n")
        say(f"      {name:8}{', '.join(hypotheses)}{' ' if hypotheses else ''}{goal}")
    for premise in premises:
        line, column = premise["def_pos"]
        say(f"      uses    {premise['full_name']}, defined at {premise['def_path']}:{line}:{column}")


def show_refused(config: Path) -> None:
    """Show the evidence on one proof that a search found and the gate did not let through."""
    proofs = json.loads(unsorry(config, "proofs", "--json").stdout)["proofs"]
    refused = [proof for proof in proofs if proof["state"] in ("rejected", "conditional")]
    if not refused:
        say("This time the gate refused nothing.\n")
        return
    show(config, "proofs", "show", refused[-1]["proof"])


def check_patches(paths: Paths, repository: Path) -> int:
    """Let git judge that each patch for a repository applies to its commit; return how many there are."""
    patches = sorted(paths.patches.glob(f"*+{repository.name}/*.patch"))
    scratch = repository.with_name("patch-check")
    git(repository, "worktree", "add", "--quiet", "--detach", str(scratch), "HEAD")
    try:
        for patch in patches:
            commit = next(
                line.split()[-1]
                for line in patch.read_text(encoding="utf-8").splitlines()
                if line.lower().startswith("commit")
            )
            git(scratch, "checkout", "--quiet", "--force", commit)
            git(scratch, "apply", "--check", str(patch))
    finally:
        git(repository, "worktree", "remove", "--force", str(scratch))
    return len(patches)


def run(directory: Path, *, models: bool, revisions: int) -> None:
    say("unsorry demo: from a commit to a checked proof\n")
    prepare(directory)
    backend = choose_backend(directory)
    repository = directory / "project"
    base_commit(repository)
    config = write_config(directory, repository, backend)
    paths = paths_from_config(config)
    daemon = Daemon(config, paths, directory / "daemon.log")
    teller = Teller(paths)
    say(f"A git repository of {PROJECT.relative_to(ROOT)} stands at {repository}; the daemon starts.\n")
    daemon.start()
    beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="models")
    untrained: Future[Untrained] | None = None
    try:
        if models and backend == "simulator":
            untrained = beside.submit(make_untrained, directory)
        work_off(daemon, teller, git(repository, "rev-parse", "HEAD"))
        for revision in sorted((PROJECT / "revisions").iterdir())[:revisions]:
            message = (revision / "commit-message.txt").read_text(encoding="utf-8").splitlines()[0]
            say(f"\nAda commits: {message}")
            revise(repository, revision)
            work_off(daemon, teller, git(repository, "rev-parse", "HEAD"))
        if untrained is not None:
            learn(daemon, teller, config, directory, untrained.result().retriever)
            climb(daemon, teller, config, directory, untrained.result().tactics)
            serve(daemon, config)
        elif backend != "simulator":
            say(
                "\nWhat a retriever learns is shown on the simulator only: the library's proofs would need Mathlib.\n"
            )
        show(config, "status")
    finally:
        daemon.stop()
        beside.shutdown()
    show(config, "db", "verify")
    count = check_patches(paths, repository)
    if (directory / LIBRARY).exists():
        count += check_patches(paths, directory / LIBRARY)
    if count == 0:
        raise DemoError("no patch was written; that is not how the demo should end")
    note = "SIMULATED, and says so in its first line" if backend == "simulator" else "with its evidence"
    say(f"{count} patch files in {paths.patches}, each one {note}; git applies every one.\n")
    say(
        "Each commit is traced: tactic states, and the premises that a proof names. What a trace lacks has a reason:\n"
    )
    show(config, "repos", "--gaps")
    show_traced(config, directory / "trace")
    say("A search that ends with no goals is a candidate, nothing more. The gate refused this one:\n")
    show_refused(config)
    say("What was learned, and what became of the sorries, on one page:\n")
    show(config, "report", "--out", directory / "report")
    say("A theorem keeps its identity, whatever it is called and wherever it stands:\n")
    show(config, "theorems", "show", RENAMED)
    say("What LeanDojo recorded comes in, is ordered by difficulty, and goes out again in its formats:\n")
    show(config, "import", "leandojo", LEANDOJO)
    show(config, "curriculum")
    show(config, "export", "leandojo", directory / "leandojo")
    shown = os.path.relpath(config)
    say("The daemon has stopped; everything that it learnt is still there. Try next:")
    for line in (
        f"unsorry sorries --config {shown}",
        f"unsorry proofs list --config {shown}",
        f"unsorry events --type proof_found --config {shown}",
        f"unsorry status --as-of 100 --config {shown}",
        f"unsorry scan {PROJECT.relative_to(ROOT)}",
        "and a watchlist of your own: config.toml, then `unsorry run`",
    ):
        say(f"  .venv/bin/{line}" if line.startswith("unsorry") else f"  {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=ROOT / "demo-run", help="where the run lives")
    parser.add_argument(
        "--without-models", action="store_true", help="leave out what learns, which takes half of the time"
    )
    later = len(list((PROJECT / "revisions").iterdir()))
    parser.add_argument(
        "--revisions",
        type=int,
        choices=range(1, later + 1),
        default=later,
        help="how many of the project's later commits are made (default: all)",
    )
    arguments = parser.parse_args()
    try:
        run(arguments.directory.resolve(), models=not arguments.without_models, revisions=arguments.revisions)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Everything that one daemon does, on the simulator: `make demo-learning`, `make demo-serve`, `make demo-leandojo`.

`learning`: a library joins the watchlist and grows by one revision. A small retriever learns from it twice, the second
time on top of the first, then a small tactic model, which is asked about what no fixed list of tactics proves.
`serve`: a tactic model learns as quickly, and the server for editors answers what an editor would ask.
`leandojo`: what was traced of `examples/demo-project`, and a small LeanDojo database in and out.
`all`: these, after the project's whole history.

Everything stays in `demo-run/` until the next run. The daemon is the real one, started as systemd would start it;
should it die on the way, it is started again. Where a Lean for the project is found, `all` uses that and leaves out
what learns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.paths import Paths, paths_from_config
from examples import demo_library
from examples.demo_daemon import COMMAND, Daemon, add, everlean, prepare, show, work_off, write_config
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
LIBRARY = "atlas"
HEADINGS = {
    "all": "everlean, all of it, on the simulator: nothing shown here was checked by Lean\n",
    "learning": "everlean learns from every commit (simulated: no Lean, a made-up library, tiny models)\n",
    "serve": "everlean answers editors (simulated: no Lean, a made-up library, tiny models)\n",
    "leandojo": "everlean reads and writes LeanDojo's formats (simulated: no Lean said what was traced)\n",
}
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


def choose_backend(directory: Path) -> str:
    leans = find_leans(
        backend="auto", repl="", sandbox="bubblewrap", toolchains=directory / "cache" / "toolchains"
    )
    found = leans.for_toolchain((PROJECT / "lean-toolchain").read_text(encoding="utf-8"))
    if found.kind == "pantograph":
        say(f"Lean: {found.detail}")
        return "pantograph"
    say("The simulator stands in for Lean: nothing shown here was checked by Lean.")
    return "simulator"


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


def learn(
    daemon: Daemon, teller: Teller, config: Path, directory: Path, retriever: Path, *, twice: bool
) -> None:
    """Two revisions of a library, two tasks, one chain: the second is learned on top of the first."""
    repository = directory / LIBRARY
    new_repository(repository)
    library_commit(repository, 1, "A library of relations, and what follows from it")
    watch_too(config, repository, retriever)
    say(
        f"\nAda adds {LIBRARY} to the watchlist. A tiny retriever with random weights learns from what is traced there:"
    )
    work_off(daemon, teller.tell, git(repository, "rev-parse", "HEAD"))
    library_commit(repository, 2, "A second library beside the first")
    if not twice:
        return
    say("\nAda commits: A second library beside the first. It is learned next, on top of the first:")
    work_off(daemon, teller.tell, git(repository, "rev-parse", "HEAD"))
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
            "`everlean jobs`"
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
        teller.tell,
        git(repository, "rev-parse", "HEAD"),
        until=lambda: in_use(daemon, "tactics"),
    )
    add(config, CLIMBING)
    message = "Leave some theorems open"
    library_commit(repository, 3, message)
    say(f"\nAda commits: {message}. What rung 0 does not prove, rung 2 asks the tactic model about:")
    work_off(daemon, teller.tell, git(repository, "rev-parse", "HEAD"))
    checkpoints(daemon, "tactics", 1)


def show_tree(config: Path, page: Path) -> None:
    """Show the search behind a proof of rung 2, or where it found none, how far it came with a sorry."""
    proofs = json.loads(everlean(config, "proofs", "--all", "--json").stdout)["proofs"]
    ids = [one["proof"] for one in proofs if one["rung"] == 2 and one["repository"].endswith(f"/{LIBRARY}")]
    mark = "  [simulated]" if any(one["simulated"] for one in proofs if one["proof"] in ids) else ""
    say(
        f"Rung 2 found a proof for {len(ids)} of the {demo_library.OPEN}."
        f" What each search tried stays to be seen:{mark}\n"
    )
    if not ids:
        answer = everlean(config, "sorries", "--repo", LIBRARY, "--state", "open", "--json")
        ids = [sorry["sorry"] for sorry in json.loads(answer.stdout)["sorries"]]
    show(config, "proofs", "tree", ids[0])
    show(config, "proofs", "tree", ids[0], "--html", page)


def serve(daemon: Daemon, config: Path) -> None:
    """Run the server for editors beside the daemon, and ask it as an editor does."""
    port = free_port()
    say("\n`everlean serve` is a server for editors; this is what it answers:\n")
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
        proofs = json.loads(everlean(config, "proofs", "--all", "--json").stdout)["proofs"]
        sorries = json.loads(everlean(config, "sorries", "--repo", LIBRARY, "--json").stdout)["sorries"]
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
    mark = "  SIMULATED: no Lean said this" if metadata["everlean"]["simulated"] else ""
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
    proofs = json.loads(everlean(config, "proofs", "--all", "--json").stdout)["proofs"]
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
                if line.startswith("Checked at commit: ")
            )
            git(scratch, "checkout", "--quiet", "--force", commit)
            git(scratch, "apply", "--check", str(patch))
    finally:
        git(repository, "worktree", "remove", "--force", str(scratch))
    return len(patches)


def run(directory: Path, part: str, *, models: bool, revisions: int) -> None:
    prepare(directory)
    whole, of_project = part == "all", part in ("all", "leandojo")
    backend = choose_backend(directory) if whole else "simulator"
    models = models and backend == "simulator" and part != "leandojo"
    repository = directory / "project"
    if of_project:
        base_commit(repository)
    config = write_config(directory, repository if of_project else None, backend)
    if part == "leandojo":
        add(config, "\n[prove]\nenabled = false\n")
    paths = paths_from_config(config)
    daemon = Daemon(config, paths, directory / "daemon.log")
    teller = Teller(paths, brief=not whole)
    say(HEADINGS[part] if backend == "simulator" else f"everlean with {backend}\n")
    daemon.start()
    beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="models")
    untrained: Future[Untrained] | None = None
    try:
        if models:
            untrained = beside.submit(make_untrained, directory)
        if of_project:
            work_off(daemon, teller.tell, git(repository, "rev-parse", "HEAD"))
        if whole:
            for revision in sorted((PROJECT / "revisions").iterdir())[:revisions]:
                message = (revision / "commit-message.txt").read_text(encoding="utf-8").splitlines()[0]
                say(f"\nAda commits: {message}")
                revise(repository, revision)
                work_off(daemon, teller.tell, git(repository, "rev-parse", "HEAD"))
        if untrained is not None:
            learn(daemon, teller, config, directory, untrained.result().retriever, twice=part != "serve")
            climb(daemon, teller, config, directory, untrained.result().tactics)
            if part != "serve":
                say()
                show(config, "models", "list")
                show_tree(config, directory / "tree.html")
            if part != "learning":
                serve(daemon, config)
        if whole:
            show(config, "status")
    finally:
        daemon.stop()
        beside.shutdown()
    if whole:
        show_outcome(config, paths, directory, simulated=backend == "simulator")
    if of_project:
        show_traced(config, directory / "trace")
        say("What LeanDojo recorded comes in, is ordered by difficulty, and goes out again in its formats:\n")
        show(config, "import", "leandojo", LEANDOJO)
        show(config, "curriculum")
        show(config, "export", "leandojo", directory / "leandojo")
    say(f"Everything is still there: .venv/bin/everlean status --config {os.path.relpath(config)}")


def show_outcome(config: Path, paths: Paths, directory: Path, *, simulated: bool) -> None:
    """Show a rebuild of the database, the patches, what traces lack, what the gate refused, and a theorem's life."""
    show(config, "db", "verify")
    count = check_patches(paths, directory / "project")
    if (directory / LIBRARY).exists():
        count += check_patches(paths, directory / LIBRARY)
    if count == 0:
        raise DemoError("no patch was written; that is not how the demo should end")
    note = "SIMULATED, and says so" if simulated else "with its evidence"
    say(f"{count} patch files in {paths.patches}, each one {note}; git applies every one.\n")
    show(config, "repos", "--gaps")
    say("A search that ends with no goals is a candidate, nothing more. The gate refused this one:\n")
    show_refused(config)
    show(config, "report", "--out", directory / "report")
    say("A theorem keeps its identity, whatever it is called and wherever it stands:\n")
    show(config, "theorems", "show", RENAMED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=HEADINGS, default="all")
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
        run(
            arguments.directory.resolve(),
            arguments.part,
            models=not arguments.without_models,
            revisions=arguments.revisions,
        )
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`make demo-bump`: one screen, a library renames, reorders and drops lemmas, and `everlean bump` mends what it can.

The daemon runs with Lean 4.35.0 itself and a library of our own in place of Lean's, so that the gate checks each text
and verifies none: the patches say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from daemon.paths import paths_from_config
from examples.demo import commit, lean
from examples.demo_daemon import COMMAND, Daemon, add, main, prepare, wait_until, work_off, write_config
from examples.demo_repositories import DemoError, git, new_repository
from examples.demo_telling import say
from pipeline.lean.toolchain.standins import SWITCH
from store.view import queries
from store.view.bumps import BumpRow, bumps
from tests.support.lean.real_gate import TOOLCHAIN, real_elan

BUMP_S = 300.0
OLD = "leanprover/lean4:v4.34.1"
FILES = {
    "lean-toolchain": f"{OLD}\n",
    "lakefile.toml": 'name = "demo"\ndefaultTargets = ["Logic", "Meaning"]\n[[lean_lib]]\nname = "Logic"\n',
    "Base.lean": "namespace Base\n\n"
    "theorem turn {p q : Prop} (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩\n"
    '@[deprecated turn (since := "2026-01-01")]\n'
    "theorem swap (p q : Prop) : p ∧ q → q ∧ p := fun h => ⟨h.2, h.1⟩\n"
    "theorem pair (p q : Prop) (b : q) (a : p) : p ∧ q := ⟨a, b⟩\n\nend Base\n",
    "Logic.lean": "import Base\n\n"
    "theorem renamed (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  exact Base.swap h\n\n"
    "theorem reordered (p q : Prop) (a : p) (b : q) : p ∧ q := by\n  exact Base.pair p q a b\n\n"
    "theorem dropped (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  exact Base.gone h\n",
    "Meaning.lean": "import Base\n\ntheorem restated (p : Prop) (h : p) : Base.Lost p := by\n  exact h\n",
}


def run(directory: Path) -> None:
    """Show the whole screen."""
    prepare(directory)
    tools, why = lean(simulator=False)
    if tools is None:
        raise DemoError(f"the demo needs Lean itself: {why}")
    home = real_elan(directory)
    environment = {"ELAN_HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}", SWITCH: "1"}
    repository = directory / "small"
    new_repository(repository)
    for name, text in FILES.items():
        (repository / name).write_text(text, encoding="utf-8")
    sha = commit(repository, "Proofs for the library of last year", day=1)
    config = write_config(directory, repository, "auto")
    add(config, "\n[trace]\nenabled = false\n")
    paths = paths_from_config(config)
    daemon = Daemon(config, paths, directory / "daemon.log", environment)
    daemon.start()
    try:
        work_off(daemon, lambda: None, sha)
        _everlean(config, "bump", "small", "--to", TOOLCHAIN)
        wait_until(lambda: any(row.finished_at for row in _trials(paths.database_db)), BUMP_S, "the bump")
    finally:
        daemon.stop()
    _everlean(config, "bump", "small")
    out = directory / "patches"
    _everlean(config, "bump", "small", "--out", str(out), shown=False)
    git(repository, "am", "--quiet", *map(str, sorted(out.glob("*.patch"))))
    say(f"$ git am {out.name}/*.patch\n")
    say(git(repository, "log", "--format=%h %s"))


def _trials(database: Path) -> list[BumpRow]:
    view = queries.connect(database)
    try:
        return bumps(view)
    finally:
        view.close()


def _everlean(config: Path, *words: str, shown: bool = True) -> None:
    done = subprocess.run(
        [COMMAND, *words, "--config", str(config)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DemoError(f"everlean {' '.join(words)}: {done.stderr.strip()}")
    if shown:
        say(f"$ everlean {' '.join(words)}\n{done.stdout}")


if __name__ == "__main__":
    sys.exit(main(run, __doc__))

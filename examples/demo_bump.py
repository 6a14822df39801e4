"""`make demo-bump`: one screen, a library changes its lemmas, and `everlean bump` mends proofs.

The library renames, reorders and drops them. The daemon runs with Lean 4.35.0 itself and a library of our own
in place of Lean's, so the gate checks each text and verifies none, as the patches state.
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.harness import ask, begin, commit, everlean, git, main, new_daemon, new_repository, of_type, say
from tests.support.lean.real_gate import TOOLCHAIN

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
    begin(directory, "everlean bump: what a newer library breaks, and the patches that mend it")
    repository = new_repository(directory / "small")
    commit(repository, "Proofs for the library of last year", FILES, day=1)
    say()
    with new_daemon(directory, "[trace]\nenabled = false\n", watched=repository) as daemon:
        daemon.wait("the scan", lambda events: bool(of_type(events, "commit_scanned")))
        ask(daemon.config, "bump", "small", "--to", TOOLCHAIN)
        daemon.wait("the bump", lambda events: bool(of_type(events, "bump_finished")))
        say()
        ask(daemon.config, "bump", "small")
        out = directory / "patches"
        everlean(daemon.config, "bump", "small", "--out", str(out))
    git(repository, "am", "--quiet", *map(str, sorted(out.glob("*.patch"))))
    say(f"\n$ git am {out.name}/*.patch\n")
    say(git(repository, "log", "--format=%h %s"))


if __name__ == "__main__":
    sys.exit(main(run, __doc__))

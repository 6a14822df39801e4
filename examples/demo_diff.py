"""`make demo-diff`: one screen, `everlean diff` about a pull request, without Lean, a build or a daemon.

A git repository is made from `examples/small-project`. On a branch Eve claims to have removed every sorry.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from examples.harness import COMMAND, EXAMPLES, DemoError, commit, git, main, new_repository, prepare, say

PROJECT = EXAMPLES / "small-project"
FAIL_ON = "opened,axiom,statement,hidden"
EDITS = {
    "Small/Logic.lean": {
        "↔ q ∧ p := by\n  sorry": "↔ q ∧ p :=\n  ⟨And.symm, And.symm⟩",
        "¬∀ x, P x := by\n  sorry": "¬∀ x, P x := by\n  simple",
        "(h : ¬¬p) : p := sorry": "(h : p) : p := h",
        "namespace Small\n": 'namespace Small\n\nmacro "simple" : tactic => `(tactic| sorry)\n',
    },
    "Small/Numbers.lean": {
        "299 := sorry": "289 := by native_decide",
        "a + c + b := by\n  sorry": "a + c + b :=\n  swapped a b c",
        "namespace Small\n": "namespace Small\n\naxiom swapped (a b c : Nat) : a + b + c = a + c + b\n",
    },
}
"""Eve's replacements: one proof, and four other ways to have a sorry less."""


def run(directory: Path) -> None:
    """Make the repository with both commits, and show the check's answer about the later one."""
    prepare(directory)
    repository = new_repository(directory / "small")
    commit(repository, "A small project", PROJECT, day=1)
    git(repository, "checkout", "--quiet", "-b", "no-sorrys")
    for name, edits in EDITS.items():
        text = (repository / name).read_text(encoding="utf-8")
        for old, new in edits.items():
            if text.count(old) != 1:
                raise DemoError(f"{PROJECT / name} does not have {old!r} once")
            text = text.replace(old, new)
        (repository / name).write_text(text, encoding="utf-8")
    commit(repository, "All five sorries are proved", day=2)
    command = ["diff", "main", "--fail-on", FAIL_ON]
    say("Eve's pull request says: All five sorries are proved. What git and a scanner say:\n")
    say(f"$ everlean {' '.join(command)}")
    done = subprocess.run([COMMAND, *command], cwd=repository, capture_output=True, text=True, check=False)
    if done.returncode != 6:
        raise DemoError(f"everlean diff exited with {done.returncode}, and not 6: {done.stderr.strip()}")
    say(f"{done.stdout.rstrip()}\n")
    say(f"Exit code {done.returncode}: kinds of --fail-on were found. Nothing was built, and Lean not asked.")


if __name__ == "__main__":
    sys.exit(main(run, __doc__))

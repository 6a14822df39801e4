"""`make demo-leandojo`: Lean's trace in LeanDojo's format; LeanDojo's own database in, ordered, and out
again."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from examples.harness import (
    EXAMPLES,
    DemoError,
    ask,
    begin,
    commit,
    main,
    new_daemon,
    new_repository,
    of_type,
    say,
)

PROJECT = EXAMPLES / "demo-project"
DATABASE = EXAMPLES / "leandojo" / "dynamic_database.json"
SHOWN = "Demo.Negation.drop_triple"
"""A theorem proved by a person with tactics, one of which names another theorem."""


def run(directory: Path) -> None:
    """Show the whole screen."""
    begin(directory, "everlean reads and writes LeanDojo's formats")
    repository = new_repository(directory / "project")
    shutil.copy(DATABASE, directory)
    sha = commit(repository, "A small project with sorries in it", PROJECT, day=1)
    say(f"\nAda commits {sha[:7]}. Lean traces it, and what it said is exported:\n")
    with new_daemon(directory, "[prove]\nenabled = false\n", watched=repository) as daemon:
        daemon.wait("the trace", lambda events: bool(of_type(events, "trace_measured")))
        config = daemon.config
        ask(config, "export", "leandojo", directory / "trace", "--repo", "project")
        show(directory / "trace")
    say("What LeanDojo recorded comes in, is ordered by difficulty, and goes out again:\n")
    ask(config, "import", "leandojo", "dynamic_database.json", most=6)
    say()
    ask(config, "curriculum")
    say()
    ask(config, "export", "leandojo", directory / "leandojo")


def show(folder: Path) -> None:
    """Print one theorem of the dataset.

    Raises:
        DemoError: it is in none of its lists.
    """
    for path in sorted((folder / "random").glob("*.json")):
        for theorem in json.loads(path.read_text(encoding="utf-8")):
            if theorem["full_name"] == SHOWN:
                say(f"\n{theorem['file_path']} in {path.relative_to(folder.parent)}:")
                say(f"  {theorem['theorem_statement']}")
                for step in theorem["traced_tactics"]:
                    _show_step(step)
                say()
                return
    raise DemoError(f"{folder}: {SHOWN} is in none of its lists; that is not how the demo should end")


def _show_step(step: dict[str, Any]) -> None:
    annotated, premises = step["annotated_tactic"]
    say(f"    {annotated}")
    for name in ("before", "after"):
        *hypotheses, goal = step[f"state_{name}"].split("\n")
        say(f"      {name:8}{', '.join(hypotheses)}{' ' if hypotheses else ''}{goal}")
    for premise in premises:
        line, column = premise["def_pos"]
        say(f"      uses    {premise['full_name']}, defined at {premise['def_path']}:{line}:{column}")


if __name__ == "__main__":
    sys.exit(main(run, __doc__))

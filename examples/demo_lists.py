"""`make demo-lists`: one screen, the sorries on which most rests first, and SorryDB's lists in and out.

The daemon scans `examples/demo-project` and has the simulator trace it: what rests on what is the simulator's word, and
each line says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from daemon.paths import paths_from_config
from examples.demo_daemon import COMMAND, Daemon, add, main, prepare, work_off, write_config
from examples.demo_repositories import DemoError, base_commit, git
from examples.demo_telling import WIDTH, say, say_answer

LISTED = {"repos": [{"remote": "https://github.com/leanprover-community/batteries", "branch": "main"}]}
_SHOWN = 9


def run(directory: Path) -> None:
    """Show the whole screen."""
    say("everlean: which sorries matter, and SorryDB's lists (simulated: no Lean traced this)\n")
    prepare(directory)
    repository = directory / "project"
    base_commit(repository)
    config = write_config(directory, repository, "simulator")
    add(config, "\n[prove]\nenabled = false\n")
    daemon = Daemon(config, paths_from_config(config), directory / "daemon.log")
    daemon.start()
    try:
        work_off(daemon, lambda: None, git(repository, "rev-parse", "HEAD"))
        ask(config, "sorries", "--by", "impact")
        say("  …\n")
        ask(config, "export", "sorrydb", "ours.json", "--goalless")
    finally:
        daemon.stop()
    (record, *others) = json.loads((directory / "ours.json").read_text(encoding="utf-8"))["sorries"]
    say(f"\nThe first of {1 + len(others)} records:\n")
    for line in json.dumps({key: record[key] for key in ("repo", "location", "id")}, indent=1).splitlines():
        say(f"  {line[: WIDTH - 2]}")
    (directory / "active_repos.json").write_text(json.dumps(LISTED), encoding="utf-8")
    say("\nA list of SorryDB's becomes a watchlist:\n")
    ask(config, "repos", "import", "active_repos.json")


def ask(config: Path, *words: str) -> None:
    """Run a verb as a person would, and show the beginning of what it says.

    Raises:
        DemoError: it fails.
    """
    say(f"$ everlean {' '.join(words)}")
    command = [COMMAND, *words, "--config", config.name]
    narrow = {**os.environ, "COLUMNS": str(WIDTH - 4)}
    done = subprocess.run(command, cwd=config.parent, env=narrow, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoError(f"everlean {' '.join(words)} failed: {done.stdout}{done.stderr}")
    for line in done.stdout.replace(f"{config.parent}/", "").splitlines()[:_SHOWN]:
        say_answer(line)


if __name__ == "__main__":
    sys.exit(main(run, __doc__))

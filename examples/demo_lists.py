"""`make demo-lists`: one screen, the sorries by impact, and SorryDB's lists in and out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from examples.harness import (
    EXAMPLES,
    WIDTH,
    ask,
    begin,
    commit,
    main,
    new_daemon,
    new_repository,
    of_type,
    say,
)

LISTED = {"repos": [{"remote": "https://github.com/leanprover-community/batteries", "branch": "main"}]}
_SHOWN = 9


def run(directory: Path) -> None:
    """Show the whole screen."""
    begin(directory, "everlean: which sorries matter, and SorryDB's lists")
    repository = new_repository(directory / "project")
    commit(repository, "A small project with sorries in it", EXAMPLES / "demo-project", day=1)
    say()
    with new_daemon(directory, "[prove]\nenabled = false\n", watched=repository) as daemon:
        daemon.wait("the trace", lambda events: bool(of_type(events, "trace_measured")))
        config = daemon.config
        ask(config, "sorries", "--by", "impact", most=_SHOWN)
        say("  …\n")
        ask(config, "export", "sorrydb", "ours.json", most=_SHOWN)
    (record, *others) = json.loads((directory / "ours.json").read_text(encoding="utf-8"))["sorries"]
    say(f"\nThe first of {1 + len(others)} records:\n")
    for line in json.dumps({key: record[key] for key in ("repo", "location", "id")}, indent=1).splitlines():
        say(f"  {line[: WIDTH - 2]}")
    (directory / "active_repos.json").write_text(json.dumps(LISTED), encoding="utf-8")
    say("\nA list of SorryDB's becomes a watchlist:\n")
    ask(config, "repos", "import", "active_repos.json", most=_SHOWN)


if __name__ == "__main__":
    sys.exit(main(run, __doc__))

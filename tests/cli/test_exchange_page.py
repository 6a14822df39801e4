"""docs/exchange.md: each of its commands runs, in their order."""

from __future__ import annotations

import json
import re
import shlex

from daemon.settings import load
from tests.cli.test_lean_eval import Benchmark, workspace
from tests.cli.test_sorrydb import REPOS, database, record
from tests.support.daemon.remote import Remote
from tests.support.reference import DOCS
from tests.support.state_folder import StateFolder


def test_the_commands_of_the_page_do_what_it_says(folder: StateFolder) -> None:
    benchmark = Benchmark(folder, workspace("one_more"))
    benchmark.prove("generated/one_more/Submission.lean", "exact Nat.lt_succ_self n")
    benchmark.export("before")
    (folder.root / "active_repos.json").write_text(json.dumps(REPOS))
    (folder.root / "sorries.json").write_text(json.dumps(database(record())))
    clone = Remote(folder.root / "FLT")
    for proof, day in (("by\n  sorry", "2026-01-01"), ("rfl", "2026-03-02")):
        clone.commit("one", {"One.lean": f"theorem one : 1 = 1 := {proof}\n"}, date=f"{day}T00:00:00Z")
    page = (DOCS / "exchange.md").read_text()
    (block,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert len(lines) == 6
    for program, *words in lines:
        answer = folder.everlean(*words)
        assert (program, answer.code) == ("everlean", 0), (words, answer.err)
    assert {repo.key for repo in load(folder.config).repos} >= {
        "github.com/ada/Logic",
        "github.com/ada/Tracked",
    }
    assert json.loads((folder.root / "ours.json").read_text())["sorries"] == []
    assert (folder.root / "bench" / "test.parquet").is_file()
    assert (folder.root / "submission" / "one_more" / "Submission.lean").is_file()

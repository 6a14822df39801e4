"""`make demo-learning`: a retriever learns from a commit, and theorems are proved that were left open before.

A library of rows of numbers is committed: lemmas, theorems that each follow by one of them, and some that are left
open. Rung 0's list of tactics alone proves none of these. The daemon has Lean trace the commit, a retriever with random
weights learns from the trace which lemma a goal needs, and the same theorems are tried again with what it retrieves.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from examples import rows
from examples.harness import (
    begin,
    commit,
    main,
    new_daemon,
    new_repository,
    of_type,
    say,
)
from store.log.envelope import StoredEvent

SOLVED = 160
OPENED = 6
SETTINGS = """[prove]
nodes_per_sorry = 4
seconds_per_sorry = "20s"

[prove.generator]
device = "cpu"

[train]
device = "cpu"
new_theorems = 60
tolerance = 10

[train.retriever]
model_name = "./untrained"
batch_size = 8
accumulate_grad_batches = 1
max_epochs = 6
lr = 3.0e-3
warmup_steps = 0
schedule = "constant"
precision = "32-true"
num_workers = 0
max_seq_len = 64
data_max_seq_len = 64
num_negatives = 1
num_hard_negatives = 0
"""


def run(directory: Path) -> None:
    """Show the whole screen."""
    begin(directory, "everlean learns from every commit")
    # Loads torch, which takes seconds: not before it is known that there is Lean.
    from tests.support.tiny_models import make_tiny_retriever

    make_tiny_retriever(directory / "untrained", layers=1)
    repository = new_repository(directory / "rows")
    files = rows.files("Lists", count=SOLVED, opened=OPENED)
    sha = commit(repository, "Rows of numbers", files, day=1)
    with new_daemon(directory, SETTINGS, watched=repository) as daemon:
        screen = Screen()
        lemmas = len(rows.lemmas("Lists"))
        say(f"\nAda commits {sha[:7]}: {lemmas} lemmas about rows of numbers, {SOLVED} theorems that follow")
        say(f"by one of them each, and {OPENED} that she leaves open.\n")
        daemon.wait("the proofs", _tried_twice, screen.tell)
        before, after = ({one["sorry"] for one in _found(daemon.events, shown)} for shown in (False, True))
        say(
            f"\nOf the {OPENED}, Lean's tactics alone prove {len(before)}; "
            f"with what was learned, {len(before | after)}."
        )
        say(f"The retriever's measures: .venv/bin/everlean models --config {os.path.relpath(daemon.config)}")


def _shown(attempt: Mapping[str, Any]) -> bool:
    """Whether a search was shown what a retriever found: its budget names the retriever's checkpoint."""
    return "@" in attempt["budget"]


def _attempts(events: list[StoredEvent], shown: bool) -> list[dict[str, Any]]:
    return [one for one in of_type(events, "attempt_finished") if _shown(one) == shown]


def _found(events: list[StoredEvent], shown: bool) -> list[dict[str, Any]]:
    """Return the attempts that found a proof which Lean then took in the whole project."""
    taken = {one["sorry"] for one in of_type(events, "proof_checked", "proof_verified")}
    return [one for one in _attempts(events, shown) if one["outcome"] == "found" and one["sorry"] in taken]


def _tried_twice(events: list[StoredEvent]) -> bool:
    """Whether each sorry was tried with and without what was learned, or is proved, and each proof was judged."""
    first, second = (_attempts(events, shown) for shown in (False, True))
    found = {one["proof"] for one in of_type(events, "proof_found")}
    judged = {one["proof"] for one in of_type(events, "proof_checked", "proof_verified", "proof_rejected")}
    at_once = sum(one["outcome"] == "found" for one in first)
    return len(first) == OPENED and len(second) == OPENED - at_once and found <= judged


class Screen:
    """Tells of the log's events: a line for what is learned and proved."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._left = 0
        self._names: dict[str, str] = {}
        self._proofs: dict[str, str] = {}

    def tell(self, event: StoredEvent) -> None:
        for line in self._lines(event.type, event.data):
            say(f"  {time.monotonic() - self._began:3.0f} s  {line}")

    def _lines(self, kind: str, data: Mapping[str, Any]) -> Iterator[str]:
        match kind:
            case "sorry_opened":
                self._names[data["sorry"]] = data["place"]["declaration"]
            case "trace_measured":
                yield f"traced    {data['theorems_traced']} theorems and {data['tactics_traced']} tactics, by Lean"
            case "attempt_finished" if data["outcome"] != "found":
                name, shown = self._names[data["sorry"]], _shown(data)
                self._left += not shown
                if shown:
                    yield f"open      {name}: no proof with what was retrieved"
                elif self._left == OPENED:
                    yield f"open      all {OPENED}: rung 0 tried every tactic of its list"
            case "checkpoint_saved":
                seconds = f"{data['steps']} steps in {data['seconds']:.0f} s"
                yield f"trained   a retriever, from random weights: {seconds}"
            case "evaluation_finished" if data["split"] == "test":
                share, bm25 = (f"{100 * data['metrics'][f'{by}recall@10']:.0f} %" for by in ("", "bm25 "))
                yield f"measured  of {data['n']} unseen goals' lemmas {share} are among its first 10 (BM25: {bm25})"
            case "checkpoint_promoted":
                yield "in use    the retriever: each open theorem is due again"
            case "proof_found":
                self._proofs[data["proof"]] = "; ".join(data["tactics"])
            case "proof_checked" | "proof_verified":
                yield f"accepted  {self._names[data['sorry']]} by {self._proofs[data['proof']]}"
            case "proof_rejected":
                yield f"rejected  {self._names[data['sorry']]}: {data['reason']}"


if __name__ == "__main__":
    sys.exit(main(run, __doc__))

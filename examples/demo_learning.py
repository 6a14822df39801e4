"""`make demo-learning`: a retriever learns from a commit, and then proves theorems left open before.

A library of rows of numbers is committed: lemmas, theorems that each follow by one of them, and some left
open. The daemon has Lean trace the commit, and BM25 finds lemmas by their words: rung 0 tries the highest
ranked. A retriever with random weights learns from the trace the lemma for each goal, and the open theorems
are tried again with its premises.
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
premises = 3

[train]
device = "cpu"
new_theorems = 60
tolerance = 10

[train.retriever]
model_name = "./untrained"
# Random weights know nothing that is worth keeping.
against_forgetting = "none"
batch_size = 8
accumulate_grad_batches = 1
max_epochs = 14
lr = 3.0e-3
warmup_steps = 0
schedule = "constant"
precision = "32-true"
num_workers = 0
max_seq_len = 64
data_max_seq_len = 64
num_negatives = 1
"""


def run(directory: Path) -> None:
    """Show the whole screen."""
    begin(directory, "everlean learns from every commit")
    # Loads torch, which takes seconds: not before Lean is found.
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
        daemon.wait("the proofs", _is_done, screen.tell)
        by_words, by_both = len(_proved(daemon.events, "bm25")), len(_proved(daemon.events))
        say(
            f"\nOf the {OPENED}, {by_words} are proved with BM25's premises; {by_both} when the retriever helps."
        )
        say(f"The retriever's measures: .venv/bin/everlean models --config {os.path.relpath(daemon.config)}")


def _tried(events: list[StoredEvent], finder: str) -> set[str]:
    """Return the sorries tried with the premises of a finder: "bm25" or a checkpoint."""
    return {one["sorry"] for one in of_type(events, "attempt_finished") if f"@{finder}" in one["budget"]}


def _proved(events: list[StoredEvent], finder: str = "") -> set[str]:
    """Return the sorries with a proof accepted in the whole project; with a finder, those it helped."""
    taken = {one["sorry"] for one in of_type(events, "proof_checked", "proof_verified")}
    return {
        one["sorry"]
        for one in of_type(events, "attempt_finished")
        if one["outcome"] == "found"
        and one["sorry"] in taken
        and (not finder or f"@{finder}" in one["budget"])
    }


def _is_done(events: list[StoredEvent]) -> bool:
    """Return whether each sorry is proved or was tried with the learned model, and each proof is judged."""
    learned = [one["checkpoint"] for one in of_type(events, "checkpoint_promoted", "checkpoint_refused")]
    proofs = {one["proof"] for one in of_type(events, "proof_found")}
    judged = {one["proof"] for one in of_type(events, "proof_checked", "proof_verified", "proof_rejected")}
    if not learned or not proofs <= judged:
        return False
    if of_type(events, "checkpoint_refused"):
        return len(_tried(events, "bm25")) == OPENED
    return len(_proved(events) | _tried(events, learned[0])) == OPENED


class Screen:
    """Prints a line for each training and proof."""

    def __init__(self) -> None:
        self._began = time.monotonic()
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
                by = "BM25's" if "@bm25" in data["budget"] else "the retriever's"
                yield f"open      {self._names[data['sorry']]}: no proof with {by} premises"
            case "checkpoint_saved":
                seconds = f"{data['steps']} steps in {data['seconds']:.0f} s"
                yield f"trained   a retriever, from random weights: {seconds}"
            case "evaluation_finished" if data["split"] == "test":
                share, bm25 = (f"{100 * data['metrics'][f'{by}recall@10']:.0f} %" for by in ("", "bm25 "))
                yield f"measured  of {data['n']} unseen goals' lemmas {share} are among its first 10 (BM25: {bm25})"
            case "checkpoint_promoted":
                yield "in use    the retriever: what is open is due again"
            case "checkpoint_refused":
                yield f"refused   the retriever: {data['reason']}"
            case "proof_found":
                self._proofs[data["proof"]] = "; ".join(data["tactics"])
            case "proof_checked" | "proof_verified":
                yield f"accepted  {self._names[data['sorry']]} by {self._proofs[data['proof']]}"
            case "proof_rejected":
                yield f"rejected  {self._names[data['sorry']]}: {data['reason']}"


if __name__ == "__main__":
    sys.exit(main(run, __doc__))

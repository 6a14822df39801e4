"""The prove job in this process, on one file with sorries and the simulator in Lean's place: for tests.

bodies, _ = run(parameters(folder, source), folder / "job")
attempts(bodies)["t"].outcome
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.freeze import freeze
from pipeline.jobs.inputs import InputStore
from pipeline.jobs.protocol import Reporter, Sources
from pipeline.jobs.specs import ProveSpec, SorryToProve
from pipeline.lean.backend import simulator
from pipeline.lean.pool import PoolLimits
from pipeline.lean.source.scanner import scan_source
from pipeline.prove.job import work
from store.domain.identity import git_blob
from store.events.proofs import AttemptFinished
from store.events.registry import EVENT_TYPES
from tests.support.specs import job_spec

FILE = "A.lean"
LINES = "lines"
BUDGET = {"seconds": 20, "nodes": 20, "tactic_timeout_s": 5}
OF_A_RUNG = ("generator", "retriever", "progress", "whole", "endpoint", "tactics")


def wanted(source: str) -> list[SorryToProve]:
    """Return the sorries of a file; each goes by its declaration's name."""
    data = source.encode()
    scanned = scan_source(data, path=FILE)
    return [
        SorryToProve(
            sorry=sorry.declaration,
            path=FILE,
            blob=git_blob(data, like="0" * 40),
            byte_start=sorry.byte_start,
            byte_end=sorry.byte_end,
            declaration=sorry.declaration,
            kind=scanned.declarations[sorry.index].kind,
            ordinal=sorry.ordinal,
        )
        for sorry in scanned.sorries
    ]


def parameters(folder: Path, source: str, **changes: Any) -> dict[str, Any]:
    """Write the file, and return the parameters of a job on all its sorries, with changes.

    `rung` is its number, 0 if none is given; what a rung asks (`OF_A_RUNG`) goes into it.
    """
    (folder / FILE).write_text(source, encoding="utf-8")
    given = {
        "repository": "local/x/demo",
        "branch": "main",
        "sha": "a" * 40,
        "worktree": str(folder),
        "lean": simulator(),
        "limits": PoolLimits(),
        "rung": {
            "number": changes.pop("rung", 0),
            **{name: changes.pop(name) for name in OF_A_RUNG if name in changes},
        },
        "budget": BUDGET,
        "budget_key": "small",
        "parallel": 2,
        "sorries": [dataclasses.asdict(one) for one in wanted(source)],
    }
    return given | changes


def run(
    given: dict[str, Any], folder: Path, *, job: str = "prove-1"
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Run the job; return what it recorded, and the lines' events. What it says stands in `folder`/lines, too.

    Of what is given, `inputs` are its inputs by name, and `database_db` is a view that they are made of.

    Raises:
        JobError: the job failed, for this reason.
        ExceptionGroup: the same, out of its tasks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made_of = {name: given[name] for name in ("database_db", "inputs") if name in given}
    given = {name: value for name, value in given.items() if name not in made_of}
    spec = job_spec(ProveSpec, "prove", given, folder, job=job)
    contents, place = folder / "contents", folder / "inputs"
    if "database_db" in made_of:
        sources = Sources(Path("/nonexistent"), made_of["database_db"], contents)
        inputs = freeze(spec.parameters, spec.job, place, sources)
        assert inputs is not None
        spec = dataclasses.replace(spec, inputs=inputs)
    elif "inputs" in made_of:
        spec = dataclasses.replace(spec, inputs=InputStore(contents).freeze(place, made_of["inputs"]))
    with (folder / LINES).open("w+", encoding="utf-8") as out:
        work(spec, Reporter(spec, out))
        out.seek(0)
        return recorded(out.read())


def recorded(text: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the events of a job's lines, as bodies and as they were written."""
    lines = [json.loads(line) for line in text.splitlines()]
    events = [event for line in lines if line["line"] == "events" for event in line["events"]]
    return [EVENT_TYPES[event["type"]].model_validate(event["data"]) for event in events], events


def attempts(bodies: Iterable[Any]) -> dict[str, AttemptFinished]:
    """Return the attempts among what a job recorded, by sorry."""
    return {body.sorry: body for body in bodies if isinstance(body, AttemptFinished)}

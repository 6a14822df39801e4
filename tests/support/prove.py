"""The prove job in this process, on one file with sorries, and its search without the job: for tests.

bodies, _ = run(parameters(folder, source), folder / "job", script=Script(…))  # answers in Lean's place
attempts(bodies)["t"].outcome
with Searches(folder, lean_itself(real_lean)) as lean:  # or script=Script(…)
    lean.attempt(source)["t"].outcome
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pipeline.freeze import freeze
from pipeline.jobs.inputs import InputStore
from pipeline.jobs.protocol import Reporter, Sources
from pipeline.jobs.specs import Budget, ProveSpec, SorryToProve
from pipeline.lean.backend import LeanBackend
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool
from pipeline.lean.pool.session import Session
from pipeline.lean.source.lexer import tokens_of
from pipeline.lean.source.scanner import parse, scan_source
from pipeline.lean.source.splice import Declaration
from pipeline.prove.effort import Attempt, Effort
from pipeline.prove.file import FileProver
from pipeline.prove.job import ProveJob, work
from pipeline.prove.rungs import Engine, ladder
from pipeline.prove.tree import Tree
from pipeline.prove.whole_proof import WholeAsk
from store.domain.identity import git_blob
from store.domain.records import Sorry, SorryMode
from store.events.proofs import AttemptFinished
from store.events.registry import EVENT_TYPES
from tests.support.lean import scripted
from tests.support.lean.scripted import Script
from tests.support.specs import job_spec

T = TypeVar("T")
FILE = "A.lean"
LINES = "lines"
BUDGET = {"seconds": 20, "nodes": 20, "tactic_timeout_s": 5}
SOURCE = """theorem first (p : Prop) : p → p := sorry
theorem second (p q : Prop) (h : p ∧ q) : q ∧ p := by
  sorry
theorem third (p q : Prop) : p → q := sorry
"""
SCRIPT = Script(
    sorries={
        "theorem first": ["p : Prop\n⊢ p → p"],
        "theorem second": ["p q : Prop\nh : p ∧ q\n⊢ q ∧ p"],
        "theorem third": ["p q : Prop\n⊢ p → q"],
    },
    tactics={
        ("p → p", "simp_all"): [],
        ("q ∧ p", "simp_all"): [],
        ("p → q", "intro h"): ["p q : Prop\nh : p\n⊢ q"],
        ("p → p", "intro h"): ["p : Prop\nh : p\n⊢ p"],
        ("p : Prop\nh : p\n⊢ p", "exact h"): [],
    },
    errors=dict.fromkeys(("rfl", "h.symm", "p → q := by", "p → q := (by"), "it is not so"),
)
"""`simp_all` proves the first two, `intro h` and `exact h` the first one, and nothing the third."""
OF_A_RUNG = ("generator", "retriever", "progress", "whole", "endpoint", "tactics", "program")


def wanted(source: str, *, path: str = FILE) -> list[SorryToProve]:
    """Return the sorries of a file; each goes by its declaration's name."""
    data = source.encode()
    scanned = scan_source(data, path=path)
    return [
        SorryToProve(
            sorry=sorry.declaration,
            path=path,
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
        "lean": scripted.NOWHERE,
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
    given: dict[str, Any],
    folder: Path,
    *,
    job: str = "prove-1",
    script: Script | None = None,
    own: Engine | None = None,
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Run the job; return what it recorded, and the lines' events. What it says stands in `folder`/lines, too.

    `script` answers in Lean's place; None: what is given as `lean`. Of what is given, `inputs` are its inputs by
    name, and `database_db` is a view that they are made of. `own` works in the rung's place.

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
        reporter = Reporter(spec, out)
        pool = ReplPool if script is None else partial(ReplPool, start=scripted.starts(script))
        if own is None:
            work(spec, reporter, pool)
        else:
            asyncio.run(ProveJob(spec, reporter, pool, own).run())
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


class Searches:
    """A pool of Lean, or of a script, for the searches of a test or of a module's tests."""

    def __init__(
        self,
        folder: Path,
        lean: LeanBackend = scripted.NOWHERE,
        *,
        script: Script | None = None,
        deaths: dict[str, int] | None = None,
        limits: PoolLimits | None = None,
    ) -> None:
        """Args:
        folder: the project's.
        lean: what runs Lean, where no script answers.
        script, deaths: see `tests.support.lean.scripted`.
        limits: of the pool; None: one process.
        """
        self.folder = folder
        self.pool = ReplPool(
            limits or PoolLimits(processes=1),
            start=None if script is None else scripted.starts(script, deaths=deaths),
        )
        self._lean = lean
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self.pool.close())
        self._runner.close()

    def use(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do something with a session at the beginning of a file that imports nothing."""

        async def main() -> T:
            async with Session(self.pool, ReplKey(self._lean, self.folder, ("Init",))) as session:
                return await work(session)

        return self._runner.run(main())

    def attempt(
        self,
        source: str,
        engine: Engine | None = None,
        *,
        on_disk: str | None = None,
        slots: int = 1,
        **more: Any,
    ) -> dict[str, Attempt]:
        """Attempt the sorries of a file, as the job does; return the attempts by declaration.

        `engine`: None: rung 0's; `on_disk`: what the file holds instead; `slots`: how many declarations at once;
        `more`: as `FileProver` has it.
        """
        (self.folder / FILE).write_text(source if on_disk is None else on_disk, encoding="utf-8")
        done: list[Attempt] = []
        given: dict[str, Any] = {
            "project": self.folder,
            "path": FILE,
            "shown": FILE,
            "budget": Budget(nodes=100, seconds=60, tactic_timeout_s=20),
            "done": done.append,
            "engine": engine or ladder(),
        } | more

        async def main() -> None:
            slots_free = asyncio.Semaphore(slots)
            await FileProver(self._lean, self.pool, slots=slots_free, **given).run(wanted(source))

        self._runner.run(main())
        return {attempt.wanted.sorry: attempt for attempt in done}


def declared(text: str) -> Declaration:
    """Return the declaration of a text that its first sorry is in."""
    data = text.encode()
    source = parse(data)
    command = source.command_at(source.scanned.sorries[0].byte_start)
    assert command is not None
    return Declaration.cut(data, source, command)


def asked(text: str, **more: Any) -> WholeAsk:
    """Return the request for a whole proof of a text's first sorry; `more`: as `WholeAsk` has it."""
    declaration = declared(text)
    return WholeAsk(declaration, declaration.sorries[0], **more)


def tree_of(effort: Effort) -> Tree:
    """Return the tree of a search."""
    assert effort.tree is not None
    return effort.tree


def sorry_at(data: bytes, start: int, mode: SorryMode) -> tuple[Declaration, Sorry]:
    """Return a text as a declaration, and its bytes from `start` on as a sorry."""
    declaration = Declaration(data, 0, len(data), "", tokens_of(data, 0, len(data)), ())
    return declaration, Sorry("t", 0, 0, "sorry", mode, 1, 0, start, start + 5, "")

"""Proving many theorems with one model, as a prove job does, and checking the proofs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.prove_family import Theorem, lean
from pipeline.jobs.specs import Budget
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplPool
from pipeline.lean.pool.session import Session
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.requests import Decoding
from pipeline.models.tactics.service import Batching
from pipeline.prove.generator import GeneratorProposer
from pipeline.prove.graph import ModelScoring
from pipeline.prove.search import Search, SearchMethod


@dataclass(frozen=True, slots=True)
class Proved:
    """The result. `scripts` has the tactics of the theorems accepted as a whole text.

    `unchecked` counts the proofs found by a search and refused in the theorem's own text. Seconds are of wall
    clock, those of the checks included.
    """

    theorems: int
    scripts: Mapping[str, tuple[str, ...]]
    unchecked: int
    seconds: float
    nodes: int
    repl_calls: int

    @property
    def share(self) -> float:
        return len(self.scripts) / self.theorems

    @property
    def per_minute(self) -> float:
        """Attempted theorems in a minute."""
        return 60 * self.theorems / self.seconds


async def prove(
    theorems: Sequence[Theorem],
    generator: Generator,
    project: Path,
    *,
    processes: int,
    together: int,
    budget: Budget,
    candidates: int,
    seed: int,
) -> Proved:
    """Search for a proof of each theorem, `together` at a time on `processes` processes of Lean."""
    began, places = time.monotonic(), asyncio.Semaphore(together)
    decoding = Decoding(candidates=candidates, max_tokens=24)
    key = lean(project)
    scripts: dict[str, tuple[str, ...]] = {}
    nodes = calls = unchecked = 0

    async with (
        ReplPool(PoolLimits(processes=processes)) as pool,
        Batching(generator.suggest) as service,
    ):

        async def one(theorem: Theorem) -> None:
            nonlocal nodes, calls, unchecked
            async with places, Session(pool, key) as session:
                (root,) = await session.distil(theorem.text())
                proposer = GeneratorProposer(service.ask, decoding=decoding)
                method = SearchMethod(proposer, scoring=ModelScoring(), seed=seed)
                result = await Search(session, method, budget).run(root)
                nodes += result.nodes
                calls += result.repl_calls
                if result.script is not None:
                    lines = result.script.block()
                    if await accepted(session, theorem, lines):
                        scripts[theorem.name] = lines
                    else:
                        unchecked += 1

        async with asyncio.TaskGroup() as tasks:
            for theorem in theorems:
                tasks.create_task(one(theorem))
    seconds = time.monotonic() - began
    return Proved(len(theorems), scripts, unchecked, seconds, nodes, calls)


async def accepted(session: Session, theorem: Theorem, proof: Sequence[str]) -> bool:
    """Return whether the whole theorem elaborates with this proof, without an error and without a sorry."""
    units = await session.process(theorem.text(proof))
    return not any(unit.errors or unit.uses_sorry for unit in units)

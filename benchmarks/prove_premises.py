"""What premises do for rung 0: the share of theorems that it proves with retrieved, random and no premises.

A family over atoms and rules (`rule_7 : mora → kilo`), which are axioms above the theorems: a goal follows from its
hypotheses by one rule, by two in a row, or by one for each side of a conjunction, and other hypotheses stand beside
them. No rule's name says what it is about. The retriever learns on a CPU from theorems of the same rules, as a job of
the daemon does; the held-out theorems are others. With each kind of premises a search has the same budget of tactics.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lean import real_leans
from benchmarks.store_bench import Row, say
from pipeline.jobs.specs import Budget
from pipeline.lean.backend import LeanBackend, simulator
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.finder import Place, PremiseFinder
from pipeline.models.retriever.learning import learn
from pipeline.prove.curated import CuratedTactics, CuratedWithPremises
from pipeline.prove.graph import Proposer
from pipeline.prove.premises import ShownPremises
from pipeline.prove.search import Search
from tests.support.retrieval import small_config
from tests.support.tiny_models import make_tiny_retriever

_PATH = "Family.lean"
SHOWN = ("retrieved", "random", "none")


@dataclass(frozen=True, slots=True)
class PremiseSizes:
    """How much of everything. `held_out` theorems are searched, in each Lean so many; `calls` is a search's budget."""

    seeds: tuple[int, ...] = (1, 2, 3)
    atoms: int = 24
    rules: int = 60
    learned_from: int = 2400
    held_out: int = 60
    held_out_lean: int = 20
    premises: int = 10
    calls: int = 200
    processes: int = 2


@dataclass(frozen=True, slots=True)
class _Goal:
    """A theorem: its hypotheses in order, what follows, and the rules that it follows by."""

    hypotheses: tuple[str, ...]
    target: str
    rules: tuple[int, ...]

    @property
    def state(self) -> str:
        lines = [f"h{number} : {atom}" for number, atom in enumerate(self.hypotheses)]
        return "\n".join([*lines, f"⊢ {self.target}"])

    def text(self, number: int) -> str:
        binders = " ".join(f"(h{at} : {atom})" for at, atom in enumerate(self.hypotheses))
        return f"theorem held_{number} {binders} : {self.target} := by\n  sorry\n"


class Family:
    """Atoms and rules of a seed, and theorems that follow by them."""

    def __init__(self, seed: int, sizes: PremiseSizes) -> None:
        self._rng = random.Random(f"premises/{seed}")
        letters = ["bdfgklmnprst", "aeiou"]
        words: dict[str, None] = {}
        while len(words) < sizes.atoms:
            words["".join(self._rng.choice(letters[at % 2]) for at in range(4))] = None
        self.atoms = tuple(words)
        pairs = [(one, other) for one in words for other in words if one != other]
        self.rules = tuple(self._rng.sample(pairs, sizes.rules))
        self.axioms = (
            *(f"axiom {atom} : Prop" for atom in words),
            *(f"axiom rule_{at} : {one} → {other}" for at, (one, other) in enumerate(self.rules)),
        )

    def theorems(self, n: int, but_not: Sequence[_Goal] = ()) -> list[_Goal]:
        """Return different theorems, none of which says the same as one of `but_not`."""
        seen = {(frozenset(one.hypotheses), one.target) for one in but_not}
        made: list[_Goal] = []
        while len(made) < n:
            goal = self._one()
            key = frozenset(goal.hypotheses), goal.target
            if key not in seen:
                seen.add(key)
                made.append(goal)
        return made

    def _one(self) -> _Goal:
        rng = self._rng
        first, second = rng.sample(range(len(self.rules)), 2)
        given, target = self.rules[first]
        match rng.randrange(3):
            case 0:
                needed, goal, rules = [given], target, [first]
            case 1:
                then = [at for at, (one, other) in enumerate(self.rules) if one == target and other != given]
                second = rng.choice(then) if then else first
                needed, goal = [given], self.rules[second][1] if then else target
                rules = [first, second] if then else [first]
            case _:
                needed, rules = [given, self.rules[second][0]], [first, second]
                goal = f"{target} ∧ {self.rules[second][1]}"
        others = [atom for atom in self.atoms if atom not in {*needed, *goal.split(" ∧ ")}]
        hypotheses = list(dict.fromkeys([*needed, *rng.sample(others, 2)]))
        rng.shuffle(hypotheses)
        return _Goal(tuple(hypotheses), goal, tuple(rules))

    def write(self, folder: Path, learned: Sequence[_Goal]) -> TaskData:
        """Write the dataset that the retriever learns from."""
        (folder / "random").mkdir(parents=True)
        premises = [
            {
                "full_name": axiom.split()[1],
                "code": axiom,
                "start": [line, 1],
                "end": [line, len(axiom) + 1],
                "kind": "commanddeclaration",
            }
            for line, axiom in enumerate(self.axioms, start=1)
        ]
        corpus = {"path": _PATH, "imports": [], "premises": premises}
        (folder / "corpus.jsonl").write_text(json.dumps(corpus) + "\n", encoding="utf-8")
        theorems = [self._traced(number, goal) for number, goal in enumerate(learned)]
        for split, content in (("train", theorems), ("val", []), ("test", [])):
            (folder / "random" / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")
        return TaskData("family", folder)

    def _traced(self, number: int, goal: _Goal) -> dict[str, object]:
        line = len(self.axioms) + number + 1
        uses = [
            {
                "full_name": f"rule_{rule}",
                "def_path": _PATH,
                "def_pos": [len(self.atoms) + rule + 1, 7],
                "def_end_pos": [len(self.atoms) + rule + 1, 9],
            }
            for rule in goal.rules
        ]
        marked = " ".join(f"<a>rule_{rule}</a>" for rule in goal.rules)
        step = {
            "tactic": marked.replace("<a>", "").replace("</a>", ""),
            "annotated_tactic": [marked, uses],
            "state_before": goal.state,
            "state_after": "no goals",
        }
        return {
            "url": "https://example.org/family",
            "commit": "a" * 40,
            "file_path": _PATH,
            "full_name": f"t{number}",
            "theorem_statement": None,
            "start": [line, 1],
            "end": [line, 9],
            "traced_tactics": [step],
        }


def measure_premises(folder: Path, sizes: PremiseSizes) -> Iterator[Row]:
    """Learn a retriever with each seed, and search the same theorems with each kind of premises."""
    leans = {"simulator": (simulator(), sizes.held_out)}
    leans |= {name: (lean, sizes.held_out_lean) for name, lean in real_leans(folder).items()}
    shares: dict[tuple[str, str], list[float]] = {}
    recalls: list[float] = []
    for seed in sizes.seeds:
        family = Family(seed, sizes)
        held_out = family.theorems(sizes.held_out)
        finder = _learned(folder / f"seed-{seed}", family, held_out, sizes, seed)
        recalls.append(100 * _recall(finder, family, held_out))
        for name, (lean, number) in leans.items():
            for shown in SHOWN:
                given = held_out[:number]
                found = asyncio.run(_proved(given, family, finder, shown, lean, folder, sizes, seed))
                shares.setdefault((name, shown), []).append(100 * found / len(given))
                say(f"seed {seed}, {name}, {shown}: {found} of {len(given)}")
    yield _row("rules of a held-out theorem among its retrieved premises", recalls)
    for name, (_, number) in leans.items():
        for shown in SHOWN:
            what = f"{name}: {number} theorems, {shown}" + (" premises" if shown != "none" else "")
            yield _row(what, shares[name, shown])
        for other in SHOWN[1:]:
            gains = [
                one - two for one, two in zip(shares[name, "retrieved"], shares[name, other], strict=True)
            ]
            yield _row(f"{name}: retrieved more than {other}", gains, unit="points", target="above 0")


def _row(what: str, values: Sequence[float], *, unit: str = "%", target: str = "") -> Row:
    each = ", ".join(f"{value:.1f}" for value in values)
    reached = all(value > 0 for value in values) if target else None
    return Row(
        "premises", what, statistics.mean(values), unit, target, reached, f"each seed: {each}", tuple(values)
    )


def _learned(
    folder: Path, family: Family, held_out: Sequence[_Goal], sizes: PremiseSizes, seed: int
) -> PremiseFinder:
    task = family.write(folder / "data", family.theorems(sizes.learned_from, but_not=held_out))
    base = make_tiny_retriever(folder / "base", d_model=64, layers=1, seed=seed)
    config = small_config(base, seed=seed, batch_size=32, temperature=0.1, warmup_steps=0)
    chain = Chain(folder / "chain")
    made = learn(task, chain, config, parent=None)
    corpus = Corpus(task.dataset / "corpus.jsonl")
    return PremiseFinder.of_checkpoint(chain.folder, made.checkpoint, corpus, premises=sizes.premises)


def _place(family: Family) -> Place:
    return Place(_PATH, (len(family.axioms) + 1, 1))


def _recall(finder: PremiseFinder, family: Family, held_out: Sequence[_Goal]) -> float:
    found = finder.find([(goal.state, _place(family)) for goal in held_out])
    shares = [
        sum(f"rule_{rule}" in {one.full_name for one in premises} for rule in goal.rules) / len(goal.rules)
        for goal, premises in zip(held_out, found, strict=True)
    ]
    return statistics.mean(shares)


async def _proved(
    given: Sequence[_Goal],
    family: Family,
    finder: PremiseFinder,
    shown: str,
    lean: LeanBackend,
    project: Path,
    sizes: PremiseSizes,
    seed: int,
) -> int:
    """Return how many theorems rung 0 proves within the budget, each accepted whole."""
    key, setup = ReplKey(lean, project, ("Init",)), Setup(prefix=("\n".join(family.axioms),))
    budget = Budget(nodes=sizes.calls, seconds=600, tactic_timeout_s=10, calls=sizes.calls)
    places = asyncio.Semaphore(sizes.processes)
    found = 0
    async with ReplPool(PoolLimits(processes=sizes.processes)) as pool:

        async def one(number: int, goal: _Goal) -> None:
            nonlocal found
            async with places, Session(pool, key, setup) as session:
                (root,) = await session.distil(goal.text(number))
                proposer = _proposer(shown, finder, family, sizes, random.Random(f"{seed}/{number}"))
                result = await Search(session, proposer, budget=budget).run(root)
                if result.script is not None:
                    proof = "\n".join(f"  {line}" for line in result.script.block())
                    units = await session.process(goal.text(number).replace("  sorry", proof))
                    found += not any(unit.errors or unit.uses_sorry for unit in units)

        async with asyncio.TaskGroup() as tasks:
            for number, goal in enumerate(given):
                tasks.create_task(one(number, goal))
    return found


def _proposer(
    shown: str, finder: PremiseFinder, family: Family, sizes: PremiseSizes, rng: random.Random
) -> Proposer:
    tactics = CuratedTactics(core_only=True)
    if shown == "none":
        return tactics

    async def retrieved(state: str) -> tuple[Premise, ...]:
        return finder.find([(state, _place(family))])[0]

    async def drawn(_state: str) -> tuple[Premise, ...]:
        return tuple(rng.sample(finder.corpus.all_premises, min(sizes.premises, len(finder.corpus))))

    find: Callable[[str], Awaitable[tuple[Premise, ...]]] = retrieved if shown == "retrieved" else drawn
    return CuratedWithPremises(tactics, ShownPremises(find, _PATH))

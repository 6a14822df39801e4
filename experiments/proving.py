"""Prove theorems with several provers and budgets: what share of them, by rung and by what they are shown.

The search, the proposers and the trainers are the product's. A theorem counts as proved where a search found a proof
within its budget and Lean accepted the whole theorem. What a smaller budget proved is not searched again with a larger
one. In the log a trial has one figure a budget: of each theorem that no smaller one proved, whether this one did.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from benchmarks.lean import real_leans
from benchmarks.prove_family import make_model
from experiments.families import PATH, Family, Problem, Rules, Shapes
from experiments.file import ExperimentError, Prover, Proving, Repositories, RulesFamily, SorryDB
from experiments.lab import Known, Lab, Trial, as_text
from experiments.ladder import solved_sorries
from experiments.results import Result, gain, with_interval
from pipeline.jobs.specs import Budget
from pipeline.lean.backend import LeanBackend, simulator
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.model_files import file_digest
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.finder import Place, PremiseFinder
from pipeline.models.retriever.learning import learn
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.requests import Decoding
from pipeline.models.tactics.rows import Row
from pipeline.models.tactics.service import GenerationService
from pipeline.models.tactics.training import SFTTrainer
from pipeline.prove.curated import CuratedTactics, CuratedWithPremises
from pipeline.prove.generator import GeneratorProposer
from pipeline.prove.graph import ModelScoring, Proposer
from pipeline.prove.premises import ShownPremises
from pipeline.prove.search import Search
from pipeline.report.charts import Series, line_chart
from tests.support.retrieval import small_config
from tests.support.tiny_models import make_tiny_retriever

SECONDS = 600.0
"""Of a search; its budget of tactics ends it before."""
_TOGETHER = 2


def run(experiment: Proving, lab: Lab) -> Result:
    """Measure what the log lacks, and return the result of all of it.

    Raises:
        ExperimentError: a repository cannot be worked on, or no such Lean is here.
        LearningError: a model cannot be trained.
    """
    rows: dict[str, list[Known]] = {}
    for seed in experiment.seeds:
        for name, arm in experiment.arms.items():
            trial = _trial(experiment, name, arm, seed)
            if lab.finished(trial) is None:
                _measure(experiment, arm, trial, lab)
            known = lab.finished(trial)
            assert known is not None
            rows.setdefault(name, []).append(known)
    return _result(experiment, rows)


def _trial(experiment: Proving, name: str, arm: Prover, seed: int) -> Trial:
    given = experiment.theorems
    contents = (file_digest(given.file),) if isinstance(given, SorryDB) and given.file.exists() else ()
    follows_from = (as_text(given), *contents, experiment.lean, str(experiment.shown), as_text(arm))
    return Trial(name, seed, (*follows_from, json.dumps(experiment.budgets)), _simulated(experiment))


def _simulated(experiment: Proving) -> bool:
    if isinstance(experiment.theorems, Repositories | SorryDB):
        return experiment.theorems.lean == "simulator"
    return experiment.lean == "simulator"


def _measure(experiment: Proving, arm: Prover, trial: Trial, lab: Lab) -> None:
    lab.say(f"{trial.arm}, seed {trial.seed}")
    given = experiment.theorems
    done: set[str] = set()
    solve: Callable[..., Mapping[str, float]]
    if isinstance(given, Repositories | SorryDB):
        solve = partial(solved_sorries, given, arm.rung, trial, lab)
    else:
        began = time.process_time()
        generated = _Generated(experiment, arm, trial, lab)
        spent = time.process_time() - began
        lab.once(trial, "models", lambda: {"processor_seconds": spent})
        solve = generated.proved
    for budget in experiment.budgets:
        known = lab.once(trial, f"budget {budget}", partial(solve, budget, but_not=frozenset(done)))
        done |= {name for name, proved in known.items() if proved}
        lab.say(f"  budget {budget}: {len(done)} proved in all")
    lab.finish(trial, [f"budget {budget}" for budget in experiment.budgets])


# ---- generated theorems


class _Generated:
    """A family of a seed, with the models that an arm needs; what was trained already is loaded."""

    def __init__(self, experiment: Proving, arm: Prover, trial: Trial, lab: Lab) -> None:
        self._arm, self._seed, self._shown = arm, trial.seed, experiment.shown
        given = experiment.theorems
        assert not isinstance(given, Repositories | SorryDB)
        self._folder = lab.folder / "models" / f"{given.source}-{trial.seed}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._family: Family
        self._finder: PremiseFinder | None = None
        if isinstance(given, RulesFamily):
            rules = Rules(trial.seed, given)
            self._family = rules
            self._place = Place(PATH, (len(rules.above) + 1, 1))
            if arm.premises != "none":
                self._finder = _retriever(rules, self._folder / "retriever", trial.seed, experiment.shown)
        else:
            self._family = Shapes(trial.seed, given)
        self._lean = _lean(experiment.lean, self._folder)
        self._generator = None if arm.rung == 0 else self._tactic_model()

    def proved(self, budget: int, *, but_not: Collection[str]) -> Mapping[str, float]:
        """Return of each further theorem whether it is proved within so many tactics: 1 or 0."""
        problems = [one for one in self._family.problems if one.name not in but_not]
        return asyncio.run(self._search(problems, budget))

    async def _search(self, problems: Sequence[Problem], calls: int) -> Mapping[str, float]:
        above = self._family.above
        setup = Setup(prefix=("\n".join(above),)) if above else Setup()
        key = ReplKey(self._lean, self._folder, ("Init",))
        budget = Budget(nodes=calls, seconds=SECONDS, tactic_timeout_s=10, calls=calls)
        places, found = asyncio.Semaphore(_TOGETHER), dict.fromkeys((one.name for one in problems), 0.0)
        async with AsyncExitStack() as open_:
            pool = await open_.enter_async_context(ReplPool(PoolLimits(processes=_TOGETHER)))
            service = None
            if self._generator is not None:
                service = await open_.enter_async_context(GenerationService(self._generator))

            async def one(problem: Problem) -> None:
                async with places, Session(pool, key, setup) as session:
                    (root,) = await session.distil(problem.text())
                    proposer = self._proposer(problem, service)
                    scoring = None if service is None else ModelScoring()
                    search = Search(session, proposer, budget=budget, scoring=scoring, seed=self._seed)
                    script = (await search.run(root)).script
                    if script is not None:
                        units = await session.process(problem.text(script.block()))
                        found[problem.name] = float(not any(unit.errors or unit.uses_sorry for unit in units))

            async with asyncio.TaskGroup() as tasks:
                for problem in problems:
                    tasks.create_task(one(problem))
        return found

    def _proposer(self, problem: Problem, service: GenerationService | None) -> Proposer:
        shown = self._premises(problem)
        if service is not None:
            decoding = Decoding(candidates=self._arm.candidates, max_tokens=24)
            return GeneratorProposer(service, decoding=decoding, premises=shown)
        tactics = CuratedTactics(core_only=True)
        return tactics if shown is None else CuratedWithPremises(tactics, shown)

    def _premises(self, problem: Problem) -> ShownPremises | None:
        finder = self._finder
        if finder is None:
            return None
        rng = random.Random(f"{self._seed}/{problem.name}")

        async def retrieved(state: str) -> tuple[Premise, ...]:
            return finder.find([(state, self._place)])[0]

        async def drawn(_state: str) -> tuple[Premise, ...]:
            return tuple(rng.sample(finder.corpus.all_premises, min(self._shown, len(finder.corpus))))

        return ShownPremises(retrieved if self._arm.premises == "retrieved" else drawn, PATH)

    def _tactic_model(self) -> Generator:
        """Fine-tune a small model on the family's other theorems, its rows shown what its goals will be shown."""
        arm, finder = self._arm, self._finder
        rows = self._family.rows(self._folder)
        if finder is not None and arm.premises == "retrieved":

            def find(asked: Sequence[Row]) -> Sequence[tuple[str, ...]]:
                found = finder.find([(row.state, self._place) for row in asked])
                return [tuple(premise.serialize() for premise in each) for each in found]

            rows = rows.shown(find, dropout=0.25, seed=self._seed)
        base = self._folder / "base"
        if not base.exists():
            make_model(base, rows, seed=self._seed, hidden=96, layers=2, max_length=1024)
        trainer = SFTTrainer(
            base,
            output_dir=self._folder / f"tuned-{arm.premises}-{arm.epochs}",
            epochs_per_repo=arm.epochs,
            batch_size=32,
            lr=2e-3,
            warmup_steps=20,
            max_seq_len=384 if arm.premises == "none" else 768,
            seed=self._seed,
            device="cpu",
            say=lambda _line: None,
        )
        trainer.fit(rows)
        return Generator(trainer.loaded())


def _lean(wanted: str, folder: Path) -> LeanBackend:
    if wanted == "simulator":
        return simulator()
    found = next(iter(real_leans(folder).values()), None)
    if found is None:
        raise ExperimentError(
            'lean is "real", and none is here: pip install ".[lean435]" brings one on Linux x86-64'
        )
    return found


def _retriever(family: Rules, folder: Path, seed: int, premises: int) -> PremiseFinder:
    """Return a retriever that has learned the family's other theorems, made in `folder` once."""
    chain = Chain(folder / "chain")
    if not (folder / "data").exists():
        shutil.rmtree(folder / ".data", ignore_errors=True)
        family.write(folder / ".data")
        (folder / ".data").rename(folder / "data")
    base = make_tiny_retriever(folder / "base", d_model=64, layers=1, seed=seed)
    config = small_config(base, seed=seed, batch_size=32, temperature=0.1, warmup_steps=0)
    made = learn(TaskData("family", folder / "data"), chain, config, parent=None)
    return PremiseFinder.of_checkpoint(
        chain.folder, made.checkpoint, Corpus(folder / "data" / "corpus.jsonl"), premises=premises
    )


# ---- the result


_MEANING = """\
Share of theorems proved in percent, mean over the seeds with Student's 95% interval; what a smaller budget proved
counts for a larger one. *Gain*: the paired difference to the first row at the largest budget, "within" where its
interval has zero in it. Budgets are {budgets}."""


def _result(experiment: Proving, found: Mapping[str, Sequence[Known]]) -> Result:
    shares = {name: [_shares(experiment, known) for known in each] for name, each in found.items()}
    first = [one[-1] for one in next(iter(shares.values()))]
    rows, lines = [], []
    for number, (name, each) in enumerate(shares.items()):
        by_budget = [[one[at] for one in each] for at in range(len(experiment.budgets))]
        said = [with_interval(values) for values in by_budget]
        seconds = sum(known.seconds for known in found[name]) / len(found[name])
        rows.append((name, *said, gain(by_budget[-1], first) if number else "", f"{seconds:.0f}"))
        lines.append(Series(name, tuple(statistics.fmean(values) for values in by_budget)))
    simulated = _simulated(experiment)
    unit = "s" if isinstance(experiment.theorems, Repositories | SorryDB) else "tactics"
    chart = line_chart(
        "experiment",
        "Theorems proved by budget" + (" (simulated)" if simulated else ""),
        positions=[f"{budget} {unit}" for budget in experiment.budgets],
        lines=lines,
        unit="percent",
        highest=100.0,
    )
    head = ("", *(f"{budget} {unit}" for budget in experiment.budgets), "gain", "processor s a seed")
    meaning = _MEANING.format(
        budgets="seconds for each sorry" if unit == "s" else "tactics that are sent to Lean for each theorem"
    )
    total = sum(known.seconds for each in found.values() for known in each)
    return Result(head, tuple(rows), chart, meaning, total, simulated)


def _shares(experiment: Proving, known: Known) -> list[float]:
    """Return the share of theorems that each budget has proved, smaller ones counted, in percent."""
    names: set[str] = set()
    done: set[str] = set()
    shares = []
    for budget in experiment.budgets:
        each = known.figures[f"budget {budget}"]
        names |= each.keys()
        done |= {name for name, proved in each.items() if proved}
        shares.append(100 * len(done) / max(1, len(names)))
    return shares

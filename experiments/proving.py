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
from functools import partial
from pathlib import Path

from experiments.families import PATH, Problem, Rows
from experiments.file import ExperimentError, Prover, Proving, Repositories, RowsFamily, SorryDB
from experiments.lab import Known, Lab, Trial, as_text
from experiments.ladder import solved_sorries
from experiments.results import Result, gain, with_interval
from pipeline.jobs.specs import Budget
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.model_files import file_digest
from pipeline.models.retriever.baselines import BM25
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.finder import PremiseFinder
from pipeline.models.retriever.learning import learn
from pipeline.models.retriever.places import Place
from pipeline.prove.curated import CuratedTactics
from pipeline.prove.premises import Find, ShownPremises
from pipeline.prove.search import Search, SearchMethod
from pipeline.report.charts import Series, line_chart
from tests.support.lean.wheel import backend as wheel
from tests.support.lean.wheel.lean import UnavailableError
from tests.support.retrieval import small_config
from tests.support.tiny_models import make_tiny_retriever

SECONDS = 600.0
"""Of a search; its budget of tactics ends it before."""


def run(experiment: Proving, lab: Lab) -> Result:
    """Measure what the log lacks, and return the result of all of it.

    Raises:
        ExperimentError: a repository cannot be worked on, or no such Lean is here.
        LearningError: a model cannot be trained.
    """
    trials = [
        _trial(experiment, name, arm, seed)
        for seed in experiment.seeds
        for name, arm in experiment.arms.items()
    ]
    for trial in lab.each(trials):
        _measure(experiment, experiment.arms[trial.arm], trial, lab)
    rows: dict[str, list[Known]] = {}
    for trial in trials:
        known = lab.finished(trial)
        assert known is not None
        rows.setdefault(trial.arm, []).append(known)
    return _result(experiment, rows)


def _trial(experiment: Proving, name: str, arm: Prover, seed: int) -> Trial:
    given = experiment.theorems
    contents = (file_digest(given.file),) if isinstance(given, SorryDB) and given.file.exists() else ()
    follows_from = (as_text(given), *contents, str(experiment.shown), as_text(arm))
    return Trial(name, seed, (*follows_from, json.dumps(experiment.budgets)))


def _measure(experiment: Proving, arm: Prover, trial: Trial, lab: Lab) -> None:
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
        lab.say(f"  budget {budget}: {len(done)} of {len(known)} proved")
    lab.finish(trial, [f"budget {budget}" for budget in experiment.budgets])


# ---- generated theorems


class _Generated:
    """A family of a seed, with what an arm shows; what was trained already is loaded."""

    def __init__(self, experiment: Proving, arm: Prover, trial: Trial, lab: Lab) -> None:
        given = experiment.theorems
        assert isinstance(given, RowsFamily)
        self._arm, self._seed, self._shown = arm, trial.seed, experiment.shown
        self._folder = lab.folder / "models" / f"{given.source}-{trial.seed}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._family = Rows(trial.seed, given)
        self._end = (self._family.end, 1)
        self._place = Place(PATH, self._end)
        try:
            self._key = ReplKey(wheel.backend(), self._folder, ("Init",))
        except UnavailableError as error:
            raise ExperimentError(str(error)) from error
        self._setup = Setup(prefix=(self._family.above,))
        self._find = None if arm.premises == "none" else self._finder()

    def proved(self, budget: int, *, but_not: Collection[str]) -> Mapping[str, float]:
        """Return of each further theorem whether it is proved within so many tactics: 1 or 0."""
        problems = [one for one in self._family.problems if one.name not in but_not]
        return asyncio.run(self._search(problems, budget))

    async def _search(self, problems: Sequence[Problem], calls: int) -> Mapping[str, float]:
        budget = Budget(nodes=calls, seconds=SECONDS, tactic_timeout_s=10, calls=calls)
        found = dict.fromkeys((one.name for one in problems), 0.0)
        async with (
            ReplPool(PoolLimits(processes=1)) as pool,
            Session(pool, self._key, self._setup) as session,
        ):
            for problem in problems:
                (root,) = await session.distil(problem.text())
                shown = None if self._find is None else ShownPremises(self._find, PATH)
                method = SearchMethod(CuratedTactics(core_only=True, shown=shown), seed=self._seed)
                script = (await Search(session, method, budget).run(root)).script
                if script is not None:
                    units = await session.process(problem.text(script.block()))
                    found[problem.name] = float(not any(unit.errors or unit.uses_sorry for unit in units))
        return found

    def _finder(self) -> Find:
        """Return the lookup of this arm's premises for a state."""
        data, most = self._folder / "data", self._shown
        if not data.exists():
            shutil.rmtree(self._folder / ".data", ignore_errors=True)
            asyncio.run(self._write(self._folder / ".data"))
            (self._folder / ".data").rename(data)
        corpus = Corpus(data / "corpus.jsonl")
        if self._arm.premises == "retrieved":
            finder = _retriever(data, self._folder / "retriever", self._seed, most)

            async def retrieved(state: str) -> tuple[Premise, ...]:
                return finder.find([(state, self._place)])[0]

            return retrieved
        if self._arm.premises == "bm25":
            ranking, allowed = BM25(corpus), corpus.accessible(PATH, self._end)

            async def ranked(state: str) -> tuple[Premise, ...]:
                return tuple(corpus.all_premises[one] for one in ranking.rank(state, allowed, most))

            return ranked

        async def drawn(state: str) -> tuple[Premise, ...]:
            rng = random.Random(f"{self._seed}/{state}")
            return tuple(rng.sample(corpus.all_premises, min(most, len(corpus))))

        return drawn

    async def _write(self, folder: Path) -> None:
        async with (
            ReplPool(PoolLimits(processes=1)) as pool,
            Session(pool, self._key, self._setup) as session,
        ):
            await self._family.write(folder, session)


def _retriever(data: Path, folder: Path, seed: int, premises: int) -> PremiseFinder:
    """Return a retriever that has learned the dataset, made in `folder` once."""
    chain = Chain(folder / "chain")
    base = make_tiny_retriever(folder / "base", d_model=64, layers=1, seed=seed)
    config = small_config(
        base, seed=seed, lr=3e-3, max_epochs=6, warmup_steps=0, schedule="constant", against_forgetting="none"
    )
    made = learn(TaskData("rows", data), chain, config, parent=None)
    return PremiseFinder.of_checkpoint(
        chain.folder, made.checkpoint, Corpus(data / "corpus.jsonl"), premises=premises
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
    unit = "s" if isinstance(experiment.theorems, Repositories | SorryDB) else "tactics"
    chart = line_chart(
        "experiment",
        "Theorems proved by budget",
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
    return Result(head, tuple(rows), chart, meaning, total)


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

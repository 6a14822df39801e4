"""Prove theorems with several provers and budgets: the share proved, by rung and by the shown premises.

The search, the proposers and the trainers are the product's. A theorem counts as proved if a search found a
proof within its budget and Lean accepted the whole theorem. Theorems proved with a smaller budget are not
searched again with a larger one. In the log a trial has one figure a budget: for each theorem not proved by a
smaller one, whether this one did.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

from experiments.file import ExperimentError, LibraryTheorems, Prover, Proving, Repositories, SorryDB
from experiments.lab import Lab, Trial, TrialResult, as_text
from experiments.ladder import solved_sorries
from experiments.results import Result, gain, with_interval
from experiments.theorems import COMMITS, HELD_OUT, Library, Theorem
from pipeline.jobs.specs import Budget
from pipeline.lean.goal_text import state_of
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.model_files import file_digest
from pipeline.models.retriever.baselines import MePo
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.finder import Finder, Place
from pipeline.models.retriever.index import load_retriever
from pipeline.models.retriever.learning import learn
from pipeline.models.text import query_text
from pipeline.prove.curated import CuratedTactics
from pipeline.prove.graph import Candidate
from pipeline.prove.premises import ShownPremises
from pipeline.prove.search import Search, SearchMethod
from pipeline.report.charts import Series, line_chart
from tests.support.lean.wheel import backend as wheel
from tests.support.lean.wheel.lean import UnavailableError, toolchain
from tests.support.retrieval import words_config
from tests.support.tiny_models import make_tiny_retriever

SECONDS = 3600.0
"""Of a search; its budget of tactics ends it before."""
AT_ONCE = 4
"""Searches, each with a Lean of its own; their finds do not depend on one another."""
_FINDS_ITSELF = "exact?"
"""Not offered if the wanted lemma stands above."""


def run(experiment: Proving, lab: Lab) -> Result:
    """Measure the missing figures, and return the result of all of them.

    Raises:
        ExperimentError: a repository cannot be worked on, or no such Lean is here.
        LearningError: a model cannot be trained.
    """
    trials = [
        _trial(experiment, name, arm, seed)
        for number, seed in enumerate(experiment.seeds)
        for name, arm in experiment.arms.items()
        if arm.seeds is None or number < arm.seeds
    ]
    for trial in lab.each(trials):
        _measure(experiment, experiment.arms[trial.arm], trial, lab)
    rows: dict[str, list[TrialResult]] = {}
    for trial in trials:
        result = lab.finished(trial)
        assert result is not None
        rows.setdefault(trial.arm, []).append(result)
    return _result(experiment, rows)


def _trial(experiment: Proving, name: str, arm: Prover, seed: int) -> Trial:
    theorems = experiment.theorems
    contents = (
        (file_digest(theorems.file),) if isinstance(theorems, SorryDB) and theorems.file.exists() else ()
    )
    own = (experiment.shown, experiment.practice if arm.learned == "own proofs" else 0)
    follows_from = (as_text(theorems), *contents, str(own), as_text(arm))
    return Trial(name, seed, (*follows_from, json.dumps(experiment.budgets)))


def _measure(experiment: Proving, arm: Prover, trial: Trial, lab: Lab) -> None:
    theorems = experiment.theorems
    result: set[str] = set()
    if isinstance(theorems, Repositories | SorryDB):
        solve: Callable[..., Mapping[str, float]] = partial(solved_sorries, theorems, arm.rung, trial, lab)
    else:
        began = time.process_time()
        bench = _Bench(experiment, theorems, trial.seed, lab)
        finder = bench.finder(arm)
        spent = time.process_time() - began
        lab.once(trial, "models", lambda: {"processor_seconds": spent})
        tactics = lab.once(
            trial, "tactics", lambda: asyncio.run(bench.tactics(finder, experiment.budgets[-1]))
        )
        solve = partial(_within, tactics)
    for budget in experiment.budgets:
        figures = lab.once(trial, f"budget {budget}", partial(solve, budget, but_not=frozenset(result)))
        result |= {name for name, proved in figures.items() if proved}
        lab.say(f"  budget {budget}: {len(result)} of {len(figures)} proved")
    lab.finish(trial, [f"budget {budget}" for budget in experiment.budgets])


def _within(tactics: Mapping[str, float], budget: int, *, but_not: frozenset[str]) -> dict[str, float]:
    """Return the theorems proved by a budget: the search is the same for each, and ends at its proof."""
    return {name: float(0 < used <= budget) for name, used in tactics.items() if name not in but_not}


# ---- the library


class _Bench:
    """The library of an experiment, with the models of a seed, trained once."""

    def __init__(self, experiment: Proving, theorems: LibraryTheorems, seed: int, lab: Lab) -> None:
        self._seed, self._premises, self._practice = seed, experiment.shown, experiment.practice
        self._lab, self._folder = lab, lab.folder / "models" / f"library-{seed}"
        try:
            self._library = Library(toolchain())
        except UnavailableError as error:
            raise ExperimentError(str(error)) from error
        self._held_out = self._library.held_out[: theorems.held_out]
        self._lemmas = self._library.lemmas[: theorems.lemmas]
        project = lab.folder / "library"
        project.mkdir(parents=True, exist_ok=True)
        self._library.build(project)
        self._key = ReplKey(wheel.backend(), project, self._library.imports)

    async def tactics(self, finder: Finder | None, most: int) -> Mapping[str, float]:
        """Map each theorem to the number of tactics in its proof; 0 if none has at most `most`."""
        result = await self._search(self._held_out, finder, most)
        return {one.name: float(result[one.name][1]) for one in self._held_out}

    async def _search(
        self, theorems: Sequence[Theorem], finder: Finder | None, most: int
    ) -> dict[str, tuple[str, int]]:
        """Map each theorem to a proof accepted by Lean and its number of tactics; "" and 0 without one."""
        budget = Budget(nodes=most, seconds=SECONDS, tactic_timeout_s=60, calls=most)
        result = dict.fromkeys((theorem.name for theorem in theorems), ("", 0))
        left = iter(theorems)

        async def search(pool: ReplPool) -> None:
            async with Session(pool, self._key, Setup()) as session:
                for one in left:
                    result[one.name] = await self._proof(session, one, finder, budget)

        async with ReplPool(PoolLimits(processes=AT_ONCE)) as pool, asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(search(pool))
        return result

    async def _proof(
        self, session: Session, theorem: Theorem, finder: Finder | None, budget: Budget
    ) -> tuple[str, int]:
        (root,) = await session.distil(theorem.asked())
        shown = None if finder is None else _show(finder, theorem)
        proposer = CuratedTactics(core_only=True, shown=shown)
        if theorem.path != HELD_OUT:
            proposer.saw(Candidate(_FINDS_ITSELF, _FINDS_ITSELF), parsed=False)
        search = Search(session, SearchMethod(proposer, seed=self._seed), budget)
        effort = await search.run(root)
        if effort.script is None:
            return "", 0
        lines = effort.script.block()
        units = await session.process(theorem.asked(lines))
        refused = any(unit.errors or unit.uses_sorry for unit in units)
        return ("", 0) if refused else ("\n  ".join(lines), search.calls)

    def finder(self, arm: Prover) -> Finder | None:
        """Return this arm's premise finder."""
        match arm.premises:
            case "none":
                return None
            case "random":
                return _Drawn(self._corpus, self._premises, self._seed)
            case "bm25":
                return Finder(self._corpus, premises=self._premises)
            case "mepo":
                return _Symbols(self._corpus, premises=self._premises)
        match arm.learned:
            case "library":
                trained = self._train(self._dataset_of("library", self._lemmas), None, ())
            case "first commit":
                trained = self._first()
            case "own proofs":
                trained = self._after_commits()
        return self._trained_finder(trained, words=arm.premises == "fused")

    def _trained_finder(self, checkpoint: str, *, words: bool) -> Finder:
        retriever = load_retriever(self._chain.path(checkpoint), device="cpu")
        return Finder(self._corpus, premises=self._premises, retriever=retriever, words=words)

    def _first(self) -> str:
        return self._train(self._dataset_of("commit 0", self._of_commit(0)), None, ())

    def _after_commits(self) -> str:
        """Return the checkpoint after all commits, each searched, its proved lemmas learned."""
        checkpoint = self._first()
        tasks = [self._dataset_of("commit 0", self._of_commit(0))]
        for number in range(1, COMMITS):
            name = f"commit {number}"
            if not (self._folder / name).exists():
                # The lemmas `simp` uses by itself prove themselves.
                requests = [one for one in self._of_commit(number) if not one.by_simp]
                proofs = asyncio.run(
                    self._search(requests, self._trained_finder(checkpoint, words=True), self._practice)
                )
                proved = [request for request in requests if proofs[request.name][0]]
                self._lab.say(f"  {name}: {len(proved)} of {len(requests)} lemmas proved")
                self._dataset_of(name, proved, {one.name: proofs[one.name][0] for one in proved})
            task = TaskData(name, self._folder / name)
            if json.loads((task.dataset / "random" / "train.json").read_text(encoding="utf-8")):
                checkpoint = self._train(task, checkpoint, tasks)
                tasks.append(task)
        return checkpoint

    def _of_commit(self, number: int) -> list[Theorem]:
        return [lemma for lemma in self._lemmas if lemma.commit == number]

    @cached_property
    def _corpus(self) -> Corpus:
        folder = self._lab.folder / "corpus"
        if not folder.exists():
            self._write(folder, [])
        return Corpus(folder / "corpus.jsonl")

    @cached_property
    def _chain(self) -> Chain:
        return Chain(self._folder / "chain")

    def _dataset_of(
        self, name: str, lemmas: Sequence[Theorem], proofs: Mapping[str, str] | None = None
    ) -> TaskData:
        """Return the dataset of lemmas and their proofs, people's unless others are given; written once."""
        folder = self._folder / name
        if not folder.exists():
            goals = asyncio.run(self._goals(lemmas))
            texts = [(proofs or {}).get(lemma.name, lemma.proof) for lemma in lemmas]
            self._write(folder, list(zip(lemmas, goals, texts, strict=True)))
        return TaskData(name, folder)

    def _write(self, folder: Path, learned: Sequence[tuple[Theorem, str, str]]) -> None:
        beside = folder.with_name(f".{folder.name}")
        shutil.rmtree(beside, ignore_errors=True)
        self._library.write(beside, learned)
        beside.rename(folder)

    async def _goals(self, lemmas: Sequence[Theorem]) -> list[str]:
        async with (
            ReplPool(PoolLimits(processes=1)) as pool,
            Session(pool, self._key, Setup()) as session,
        ):
            return [state_of((await session.distil(lemma.asked()))[0].goals) for lemma in lemmas]

    def _train(self, task: TaskData, parent: str | None, earlier: Sequence[TaskData]) -> str:
        base = self._folder / "base"
        if not base.exists():
            make_tiny_retriever(base, d_model=48, layers=1, seed=self._seed, texts=self._library.texts())
        config = words_config(
            base,
            seed=self._seed,
            batch_size=16,
            max_epochs=8,
            max_seq_len=48,
            data_max_seq_len=48,
            schedule="constant",
            against_forgetting="ewc+replay+average",
        )
        return learn(task, self._chain, config, parent=parent, earlier=earlier).checkpoint


def _show(finder: Finder, theorem: Theorem) -> ShownPremises:
    async def find(state: str) -> tuple[Premise, ...]:
        return finder.find([(state, theorem.place)])[0]

    return ShownPremises(find, theorem.path)


class _Symbols(Finder):
    """MePo's ranking."""

    def rank(self, queries: Sequence[tuple[str, Place]], k: int) -> list[list[int]]:
        mepo = MePo(self.corpus)
        return [mepo.rank(query_text(state), self._allowed(place), k) for state, place in queries]


class _Drawn(Finder):
    """Premises drawn by the seed for a state."""

    def __init__(self, corpus: Corpus, premises: int, seed: int) -> None:
        super().__init__(corpus, premises=premises)
        self._seed = seed

    def rank(self, queries: Sequence[tuple[str, Place]], k: int) -> list[list[int]]:
        result = []
        for state, place in queries:
            allowed = self._allowed(place).nonzero()[0].tolist()
            result.append(random.Random(f"{self._seed}/{state}").sample(allowed, min(k, len(allowed))))
        return result


# ---- the result


_MEANING = """\
Share of theorems proved in percent; what a smaller budget proved counts for a larger one. Of a theorem its mean over
the arm's seeds is taken ({seeds}), and ± is a 95% interval over the theorems. *Against* an arm: the differences at the
largest budget, paired by theorem, "within" where their interval has zero in it. Budgets are {budgets}. Processor time
is this program's, without Lean's."""


def _result(experiment: Proving, results: Mapping[str, Sequence[TrialResult]]) -> Result:
    budgets = experiment.budgets
    shares = {
        name: [_percent_proved(each, budgets[: at + 1]) for at in range(len(budgets))]
        for name, each in results.items()
    }
    against = experiment.against or tuple(results)[:1]
    rows, lines = [], []
    for name, by_budget in shares.items():
        messages = [with_interval([*of.values()]) for of in by_budget]
        last = by_budget[-1]
        gains = [
            "" if name == other else gain([*last.values()], [shares[other][-1][one] for one in last])
            for other in against
        ]
        seconds = sum(trial.seconds for trial in results[name]) / len(results[name])
        rows.append((name, *messages, *gains, f"{seconds:.0f}"))
        lines.append(Series(name, tuple(statistics.fmean(of.values()) for of in by_budget)))
    unit = "s" if isinstance(experiment.theorems, Repositories | SorryDB) else "tactics"
    chart = line_chart(
        "experiment",
        "Theorems proved by budget",
        positions=[f"{budget} {unit}" for budget in budgets],
        lines=lines,
        unit="percent",
        highest=100.0,
    )
    head = (
        "",
        *(f"{budget} {unit}" for budget in budgets),
        *(f"against {name}" for name in against),
        "processor s a seed",
    )
    meaning = _MEANING.format(
        budgets="seconds for each sorry" if unit == "s" else "tactics that are sent to Lean for each theorem",
        seeds=", ".join(f"{name}: {len(each)}" for name, each in results.items()),
    )
    total = sum(trial.seconds for each in results.values() for trial in each)
    return Result(head, tuple(rows), chart, meaning, total)


def _percent_proved(each: Sequence[TrialResult], budgets: Sequence[int]) -> dict[str, float]:
    """Map each theorem to the percentage of seeds with a proof in one of these budgets."""
    by_seed = []
    for trial in each:
        proved: dict[str, float] = {}
        for budget in budgets:
            proved |= trial.figures[f"budget {budget}"]
        by_seed.append(proved)
    return {name: 100 * statistics.fmean(one[name] for one in by_seed) for name in by_seed[0]}

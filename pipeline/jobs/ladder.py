"""The ladder: the settings of each rung, combined with the models in use.

The plan, `everlean serve` at each request, a bump and LeanDojo's face all use this one.

Rung 1's model is the premise finder with the settings' generator, rung 2's the tactic model in use, and for rungs 3 to
5 the settings name it. For every rung the premise finder is the retriever in use, or BM25 if no retriever beats it, or
both; at rung 1 it is part of the model, elsewhere of the budget. At rungs 4 and 5 only the number of premises counts:
another retriever alone is not worth the money. The progress model in use orders the searches of rungs 1 and 2; attempts
are remembered without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.jobs.spec import Spec
from pipeline.jobs.specs import (
    WORDS,
    AnyRung,
    Budget,
    CuratedRung,
    EndpointRung,
    GeneratorRung,
    GeneratorSpec,
    LocalRung,
    ProgramRung,
    ProgressSpec,
    RetrievalRung,
    RetrieverSpec,
    Rung,
    WholeProofRung,
)
from store.documents import ladder


@dataclass(frozen=True, slots=True)
class WaitingRung:
    """A rung not yet ready, and the reason."""

    number: int
    reason: str


class Ladder(Spec):
    """The settings' ladder, without the models in use.

    Attributes:
        rungs: by number, in the order of use.
        budgets: of every number from 0 to 4, of the ladder or not.
        models: one folder for each model ("retriever", "tactics", "progress"), and there one for each checkpoint.
        indices: the folder of premises' embeddings.
        device: of a job's models.
        premises: of a goal; 0: rungs above and below 1 have no retriever.
        generator: of rung 1.
        tactics: of rung 2 without a tactic model in use; its path "": the rung waits for one.
        given: the id and the folder or hub name of rung 2's model, instead of the one in use.
        whole: rung 3.
        endpoint: rung 4.
        programs: rung 5, each of them in turn.
        memory_bytes, model_memory_bytes: of each process of a job, without and with a model in it.
        no_models: why no model can run here; "" if one can.
    """

    rungs: tuple[int, ...]
    budgets: tuple[Budget, ...]
    models: Path
    indices: Path
    device: str
    premises: int
    generator: GeneratorSpec
    tactics: GeneratorSpec
    given: tuple[str, str] | None = None
    whole: WholeProofRung
    endpoint: EndpointRung
    programs: tuple[ProgramRung, ...] = ()
    memory_bytes: int
    model_memory_bytes: int
    no_models: str = ""

    def only(self, rungs: Sequence[int], *, device: str | None = None) -> Ladder:
        """Return a ladder of the named rungs, in that order; with another device if given."""
        kept = tuple(number for number in rungs if number in self.rungs)
        return self.model_copy(update={"rungs": kept, "device": device or self.device})

    def climb(
        self, in_use: Mapping[str, str], *, traced: bool = True
    ) -> tuple[list[Rung], list[WaitingRung]]:
        """Return the ready and the waiting rungs, in the ladder's order.

        Args:
            in_use: the checkpoint in use of each model; for the retriever the premise finder
                (`store.promotion.ladder_models`).
            traced: the repository has a trace, the source of premises.
        """
        shows = self.premises > 0 and not self.no_models and traced
        shown = self.retriever(in_use.get("retriever", WORDS)) if shows else None
        rungs: list[Rung] = []
        waiting: list[WaitingRung] = []
        for number in self.rungs:
            if number == 5:
                rungs += (self._program(one, shown) for one in self.programs)
                continue
            result = self._rung(number, in_use, shown, traced=traced)
            rungs.append(result) if isinstance(result, Rung) else waiting.append(result)
        return rungs, waiting

    def described(self, in_use: Mapping[str, str]) -> tuple[ladder.Rung, ...]:
        """Return the ladder for readers."""
        rungs, waiting = self.climb(in_use)
        lines = [(one.number, one.model, one.budget.seconds, "") for one in rungs]
        lines += [(one.number, "", self.budgets[one.number].seconds, one.reason) for one in waiting]
        return tuple(
            ladder.Rung(number, kind.prover, model, seconds, kind.costs, waits)
            for number, model, seconds, waits in sorted(lines, key=lambda one: self.rungs.index(one[0]))
            for kind in (ladder.RUNGS[number],)
        )

    def _rung(
        self, number: int, in_use: Mapping[str, str], shown: RetrieverSpec | None, *, traced: bool
    ) -> Rung | WaitingRung:
        """Return one rung; `shown` is the premise finder of rungs that need none."""
        if number in (1, 2, 3) and self.no_models:
            return WaitingRung(number, self.no_models)
        match number:
            case 0:
                return self._climb(CuratedRung(retriever=_on_cpu(shown)), "")
            case 1 if not traced:
                return WaitingRung(1, "the repository has no trace yet, of which its premises would be")
            case 1:
                return self._retrieval(in_use)
            case 2:
                return self._tactics(in_use, shown)
            case 3:
                generator = self._here(self.whole.generator)
                whole = self.whole.model_copy(update={"generator": generator, "retriever": shown})
                return self._climb(whole, generator.path)
            case _:
                endpoint = self.endpoint.model_copy(update={"retriever": _on_cpu(shown)})
                return self._climb(endpoint, endpoint.endpoint.model)

    def retriever(self, checkpoint: str) -> RetrieverSpec:
        """Return a retriever with its premises' index and number."""
        return RetrieverSpec(
            chain=self.models / "retriever",
            checkpoint=checkpoint,
            indices=self.indices,
            device=self.device,
            premises=self.premises,
        )

    def _retrieval(self, in_use: Mapping[str, str]) -> Rung:
        retriever = self.retriever(in_use.get("retriever", WORDS))
        generator = self._here(self.generator)
        rung = RetrievalRung(generator=generator, retriever=retriever, progress=self._progress(in_use))
        return self._climb(rung, f"{retriever.checkpoint}+{generator.path}")

    def _tactics(self, in_use: Mapping[str, str], shown: RetrieverSpec | None) -> Rung | WaitingRung:
        named = self.tactics.path
        if self.given is not None:
            model, path = self.given
        elif "tactics" in in_use:
            model, path = in_use["tactics"], str(self.models / "tactics" / in_use["tactics"])
        elif named:
            model = path = named
        else:
            return WaitingRung(
                2, "no tactics model is in use yet, and [train.tactics] names no model_name to begin with"
            )
        generator = self._here(self.tactics.model_copy(update={"path": path}))
        rung = GeneratorRung(generator=generator, progress=self._progress(in_use), retriever=shown)
        return self._climb(rung, model)

    def _program(self, rung: ProgramRung, shown: RetrieverSpec | None) -> Rung:
        program = rung.program
        budget = replace(self.budgets[0], seconds=program.seconds)
        return self._climb(rung.model_copy(update={"retriever": _on_cpu(shown)}), program.name, budget)

    def _climb(self, rung: AnyRung, model: str, budget: Budget | None = None) -> Rung:
        budget = budget or self.budgets[rung.number]
        has_model = isinstance(rung, LocalRung) or (rung.retriever is not None and rung.retriever.trained)
        return Rung(
            spec=rung,
            model=model,
            budget=budget,
            budget_key=budget_key(rung, budget),
            memory_bytes=self.model_memory_bytes if has_model else self.memory_bytes,
        )

    def _here(self, generator: GeneratorSpec) -> GeneratorSpec:
        return generator.model_copy(update={"device": self.device})

    def _progress(self, in_use: Mapping[str, str]) -> ProgressSpec | None:
        if "progress" not in in_use:
            return None
        return ProgressSpec(path=str(self.models / "progress" / in_use["progress"]))


def _on_cpu(shown: RetrieverSpec | None) -> RetrieverSpec | None:
    """Return a retriever for rungs 0, 4 and 5 that needs no GPU: they look up a goal, or wait for others."""
    return None if shown is None else shown.model_copy(update={"device": "cpu"})


def budget_key(rung: AnyRung, budget: Budget) -> str:
    """Name a budget: a change of it lets sorries be attempted again."""
    time = f"{budget.seconds:g}s"
    search = f"{time}/{budget.nodes}n/{budget.tactic_timeout_s:g}s"
    match rung:
        case CuratedRung():
            key = search
        case RetrievalRung() | GeneratorRung():
            key = f"{search}/{rung.generator.candidates}xbeam"
        case WholeProofRung(whole=whole):
            # One proof alone is the likeliest one.
            heat = f"@{rung.generator.temperature:g}" if whole.proofs > 1 else ""
            key = f"{time}/{whole.proofs}x{1 + whole.repairs}{heat}/{whole.max_tokens}t"
            key += "" if whole.enable_thinking else "/unthinking"
        # A model of the same name at another address is a different one. Its sampling temperature is its own.
        case EndpointRung(endpoint=at, whole=whole) if whole is not None:
            key = f"{time}/{whole.proofs}x{1 + whole.repairs}/{whole.max_tokens}t/{at.base_url}"
        case EndpointRung(endpoint=at, tactics=tactics) if tactics is not None:
            drawn = f"{tactics.candidates}xendpoint@{tactics.temperature:g}/{tactics.max_tokens}t"
            key = f"{search}/{drawn}/{at.base_url}"
        # Another program has another name.
        case ProgramRung(program=program):
            key = f"{time}/1x{1 + program.repairs}"
    if rung.retriever is None:
        return key
    of = (
        ""
        if isinstance(rung, RetrievalRung | EndpointRung | ProgramRung)
        else f"@{rung.retriever.checkpoint}"
    )
    return f"{key}/{rung.retriever.premises}p{of}"

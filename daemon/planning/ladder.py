"""Make the ladder from the settings (`pipeline.jobs.ladder`), and with the models in use."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path

from daemon.settings import Settings
from daemon.settings.models import Program
from pipeline.jobs.ladder import Ladder
from pipeline.jobs.specs import (
    Budget,
    EndpointRung,
    EndpointSpec,
    EndpointTactics,
    GeneratorSpec,
    ProgramRung,
    ProgramSpec,
    Rung,
    WholeProofRung,
    WholeSpec,
)


def ladder_of(settings: Settings, *, no_models: str = "", tactics: tuple[str, str] | None = None) -> Ladder:
    """Return the settings' ladder.

    Args:
        no_models: why no model can run here; "" if one can.
        tactics: the id and the folder or hub name of rung 2's model; None: the one in use.
    """
    prove, paths, jobs = settings.prove, settings.paths, settings.jobs
    generator, whole = prove.generator, prove.whole
    own = jobs.limit("prove").memory_bytes

    def asks(path: str) -> GeneratorSpec:
        return GeneratorSpec(path=path, candidates=generator.candidates, temperature=generator.temperature)

    def writes(rung: int) -> WholeSpec:
        return WholeSpec(
            proofs=whole.proofs,
            repairs=whole.repairs,
            max_tokens=whole.tokens(rung),
            enable_thinking=whole.enable_thinking,
        )

    by_tactics = prove.external.mode == "tactics"
    return Ladder(
        rungs=prove.rungs,
        budgets=tuple(
            Budget(prove.nodes_per_sorry, prove.seconds(number), prove.tactic_timeout_s)
            for number in range(5)
        ),
        models=paths.models,
        indices=paths.embeddings / "retriever",
        device=generator.device,
        premises=generator.premises,
        generator=asks(generator.model),
        tactics=asks(settings.train.of("tactics").named),
        given=tactics,
        whole=WholeProofRung(generator=asks(whole.model), whole=writes(3)),
        endpoint=EndpointRung(
            endpoint=_endpoint(settings),
            whole=None if by_tactics else writes(4),
            # They are sampled: an endpoint has no beam search.
            tactics=EndpointTactics(
                candidates=generator.candidates,
                temperature=generator.temperature,
                max_tokens=whole.tokens(4),
            )
            if by_tactics
            else None,
        ),
        programs=tuple(_program(program, settings) for program in prove.programs),
        memory_bytes=own or jobs.memory_bytes,
        model_memory_bytes=own or prove.memory_bytes,
        no_models=no_models,
    )


def _endpoint(settings: Settings) -> EndpointSpec:
    external = settings.prove.external
    return EndpointSpec(
        base_url=external.base_url,
        model=external.model,
        credential=external.credential,
        key_variable=external.key.variable,
        timeout_s=external.timeout_s,
        ledger=spending(settings),
        answers=settings.paths.answers,
        cap_usd=None if external.free else external.usd_per_day,
        usd_per_million_prompt=external.usd_per_million_prompt,
        usd_per_million_completion=external.usd_per_million_completion,
    )


def _program(program: Program, settings: Settings) -> ProgramRung:
    return ProgramRung(
        program=ProgramSpec(
            name=program.name,
            run=program.run,
            seconds=program.seconds,
            readable=tuple(map(Path, program.readable)),
            network=program.network,
            repairs=program.repairs,
            key=program.key,
            key_variable=program.variable,
            ledger=spending(settings),
            cap_usd=program.usd_per_day,
            usd_per_run=program.usd_per_run or 0.0,
        )
    )


def spending(settings: Settings) -> Path:
    """Return the ledger of rungs 4 and 5."""
    return settings.paths.state / "spending.jsonl"


class Climbed:
    """The ladder with the models in use, climbed once for all repositories."""

    def __init__(self, ladder: Ladder, in_use: Mapping[str, str]) -> None:
        self._ladder = ladder
        self._in_use = in_use
        self._rungs: dict[bool, list[Rung]] = {}

    def rungs(self, *, traced: bool) -> list[Rung]:
        """Return the rungs available in a repository with or without a trace."""
        if traced not in self._rungs:
            self._rungs[traced], _ = self._ladder.climb(self._in_use, traced=traced)
        return self._rungs[traced]

    def only(self, rungs: Container[int], *, device: str, traced: bool) -> list[Rung]:
        """Return the available ones of these rungs, with the models on another device."""
        targets = [number for number in self._ladder.rungs if number in rungs]
        result, _ = self._ladder.only(targets, device=device).climb(self._in_use, traced=traced)
        return result

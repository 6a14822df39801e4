"""The rungs of the ladder as they can be climbed now: each with its prover, its model, its budget and its parameters.

The model of rung 1 is the retriever in use together with the generator of the settings, of rung 2 the tactic model in
use, of rungs 3 and 4 what the settings name. As long as no tactic model is in use, rung 2 takes the one that
`[train.tactics] model_name` names in the file, and waits where it names none. What learned from the simulator is used
where the simulator judges, and nowhere else; what learned from Lean is used in both places, for it cannot make anything
true. The progress model in use orders the searches of rungs 1 and 2; it is no part of what an attempt is remembered by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from daemon.settings import Settings
from daemon.settings.models import RUNGS, Prove
from pipeline.external.credentials import KeyPlace
from pipeline.lean.backend import LeanBackend


class InUse(Protocol):
    """A checkpoint in use, such as a `CheckpointRow`; `simulated`: it learned from the simulator."""

    @property
    def model(self) -> str: ...

    @property
    def checkpoint(self) -> str: ...

    @property
    def simulated(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung that can be climbed. What was tried with another `model` or `budget` is tried again.

    `local`: a model runs in the job. `gpu`: on the GPU, where there is one. `capped`: there is a limit to what it may
    spend in a day. `key`: where the key is that the job has to know and nobody else.
    """

    number: int
    model: str
    budget: str
    parameters: Mapping[str, Any] = field(repr=False)
    seconds_per_sorry: float
    local: bool = False
    gpu: bool = False
    capped: bool = False
    key: KeyPlace | None = None

    @property
    def prover(self) -> str:
        return RUNGS[self.number]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A rung of the settings that cannot be climbed yet, and why."""

    number: int
    reason: str

    def __str__(self) -> str:
        return f"rung {self.number} ({RUNGS[self.number]}) waits: {self.reason}"


class Ladder:
    """The settings' ladder with the checkpoints in use.

    Args:
        no_models: why no model can run here; "" where one can.
        tactics: the id and the folder or hub name of the model that rung 2 asks; None: the one in use.
    """

    def __init__(
        self,
        settings: Settings,
        in_use: Sequence[InUse],
        *,
        no_models: str,
        tactics: tuple[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._prove = settings.prove
        self._in_use = {row.model: row for row in in_use}
        self._no_models = no_models
        self._given = tactics

    def rungs(self, lean: LeanBackend) -> list[Rung]:
        """Return what can be climbed with this Lean, in the order of the settings."""
        found = (self._rung(number, lean) for number in self._prove.rungs)
        return [rung for rung in found if isinstance(rung, Rung)]

    def waiting(self, lean: LeanBackend) -> list[Waiting]:
        """Return what cannot."""
        found = (self._rung(number, lean) for number in self._prove.rungs)
        return [rung for rung in found if isinstance(rung, Waiting)]

    def _rung(self, number: int, lean: LeanBackend) -> Rung | Waiting:
        if number in (1, 2, 3) and self._no_models:
            return Waiting(number, self._no_models)
        match number:
            case 0:
                return self._climb(0, "", lean, {})
            case 1:
                return self._retrieval(lean)
            case 2:
                return self._tactics(lean)
            case 3:
                name = self._prove.whole.model
                return self._climb(
                    3, name, lean, {"generator": self._generator(name), "whole": self._whole()}
                )
            case _:
                return self._external(lean)

    def _retrieval(self, lean: LeanBackend) -> Rung | Waiting:
        retriever = self._usable("retriever", lean)
        if retriever is None:
            return Waiting(1, self._none_in_use("retriever", lean))
        paths, name = self._settings.paths, self._prove.generator.model
        parameters = {
            "generator": self._generator(name),
            "retriever": {
                "chain": str(paths.models / "retriever"),
                "checkpoint": retriever.checkpoint,
                "indices": str(paths.embeddings / "retriever"),
                "premises": self._prove.generator.premises,
                "events_db": str(paths.events_db),
                "database_db": str(paths.database_db),
            },
            **self._progress(lean),
        }
        return self._climb(1, f"{retriever.checkpoint}+{name}", lean, parameters)

    def _tactics(self, lean: LeanBackend) -> Rung | Waiting:
        if self._given is not None:
            model, path = self._given
            return self._climb(2, model, lean, {"generator": self._generator(path), **self._progress(lean)})
        tactics, named = self._usable("tactics", lean), self._settings.train.of("tactics").named
        if tactics is None and not named:
            reason = self._none_in_use("tactics", lean)
            return Waiting(2, f"{reason}, and [train.tactics] names no model_name to begin with")
        path = named if tactics is None else str(self._settings.paths.models / "tactics" / tactics.checkpoint)
        model = named if tactics is None else tactics.checkpoint
        return self._climb(2, model, lean, {"generator": self._generator(path), **self._progress(lean)})

    def _external(self, lean: LeanBackend) -> Rung:
        external = self._prove.external
        parameters = {
            "whole": self._whole(),
            "external": {
                "base_url": external.base_url,
                "model": external.model,
                "credential": external.credential,
                "key_variable": external.key_variable,
                "timeout_s": external.timeout_s,
                "retries": external.retries,
                "ledger": str(spending(self._settings)),
                "cap_usd": None if external.free else external.usd_per_day,
                "usd_per_million_prompt": external.usd_per_million_prompt,
                "usd_per_million_completion": external.usd_per_million_completion,
                **self._asked_for(external.mode),
            },
        }
        key = KeyPlace(external.credential, external.key_variable)
        return self._climb(4, external.model, lean, parameters, key=key)

    def _asked_for(self, mode: str) -> dict[str, Any]:
        """Return what an endpoint is asked for. Tactics are drawn: an endpoint knows no beams."""
        if mode == "whole":
            return {"mode": mode}
        generator = self._prove.generator
        return {
            "mode": mode,
            "candidates": generator.candidates,
            "temperature": generator.temperature,
            "max_tokens": self._prove.whole.max_tokens,
        }

    def _climb(
        self,
        number: int,
        model: str,
        lean: LeanBackend,
        parameters: Mapping[str, Any],
        *,
        key: KeyPlace | None = None,
    ) -> Rung:
        local = "generator" in parameters
        return Rung(
            number,
            model,
            budget_key(self._prove, lean=lean, rung=number),
            parameters,
            self._prove.seconds(number),
            local=local,
            gpu=local and self._prove.generator.device != "cpu",
            capped=number == 4 and not self._prove.external.free,
            key=key,
        )

    def _generator(self, path: str) -> dict[str, Any]:
        generator = self._prove.generator
        return {
            "path": path,
            "device": generator.device,
            "candidates": generator.candidates,
            "decoding": generator.decoding,
            "temperature": generator.temperature,
        }

    def _whole(self) -> dict[str, Any]:
        whole = self._prove.whole
        return {"proofs": whole.proofs, "repairs": whole.repairs, "max_tokens": whole.max_tokens}

    def _progress(self, lean: LeanBackend) -> dict[str, Any]:
        progress, weight = self._usable("progress", lean), self._prove.generator.progress_weight
        if progress is None or not weight:
            return {}
        path = self._settings.paths.models / "progress" / progress.checkpoint
        return {"progress": {"path": str(path), "weight": weight}}

    def _usable(self, model: str, lean: LeanBackend) -> InUse | None:
        row = self._in_use.get(model)
        return None if row is None or (row.simulated and not lean.simulated) else row

    def _none_in_use(self, model: str, lean: LeanBackend) -> str:
        if model in self._in_use:
            return f"the {model} model in use learned from the simulator, and {lean.kind} judges here"
        return f"no {model} model is in use yet"


def budget_key(prove: Prove, *, lean: LeanBackend, rung: int = 0) -> str:
    """Name a budget: with another one, or another judge, a sorry is attempted again."""
    generator, whole, external = prove.generator, prove.whole, prove.external
    calls = "" if prove.calls_per_sorry is None else f"/{prove.calls_per_sorry}c"
    time, judge = f"{prove.seconds(rung):g}s", lean.kind
    search = f"{time}/{prove.nodes_per_sorry}n{calls}/{prove.tactic_timeout_s:g}s/{judge}"
    # A model of the same name at another address is another one.
    asked = f"{whole.max_tokens}t" if rung == 3 else f"{whole.max_tokens}t/{external.base_url}"
    match rung:
        case 1 | 2:
            heat = f"@{generator.temperature:g}" if generator.decoding == "sample" else ""
            premises = f"/{generator.premises}p" if rung == 1 else ""
            return f"{search}/{generator.candidates}x{generator.decoding}{heat}{premises}"
        case 4 if external.mode == "tactics":
            return f"{search}/{generator.candidates}xendpoint@{generator.temperature:g}/{asked}"
        case 3 | 4:
            # One proof alone is the likeliest one; an endpoint draws at a temperature of its own.
            heat = f"@{generator.temperature:g}" if rung == 3 and whole.proofs > 1 else ""
            return f"{time}/{judge}/{whole.proofs}x{1 + whole.repairs}{heat}/{asked}"
        case _:
            return search


def spending(settings: Settings) -> Path:
    """Return the file in which the jobs of rung 4 write what they spent."""
    return settings.paths.state / "spending.jsonl"

"""Choose the checkpoint in use: by the promotion rule, by hand, or by a rollback.

The rule is `store.promotion`'s. Between reading and writing the model's stream is watched, so of two
simultaneous decisions the second one builds on the first. Nothing is put in use without its weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import structlog

from daemon.planning.training import datasets_needed
from daemon.state.store_service import StoreService
from pipeline.jobs.kinds import KINDS, TRAININGS
from pipeline.models.chain import Chain
from pipeline.models.datasets import keep_datasets
from pipeline.models.model_files import files_in, weights_of
from store import promotion
from store.errors import ConcurrencyError
from store.events.base import EventBody
from store.events.models import (
    CheckpointPromoted,
    CheckpointRefused,
    CheckpointRemoved,
    ModelKind,
    ModelOffered,
)
from store.log.envelope import NewEvent
from store.log.reader import LogReader
from store.log.upcast import read_body
from store.view import model_queries, queries, trace_queries
from store.view.rows import CheckpointRow

log = structlog.get_logger("daemon.results.models")

Actor = Literal["control", "daemon"]


class ModelStateError(Exception):
    """A command does not fit the state of the model; the message gives the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class _State:
    """The state of a model. A decision on it holds only while its stream has this `version`."""

    version: int
    known: dict[str, CheckpointRow]

    @property
    def in_use(self) -> CheckpointRow | None:
        return next((row for row in self.known.values() if row.promoted), None)


class Models:
    """Commands on the trained models of one daemon.

    `chain_root` has a folder for each model, with one for each checkpoint. `tolerance` gives a model's
    allowed fall on a task, in the unit of its rule.
    """

    def __init__(
        self, store: StoreService, *, chain_root: Path, tolerance: Callable[[ModelKind], float]
    ) -> None:
        self._store = store
        self._chain_root = chain_root
        self._tolerance = tolerance

    async def settle(self) -> tuple[EventBody, ...]:
        """Promote or refuse, by the rule, every undecided checkpoint of a successful job.

        The oldest first, each after the decision before it. Returns the recorded events. If another decision
        was faster, the rest of that model waits for the next call.
        """
        recorded: list[EventBody] = []
        passed: set[str] = set()
        for link in await self._store.ask(model_queries.undecided):
            if link.model in passed:
                continue
            try:
                body = await self._settle(link.model, link.checkpoint)
            except ConcurrencyError as error:
                passed.add(link.model)
                log.info("settled_later", model=link.model, checkpoint=link.checkpoint, reason=str(error))
            else:
                if body is not None:
                    recorded.append(body)
        return tuple(recorded)

    async def offer(self, body: ModelOffered) -> ModelOffered:
        """Record a user's model; the plan measures it, and then the rule decides.

        Raises:
            KeyError: the repository has no trace to measure on.
        """
        if await self._store.ask(partial(trace_queries.newest_trace, repository=body.repository)) is None:
            raise KeyError(body.repository)
        await self._store.append([NewEvent(_stream(body.model), body, actor="control")])
        return body

    async def remove_unneeded(self, *, keep: int, embeddings: Path) -> tuple[CheckpointRemoved, ...]:
        """Remove the files of unneeded checkpoints (`promotion.needed`), datasets and runs.

        The event comes first: the next call removes a crash's remains. While a model is trained nothing of it
        is removed: the training may make removed files anew. Returns the recorded events.

        Args:
            keep: the number of last checkpoints in use that stay.
            embeddings: has a folder of indices for each model.

        Raises:
            OSError: files cannot be removed.
        """
        recorded = []
        for model in get_args(ModelKind):
            kinds = [kind for kind in TRAININGS if KINDS[kind].model == model]
            if any(
                [await self._store.ask(partial(queries.jobs, state="running", kind=kind)) for kind in kinds]
            ):
                continue
            chain = Chain(self._chain_root / model)
            datasets, unfinished = await self._store.ask(partial(datasets_needed, model=model))
            await asyncio.to_thread(keep_datasets, chain.folder, datasets)
            if not unfinished:
                await asyncio.to_thread(chain.drop_runs)
            state = await self._state(model)
            if not state.known:
                continue
            promoted = await self._store.look_up(partial(_promotions, model=model))
            rows = list(state.known.values())
            measured = await self._store.ask(partial(model_queries.once_in_use, model=model))
            stay = promotion.needed(rows, promoted, measured, keep=keep)
            gone = [row for row in rows if row.removed_at is not None]
            for row in rows:
                if row.checkpoint in stay or row.removed_at is not None:
                    continue
                body = CheckpointRemoved(
                    model=promotion.kind_of(model),
                    checkpoint=row.checkpoint,
                    reason=f"by [train] keep = {keep}: it is among neither the last in use nor the best of a task",
                    size_bytes=row.size_bytes,
                )
                try:
                    await self._record(body, state, actor="daemon")
                except ConcurrencyError as error:
                    log.info("removed_later", model=model, checkpoint=row.checkpoint, reason=str(error))
                    break
                state = replace(state, version=state.version + 1)
                recorded.append(body)
                gone.append(row)
            for row in gone:
                await asyncio.to_thread(chain.remove, row.checkpoint, embeddings / model)
        return tuple(recorded)

    async def promote(self, checkpoint: str, *, force: bool = False) -> CheckpointPromoted:
        """Put a checkpoint in use, if the rule allows it or, with `force`, whatever the rule.

        Raises:
            KeyError: no such checkpoint.
            ModelStateError: it is in use already, its weights are missing, the rule refuses it, or another
                decision was faster.
        """
        rows = await self._store.ask(model_queries.checkpoints)
        state = await self._state({row.checkpoint: row.model for row in rows}[checkpoint])
        row = state.known[checkpoint]
        if row.promoted:
            raise ModelStateError(f"{checkpoint}: is in use already, since {row.promoted_at}")
        await self._check_weights(row)
        decision = await self._decide(row, state.in_use)
        if not (decision.may_be_promoted or force):
            raise ModelStateError(
                f"{checkpoint}: not promoted: {decision.reason}; {_by_hand(row)} promotes it all the same"
            )
        text = decision.reason if decision.may_be_promoted else f"forced, although {decision.reason}"
        return await self._put_in_use_by_hand(row, state, reason=text)

    async def roll_back(self, model: str) -> CheckpointPromoted:
        """Put the checkpoint in use from before the present one.

        Raises:
            KeyError: no model has this name.
            ModelStateError: there is none before, its weights are missing, or another decision was faster.
        """
        if model not in get_args(ModelKind):
            raise KeyError(model)
        state = await self._state(model)
        in_use = state.in_use
        if in_use is None:
            raise ModelStateError(
                f"{model}: no checkpoint is in use; `everlean models promote ID{_flag(model)}` promotes one"
            )
        promoted = await self._store.look_up(partial(_promotions, model=model))
        # As in the view: a promotion of a checkpoint never saved changed nothing.
        before = promotion.before_last([checkpoint for checkpoint in promoted if checkpoint in state.known])
        if before is None:
            raise ModelStateError(
                f"{model}: nothing to roll back to: no other checkpoint was in use before {in_use.checkpoint};"
                f" `everlean models promote ID{_flag(model)}` promotes one"
            )
        row = state.known[before]
        await self._check_weights(row)
        return await self._put_in_use_by_hand(row, state, reason=f"rolled back from {in_use.checkpoint}")

    async def _settle(self, model: str, checkpoint: str) -> CheckpointPromoted | CheckpointRefused | None:
        """Decide on one checkpoint; None if it was decided meanwhile.

        Raises:
            ConcurrencyError: the model's stream changed during the decision.
        """
        state = await self._state(model)
        row = state.known[checkpoint]
        if row.promoted_at is not None or row.refused_at is not None:
            return None
        against = await asyncio.to_thread(self._weights_problem, row) or _off_the_chain(row, state.in_use)
        if not against:
            decision = await self._decide(row, state.in_use)
            if decision.may_be_promoted:
                return await self._put_in_use(
                    row, state, reason=f"by the rule: {decision.reason}", actor="daemon"
                )
            against = decision.reason
        body = CheckpointRefused.model_validate(
            {
                "model": row.model,
                "checkpoint": row.checkpoint,
                "in_use": None if state.in_use is None else state.in_use.checkpoint,
                "reason": against,
            }
        )
        await self._record(body, state, actor="daemon")
        return body

    async def _state(self, model: str) -> _State:
        version = await self._store.look_up(partial(LogReader.stream_version, stream=_stream(model)))
        # An append is in the log before it is in the view. This waits for the one under way, so the view has
        # every event counted in the version.
        await self._store.check()
        rows = await self._store.ask(partial(model_queries.checkpoints, model=model))
        return _State(version, {row.checkpoint: row for row in rows})

    async def _decide(self, row: CheckpointRow, in_use: CheckpointRow | None) -> promotion.Decision:
        model = promotion.kind_of(row.model)
        sides = await self._store.ask(partial(promotion.read_sides, candidate=row, in_use=in_use))

        def decide(log_reader: LogReader) -> promotion.Decision:
            return promotion.decide(
                *sides,
                rule=promotion.RULES[model],
                tolerance=self._tolerance(model),
                read_blob=log_reader.blob,
            )

        return await self._store.look_up(decide)

    async def _check_weights(self, row: CheckpointRow) -> None:
        problem = await asyncio.to_thread(self._weights_problem, row)
        if problem:
            raise ModelStateError(f"{row.checkpoint}: not put in use: {problem}")

    def _weights_problem(self, row: CheckpointRow) -> str:
        """Return why a checkpoint cannot be used, whatever the rule; empty without a problem."""
        if row.removed_at is not None:
            return (
                f"its files were removed at {row.removed_at} {row.removed_reason}; train the repository again"
            )
        folder = self._chain_root / row.model / row.checkpoint
        try:
            names = weights_of(files_in(folder)) or ("model.safetensors",)
            size = sum((folder / name).stat().st_size for name in names)
        except OSError as error:
            problem = f"its weights, {error.filename}, cannot be read ({error.strerror})"
        else:
            if size == row.size_bytes:
                return ""
            problem = (
                f"its weights, {folder / names[0]}, have {size} bytes and were saved with {row.size_bytes}"
            )
        return f"{problem}; restore {folder} from a backup, then {_by_hand(row, force=False)} promotes it"

    async def _put_in_use_by_hand(
        self, row: CheckpointRow, state: _State, *, reason: str
    ) -> CheckpointPromoted:
        try:
            return await self._put_in_use(row, state, reason=f"by hand: {reason}", actor="control")
        except ConcurrencyError as error:
            raise ModelStateError(
                f"{row.model}: changed while this was decided; look at `everlean models` and ask again"
            ) from error

    async def _put_in_use(
        self, row: CheckpointRow, state: _State, *, reason: str, actor: Actor
    ) -> CheckpointPromoted:
        body = CheckpointPromoted.model_validate(
            {
                "model": row.model,
                "checkpoint": row.checkpoint,
                "previous": None if state.in_use is None else state.in_use.checkpoint,
                "reason": reason,
            }
        )
        await self._record(body, state, actor=actor)
        return body

    async def _record(
        self, body: CheckpointPromoted | CheckpointRefused | CheckpointRemoved, state: _State, *, actor: Actor
    ) -> None:
        stream = _stream(body.model)
        await self._store.append([NewEvent(stream, body, actor=actor)], expect={stream: state.version})


def _off_the_chain(row: CheckpointRow, in_use: CheckpointRow | None) -> str:
    """Return why a checkpoint does not follow the one in use; empty if it does."""
    if in_use is None or row.parent == in_use.checkpoint:
        return ""
    return (
        f"it was trained from {row.parent or row.base}, and {in_use.checkpoint} is in use; "
        f"{_by_hand(row, force=False)} puts it in use, if the rule lets it"
    )


def _by_hand(row: CheckpointRow, *, force: bool = True) -> str:
    return f"`everlean models promote {row.checkpoint}{_flag(row.model)}{' --force' if force else ''}`"


def _flag(model: str) -> str:
    return "" if model == "retriever" else f" --model {model}"


def _stream(model: str) -> str:
    return f"model:{model}"


def _promotions(log_reader: LogReader, model: str) -> list[str]:
    """Return the promoted checkpoints of one model, oldest first."""
    bodies = (read_body(event) for event in log_reader.read(types=(CheckpointPromoted.type,)))
    return [
        body.checkpoint for body in bodies if isinstance(body, CheckpointPromoted) and body.model == model
    ]

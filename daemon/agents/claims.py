"""Agents' requests: claim a sorry for a limited time, and submit a proof to the gate.

A claim is an event and ends by the clock, so it outlives the daemon, and its agent need not end it. It covers
the sorry's declaration, since work on one of its sorries is work on all. The claim's id identifies the agent:
the daemon knows users, and several agents may be one. The plan leaves claimed sorries alone
(`daemon.planning.proving`).

Each user has limits: of claims, of proofs waiting for their check, and of events a minute. A request over a
limit is refused, with the time to try again. A renewal writes an event only in the second half of the lease,
so an agent that renews in a loop does not fill the log.

A submitted proof is recorded like a search's, and judged by the same job. The daemon decides its place: the
bytes of the sorry, in the newest scanned version of the file.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from daemon.jobs.runner import JobRunner
from daemon.planning.proving import exercises
from daemon.scheduling.scheduler import Scheduler, WorkStateError
from daemon.settings import Repo
from daemon.state.clock import Allowance, elapsed_s
from daemon.state.context import Context
from daemon.state.store_service import StoreService
from pipeline.jobs.mirror import Mirror
from pipeline.jobs.protocol import JobError
from pipeline.lean.source.splice import Replacement, join_submitted, text_hash_with
from pipeline.lean.source.worktree import MOST_SOURCE_BYTES
from store.documents.by_design import by_design
from store.domain.identity import event_id, proof_id, slug
from store.events.projects import project_of, worked_on
from store.events.proofs import (
    AGENT,
    AGENT_RUNG,
    AttemptFinished,
    ClaimReleased,
    ProofFound,
    SorryClaimed,
)
from store.log.envelope import NewEvent, now_text
from store.view import queries
from store.view.rows import BranchRow, ClaimRow, SorryRow

LONGEST_S = 4 * 3600.0
"""A lease is renewed before it ends; a longer one would keep a sorry from everybody after its agent's
death."""
SHORTEST_S = 1.0
MOST_CLAIMS = 50
"""Claims of one user at a time: nobody else can work on a claimed sorry."""
MOST_PENDING = 100
"""Proofs of one user waiting for their check."""
MOST_A_MINUTE = 60
"""Events of one user in a minute: the log keeps every event for good."""
_STREAM = "work"

log = structlog.get_logger("daemon.agents.claims")


@dataclass(frozen=True, slots=True)
class Claims:
    """Gives sorries to agents, for one daemon."""

    store: StoreService
    runner: JobRunner
    work: Scheduler
    context: Context
    elapsed: Callable[[], float] = elapsed_s
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _allowances: dict[str, Allowance] = field(default_factory=dict)
    _submitted: dict[str, set[str]] = field(default_factory=dict)

    async def claim(
        self, sorry: str, *, agent: str, by: str, seconds: float, claim: str | None = None
    ) -> SorryClaimed:
        """Give an open sorry to an agent, or renew its claim; return the recorded event.

        A claim with at least half of its time left stays as it is.

        Args:
            sorry: its whole id.
            by: the asking user.
            seconds: of the lease, from now.
            claim: the one to renew; None: a new one.

        Raises:
            KeyError: no such sorry.
            WorkStateError: it cannot be claimed; the message has the reason, and the other agent.
        """
        # While jobs begin, and while another agent asks, a sorry does not change hands.
        async with self._turn, self.work.beginning:
            rows, _, standing = await self.store.ask(partial(_about, sorry=sorry))
            if not rows:
                raise KeyError(sorry)
            row, repo = await self._open(rows)
            _refuse_others(row, standing, claim, agent=agent)
            job = self.runner.proving(repo.key, row.declaration)
            if job is not None:
                raise WorkStateError(
                    f"{row.declaration}: the daemon's job {job} works on it; take another sorry, or ask again later"
                )
            lease = next((one for one in standing if one.claim == claim), None)
            if lease is not None and _rest_s(lease) >= seconds / 2:
                return SorryClaimed(
                    repository=repo.key, sorry=sorry, claim=lease.claim, agent=lease.agent, by=lease.by,
                    until=datetime.fromisoformat(lease.until),
                )  # fmt: skip
            if lease is None:
                await self._check_claims(by)
            self._count(by, 1)
            body = SorryClaimed(
                repository=repo.key,
                sorry=sorry,
                claim=claim or secrets.token_hex(8),
                agent=agent,
                by=by,
                until=datetime.now(UTC) + timedelta(seconds=seconds),
            )
            await self.store.append([NewEvent(_STREAM, body, actor=f"user:{by}")])
        log.info("sorry_claimed", sorry=sorry, agent=agent, by=by, until=body.until.isoformat())
        return body

    async def release(self, claim: str, *, by: str) -> ClaimReleased:
        """End a claim before its time; return the recorded event.

        Raises:
            KeyError: no such claim stands.
        """
        async with self._turn:
            standing = await self.store.ask(partial(queries.claims, now=now_text()))
            lease = {one.claim: one for one in standing}[claim]
            self._count(by, 1)
            body = ClaimReleased(repository=lease.repository, sorry=lease.sorry, claim=claim, by=by)
            await self.store.append([NewEvent(_STREAM, body, actor=f"user:{by}")])
        log.info("claim_released", sorry=lease.sorry, agent=lease.agent, by=by)
        return body

    async def submit(
        self, proofs: Mapping[str, str], *, agent: str, by: str, claim: str | None = None
    ) -> list[ProofFound]:
        """Record an agent's proofs of a declaration's open sorries for the gate; return an event for each.

        Several are one text, judged once. A repeated proof for the same version of the file is recorded once.

        Args:
            proofs: the replacement of each sorry's word, byte for byte, by the sorry's whole id.
            claim: the agent's claim on one of them; None: it has none.

        Raises:
            JoinError: they are too many, or too large together.
            KeyError: no such sorry.
            WorkStateError: one is not open, another agent's or another declaration's, or nothing here could
                judge it.
        """
        async with self._turn:
            first, *others = proofs
            rows, beside, standing = await self.store.ask(partial(_about, sorry=first))
            if not rows:
                raise KeyError(first)
            row, repo = await self._open(rows)
            rows_to_fill = [row, *(_of_the_same(row, other, beside) for other in others)]
            _refuse_others(row, standing, claim, agent=agent, taken=proofs)
            result = await self._proof_events(rows_to_fill, repo, proofs)
            events = []
            new = [
                one
                for one in result
                if not await self.store.ask(partial(queries.proofs_by_prefix, prefix=one.proof))
            ]
            pending = await self._check_pending(by, len(new))
            self._count(by, 2 * len(new))
            for body in new:
                attempt = _attempt(body, agent, beside=len(others))
                events += [
                    NewEvent(stream, one, event_id=event_id(one.type, AGENT, body.proof), actor=f"user:{by}")
                    for stream, one in ((f"proof:{body.proof}", body), (f"repository:{repo.key}", attempt))
                ]
            if events:
                await self.store.append(events)
                self._submitted[by] = pending | {one.proof for one in new}
        for body in result:
            log.info("proof_submitted", sorry=body.sorry, proof=body.proof, agent=agent, by=by)
        return result

    async def _check_claims(self, by: str) -> None:
        """Refuse another claim to a user at the limit.

        Raises:
            WorkStateError: with the end of the first claim.
        """
        standing = await self.store.ask(partial(queries.claims, now=now_text()))
        until = sorted(one.until for one in standing if one.by == by)
        if len(until) >= MOST_CLAIMS:
            raise WorkStateError(
                f"{by} has {len(until)} claims, the most that a user may have; release one, or try again at {until[0]},"
                " when the first of them ends"
            )

    async def _check_pending(self, by: str, more: int) -> set[str]:
        """Return the proofs of a user waiting for their check.

        Raises:
            WorkStateError: `more` of them are too many.
        """
        mine = self._submitted.get(by, set())
        waiting = {row.proof for row in await self.store.ask(queries.proofs_to_check)} if mine else set()
        pending = mine & waiting
        if more and len(pending) + more > MOST_PENDING:
            raise WorkStateError(
                f"{by} has {len(pending)} proofs that wait for their check, and a user may have {MOST_PENDING}; try"
                " again in a minute, when some of them are judged"
            )
        return pending

    def _count(self, by: str, events: int) -> None:
        """Count events towards the limit of a user for a minute.

        Raises:
            WorkStateError: they exceed it.
        """
        allowance = self._allowances.setdefault(by, Allowance(MOST_A_MINUTE, elapsed=self.elapsed))
        if not allowance.take(events):
            raise WorkStateError(
                f"{by} has had {MOST_A_MINUTE} events within a minute, the most that a user may have; try again in"
                f" {math.ceil(allowance.wait_s(events))} s"
            )

    async def _proof_events(
        self, rows: Sequence[SorryRow], repo: Repo, proofs: Mapping[str, str]
    ) -> list[ProofFound]:
        row = rows[0]
        branches = await self.store.ask(partial(queries.branches, repository=repo.key))
        branch = next(one for one in branches if one.branch == row.branch)
        project = project_of(row.path, branch.lake_projects)
        if project is None or project not in worked_on(branch.lake_projects, repo.projects):
            raise WorkStateError(
                f"{row.repository}: {row.path} is in no Lake project that is worked on, so no proof is judged there;"
                " `everlean repos` names the projects, and [[repos]] projects chooses them"
            )
        lean = self.work.leans.for_toolchain(project.toolchain)
        if lean.kind == "none":
            raise WorkStateError(f"{row.repository}: no Lean here can judge it: {lean.detail}")
        data = await asyncio.to_thread(self._file, row)
        text = join_submitted(
            data, [Replacement(one.byte_start, one.byte_end, proofs[one.sorry]) for one in rows]
        )
        text_hash = await asyncio.to_thread(text_hash_with, data, row.path, text)
        return [
            ProofFound(
                proof=proof_id(one.sorry, one.blob, text.text, text.parts),
                sorry=one.sorry,
                repository=one.repository,
                branch=one.branch,
                sha=_scanned(branch),
                path=one.path,
                blob=one.blob,
                byte_start=text.byte_start,
                byte_end=text.byte_end,
                declaration=one.declaration,
                declaration_text_hash=text_hash,
                replacement=text.text,
                parts=text.parts,
                tactics=(),
                prover=AGENT,
                rung=AGENT_RUNG,
                toolchain=lean.toolchain,
                job=AGENT,
            )
            for one in rows
        ]

    def _file(self, row: SorryRow) -> bytes:
        """Return the version of the file that has the sorry.

        Raises:
            WorkStateError: the mirror does not have it.
        """
        try:
            with Mirror(self.context.settings.paths.mirrors / f"{slug(row.repository)}.git") as mirror:
                data = mirror.read(row.blob, most_bytes=MOST_SOURCE_BYTES)
        except (JobError, OSError) as error:
            raise WorkStateError(
                f"{row.path}: cannot be read ({error}); ask again after the next poll"
            ) from error
        if not isinstance(data, bytes):
            raise WorkStateError(f"{row.path}: is too large to be patched")
        return data

    async def _open(self, rows: Sequence[SorryRow]) -> tuple[SorryRow, Repo]:
        """Return the sorry's row on a branch open for work.

        Raises:
            WorkStateError: there is none.
        """
        row = next((one for one in rows if one.state == "open"), rows[0])
        repo = next((one for one in self.context.settings.repos if one.key == row.repository), None)
        if repo is None or not repo.enabled:
            raise WorkStateError(f"{row.repository}: not watched; `everlean repos` lists what is")
        if repo.opt_out:
            raise WorkStateError(f"{row.repository}: its people want no proofs (opt_out); take another sorry")
        if row.state != "open":
            raise WorkStateError(
                f"{row.declaration}: its sorry is {row.state}; only an open one can be claimed"
            )
        if await self.store.ask(lambda view: exercises(view, repo, row.branch)(row.path)):
            raise WorkStateError(f"{row.path}: has exercises, which are there for people; take another sorry")
        if why := await self.store.ask(lambda view: by_design(view, row.repository)(row)):
            raise WorkStateError(
                f"{row.declaration}: its sorry is there by design ({why}), to stay; take another"
            )
        return row, repo


def _rest_s(lease: ClaimRow) -> float:
    """Return the remaining seconds of a lease."""
    return (datetime.fromisoformat(lease.until) - datetime.now(UTC)).total_seconds()


def _of_the_same(row: SorryRow, sorry: str, beside: Sequence[SorryRow]) -> SorryRow:
    """Return another open sorry of a declaration, in the same version of the file.

    Raises:
        WorkStateError: it is none.
    """
    for one in beside:
        if (one.sorry, one.branch, one.blob, one.state) == (sorry, row.branch, row.blob, "open"):
            return one
    raise WorkStateError(
        f"{sorry[:100]}: is no open sorry of {row.declaration} in {row.path}; submit together what one declaration has"
    )


def _refuse_others(
    row: SorryRow,
    standing: Sequence[ClaimRow],
    claim: str | None,
    *,
    agent: str,
    taken: Collection[str] = (),
) -> None:
    """Refuse an agent without the standing claim, or with one that has ended.

    Args:
        agent: the asking agent's name.
        taken: the sorries of the declaration, any of which may be the claimed one; none: only `row`'s may.

    Raises:
        WorkStateError: with the reason.
    """
    mine = taken or (row.sorry,)
    if claim is not None and not any(one.claim == claim and one.sorry in mine for one in standing):
        raise WorkStateError(f"claim {claim}: its lease has ended, or it is of another sorry; claim anew")
    other = next((one for one in standing if one.claim != claim), None)
    if other is not None and other.agent == agent:
        raise WorkStateError(
            f"{row.declaration}: you, {agent}, have claimed it until {other.until}; give the claim's id as `claim`"
        )
    if other is not None:
        raise WorkStateError(
            f"{row.declaration}: {other.agent} has claimed it until {other.until}; take another sorry"
        )


def _scanned(branch: BranchRow) -> str:
    assert branch.scanned is not None, "it has a sorry"
    return branch.scanned


def _attempt(proof: ProofFound, agent: str, *, beside: int) -> AttemptFinished:
    """Return the attempt of an agent's submission, for others to see.

    Args:
        beside: the number of other sorries of the declaration filled by the text.
    """
    return AttemptFinished(
        repository=proof.repository,
        branch=proof.branch,
        sha=proof.sha,
        sorry=proof.sorry,
        blob=proof.blob,
        prover=AGENT,
        rung=AGENT_RUNG,
        model=agent,
        seed=0,
        budget=f"proof {proof.proof}",
        outcome="found",
        detail=f"together with the declaration's other {beside}" if beside else "",
        best="submitted by an agent",
        goals_left=None,
        nodes=0,
        repl_calls=0,
        seconds=0.0,
        prompt_tokens=0,
        completion_tokens=0,
        usd=None,
        tree=None,
        job=AGENT,
    )


def _about(view: sqlite3.Connection, *, sorry: str) -> tuple[list[SorryRow], list[SorryRow], list[ClaimRow]]:
    """Return a sorry on the watched branches, all of its declaration's, and the standing claims on these."""
    result = queries.sorries_by_prefix(view, sorry)
    if not any(row.sorry == sorry for row in result):
        return [], [], []
    (repository,) = {row.repository for row in result if row.sorry == sorry}
    watched = queries.sorries(view, repository=repository, watched_only=True)
    rows = [row for row in watched if row.sorry == sorry]
    places = {(row.branch, row.path, row.declaration) for row in rows}
    beside = [row for row in watched if (row.branch, row.path, row.declaration) in places]
    claims = queries.claims(view, repository=repository, now=now_text())
    names = {row.sorry for row in beside}
    return rows, beside, [row for row in claims if row.sorry in names]

"""From events to rows: one function for each event type, grouped by what they are about.

Projections are pure but for the rows that they write: no clock, no file, no network, so that a rebuild gives
the same tables. `apply` is the only way in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from store.domain.life import TheoremStep
from store.domain.records import ScannedFile
from store.errors import MalformedEventError
from store.events.base import EventBody
from store.events.bumps import BumpAsked, BumpBuilt, BumpFinished, BumpTried
from store.events.jobs import (
    JobCancelled,
    JobFailed,
    JobInterrupted,
    JobReleased,
    JobStarted,
    JobSucceeded,
    ProjectBuilt,
    TriggerEnded,
    WorkPaused,
    WorkResumed,
    WorkTriggered,
)
from store.events.models import (
    CheckpointPromoted,
    CheckpointRefused,
    CheckpointRemoved,
    CheckpointSaved,
    EvaluationFinished,
)
from store.events.proofs import (
    AttemptFinished,
    ClaimReleased,
    ProofChecked,
    ProofDoubted,
    ProofFound,
    ProofRejected,
    ProofVerified,
    PullRequestOpened,
    SorryClaimed,
)
from store.events.repositories import (
    BranchCreated,
    BranchDeleted,
    BranchRewritten,
    BranchUnwatched,
    CommitObserved,
    RepositoryArchived,
    RepositoryFailed,
    RepositoryFailing,
    RepositoryRecovered,
    RepositoryRenamed,
    RepositoryUnwatched,
    RepositoryWatched,
)
from store.events.scans import (
    CommitScanned,
    FileRemoved,
    FileScanned,
    PastCounted,
    PastListed,
    ScanBegun,
    SorryChanged,
    SorryFilled,
    SorryMoved,
    SorryOpened,
    SorryRemoved,
    SorryWritten,
    TheoremsFollowed,
)
from store.events.service import (
    ConfigLoaded,
    ConfigRejected,
    DaemonStarted,
    DaemonStopped,
    LeanChosen,
    LogRecovered,
    NotificationFailed,
    NotificationSent,
    NotificationsSwitched,
)
from store.events.traces import (
    CommitTraced,
    FileTraced,
    SorryStated,
    TracedFileRemoved,
    TraceMeasured,
    TraceWithdrawn,
)
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from store.log.upcast import read_body
from store.view.projections import (
    bumps,
    jobs,
    models,
    proofs,
    repositories,
    scans,
    service,
    sorries,
    splits,
    theorems,
    traces,
)
from store.view.projections.rows import payload

Handler = Callable[[sqlite3.Connection, StoredEvent, Any], None]
PayloadHandler = Callable[[sqlite3.Connection, StoredEvent, Any, LogReader], None]


def _file_scanned(db: sqlite3.Connection, event: StoredEvent, body: FileScanned, log: LogReader) -> None:
    scan = ScannedFile.from_json(payload(log, body.scan.sha256))
    scans.file_scanned(db, event, body, scan)


def _theorems_followed(
    db: sqlite3.Connection, event: StoredEvent, body: TheoremsFollowed, log: LogReader
) -> None:
    steps = [TheoremStep.from_json(item) for item in payload(log, body.steps.sha256)]
    theorems.theorems_followed(db, event, body, steps)


def _commit_scanned(db: sqlite3.Connection, event: StoredEvent, body: CommitScanned, log: LogReader) -> None:
    for one in scans.waiting(db, event, body, log):
        apply(db, one, read_body(one), log)
    scans.commit_scanned(db, event, body)


def _commit_traced(db: sqlite3.Connection, event: StoredEvent, body: CommitTraced) -> None:
    traces.commit_traced(db, event, body)
    splits.commit_traced(db, event, body)


def _of_the_log_alone(_db: sqlite3.Connection, _event: StoredEvent, _body: EventBody) -> None:
    """What the log says of itself has no rows."""


HANDLERS: Mapping[type[EventBody], Handler] = MappingProxyType(
    {
        DaemonStarted: service.daemon_started,
        DaemonStopped: service.daemon_stopped,
        LeanChosen: service.lean_chosen,
        LogRecovered: _of_the_log_alone,
        ConfigLoaded: service.config_loaded,
        ConfigRejected: service.config_rejected,
        RepositoryWatched: repositories.repository_watched,
        RepositoryUnwatched: repositories.repository_unwatched,
        RepositoryFailed: repositories.repository_failed,
        RepositoryFailing: repositories.repository_failing,
        RepositoryRecovered: repositories.repository_recovered,
        RepositoryRenamed: repositories.repository_renamed,
        RepositoryArchived: repositories.repository_archived,
        BranchCreated: repositories.branch_created,
        BranchRewritten: repositories.branch_rewritten,
        BranchDeleted: repositories.branch_deleted,
        BranchUnwatched: repositories.branch_unwatched,
        CommitObserved: repositories.commit_observed,
        FileRemoved: scans.file_removed,
        ScanBegun: scans.scan_begun,
        PastListed: scans.past_listed,
        PastCounted: scans.past_counted,
        SorryOpened: sorries.sorry_opened,
        SorryMoved: sorries.sorry_moved,
        SorryChanged: sorries.sorry_changed,
        SorryFilled: sorries.sorry_filled,
        SorryRemoved: sorries.sorry_removed,
        SorryWritten: sorries.sorry_written,
        JobStarted: jobs.job_started,
        JobSucceeded: jobs.job_succeeded,
        JobFailed: jobs.job_failed,
        JobInterrupted: jobs.job_interrupted,
        JobReleased: jobs.job_released,
        JobCancelled: jobs.job_cancelled,
        WorkPaused: service.work_paused,
        WorkResumed: service.work_resumed,
        WorkTriggered: service.work_triggered,
        TriggerEnded: service.trigger_ended,
        ProjectBuilt: jobs.project_built,
        AttemptFinished: proofs.attempt_finished,
        ProofFound: proofs.proof_found,
        ProofChecked: proofs.proof_checked,
        ProofVerified: proofs.proof_verified,
        ProofDoubted: proofs.proof_doubted,
        ProofRejected: proofs.proof_rejected,
        BumpAsked: bumps.bump_asked,
        BumpBuilt: bumps.bump_built,
        BumpTried: bumps.bump_tried,
        BumpFinished: bumps.bump_finished,
        PullRequestOpened: proofs.pull_request_opened,
        SorryClaimed: sorries.sorry_claimed,
        ClaimReleased: sorries.claim_released,
        TracedFileRemoved: traces.traced_file_removed,
        CommitTraced: _commit_traced,
        TraceMeasured: traces.trace_measured,
        SorryStated: traces.sorry_stated,
        TraceWithdrawn: traces.trace_withdrawn,
        CheckpointSaved: models.checkpoint_saved,
        CheckpointPromoted: models.checkpoint_promoted,
        CheckpointRefused: models.checkpoint_refused,
        CheckpointRemoved: models.checkpoint_removed,
        EvaluationFinished: models.evaluation_finished,
        NotificationsSwitched: service.notifications_switched,
        NotificationSent: service.notification_sent,
        NotificationFailed: service.notification_failed,
    }
)
"""The events that say all themselves."""

PAYLOAD_HANDLERS: Mapping[type[EventBody], PayloadHandler] = MappingProxyType(
    {
        FileScanned: _file_scanned,
        CommitScanned: _commit_scanned,
        TheoremsFollowed: _theorems_followed,
        FileTraced: traces.file_traced,
    }
)
"""The events that need more of the log: their payload in its blob table, or the parts that they close."""

_UNFIT = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,  # a payload has a list or an object where a column takes text or a number
    OverflowError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,  # a payload has null or a list where text belongs
)


def apply(connection: sqlite3.Connection, event: StoredEvent, body: EventBody, log: LogReader) -> None:
    """Write the rows that follow from one event, inside the caller's transaction.

    Raises:
        MalformedEventError: its payload, or a value in it, does not fit the tables.
        BlobMissingError, BlobCorruptError: its payload is absent or damaged.
    """
    kind = type(body)
    try:
        if isinstance(body, scans.SCAN_EVENTS) and scans.waits(connection, event, body):
            return
        handler = HANDLERS.get(kind)
        if handler is not None:
            handler(connection, event, body)
        else:
            PAYLOAD_HANDLERS[kind](connection, event, body, log)
    except _UNFIT as error:
        reason = f"{type(error).__name__}: {error}"
        raise MalformedEventError(event.seq, event.type, event.schema_version, reason) from error

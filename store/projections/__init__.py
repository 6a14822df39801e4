"""From events to rows: one function for each event type, grouped by what they are about.

Projections are pure but for the rows that they write: no clock, no file, no network, so that a rebuild gives
the same tables. `apply` is the only way in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from store import events as ev
from store.build_events import ProjectBuilt
from store.envelope import StoredEvent
from store.errors import MalformedEventError
from store.model_events import CheckpointPromoted, CheckpointRefused, CheckpointSaved, EvaluationFinished
from store.notify_events import NotificationFailed, NotificationSent, NotificationsSwitched
from store.projections import (
    builds,
    jobs,
    models,
    notifications,
    proofs,
    repositories,
    scans,
    service,
    sorries,
    splits,
    theorems,
    traces,
    work,
)
from store.projections.rows import payload
from store.reader import LogReader
from store.scanned import ScannedFile
from store.theoremlife import TheoremStep
from store.trace_events import (
    CommitTraced,
    FileTraced,
    SorryStated,
    TracedFileRemoved,
    TraceMeasured,
    TraceWithdrawn,
)
from store.work_events import JobCancelled, TriggerEnded, WorkPaused, WorkResumed, WorkTriggered

Handler = Callable[[sqlite3.Connection, StoredEvent, Any], None]
PayloadHandler = Callable[[sqlite3.Connection, StoredEvent, Any, LogReader], None]


def _file_scanned(db: sqlite3.Connection, event: StoredEvent, body: ev.FileScanned, log: LogReader) -> None:
    scan = ScannedFile.from_json(payload(log, body.scan.sha256))
    scans.file_scanned(db, event, body, scan)


def _theorems_followed(
    db: sqlite3.Connection, event: StoredEvent, body: ev.TheoremsFollowed, log: LogReader
) -> None:
    steps = [TheoremStep.from_json(item) for item in payload(log, body.steps.sha256)]
    theorems.theorems_followed(db, event, body, steps)


def _commit_traced(db: sqlite3.Connection, event: StoredEvent, body: CommitTraced) -> None:
    traces.commit_traced(db, event, body)
    splits.commit_traced(db, event, body)


HANDLERS: Mapping[type[ev.EventBody], Handler] = MappingProxyType(
    {
        ev.DaemonStarted: service.daemon_started,
        ev.DaemonStopped: service.daemon_stopped,
        ev.ConfigLoaded: service.config_loaded,
        ev.ConfigRejected: service.config_rejected,
        ev.RepositoryWatched: repositories.repository_watched,
        ev.RepositoryUnwatched: repositories.repository_unwatched,
        ev.RepositoryFailed: repositories.repository_failed,
        ev.RepositoryFailing: repositories.repository_failing,
        ev.RepositoryRecovered: repositories.repository_recovered,
        ev.RepositoryRenamed: repositories.repository_renamed,
        ev.RepositoryArchived: repositories.repository_archived,
        ev.BranchCreated: repositories.branch_created,
        ev.BranchRewritten: repositories.branch_rewritten,
        ev.BranchDeleted: repositories.branch_deleted,
        ev.BranchUnwatched: repositories.branch_unwatched,
        ev.CommitObserved: repositories.commit_observed,
        ev.FileRemoved: scans.file_removed,
        ev.CommitScanned: scans.commit_scanned,
        ev.SorryOpened: sorries.sorry_opened,
        ev.SorryMoved: sorries.sorry_moved,
        ev.SorryChanged: sorries.sorry_changed,
        ev.SorryFilled: sorries.sorry_filled,
        ev.SorryRemoved: sorries.sorry_removed,
        ev.JobStarted: jobs.job_started,
        ev.JobSucceeded: jobs.job_succeeded,
        ev.JobFailed: jobs.job_failed,
        ev.JobInterrupted: jobs.job_interrupted,
        ev.JobReleased: jobs.job_released,
        JobCancelled: jobs.job_cancelled,
        WorkPaused: work.work_paused,
        WorkResumed: work.work_resumed,
        WorkTriggered: work.work_triggered,
        TriggerEnded: work.trigger_ended,
        ProjectBuilt: builds.project_built,
        ev.AttemptFinished: proofs.attempt_finished,
        ev.ProofFound: proofs.proof_found,
        ev.ProofChecked: proofs.proof_checked,
        ev.ProofVerified: proofs.proof_verified,
        ev.ProofRejected: proofs.proof_rejected,
        ev.PullRequestOpened: proofs.pull_request_opened,
        TracedFileRemoved: traces.traced_file_removed,
        CommitTraced: _commit_traced,
        TraceMeasured: traces.trace_measured,
        SorryStated: traces.sorry_stated,
        TraceWithdrawn: traces.trace_withdrawn,
        CheckpointSaved: models.checkpoint_saved,
        CheckpointPromoted: models.checkpoint_promoted,
        CheckpointRefused: models.checkpoint_refused,
        EvaluationFinished: models.evaluation_finished,
        NotificationsSwitched: notifications.notifications_switched,
        NotificationSent: notifications.notification_sent,
        NotificationFailed: notifications.notification_failed,
    }
)
"""The events that say all themselves."""

PAYLOAD_HANDLERS: Mapping[type[ev.EventBody], PayloadHandler] = MappingProxyType(
    {
        ev.FileScanned: _file_scanned,
        ev.TheoremsFollowed: _theorems_followed,
        FileTraced: traces.file_traced,
    }
)
"""The events whose payload lies in the log's blob table."""

_UNFIT = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,  # a payload has a list or an object where a column takes text or a number
    OverflowError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,  # a payload has null or a list where text belongs
)


def apply(connection: sqlite3.Connection, event: StoredEvent, body: ev.EventBody, log: LogReader) -> None:
    """Write the rows that follow from one event, inside the caller's transaction.

    Raises:
        MalformedEventError: its payload, or a value in it, cannot stand in the tables.
        BlobMissingError, BlobCorruptError: its payload is absent or damaged.
    """
    kind = type(body)
    try:
        handler = HANDLERS.get(kind)
        if handler is not None:
            handler(connection, event, body)
        else:
            PAYLOAD_HANDLERS[kind](connection, event, body, log)
    except _UNFIT as error:
        reason = f"{type(error).__name__}: {error}"
        raise MalformedEventError(event.seq, event.type, event.schema_version, reason) from error

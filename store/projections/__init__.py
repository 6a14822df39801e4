"""From events to rows: one function for each event type, grouped by what they are about.

Projections are pure but for the rows that they write: no clock, no file, no network, so that a rebuild gives
the same tables. `apply` is the only way in.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from store import events as ev
from store.envelope import StoredEvent
from store.errors import MalformedEventError
from store.projections import jobs, proofs, repositories, scans, service, sorries
from store.reader import LogReader
from store.scanned import ScannedFile

Handler = Callable[[sqlite3.Connection, StoredEvent, Any], None]

HANDLERS: Mapping[type[ev.EventBody], Handler] = MappingProxyType(
    {
        ev.DaemonStarted: service.daemon_started,
        ev.DaemonStopped: service.daemon_stopped,
        ev.ConfigLoaded: service.config_loaded,
        ev.ConfigRejected: service.config_rejected,
        ev.RepositoryWatched: repositories.repository_watched,
        ev.RepositoryUnwatched: repositories.repository_unwatched,
        ev.RepositoryFailed: repositories.repository_failed,
        ev.RepositoryRecovered: repositories.repository_recovered,
        ev.RepositoryRenamed: repositories.repository_renamed,
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
        ev.AttemptFinished: proofs.attempt_finished,
        ev.ProofFound: proofs.proof_found,
        ev.ProofChecked: proofs.proof_checked,
        ev.ProofVerified: proofs.proof_verified,
        ev.ProofRejected: proofs.proof_rejected,
    }
)
"""`FileScanned` is missing here because it alone needs a payload: see `apply`."""


def apply(connection: sqlite3.Connection, event: StoredEvent, body: ev.EventBody, log: LogReader) -> None:
    """Write the rows that follow from one event, inside the caller's transaction.

    Raises:
        MalformedEventError: its payload, or a value in it, cannot stand in the tables.
        BlobMissingError, BlobCorruptError: its payload is absent or damaged.
    """
    try:
        if isinstance(body, ev.FileScanned):
            scan = ScannedFile.from_json(json.loads(log.blob(body.scan.sha256)))
            scans.file_scanned(connection, event, body, scan)
        else:
            HANDLERS[type(body)](connection, event, body)
    except (sqlite3.IntegrityError, OverflowError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise MalformedEventError(event.seq, event.type, event.schema_version, reason) from error

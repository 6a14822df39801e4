"""The marks of a file of ours: the numbers and bytes in its header, and its tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from store.errors import DatabaseMissingError, LogDamagedError, LogVersionError, NotALogError
from store.log import chain
from store.sqlite import in_memory, script

APPLICATION_ID = 0x6576_6C6E  # "evln", visible to `file` and SQLite tools
LOG_VERSION = 1
"""The format of the file: its tables, and the content of their hashes."""
_SCHEMA = "SELECT CAST(sql AS BLOB) FROM sqlite_schema WHERE sql IS NOT NULL"  # damaged text would be no text


def check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file of another kind than our event log, or a newer one.

    Raises:
        DatabaseMissingError: the file is empty: a daemon is just beginning it, or was killed as it did.
        NotALogError: it is some other database.
        LogVersionError: a newer version of this program wrote it.
        LogDamagedError: its header is not that of a log, or it has not its tables.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    result = [row[0] for row in connection.execute(_SCHEMA)]
    if application == 0 and not result:
        raise DatabaseMissingError(
            f"{path}: empty, no log was begun in it yet; start the daemon (`everlean run`)"
        )
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if (application, version) != (APPLICATION_ID, LOG_VERSION):
        # A newer format has other tables or hashes, and another program's database has, too.
        if _is_ours(connection, result):
            raise LogDamagedError(
                path,
                None,
                f"its header is damaged: it says application {application:#x} and log format {version}, and its "
                f"tables are those of format {LOG_VERSION}",
            )
        if application != APPLICATION_ID:
            raise NotALogError(
                f"{path}: not an everlean event log (application id {application:#x}); check the state folder"
            )
        raise LogVersionError(
            f"{path}: log format {version}, this program reads up to {LOG_VERSION}; install a newer everlean"
        )
    tables = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE name IN ('events', 'blobs', 'chain')"
    )
    if tables.fetchone()[0] != 3:
        raise LogDamagedError(path, None, "its table of events, of payloads or of hashes is not there")


def _is_ours(connection: sqlite3.Connection, statements: list[bytes]) -> bool:
    """Return whether the tables, and the hash of the last event, have this program's format."""
    with closing(in_memory(script("log/schema"))) as fresh:
        targets = [row[0] for row in fresh.execute(_SCHEMA)]
    if sorted(statements) != sorted(targets):
        return False
    last = chain.last(connection).seq
    before = chain.link_at(connection, last - 1) if last else None
    return before is not None and chain.walk(connection, after=before).damage is None


_MAGIC = b"SQLite format 3\0"
_FIXED = {16: 0x10, 17: 0x00, 20: 0x00, 21: 0x40, 22: 0x20, 23: 0x20}
"""SQLite's first bytes in the header of each log: the size of pages, the free space in them."""


def damaged_header(path: Path) -> str:
    """Return the damage to the constant bytes of the file's header; empty: none.

    Not while this process has a connection to the log: closing the file gives back all of the process's locks
    on it, also those that keep other programs from removing the -wal.
    """
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError:
        return ""  # opening it as a database gives the reason
    if header[:16] == _MAGIC and len(header) == 100:
        # 1 until the log is first opened for writing, as in a restored one, then 2; SQLite writes nothing at any other.
        wrong = [18] if header[18] not in (1, 2) else []
        wrong += [at for at, fixed in _FIXED.items() if header[at] != fixed]
        if wrong:
            return f"its header is damaged: byte {wrong[0]} is {header[wrong[0]]}"
    return ""

"""Open a SQLite file for reading, whatever its writer does: up, stopped, or killed.

Pure sqlite3 and standard library: the command line's `status` pays for every import here.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from store.errors import DatabaseMissingError, DatabaseReadOnlyError, translate

BUSY_TIMEOUT_S = 5.0


def uri(path: Path, **parameters: str | int) -> str:
    """Return SQLite's URI of a file, with its name escaped."""
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    return f"file:{quote(str(path.absolute()))}?{query}"


def connect_readonly(path: Path) -> sqlite3.Connection:
    """Open `path` so that nothing can be written through the connection; rows are `sqlite3.Row`.

    A database in WAL mode needs its -wal and -shm files even for reading, and SQLite makes them where they
    are missing. After a clean stop they are missing or empty; a reader that may not write the folder then
    opens the file as immutable, which is right because the file alone is the whole database. While a -wal has
    content this would show an old state or a torn one, so then it is not done and the error says what to do.

    Raises:
        DatabaseMissingError: there is no such file.
        DatabaseReadOnlyError: a -wal lies there that this user cannot read along with the file.
        LogError: the file is no database, is damaged, or is locked.
    """
    if not path.is_file():
        raise DatabaseMissingError(
            f"{path}: no such database; start the daemon (`unsorry run`) or name the right state folder"
        )
    try:
        return _open(uri(path, mode="ro"))
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            raise translate(error, path) from error
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size > 0:
            raise DatabaseReadOnlyError(
                f"{path}: cannot be read without write access to its folder, because {wal.name} holds changes "
                "that are not in the file yet. Start the daemon, or read as the user that it runs as"
            ) from error
        try:
            return _open(uri(path, mode="ro", immutable=1))
        except sqlite3.Error as second:
            raise translate(second, path) from second
    except sqlite3.Error as error:
        raise translate(error, path) from error


def _open(address: str) -> sqlite3.Connection:
    # A reader may be handed from thread to thread; its owner sees to it that only one uses it at a time.
    connection = sqlite3.connect(
        address, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False
    )
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        # The first real read is what finds a missing -shm, a foreign file or a lock.
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection

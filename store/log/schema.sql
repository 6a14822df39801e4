-- events.db. Written once, when the file is made; a change of it needs a new user_version and a migration.
-- Nothing here may depend on a setting of the connection: the triggers must hold against any SQLite client.

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT CHECK (seq >= 1),
    event_id TEXT NOT NULL UNIQUE,
    stream TEXT NOT NULL CHECK (stream <> ''),
    version INTEGER NOT NULL CHECK (version >= 1),
    type TEXT NOT NULL CHECK (type <> ''),
    schema_version INTEGER NOT NULL CHECK (schema_version >= 1),
    data TEXT NOT NULL CHECK (json_valid(data)),
    recorded_at TEXT NOT NULL,
    occurred_at TEXT,
    correlation_id TEXT,
    causation_id TEXT,
    actor TEXT NOT NULL,
    UNIQUE (stream, version)
) STRICT;

-- For reads by type (`everlean events --type`, followers of one kind): rowids come in order from it.
CREATE INDEX events_by_type ON events (type);

-- Content is zlib-compressed; sha256 and size_bytes are those of the payload itself.
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY CHECK (id >= 1),
    sha256 TEXT NOT NULL UNIQUE CHECK (length(sha256) = 64),
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
    content BLOB NOT NULL
) STRICT;

CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'events are append-only: UPDATE refused');
END;

CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN
    SELECT RAISE(ABORT, 'events are append-only: DELETE refused');
END;

-- INSERT OR REPLACE deletes without firing DELETE triggers (unless recursive_triggers is on), so a row that would
-- replace another is refused before the insert. The same guard keeps seq and version without gaps. An omitted
-- seq reads as -1 here, which the CHECK keeps from ever being a key.
CREATE TRIGGER events_append_only BEFORE INSERT ON events
BEGIN
    SELECT RAISE(ABORT, 'events are append-only: this seq is taken or leaves a gap')
    WHERE NEW.seq >= 0 AND NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM events);
    SELECT RAISE(ABORT, 'events are append-only: this event_id is taken')
    WHERE EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id);
    SELECT RAISE(ABORT, 'events are append-only: this version of the stream is taken or leaves a gap')
    WHERE NEW.version <> (SELECT coalesce(max(version), 0) + 1 FROM events WHERE stream = NEW.stream);
END;

CREATE TRIGGER blobs_no_update BEFORE UPDATE ON blobs
BEGIN
    SELECT RAISE(ABORT, 'blobs are append-only: UPDATE refused');
END;

CREATE TRIGGER blobs_no_delete BEFORE DELETE ON blobs
BEGIN
    SELECT RAISE(ABORT, 'blobs are append-only: DELETE refused');
END;

CREATE TRIGGER blobs_append_only BEFORE INSERT ON blobs
BEGIN
    SELECT RAISE(ABORT, 'blobs are append-only: this id is taken')
    WHERE NEW.id >= 0 AND EXISTS (SELECT 1 FROM blobs WHERE id = NEW.id);
    SELECT RAISE(ABORT, 'blobs are append-only: this sha256 is taken')
    WHERE EXISTS (SELECT 1 FROM blobs WHERE sha256 = NEW.sha256);
END;

-- What each event's content hashes to, and the link to the event before; the layout is in store.log.chain.
-- `blobs` is the last blob that the hash covers.
CREATE TABLE chain (
    seq INTEGER PRIMARY KEY CHECK (seq >= 1),
    blobs INTEGER NOT NULL CHECK (blobs >= 0),
    hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;

CREATE TRIGGER chain_no_update BEFORE UPDATE ON chain
BEGIN
    SELECT RAISE(ABORT, 'the chain is append-only: UPDATE refused');
END;

CREATE TRIGGER chain_no_delete BEFORE DELETE ON chain
BEGIN
    SELECT RAISE(ABORT, 'the chain is append-only: DELETE refused');
END;

CREATE TRIGGER chain_append_only BEFORE INSERT ON chain
BEGIN
    SELECT RAISE(ABORT, 'the chain is append-only: this seq is taken or leaves a gap')
    WHERE NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM chain);
END;

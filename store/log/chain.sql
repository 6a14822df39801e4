-- What each event's content hashes to, and the link to the event before; the layout is in store.log.chain.
-- `blobs` is the last blob that the hash covers. A log of format 1 gets this table when it is first opened for writing.

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

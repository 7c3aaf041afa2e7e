-- Format 2 of a store in SQLite: what 0001_schema.sql lacks. src/everstep/backends/sqlite/files/format.py explains the tables.

CREATE TABLE letters (
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    due INTEGER,
    at INTEGER NOT NULL,
    key BLOB NOT NULL,
    body BLOB NOT NULL,
    "check" BLOB NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX letters_due ON letters (due) WHERE due IS NOT NULL;

CREATE TABLE feed (
    first INTEGER PRIMARY KEY,
    entries BLOB NOT NULL
) STRICT;

-- The blob of a feed without entries that ends at position 0.
ALTER TABLE manifest ADD COLUMN feed BLOB NOT NULL DEFAULT x'af5570f5a1810b7a';
ALTER TABLE manifest ADD COLUMN fed INTEGER NOT NULL DEFAULT 0;

-- A program of format 1 that has the store open fails at this name from here on. It would write past letters and feed otherwise.
ALTER TABLE manifest RENAME COLUMN last TO latest;

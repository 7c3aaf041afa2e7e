-- Format 3 of a store in SQLite: what 0002_runtime.sql lacks. src/everstep/backends/sqlite/files/format.py explains the tables.

CREATE TABLE pruned (
    run INTEGER PRIMARY KEY,
    key BLOB NOT NULL,
    ranges BLOB NOT NULL,
    freed INTEGER NOT NULL,
    at INTEGER NOT NULL,
    numbers BLOB NOT NULL,
    "check" BLOB NOT NULL
) STRICT;

CREATE TABLE bases (
    run INTEGER NOT NULL,
    number INTEGER NOT NULL,
    key BLOB NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    "check" BLOB NOT NULL,
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE tombstones (
    pk INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    key BLOB NOT NULL,
    family BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    at INTEGER NOT NULL,
    head_seq INTEGER NOT NULL,
    head_digest BLOB NOT NULL,
    checkpoints INTEGER NOT NULL,
    "check" BLOB NOT NULL
) STRICT;

CREATE TABLE facts (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    "check" BLOB NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE chunks ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;
ALTER TABLE manifest ADD COLUMN writes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE manifest ADD COLUMN identity BLOB NOT NULL DEFAULT x'';

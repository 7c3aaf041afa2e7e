-- Format 1 of a store in SQLite, and the first part of every later one. src/everstep/backends/sqlite/files/format.py explains the tables.

CREATE TABLE runs (
    pk INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    key BLOB NOT NULL,
    family BLOB NOT NULL,
    workflow TEXT,
    session TEXT,
    tags TEXT,
    note TEXT,
    meta TEXT,
    parent TEXT,
    parent_number INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    head_seq INTEGER NOT NULL,
    head_digest BLOB NOT NULL,
    checkpoints INTEGER NOT NULL,
    stored INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    worker TEXT,
    since INTEGER NOT NULL,
    "check" BLOB NOT NULL
) STRICT;

CREATE INDEX runs_status ON runs (status, pk);
CREATE INDEX runs_workflow ON runs (workflow, pk) WHERE workflow IS NOT NULL;
CREATE INDEX runs_session ON runs (session, pk) WHERE session IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent, pk) WHERE parent IS NOT NULL;
CREATE INDEX runs_family ON runs (family);
CREATE INDEX runs_order ON runs (pk, created_at, id);
CREATE INDEX runs_note ON runs (pk, note) WHERE note IS NOT NULL;

CREATE TABLE run_tags (
    tag TEXT NOT NULL,
    pk INTEGER NOT NULL,
    PRIMARY KEY (tag, pk)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_meta (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    pk INTEGER NOT NULL,
    PRIMARY KEY (key, value, pk)
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    at INTEGER NOT NULL,
    number INTEGER NOT NULL,
    note TEXT,
    tags TEXT,
    meta TEXT,
    digest BLOB NOT NULL,
    body_digest BLOB,
    body BLOB
) STRICT;

CREATE TABLE chunks (
    pk INTEGER PRIMARY KEY,
    family BLOB NOT NULL,
    digest BLOB NOT NULL,
    frame BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX chunks_name ON chunks (family, digest);

CREATE TABLE tags (
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    key BLOB NOT NULL,
    "check" BLOB NOT NULL,
    PRIMARY KEY (run, name, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_number ON tags (run, number, name);

CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    boot TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    expires_boot INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE manifest (
    pk INTEGER PRIMARY KEY CHECK (pk = 1),
    total BLOB NOT NULL,
    runs INTEGER NOT NULL,
    next INTEGER NOT NULL,
    last INTEGER
) STRICT;

INSERT INTO manifest VALUES (1, zeroblob(32), 0, 1, NULL);

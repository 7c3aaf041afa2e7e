-- Format 1 of a store in SQLite. src/everstep/backends/sqlite/files/format.py explains the tables; parts.py, when each part is created.

-- part: core
-- The tables that every store has from the start.

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
CREATE INDEX runs_order ON runs (pk, created_at, id);

CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    at INTEGER NOT NULL,
    number INTEGER NOT NULL,
    note TEXT,
    tags TEXT,
    meta TEXT,
    own TEXT,
    labels BLOB,
    digest BLOB NOT NULL,
    body_digest BLOB,
    body BLOB
) STRICT;

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
    latest INTEGER,
    feed BLOB NOT NULL,
    fed INTEGER NOT NULL,
    writes INTEGER NOT NULL,
    identity BLOB NOT NULL,
    parts INTEGER NOT NULL
) STRICT;

-- The feed begins as a blob without entries that ends at position 0.
INSERT INTO manifest VALUES (1, zeroblob(32), 0, 1, NULL, x'af5570f5a1810b7a', 0, 0, x'', 0);

-- part: chunks
-- Created with the first base.

CREATE TABLE chunks (
    pk INTEGER PRIMARY KEY,
    family BLOB NOT NULL,
    digest BLOB NOT NULL,
    frame BLOB NOT NULL,
    stamp INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX chunks_name ON chunks (family, digest);

-- part: listing
-- Created with the first run that has a tag or metadata.

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

-- part: tags
-- Created with the first tag on a checkpoint.

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
CREATE INDEX tags_name ON tags (name, run, number);

-- part: messages
-- Created with the first message.

CREATE TABLE messages (
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    due INTEGER,
    at INTEGER NOT NULL,
    key BLOB NOT NULL,
    body BLOB NOT NULL,
    "check" BLOB NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX messages_due ON messages (due) WHERE due IS NOT NULL;

-- part: feed
-- Created with the first full part of the feed.

CREATE TABLE feed (
    first INTEGER PRIMARY KEY,
    entries BLOB NOT NULL
) STRICT;

-- part: pruned
-- Created with the first pruning.

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

-- part: tombstones
-- Created with the first deletion, which looks for other runs of the family.

CREATE INDEX runs_family ON runs (family);

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

-- part: properties
-- Created with the first property.

CREATE TABLE properties (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    "check" BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- part: queues
-- Created with the first enqueued run.

CREATE TABLE tasks (
    run INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    key TEXT,
    dedupe TEXT,
    ready INTEGER,
    worker TEXT,
    deaths INTEGER NOT NULL,
    seen INTEGER NOT NULL
) STRICT;

CREATE INDEX tasks_ready ON tasks (queue, priority DESC, ready, run) WHERE ready IS NOT NULL;
CREATE INDEX tasks_held ON tasks (queue, key) WHERE worker IS NOT NULL;
CREATE UNIQUE INDEX tasks_dedupe ON tasks (queue, dedupe) WHERE dedupe IS NOT NULL;

CREATE TABLE starts (
    queue TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

CREATE INDEX starts_at ON starts (queue, at);

CREATE TABLE ticks (
    queue TEXT NOT NULL,
    minute INTEGER NOT NULL,
    claimed INTEGER NOT NULL DEFAULT 0,
    ended INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    deaths INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, minute)
) STRICT, WITHOUT ROWID;

-- part: workflows
-- Created with the first run of a workflow.

CREATE INDEX runs_workflow ON runs (workflow, pk) WHERE workflow IS NOT NULL;

-- part: sessions
-- Created with the first run that has a session.

CREATE INDEX runs_session ON runs (session, pk) WHERE session IS NOT NULL;

-- part: parents
-- Created with the first fork or child run.

CREATE INDEX runs_parent ON runs (parent, pk) WHERE parent IS NOT NULL;

-- part: notes
-- Created with the first run that has a note.

CREATE INDEX runs_note ON runs (pk, note) WHERE note IS NOT NULL;

-- part: attached
-- Created with the first entry that is attached to a checkpoint.

CREATE INDEX records_attached ON records (id >> 31, note) WHERE kind = 'attached';

-- part: finding
-- Created with the first checkpoint that has metadata. An item is a digest of a key and a scalar; an id is that of a record.

CREATE TABLE checkpoint_meta (
    item INTEGER NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (item, id)
) STRICT, WITHOUT ROWID;

-- part: gates
-- Created with the first question.

CREATE INDEX records_gates ON records (id >> 31, note) WHERE kind IN ('gate', 'answer');

-- part: keys
-- Created when the store is encrypted, before its first run. A key is never moved and never deleted, but overwritten with zeros in its place:
-- no copy of it stays in a free page.

CREATE TABLE keys (
    pk INTEGER PRIMARY KEY,
    family BLOB NOT NULL UNIQUE,
    wrapped BLOB NOT NULL
) STRICT;

-- Format 4 of a store in SQLite: what 0003_trust.sql lacks. src/everstep/backends/sqlite/files/format.py explains the tables.

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

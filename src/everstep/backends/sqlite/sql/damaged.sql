-- Reads from a store that may be damaged. Each has a name and a sentence; backends/sql_files.py loads them.

-- name: runs
-- The rows of runs between two positions, without an index that may be damaged.
SELECT pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check"
FROM runs NOT INDEXED WHERE pk BETWEEN ? AND ? ORDER BY pk

-- name: records
-- The records between two ids.
SELECT id, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body FROM records WHERE id BETWEEN ? AND ? ORDER BY id

-- name: tags
-- All tags of a run.
SELECT key, name, number, at, "check" FROM tags NOT INDEXED WHERE run = ?

-- name: messages
-- All messages of a run.
SELECT key, name, due, at, body, "check" FROM messages NOT INDEXED WHERE run = ?

-- name: pruned
-- The prune mark of a run.
SELECT key, ranges, freed, at, numbers, "check" FROM pruned WHERE run = ?

-- name: bases
-- The added bases of a run.
SELECT key, number, at, body, "check" FROM bases WHERE run = ?

-- name: tombstones
-- The tombstones between two positions.
SELECT pk, id, key, family, created_at, at, head_seq, head_digest, checkpoints, "check" FROM tombstones WHERE pk BETWEEN ? AND ?

-- name: chunk
-- One chunk.
SELECT frame FROM chunks WHERE family = ? AND digest = ?

-- name: manifest
-- The manifest.
SELECT pk, total, runs, next, latest, feed, fed, writes, identity, parts FROM manifest WHERE pk = 1

-- name: feed_before
-- The part of the feed that begins before a position.
SELECT first, entries FROM feed WHERE first < ? ORDER BY first DESC LIMIT 1

-- name: properties
-- The properties of the store.
SELECT name, value, "check" FROM properties

-- name: format
-- The format in the header of the file.
PRAGMA user_version

-- name: tables
-- The names of all tables.
SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'

-- name: keys
-- The wrapped keys of families that were not destroyed.
SELECT family, wrapped FROM keys NOT INDEXED WHERE substr(wrapped, 1, 1) <> x'00'

-- Statements of the writer. Each has a name and a sentence; backends/sql_files.py loads them.

-- name: begin
-- Start a write transaction at once, so that nothing read in it can become stale.
BEGIN IMMEDIATE

-- name: commit
-- Make the transaction durable.
COMMIT

-- name: rollback
-- Undo the transaction.
ROLLBACK

-- name: manifest
-- The manifest row, with the primary key that the next run gets and the end of the feed.
SELECT total, runs, next, latest, feed, fed, writes, parts FROM manifest WHERE pk = 1

-- name: format
-- The current format of the store.
PRAGMA user_version

-- name: set_manifest
-- Write the manifest after the batch.
UPDATE manifest SET total = ?, runs = ?, next = ?, latest = ?, feed = ?, fed = ?, writes = ? WHERE pk = 1

-- name: set_identity
-- Set the identity of the store.
UPDATE manifest SET identity = ? WHERE pk = 1

-- name: set_parts
-- Record which parts of the tables exist.
UPDATE manifest SET parts = ? WHERE pk = 1

-- name: add_feed
-- Add a full part of the feed.
INSERT INTO feed (first, entries) VALUES (?, ?)

-- name: pk
-- The primary key of a run.
SELECT pk FROM runs WHERE id = ?

-- name: fence
-- The values that explain why a commit was refused.
SELECT pk, epoch, head_seq FROM runs WHERE id = ?

-- name: create
-- Create a run; changes no row if the id is taken.
INSERT INTO runs (
    pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check"
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: advance
-- Move the head of a run; changes no row if another writer came first. Sets only columns that are in no index.
UPDATE runs SET updated_at = ?, head_seq = ?, head_digest = ?, checkpoints = ?, stored = ?, "check" = ?
WHERE pk = ? AND epoch = ? AND head_seq = ? AND "check" = ?

-- name: rewrite
-- Like advance, for a commit that changes more of the row than its head.
UPDATE runs SET
    updated_at = ?, head_seq = ?, head_digest = ?, checkpoints = ?, stored = ?, "check" = ?,
    workflow = ?, session = ?, tags = ?, note = ?, meta = ?, status = ?, epoch = ?, worker = ?, since = ?
WHERE pk = ? AND epoch = ? AND head_seq = ? AND "check" = ?

-- name: lease
-- Give or take a lease.
UPDATE runs SET epoch = ?, worker = ?, since = ?, "check" = ? WHERE pk = ? AND "check" = ?

-- name: add_record
-- Add one record of a chain.
INSERT INTO records (id, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_chunk
-- Add one chunk. A stored chunk has the same content, unless it was damaged: then this heals it. A frame never gets shorter (see
-- snapshot/base.py). The new stamp keeps the chunk from being swept.
INSERT INTO chunks (family, digest, frame, stamp) VALUES (?, ?, ?, ?)
ON CONFLICT (family, digest) DO UPDATE SET
    frame = CASE WHEN length(excluded.frame) < length(frame) THEN frame ELSE excluded.frame END, stamp = excluded.stamp

-- name: is_family
-- Whether a run exists and belongs to a family.
SELECT 1 FROM runs WHERE id = ? AND family = ?

-- name: prune_mark
-- The prune mark of a run, as far as a fence needs it.
SELECT "check" FROM pruned WHERE run = ?

-- name: set_prune_mark
-- Replace the prune mark of a run.
INSERT OR REPLACE INTO pruned (run, key, ranges, freed, at, numbers, "check") VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: take_record
-- Remove a record that has a body, and return it without the body; it is inserted again with a digest instead.
DELETE FROM records WHERE id = ? AND body IS NOT NULL RETURNING id, kind, epoch, at, number, note, tags, meta, own, labels, digest

-- name: add_base
-- Add a base for prune.
INSERT INTO bases (run, number, key, at, body, "check") VALUES (?, ?, ?, ?, ?, ?)

-- name: take_base
-- Remove an added base that is no longer needed; return its check for the manifest.
DELETE FROM bases WHERE run = ? AND number = ? RETURNING "check"

-- name: sweep
-- Remove an unreachable chunk, unless it was written after that was determined.
DELETE FROM chunks WHERE family = ? AND digest = ? AND stamp <= ? RETURNING length(frame)

-- name: add_tombstone
-- Add the tombstone of a deleted run.
INSERT INTO tombstones (pk, id, key, family, created_at, at, head_seq, head_digest, checkpoints, "check") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_feed
-- Remove a part of the feed.
DELETE FROM feed WHERE first = ?

-- name: take_tombstones
-- Remove tombstones between two positions that are older than a time.
DELETE FROM tombstones WHERE pk BETWEEN ? AND ? AND at < ? RETURNING pk, "check"

-- name: set_property
-- Set a property.
INSERT INTO properties (name, value, "check") VALUES (?, ?, ?)

-- name: take_property
-- Remove a property; return its check for the manifest.
DELETE FROM properties WHERE name = ? RETURNING "check"

-- name: add_tag
-- Add one tag; an existing one stays unchanged.
INSERT INTO tags (run, name, number, seq, at, key, "check") VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: add_message
-- Add one message; an existing one of that name stays unchanged.
INSERT INTO messages (run, name, due, at, key, body, "check") VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: take_message
-- Remove a message that was read; return its check for the manifest.
DELETE FROM messages WHERE run = ? AND name = ? RETURNING "check"

-- name: count_messages
-- How many messages a run has.
SELECT count(*) FROM messages WHERE run = ?

-- name: add_run_tag
-- Add a tag of a run, for listing.
INSERT INTO run_tags (tag, pk) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: add_run_meta
-- Add a scalar of a run's meta, for listing.
INSERT INTO run_meta (key, value, pk) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- name: drop_run_tag
-- Remove a tag that a run no longer has.
DELETE FROM run_tags WHERE tag = ? AND pk = ?

-- name: drop_run_meta
-- Remove a meta value that a run no longer has.
DELETE FROM run_meta WHERE key = ? AND value = ? AND pk = ?

-- name: set_worker
-- Register a worker.
INSERT INTO workers (id, host, pid, boot, started_at, expires_boot, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires_boot = excluded.expires_boot, expires_at = excluded.expires_at

-- name: renew
-- Set a worker's new expiry, for all the leases that it holds.
UPDATE workers SET expires_boot = ?, expires_at = ? WHERE id = ?

-- name: drop_worker
-- Remove a worker that is known to be dead.
DELETE FROM workers WHERE id = ?

-- name: tag_checks
-- The checks of a run's tags, for the manifest.
SELECT "check" FROM tags WHERE run = ?

-- name: message_checks
-- The checks of its messages, for the manifest.
SELECT "check" FROM messages WHERE run = ?

-- name: pruned_checks
-- The checks of its prune mark and its added bases, for the manifest.
SELECT "check" FROM pruned WHERE run = ?1 UNION ALL SELECT "check" FROM bases WHERE run = ?1

-- name: drop_run
-- The row of a run.
DELETE FROM runs WHERE pk = ?

-- name: drop_records
-- The records of a run.
DELETE FROM records WHERE id BETWEEN ? AND ?

-- name: add_checkpoint_meta
-- Have a checkpoint found by a scalar of its metadata.
INSERT INTO checkpoint_meta (item, id) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: drop_checkpoint_meta
-- Have a checkpoint found by a scalar no more.
DELETE FROM checkpoint_meta WHERE item = ? AND id = ?

-- name: metas
-- The metadata of the checkpoints of a run.
SELECT id, meta FROM records WHERE id BETWEEN ? AND ? AND meta IS NOT NULL

-- name: drop_labels
-- Drop the labels of a checkpoint; their digest remains.
UPDATE records SET note = NULL, tags = NULL, meta = NULL, labels = ? WHERE id = ? RETURNING number

-- name: drop_tags_of
-- Drop the tags of a checkpoint.
DELETE FROM tags WHERE run = ? AND number = ? RETURNING "check"

-- name: drop_tags
-- The tags of a run.
DELETE FROM tags WHERE run = ?

-- name: drop_messages
-- The messages of a run.
DELETE FROM messages WHERE run = ?

-- name: drop_prune_mark
-- The prune mark of a run.
DELETE FROM pruned WHERE run = ?

-- name: drop_bases
-- The added bases of a run.
DELETE FROM bases WHERE run = ?

-- name: family_lives
-- Whether any run of a family is left.
SELECT 1 FROM runs WHERE family = ? LIMIT 1

-- name: drop_family
-- The chunks of a family.
DELETE FROM chunks WHERE family = ?

-- name: add_task
-- Add a queue entry. The `dedupe` stays with the run that has it.
INSERT INTO tasks (run, queue, priority, key, dedupe, ready, worker, deaths, seen)
VALUES (?1, ?2, ?3, ?4, (SELECT ?5 WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE queue = ?2 AND dedupe = ?5 AND run <> ?1)), NULL, NULL, 0, 0)
ON CONFLICT (run) DO UPDATE SET queue = excluded.queue, priority = excluded.priority, key = excluded.key, dedupe = excluded.dedupe,
    ready = NULL, worker = NULL, deaths = 0, seen = 0

-- name: move_task
-- Set the worker of a run, or when it is ready.
UPDATE tasks SET worker = ?, ready = ? WHERE run = ?

-- name: free_task
-- Free the run of a dead worker. Deaths count as long as the run makes no progress.
UPDATE tasks SET worker = NULL, ready = ?1, deaths = CASE WHEN seen = ?2 THEN deaths + 1 ELSE 1 END, seen = ?2 WHERE run = ?3

-- name: drop_task
-- Remove the queue entry of a run.
DELETE FROM tasks WHERE run = ?

-- name: tick
-- Count the activity of a queue.
INSERT INTO ticks (queue, minute, claimed, ended, failed, deaths) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, minute) DO UPDATE SET claimed = claimed + excluded.claimed, ended = ended + excluded.ended,
    failed = failed + excluded.failed, deaths = deaths + excluded.deaths

-- name: drop_ticks
-- Remove old counts.
DELETE FROM ticks WHERE minute < ?

-- name: add_start
-- Note that a run of a queue with a rate limit was claimed.
INSERT INTO starts (queue, at) VALUES (?, ?)

-- name: drop_starts
-- Remove claims that no longer count for the rate.
DELETE FROM starts WHERE queue = ? AND at <= ?

-- name: add_key
-- The wrapped key of a new family.
INSERT INTO keys (family, wrapped) VALUES (?, ?)

-- name: destroy_key
-- Overwrite the wrapped key of a family in its place: a value of the same length does not move.
UPDATE keys SET wrapped = zeroblob(length(wrapped)) WHERE family = ?

-- name: replace_key
-- Replace the wrapped key of a family, if it is still the one that the caller knows.
UPDATE keys SET wrapped = ? WHERE family = ? AND wrapped = ?

-- Statements of the writer. Each has a name and a sentence; backends/queries.py loads them.

-- name: begin
-- Start a write transaction at once, so that nothing read in it can become stale.
BEGIN IMMEDIATE

-- name: commit
-- Make it durable.
COMMIT

-- name: rollback
-- Forget it.
ROLLBACK

-- name: manifest
-- The manifest row, with the primary key that the next run gets and the end of the feed.
SELECT total, runs, next, latest, feed, fed, writes, parts FROM manifest WHERE pk = 1

-- name: format
-- Which format the store has by now.
PRAGMA user_version

-- name: set_manifest
-- The manifest after the batch.
UPDATE manifest SET total = ?, runs = ?, next = ?, latest = ?, feed = ?, fed = ?, writes = ? WHERE pk = 1

-- name: set_identity
-- What tells this store from every other one.
UPDATE manifest SET identity = ? WHERE pk = 1

-- name: set_parts
-- Which parts of the tables were made by now.
UPDATE manifest SET parts = ? WHERE pk = 1

-- name: add_feed
-- A full part of the feed.
INSERT INTO feed (first, entries) VALUES (?, ?)

-- name: pk
-- The primary key of a run.
SELECT pk FROM runs WHERE id = ?

-- name: fence
-- What a refused commit is explained with.
SELECT pk, epoch, head_seq FROM runs WHERE id = ?

-- name: create
-- A new run; changes no row if the id is taken.
INSERT INTO runs (
    pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check"
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: advance
-- Move the head of a run; changes no row if another writer was there. Sets only what no index holds.
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
-- One link of a chain.
INSERT INTO records (id, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_chunk
-- One chunk. One that is there has the same content, unless it was damaged: then this heals it. A frame never gets shorter (see
-- snapshot/base.py). The stamp keeps it from being swept.
INSERT INTO chunks (family, digest, frame, stamp) VALUES (?, ?, ?, ?)
ON CONFLICT (family, digest) DO UPDATE SET
    frame = CASE WHEN length(excluded.frame) < length(frame) THEN frame ELSE excluded.frame END, stamp = excluded.stamp

-- name: is_family
-- Whether a run is there and of a family.
SELECT 1 FROM runs WHERE id = ? AND family = ?

-- name: prune_mark
-- The prune mark of a run, as far as a fence needs it.
SELECT "check" FROM pruned WHERE run = ?

-- name: set_prune_mark
-- The prune mark of a run, in place of the one before.
INSERT OR REPLACE INTO pruned (run, key, ranges, freed, at, numbers, "check") VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: take_record
-- A record that has a body, without it; it is put back with a digest in its place.
DELETE FROM records WHERE id = ? AND body IS NOT NULL RETURNING id, kind, epoch, at, number, note, tags, meta, own, labels, digest

-- name: add_base
-- A base that prune adds.
INSERT INTO bases (run, number, key, at, body, "check") VALUES (?, ?, ?, ?, ?, ?)

-- name: take_base
-- An added base that is not needed any more, and what leaves the manifest with it.
DELETE FROM bases WHERE run = ? AND number = ? RETURNING "check"

-- name: sweep
-- A chunk that nobody reaches, unless it was written after that was found out.
DELETE FROM chunks WHERE family = ? AND digest = ? AND stamp <= ? RETURNING length(frame)

-- name: add_tombstone
-- What is left of a deleted run.
INSERT INTO tombstones (pk, id, key, family, created_at, at, head_seq, head_digest, checkpoints, "check") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: drop_feed
-- A part of the feed goes.
DELETE FROM feed WHERE first = ?

-- name: take_tombstones
-- Tombstones between two places that are older than a time go.
DELETE FROM tombstones WHERE pk BETWEEN ? AND ? AND at < ? RETURNING pk, "check"

-- name: set_fact
-- Something to remember.
INSERT INTO facts (name, value, "check") VALUES (?, ?, ?)

-- name: take_fact
-- Something to forget, and what leaves the manifest with it.
DELETE FROM facts WHERE name = ? RETURNING "check"

-- name: add_tag
-- One tag; one that is there is left alone.
INSERT INTO tags (run, name, number, seq, at, key, "check") VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: add_letter
-- One letter; one of that name that is there is left alone.
INSERT INTO letters (run, name, due, at, key, body, "check") VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: take_letter
-- A letter that was read, and what leaves the manifest with it.
DELETE FROM letters WHERE run = ? AND name = ? RETURNING "check"

-- name: count_letters
-- How many letters a run has.
SELECT count(*) FROM letters WHERE run = ?

-- name: add_run_tag
-- A tag of a run, for listing.
INSERT INTO run_tags (tag, pk) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: add_run_meta
-- A scalar of a run's meta, for listing.
INSERT INTO run_meta (key, value, pk) VALUES (?, ?, ?) ON CONFLICT DO NOTHING

-- name: drop_run_tag
-- A tag that a run no longer has.
DELETE FROM run_tags WHERE tag = ? AND pk = ?

-- name: drop_run_meta
-- A meta value that a run no longer has.
DELETE FROM run_meta WHERE key = ? AND value = ? AND pk = ?

-- name: set_worker
-- Make a worker known.
INSERT INTO workers (id, host, pid, boot, started_at, expires_boot, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires_boot = excluded.expires_boot, expires_at = excluded.expires_at

-- name: renew
-- A worker's new expiry, for all the leases that it holds.
UPDATE workers SET expires_boot = ?, expires_at = ? WHERE id = ?

-- name: drop_worker
-- A worker that is known to be dead.
DELETE FROM workers WHERE id = ?

-- name: tag_checks
-- What leaves the manifest with the tags of a run.
SELECT "check" FROM tags WHERE run = ?

-- name: letter_checks
-- What leaves the manifest with its letters.
SELECT "check" FROM letters WHERE run = ?

-- name: pruned_checks
-- What leaves the manifest with its prune mark and its added bases.
SELECT "check" FROM pruned WHERE run = ?1 UNION ALL SELECT "check" FROM bases WHERE run = ?1

-- name: drop_run
-- The row of a run.
DELETE FROM runs WHERE pk = ?

-- name: drop_records
-- The records of a run.
DELETE FROM records WHERE id BETWEEN ? AND ?

-- name: drop_tags
-- The tags of a run.
DELETE FROM tags WHERE run = ?

-- name: drop_letters
-- The letters of a run.
DELETE FROM letters WHERE run = ?

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
-- A place in a queue. The word that makes doubles stays with the run that has it.
INSERT INTO tasks (run, queue, priority, key, dedupe, ready, worker, deaths, seen)
VALUES (?1, ?2, ?3, ?4, (SELECT ?5 WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE queue = ?2 AND dedupe = ?5 AND run <> ?1)), NULL, NULL, 0, 0)
ON CONFLICT (run) DO UPDATE SET queue = excluded.queue, priority = excluded.priority, key = excluded.key, dedupe = excluded.dedupe,
    ready = NULL, worker = NULL, deaths = 0, seen = 0

-- name: move_task
-- Who has a run, or when it is ready.
UPDATE tasks SET worker = ?, ready = ? WHERE run = ?

-- name: free_task
-- The worker of a run died with it. Deaths count while the run does not get on.
UPDATE tasks SET worker = NULL, ready = ?1, deaths = CASE WHEN seen = ?2 THEN deaths + 1 ELSE 1 END, seen = ?2 WHERE run = ?3

-- name: drop_task
-- A run is in no queue any more.
DELETE FROM tasks WHERE run = ?

-- name: tick
-- Count what happens in a queue.
INSERT INTO ticks (queue, minute, claimed, ended, failed, deaths) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, minute) DO UPDATE SET claimed = claimed + excluded.claimed, ended = ended + excluded.ended,
    failed = failed + excluded.failed, deaths = deaths + excluded.deaths

-- name: drop_ticks
-- Counts of long ago.
DELETE FROM ticks WHERE minute < ?

-- name: add_start
-- A run of a queue with a rate limit was taken.
INSERT INTO starts (queue, at) VALUES (?, ?)

-- name: drop_starts
-- What no longer counts for the rate.
DELETE FROM starts WHERE queue = ? AND at <= ?

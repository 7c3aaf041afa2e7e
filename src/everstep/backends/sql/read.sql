-- Statements of readers. Each has a name and a sentence; backends/queries.py loads them.

-- name: begin
-- One snapshot for all that follows.
BEGIN

-- name: end
-- Let the snapshot go.
COMMIT

-- name: run
-- The whole row of one run.
SELECT pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check"
FROM runs WHERE id = ?

-- name: run_at
-- The whole row of the run at a place.
SELECT pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check"
FROM runs WHERE pk = ?

-- name: pk
-- The primary key of a run.
SELECT pk FROM runs WHERE id = ?

-- name: records
-- A range of a chain.
SELECT id, kind, epoch, at, number, note, tags, meta, digest, body_digest, body FROM records WHERE id BETWEEN ? AND ? ORDER BY id

-- name: newest_records
-- The last so many of a range of a chain, newest first.
SELECT id, kind, epoch, at, number, note, tags, meta, digest, body_digest, body FROM records WHERE id BETWEEN ? AND ?
ORDER BY id DESC LIMIT ?

-- name: records_of_kinds
-- The records of some kinds (a JSON array) in a range, newest first.
SELECT id, kind, epoch, at, number, note, tags, meta, digest, body_digest, body FROM records
WHERE id BETWEEN ? AND ? AND kind IN (SELECT value FROM json_each(?)) ORDER BY id DESC LIMIT ?

-- name: number_from
-- The checkpoint number of the first record at or beyond an id.
SELECT id, number FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1

-- name: kind
-- What kind a record is.
SELECT kind FROM records WHERE id = ?

-- name: last_id
-- The newest record in a range.
SELECT id FROM records WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1

-- name: chunk
-- One chunk.
SELECT frame FROM chunks WHERE family = ? AND digest = ?

-- name: tags
-- All tags of a run.
SELECT key, name, number, at, "check" FROM tags WHERE run = ? ORDER BY name, number

-- name: tags_between
-- The tags of some checkpoints of a run.
SELECT number, name FROM tags WHERE run = ? AND number BETWEEN ? AND ? ORDER BY number, name

-- name: letters
-- All letters of a run.
SELECT key, name, due, at, body, "check" FROM letters WHERE run = ? ORDER BY name

-- name: due
-- The runs that have a letter whose time has come, may be woken and are not paused; the earliest first.
SELECT runs.id FROM letters INDEXED BY letters_due CROSS JOIN runs ON runs.pk = letters.run
WHERE letters.due <= ? AND runs.status IN ('waiting', 'failed')
    AND NOT EXISTS (SELECT 1 FROM letters AS others WHERE others.run = letters.run AND others.name = 'pause')
GROUP BY runs.pk ORDER BY min(letters.due), runs.pk LIMIT ?

-- name: feed_newest
-- The end of the feed.
SELECT feed, fed FROM manifest WHERE pk = 1

-- name: feed_at
-- The part of the feed that holds a position.
SELECT first, entries FROM feed WHERE first <= ? ORDER BY first DESC LIMIT 1

-- name: count_feed
-- How many full parts the feed has.
SELECT count(*) FROM feed

-- name: id_at
-- The id of the run at a place.
SELECT id FROM runs WHERE pk = ?

-- name: newest_ids
-- Every run with the id of its newest record.
SELECT pk, (SELECT max(id) FROM records WHERE id BETWEEN runs.pk << 31 AND runs.pk << 31 | 2147483647) FROM runs ORDER BY pk

-- name: heads
-- Every run and where its records end.
SELECT pk, id, head_seq FROM runs ORDER BY pk

-- name: worker
-- One worker.
SELECT id, host, pid, boot, started_at, expires_boot, expires_at FROM workers WHERE id = ?

-- name: workers
-- All workers that were not seen dead.
SELECT id, host, pid, boot, started_at, expires_boot, expires_at FROM workers

-- name: manifest
-- The manifest, with the id of the run that was committed to last.
SELECT total, manifest.runs, runs.id FROM manifest LEFT JOIN runs ON runs.pk = manifest.latest WHERE manifest.pk = 1

-- name: count_runs
-- How many runs.
SELECT count(*) FROM runs

-- name: count_records
-- How many records, and the bytes of their bodies.
SELECT count(*), coalesce(sum(length(body)), 0) FROM records

-- name: count_chunks
-- How many chunks, and the bytes of their frames.
SELECT count(*), coalesce(sum(length(frame)), 0) FROM chunks

-- name: count_all_letters
-- How many letters.
SELECT count(*) FROM letters

-- name: families
-- The name of every chunk.
SELECT family, digest FROM chunks ORDER BY family, digest

-- name: integrity
-- SQLite's own check of pages, indexes and types.
PRAGMA integrity_check

-- name: listing
-- What the tables that only serve listings say otherwise than the rows that they were made from.
SELECT 'tag ' || name || ' of run ' || run || ' points at a record that is not its checkpoint' FROM tags
WHERE NOT EXISTS (SELECT 1 FROM records WHERE id = (tags.run << 31 | tags.seq) AND number = tags.number AND kind = 'checkpoint')
UNION ALL
SELECT 'tag ' || tag || ' of run ' || pk || ' is listed, but not in its row' FROM run_tags
WHERE NOT EXISTS (SELECT 1 FROM runs, json_each(runs.tags) WHERE runs.pk = run_tags.pk AND json_each.value = run_tags.tag)
UNION ALL
SELECT 'tag ' || json_each.value || ' of run ' || runs.pk || ' is not listed' FROM runs, json_each(runs.tags)
WHERE NOT EXISTS (SELECT 1 FROM run_tags WHERE run_tags.pk = runs.pk AND run_tags.tag = json_each.value)
UNION ALL
SELECT 'letter ' || name || ' is for run ' || run || ', which is not there' FROM letters WHERE run NOT IN (SELECT pk FROM runs)
UNION ALL
SELECT 'the manifest names a last run that is not there' FROM manifest
WHERE (latest IS NOT NULL AND latest NOT IN (SELECT pk FROM runs)) OR next <= coalesce((SELECT max(pk) FROM runs), 0)

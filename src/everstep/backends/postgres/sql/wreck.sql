-- What repair reads of a damaged store on PostgreSQL, run by run. Each has a name and a sentence. {schema} is the store's schema.

-- name: begin
-- One snapshot for all that follows, however long it takes, and nothing is written.
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- name: patient
-- A pause between two reads is no reason to end the session.
SET LOCAL idle_in_transaction_session_timeout = 0

-- name: format
-- Which format the store has.
SELECT version FROM {schema}.format

-- name: runs
-- The rows of runs between two places.
SELECT pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check"
FROM {schema}.runs WHERE pk BETWEEN %s AND %s

-- name: parents
-- Names of runs that were forked: that of a run whose row is gone may be among them.
SELECT DISTINCT parent FROM {schema}.runs WHERE parent IS NOT NULL

-- name: owners
-- The places of runs that anything but their rows tells of, in one table.
SELECT DISTINCT {column} FROM {schema}.{table}

-- name: records
-- The records of a run, between two.
SELECT seq, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body
FROM {schema}.records WHERE run = %s AND seq BETWEEN %s AND %s ORDER BY seq

-- name: bare_records
-- The same without their bodies, which lie elsewhere if they are long.
SELECT seq, kind, epoch, at, number, note, tags, meta, own, labels, digest
FROM {schema}.records WHERE run = %s AND seq BETWEEN %s AND %s ORDER BY seq

-- name: has_records
-- Whether any record of a run is there.
SELECT 1 FROM {schema}.records WHERE run = %s LIMIT 1

-- name: tags
-- The tags of a run.
SELECT key, name, number, at, "check" FROM {schema}.tags WHERE run = %s ORDER BY name, number

-- name: letters
-- The letters of a run.
SELECT key, name, due, at, body, "check" FROM {schema}.letters WHERE run = %s ORDER BY name

-- name: pruned
-- The prune mark of a run.
SELECT key, ranges, freed, at, numbers, "check" FROM {schema}.pruned WHERE run = %s

-- name: bases
-- The bases that prune added to a run.
SELECT key, number, at, body, "check" FROM {schema}.bases WHERE run = %s ORDER BY number

-- name: tombstones
-- What is left of deleted runs, between two places.
SELECT pk, id, key, family, created_at, at, head_seq, head_digest, checkpoints, "check" FROM {schema}.tombstones WHERE pk BETWEEN %s AND %s

-- name: chunk
-- A chunk of a family.
SELECT frame FROM {schema}.chunks WHERE family = %s AND digest = %s

-- name: chunk_elsewhere
-- A chunk of any other family.
SELECT frame FROM {schema}.chunks WHERE family <> %s AND digest = %s LIMIT 3

-- name: facts
-- What the store remembers about itself.
SELECT name, value, "check" FROM {schema}.facts

-- name: manifest
-- All buckets of the manifest.
SELECT bucket, total, latest, latest_commit FROM {schema}.manifest

-- name: places
-- How many runs were ever created.
SELECT places FROM {schema}.counters

-- name: feed
-- Commits that have positions, in order.
SELECT last, run, seq, count FROM {schema}.feed ORDER BY last

-- name: feed_new
-- Commits that have none yet, in order.
SELECT run, seq, count FROM {schema}.feed_new ORDER BY id

-- name: feed_end
-- The newest position that was given.
SELECT position FROM {schema}.feed_end

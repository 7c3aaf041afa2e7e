-- Reads of repair from a damaged store on PostgreSQL, run by run. Each has a name and a sentence. {schema} is the store's schema.

-- name: begin
-- Begin one snapshot for all following reads, however long they take; nothing is written.
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- name: patient
-- Do not end the session because of a pause between two reads.
SET LOCAL idle_in_transaction_session_timeout = 0

-- name: format
-- The format of the store.
SELECT version FROM {schema}.format

-- name: runs
-- The rows of runs between two positions.
SELECT pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check"
FROM {schema}.runs WHERE pk BETWEEN %s AND %s

-- name: parents
-- The ids of forked runs: that of a run whose row is missing may be among them.
SELECT DISTINCT parent FROM {schema}.runs WHERE parent IS NOT NULL

-- name: owners
-- The positions of runs that are mentioned in one table other than that of their rows.
SELECT DISTINCT {column} FROM {schema}.{table}

-- name: records
-- The records of a run, between two seqs.
SELECT seq, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body
FROM {schema}.records WHERE run = %s AND seq BETWEEN %s AND %s ORDER BY seq

-- name: bare_records
-- The same without their bodies, which are stored separately if they are long.
SELECT seq, kind, epoch, at, number, note, tags, meta, own, labels, digest
FROM {schema}.records WHERE run = %s AND seq BETWEEN %s AND %s ORDER BY seq

-- name: has_records
-- Whether any record of a run exists.
SELECT 1 FROM {schema}.records WHERE run = %s LIMIT 1

-- name: tags
-- The tags of a run.
SELECT key, name, number, at, "check" FROM {schema}.tags WHERE run = %s ORDER BY name, number

-- name: messages
-- The messages of a run.
SELECT key, name, due, at, body, "check" FROM {schema}.messages WHERE run = %s ORDER BY name

-- name: pruned
-- The prune mark of a run.
SELECT key, ranges, freed, at, numbers, "check" FROM {schema}.pruned WHERE run = %s

-- name: bases
-- The bases that prune added to a run.
SELECT key, number, at, body, "check" FROM {schema}.bases WHERE run = %s ORDER BY number

-- name: tombstones
-- The tombstones of deleted runs, between two positions.
SELECT pk, id, key, family, created_at, at, head_seq, head_digest, checkpoints, "check" FROM {schema}.tombstones WHERE pk BETWEEN %s AND %s

-- name: chunk
-- A chunk of a family.
SELECT frame FROM {schema}.chunks WHERE family = %s AND digest = %s

-- name: chunk_elsewhere
-- A chunk of any other family.
SELECT frame FROM {schema}.chunks WHERE family <> %s AND digest = %s LIMIT 3

-- name: properties
-- The properties of the store.
SELECT name, value, "check" FROM {schema}.properties

-- name: manifest
-- All buckets of the manifest.
SELECT bucket, total, latest, latest_commit FROM {schema}.manifest

-- name: created
-- How many runs were ever created.
SELECT created FROM {schema}.counters

-- name: feed
-- Commits that have positions, in order.
SELECT last, run, seq, count FROM {schema}.feed ORDER BY last

-- name: feed_new
-- Commits without positions, in order.
SELECT run, seq, count FROM {schema}.feed_new ORDER BY id

-- name: feed_end
-- The newest position.
SELECT position FROM {schema}.feed_end

-- name: keys
-- The wrapped keys of families.
SELECT family, wrapped FROM {schema}.keys

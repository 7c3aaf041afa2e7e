-- Statements that build a store on PostgreSQL from verified rows. Each has a name and a sentence. {schema} is the store's schema.

-- name: run
-- The row of a run, at its position.
INSERT INTO {schema}.runs VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: record
-- A record.
INSERT INTO {schema}.records (run, seq, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: tag
-- A tag of a checkpoint.
INSERT INTO {schema}.tags (run, name, number, at, key, "check") VALUES (%s, %s, %s, %s, %s, %s)

-- name: message
-- A message.
INSERT INTO {schema}.messages (run, name, due, at, key, body, "check") VALUES (%s, %s, %s, %s, %s, %s, %s)

-- name: task
-- The queue entry of a run.
INSERT INTO {schema}.tasks (run, queue, priority, key, dedupe, ready, worker, deaths, seen) VALUES (%s, %s, %s, %s, %s, %s, %s, 0, 0)

-- name: mark
-- The prune mark of a run.
INSERT INTO {schema}.pruned (run, key, ranges, freed, at, numbers, "check") VALUES (%s, %s, %s, %s, %s, %s, %s)

-- name: base
-- A base that prune added.
INSERT INTO {schema}.bases (run, number, key, at, body, "check") VALUES (%s, %s, %s, %s, %s, %s)

-- name: run_tag
-- A tag of a run, for listing.
INSERT INTO {schema}.run_tags (tag, pk) VALUES (%s, %s) ON CONFLICT DO NOTHING

-- name: run_meta
-- A meta value of a run, for listing.
INSERT INTO {schema}.run_meta (item, pk) VALUES (%s, %s) ON CONFLICT DO NOTHING

-- name: chunk
-- A chunk, written by the first write of the first bucket.
INSERT INTO {schema}.chunks (family, digest, bucket, stamp, frame) VALUES (%s, %s, 0, 1, %s) ON CONFLICT DO NOTHING

-- name: tombstone
-- The tombstone of a deleted or lost run.
INSERT INTO {schema}.tombstones (pk, id, key, family, created_at, at, head_seq, head_digest, checkpoints, "check")
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: property
-- A property of the store.
INSERT INTO {schema}.properties (name, value, "check") VALUES (%s, %s, %s)

-- name: feed
-- Some records of a run, with the position of the last of them.
INSERT INTO {schema}.feed (last, run, seq, count) VALUES (%s, %s, %s, %s)

-- name: feed_end
-- The newest position.
UPDATE {schema}.feed_end SET position = %s

-- name: created
-- How many runs were ever created.
UPDATE {schema}.counters SET created = %s

-- name: manifest
-- The first bucket holds the whole sum.
UPDATE {schema}.manifest SET total = %s, runs = %s, writes = 1, latest = %s, latest_commit = nextval('{schema}.commits') WHERE bucket = 0

-- name: durably
-- Wait for the disk at the end of the transaction.
SELECT {schema}.durably()

-- name: key
-- The wrapped key of a family.
INSERT INTO {schema}.keys (family, wrapped) VALUES (%s, %s)

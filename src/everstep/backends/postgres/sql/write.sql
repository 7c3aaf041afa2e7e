-- Statements of the writer on PostgreSQL: each calls one function (see functions.sql). {schema} is the store's schema.

-- name: advance
-- One commit of one run that adds one record and changes only the head of the row, as nearly all do.
SELECT code, waiting, epoch_now, seq_now FROM {schema}.advance_run(
    %b::smallint, %t::numeric, %b::bigint, %b::bigint, %b, %b, %b::bigint, %b, %b, %b, %b, %b, %b, %b, %b
)

-- name: commit
-- One commit of one run with records and chunks.
SELECT code, waiting, epoch_now, seq_now FROM {schema}.commit_run(
    %b::smallint, %b::boolean, %b::numeric, %b::bigint, %b::bigint, %b::bytea,
    %b::text, %b::bytea, %b::bytea, %b::text, %b::text, %b::text, %b::text, %b::text, %b::text, %b::bigint, %b::bigint, %b::text, %b::bigint,
    %b::bigint, %b::bytea, %b::bigint, %b::bigint, %b::bigint, %b::text, %b::bigint, %b::bytea,
    %b::bigint[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bytea[],
    %b::bytea[], %b::bytea[], %b::bytea[],
    %b::bytea[], %b::bytea[]
)

-- name: commit_more
-- One commit of one run that also has tags, messages or labels.
SELECT code, waiting, epoch_now, seq_now FROM {schema}.commit_run(
    %b::smallint, %b::boolean, %b::numeric, %b::bigint, %b::bigint, %b::bytea,
    %b::text, %b::bytea, %b::bytea, %b::text, %b::text, %b::text, %b::text, %b::text, %b::text, %b::bigint, %b::bigint, %b::text, %b::bigint,
    %b::bigint, %b::bytea, %b::bigint, %b::bigint, %b::bigint, %b::text, %b::bigint, %b::bytea,
    %b::bigint[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bytea[],
    %b::bytea[], %b::bytea[], %b::bytea[],
    %b::bytea[], %b::bytea[],
    %b::text[], %b::bigint[], %b::bigint[], %b::bytea[],
    %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[], %b::text[], %b::text[], %b::bytea[], %b::bytea[]
)

-- name: refuse_taken
-- The last statement of a transaction that creates runs. It divides by zero, which undoes the transaction, if another run has one of
-- the ids and the caller did not know that.
SELECT 1 / CASE WHEN EXISTS (
    SELECT 1 FROM unnest(%s::text[], %s::bytea[]) AS made (id, key) JOIN {schema}.runs r ON r.id = made.id
    WHERE r.key <> made.key AND made.id <> ALL (%s::text[])
) THEN 0 ELSE 1 END

-- name: commit_task
-- One commit of one run that creates its queue entry.
SELECT code, waiting, epoch_now, seq_now FROM {schema}.commit_run(
    %b::smallint, %b::boolean, %b::numeric, %b::bigint, %b::bigint, %b::bytea,
    %b::text, %b::bytea, %b::bytea, %b::text, %b::text, %b::text, %b::text, %b::text, %b::text, %b::bigint, %b::bigint, %b::text, %b::bigint,
    %b::bigint, %b::bytea, %b::bigint, %b::bigint, %b::bigint, %b::text, %b::bigint, %b::bytea,
    %b::bigint[], %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bytea[],
    %b::bytea[], %b::bytea[], %b::bytea[],
    %b::bytea[], %b::bytea[],
    %b::text[], %b::bigint[], %b::bigint[], %b::bytea[],
    %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[], %b::text[], %b::text[], %b::bytea[], %b::bytea[],
    %b::text, %b::bigint, %b::text, %b::text
)

-- name: tag
-- A tag on a checkpoint.
SELECT {schema}.add_tag(%b::smallint, %b::text, %b::bytea, %b::text, %b::bigint, %b::bigint, %b::bytea)

-- name: post
-- Post a message to a run.
SELECT {schema}.post(%b::smallint, %b::boolean, %b::text, %b::bytea, %b::text, %b::bigint, %b::bigint, %b::bytea, %b::bytea)

-- name: lease
-- Give or take a lease.
SELECT {schema}.lease(%b::smallint, %b::bigint, %b::bytea, %b::bigint, %b::text, %b::bigint, %b::bytea, %b::numeric)

-- name: set_worker
-- Register a worker, with the rest of its time.
SELECT {schema}.set_worker(%b::text, %b::text, %b::bigint, %b::text, %b::bigint, %b::bigint, %b::bigint, %b::text)

-- name: renew
-- Set a worker's new expiry, for all the leases that it holds.
UPDATE {schema}.workers SET expires_boot = %s, ends = {schema}.now_us() + %s, expires_at = {schema}.now_us() + %s WHERE id = %s

-- name: drop_workers
-- Remove workers that are known to be dead.
DELETE FROM {schema}.workers WHERE id = ANY (%s::text[])

-- name: drop_ended_workers
-- Remove workers whose lease expired a day ago. An unregistered worker counts as dead, so leases stay correct.
DELETE FROM {schema}.workers WHERE ends < {schema}.now_us() - 86400000000

-- name: remove
-- Remove a run with all its rows.
SELECT {schema}.remove(%b::smallint, %b::bigint, %b::bytea, %b::bigint, %b::bytea, %b::text[], %b::bytea[])

-- name: prune
-- Drop bodies of a run.
SELECT {schema}.prune(
    %b::smallint, %b::text, %b::bytea, %b::bytea, %b::bytea, %b::bigint, %b::bigint, %b::bytea, %b::bytea, %b::bigint[], %b::bytea[], %b::bigint[],
    %b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bigint[], %b::bytea[]
)

-- name: sweep
-- Remove unreachable chunks, unless they were written after that was determined; the stamps are those of each bucket at that time.
WITH gone AS (
    DELETE FROM {schema}.chunks WHERE family = %s AND digest = ANY (%s::bytea[]) AND stamp <= (%s::bigint[])[bucket + 1]
    RETURNING octet_length(frame) AS bytes
) SELECT coalesce(sum(bytes), 0)::bigint FROM gone

-- name: set_property
-- Set or remove a property.
SELECT {schema}.set_property(%b::smallint, %b::text, %b::text, %b::bytea)

-- name: claim
-- Hand runs to a worker.
SELECT claimed, queue, before, died, sound, (run).pk, (run).id, (run).key, (run).family, (run).workflow, (run).session, (run).tags, (run).note,
    (run).meta, (run).parent, (run).parent_number, (run).created_at, (run).status, (run).updated_at, (run).head_seq, (run).head_digest,
    (run).checkpoints, (run).stored, (run).epoch, (run).worker, (run).since, (run)."check"
FROM {schema}.claim(
    %b::smallint, %b::text[], %b::text[], %b::text[], %b::integer, %b::text, %b::text, %b::bigint, %b::text, %b::bigint, %b::bigint, %b::bigint,
    %b::text
)

-- name: free
-- Make the runs of dead workers available to others.
SELECT {schema}.free_tasks(%b::smallint, %b::text[])

-- name: drop_orders
-- Remove orders that were carried out.
DELETE FROM {schema}.orders WHERE number = ANY (%s::bigint[])

-- name: take_runs
-- Remove the rows of some runs that are unchanged since they were read. In the order of their positions, as every process that takes several.
DELETE FROM {schema}.runs WHERE pk = ANY (ARRAY(
    SELECT r.pk FROM unnest(%s::text[], %s::bytea[]) AS asked (id, "check") JOIN {schema}.runs r ON r.id = asked.id AND r."check" = asked."check"
    ORDER BY r.pk FOR UPDATE OF r
)) RETURNING pk, id

-- name: take_beside
-- Remove all other rows of some runs; returns the checks that count in the manifest.
WITH t AS (DELETE FROM {schema}.tags WHERE run = ANY (%s::bigint[]) RETURNING "check"),
    l AS (DELETE FROM {schema}.messages WHERE run = ANY (%s::bigint[]) RETURNING "check"),
    p AS (DELETE FROM {schema}.pruned WHERE run = ANY (%s::bigint[]) RETURNING "check"),
    b AS (DELETE FROM {schema}.bases WHERE run = ANY (%s::bigint[]) RETURNING "check"),
    q AS (DELETE FROM {schema}.tasks WHERE run = ANY (%s::bigint[])),
    r AS (DELETE FROM {schema}.records WHERE run = ANY (%s::bigint[]))
SELECT "check" FROM t UNION ALL SELECT "check" FROM l UNION ALL SELECT "check" FROM p UNION ALL SELECT "check" FROM b

-- name: drop_run_tags
-- Remove the tags of runs from the listing table.
DELETE FROM {schema}.run_tags t USING unnest(%s::text[], %s::bigint[]) AS gone (tag, pk) WHERE t.tag = gone.tag AND t.pk = gone.pk

-- name: drop_run_meta
-- Remove the meta values of runs from the listing table.
DELETE FROM {schema}.run_meta m USING unnest(%s::bytea[], %s::bigint[]) AS gone (item, pk) WHERE m.item = gone.item AND m.pk = gone.pk

-- name: add_tombstones
-- Add the tombstones of deleted runs.
INSERT INTO {schema}.tombstones (pk, id, key, family, created_at, at, head_seq, head_digest, checkpoints, "check")
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bytea[], %s::bytea[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[], %s::bigint[], %s::bytea[])

-- name: lock_property
-- Keep other processes from changing a property until this transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('{schema} property ' || %s::text, 0))

-- name: locked_property
-- A property as it is now.
SELECT name, value, "check" FROM {schema}.properties WHERE name = %s::text

-- name: take_tombstones
-- Remove tombstones between two positions that are older than a time.
DELETE FROM {schema}.tombstones WHERE pk BETWEEN %s::bigint AND %s::bigint AND at < %s::bigint RETURNING pk, "check"

-- name: count_deleted
-- Change the sum in the manifest.
SELECT {schema}.count(%s::smallint, %s::numeric, %s::integer)

-- name: no_bucket
-- Undo a write that the manifest cannot count.
SELECT {schema}.no_bucket(%s::smallint)

-- name: drop_families
-- Remove the chunks of families that have no run any more.
WITH gone AS (
    SELECT f FROM unnest(%s::bytea[]) AS f WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.family = f)
), destroyed AS (
    DELETE FROM {schema}.keys k USING gone WHERE k.family = gone.f
)
DELETE FROM {schema}.chunks c USING gone WHERE c.family = gone.f

-- name: replace_keys
-- Replace wrapped keys that are still those that the caller knows.
UPDATE {schema}.keys k SET wrapped = n.new FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[]) AS n (family, old, new)
WHERE k.family = n.family AND k.wrapped = n.old RETURNING 1

-- name: is_used
-- Whether a run was ever created, or a property set.
SELECT (SELECT coalesce(max(created), 0) > 0 FROM {schema}.counters) OR EXISTS (SELECT 1 FROM {schema}.properties)

-- name: keys_there
-- The keys of those runs that exist.
SELECT key FROM {schema}.runs WHERE id = ANY (%s::text[])

-- name: drop_feed
-- Remove entries of the feed between two positions whose runs were deleted; returns how many.
WITH gone AS (
    DELETE FROM {schema}.feed f WHERE f.last > %s AND f.last <= %s AND NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.pk = f.run) RETURNING 1
) SELECT count(*) FROM gone

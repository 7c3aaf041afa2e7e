-- Statements of readers on PostgreSQL. Each has a name and a sentence; backends/sql_files.py loads them. {schema} is the store's schema.

-- name: format
-- The format of the store.
SELECT version FROM {schema}.format

-- name: guarded
-- Whether the functions of the store set their search path. Those of older stores did not.
SELECT EXISTS (
    SELECT 1 FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = %s AND p.proname = 'commit_run' AND p.proconfig::pg_catalog.text LIKE '%%search_path%%'
)

-- name: has_format
-- Whether the schema holds a store. Reads the catalog itself: a lookup by name may be cached from before another process created it.
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = 'format')

-- name: set_format
-- Record the format of the store.
INSERT INTO {schema}.format (version) VALUES (%s) ON CONFLICT (one) DO UPDATE SET version = excluded.version

-- name: has_schema
-- Whether the schema exists; creating it needs a right that filling it does not.
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s)

-- name: taken
-- Whether the schema has any table.
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v', 'S'))

-- name: alone
-- If many processes open an empty database at once, one creates the tables.
SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))

-- name: run
-- The whole row of one run, and the seq of its newest record.
SELECT pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check", (SELECT max(n.seq) FROM {schema}.records n WHERE n.run = runs.pk)
FROM {schema}.runs WHERE id = %s

-- name: records
-- A range of a chain; only some kinds, unless null; the newest first, at most a number.
SELECT r.seq, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta, r.own, r.labels, r.digest, r.body_digest, r.body
FROM {schema}.records r WHERE r.run = (SELECT pk FROM {schema}.runs WHERE id = %s) AND r.seq BETWEEN %s AND %s
    AND (%s::text[] IS NULL OR r.kind = ANY (%s::text[])) ORDER BY r.seq DESC LIMIT %s

-- name: locate
-- The seq of a checkpoint's record, and that of the newest base for it or an earlier one: a base directly follows its checkpoint.
SELECT spot.seq, (
    SELECT b.seq FROM {schema}.records b WHERE b.run = spot.run AND b.seq <= spot.seq + 1 AND b.kind = 'base' AND b.number <= spot.number
    ORDER BY b.seq DESC LIMIT 1
)
FROM {schema}.records spot WHERE spot.run = (SELECT pk FROM {schema}.runs WHERE id = %s) AND spot.kind = 'checkpoint' AND spot.number = %s
ORDER BY spot.seq LIMIT 1

-- name: gates
-- The questions of a run, and their answers.
SELECT r.seq, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta, r.own, r.labels, r.digest, r.body_digest, r.body
FROM {schema}.records r WHERE r.run = (SELECT pk FROM {schema}.runs WHERE id = %s) AND r.kind IN ('gate', 'answer') ORDER BY r.seq

-- name: unanswered
-- The questions of waiting runs that have no answer, beyond a cursor.
SELECT n.pk << 31 | r.seq, n.id, r.seq, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta, r.own, r.labels, r.digest, r.body_digest, r.body
FROM {schema}.runs n JOIN {schema}.records r ON r.run = n.pk AND r.kind IN ('gate', 'answer')
WHERE n.status = 'waiting' AND n.status IN ('queued', 'running', 'waiting') AND n.pk >= %s::bigint >> 31 AND n.pk << 31 | r.seq > %s
    AND r.kind = 'gate' AND (%s::text IS NULL OR n.workflow = %s) AND NOT EXISTS (
    SELECT 1 FROM {schema}.records a WHERE a.run = n.pk AND a.kind IN ('gate', 'answer') AND a.note = r.note AND a.kind = 'answer'
) ORDER BY n.pk, r.seq LIMIT %s

-- name: attached
-- The entries of a run that are attached to checkpoints, with addresses between two.
SELECT r.seq, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta, r.own, r.labels, r.digest, r.body_digest, r.body
FROM {schema}.records r WHERE r.run = (SELECT pk FROM {schema}.runs WHERE id = %s) AND r.kind = 'attached' AND r.note >= %s AND r.note < %s
ORDER BY r.seq

-- name: digests
-- The digests that prove some records and all before them.
SELECT seq, digest FROM {schema}.records WHERE run = (SELECT pk FROM {schema}.runs WHERE id = %s) AND seq = ANY (%s::bigint[])

-- name: chunks
-- Some chunks of a family.
SELECT digest, frame FROM {schema}.chunks WHERE family = %s AND digest = ANY (%s::bytea[])

-- name: tags
-- The tags of some checkpoints of a run.
SELECT key, name, number, at, "check" FROM {schema}.tags
WHERE run = (SELECT pk FROM {schema}.runs WHERE id = %s) AND number BETWEEN %s AND %s AND (%s::text IS NULL OR name = %s) ORDER BY name, number

-- name: message_count
-- The number of messages of a run.
SELECT count(*) FROM {schema}.messages WHERE run = (SELECT pk FROM {schema}.runs WHERE id = %s)

-- name: messages
-- All messages of a run.
SELECT key, name, due, at, body, "check" FROM {schema}.messages WHERE run = (SELECT pk FROM {schema}.runs WHERE id = %s) ORDER BY name

-- name: due
-- The runs that have a message whose time has come, may be woken up and are not paused; the earliest first.
SELECT r.id FROM (SELECT run, min(due) AS due FROM {schema}.messages WHERE due <= %s GROUP BY run) l JOIN {schema}.runs r ON r.pk = l.run
WHERE r.status IN ('waiting', 'failed')
    AND NOT EXISTS (SELECT 1 FROM {schema}.messages p WHERE p.run = l.run AND p.name = 'pause')
    AND NOT (%s AND EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.run = l.run))
ORDER BY l.due, r.pk LIMIT %s

-- name: settle_feed
-- Assign positions to recent commits.
SELECT {schema}.settle_feed(%s)

-- name: feed_unsettled
-- Whether any commit has no position yet.
SELECT EXISTS (SELECT 1 FROM {schema}.feed_new)

-- name: feed
-- The records beyond a position: position, run, the first and last seq of the entry, then the record. Entries of deleted runs are skipped.
-- First the entries of the page, by their index, then each entry's records by their key: in a plain join, the server compares every entry
-- with every record of a long run. An entry without any record is returned as nulls, so that the reader can report it.
WITH entries AS MATERIALIZED (
    SELECT f.last, f.run, f.seq, f.count, u.id FROM {schema}.feed f JOIN {schema}.runs u ON u.pk = f.run
    WHERE f.last > %s ORDER BY f.last LIMIT %s
), page AS MATERIALIZED (
    SELECT e.*, e.seq + greatest(0, %s - e.last + e.count) AS first, sum(least(e.count, e.last - %s)) OVER (ORDER BY e.last) AS upto FROM entries e
)
SELECT p.last - p.count + 1 + r.seq - p.seq, p.id, p.first, p.seq + p.count - 1, r.seq, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta,
    r.own, r.labels, r.digest, r.body_digest, r.body
FROM page p LEFT JOIN LATERAL (
    SELECT * FROM {schema}.records r WHERE r.run = p.run AND r.seq BETWEEN p.first AND p.seq + p.count - 1 ORDER BY r.seq LIMIT p.count
) r ON true
WHERE p.upto - (p.seq + p.count - p.first) < %s ORDER BY p.last, r.seq LIMIT %s

-- name: feed_end
-- The newest position.
SELECT position FROM {schema}.feed_end

-- name: workers
-- All workers that were not found dead, by the time at which they started, each with whether its lease has not expired.
SELECT id, host, pid, boot, started_at, expires_boot, expires_at, process, ends > {schema}.now_us() FROM {schema}.workers
ORDER BY started_at, id

-- name: holder
-- The worker that holds a lease, and whether it has not expired by the server's clock.
SELECT id, host, pid, boot, started_at, expires_boot, expires_at, process, ends > {schema}.now_us() FROM {schema}.workers WHERE id = %s

-- name: leased
-- A run with the seq of its newest record, its holder, and the server's time.
SELECT r.pk, r.id, r.key, r.family, r.workflow, r.session, r.tags, r.note, r.meta, r.parent, r.parent_number, r.created_at, r.status,
    r.updated_at, r.head_seq, r.head_digest, r.checkpoints, r.stored, r.epoch, r.worker, r.since, r."check",
    (SELECT max(n.seq) FROM {schema}.records n WHERE n.run = r.pk),
    {schema}.now_us(), w.id, w.host, w.pid, w.boot, w.started_at, w.expires_boot, w.expires_at, w.process, w.ends > {schema}.now_us()
FROM {schema}.runs r LEFT JOIN {schema}.workers w ON w.id = r.worker WHERE r.id = %s

-- name: manifest
-- All buckets of the manifest, the number of positions, and the id of the run that was committed to last.
SELECT array_agg(total ORDER BY bucket), array_agg(writes ORDER BY bucket), sum(runs)::bigint, (SELECT created FROM {schema}.counters),
    (SELECT id FROM {schema}.runs WHERE pk = (SELECT latest FROM {schema}.manifest ORDER BY latest_commit DESC LIMIT 1))
FROM {schema}.manifest

-- name: writes
-- How often the store was written.
SELECT sum(writes)::bigint FROM {schema}.manifest

-- name: stats
-- Counts and bytes of everything.
SELECT (SELECT count(*) FROM {schema}.runs), (SELECT count(*) FROM {schema}.records), (SELECT count(*) FROM {schema}.chunks),
    (SELECT count(*) FROM {schema}.messages), (SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM {schema}.records),
    (SELECT coalesce(sum(octet_length(frame)), 0)::bigint FROM {schema}.chunks)

-- name: size
-- The bytes of all tables and indexes of the store.
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r'

-- name: families
-- Every family that has a chunk or a run.
SELECT family FROM {schema}.chunks UNION SELECT family FROM {schema}.runs ORDER BY 1

-- name: chunk_sizes
-- The name of every chunk of a family, and its size.
SELECT digest, octet_length(frame) FROM {schema}.chunks WHERE family = %s

-- name: pruned
-- The prune mark of a run.
SELECT key, ranges, freed, at, numbers, "check" FROM {schema}.pruned WHERE run = (SELECT pk FROM {schema}.runs WHERE id = %s)

-- name: bases
-- The bases that prune added to a run, up to a checkpoint, newest first.
SELECT key, number, at, body, "check" FROM {schema}.bases
WHERE run = (SELECT pk FROM {schema}.runs WHERE id = %s) AND number <= %s ORDER BY number DESC LIMIT %s

-- name: tombstones
-- The tombstones of deleted runs, beyond a position.
SELECT pk, id, key, family, created_at, at, head_seq, head_digest, checkpoints, "check" FROM {schema}.tombstones
WHERE pk > %s ORDER BY pk LIMIT %s

-- name: properties
-- All properties whose names begin with a prefix.
SELECT name, value, "check" FROM {schema}.properties WHERE starts_with(name, %s) ORDER BY name

-- name: property
-- The property with a name.
SELECT name, value, "check" FROM {schema}.properties WHERE name = %s

-- name: census
-- The manifest and all its parts, as one snapshot: (what, number, digest, positions of deleted runs).
SELECT 'total', total, NULL::bytea, NULL::text FROM {schema}.manifest
UNION ALL SELECT 'runs', sum(runs), NULL, NULL FROM {schema}.manifest
UNION ALL SELECT 'created', created, NULL, NULL FROM {schema}.counters
UNION ALL SELECT 'found', NULL, "check", NULL FROM {schema}.runs
UNION ALL SELECT 'gone', NULL, "check", NULL FROM {schema}.tombstones
UNION ALL SELECT '', NULL, "check", NULL FROM {schema}.tags
UNION ALL SELECT '', NULL, "check", NULL FROM {schema}.messages
UNION ALL SELECT '', NULL, "check", NULL FROM {schema}.pruned
UNION ALL SELECT '', NULL, "check", NULL FROM {schema}.bases
UNION ALL SELECT '', NULL, "check", CASE WHEN starts_with(name, 'deleted:') THEN value END FROM {schema}.properties

-- name: metas
-- The rows that listings by tag and meta use, and their sources: (run, tags, meta, listed tags, listed items).
SELECT r.pk, r.tags, r.meta, ARRAY(SELECT tag FROM {schema}.run_tags t WHERE t.pk = r.pk), ARRAY(SELECT item FROM {schema}.run_meta m WHERE m.pk = r.pk)
FROM {schema}.runs r

-- name: strays
-- Rows of runs that do not exist, and differences between the feed and the runs.
SELECT 'a tag is for run ' || run || ', which is not there' FROM {schema}.tags WHERE run NOT IN (SELECT pk FROM {schema}.runs)
UNION ALL SELECT 'tag ' || name || ' of run ' || run || ' points at a checkpoint that is not there' FROM {schema}.tags t
WHERE NOT EXISTS (SELECT 1 FROM {schema}.records r WHERE r.run = t.run AND r.number = t.number AND r.kind = 'checkpoint')
UNION ALL SELECT 'message ' || name || ' is for run ' || run || ', which is not there' FROM {schema}.messages
WHERE run NOT IN (SELECT pk FROM {schema}.runs)
UNION ALL SELECT 'a prune mark is for run ' || run || ', which is not there' FROM {schema}.pruned WHERE run NOT IN (SELECT pk FROM {schema}.runs)
UNION ALL SELECT 'an added base is for run ' || run || ', which is not there' FROM {schema}.bases WHERE run NOT IN (SELECT pk FROM {schema}.runs)
UNION ALL SELECT 'an entry in queue ' || queue || ' is for run ' || run || ', which is not there' FROM {schema}.tasks
WHERE run NOT IN (SELECT pk FROM {schema}.runs)
UNION ALL SELECT 'run number ' || pk || ' is there and has a tombstone' FROM {schema}.tombstones WHERE pk IN (SELECT pk FROM {schema}.runs)
UNION ALL SELECT 'the feed has ' || coalesce(f.records, 0) || ' records of run number ' || r.pk || ', which has ' || r.head_seq
FROM {schema}.runs r LEFT JOIN (
    SELECT run, sum(count) AS records FROM (SELECT run, count FROM {schema}.feed UNION ALL SELECT run, count FROM {schema}.feed_new) e GROUP BY run
) f ON f.run = r.pk WHERE coalesce(f.records, 0) <> r.head_seq
UNION ALL SELECT 'the feed ends at position ' || position || ', its last entry at ' || (SELECT max(last) FROM {schema}.feed)
FROM {schema}.feed_end WHERE position < (SELECT max(last) FROM {schema}.feed)
UNION ALL SELECT 'the end of the feed is not noted' WHERE NOT EXISTS (SELECT 1 FROM {schema}.feed_end)
UNION ALL SELECT 'the entry of the feed at position ' || last || ' overlaps the one before it'
FROM (SELECT last, count, lag(last, 1, 0::bigint) OVER (ORDER BY last) AS before FROM {schema}.feed) f WHERE last < before + count OR count < 1
UNION ALL SELECT DISTINCT 'the records of run number ' || run || ' do not follow each other in the feed' FROM (
    SELECT run, seq, lag(seq + count, 1, 1::bigint) OVER (PARTITION BY run ORDER BY part, position) AS following FROM (
        SELECT run, seq, count, 0 AS part, last AS position FROM {schema}.feed UNION ALL SELECT run, seq, count, 1, id FROM {schema}.feed_new
    ) e
) f WHERE seq <> following AND run <> 0
UNION ALL SELECT 'the manifest has not all of its buckets' WHERE (SELECT count(*) FROM {schema}.manifest WHERE bucket BETWEEN 0 AND 63) <> 64
UNION ALL SELECT 'a tag is listed for run number ' || pk || ', which is not there' FROM {schema}.run_tags
WHERE pk NOT IN (SELECT pk FROM {schema}.runs)
UNION ALL SELECT 'a meta value is listed for run number ' || pk || ', which is not there' FROM {schema}.run_meta
WHERE pk NOT IN (SELECT pk FROM {schema}.runs)

-- name: health
-- The server's settings, whether this user may write, and the server's time.
SELECT current_setting('server_version'), current_setting('fsync'), pg_is_in_recovery(), current_setting('transaction_read_only'),
    has_table_privilege(%s, 'INSERT, UPDATE, DELETE'), current_setting('full_page_writes'), current_setting('data_checksums'),
    current_setting('autovacuum'), {schema}.now_us()

-- name: sessions
-- How many sessions are connected, how many may be, how many seconds the oldest transaction of this database has been open, whether the
-- connection is encrypted, and whether it comes from the server's own machine.
SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend')::bigint,
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
    (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::bigint FROM pg_catalog.pg_stat_activity WHERE datname = current_database()),
    coalesce((SELECT ssl FROM pg_catalog.pg_stat_ssl WHERE pid = pg_backend_pid()), false),
    inet_client_addr() IS NULL OR inet_client_addr() <<= '127.0.0.0/8'::inet OR inet_client_addr() = '::1'::inet

-- name: dead_rows
-- How many rows the tables have, and how many dead ones.
SELECT coalesce(sum(n_live_tup), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint FROM pg_catalog.pg_stat_user_tables WHERE schemaname = %s

-- name: queue_entry
-- The queue entry of one run.
SELECT r.id, t.queue, t.priority, t.key, t.dedupe, t.ready, t.worker, t.deaths
FROM {schema}.tasks t JOIN {schema}.runs r ON r.pk = t.run WHERE r.id = %s

-- name: queue_entries
-- All queue entries, or those of one queue, in the order of claiming.
SELECT r.id, t.queue, t.priority, t.key, t.dedupe, t.ready, t.worker, t.deaths FROM {schema}.tasks t JOIN {schema}.runs r ON r.pk = t.run
WHERE %s::text IS NULL OR t.queue = %s ORDER BY t.queue, t.priority DESC, t.ready NULLS LAST, t.run LIMIT %s

-- name: twin
-- The run that has an entry in a queue with the same `dedupe`.
SELECT r.id FROM {schema}.tasks t JOIN {schema}.runs r ON r.pk = t.run WHERE t.queue = %s AND t.dedupe = %s

-- name: next_ready
-- How long until the next run of some queues becomes ready, and the server's time: the first of each queue and priority.
WITH RECURSIVE steps (queue, priority) AS (
    SELECT q, (SELECT max(priority) FROM {schema}.tasks WHERE queue = q AND ready IS NOT NULL) FROM unnest(%s::text[]) AS q
    UNION ALL
    SELECT s.queue, (SELECT max(priority) FROM {schema}.tasks t WHERE t.queue = s.queue AND t.ready IS NOT NULL AND t.priority < s.priority)
    FROM steps s WHERE s.priority IS NOT NULL
)
SELECT min(first), {schema}.now_us() FROM (
    SELECT (
        SELECT ready FROM {schema}.tasks t WHERE t.queue = s.queue AND t.priority = s.priority AND ready IS NOT NULL ORDER BY ready LIMIT 1
    ) AS first FROM steps s WHERE s.priority IS NOT NULL
) f

-- name: holders
-- The workers that have queued runs.
SELECT DISTINCT w.id, w.host, w.pid, w.boot, w.started_at, w.expires_boot, w.expires_at, w.process, w.ends >= {schema}.now_us()
FROM {schema}.tasks t JOIN {schema}.workers w ON w.id = t.worker WHERE t.worker IS NOT NULL

-- name: abandoned
-- Whether a run of a queue has a worker whose lease has expired, or that is not registered.
SELECT EXISTS (
    SELECT 1 FROM {schema}.tasks t WHERE t.worker IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {schema}.workers w WHERE w.id = t.worker AND w.ends >= {schema}.now_us())
)

-- name: depths
-- How many runs of each queue are ready, become ready later, wait and are running, and since when the oldest is ready.
WITH now AS (SELECT {schema}.now_us() AS us)
SELECT queue, count(*) FILTER (WHERE ready <= us), count(*) FILTER (WHERE ready > us), count(*) FILTER (WHERE ready IS NULL AND worker IS NULL),
    count(*) FILTER (WHERE worker IS NOT NULL), min(ready) FILTER (WHERE ready <= us) FROM {schema}.tasks, now GROUP BY queue

-- name: ticks
-- The activity of each queue in the last minutes.
SELECT queue, {schema}.now_us() / 60000000 - minute, sum(claimed)::bigint, sum(ended)::bigint, sum(failed)::bigint, sum(deaths)::bigint
FROM {schema}.ticks WHERE minute > {schema}.now_us() / 60000000 - %s GROUP BY queue, minute

-- name: held_by
-- The queued runs that a worker has.
SELECT r.id FROM {schema}.tasks t JOIN {schema}.runs r ON r.pk = t.run WHERE t.worker = %s

-- name: order
-- Write an order in a caller's own transaction, and its notification: both happen with its commit, or not at all.
-- The id is passed as bytes, because the caller's connection may have another encoding.
WITH left_here AS (INSERT INTO {schema}.orders (run, body, digest) VALUES (pg_catalog.convert_from(%s, 'UTF8'), %s, %s) RETURNING number)
SELECT number, pg_catalog.pg_notify({channel}, '') FROM left_here

-- name: orders
-- The oldest orders.
SELECT number, run, body, digest FROM {schema}.orders ORDER BY number LIMIT %s

-- name: rows_of
-- Some runs, by their positions.
SELECT pk, pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check"
FROM {schema}.runs WHERE pk = ANY (%s::bigint[])

-- name: tags_of
-- All tags of some runs.
SELECT run, key, name, number, at, "check" FROM {schema}.tags WHERE run = ANY (%s::bigint[]) ORDER BY run, name, number

-- name: messages_of
-- All messages of some runs.
SELECT run, key, name, due, at, body, "check" FROM {schema}.messages WHERE run = ANY (%s::bigint[]) ORDER BY run, name

-- name: marks_of
-- The prune marks of some runs.
SELECT run, key, ranges, freed, at, numbers, "check" FROM {schema}.pruned WHERE run = ANY (%s::bigint[])

-- name: bases_of
-- The bases that prune added to some runs.
SELECT run, key, number, at, body, "check" FROM {schema}.bases WHERE run = ANY (%s::bigint[]) ORDER BY run, number

-- name: parents_of
-- Those of some runs that another run was forked from or called by.
SELECT id FROM unnest(%s::text[]) AS asked (id) WHERE EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.parent = asked.id)

-- name: records_of
-- All records of some runs.
SELECT run, seq, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body FROM {schema}.records
WHERE run = ANY (%s::bigint[]) ORDER BY run, seq

-- name: heads_of
-- The newest record of some runs, and all records after it.
SELECT r.run, r.seq, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta, r.own, r.labels, r.digest, r.body_digest, r.body
FROM unnest(%s::bigint[], %s::bigint[]) AS head (run, seq) JOIN {schema}.records r ON r.run = head.run AND r.seq BETWEEN head.seq AND head.seq + 1

-- name: sizes_of
-- The chunks of some families, with their sizes.
SELECT family, digest, octet_length(frame) FROM {schema}.chunks WHERE family = ANY (%s::bytea[])

-- name: frames_of
-- The chunks of some families.
SELECT family, digest, frame FROM {schema}.chunks WHERE family = ANY (%s::bytea[])

-- name: family_keys
-- The wrapped keys of some families.
SELECT family, wrapped FROM {schema}.keys WHERE family = ANY (%s::bytea[])

-- name: key_page
-- Families with their wrapped keys, in order.
SELECT family, wrapped FROM {schema}.keys WHERE family > %s::bytea ORDER BY family LIMIT %s

-- Statements of readers. Each has a name and a sentence; backends/sql_files.py loads them.

-- name: begin
-- Begin one snapshot for all following reads.
BEGIN

-- name: end
-- End the snapshot.
COMMIT

-- name: run
-- The whole row of one run, and the id of its newest record.
SELECT pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check",
    (SELECT r.id FROM records r WHERE r.id BETWEEN runs.pk << 31 AND runs.pk << 31 | 2147483647 ORDER BY r.id DESC LIMIT 1)
FROM runs WHERE id = ?

-- name: run_at
-- The whole row of the run at a position, and the id of its newest record.
SELECT pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq,
    head_digest, checkpoints, stored, epoch, worker, since, "check",
    (SELECT r.id FROM records r WHERE r.id BETWEEN runs.pk << 31 AND runs.pk << 31 | 2147483647 ORDER BY r.id DESC LIMIT 1)
FROM runs WHERE pk = ?

-- name: pk
-- The primary key of a run.
SELECT pk FROM runs WHERE id = ?

-- name: records
-- A range of a chain.
SELECT id, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body FROM records WHERE id BETWEEN ? AND ? ORDER BY id

-- name: newest_records
-- The last records of a range of a chain, newest first, at most a number.
SELECT id, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body FROM records WHERE id BETWEEN ? AND ?
ORDER BY id DESC LIMIT ?

-- name: records_of_kinds
-- The records of some kinds (a JSON array) in a range, newest first.
SELECT id, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body FROM records
WHERE id BETWEEN ? AND ? AND kind IN (SELECT value FROM json_each(?)) ORDER BY id DESC LIMIT ?

-- name: attached
-- The entries of a run that are attached to checkpoints, with addresses between two.
SELECT id, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body FROM records INDEXED BY records_attached
WHERE kind = 'attached' AND id >> 31 = ? AND note >= ? AND note < ? ORDER BY id

-- name: gates
-- The questions of a run, and their answers.
SELECT id, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body FROM records INDEXED BY records_gates
WHERE kind IN ('gate', 'answer') AND id >> 31 = ? ORDER BY id

-- name: unanswered
-- The questions of waiting runs that have no answer, beyond a cursor.
SELECT r.id, g.id, g.kind, g.epoch, g.at, g.number, g.note, g.tags, g.meta, g.own, g.labels, g.digest, g.body_digest, g.body
FROM runs r INDEXED BY runs_status CROSS JOIN records g INDEXED BY records_gates
    ON g.id >> 31 = r.pk AND g.kind IN ('gate', 'answer')
WHERE r.status = 'waiting' AND r.pk >= ?1 >> 31 AND g.id > ?1 AND g.kind = 'gate' AND (?2 IS NULL OR r.workflow = ?2) AND NOT EXISTS (
    SELECT 1 FROM records a INDEXED BY records_gates
    WHERE a.kind IN ('gate', 'answer') AND a.id >> 31 = r.pk AND a.note = g.note AND a.kind = 'answer'
) ORDER BY r.pk, g.id LIMIT ?3

-- name: pk_and_head
-- The key of a run, and the length of its chain.
SELECT pk, head_seq FROM runs WHERE id = ?

-- name: base_before
-- The newest base in a range for a checkpoint or an earlier one.
SELECT id FROM records WHERE id BETWEEN ? AND ? AND kind = 'base' AND number <= ? ORDER BY id DESC LIMIT 1

-- name: number_from
-- The checkpoint number of the first record at or beyond an id.
SELECT id, number FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1

-- name: kind_from
-- Checkpoint number and kind of the first record at or beyond an id.
SELECT id, number, kind FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1

-- name: last_id
-- The newest record in a range.
SELECT id FROM records WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1

-- name: chunk
-- One chunk.
SELECT frame FROM chunks WHERE family = ? AND digest = ?

-- name: tags
-- All tags of a run.
SELECT key, name, number, at, "check" FROM tags WHERE run = ? ORDER BY name, number

-- name: tags_named
-- The tags of a run with a name.
SELECT key, name, number, at, "check" FROM tags NOT INDEXED WHERE run = ? AND name = ? ORDER BY number

-- name: count_named
-- How many tags of a run have a name, by the other tree that holds them.
SELECT count(*) FROM tags INDEXED BY tags_name WHERE name = ? AND run = ?

-- name: tags_between
-- The tags of some checkpoints of a run.
SELECT key, name, number, at, "check" FROM tags WHERE run = ? AND number BETWEEN ? AND ?

-- name: count_tags
-- How many tags of a run are in each of the two trees that hold them.
SELECT (SELECT count("check") FROM tags NOT INDEXED WHERE run = ?), (SELECT count(*) FROM tags INDEXED BY tags_number WHERE run = ?)

-- name: entries_in_table
-- How many entries of some kinds a run has beyond an id, and the sum of their ids within the run; read from the records themselves.
SELECT count(*), total(id & 2147483647) FROM records NOT INDEXED WHERE id BETWEEN ? AND ? AND kind IN (?, ?)

-- name: attached_in_index
-- The same for attached entries, from their index.
SELECT count(*), total(id & 2147483647) FROM records INDEXED BY records_attached WHERE kind = 'attached' AND id >> 31 = ? AND id >= ?

-- name: gates_in_index
-- The same for questions and answers, from their index.
SELECT count(*), total(id & 2147483647) FROM records INDEXED BY records_gates WHERE kind IN ('gate', 'answer') AND id >> 31 = ? AND id >= ?

-- name: all_metas
-- The metadata of all checkpoints.
SELECT id, meta FROM records NOT INDEXED WHERE kind = 'checkpoint' AND meta IS NOT NULL

-- name: all_meta_items
-- The numbers by which checkpoints are found.
SELECT item, id FROM checkpoint_meta

-- name: strayed_message
-- A message whose run is not the one that it was sent to: damage has changed the number of the run, which no digest covers.
SELECT 1 FROM messages m LEFT JOIN runs r ON r.pk = m.run WHERE r.key IS NOT m.key LIMIT 1

-- name: due_by_run
-- A count and a sum over messages that have a time, by the table. A sum of low bits cannot overflow.
SELECT count(due), sum(due & 1073741823), sum(run) FILTER (WHERE due IS NOT NULL) FROM messages NOT INDEXED

-- name: due_by_time
-- The same by the index.
SELECT count(due), sum(due & 1073741823), sum(run) FROM messages INDEXED BY messages_due WHERE due IS NOT NULL

-- name: ids_by_name
-- A count and a sum over the runs in the index of ids.
SELECT count(*), sum(pk) FROM runs INDEXED BY sqlite_autoindex_runs_1

-- name: ids_by_order
-- The same by the index in the order of creation.
SELECT count(*), sum(pk) FROM runs INDEXED BY runs_order

-- name: digest
-- The digest that proves one record and all before it.
SELECT digest FROM records WHERE id = ?

-- name: message_count
-- The number of messages of a run.
SELECT count(*) FROM messages WHERE run = (SELECT pk FROM runs WHERE id = ?)

-- name: messages
-- All messages of a run.
SELECT key, name, due, at, body, "check" FROM messages WHERE run = ? ORDER BY name

-- name: due
-- The runs that have a message whose time has come, may be woken up and are not paused; the earliest first.
SELECT runs.id FROM messages INDEXED BY messages_due CROSS JOIN runs ON runs.pk = messages.run
WHERE messages.due <= ? AND runs.status IN ('waiting', 'failed')
    AND NOT EXISTS (SELECT 1 FROM messages AS others WHERE others.run = messages.run AND others.name = 'pause')
    AND NOT (? AND EXISTS (SELECT 1 FROM tasks WHERE tasks.run = messages.run))
GROUP BY runs.pk ORDER BY min(messages.due), runs.pk LIMIT ?

-- name: feed_newest
-- The end of the feed.
SELECT feed, fed FROM manifest WHERE pk = 1

-- name: feed_at
-- The part of the feed that holds a position.
SELECT first, entries FROM feed WHERE first <= ? ORDER BY first DESC LIMIT 1

-- name: feed_between
-- The parts of the feed that begin between two positions, and the one before them.
SELECT first, entries FROM feed WHERE first >= coalesce((SELECT max(first) FROM feed WHERE first <= ?1), 0) AND first <= ?2 ORDER BY first

-- name: existing_runs
-- Which of some positions have a run.
SELECT pk FROM runs WHERE pk IN (SELECT value FROM json_each(?))

-- name: count_feed
-- How many full parts the feed has.
SELECT count(*) FROM feed

-- name: id_at
-- The id of the run at a position.
SELECT id FROM runs WHERE pk = ?

-- name: heads
-- Every run with the seq of its newest record.
SELECT pk, id, head_seq FROM runs ORDER BY pk

-- name: worker
-- One worker.
SELECT id, host, pid, boot, started_at, expires_boot, expires_at FROM workers WHERE id = ?

-- name: workers
-- All workers that were not found dead.
SELECT id, host, pid, boot, started_at, expires_boot, expires_at FROM workers

-- name: manifest
-- The manifest, with the id of the run that was committed to last.
SELECT total, manifest.runs, runs.id, next - 1, writes FROM manifest LEFT JOIN runs ON runs.pk = manifest.latest WHERE manifest.pk = 1

-- name: count_runs
-- How many runs.
SELECT count(*) FROM runs

-- name: count_records
-- How many records, and the bytes of their bodies.
SELECT count(*), coalesce(sum(length(body)), 0) FROM records

-- name: count_chunks
-- How many chunks, and the bytes of their frames.
SELECT count(*), coalesce(sum(length(frame)), 0) FROM chunks

-- name: count_all_messages
-- How many messages.
SELECT count(*) FROM messages

-- name: families
-- Every family that has a chunk or a run.
SELECT family FROM chunks UNION SELECT family FROM runs ORDER BY 1

-- name: chunk_sizes
-- The name of every chunk of a family, and its size.
SELECT digest, length(frame) FROM chunks WHERE family = ?

-- name: pruned
-- The prune mark of a run.
SELECT key, ranges, freed, at, numbers, "check" FROM pruned WHERE run = ?

-- name: bases
-- The bases that prune added to a run.
SELECT key, number, at, body, "check" FROM bases WHERE run = ? ORDER BY number

-- name: base_upto
-- The newest added base at or before a checkpoint.
SELECT key, number, at, body, "check" FROM bases WHERE run = ? AND number <= ? ORDER BY number DESC LIMIT 1

-- name: tombstones
-- The tombstones of deleted runs, beyond a position.
SELECT pk, id, key, family, created_at, at, head_seq, head_digest, checkpoints, "check" FROM tombstones WHERE pk > ? ORDER BY pk LIMIT ?

-- name: property
-- The property with a name.
SELECT name, value, "check" FROM properties WHERE name = ?

-- name: properties
-- All properties whose names begin with a prefix.
SELECT name, value, "check" FROM properties WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name

-- name: schema
-- Every table and index; as bytes, because a damaged name may not be valid text.
SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(coalesce(sql, '') AS BLOB) FROM main.sqlite_schema

-- name: parts
-- Which parts of the tables were created, a bit for each.
SELECT parts FROM manifest WHERE pk = 1

-- name: read_schema
-- Makes the connection compare its schema with that of the file.
SELECT 1 FROM main.sqlite_schema LIMIT 1

-- name: schema_version
-- How often the tables were changed.
PRAGMA main.schema_version

-- name: seen
-- The identity of the store, and how often it was written.
SELECT identity, writes FROM manifest WHERE pk = 1

-- name: manifest_page
-- The page of the manifest, to find it in the WAL.
SELECT rootpage FROM main.sqlite_schema WHERE name = 'manifest'

-- name: total
-- The sum in the manifest.
SELECT total FROM manifest WHERE pk = 1

-- name: all_checks
-- All checks that the sum in the manifest is made of.
SELECT "check" FROM runs UNION ALL SELECT "check" FROM tags UNION ALL SELECT "check" FROM messages UNION ALL SELECT "check" FROM pruned
UNION ALL SELECT "check" FROM bases UNION ALL SELECT "check" FROM tombstones UNION ALL SELECT "check" FROM properties

-- name: task_queue
-- The queue of a run that has a queue entry.
SELECT queue FROM tasks WHERE run = ?

-- name: message_times
-- The names of a run's messages, and when they are due.
SELECT name, due FROM messages WHERE run = ?

-- name: twin
-- The run that has an entry in a queue with the same `dedupe`.
SELECT r.id FROM tasks t JOIN runs r ON r.pk = t.run WHERE t.queue = ? AND t.dedupe = ?

-- name: queue_entry
-- The queue entry of one run.
SELECT r.id, t.queue, t.priority, t.key, t.dedupe, t.ready, t.worker, t.deaths FROM tasks t JOIN runs r ON r.pk = t.run WHERE r.id = ?

-- name: queue_entries
-- All queue entries, or those of one queue, in the order of claiming.
SELECT r.id, t.queue, t.priority, t.key, t.dedupe, t.ready, t.worker, t.deaths FROM tasks t JOIN runs r ON r.pk = t.run
WHERE ?1 IS NULL OR t.queue = ?1 ORDER BY t.queue, t.priority DESC, t.ready IS NULL, t.ready, t.run LIMIT ?2

-- name: next_ready
-- When the next run of a queue becomes ready: the first of each priority.
WITH RECURSIVE priorities (priority) AS (
    SELECT max(priority) FROM tasks WHERE queue = ?1 AND ready IS NOT NULL
    UNION ALL
    SELECT (SELECT max(priority) FROM tasks WHERE queue = ?1 AND ready IS NOT NULL AND priority < p.priority) FROM priorities p
    WHERE p.priority IS NOT NULL
)
SELECT min(first) FROM (
    SELECT (SELECT ready FROM tasks WHERE queue = ?1 AND priority = p.priority AND ready IS NOT NULL ORDER BY ready LIMIT 1) AS first
    FROM priorities p WHERE p.priority IS NOT NULL
)

-- name: top_priority
-- The next lower priority among the waiting runs of a queue.
SELECT max(priority) FROM tasks WHERE queue = ? AND ready IS NOT NULL AND priority < ?

-- name: candidates
-- The ready runs of a queue and a priority after one of them, at most a number.
SELECT t.key, t.deaths, r.id, r.workflow, t.ready, t.run FROM tasks t JOIN runs r ON r.pk = t.run
WHERE t.queue = ? AND t.priority = ? AND t.ready IS NOT NULL AND t.ready <= ? AND (t.ready, t.run) > (?, ?) ORDER BY t.ready, t.run LIMIT ?

-- name: held
-- How many runs of a queue are running, by key.
SELECT key, count(*) FROM tasks WHERE queue = ? AND worker IS NOT NULL GROUP BY key

-- name: started
-- How many runs of a queue were claimed since a time.
SELECT count(*) FROM starts WHERE queue = ? AND at > ?

-- name: held_tasks
-- The running runs of all queues, with their workers.
SELECT t.run, t.worker, t.queue, r.head_seq FROM tasks t JOIN runs r ON r.pk = t.run WHERE t.worker IS NOT NULL

-- name: depths
-- How many runs of each queue are ready, become ready later, wait and are running, and since when the oldest is ready.
SELECT queue, count(*) FILTER (WHERE ready <= ?1), count(*) FILTER (WHERE ready > ?1), count(*) FILTER (WHERE ready IS NULL AND worker IS NULL),
    count(worker), min(ready) FILTER (WHERE ready <= ?1) FROM tasks GROUP BY queue

-- name: ticks
-- The activity of each queue since a time.
SELECT queue, minute, claimed, ended, failed, deaths FROM ticks WHERE minute > ?

-- name: held_by
-- The queued runs that a worker has.
SELECT r.id FROM tasks t JOIN runs r ON r.pk = t.run WHERE t.worker = ?

-- name: family_key
-- The wrapped key of a family, unless it was destroyed.
SELECT wrapped FROM keys WHERE family = ? AND substr(wrapped, 1, 1) <> x'00'

-- name: key_page
-- Families with their wrapped keys, in order.
SELECT family, wrapped FROM keys WHERE family > ? AND substr(wrapped, 1, 1) <> x'00' ORDER BY family LIMIT ?

-- Statements that read a page of runs at once, from one position to another. Each has a name and a sentence; backends/sql_files.py loads them.

-- name: tags_of
-- All tags of some runs.
SELECT run, key, name, number, at, "check" FROM tags WHERE run BETWEEN ? AND ? ORDER BY run, name, number

-- name: messages_of
-- All messages of some runs.
SELECT run, key, name, due, at, body, "check" FROM messages WHERE run BETWEEN ? AND ? ORDER BY run, name

-- name: marks_of
-- The prune marks of some runs.
SELECT run, key, ranges, freed, at, numbers, "check" FROM pruned WHERE run BETWEEN ? AND ?

-- name: bases_of
-- The bases that prune added to some runs.
SELECT run, key, number, at, body, "check" FROM bases WHERE run BETWEEN ? AND ? ORDER BY run, number

-- name: heads_of
-- The newest record of some runs, and all records after it.
SELECT u.pk, r.id, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta, r.own, r.labels, r.digest, r.body_digest, r.body
FROM runs u CROSS JOIN records r ON r.id BETWEEN (u.pk << 31) + u.head_seq AND (u.pk << 31) + u.head_seq + 1 WHERE u.pk BETWEEN ? AND ?

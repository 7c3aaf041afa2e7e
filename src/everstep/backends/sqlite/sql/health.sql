-- Statements that check a store. Each has a name and a sentence; backends/sql_files.py loads them.

-- name: integrity
-- SQLite's own check of pages, indexes and types.
PRAGMA integrity_check

-- name: listing
-- Where the listing tables differ from the rows that they were made from.
SELECT 'tag ' || name || ' of run ' || run || ' points at a record that is not its checkpoint' FROM tags
WHERE NOT EXISTS (SELECT 1 FROM records WHERE id = (tags.run << 31 | tags.seq) AND number = tags.number AND kind = 'checkpoint')
UNION ALL
SELECT 'tag ' || tag || ' of run ' || pk || ' is listed, but not in its row' FROM run_tags
WHERE NOT EXISTS (SELECT 1 FROM runs, json_each(runs.tags) WHERE runs.pk = run_tags.pk AND json_each.value = run_tags.tag)
UNION ALL
SELECT 'tag ' || json_each.value || ' of run ' || runs.pk || ' is not listed' FROM runs, json_each(runs.tags)
WHERE NOT EXISTS (SELECT 1 FROM run_tags WHERE run_tags.pk = runs.pk AND run_tags.tag = json_each.value)
UNION ALL
SELECT 'message ' || name || ' is for run ' || run || ', which is not there' FROM messages WHERE run NOT IN (SELECT pk FROM runs)
UNION ALL
SELECT 'a prune mark is for run ' || run || ', which is not there' FROM pruned WHERE run NOT IN (SELECT pk FROM runs)
UNION ALL
SELECT 'an added base is for run ' || run || ', which is not there' FROM bases WHERE run NOT IN (SELECT pk FROM runs)
UNION ALL
SELECT 'an entry in queue ' || queue || ' is for run ' || run || ', which is not there' FROM tasks WHERE run NOT IN (SELECT pk FROM runs)
UNION ALL
SELECT 'run number ' || pk || ' is there and has a tombstone' FROM tombstones WHERE pk IN (SELECT pk FROM runs)
UNION ALL
SELECT 'the manifest names a last run that is not there' FROM manifest
WHERE (latest IS NOT NULL AND latest NOT IN (SELECT pk FROM runs)) OR next <= coalesce((SELECT max(pk) FROM runs), 0)

-- name: run_meta
-- The scalars of all runs, as listed.
SELECT pk, key, value FROM run_meta

-- name: metas
-- The meta text of every run that has one.
SELECT pk, meta FROM runs WHERE meta IS NOT NULL

-- name: manifest
-- The figures of the manifest about all runs.
SELECT total, runs, next - 1 FROM manifest WHERE pk = 1

-- name: count_runs
-- How many runs.
SELECT count(*) FROM runs

-- name: forgotten
-- The positions of deleted runs whose tombstones were dropped.
SELECT value FROM properties WHERE substr(name, 1, length(?1)) = ?1

-- name: count_tombstones
-- How many runs were deleted.
SELECT count(*) FROM tombstones

-- name: checks
-- All checks that count in the manifest.
SELECT "check" FROM runs
UNION ALL SELECT "check" FROM tags
UNION ALL SELECT "check" FROM messages
UNION ALL SELECT "check" FROM pruned
UNION ALL SELECT "check" FROM properties
UNION ALL SELECT "check" FROM bases
UNION ALL SELECT "check" FROM tombstones

-- name: writes
-- How often the store was written.
SELECT writes FROM manifest WHERE pk = 1

-- name: journal_mode
-- How SQLite keeps a commit until it is merged.
PRAGMA journal_mode

-- name: pages
-- How many pages the file has.
PRAGMA page_count

-- name: free_pages
-- How many of them are free.
PRAGMA freelist_count

-- name: page_size
-- The bytes of a page.
PRAGMA page_size

-- The writes of a store in PostgreSQL, each in one round trip. Installed with the tables of format 1; {schema} is the store's own schema.
-- Each is one transaction, or a part of one. A refusal is a code, not an error, so that it does not fail the others of a batch;
-- and it is decided before anything is written. Locks are taken in one order: run, queue entry, bucket, chunks.
-- Functions that are called from outside set the search path: an object of the same name in another schema must not replace ours.

-- The digest of a row as a number, for the sum in the manifest.
CREATE OR REPLACE FUNCTION {schema}.number_of(p_check bytea) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    v_number numeric := 0;
BEGIN
    FOR n IN 0..7 LOOP
        v_number := v_number * 4294967296 + ('x' || encode(substr(p_check, 1 + 4 * n, 4), 'hex'))::bit(32)::bigint;
    END LOOP;
    RETURN v_number;
END
$$;

-- The server's clock in microseconds since 1970.
CREATE OR REPLACE FUNCTION {schema}.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Wait for the disk at the end of this transaction, even if the server's or the user's settings are weaker. Stronger ones are kept.
CREATE OR REPLACE FUNCTION {schema}.durably() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

-- Undo a write that the manifest cannot count: nothing would prove it.
CREATE OR REPLACE FUNCTION {schema}.no_bucket(p_bucket smallint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'bucket % of the manifest is gone', p_bucket USING ERRCODE = 'data_corrupted';
END
$$;

-- Change the sum in the manifest, in one bucket; returns the bucket's number of writes, which is the stamp of chunks.
-- Only a bucket is locked until the transaction ends, and each open store has its own: so writers rarely wait for each other.
CREATE OR REPLACE FUNCTION {schema}.count(p_bucket smallint, p_delta numeric, p_runs integer DEFAULT 0) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT {schema}.durably();
    UPDATE {schema}.manifest SET total = total + p_delta, runs = runs + p_runs, writes = writes + 1
    WHERE bucket = p_bucket RETURNING writes
$$;

-- Add chunks of a family; one with the name "family key" is its wrapped key instead. A stored chunk has the same content, unless it was damaged: then this heals it. A frame never gets shorter.
CREATE OR REPLACE FUNCTION {schema}.keep_chunks(
    p_family bytea, p_digests bytea[], p_frames bytea[], p_bucket smallint, p_stamp bigint
) RETURNS void LANGUAGE sql VOLATILE AS $$
    INSERT INTO {schema}.keys (family, wrapped)
    SELECT p_family, frame FROM unnest(p_digests, p_frames) AS new (digest, frame) WHERE digest = 'family key'::bytea
    ON CONFLICT DO NOTHING;
    INSERT INTO {schema}.chunks AS old (family, digest, bucket, stamp, frame)
    SELECT p_family, digest, p_bucket, p_stamp, frame FROM unnest(p_digests, p_frames) AS new (digest, frame)
    WHERE digest <> 'family key'::bytea ORDER BY digest
    ON CONFLICT (family, digest) DO UPDATE SET
        frame = CASE WHEN length(excluded.frame) < length(old.frame) THEN old.frame ELSE excluded.frame END,
        bucket = excluded.bucket, stamp = excluded.stamp
$$;

-- Keep the listing tables consistent with a row.
CREATE OR REPLACE FUNCTION {schema}.label(p_pk bigint, p_old_tags text[], p_tags text[], p_old_items bytea[], p_items bytea[])
RETURNS void LANGUAGE sql VOLATILE AS $$
    DELETE FROM {schema}.run_tags WHERE pk = p_pk AND tag = ANY (p_old_tags);
    DELETE FROM {schema}.run_meta WHERE pk = p_pk AND item = ANY (p_old_items);
    INSERT INTO {schema}.run_tags (tag, pk) SELECT tag, p_pk FROM unnest(p_tags) AS tag ON CONFLICT DO NOTHING;
    INSERT INTO {schema}.run_meta (item, pk) SELECT item, p_pk FROM unnest(p_items) AS item ON CONFLICT DO NOTHING;
$$;

-- One commit of one run. Codes: 0 done, 1 done before (only if `p_again` says that this is a retry), 2 the run was deleted,
-- 3 the epoch has changed, 4 the head or the check has changed, 5 the id is taken, 6 the parent was deleted, 7 the queue has a duplicate.
CREATE OR REPLACE FUNCTION {schema}.commit_run(
    p_bucket smallint, p_again boolean, p_delta numeric,
    p_was_epoch bigint, p_was_seq bigint, p_was_check bytea,
    p_id text, p_key bytea, p_family bytea, p_workflow text, p_session text, p_tags text, p_note text, p_meta text, p_parent text,
    p_parent_number bigint, p_created_at bigint, p_status text, p_updated_at bigint, p_head_seq bigint, p_head_digest bytea,
    p_checkpoints bigint, p_stored bigint, p_epoch bigint, p_worker text, p_since bigint, p_check bytea,
    p_seqs bigint[], p_kinds text[], p_epochs bigint[], p_ats bigint[], p_numbers bigint[], p_notes text[], p_record_tags text[],
    p_metas text[], p_owns text[], p_label_parts bytea[], p_digests bytea[], p_body_digests bytea[], p_bodies bytea[],
    p_chunks bytea[] DEFAULT '{}', p_frames bytea[] DEFAULT '{}',
    p_tag_names text[] DEFAULT '{}', p_tag_numbers bigint[] DEFAULT '{}', p_tag_ats bigint[] DEFAULT '{}', p_tag_checks bytea[] DEFAULT '{}',
    p_read text[] DEFAULT '{}', p_messages text[] DEFAULT '{}', p_dues bigint[] DEFAULT '{}', p_message_ats bigint[] DEFAULT '{}',
    p_message_bodies bytea[] DEFAULT '{}', p_message_checks bytea[] DEFAULT '{}',
    p_old_labels text[] DEFAULT '{}', p_labels text[] DEFAULT '{}', p_old_items bytea[] DEFAULT '{}', p_items bytea[] DEFAULT '{}',
    p_queue text DEFAULT NULL, p_priority bigint DEFAULT 0, p_lane text DEFAULT NULL, p_dedupe text DEFAULT NULL,
    OUT code integer, OUT waiting bigint, OUT epoch_now bigint, OUT seq_now bigint
) LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_pk bigint;
    v_stamp bigint;
    v_commit bigint;
    v_more numeric := 0;
    v_part numeric;
    v_there {schema}.runs%ROWTYPE;
BEGIN
    code := 0;
    IF p_was_check IS NOT NULL THEN
        UPDATE {schema}.runs SET
            workflow = p_workflow, session = p_session, tags = p_tags, note = p_note, meta = p_meta, status = p_status,
            updated_at = p_updated_at, head_seq = p_head_seq, head_digest = p_head_digest, checkpoints = p_checkpoints,
            stored = p_stored, epoch = p_epoch, worker = p_worker, since = p_since, "check" = p_check
        WHERE id = p_id AND epoch = p_was_epoch AND head_seq = p_was_seq AND "check" = p_was_check
        RETURNING pk INTO v_pk;
    ELSE
        IF p_parent IS NOT NULL AND p_family <> p_key THEN
            PERFORM 1 FROM {schema}.runs WHERE id = p_parent AND family = p_family FOR KEY SHARE;
            IF NOT FOUND THEN
                code := 6;
            END IF;
        END IF;
        IF code = 0 AND NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE id = p_id) THEN
            -- Positions are assigned one after the other until the transaction ends: one never becomes visible after a higher one was seen.
            UPDATE {schema}.counters SET created = created + 1 RETURNING created INTO v_pk;
            IF p_dedupe IS NOT NULL AND EXISTS (SELECT 1 FROM {schema}.tasks WHERE queue = p_queue AND dedupe = p_dedupe) THEN
                UPDATE {schema}.counters SET created = created - 1;
                code := 7;
                RETURN;
            END IF;
            INSERT INTO {schema}.runs VALUES (
                v_pk, p_id, p_key, p_family, p_workflow, p_session, p_tags, p_note, p_meta, p_parent, p_parent_number, p_created_at,
                p_status, p_updated_at, p_head_seq, p_head_digest, p_checkpoints, p_stored, p_epoch, p_worker, p_since, p_check
            ) ON CONFLICT (id) DO NOTHING;
            IF NOT FOUND THEN
                UPDATE {schema}.counters SET created = created - 1;
                v_pk := NULL;
            END IF;
        END IF;
    END IF;

    IF v_pk IS NULL THEN
        SELECT * INTO v_there FROM {schema}.runs WHERE id = p_id;
        epoch_now := v_there.epoch;
        seq_now := v_there.head_seq;
        IF v_there.pk IS NULL THEN
            code := CASE WHEN code = 6 THEN 6 ELSE 2 END;
        ELSIF p_again AND v_there.key = p_key AND (
            v_there."check" = p_check
            OR EXISTS (SELECT 1 FROM {schema}.records WHERE run = v_there.pk AND seq = p_head_seq AND digest = p_head_digest AND p_seqs <> '{}')
            OR p_was_check IS NULL
        ) THEN
            code := 1;
            SELECT count(*) INTO waiting FROM {schema}.messages WHERE run = v_there.pk;
        ELSIF code <> 6 THEN
            code := CASE WHEN p_was_check IS NULL THEN 5 WHEN v_there.epoch <> p_was_epoch THEN 3 ELSE 4 END;
        END IF;
        RETURN;
    END IF;

    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM {schema}.durably();
    END IF;
    v_commit := nextval('{schema}.commits');
    UPDATE {schema}.manifest SET
        total = total + p_delta, runs = runs + CASE WHEN p_was_check IS NULL THEN 1 ELSE 0 END, writes = writes + 1,
        latest = v_pk, latest_commit = v_commit
    WHERE bucket = p_bucket RETURNING writes INTO v_stamp;
    IF v_stamp IS NULL THEN
        PERFORM {schema}.no_bucket(p_bucket);
    END IF;

    IF p_seqs <> '{}' THEN
        INSERT INTO {schema}.records (run, seq, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body)
        SELECT v_pk, r.seq, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta, r.own, r.labels, r.digest, r.body_digest, r.body
        FROM unnest(
            p_seqs, p_kinds, p_epochs, p_ats, p_numbers, p_notes, p_record_tags, p_metas, p_owns, p_label_parts, p_digests,
            p_body_digests, p_bodies
        ) AS r (seq, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body);
        INSERT INTO {schema}.feed_new (id, run, seq, count) VALUES (v_commit, v_pk, p_seqs[1], cardinality(p_seqs));
    END IF;
    IF p_chunks <> '{}' THEN
        PERFORM {schema}.keep_chunks(p_family, p_chunks, p_frames, p_bucket, v_stamp);
    END IF;
    IF p_tag_names <> '{}' THEN
        WITH added AS (
            INSERT INTO {schema}.tags (run, name, number, at, key, "check")
            SELECT v_pk, t.name, t.number, t.at, p_key, t."check"
            FROM unnest(p_tag_names, p_tag_numbers, p_tag_ats, p_tag_checks) AS t (name, number, at, "check")
            ON CONFLICT DO NOTHING RETURNING tags."check"
        ) SELECT coalesce(sum({schema}.number_of(added."check")), 0) INTO v_part FROM added;
        v_more := v_more + v_part;
    END IF;
    IF p_read <> '{}' THEN
        WITH taken AS (
            DELETE FROM {schema}.messages WHERE run = v_pk AND name = ANY (p_read) RETURNING messages."check"
        ) SELECT coalesce(sum({schema}.number_of(taken."check")), 0) INTO v_part FROM taken;
        v_more := v_more - v_part;
    END IF;
    IF p_messages <> '{}' THEN
        WITH added AS (
            INSERT INTO {schema}.messages (run, name, due, at, key, body, "check")
            SELECT v_pk, l.name, l.due, l.at, p_key, l.body, l."check"
            FROM unnest(p_messages, p_dues, p_message_ats, p_message_bodies, p_message_checks) AS l (name, due, at, body, "check")
            ON CONFLICT DO NOTHING RETURNING messages."check"
        ) SELECT coalesce(sum({schema}.number_of(added."check")), 0) INTO v_part FROM added;
        v_more := v_more + v_part;
    END IF;
    IF v_more <> 0 THEN
        UPDATE {schema}.manifest SET total = total + v_more WHERE bucket = p_bucket;
    END IF;
    IF p_old_labels <> '{}' OR p_labels <> '{}' OR p_old_items <> '{}' OR p_items <> '{}' THEN
        PERFORM {schema}.label(v_pk, p_old_labels, p_labels, p_old_items, p_items);
    END IF;
    IF p_queue IS NOT NULL THEN
        INSERT INTO {schema}.tasks (run, queue, priority, key, dedupe, deaths, seen) 
        VALUES (v_pk, p_queue, p_priority, p_lane, (
            -- The `dedupe` stays with the run that has it.
            SELECT p_dedupe WHERE NOT EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.queue = p_queue AND t.dedupe = p_dedupe AND t.run <> v_pk)
        ), 0, 0)
        ON CONFLICT (run) DO UPDATE SET queue = excluded.queue, priority = excluded.priority, key = excluded.key, dedupe = excluded.dedupe,
            deaths = 0, seen = 0;
    END IF;
    PERFORM {schema}.settle_task(p_bucket, v_pk);
    SELECT count(*) INTO waiting FROM {schema}.messages WHERE run = v_pk;
END
$$;

-- The most common commit: one record, and only the head of the row changes. Same effect as commit_run, with fewer arguments and checks:
-- values that follow from the old row are not sent.
CREATE OR REPLACE FUNCTION {schema}.advance_run(
    p_bucket smallint, p_delta numeric, p_epoch bigint, p_was_seq bigint, p_was_check bytea, p_id text, p_at bigint, p_check bytea,
    p_kind text, p_note text, p_meta text, p_own text, p_labels bytea, p_digest bytea, p_body bytea,
    OUT code integer, OUT waiting bigint, OUT epoch_now bigint, OUT seq_now bigint
) LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_pk bigint;
    v_number bigint;
    v_commit bigint;
BEGIN
    UPDATE {schema}.runs SET
        updated_at = p_at, head_seq = p_was_seq + 1, head_digest = p_digest, stored = stored + length(p_body),
        checkpoints = checkpoints + CASE WHEN p_kind = 'checkpoint' THEN 1 ELSE 0 END, "check" = p_check
    WHERE id = p_id AND epoch = p_epoch AND head_seq = p_was_seq AND "check" = p_was_check
    RETURNING pk, checkpoints INTO v_pk, v_number;
    IF v_pk IS NULL THEN
        SELECT epoch, head_seq INTO epoch_now, seq_now FROM {schema}.runs WHERE id = p_id;
        code := CASE WHEN epoch_now IS NULL THEN 2 WHEN epoch_now <> p_epoch THEN 3 ELSE 4 END;
        RETURN;
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM {schema}.durably();
    END IF;
    v_commit := nextval('{schema}.commits');
    UPDATE {schema}.manifest SET total = total + p_delta, writes = writes + 1, latest = v_pk, latest_commit = v_commit WHERE bucket = p_bucket;
    IF NOT FOUND THEN
        PERFORM {schema}.no_bucket(p_bucket);
    END IF;
    INSERT INTO {schema}.records (run, seq, kind, epoch, at, number, note, meta, own, labels, digest, body)
    VALUES (v_pk, p_was_seq + 1, p_kind, p_epoch, p_at, v_number, p_note, p_meta, p_own, p_labels, p_digest, p_body);
    INSERT INTO {schema}.feed_new (id, run, seq, count) VALUES (v_commit, v_pk, p_was_seq + 1, 1);
    code := 0;
    SELECT count(*) INTO waiting FROM {schema}.messages WHERE run = v_pk;
END
$$;

-- Add a tag to a checkpoint. 0: done, or it exists; 2: no such run; 4: no such checkpoint. A run with another key is another run.
CREATE OR REPLACE FUNCTION {schema}.add_tag(
    p_bucket smallint, p_run text, p_key bytea, p_name text, p_number bigint, p_at bigint, p_check bytea
) RETURNS integer LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_pk bigint;
BEGIN
    SELECT pk INTO v_pk FROM {schema}.runs WHERE id = p_run FOR KEY SHARE;
    IF v_pk IS NULL THEN
        RETURN 2;
    END IF;
    PERFORM 1 FROM {schema}.records WHERE run = v_pk AND number = p_number AND kind = 'checkpoint';
    IF NOT FOUND THEN
        RETURN 4;
    END IF;
    INSERT INTO {schema}.tags (run, name, number, at, key, "check") VALUES (v_pk, p_name, p_number, p_at, p_key, p_check)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM {schema}.count(p_bucket, {schema}.number_of(p_check));
    END IF;
    RETURN 0;
END
$$;

-- Post a message. 0: posted; 1: one of that name exists; 2: no such run; 3: the id belongs to another run by now.
-- Does not wait for commits to the run: it only prevents that the run is deleted meanwhile.
CREATE OR REPLACE FUNCTION {schema}.post(
    p_bucket smallint, p_again boolean, p_run text, p_key bytea, p_name text, p_due bigint, p_at bigint, p_body bytea, p_check bytea
) RETURNS integer LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_pk bigint;
    v_key bytea;
BEGIN
    SELECT pk, key INTO v_pk, v_key FROM {schema}.runs WHERE id = p_run FOR KEY SHARE;
    IF v_pk IS NULL THEN
        RETURN 2;
    ELSIF v_key <> p_key THEN
        RETURN 3;
    END IF;
    INSERT INTO {schema}.messages (run, name, due, at, key, body, "check")
    VALUES (v_pk, p_name, p_due, p_at, p_key, p_body, p_check) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM {schema}.count(p_bucket, {schema}.number_of(p_check));
        -- Otherwise the holder reads the message; if it has died, the entry is or becomes ready anyway.
        PERFORM 1 FROM {schema}.tasks WHERE run = v_pk FOR UPDATE;
        PERFORM {schema}.settle_task(p_bucket, v_pk) FROM {schema}.runs WHERE pk = v_pk AND worker IS NULL;
        RETURN 0;
    END IF;
    PERFORM 1 FROM {schema}.messages WHERE run = v_pk AND name = p_name AND "check" = p_check AND p_again;
    RETURN CASE WHEN FOUND THEN 0 ELSE 1 END;
END
$$;

-- Give or take a lease if the row is still the one that was read, and register the new holder in the same transaction. False: it is not.
CREATE OR REPLACE FUNCTION {schema}.lease(
    p_bucket smallint, p_pk bigint, p_was_check bytea, p_epoch bigint, p_worker text, p_since bigint, p_check bytea, p_delta numeric
) RETURNS boolean LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE {schema}.runs SET epoch = p_epoch, worker = p_worker, since = p_since, "check" = p_check
    WHERE pk = p_pk AND "check" = p_was_check;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {schema}.count(p_bucket, p_delta);
    PERFORM {schema}.settle_task(p_bucket, p_pk);
    RETURN true;
END
$$;

-- Register a worker. Its leases expire by the server's clock, the given number of microseconds from now.
CREATE OR REPLACE FUNCTION {schema}.set_worker(
    p_id text, p_host text, p_pid bigint, p_boot text, p_started_at bigint, p_expires_boot bigint, p_left bigint, p_process text
) RETURNS void LANGUAGE sql VOLATILE AS $$
    INSERT INTO {schema}.workers (id, host, pid, boot, started_at, expires_boot, expires_at, ends, process)
    VALUES (p_id, p_host, p_pid, p_boot, p_started_at, p_expires_boot, {schema}.now_us() + p_left, {schema}.now_us() + p_left, p_process)
    ON CONFLICT (id) DO UPDATE SET expires_boot = excluded.expires_boot, expires_at = excluded.expires_at, ends = excluded.ends
$$;

-- Remove a run with all its rows, and its family's chunks if no run of the family is left. False: the run has changed.
CREATE OR REPLACE FUNCTION {schema}.remove(
    p_bucket smallint, p_pk bigint, p_check bytea, p_at bigint, p_tombstone bytea, p_old_labels text[], p_old_items bytea[]
) RETURNS boolean LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_run {schema}.runs%ROWTYPE;
    v_sum numeric;
BEGIN
    DELETE FROM {schema}.runs WHERE pk = p_pk AND "check" = p_check RETURNING * INTO v_run;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- If two processes remove the last two runs of a family, the second waits here and then sees that its run is the last.
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema}' || encode(v_run.family, 'hex'), 0));
    WITH gone AS (
        SELECT v_run."check" UNION ALL
        SELECT "check" FROM {schema}.tags WHERE run = p_pk UNION ALL SELECT "check" FROM {schema}.messages WHERE run = p_pk UNION ALL
        SELECT "check" FROM {schema}.pruned WHERE run = p_pk UNION ALL SELECT "check" FROM {schema}.bases WHERE run = p_pk
    ) SELECT sum({schema}.number_of(gone."check")) INTO v_sum FROM gone;
    PERFORM {schema}.label(p_pk, p_old_labels, '{}', p_old_items, '{}');
    DELETE FROM {schema}.tags WHERE run = p_pk;
    DELETE FROM {schema}.messages WHERE run = p_pk;
    DELETE FROM {schema}.tasks WHERE run = p_pk;
    DELETE FROM {schema}.pruned WHERE run = p_pk;
    DELETE FROM {schema}.bases WHERE run = p_pk;
    DELETE FROM {schema}.records WHERE run = p_pk;
    INSERT INTO {schema}.tombstones VALUES (
        p_pk, v_run.id, v_run.key, v_run.family, v_run.created_at, p_at, v_run.head_seq, v_run.head_digest, v_run.checkpoints, p_tombstone
    );
    PERFORM {schema}.count(p_bucket, {schema}.number_of(p_tombstone) - v_sum, -1);
    IF NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE family = v_run.family) THEN
        DELETE FROM {schema}.chunks WHERE family = v_run.family;
        DELETE FROM {schema}.keys WHERE family = v_run.family;
    END IF;
    RETURN true;
END
$$;

-- Drop bodies of a run. 0: done; 2: the run was deleted or another one has its id; 4: another process pruned it meanwhile.
CREATE OR REPLACE FUNCTION {schema}.prune(
    p_bucket smallint, p_run text, p_was bytea, p_key bytea, p_ranges bytea, p_freed bigint, p_at bigint, p_numbers bytea, p_check bytea,
    p_seqs bigint[], p_digests bytea[], p_gone bigint[],
    p_base_numbers bigint[], p_base_ats bigint[], p_base_bodies bytea[], p_base_checks bytea[], p_chunks bytea[], p_frames bytea[],
    p_label_seqs bigint[], p_labels bytea[]
) RETURNS integer LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_pk bigint;
    v_family bytea;
    v_was bytea;
    v_delta numeric;
    v_part numeric;
    v_stamp bigint;
BEGIN
    SELECT pk, family INTO v_pk, v_family FROM {schema}.runs WHERE id = p_run AND key = p_key FOR KEY SHARE;
    IF v_pk IS NULL THEN
        RETURN 2;
    END IF;
    -- Two processes that prune one run take turns; its writer is not blocked.
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema} prune ' || v_pk, 0));
    SELECT "check" INTO v_was FROM {schema}.pruned WHERE run = v_pk;
    IF v_was IS DISTINCT FROM p_was THEN
        RETURN 4;
    END IF;
    WITH gone AS (
        DELETE FROM {schema}.bases WHERE run = v_pk AND number = ANY (p_gone || p_base_numbers) RETURNING "check"
    ) SELECT coalesce(sum({schema}.number_of(gone."check")), 0) INTO v_part FROM gone;
    v_delta := {schema}.number_of(p_check) - coalesce({schema}.number_of(v_was), 0) - v_part;
    INSERT INTO {schema}.bases (run, number, key, at, body, "check")
    SELECT v_pk, b.number, p_key, b.at, b.body, b."check"
    FROM unnest(p_base_numbers, p_base_ats, p_base_bodies, p_base_checks) AS b (number, at, body, "check");
    SELECT v_delta + coalesce(sum({schema}.number_of(c)), 0) INTO v_delta FROM unnest(p_base_checks) AS c;
    UPDATE {schema}.records SET body = NULL, body_digest = d.digest
    FROM unnest(p_seqs, p_digests) AS d (seq, digest) WHERE run = v_pk AND records.seq = d.seq AND body IS NOT NULL;
    IF cardinality(p_label_seqs) > 0 THEN
        WITH gone AS (
            DELETE FROM {schema}.tags t USING {schema}.records r
            WHERE r.run = v_pk AND r.seq = ANY (p_label_seqs) AND t.run = v_pk AND t.number = r.number RETURNING t."check"
        ) SELECT v_delta - coalesce(sum({schema}.number_of(gone."check")), 0) INTO v_delta FROM gone;
        UPDATE {schema}.records SET note = NULL, tags = NULL, meta = NULL, labels = d.digest
        FROM unnest(p_label_seqs, p_labels) AS d (seq, digest) WHERE run = v_pk AND records.seq = d.seq;
    END IF;
    INSERT INTO {schema}.pruned (run, key, ranges, freed, at, numbers, "check")
    VALUES (v_pk, p_key, p_ranges, p_freed, p_at, p_numbers, p_check)
    ON CONFLICT (run) DO UPDATE SET key = excluded.key, ranges = excluded.ranges, freed = excluded.freed, at = excluded.at,
        numbers = excluded.numbers, "check" = excluded."check";
    v_stamp := {schema}.count(p_bucket, v_delta);
    PERFORM {schema}.keep_chunks(v_family, p_chunks, p_frames, p_bucket, v_stamp);
    RETURN 0;
END
$$;

-- Set a property; a null value removes it.
CREATE OR REPLACE FUNCTION {schema}.set_property(p_bucket smallint, p_name text, p_value text, p_check bytea) RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_old bytea;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema} property ' || p_name, 0));
    DELETE FROM {schema}.properties WHERE name = p_name RETURNING "check" INTO v_old;
    IF p_value IS NOT NULL THEN
        INSERT INTO {schema}.properties (name, value, "check") VALUES (p_name, p_value, p_check);
    END IF;
    PERFORM {schema}.count(
        p_bucket,
        CASE WHEN p_value IS NULL THEN 0 ELSE {schema}.number_of(p_check) END - coalesce({schema}.number_of(v_old), 0)
    );
END
$$;

-- Assign positions to the commits since the last call, at most a number of them; returns how many.
-- A commit leaves an entry without a position. The next reader of the feed assigns positions, one reader at a time: to entries that
-- are committed by then, in the order in which they began. So commits do not wait for each other, a position is never assigned before
-- its entry is visible, and positions are in order: a later commit gets a later one.
CREATE OR REPLACE FUNCTION {schema}.settle_feed(p_most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_end bigint;
    v_last bigint;
    v_entries integer;
BEGIN
    PERFORM {schema}.durably();
    SELECT position INTO v_end FROM {schema}.feed_end FOR UPDATE;
    WITH oldest AS (
        SELECT id FROM {schema}.feed_new ORDER BY id LIMIT p_most
    ), taken AS (
        DELETE FROM {schema}.feed_new USING oldest WHERE feed_new.id = oldest.id RETURNING feed_new.id, run, seq, count
    ), given AS (
        INSERT INTO {schema}.feed (last, run, seq, count)
        SELECT v_end + sum(count) OVER (ORDER BY id), run, seq, count FROM taken RETURNING last
    ) SELECT max(last), count(*) INTO v_last, v_entries FROM given;
    IF v_entries > 0 THEN
        UPDATE {schema}.feed_end SET position = v_last;
    END IF;
    RETURN v_entries;
END
$$;

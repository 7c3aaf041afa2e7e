-- Queues in PostgreSQL: waiting runs, claims, and the runs of dead workers. {schema} is the store's own schema.
-- A queue entry is locked before the rows that it depends on are read: if a message arrives while a run stops, the second sees the first.

-- MessagePack, as far as the row of a run needs it: the check of a row is the digest of its packed fields (everstep.records). In PL/pgSQL,
-- whose plans a session keeps; functions in SQL would be planned again at each claim.
CREATE OR REPLACE FUNCTION {schema}.pack(p_number bigint) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    v_bytes bytea := int8send(p_number);
BEGIN
    IF p_number BETWEEN -32 AND 127 THEN
        RETURN substr(v_bytes, 8);
    ELSIF p_number >= 4294967296 THEN
        RETURN '\xcf'::bytea || v_bytes;
    ELSIF p_number >= 65536 THEN
        RETURN '\xce'::bytea || substr(v_bytes, 5);
    ELSIF p_number >= 256 THEN
        RETURN '\xcd'::bytea || substr(v_bytes, 7);
    ELSIF p_number >= 0 THEN
        RETURN '\xcc'::bytea || substr(v_bytes, 8);
    ELSIF p_number >= -128 THEN
        RETURN '\xd0'::bytea || substr(v_bytes, 8);
    ELSIF p_number >= -32768 THEN
        RETURN '\xd1'::bytea || substr(v_bytes, 7);
    ELSIF p_number >= -2147483648 THEN
        RETURN '\xd2'::bytea || substr(v_bytes, 5);
    END IF;
    RETURN '\xd3'::bytea || v_bytes;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.pack(p_bytes bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    v_length bytea := int4send(length(p_bytes));
BEGIN
    IF length(p_bytes) < 256 THEN
        RETURN '\xc4'::bytea || substr(v_length, 4) || p_bytes;
    ELSIF length(p_bytes) < 65536 THEN
        RETURN '\xc5'::bytea || substr(v_length, 3) || p_bytes;
    END IF;
    RETURN '\xc6'::bytea || v_length || p_bytes;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.pack(p_text text) RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    v_bytes bytea := convert_to(p_text, 'UTF8');
    v_length integer := length(v_bytes);
BEGIN
    IF p_text IS NULL THEN
        RETURN '\xc0'::bytea;
    ELSIF v_length < 32 THEN
        RETURN substr(int4send(160 + v_length), 4) || v_bytes;
    ELSIF v_length < 256 THEN
        RETURN '\xd9'::bytea || substr(int4send(v_length), 4) || v_bytes;
    ELSIF v_length < 65536 THEN
        RETURN '\xda'::bytea || substr(int4send(v_length), 3) || v_bytes;
    END IF;
    RETURN '\xdb'::bytea || int4send(v_length) || v_bytes;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.pack_tags(p_tags text) RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    v_tag text;
    v_packed bytea := '';
    v_count integer := 0;
BEGIN
    IF p_tags IS NULL THEN
        RETURN '\x90'::bytea;
    END IF;
    FOR v_tag IN SELECT value FROM json_array_elements_text(p_tags::json) LOOP
        v_packed := v_packed || {schema}.pack(v_tag);
        v_count := v_count + 1;
    END LOOP;
    IF v_count < 16 THEN
        RETURN substr(int4send(144 + v_count), 4) || v_packed;
    END IF;
    RETURN '\xdc'::bytea || substr(int4send(v_count), 3) || v_packed;
END
$$;

-- The check of a run's row, as it is or as it would be with another lease.
CREATE OR REPLACE FUNCTION {schema}.row_check(p_run {schema}.runs, p_epoch bigint, p_worker text, p_since bigint) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN sha256(
        '\xdc0014'::bytea || {schema}.pack(p_run.id) || {schema}.pack(p_run.key) || {schema}.pack(p_run.family) || {schema}.pack(p_run.workflow)
        || {schema}.pack(p_run.session) || {schema}.pack_tags(p_run.tags) || {schema}.pack(p_run.note) || {schema}.pack(p_run.meta)
        || {schema}.pack(p_run.parent) || {schema}.pack(p_run.parent_number) || {schema}.pack(p_run.created_at)
        || {schema}.pack(p_run.status) || {schema}.pack(p_run.updated_at) || {schema}.pack(p_run.head_seq) || {schema}.pack(p_run.head_digest)
        || {schema}.pack(p_run.checkpoints) || {schema}.pack(p_run.stored) || {schema}.pack(p_epoch) || {schema}.pack(p_worker)
        || {schema}.pack(p_since)
    );
END
$$;

-- Count the activity of a queue. Each open store counts in its own bucket, so that processes do not wait for each other.
CREATE OR REPLACE FUNCTION {schema}.tick(
    p_bucket smallint, p_queue text, p_claimed integer, p_ended integer, p_failed integer, p_deaths integer
) RETURNS void LANGUAGE sql VOLATILE AS $$
    INSERT INTO {schema}.ticks AS old (queue, minute, bucket, claimed, ended, failed, deaths)
    VALUES (p_queue, {schema}.now_us() / 60000000, p_bucket, p_claimed, p_ended, p_failed, p_deaths)
    ON CONFLICT (queue, minute, bucket) DO UPDATE SET claimed = old.claimed + excluded.claimed, ended = old.ended + excluded.ended,
        failed = old.failed + excluded.failed, deaths = old.deaths + excluded.deaths
$$;

-- Update the queue entry of a run after a change of the run, its messages or its lease, as everstep.backends.contract.queues.settled.
CREATE OR REPLACE FUNCTION {schema}.settle_task(p_bucket smallint, p_pk bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_queue text;
    v_status text;
    v_worker text;
    v_ready bigint;
    v_paused boolean;
BEGIN
    SELECT queue INTO v_queue FROM {schema}.tasks WHERE run = p_pk FOR UPDATE;
    IF v_queue IS NULL THEN
        RETURN;
    END IF;
    SELECT status, worker INTO v_status, v_worker FROM {schema}.runs WHERE pk = p_pk;
    IF v_status IN ('succeeded', 'cancelled') THEN
        DELETE FROM {schema}.tasks WHERE run = p_pk;
        PERFORM {schema}.tick(p_bucket, v_queue, 0, 1, 0, 0);
        RETURN;
    END IF;
    IF v_worker IS NOT NULL THEN
        UPDATE {schema}.tasks SET worker = v_worker, ready = NULL WHERE run = p_pk AND (worker IS DISTINCT FROM v_worker OR ready IS NOT NULL);
        RETURN;
    END IF;
    -- A message that was due when it was posted is due now, whatever the clock of the sender says.
    SELECT min(CASE WHEN due <= at THEN least(due, {schema}.now_us()) ELSE due END) FILTER (WHERE v_status <> 'failed' OR name = 'retry'),
        coalesce(bool_or(name = 'pause'), false)
    INTO v_ready, v_paused FROM {schema}.messages WHERE run = p_pk;
    IF v_paused THEN
        v_ready := NULL;
    ELSIF v_status = 'running' THEN
        v_ready := {schema}.now_us();
    ELSIF v_status = 'failed' AND v_ready IS NULL THEN
        DELETE FROM {schema}.tasks WHERE run = p_pk;
        PERFORM {schema}.tick(p_bucket, v_queue, 0, 0, 1, 0);
        RETURN;
    END IF;
    UPDATE {schema}.tasks SET worker = NULL, ready = v_ready WHERE run = p_pk;
    IF v_ready IS NOT NULL THEN
        PERFORM pg_notify({channel}, v_queue);
    END IF;
END
$$;

-- Hand ready runs of one queue to a worker, at most a number: lease and queue entry change together. Rows that another process has
-- locked are skipped. If a queue has limits, claims take turns: only so do the limits apply to all of them.
CREATE OR REPLACE FUNCTION {schema}.claim_from(
    p_bucket smallint, p_worker text, p_queue text, p_workflows text[], p_without text[], p_most integer
) RETURNS TABLE (claimed text, before text, died integer, sound boolean, run {schema}.runs)
LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_limits jsonb;
    v_concurrency integer;
    v_per_key integer;
    v_rate integer;
    v_priority bigint := 9223372036854775807;
    v_left integer := p_most;
    v_now bigint;
    v_full text[] := '{}';
    v_delta numeric := 0;
    v_found record;
    v_row {schema}.runs;
    v_check bytea;
BEGIN
    SELECT value::jsonb INTO v_limits FROM {schema}.properties WHERE name = 'queue:' || p_queue;
    v_concurrency := (v_limits ->> 'concurrency')::integer;
    v_per_key := (v_limits ->> 'per_key')::integer;
    v_rate := (v_limits ->> 'rate')::integer;
    IF v_concurrency IS NOT NULL OR v_per_key IS NOT NULL OR v_rate IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('{schema} queue ' || p_queue, 0));
    END IF;
    v_now := {schema}.now_us();
    IF v_concurrency IS NOT NULL THEN
        SELECT least(v_left, v_concurrency - count(*)) INTO v_left FROM {schema}.tasks WHERE queue = p_queue AND worker IS NOT NULL;
    END IF;
    IF v_rate IS NOT NULL THEN
        DELETE FROM {schema}.starts WHERE queue = p_queue AND at <= v_now - (v_limits ->> 'period')::bigint;
        SELECT least(v_left, v_rate - count(*)) INTO v_left FROM {schema}.starts WHERE queue = p_queue;
    END IF;
    WHILE v_left > 0 LOOP
        -- Priority by priority, without reading entries that become ready later.
        SELECT max(priority) INTO v_priority FROM {schema}.tasks WHERE queue = p_queue AND ready IS NOT NULL AND priority < v_priority;
        EXIT WHEN v_priority IS NULL;
        IF v_per_key IS NOT NULL THEN
            SELECT coalesce(array_agg(k.key), '{}') INTO v_full FROM (
                SELECT key FROM {schema}.tasks WHERE queue = p_queue AND worker IS NOT NULL AND key IS NOT NULL
                GROUP BY key HAVING count(*) >= v_per_key
            ) k;
        END IF;
        FOR v_found IN
            SELECT t.run AS pk, t.key, t.deaths, r.id FROM {schema}.tasks t JOIN {schema}.runs r ON r.pk = t.run
            WHERE t.queue = p_queue AND t.priority = v_priority AND t.ready IS NOT NULL AND t.ready <= v_now AND t.worker IS NULL
                AND r.workflow = ANY (p_workflows) AND r.id <> ALL (p_without) AND (t.key IS NULL OR t.key <> ALL (v_full))
            ORDER BY t.ready, t.run LIMIT CASE WHEN v_per_key IS NULL THEN v_left END FOR UPDATE OF t, r SKIP LOCKED
        LOOP
            EXIT WHEN v_left <= 0;
            CONTINUE WHEN v_found.key = ANY (v_full);
            SELECT * INTO v_row FROM {schema}.runs r WHERE r.pk = v_found.pk;
            claimed := v_found.id;
            before := v_row.worker;
            died := v_found.deaths;
            sound := {schema}.row_check(v_row, v_row.epoch, v_row.worker, v_row.since) = v_row."check";
            IF sound THEN
                v_check := {schema}.row_check(v_row, v_row.epoch + 1, p_worker, v_now);
                v_delta := v_delta + {schema}.number_of(v_check) - {schema}.number_of(v_row."check");
                UPDATE {schema}.runs r SET epoch = r.epoch + 1, worker = p_worker, since = v_now, "check" = v_check WHERE r.pk = v_found.pk;
                UPDATE {schema}.tasks t SET worker = p_worker, ready = NULL WHERE t.run = v_found.pk;
                IF v_rate IS NOT NULL THEN
                    INSERT INTO {schema}.starts (queue, at) VALUES (p_queue, v_now);
                END IF;
                IF v_per_key IS NOT NULL AND v_found.key IS NOT NULL AND v_per_key <= (
                    SELECT count(*) FROM {schema}.tasks t WHERE t.queue = p_queue AND t.key = v_found.key AND t.worker IS NOT NULL
                ) THEN
                    v_full := v_full || v_found.key;
                END IF;
                SELECT * INTO v_row FROM {schema}.runs r WHERE r.pk = v_found.pk;
                v_left := v_left - 1;
                PERFORM {schema}.tick(p_bucket, p_queue, 1, 0, 0, 0);
            END IF;
            run := v_row;
            RETURN NEXT;
        END LOOP;
    END LOOP;
    IF v_delta <> 0 THEN
        PERFORM {schema}.count(p_bucket, v_delta);
    END IF;
END
$$;

-- Hand runs to a worker, from these queues in this order, and register it with the rest of its time.
CREATE OR REPLACE FUNCTION {schema}.claim(
    p_bucket smallint, p_queues text[], p_workflows text[], p_without text[], p_most integer,
    p_id text, p_host text, p_pid bigint, p_boot text, p_started_at bigint, p_expires_boot bigint, p_left bigint, p_process text
) RETURNS TABLE (claimed text, queue text, before text, died integer, sound boolean, run {schema}.runs)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_queue text;
    v_found record;
    v_left integer := p_most;
BEGIN
    -- Lock all queues that have limits in one order: two workers may ask for the same queues in different orders.
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema} queue ' || q.name, 0))
    FROM (SELECT substr(name, 7) AS name FROM {schema}.properties WHERE name = ANY (SELECT 'queue:' || n FROM unnest(p_queues) n) ORDER BY name) q;
    FOREACH v_queue IN ARRAY p_queues LOOP
        FOR v_found IN
            SELECT c.claimed, c.before, c.died, c.sound, c.run
            FROM {schema}.claim_from(p_bucket, p_id, v_queue, p_workflows, p_without, v_left) c
        LOOP
            claimed := v_found.claimed;
            queue := v_queue;
            before := v_found.before;
            died := v_found.died;
            sound := v_found.sound;
            run := v_found.run;
            IF sound AND v_left = p_most THEN
                PERFORM {schema}.set_worker(p_id, p_host, p_pid, p_boot, p_started_at, p_expires_boot, p_left, p_process);
            END IF;
            IF sound THEN
                v_left := v_left - 1;
            END IF;
            RETURN NEXT;
        END LOOP;
    END LOOP;
END
$$;

-- Make the runs of dead workers available to others; returns how many. Some are known to be dead, the others have an expired lease.
-- Only one process at a time does this: a second one would find nothing to do.
CREATE OR REPLACE FUNCTION {schema}.free_tasks(p_bucket smallint, p_dead text[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SET lock_timeout = '{lock_timeout}' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_found record;
    v_count integer := 0;
    v_now bigint := {schema}.now_us();
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema} free', 0)) THEN
        RETURN 0;
    END IF;
    DELETE FROM {schema}.workers WHERE id = ANY (p_dead);
    FOR v_found IN
        SELECT t.run, t.queue, r.head_seq FROM {schema}.tasks t JOIN {schema}.runs r ON r.pk = t.run
        WHERE t.worker IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {schema}.workers w WHERE w.id = t.worker AND w.ends >= v_now)
        FOR UPDATE OF t SKIP LOCKED
    LOOP
        UPDATE {schema}.tasks SET worker = NULL, ready = v_now,
            deaths = CASE WHEN seen = v_found.head_seq THEN deaths + 1 ELSE 1 END, seen = v_found.head_seq WHERE run = v_found.run;
        PERFORM {schema}.tick(p_bucket, v_found.queue, 0, 0, 0, 1);
        PERFORM pg_notify({channel}, v_found.queue);
        v_count := v_count + 1;
    END LOOP;
    DELETE FROM {schema}.ticks WHERE minute < v_now / 60000000 - 1440;
    RETURN v_count;
END
$$;

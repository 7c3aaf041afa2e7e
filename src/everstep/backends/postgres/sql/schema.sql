-- Format 1 of a store in PostgreSQL. src/everstep/backends/postgres/format.py explains the tables. {schema} is the store's own schema.

CREATE TABLE {schema}.format (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);

CREATE TABLE {schema}.runs (
    pk bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    key bytea NOT NULL,
    family bytea NOT NULL,
    workflow text COLLATE "C",
    session text COLLATE "C",
    tags text,
    note text COLLATE "C",
    meta text,
    parent text COLLATE "C",
    parent_number bigint NOT NULL,
    created_at bigint NOT NULL,
    status text COLLATE "C" NOT NULL,
    updated_at bigint NOT NULL,
    head_seq bigint NOT NULL,
    head_digest bytea NOT NULL,
    checkpoints bigint NOT NULL,
    stored bigint NOT NULL,
    epoch bigint NOT NULL,
    worker text COLLATE "C",
    since bigint NOT NULL,
    "check" bytea NOT NULL
) WITH (fillfactor = 50);

-- Unfinished entries, and those that have ended: a search for work never reads the second, however many they are.
CREATE INDEX runs_active ON {schema}.runs (status, pk) WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX runs_ended ON {schema}.runs (status, pk) WHERE status NOT IN ('queued', 'running', 'waiting');
CREATE INDEX runs_workflow ON {schema}.runs (workflow, pk) WHERE workflow IS NOT NULL;
CREATE INDEX runs_session ON {schema}.runs (session, pk) WHERE session IS NOT NULL;
CREATE INDEX runs_parent ON {schema}.runs (parent, pk) WHERE parent IS NOT NULL;
CREATE INDEX runs_family ON {schema}.runs (family);
CREATE INDEX runs_created ON {schema}.runs (created_at);

CREATE TABLE {schema}.run_tags (
    tag text COLLATE "C" NOT NULL,
    pk bigint NOT NULL,
    PRIMARY KEY (tag, pk)
);

-- An item is the digest of a key and a scalar: a value may be longer than an entry of an index.
CREATE TABLE {schema}.run_meta (
    item bytea NOT NULL,
    pk bigint NOT NULL,
    PRIMARY KEY (item, pk)
);

CREATE TABLE {schema}.records (
    run bigint NOT NULL,
    seq bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    at bigint NOT NULL,
    number bigint NOT NULL,
    note text COLLATE "C",
    tags text,
    meta text,
    own text,
    labels bytea,
    digest bytea NOT NULL,
    body_digest bytea,
    body bytea,
    PRIMARY KEY (run, seq)
);

-- Bodies and frames are compressed before they are stored here.
ALTER TABLE {schema}.records ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE INDEX records_number ON {schema}.records (run, number) WHERE kind = 'checkpoint';
-- The scalars of metadata as numbers, by which checkpoints are found. Two may share one: a reader compares. Numbers are equal if their
-- values are. Text that is not JSON has none.
CREATE FUNCTION {schema}.meta_items(p_meta text) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN ARRAY(
        SELECT hashtextextended(m.key || chr(1) || CASE jsonb_typeof(m.value) WHEN 'number' THEN trim_scale(m.value::numeric)::text ELSE m.value::text END, 0)
        FROM jsonb_each(p_meta::jsonb) m
    );
EXCEPTION WHEN others THEN
    RETURN ARRAY[]::bigint[];
END
$$;

CREATE INDEX records_meta ON {schema}.records USING gin ({schema}.meta_items(meta)) WHERE kind = 'checkpoint' AND meta IS NOT NULL;
CREATE INDEX records_gates ON {schema}.records (run, note) WHERE kind IN ('gate', 'answer');
CREATE INDEX records_attached ON {schema}.records (run, note) WHERE kind = 'attached';

CREATE TABLE {schema}.chunks (
    family bytea NOT NULL,
    digest bytea NOT NULL,
    bucket smallint NOT NULL,
    stamp bigint NOT NULL,
    frame bytea NOT NULL,
    PRIMARY KEY (family, digest)
);

ALTER TABLE {schema}.chunks ALTER COLUMN frame SET STORAGE EXTERNAL;

CREATE TABLE {schema}.tags (
    run bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    at bigint NOT NULL,
    key bytea NOT NULL,
    "check" bytea NOT NULL,
    PRIMARY KEY (run, name, number)
);

CREATE INDEX tags_name ON {schema}.tags (name, run, number);

CREATE TABLE {schema}.messages (
    run bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    due bigint,
    at bigint NOT NULL,
    key bytea NOT NULL,
    body bytea NOT NULL,
    "check" bytea NOT NULL,
    PRIMARY KEY (run, name)
);

CREATE INDEX messages_due ON {schema}.messages (due) WHERE due IS NOT NULL;

CREATE TABLE {schema}.pruned (
    run bigint PRIMARY KEY,
    key bytea NOT NULL,
    ranges bytea NOT NULL,
    freed bigint NOT NULL,
    at bigint NOT NULL,
    numbers bytea NOT NULL,
    "check" bytea NOT NULL
);

CREATE TABLE {schema}.bases (
    run bigint NOT NULL,
    number bigint NOT NULL,
    key bytea NOT NULL,
    at bigint NOT NULL,
    body bytea NOT NULL,
    "check" bytea NOT NULL,
    PRIMARY KEY (run, number)
);

CREATE TABLE {schema}.tombstones (
    pk bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    family bytea NOT NULL,
    created_at bigint NOT NULL,
    at bigint NOT NULL,
    head_seq bigint NOT NULL,
    head_digest bytea NOT NULL,
    checkpoints bigint NOT NULL,
    "check" bytea NOT NULL
);

CREATE TABLE {schema}.properties (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL,
    "check" bytea NOT NULL
);

-- The wrapped keys of families, in an encrypted store.
CREATE TABLE {schema}.keys (
    family bytea PRIMARY KEY,
    wrapped bytea NOT NULL
);

CREATE TABLE {schema}.workers (
    id text COLLATE "C" PRIMARY KEY,
    host text NOT NULL,
    pid bigint NOT NULL,
    boot text NOT NULL,
    started_at bigint NOT NULL,
    expires_boot bigint NOT NULL,
    expires_at bigint NOT NULL,
    ends bigint NOT NULL,
    process text NOT NULL
);

CREATE TABLE {schema}.tasks (
    run bigint PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    priority bigint NOT NULL,
    key text COLLATE "C",
    dedupe text COLLATE "C",
    ready bigint,
    worker text COLLATE "C",
    deaths integer NOT NULL,
    seen bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX tasks_ready ON {schema}.tasks (queue, priority, ready, run) WHERE ready IS NOT NULL;
CREATE INDEX tasks_held ON {schema}.tasks (queue, key) WHERE worker IS NOT NULL;
CREATE UNIQUE INDEX tasks_dedupe ON {schema}.tasks (queue, dedupe) WHERE dedupe IS NOT NULL;

CREATE TABLE {schema}.orders (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    digest bytea NOT NULL
);

CREATE TABLE {schema}.starts (
    queue text COLLATE "C" NOT NULL,
    at bigint NOT NULL
);

CREATE INDEX starts_at ON {schema}.starts (queue, at);

CREATE TABLE {schema}.ticks (
    queue text COLLATE "C" NOT NULL,
    minute bigint NOT NULL,
    bucket smallint NOT NULL,
    claimed integer NOT NULL,
    ended integer NOT NULL,
    failed integer NOT NULL,
    deaths integer NOT NULL,
    PRIMARY KEY (queue, minute, bucket)
);

CREATE SEQUENCE {schema}.commits CACHE 1;

CREATE TABLE {schema}.feed_new (
    id bigint PRIMARY KEY,
    run bigint NOT NULL,
    seq bigint NOT NULL,
    count integer NOT NULL
);

CREATE TABLE {schema}.feed (
    last bigint PRIMARY KEY,
    run bigint NOT NULL,
    seq bigint NOT NULL,
    count integer NOT NULL
);

CREATE TABLE {schema}.counters (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    created bigint NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE {schema}.feed_end (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    position bigint NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE {schema}.manifest (
    bucket smallint PRIMARY KEY,
    total numeric NOT NULL,
    runs bigint NOT NULL,
    writes bigint NOT NULL,
    latest bigint,
    latest_commit bigint NOT NULL
) WITH (fillfactor = 10);

INSERT INTO {schema}.counters (created) VALUES (0);
INSERT INTO {schema}.feed_end (position) VALUES (0);
INSERT INTO {schema}.manifest SELECT n, 0, 0, 0, NULL, 0 FROM generate_series(0, 63) AS n;

-- Holdfast's store, format 7.
--
-- One truth: an append-only journal per session, in two tables. `deltas` holds what streams, until its body is
-- settled and it is pruned; `events` holds everything else, for good. Apart, because pages that lose all their
-- rows can be given back, and pages that lose some cannot. `seq` numbers a session's events over both densely from
-- 1; `position` orders all events of the file, so that one query reads the new events of all sessions. The newest row of
-- `events` is never removed, and a pruned delta is older than its body, so a position is never given out twice.
--
-- Projections (`sessions`, `turns`, `runs`, `tools`, `messages`, `memory_queue`) are written in the transaction that appends
-- the events they come from, by domain/state/projections.py. `search` is a projection too; it follows a moment
-- later, through its own cursor in `cursors`. None of them holds text: `messages.body_seq` names the event
-- that does. `holdfast doctor` compares them all with the fold of the journal.
--
-- Not projections: `leases` (who may write for a run), `prunable` (deltas whose body is settled), `blobs`,
-- `key_values` (small records of no session: tokens, rules, pins), `notes` (of the built-in memory), and the messages
-- that arrive from chat apps and leave for them.
--
-- Locks, in this order: the folder's write lock (flock), then BEGIN IMMEDIATE. Readers take neither.

CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    body     BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_by_seq ON events (session, seq);
-- What each run was given, one row a run: read together with the model's context.
CREATE INDEX events_prepared ON events (session, seq) WHERE kind = 'context_prepared';
-- Summaries: the newest valid one is read with the context too.
CREATE INDEX events_compacted ON events (session, seq) WHERE kind = 'session_compacted';
-- Undone, restored and cleared turns: restoring a turn replays them.
CREATE INDEX events_removals ON events (session, seq)
    WHERE kind IN ('turns_undone', 'turns_restored', 'session_cleared');

CREATE TABLE deltas (
    position INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    body     BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX deltas_by_seq ON deltas (session, seq);

CREATE TABLE sessions (
    no                   INTEGER PRIMARY KEY,
    id                   TEXT    NOT NULL,
    created_at           INTEGER NOT NULL,
    updated_at           INTEGER NOT NULL,
    title                TEXT    NOT NULL,
    title_by             TEXT    NOT NULL,
    agent                TEXT    NOT NULL,
    model                TEXT    NOT NULL,
    workspace            TEXT    NOT NULL,
    resume               TEXT,
    status               TEXT    NOT NULL,
    run_id               TEXT,
    archived             INTEGER NOT NULL,
    deleted_at           INTEGER,
    last_turn            INTEGER NOT NULL,
    live_turns           INTEGER NOT NULL,
    context_version      INTEGER NOT NULL,
    previous_session_id  TEXT,
    parent_session_id    TEXT,
    successor_session_id TEXT,
    usage                TEXT    NOT NULL,
    remember             INTEGER NOT NULL DEFAULT 1
) STRICT;
-- A deleted session waits for its purge; its id may be used again meanwhile.
CREATE UNIQUE INDEX sessions_by_id ON sessions (id) WHERE deleted_at IS NULL;
CREATE INDEX sessions_by_activity ON sessions (archived, updated_at, no) WHERE deleted_at IS NULL;
CREATE INDEX sessions_deleted ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE turns (
    session    INTEGER NOT NULL,
    turn       INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    run_id     TEXT,
    key        TEXT,
    key_digest TEXT,
    replaces   TEXT,
    PRIMARY KEY (session, turn)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX turns_by_key ON turns (session, key) WHERE key IS NOT NULL;

CREATE TABLE runs (
    session      INTEGER NOT NULL,
    id           TEXT    NOT NULL,
    turn         INTEGER NOT NULL,
    status       TEXT    NOT NULL,
    place        INTEGER NOT NULL,
    steps        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    stalled      INTEGER NOT NULL,
    notice_place INTEGER,
    pending      TEXT,
    waiting      TEXT,
    failure      TEXT,
    usage        TEXT    NOT NULL,
    started_at   INTEGER,
    ended_at     INTEGER,
    steers       TEXT,
    allowances   INTEGER NOT NULL DEFAULT 1,
    detail       TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;
-- Not unique: the same conversation may be imported under two ids, or again while the deleted one is purged.
CREATE INDEX runs_by_id ON runs (id);
CREATE INDEX runs_pending ON runs (session) WHERE pending IS NOT NULL;
CREATE INDEX runs_open ON runs (session, turn) WHERE status NOT IN ('completed', 'cancelled', 'failed');

CREATE TABLE tools (
    session  INTEGER NOT NULL,
    id       TEXT    NOT NULL,
    run_id   TEXT,
    turn     INTEGER NOT NULL,
    place    INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    effect   TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    approval TEXT    NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX tools_open ON tools (session, run_id, place) WHERE state <> 'settled';

CREATE TABLE messages (
    session   INTEGER NOT NULL,
    turn      INTEGER NOT NULL,
    place     INTEGER NOT NULL,
    id        TEXT    NOT NULL,
    role      TEXT    NOT NULL,
    status    TEXT    NOT NULL,
    first_seq INTEGER NOT NULL,
    body_seq  INTEGER NOT NULL,
    run_id    TEXT,
    late      INTEGER NOT NULL,
    PRIMARY KEY (session, turn, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX messages_streaming ON messages (session, turn, place) WHERE status = 'streaming';

-- The memory queue: each row is a segment of completed turns that memory has to commit. The transaction that completes
-- a turn also writes its row.
CREATE TABLE memory_queue (
    session      INTEGER NOT NULL,
    n            INTEGER NOT NULL,
    turns        TEXT    NOT NULL,
    through_turn INTEGER NOT NULL,
    queued_at      INTEGER NOT NULL,
    touched_at   INTEGER NOT NULL,
    state        TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    digest       TEXT    NOT NULL,
    attempts     INTEGER NOT NULL,
    process_id   TEXT,
    started_at   INTEGER NOT NULL,
    retry_at     INTEGER NOT NULL,
    failure      TEXT,
    receipt      TEXT    NOT NULL,
    retraction   TEXT    NOT NULL,
    takes_key    INTEGER NOT NULL,
    PRIMARY KEY (session, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_queue_open ON memory_queue (queued_at, session, n)
    WHERE state IN ('pending', 'committing', 'failed', 'in_doubt') OR retraction = 'wanted';

-- Indexes words that domain/search_text.py has split; rowid is the body's position in `events`.
CREATE VIRTUAL TABLE search USING fts5 (
    words, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);

CREATE TABLE cursors (
    name     TEXT    NOT NULL PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO cursors (name, position) VALUES ('search', 0);

CREATE TABLE prunable (
    settled_at INTEGER NOT NULL,
    session    INTEGER NOT NULL,
    turn       INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    PRIMARY KEY (settled_at, session, turn, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    run_id     TEXT    NOT NULL PRIMARY KEY,
    epoch      INTEGER NOT NULL,
    process_id TEXT    NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    no        INTEGER PRIMARY KEY,
    digest    TEXT    NOT NULL UNIQUE,
    stored_at INTEGER NOT NULL,
    complete  INTEGER NOT NULL
) STRICT;
CREATE INDEX blobs_by_age ON blobs (stored_at);

CREATE TABLE blob_chunks (
    blob INTEGER NOT NULL,
    n    INTEGER NOT NULL,
    body BLOB    NOT NULL,
    PRIMARY KEY (blob, n)
) STRICT;

CREATE TABLE blob_uses (
    blob    INTEGER NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (blob, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_uses_by_session ON blob_uses (session);

CREATE TABLE key_values (
    kind TEXT NOT NULL,
    id   TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

-- The notes of the built-in memory. `replaced_by` names the note that replaced this one; a current note has none.
-- `key` is the commit that wrote it; `note_commits` has every commit, so that none is applied twice.
CREATE TABLE notes (
    no          INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    scope       TEXT    NOT NULL,
    text        TEXT    NOT NULL,
    by          TEXT    NOT NULL,
    made_at     INTEGER NOT NULL,
    changed_at  INTEGER NOT NULL,
    session_id  TEXT    NOT NULL,
    from_turn   INTEGER NOT NULL,
    through_turn INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    replaced_by TEXT,
    vector      BLOB
) STRICT;
CREATE INDEX notes_in_force ON notes (scope, no) WHERE replaced_by IS NULL;
CREATE INDEX notes_replaced ON notes (replaced_by) WHERE replaced_by IS NOT NULL;
CREATE INDEX notes_by_key ON notes (key);
CREATE INDEX notes_by_session ON notes (session_id);

-- Rowid is the note's `no`; only notes in force are in it.
CREATE VIRTUAL TABLE note_words USING fts5 (
    words, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);

CREATE TABLE note_commits (
    key     TEXT    NOT NULL PRIMARY KEY,
    receipt TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Texts that a person made the notes forget: a keyed digest of each, and when. Never the text itself.
CREATE TABLE notes_forgotten (
    digest BLOB    NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX notes_forgotten_by_time ON notes_forgotten (at);

CREATE TABLE notes_forgotten_key (
    no  INTEGER PRIMARY KEY CHECK (no = 1),
    key BLOB    NOT NULL
) STRICT;

-- Chat apps. `inbound` has each update once, by the app's update id, until it is handled; `routes` has the conversation of
-- each chat; `deliveries` has one row for each message to the app, written before it is sent.
CREATE TABLE inbound (
    no          INTEGER PRIMARY KEY,
    channel     TEXT    NOT NULL,
    update_id   TEXT    NOT NULL,
    body        TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    session_id  TEXT    NOT NULL,
    expect      INTEGER NOT NULL,
    UNIQUE (channel, update_id)
) STRICT;
CREATE INDEX inbound_open ON inbound (channel, no) WHERE state <> 'done';
CREATE INDEX inbound_done ON inbound (received_at) WHERE state = 'done';

CREATE TABLE routes (
    key        TEXT    NOT NULL PRIMARY KEY,
    channel    TEXT    NOT NULL,
    chat       TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    sessions   TEXT    NOT NULL,
    cursor     INTEGER NOT NULL,
    touched_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX routes_by_session ON routes (session_id);
CREATE INDEX routes_by_use ON routes (channel, touched_at);

CREATE TABLE deliveries (
    route       TEXT    NOT NULL,
    n           INTEGER NOT NULL,
    source      TEXT    NOT NULL,
    piece       INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    body        TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    made_at     INTEGER NOT NULL,
    platform_id TEXT    NOT NULL,
    attempts    INTEGER NOT NULL,
    process_id  TEXT,
    retry_at    INTEGER NOT NULL,
    failure     TEXT,
    PRIMARY KEY (route, n),
    UNIQUE (route, source, piece)
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_open ON deliveries (route, n) WHERE state IN ('waiting', 'sending', 'changed');
CREATE INDEX deliveries_over ON deliveries (made_at) WHERE state NOT IN ('waiting', 'sending', 'changed');

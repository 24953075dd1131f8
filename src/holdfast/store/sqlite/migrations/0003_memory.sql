-- What memory is owed, what the notes remember, and whether a conversation is to be remembered at all.
-- Turns that were completed before are not owed.

ALTER TABLE sessions ADD COLUMN remember INTEGER NOT NULL DEFAULT 1;

CREATE INDEX events_prepared ON events (session, seq) WHERE kind = 'context_prepared';

CREATE TABLE debts (
    session      INTEGER NOT NULL,
    n            INTEGER NOT NULL,
    turns        TEXT    NOT NULL,
    through_turn INTEGER NOT NULL,
    owed_at      INTEGER NOT NULL,
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
CREATE INDEX debts_open ON debts (owed_at, session, n)
    WHERE state IN ('owed', 'committing', 'failed', 'in_doubt') OR retraction = 'wanted';

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

-- Rowid is the note's `no`; only notes in force are in it.
CREATE VIRTUAL TABLE note_words USING fts5 (
    words, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0'
);

CREATE TABLE note_tellings (
    key     TEXT    NOT NULL PRIMARY KEY,
    receipt TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Wordings that a person had the notes forget: a keyed digest of each, and when. No words.
CREATE TABLE notes_forgotten (
    digest BLOB    NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX notes_forgotten_by_time ON notes_forgotten (at);

CREATE TABLE notes_forgotten_key (
    no  INTEGER PRIMARY KEY CHECK (no = 1),
    key BLOB    NOT NULL
) STRICT;

-- What came from chat apps, where each chat is, and what goes back.

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

-- Runs that steer another, runs that were let go on past a limit, and small things that belong to no session.

ALTER TABLE runs ADD COLUMN steers TEXT;
ALTER TABLE runs ADD COLUMN allowances INTEGER NOT NULL DEFAULT 1;
ALTER TABLE runs ADD COLUMN detail TEXT NOT NULL DEFAULT '';

CREATE TABLE shelf (
    kind TEXT NOT NULL,
    id   TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

-- Plain names: `debts` is the memory queue, `shelf` holds key-value items, `note_tellings` are commits.

DROP INDEX debts_open;
ALTER TABLE debts RENAME TO memory_queue;
ALTER TABLE memory_queue RENAME COLUMN owed_at TO queued_at;
UPDATE memory_queue SET state = 'pending' WHERE state = 'owed';
UPDATE memory_queue SET state = 'committed' WHERE state = 'paid';
CREATE INDEX memory_queue_open ON memory_queue (queued_at, session, n)
    WHERE state IN ('pending', 'committing', 'failed', 'in_doubt') OR retraction = 'wanted';
ALTER TABLE shelf RENAME TO key_values;
ALTER TABLE note_tellings RENAME TO note_commits;

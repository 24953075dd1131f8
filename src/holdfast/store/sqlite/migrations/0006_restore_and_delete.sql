-- Restoring a turn replays what removed and restored turns before.

CREATE INDEX events_removals ON events (session, seq)
    WHERE kind IN ('turns_undone', 'turns_restored', 'session_cleared');

-- Deleting a session drops what memory was not told yet, and can delete its notes.

UPDATE debts SET state = 'dropped', retry_at = 0
WHERE state IN ('owed', 'failed', 'in_doubt') AND retraction != 'wanted'
    AND session IN (SELECT no FROM sessions WHERE deleted_at IS NOT NULL);
CREATE INDEX notes_by_session ON notes (session_id);

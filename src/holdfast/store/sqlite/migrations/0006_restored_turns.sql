-- Restoring a turn replays what removed and restored turns before.

CREATE INDEX events_removals ON events (session, seq)
    WHERE kind IN ('turns_undone', 'turns_restored', 'session_cleared');

-- What undid, restored or cleared turns: restoring a turn replays them.
CREATE INDEX events_removals ON events (session, seq)
    WHERE kind IN ('turns_undone', 'turns_restored', 'session_cleared');

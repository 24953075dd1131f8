-- The newest summary of a conversation is read before the conversation is.

CREATE INDEX events_compacted ON events (session, seq) WHERE kind = 'session_compacted';

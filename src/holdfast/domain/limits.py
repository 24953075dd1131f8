"""Every limit by name, its unit last. A limit is enforced where it is used and tested there."""

TEXT_BYTES_MAX = 1_000_000
"""One message's text, as sent by a person."""
TITLE_CHARS_MAX = 200
KEY_CHARS_MAX = 200
EVENT_BYTES_MAX = 4_000_000
"""One event's body; what is larger goes to a blob."""
DELTA_BYTES_MAX = 64_000
"""Joined text of one delta event; a longer run of text becomes several."""
FACTS_PER_APPEND_MAX = 10_000
BLOB_BYTES_MAX = 64_000_000
BLOB_CHUNK_BYTES = 256_000

PAGE_MESSAGES_MAX = 200
PAGE_SESSIONS_MAX = 200
READ_EVENTS_MAX = 1_000
SEARCH_HITS_MAX = 100
SEARCH_TERMS_MAX = 16
SNIPPET_CHARS = 160

PENDING_APPENDS_MAX = 10_000
"""Appends that may wait for the writer; the next one waits for room."""
SUBSCRIBER_EVENTS_MAX = 1_000
"""Events held for one slow reader; past that it reads from the store again."""

PACE_SAMPLES_PER_S_MAX = 10
PACE_SAMPLES_MAX = 100
RECOVERY_PLACES = 1_000_000
"""Places kept free before a notice of interruption, for output that is recovered later."""

PRUNE_AFTER_MS = 3_600_000
PURGE_AFTER_MS = 60_000
UNUSED_BLOB_AFTER_MS = 86_400_000

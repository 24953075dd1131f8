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
ITEM_BYTES_MAX = 64_000
"""One of the small things that belong to no session."""

STEP_BYTES_MAX = 1_000_000
"""What one step of a model may write; it is ended there, as if the model had."""

PAGE_MESSAGES_MAX = 200
PAGE_SESSIONS_MAX = 200
READ_EVENTS_MAX = 1_000
READ_BYTES_MAX = 256_000
"""Bodies in one read of events, after the first; a reader who does not read holds no more."""
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

RESUME_ATTEMPTS_MAX = 20
"""Times that one run goes on by itself after an interruption."""
RESUME_ATTEMPTS_STALLED_MAX = 3
"""The same, in a row, without a step that became durable."""

SHELL_TIMEOUT_S = 120
"""How long a shell command may run when the model does not say."""
SHELL_TIMEOUT_S_MAX = 3_600
"""The longest that it can ask for."""
SHELL_COMMAND_BYTES_MAX = 100_000
"""One shell command."""
SHELL_HEAD_BYTES_MAX = 40_000
"""The beginning of a command's output that is kept."""
SHELL_TAIL_BYTES_MAX = 20_000
"""The end of a command's output that is kept; what lies between is left out."""
SHELL_GRACE_MS = 500
"""Time that a stopped command has to end by itself before it is killed."""
SHELL_STOP_S_MAX = 5
"""How long a call waits for what it has stopped."""
READ_FILE_BYTES_MAX = 100_000
"""Text given by one `read_file`."""
READ_FILE_LINES_MAX = 2_000
"""Lines given by one `read_file`."""
READ_FILE_SCAN_BYTES_MAX = 64_000_000
"""How far into a file `read_file` looks for a line."""
WRITE_FILE_BYTES_MAX = 1_000_000
"""One file written by `write_file`."""
LIST_FILES_MAX = 1_000
"""Entries given by one `list_files`."""
LIST_DEPTH_MAX = 10
"""Levels of folders in one `list_files`."""
LIST_SCAN_MAX = 100_000
"""Names that one `list_files` looks at."""
PATH_CHARS_MAX = 4_096
"""A path that a tool is given."""
PATH_DEPTH_MAX = 64
"""Folders in such a path."""
PATH_STEPS_MAX = 256
"""Steps that such a path may take, links included."""
SPOOL_BYTES_MAX = 16_000_000
"""Output kept beside a stalled store, per run."""
RECOVERY_READS_MAX = 3
"""Looks at a sealed run that find nothing before its notice becomes final."""
RECOVERY_AGE_MS_MAX = 86_400_000
"""How long more output of an interrupted run is waited for."""

BODY_BYTES_MAX = 8_000_000
"""One request's body: room for the longest message with every character escaped."""
STREAM_SESSIONS_MAX = 100
"""Sessions that one connection may follow."""
STREAM_SEND_BYTES = 256_000
"""What is handed to a connection at once."""
HEARTBEAT_S = 15
"""How long a stream may be silent."""
STREAM_STALLED_BEATS_MAX = 2
"""Heartbeats for which a reader may take nothing; then it is cut off, to come back with its cursor."""

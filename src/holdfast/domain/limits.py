"""Every limit by name, its unit last. The code that uses a limit enforces it, and its tests test it."""

TEXT_BYTES_MAX = 1_000_000
"""The text of a person's message."""
TITLE_CHARS_MAX = 200
KEY_CHARS_MAX = 200
EVENT_BYTES_MAX = 4_000_000
"""One event's body; larger content goes to a blob."""
DELTA_BYTES_MAX = 64_000
"""The joined text of one delta event; longer text becomes several."""
FACTS_PER_APPEND_MAX = 10_000
BLOB_BYTES_MAX = 64_000_000
BLOB_CHUNK_BYTES = 256_000
FILE_BYTES_MAX = 20_000_000
"""One file that a person attaches."""
TEXT_FILE_BYTES_MAX = 1_000_000
"""A text file that a person attaches."""
FILE_NAME_CHARS_MAX = 200
"""A file's name; a longer one is cut, and its extension kept."""
IMAGE_SIDE_PX_MAX = 20_000
"""Each side of an image, by its header."""
IMAGE_PIXELS_MAX = 100_000_000
"""The area of an image, since a small file can fill the memory when it is shown."""
ATTACHMENTS_MAX = 10
"""Files of one message."""
UPLOADS_BYTES_MAX = 80_000_000
"""The buffered bytes of all uploads; further ones wait, except for the first upload."""
UPLOAD_FREE_BYTES = 256_000
"""The beginning of an upload, which always has room."""
UPLOAD_WAIT_S_MAX = 10
"""The wait of an upload for room, before its sender must retry."""
UPLOAD_WINDOW_S = 10
"""The period over which the speed of an upload is measured."""
UPLOAD_WINDOW_BYTES_MIN = 40_000
"""The bytes that must arrive in that period; a slower sender is disconnected."""
UPLOAD_OVERRUN_BYTES_MAX = 64_000_000
"""The bytes still read of a file that is too large, so that its sender gets the error."""
REQUEST_FILE_BYTES_MAX = 32_000_000
"""Files in one request to a model, newest first."""
PDF_S_MAX = 10
"""The time to extract the text of a PDF file; the pages read by then are used."""
PDF_PAGES_MAX = 500
"""The pages of a PDF file to extract; the rest is left out."""
PDF_TEXT_BYTES_MAX = 1_000_000
"""The extracted text of a PDF file; the rest is left out."""
PDF_MEMORY_BYTES_MAX = 512_000_000
"""The memory of one extraction."""
PDFS_AT_ONCE_MAX = 2
"""Concurrent extractions."""
PDF_RETRY_S = 600
"""The delay before another extraction of a file that took too long or was aborted."""
PDF_CACHE_BYTES_MAX = 8_000_000
"""The cache of extracted text; the least recently used is evicted first."""
KV_ITEM_BYTES_MAX = 1_000_000
"""One value of the key-value store; the longest is a message draft."""

STEP_BYTES_MAX = 1_000_000
"""The output of one model step, which is ended there as if the model had stopped."""
CALLS_PER_STEP_MAX = 128
"""Calls in one answer; an answer with more is cut off there, and none of them is made."""

PAGE_MESSAGES_MAX = 200
PAGE_SESSIONS_MAX = 200
READ_EVENTS_MAX = 1_000
READ_BYTES_MAX = 256_000
"""Event bodies in one read, after the first; this bounds the memory of a slow reader."""
SEARCH_HITS_MAX = 100
SEARCH_TERMS_MAX = 16
SNIPPET_CHARS = 160

PENDING_APPENDS_MAX = 10_000
"""Appends that wait for the writer; the next one waits for capacity."""
SUBSCRIBER_EVENTS_MAX = 1_000
"""Events buffered for one slow reader; past that it reads from the store again."""
WATCH_SESSIONS_MAX = 1_000
"""Changed sessions buffered for a watcher of all sessions; past that it resyncs."""
SEEN_UPDATES_MAX = 50
"""Marks and pins that processes announce one by one; past that they resync."""
PINS_MAX = 100
"""Pinned conversations."""

PACE_SAMPLES_PER_S_MAX = 10
PACE_SAMPLES_MAX = 100
RECOVERY_PLACES = 1_000_000
"""Places left free before an interruption notice, for output that is recovered later."""

PRUNE_AFTER_MS = 3_600_000
PURGE_AFTER_MS = 60_000
UNUSED_BLOB_AFTER_MS = 86_400_000
UNUSED_INSTRUCTIONS_AFTER_MS = 86_400_000
"""The age of unused instructions before they are deleted."""

RESUME_ATTEMPTS_MAX = 20
"""Automatic resumptions of one run."""
RESUME_ATTEMPTS_STALLED_MAX = 3
"""Automatic resumptions in a row without a durable step; an orderly stop resets the count."""

SHELL_TIMEOUT_S = 120
"""The timeout of a shell command if the model sets none."""
SHELL_TIMEOUT_S_MAX = 3_600
"""The longest timeout that the model can set."""
SHELL_COMMAND_BYTES_MAX = 100_000
"""One shell command."""
ARGUMENTS_BYTES_MAX = 1_000_000
"""A call's arguments, as a person may edit them."""
RULE_CHARS_MAX = 4_000
"""The pattern of one rule."""
RULES_MAX = 1_000
"""Stored rules."""
SHELL_HEAD_BYTES_MAX = 8_000_000
"""The beginning of a command's output that is kept."""
SHELL_TAIL_BYTES_MAX = 16_000
"""The end of a command's output that is kept; the middle is dropped."""
OUTPUT_HEAD_BYTES_MAX = 40_000
"""The beginning of a call's output that is streamed; longer output is also kept as a file."""
OUTPUT_TAIL_BYTES_MAX = 20_000
"""The end of the output that is shown when the call ends."""
OUTPUT_KEPT_BYTES_MAX = 10_000_000
"""The beginning of the output that is kept as a file, followed by the end that is shown."""
RESULT_BYTES_MAX = 120_000
"""The text of a call's result; a longer one shows its beginning and end, and a file has all of it."""
SHELL_GRACE_MS = 500
"""The time for a stopped command to exit before it is killed."""
SHELL_STOP_S_MAX = 5
"""The wait of a call for the processes that it stopped."""
READ_FILE_BYTES_MAX = 100_000
"""The text of one `read_file` result."""
READ_FILE_LINES_MAX = 2_000
"""The lines of one `read_file` result."""
READ_FILE_SCAN_BYTES_MAX = 64_000_000
"""The part of a file in which `read_file` looks for a line."""
WRITE_FILE_BYTES_MAX = 1_000_000
"""One file written by `write_file`."""
EDIT_FILE_BYTES_MAX = 2_000_000
"""A file for `edit_file`, before and after the edit."""
CHANGE_BYTES_MAX = 4_000_000
"""The content of a file before a change, for a restore; larger content is not kept."""
DIFF_CHARS_MAX = 20_000
"""The text of one diff; the rest is counted."""
DIFF_PAIRS_MAX = 1_000_000
"""Pairs of lines to compare for a diff, besides the common prefix and suffix."""
CHANGE_NOTE_MS_MAX = 2_592_000_000
"""The age of the change record of a call that is never settled."""
CHANGED_FILES_MAX = 1_000
"""Files in one list of a run's changes, which says how many it leaves out."""
CHANGE_WAIT_MS_MAX = 10_000
"""The wait of a file-changing call for others in the same folder."""
SEARCH_FILES_S_MAX = 20
"""The time of one `search_files`, which then returns what it has found."""
SEARCH_FILES_MAX = 1_000
"""Lines or names that one `search_files` can request."""
SEARCH_FILES_BYTES_MAX = 60_000
"""The text of one `search_files` result."""
SEARCH_FILES_SCAN_MAX = 200_000
"""File names that one `search_files` scans."""
SEARCH_FILES_FILE_BYTES_MAX = 8_000_000
"""A file that `search_files` reads; larger ones are skipped."""
SEARCH_FILES_LINE_CHARS_MAX = 400
"""The part of a line in its result."""
SEARCH_FILES_PATTERN_CHARS_MAX = 1_000
"""Its pattern."""
SEARCH_FILES_CONTEXT_LINES_MAX = 10
"""Context lines before and after each match."""
SEARCH_FILES_MEMORY_BYTES_MAX = 512_000_000
"""The memory of one search."""
FETCH_URL_S_MAX = 30
"""The total time of one `fetch_url`."""
FETCH_URL_CHARS_MAX = 4_000
"""The URL of a page."""
FETCH_URL_BYTES_MAX = 5_000_000
"""The bytes read of a page, raw and decompressed; the rest is left out."""
FETCH_URL_REDIRECTS_MAX = 5
"""Redirects of one page."""
FETCH_URL_HEAD_BYTES_MAX = 16_000
"""One header line of a response."""
FETCH_URL_PIECES_MAX = 200_000
"""Tags and texts of a page that are parsed; the rest is left out."""
FETCH_URL_TEXT_CHARS_MAX = 1_000_000
"""The Markdown text of a page, with its links; the rest is left out."""
FETCH_URL_SHOWN_CHARS_MAX = 40_000
"""The text of one `fetch_url` result."""
WEB_SEARCH_S_MAX = 20
"""The timeout of a search engine."""
WEB_SEARCH_QUERY_CHARS_MAX = 400
"""The query to a search engine."""
WEB_SEARCH_BYTES_MAX = 4_000_000
"""The response of a search engine."""
WEB_SEARCH_RESULTS_MAX = 20
"""Results that one `web_search` can request."""
WEB_SEARCH_SNIPPET_CHARS_MAX = 500
"""The snippet of a result, besides its title and URL."""
LIST_FILES_MAX = 1_000
"""Entries in one `list_files` result."""
LIST_DEPTH_MAX = 10
"""Levels of folders in one `list_files`."""
LIST_SCAN_MAX = 100_000
"""File names that one `list_files` scans."""
PATH_CHARS_MAX = 4_096
"""A path in a tool's arguments."""
PATH_DEPTH_MAX = 64
"""Folders in such a path."""
PATH_STEPS_MAX = 256
"""Steps to resolve such a path, including links."""
SPOOL_BYTES_MAX = 16_000_000
"""Output spooled while the store is stalled, per run."""
RECOVERY_READS_MAX = 3
"""Reads of a sealed run that find nothing before its notice becomes final."""
RECOVERY_AGE_MS_MAX = 86_400_000
"""The age at which a recovery gives up."""

BODY_BYTES_MAX = 8_000_000
"""One request's body: the longest message with every character escaped."""
PUBLIC_BODY_BYTES_MAX = 8_000
"""An unauthenticated request's body: the longest password."""
STREAM_SESSIONS_MAX = 100
"""Sessions that one connection can follow."""
STREAM_SEND_BYTES = 256_000
"""The bytes written to a connection at once."""
HEARTBEAT_S = 15
"""The interval of heartbeats on a silent stream."""
STREAM_STALLED_HEARTBEATS_MAX = 2
"""Heartbeats that a stalled reader may miss before it is disconnected, to return with its cursor."""

FEED_SESSIONS_MAX = 200
"""The newest conversations in a feed's snapshot."""
FEED_OPEN_MAX = 500
"""Further conversations in it that are at work, need a person, failed or were interrupted."""
FEED_PENDING_MAX = 1_000
"""Changed conversations buffered for a feed's slow reader; past that it gets a new snapshot."""
FEED_ROUND_MS = 50
"""The period in which a feed joins changes."""
FEED_MARKS_MS = 50
"""The interval at which a feed checks for read marks of other processes."""
FEED_RESYNC_S = 60
"""The interval at which a feed resyncs without a notification."""
QUESTIONS_MAX = 500
"""Open questions in one list, oldest first."""
QUESTION_CHARS_MAX = 1_000
"""The text of one question."""
CHOICES_MAX = 20
"""Choices of one question."""
CHOICE_CHARS_MAX = 100
"""One choice of a question."""
QUESTIONS_OPEN_MAX = 10
"""Questions that the agent asks at once, in one step."""
QUESTION_ARGUMENTS_CHARS_MAX = 8_000
"""The beginning of a call's arguments in its approval question; the conversation has all of them."""

TOKENS_MAX = 200
"""Access tokens."""
TOKEN_NAME_CHARS_MAX = 100
SIGN_INS_MAX = 200
"""Signed-in browsers; past that the oldest is signed out."""
SIGN_IN_MS_MAX = 2_592_000_000
"""The lifetime of a sign-in."""
CODES_MAX = 100
"""Unused one-time codes; past that the oldest is void."""
CODE_MS_MAX = 900_000
"""The lifetime of the code in a sign-in link."""
PASSWORD_CHARS_MIN = 10
PASSWORD_CHARS_MAX = 1_000
PASSWORD_CHECKS_WAITING_MAX = 4
"""Queued password checks, which run one at a time; more are refused with a retry."""
LOGIN_ATTEMPTS_WINDOW_S = 60
"""The period over which failed sign-ins are counted."""
LOGIN_ATTEMPTS_PER_ADDRESS_MAX = 10
"""Failed sign-ins from one address in that period."""
LOGIN_ATTEMPTS_MAX = 600
"""Failed sign-ins from all addresses: high, since it locks out everyone who uses a password."""
LOGIN_ATTEMPTS_ADDRESSES_MAX = 10_000
"""Addresses with a count of their own; further ones share one."""
CREDENTIALS_STALE_MS = 1_000
"""The age of cached credentials: a revocation by another process takes effect by then."""

CONNECTION_IDLE_S_MAX = 20
"""The keep-alive time of a connection.

It is longer than that of usual clients (httpx 5 s, aiohttp 15 s); otherwise a request could meet the closing
of its connection and be lost.
"""
REQUEST_HEAD_BYTES_MAX = 64_000
"""A request's line and headers."""
REQUEST_HEAD_S_MAX = 10
"""The time for these to arrive, from the connection or their first byte."""
BODY_IDLE_S_MAX = 30
"""The time that a body may stall; without authentication, the time for the whole body."""
BODY_S_MAX = 600
"""The time for a whole body to arrive."""
CONNECTIONS_UNAUTHENTICATED_MAX = 1_000
"""Connections without an authenticated request; past that the oldest is closed."""

SEGMENT_TURNS_MAX = 200
"""Turns in one commit to memory; more are committed in several."""
SEGMENT_BYTES_MAX = 4_000_000
"""The content of one commit; its longest messages are cut to fit."""
COMMITS_AT_ONCE_MAX = 4
"""Concurrent commits to memory."""
COMMIT_S_MAX = 120
"""The timeout of a commit."""
COMMIT_RETRY_MS = 30_000
"""The delay before a failed commit is retried; it doubles with each failure."""
COMMIT_RETRY_MS_MAX = 3_600_000
RECALL_BACKOFF_S = 60
"""The pause in recalls from a provider that was too slow or failed."""
RECALLED_MAX = 8
"""Memories given to a turn."""
RECALLED_BYTES_MAX = 16_000
"""Their total size."""
NOTES_REPLACED_MAX = 20_000
"""Replaced notes that are kept; past that the oldest are removed."""
MEMORIES_MAX = 5_000
"""Current notes; further ones are refused until some are forgotten."""
FORGOTTEN_MAX = 20_000
"""Digests of forgotten notes, which keep them from being added again."""
MEMORY_CHARS_MAX = 2_000
"""One memory."""
PAGE_MEMORIES_MAX = 200
"""Memories in one page."""
QUEUED_COMMITS_SHOWN_MAX = 200
"""Queued commits in one list, oldest first."""
MEMORY_WAIT_S_MAX = 30
"""The wait of an immediate commit, which continues in the background."""
ACTIVE_OWNERS_MAX = 1_000
"""Conversations with an active memory owner; past that the least recently used is evicted."""
EVICT_S_MAX = 10
"""The wait of an agent's eviction for its commits."""
RECEIPT_CHARS_MAX = 500
"""A provider's receipt of a commit."""
PROVIDER_OPEN_S_MAX = 30
"""The time to load an installed provider, and again to create it."""
PROVIDER_REQUEST_S_MAX = 10
"""The timeout of a recall, or of a change to one memory."""
PROVIDER_HEALTH_S_MAX = 3
"""The timeout of a health check."""
WEBHOOK_ANSWER_BYTES_MAX = 4_000_000
"""One response of a webhook memory provider."""
EXTRACT_CHARS_MAX = 24_000
"""The part of a conversation that the model sees at once to extract notes."""
EXTRACT_CHARS_MIN = 1_500
"""The smallest such part: if one is too large for the model, it is halved, down to this."""
EXTRACT_ROUNDS_MAX = 4
"""Parts of one segment; of a longer one, the oldest is left out."""
EXTRACT_KNOWN_MAX = 30
"""Existing notes that it sees, to replace them."""
EXTRACT_FACTS_MAX = 50
"""Facts in one extraction; an answer with more is refused."""
EMBED_TEXTS_MAX = 32
"""Texts in one embedding request."""
EMBED_QUERY_MS_MAX = 150
"""The wait for a query's embedding; after it, the search uses words alone."""
EMBED_BACKOFF_S = 60
"""The pause in requests to an embedding server that was too slow or failed."""

CONTEXT_CACHE_SESSIONS_MAX = 1_000
"""Cached conversations; past that the least recently used is evicted."""
CONTEXT_CACHE_BYTES_MAX = 67_108_864
"""Their stored size; past that the least recently used is evicted."""
CONTEXT_CACHE_IDLE_MS = 3_600_000
"""The idle time before a cached conversation is evicted."""
AGENT_CACHE_AGENTS_MAX = 1_000
"""Cached agents, one for each name and model; past that the least recently used is evicted."""
EVICTIONS_AT_ONCE_MAX = 8
"""Concurrent evictions, each of which may commit to memory first."""

CHAT_RETENTION_MS = 2_592_000_000
"""The age of chat app updates and deliveries before deletion; repeated updates are deduplicated until then.

"""
LEASE_GRACE_MS = 5_000
"""The time in which a living process may renew an expired lease, after another process saw it expire."""
CHANNEL_LEASE_MS = 15_000
"""The silence of a process after which another takes over its chat app."""
INBOUND_BATCH_MAX = 100
"""Inbound updates in one batch."""
DELIVERIES_AT_ONCE_MAX = 16
"""Concurrent deliveries to chats of one app."""
DELIVERY_RETRY_MS = 1_000
"""The delay before a failed delivery is retried; it doubles with each failure."""
DELIVERY_RETRY_MS_MAX = 300_000
ROUTE_SESSIONS_MAX = 50
"""Conversations that a chat can switch between; past that the oldest is left out."""
PAIRING_CODES_MAX = 100
"""Open pairing requests; past that the oldest is rejected."""
PAIRING_MS_MAX = 3_600_000
"""The lifetime of a pairing code."""
PAIRING_TRIES_MAX = 20
"""Wrong pairing codes in that time."""
ROUTES_AT_ONCE_MAX = 16
"""Chats of one app whose messages are handled concurrently."""
CHAT_BURST_MAX = 5
"""Messages of one chat that are handled at once; further ones are rate-limited."""
CHAT_EVERY_MS = 500
"""The interval between rate-limited messages."""
CHANNEL_FETCHES_AT_ONCE_MAX = 4
"""Concurrent file downloads from one app."""
CHANNEL_FETCH_S_MAX = 60
"""The timeout of one download."""
INBOUND_OPEN_MAX = 10_000
"""Inbound updates held in memory; the rest waits in the store."""
INBOUND_TRIES_MAX = 3
"""Tries to handle an inbound update; then its sender gets an error."""
DELIVERY_MS_MAX = 259_200_000
"""The time over which a delivery is retried; then it is abandoned."""
POISON_MESSAGE_MS = 900_000
"""The time for which a message fails, although its app answers, before the next one is tried."""
POISON_MESSAGE_TRIES = 3
"""Its failures before that; if the next message then succeeds, this one is abandoned."""
DELIVERY_DUPLICATES_MAX = 3
"""Possible duplicates of a message before it is retried more slowly, and only if the app answers."""
PAIRING_CHALLENGES_AT_ONCE_MAX = 8
"""Concurrent pairing replies; further senders get one when they write again."""
WEBHOOK_BODY_BYTES_MAX = 1_000_000
"""The body of one webhook call from a chat app."""
WEBHOOK_CALLS_AT_ONCE_MAX = 16
"""Concurrent webhook calls of one chat app; further ones must retry."""
WEBHOOK_CALL_S_MAX = 30
"""The time for such a call to arrive."""
WEBHOOK_SKEW_S = 300
"""The largest age of a signed webhook call, and the largest clock difference."""

# Agents and prompts from files.
AGENT_FILE_BYTES_MAX = 64_000
"""One agent or prompt file."""
AGENT_FILES_MAX = 200
"""Agents, and prompts, in a list; others can still be used by name."""
AGENT_TOOLS_MAX = 200
"""Tools of one agent."""
AGENT_FALLBACKS_MAX = 8
"""Fallback models of one agent."""
GUIDE_BYTES_MAX = 32_000
"""The part of a workspace's AGENTS.md that is read."""
MODELS_OPEN_MAX = 16
"""Idle models that stay open, besides the server's own."""

MCP_SERVERS_MAX = 20
"""Configured MCP servers."""
MCP_START_S = 60
"""The default start timeout of an MCP server: some are downloaded first."""
MCP_START_S_MAX = 600
MCP_CALL_S = 300
"""The default timeout of a call of its tools."""
MCP_CALL_S_MAX = 3_600
MCP_WAIT_S_MAX = 30
"""The wait of a call for a server that is not ready."""
MCP_LIST_S_MAX = 30
"""The timeout of a request for a server's tools."""
MCP_LIST_PAUSE_S = 2
"""The pause between such requests, however often the server announces changes."""
MCP_MESSAGES_AT_ONCE = 2_000
"""Messages of a server that are read without a rate limit."""
MCP_MESSAGES_PER_S_MAX = 500
"""The rate limit after that; further messages wait at the server."""
MCP_STOP_S_MAX = 3
"""The wait for a server to stop."""
MCP_RETRY_MS = 1_000
"""The delay before a failed server is restarted; it doubles with each failure."""
MCP_RETRY_MS_MAX = 300_000
MCP_STABLE_S = 60
"""The time for which it must be ready to reset that delay."""
MCP_FAILURES_MAX = 3
"""Failures in a row after which its tools are withdrawn until it is ready again."""
MCP_MESSAGE_BYTES_MAX = 16_000_000
"""One message of a server; a server that sends a longer one is stopped."""
MCP_TOOLS_MAX = 128
"""Tools of one server that models see."""
MCP_PAGES_MAX = 100
"""Pages of a server's tool list."""
MCP_DESCRIPTION_CHARS_MAX = 4_000
"""A tool's description; a longer one is cut."""
MCP_SCHEMA_BYTES_MAX = 32_000
"""The schema of a tool's arguments; a tool with a longer one is left out."""
MCP_PROGRESS_LINES_MAX = 500
"""Progress lines of one call."""
MCP_ERROR_CHARS_MAX = 1_000
"""The text of an error, and a server's last output."""

# Summaries and continuations.
SUMMARIES_AT_ONCE_MAX = 4
"""Concurrent background summaries."""
SUMMARY_RETRY_MS = 60_000
"""The delay before a failed summary is retried; it doubles with each failure."""
SUMMARY_RETRY_MS_MAX = 3_600_000
SUCCESSORS_MAX = 100
"""Successors that are followed, one after another."""

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
FILE_BYTES_MAX = 20_000_000
"""One file that a person attaches."""
TEXT_FILE_BYTES_MAX = 1_000_000
"""The same, if it is text."""
FILE_NAME_CHARS_MAX = 200
"""Its name; what is longer is cut, the ending kept."""
IMAGE_SIDE_PX_MAX = 20_000
"""Each side of an image, as its header says."""
IMAGE_PIXELS_MAX = 100_000_000
"""The whole of it: what is larger may be small as a file and fill a machine's memory when it is shown."""
ATTACHMENTS_MAX = 10
"""Files that one message may have."""
UPLOADS_BYTES_MAX = 80_000_000
"""What is held of all files that are being taken in; who needs more waits, but for the first of them."""
UPLOAD_FREE_BYTES = 256_000
"""The beginning of a file, for which there is always room."""
UPLOAD_WAIT_S_MAX = 10
"""How long a file waits for room before its sender is told to come back."""
UPLOAD_WINDOW_S = 10
"""The time over which the pace of a file that comes in is looked at."""
UPLOAD_WINDOW_BYTES_MIN = 40_000
"""What must come in that time; a sender that is slower is cut off."""
UPLOAD_OVERRUN_BYTES_MAX = 64_000_000
"""How much of a file that is too large is still read, so that its sender hears why before it is cut off."""
REQUEST_FILE_BYTES_MAX = 32_000_000
"""Files shown to a model at once, the newest first."""
PDF_S_MAX = 10
"""Time for reading the text of a PDF file; the pages read by then are used."""
PDF_PAGES_MAX = 500
"""Pages whose text is read; the rest of them are left out."""
PDF_TEXT_BYTES_MAX = 1_000_000
"""The text of a PDF file; the rest of it is left out."""
PDF_MEMORY_BYTES_MAX = 512_000_000
"""Memory that reading one may take."""
PDFS_AT_ONCE_MAX = 2
"""PDF files that are read at the same time."""
PDF_RETRY_S = 600
"""Until a file is read again that took too long, or whose reading was cut off."""
PDF_CACHE_BYTES_MAX = 8_000_000
"""Text of PDF files in the cache; the least recently used is removed first."""
KV_ITEM_BYTES_MAX = 1_000_000
"""One of the things kept beside the sessions; the longest is the draft of a message."""

STEP_BYTES_MAX = 1_000_000
"""What one step of a model may write; it is ended there, as if the model had."""
CALLS_PER_STEP_MAX = 128
"""Calls in one answer; one with more is cut off there, and none of them is made."""

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
WATCH_SESSIONS_MAX = 1_000
"""Changed sessions remembered for one who watches all; past that it looks at everything again."""
SEEN_UPDATES_MAX = 50
"""Marks and pins that processes tell each other of one by one; past that they look at everything."""
PINS_MAX = 100
"""Conversations that may be pinned at once."""

PACE_SAMPLES_PER_S_MAX = 10
PACE_SAMPLES_MAX = 100
RECOVERY_PLACES = 1_000_000
"""Places kept free before a notice of interruption, for output that is recovered later."""

PRUNE_AFTER_MS = 3_600_000
PURGE_AFTER_MS = 60_000
UNUSED_BLOB_AFTER_MS = 86_400_000
UNUSED_INSTRUCTIONS_AFTER_MS = 86_400_000
"""How long what runs were told is kept after no open run was told it any more."""

RESUME_ATTEMPTS_MAX = 20
"""Times that one run goes on by itself after an interruption."""
RESUME_ATTEMPTS_STALLED_MAX = 3
"""The same, in a row, without a step that became durable; a stop that was asked for begins the row anew."""

SHELL_TIMEOUT_S = 120
"""How long a shell command may run when the model does not say."""
SHELL_TIMEOUT_S_MAX = 3_600
"""The longest that it can ask for."""
SHELL_COMMAND_BYTES_MAX = 100_000
"""One shell command."""
ARGUMENTS_BYTES_MAX = 1_000_000
"""A call's arguments, as a person may change them."""
RULE_CHARS_MAX = 4_000
"""The pattern of one rule."""
RULES_MAX = 1_000
"""Rules that are kept."""
SHELL_HEAD_BYTES_MAX = 8_000_000
"""The beginning of a command's output that is kept."""
SHELL_TAIL_BYTES_MAX = 16_000
"""The end of a command's output that is kept; what lies between is not."""
OUTPUT_HEAD_BYTES_MAX = 40_000
"""The beginning of a call's output that is shown, as it comes; what is longer is kept as a file."""
OUTPUT_TAIL_BYTES_MAX = 20_000
"""The end of it that is shown, when it is over."""
OUTPUT_KEPT_BYTES_MAX = 10_000_000
"""The beginning of it that is kept as a file; the end of it that is shown is kept with it."""
RESULT_BYTES_MAX = 120_000
"""The text of a call's result; of what is longer beginning and end are shown, and all is kept as a file."""
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
EDIT_FILE_BYTES_MAX = 2_000_000
"""One file that `edit_file` changes, before and after."""
CHANGE_BYTES_MAX = 4_000_000
"""What a file held before a call changed it, so that it can be put back; what is larger is not kept."""
DIFF_CHARS_MAX = 20_000
"""The text of one difference between two files; the rest of it is counted."""
DIFF_PAIRS_MAX = 1_000_000
"""Pairs of lines that are compared for it, beside the lines that begin and end both files."""
CHANGE_NOTE_MS_MAX = 2_592_000_000
"""How long the note of a call that changes a file is kept, if the call is never settled."""
CHANGED_FILES_MAX = 1_000
"""Files in one list of what a run has changed; it says how many it leaves out."""
CHANGE_WAIT_MS_MAX = 10_000
"""How long a call that changes a file waits for others that change files of the same folder."""
SEARCH_FILES_S_MAX = 20
"""How long one `search_files` may take; then it gives what it has found."""
SEARCH_FILES_MAX = 1_000
"""Lines or names that one `search_files` can be asked for."""
SEARCH_FILES_BYTES_MAX = 60_000
"""Text given by one `search_files`."""
SEARCH_FILES_SCAN_MAX = 200_000
"""Names that one `search_files` looks at."""
SEARCH_FILES_FILE_BYTES_MAX = 8_000_000
"""A file that it looks into; larger ones are passed over."""
SEARCH_FILES_LINE_CHARS_MAX = 400
"""What it shows of one line."""
SEARCH_FILES_PATTERN_CHARS_MAX = 1_000
"""Its pattern."""
SEARCH_FILES_CONTEXT_LINES_MAX = 10
"""Lines that it shows before and after each that it finds."""
SEARCH_FILES_MEMORY_BYTES_MAX = 512_000_000
"""Memory that it may take."""
FETCH_URL_S_MAX = 30
"""How long one `fetch_url` may take, everything included."""
FETCH_URL_CHARS_MAX = 4_000
"""The address of a page."""
FETCH_URL_BYTES_MAX = 5_000_000
"""What is read of a page, as it comes and unpacked; the rest of it is left out."""
FETCH_URL_REDIRECTS_MAX = 5
"""How often a server may point from one page to the next."""
FETCH_URL_HEAD_BYTES_MAX = 16_000
"""One line of what a server says before a page."""
FETCH_URL_PIECES_MAX = 200_000
"""Tags of a page, and texts between them, that are looked at; the rest of it is left out."""
FETCH_URL_TEXT_CHARS_MAX = 1_000_000
"""The readable text of a page, its links written out; the rest of it is left out."""
FETCH_URL_SHOWN_CHARS_MAX = 40_000
"""Text given by one `fetch_url`."""
WEB_SEARCH_S_MAX = 20
"""How long a search engine may take to answer."""
WEB_SEARCH_QUERY_CHARS_MAX = 400
"""What it can be asked."""
WEB_SEARCH_BYTES_MAX = 4_000_000
"""Its answer."""
WEB_SEARCH_RESULTS_MAX = 20
"""Results that one `web_search` can be asked for."""
WEB_SEARCH_SNIPPET_CHARS_MAX = 500
"""What is given of each of them, beside its title and address."""
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
PUBLIC_BODY_BYTES_MAX = 8_000
"""The same where nobody has signed in: room for the longest password."""
STREAM_SESSIONS_MAX = 100
"""Sessions that one connection may follow."""
STREAM_SEND_BYTES = 256_000
"""What is handed to a connection at once."""
HEARTBEAT_S = 15
"""How long a stream may be silent."""
STREAM_STALLED_HEARTBEATS_MAX = 2
"""Heartbeats for which a reader may take nothing; then it is cut off, to come back with its cursor."""

FEED_SESSIONS_MAX = 200
"""The newest conversations that a feed begins with."""
FEED_OPEN_MAX = 500
"""Those beyond them that are at work, need a person, failed or were interrupted."""
FEED_PENDING_MAX = 1_000
"""Changed conversations held for a feed's slow reader; past that it gets a new snapshot."""
FEED_ROUND_MS = 50
"""Changes within so long are told as one."""
FEED_MARKS_MS = 50
"""How soon a feed looks for what was read through another process."""
FEED_RESYNC_S = 60
"""How often a feed looks at everything, told to or not."""
QUESTIONS_MAX = 500
"""Waiting questions that are given at once, the oldest first."""
QUESTION_CHARS_MAX = 1_000
"""What the agent asks a person, in one question."""
CHOICES_MAX = 20
"""Choices that one question offers."""
CHOICE_CHARS_MAX = 100
"""One choice of a question."""
QUESTIONS_OPEN_MAX = 10
"""Questions that the agent asks at once, in one step."""
QUESTION_ARGUMENTS_CHARS_MAX = 8_000
"""The beginning of a call's arguments that its question holds; the conversation has all of them."""

TOKENS_MAX = 200
"""Tokens that may be there at once."""
TOKEN_NAME_CHARS_MAX = 100
SIGN_INS_MAX = 200
"""Browsers that may be signed in at once; past that the oldest is signed out."""
SIGN_IN_MS_MAX = 2_592_000_000
"""How long a browser stays signed in."""
CODES_MAX = 100
"""One-time codes that may wait to be used; past that the oldest is void."""
CODE_MS_MAX = 900_000
"""How long the code in a sign-in link can be used."""
PASSWORD_CHARS_MIN = 10
PASSWORD_CHARS_MAX = 1_000
PASSWORD_CHECKS_WAITING_MAX = 4
"""Passwords that wait to be checked, one after the other; more are told to come back."""
LOGIN_ATTEMPTS_WINDOW_S = 60
"""The time over which failed tries to come in are counted."""
LOGIN_ATTEMPTS_PER_ADDRESS_MAX = 10
"""Failed tries to come in from one address in that time."""
LOGIN_ATTEMPTS_MAX = 600
"""The same from all addresses together: high, as it locks out everyone who comes by a password."""
LOGIN_ATTEMPTS_ADDRESSES_MAX = 10_000
"""Addresses that are told apart by that count; further ones share one."""
CREDENTIALS_STALE_MS = 1_000
"""How old what a server knows of tokens and sign-ins may be: a revocation elsewhere holds by then."""

CONNECTION_IDLE_S_MAX = 20
"""How long a connection stays open for the next request: longer than usual clients would use one again (httpx
5 s, aiohttp 15 s), else a request can meet the closing of its connection and be lost."""
REQUEST_HEAD_BYTES_MAX = 64_000
"""A request's line and headers."""
REQUEST_HEAD_S_MAX = 10
"""How long they may take to arrive, counted from the connection or from their first byte."""
BODY_IDLE_S_MAX = 30
"""How long the rest of a body may be silent; and all that it may take where nobody has come in."""
BODY_S_MAX = 600
"""How long a whole body may take to arrive."""
CONNECTIONS_UNAUTHENTICATED_MAX = 1_000
"""Connections on which nobody has come in yet; past that the oldest is cut off."""

SEGMENT_TURNS_MAX = 200
"""Turns that memory is told of at once; past that they are told of in several goes."""
SEGMENT_BYTES_MAX = 4_000_000
"""What memory is told at once; of what is longer, the longest messages are cut."""
COMMITS_AT_ONCE_MAX = 4
"""Stretches of turns that memory is told of at the same time."""
COMMIT_S_MAX = 120
"""How long a provider may take to be told."""
COMMIT_RETRY_MS = 30_000
"""How long after a failure memory is told again; twice as long after each further one."""
COMMIT_RETRY_MS_MAX = 3_600_000
RECALL_BACKOFF_S = 60
"""How long a provider that was too slow or failed is left alone before it is tried again."""
RECALLED_MAX = 8
"""Memories that a turn is given."""
RECALLED_BYTES_MAX = 16_000
"""What they may say, together."""
NOTES_REPLACED_MAX = 20_000
"""Notes that were replaced and are kept behind those that hold; past that the oldest are removed."""
MEMORIES_MAX = 5_000
"""Memories in force that the notes keep; further ones are refused until some are forgotten."""
FORGOTTEN_MAX = 20_000
"""Forgotten wordings of notes that are known by their digests, so that they do not come back."""
MEMORY_CHARS_MAX = 2_000
"""One memory."""
PAGE_MEMORIES_MAX = 200
"""Memories in one page."""
QUEUED_COMMITS_SHOWN_MAX = 200
"""Stretches that wait to be remembered which are given at once, the oldest first."""
MEMORY_WAIT_S_MAX = 30
"""How long somebody who has memory told now waits for that; it goes on all the same."""
ACTIVE_OWNERS_MAX = 1_000
"""Conversations whose agent is held ready to tell memory; past that the longest unused is let go."""
EVICT_S_MAX = 10
"""How long letting go of an agent waits for memory to be told."""
RECEIPT_CHARS_MAX = 500
"""What a provider may answer when it was told."""
PROVIDER_OPEN_S_MAX = 30
"""How long an installed provider may take to be loaded, and again to be made."""
PROVIDER_REQUEST_S_MAX = 10
"""How long a provider may take to answer a question, or to change one memory."""
PROVIDER_HEALTH_S_MAX = 3
"""How long it may take to say how it is."""
WEBHOOK_ANSWER_BYTES_MAX = 4_000_000
"""One answer to a webhook."""
EXTRACT_CHARS_MAX = 24_000
"""What the model is shown at once of a conversation in which it looks for what to note."""
EXTRACT_CHARS_MIN = 1_500
"""A model that cannot be shown so much at once is shown half of it, and so on, down to this."""
EXTRACT_ROUNDS_MAX = 4
"""Times that it is shown more of the same stretch; of what is longer still, the oldest is left out."""
EXTRACT_KNOWN_MAX = 30
"""Notes that it is shown with it, so that it can replace them."""
EXTRACT_FACTS_MAX = 50
"""Facts that it may find at once; an answer with more is refused."""
EMBED_TEXTS_MAX = 32
"""Texts whose meaning the embedding server is asked for at once."""
EMBED_QUERY_MS_MAX = 150
"""How long the notes wait for a question's meaning; then its words alone count."""
EMBED_BACKOFF_S = 60
"""How long an embedding server that was too slow or failed is not asked."""

AGENT_CACHE_SESSIONS_MAX = 1_000
"""Conversations that are held ready for their next message; past that the longest unused is let go."""
AGENT_CACHE_BYTES_MAX = 67_108_864
"""How much of them, as it is stored; past that the longest unused is let go."""
AGENT_CACHE_IDLE_MS = 3_600_000
"""How long one that nobody uses is held ready."""
AGENT_CACHE_ROUTES_MAX = 1_000
"""Agents that are held ready, one for each name and model; past that the longest unused is let go."""
EVICTIONS_AT_ONCE_MAX = 8
"""Conversations that are let go at the same time: memory may be told of each before that."""

CHAT_RETENTION_MS = 2_592_000_000
"""How long what came from a chat app is known, and what went back: a repetition within it is told as one."""
LEASE_GRACE_MS = 5_000
"""How long a living process may renew a lease that ran out, after another process has seen that it did."""
CHANNEL_LEASE_MS = 15_000
"""How long a process may go silent before another takes over its chat app."""
INBOUND_BATCH_MAX = 100
"""Things from a chat app that are looked at at once."""
DELIVERIES_AT_ONCE_MAX = 16
"""Chats of one app that are sent to at the same time."""
DELIVERY_RETRY_MS = 1_000
"""How long after a failure a message is sent again; twice as long after each further one."""
DELIVERY_RETRY_MS_MAX = 300_000
ROUTE_SESSIONS_MAX = 50
"""Conversations that a chat can switch between; past that the oldest is left out."""
PAIRING_CODES_MAX = 100
"""Strangers that may wait to be let in; past that the oldest is turned away."""
PAIRING_MS_MAX = 3_600_000
"""How long a pairing code can be confirmed."""
PAIRING_TRIES_MAX = 20
"""Wrong pairing codes that may be tried within that time."""
ROUTES_AT_ONCE_MAX = 16
"""Chats of one app whose messages are taken up at the same time."""
CHAT_BURST_MAX = 5
"""Messages of one chat that are taken up at once; whoever says more is listened to at a pace."""
CHAT_EVERY_MS = 500
"""That pace: from one message to the next."""
CHANNEL_FETCHES_AT_ONCE_MAX = 4
"""Files of one app that are fetched at the same time."""
CHANNEL_FETCH_S_MAX = 60
"""How long one may take."""
INBOUND_OPEN_MAX = 10_000
"""Things from a chat app that are held in memory until they are taken up; the rest waits in the store."""
INBOUND_TRIES_MAX = 3
"""How often something from a chat app is taken up that fails; then whoever sent it is told."""
DELIVERY_MS_MAX = 259_200_000
"""How long it is tried to say something in a chat; then it is let be."""
POISON_MESSAGE_MS = 900_000
"""How long a message may fail, although its app answers, before the one behind it is tried."""
POISON_MESSAGE_TRIES = 3
"""How often it must have failed so: if the next then gets through, it is that message, and it is let be."""
DELIVERY_DUPLICATES_MAX = 3
"""How often a message may have arrived before it is sent more slowly, and only to an app that answers."""
PAIRING_CHALLENGES_AT_ONCE_MAX = 8
"""Strangers who are told their code at the same time; others are told when they write again."""
WEBHOOK_BODY_BYTES_MAX = 1_000_000
"""What a chat app may tell in one call."""
WEBHOOK_CALLS_AT_ONCE_MAX = 16
"""Calls of one chat app that are read at the same time; others are told to come again."""
WEBHOOK_CALL_S_MAX = 30
"""How long one may take to arrive."""
WEBHOOK_SKEW_S = 300
"""How old what is called in by the webhook channel may be, and how far the clocks may differ."""

# Agents and prompts that people write.
AGENT_FILE_BYTES_MAX = 64_000
"""What one file of an agent or a prompt may hold."""
AGENT_FILES_MAX = 200
"""Agents, and prompts, that are listed; more of them can still be called by name."""
AGENT_TOOLS_MAX = 200
"""Tools that one agent may name."""
AGENT_FALLBACKS_MAX = 8
"""Models that answer for an agent where its own cannot."""
GUIDE_BYTES_MAX = 32_000
"""What is read of an AGENTS.md in a workspace; of a longer one the beginning."""
MODELS_OPEN_MAX = 16
"""Models beside the server's own that are held open while no answer needs them."""

MCP_SERVERS_MAX = 20
"""MCP servers that may be configured."""
MCP_START_S = 60
"""How long an MCP server may take to be ready when its table does not say: some are fetched first."""
MCP_START_S_MAX = 600
MCP_CALL_S = 300
"""How long a call of one of its tools may take when its table does not say."""
MCP_CALL_S_MAX = 3_600
MCP_WAIT_S_MAX = 30
"""How long a call waits for a server that is not ready."""
MCP_LIST_S_MAX = 30
"""How long a server that is ready may take to list its tools."""
MCP_LIST_PAUSE_S = 2
"""How long after that it is not asked for them again, however often it says that they have changed."""
MCP_MESSAGES_AT_ONCE = 2_000
"""Messages of a server that are read as fast as it sends them."""
MCP_MESSAGES_PER_S_MAX = 500
"""How many a second are read of one that goes on; the others wait on its side."""
MCP_STOP_S_MAX = 3
"""How long a server that is stopped is waited for."""
MCP_RETRY_MS = 1_000
"""How long after it has ended or failed a server is tried again; twice as long after each further time."""
MCP_RETRY_MS_MAX = 300_000
MCP_STABLE_S = 60
"""How long it must have been ready for that to begin anew."""
MCP_FAILURES_MAX = 3
"""Failures in a row after which its tools are no longer offered, until it is ready again."""
MCP_MESSAGE_BYTES_MAX = 16_000_000
"""One message of a server; one that says more is stopped."""
MCP_TOOLS_MAX = 128
"""Tools of one server that are offered to models."""
MCP_PAGES_MAX = 100
"""Pages of tools that it is asked for."""
MCP_DESCRIPTION_CHARS_MAX = 4_000
"""What a tool says of itself; what is longer is cut."""
MCP_SCHEMA_BYTES_MAX = 32_000
"""The schema of a tool's arguments; a tool with a longer one is left out."""
MCP_PROGRESS_LINES_MAX = 500
"""Lines of progress that a call may show."""
MCP_ERROR_CHARS_MAX = 1_000
"""What is told of an error, and of a server's last words."""

# Long conversations.
SUMMARIES_AT_ONCE_MAX = 4
"""Conversations that are summarised in the background at the same time."""
SUMMARY_RETRY_MS = 60_000
"""How long one rests that could not be summarised; twice as long each time after that."""
SUMMARY_RETRY_MS_MAX = 3_600_000
SUCCESSORS_MAX = 100
"""Sessions that a conversation is followed through, one after another."""

-- All named queries of the SQLite store. Parameters are `?` in order, or `?1` if used more than once.

-- name: begin
BEGIN IMMEDIATE;

-- name: begin_read
BEGIN;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: format
PRAGMA user_version;

-- name: newest_position
SELECT max(ifnull((SELECT max(position) FROM events), 0), ifnull((SELECT max(position) FROM deltas), 0));

-- name: newest_indexable
SELECT ifnull(max(position), 0) FROM events;

-- name: events_since
SELECT e.position, s.id, e.seq, e.at, e.kind, e.version, e.body
FROM (
    SELECT * FROM (SELECT * FROM events WHERE position > ?1 ORDER BY position LIMIT ?2)
    UNION ALL
    SELECT * FROM (SELECT * FROM deltas WHERE position > ?1 ORDER BY position LIMIT ?2)
) e JOIN sessions s ON s.no = e.session
ORDER BY e.position LIMIT ?2;

-- The journal.

-- name: session_head
SELECT no, max(
    ifnull((SELECT max(seq) FROM events WHERE session = no), 0),
    ifnull((SELECT max(seq) FROM deltas WHERE session = no), 0)
), context_version, (SELECT position FROM events WHERE session = no ORDER BY seq LIMIT 1)
FROM sessions WHERE id = ? AND deleted_at IS NULL;

-- name: insert_event
INSERT INTO events (position, session, seq, at, kind, version, body) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: insert_delta
INSERT INTO deltas (position, session, seq, at, kind, version, body) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: read_events
SELECT seq, at, kind, version, body FROM (
    SELECT * FROM (SELECT * FROM events WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT * FROM deltas WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3)
) ORDER BY seq LIMIT ?3;

-- name: read_deltas
SELECT seq, at, kind, version, body FROM deltas WHERE session = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq;

-- name: read_event
SELECT seq, at, kind, version, body FROM events WHERE session = ? AND seq = ?;

-- name: insert_prunable
INSERT OR IGNORE INTO prunable (settled_at, session, turn, place) VALUES (?, ?, ?, ?);

-- Projections.

-- name: get_session
SELECT id, created_at, updated_at, title, title_by, agent, model, workspace, resume, status, run_id, archived,
    deleted_at, last_turn, live_turns, context_version, previous_session_id, parent_session_id,
    successor_session_id, usage, remember
FROM sessions WHERE no = ?;

-- name: insert_session
INSERT INTO sessions (id, created_at, updated_at, title, title_by, agent, model, workspace, resume, status, run_id,
    archived, deleted_at, last_turn, live_turns, context_version, previous_session_id, parent_session_id,
    successor_session_id, usage, remember)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_session
UPDATE sessions SET id = ?, created_at = ?, updated_at = ?, title = ?, title_by = ?, agent = ?, model = ?,
    workspace = ?, resume = ?, status = ?, run_id = ?, archived = ?, deleted_at = ?, last_turn = ?, live_turns = ?,
    context_version = ?, previous_session_id = ?, parent_session_id = ?, successor_session_id = ?, usage = ?, remember = ?
WHERE no = ?;

-- name: get_turn
SELECT turn, id, seq, status, run_id, key, key_digest, replaces FROM turns WHERE session = ? AND turn = ?;

-- name: turn_by_key
SELECT turn, id, seq, status, run_id, key, key_digest, replaces FROM turns WHERE session = ? AND key = ?;

-- name: live_turns
SELECT turn, id, seq, status, run_id, key, key_digest, replaces FROM turns
WHERE session = ? AND turn >= ? AND status = 'live' ORDER BY turn;

-- name: last_live_turn
SELECT turn, id, seq, status, run_id, key, key_digest, replaces FROM turns
WHERE session = ? AND status = 'live' ORDER BY turn DESC LIMIT 1;

-- name: all_turns
SELECT turn, id, seq, status, run_id, key, key_digest, replaces FROM turns WHERE session = ? ORDER BY turn;

-- name: removals
SELECT seq, at, kind, version, body FROM events
WHERE session = ? AND kind IN ('turns_undone', 'turns_restored', 'session_cleared') ORDER BY seq;

-- name: completions
SELECT seq, at, kind, version, body FROM events
WHERE session = ? AND seq > ? AND kind = 'run_completed' ORDER BY seq;

-- name: put_turn
INSERT OR REPLACE INTO turns (session, turn, id, seq, status, run_id, key, key_digest, replaces)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_turn
DELETE FROM turns WHERE session = ? AND turn = ?;

-- name: get_run
SELECT id, turn, status, place, steps, attempts, stalled, notice_place, pending, waiting, failure, usage, started_at, ended_at,
    steers, allowances, detail
FROM runs WHERE session = ? AND id = ?;

-- name: find_run
SELECT s.id, r.id, r.turn, r.status, r.place, r.steps, r.attempts, r.stalled, r.notice_place, r.pending, r.waiting, r.failure, r.usage,
    r.started_at, r.ended_at, r.steers, r.allowances, r.detail
FROM runs r JOIN sessions s ON s.no = r.session WHERE r.id = ? AND s.deleted_at IS NULL
-- A session that continues another may have a run with the same id; the newer one counts.
ORDER BY r.session DESC LIMIT 1;

-- name: open_runs
SELECT id, turn, status, place, steps, attempts, stalled, notice_place, pending, waiting, failure, usage, started_at, ended_at,
    steers, allowances, detail
FROM runs WHERE session = ? AND status NOT IN ('completed', 'cancelled', 'failed') ORDER BY turn;

-- name: all_open_runs
SELECT s.id, r.id, r.turn, r.status, r.place, r.steps, r.attempts, r.stalled, r.notice_place, r.pending, r.waiting, r.failure, r.usage,
    r.started_at, r.ended_at, r.steers, r.allowances, r.detail
FROM runs r INDEXED BY runs_open JOIN sessions s ON s.no = r.session
WHERE r.status NOT IN ('completed', 'cancelled', 'failed') AND s.deleted_at IS NULL ORDER BY r.session, r.turn;

-- name: active_runs
SELECT s.id, r.id, r.turn, r.status, r.place, r.steps, r.attempts, r.stalled, r.notice_place, r.pending, r.waiting, r.failure, r.usage,
    r.started_at, r.ended_at, r.steers, r.allowances, r.detail
FROM runs r INDEXED BY runs_open JOIN sessions s ON s.no = r.session
WHERE r.status NOT IN ('completed', 'cancelled', 'failed') AND r.status <> 'waiting' AND s.deleted_at IS NULL ORDER BY r.session, r.turn;

-- name: pending_runs
SELECT s.id, r.id, r.turn, r.status, r.place, r.steps, r.attempts, r.stalled, r.notice_place, r.pending, r.waiting, r.failure, r.usage,
    r.started_at, r.ended_at, r.steers, r.allowances, r.detail
FROM runs r INDEXED BY runs_pending JOIN sessions s ON s.no = r.session
WHERE r.pending IS NOT NULL AND s.deleted_at IS NULL ORDER BY r.session, r.turn;

-- name: runs_of_turns
SELECT r.id, r.turn, r.status, r.place, r.steps, r.attempts, r.stalled, r.notice_place, r.pending, r.waiting, r.failure, r.usage,
    r.started_at, r.ended_at, r.steers, r.allowances, r.detail
FROM turns t JOIN runs r ON r.session = t.session AND r.id = t.run_id
WHERE t.session = ? AND t.turn BETWEEN ? AND ? ORDER BY t.turn;

-- name: all_runs
SELECT id, turn, status, place, steps, attempts, stalled, notice_place, pending, waiting, failure, usage, started_at, ended_at,
    steers, allowances, detail
FROM runs WHERE session = ?;

-- name: put_run
INSERT OR REPLACE INTO runs (session, id, turn, status, place, steps, attempts, stalled, notice_place, pending, waiting, failure,
    usage, started_at, ended_at, steers, allowances, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_run
DELETE FROM runs WHERE session = ? AND id = ?;

-- name: get_tool
SELECT id, run_id, turn, place, name, effect, state, approval FROM tools WHERE session = ? AND id = ?;

-- name: open_tools
SELECT id, run_id, turn, place, name, effect, state, approval FROM tools
WHERE session = ? AND run_id = ? AND state <> 'settled' ORDER BY place;

-- name: all_tools
SELECT id, run_id, turn, place, name, effect, state, approval FROM tools WHERE session = ?;

-- name: put_tool
INSERT OR REPLACE INTO tools (session, id, run_id, turn, place, name, effect, state, approval)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_tool
DELETE FROM tools WHERE session = ? AND id = ?;

-- name: get_message
SELECT turn, place, id, role, status, first_seq, body_seq, run_id, late FROM messages
WHERE session = ? AND turn = ? AND place = ?;

-- name: streaming_messages
SELECT turn, place, id, role, status, first_seq, body_seq, run_id, late FROM messages
WHERE session = ? AND turn = ? AND status = 'streaming' ORDER BY place;

-- name: all_messages
SELECT turn, place, id, role, status, first_seq, body_seq, run_id, late FROM messages WHERE session = ?;

-- name: put_message
INSERT OR REPLACE INTO messages (session, turn, place, id, role, status, first_seq, body_seq, run_id, late)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_message
DELETE FROM messages WHERE session = ? AND turn = ? AND place = ?;

-- Pages.

-- name: sessions_page
SELECT no, id, created_at, updated_at, title, title_by, agent, model, workspace, resume, status, run_id, archived,
    deleted_at, last_turn, live_turns, context_version, previous_session_id, parent_session_id,
    successor_session_id, usage, remember
FROM sessions
WHERE deleted_at IS NULL AND archived = ? AND (updated_at, no) < (?, ?)
ORDER BY updated_at DESC, no DESC LIMIT ?;

-- name: titles_page
SELECT no, updated_at, title FROM sessions
WHERE deleted_at IS NULL AND archived = ? AND (updated_at, no) < (?, ?)
ORDER BY updated_at DESC, no DESC LIMIT ?;

-- name: messages_page
SELECT m.turn, m.place, m.id, m.role, m.status, m.first_seq, m.body_seq, m.run_id, m.late, t.status
FROM messages m JOIN turns t ON t.session = m.session AND t.turn = m.turn
WHERE m.session = ? AND (m.turn, m.place) < (?, ?)
ORDER BY m.turn DESC, m.place DESC LIMIT ?;

-- name: prepared_from
SELECT seq, at, kind, version, body FROM events
WHERE session = ?1 AND kind = 'context_prepared'
    AND seq > (SELECT seq FROM turns WHERE session = ?1 AND turn = ?2) AND seq < ?3
ORDER BY seq;

-- name: summaries
SELECT seq, at, kind, version, body FROM events
WHERE session = ? AND kind = 'session_compacted' ORDER BY seq DESC LIMIT ?;

-- name: count_live
SELECT count(*) FROM turns WHERE session = ? AND turn BETWEEN ? AND ? AND status = 'live';

-- name: successor
SELECT successor_session_id FROM (
    SELECT 0 AS gone, no, successor_session_id FROM sessions WHERE id = ?1 AND deleted_at IS NULL
    UNION ALL
    SELECT 1, no, successor_session_id FROM sessions WHERE id = ?1 AND deleted_at IS NOT NULL
) ORDER BY gone, no DESC LIMIT 1;

-- name: buried
SELECT no FROM sessions WHERE id = ? AND deleted_at IS NOT NULL ORDER BY no DESC LIMIT 1;

-- name: totals
SELECT (SELECT count(*) FROM sessions WHERE deleted_at IS NULL),
    max(ifnull((SELECT max(position) FROM events), 0), ifnull((SELECT max(position) FROM deltas), 0)),
    (SELECT count(*) FROM sessions WHERE deleted_at IS NULL AND archived = 1);

-- Session status.

-- name: session_by_id
SELECT no, id, created_at, updated_at, title, title_by, agent, model, workspace, resume, status, run_id, archived,
    deleted_at, last_turn, live_turns, context_version, previous_session_id, parent_session_id,
    successor_session_id, usage, remember
FROM sessions WHERE id = ? AND deleted_at IS NULL;

-- name: unsettled_sessions
SELECT no, id, created_at, updated_at, title, title_by, agent, model, workspace, resume, status, run_id, archived,
    deleted_at, last_turn, live_turns, context_version, previous_session_id, parent_session_id,
    successor_session_id, usage, remember
FROM sessions WHERE deleted_at IS NULL AND status <> 'idle'
ORDER BY status = 'failed', updated_at DESC, no DESC LIMIT ?;

-- name: waiting_runs
SELECT s.no, s.id, s.title, s.workspace, s.updated_at, r.id, r.waiting
FROM runs r INDEXED BY runs_open JOIN sessions s ON s.no = r.session
WHERE r.status NOT IN ('completed', 'cancelled', 'failed') AND r.status = 'waiting' AND s.deleted_at IS NULL
ORDER BY r.id LIMIT ?;

-- name: waiting_runs_of
SELECT s.no, s.id, s.title, s.workspace, s.updated_at, r.id, r.waiting
FROM runs r INDEXED BY runs_open JOIN sessions s ON s.no = r.session
WHERE r.session = ? AND r.status NOT IN ('completed', 'cancelled', 'failed') AND r.status = 'waiting'
ORDER BY r.id;

-- name: newest_waiting
SELECT seq, at, kind, version, body FROM events
WHERE session = ? AND kind = 'run_waiting' ORDER BY seq DESC LIMIT 1;

-- name: call_events
SELECT seq, at, kind, version, body FROM events
WHERE session = ?1 AND kind IN ('tool_intended', 'approval_requested', 'question_asked', 'tool_in_doubt')
    AND seq >= ifnull((SELECT first_seq FROM messages WHERE session = ?1 AND turn = ?2 AND place = ?3), 1)
ORDER BY seq;

-- name: is_unread
SELECT EXISTS (
    SELECT 1 FROM events e WHERE e.session = n.session AND n.context_version > n.known AND e.seq > n.known
        AND e.kind IN ('message_settled', 'tool_settled', 'run_failed', 'run_interrupted')
)
FROM (
    SELECT t.session, t.run_id, t.status, s.context_version, max(t.seq, ifnull(
        (SELECT CAST(body AS INTEGER) FROM key_values WHERE kind = 'seen' AND id = s.id), 0)) AS known
    FROM turns t JOIN sessions s ON s.no = t.session
    WHERE t.session = ? ORDER BY t.turn DESC LIMIT 1
) n WHERE n.run_id IS NOT NULL AND n.status NOT IN ('undone', 'cleared');

-- name: first_turn_event
SELECT e.seq, e.at, e.kind, e.version, e.body
FROM turns t JOIN events e ON e.session = t.session AND e.seq = t.seq
WHERE t.session = ? AND t.status = 'live' ORDER BY t.turn LIMIT 1;

-- name: mark
SELECT ifnull((SELECT CAST(body AS INTEGER) FROM key_values WHERE kind = 'seen' AND id = ?), 0);

-- name: is_pinned
SELECT EXISTS (SELECT 1 FROM key_values WHERE kind = 'pin' AND id = ?);

-- name: count_pins
SELECT count(*) FROM key_values p JOIN sessions s ON s.id = p.id WHERE p.kind = 'pin' AND s.deleted_at IS NULL;

-- name: pinned_sessions
SELECT no, s.id, created_at, updated_at, title, title_by, agent, model, workspace, resume, status, run_id, archived,
    deleted_at, last_turn, live_turns, context_version, previous_session_id, parent_session_id,
    successor_session_id, usage, remember
FROM key_values p JOIN sessions s ON s.id = p.id
WHERE p.kind = 'pin' AND s.deleted_at IS NULL AND s.archived = 0
ORDER BY updated_at DESC, no DESC LIMIT ?;

-- name: delete_session_items
DELETE FROM key_values WHERE kind IN ('seen', 'pin', 'draft') AND id = (SELECT id FROM sessions WHERE no = ?1)
    AND NOT EXISTS (SELECT 1 FROM sessions other JOIN sessions gone ON gone.id = other.id
        WHERE gone.no = ?1 AND other.deleted_at IS NULL);

-- Leases.

-- name: get_lease
SELECT epoch, process_id, expires_at FROM leases WHERE run_id = ?;

-- name: put_lease
INSERT OR REPLACE INTO leases (run_id, epoch, process_id, expires_at) VALUES (?, ?, ?, ?);

-- name: free_lease
UPDATE leases SET process_id = '', expires_at = 0 WHERE run_id = ?;

-- name: delete_lease
DELETE FROM leases WHERE run_id = ?;

-- Blobs.

-- name: get_blob
SELECT no, complete FROM blobs WHERE digest = ?;

-- name: insert_blob
INSERT INTO blobs (digest, stored_at, complete) VALUES (?, ?, 0) RETURNING no;

-- name: complete_blob
UPDATE blobs SET complete = 1 WHERE no = ?;

-- name: touch_blob
UPDATE blobs SET stored_at = ? WHERE no = ?;

-- name: put_chunk
INSERT OR REPLACE INTO blob_chunks (blob, n, body) VALUES (?, ?, ?);

-- name: get_chunk
SELECT body FROM blob_chunks WHERE blob = ? AND n = ?;

-- name: put_blob_use
INSERT OR IGNORE INTO blob_uses (blob, session) VALUES (?, ?);

-- name: unused_blobs
SELECT no FROM blobs b WHERE stored_at < ? AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob = b.no) LIMIT ?;

-- name: delete_chunks
DELETE FROM blob_chunks WHERE blob = ?;

-- name: delete_blob
DELETE FROM blobs WHERE no = ?;

-- Key-value items.

-- name: put_item
INSERT OR REPLACE INTO key_values (kind, id, body) VALUES (?, ?, ?);

-- name: compare_and_swap_item
UPDATE key_values SET body = ?4 WHERE kind = ?1 AND id = ?2 AND body = ?3 RETURNING 1;

-- name: drop_item
DELETE FROM key_values WHERE kind = ? AND id = ? AND body = ? RETURNING 1;

-- name: take_item
DELETE FROM key_values WHERE kind = ? AND id = ? RETURNING body;

-- name: delete_item
DELETE FROM key_values WHERE kind = ? AND id = ?;

-- name: delete_items
DELETE FROM key_values WHERE kind = ?;

-- name: item
SELECT body FROM key_values WHERE kind = ? AND id = ?;

-- name: items
SELECT id, body FROM key_values WHERE kind = ? ORDER BY id;

-- The memory queue.

-- name: get_queued_commit
SELECT n, turns, through_turn, queued_at, touched_at, state, owner, key, digest, attempts, process_id, started_at,
    retry_at, failure, receipt, retraction, takes_key
FROM memory_queue WHERE session = ? AND n = ?;

-- name: last_queued_commit
SELECT n, turns, through_turn, queued_at, touched_at, state, owner, key, digest, attempts, process_id, started_at,
    retry_at, failure, receipt, retraction, takes_key
FROM memory_queue WHERE session = ? ORDER BY n DESC LIMIT 1;

-- name: open_queued_commits
SELECT n, turns, through_turn, queued_at, touched_at, state, owner, key, digest, attempts, process_id, started_at,
    retry_at, failure, receipt, retraction, takes_key
FROM memory_queue WHERE session = ? AND (state IN ('pending', 'committing', 'failed', 'in_doubt') OR retraction = 'wanted') ORDER BY n;

-- name: queued_commits_from
SELECT n, turns, through_turn, queued_at, touched_at, state, owner, key, digest, attempts, process_id, started_at,
    retry_at, failure, receipt, retraction, takes_key
FROM memory_queue WHERE session = ? AND through_turn >= ? ORDER BY n;

-- name: all_queued_commits
SELECT n, turns, through_turn, queued_at, touched_at, state, owner, key, digest, attempts, process_id, started_at,
    retry_at, failure, receipt, retraction, takes_key
FROM memory_queue WHERE session = ? ORDER BY n;

-- name: put_queued_commit
INSERT OR REPLACE INTO memory_queue (session, n, turns, through_turn, queued_at, touched_at, state, owner, key, digest, attempts, process_id, started_at,
    retry_at, failure, receipt, retraction, takes_key)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_queued_commit
DELETE FROM memory_queue WHERE session = ? AND n = ?;

-- name: delete_queued_commits
DELETE FROM memory_queue WHERE session = ?;

-- name: pending_commits
SELECT s.id, s.title, s.agent, s.deleted_at IS NOT NULL, s.no, q.n, q.turns, q.through_turn, q.queued_at, q.touched_at, q.state, q.owner, q.key, q.digest, q.attempts, q.process_id, q.started_at, q.retry_at, q.failure, q.receipt, q.retraction, q.takes_key
FROM memory_queue q INDEXED BY memory_queue_open JOIN sessions s ON s.no = q.session
WHERE (q.state IN ('pending', 'committing', 'failed', 'in_doubt') OR q.retraction = 'wanted')
ORDER BY q.queued_at, q.session, q.n LIMIT ?;

-- name: unretracted_commits
SELECT s.id, s.title, s.agent, s.deleted_at IS NOT NULL, s.no, q.n, q.turns, q.through_turn, q.queued_at, q.touched_at, q.state, q.owner, q.key, q.digest, q.attempts, q.process_id, q.started_at, q.retry_at, q.failure, q.receipt, q.retraction, q.takes_key
FROM memory_queue q JOIN sessions s ON s.no = q.session
WHERE q.retraction = 'cannot' AND q.state = 'committed' AND s.deleted_at IS NULL
ORDER BY q.queued_at DESC, q.session, q.n LIMIT ?;

-- name: pending_commits_of
SELECT s.id, s.title, s.agent, s.deleted_at IS NOT NULL, s.no, q.n, q.turns, q.through_turn, q.queued_at, q.touched_at, q.state, q.owner, q.key, q.digest, q.attempts, q.process_id, q.started_at, q.retry_at, q.failure, q.receipt, q.retraction, q.takes_key
FROM memory_queue q JOIN sessions s ON s.no = q.session
WHERE q.session IN (
        SELECT no FROM sessions WHERE id = ?1 AND deleted_at IS NULL
        UNION ALL SELECT no FROM sessions WHERE id = ?1 AND deleted_at IS NOT NULL
    )
    AND (q.state IN ('pending', 'committing', 'failed', 'in_doubt') OR q.retraction = 'wanted')
ORDER BY s.deleted_at IS NOT NULL, s.no, q.n;

-- name: due_commits
SELECT s.id, s.title, s.agent, s.deleted_at IS NOT NULL, s.no, q.n, q.turns, q.through_turn, q.queued_at, q.touched_at, q.state, q.owner, q.key, q.digest, q.attempts, q.process_id, q.started_at, q.retry_at, q.failure, q.receipt, q.retraction, q.takes_key
FROM memory_queue q INDEXED BY memory_queue_open JOIN sessions s ON s.no = q.session
WHERE (q.state IN ('pending', 'committing', 'failed', 'in_doubt') OR q.retraction = 'wanted')
    AND (q.state <> 'pending' OR q.touched_at <= ?1 OR q.touched_at > ?5) AND (q.state <> 'in_doubt' OR q.retraction = 'wanted')
    AND (q.retry_at <= ?2 OR q.retry_at > ?6) AND q.owner NOT IN (SELECT value FROM json_each(?4))
    AND (q.retraction = 'wanted' OR NOT EXISTS (
        SELECT 1 FROM memory_queue e WHERE e.session = q.session AND e.n < q.n
            AND e.state IN ('pending', 'committing', 'failed') AND e.retraction <> 'wanted'
    ))
ORDER BY q.queued_at, q.session, q.n LIMIT ?3;

-- name: memory_queue_totals
SELECT count(*), ifnull(min(queued_at), 0) FROM memory_queue INDEXED BY memory_queue_open
WHERE (state IN ('pending', 'committing', 'failed', 'in_doubt') OR retraction = 'wanted') AND state <> 'committed';

-- name: deleted_session_head
SELECT no, max(
    ifnull((SELECT max(seq) FROM events WHERE session = no), 0),
    ifnull((SELECT max(seq) FROM deltas WHERE session = no), 0)
), context_version, (SELECT position FROM events WHERE session = no ORDER BY seq LIMIT 1)
FROM sessions WHERE id = ? AND deleted_at IS NOT NULL
    AND EXISTS (SELECT 1 FROM memory_queue WHERE session = no AND (state IN ('pending', 'committing', 'failed', 'in_doubt') OR retraction = 'wanted'))
ORDER BY no LIMIT 1;

-- name: numbered_head
SELECT no, max(
    ifnull((SELECT max(seq) FROM events WHERE session = no), 0),
    ifnull((SELECT max(seq) FROM deltas WHERE session = no), 0)
), context_version, (SELECT position FROM events WHERE session = no ORDER BY seq LIMIT 1)
FROM sessions WHERE no = ? AND id = ?;

-- name: messages_of_turn
SELECT turn, place, id, role, status, first_seq, body_seq, run_id, late FROM messages
WHERE session = ? AND turn = ? ORDER BY place;

-- Notes.

-- name: note_commit
SELECT receipt FROM note_commits WHERE key = ?;

-- name: put_note_commit
INSERT OR IGNORE INTO note_commits (key, receipt, at) VALUES (?, ?, ?);

-- name: make_forgotten_key
INSERT OR IGNORE INTO notes_forgotten_key (no, key) VALUES (1, randomblob(32));

-- name: forgotten_key
SELECT key FROM notes_forgotten_key WHERE no = 1;

-- name: put_forgotten
INSERT OR REPLACE INTO notes_forgotten (digest, at) VALUES (?, ?);

-- name: forgotten_at
SELECT at FROM notes_forgotten WHERE digest = ?;

-- name: prune_forgotten
DELETE FROM notes_forgotten WHERE digest IN (SELECT digest FROM notes_forgotten ORDER BY at DESC LIMIT -1 OFFSET ?);

-- name: insert_note
INSERT INTO notes (
    id, scope, text, by, made_at, changed_at, session_id, from_turn, through_turn, key, replaced_by
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING no;

-- name: edit_note
UPDATE notes SET text = ?, by = 'user', changed_at = ?, vector = NULL WHERE no = ?;

-- name: replace_note
UPDATE notes SET replaced_by = ? WHERE no = ?;

-- name: put_vector
UPDATE notes SET vector = ? WHERE id = ?;

-- name: delete_note
DELETE FROM notes WHERE no = ?;

-- name: delete_note_and_replaced
WITH RECURSIVE chain (id) AS (
    VALUES (?) UNION SELECT n.id FROM notes n JOIN chain c ON n.replaced_by = c.id
)
DELETE FROM notes WHERE id IN (SELECT id FROM chain);

-- name: note_and_replaced
WITH RECURSIVE chain (id) AS (
    VALUES (?) UNION SELECT n.id FROM notes n JOIN chain c ON n.replaced_by = c.id
)
SELECT text FROM notes WHERE id IN (SELECT id FROM chain);

-- name: note_row
SELECT no, id, scope, text, by, made_at, changed_at, replaced_by FROM notes WHERE id = ?;

-- name: notes_behind
SELECT no, id, scope, text, by, made_at, changed_at, replaced_by FROM notes WHERE replaced_by = ? ORDER BY no;

-- name: notes_with_phrase
SELECT n.no, n.id, n.scope, n.text, n.by, n.made_at, n.changed_at, n.replaced_by
FROM note_words f JOIN notes n ON n.no = f.rowid WHERE f.words MATCH ? AND n.scope = ?;

-- name: notes_with_text
SELECT no, id, scope, text, by, made_at, changed_at, replaced_by FROM notes
WHERE scope = ? AND replaced_by IS NULL AND text = ?;

-- name: any_note
SELECT id, text, by, session_id, from_turn, through_turn, made_at, changed_at, key FROM notes WHERE id = ?;

-- name: note_in_force
SELECT id, text, by, session_id, from_turn, through_turn, made_at, changed_at, key FROM notes
WHERE id = ? AND replaced_by IS NULL;

-- name: committed_notes
SELECT id FROM notes WHERE key = ? ORDER BY no DESC;

-- name: notes_of_commit
SELECT id, text, by, session_id, from_turn, through_turn, made_at, changed_at, key FROM notes
WHERE key = ? AND replaced_by IS NULL ORDER BY no;

-- name: notes_page
SELECT no, id, text, by, session_id, from_turn, through_turn, made_at, changed_at, key FROM notes
WHERE scope = ? AND no < ? AND replaced_by IS NULL ORDER BY no DESC LIMIT ?;

-- name: notes_page_with_words
SELECT n.no, n.id, n.text, n.by, n.session_id, n.from_turn, n.through_turn, n.made_at, n.changed_at, n.key
FROM note_words f JOIN notes n ON n.no = f.rowid
WHERE f.words MATCH ? AND f.rowid < ? AND n.scope = ? ORDER BY f.rowid DESC LIMIT ?;

-- name: find_notes
SELECT n.id, n.text, n.by, n.session_id, n.from_turn, n.through_turn, n.made_at, n.changed_at, n.key
FROM note_words f JOIN notes n ON n.no = f.rowid
WHERE f.words MATCH ? AND n.scope = ? ORDER BY f.rank, n.no DESC LIMIT ?;

-- name: count_notes
SELECT count(*) FROM notes WHERE replaced_by IS NULL;

-- name: count_notes_of_session
SELECT count(*) FROM notes WHERE session_id = ? AND replaced_by IS NULL;

-- name: notes_of_session
SELECT id FROM notes WHERE session_id = ? ORDER BY no DESC;

-- name: count_replaced_notes
SELECT count(*) FROM notes WHERE replaced_by IS NOT NULL;

-- name: oldest_replaced_notes
SELECT no FROM notes n WHERE replaced_by IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM notes b WHERE b.replaced_by = n.id)
ORDER BY no LIMIT ?;

-- name: count_notes_with
SELECT count(*) FROM note_words WHERE words MATCH ?;

-- name: note_vectors
SELECT id, vector FROM notes WHERE scope = ? AND replaced_by IS NULL ORDER BY no;

-- name: index_note
INSERT OR REPLACE INTO note_words (rowid, words) VALUES (?, ?);

-- name: unindex_note
DELETE FROM note_words WHERE rowid = ?;

-- name: count_misplaced_notes
SELECT (
    SELECT count(*) FROM notes WHERE replaced_by IS NULL AND no NOT IN (SELECT id FROM note_words_docsize)
) + (
    SELECT count(*) FROM note_words_docsize WHERE id NOT IN (SELECT no FROM notes WHERE replaced_by IS NULL)
);

-- name: notes_without_words
SELECT no, text FROM notes WHERE replaced_by IS NULL AND no NOT IN (SELECT id FROM note_words_docsize);

-- name: words_of_no_note
SELECT id FROM note_words_docsize WHERE id NOT IN (SELECT no FROM notes WHERE replaced_by IS NULL);

-- Chat apps.

-- name: insert_inbound
INSERT OR IGNORE INTO inbound (channel, update_id, body, state, received_at, session_id, expect)
VALUES (?, ?, ?, 'received', ?, '', 0);

-- name: get_inbound
SELECT no, body, state, received_at, session_id, expect FROM inbound WHERE no = ?;

-- name: open_inbound
SELECT no, body, state, received_at, session_id, expect FROM inbound
WHERE channel = ? AND no > ? AND state <> 'done' ORDER BY no LIMIT ?;

-- name: assign_inbound
UPDATE inbound SET state = 'assigned', session_id = ?, expect = ? WHERE no = ? AND state = 'received';

-- name: finish_inbound
UPDATE inbound SET state = 'done' WHERE no = ? AND state <> 'done';

-- name: put_route
INSERT OR REPLACE INTO routes (key, channel, chat, session_id, sessions, cursor, touched_at)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: get_route
SELECT chat, session_id, sessions, cursor, touched_at FROM routes WHERE key = ?;

-- name: routes_of_channel
SELECT chat, session_id, sessions, cursor, touched_at FROM routes WHERE channel = ?
ORDER BY touched_at DESC LIMIT ?;

-- name: routes_at_session
SELECT chat, session_id, sessions, cursor, touched_at FROM routes WHERE session_id = ?
ORDER BY touched_at DESC LIMIT ?;

-- name: every_route
SELECT chat, session_id, sessions, cursor, touched_at FROM routes ORDER BY touched_at DESC LIMIT ?;

-- name: move_cursor
UPDATE routes SET cursor = ?4 WHERE key = ?1 AND session_id = ?2 AND cursor = ?3;

-- name: last_delivery
SELECT ifnull(max(n), 0) FROM deliveries WHERE route = ?;

-- name: get_delivery
SELECT n, source, piece, kind, body, state, made_at, platform_id, attempts, process_id, retry_at, failure
FROM deliveries WHERE route = ? AND n = ?;

-- name: delivery_of
SELECT n, source, piece, kind, body, state, made_at, platform_id, attempts, process_id, retry_at, failure
FROM deliveries WHERE route = ? AND source = ? AND piece = ?;

-- name: deliveries
SELECT n, source, piece, kind, body, state, made_at, platform_id, attempts, process_id, retry_at, failure
FROM deliveries WHERE route = ? ORDER BY n DESC LIMIT ?;

-- name: deliveries_with
SELECT n, source, piece, kind, body, state, made_at, platform_id, attempts, process_id, retry_at, failure
FROM deliveries WHERE route = ? AND instr(body, ?) > 0 ORDER BY n DESC;

-- name: put_delivery
INSERT OR REPLACE INTO deliveries (route, n, source, piece, kind, body, state, made_at, platform_id, attempts, process_id, retry_at, failure)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: due_deliveries
SELECT d.route, d.n, d.source, d.piece, d.kind, d.body, d.state, d.made_at, d.platform_id, d.attempts, d.process_id, d.retry_at, d.failure
FROM deliveries d INDEXED BY deliveries_open JOIN routes r ON r.key = d.route
WHERE d.state IN ('waiting', 'sending', 'changed') AND r.channel = ?1 AND d.retry_at <= ?2
    AND d.n = (SELECT min(n) FROM deliveries f WHERE f.route = d.route
        AND f.state IN ('waiting', 'sending', 'changed'))
ORDER BY d.made_at LIMIT ?3;

-- name: blocked_deliveries
SELECT d.route, h.n, h.source, h.piece, h.kind, h.body, h.state, h.made_at, h.platform_id, h.attempts, h.process_id, h.retry_at, h.failure,
    d.n, d.source, d.piece, d.kind, d.body, d.state, d.made_at, d.platform_id, d.attempts, d.process_id, d.retry_at, d.failure
FROM deliveries h INDEXED BY deliveries_open JOIN routes r ON r.key = h.route JOIN deliveries d ON d.route = h.route
WHERE h.state IN ('waiting', 'sending', 'changed') AND r.channel = ?1 AND instr(h.failure, ?4) > 0
    AND h.n = (SELECT min(n) FROM deliveries f WHERE f.route = h.route
        AND f.state IN ('waiting', 'sending', 'changed'))
    AND d.n = (SELECT min(n) FROM deliveries f WHERE f.route = h.route AND f.n > h.n
        AND f.state IN ('waiting', 'sending', 'changed'))
    AND d.retry_at <= ?2
ORDER BY d.made_at LIMIT ?3;

-- name: drop_old_inbound
DELETE FROM inbound WHERE no IN (SELECT no FROM inbound WHERE state = 'done' AND received_at < ? LIMIT ?);

-- name: old_deliveries
-- A route behind its session's head may plan the same deliveries again, so they stay.
-- So do questions of open runs.
SELECT d.route, d.n FROM deliveries d
WHERE d.state NOT IN ('waiting', 'sending', 'changed') AND d.made_at < ?
    AND NOT EXISTS (SELECT 1 FROM routes t JOIN sessions s ON s.id = t.session_id AND s.deleted_at IS NULL
        WHERE t.key = d.route AND t.cursor < (SELECT max(seq) FROM events WHERE session = s.no))
    AND NOT (d.kind = 'question' AND EXISTS (SELECT 1 FROM runs r INDEXED BY runs_open
        WHERE r.status NOT IN ('completed', 'cancelled', 'failed') AND instr(d.body, ' ' || r.id) > 0))
LIMIT ?;

-- name: delete_delivery
DELETE FROM deliveries WHERE route = ? AND n = ?;

-- Search.

-- name: search_cursor
SELECT position FROM cursors WHERE name = 'search';

-- name: move_search_cursor
UPDATE cursors SET position = ? WHERE name = 'search';

-- name: unindexed
SELECT position, kind, version, body FROM events WHERE position > ? ORDER BY position LIMIT ?;

-- name: index_words
INSERT OR REPLACE INTO search (rowid, words) VALUES (?, ?);

-- name: unindex
DELETE FROM search WHERE rowid = ?;

-- name: clear_search
INSERT INTO search (search) VALUES ('delete-all');

-- name: search
SELECT s.id, s.title, s.no, e.position, e.seq, e.at, e.kind, e.version, e.body
FROM search f JOIN events e ON e.position = f.rowid JOIN sessions s ON s.no = e.session
WHERE f.words MATCH ? AND f.rowid < ? AND s.deleted_at IS NULL
ORDER BY f.rowid DESC LIMIT ?;

-- name: session_span
SELECT ifnull(min(position), 0), ifnull(max(position), 0) FROM (
    SELECT position FROM (SELECT position FROM events WHERE session = ?1 ORDER BY seq LIMIT 1)
    UNION ALL
    SELECT position FROM (SELECT position FROM events WHERE session = ?1 ORDER BY seq DESC LIMIT 1)
);

-- name: search_session
SELECT s.id, s.title, s.no, e.position, e.seq, e.at, e.kind, e.version, e.body
FROM search f JOIN events e ON e.position = f.rowid JOIN sessions s ON s.no = e.session
WHERE f.words MATCH ? AND f.rowid < ? AND f.rowid >= ? AND e.session = ?
ORDER BY f.rowid DESC LIMIT ?;

-- name: is_current
SELECT m.id, m.role FROM messages m JOIN turns t ON t.session = m.session AND t.turn = m.turn
WHERE m.session = ? AND m.turn = ? AND m.place = ? AND m.body_seq = ? AND t.status = 'live';

-- Sweeping.

-- name: prunable
SELECT settled_at, session, turn, place FROM prunable WHERE settled_at <= ? ORDER BY settled_at LIMIT ?;

-- name: delete_prunable
DELETE FROM prunable WHERE settled_at = ? AND session = ? AND turn = ? AND place = ?;

-- name: delete_delta
DELETE FROM deltas WHERE session = ? AND seq = ?;

-- name: purgeable_sessions
SELECT no FROM sessions WHERE deleted_at <= ?
    AND NOT EXISTS (SELECT 1 FROM memory_queue WHERE session = no AND (state IN ('pending', 'committing', 'failed', 'in_doubt') OR retraction = 'wanted'))
LIMIT ?;

-- name: purgeable_events
SELECT position FROM events
WHERE session = ? AND position < (SELECT max(position) FROM events) ORDER BY seq LIMIT ?;

-- name: delete_position
DELETE FROM events WHERE position = ?;

-- name: purgeable_deltas
SELECT position FROM deltas WHERE session = ? LIMIT ?;

-- name: delete_delta_position
DELETE FROM deltas WHERE position = ?;

-- name: session_has_events
SELECT EXISTS (SELECT 1 FROM events WHERE session = ?);

-- name: runs_to_purge
SELECT id FROM runs WHERE session = ?;

-- name: delete_turns
DELETE FROM turns WHERE session = ?;

-- name: delete_runs
DELETE FROM runs WHERE session = ?;

-- name: delete_tools
DELETE FROM tools WHERE session = ?;

-- name: delete_messages
DELETE FROM messages WHERE session = ?;

-- name: delete_blob_uses
DELETE FROM blob_uses WHERE session = ?;

-- name: delete_prunables
DELETE FROM prunable WHERE session = ?;

-- name: delete_session
DELETE FROM sessions WHERE no = ?;

-- name: vacuum
PRAGMA incremental_vacuum(256);

-- Doctor.

-- name: sessions_after
SELECT no, id FROM sessions WHERE no > ? AND deleted_at IS NULL ORDER BY no LIMIT 1;

-- name: count_sessions
SELECT count(*) FROM sessions WHERE deleted_at IS NULL;

-- name: orphans
SELECT 'turns', count(*) FROM turns WHERE session NOT IN (SELECT no FROM sessions)
UNION ALL SELECT 'runs', count(*) FROM runs WHERE session NOT IN (SELECT no FROM sessions)
UNION ALL SELECT 'tools', count(*) FROM tools WHERE session NOT IN (SELECT no FROM sessions)
UNION ALL SELECT 'memory_queue', count(*) FROM memory_queue WHERE session NOT IN (SELECT no FROM sessions)
UNION ALL SELECT 'messages', count(*) FROM messages WHERE session NOT IN (SELECT no FROM sessions)
UNION ALL SELECT 'events', count(*) FROM events WHERE session NOT IN (SELECT no FROM sessions)
UNION ALL SELECT 'deltas', count(*) FROM deltas WHERE session NOT IN (SELECT no FROM sessions);

-- name: is_indexed
SELECT 1 FROM search_docsize WHERE id = ?;

-- name: integrity_check
PRAGMA integrity_check;

"""Notes of the built-in memory: the current ones, their words, and the notes that they replaced.

Rows and words change in the same transaction. A repeat of a known note also leaves a row, behind the note
that it repeats. So when one of the two is retracted later, the other stays.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.errors import BadCursor, BadQuery, NoSuchMemory, TooLarge
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import MEMORIES_MAX, MEMORY_CHARS_MAX, PAGE_MEMORIES_MAX
from holdfast.domain.memories import Memory, MemoryPage, NewNote, Origin
from holdfast.domain.search_text import index_text, loose_terms, match_query
from holdfast.store.sqlite import forgotten
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import execute, fetch_all, fetch_one, fetch_value, read_transaction
from holdfast.store.sqlite.views import LAST, clamp_limit

_QUESTION_CHARS_MAX = 20_000
_WORDS_WEIGHED_MAX = 256
"""Words of a question whose frequency is looked up."""
_WORDS_USED_MAX = 32
"""The rarest of those words; the search uses only them."""
_COMMON_MIN = 20
"""With many notes, a word in no more notes than this is never too common."""
_COMMON_DIVISOR = 4
"""With many notes, a word in more than a fourth of them is too common."""
_FEW = 5
"""With few notes, a word in more than half of them is too common, unless they are no more than this."""
_RETRACTED = "taken back"
"""The receipt of a commit that was retracted before it arrived."""
_DUPLICATE_WORDS_MAX = 16
"""Words at the beginning of a note by which possible duplicates are found."""


class _NoteRow(msgspec.Struct, frozen=True):
    """A note, current or replaced."""

    no: int
    id: str
    scope: str
    text: str
    by: str
    made_at: int
    changed_at: int
    replaced_by: str | None

    @property
    def is_edited(self) -> bool:
        return self.changed_at > self.made_at


class _PlannedNote(msgspec.Struct, frozen=True):
    """A new note, its current duplicate, and the current notes that it replaces."""

    text: str
    duplicate: _NoteRow | None
    replaces: tuple[_NoteRow, ...]


# Adding and editing.


def add(
    tx: Tx,
    ids: IdGenerator,
    key: str,
    receipt: str,
    origin: Origin,
    scope: str,
    new_notes: Sequence[NewNote],
    said_at: Instant | None = None,
) -> tuple[str, list[Memory]]:
    """Store the notes of one commit, unless it was stored already. Raises TooLarge before writing.

    Texts that a person has forgotten or changed since `said_at` stay so.
    """
    merged = _merge_wordings(new_notes)
    first = receipt_of(tx.db, key)
    if first is not None:
        return first, _remaining(tx.db, key, scope, merged)
    plan = _plan(tx.db, scope, merged, said_at)
    _refuse_too_many(tx.db, plan)
    execute(tx.db, "put_note_commit", key, receipt, tx.at)
    return receipt, [_insert(tx, ids.memory(), key, origin, scope, each) for each in plan]


def receipt_of(db: apsw.Connection, key: str) -> str | None:
    row = fetch_one(db, "note_commit", key)
    return row[0] if row is not None else None


def edit(tx: Tx, note_id: str, text: str) -> Memory:
    note = _current_note(tx.db, note_id)
    _refuse_too_long(text)
    if _normalized(text) != _normalized(note.text):
        forgotten.put(tx, note.scope, [_normalized(note.text)])
    duplicate = _find_duplicate(tx.db, note.scope, text)
    if duplicate is not None and duplicate.id != note.id:
        _replace(tx, duplicate, note.id)
    # Later than `made_at`, on any clock: that marks a note that a person has edited.
    execute(tx.db, "edit_note", text, max(tx.at, note.made_at + 1), note.no)
    execute(tx.db, "index_note", note.no, index_text(text))
    return get(tx.db, note_id)


def put_vectors(tx: Tx, vectors: Mapping[str, bytes]) -> None:
    for note_id, vector in vectors.items():
        execute(tx.db, "put_vector", vector, note_id)


# Forgetting.


def forget(tx: Tx, note_id: str) -> None:
    note = _current_note(tx.db, note_id)
    forgotten.put(
        tx, note.scope, {_normalized(text) for (text,) in fetch_all(tx.db, "note_and_replaced", note_id)}
    )
    execute(tx.db, "unindex_note", note.no)
    execute(tx.db, "delete_note_and_replaced", note_id)


def forget_commit(tx: Tx, key: str) -> int:
    """Delete the notes of a commit; if it arrives later, it adds nothing."""
    execute(tx.db, "put_note_commit", key, _RETRACTED, tx.at)
    removed = 0
    for (note_id,) in fetch_all(tx.db, "committed_notes", key):
        note = _row(tx.db, note_id)
        if note is not None and not note.is_edited:
            removed += _remove(tx, note)
    return removed


def forget_session(tx: Tx, session_id: SessionId) -> None:
    """Delete every note saved from a session, edited or not; what it replaced becomes current again."""
    for (note_id,) in fetch_all(tx.db, "notes_of_session", session_id):
        note = _row(tx.db, note_id)
        if note is not None:
            _remove(tx, note)


def prune(tx: Tx, replaced_max: int, limit: int) -> int:
    """Remove the oldest replaced notes that have none behind them; return how many."""
    surplus = int(fetch_value(tx.db, "count_replaced_notes")) - replaced_max
    pruned = fetch_all(tx.db, "oldest_replaced_notes", min(surplus, limit)) if surplus > 0 else []
    for (no,) in pruned:
        execute(tx.db, "delete_note", no)
    return len(pruned)


def _remove(tx: Tx, note: _NoteRow) -> bool:
    """Remove one note of a chain; return False if it only repeated another one."""
    behind = [_NoteRow(*row) for row in fetch_all(tx.db, "notes_behind", note.id)]
    before = _row(tx.db, note.replaced_by) if note.replaced_by is not None else None
    is_repeat = before is not None and _normalized(before.text) == _normalized(note.text)
    execute(tx.db, "unindex_note", note.no)
    execute(tx.db, "delete_note", note.no)
    # A repeat takes this note's place, in front of what this note replaced.
    successor = next((each for each in behind if _normalized(each.text) == _normalized(note.text)), None)
    if successor is not None:
        _mark_replaced(tx, successor, before)
        before, behind = successor, [each for each in behind if each is not successor]
    elif is_repeat:
        before = None
    for each in behind:
        _mark_replaced(tx, each, before)
    return not is_repeat


def _mark_replaced(tx: Tx, note: _NoteRow, front: _NoteRow | None) -> None:
    """Put a note behind another, or make it current again if no current note has its text."""
    front = front or _find_duplicate(tx.db, note.scope, note.text)
    if front is not None:
        execute(tx.db, "replace_note", front.id, note.no)
    else:
        execute(tx.db, "replace_note", None, note.no)
        execute(tx.db, "index_note", note.no, index_text(note.text))


# Reading.


def get(db: apsw.Connection, note_id: str) -> Memory:
    row = fetch_one(db, "note_in_force", note_id)
    if row is None:
        raise NoSuchMemory(memory_id=repr(note_id[:40]))
    return _memory(row)


def page(db: apsw.Connection, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
    limit, before = clamp_limit(limit, PAGE_MEMORIES_MAX), _number(cursor) if cursor is not None else LAST
    if words.strip():
        try:
            found = fetch_all(db, "notes_page_with_words", match_query(words), before, scope, limit)
        except BadQuery:
            found = []
    else:
        found = fetch_all(db, "notes_page", scope, before, limit)
    more = str(found[-1][0]) if len(found) == limit else None
    return MemoryPage(tuple(_memory(row[1:]) for row in found), more)


def count(db: apsw.Connection) -> int:
    return int(fetch_value(db, "count_notes"))


def count_of_session(db: apsw.Connection, session_id: SessionId) -> int:
    return int(fetch_value(db, "count_notes_of_session", session_id))


def find(db: apsw.Connection, scope: str, text: str, limit: int) -> list[Memory]:
    with read_transaction(db):
        words = _distinctive_words(db, loose_terms(text[:_QUESTION_CHARS_MAX])[:_WORDS_WEIGHED_MAX])
        if not words:
            return []
        found = fetch_all(db, "find_notes", " OR ".join(words), scope, clamp_limit(limit, PAGE_MEMORIES_MAX))
    return [_memory(row) for row in found]


def vectors(db: apsw.Connection, scope: str) -> list[tuple[str, bytes | None]]:
    return [(row[0], row[1]) for row in fetch_all(db, "note_vectors", scope)]


def _distinctive_words(db: apsw.Connection, words: Sequence[str]) -> list[str]:
    """Return the words that distinguish notes, rarest first; if all are common, only the rarest."""
    total = count(db)
    common = min(max(_COMMON_MIN, total // _COMMON_DIVISOR), max(_FEW, total // 2))
    counted = sorted((fetch_value(db, "count_notes_with", word), place) for place, word in enumerate(words))
    known = [(times, words[place]) for times, place in counted if times][:_WORDS_USED_MAX]
    return [word for times, word in known if times <= common] or [word for _, word in known[:1]]


# Texts.


def _merge_wordings(new_notes: Sequence[NewNote]) -> list[NewNote]:
    """Merge notes with the same text, with all that they replace. Raises TooLarge."""
    merged: dict[str, NewNote] = {}
    for note in new_notes:
        text = note.text.strip()
        _refuse_too_long(text)
        if text:
            known = merged.get(_normalized(text), NewNote(text))
            replaces = tuple(dict.fromkeys((*known.replaces, *note.replaces)))
            merged[_normalized(text)] = NewNote(known.text, replaces)
    return list(merged.values())


def _plan(
    db: apsw.Connection, scope: str, new_notes: Sequence[NewNote], said_at: Instant | None
) -> list[_PlannedNote]:
    plan: list[_PlannedNote] = []
    taken: set[str] = set()
    for note in new_notes:
        if said_at is not None and _is_outdated(db, scope, note, said_at):
            continue
        duplicate = _find_duplicate(db, scope, note.text)
        found = [_row(db, note_id) for note_id in note.replaces if note_id not in taken]
        replaces = tuple(
            each
            for each in found
            if each is not None and each.replaced_by is None and each.scope == scope and each != duplicate
        )
        taken.update(each.id for each in replaces)
        plan.append(_PlannedNote(note.text, duplicate, replaces))
    return plan


def _is_outdated(db: apsw.Connection, scope: str, note: NewNote, said_at: Instant) -> bool:
    """Return whether a person has since forgotten this text, or written what it would replace."""
    gone_at = forgotten.forgotten_at(db, scope, _normalized(note.text))
    if gone_at is not None and gone_at >= said_at:
        return True
    found = [_row(db, note_id) for note_id in note.replaces]
    return any(each is not None and each.by == "user" and each.changed_at >= said_at for each in found)


def _insert(tx: Tx, note_id: str, key: str, origin: Origin, scope: str, planned: _PlannedNote) -> Memory:
    no = fetch_value(
        tx.db, "insert_note",
        note_id, scope, planned.text, origin.by, tx.at, tx.at, origin.session_id,
        origin.from_turn, origin.through_turn, key, planned.duplicate.id if planned.duplicate else None,
    )  # fmt: skip
    if planned.duplicate is None:
        execute(tx.db, "index_note", no, index_text(planned.text))
    for each in planned.replaces:
        _replace(tx, each, note_id)
    row = fetch_one(tx.db, "any_note", planned.duplicate.id if planned.duplicate else note_id)
    assert row is not None, "it was written, or found, in this transaction"
    return _memory(row)


def _replace(tx: Tx, note: _NoteRow, by: str) -> None:
    execute(tx.db, "replace_note", by, note.no)
    execute(tx.db, "unindex_note", note.no)


def _remaining(db: apsw.Connection, key: str, scope: str, new_notes: Sequence[NewNote]) -> list[Memory]:
    """Return the current notes of a commit, and the current duplicates of its new notes."""
    found = {row[0]: _memory(row) for row in fetch_all(db, "notes_of_commit", key)}
    for note in new_notes:
        duplicate = _find_duplicate(db, scope, note.text)
        if duplicate is not None:
            found.setdefault(duplicate.id, get(db, duplicate.id))
    return list(found.values())


def _find_duplicate(db: apsw.Connection, scope: str, text: str) -> _NoteRow | None:
    """Return the current note with the same text."""
    words = index_text(text).split()[:_DUPLICATE_WORDS_MAX]
    if words:
        found = fetch_all(db, "notes_with_phrase", f'"{" ".join(words)}"', scope)
    else:
        found = fetch_all(db, "notes_with_text", scope, text)
    return next(
        (note for row in found if _normalized((note := _NoteRow(*row)).text) == _normalized(text)), None
    )


def _normalized(text: str) -> str:
    """Return a text without differences in spaces and case."""
    return " ".join(text.split()).casefold()


def _refuse_too_long(text: str) -> None:
    if len(text) > MEMORY_CHARS_MAX:
        raise TooLarge(what="A memory", size=len(text), limit=MEMORY_CHARS_MAX)


def _refuse_too_many(db: apsw.Connection, plan: Sequence[_PlannedNote]) -> None:
    more = sum(each.duplicate is None for each in plan) - sum(len(each.replaces) for each in plan)
    if more > 0 and (size := count(db) + more) > MEMORIES_MAX:
        raise TooLarge(what="The list of what is remembered", size=size, limit=MEMORIES_MAX)


def _current_note(db: apsw.Connection, note_id: str) -> _NoteRow:
    note = _row(db, note_id)
    if note is None or note.replaced_by is not None:
        raise NoSuchMemory(memory_id=repr(note_id[:40]))
    return note


def _row(db: apsw.Connection, note_id: str) -> _NoteRow | None:
    row = fetch_one(db, "note_row", note_id)
    return _NoteRow(*row) if row is not None else None


def _memory(row: Sequence[Any]) -> Memory:
    note_id, text, by, session_id, from_turn, through_turn, made_at, changed_at, key = row
    return Memory(
        note_id, text, Origin(by, SessionId(session_id), from_turn, through_turn), made_at, changed_at, key
    )


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > 18:
        raise BadCursor(cursor=repr(cursor[:40]))
    return int(cursor)


# Doctor.


def count_misindexed(db: apsw.Connection) -> int:
    """Count current notes without words in the index, and indexed words without a current note."""
    return int(fetch_value(db, "count_misplaced_notes"))


def repair_index(tx: Tx) -> None:
    for (no,) in fetch_all(tx.db, "words_of_no_note"):
        execute(tx.db, "unindex_note", no)
    for no, text in fetch_all(tx.db, "notes_without_words"):
        execute(tx.db, "index_note", no, index_text(text))

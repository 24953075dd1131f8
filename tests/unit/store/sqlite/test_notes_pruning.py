"""Notes that were replaced: the newest stay behind what replaced them, the oldest go; what holds stays."""

from pathlib import Path

import pytest

from holdfast.domain.ids import SessionId
from holdfast.domain.memories import NewNote, Origin
from holdfast.store.sqlite import sweeper
from holdfast.store.sqlite.store import SqliteStore

ORIGIN = Origin("model", SessionId("s_1"), 1, 1)


async def add_note(store: SqliteStore, key: str, text: str, *replaces: str) -> str:
    _, (note,) = await store.add_notes(key, f"receipt {key}", ORIGIN, "", [NewNote(text, replaces)])
    return note.id


async def current_notes(store: SqliteStore) -> list[str]:
    return sorted(note.text for note in (await store.notes("", "", None, 100)).memories)


async def test_the_oldest_replaced_notes_go_and_what_holds_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "NOTES_REPLACED_MAX", 2)
    store = await SqliteStore.open(tmp_path)
    other = await add_note(store, "other", "The user has a dog.")
    note_id = await add_note(store, "0", "The user lives in town 0.")
    for n in range(1, 6):
        note_id = await add_note(store, str(n), f"The user lives in town {n}.", note_id)
    await store.sweep()
    assert await current_notes(store) == ["The user has a dog.", "The user lives in town 5."]
    # What was replaced last still comes back; what it had replaced long before is gone.
    for n, holds in ((5, 4), (4, 3)):
        assert await store.forget_commit(str(n)) == 1
        assert await current_notes(store) == ["The user has a dog.", f"The user lives in town {holds}."]
    assert await store.forget_commit("3") == 1
    assert await current_notes(store) == ["The user has a dog."]
    # A telling whose note is gone is known all the same: told again, it brings nothing back.
    assert (await store.add_notes("1", "again", ORIGIN, "", [NewNote("Town 1.")]))[0] == "receipt 1"
    assert (await store.note(other)).text == "The user has a dog."
    await store.close()


async def test_below_the_limit_nothing_is_removed(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    first = await add_note(store, "0", "The user lives in Bonn.")
    await add_note(store, "1", "The user lives in Ulm.", first)
    await store.sweep()
    assert await store.forget_commit("1") == 1
    assert await current_notes(store) == ["The user lives in Bonn."]
    await store.close()

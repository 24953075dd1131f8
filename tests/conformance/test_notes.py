"""Notes of the built-in memory: stored once per commit, found, replaced and forgotten."""

import asyncio

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import BadCursor, NoSuchMemory, TooLarge
from holdfast.domain.events.facts import SessionCreated, SessionDeleted
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import MEMORIES_MAX, MEMORY_CHARS_MAX
from holdfast.domain.memories import Memory, NewNote, Origin
from holdfast.store.ports import Append, Store
from tests.conformance.factories import StoreHome

ORIGIN = Origin("model", SessionId("s_1"), 2, 5)


async def add_notes(
    store: Store, key: str, *fresh: str | NewNote, scope: str = "", origin: Origin = ORIGIN
) -> list[Memory]:
    """Add `fresh` under `key`, check the receipt, and return the result."""
    notes = [NewNote(each) if isinstance(each, str) else each for each in fresh]
    receipt, kept = await store.add_notes(key, f"receipt of {key}", origin, scope, notes)
    assert receipt == f"receipt of {key}"
    return list(kept)


async def note_texts(store: Store, scope: str = "", words: str = "") -> list[str]:
    """Return the current notes, the oldest first."""
    page = await store.notes(scope, words, None, 200)
    return [note.text for note in reversed(page.memories)]


async def find_texts(store: Store, text: str, limit: int = 10, scope: str = "") -> list[str]:
    return [note.text for note in await store.find_notes(scope, text, limit)]


async def test_a_note_is_kept_with_where_it_comes_from(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    (note,) = await add_notes(store, "a", "The user lives in Bonn.")
    assert note.text == "The user lives in Bonn."
    assert (note.origin, note.key) == (ORIGIN, "a")
    assert note.made_at == note.changed_at == clock.now_ms()
    other = await home.open()
    assert await other.note(note.id) == note
    assert (await other.notes("", "", None, 10)).memories == (note,)
    assert await other.count_notes() == 1


async def test_the_same_key_again_changes_nothing_and_gives_the_first_receipt(store: Store) -> None:
    assert await store.note_receipt("a") is None
    kept = await add_notes(store, "a", "The user lives in Bonn.", "The user has a dog.")
    again, left = await store.add_notes("a", "another", ORIGIN, "", [NewNote("Something else.")])
    assert again == await store.note_receipt("a") == "receipt of a"
    assert list(left) == kept
    assert await note_texts(store) == ["The user lives in Bonn.", "The user has a dog."]
    await store.forget_note(kept[0].id)
    assert await add_notes(store, "a", "The user lives in Bonn.") == [kept[1]]
    assert await note_texts(store) == ["The user has a dog."]


async def test_concurrent_commits_with_one_key_are_stored_once(store: Store, home: StoreHome) -> None:
    other = await home.open()
    answers = await asyncio.gather(
        *(
            each.add_notes("a", f"receipt {n}", ORIGIN, "", [NewNote(f"Fact {n}.")])
            for n, each in enumerate((store, other) * 10)
        )
    )
    assert len({receipt for receipt, _ in answers}) == 1
    holds = await note_texts(store)
    assert len(holds) == 1
    assert all([note.text for note in kept] == holds for _, kept in answers)


async def test_an_empty_commit_still_leaves_a_receipt(store: Store) -> None:
    assert await add_notes(store, "a") == []
    assert await store.note_receipt("a") == "receipt of a"
    assert await add_notes(store, "b", "   ") == []
    assert await note_texts(store) == []


async def test_what_a_note_replaces_no_longer_holds(store: Store) -> None:
    old, other = await add_notes(store, "a", "The user lives in Bonn.", "The user has a dog.")
    (new,) = await add_notes(store, "b", NewNote("The user lives in Porto.", (old.id, "n_nonsense")))
    assert await note_texts(store) == ["The user has a dog.", "The user lives in Porto."]
    assert await find_texts(store, "where in Bonn or Porto?") == ["The user lives in Porto."]
    assert await note_texts(store, words="bonn") == []
    with pytest.raises(NoSuchMemory):
        await store.note(old.id)
    with pytest.raises(NoSuchMemory):
        await store.edit_note(old.id, "Back again.")
    with pytest.raises(NoSuchMemory):
        await store.forget_note(old.id)
    assert {new.id, other.id} == {note_id for note_id, _ in await store.vectors("")}


async def test_a_note_of_another_scope_is_not_replaced_nor_found(store: Store) -> None:
    (theirs,) = await add_notes(store, "a", "The user lives in Bonn.", scope="writer")
    await add_notes(store, "b", NewNote("The user lives in Porto.", (theirs.id,)))
    await add_notes(store, "c", "The user lives in Bonn.")
    assert await note_texts(store, "writer") == ["The user lives in Bonn."]
    assert await note_texts(store) == ["The user lives in Porto.", "The user lives in Bonn."]
    assert await find_texts(store, "Porto", scope="writer") == []
    assert await store.count_notes() == 3


async def test_the_same_words_are_the_same_note(store: Store) -> None:
    (first,) = await add_notes(store, "a", "The user lives in Bonn.")
    assert await add_notes(store, "b", "the user  lives in BONN.", "The user lives in Bonn.") == [first]
    assert await add_notes(store, "c", "C is a language.", "C++ is a language.") != [first]
    assert await add_notes(store, "d", "☕", "☕") == await add_notes(store, "e", "☕")
    assert await note_texts(store) == [
        "The user lives in Bonn.", "C is a language.", "C++ is a language.", "☕",
    ]  # fmt: skip


async def test_a_note_that_replaces_itself_stays(store: Store) -> None:
    (first,) = await add_notes(store, "a", "The user lives in Bonn.")
    assert await add_notes(store, "b", NewNote("The user lives in Bonn.", (first.id,))) == [first]
    assert await note_texts(store) == ["The user lives in Bonn."]


async def test_retracting_a_commit_restores_the_notes_it_replaced(store: Store) -> None:
    (old,) = await add_notes(store, "a", "The user lives in Bonn.")
    await add_notes(store, "b", NewNote("The user lives in Porto.", (old.id,)), "The user has a dog.")
    assert await store.forget_commit("b") == 2
    assert await note_texts(store) == ["The user lives in Bonn."]
    assert await find_texts(store, "bonn porto dog") == ["The user lives in Bonn."]
    assert await store.forget_commit("b") == 0
    assert await store.note(old.id) == old


async def test_deleting_a_session_with_its_notes_deletes_all_of_them_and_no_other(
    store: Store, clock: FakeClock
) -> None:
    here = Origin("model", await create_session(store, clock), 1, 2)
    (bonn, tea) = await add_notes(store, "a", "The user lives in Bonn.", "The user likes tea.")
    (porto, dog) = await add_notes(
        store, "b", NewNote("The user lives in Porto.", (bonn.id,)), "The user has a dog.", origin=here
    )
    await add_notes(store, "c", NewNote("The user likes green tea.", (tea.id,)), scope="writer", origin=here)
    await add_notes(store, "call_1", "The user sails.", origin=here)
    await add_notes(store, "d", NewNote("The user has two dogs.", (dog.id,)))
    clock.advance(1)
    await store.edit_note(porto.id, "The user lives in Lima.")
    assert await count(store, here.session_id) == 3
    await store.append(Append(here.session_id, (SessionDeleted(notes=True),)))
    assert await count(store, here.session_id) == 0
    # What was replaced from there holds again, and what was replaced later does not.
    assert await note_texts(store) == [
        "The user lives in Bonn.",
        "The user likes tea.",
        "The user has two dogs.",
    ]
    assert await note_texts(store, "writer") == [] and await find_texts(store, "lima sails") == []
    assert await store.forget_commit("d") == 1
    assert await note_texts(store) == ["The user lives in Bonn.", "The user likes tea."]


async def test_deleting_a_session_keeps_its_notes_unless_that_is_asked_for(
    store: Store, clock: FakeClock
) -> None:
    here = Origin("model", await create_session(store, clock), 1, 1)
    await add_notes(store, "a", "The user lives in Bonn.", origin=here)
    await store.append(Append(here.session_id, (SessionDeleted(),)))
    assert await count(store, here.session_id) == 1
    assert await note_texts(store) == ["The user lives in Bonn."]


async def count(store: Store, session_id: SessionId) -> int:
    return await store.snapshot(lambda snapshot: snapshot.count_notes(session_id))


async def create_session(store: Store, clock: FakeClock) -> SessionId:
    session_id = IdGenerator(clock).session()
    await store.append(Append(session_id, (SessionCreated(),)))
    return session_id


async def test_retracting_the_middle_of_a_replacement_chain_keeps_its_end(store: Store) -> None:
    (old,) = await add_notes(store, "a", "The user lives in Bonn.")
    (middle,) = await add_notes(store, "b", NewNote("The user lives in Porto.", (old.id,)))
    await add_notes(store, "c", NewNote("The user lives in Lima.", (middle.id,)))
    assert await store.forget_commit("b") == 1
    assert await note_texts(store) == ["The user lives in Lima."]
    assert await store.forget_commit("c") == 1
    assert await note_texts(store) == ["The user lives in Bonn."]


async def test_a_note_from_two_commits_holds_until_both_are_retracted(store: Store) -> None:
    await add_notes(store, "a", "The user lives in Bonn.")
    (tea,) = await add_notes(store, "b", "The user likes tea.")
    await add_notes(store, "c", NewNote("The user lives in Bonn.", (tea.id,)))
    assert await note_texts(store) == ["The user lives in Bonn."]
    assert await store.forget_commit("a") == 1
    assert await note_texts(store) == ["The user lives in Bonn."]
    assert await find_texts(store, "bonn") == ["The user lives in Bonn."]
    assert await store.forget_commit("c") == 1
    assert await note_texts(store) == ["The user likes tea."]


async def test_retracting_a_duplicate_note_keeps_the_first_and_restores_the_replaced(
    store: Store,
) -> None:
    (home_,) = await add_notes(store, "a", "The user lives in Bonn.")
    (tea,) = await add_notes(store, "b", "The user likes tea.")
    await add_notes(store, "c", NewNote("The user lives in Bonn.", (tea.id,)))
    assert await store.forget_commit("c") == 0
    assert await note_texts(store) == ["The user lives in Bonn.", "The user likes tea."]
    assert await store.note(home_.id) == home_


async def test_a_restored_note_does_not_duplicate_a_current_one(store: Store) -> None:
    (old,) = await add_notes(store, "a", "The user likes tea.")
    await add_notes(store, "b", NewNote("The user likes coffee.", (old.id,)))
    await add_notes(store, "c", "The user likes tea.")
    await store.forget_commit("b")
    assert await note_texts(store) == ["The user likes tea."]


async def test_a_commit_retracted_before_it_arrives_adds_no_notes(store: Store) -> None:
    assert await store.forget_commit("late") == 0
    receipt, kept = await store.add_notes("late", "mine", ORIGIN, "", [NewNote("The user has a cat.")])
    assert receipt and receipt != "mine"
    assert (list(kept), await note_texts(store)) == ([], [])


async def test_an_edited_note_belongs_to_the_user_and_survives_retraction(
    store: Store, clock: FakeClock
) -> None:
    kept, gone = await add_notes(store, "a", "The user lives in Bonn.", "The user has a dog.")
    await store.put_vectors({kept.id: b"near"})
    edited = await store.edit_note(kept.id, "The user lives near Bonn.")
    assert (edited.id, edited.text, edited.origin.by) == (kept.id, "The user lives near Bonn.", "user")
    assert edited.origin.session_id == ORIGIN.session_id
    assert (edited.made_at, edited.changed_at > edited.made_at) == (kept.made_at, True)
    assert dict(await store.vectors(""))[kept.id] is None
    assert await find_texts(store, "near") == ["The user lives near Bonn."]
    assert await store.forget_commit("a") == 1
    assert await note_texts(store) == ["The user lives near Bonn."]
    with pytest.raises(NoSuchMemory):
        await store.note(gone.id)


async def test_a_note_edited_into_another_takes_its_place(store: Store) -> None:
    one, two = await add_notes(store, "a", "The user likes tea.", "The user likes green tea.")
    await store.edit_note(one.id, "The user likes green tea.")
    assert await note_texts(store) == ["The user likes green tea."]
    with pytest.raises(NoSuchMemory):
        await store.note(two.id)


async def test_forgetting_a_note_forgets_all_that_it_replaced(store: Store) -> None:
    (old,) = await add_notes(store, "a", "The user lives in Bonn.")
    (new,) = await add_notes(store, "b", NewNote("The user lives in Porto.", (old.id,)))
    await add_notes(store, "c", "The user lives in Porto.")
    await store.forget_note(new.id)
    for key in ("a", "b", "c"):
        assert await store.forget_commit(key) == 0
    assert await note_texts(store) == await find_texts(store, "bonn porto") == []
    with pytest.raises(NoSuchMemory):
        await store.forget_note(new.id)
    with pytest.raises(NoSuchMemory):
        await store.forget_note("n_nonsense")


async def test_what_a_person_forgot_does_not_come_back_from_what_was_said_before(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    before = clock.now_ms()
    (old,) = await add_notes(store, "a", "The user has a dog.")
    (note,) = await add_notes(store, "b", NewNote("The user has two dogs.", (old.id,)))
    clock.advance(10)
    await store.forget_note(note.id)
    other = await home.open()
    notes = [NewNote("the user  has two dogs."), NewNote("The user has a dog."), NewNote("The user sails.")]
    _, kept = await other.add_notes("c", "r", ORIGIN, "", notes, said_at=before)
    assert [each.text for each in kept] == await note_texts(store) == ["The user sails."]
    _, kept = await store.add_notes("d", "r", ORIGIN, "", notes[:1], said_at=clock.now_ms())
    assert not kept, "said in the moment that it was forgotten"
    clock.advance(1)
    await store.add_notes("e", "r", ORIGIN, "elsewhere", notes[:1], said_at=before)
    _, kept = await store.add_notes("f", "r", ORIGIN, "", notes[:1], said_at=clock.now_ms())
    assert len(kept) == 1, "said anew, it is remembered anew"


async def test_what_a_person_changed_is_not_replaced_by_what_was_said_before(
    store: Store, clock: FakeClock
) -> None:
    before = clock.now_ms()
    (note,) = await add_notes(store, "a", "The user lives in Bonn.")
    clock.advance(10)
    await store.edit_note(note.id, "The user lives in Kiel.")
    late = [NewNote("The user lives in Ulm.", (note.id,)), NewNote("The user lives in Bonn.")]
    await store.add_notes("b", "r", ORIGIN, "", late, said_at=before)
    assert await note_texts(store) == ["The user lives in Kiel."]
    clock.advance(10)
    await store.add_notes("c", "r", ORIGIN, "", late, said_at=clock.now_ms())
    assert await note_texts(store) == ["The user lives in Ulm.", "The user lives in Bonn."]


async def test_a_note_that_is_too_long_changes_nothing(store: Store) -> None:
    long = "x" * (MEMORY_CHARS_MAX + 1)
    with pytest.raises(TooLarge):
        await store.add_notes("a", "r", ORIGIN, "", [NewNote("Short."), NewNote(long)])
    assert await store.note_receipt("a") is None
    assert await note_texts(store) == []
    (note,) = await add_notes(store, "b", "y" * MEMORY_CHARS_MAX)
    with pytest.raises(TooLarge):
        await store.edit_note(note.id, long)
    assert await store.note(note.id) == note


async def test_there_is_room_for_so_many_notes_and_replacing_needs_none(store: Store) -> None:
    kept: list[Memory] = []
    for start in range(0, MEMORIES_MAX, 1_000):
        kept += await add_notes(store, f"key {start}", *(f"Fact {n}." for n in range(start, start + 1_000)))
    with pytest.raises(TooLarge):
        await store.add_notes("more", "r", ORIGIN, "", [NewNote("One more.")])
    assert await store.note_receipt("more") is None
    await add_notes(store, "same", "Fact 7.")
    await add_notes(store, "better", NewNote("A better fact.", (kept[7].id,)))
    assert await store.count_notes() == MEMORIES_MAX
    await store.forget_note(kept[8].id)
    await add_notes(store, "more", "One more.")
    assert await find_texts(store, "one more") == ["One more."]


async def test_pages_go_from_the_newest_to_the_oldest(store: Store) -> None:
    await add_notes(store, "a", *(f"Fact {n} about {'tea' if n % 2 else 'coffee'}." for n in range(7)))
    for words, wanted in (("", [6, 5, 4, 3, 2, 1, 0]), ("tea", [5, 3, 1]), ("about te", [5, 3, 1])):
        seen, cursor = [], None
        for _ in range(10):
            page = await store.notes("", words, cursor, 2)
            seen += [int(note.text.split()[1]) for note in page.memories]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == wanted
    assert (await store.notes("", "?!", None, 2)).memories == ()
    for cursor in ("x", "-1", "1.2", "9" * 19, "", "¹"):
        with pytest.raises(BadCursor):
            await store.notes("", "", cursor, 2)


async def test_notes_that_share_rarer_words_are_found_first(store: Store) -> None:
    await add_notes(
        store, "a",
        "The user lives in Bonn.",
        "The user has a dog called Bramble.",
        "The user works on the lighthouse project.",
        "The user's favourite tea is Assam.",
    )  # fmt: skip
    assert (await find_texts(store, "What is my dog called?"))[0] == "The user has a dog called Bramble."
    assert (await find_texts(store, "how are the lighthouse projects going"))[0].endswith(
        "lighthouse project."
    )
    assert await find_texts(store, "Where do I live?") == ["The user lives in Bonn."]
    assert (
        await find_texts(store, "zebra")
        == await find_texts(store, "")
        == await find_texts(store, '"*()')
        == []
    )
    assert len(await find_texts(store, "the user", limit=2)) == 2


async def test_of_notes_that_fit_as_well_the_newest_comes_first(store: Store) -> None:
    await add_notes(store, "a", "Tea at four.", "Tea at five.", "Tea at noon.")
    assert await find_texts(store, "tea") == ["Tea at noon.", "Tea at five.", "Tea at four."]


async def test_words_that_most_notes_have_find_nothing_beside_others(store: Store) -> None:
    await add_notes(store, "a", *(f"The user knows number {n}." for n in range(100)), "The user sails.")
    assert await find_texts(store, "does the user know how to sail", limit=50) == ["The user sails."]
    assert len(await find_texts(store, "user", limit=5)) == 5


async def test_where_there_are_few_notes_a_word_that_most_share_does_not_bring_in_the_rest(
    store: Store,
) -> None:
    called = ("cat", "boat", "sister", "street", "car", "boss", "school", "horse")
    await add_notes(
        store, "a", *(f"The user's {what} is called Number {n}." for n, what in enumerate(called)),
        "The user's dog is called Bramble.", "The user sails.", "The user likes tea.", "The user codes.",
        "The user was born in May.",
    )  # fmt: skip
    assert await find_texts(store, "What is my dog called?") == ["The user's dog is called Bramble."]
    assert len(await find_texts(store, "called", limit=50)) == 9


async def test_scripts_without_spaces_are_found_by_pairs_of_characters(store: Store) -> None:
    await add_notes(store, "a", "用户喜欢绿茶", "用户住在上海", "ユーザーは猫を飼っている")
    assert await find_texts(store, "我想喝绿茶吗") == ["用户喜欢绿茶"]
    assert await find_texts(store, "上海的天气") == ["用户住在上海"]
    assert await find_texts(store, "猫") == ["ユーザーは猫を飼っている"]
    assert await note_texts(store, words="绿茶") == ["用户喜欢绿茶"]


async def test_finding_notes_accepts_a_long_query(store: Store) -> None:
    await add_notes(store, "a", "The user sails.")
    long = " ".join(f"word{n}" for n in range(200)) + " sails " + "x " * 100_000
    assert await find_texts(store, long) == ["The user sails."]


async def test_vectors_are_kept_for_notes_that_are_there(store: Store) -> None:
    one, two = await add_notes(store, "a", "The user sails.", "The user sings.")
    assert list(await store.vectors("")) == [(one.id, None), (two.id, None)]
    await store.put_vectors({one.id: b"\x01\x02", "n_gone": b"\x03"})
    assert dict(await store.vectors("")) == {one.id: b"\x01\x02", two.id: None}
    await store.put_vectors({one.id: b"\x04"})
    assert dict(await store.vectors(""))[one.id] == b"\x04"
    assert list(await store.vectors("other")) == []

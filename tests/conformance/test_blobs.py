"""Blobs: large content by its hash, kept while something uses it."""

import asyncio
import hashlib
import random

import pytest
from msgspec.structs import replace

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import NoSuchBlob, TooLarge
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Change, File, Text
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import BLOB_BYTES_MAX, BLOB_CHUNK_BYTES, PURGE_AFTER_MS, UNUSED_BLOB_AFTER_MS
from holdfast.store.ports import Append, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import IDS, created


def turn_with_file(digest: str, turn: int = 1) -> f.TurnAccepted:
    parts = (Text("see file"), File(digest, "a.bin", "application/octet-stream", 3))
    return f.TurnAccepted(IDS.turn(), turn, IDS.message(), parts)


async def create_session(store: Store, *facts: f.AnyFact) -> SessionId:
    new = created()
    await store.append(new)
    if facts:
        await store.append(Append(new.session_id, facts))
    return new.session_id


@pytest.mark.parametrize(
    "size", [0, 1, BLOB_CHUNK_BYTES - 1, BLOB_CHUNK_BYTES, BLOB_CHUNK_BYTES + 1, 5 * BLOB_CHUNK_BYTES + 7]
)
async def test_blob_content_round_trips(store: Store, home: StoreHome, size: int) -> None:
    content = random.Random(size).randbytes(size)
    digest = await store.put_blob(content)
    assert digest == hashlib.sha256(content).hexdigest()
    assert await store.get_blob(digest) == content
    await store.close()
    assert await (await home.open()).get_blob(digest) == content


async def test_the_same_content_is_stored_once(store: Store) -> None:
    content = random.Random(1).randbytes(2_000_000)
    digests = await asyncio.gather(*(store.put_blob(content) for _ in range(4)))
    before = (await store.totals()).store_bytes
    digests += [await store.put_blob(content)]
    assert len(set(digests)) == 1
    assert (await store.totals()).store_bytes - before < 100_000
    assert await store.get_blob(digests[0]) == content


async def test_an_unknown_blob_is_refused(store: Store) -> None:
    for digest in ("", "x", "0" * 64):
        with pytest.raises(NoSuchBlob):
            await store.get_blob(digest)


async def test_too_much_is_refused(store: Store) -> None:
    with pytest.raises(TooLarge):
        await store.put_blob(bytes(BLOB_BYTES_MAX + 1))


async def test_a_fact_may_only_name_a_blob_that_is_there(store: Store) -> None:
    session_id = await create_session(store)
    with pytest.raises(NoSuchBlob):
        await store.append(Append(session_id, (f.SessionRenamed("no", "user"), turn_with_file("0" * 64))))
    assert await store.head(session_id) == 1
    digest = await store.put_blob(b"abc")
    await store.append(Append(session_id, (turn_with_file(digest),)))
    assert await store.head(session_id) == 2


async def test_unused_blobs_are_swept_after_a_day(store: Store, clock: FakeClock) -> None:
    used, unused, renewed = [await store.put_blob(content) for content in (b"used", b"unused", b"again")]
    await create_session(store, turn_with_file(used))
    clock.advance(UNUSED_BLOB_AFTER_MS)
    assert await store.put_blob(b"again") == renewed
    assert (await store.sweep()).blobs == 0
    clock.advance(1)
    assert (await store.sweep()).blobs == 1
    with pytest.raises(NoSuchBlob):
        await store.get_blob(unused)
    assert [await store.get_blob(each) for each in (used, renewed)] == [b"used", b"again"]
    assert await store.put_blob(b"unused") == unused
    assert await store.get_blob(unused) == b"unused"


async def test_what_a_session_uses_is_kept_until_it_is_purged(store: Store, clock: FakeClock) -> None:
    digest = await store.put_blob(b"kept")
    one = await create_session(store, turn_with_file(digest))
    two = await create_session(store, turn_with_file(digest), f.TurnsUndone(1))
    for session_id in (one, two):
        clock.advance(2 * UNUSED_BLOB_AFTER_MS)
        await store.sweep()
        assert await store.get_blob(digest) == b"kept"
        await store.append(Append(session_id, (f.SessionDeleted(),)))
        await create_session(store)
    clock.advance(PURGE_AFTER_MS)
    assert (await store.sweep()).blobs == 1
    with pytest.raises(NoSuchBlob):
        await store.get_blob(digest)


async def test_blobs_of_changed_files_are_kept_like_attachments(store: Store, clock: FakeClock) -> None:
    before, after = [await store.put_blob(content) for content in (b"before", b"after")]
    change = Change("file", before, after)
    settled = f.ToolSettled(1, 1, IDS.message(), IDS.call(), "edit_file", "done", (change,), "")
    session_id = await create_session(
        store, f.TurnAccepted(IDS.turn(), 1, IDS.message(), (Text("edit it"),)), settled
    )
    clock.advance(2 * UNUSED_BLOB_AFTER_MS)
    await store.sweep()
    assert [await store.get_blob(each) for each in (before, after)] == [b"before", b"after"]
    with pytest.raises(NoSuchBlob):
        await store.append(
            Append(session_id, (replace(settled, place=2, parts=(Change("file", "0" * 64),)),))
        )
    said = await store.turn_messages(session_id, ((1, 1),))
    assert [message.row.place for message in said] == [0, 1], "a session is meant by its id alone"
    assert said[1].events[-1].fact == settled


async def test_many_unused_blobs_go_in_one_sweep(store: Store, clock: FakeClock) -> None:
    await asyncio.gather(*(store.put_blob(b"%d" % n) for n in range(30)))
    clock.advance(UNUSED_BLOB_AFTER_MS + 1)
    assert (await store.sweep()).blobs == 30

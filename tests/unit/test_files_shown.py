"""Files in a conversation: shown to the model with the message that has them, read once in a run."""

from base64 import b64encode
from pathlib import Path

import pytest

from holdfast.agent.attachments import GONE, NO_ROOM, NOT_TAKEN
from holdfast.domain.clock import FakeClock
from holdfast.domain.context import FileContent
from holdfast.domain.errors import NoSuchBlob
from holdfast.domain.files import ModelCannotTake, media_type_of
from holdfast.domain.limits import PURGE_AFTER_MS, REQUEST_FILE_BYTES_MAX, UNUSED_BLOB_AFTER_MS
from holdfast.domain.parts import File, Text
from tests.house import House, Lever, calls, house, says
from tests.pictures import PDF, png

PICTURE = FileContent("image", b64encode(png()).decode())


async def kept(here: House, content: bytes, name: str = "a") -> File:
    return File(await here.store.put_blob(content), name, media_type_of(content), len(content))


async def test_a_model_is_shown_what_a_file_holds(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session = await here.begin()
        picture, notes = await kept(here, png()), await kept(here, b"\xef\xbb\xbfhello\n")
        sent = await here.engine.send(session, (Text("Look."), picture, notes))
        await here.until_run(sent.run_id, "completed")
        (request,) = here.model.requests
        assert request.files == {picture.blob: PICTURE, notes.blob: FileContent("text", "hello\n")}


async def test_a_file_is_read_once_in_a_run_and_stays_in_the_conversation(tmp_path: Path) -> None:
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever) as here:
        session = await here.begin()
        picture = await kept(here, png())
        here.model.steps = [calls("pull"), says("A picture.")]
        sent = await here.engine.send(session, (picture,))
        await here.until_run(sent.run_id, "completed")
        first, second = (request.files[picture.blob] for request in here.model.requests)
        assert first == PICTURE
        assert first is second
        await here.until_run((await here.say(session, "And?")).run_id, "completed")
        assert here.model.requests[-1].files == {picture.blob: PICTURE}


async def test_what_cannot_be_shown_any_more_is_told(tmp_path: Path) -> None:
    """An older PDF, sent to a model that took it; files that are too many; one whose content is gone."""
    async with house(tmp_path) as here:
        session = await here.begin()
        large = [await kept(here, png(tail=bytes([n]) * (REQUEST_FILE_BYTES_MAX // 3))) for n in range(4)]
        pdf, gone = await kept(here, PDF), await kept(here, b"gone")
        await here.engine.verbs.accept(session, (pdf, gone, *large))
        await here.store._do(
            lambda tx: tx.db.execute("UPDATE blobs SET complete = 0 WHERE digest = ?", (gone.blob,))
        )
        sent = await here.say(session, "Now?")
        await here.until_run(sent.run_id, "completed")
        files = here.model.requests[-1].files
        assert files[pdf.blob] == NOT_TAKEN
        assert files[gone.blob] == GONE
        assert [files[each.blob] == NO_ROOM for each in large] == [True, True, False, False]


async def test_what_the_model_cannot_take_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session = await here.begin()
        pdf = await kept(here, PDF)
        with pytest.raises(
            ModelCannotTake, match="puppet cannot take PDF files; it takes text files and images"
        ):
            await here.engine.send(session, (Text("Read."), pdf), "key")
        assert await here.events(session) == ["session_created"]
        first = await here.say(session, "Hello")
        await here.until_run(first.run_id, "completed")

        async def is_named() -> bool:
            return bool((await here.store.session(session)).title)

        # The title is written after the run; nothing else comes by itself.
        await here.until(is_named, "a title")
        events = await here.events(session)
        with pytest.raises(ModelCannotTake):
            await here.engine.replace(session, None, (pdf,))
        assert await here.events(session) == events


async def test_a_send_that_was_kept_is_not_refused_when_it_is_repeated(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session = await here.begin()
        pdf = await kept(here, PDF)
        # Kept while another model answered, one that takes such files.
        first = await here.engine.verbs.accept(session, (pdf,), "key")
        again = await here.engine.send(session, (pdf,), "key")
        assert (again.turn_id, again.seq) == (first.turn_id, first.seq)


async def test_a_file_that_is_used_outlives_every_sweep_until_its_conversations_are_gone(
    tmp_path: Path,
) -> None:
    clock = FakeClock(1_760_000_000_000)
    async with house(tmp_path, clock=clock, started=False) as here:
        session = await here.begin()
        used, unused = await kept(here, b"used"), await kept(here, b"unused")
        sent = await here.engine.verbs.accept(session, (Text("See."), used))
        assert sent.run_id is not None
        await here.engine.verbs.cancel(sent.run_id)
        branch = await here.engine.verbs.fork(session)
        clock.advance(UNUSED_BLOB_AFTER_MS + 1)
        assert (await here.store.sweep()).blobs == 1
        assert await here.store.get_blob(used.blob) == b"used"
        with pytest.raises(NoSuchBlob):
            await here.store.get_blob(unused.blob)
        for doomed in (session, branch):
            assert await here.store.get_blob(used.blob) == b"used"
            await here.engine.verbs.delete(doomed)
            await here.begin()
            clock.advance(PURGE_AFTER_MS + 1)
            await here.store.sweep()
        with pytest.raises(NoSuchBlob):
            await here.store.get_blob(used.blob)

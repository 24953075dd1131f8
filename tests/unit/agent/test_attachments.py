"""Files in a conversation: shown to the model with the message that has them, read once in a run."""

from base64 import b64encode
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.agent.request_builder import GONE, NO_ROOM
from holdfast.domain.clock import FakeClock
from holdfast.domain.context.context import FileContent, Profile, UserMessage, estimate_tokens
from holdfast.domain.errors import NoSuchBlob
from holdfast.domain.events.parts import File, Text
from holdfast.domain.files import ModelCannotTake, NotKnownToTake, Takes, media_type_of
from holdfast.domain.limits import PURGE_AFTER_MS, REQUEST_FILE_BYTES_MAX, UNUSED_BLOB_AFTER_MS
from holdfast.models.ports import ModelFailure
from holdfast.models.request_text import NOT_TAKEN
from tests.support.in_process_app import House, Lever, Puppet, calls, house, says
from tests.support.sample_files import PDF, pdf, png, words

WORDS = Takes(frozenset({"text"}))
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
    """Files that are too many; one whose content is gone."""
    async with house(tmp_path) as here:
        session = await here.begin()
        large = [await kept(here, png(tail=bytes([n]) * (REQUEST_FILE_BYTES_MAX // 3))) for n in range(4)]
        gone = await kept(here, b"gone")
        await here.engine.verbs.accept(session, (gone, *large))
        await here.store._do(
            lambda tx: tx.db.execute("UPDATE blobs SET complete = 0 WHERE digest = ?", (gone.blob,))
        )
        sent = await here.say(session, "Now?")
        await here.until_run(sent.run_id, "completed")
        files = here.model.requests[-1].files
        assert files[gone.blob] == GONE
        assert [files[each.blob] == NO_ROOM for each in large] == [True, True, False, False]


async def test_what_the_model_cannot_take_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session = await here.begin()
        here.model.abilities = WORDS
        picture = await kept(here, png())
        with pytest.raises(ModelCannotTake, match="puppet cannot take images; it takes text files"):
            await here.engine.send(session, (Text("Look."), picture), "key")
        assert await here.events(session) == ["session_created"]
        first = await here.say(session, "Hello")
        await here.until_run(first.run_id, "completed")

        async def is_named() -> bool:
            return bool((await here.store.session(session)).title)

        # The title is written after the run; nothing else comes by itself.
        await here.until(is_named, "a title")
        events = await here.events(session)
        with pytest.raises(ModelCannotTake):
            await here.engine.replace(session, None, (picture,))
        assert await here.events(session) == events


async def test_a_send_that_was_kept_is_not_refused_when_it_is_repeated(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.model.abilities = WORDS
        session = await here.begin()
        picture = await kept(here, png())
        # Kept while another model answered, one that takes such files.
        first = await here.engine.verbs.accept(session, (picture,), "key")
        again = await here.engine.send(session, (picture,), "key")
        assert (again.turn_id, again.seq) == (first.turn_id, first.seq)


async def test_an_image_that_is_sent_anyway_is_shown_to_a_model_that_may_take_it(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.model.abilities = replace(WORDS, guessed=True)
        session = await here.begin()
        picture = await kept(here, png())
        with pytest.raises(NotKnownToTake):
            await here.engine.send(session, (picture,))
        anyway = replace(picture, anyway=True)
        sent = await here.engine.send(session, (anyway,), "key")
        assert (await here.engine.send(session, (anyway,), "key")).turn_id == sent.turn_id
        await here.until_run(sent.run_id, "completed")
        assert here.model.requests[-1].files == {picture.blob: PICTURE}
        # Tried again, and in a branch, it still goes along.
        again = await here.engine.replace(session, None, None)
        await here.until_run(again.run_id, "completed")
        assert here.model.requests[-1].files == {picture.blob: PICTURE}
        branch = await here.engine.verbs.fork(session)
        await here.until_run((await here.say(branch, "And?")).run_id, "completed")
        assert here.model.requests[-1].files == {picture.blob: PICTURE}
        # Once the model's server says that it takes none, it is not shown any more.
        here.model.abilities = WORDS
        await here.until_run((await here.say(session, "And now?")).run_id, "completed")
        assert here.model.requests[-1].files == {picture.blob: NOT_TAKEN}


async def test_a_model_that_is_asked_instead_is_shown_what_is_sent_anyway(tmp_path: Path) -> None:
    other = Puppet()
    other.abilities = replace(WORDS, guessed=True)
    async with house(tmp_path, instead=[other]) as here:
        session = await here.begin()
        one, two = await kept(here, png()), await kept(here, png(4))
        here.model.steps = [[ModelFailure(detail="busy", retryable=False)]]
        sent = await here.engine.send(session, (one, replace(two, anyway=True)))
        await here.until_run(sent.run_id, "completed")
        shown = other.requests[-1].files
        assert (shown[one.blob], shown[two.blob].kind) == (NOT_TAKEN, "image")


def said(here: House) -> str:
    """Return what people said in the last request."""
    messages = here.model.requests[-1].messages
    parts = [part for each in messages if isinstance(each, UserMessage) for part in each.parts]
    return "\n".join(part.text if isinstance(part, Text) else f"<{part.name}>" for part in parts)


async def test_a_model_that_takes_no_pdf_files_is_sent_their_text(tmp_path: Path) -> None:
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever) as here:
        session = await here.begin()
        report, scan = await kept(here, pdf(words("Rain at noon.")), "a.pdf"), await kept(here, PDF, "b.pdf")
        here.model.steps = [calls("pull"), says("Rain.")]
        sent = await here.engine.send(session, (Text("Read."), report, scan))
        await here.until_run(sent.run_id, "completed")
        told = [request.messages[0] for request in here.model.requests]
        assert told[0] == told[1] == UserMessage((
            Text("Read."),
            Text("File a.pdf:\n```\n[page 1]\nRain at noon.\n```"),
            Text("[file b.pdf is a PDF that could not be read]"),
        ))  # fmt: skip
        assert not here.model.requests[-1].files
        # A model that takes PDF files is sent the file itself.
        here.model.abilities = Takes(frozenset({"text", "pdf"}))
        await here.until_run((await here.say(session, "And?")).run_id, "completed")
        assert here.model.requests[-1].files[report.blob].kind == "pdf"


async def test_the_text_of_a_pdf_file_is_counted_and_cut_to_the_window(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.model.profile = Profile("puppet", 10_000)
        session = await here.begin()
        book = await kept(here, pdf(*(words(f"Leaf {n} " + "lorem ipsum " * 300) for n in range(1, 40))))
        sent = await here.engine.send(session, (Text("Read."), book))
        await here.until_run(sent.run_id, "completed")
        (request,) = here.model.requests
        assert "Leaf 1 " in said(here)
        assert "characters are left out here: there is no room for them" in said(here)
        assert estimate_tokens(said(here)) <= request.tokens < 10_000


async def test_pdf_files_that_cannot_fit_any_more_are_not_read(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.model.profile = Profile("puppet", 10_000)
        session = await here.begin()
        old = await kept(here, pdf(words("Old.")), "old.pdf")
        book = await kept(here, pdf(*(words("lorem ipsum " * 300) for _ in range(40))), "book.pdf")
        sent = await here.engine.send(session, (old, book))
        await here.until_run(sent.run_id, "completed")
        assert "Old." not in said(here)
        assert here.pdfs.kept(old.blob) is None and here.pdfs.kept(book.blob) is not None


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

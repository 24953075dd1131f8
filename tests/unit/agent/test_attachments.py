"""Files in a conversation: shown to the model with the message that has them, read once in a run."""

from base64 import b64encode
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.agent.request_builder import GONE, NO_ROOM
from holdfast.domain.clock import FakeClock
from holdfast.domain.context.context import FileContent, ModelProfile, UserMessage, estimate_tokens
from holdfast.domain.errors import NoSuchBlob
from holdfast.domain.events.parts import File, Text
from holdfast.domain.files import FileNotSupported, FileSupportUnknown, SupportedFiles, detect_media_type
from holdfast.domain.limits import PURGE_AFTER_MS, REQUEST_FILE_BYTES_MAX, UNUSED_BLOB_AFTER_MS
from holdfast.models.ports import ModelFailure
from holdfast.models.request_text import UNSUPPORTED_FILE
from tests.support.in_process_app import (
    AppHarness,
    FakeTool,
    ScriptedModel,
    running_app,
    text_step,
    tool_call_step,
)
from tests.support.sample_files import PDF, pdf, png, words

WORDS = SupportedFiles(frozenset({"text"}))
PICTURE = FileContent("image", b64encode(png()).decode())


async def store_file(app: AppHarness, content: bytes, name: str = "a") -> File:
    return File(await app.store.put_blob(content), name, detect_media_type(content), len(content))


async def test_a_model_receives_the_content_of_a_file(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session = await app.create_session()
        picture, notes = await store_file(app, png()), await store_file(app, b"\xef\xbb\xbfhello\n")
        sent = await app.engine.send(session, (Text("Look."), picture, notes))
        await app.wait_for_run(sent.run_id, "completed")
        (request,) = app.model.requests
        assert request.files == {picture.blob: PICTURE, notes.blob: FileContent("text", "hello\n")}


async def test_a_file_is_read_once_in_a_run_and_stays_in_the_conversation(tmp_path: Path) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool) as app:
        session = await app.create_session()
        picture = await store_file(app, png())
        app.model.steps = [tool_call_step("pull"), text_step("A picture.")]
        sent = await app.engine.send(session, (picture,))
        await app.wait_for_run(sent.run_id, "completed")
        first, second = (request.files[picture.blob] for request in app.model.requests)
        assert first == PICTURE
        assert first is second
        await app.wait_for_run((await app.send(session, "And?")).run_id, "completed")
        assert app.model.requests[-1].files == {picture.blob: PICTURE}


async def test_the_request_names_the_missing_files(tmp_path: Path) -> None:
    """Files that are too many; one whose content is gone."""
    async with running_app(tmp_path) as app:
        session = await app.create_session()
        large = [
            await store_file(app, png(tail=bytes([n]) * (REQUEST_FILE_BYTES_MAX // 3))) for n in range(4)
        ]
        gone = await store_file(app, b"gone")
        await app.engine.commands.accept(session, (gone, *large))
        await app.store._transact(
            lambda tx: tx.db.execute("UPDATE blobs SET complete = 0 WHERE digest = ?", (gone.blob,))
        )
        sent = await app.send(session, "Now?")
        await app.wait_for_run(sent.run_id, "completed")
        files = app.model.requests[-1].files
        assert files[gone.blob] == GONE
        assert [files[each.blob] == NO_ROOM for each in large] == [True, True, False, False]


async def test_a_file_the_model_cannot_take_is_refused_and_not_stored(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session = await app.create_session()
        app.model.abilities = WORDS
        picture = await store_file(app, png())
        with pytest.raises(FileNotSupported, match="puppet cannot take images; it takes text files"):
            await app.engine.send(session, (Text("Look."), picture), "key")
        assert await app.event_kinds(session) == ["session_created"]
        first = await app.send(session, "Hello")
        await app.wait_for_run(first.run_id, "completed")

        async def is_named() -> bool:
            return bool((await app.store.session(session)).title)

        # The title is written after the run; nothing else comes by itself.
        await app.wait_until(is_named, "a title")
        events = await app.event_kinds(session)
        with pytest.raises(FileNotSupported):
            await app.engine.replace(session, None, (picture,))
        assert await app.event_kinds(session) == events


async def test_repeating_an_accepted_send_is_not_refused(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        app.model.abilities = WORDS
        session = await app.create_session()
        picture = await store_file(app, png())
        # Kept while another model answered, one that takes such files.
        first = await app.engine.commands.accept(session, (picture,), "key")
        again = await app.engine.send(session, (picture,), "key")
        assert (again.turn_id, again.seq) == (first.turn_id, first.seq)


async def test_an_image_that_is_sent_anyway_is_shown_to_a_model_that_may_take_it(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        app.model.abilities = replace(WORDS, guessed=True)
        session = await app.create_session()
        picture = await store_file(app, png())
        with pytest.raises(FileSupportUnknown):
            await app.engine.send(session, (picture,))
        anyway = replace(picture, anyway=True)
        sent = await app.engine.send(session, (anyway,), "key")
        assert (await app.engine.send(session, (anyway,), "key")).turn_id == sent.turn_id
        await app.wait_for_run(sent.run_id, "completed")
        assert app.model.requests[-1].files == {picture.blob: PICTURE}
        # Tried again, and in a branch, it still goes along.
        again = await app.engine.replace(session, None, None)
        await app.wait_for_run(again.run_id, "completed")
        assert app.model.requests[-1].files == {picture.blob: PICTURE}
        branch = await app.engine.commands.fork(session)
        await app.wait_for_run((await app.send(branch, "And?")).run_id, "completed")
        assert app.model.requests[-1].files == {picture.blob: PICTURE}
        # Once the model's server says that it takes none, it is not shown any more.
        app.model.abilities = WORDS
        await app.wait_for_run((await app.send(session, "And now?")).run_id, "completed")
        assert app.model.requests[-1].files == {picture.blob: UNSUPPORTED_FILE}


async def test_a_fallback_model_receives_files_sent_anyway(tmp_path: Path) -> None:
    other = ScriptedModel()
    other.abilities = replace(WORDS, guessed=True)
    async with running_app(tmp_path, fallbacks=[other]) as app:
        session = await app.create_session()
        one, two = await store_file(app, png()), await store_file(app, png(4))
        app.model.steps = [[ModelFailure(detail="busy", retryable=False)]]
        sent = await app.engine.send(session, (one, replace(two, anyway=True)))
        await app.wait_for_run(sent.run_id, "completed")
        shown = other.requests[-1].files
        assert (shown[one.blob], shown[two.blob].kind) == (UNSUPPORTED_FILE, "image")


def last_user_parts(app: AppHarness) -> str:
    """Return what people said in the last request."""
    messages = app.model.requests[-1].messages
    parts = [part for each in messages if isinstance(each, UserMessage) for part in each.parts]
    return "\n".join(part.text if isinstance(part, Text) else f"<{part.name}>" for part in parts)


async def test_a_model_that_takes_no_pdf_files_is_sent_their_text(tmp_path: Path) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool) as app:
        session = await app.create_session()
        report, scan = (
            await store_file(app, pdf(words("Rain at noon.")), "a.pdf"),
            await store_file(app, PDF, "b.pdf"),
        )
        app.model.steps = [tool_call_step("pull"), text_step("Rain.")]
        sent = await app.engine.send(session, (Text("Read."), report, scan))
        await app.wait_for_run(sent.run_id, "completed")
        messages = [request.messages[0] for request in app.model.requests]
        assert messages[0] == messages[1] == UserMessage((
            Text("Read."),
            Text("File a.pdf:\n```\n[page 1]\nRain at noon.\n```"),
            Text("[file b.pdf is a PDF that could not be read]"),
        ))  # fmt: skip
        assert not app.model.requests[-1].files
        # A model that takes PDF files is sent the file itself.
        app.model.abilities = SupportedFiles(frozenset({"text", "pdf"}))
        await app.wait_for_run((await app.send(session, "And?")).run_id, "completed")
        assert app.model.requests[-1].files[report.blob].kind == "pdf"


async def test_the_text_of_a_pdf_file_is_counted_and_cut_to_the_window(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        app.model.profile = ModelProfile("puppet", 10_000)
        session = await app.create_session()
        book = await store_file(app, pdf(*(words(f"Leaf {n} " + "lorem ipsum " * 300) for n in range(1, 40))))
        sent = await app.engine.send(session, (Text("Read."), book))
        await app.wait_for_run(sent.run_id, "completed")
        (request,) = app.model.requests
        assert "Leaf 1 " in last_user_parts(app)
        assert "characters are left out here: there is no room for them" in last_user_parts(app)
        assert estimate_tokens(last_user_parts(app)) <= request.tokens < 10_000


async def test_pdf_files_that_cannot_fit_any_more_are_not_read(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        app.model.profile = ModelProfile("puppet", 10_000)
        session = await app.create_session()
        old = await store_file(app, pdf(words("Old.")), "old.pdf")
        book = await store_file(app, pdf(*(words("lorem ipsum " * 300) for _ in range(40))), "book.pdf")
        sent = await app.engine.send(session, (old, book))
        await app.wait_for_run(sent.run_id, "completed")
        assert "Old." not in last_user_parts(app)
        assert app.pdfs.cached(old.blob) is None and app.pdfs.cached(book.blob) is not None


async def test_a_file_that_is_used_outlives_every_sweep_until_its_conversations_are_gone(
    tmp_path: Path,
) -> None:
    clock = FakeClock(1_760_000_000_000)
    async with running_app(tmp_path, clock=clock, started=False) as app:
        session = await app.create_session()
        used, unused = await store_file(app, b"used"), await store_file(app, b"unused")
        sent = await app.engine.commands.accept(session, (Text("See."), used))
        assert sent.run_id is not None
        await app.engine.commands.cancel(sent.run_id)
        branch = await app.engine.commands.fork(session)
        clock.advance(UNUSED_BLOB_AFTER_MS + 1)
        assert (await app.store.sweep()).blobs == 1
        assert await app.store.get_blob(used.blob) == b"used"
        with pytest.raises(NoSuchBlob):
            await app.store.get_blob(unused.blob)
        for doomed in (session, branch):
            assert await app.store.get_blob(used.blob) == b"used"
            await app.engine.commands.delete(doomed)
            await app.create_session()
            clock.advance(PURGE_AFTER_MS + 1)
            await app.store.sweep()
        with pytest.raises(NoSuchBlob):
            await app.store.get_blob(used.blob)

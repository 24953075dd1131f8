"""Files over HTTP: taken in by what they are, used by messages, shown to the model, given back harmlessly."""

import asyncio
import hashlib
import random
import socket
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.limits import (
    ATTACHMENTS_MAX,
    FILE_BYTES_MAX,
    TEXT_FILE_BYTES_MAX,
    UPLOAD_OVERRUN_BYTES_MAX,
    UPLOAD_WAIT_S_MAX,
    UPLOADS_BYTES_MAX,
)
from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import (
    ApiClient,
    ScriptedModelServer,
    api_client,
    scripted_model_server,
    wait_until,
)
from tests.support.auth_tokens import bearer_headers
from tests.support.sample_files import PDF, gif, jpeg, pdf, png, webp, words

NO_FILE = "0" * 64
MALFORMED = 1_000
GROWTH_KB_MAX = 64_000


@pytest.fixture(scope="module")
def speaker() -> Iterator[ScriptedModelServer]:
    """A model that sees."""
    with scripted_model_server() as speaker:
        speaker.lists_images = True
        yield speaker


async def upload(api: ApiClient, content: Any, name: str = "", kind: str = "application/octet-stream") -> Any:
    return await api.post(f"/api/files?name={name}", data=content, headers={"content-type": kind})


async def send(api: ApiClient, session: str, text: str, *files: dict[str, Any], key: str = "") -> Any:
    body: dict[str, Any] = {"text": text, "attachments": list(files)} | ({"key": key} if key else {})
    return await api.post(f"/api/sessions/{session}/turns", body)


# In and out.


@pytest.mark.parametrize(
    ("content", "claim", "name", "kept_name", "kind"),
    [
        (png(), "image/png", "cat.png", "cat.png", "image/png"),
        (jpeg(), "image/jpg", "..%2F..%2Fcat.jpg", "cat.jpg", "image/jpeg"),
        (gif(), "", "", "image.gif", "image/gif"),
        (webp(), "application/octet-stream", "a%0Ab.webp", "ab.webp", "image/webp"),
        (PDF, "application/pdf", "exe%E2%80%AEfdp.pdf", "exefdp.pdf", "application/pdf"),
        ("Grüße\n".encode(), "text/csv; charset=utf-8", "gr%C3%BC%C3%9Fe.csv", "grüße.csv", "text/plain"),
        (b"<html><script>alert(1)</script>", "text/html", "page.html", "page.html", "text/plain"),
    ],
)
async def test_a_file_is_stored_unchanged_and_served_with_sandbox_headers(
    server: RunningServer, content: bytes, claim: str, name: str, kept_name: str, kind: str
) -> None:
    async with api_client(server.address) as api:
        kept = await upload(api, content, name, claim)
        assert api.status == 201, kept
        digest = hashlib.sha256(content).hexdigest()
        assert kept == {"id": digest, "name": kept_name, "media_type": kind, "size_bytes": len(content)}
        for method in ("GET", "HEAD"):
            given = await api.request(method, f"/api/files/{digest}?name={name}")
            assert api.status == 200
            assert given == (content if method == "GET" else b"")
            charset = "; charset=utf-8" if kind == "text/plain" else ""
            assert api.headers["content-type"] == kind + charset
            assert api.headers["content-length"] == str(len(content))
            assert api.headers["x-content-type-options"] == "nosniff"
            assert api.headers["content-security-policy"] == "sandbox; default-src 'none'"
            place = "inline" if kind.startswith("image/") else "attachment"
            assert api.headers["content-disposition"].startswith(f"{place}; filename*=UTF-8''")


async def test_equal_content_has_one_file_id_whatever_its_name(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        kept = [await upload(api, b"same", name) for name in ("a.txt", "b.txt")]
        assert kept[0]["id"] == kept[1]["id"]
        assert [each["name"] for each in kept] == ["a.txt", "b.txt"]


@pytest.mark.parametrize("file_id", [NO_FILE, "x", "..%5C..%5Cpasswd", "0" * 63 + "%00", "A" * 64])
async def test_a_missing_file_is_not_found(server: RunningServer, file_id: str) -> None:
    async with api_client(server.address) as api:
        assert (await api.get(f"/api/files/{file_id}"))["code"] == "no_such_file"
        assert api.status == 404


async def test_files_need_authentication(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        kept = await upload(api, b"mine alone")
    async with api_client(server.address, token="") as anonymous:
        assert (await upload(anonymous, b"theirs"))["status"] == 401
        assert (await anonymous.get(f"/api/files/{kept['id']}"))["status"] == 401


# What is refused.


async def oversized_upload(size: int, start: bytes = b"") -> AsyncIterator[bytes]:
    """A body without a length."""
    yield start
    for _ in range(size // 65_536 + 1):
        yield b"a" * 65_536


@pytest.mark.parametrize(
    ("start", "limit"), [(png(), FILE_BYTES_MAX), (PDF, FILE_BYTES_MAX), (b"", TEXT_FILE_BYTES_MAX)]
)
async def test_an_oversized_file_is_refused_however_it_is_sent(
    server: RunningServer, start: bytes, limit: int
) -> None:
    async with api_client(server.address) as api:
        for body in (BytesIO(start + b"a" * (limit + 1 - len(start))), oversized_upload(limit, start)):
            refused = await upload(api, body)
            assert (api.status, refused["code"]) == (413, "too_large"), refused
            assert f"{limit:,} bytes" in refused["detail"]
        assert (await upload(api, BytesIO(start + b"a" * (limit - len(start)))))["size_bytes"] == limit


async def test_uploads_wait_for_the_memory_budget(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        contents = [
            png() + b"%d" % n * FILE_BYTES_MAX for n in range(2 * UPLOADS_BYTES_MAX // FILE_BYTES_MAX)
        ]
        contents = [content[:FILE_BYTES_MAX] for content in contents]
        kept = await asyncio.gather(*(upload(api, BytesIO(content)) for content in contents))
        assert [each["id"] for each in kept] == [hashlib.sha256(each).hexdigest() for each in contents]


def connect(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def head_of(server: RunningServer, *lines: str) -> bytes:
    token = bearer_headers(server.token).get("Authorization", "")
    head = [f"POST /api/files HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: {token}", *lines]
    return "\r\n".join([*head, "", ""]).encode()


def answer_on(line: socket.socket) -> bytes:
    """All that a server says before it ends the connection, or sends nothing for a while."""
    said = b""
    try:
        while piece := line.recv(65_536):
            said += piece
    except OSError:
        pass
    return said


@pytest.mark.parametrize("size", [5, 3_000_000])
async def test_slow_uploads_block_nobody(server: RunningServer, size: int) -> None:
    """Some drip, some have sent nearly all of a large file and fall silent."""
    with ExitStack() as stack:
        for n in range(3):
            line = stack.enter_context(connect(server))
            line.sendall(head_of(server, f"Content-Length: {FILE_BYTES_MAX}"))
            line.sendall(b"a" if n % 2 else png() + b"a" * (FILE_BYTES_MAX - 1_000))
        async with api_client(server.address) as api, asyncio.timeout(30):
            began = time.monotonic()
            kept = await upload(api, BytesIO(png() + b"b" * size))
            took_s = time.monotonic() - began
        assert api.status == 201, kept
        assert took_s < UPLOAD_WAIT_S_MAX - 1


def rss_kb(server: RunningServer, name: str) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1])


def test_a_gigabyte_upload_is_aborted_with_little_memory(holdfast: CliHarness) -> None:
    """Announced, it is not read at all; unannounced, it is read to a bound and not kept."""
    server = holdfast.serve("--port", "0")
    with connect(server) as line:
        line.sendall(head_of(server, "Content-Length: 1000000000", "Expect: 100-continue"))
        assert b"413" in answer_on(line).partition(b"\r\n")[0]
    before, sent = rss_kb(server, "VmRSS"), 0
    with connect(server) as line:
        line.sendall(head_of(server, "Transfer-Encoding: chunked"))
        piece = b"a" * 1_000_000
        try:
            line.sendall(b"%x\r\n%s\r\n" % (len(png()), png()))
            for _ in range(1_000):
                line.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                sent += len(piece)
        except OSError:
            pass
        said = answer_on(line)
    growth = rss_kb(server, "VmHWM") - before
    print(f"cut off after {sent:,} bytes; the server grew by {growth:,} kB")
    assert sent < FILE_BYTES_MAX + 2 * UPLOAD_OVERRUN_BYTES_MAX
    assert b"413" in said.partition(b"\r\n")[0] or not said
    assert growth < GROWTH_KB_MAX


async def test_a_body_with_a_wrong_content_length_is_not_stored(server: RunningServer) -> None:
    short, long = b"shorter than it says", b"longer than it says"
    with connect(server) as line:
        line.sendall(head_of(server, "Content-Length: 1000") + short)
    with connect(server) as line:
        line.sendall(head_of(server, "Content-Length: 10", "Connection: close") + long)
        assert b"201" in answer_on(line).partition(b"\r\n")[0]
    with connect(server) as line:
        line.sendall(head_of(server, "Content-Length: 5", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n")
        line.shutdown(socket.SHUT_WR)
        answer_on(line)
    async with api_client(server.address) as api:
        for content in (short, long, b"hello"):
            await api.get(f"/api/files/{hashlib.sha256(content).hexdigest()}")
            assert api.status == 404, content
        await api.get(f"/api/files/{hashlib.sha256(long[:10]).hexdigest()}")
        assert api.status == 200


def malformed(rng: random.Random) -> tuple[bytes, str]:
    """Something that must be refused, and what it claims to be."""
    noise = rng.randbytes(rng.randrange(1, 3_000))
    width = rng.randrange(20_001, 2**24)
    image = rng.choice((png, webp))(width, rng.randrange(1, 2**24))
    whole = rng.choice((png(333), jpeg(333), gif(333), webp(333)))
    return rng.choice(
        (
            (b"\0" + noise, ""),
            (b"PK\x03\x04" + noise, "application/zip"),
            (b"\x7fELF" + noise, "text/plain"),
            (b"words \xff\xfe " + noise, "text/plain"),
            ("Grüße".encode("utf-16") + noise, "text/plain"),
            (image + noise, "image/png" if image.startswith(b"\x89") else "image/webp"),
            (whole[: rng.randrange(8, 12)], ""),
            (b"\x89PNG\r\n\x1a\n" + noise, "image/png"),
            (b"\xff\xd8\xff\xda" + noise, "image/jpeg"),
            (b"GIF89a\0\0\0\0" + noise, "image/gif"),
            (b"RIFF....WEBPVP8?" + noise, "image/webp"),
            (whole, "text/plain"),
            (whole, "multipart/form-data; boundary=x"),
            (b"%PDF-" + noise, "image/png"),
            (b"plain words", "application/pdf"),
            (b"a=b&c=d", "application/x-www-form-urlencoded"),
            (b"", "text/plain"),
        )
    )


async def test_a_thousand_malformed_files_are_refused_and_none_is_stored(server: RunningServer) -> None:
    rng = random.Random(4)
    sent = [malformed(rng) for _ in range(MALFORMED)]
    statuses: list[int] = []
    async with api_client(server.address) as api:
        for start in range(0, MALFORMED, 20):
            some = sent[start : start + 20]
            replies = await asyncio.gather(*(upload(api, content, "x", claim) for content, claim in some))
            statuses += [each["status"] for each in replies]
            assert {each["code"] for each in replies} == {"unsupported_file"}
        for digest in {hashlib.sha256(content).hexdigest() for content, _ in sent}:
            await api.get(f"/api/files/{digest}")
            assert api.status == 404
        print(f"{len(statuses)} malformed files: {statuses.count(415)} refused, 0 kept")
        assert statuses == [415] * MALFORMED
        assert (await upload(api, b"still at work"))["size_bytes"] == 13


# Used by messages.


async def test_the_model_is_sent_images_as_data_and_text_as_text(
    server: RunningServer, speaker: ScriptedModelServer
) -> None:
    async with api_client(server.address) as api:
        takes = (await api.get("/api/models"))["models"][0]["takes"]
        assert sorted(takes) == ["image", "text"]
        picture, notes = await upload(api, png(7, 7)), await upload(api, b"milk\neggs\n")
        session = await api.create_session()
        files = ({"id": picture["id"], "name": "cat.png"}, {"id": notes["id"], "name": "../list.txt"})
        receipt = await send(api, session, "What is this?", *files)
        assert api.status == 202, receipt
        await api.wait_for_run(receipt["run_id"])
        (asked,) = [body for body in speaker.requests if "data:image/png" in str(body) and body.get("tools")]
        url = f"data:image/png;base64,{b64encode(png(7, 7)).decode()}"
        assert asked["messages"][-1]["content"] == [
            {"type": "text", "text": "What is this?"},
            {
                "type": "image_url",
                "image_url": {"url": url},
            },
            {"type": "text", "text": "File list.txt:\n```\nmilk\neggs\n```"},
        ]
        (said, *_) = await api.entries(session)
        assert said["parts"] == [
            {"type": "text", "text": "What is this?"},
            {"type": "file", "blob": picture["id"], "name": "cat.png", "media_type": "image/png",
             "size_bytes": len(png(7, 7))},
            {"type": "file", "blob": notes["id"], "name": "list.txt", "media_type": "text/plain",
             "size_bytes": 10},
        ]  # fmt: skip


async def test_a_message_may_be_files_alone_and_text_stays_a_string(
    server: RunningServer, speaker: ScriptedModelServer
) -> None:
    async with api_client(server.address) as api:
        notes = await upload(api, b"alone\n")
        session = await api.create_session()
        receipt = await send(api, session, "", {"id": notes["id"]})
        await api.wait_for_run(receipt["run_id"])
        assert [part["type"] for part in (await api.entries(session))[0]["parts"]] == ["file"]
        asked = [body["messages"][-1]["content"] for body in speaker.requests if body.get("tools")]
        assert "File text.txt:\n```\nalone\n```" in asked


@pytest.fixture
def home(tmp_path: Path) -> Iterator[tuple[CliHarness, ScriptedModelServer]]:
    """The command in a home of its own, and its model, which says nothing of images."""
    with (
        scripted_model_server(ScriptedModelServer(lists_images=None)) as speaker,
        cli_in(tmp_path, **environ_for(speaker)) as command,
    ):
        yield command, speaker


async def first_user_parts(speaker: ScriptedModelServer) -> Any:
    """Return the first message of a person as the next request sends it to the model."""
    asked: list[Any] = []

    async def is_asked() -> bool:
        asked[:] = [body["messages"] for body in speaker.requests if body.get("tools")]
        return bool(asked)

    await wait_until(is_asked)
    speaker.requests.clear()
    return next(each["content"] for each in asked[0] if each["role"] == "user")


@pytest.mark.parametrize(("sees", "detail"), [
    (False, "openai:small cannot take images; it takes text files."),
    (None, "openai:small is not known to take images; it takes text files."),
])  # fmt: skip
async def test_an_image_is_refused_when_the_model_may_not_support_images(
    home: tuple[CliHarness, ScriptedModelServer], sees: bool | None, detail: str
) -> None:
    command, speaker = home
    speaker.lists_images = sees
    async with api_client(command.serve("--port", "0").address) as api:
        (model,) = (await api.get("/api/models"))["models"]
        assert (model["takes"], model["takes_guessed"]) == (["text"], sees is None)
        picture = await upload(api, png())
        session = await api.create_session()
        before = await api.get(f"/api/sessions/{session}"), len(speaker.requests)
        refused = await send(api, session, "Look.", {"id": picture["id"]}, key="k")
        assert (api.status, refused["code"], refused["detail"]) == (422, "model_cannot_take", detail)
        assert (await api.get(f"/api/sessions/{session}"), len(speaker.requests)) == before
        assert (await api.get(f"/api/sessions/{session}/messages"))["messages"] == []
        if sees is False:
            await send(api, session, "Look.", {"id": picture["id"], "anyway": True}, key="k")
            assert api.status == 422


async def test_an_image_sent_anyway_reaches_the_model_even_after_a_kill(
    home: tuple[CliHarness, ScriptedModelServer],
) -> None:
    command, speaker = home
    running = command.serve("--port", "0")
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(png()).decode()}"}}
    async with api_client(running.address) as api:
        picture = await upload(api, png())
        session = await api.create_session()
        attached = {"id": picture["id"], "name": "cat.png", "anyway": True}
        receipt = await send(api, session, "hold on", attached, key="k")
        assert api.status == 202, receipt
        assert await send(api, session, "hold on", attached, key="k") == receipt
        assert await first_user_parts(speaker) == [{"type": "text", "text": "hold on"}, image]
        running.process.kill()
        running.process.wait()
    async with api_client(command.serve("--port", "0").address) as api:
        assert await first_user_parts(speaker) == [{"type": "text", "text": "hold on"}, image]
        (said, *_) = await api.entries(session)
        assert said["parts"][1]["anyway"] is True


async def test_a_models_refusal_of_an_image_fails_the_run_with_its_message(
    home: tuple[CliHarness, ScriptedModelServer],
) -> None:
    command, speaker = home
    speaker.refuses_images = True
    async with api_client(command.serve("--port", "0").address) as api:
        picture = await upload(api, png())
        session = await api.create_session()
        receipt = await send(api, session, "Look.", {"id": picture["id"], "anyway": True})
        run = await api.wait_for_field(f"/api/runs/{receipt['run_id']}", "status", "failed")
        assert "no images, please" in str(run)
        edited = await api.post(f"/api/sessions/{session}/edit", {"text": "Never mind."})
        await api.wait_for_run(edited["run_id"])


async def test_a_model_without_pdf_support_is_sent_the_text_even_after_a_kill(
    home: tuple[CliHarness, ScriptedModelServer],
) -> None:
    command, speaker = home
    running = command.serve("--port", "0")
    sent_text = "hold on\n\nFile report.pdf:\n```\n[page 1]\nRain at noon.\n```"
    async with api_client(running.address) as api:
        report = await upload(api, pdf(words("Rain at noon.")), "report.pdf")
        session = await api.create_session()
        receipt = await send(api, session, "hold on", {"id": report["id"], "name": "report.pdf"})
        assert api.status == 202, receipt
        assert await first_user_parts(speaker) == sent_text
        running.process.kill()
        running.process.wait()
    command.serve("--port", "0")
    assert await first_user_parts(speaker) == sent_text


async def test_a_bad_attachment_is_refused_and_nothing_is_stored(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        notes = await upload(api, b"notes")
        session = await api.create_session()
        bad: list[tuple[dict[str, Any], int, str]] = [
            ({"text": "", "attachments": []}, 400, "bad_request"),
            ({}, 400, "bad_request"),
            ({"text": "x", "attachments": [{"id": NO_FILE}]}, 404, "no_such_file"),
            ({"text": "x", "attachments": [{"id": notes["id"]}, {"id": NO_FILE}]}, 404, "no_such_file"),
            ({"text": "x", "attachments": [{"id": "../x"}]}, 404, "no_such_file"),
            ({"text": "x", "attachments": [{"name": "x"}]}, 400, "bad_request"),
            ({"text": "x", "attachments": [{"id": notes["id"], "path": "x"}]}, 400, "bad_request"),
            ({"text": "x", "attachments": [{"id": notes["id"]}] * (ATTACHMENTS_MAX + 1)}, 400, "bad_request"),
        ]
        for body, status, code in bad:
            for verb in ("turns", "edit"):
                refused = await api.post(f"/api/sessions/{session}/{verb}", body)
                assert (api.status, refused["code"]) == (status, code), body
        assert (await api.get(f"/api/sessions/{session}/messages"))["messages"] == []


async def test_a_repeated_send_is_one_turn_and_other_files_are_another_message(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        one, two = await upload(api, b"one"), await upload(api, b"two")
        session = await api.create_session()
        first = await send(api, session, "See.", {"id": one["id"]}, key="k")
        assert await send(api, session, "See.", {"id": one["id"]}, key="k") == first
        refused = await send(api, session, "See.", {"id": two["id"]}, key="k")
        assert (api.status, refused["code"]) == (409, "key_reused")


async def test_a_turn_can_be_edited_to_have_files_and_a_branch_has_them_too(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        notes = await upload(api, b"edited in")
        session = await api.create_session()
        await api.wait_for_run((await api.send(session, "Hello"))["run_id"])
        body = {"text": "See.", "attachments": [{"id": notes["id"]}]}
        receipt = await api.post(f"/api/sessions/{session}/edit", body)
        await api.wait_for_run(receipt["run_id"])
        branch = (await api.post(f"/api/sessions/{session}/fork", {}))["id"]
        assert [part.get("blob") for part in (await api.entries(branch))[0]["parts"]] == [None, notes["id"]]

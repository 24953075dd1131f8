"""The webhook channel: signatures as others make them, and what a receiver's failures mean."""

import asyncio
import itertools
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

from holdfast.channels.ports import ChannelFailure
from holdfast.channels.webhook import ABILITIES, BadChannelCall, ChannelWebhookTimeouts, WebhookChannel
from holdfast.domain import webhook_signing as signing
from holdfast.domain.chats import Button, Chat, FileRef, OutboundMessage
from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import TooLarge
from tests.support.webhook_receiver import WebhookReceiver, headers_for, webhook_receiver

KEY = bytes(range(32))
CHAT = Chat("webhook", "dm", "desk")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


class FakeBlobs:
    async def get_blob(self, digest: str) -> bytes:
        return PNG


def webhook_channel(url: str, timeouts: ChannelWebhookTimeouts | None = None) -> WebhookChannel:
    numbers = itertools.count()
    return WebhookChannel(url, KEY, FakeBlobs(), SystemClock(), lambda: f"call-{next(numbers)}", timeouts)


@asynccontextmanager
async def receiver_and_channel(
    timeouts: ChannelWebhookTimeouts | None = None,
) -> AsyncIterator[tuple[WebhookReceiver, WebhookChannel]]:
    async with webhook_receiver(WebhookReceiver(key=KEY)) as receiver:
        channel = webhook_channel(receiver.url, timeouts)
        try:
            yield receiver, channel
        finally:
            await channel.close()


async def failure_of(channel: WebhookChannel) -> ChannelFailure:
    with pytest.raises(ChannelFailure) as raised:
        await channel.send(CHAT, OutboundMessage("hello"), "d_1")
    return raised.value


# Signatures.


def test_a_signature_is_the_one_that_standard_webhooks_give_as_an_example() -> None:
    key = signing.decode_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = signing.signature_headers(
        key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330_000, b'{"test": 2432232314}'
    )
    assert made == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_one_good_signature_among_several_is_enough() -> None:
    good = headers_for(KEY, b"{}", "msg_1", 1_000)
    several = {**good, "webhook-signature": f"v2,xx v1,AAAA {good['webhook-signature']}"}
    assert signing.verify(KEY, several, b"{}", 1_000_000) == "msg_1"


@pytest.mark.parametrize("off_s", [-301, 301])
def test_what_was_signed_at_another_time_is_refused(off_s: int) -> None:
    headers = headers_for(KEY, b"{}", "msg_1", 10_000)
    signing.verify(KEY, headers, b"{}", (10_000 + off_s // 301 * 299) * 1000)
    with pytest.raises(signing.BadSignature):
        signing.verify(KEY, headers, b"{}", (10_000 + off_s) * 1000)


@pytest.mark.parametrize("written", ["", "whsec_", "whsec_AAAA", "whsec_!!!", "no key at all"])
def test_what_is_no_key_is_none(written: str) -> None:
    with pytest.raises(ValueError):
        signing.decode_key(written)


def test_a_key_is_written_down_as_it_is_read() -> None:
    assert signing.decode_key(signing.encode_key(KEY)) == KEY
    with pytest.raises(ValueError, match="whsec_"):
        signing.decode_key(signing.encode_key(KEY).removeprefix("whsec_"))


# What comes in.


def test_a_call_is_heard_with_all_that_it_says() -> None:
    channel = webhook_channel("https://example.org/answers")
    file = {"url": "https://EXAMPLE.org:443/f", "name": "f.txt", "media_type": "text/plain", "size_bytes": 3}
    said = {
        "chat": "room.1", "sender": "ada@example.org", "sender_name": "Ada", "text": "hi", "files": [file],
        "press": "", "thread": "t1", "kind": "group", "addressed": False,
    }  # fmt: skip
    body = json.dumps(said).encode()
    heard = channel.parse_call(headers_for(KEY, body, "msg_9"), body)
    assert heard.chat == Chat("webhook", "group", "room.1", "t1")
    assert (heard.update_id, heard.sender, heard.sender_name) == ("msg_9", "ada@example.org", "Ada")
    assert (heard.text, heard.addressed) == ("hi", False)
    assert heard.files == (FileRef("https://EXAMPLE.org:443/f", "f.txt", "text/plain", 3),)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/f", "https://example.org:444/f", "https://example.org.evil/f", "file:///etc/passwd",
        "https://user@example.org/f", "https://example.org@evil/f", "/f", "", "https://[", "https://example.org:x/",
    ],
)  # fmt: skip
def test_no_call_sends_the_server_elsewhere(url: str) -> None:
    body = json.dumps({"chat": "c", "sender": "s", "files": [{"url": url}]}).encode()
    with pytest.raises(BadChannelCall):
        webhook_channel("https://example.org/answers").parse_call(headers_for(KEY, body), body)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"\xff", b"null", b'{"chat":"a:b","sender":"s","text":"t"}',
     b'{"chat":"","sender":"s","text":"t"}',
     b'{"chat":"c","sender":"a/b","text":"t"}', b'{"chat":"c","sender":"s","text":"t","thread":"x:y"}',
     b'{"chat":"c","sender":"s","text":5}', b'{"chat":"c\\n","sender":"s","text":"t"}', b"[" * 100_000],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_though_it_is_signed(body: bytes) -> None:
    with pytest.raises(BadChannelCall):
        webhook_channel("https://example.org/").parse_call(headers_for(KEY, body), body)


# What goes out.


async def test_a_message_goes_out_whole_under_its_key() -> None:
    async with receiver_and_channel() as (receiver, channel):
        message = OutboundMessage("**May I?**", (Button("Yes", "allow r c"),), ("digest",))
        assert await channel.send(CHAT, message, "d_1") == "own-d_1"
        await channel.edit(CHAT, "own-d_1", OutboundMessage("Done"))
        await channel.show_typing(CHAT)
        (first_id, first), (second_id, second), (third_id, third) = receiver.calls
        assert first_id == "d_1" and len({first_id, second_id, third_id}) == 3
        assert (first["type"], first["chat"], first["kind"], first["text"]) == (
            "message", "desk", "dm", "**May I?**",
        )  # fmt: skip
        assert first["buttons"] == [{"text": "Yes", "press": "allow r c"}]
        assert (first["files"][0]["name"], first["files"][0]["media_type"]) == ("image.png", "image/png")
        assert (second["type"], second["id"], second["text"]) == ("edit", "own-d_1", "Done")
        assert third["type"] == "typing"
        assert first["at"] <= second["at"] <= third["at"]
        assert receiver.texts("desk") == ["Done"]


async def test_what_the_receiver_does_not_name_is_named_by_its_key() -> None:
    async with receiver_and_channel() as (receiver, channel):
        receiver.returns_ids = False
        assert await channel.send(CHAT, OutboundMessage("hello"), "d_1") == "d_1"
        await channel.edit(CHAT, "d_1", OutboundMessage("hello again"))
        assert receiver.texts("desk") == ["hello again"]


async def test_the_same_message_again_is_one_where_the_receiver_looks_at_its_id() -> None:
    async with receiver_and_channel() as (receiver, channel):
        receiver.add_faults("message", "dropped")
        failure = await failure_of(channel)
        assert (failure.arrived, failure.final) == (None, False)
        await channel.send(CHAT, OutboundMessage("hello"), "d_1")
        assert receiver.texts("desk") == ["hello"]


async def test_a_channel_webhook_timeout_leaves_delivery_unknown() -> None:
    async with receiver_and_channel(ChannelWebhookTimeouts(answer_s=0.2)) as (receiver, channel):
        receiver.add_faults("message", "silent")
        failure = await failure_of(channel)
        assert (failure.arrived, failure.final) == (None, False)


async def test_an_unreachable_channel_webhook_received_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        channel = webhook_channel(f"http://127.0.0.1:{taken.getsockname()[1]}/")
        failure = await failure_of(channel)
        assert (failure.arrived, failure.final) == (False, False)
        health = await channel.health()
        assert not health.ok and "cannot be reached" in health.detail
        await channel.close()


@pytest.mark.parametrize(
    ("status", "arrived", "final"),
    [
        (400, False, True), (401, False, True), (404, False, True), (410, False, True), (408, False, False),
        (425, False, False), (429, False, False), (500, None, False), (503, None, False), (302, False, False),
        (307, False, False),
    ],
)  # fmt: skip
async def test_a_refusal_is_final_where_trying_again_is_of_no_use(
    status: int, arrived: bool | None, final: bool
) -> None:
    async with receiver_and_channel() as (receiver, channel):
        receiver.add_faults("message", (status, {"location": receiver.url}))
        failure = await failure_of(channel)
        assert (failure.arrived, failure.final) == (arrived, final)
        assert len(receiver.calls) == 1, "no redirect is followed"
        assert str(status) in str(failure)


@pytest.mark.parametrize(
    ("asked", "low_ms", "high_ms"),
    [
        ("7", 7_000, 7_000),
        ("999999999", 3_600_000, 3_600_000),
        (600, 500_000, 600_000),
        (-60, 0, 0),
    ],
)
async def test_the_receiver_says_how_long_to_leave_it_alone(
    asked: str | int, low_ms: int, high_ms: int
) -> None:
    if isinstance(asked, int):  # As a date, so many seconds from now.
        asked = formatdate(time.time() + asked, usegmt=True)
    async with receiver_and_channel() as (receiver, channel):
        receiver.add_faults("message", (429, {"retry-after": asked}))
        failure = await failure_of(channel)
        assert failure.retry_after_ms is not None and low_ms <= failure.retry_after_ms <= high_ms


@pytest.mark.parametrize("asked", ["", "soon", "-1", "1.5.2"])
async def test_what_is_no_time_is_no_time(asked: str) -> None:
    async with receiver_and_channel() as (receiver, channel):
        receiver.add_faults("message", (429, {"retry-after": asked}))
        assert (await failure_of(channel)).retry_after_ms is None


async def test_a_file_is_fetched_with_a_signature_and_within_its_limit() -> None:
    async with receiver_and_channel() as (receiver, channel):
        origin = receiver.url.removesuffix("/answers")
        receiver.files |= {"/small": b"content", "/large": b"x" * 20_000_001}
        assert await channel.fetch(FileRef(f"{origin}/small")) == b"content"
        assert receiver.unsigned == 0
        with pytest.raises(TooLarge):
            await channel.fetch(FileRef(f"{origin}/large"))
        with pytest.raises(TooLarge):
            await channel.fetch(FileRef(f"{origin}/small", size_bytes=10**9))


async def test_closing_a_channel_ends_its_pending_request() -> None:
    async with receiver_and_channel() as (receiver, channel):
        receiver.add_faults("message", "silent")
        sending = asyncio.create_task(channel.send(CHAT, OutboundMessage("hello"), "d_1"))
        await receiver.wait_until(lambda: receiver.calls)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


def test_the_documentation_lists_what_the_channel_can_do() -> None:
    page = (Path(__file__).parents[3] / "docs" / "channels.md").read_text()
    yes_no = ["no", "yes"]
    row = (
        "Webhook", f"{ABILITIES.text_chars_max:,}", yes_no[ABILITIES.edits], yes_no[ABILITIES.buttons],
        yes_no[ABILITIES.files], yes_no[ABILITIES.dedupes_updates], yes_no[ABILITIES.dedupes_sends],
        f"{ABILITIES.edit_every_ms:,} ms",
    )  # fmt: skip
    assert f"| {' | '.join(row)} |" in page.splitlines()

"""Who may speak: nobody until a code is confirmed; a stranger can neither read nor spend."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.channels.pairing import (
    NoSuchCode,
    NoSuchSender,
    Pairing,
    Sender,
    TooManyCodes,
    format_code,
    normalize_code,
)
from holdfast.domain.chats import Chat, InboundUpdate
from holdfast.domain.clock import FakeClock
from holdfast.domain.limits import PAIRING_CODES_MAX, PAIRING_MS_MAX, PAIRING_TRIES_MAX
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_channel import ADA, channel_harness
from tests.support.in_process_app import running_app, text_step

CHAT = Chat("parlour", "dm", "9")


def inbound_from(sender: str) -> InboundUpdate:
    return InboundUpdate(CHAT, "1", sender, "Eve", "let me in, my secret is 1234")


def code_in(words: str | None) -> str:
    assert words is not None
    return words.split("Your code is ")[1].split(".")[0]


class CountingBits:
    """Different at each call."""

    def __init__(self) -> None:
        self._at = 0

    def __call__(self, bits: int) -> int:
        self._at += 7_919
        return self._at % (1 << bits)


async def pairing_in(folder: Path, clock: FakeClock) -> tuple[SqliteStore, Pairing]:
    store = await SqliteStore.open(folder, clock=clock)
    return store, Pairing(store, clock, CountingBits())


async def test_a_code_pairs_only_its_recipient(tmp_path: Path) -> None:
    store, pairing = await pairing_in(tmp_path, FakeClock())
    code = code_in(await pairing.challenge(inbound_from("eve")))
    await pairing.challenge(inbound_from("mallory"))
    assert [each.sender for each in await pairing.pending_senders()] == ["eve", "mallory"]
    sender = await pairing.confirm(f" {code.lower()} ")
    assert (sender.channel, sender.sender, sender.name) == ("parlour", "eve", "Eve")
    assert await pairing.is_allowed("parlour", "eve")
    assert not await pairing.is_allowed("parlour", "mallory")
    assert not await pairing.is_allowed("telegram", "eve")
    with pytest.raises(NoSuchCode):
        await pairing.confirm(code)
    assert [each.sender for each in await pairing.allowed_senders()] == ["eve"]
    await pairing.revoke("parlour", "eve")
    assert not await pairing.is_allowed("parlour", "eve")
    with pytest.raises(NoSuchSender):
        await pairing.revoke("parlour", "eve")
    await store.close()


async def test_a_pairing_code_is_sent_once_until_it_expires(tmp_path: Path) -> None:
    clock = FakeClock()
    store, pairing = await pairing_in(tmp_path, clock)
    unheard = code_in(await pairing.challenge(inbound_from("eve")))
    code = code_in(await pairing.challenge(inbound_from("eve")))
    with pytest.raises(NoSuchCode):
        await pairing.confirm(unheard)
    await pairing.mark_code_sent(inbound_from("eve"))
    assert await pairing.challenge(inbound_from("eve")) is None
    clock.advance(PAIRING_MS_MAX)
    with pytest.raises(NoSuchCode):
        await pairing.confirm(code)
    assert await pairing.challenge(inbound_from("eve")) is not None
    await store.close()


async def test_no_pairing_code_or_message_text_is_stored(tmp_path: Path) -> None:
    store, pairing = await pairing_in(tmp_path, FakeClock())
    code = code_in(await pairing.challenge(inbound_from("eve")))
    kept = b"".join((await store.items("pairing")).values())
    assert normalize_code(code).encode() not in kept and code.encode() not in kept and b"secret" not in kept
    await store.close()


async def test_wrong_code_attempts_are_shared_between_processes_and_expire(tmp_path: Path) -> None:
    clock = FakeClock()
    store, pairing = await pairing_in(tmp_path, clock)
    code = code_in(await pairing.challenge(inbound_from("eve")))
    for _ in range(PAIRING_TRIES_MAX):
        with pytest.raises(NoSuchCode):
            await pairing.confirm("AAAA-AAAA")
    with pytest.raises(TooManyCodes):
        await Pairing(store, clock, CountingBits()).confirm(code)
    clock.advance(PAIRING_MS_MAX)
    code = code_in(await pairing.challenge(inbound_from("eve")))
    assert (await pairing.confirm(code)).sender == "eve"
    await store.close()


async def test_concurrent_wrong_codes_respect_the_attempt_limit(tmp_path: Path) -> None:
    store, pairing = await pairing_in(tmp_path, FakeClock())
    await pairing.challenge(inbound_from("eve"))
    tries = (pairing.confirm("AAAA-AAAA") for _ in range(3 * PAIRING_TRIES_MAX))
    found = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, NoSuchCode) for each in found) <= PAIRING_TRIES_MAX
    assert all(isinstance(each, NoSuchCode | TooManyCodes) for each in found)
    await store.close()


async def test_a_code_used_while_being_sent_stays_used(tmp_path: Path) -> None:
    store, pairing = await pairing_in(tmp_path, FakeClock())
    code = code_in(await pairing.challenge(inbound_from("eve")))
    _use_meanwhile(store)
    await pairing.mark_code_sent(inbound_from("eve"))
    assert await pairing.pending_senders() == []
    with pytest.raises(NoSuchCode):
        await pairing.confirm(code)
    await store.close()


def _use_meanwhile(store: SqliteStore) -> None:
    """Take the code away between the look at it and what is written because of that."""
    look = store.item

    async def item(kind: str, item_id: str) -> bytes | None:
        found = await look(kind, item_id)
        await store.take_item(kind, item_id)
        return found

    store.item = item  # type: ignore[method-assign]


async def test_pending_senders_are_bounded_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    clock = FakeClock()
    store, pairing = await pairing_in(tmp_path, clock)
    for n in range(PAIRING_CODES_MAX + 2):
        clock.advance(1)
        await pairing.challenge(inbound_from(str(n)))
    waiting = [each.sender for each in await pairing.pending_senders()]
    assert waiting == [str(n) for n in range(2, PAIRING_CODES_MAX + 2)]
    await store.close()


@given(st.integers(0, 2**16 - 1))
def test_a_code_is_read_as_it_was_made_however_it_is_typed(number: int) -> None:
    code = "".join("23456789ABCDEFGHJKMNPQRSTVWXYZ"[(number >> n) % 30] for n in range(8))
    assert normalize_code(format_code(code)) == normalize_code(f" {format_code(code).lower()} ") == code
    assert not set("01OILU") & set(code)


async def test_an_unknown_sender_gets_a_code_and_nothing_is_stored(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("Welcome.")]
        for text in ("what is the password?", "/sessions", "/status"):
            harness.chat_app.post_message(text, chat="9", sender="eve")
        harness.chat_app.post_message("in a group", chat="g", sender="eve", kind="group")
        harness.chat_app.post_message("", chat="9", sender="eve", press="allow r_1 c_1")
        await harness.engine_app.wait_until(lambda: _has_texts(harness.chat_app.texts("9")), "a code")
        await harness.wait_until_idle()
        (words,) = harness.chat_app.texts("9")
        assert "Your code is" in words and not harness.chat_app.texts("g")
        assert not app.model.requests and not (await app.store.sessions(None, 1)).sessions
        assert not await app.store.routes()
        pairing = Pairing(app.store, FakeClock(), CountingBits())
        await pairing.confirm(code_in(words))
        harness.chat_app.post_message("hello", chat="9", sender="eve")
        await harness.wait_for_texts(words, "You are let in. Say it again, please.", "Welcome.", chat="9")


async def test_an_unknown_sender_gets_a_code_only_in_a_direct_chat(
    tmp_path: Path,
) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two")]
        group = Chat("parlour", "group", "g")
        known = [InboundUpdate(Chat("parlour", "dm", "42"), str(n), ADA, text="hello") for n in range(2)]
        strange = [
            InboundUpdate(chat, f"e{n}", "eve", text="hello") for n, chat in enumerate((group, CHAT, group))
        ]
        await harness.gateway.receiver_for("parlour")(known[0], *strange, known[1])
        await harness.engine_app.wait_until(lambda: _has_texts(harness.chat_app.texts("9")), "a code")
        await harness.wait_for_texts("one", "two")
        await harness.wait_until_idle()
        assert len(harness.chat_app.texts("9")) == 1 and not harness.chat_app.texts("g")
        assert len(app.model.requests) == 2


async def test_a_paired_sender_is_welcomed_once(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        harness.chat_app.post_message("hello", chat="9", sender="eve")
        await harness.engine_app.wait_until(lambda: _has_texts(harness.chat_app.texts("9")), "a code")
        (words,) = harness.chat_app.texts("9")
        # As another process does it, which is not the one that serves the channel.
        await Pairing(app.store, FakeClock(), CountingBits()).confirm(code_in(words))
        await harness.wait_for_texts(words, "You are let in. Say it again, please.", chat="9")
        await harness.wait_until_idle()
        assert harness.chat_app.texts("9")[1:] == ["You are let in. Say it again, please."]
        assert not app.model.requests, "what was said before is not taken up"


async def test_a_revoked_sender_is_not_answered(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two")]
        harness.chat_app.post_message("first")
        await harness.wait_for_texts("one")
        await harness.wait_until_idle()
        await Pairing(app.store, FakeClock(), CountingBits()).revoke("parlour", "7")
        harness.chat_app.post_message("second")
        await harness.engine_app.wait_until(lambda: _has_texts(harness.chat_app.texts()[1:]), "a code")
        assert len(app.model.requests) == 1


async def test_stored_messages_of_a_revoked_sender_are_dropped(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        await app.store.receive(inbound_from("eve"))  # As if it had come while Eve might speak.
        async with channel_harness(app) as harness:
            await harness.wait_until_idle()
            assert not app.model.requests and not (await app.store.sessions(None, 1)).sessions


async def test_a_chat_without_allowed_senders_receives_nothing(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two"), text_step("a secret")]
        harness.chat_app.post_message("1")
        await harness.wait_for_texts("one")
        harness.chat_app.post_message("2", chat="g", kind="group")
        await harness.wait_for_texts("two", chat="g")
        await harness.wait_until_idle()
        session_id = await harness.session_id()
        # Something that was planned before is not said after either.
        harness.chat_app.faults = ["too_many"]
        await app.send(session_id, "from the page")
        await Pairing(app.store, FakeClock(), lambda bits: 1).revoke("parlour", ADA)
        await harness.wait_until_idle()
        assert harness.chat_app.texts() == ["one"] and harness.chat_app.texts("g") == ["two"]
        app.model.steps = [text_step("another secret")]
        await app.send(session_id, "again from the page")

        async def is_left() -> bool:
            return await harness.session_id() == ""

        await app.wait_until(is_left)
        await harness.wait_until_idle()
        assert harness.chat_app.texts() == ["one"]


async def test_a_chat_receives_messages_while_one_speaker_is_allowed(tmp_path: Path) -> None:
    store, pairing = await pairing_in(tmp_path, FakeClock())
    group = Chat("telegram", "group", "5")
    assert await pairing.may_send_to(group)
    for sender in ("a", "b"):
        await pairing.allow(Sender("telegram", sender, "", 0))
        await pairing.record_speaker(InboundUpdate(group, "1", sender))
    await pairing.revoke("telegram", "a")
    assert await pairing.may_send_to(group)
    await pairing.revoke("telegram", "b")
    assert not await pairing.may_send_to(group)
    await store.close()


async def test_an_undelivered_code_is_resent_on_the_next_message(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        harness.chat_app.faults = ["lost"]
        harness.chat_app.post_message("hello", chat="9", sender="eve")
        await harness.engine_app.wait_until(lambda: _is_empty(harness.chat_app.faults), "a try")
        await asyncio.sleep(0)
        await harness.engine_app.wait_until(lambda: _gets_reply(harness), "a code")
        assert len(harness.chat_app.texts("9")) == 1


async def _gets_reply(at: object) -> bool:
    at.chat_app.post_message("hello?", chat="9", sender="eve")  # type: ignore[attr-defined]
    return bool(at.chat_app.texts("9"))  # type: ignore[attr-defined]


async def _has_texts(texts: list[str]) -> bool:
    return bool(texts)


async def _is_empty(faults: list[object]) -> bool:
    return not faults

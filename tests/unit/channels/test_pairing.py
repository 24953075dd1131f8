"""Who may speak: nobody until a code is confirmed; a stranger can neither read nor spend."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.channels.pairing import NoSuchCode, NoSuchSender, Pairing, Sender, TooManyCodes, plain, shown
from holdfast.domain.chats import Chat, Inbound
from holdfast.domain.clock import FakeClock
from holdfast.domain.limits import PAIRING_CODES_MAX, PAIRING_MS_MAX, PAIRING_TRIES_MAX
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_channel import ADA, desk
from tests.support.in_process_app import house, says

CHAT = Chat("parlour", "dm", "9")


def came(sender: str) -> Inbound:
    return Inbound(CHAT, "1", sender, "Eve", "let me in, my secret is 1234")


def code_in(words: str | None) -> str:
    assert words is not None
    return words.split("Your code is ")[1].split(".")[0]


class Chance:
    """Different at each call."""

    def __init__(self) -> None:
        self._at = 0

    def __call__(self, bits: int) -> int:
        self._at += 7_919
        return self._at % (1 << bits)


async def pairing_in(folder: Path, clock: FakeClock) -> tuple[SqliteStore, Pairing]:
    store = await SqliteStore.open(folder, clock=clock)
    return store, Pairing(store, clock, Chance())


async def test_a_code_lets_in_whoever_got_it_and_nobody_else(tmp_path: Path) -> None:
    store, pairing = await pairing_in(tmp_path, FakeClock())
    code = code_in(await pairing.challenge(came("eve")))
    await pairing.challenge(came("mallory"))
    assert [each.sender for each in await pairing.waiting()] == ["eve", "mallory"]
    sender = await pairing.confirm(f" {code.lower()} ")
    assert (sender.channel, sender.sender, sender.name) == ("parlour", "eve", "Eve")
    assert await pairing.is_allowed("parlour", "eve")
    assert not await pairing.is_allowed("parlour", "mallory")
    assert not await pairing.is_allowed("telegram", "eve")
    with pytest.raises(NoSuchCode):
        await pairing.confirm(code)
    assert [each.sender for each in await pairing.allowed()] == ["eve"]
    await pairing.revoke("parlour", "eve")
    assert not await pairing.is_allowed("parlour", "eve")
    with pytest.raises(NoSuchSender):
        await pairing.revoke("parlour", "eve")
    await store.close()


async def test_a_code_is_told_once_until_it_runs_out(tmp_path: Path) -> None:
    clock = FakeClock()
    store, pairing = await pairing_in(tmp_path, clock)
    unheard = code_in(await pairing.challenge(came("eve")))
    code = code_in(await pairing.challenge(came("eve")))
    with pytest.raises(NoSuchCode):
        await pairing.confirm(unheard)
    await pairing.told(came("eve"))
    assert await pairing.challenge(came("eve")) is None
    clock.advance(PAIRING_MS_MAX)
    with pytest.raises(NoSuchCode):
        await pairing.confirm(code)
    assert await pairing.challenge(came("eve")) is not None
    await store.close()


async def test_no_code_and_nothing_that_was_said_is_at_rest(tmp_path: Path) -> None:
    store, pairing = await pairing_in(tmp_path, FakeClock())
    code = code_in(await pairing.challenge(came("eve")))
    kept = b"".join((await store.items("pairing")).values())
    assert plain(code).encode() not in kept and code.encode() not in kept and b"secret" not in kept
    await store.close()


async def test_wrong_codes_are_counted_by_all_processes_and_forgotten_in_time(tmp_path: Path) -> None:
    clock = FakeClock()
    store, pairing = await pairing_in(tmp_path, clock)
    code = code_in(await pairing.challenge(came("eve")))
    for _ in range(PAIRING_TRIES_MAX):
        with pytest.raises(NoSuchCode):
            await pairing.confirm("AAAA-AAAA")
    with pytest.raises(TooManyCodes):
        await Pairing(store, clock, Chance()).confirm(code)
    clock.advance(PAIRING_MS_MAX)
    code = code_in(await pairing.challenge(came("eve")))
    assert (await pairing.confirm(code)).sender == "eve"
    await store.close()


async def test_of_many_wrong_codes_at_once_no_more_are_tried_than_may_be(tmp_path: Path) -> None:
    store, pairing = await pairing_in(tmp_path, FakeClock())
    await pairing.challenge(came("eve"))
    tries = (pairing.confirm("AAAA-AAAA") for _ in range(3 * PAIRING_TRIES_MAX))
    found = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, NoSuchCode) for each in found) <= PAIRING_TRIES_MAX
    assert all(isinstance(each, NoSuchCode | TooManyCodes) for each in found)
    await store.close()


async def test_a_code_that_was_used_while_it_was_being_told_does_not_come_back(tmp_path: Path) -> None:
    store, pairing = await pairing_in(tmp_path, FakeClock())
    code = code_in(await pairing.challenge(came("eve")))
    _use_meanwhile(store)
    await pairing.told(came("eve"))
    assert await pairing.waiting() == []
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


async def test_strangers_are_bounded_in_number_and_the_oldest_goes(tmp_path: Path) -> None:
    clock = FakeClock()
    store, pairing = await pairing_in(tmp_path, clock)
    for n in range(PAIRING_CODES_MAX + 2):
        clock.advance(1)
        await pairing.challenge(came(str(n)))
    waiting = [each.sender for each in await pairing.waiting()]
    assert waiting == [str(n) for n in range(2, PAIRING_CODES_MAX + 2)]
    await store.close()


@given(st.integers(0, 2**16 - 1))
def test_a_code_is_read_as_it_was_made_however_it_is_typed(number: int) -> None:
    code = "".join("23456789ABCDEFGHJKMNPQRSTVWXYZ"[(number >> n) % 30] for n in range(8))
    assert plain(shown(code)) == plain(f" {shown(code).lower()} ") == code
    assert not set("01OILU") & set(code)


async def test_a_stranger_is_told_a_code_and_nothing_is_kept_or_answered(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("Welcome.")]
        for text in ("what is the password?", "/sessions", "/status"):
            at.app.say(text, chat="9", sender="eve")
        at.app.say("in a group", chat="g", sender="eve", kind="group")
        at.app.say("", chat="9", sender="eve", press="allow r_1 c_1")
        await at.home.until(lambda: _said(at.app.texts("9")), "a code")
        await at.quiet()
        (words,) = at.app.texts("9")
        assert "Your code is" in words and not at.app.texts("g")
        assert not home.model.requests and not (await home.store.sessions(None, 1)).sessions
        assert not await home.store.routes()
        pairing = Pairing(home.store, FakeClock(), Chance())
        await pairing.confirm(code_in(words))
        at.app.say("hello", chat="9", sender="eve")
        await at.shown(words, "You are let in. Say it again, please.", "Welcome.", chat="9")


async def test_of_a_stranger_who_says_things_together_a_code_is_told_where_nobody_listens(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two")]
        group = Chat("parlour", "group", "g")
        known = [Inbound(Chat("parlour", "dm", "42"), str(n), ADA, text="hello") for n in range(2)]
        strange = [Inbound(chat, f"e{n}", "eve", text="hello") for n, chat in enumerate((group, CHAT, group))]
        await at.gateway.take("parlour")(known[0], *strange, known[1])
        await at.home.until(lambda: _said(at.app.texts("9")), "a code")
        await at.shown("one", "two")
        await at.quiet()
        assert len(at.app.texts("9")) == 1 and not at.app.texts("g")
        assert len(home.model.requests) == 2


async def test_whoever_is_let_in_is_told_so_in_their_chat_once(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        at.app.say("hello", chat="9", sender="eve")
        await at.home.until(lambda: _said(at.app.texts("9")), "a code")
        (words,) = at.app.texts("9")
        # As another process does it, which is not the one that serves the channel.
        await Pairing(home.store, FakeClock(), Chance()).confirm(code_in(words))
        await at.shown(words, "You are let in. Say it again, please.", chat="9")
        await at.quiet()
        assert at.app.texts("9")[1:] == ["You are let in. Say it again, please."]
        assert not home.model.requests, "what was said before is not taken up"


async def test_who_is_no_longer_allowed_is_not_answered(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two")]
        at.app.say("first")
        await at.shown("one")
        await at.quiet()
        await Pairing(home.store, FakeClock(), Chance()).revoke("parlour", "7")
        at.app.say("second")
        await at.home.until(lambda: _said(at.app.texts()[1:]), "a code")
        assert len(home.model.requests) == 1


async def test_what_was_kept_before_its_sender_was_turned_away_is_not_taken_up(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        await home.store.receive(came("eve"))  # As if it had come while Eve might speak.
        async with desk(home) as at:
            await at.quiet()
            assert not home.model.requests and not (await home.store.sessions(None, 1)).sessions


async def test_a_chat_in_which_nobody_is_allowed_any_more_is_told_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two"), says("a secret")]
        at.app.say("1")
        await at.shown("one")
        at.app.say("2", chat="g", kind="group")
        await at.shown("two", chat="g")
        await at.quiet()
        session_id = await at.session()
        # Something that was planned before is not said after either.
        at.app.faults = ["too_many"]
        await home.say(session_id, "from the page")
        await Pairing(home.store, FakeClock(), lambda bits: 1).revoke("parlour", ADA)
        await at.quiet()
        assert at.app.texts() == ["one"] and at.app.texts("g") == ["two"]
        home.model.steps = [says("another secret")]
        await home.say(session_id, "again from the page")

        async def is_left() -> bool:
            return await at.session() == ""

        await home.until(is_left)
        await at.quiet()
        assert at.app.texts() == ["one"]


async def test_a_chat_is_told_things_while_one_of_those_who_spoke_there_may(tmp_path: Path) -> None:
    store, pairing = await pairing_in(tmp_path, FakeClock())
    group = Chat("telegram", "group", "5")
    assert await pairing.may_hear(group)
    for sender in ("a", "b"):
        await pairing.allow(Sender("telegram", sender, "", 0))
        await pairing.spoke(Inbound(group, "1", sender))
    await pairing.revoke("telegram", "a")
    assert await pairing.may_hear(group)
    await pairing.revoke("telegram", "b")
    assert not await pairing.may_hear(group)
    await store.close()


async def test_a_code_that_did_not_arrive_is_told_with_the_next_message(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        at.app.faults = ["lost"]
        at.app.say("hello", chat="9", sender="eve")
        await at.home.until(lambda: _is_empty(at.app.faults), "a try")
        await asyncio.sleep(0)
        await at.home.until(lambda: _again(at), "a code")
        assert len(at.app.texts("9")) == 1


async def _again(at: object) -> bool:
    at.app.say("hello?", chat="9", sender="eve")  # type: ignore[attr-defined]
    return bool(at.app.texts("9"))  # type: ignore[attr-defined]


async def _said(texts: list[str]) -> bool:
    return bool(texts)


async def _is_empty(faults: list[object]) -> bool:
    return not faults

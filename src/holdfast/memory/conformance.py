"""Test a memory provider against the `Provider` port. Ships for authors of providers.

Derive a class whose name begins with `Test` from `ProviderCases`, override `provider`, and let pytest run it
(with a plugin for async tests, such as pytest-asyncio with `asyncio_mode = "auto"`). Nothing here needs
pytest: each case is an async method without arguments that asserts.

    class TestMine(ProviderCases):
        async def provider(self) -> Provider:
            return Mine(...)
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

from holdfast.domain.errors import BadCursor, HoldfastError, NoSuchMemory, TooLarge
from holdfast.domain.ids import SessionId
from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.memory.ports import Health, Provider, ProviderCannot, ProviderFailure, Segment, SegmentMessage

SESSION = SessionId("s_0123456789abcdef")
FIRST = "My dentist is Dr. Okonkwo, in Harbour Street."
SECOND = "The greenhouse needs 21 panes of glass."
ODD_TEXTS = (
    "",
    " ",
    "\0",
    "\x1b[31m",
    "%s{}\"'\\;--",
    "*",
    "ß𝔘🧑‍🔬אב",
    "\u202e\ufeff",
    "a" * 100_000,
    "é" * 5_000,
)
"""Texts that people, models and files may contain."""
UNKNOWN_ID = "n_0000000000000000"
UNKNOWN_KEY = "o_0000000000000000"
_FAILURES = (ProviderFailure, ProviderCannot, TooLarge)
T = TypeVar("T")


def segment(key: str, text: str, scope: str = "", turn: int = 1) -> Segment:
    """Return a segment of one turn in which a person says `text`."""
    messages = (
        SegmentMessage("m_0000000000000001", "user", 1_700_000_000_000, text),
        SegmentMessage("m_0000000000000002", "assistant", 1_700_000_001_000, "Noted."),
    )
    return Segment(key, SESSION, "A conversation", scope, ((turn, turn),), messages)


class ProviderCases:
    """The conformance cases. Each opens an empty provider and closes it."""

    recallable = True
    """Set this to False if committed text cannot be recalled by its own words at once: if that takes time, or
    if the provider stores something else."""

    async def provider(self) -> Provider:
        """Return an empty provider; override this."""
        raise NotImplementedError("say how your provider is made")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Provider]:
        provider = await self.provider()
        try:
            yield provider
        finally:
            await provider.close()

    # Properties and health.

    async def test_it_has_a_name_and_declares_takes_key(self) -> None:
        async with self.opened() as it:
            assert isinstance(it.name, str) and it.name, "a provider has a name"
            assert isinstance(it.takes_key, bool), "whether a key twice is harmless is yes or no"

    async def test_it_is_healthy(self) -> None:
        async with self.opened() as it:
            health = await it.health()
            assert isinstance(health, Health), f"{health!r} is no Health"
            assert health.ok, f"it is not well: {health.detail}"

    async def test_health_does_not_raise_after_close(self) -> None:
        it = await self.provider()
        await it.close()
        assert isinstance(await it.health(), Health), "health never raises"

    async def test_closing_twice_is_harmless(self) -> None:
        it = await self.provider()
        await it.close()
        await it.close()

    # Committing.

    async def test_a_commit_returns_a_receipt(self) -> None:
        async with self.opened() as it:
            receipt = await it.commit(segment("o_1", FIRST))
            assert isinstance(receipt, str), f"{receipt!r} is no text"

    async def test_a_committed_segment_can_be_recalled(self) -> None:
        async with self.opened() as it:
            await it.commit(segment("o_1", FIRST))
            await it.commit(segment("o_2", SECOND, turn=2))
            if self.recallable:
                found = await recalled_texts(it, "Where is my dentist?")
                assert any("Okonkwo" in text for text in found), f"{found} says nothing of the dentist"

    async def test_the_same_key_twice_is_remembered_once(self) -> None:
        async with self.opened() as it:
            if not it.takes_key:
                return
            first = await it.commit(segment("o_1", FIRST))
            before = await recalled_texts(it, "dentist")
            again = await it.commit(segment("o_1", FIRST))
            assert isinstance(first, str) and isinstance(again, str), "each telling has a receipt"
            assert await recalled_texts(it, "dentist") == before, "the second telling changed what is known"

    async def test_the_same_key_at_the_same_time_is_remembered_once(self) -> None:
        async with self.opened() as it:
            if not it.takes_key:
                return
            await asyncio.gather(*(it.commit(segment("o_1", FIRST)) for _ in range(3)))
            found = await recalled_texts(it, "dentist")
            assert len(found) == len(set(found)), f"{found} holds the same thing twice"

    async def test_concurrent_commits_are_all_remembered(self) -> None:
        async with self.opened() as it:
            commits = (it.commit(segment(f"o_{n}", f"Shelf {n} holds jar{n}x.", turn=n)) for n in range(1, 7))
            receipts = await asyncio.gather(*commits)
            assert all(isinstance(each, str) for each in receipts), f"{receipts} are not all text"
            if self.recallable:
                for n in range(1, 7):
                    found = await recalled_texts(it, f"jar{n}x")
                    assert any(f"jar{n}x" in text for text in found), f"shelf {n} was lost: {found}"

    async def test_one_scope_does_not_recall_memories_of_another(self) -> None:
        async with self.opened() as it:
            await it.commit(segment("o_1", FIRST, scope="gardener"))
            found = await recalled_texts(it, "dentist Okonkwo")
            assert not any("Okonkwo" in text for text in found), f"{found} is of another scope"

    # Retracting.

    async def test_a_retracted_segment_is_not_recalled(self) -> None:
        async with self.opened() as it:
            receipt = await it.commit(segment("o_1", FIRST))
            await it.commit(segment("o_2", SECOND, turn=2))
            if await is_supported(it.retract("o_1", receipt)):
                found = await recalled_texts(it, "dentist Okonkwo greenhouse panes")
                assert not any("Okonkwo" in text for text in found), f"{found} was taken back"
                if self.recallable:
                    assert any("greenhouse" in text for text in found), "more was taken back than was asked"

    async def test_a_retraction_works_without_a_receipt(self) -> None:
        async with self.opened() as it:
            if it.takes_key:
                await it.commit(segment("o_1", FIRST))
                if await is_supported(it.retract("o_1", "")):
                    found = await recalled_texts(it, "dentist Okonkwo")
                    assert not any("Okonkwo" in text for text in found), f"{found} was taken back"

    async def test_retracting_an_unknown_segment_is_harmless(self) -> None:
        async with self.opened() as it:
            await it.commit(segment("o_1", FIRST))
            await is_supported(it.retract(UNKNOWN_KEY, ""))
            await is_supported(it.retract(UNKNOWN_KEY, "a receipt of nobody"))
            if await is_supported(it.retract("o_1", "")):
                await it.retract("o_1", "")

    # Single memories.

    async def test_one_thing_is_remembered_word_for_word_and_once(self) -> None:
        async with self.opened() as it:
            made = await result_or_none(it.remember(SECOND, "", Origin("user"), "c_1"))
            if made is None:
                return
            assert isinstance(made, Memory) and made.text == SECOND, f"{made!r} says something else"
            again = await it.remember(SECOND, "", Origin("user"), "c_1")
            if it.takes_key:
                assert again.id == made.id, "the same key again is the same memory"
            assert SECOND in await recalled_texts(it, "panes of glass"), "it was not recalled"

    async def test_a_memory_is_listed_changed_and_forgotten(self) -> None:
        async with self.opened() as it:
            made = await result_or_none(it.remember(FIRST, "", Origin("user"), "c_1"))
            page = await result_or_none(it.list_("", "", None, 10))
            if made is None or page is None:
                return
            assert made.id in [each.id for each in page.memories], "what is remembered is listed"
            if (changed := await result_or_none(it.edit(made.id, SECOND))) is not None:
                assert changed.text == SECOND, "it was changed to something else"
                assert SECOND in [each.text for each in (await it.list_("", "", None, 10)).memories]
            if await is_supported(it.forget(made.id)):
                rest = (await it.list_("", "", None, 10)).memories
                assert made.id not in [each.id for each in rest], "it was forgotten and is listed"
                assert await is_refused(it.forget(made.id)), "it was forgotten twice"

    async def test_pages_hold_everything_once(self) -> None:
        async with self.opened() as it:
            for n in range(5):
                if (
                    await result_or_none(it.remember(f"Shelf {n} is full.", "", Origin("user"), f"c_{n}"))
                    is None
                ):
                    return
            seen: list[str] = []
            cursor: str | None = None
            for _ in range(10):
                page = await result_or_none(it.list_("", "", cursor, 2))
                if page is None:
                    return
                assert isinstance(page, MemoryPage) and len(page.memories) <= 2, f"{page!r} is no page of two"
                seen += [each.text for each in page.memories]
                cursor = page.cursor
                if cursor is None:
                    break
            assert cursor is None, "the pages do not end"
            assert sorted(seen) == [f"Shelf {n} is full." for n in range(5)], f"pages held {seen}"

    async def test_an_unknown_memory_cannot_be_edited_or_forgotten(self) -> None:
        async with self.opened() as it:
            assert await is_refused(it.edit(UNKNOWN_ID, SECOND)), "an unknown memory was changed"
            assert await is_refused(it.forget(UNKNOWN_ID)), "an unknown memory was forgotten"

    async def test_an_invalid_cursor_is_refused_or_ignored(self) -> None:
        async with self.opened() as it:
            for cursor in ("", "rubbish", "9" * 400, "\0", "eyJhIjoxfQ"):
                try:
                    page = await it.list_("", "", cursor, 10)
                    assert isinstance(page, MemoryPage), f"{page!r} is no page"
                except (BadCursor, *_FAILURES):
                    pass

    # Odd input.

    async def test_odd_text_raises_only_declared_errors(self) -> None:
        async with self.opened() as it:
            for n, text in enumerate(ODD_TEXTS):
                await expect_declared_errors(it.commit(segment(f"o_odd{n}", text, turn=n + 1)))
                await expect_declared_errors(it.recall(text, "", 5))
                await expect_declared_errors(it.list_("", text, None, 5))
                await expect_declared_errors(
                    it.remember(text, "", Origin("model", SESSION, 1, 1), f"c_odd{n}")
                )
                await expect_declared_errors(it.edit(text, text))
                await expect_declared_errors(it.forget(text))
                await expect_declared_errors(it.retract(text, text))
            assert isinstance(await it.health(), Health), "it did not live through odd text"

    async def test_an_empty_segment_is_accepted(self) -> None:
        async with self.opened() as it:
            empty = Segment("o_empty", SESSION, "", "", ((1, 1),), ())
            assert isinstance(await it.commit(empty), str), "nothing said is nothing to fail over"

    async def test_recall_returns_at_most_the_limit(self) -> None:
        async with self.opened() as it:
            for n in range(4):
                await it.commit(segment(f"o_{n}", f"Jar {n} holds plum jam.", turn=n + 1))
            assert len(await it.recall("plum jam", "", 2)) <= 2, "more was recalled than was asked for"


# Helpers.


async def recalled_texts(it: Provider, query: str) -> list[str]:
    """Return the recalled texts; none if the provider cannot recall."""
    try:
        found = await it.recall(query, "", 20)
    except ProviderCannot:
        return []
    assert all(isinstance(each, Memory) for each in found), f"{found!r} are not all memories"
    return [each.text for each in found]


async def result_or_none(call: Awaitable[T]) -> T | None:
    """Return the result of a call; None if the provider does not support it."""
    try:
        return await call
    except ProviderCannot:
        return None


async def is_supported(call: Awaitable[None]) -> bool:
    """Return False if the provider raises ProviderCannot."""
    try:
        await call
    except ProviderCannot:
        return False
    return True


async def is_refused(call: Awaitable[object]) -> bool:
    """Return whether the provider raises NoSuchMemory or ProviderCannot."""
    try:
        await call
    except (NoSuchMemory, ProviderCannot):
        return True
    return False


async def expect_declared_errors(call: Awaitable[object]) -> None:
    """Await a call that may raise declared errors; any other error fails the case."""
    try:
        await call
    except (NoSuchMemory, BadCursor, *_FAILURES) as error:
        assert isinstance(error, HoldfastError)

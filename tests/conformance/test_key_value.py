"""The key-value store: small values outside of sessions, by kind and id."""

import asyncio

import pytest

from holdfast.domain.errors import TooLarge
from holdfast.domain.limits import KV_ITEM_BYTES_MAX
from holdfast.store.ports import Store
from tests.conformance.factories import StoreHome


async def test_an_item_is_there_until_it_is_taken(store: Store) -> None:
    await store.put_item("rule", "a", b"one")
    await store.put_item("rule", "b", b"two")
    await store.put_item("token", "a", b"three")
    assert dict(await store.items("rule")) == {"a": b"one", "b": b"two"}
    assert await store.item("rule", "a") == b"one"
    assert await store.take_item("rule", "a") == b"one"
    assert await store.take_item("rule", "a") is None
    assert await store.item("rule", "a") is None
    assert dict(await store.items("rule")) == {"b": b"two"}
    assert dict(await store.items("token")) == {"a": b"three"}


async def test_an_item_put_again_is_replaced(store: Store) -> None:
    await store.put_item("rule", "a", b"one")
    await store.put_item("rule", "a", b"two")
    assert dict(await store.items("rule")) == {"a": b"two"}


async def test_exactly_one_of_many_concurrent_takes_gets_the_item(store: Store, home: StoreHome) -> None:
    other = await home.open()
    await store.put_item("code", "x", b"once")
    taken = await asyncio.gather(*(each.take_item("code", "x") for each in (store, other) * 20))
    assert [body for body in taken if body is not None] == [b"once"]
    await other.close()


async def test_items_outlive_the_process_and_are_seen_by_others(store: Store, home: StoreHome) -> None:
    await store.put_item("rule", "a", b"one")
    other = await home.open()
    assert dict(await other.items("rule")) == {"a": b"one"}
    await other.close()


async def test_an_item_that_is_too_large_changes_nothing(store: Store) -> None:
    with pytest.raises(TooLarge):
        await store.put_item("rule", "a", bytes(KV_ITEM_BYTES_MAX + 1))
    assert not await store.items("rule")


async def test_compare_and_swap_needs_the_current_body(store: Store) -> None:
    await store.put_item("rule", "a", b"one")
    assert not await store.compare_and_swap_item("rule", "a", b"other", b"two")
    assert await store.item("rule", "a") == b"one"
    assert await store.compare_and_swap_item("rule", "a", b"one", b"two")
    assert await store.item("rule", "a") == b"two"
    await store.take_item("rule", "a")
    assert not await store.compare_and_swap_item("rule", "a", b"two", b"three")
    assert await store.item("rule", "a") is None


async def test_an_item_is_dropped_only_while_it_is_what_it_was(store: Store) -> None:
    await store.put_item("rule", "a", b"one")
    assert not await store.compare_and_swap_item("rule", "a", b"other", None)
    assert await store.item("rule", "a") == b"one"
    assert await store.compare_and_swap_item("rule", "a", b"one", None)
    assert await store.item("rule", "a") is None
    assert not await store.compare_and_swap_item("rule", "a", b"one", None)

"""What lets people in, on the shelf of a real store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.auth.credentials import CredentialStore
from holdfast.auth.passwords import hash_password, verify_password
from holdfast.domain.clock import FakeClock
from holdfast.domain.credentials import secret_digest
from holdfast.domain.errors import BadPassword, NoSuchToken, TooLarge
from holdfast.domain.ids import IdGenerator
from holdfast.domain.limits import CODES_MAX, PASSWORD_CHARS_MIN, TOKEN_NAME_CHARS_MAX
from holdfast.store.sqlite.store import SqliteStore


@asynccontextmanager
async def keyring(folder: Path, clock: FakeClock) -> AsyncIterator[tuple[CredentialStore, SqliteStore]]:
    store = await SqliteStore.open(folder)
    try:
        yield CredentialStore(store, clock, IdGenerator(clock), code_ms=1_000, sign_in_ms=5_000), store
    finally:
        await store.close()


async def everything(store: SqliteStore) -> bytes:
    kinds = ("token", "token_used", "sign_in", "code", "password")
    return b"".join([body for kind in kinds for body in (await store.items(kind)).values()])


async def test_no_secret_is_kept_anywhere(tmp_path: Path) -> None:
    async with keyring(tmp_path / "store", FakeClock()) as (keys, store):
        token, secret = await keys.add_token("a script", ("read",))
        code = await keys.create_code()
        sign_in, cookie, page_key = await keys.create_sign_in()
        await keys.set_password("correct horse battery")
        kept = await everything(store)
    files = b"".join(path.read_bytes() for path in (tmp_path / "store").iterdir() if path.is_file())
    for each in (secret, code, cookie, page_key, "correct horse battery"):
        assert each.encode() not in kept + files
    assert (token.digest, sign_in.digest) == (secret_digest(secret), secret_digest(cookie))
    assert sign_in.page_digest == secret_digest(page_key) != sign_in.digest


async def test_a_token_is_there_until_it_is_revoked_and_noting_its_use_does_not_bring_it_back(
    tmp_path: Path,
) -> None:
    async with keyring(tmp_path, FakeClock()) as (keys, _):
        token, secret = await keys.add_token("a script", ("read", "approve"))
        assert (await keys.load_snapshot()).tokens[secret_digest(secret)].rights == ("read", "approve")
        await keys.record_token_use(token.id, 123)
        assert await keys.tokens() == [(token, 123)]
        await keys.revoke_token(token.id)
        await keys.record_token_use(token.id, 456)
        assert not (await keys.load_snapshot()).tokens
        assert await keys.tokens() == []
        with pytest.raises(NoSuchToken):
            await keys.revoke_token(token.id)
        with pytest.raises(TooLarge):
            await keys.add_token("x" * (TOKEN_NAME_CHARS_MAX + 1), ("read",))


async def test_a_code_works_once_and_not_for_long(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path, clock) as (keys, _):
        first, second = await keys.create_code(), await keys.create_code()
        assert [await keys.redeem_code(first), await keys.redeem_code(first)] == [True, False]
        clock.advance(1_000)
        assert secret_digest(second) not in (await keys.load_snapshot()).codes
        assert not await keys.redeem_code(second)


async def test_a_browser_sign_in_ends_on_expiry_sign_out_or_password_change(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path, clock) as (keys, _):
        await keys.set_password("correct horse battery")
        one, *_ = await keys.create_sign_in()
        two, *_ = await keys.create_sign_in()
        await keys.sign_out(one.digest)
        assert set((await keys.load_snapshot()).sign_ins) == {two.digest}
        await keys.set_password("another horse battery")
        assert not (await keys.load_snapshot()).sign_ins
        three, *_ = await keys.create_sign_in()
        clock.advance(4_999)
        assert set((await keys.load_snapshot()).sign_ins) == {three.digest}
        clock.advance(1)
        assert not (await keys.load_snapshot()).sign_ins


async def test_the_first_password_signs_nobody_out(tmp_path: Path) -> None:
    async with keyring(tmp_path, FakeClock()) as (keys, _):
        sign_in, *_ = await keys.create_sign_in()
        await keys.set_password("correct horse battery")
        assert set((await keys.load_snapshot()).sign_ins) == {sign_in.digest}
        assert (await keys.remove_password(), await keys.remove_password()) == (True, False)
        assert not (await keys.load_snapshot()).sign_ins


async def test_the_oldest_sign_in_codes_are_evicted(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path, clock) as (keys, store):
        first = await keys.create_code()
        clock.advance(1)
        for _ in range(CODES_MAX):
            await keys.create_code()
        assert len(await store.items("code")) == CODES_MAX
        assert not await keys.redeem_code(first)


async def test_another_process_sees_the_same(tmp_path: Path) -> None:
    clock = FakeClock()
    async with keyring(tmp_path, clock) as (here, _), keyring(tmp_path, clock) as (there, _):
        token, secret = await here.add_token("a script", ("read",))
        assert secret_digest(secret) in (await there.load_snapshot()).tokens
        await there.revoke_token(token.id)
        assert not (await here.load_snapshot()).tokens


async def test_a_short_password_is_refused(tmp_path: Path) -> None:
    async with keyring(tmp_path, FakeClock()) as (keys, _):
        with pytest.raises(BadPassword):
            await keys.set_password("x" * (PASSWORD_CHARS_MIN - 1))
        assert (await keys.load_snapshot()).password is None


def test_a_password_is_hashed_with_argon2id_and_letters_count_however_they_are_composed() -> None:
    hashed = hash_password("caf\u00e9 caf\u00e9 caf\u00e9")
    assert hashed.startswith("$argon2id$")
    assert verify_password(hashed, "cafe\u0301 cafe\u0301 cafe\u0301")
    assert not verify_password(hashed, "cafe cafe cafe")
    assert not verify_password("no hash at all", "cafe cafe cafe")

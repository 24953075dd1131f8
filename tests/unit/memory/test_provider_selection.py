"""Who tells memory: which model may be asked, with whose key, and what is said when there is none."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import ProviderFailure
from holdfast.domain.ids import IdGenerator
from holdfast.domain.secrets import SecretMask
from holdfast.memory.extraction_models import ExtractionModels
from holdfast.memory.ports import Owner, OwnerGone
from holdfast.memory.provider_selection import MemoryProviders
from holdfast.memory.providers.installed import BadMemoryProvider, NoSuchMemoryProvider
from holdfast.models.connection_file import write_connections
from holdfast.models.providers import SavedConnection
from holdfast.settings.settings import ConfigError, Settings
from holdfast.store.sqlite.store import SqliteStore
from tests.support.api_client import ScriptedModelServer, scripted_model_server
from tests.support.fake_installed_package import install
from tests.support.memory_model_server import MemoryModelServer

HOME, AWAY = "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"


class ModelBoard:
    """Says which model answers now, and answers for it."""

    def __init__(self, name: str = "openai:small", address: str = HOME) -> None:
        self.name = name
        self.address = address
        self.asked: list[tuple[str, str]] = []

    def is_default_model(self, name: str, address: str) -> bool:
        return (self.name, self.address) == (name, address)

    async def complete(self, system: str, text: str) -> str:
        self.asked.append((system, text))
        return "from the board"


def models(
    board: ModelBoard, folder: Path, mask: SecretMask | None = None, **environ: str
) -> ExtractionModels:
    return ExtractionModels(lambda: board, folder, environ, mask or SecretMask())


async def providers(
    folder: Path, board: ModelBoard, note: Callable[[str], None] = lambda text: None, **settings: Any
) -> tuple[MemoryProviders, SqliteStore]:
    store, clock, mask = await SqliteStore.open(folder), SystemClock(), SecretMask()
    chosen = Settings(data=folder, **settings)
    made = MemoryProviders(chosen, store, models(board, folder), clock, IdGenerator(clock), mask, note)
    return made, store


def test_the_present_model_is_named_with_where_its_key_is_and_without_what_is_secret(tmp_path: Path) -> None:
    board = ModelBoard("openai:small", "http://127.0.0.1:1/v1")
    write_connections(
        tmp_path,
        {"openai": SavedConnection("http://me:pass-word@127.0.0.1:1/v1?code=abcdefgh", "sk-mine-alone")},
    )
    named = models(board, tmp_path).current()
    assert named is not None
    assert (named.model, named.address, named.key) == ("openai:small", HOME, "connection")
    write_connections(tmp_path, {})
    environ = {"OPENAI_BASE_URL": HOME, "OPENAI_API_KEY": "sk-of-the-shell"}
    named = models(board, tmp_path, None, **environ).current()
    assert named is not None and named.key == "env:OPENAI_API_KEY"
    named = models(board, tmp_path).current()
    assert named is not None and named.key == ""


async def test_an_agent_with_its_own_model_commits_with_it(tmp_path: Path) -> None:
    made, store = await providers(tmp_path, ModelBoard("openai:small", HOME))
    assert made.owner() == Owner("notes", model="openai:small", base_url=HOME)
    assert made.owner_for("", "openai:small", HOME) == made.owner(), (
        "the same configuration is the same owner"
    )
    other = made.owner_for("reader", "vllm:large", AWAY)
    assert other == Owner("notes", "reader", "vllm:large", AWAY)
    assert made.owner_for("reader", "demo", "") is None, "the demo finds nothing to remember"
    await store.close()


async def test_the_model_that_answers_is_asked_where_it_is_the_owners(tmp_path: Path) -> None:
    board = ModelBoard()
    ask = models(board, tmp_path).ask_function(Owner("notes", model="openai:small", base_url=HOME))
    assert await ask("be brief", "hello") == "from the board"
    assert board.asked == [("be brief", "hello")]


async def test_an_earlier_model_is_asked_with_the_key_that_was_given_for_its_server(tmp_path: Path) -> None:
    with scripted_model_server(MemoryModelServer()) as model:
        write_connections(tmp_path, {"openai": SavedConnection(model.url, "sk-for-this-server")})
        board, mask = ModelBoard("openai:other", AWAY), SecretMask()
        owner = Owner("notes", model="openai:early", base_url=model.url, key="connection")
        remembered = models(board, tmp_path, mask)
        await remembered.check(owner)
        await remembered.ask_function(owner)("be brief", "hello")
        assert [(body["model"], body["messages"][0]["content"]) for body in _requests_to(model)] == [
            ("early", "be brief")
        ]
        assert board.asked == [] and mask.mask("sk-for-this-server") == "[secret]"


def _requests_to(model: ScriptedModelServer) -> list[dict[str, Any]]:
    titles: list[dict[str, Any]] = getattr(model, "titles", [])
    return titles or model.requests


async def test_a_key_goes_to_no_other_server_than_the_one_it_was_given_for(tmp_path: Path) -> None:
    write_connections(tmp_path, {"openai": SavedConnection(HOME, "sk-for-home")})
    remembered = models(ModelBoard("openai:small", HOME), tmp_path, OPENAI_API_KEY="sk-of-the-shell")
    gone = Owner("notes", model="openai:early", base_url=AWAY, key="connection")
    with pytest.raises(OwnerGone, match=r"openai:early at 127\.0\.0\.1:2 is not connected any more"):
        await remembered.check(gone)
    with pytest.raises(OwnerGone):
        await remembered.ask_function(gone)("be brief", "hello")
    # One that never needed a key is asked without one.
    await remembered.check(Owner("notes", model="openai:early", base_url=AWAY))
    assert await remembered.key_for(AWAY) == ""
    assert await remembered.key_for(HOME) == "sk-for-home"


async def test_the_demo_model_queues_nothing_for_the_notes(tmp_path: Path) -> None:
    demo = ModelBoard("demo", "")
    made, store = await providers(tmp_path, demo)
    assert made.owner() is None
    assert made.current is not None
    # What people write down themselves is there all the same.
    assert [each.text for each in (await made.current.list_("", "", None, 10)).memories] == []
    assert (await made.current.health()).ok
    made, _ = MemoryProviders(
        Settings(data=tmp_path, memory="webhook", memory_webhook_url=AWAY), store, models(demo, tmp_path),
        SystemClock(), IdGenerator(SystemClock()), SecretMask(), lambda note: None,
    ), store  # fmt: skip
    assert made.owner() == Owner("webhook")
    await store.close()


async def test_each_owner_has_one_provider(tmp_path: Path) -> None:
    made, store = await providers(tmp_path, ModelBoard())
    owner = made.owner()
    assert owner == Owner("notes", model="openai:small", base_url=HOME)
    first, again = await asyncio.gather(made.build(owner), made.build(owner))
    assert first is again and first.name == "notes"
    other = await made.build(Owner("notes", model="openai:early", base_url=HOME))
    assert other is not first
    await made.close()
    await store.close()


async def test_an_unusable_memory_setting_stops_the_start_unless_off(
    tmp_path: Path,
) -> None:
    made, store = await providers(tmp_path, ModelBoard(), memory="webhook")
    with pytest.raises(ConfigError, match="memory_webhook_url"):
        made.check()
    with pytest.raises(OwnerGone):
        await made.build(Owner("webhook"))
    assert made.current is not None
    with pytest.raises(ProviderFailure, match="no webhook is set"):
        await made.current.recall("dog", "", 8)
    assert not (await made.current.health()).ok
    await store.close()
    made, store = await providers(tmp_path, ModelBoard(), memory="nobody-has-this")
    with pytest.raises(NoSuchMemoryProvider, match="notes, webhook, off"):
        made.check()
    await store.close()
    made, store = await providers(tmp_path, ModelBoard(), memory="off")
    made.check()
    assert made.owner() is None and made.current is None
    with pytest.raises(OwnerGone, match="memory is off"):
        await made.build(Owner("notes", model="openai:small", base_url=HOME))
    await store.close()


@pytest.mark.parametrize("given, missing", [("url", "model"), ("model", "url")])
async def test_incomplete_embedding_settings_are_refused(tmp_path: Path, given: str, missing: str) -> None:
    made, store = await providers(tmp_path, ModelBoard(), **{f"memory_embedding_{given}": HOME})
    with pytest.raises(ConfigError, match=f"memory_embedding_{missing} must be set too"):
        made.check()
    await store.close()


async def test_the_start_screen_names_the_memory_provider(tmp_path: Path) -> None:
    address = "https://me:pass-word@example.org/memory?code=abc"
    cases: list[tuple[ModelBoard, dict[str, Any], str]] = [
        (ModelBoard(), {}, "on"),
        (ModelBoard("demo", ""), {}, "on, but the demo remembers nothing"),
        (ModelBoard(), {"memory": "off"}, "off"),
        (ModelBoard(), {"memory": "webhook", "memory_webhook_url": address}, "webhook at example.org"),
        (ModelBoard(), {"memory": "shelf"}, "an installed provider, shelf"),
    ]
    for board, settings, description in cases:
        made, store = await providers(tmp_path, board, **settings)
        assert made.description == description
        await store.close()


async def test_a_webhook_key_exists_from_the_start_and_an_unreachable_provider_is_reported(
    tmp_path: Path,
) -> None:
    notices: list[str] = []
    made, store = await providers(
        tmp_path, ModelBoard(), notices.append, memory="webhook", memory_webhook_url="http://127.0.0.1:1/x"
    )
    await made.open()
    assert (tmp_path / "memory-webhook.key").read_text().startswith("whsec_")
    await made.report_health()
    (line,) = notices
    assert line.startswith("holdfast: Memory (webhook at 127.0.0.1:1) does not work now: ")
    await made.close()
    await store.close()


async def test_one_that_can_never_be_loaded_stops_the_start_and_one_that_may_come_back_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = "def make(given): raise ConnectionError('its database is away')"
    modules = {"hf_broken": "import hf_not_there", "hf_away": away}
    entries = {"broken": "hf_broken:make", "away": "hf_away:make"}
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", "hf_two", entries, modules)))
    made, store = await providers(tmp_path, ModelBoard(), memory="broken")
    with pytest.raises(BadMemoryProvider, match="No module named 'hf_not_there'"):
        await made.open()
    await store.close()
    notices: list[str] = []
    made, store = await providers(tmp_path, ModelBoard(), notices.append, memory="away")
    await made.open()
    await made.report_health()
    assert len(notices) == 1 and "its database is away" in notices[0]
    await store.close()


async def test_a_webhook_is_signed_with_a_secret_that_is_masked_from_then_on(tmp_path: Path) -> None:
    store, clock, mask = await SqliteStore.open(tmp_path), SystemClock(), SecretMask()
    settings = Settings(data=tmp_path, memory="webhook", memory_webhook_url=AWAY)
    board = models(ModelBoard(), tmp_path)
    made = MemoryProviders(settings, store, board, clock, IdGenerator(clock), mask, lambda note: None)
    provider = await made.build(Owner("webhook"))
    assert provider.name == "webhook"
    secret = (tmp_path / "memory-webhook.key").read_text().strip()
    assert mask.mask(secret) == "[secret]"
    await made.close()
    await store.close()

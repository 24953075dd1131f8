"""What a memory provider is, put to every one that there is: the notes, the webhook, and an installed one."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import BadCursor, HoldfastError, NoSuchMemory
from holdfast.domain.ids import IdGenerator
from holdfast.domain.limits import MEMORY_CHARS_MAX
from holdfast.domain.memories import Memory, Origin
from holdfast.memory.conformance import ProviderCases
from holdfast.memory.ports import AskModel, Health, Provider, ProviderFailure, Segment
from holdfast.memory.providers.notes import NotesProvider
from holdfast.memory.providers.webhook import WebhookProvider
from holdfast.store.sqlite.store import SqliteStore
from tests.support.example_receiver_process import SECRET, example_receiver
from tests.support.fake_installed_package import install
from tests.support.free_ports import own_port
from tests.support.source_files import ROOT

EXAMPLE = ROOT / "docs/examples/memory_provider.py"


class TestTheWebhook(ProviderCases):
    """Against the receiver of the docs, as a process of its own."""

    url = ""

    @pytest.fixture(autouse=True)
    def _receiver(self, tmp_path: Path) -> Iterator[None]:
        port = own_port()
        self.url = f"http://127.0.0.1:{port}/"
        with example_receiver(tmp_path, port):
            yield

    async def provider(self) -> Provider:
        clock = SystemClock()
        return WebhookProvider(self.url, SECRET, clock, IdGenerator(clock).commit_key)


class NotesWithOwnStore(NotesProvider):
    """The notes with a store that nobody else has."""

    def __init__(self, store: SqliteStore, ask: AskModel, clock: SystemClock) -> None:
        super().__init__(store, ask, IdGenerator(clock), clock)
        self._own = store

    async def close(self) -> None:
        await super().close()
        await self._own.close()


class TestTheNotes(ProviderCases):
    """With a model that finds worth noting whatever the person said."""

    folder = Path()

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    async def provider(self) -> Provider:
        clock = SystemClock()
        return NotesWithOwnStore(await SqliteStore.open(self.folder, clock=clock), echo_extractor, clock)


async def echo_extractor(instructions: str, text: str) -> str:
    said = re.findall(r"^User: (.+)$", text.partition("The conversation:")[2], re.MULTILINE)
    return json.dumps({"facts": [{"text": line[:MEMORY_CHARS_MAX]} for line in said]})


class RelayedWebhook(WebhookProvider):
    """A webhook whose receiver has every verb, as it stands behind it itself: notes, asked by the format."""

    def __init__(self, notes: Provider, clock: SystemClock) -> None:
        self._port = own_port()
        super().__init__(f"http://127.0.0.1:{self._port}/", SECRET, clock, IdGenerator(clock).commit_key)
        self._notes = notes
        app = web.Application(client_max_size=100_000_000)
        app.router.add_post("/", self._receive)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)

    async def open(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def close(self) -> None:
        await super().close()
        await self._runner.cleanup()
        await self._notes.close()

    async def _receive(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read())
        verb = asked.pop("type").removeprefix("memory.")
        try:
            return web.Response(body=msgspec.json.encode(await self._answer(verb, asked)))
        except NoSuchMemory:
            return web.json_response({"code": "no_such_memory"}, status=404)
        except BadCursor:
            return web.json_response({"code": "bad_cursor"}, status=400)
        except HoldfastError as error:
            return web.json_response({"detail": str(error)}, status=500)

    async def _answer(self, verb: str, asked: dict[str, Any]) -> object:
        match verb:
            case "commit":
                return {"receipt": await self._notes.commit(msgspec.convert(asked, Segment))}
            case "recall":
                return {"memories": await self._notes.recall(**asked)}
            case "remember":
                return await self._notes.remember(**asked | {"origin": Origin(**asked["origin"])})
            case "list":
                return await self._notes.list_(**asked)
        return await getattr(self._notes, verb)(**asked)


class TestTheWebhookWithEveryVerb(TestTheNotes):
    """The format has room for all that the notes can do."""

    async def provider(self) -> Provider:
        relayed = RelayedWebhook(await super().provider(), SystemClock())
        await relayed.open()
        return relayed

    async def test_the_full_webhook_ran_every_case(self) -> None:
        async with self.opened() as it:
            made = await it.remember("The jar is blue.", "", Origin("user"), "c_1")
            assert made.origin == Origin("user") and made.made_at > 0
            assert (await it.edit(made.id, "The jar is red.")).id == made.id
            assert [each.text for each in (await it.list_("", "red", None, 5)).memories] == [
                "The jar is red."
            ]
            await it.forget(made.id)
            assert (await it.list_("", "", None, 5)).memories == ()


# An installed one, in a process of its own.

CHILD = """
import asyncio, json, sys, tempfile
from pathlib import Path
from holdfast.memory.conformance import ProviderCases
from holdfast.memory.providers.installed import open_installed_provider

class Cases(ProviderCases):
    async def provider(self):
        return await open_installed_provider("shelf", Path(tempfile.mkdtemp(dir=sys.argv[1])), {}, None)

told = {}
for name in dir(Cases):
    if name.startswith("test_"):
        try:
            asyncio.run(getattr(Cases(), name)())
            told[name] = ""
        except BaseException as error:
            told[name] = f"{type(error).__name__}: {error}"
assert "pytest" not in sys.modules
print(json.dumps(told))
"""


def test_one_that_is_installed_passes_every_case_and_pytest_is_not_needed(tmp_path: Path) -> None:
    site = install(
        tmp_path / "site", "hf_shelf", {"shelf": "hf_shelf:make"}, {"hf_shelf": EXAMPLE.read_text("utf-8")}
    )
    environ = {**os.environ, "PYTHONPATH": f"{site}:{ROOT / 'src'}"}
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, str] = json.loads(done.stdout)
    assert len(results) > 15
    assert {name: why for name, why in results.items() if why} == {}


# A suite that nothing fails shows nothing: each of these is wrong in one way.


def example() -> Any:
    spec = spec_from_file_location("memory_provider_of_the_docs", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ExampleProvider: Any = example().Shelf


class CommitIgnoringProvider(ExampleProvider):  # type: ignore[misc]
    async def commit(self, segment: Segment) -> str:
        return "noted"


class ReceiptlessProvider(ExampleProvider):  # type: ignore[misc]
    async def commit(self, segment: Segment) -> None:
        await super().commit(segment)


class DoubleCommitProvider(ExampleProvider):  # type: ignore[misc]
    times = 0

    async def commit(self, segment: Segment) -> str:
        self.times += 1
        key = f"{segment.key}_{self.times}"
        self._keep({**self._told, key: {"scope": segment.scope, "text": segment.messages[0].text}})
        return key


class RetractIgnoringProvider(ExampleProvider):  # type: ignore[misc]
    async def retract(self, key: str, receipt: str) -> None:
        pass


class OverRetractingProvider(ExampleProvider):  # type: ignore[misc]
    async def retract(self, key: str, receipt: str) -> None:
        self._keep({})


class StrictRetractProvider(ExampleProvider):  # type: ignore[misc]
    async def retract(self, key: str, receipt: str) -> None:
        if key not in self._told:
            raise ProviderFailure(detail=f"there is no {key}")
        await super().retract(key, receipt)


class ScopeLeakingProvider(ExampleProvider):  # type: ignore[misc]
    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        others = {note["scope"] for note in self._told.values()} - {scope}
        return [
            each for one in (scope, *others) for each in await ExampleProvider.recall(self, query, one, limit)
        ]


class LimitIgnoringProvider(ExampleProvider):  # type: ignore[misc]
    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        found: Sequence[Memory] = await super().recall(query, scope, 100)
        return found


class ForgetIgnoringProvider(ExampleProvider):  # type: ignore[misc]
    async def forget(self, memory_id: str) -> None:
        pass


class RecallFailingProvider(ExampleProvider):  # type: ignore[misc]
    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        if "\0" in query:
            raise ValueError("embedded null byte")
        found: Sequence[Memory] = await super().recall(query, scope, limit)
        return found


class UnhealthyProvider(ExampleProvider):  # type: ignore[misc]
    async def health(self) -> Health:
        raise RuntimeError("ill")


class SecondCloseFailsProvider(ExampleProvider):  # type: ignore[misc]
    is_closed = False

    async def close(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed already")
        self.is_closed = True


@pytest.mark.parametrize(
    "wrong, case",
    [
        (CommitIgnoringProvider, "test_a_committed_segment_can_be_recalled"),
        (ReceiptlessProvider, "test_a_commit_returns_a_receipt"),
        (DoubleCommitProvider, "test_the_same_key_twice_is_remembered_once"),
        (DoubleCommitProvider, "test_the_same_key_at_the_same_time_is_remembered_once"),
        (RetractIgnoringProvider, "test_a_retracted_segment_is_not_recalled"),
        (RetractIgnoringProvider, "test_a_retraction_works_without_a_receipt"),
        (OverRetractingProvider, "test_a_retracted_segment_is_not_recalled"),
        (StrictRetractProvider, "test_retracting_an_unknown_segment_is_harmless"),
        (ScopeLeakingProvider, "test_one_scope_does_not_recall_memories_of_another"),
        (LimitIgnoringProvider, "test_recall_returns_at_most_the_limit"),
        (ForgetIgnoringProvider, "test_an_unknown_memory_cannot_be_edited_or_forgotten"),
        (RecallFailingProvider, "test_odd_text_raises_only_declared_errors"),
        (UnhealthyProvider, "test_it_is_healthy"),
        (SecondCloseFailsProvider, "test_closing_twice_is_harmless"),
    ],
)
def test_a_faulty_provider_fails_its_conformance_case(wrong: type[Any], case: str, tmp_path: Path) -> None:
    class Cases(ProviderCases):
        async def provider(self) -> Provider:
            made: Provider = wrong(tmp_path / "told.json")
            return made

    with pytest.raises((AssertionError, ProviderFailure, ValueError, RuntimeError)):  # And nothing else.
        asyncio.run(getattr(Cases(), case)())


class TestTheExample(ProviderCases):
    """In this process: what the wrong ones above are made from is right."""

    folder = Path()

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    async def provider(self) -> Provider:
        made: Provider = ExampleProvider(self.folder / "told.json")
        return made

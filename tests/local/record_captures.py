"""Record what llama.cpp streams: `python -m tests.local.record_captures` after `make test-local`."""

import asyncio
import re
from importlib.metadata import distributions

import aiohttp

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint
from holdfast.models.local.model import LocalModel
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import ToolSpec
from holdfast.models.responses.wire import ResponsesWire
from holdfast.models.wire import WireProtocol
from tests.local.llama_server import CALLING, PLACE, PROTOCOLS, WEATHER, local_server, request_for
from tests.support.source_files import ROOT

FOLDER = ROOT / "tests" / "captures" / "llama_cpp"
WIRES: dict[str, WireProtocol] = {
    "chat": ChatWire(),
    "responses": ResponsesWire(),
    "messages": MessagesWire(),
}


async def record(endpoint: Endpoint, name: str, tokens: int, request: Request, *tools: ToolSpec) -> None:
    profile = ModelProfile(LocalModel.profile.provider, 8_192, tokens, answer_tokens_max=tokens)
    wire = WIRES[endpoint.protocol]
    body = wire.encode(endpoint.model, profile, request, tools, frozenset())
    headers = {"Content-Type": "application/json", **endpoint.headers}
    async with (
        aiohttp.ClientSession() as http,
        http.post(endpoint.url(wire.path), data=body, headers=headers) as got,
    ):
        content = await got.read()
        kind = "sse" if got.status == 200 else f"{got.status}.json"
    (FOLDER / f"{endpoint.protocol}_{name}.{kind}").write_bytes(content)


async def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for template, calls in (("", False), (CALLING, True)):
        running = local_server(template)
        running.acquire()
        for protocol in PROTOCOLS:
            endpoint = await running.endpoint(protocol)
            if calls:
                await record(endpoint, "call", 40, request_for("What is the weather in Paris?"), WEATHER)
                continue
            await record(endpoint, "talk", 60, request_for("Say hello in three words"))
            await record(endpoint, "cut", 4, request_for("Count from one to a hundred"))
            await record(endpoint, "too_long", 4, request_for("word " * 9_000))
        await running.release()
    versions = sorted(f"{each.name} {each.version}" for each in distributions(path=[str(PLACE.library)]))
    note = (FOLDER / "README.md").read_text("utf-8")
    (FOLDER / "README.md").write_text(
        re.sub(r"(?<=Versions: ).*?(?=\.\n)", ", ".join(versions), note), "utf-8"
    )


if __name__ == "__main__":
    asyncio.run(main())

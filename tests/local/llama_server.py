"""The real llama.cpp, as `make test-local` has installed it, and what it is asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from holdfast.domain.context.context import Request, UserMessage
from holdfast.domain.events.parts import Text
from holdfast.models.endpoint import ProtocolName
from holdfast.models.factory import build_local_client
from holdfast.models.local.install_dir import LocalModelDir
from holdfast.models.local.model import LocalModel
from holdfast.models.local.server import LlamaServer
from holdfast.models.ports import ToolSpec
from tests.support.source_files import ROOT

PLACE = LocalModelDir(ROOT / ".cache" / "local-model")
PROTOCOLS: tuple[ProtocolName, ...] = ("chat", "responses", "messages")
KEY = "a-key-of-this-test-alone"
CALLING = (Path(__file__).parent / "calling.jinja").read_text("utf-8")
"""A template by which the model is shown tools, and how others called them; its own knows none."""
WEATHER = ToolSpec(
    "get_weather",
    "The weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def request_for(text: str) -> Request:
    return Request("You are terse.", (UserMessage((Text(text),)),))


def local_server(template: str = "") -> LlamaServer:
    assert PLACE.is_installed, "make test-local installs the local model first"
    return LlamaServer(PLACE, {}, KEY, template)


@asynccontextmanager
async def running_model(
    protocol: ProtocolName, template: str = "", answer_tokens: int = 48
) -> AsyncIterator[LocalModel]:
    """The local model by one wire protocol; its answers are short."""
    profile = replace(LocalModel.profile, answer_tokens=answer_tokens, answer_tokens_max=answer_tokens)
    model = LocalModel(
        local_server(template), lambda endpoint: build_local_client(endpoint, profile), protocol
    )
    try:
        yield model
    finally:
        await model.close()

"""The local model, asked over HTTP at the current address of its server."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.domain.files import SupportedFiles
from holdfast.models.endpoint import Endpoint, ProtocolName
from holdfast.models.local.info import LOCAL
from holdfast.models.local.install_dir import MODEL_NAME, WINDOW_TOKENS
from holdfast.models.local.server import LlamaServer
from holdfast.models.ports import Model, ModelDelta, ToolSpec

ABOUT = (
    "It runs on this machine and needs no network. It is tiny: it can chat a little, but it uses no tools,"
    " gets facts wrong, and should not be relied on."
)
_ANSWER_TOKENS = 512


class LocalModel:
    """The local model. It holds the server from construction to `close`.

    `build_client` builds the client for an address. The profile has no address, because that changes with
    every start. So nobody asks this model for titles, summaries or memories, which it could not do well
    either.
    """

    profile = ModelProfile(
        f"{LOCAL}/{MODEL_NAME}", WINDOW_TOKENS, _ANSWER_TOKENS, answer_tokens_max=_ANSWER_TOKENS
    )

    def __init__(
        self, server: LlamaServer, build_client: Callable[[Endpoint], Model], protocol: ProtocolName = "chat"
    ) -> None:
        """Acquire the server. Raises LocalNotInstalled."""
        server.acquire()
        self._server = server
        self._build_client = build_client
        self._protocol: ProtocolName = protocol
        self._client: tuple[Endpoint, Model] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"LocalModel({self.name})"

    @property
    def name(self) -> str:
        return f"{LOCAL}:{MODEL_NAME}"

    async def supported_files(self) -> SupportedFiles:
        return SupportedFiles(frozenset({"text"}))

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """Wait until the server is up, then stream its answer."""
        client = await self._client_for(await self._server.endpoint(self._protocol))
        async with aclosing(client.stream(request, tools)) as deltas:
            async for delta in deltas:
                yield delta

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._client is not None:
            await self._client[1].close()
        await self._server.release()

    async def _client_for(self, endpoint: Endpoint) -> Model:
        """Return the client for an address; a new one once the server has restarted."""
        if self._client is None or self._client[0].base_url != endpoint.base_url:
            previous, self._client = self._client, (endpoint, self._build_client(endpoint))
            if previous is not None:
                await previous[1].close()
        return self._client[1]

"""Call `fetch_url` in tests, with host names that resolve as the test says."""

import socket
from collections.abc import Sequence

from holdfast.tools.web.address_policy import AddressPolicy
from holdfast.tools.web.fetch_url import FetchUrlTool
from holdfast.tools.web.web_client import WebClient
from tests.support.tool_fixture import RecordedCall, ToolHarness

PUBLIC_ADDRESS = "127.0.0.1"
PRIVATE_ADDRESS = "127.0.0.2"
"""Another address of this machine, standing for one that no setting allows."""


class FakeResolver:
    """Resolve names as the test says; several results are used in turn."""

    def __init__(self, **known: list[list[str]]) -> None:
        self._known = {name.replace("_", "."): list(answers) for name, answers in known.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._known.get(host)
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answers.pop(0) if len(answers) > 1 else answers[0]


async def fetch(
    bench: ToolHarness,
    url: str,
    start: int = 0,
    allowed: Sequence[str] = (f"{PUBLIC_ADDRESS}/32",),
    names: FakeResolver | None = None,
    seconds_max: float = 30,
    own_port: int = 0,
) -> RecordedCall:
    client = WebClient(AddressPolicy(allowed, own_port), names or FakeResolver())
    call = bench.prepare(url=url, start=start)
    call.result = await FetchUrlTool(client, seconds_max).run(call.tool_run())
    return call

"""Calling `fetch_url` for tests, with names that stand for what a test says."""

import socket
from collections.abc import Sequence

from holdfast.tools.web.address_policy import Admission
from holdfast.tools.web.fetch_url import FetchUrl
from holdfast.tools.web.web_client import WebClient
from tests.support.tool_fixture import Bench, Call

HERE = "127.0.0.1"
INSIDE = "127.0.0.2"
"""Another address of this machine, which stands for one that nobody has allowed."""


class Names:
    """A resolver that says what a test wants, and another thing each time if it is given several."""

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
    bench: Bench,
    url: str,
    start: int = 0,
    allowed: Sequence[str] = (f"{HERE}/32",),
    names: Names | None = None,
    seconds_max: float = 30,
    own_port: int = 0,
) -> Call:
    client = WebClient(Admission(allowed, own_port), names or Names())
    call = bench.prepare(url=url, start=start)
    call.result = await FetchUrl(client, seconds_max).run(call.run())
    return call

"""A short question to a model's server, beside asking its model: for a list, for what a model takes."""

import asyncio

import aiohttp
import msgspec
from yarl import URL

from holdfast.models.endpoint import Endpoint

ANSWER_BYTES_MAX = 4_000_000
"""A list of models; that of a large gateway is half of this."""


class Told(msgspec.Struct, frozen=True):
    """What a server answered."""

    status: int
    body: bytes


async def ask_once(endpoint: Endpoint, url: URL, wait_s: float, sent: bytes | None = None) -> Told | None:
    """The answer to a short question; None if there is none in time, or it is too long."""
    headers = endpoint.headers
    if sent is not None:
        headers["Content-Type"] = "application/json"
    method = "GET" if sent is None else "POST"
    try:
        async with (
            asyncio.timeout(wait_s),
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(method, url, data=sent, headers=headers, allow_redirects=False) as response,
        ):
            body = bytearray()
            while len(body) <= ANSWER_BYTES_MAX and (chunk := await response.content.readany()):
                body += chunk
            return Told(response.status, bytes(body)) if len(body) <= ANSWER_BYTES_MAX else None
    except (aiohttp.ClientError, OSError, ValueError):
        return None

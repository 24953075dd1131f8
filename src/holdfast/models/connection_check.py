"""Trying a model's server for real, to say exactly what is wrong with what somebody typed in."""

import asyncio
from contextlib import aclosing
from difflib import get_close_matches

import aiohttp
import msgspec
from msgspec.structs import replace

from holdfast.domain.context.context import Request, UserMessage
from holdfast.domain.events.parts import Text
from holdfast.models import failures
from holdfast.models.endpoint import Endpoint
from holdfast.models.factory import made_for
from holdfast.models.listing import list_url, listed_in
from holdfast.models.ports import Model, ModelFailure
from holdfast.models.transport import ANSWER_BYTES_MAX

LIST_S = 10.0
ANSWER_S = 60.0
"""A model on this machine may have to be loaded first."""
MODELS_MAX = 500
"""As many names are told."""
_NEAR_MAX = 3
_HELLO = Request("Answer with one word.", (UserMessage((Text("Hello"),)),))


class Trial(msgspec.Struct, frozen=True):
    """What came of it, in a sentence; `models` are those that the server says it has."""

    ok: bool
    detail: str
    models: tuple[str, ...] = ()


async def tried(endpoint: Endpoint, list_s: float = LIST_S, answer_s: float = ANSWER_S) -> Trial:
    """Ask for the list of models, then a word of the one that is named. Without a name, the list alone."""
    models: tuple[str, ...] = ()
    try:
        listed = await _list(endpoint, list_s)
        if listed is None and (better := await _better(endpoint, list_s)):
            return Trial(False, f"There is nothing at {endpoint.shown_url}: the base URL is {better}.")
        models = listed or ()
        if endpoint.model:
            await _hear(endpoint, answer_s)
        elif listed is None:
            return Trial(False, f"{endpoint.shown_url} has no list of models: is it the right base URL?")
    except ModelFailure as failure:
        return Trial(False, _told(endpoint, failure, models), models)
    if not endpoint.model:
        return Trial(True, f"{endpoint.host} answers, and has {_counted(len(models))}.", models)
    return Trial(True, f"{endpoint.model} at {endpoint.host} answers.", models)


def _counted(models: int) -> str:
    return "one model" if models == 1 else f"{models or 'no'} models"


async def _list(endpoint: Endpoint, wait_s: float) -> tuple[str, ...] | None:
    """The models that the server says it has; None if it has no list of them. Raises ModelFailure."""
    url = list_url(endpoint)
    try:
        async with (
            asyncio.timeout(wait_s),
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(url, headers=endpoint.headers, allow_redirects=False) as response,
        ):
            body = await response.content.read(ANSWER_BYTES_MAX)
            while chunk := await response.content.read(ANSWER_BYTES_MAX - len(body)):
                body += chunk
    except TimeoutError:
        raise failures.of_silence(endpoint, "answer", wait_s) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise failures.of_connection(endpoint, error) from None
    if response.status in (404, 405, 501):
        return None
    if response.status != 200:
        raise failures.of_status(endpoint, response.status, response.headers, body)
    listed = listed_in(body)
    return tuple(each.name for each in listed.offers[:MODELS_MAX]) if listed is not None else None


async def _better(endpoint: Endpoint, wait_s: float) -> str:
    """The base URL that was meant, if it only lacks its usual end."""
    if endpoint.base_url.rstrip("/").endswith("/v1"):
        return ""
    meant = replace(endpoint, base_url=str(endpoint.url("v1")))
    try:
        return meant.shown_url if await _list(meant, wait_s) is not None else ""
    except ModelFailure:
        return ""


async def heard(model: Model, answer_s: float = ANSWER_S) -> str:
    """That a model answers, in a sentence, once it does. Closes it. Raises ModelFailure."""
    try:
        async with asyncio.timeout(answer_s), aclosing(model.stream(_HELLO, ())) as deltas:
            async for _ in deltas:
                break
    except TimeoutError:
        detail = f"{model.name} said nothing within {answer_s:g} s"
        raise ModelFailure(detail=detail, retryable=True) from None
    finally:
        await model.close()
    return f"{model.name} answers."


async def _hear(endpoint: Endpoint, wait_s: float) -> None:
    """Ask as a run does, and let go at the first word. Raises ModelFailure."""
    model = made_for(endpoint)
    try:
        async with asyncio.timeout(wait_s), aclosing(model.stream(_HELLO, ())) as deltas:
            async for _ in deltas:
                return
    except TimeoutError:
        raise failures.of_silence(endpoint, "answer", wait_s) from None
    finally:
        await model.close()


def _told(endpoint: Endpoint, failure: ModelFailure, models: tuple[str, ...]) -> str:
    detail = str(failure.fields["detail"])
    told = f"{detail[:1].upper()}{detail[1:]}."
    if models and endpoint.model and endpoint.model not in models:
        near = get_close_matches(endpoint.model, models, _NEAR_MAX, 0.4)
        names = f"; it has {', '.join(near)}" if near else ""
        return f"{endpoint.host} does not list a model {endpoint.model}{names}. {told}"
    return told

"""Test a model's server with real requests, and say exactly what is wrong with the input."""

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
from holdfast.models.factory import build_model
from holdfast.models.listing import list_url, parse_listing
from holdfast.models.ports import Model, ModelFailure
from holdfast.models.transport import REPLY_BYTES_MAX

LIST_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 60.0
"""A model on this machine may have to be loaded first."""
MODELS_MAX = 500
"""Limit of the names in a result."""
_SUGGESTIONS_MAX = 3
_HELLO = Request("Answer with one word.", (UserMessage((Text("Hello"),)),))


class ConnectionCheck(msgspec.Struct, frozen=True):
    """The result as a sentence; `models` are those that the server lists."""

    ok: bool
    detail: str
    models: tuple[str, ...] = ()


async def check_connection(
    endpoint: Endpoint, list_s: float = LIST_TIMEOUT_S, answer_s: float = ANSWER_TIMEOUT_S
) -> ConnectionCheck:
    """List the models, then ask the named one for a word. Without a name, only list them."""
    models: tuple[str, ...] = ()
    try:
        listed = await _fetch_models(endpoint, list_s)
        if listed is None and (suggestion := await _suggest_base_url(endpoint, list_s)):
            return ConnectionCheck(
                False, f"There is nothing at {endpoint.display_url}: the base URL is {suggestion}."
            )
        models = listed or ()
        if endpoint.model:
            await _await_first_delta(endpoint, answer_s)
        elif listed is None:
            return ConnectionCheck(
                False, f"{endpoint.display_url} has no list of models: is it the right base URL?"
            )
    except ModelFailure as failure:
        return ConnectionCheck(False, _explain(endpoint, failure, models), models)
    if not endpoint.model:
        return ConnectionCheck(True, f"{endpoint.host} answers, and has {_count_text(len(models))}.", models)
    return ConnectionCheck(True, f"{endpoint.model} at {endpoint.host} answers.", models)


def _count_text(models: int) -> str:
    return "one model" if models == 1 else f"{models or 'no'} models"


async def _fetch_models(endpoint: Endpoint, wait_s: float) -> tuple[str, ...] | None:
    """Return the models that the server lists; None if it has no list. Raises ModelFailure."""
    url = list_url(endpoint)
    try:
        async with (
            asyncio.timeout(wait_s),
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(url, headers=endpoint.headers, allow_redirects=False) as response,
        ):
            body = await response.content.read(REPLY_BYTES_MAX)
            while chunk := await response.content.read(REPLY_BYTES_MAX - len(body)):
                body += chunk
    except TimeoutError:
        raise failures.timed_out(endpoint, "answer", wait_s) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise failures.from_connection_error(endpoint, error) from None
    if response.status in (404, 405, 501):
        return None
    if response.status != 200:
        raise failures.from_status(endpoint, response.status, response.headers, body)
    listing = parse_listing(body)
    return tuple(model.name for model in listing.models[:MODELS_MAX]) if listing is not None else None


async def _suggest_base_url(endpoint: Endpoint, wait_s: float) -> str:
    """Return the base URL that was meant, if only its usual end is missing."""
    if endpoint.base_url.rstrip("/").endswith("/v1"):
        return ""
    corrected = replace(endpoint, base_url=str(endpoint.url("v1")))
    try:
        return corrected.display_url if await _fetch_models(corrected, wait_s) is not None else ""
    except ModelFailure:
        return ""


async def check_model(model: Model, answer_s: float = ANSWER_TIMEOUT_S) -> str:
    """Return a sentence once the model answers, and close the model. Raises ModelFailure."""
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


async def _await_first_delta(endpoint: Endpoint, wait_s: float) -> None:
    """Ask as a run does, and stop at the first delta. Raises ModelFailure."""
    model = build_model(endpoint)
    try:
        async with asyncio.timeout(wait_s), aclosing(model.stream(_HELLO, ())) as deltas:
            async for _ in deltas:
                return
    except TimeoutError:
        raise failures.timed_out(endpoint, "answer", wait_s) from None
    finally:
        await model.close()


def _explain(endpoint: Endpoint, failure: ModelFailure, models: tuple[str, ...]) -> str:
    detail = str(failure.fields["detail"])
    text = f"{detail[:1].upper()}{detail[1:]}."
    if models and endpoint.model and endpoint.model not in models:
        similar = get_close_matches(endpoint.model, models, _SUGGESTIONS_MAX, 0.4)
        names = f"; it has {', '.join(similar)}" if similar else ""
        return f"{endpoint.host} does not list a model {endpoint.model}{names}. {text}"
    return text

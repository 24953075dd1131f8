"""`holdfast chat`: a conversation in this terminal, or one message from a script."""

import asyncio
import os
import secrets
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from aiohttp.hdrs import METH_DELETE

from holdfast.cli.chat.client import Away, Client, Refused
from holdfast.cli.chat.prompt import is_terminal
from holdfast.cli.chat.render import Drawing
from holdfast.cli.chat.repl import Talk
from holdfast.cli.chat.safe_text import one_line, safe
from holdfast.cli.chat.script import (
    ANSWERED,
    FAILED,
    INTERRUPTED,
    Result,
    Script,
    as_json,
    complaint,
    exit_code,
)
from holdfast.cli.chat.server_locator import reaching
from holdfast.cli.chat.slash_commands import find
from holdfast.cli.chat.wire import Session, SessionList
from holdfast.cli.command_context import Desk, JsonOption, note
from holdfast.cli.errors import AmbiguousId
from holdfast.cli.wiring import DataOption, DurabilityOption, wiring_of
from holdfast.domain.chats import TERMINAL_KEY
from holdfast.domain.errors import NoSuchSession

SessionArgument = Annotated[
    str | None,
    typer.Argument(metavar="SESSION", help="Continue this conversation: its id, or the start of its id."),
]
AgentOption = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Start the conversation with this agent.")
]
ContinueOption = Annotated[bool, typer.Option("--continue", "-c", help="Continue the last conversation.")]
SayOption = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--say",
        metavar="TEXT",
        help="Send this message, print the answer and exit; - reads the message from standard input. /NAME "
        "stands for a prompt of that name; commands are not carried out.",
    ),
]
AnywayOption = Annotated[
    bool, typer.Option("--anyway", help="Send images also to a model that is not known to take them.")
]
WaitOption = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, help="With -p: how long to wait for a server that has gone."
    ),
]
_KEY_BYTES = 16


def chat(
    context: typer.Context,
    session: SessionArgument = None,
    say: SayOption = None,
    last: ContinueOption = False,
    agent: AgentOption = None,
    as_json_too: JsonOption = False,
    wait: WaitOption = 120.0,
    anyway: AnywayOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Start a conversation in this terminal, or send one message from a script.

    --continue goes on with the last conversation, SESSION with that one.
    """
    if sum((session is not None, last, agent is not None)) > 1:
        raise typer.BadParameter("SESSION, --continue and --agent exclude each other")
    if as_json_too and say is None:
        raise typer.BadParameter("--json goes with -p")
    if anyway and say is not None:
        raise typer.BadParameter("--anyway does not go with -p, which attaches no files")
    wiring = wiring_of(context)
    desk = Desk(wiring, wiring.settings(data=data, durability=durability), as_json_too)
    if say is None:
        if not is_terminal():
            raise typer.BadParameter(
                "this is no terminal; -p TEXT sends one message from a script, and -p - what is piped in"
            )
        raise typer.Exit(asyncio.run(_talk(desk, session, last, agent, anyway)))
    text = sys.stdin.read() if say == "-" else say
    if not text.strip():
        raise typer.BadParameter("there is no message to send")
    code = asyncio.run(_script(desk, session, last, agent, text, wait))
    raise typer.Exit(code)


async def _talk(desk: Desk, session: str | None, last: bool, agent: str | None, anyway: bool) -> int:
    """Until the person leaves; returns the exit code."""
    async with reaching(desk, print) as client:
        try:
            found = await _conversation(client, session, last, agent)
            talk = Talk(client, Drawing(desk.wiring.mask.whole), Path.cwd(), _new_key, anyway)
            await talk.run(found)
            if session is None and not last:
                await _drop_unused(client, found)
        except Refused as refused:
            note(f"holdfast: {safe(refused.problem.detail)}")
            return FAILED
        except Away:
            note("holdfast: the server has gone.")
            return FAILED
    return ANSWERED


async def _script(
    desk: Desk, session: str | None, last: bool, agent: str | None, text: str, wait_s: float
) -> int:
    """Send the message, tell the answer; returns the exit code."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "this is a coroutine of a task"
    told: list[int] = []

    def interrupt(signum: int) -> None:
        if not told:
            task.cancel()
        told.append(signum)

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, interrupt, signum)
    aside = _aside if sys.stderr.isatty() else _nowhere
    try:
        async with reaching(desk, aside) as client:
            found = await _conversation(client, session, last, agent)
            mask = desk.wiring.mask
            script = Script(client, wait_s, mask.stream(), None if desk.as_json else _write, aside)
            result = await script.run(found.id, text, _new_key())
    except asyncio.CancelledError:
        return INTERRUPTED
    except Refused as refused:
        note(f"holdfast: {safe(refused.problem.detail)}")
        return FAILED
    except Away:
        note("holdfast: the server has gone, and the message was not sent.")
        return FAILED
    return _told(desk, result, INTERRUPTED if told else exit_code(result))


def _told(desk: Desk, result: Result, code: int) -> int:
    if desk.as_json:
        _write(as_json(result, desk.wiring.mask.whole) + "\n")
    if said := complaint(result):
        note(f"holdfast: {said}")
    return code


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has read enough; what is written from here on goes nowhere, also at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise asyncio.CancelledError from None


def _aside(text: str) -> None:
    # The answer may be on the same screen, and what is said beside it is not to stand in its line.
    if text.startswith("\n") and sys.stdout.isatty():
        note("")
    note(one_line(text, 200))


def _nowhere(text: str) -> None:
    pass


async def _conversation(client: Client, session: str | None, last: bool, agent: str | None) -> Session:
    """The one that was named, the last one, or another. Raises Refused, NoSuchSession, AmbiguousId."""
    if session:
        return await _chosen(client, session)
    if last:
        page = await client.insist("GET", "/api/sessions?limit=1", SessionList)
        if page.sessions:
            return page.sessions[0]
    body = {"agent": agent} if agent is not None else {}
    return await client.insist("POST", "/api/sessions", Session, body)


async def _drop_unused(client: Client, begun: Session) -> None:
    """Delete a conversation in which nothing has happened since it began: nobody wants it in a list."""
    with suppress(Away, Refused):
        path, unchanged = f"/api/sessions/{begun.id}", {"if-match": str(begun.head)}
        # A server that was started before an update may not know the condition.
        if (await client.get(path, Session)).head == begun.head:
            await client.ask(METH_DELETE, path, object, headers=unchanged)


async def _chosen(client: Client, text: str) -> Session:
    """The conversation of that id, or the only one whose id begins so. Raises NoSuchSession, AmbiguousId."""
    with suppress(Refused):
        return await client.get(f"/api/sessions/{text}", Session)
    found = await find(client, text) if text.startswith("s_") else ()
    if not found:
        raise NoSuchSession(session_id=one_line(text, 60))
    if len(found) > 1:
        raise AmbiguousId(count=len(found), text=text, some=", ".join(each.id for each in found[:3]))
    return found[0]


def _new_key() -> str:
    return f"{TERMINAL_KEY}{secrets.token_urlsafe(_KEY_BYTES)}"

"""`holdfast chat`: chat in this terminal, or send one message from a script."""

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

from holdfast.cli.chat.client import Client, RequestRefused, ServerUnavailable
from holdfast.cli.chat.one_shot import (
    EXIT_ANSWERED,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    ChatResult,
    OneShotChat,
    exit_code,
    failure_message,
    result_json,
)
from holdfast.cli.chat.prompt import is_terminal
from holdfast.cli.chat.render import Renderer
from holdfast.cli.chat.repl import ChatRepl
from holdfast.cli.chat.response_data import SessionData, SessionListData
from holdfast.cli.chat.safe_text import one_line, safe
from holdfast.cli.chat.server_locator import connect_client
from holdfast.cli.chat.slash_commands import find_sessions
from holdfast.cli.command_context import CommandContext, JsonOption, print_stderr
from holdfast.cli.dependencies import DataOption, DurabilityOption, get_dependencies
from holdfast.cli.errors import AmbiguousId
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
    dependencies = get_dependencies(context)
    command = CommandContext(
        dependencies, dependencies.settings(data=data, durability=durability), as_json_too
    )
    if say is None:
        if not is_terminal():
            raise typer.BadParameter(
                "this is no terminal; -p TEXT sends one message from a script, and -p - what is piped in"
            )
        raise typer.Exit(asyncio.run(_run_repl(command, session, last, agent, anyway)))
    text = sys.stdin.read() if say == "-" else say
    if not text.strip():
        raise typer.BadParameter("there is no message to send")
    code = asyncio.run(_run_one_shot(command, session, last, agent, text, wait))
    raise typer.Exit(code)


async def _run_repl(
    command: CommandContext, session: str | None, last: bool, agent: str | None, anyway: bool
) -> int:
    """Chat until the user leaves; return the exit code."""
    async with connect_client(command, print) as client:
        try:
            session_data = await _open_session(client, session, last, agent)
            repl = ChatRepl(client, Renderer(command.dependencies.mask.mask), Path.cwd(), _new_key, anyway)
            await repl.run(session_data)
            if session is None and not last:
                await _delete_unused(client, session_data)
        except RequestRefused as refused:
            print_stderr(f"holdfast: {safe(refused.problem.detail)}")
            return EXIT_FAILED
        except ServerUnavailable:
            print_stderr("holdfast: the server has gone.")
            return EXIT_FAILED
    return EXIT_ANSWERED


async def _run_one_shot(
    command: CommandContext, session: str | None, last: bool, agent: str | None, text: str, wait_s: float
) -> int:
    """Send the message and print the answer; return the exit code."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "this is a coroutine of a task"
    signals_received: list[int] = []

    def interrupt(signum: int) -> None:
        if not signals_received:
            task.cancel()
        signals_received.append(signum)

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, interrupt, signum)
    print_note = _print_note if sys.stderr.isatty() else _discard_note
    try:
        async with connect_client(command, print_note) as client:
            session_data = await _open_session(client, session, last, agent)
            mask = command.dependencies.mask
            one_shot = OneShotChat(
                client, wait_s, mask.stream(), None if command.as_json else _write_stdout, print_note
            )
            result = await one_shot.run(session_data.id, text, _new_key())
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED
    except RequestRefused as refused:
        print_stderr(f"holdfast: {safe(refused.problem.detail)}")
        return EXIT_FAILED
    except ServerUnavailable:
        print_stderr("holdfast: the server has gone, and the message was not sent.")
        return EXIT_FAILED
    return _report_result(command, result, EXIT_INTERRUPTED if signals_received else exit_code(result))


def _report_result(command: CommandContext, result: ChatResult, code: int) -> int:
    if command.as_json:
        _write_stdout(result_json(result, command.dependencies.mask.mask) + "\n")
    if message := failure_message(result):
        print_stderr(f"holdfast: {message}")
    return code


def _write_stdout(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe: discard all further output, so that no flush at exit fails.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise asyncio.CancelledError from None


def _print_note(text: str) -> None:
    # The answer may be on the same screen, and a note must not stand in the middle of its line.
    if text.startswith("\n") and sys.stdout.isatty():
        print_stderr("")
    print_stderr(one_line(text, 200))


def _discard_note(text: str) -> None:
    pass


async def _open_session(client: Client, session: str | None, last: bool, agent: str | None) -> SessionData:
    """Return the named session, the last one or a new one.

    Raises RequestRefused, NoSuchSession, AmbiguousId.
    """
    if session:
        return await _find_session(client, session)
    if last:
        page = await client.request_until_answered("GET", "/api/sessions?limit=1", SessionListData)
        if page.sessions:
            return page.sessions[0]
    body = {"agent": agent} if agent is not None else {}
    return await client.request_until_answered("POST", "/api/sessions", SessionData, body)


async def _delete_unused(client: Client, session: SessionData) -> None:
    """Delete a conversation in which nothing has happened, so that it does not clutter the list."""
    with suppress(ServerUnavailable, RequestRefused):
        path, unchanged = f"/api/sessions/{session.id}", {"if-match": str(session.head)}
        # Checked here too: a server of an older version may ignore the if-match header.
        if (await client.get(path, SessionData)).head == session.head:
            await client.request(METH_DELETE, path, object, headers=unchanged)


async def _find_session(client: Client, text: str) -> SessionData:
    """Return the session with that id or id prefix. Raises NoSuchSession, AmbiguousId."""
    with suppress(RequestRefused):
        return await client.get(f"/api/sessions/{text}", SessionData)
    found = await find_sessions(client, text) if text.startswith("s_") else ()
    if not found:
        raise NoSuchSession(session_id=one_line(text, 60))
    if len(found) > 1:
        raise AmbiguousId(count=len(found), text=text, some=", ".join(each.id for each in found[:3]))
    return found[0]


def _new_key() -> str:
    return f"{TERMINAL_KEY}{secrets.token_urlsafe(_KEY_BYTES)}"

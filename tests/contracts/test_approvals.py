"""A person is asked once, answers once, and an approved call runs at most once, as it was approved."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

from holdfast.domain.context import context
from holdfast.domain.context.context import ToolMessage
from holdfast.domain.errors import CommandForbidden, HoldfastError, RuleRefused, TooLarge, ToolRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import message_text
from holdfast.domain.ids import CallId, RunId, SessionId
from holdfast.domain.limits import ARGUMENTS_BYTES_MAX
from holdfast.domain.shell.rules import ApprovalGrant
from holdfast.store.sqlite.store import SqliteStore
from tests.support.in_process_app import AppHarness, FakeTool, running_app, text_step, tool_call_step

NEVER = ("reboot *",)


def command(text: str) -> str:
    return msgspec.json.encode({"command": text}).decode()


async def start_pending_approval(
    app: AppHarness, text: str = "ls", session_id: SessionId | None = None
) -> tuple[RunId, CallId]:
    """Return a run with a command that waits for approval."""
    session_id = session_id or await app.create_session()
    app.model.steps = [tool_call_step("shell", command(text)), text_step("Done.")]
    sent = await app.send(session_id, "Go")
    assert sent.run_id is not None
    await app.wait_for_run(sent.run_id, "waiting")
    await wait_until_idle(app)
    [tool] = await app.store.tools(session_id, sent.run_id)
    assert tool.approval == "requested"
    return sent.run_id, tool.id


async def wait_until_idle(app: AppHarness) -> None:
    async def is_idle() -> bool:
        return app.engine.runner.running == 0

    await app.wait_until(is_idle, "rest")


async def facts_of(app: AppHarness, run_id: RunId) -> list[f.AnyFact]:
    session_id, _ = await app.store.run(run_id)
    return [event.fact for event in await app.store.read(session_id, 0, 1000)]  # type: ignore[misc]


async def ledger(app: AppHarness, run_id: RunId) -> list[str]:
    found = [type(fact).__name__ for fact in await facts_of(app, run_id)]
    return [name for name in found if name.startswith(("Tool", "Approval")) and not name.endswith("Appended")]


def last_tool_text(app: AppHarness) -> str:
    """Return what the model read of its last call."""
    [message] = [each for each in app.model.requests[-1].messages if isinstance(each, ToolMessage)][-1:]
    return "\n".join(message_text((part,)) for part in message.parts)


def shell() -> FakeTool:
    return FakeTool("shell", "unsafe")


async def test_an_allowed_call_runs_once(tmp_path: Path) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask") as app:
        run_id, call_id = await start_pending_approval(app)
        assert tool.run_arguments == []
        await app.engine.resolve(run_id, call_id, "approve")
        await app.wait_for_run(run_id, "completed")
        assert tool.run_arguments == [command("ls")]
        assert await ledger(app, run_id) == [
            "ToolIntended", "ApprovalRequested", "ApprovalResolved", "ToolStarted", "ToolSettled"
        ]  # fmt: skip


async def test_a_denied_call_does_not_run_and_the_model_reads_why(tmp_path: Path) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask") as app:
        run_id, call_id = await start_pending_approval(app)
        await app.engine.resolve(run_id, call_id, "deny", "Not on a Friday.")
        await app.wait_for_run(run_id, "completed")
        assert tool.run_arguments == [] and last_tool_text(app) == f"{context.DENIED}\nNot on a Friday."


async def test_an_edited_call_runs_with_its_new_arguments_and_readers_see_them(tmp_path: Path) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask") as app:
        run_id, call_id = await start_pending_approval(app, "rm a")
        await app.engine.resolve(run_id, call_id, "approve", None, ApprovalGrant(arguments=command("rm b")))
        await app.wait_for_run(run_id, "completed")
        assert tool.run_arguments == [command("rm b")]
        assert last_tool_text(app).startswith(context.EDITED + command("rm b"))
        session_id, _ = await app.store.run(run_id)
        [entry] = [each for each in await app.entries(session_id) if each.role == "tool"]
        assert (entry.arguments, entry.outcome) == (command("rm b"), "done")
        [settled] = [fact for fact in await facts_of(app, run_id) if isinstance(fact, f.ToolSettled)]
        assert settled.arguments == command("rm b")


async def test_an_edit_without_changes_is_a_plain_approval(tmp_path: Path) -> None:
    async with running_app(tmp_path, shell(), approvals="ask") as app:
        run_id, call_id = await start_pending_approval(app, "ls")
        await app.engine.resolve(
            run_id, call_id, "approve", None, ApprovalGrant(arguments='{ "command": "ls" }')
        )
        await app.wait_for_run(run_id, "completed")
        assert (await ledger(app, run_id)).count("ToolIntended") == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("{", ToolRefused),
        ("[]", ToolRefused),
        ('{"command": "' + "x" * ARGUMENTS_BYTES_MAX + '"}', TooLarge),
        (command("sudo reboot"), CommandForbidden),
    ],
)
async def test_an_invalid_edit_leaves_the_approval_open(
    tmp_path: Path, arguments: str, error: type[HoldfastError]
) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask", never_run=NEVER) as app:
        run_id, call_id = await start_pending_approval(app)
        with pytest.raises(error):
            await app.engine.resolve(run_id, call_id, "approve", None, ApprovalGrant(arguments=arguments))
        assert (await app.run(run_id)).status == "waiting" and tool.run_arguments == []
        await app.engine.resolve(run_id, call_id, "approve")
        await app.wait_for_run(run_id, "completed")
        assert tool.run_arguments == [command("ls")]


async def test_an_edited_call_survives_a_restart(tmp_path: Path) -> None:
    async with running_app(tmp_path, shell(), approvals="ask") as app:
        run_id, call_id = await start_pending_approval(app, "rm a")
        # As if the process had died the moment that the answer was durable.
        await app.engine.commands.resolve(
            run_id, call_id, "approve", None, ApprovalGrant(arguments=command("rm b"))
        )
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask") as again:
        again.model.steps = [text_step("Done.")]
        await again.wait_for_run(run_id, "completed")
        assert tool.run_arguments == [command("rm b")]
        assert last_tool_text(again).startswith(context.EDITED + command("rm b"))
        assert (await ledger(again, run_id)).count("ApprovalRequested") == 1


ANSWERS: Mapping[str, tuple[f.ToolDecision, str | None, ApprovalGrant]] = MappingProxyType({
    "yes": ("approve", None, ApprovalGrant()),
    "no": ("deny", "no", ApprovalGrant()),
    "changed": ("approve", None, ApprovalGrant(arguments=command("rm b"))),
    "always": ("approve", None, ApprovalGrant("always")),
})  # fmt: skip


@pytest.mark.parametrize("pair", list(itertools.combinations_with_replacement(ANSWERS, 2)), ids="-".join)
async def test_of_two_answers_at_once_one_counts(tmp_path: Path, pair: tuple[str, str]) -> None:
    """The answers come from two engines that share the store, like browsers at two servers."""
    tool = shell()
    async with (
        running_app(tmp_path, tool, approvals="ask") as app,
        running_app(tmp_path, tool, approvals="ask", started=False) as other,
    ):
        run_id, call_id = await start_pending_approval(app, "rm a")
        await other.engine.start()
        outcomes = await asyncio.gather(
            app.engine.resolve(run_id, call_id, *ANSWERS[pair[0]]),
            other.engine.resolve(run_id, call_id, *ANSWERS[pair[1]]),
            return_exceptions=True,
        )
        refused = [each for each in outcomes if isinstance(each, ToolRefused)]
        assert len(refused) == 1 and outcomes.count(None) == 1
        winner = pair[outcomes.index(None)]
        await app.wait_for_run(run_id, "completed")
        expected = {"yes": ["rm a"], "always": ["rm a"], "changed": ["rm b"], "no": []}[winner]
        assert tool.run_arguments == [command(text) for text in expected]
        assert (await ledger(app, run_id)).count("ApprovalResolved") == 1
        for one in (app, other):
            assert len(await one.engine.permissions.rules()) == (winner == "always")


@pytest.mark.parametrize("scope", ["session", "always"])
async def test_a_call_covered_by_a_rule_needs_no_approval(tmp_path: Path, scope: f.ApprovalScope) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask") as app:
        first, second = await app.create_session(), await app.create_session()
        run_id, call_id = await start_pending_approval(app, "git status", first)
        await app.engine.resolve(run_id, call_id, "approve", None, ApprovalGrant(scope, "git status *"))
        await app.wait_for_run(run_id, "completed")
        app.model.steps = [tool_call_step("shell", command("git status -s")), text_step("Done.")]
        again = await app.send(first, "Again")
        await app.wait_for_run(again.run_id, "completed")
        assert len(tool.run_arguments) == 2
        assert again.run_id is not None
        resolved = [
            fact for fact in await facts_of(app, again.run_id) if isinstance(fact, f.ApprovalResolved)
        ]
        assert [(each.by, each.scope, each.rule) for each in resolved] == [
            ("user", scope, "git status *"), ("policy", scope, "git status *")
        ]  # fmt: skip
        app.model.steps = [tool_call_step("shell", command("git status")), text_step("Done.")]
        elsewhere = await app.send(second, "And there")
        await app.wait_for_run(elsewhere.run_id, "completed" if scope == "always" else "waiting")
        assert len(tool.run_arguments) == (3 if scope == "always" else 2)


async def test_a_rule_does_not_cover_hidden_commands(tmp_path: Path) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask") as app:
        await app.engine.permissions.add("shell", "git status *")
        for text in ("git status && rm x", "git status; rm x", "git status $(rm x)", "git status > x"):
            await start_pending_approval(app, text)
        assert tool.run_arguments == []


async def test_a_revoked_rule_takes_effect_at_the_next_call(tmp_path: Path) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask") as app:
        rule = await app.engine.permissions.add("shell", "ls")
        tool.hold = asyncio.Event()
        session_id = await app.create_session()
        app.model.steps = [
            tool_call_step("shell", command("ls")),
            tool_call_step("shell", command("ls")),
            text_step("Done."),
        ]
        sent = await app.send(session_id, "Go")
        await tool.started.wait()
        await app.engine.permissions.revoke(rule.id)
        tool.hold.set()
        await app.wait_for_run(sent.run_id, "waiting")
        assert len(tool.run_arguments) == 1


async def test_a_rule_that_cannot_be_made_leaves_the_question_open(tmp_path: Path) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask") as app:
        run_id, call_id = await start_pending_approval(app, "ls && rm x")
        with pytest.raises(RuleRefused):
            await app.engine.resolve(run_id, call_id, "approve", None, ApprovalGrant("always"))
        assert (await app.run(run_id)).status == "waiting" and not await app.engine.permissions.rules()


@pytest.mark.parametrize("approvals", ["ask", "allow"])
@pytest.mark.parametrize("text", ["reboot", "sudo reboot", "ls && reboot now", "sh -c 'reboot'"])
async def test_a_forbidden_command_is_refused_without_approval(
    tmp_path: Path, approvals: str, text: str
) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals=approvals, never_run=NEVER) as app:  # type: ignore[arg-type]
        await app.engine.permissions.add("shell", "reboot *")
        session_id = await app.create_session()
        app.model.steps = [
            tool_call_step("shell", command(text)),
            tool_call_step("shell", command("ls")),
            text_step("Done."),
        ]
        sent = await app.send(session_id, "Go")
        assert sent.run_id is not None
        run = await app.wait_for_run(sent.run_id, "waiting", "completed")
        assert run.status == ("waiting" if approvals == "ask" else "completed"), (
            "the next call is an ordinary one"
        )
        assert command(text) not in tool.run_arguments
        requested = [fact for fact in await facts_of(app, run.id) if isinstance(fact, f.ApprovalRequested)]
        assert len(requested) == (approvals == "ask")
        message = app.model.requests[1].messages[-1]
        assert isinstance(message, ToolMessage)
        assert message_text(message.parts[-1:]) == str(CommandForbidden(pattern="reboot *"))


DOUBLED = '{"command": "true", "command": "reboot"}'


@pytest.mark.parametrize("arguments", [DOUBLED, command("find -exec " * 9000)])
async def test_an_uncheckable_command_is_refused_with_a_reason(tmp_path: Path, arguments: str) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals="allow", never_run=NEVER) as app:
        session_id = await app.create_session()
        app.model.steps = [tool_call_step("shell", arguments), text_step("Done.")]
        sent = await app.send(session_id, "Go")
        assert sent.run_id is not None
        await app.wait_for_run(sent.run_id, "completed")
        assert tool.run_arguments == []
        message = app.model.requests[1].messages[-1]
        assert isinstance(message, ToolMessage)
        assert message_text(message.parts[-1:]).endswith(
            " to be checked against the list of commands that are never run."
        )
        [answer] = [fact for fact in await facts_of(app, sent.run_id) if isinstance(fact, f.ApprovalResolved)]
        assert (answer.decision, answer.by, answer.rule) == ("deny", "policy", "")


async def test_a_call_cannot_be_edited_to_an_uncheckable_command(tmp_path: Path) -> None:
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask", never_run=NEVER) as app:
        run_id, call_id = await start_pending_approval(app)
        with pytest.raises(CommandForbidden):
            await app.engine.resolve(run_id, call_id, "approve", None, ApprovalGrant(arguments=DOUBLED))
        assert (await app.run(run_id)).status == "waiting" and tool.run_arguments == []


async def test_a_longer_denylist_overrides_earlier_approvals(tmp_path: Path) -> None:
    async with running_app(tmp_path, shell(), approvals="ask") as app:
        run_id, call_id = await start_pending_approval(app, "reboot")
        await app.engine.commands.resolve(run_id, call_id, "approve")
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask", never_run=NEVER) as again:
        await again.wait_for_run(run_id, "completed")
        assert tool.run_arguments == []


async def test_a_forbidden_command_is_not_repeated(tmp_path: Path) -> None:
    shell_tool = shell()
    shell_tool.hold = asyncio.Event()
    async with running_app(tmp_path, shell_tool) as app:
        session_id = await app.create_session()
        app.model.steps = [tool_call_step("shell", command("reboot")), text_step("Done.")]
        sent = await app.send(session_id, "Go")
        await shell_tool.started.wait()
    shell_tool = shell()
    async with running_app(tmp_path, shell_tool, never_run=NEVER) as again:
        assert sent.run_id is not None
        await again.wait_for_run(sent.run_id, "waiting")
        [tool] = await again.store.tools(session_id, sent.run_id)
        with pytest.raises(CommandForbidden):
            await again.engine.resolve(sent.run_id, tool.id, "rerun")
        await again.engine.resolve(sent.run_id, tool.id, "skip")
        await again.wait_for_run(sent.run_id, "completed")
        assert shell_tool.run_arguments == []


async def test_an_approval_shows_the_workspace_and_the_sandbox_gaps(tmp_path: Path) -> None:
    cautions = ("It can read your files.",)
    async with running_app(tmp_path, shell(), approvals="ask", cautions=cautions) as app:
        run_id, _ = await start_pending_approval(app)
        [question] = [fact for fact in await facts_of(app, run_id) if isinstance(fact, f.ApprovalRequested)]
        session_id, _ = await app.store.run(run_id)
        assert question.reason.startswith("It works in ") and session_id in question.reason
        assert question.reason.endswith(" It can read your files.")


async def test_a_waiting_run_holds_no_lease_or_task_and_asks_once(tmp_path: Path) -> None:
    async with running_app(tmp_path, shell(), approvals="ask") as app:
        run_id, _ = await start_pending_approval(app)
        lease = await app.store.claim(run_id, 1000)
        assert lease.was_free and app.engine.runner.running == 0
        await app.store.release(lease)
        session_id, _ = await app.store.run(run_id)
        head = await app.store.head(session_id)
        for _ in range(3):
            await app.engine.recovery.sweep()
        assert await app.store.head(session_id) == head
    async with running_app(tmp_path, shell(), approvals="ask") as again:
        for _ in range(3):
            await again.engine.recovery.sweep()
        assert await again.store.head(session_id) == head, "a restart adds nothing"


async def test_waiting_runs_cost_a_sweep_only_their_row(tmp_path: Path) -> None:
    """However many runs wait, a sweep writes nothing, claims nothing and makes the same few reads."""
    async with running_app(tmp_path, shell(), approvals="ask", started=False) as app:
        counted: list[int] = []
        for count in (1, 40):
            while len(await app.store.open_runs()) < count:
                await start_pending_approval(app)
            seen: list[str] = []
            with _counting(app.store, seen):
                await app.engine.recovery.sweep()
            assert set(seen) <= {"active_runs", "pending_runs"}
            counted.append(len(seen))
            assert await app.store.active_runs() == []
        assert counted[0] == counted[1]


@contextmanager
def _counting(store: SqliteStore, seen: list[str]) -> Iterator[None]:
    """Record the calls of a store."""

    def noting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            seen.append(name)
            return real(*args, **kwargs)

        return call

    names = (
        "active_runs",
        "open_runs",
        "pending_runs",
        "append",
        "claim",
        "release",
        "session",
        "run",
        "tools",
        "read",
    )
    for name in names:
        setattr(store, name, noting(name, getattr(store, name)))
    try:
        yield
    finally:
        for name in names:
            delattr(store, name)


async def test_turns_behind_a_question_are_answered_after_it(tmp_path: Path) -> None:
    """A message to a waiting run is its answer: the question is closed, and nothing runs."""
    tool = shell()
    async with running_app(tmp_path, tool, approvals="ask") as app:
        session_id = await app.create_session()
        run_id, call_id = await start_pending_approval(app, "ls", session_id)
        app.model.steps = [text_step("All right.")]
        sent = await app.send(session_id, "Never mind")
        await app.wait_for_run(sent.run_id, "completed")
        with pytest.raises(ToolRefused):
            await app.engine.resolve(run_id, call_id, "approve")
        assert tool.run_arguments == [] and (await app.run(run_id)).is_finished


async def test_calls_of_one_message_are_asked_about_together_and_run_in_order(tmp_path: Path) -> None:
    shell_tool = shell()
    async with running_app(tmp_path, shell_tool, approvals="ask", never_run=NEVER) as app:
        await app.engine.permissions.add("shell", "ls")
        session_id = await app.create_session()
        texts = ("rm a", "ls", "reboot", "rm b")
        step = [line for text in texts for line in tool_call_step("shell", command(text))[:1]]
        indexed = [msgspec.structs.replace(line, index=i) for i, line in enumerate(step)]  # type: ignore[type-var]
        app.model.steps = [[*indexed, *tool_call_step("shell")[1:]], text_step("Done.")]
        sent = await app.send(session_id, "Go")
        assert sent.run_id is not None
        await app.wait_for_run(sent.run_id, "waiting")
        tools = await app.store.tools(session_id, sent.run_id)
        assert [tool.approval for tool in tools] == ["requested", "", "", "requested"]
        await app.engine.resolve(sent.run_id, tools[3].id, "approve")
        assert (await app.run(sent.run_id)).status == "waiting" and shell_tool.run_arguments == []
        await app.engine.resolve(sent.run_id, tools[0].id, "approve")
        await app.wait_for_run(sent.run_id, "completed")
        assert shell_tool.run_arguments == [command(text) for text in ("rm a", "ls", "rm b")]

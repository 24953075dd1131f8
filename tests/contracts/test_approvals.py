"""A person is asked once, answers once, and what was allowed runs at most once, as it was allowed."""

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
from holdfast.domain.errors import HoldfastError, NeverRun, RuleRefused, TooLarge, ToolRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import text_of
from holdfast.domain.ids import CallId, RunId, SessionId
from holdfast.domain.limits import ARGUMENTS_BYTES_MAX
from holdfast.domain.shell.rules import Allowing
from holdfast.store.sqlite.store import SqliteStore
from tests.support.in_process_app import House, Lever, calls, house, says

NEVER = ("reboot *",)


def command(text: str) -> str:
    return msgspec.json.encode({"command": text}).decode()


async def asked(here: House, text: str = "ls", session_id: SessionId | None = None) -> tuple[RunId, CallId]:
    """A command that a person is asked about."""
    session_id = session_id or await here.begin()
    here.model.steps = [calls("shell", command(text)), says("Done.")]
    sent = await here.say(session_id, "Go")
    assert sent.run_id is not None
    await here.until_run(sent.run_id, "waiting")
    await at_rest(here)
    [tool] = await here.store.tools(session_id, sent.run_id)
    assert tool.approval == "requested"
    return sent.run_id, tool.id


async def at_rest(here: House) -> None:
    async def is_so() -> bool:
        return here.engine.runner.at_work == 0

    await here.until(is_so, "rest")


async def facts_of(here: House, run_id: RunId) -> list[f.AnyFact]:
    session_id, _ = await here.store.run(run_id)
    return [event.fact for event in await here.store.read(session_id, 0, 1000)]  # type: ignore[misc]


async def ledger(here: House, run_id: RunId) -> list[str]:
    found = [type(fact).__name__ for fact in await facts_of(here, run_id)]
    return [name for name in found if name.startswith(("Tool", "Approval")) and not name.endswith("Appended")]


def told(here: House) -> str:
    """What the model was told of its last call."""
    [message] = [each for each in here.model.requests[-1].messages if isinstance(each, ToolMessage)][-1:]
    return "\n".join(text_of((part,)) for part in message.parts)


def shell() -> Lever:
    return Lever("shell", "unsafe")


async def test_an_allowed_call_runs_once(tmp_path: Path) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="ask") as here:
        run_id, call_id = await asked(here)
        assert lever.pulled == []
        await here.engine.resolve(run_id, call_id, "approve")
        await here.until_run(run_id, "completed")
        assert lever.pulled == [command("ls")]
        assert await ledger(here, run_id) == [
            "ToolIntended", "ApprovalRequested", "ApprovalResolved", "ToolStarted", "ToolSettled"
        ]  # fmt: skip


async def test_a_denied_call_does_not_run_and_the_model_reads_why(tmp_path: Path) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="ask") as here:
        run_id, call_id = await asked(here)
        await here.engine.resolve(run_id, call_id, "deny", "Not on a Friday.")
        await here.until_run(run_id, "completed")
        assert lever.pulled == [] and told(here) == f"{context.DENIED}\nNot on a Friday."


async def test_a_changed_call_runs_as_it_was_changed_and_everyone_is_told(tmp_path: Path) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="ask") as here:
        run_id, call_id = await asked(here, "rm a")
        await here.engine.resolve(run_id, call_id, "approve", None, Allowing(arguments=command("rm b")))
        await here.until_run(run_id, "completed")
        assert lever.pulled == [command("rm b")]
        assert told(here).startswith(context.EDITED + command("rm b"))
        session_id, _ = await here.store.run(run_id)
        [entry] = [each for each in await here.entries(session_id) if each.role == "tool"]
        assert (entry.arguments, entry.outcome) == (command("rm b"), "done")
        [settled] = [fact for fact in await facts_of(here, run_id) if isinstance(fact, f.ToolSettled)]
        assert settled.arguments == command("rm b")


async def test_a_change_that_changes_nothing_is_an_ordinary_yes(tmp_path: Path) -> None:
    async with house(tmp_path, shell(), approvals="ask") as here:
        run_id, call_id = await asked(here, "ls")
        await here.engine.resolve(run_id, call_id, "approve", None, Allowing(arguments='{ "command": "ls" }'))
        await here.until_run(run_id, "completed")
        assert (await ledger(here, run_id)).count("ToolIntended") == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("{", ToolRefused),
        ("[]", ToolRefused),
        ('{"command": "' + "x" * ARGUMENTS_BYTES_MAX + '"}', TooLarge),
        (command("sudo reboot"), NeverRun),
    ],
)
async def test_a_change_that_cannot_be_leaves_the_question_open(
    tmp_path: Path, arguments: str, error: type[HoldfastError]
) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="ask", never_run=NEVER) as here:
        run_id, call_id = await asked(here)
        with pytest.raises(error):
            await here.engine.resolve(run_id, call_id, "approve", None, Allowing(arguments=arguments))
        assert (await here.run(run_id)).status == "waiting" and lever.pulled == []
        await here.engine.resolve(run_id, call_id, "approve")
        await here.until_run(run_id, "completed")
        assert lever.pulled == [command("ls")]


async def test_a_change_survives_the_end_of_the_process(tmp_path: Path) -> None:
    async with house(tmp_path, shell(), approvals="ask") as here:
        run_id, call_id = await asked(here, "rm a")
        # As if the process had died the moment that the answer was durable.
        await here.engine.verbs.resolve(run_id, call_id, "approve", None, Allowing(arguments=command("rm b")))
    lever = shell()
    async with house(tmp_path, lever, approvals="ask") as again:
        again.model.steps = [says("Done.")]
        await again.until_run(run_id, "completed")
        assert lever.pulled == [command("rm b")]
        assert told(again).startswith(context.EDITED + command("rm b"))
        assert (await ledger(again, run_id)).count("ApprovalRequested") == 1


ANSWERS: Mapping[str, tuple[f.Decision, str | None, Allowing]] = MappingProxyType({
    "yes": ("approve", None, Allowing()),
    "no": ("deny", "no", Allowing()),
    "changed": ("approve", None, Allowing(arguments=command("rm b"))),
    "always": ("approve", None, Allowing("always")),
})  # fmt: skip


@pytest.mark.parametrize("pair", list(itertools.combinations_with_replacement(ANSWERS, 2)), ids="-".join)
async def test_of_two_answers_at_once_one_counts(tmp_path: Path, pair: tuple[str, str]) -> None:
    """From two engines that share the store, as two browsers at two servers would be."""
    lever = shell()
    async with (
        house(tmp_path, lever, approvals="ask") as here,
        house(tmp_path, lever, approvals="ask", started=False) as other,
    ):
        run_id, call_id = await asked(here, "rm a")
        await other.engine.start()
        outcomes = await asyncio.gather(
            here.engine.resolve(run_id, call_id, *ANSWERS[pair[0]]),
            other.engine.resolve(run_id, call_id, *ANSWERS[pair[1]]),
            return_exceptions=True,
        )
        refused = [each for each in outcomes if isinstance(each, ToolRefused)]
        assert len(refused) == 1 and outcomes.count(None) == 1
        winner = pair[outcomes.index(None)]
        await here.until_run(run_id, "completed")
        expected = {"yes": ["rm a"], "always": ["rm a"], "changed": ["rm b"], "no": []}[winner]
        assert lever.pulled == [command(text) for text in expected]
        assert (await ledger(here, run_id)).count("ApprovalResolved") == 1
        for one in (here, other):
            assert len(await one.engine.permissions.rules()) == (winner == "always")


@pytest.mark.parametrize("scope", ["session", "always"])
async def test_what_was_allowed_for_longer_is_not_asked_about_again(tmp_path: Path, scope: f.Scope) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="ask") as here:
        first, second = await here.begin(), await here.begin()
        run_id, call_id = await asked(here, "git status", first)
        await here.engine.resolve(run_id, call_id, "approve", None, Allowing(scope, "git status *"))
        await here.until_run(run_id, "completed")
        here.model.steps = [calls("shell", command("git status -s")), says("Done.")]
        again = await here.say(first, "Again")
        await here.until_run(again.run_id, "completed")
        assert len(lever.pulled) == 2
        assert again.run_id is not None
        resolved = [
            fact for fact in await facts_of(here, again.run_id) if isinstance(fact, f.ApprovalResolved)
        ]
        assert [(each.by, each.scope, each.rule) for each in resolved] == [
            ("user", scope, "git status *"), ("policy", scope, "git status *")
        ]  # fmt: skip
        here.model.steps = [calls("shell", command("git status")), says("Done.")]
        elsewhere = await here.say(second, "And there")
        await here.until_run(elsewhere.run_id, "completed" if scope == "always" else "waiting")
        assert len(lever.pulled) == (3 if scope == "always" else 2)


async def test_a_rule_does_not_reach_what_hides_behind_its_words(tmp_path: Path) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="ask") as here:
        await here.engine.permissions.add("shell", "git status *")
        for text in ("git status && rm x", "git status; rm x", "git status $(rm x)", "git status > x"):
            await asked(here, text)
        assert lever.pulled == []


async def test_a_revoked_rule_counts_from_the_next_call_on(tmp_path: Path) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="ask") as here:
        rule = await here.engine.permissions.add("shell", "ls")
        lever.hold = asyncio.Event()
        session_id = await here.begin()
        here.model.steps = [calls("shell", command("ls")), calls("shell", command("ls")), says("Done.")]
        sent = await here.say(session_id, "Go")
        await lever.started.wait()
        await here.engine.permissions.revoke(rule.id)
        lever.hold.set()
        await here.until_run(sent.run_id, "waiting")
        assert len(lever.pulled) == 1


async def test_a_rule_that_cannot_be_made_leaves_the_question_open(tmp_path: Path) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="ask") as here:
        run_id, call_id = await asked(here, "ls && rm x")
        with pytest.raises(RuleRefused):
            await here.engine.resolve(run_id, call_id, "approve", None, Allowing("always"))
        assert (await here.run(run_id)).status == "waiting" and not await here.engine.permissions.rules()


@pytest.mark.parametrize("approvals", ["ask", "allow"])
@pytest.mark.parametrize("text", ["reboot", "sudo reboot", "ls && reboot now", "sh -c 'reboot'"])
async def test_what_is_never_run_is_not_even_asked_about(tmp_path: Path, approvals: str, text: str) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals=approvals, never_run=NEVER) as here:  # type: ignore[arg-type]
        await here.engine.permissions.add("shell", "reboot *")
        session_id = await here.begin()
        here.model.steps = [calls("shell", command(text)), calls("shell", command("ls")), says("Done.")]
        sent = await here.say(session_id, "Go")
        assert sent.run_id is not None
        run = await here.until_run(sent.run_id, "waiting", "completed")
        assert run.status == ("waiting" if approvals == "ask" else "completed"), (
            "the next call is an ordinary one"
        )
        assert command(text) not in lever.pulled
        requested = [fact for fact in await facts_of(here, run.id) if isinstance(fact, f.ApprovalRequested)]
        assert len(requested) == (approvals == "ask")
        message = here.model.requests[1].messages[-1]
        assert isinstance(message, ToolMessage)
        assert text_of(message.parts[-1:]) == str(NeverRun(pattern="reboot *"))


DOUBLED = '{"command": "true", "command": "reboot"}'


@pytest.mark.parametrize("arguments", [DOUBLED, command("find -exec " * 9000)])
async def test_what_cannot_be_checked_is_not_run_and_the_model_reads_why(
    tmp_path: Path, arguments: str
) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="allow", never_run=NEVER) as here:
        session_id = await here.begin()
        here.model.steps = [calls("shell", arguments), says("Done.")]
        sent = await here.say(session_id, "Go")
        assert sent.run_id is not None
        await here.until_run(sent.run_id, "completed")
        assert lever.pulled == []
        message = here.model.requests[1].messages[-1]
        assert isinstance(message, ToolMessage)
        assert text_of(message.parts[-1:]).endswith(
            " to be checked against the list of commands that are never run."
        )
        [answer] = [
            fact for fact in await facts_of(here, sent.run_id) if isinstance(fact, f.ApprovalResolved)
        ]
        assert (answer.decision, answer.by, answer.rule) == ("deny", "policy", "")


async def test_a_call_is_not_changed_to_what_cannot_be_checked(tmp_path: Path) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="ask", never_run=NEVER) as here:
        run_id, call_id = await asked(here)
        with pytest.raises(NeverRun):
            await here.engine.resolve(run_id, call_id, "approve", None, Allowing(arguments=DOUBLED))
        assert (await here.run(run_id)).status == "waiting" and lever.pulled == []


async def test_a_list_that_grew_holds_for_what_was_allowed_before(tmp_path: Path) -> None:
    async with house(tmp_path, shell(), approvals="ask") as here:
        run_id, call_id = await asked(here, "reboot")
        await here.engine.verbs.resolve(run_id, call_id, "approve")
    lever = shell()
    async with house(tmp_path, lever, approvals="ask", never_run=NEVER) as again:
        await again.until_run(run_id, "completed")
        assert lever.pulled == []


async def test_what_is_never_run_is_not_run_again_either(tmp_path: Path) -> None:
    lever = shell()
    lever.hold = asyncio.Event()
    async with house(tmp_path, lever) as here:
        session_id = await here.begin()
        here.model.steps = [calls("shell", command("reboot")), says("Done.")]
        sent = await here.say(session_id, "Go")
        await lever.started.wait()
    lever = shell()
    async with house(tmp_path, lever, never_run=NEVER) as again:
        assert sent.run_id is not None
        await again.until_run(sent.run_id, "waiting")
        [tool] = await again.store.tools(session_id, sent.run_id)
        with pytest.raises(NeverRun):
            await again.engine.resolve(sent.run_id, tool.id, "rerun")
        await again.engine.resolve(sent.run_id, tool.id, "skip")
        await again.until_run(sent.run_id, "completed")
        assert lever.pulled == []


async def test_whoever_is_asked_reads_where_it_works_and_what_does_not_protect_them(tmp_path: Path) -> None:
    cautions = ("It can read your files.",)
    async with house(tmp_path, shell(), approvals="ask", cautions=cautions) as here:
        run_id, _ = await asked(here)
        [question] = [fact for fact in await facts_of(here, run_id) if isinstance(fact, f.ApprovalRequested)]
        session_id, _ = await here.store.run(run_id)
        assert question.reason.startswith("It works in ") and session_id in question.reason
        assert question.reason.endswith(" It can read your files.")


async def test_waiting_holds_no_lease_and_no_task_and_is_not_asked_again(tmp_path: Path) -> None:
    async with house(tmp_path, shell(), approvals="ask") as here:
        run_id, _ = await asked(here)
        lease = await here.store.claim(run_id, 1000)
        assert lease.was_free and here.engine.runner.at_work == 0
        await here.store.release(lease)
        session_id, _ = await here.store.run(run_id)
        head = await here.store.head(session_id)
        for _ in range(3):
            await here.engine.recovery.sweep()
        assert await here.store.head(session_id) == head
    async with house(tmp_path, shell(), approvals="ask") as again:
        for _ in range(3):
            await again.engine.recovery.sweep()
        assert await again.store.head(session_id) == head, "a restart adds nothing"


async def test_runs_that_wait_cost_a_sweep_nothing_but_their_row(tmp_path: Path) -> None:
    """However many wait, a sweep writes nothing, claims nothing and asks the store the same few questions."""
    async with house(tmp_path, shell(), approvals="ask", started=False) as here:
        counted: list[int] = []
        for count in (1, 40):
            while len(await here.store.open_runs()) < count:
                await asked(here)
            seen: list[str] = []
            with _counting(here.store, seen):
                await here.engine.recovery.sweep()
            assert set(seen) <= {"active_runs", "pending_runs"}
            counted.append(len(seen))
            assert await here.store.active_runs() == []
        assert counted[0] == counted[1]


@contextmanager
def _counting(store: SqliteStore, seen: list[str]) -> Iterator[None]:
    """Notes what is asked of a store."""

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
    """A message to a run that waits is its answer: the question is closed, and nothing runs."""
    lever = shell()
    async with house(tmp_path, lever, approvals="ask") as here:
        session_id = await here.begin()
        run_id, call_id = await asked(here, "ls", session_id)
        here.model.steps = [says("All right.")]
        sent = await here.say(session_id, "Never mind")
        await here.until_run(sent.run_id, "completed")
        with pytest.raises(ToolRefused):
            await here.engine.resolve(run_id, call_id, "approve")
        assert lever.pulled == [] and (await here.run(run_id)).is_over


async def test_calls_of_one_message_are_asked_about_together_and_run_in_order(tmp_path: Path) -> None:
    lever = shell()
    async with house(tmp_path, lever, approvals="ask", never_run=NEVER) as here:
        await here.engine.permissions.add("shell", "ls")
        session_id = await here.begin()
        texts = ("rm a", "ls", "reboot", "rm b")
        step = [line for text in texts for line in calls("shell", command(text))[:1]]
        indexed = [msgspec.structs.replace(line, index=i) for i, line in enumerate(step)]  # type: ignore[type-var]
        here.model.steps = [[*indexed, *calls("shell")[1:]], says("Done.")]
        sent = await here.say(session_id, "Go")
        assert sent.run_id is not None
        await here.until_run(sent.run_id, "waiting")
        tools = await here.store.tools(session_id, sent.run_id)
        assert [tool.approval for tool in tools] == ["requested", "", "", "requested"]
        await here.engine.resolve(sent.run_id, tools[3].id, "approve")
        assert (await here.run(sent.run_id)).status == "waiting" and lever.pulled == []
        await here.engine.resolve(sent.run_id, tools[0].id, "approve")
        await here.until_run(sent.run_id, "completed")
        assert lever.pulled == [command(text) for text in ("rm a", "ls", "rm b")]

"""What is counted, what is cut, and what happens where the provider counts otherwise."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.domain.context import context, fitting
from holdfast.domain.context.context import (
    AssistantMessage,
    ModelProfile,
    Request,
    RequestMessage,
    TokenBudget,
    ToolMessage,
    UserMessage,
    build_request,
    estimate_tokens,
    find_problems,
)
from holdfast.domain.context.tokens import FACTOR_MAX, FACTOR_MIN, messages_tokens, token_factor
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import File, Text, ToolCall
from holdfast.domain.ids import MessageId, RunId, TurnId
from holdfast.domain.transcript.transcript import Transcript, fold
from holdfast.domain.usage import Usage
from holdfast.models.ports import CallDelta, ModelFailure, StepEnd, TextDelta, ToolSpec
from holdfast.models.request_text import tools_tokens
from tests.support.in_memory_session import InMemoryJournal
from tests.support.in_process_app import FakeTool, ScriptedModel, running_app, text_step

PROFILE = ModelProfile("puppet", 8_000, answer_tokens=1_000)
MEGABYTE = "A line of a very long paste. " * 36_000


def accept_turn(journal: InMemoryJournal, turn: int, text: str) -> RunId:
    run_id = RunId(f"r_{turn}")
    journal.append(f.TurnAccepted(TurnId(f"t_{turn}"), turn, MessageId(f"u_{turn}"), (Text(text),), run_id))
    return run_id


def settle_answer(
    journal: InMemoryJournal, turn: int, text: str, weight: tuple[int, ...] = (), model: str = "m"
) -> None:
    settled = f.MessageSettled(
        turn, 1, MessageId(f"m_{turn}"), "assistant", (Text(text),), "", RunId(f"r_{turn}"),
        model=model, weight=weight,
    )  # fmt: skip
    journal.append(settled)


@pytest.mark.parametrize(
    ("text", "at_least"),
    [("0123456789" * 10, 40), ("{}[]();:" * 10, 40), ("🎉" * 10, 20), ("plain words " * 10, 40)],
)
def test_digits_signs_and_pictures_count_for_more_than_words_do(text: str, at_least: int) -> None:
    assert estimate_tokens(text) >= at_least
    assert estimate_tokens(text) >= len(text.encode()) / 3


def test_a_huge_message_is_sent_without_its_middle() -> None:
    journal = InMemoryJournal()
    accept_turn(journal, 1, "BEGIN " + MEGABYTE + " END")
    request = build_request(fold(journal.events), "Be brief.", PROFILE)
    assert find_problems(request) == [] and messages_tokens(request.messages) <= 7_000
    (part,) = request.messages[0].parts
    assert isinstance(part, Text)
    assert part.text.startswith("BEGIN") and part.text.endswith("END") and "are left out here" in part.text


def test_a_huge_message_of_an_earlier_turn_does_not_drive_out_what_came_before() -> None:
    journal = InMemoryJournal()
    for turn, text in enumerate(("remember the blue door", MEGABYTE, "which door?"), 1):
        accept_turn(journal, turn, text)
        if turn < 3:
            settle_answer(journal, turn, "Noted.")
    request = build_request(fold(journal.events), "", PROFILE)
    assert request.cut_turns == () and request.tokens == messages_tokens(request.messages) <= 7_000
    assert request.messages[0] == UserMessage((Text("remember the blue door"),))


def tool_rounds(count: int, output: str) -> list[RequestMessage]:
    block: list[RequestMessage] = [UserMessage((Text("do it"),))]
    for n in range(count):
        block.append(AssistantMessage((ToolCall(f"c{n}", "shell", '{"command": "ls"}'),)))
        block.append(ToolMessage(f"c{n}", (Text(f"{n}: {output}"),)))
    return block


def test_of_many_long_outputs_the_newest_are_whole_and_the_oldest_go_first() -> None:
    block = tool_rounds(40, "word " * 400)
    kept = fitting.fit_messages(block, 5_000)
    assert messages_tokens(kept) <= 5_000 and find_problems(Request("", tuple(_joined(kept)))) == []
    assert kept[-1] == block[-1] and kept[0] == block[0]
    texts = [part.text for message in kept for part in message.parts if isinstance(part, Text)]
    assert any("earlier steps of the answer" in text for text in texts)
    # One that only just fits is left as it is.
    assert fitting.fit_messages(block, messages_tokens(block)) is block


def _joined(messages: list[RequestMessage]) -> list[RequestMessage]:
    return context._merge_neighbours(messages, PROFILE)


def test_parts_that_cannot_be_truncated_are_left_out() -> None:
    call = ToolCall("c", "write_file", '{"text": "' + "x" * 100_000 + '"}')
    paper = File("b" * 8, "paper.txt", "text/plain", 900_000)
    block: list[RequestMessage] = [
        UserMessage((paper, Text("keep this"))),
        AssistantMessage((call,)),
        ToolMessage("c", (Text("done"),)),
    ]
    kept = fitting.fit_messages(block, 1_000)
    assert find_problems(Request("", tuple(kept))) == [] and messages_tokens(kept) <= 1_000
    assert Text(fitting.FILE_LEFT_OUT.format(name="paper.txt")) in kept[0].parts
    assert kept[1].parts == (replace(call, arguments=fitting.CALL_LEFT_OUT),)


@given(st.text(), st.integers(0, 400))
def test_a_shortened_text_is_never_longer_than_asked_for_but_for_its_note(text: str, tokens: int) -> None:
    short = fitting.truncate_middle(text, tokens)
    assert short == text or estimate_tokens(short) <= tokens + estimate_tokens(fitting.LEFT_OUT) + 8


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4_000)), max_size=20), st.integers(0, 4_000))
def test_a_turn_always_fits_and_stays_a_valid_request(steps: list[tuple[int, int]], room: int) -> None:
    block: list[RequestMessage] = [UserMessage((Text("ask"),))]
    for n, (count, size) in enumerate(steps):
        made = [ToolCall(f"c{n}_{i}", "shell", "{}") for i in range(count)]
        block.append(AssistantMessage((Text("words " + "w" * size), *made)))
        block += [ToolMessage(call.call_id, (Text("out " + "o" * size),)) for call in made]
    kept = fitting.fit_messages(block, room)
    assert find_problems(Request("", tuple(_joined(kept)))) == []
    # One step with all its calls is the least that there is.
    assert messages_tokens(kept) <= max(room, fitting.LEAST_TOKENS) + 500


def test_the_provider_s_own_count_makes_more_room_or_less() -> None:
    journal = InMemoryJournal()
    for turn in range(1, 81):
        accept_turn(journal, turn, "some words " * 40)
        settle_answer(journal, turn, "Noted.", (10_000, 6_000) if turn == 80 else ())
    accept_turn(journal, 81, "and?")
    transcript = fold(journal.events)
    factor = token_factor(transcript, "m")
    assert factor == pytest.approx(7_000 / 11_000) and token_factor(transcript, "another") == 1.0
    plain = build_request(transcript, "", PROFILE)
    cut = len(plain.cut_turns)
    assert 0 < len(build_request(transcript, "", PROFILE, TokenBudget(factor=factor)).cut_turns) < cut
    assert len(build_request(transcript, "", PROFILE, TokenBudget(factor=2.0)).cut_turns) > cut
    assert len(build_request(transcript, "", PROFILE, TokenBudget(tools_tokens=3_000)).cut_turns) > cut


@pytest.mark.parametrize(
    ("weight", "factor"),
    [
        ((10**6, 1), FACTOR_MIN),
        ((1, 10**6), FACTOR_MAX),
        ((1, 10**400), FACTOR_MAX),
        ((10**400, 1), FACTOR_MIN),
        ((-5, 5), 1.0),
    ],
)
def test_a_count_that_cannot_be_right_is_believed_only_so_far(weight: tuple[int, int], factor: float) -> None:
    journal = InMemoryJournal()
    accept_turn(journal, 1, "x")
    settle_answer(journal, 1, "y", weight)
    assert token_factor(fold(journal.events), "m") == factor
    assert token_factor(Transcript(), "m") == 1.0


MATTERS = "Please delete the folder build, but never touch the folder photos: it is the only copy. " * 4


@pytest.mark.parametrize(
    "gauge", [TokenBudget(2_600, FACTOR_MAX), TokenBudget(5_500, 1.0, 0.3), TokenBudget(6_000, 3.0, 0.5)]
)
def test_a_short_newest_message_is_never_truncated(gauge: TokenBudget) -> None:
    journal = InMemoryJournal()
    for turn in range(1, 30):
        accept_turn(journal, turn, "some words " * 40)
        settle_answer(journal, turn, "Noted.")
    accept_turn(journal, 30, MATTERS)
    transcript = fold(journal.events)
    for made in (
        transcript,
        replace(transcript, compactions=(f.SessionCompacted(((1, 20),), "so " * 9_000),)),
    ):
        request = build_request(made, "Be brief.", PROFILE, gauge)
        assert request.messages[-1].parts[-1] == Text(MATTERS)
        assert messages_tokens(request.messages) <= PROFILE.window_tokens // 4


def test_tools_that_fill_the_window_are_reported() -> None:
    assert TokenBudget(5_700).overflow_message(PROFILE, "Be brief.") == ""
    # Whatever was counted before: less can be true, more may be a lie.
    assert TokenBudget(2_600, FACTOR_MAX, 0.1).overflow_message(PROFILE, "Be brief.") == ""
    assert TokenBudget(6_000, 0.5).overflow_message(PROFILE, "Be brief.") == ""
    why = TokenBudget(6_000).overflow_message(PROFILE, "Be brief.")
    assert "take 6,004 of the 8,000 tokens" in why and "fewer tools" in why and "larger window" in why
    assert TokenBudget().overflow_message(PROFILE, "long " * 9_000)


async def test_a_run_fails_clearly_where_its_tools_leave_no_room_for_what_is_said(tmp_path: Path) -> None:
    tools = [FakeTool(f"lever_{n}", "pure") for n in range(110)]
    async with running_app(tmp_path, *tools) as app:
        app.model.profile = ModelProfile("puppet", 4_000, answer_tokens=1_000)
        session_id = await app.create_session()
        sent = await app.send(session_id, MATTERS)
        run = await app.wait_for_run(sent.run_id, "failed", "completed")
        assert run.failure is not None and run.failure.code == "model_failed"
        assert "fewer tools" in run.failure.detail and app.model.requests == []
        app.model.profile, app.model.steps = ModelProfile("puppet", 100_000), [text_step("ok")]
        sent = await app.send(session_id, "now?")
        await app.wait_for_run(sent.run_id, "completed")


async def test_where_they_leave_no_room_in_the_first_window_a_larger_one_answers_instead(
    tmp_path: Path,
) -> None:
    tools = [FakeTool(f"lever_{n}", "pure") for n in range(110)]
    large = ScriptedModel()
    large.name = "large"
    async with running_app(tmp_path, *tools, fallbacks=[large]) as app:
        app.model.profile = ModelProfile("puppet", 4_000, answer_tokens=1_000)
        session_id = await app.create_session()
        for text in ("word " * 3_000, MATTERS):
            sent = await app.send(session_id, text)
            await app.wait_for_run(sent.run_id, "completed")
        assert app.model.requests == [], "it could not have read what was said"
        assert [len(request.messages) for request in large.requests] == [1, 3], "it is made for who reads it"
        assert large.requests[-1].messages[-1].parts == (Text(MATTERS),)


async def test_an_implausible_token_count_does_not_break_the_conversation(tmp_path: Path) -> None:
    async with running_app(tmp_path, *[FakeTool(f"lever_{n}", "pure") for n in range(30)]) as app:
        app.model.profile = PROFILE
        session_id = await app.create_session()
        for text in ("one", "two", MATTERS):
            app.model.steps = [[TextDelta("ok"), StepEnd("stop", Usage(10**400, -5))]]
            sent = await app.send(session_id, text)
            await app.wait_for_run(sent.run_id, "completed")
            assert app.model.requests[-1].messages[-1].parts[-1] == Text(text)


def too_long() -> ModelFailure:
    return ModelFailure(detail="context_length_exceeded", retryable=False, too_long=True)


async def test_a_request_too_long_for_the_provider_is_halved_once_and_recorded(
    tmp_path: Path,
) -> None:
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        for _ in range(5):
            app.model.steps = [text_step("ok")]
            sent = await app.send(session_id, "some words " * 200)
            await app.wait_for_run(sent.run_id, "completed")
        app.model.steps = [[too_long()], text_step("now")]
        sent = await app.send(session_id, "again")
        await app.wait_for_run(sent.run_id, "completed")
        first, second = app.model.requests[-2:]
        assert len(second.cut_turns) > len(first.cut_turns) == 0
        assert messages_tokens(second.messages) < 0.6 * messages_tokens(first.messages)
        retried = [
            e.fact for e in await app.store.read(session_id, 0, 1000) if e.kind == "model_step_retried"
        ]
        assert [fact.delay_ms for fact in retried] == [0]
        app.model.steps = [[too_long()], [too_long()]]
        sent = await app.send(session_id, "once more")
        run = await app.wait_for_run(sent.run_id, "failed")
        assert run.failure is not None and run.failure.code == "model_failed"


async def test_a_run_remembers_that_it_was_too_long_and_what_was_counted_is_kept(tmp_path: Path) -> None:
    tool = FakeTool("lever", "pure")
    async with running_app(tmp_path, tool) as app:
        session_id = await app.create_session()
        app.model.steps = [text_step("ok")]
        sent = await app.send(session_id, "some words " * 2_000)
        await app.wait_for_run(sent.run_id, "completed")
        last = [TextDelta("done"), StepEnd("stop", Usage(4_321, 1))]
        pulls = [CallDelta(0, "lever", "{}"), StepEnd("tool_calls")]
        app.model.steps = [[too_long()], list(pulls), list(last)]
        sent = await app.send(session_id, "pull")
        await app.wait_for_run(sent.run_id, "completed")
        refused, taken, next_ = (messages_tokens(each.messages) for each in app.model.requests[-3:])
        assert taken < 0.6 * refused and next_ < 0.6 * refused
        entry = (await app.entries(session_id))[-1]
        assert entry.weight[0] > 0 and entry.weight[1] == 4_321


def test_the_place_note_of_a_tool_costs_no_tokens() -> None:
    spec = ToolSpec("look", "Looks.", {"type": "object"})
    assert tools_tokens([spec]) == tools_tokens([replace(spec, place="It is done elsewhere. " * 9)]) > 0
    assert tools_tokens([]) == 0

"""What is counted, what is cut, and what happens where the provider counts otherwise."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.domain.context import context, fitting
from holdfast.domain.context.context import (
    AssistantMessage,
    Gauge,
    Profile,
    Request,
    RequestMessage,
    ToolMessage,
    UserMessage,
    estimate_tokens,
    problems,
    request_of,
)
from holdfast.domain.context.tokens import FACTOR_MAX, FACTOR_MIN, factor_of, tokens_of
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import File, Text, ToolCall
from holdfast.domain.ids import MessageId, RunId, TurnId
from holdfast.domain.transcript.transcript import Transcript, fold
from holdfast.domain.usage import Usage
from holdfast.models.ports import CallDelta, ModelFailure, StepEnd, TextDelta, ToolSpec
from holdfast.models.request_text import tools_tokens
from tests.support.in_memory_session import Journal
from tests.support.in_process_app import Lever, Puppet, house, says

PROFILE = Profile("puppet", 8_000, answer_tokens=1_000)
MEGABYTE = "A line of a very long paste. " * 36_000


def asked(journal: Journal, turn: int, text: str) -> RunId:
    run_id = RunId(f"r_{turn}")
    journal.append(f.TurnAccepted(TurnId(f"t_{turn}"), turn, MessageId(f"u_{turn}"), (Text(text),), run_id))
    return run_id


def told(journal: Journal, turn: int, text: str, weight: tuple[int, ...] = (), model: str = "m") -> None:
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
    journal = Journal()
    asked(journal, 1, "BEGIN " + MEGABYTE + " END")
    request = request_of(fold(journal.events), "Be brief.", PROFILE)
    assert problems(request) == [] and tokens_of(request.messages) <= 7_000
    (part,) = request.messages[0].parts
    assert isinstance(part, Text)
    assert part.text.startswith("BEGIN") and part.text.endswith("END") and "are left out here" in part.text


def test_a_huge_message_of_an_earlier_turn_does_not_drive_out_what_came_before() -> None:
    journal = Journal()
    for turn, text in enumerate(("remember the blue door", MEGABYTE, "which door?"), 1):
        asked(journal, turn, text)
        if turn < 3:
            told(journal, turn, "Noted.")
    request = request_of(fold(journal.events), "", PROFILE)
    assert request.cut_turns == () and request.tokens == tokens_of(request.messages) <= 7_000
    assert request.messages[0] == UserMessage((Text("remember the blue door"),))


def rounds(count: int, output: str) -> list[RequestMessage]:
    block: list[RequestMessage] = [UserMessage((Text("do it"),))]
    for n in range(count):
        block.append(AssistantMessage((ToolCall(f"c{n}", "shell", '{"command": "ls"}'),)))
        block.append(ToolMessage(f"c{n}", (Text(f"{n}: {output}"),)))
    return block


def test_of_many_long_outputs_the_newest_are_whole_and_the_oldest_go_first() -> None:
    block = rounds(40, "word " * 400)
    kept = fitting.fit(block, 5_000)
    assert tokens_of(kept) <= 5_000 and problems(Request("", tuple(_joined(kept)))) == []
    assert kept[-1] == block[-1] and kept[0] == block[0]
    texts = [part.text for message in kept for part in message.parts if isinstance(part, Text)]
    assert any("earlier steps of the answer" in text for text in texts)
    # One that only just fits is left as it is.
    assert fitting.fit(block, tokens_of(block)) is block


def _joined(messages: list[RequestMessage]) -> list[RequestMessage]:
    return context._joined(messages, PROFILE)


def test_what_cannot_be_cut_in_the_middle_is_left_out_whole() -> None:
    call = ToolCall("c", "write_file", '{"text": "' + "x" * 100_000 + '"}')
    paper = File("b" * 8, "paper.txt", "text/plain", 900_000)
    block: list[RequestMessage] = [
        UserMessage((paper, Text("keep this"))),
        AssistantMessage((call,)),
        ToolMessage("c", (Text("done"),)),
    ]
    kept = fitting.fit(block, 1_000)
    assert problems(Request("", tuple(kept))) == [] and tokens_of(kept) <= 1_000
    assert Text(fitting.FILE_LEFT_OUT.format(name="paper.txt")) in kept[0].parts
    assert kept[1].parts == (replace(call, arguments=fitting.CALL_LEFT_OUT),)


@given(st.text(), st.integers(0, 400))
def test_a_shortened_text_is_never_longer_than_asked_for_but_for_its_note(text: str, tokens: int) -> None:
    short = fitting.shortened(text, tokens)
    assert short == text or estimate_tokens(short) <= tokens + estimate_tokens(fitting.LEFT_OUT) + 8


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4_000)), max_size=20), st.integers(0, 4_000))
def test_a_turn_always_fits_and_stays_a_valid_request(steps: list[tuple[int, int]], room: int) -> None:
    block: list[RequestMessage] = [UserMessage((Text("ask"),))]
    for n, (count, size) in enumerate(steps):
        made = [ToolCall(f"c{n}_{i}", "shell", "{}") for i in range(count)]
        block.append(AssistantMessage((Text("words " + "w" * size), *made)))
        block += [ToolMessage(call.call_id, (Text("out " + "o" * size),)) for call in made]
    kept = fitting.fit(block, room)
    assert problems(Request("", tuple(_joined(kept)))) == []
    # One step with all its calls is the least that there is.
    assert tokens_of(kept) <= max(room, fitting.LEAST_TOKENS) + 500


def test_the_provider_s_own_count_makes_more_room_or_less() -> None:
    journal = Journal()
    for turn in range(1, 81):
        asked(journal, turn, "some words " * 40)
        told(journal, turn, "Noted.", (10_000, 6_000) if turn == 80 else ())
    asked(journal, 81, "and?")
    transcript = fold(journal.events)
    factor = factor_of(transcript, "m")
    assert factor == pytest.approx(7_000 / 11_000) and factor_of(transcript, "another") == 1.0
    plain = request_of(transcript, "", PROFILE)
    cut = len(plain.cut_turns)
    assert 0 < len(request_of(transcript, "", PROFILE, Gauge(factor=factor)).cut_turns) < cut
    assert len(request_of(transcript, "", PROFILE, Gauge(factor=2.0)).cut_turns) > cut
    assert len(request_of(transcript, "", PROFILE, Gauge(tools_tokens=3_000)).cut_turns) > cut


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
    journal = Journal()
    asked(journal, 1, "x")
    told(journal, 1, "y", weight)
    assert factor_of(fold(journal.events), "m") == factor
    assert factor_of(Transcript(), "m") == 1.0


MATTERS = "Please delete the folder build, but never touch the folder photos: it is the only copy. " * 4


@pytest.mark.parametrize("gauge", [Gauge(2_600, FACTOR_MAX), Gauge(5_500, 1.0, 0.3), Gauge(6_000, 3.0, 0.5)])
def test_what_was_just_said_is_not_cut_while_it_is_short(gauge: Gauge) -> None:
    journal = Journal()
    for turn in range(1, 30):
        asked(journal, turn, "some words " * 40)
        told(journal, turn, "Noted.")
    asked(journal, 30, MATTERS)
    transcript = fold(journal.events)
    for made in (
        transcript,
        replace(transcript, compactions=(f.SessionCompacted(((1, 20),), "so " * 9_000),)),
    ):
        request = request_of(made, "Be brief.", PROFILE, gauge)
        assert request.messages[-1].parts[-1] == Text(MATTERS)
        assert tokens_of(request.messages) <= PROFILE.window_tokens // 4


def test_tools_that_leave_no_room_are_told_of() -> None:
    assert Gauge(5_700).crowded(PROFILE, "Be brief.") == ""
    # Whatever was counted before: less can be true, more may be a lie.
    assert Gauge(2_600, FACTOR_MAX, 0.1).crowded(PROFILE, "Be brief.") == ""
    assert Gauge(6_000, 0.5).crowded(PROFILE, "Be brief.") == ""
    why = Gauge(6_000).crowded(PROFILE, "Be brief.")
    assert "take 6,004 of the 8,000 tokens" in why and "fewer tools" in why and "larger window" in why
    assert Gauge().crowded(PROFILE, "long " * 9_000)


async def test_a_run_fails_clearly_where_its_tools_leave_no_room_for_what_is_said(tmp_path: Path) -> None:
    levers = [Lever(f"lever_{n}", "pure") for n in range(110)]
    async with house(tmp_path, *levers) as here:
        here.model.profile = Profile("puppet", 4_000, answer_tokens=1_000)
        session_id = await here.begin()
        sent = await here.say(session_id, MATTERS)
        run = await here.until_run(sent.run_id, "failed", "completed")
        assert run.failure is not None and run.failure.code == "model_failed"
        assert "fewer tools" in run.failure.detail and here.model.requests == []
        here.model.profile, here.model.steps = Profile("puppet", 100_000), [says("ok")]
        sent = await here.say(session_id, "now?")
        await here.until_run(sent.run_id, "completed")


async def test_where_they_leave_no_room_in_the_first_window_a_larger_one_answers_instead(
    tmp_path: Path,
) -> None:
    levers = [Lever(f"lever_{n}", "pure") for n in range(110)]
    large = Puppet()
    large.name = "large"
    async with house(tmp_path, *levers, instead=[large]) as here:
        here.model.profile = Profile("puppet", 4_000, answer_tokens=1_000)
        session_id = await here.begin()
        for text in ("word " * 3_000, MATTERS):
            sent = await here.say(session_id, text)
            await here.until_run(sent.run_id, "completed")
        assert here.model.requests == [], "it could not have read what was said"
        assert [len(request.messages) for request in large.requests] == [1, 3], "it is made for who reads it"
        assert large.requests[-1].messages[-1].parts == (Text(MATTERS),)


async def test_a_provider_that_lies_about_its_count_spoils_no_conversation(tmp_path: Path) -> None:
    async with house(tmp_path, *[Lever(f"lever_{n}", "pure") for n in range(30)]) as here:
        here.model.profile = PROFILE
        session_id = await here.begin()
        for text in ("one", "two", MATTERS):
            here.model.steps = [[TextDelta("ok"), StepEnd("stop", Usage(10**400, -5))]]
            sent = await here.say(session_id, text)
            await here.until_run(sent.run_id, "completed")
            assert here.model.requests[-1].messages[-1].parts[-1] == Text(text)


def too_long() -> ModelFailure:
    return ModelFailure(detail="context_length_exceeded", retryable=False, too_long=True)


async def test_what_the_provider_finds_too_long_is_cut_harder_once_and_that_is_written_down(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as here:
        session_id = await here.begin()
        for _ in range(5):
            here.model.steps = [says("ok")]
            sent = await here.say(session_id, "some words " * 200)
            await here.until_run(sent.run_id, "completed")
        here.model.steps = [[too_long()], says("now")]
        sent = await here.say(session_id, "again")
        await here.until_run(sent.run_id, "completed")
        first, second = here.model.requests[-2:]
        assert len(second.cut_turns) > len(first.cut_turns) == 0
        assert tokens_of(second.messages) < 0.6 * tokens_of(first.messages)
        retried = [
            e.fact for e in await here.store.read(session_id, 0, 1000) if e.kind == "model_step_retried"
        ]
        assert [fact.delay_ms for fact in retried] == [0]
        here.model.steps = [[too_long()], [too_long()]]
        sent = await here.say(session_id, "once more")
        run = await here.until_run(sent.run_id, "failed")
        assert run.failure is not None and run.failure.code == "model_failed"


async def test_a_run_remembers_that_it_was_too_long_and_what_was_counted_is_kept(tmp_path: Path) -> None:
    lever = Lever("lever", "pure")
    async with house(tmp_path, lever) as here:
        session_id = await here.begin()
        here.model.steps = [says("ok")]
        sent = await here.say(session_id, "some words " * 2_000)
        await here.until_run(sent.run_id, "completed")
        last = [TextDelta("done"), StepEnd("stop", Usage(4_321, 1))]
        pulls = [CallDelta(0, "lever", "{}"), StepEnd("tool_calls")]
        here.model.steps = [[too_long()], list(pulls), list(last)]
        sent = await here.say(session_id, "pull")
        await here.until_run(sent.run_id, "completed")
        refused, taken, next_ = (tokens_of(each.messages) for each in here.model.requests[-3:])
        assert taken < 0.6 * refused and next_ < 0.6 * refused
        entry = (await here.entries(session_id))[-1]
        assert entry.weight[0] > 0 and entry.weight[1] == 4_321


def test_what_a_tool_says_to_people_alone_is_not_counted() -> None:
    spec = ToolSpec("look", "Looks.", {"type": "object"})
    assert tools_tokens([spec]) == tools_tokens([replace(spec, place="It is done elsewhere. " * 9)]) > 0
    assert tools_tokens([]) == 0

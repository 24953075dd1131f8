"""A run that has used what it may stops before its next step, says so, and goes on when a person lets it."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock, Instant, SystemClock
from holdfast.domain.context.request import ModelProfile
from holdfast.domain.context.tokens import estimate_tokens
from holdfast.domain.decisions import endings, runs, turns
from holdfast.domain.decisions.run_limits import RunLimiter, RunLimits
from holdfast.domain.errors import RunRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import MessageId, RunId, SessionId, TurnId
from holdfast.domain.state.rows import RunRow
from holdfast.domain.transcript.usage_totals import usage_totals
from holdfast.domain.usage import Rate, Usage
from holdfast.models.ports import ModelFailure, StepEnd, TextDelta
from tests.support.in_memory_session import SESSION, InMemoryJournal
from tests.support.in_process_app import AppHarness, FakeTool, running_app, text_step, tool_call_step

RUN = RunId("r_1")


def run_with_usage(steps: int = 0, tokens: int = 0, cost_micros: int = 0, allowances: int = 1) -> RunRow:
    usage = Usage(tokens - tokens // 3, tokens // 3, tokens, cost_micros)
    return RunRow(RUN, 1, steps=steps, usage=usage, allowances=allowances)


@pytest.mark.parametrize(("allowance", "below", "at", "says"), [
    (RunLimits(steps=50), run_with_usage(steps=49), run_with_usage(steps=50), "50 steps"),
    (RunLimits(steps=1), run_with_usage(), run_with_usage(steps=1), "1 step"),
    (RunLimits(steps=2), run_with_usage(steps=3, allowances=2), run_with_usage(steps=4, allowances=2),
        "4 steps"),
    (RunLimits(tokens=2_000_000), run_with_usage(tokens=1_999_999), run_with_usage(tokens=2_000_000),
        "2,000,000 tokens"),
    (RunLimits(cost_micros=5_000_000), run_with_usage(cost_micros=4_999_999),
        run_with_usage(cost_micros=5_000_000),
     "5.00 US dollars"),
    (RunLimits(), run_with_usage(10_000, 10**9, 10**9), None, ""),
])  # fmt: skip
def test_usage_is_compared_with_the_run_limits(
    allowance: RunLimits, below: RunRow, at: RunRow | None, says: str
) -> None:
    stretch = RunLimiter(allowance, FakeClock())
    assert stretch.reached_limit(below) == ""
    assert at is None or stretch.reached_limit(at) == says


@pytest.mark.parametrize(
    ("time_s", "says"), [(3600, "1 hour of work"), (5400, "90 minutes of work"), (61, "61 seconds of work")]
)
def test_time_is_counted_from_when_work_began(time_s: int, says: str) -> None:
    clock = FakeClock()
    stretch = RunLimiter(RunLimits(time_s=time_s), clock)
    clock.advance(time_s * 1000 - 1)
    assert stretch.reached_limit(run_with_usage()) == "" and stretch.remaining_s == pytest.approx(0.001)
    clock.advance(1)
    assert stretch.reached_limit(run_with_usage()) == says
    assert RunLimiter(RunLimits(time_s=time_s), clock).reached_limit(run_with_usage()) == ""
    assert RunLimiter(RunLimits(), clock).remaining_s is None


def test_only_continuing_past_a_limit_grants_another_allowance() -> None:
    journal = InMemoryJournal()
    accepted = f.TurnAccepted(TurnId("t_1"), 1, MessageId("m_1"), (Text("hello"),), RUN)
    journal.append(f.SessionCreated(), accepted, f.RunStarted(RUN))
    journal.append(*runs.wait(journal.run(RUN), "approval"))
    with pytest.raises(RunRefused):
        runs.continue_run(journal.run(RUN))
    journal.append(*runs.answer(journal.run(RUN)))
    journal.append(*endings.interrupt(journal.book, journal.run(RUN), MessageId("m_2")))
    journal.append(*runs.continue_run(journal.run(RUN)))
    assert (journal.run(RUN).allowances, journal.run(RUN).attempts) == (1, 1)
    journal.append(*runs.wait(journal.run(RUN), "limit", "50 steps"))
    assert (journal.run(RUN).waiting, journal.run(RUN).detail) == ("limit", "50 steps")
    assert journal.book.row is not None and journal.book.row.status == "needs_you"
    journal.append(*runs.continue_run(journal.run(RUN)))
    run = journal.run(RUN)
    assert (run.status, run.allowances, run.attempts, run.detail) == ("running", 2, 1, "")


async def test_a_run_stops_before_the_step_that_would_be_one_too_many(tmp_path: Path) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool, allowance=RunLimits(steps=2)) as app:
        app.model.steps = [tool_call_step("pull") for _ in range(5)]
        session = await app.create_session()
        sent = await app.send(session, "Go")
        for times in (1, 2):
            run = await app.wait_for_run(sent.run_id, "waiting")
            assert (run.waiting, run.detail, run.steps) == ("limit", f"{2 * times} steps", 2 * times)
            assert len(tool.run_arguments) == 2 * times, "what the last step asked for is carried out"
            await app.wait_until(lambda: _is_free(app.engine.runner.running))
            await app.engine.resume(run.id)
        await app.wait_for_run(sent.run_id, "completed")
        assert len(app.model.requests) == 6


async def _is_free(at_work: int) -> bool:
    return at_work == 0


async def test_a_run_that_completes_at_its_limit_does_not_wait(tmp_path: Path) -> None:
    async with running_app(tmp_path, FakeTool("pull", "pure"), allowance=RunLimits(steps=2)) as app:
        app.model.steps = [tool_call_step("pull"), text_step("done")]
        sent = await app.send(await app.create_session(), "Go")
        assert (await app.wait_for_run(sent.run_id, "completed", "waiting")).status == "completed"


async def test_tokens_and_money_are_counted_over_the_whole_run(tmp_path: Path) -> None:
    dear = [*tool_call_step("pull")[:-1], StepEnd("tool_calls", Usage(10, 5, 0, 600_000))]
    money = RunLimits(cost_micros=1_200_000)
    for allowance, detail in ((RunLimits(tokens=30), "30 tokens"), (money, "1.20 US dollars")):
        folder = tmp_path / detail
        async with running_app(folder, FakeTool("pull", "pure"), allowance=allowance) as app:
            app.model.steps = [list(dear) for _ in range(5)]
            sent = await app.send(await app.create_session(), "Go")
            run = await app.wait_for_run(sent.run_id, "waiting", "completed")
            assert (run.waiting, run.detail, run.steps) == ("limit", detail, 2)


async def test_negative_counts_do_not_raise_a_limit(tmp_path: Path) -> None:
    first = [*tool_call_step("pull")[:-1], StepEnd("tool_calls", Usage(40, 5))]
    lies = [*tool_call_step("pull")[:-1], StepEnd("tool_calls", Usage(-900, -200))]
    async with running_app(tmp_path, FakeTool("pull", "pure"), allowance=RunLimits(tokens=60)) as app:
        app.model.steps = [list(first), list(lies), *(list(first) for _ in range(3))]
        sent = await app.send(await app.create_session(), "Go")
        run = await app.wait_for_run(sent.run_id, "waiting", "completed")
        assert (run.waiting, run.steps) == ("limit", 2), "what says nothing true is counted here"
        assert run.usage.input_tokens > 40 and run.usage.output_tokens > 5


async def test_a_provider_that_counts_nothing_reaches_the_limit_by_an_estimate_that_says_so(
    tmp_path: Path,
) -> None:
    mute = [*tool_call_step("pull")[:-1], StepEnd("tool_calls")]
    async with running_app(tmp_path, FakeTool("pull", "pure"), allowance=RunLimits(tokens=300)) as app:
        app.model.steps = [list(mute) for _ in range(60)]
        sent = await app.send(await app.create_session(), "Go on until you are told to wait")
        run = await app.wait_for_run(sent.run_id, "waiting", "completed")
        used = run.usage
        assert (run.waiting, run.detail) == ("limit", "300 tokens") and run.steps < 60
        assert used.estimated_tokens == used.input_tokens + used.output_tokens >= 300
        assert used.cost_micros is None, "an estimate has no price"


async def test_what_a_provider_counted_is_not_estimated(tmp_path: Path) -> None:
    half = [*tool_call_step("pull")[:-1], StepEnd("tool_calls", Usage(40, 0))]
    async with running_app(tmp_path, FakeTool("pull", "pure")) as app:
        app.model.steps = [half, text_step("done")]
        sent = await app.send(await app.create_session(), "Go")
        used = (await app.wait_for_run(sent.run_id, "completed")).usage
        assert used.input_tokens == 50
        assert used.estimated_tokens == used.output_tokens - 1 > 0


async def test_a_cut_off_answer_counts_towards_the_token_limit(tmp_path: Path) -> None:
    broken = ModelFailure(detail="it broke off", retryable=True)
    async with running_app(tmp_path, allowance=RunLimits(tokens=300)) as app:
        app.model.steps = [[TextDelta("and on " * 40), broken] for _ in range(4)]
        sent = await app.send(await app.create_session(), "Go on")
        run = await app.wait_for_run(sent.run_id, "waiting", "completed", "failed")
        assert (run.waiting, run.detail) == ("limit", "300 tokens") and run.steps < 4
        used = run.usage
        assert used.estimated_tokens == used.input_tokens + used.output_tokens >= 300
        assert used.output_tokens >= run.steps * estimate_tokens("and on " * 40) > 0


async def test_a_cut_off_answer_counts_towards_the_cost_limit(tmp_path: Path) -> None:
    broken = ModelFailure(detail="it broke off", retryable=True)
    async with running_app(tmp_path, allowance=RunLimits(cost_micros=1_000_000)) as app:
        app.model.profile = ModelProfile("puppet", 100_000, rate=Rate(100.0, 8_000.0))
        app.model.steps = [[TextDelta("and on " * 40), broken] for _ in range(4)]
        sent = await app.send(await app.create_session(), "Go on")
        run = await app.wait_for_run(sent.run_id, "waiting", "completed", "failed")
        assert (run.waiting, run.detail, run.steps) == ("limit", "1.00 US dollars", 2)
        used = run.usage
        assert used.cost_micros == 100 * used.input_tokens + 8_000 * used.output_tokens


async def test_of_a_request_that_was_too_long_only_the_shorter_one_is_counted(tmp_path: Path) -> None:
    too_long = ModelFailure(detail="it is too long", retryable=False, too_long=True)
    async with running_app(tmp_path) as app:
        session = await app.create_session()
        app.model.steps = [text_step("word " * 20_000) for _ in range(4)]
        for _ in range(4):
            await app.wait_for_run((await app.send(session, "More")).run_id, "completed")
        app.model.steps = [[too_long], [TextDelta("Half an answer"), asyncio.Event()]]
        sent = await app.send(session, "Go on")
        await app.wait_until(lambda: _has_said(app, session))
        assert sent.run_id is not None
        await app.engine.cancel(sent.run_id)
        run = await app.wait_for_run(sent.run_id, "cancelled")
        refused, taken = (request.tokens for request in app.model.requests[-2:])
        assert taken < run.usage.input_tokens < refused


async def test_what_was_received_of_a_stopped_answer_is_counted_and_the_request_that_it_answers(
    tmp_path: Path,
) -> None:
    async with running_app(tmp_path) as app:
        app.model.steps = [[TextDelta("Half an answer"), asyncio.Event()], [asyncio.Event()]]
        session = await app.create_session()
        sent = await app.send(session, "Long story " * 50)
        await app.wait_until(lambda: _has_said(app, session))
        assert sent.run_id is not None
        await app.engine.cancel(sent.run_id)
        run = await app.wait_for_run(sent.run_id, "cancelled")
        assert run.usage.output_tokens == estimate_tokens("Half an answer")
        assert run.usage.input_tokens > estimate_tokens("Long story " * 50)
        assert run.usage.estimated_tokens == run.usage.input_tokens + run.usage.output_tokens
        assert (await app.store.session(session)).usage == run.usage
        silent = await app.send(session, "And?")
        await app.wait_until(lambda: _is_asked(app, 2))
        assert silent.run_id is not None
        await app.engine.cancel(silent.run_id)
        assert (await app.wait_for_run(silent.run_id, "cancelled")).usage == Usage(), "nothing came of it"


async def _has_said(app: AppHarness, session: SessionId) -> bool:
    return (await app.entry_texts(session))[-1][2] == "Half an answer"


async def _is_asked(app: AppHarness, times: int) -> bool:
    return len(app.model.requests) == times


async def test_what_a_limit_of_time_cuts_off_is_counted_too(tmp_path: Path) -> None:
    async with running_app(tmp_path, allowance=RunLimits(time_s=1)) as app:
        app.model.steps = [[TextDelta("Once upon a "), asyncio.Event()]]
        sent = await app.send(await app.create_session(), "A story")
        used = (await app.wait_for_run(sent.run_id, "waiting")).usage
        assert used.output_tokens == estimate_tokens("Once upon a ") and used.input_tokens > 0


@pytest.mark.parametrize("way", ["cancel", "fail", "interrupt"])
def test_a_cut_off_run_counts_its_usage_once(way: str) -> None:
    journal, message = InMemoryJournal(), MessageId("m_2")
    accepted = f.TurnAccepted(TurnId("t_1"), 1, MessageId("m_1"), (Text("hello"),), RUN)
    journal.append(f.SessionCreated(), accepted, f.RunStarted(RUN))
    journal.append(runs.begin_step(journal.run(RUN), message, "demo", asked_tokens=30))
    journal.append(f.ReasoningAppended(RUN, message, "Hm"), f.TextAppended(RUN, message, "Half an ans"))
    ends = {
        "cancel": lambda run: endings.cancel(journal.book, run, "user", journal.written),
        "fail": lambda run: endings.fail(journal.book, run, f.Failure("x", "y"), journal.written),
        "interrupt": lambda run: endings.interrupt(journal.book, run, MessageId("m_3"), journal.written),
    }
    journal.append(*ends[way](journal.run(RUN)))
    written = estimate_tokens("Hm") + estimate_tokens("Half an ans")
    counted = Usage(30, written, estimated_tokens=30 + written)
    assert journal.run(RUN).usage == usage_totals(journal.events).runs[RUN] == counted
    if way == "interrupt":
        journal.append(*endings.cancel(journal.book, journal.run(RUN), "user", journal.written))
    assert journal.book.row is not None and journal.book.row.usage == counted


async def test_limits_survive_a_restart_and_a_crash(tmp_path: Path) -> None:
    allowance = RunLimits(steps=3)
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool, allowance=allowance) as app:
        tool.hold = asyncio.Event()
        app.model.steps = [tool_call_step("pull")]
        session = await app.create_session()
        sent = await app.send(session, "Go")
        await tool.started.wait()
    async with running_app(tmp_path, FakeTool("pull", "pure"), allowance=allowance, started=False) as app:
        app.model.steps = [tool_call_step("pull") for _ in range(9)]
        await app.engine.start()
        run = await app.wait_for_run(sent.run_id, "waiting")
        assert (run.steps, len(app.model.requests)) == (3, 2)
    async with running_app(tmp_path, FakeTool("pull", "pure"), allowance=allowance) as app:
        await app.engine.recovery.sweep()
        run = await app.run(sent.run_id)
        assert (run.status, run.detail) == ("waiting", "3 steps")
        assert not app.engine.runner.is_active(run.id)
        await app.store.release(await app.store.claim(run.id, 1000))
        await app.engine.resume(run.id)
        await app.wait_for_run(run.id, "completed")
        assert (await app.run(run.id)).steps == 4


async def test_a_message_to_a_run_at_its_limit_ends_that_run(tmp_path: Path) -> None:
    async with running_app(tmp_path, FakeTool("pull", "pure"), allowance=RunLimits(steps=1)) as app:
        app.model.steps = [tool_call_step("pull"), text_step("Fine")]
        session = await app.create_session()
        first = await app.send(session, "Go")
        await app.wait_for_run(first.run_id, "waiting")
        second = await app.send(session, "Enough", if_busy="steer")
        await app.wait_for_run(second.run_id, "completed")
        run = await app.run(first.run_id)
        assert (run.status, run.waiting, run.detail) == ("cancelled", None, "")


class FastClock(SystemClock):
    """A clock that the test puts forward."""

    ahead_ms = 0

    def now_ms(self) -> Instant:
        return super().now_ms() + self.ahead_ms


async def test_time_is_looked_at_between_steps(tmp_path: Path) -> None:
    clock, tool = FastClock(), FakeTool("pull", "pure")
    async with running_app(tmp_path, tool, clock=clock, allowance=RunLimits(time_s=3600)) as app:
        tool.hold = asyncio.Event()
        app.model.steps = [tool_call_step("pull"), text_step("done")]
        sent = await app.send(await app.create_session(), "Go")
        await tool.started.wait()
        clock.ahead_ms = 3_600_000
        tool.hold.set()
        run = await app.wait_for_run(sent.run_id, "waiting")
        assert run.detail == "1 hour of work"
        await app.engine.resume(run.id)
        await app.wait_for_run(sent.run_id, "completed")


async def test_a_stream_that_never_ends_is_cut_at_the_limit_and_what_it_said_is_kept(tmp_path: Path) -> None:
    async with running_app(tmp_path, allowance=RunLimits(time_s=1)) as app:
        app.model.steps = [[TextDelta("Once upon a "), asyncio.Event()], text_step("time.")]
        session = await app.create_session()
        sent = await app.send(session, "A story")
        run = await app.wait_for_run(sent.run_id, "waiting")
        assert (run.waiting, run.detail) == ("limit", "1 second of work")
        assert (await app.entry_texts(session))[-1] == ("assistant", "interrupted", "Once upon a ")
        await app.engine.resume(run.id)
        await app.wait_for_run(sent.run_id, "completed")
        last = (await app.entries(session))[-1]
        assert last.continues is not None and (await app.entry_texts(session))[-1][2] == "time."


async def test_a_run_at_its_limit_reads_a_steering_message_when_continued(tmp_path: Path) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool, allowance=RunLimits(steps=1)) as app:
        tool.hold = asyncio.Event()
        app.model.steps = [tool_call_step("pull"), text_step("Quickly")]
        session = await app.create_session()
        first = await app.send(session, "Go")
        await tool.started.wait()
        receipt = await app.send(session, "Quick", if_busy="steer")
        tool.hold.set()
        run = await app.wait_for_run(first.run_id, "waiting")
        assert (await app.run(receipt.run_id)).status == "queued"
        await app.engine.resume(run.id)
        await app.wait_for_run(first.run_id, "completed")
        assert [said for role, _, said in await app.entry_texts(session) if role == "user"] == ["Go", "Quick"]
        assert (await app.run(receipt.run_id)).status == "completed"


def test_a_run_at_its_limit_can_be_stopped() -> None:
    journal = InMemoryJournal()
    accepted = f.TurnAccepted(TurnId("t_1"), 1, MessageId("m_1"), (Text("hello"),), RUN)
    journal.append(f.SessionCreated(), accepted, f.RunStarted(RUN), f.RunWaiting(RUN, "limit", "1 step"))
    journal.append(*turns.undo(journal.book, SESSION))
    assert (journal.run(RUN).status, journal.run(RUN).detail) == ("cancelled", "")

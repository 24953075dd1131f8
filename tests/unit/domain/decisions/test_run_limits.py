"""A run that has used what it may stops before its next step, says so, and goes on when a person lets it."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock, Instant, SystemClock
from holdfast.domain.context.request import Profile
from holdfast.domain.context.tokens import estimate_tokens
from holdfast.domain.decisions import endings, runs, turns
from holdfast.domain.decisions.allowance import Allowance, Stretch
from holdfast.domain.errors import RunRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import MessageId, RunId, SessionId, TurnId
from holdfast.domain.state.rows import RunRow
from holdfast.domain.transcript.tally import usage_of
from holdfast.domain.usage import Rate, Usage
from holdfast.models.ports import ModelFailure, StepEnd, TextDelta
from tests.support.in_memory_session import SESSION, Journal
from tests.support.in_process_app import House, Lever, calls, house, says

RUN = RunId("r_1")


def used(steps: int = 0, tokens: int = 0, cost_micros: int = 0, allowances: int = 1) -> RunRow:
    usage = Usage(tokens - tokens // 3, tokens // 3, tokens, cost_micros)
    return RunRow(RUN, 1, steps=steps, usage=usage, allowances=allowances)


@pytest.mark.parametrize(("allowance", "below", "at", "says"), [
    (Allowance(steps=50), used(steps=49), used(steps=50), "50 steps"),
    (Allowance(steps=1), used(), used(steps=1), "1 step"),
    (Allowance(steps=2), used(steps=3, allowances=2), used(steps=4, allowances=2), "4 steps"),
    (Allowance(tokens=2_000_000), used(tokens=1_999_999), used(tokens=2_000_000), "2,000,000 tokens"),
    (Allowance(cost_micros=5_000_000), used(cost_micros=4_999_999), used(cost_micros=5_000_000),
     "5.00 US dollars"),
    (Allowance(), used(10_000, 10**9, 10**9), None, ""),
])  # fmt: skip
def test_what_is_used_is_compared_with_what_may_be(
    allowance: Allowance, below: RunRow, at: RunRow | None, says: str
) -> None:
    stretch = Stretch(allowance, FakeClock())
    assert stretch.reached(below) == ""
    assert at is None or stretch.reached(at) == says


@pytest.mark.parametrize(
    ("time_s", "says"), [(3600, "1 hour of work"), (5400, "90 minutes of work"), (61, "61 seconds of work")]
)
def test_time_is_counted_from_when_work_began(time_s: int, says: str) -> None:
    clock = FakeClock()
    stretch = Stretch(Allowance(time_s=time_s), clock)
    clock.advance(time_s * 1000 - 1)
    assert stretch.reached(used()) == "" and stretch.left_s == pytest.approx(0.001)
    clock.advance(1)
    assert stretch.reached(used()) == says
    assert Stretch(Allowance(time_s=time_s), clock).reached(used()) == ""
    assert Stretch(Allowance(), clock).left_s is None


def test_only_to_go_on_past_a_limit_is_another_allowance() -> None:
    journal = Journal()
    accepted = f.TurnAccepted(TurnId("t_1"), 1, MessageId("m_1"), (Text("hello"),), RUN)
    journal.append(f.SessionCreated(), accepted, f.RunStarted(RUN))
    journal.append(*runs.wait(journal.run(RUN), "approval"))
    with pytest.raises(RunRefused):
        runs.go_on(journal.run(RUN))
    journal.append(*runs.answer(journal.run(RUN)))
    journal.append(*endings.interrupt(journal.book, journal.run(RUN), MessageId("m_2")))
    journal.append(*runs.go_on(journal.run(RUN)))
    assert (journal.run(RUN).allowances, journal.run(RUN).attempts) == (1, 1)
    journal.append(*runs.wait(journal.run(RUN), "limit", "50 steps"))
    assert (journal.run(RUN).waiting, journal.run(RUN).detail) == ("limit", "50 steps")
    assert journal.book.row is not None and journal.book.row.status == "needs_you"
    journal.append(*runs.go_on(journal.run(RUN)))
    run = journal.run(RUN)
    assert (run.status, run.allowances, run.attempts, run.detail) == ("running", 2, 1, "")


async def test_a_run_stops_before_the_step_that_would_be_one_too_many(tmp_path: Path) -> None:
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever, allowance=Allowance(steps=2)) as here:
        here.model.steps = [calls("pull") for _ in range(5)]
        session = await here.begin()
        sent = await here.say(session, "Go")
        for times in (1, 2):
            run = await here.until_run(sent.run_id, "waiting")
            assert (run.waiting, run.detail, run.steps) == ("limit", f"{2 * times} steps", 2 * times)
            assert len(lever.pulled) == 2 * times, "what the last step asked for is carried out"
            await here.until(lambda: _is_free(here.engine.runner.at_work))
            await here.engine.resume(run.id)
        await here.until_run(sent.run_id, "completed")
        assert len(here.model.requests) == 6


async def _is_free(at_work: int) -> bool:
    return at_work == 0


async def test_a_run_that_ends_with_its_last_step_has_reached_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, Lever("pull", "pure"), allowance=Allowance(steps=2)) as here:
        here.model.steps = [calls("pull"), says("done")]
        sent = await here.say(await here.begin(), "Go")
        assert (await here.until_run(sent.run_id, "completed", "waiting")).status == "completed"


async def test_tokens_and_money_are_counted_over_the_whole_run(tmp_path: Path) -> None:
    dear = [*calls("pull")[:-1], StepEnd("tool_calls", Usage(10, 5, 0, 600_000))]
    money = Allowance(cost_micros=1_200_000)
    for allowance, detail in ((Allowance(tokens=30), "30 tokens"), (money, "1.20 US dollars")):
        folder = tmp_path / detail
        async with house(folder, Lever("pull", "pure"), allowance=allowance) as here:
            here.model.steps = [list(dear) for _ in range(5)]
            sent = await here.say(await here.begin(), "Go")
            run = await here.until_run(sent.run_id, "waiting", "completed")
            assert (run.waiting, run.detail, run.steps) == ("limit", detail, 2)


async def test_counts_below_nothing_do_not_lift_a_limit(tmp_path: Path) -> None:
    first = [*calls("pull")[:-1], StepEnd("tool_calls", Usage(40, 5))]
    lies = [*calls("pull")[:-1], StepEnd("tool_calls", Usage(-900, -200))]
    async with house(tmp_path, Lever("pull", "pure"), allowance=Allowance(tokens=60)) as here:
        here.model.steps = [list(first), list(lies), *(list(first) for _ in range(3))]
        sent = await here.say(await here.begin(), "Go")
        run = await here.until_run(sent.run_id, "waiting", "completed")
        assert (run.waiting, run.steps) == ("limit", 2), "what says nothing true is counted here"
        assert run.usage.input_tokens > 40 and run.usage.output_tokens > 5


async def test_a_provider_that_counts_nothing_reaches_the_limit_by_an_estimate_that_says_so(
    tmp_path: Path,
) -> None:
    mute = [*calls("pull")[:-1], StepEnd("tool_calls")]
    async with house(tmp_path, Lever("pull", "pure"), allowance=Allowance(tokens=300)) as here:
        here.model.steps = [list(mute) for _ in range(60)]
        sent = await here.say(await here.begin(), "Go on until you are told to wait")
        run = await here.until_run(sent.run_id, "waiting", "completed")
        used = run.usage
        assert (run.waiting, run.detail) == ("limit", "300 tokens") and run.steps < 60
        assert used.estimated_tokens == used.input_tokens + used.output_tokens >= 300
        assert used.cost_micros is None, "an estimate has no price"


async def test_what_a_provider_counted_is_not_estimated(tmp_path: Path) -> None:
    half = [*calls("pull")[:-1], StepEnd("tool_calls", Usage(40, 0))]
    async with house(tmp_path, Lever("pull", "pure")) as here:
        here.model.steps = [half, says("done")]
        sent = await here.say(await here.begin(), "Go")
        used = (await here.until_run(sent.run_id, "completed")).usage
        assert used.input_tokens == 50
        assert used.estimated_tokens == used.output_tokens - 1 > 0


async def test_answers_that_the_network_cuts_off_reach_the_limit_by_what_came_of_them(tmp_path: Path) -> None:
    broken = ModelFailure(detail="it broke off", retryable=True)
    async with house(tmp_path, allowance=Allowance(tokens=300)) as here:
        here.model.steps = [[TextDelta("and on " * 40), broken] for _ in range(4)]
        sent = await here.say(await here.begin(), "Go on")
        run = await here.until_run(sent.run_id, "waiting", "completed", "failed")
        assert (run.waiting, run.detail) == ("limit", "300 tokens") and run.steps < 4
        used = run.usage
        assert used.estimated_tokens == used.input_tokens + used.output_tokens >= 300
        assert used.output_tokens >= run.steps * estimate_tokens("and on " * 40) > 0


async def test_and_the_limit_of_money_where_the_model_has_a_price(tmp_path: Path) -> None:
    broken = ModelFailure(detail="it broke off", retryable=True)
    async with house(tmp_path, allowance=Allowance(cost_micros=1_000_000)) as here:
        here.model.profile = Profile("puppet", 100_000, rate=Rate(100.0, 8_000.0))
        here.model.steps = [[TextDelta("and on " * 40), broken] for _ in range(4)]
        sent = await here.say(await here.begin(), "Go on")
        run = await here.until_run(sent.run_id, "waiting", "completed", "failed")
        assert (run.waiting, run.detail, run.steps) == ("limit", "1.00 US dollars", 2)
        used = run.usage
        assert used.cost_micros == 100 * used.input_tokens + 8_000 * used.output_tokens


async def test_of_a_request_that_was_too_long_only_the_shorter_one_is_counted(tmp_path: Path) -> None:
    too_long = ModelFailure(detail="it is too long", retryable=False, too_long=True)
    async with house(tmp_path) as here:
        session = await here.begin()
        here.model.steps = [says("word " * 20_000) for _ in range(4)]
        for _ in range(4):
            await here.until_run((await here.say(session, "More")).run_id, "completed")
        here.model.steps = [[too_long], [TextDelta("Half an answer"), asyncio.Event()]]
        sent = await here.say(session, "Go on")
        await here.until(lambda: _has_said(here, session))
        assert sent.run_id is not None
        await here.engine.cancel(sent.run_id)
        run = await here.until_run(sent.run_id, "cancelled")
        refused, taken = (request.tokens for request in here.model.requests[-2:])
        assert taken < run.usage.input_tokens < refused


async def test_what_was_received_of_a_stopped_answer_is_counted_and_the_request_that_it_answers(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as here:
        here.model.steps = [[TextDelta("Half an answer"), asyncio.Event()], [asyncio.Event()]]
        session = await here.begin()
        sent = await here.say(session, "Long story " * 50)
        await here.until(lambda: _has_said(here, session))
        assert sent.run_id is not None
        await here.engine.cancel(sent.run_id)
        run = await here.until_run(sent.run_id, "cancelled")
        assert run.usage.output_tokens == estimate_tokens("Half an answer")
        assert run.usage.input_tokens > estimate_tokens("Long story " * 50)
        assert run.usage.estimated_tokens == run.usage.input_tokens + run.usage.output_tokens
        assert (await here.store.session(session)).usage == run.usage
        silent = await here.say(session, "And?")
        await here.until(lambda: _is_asked(here, 2))
        assert silent.run_id is not None
        await here.engine.cancel(silent.run_id)
        assert (await here.until_run(silent.run_id, "cancelled")).usage == Usage(), "nothing came of it"


async def _has_said(here: House, session: SessionId) -> bool:
    return (await here.text(session))[-1][2] == "Half an answer"


async def _is_asked(here: House, times: int) -> bool:
    return len(here.model.requests) == times


async def test_what_a_limit_of_time_cuts_off_is_counted_too(tmp_path: Path) -> None:
    async with house(tmp_path, allowance=Allowance(time_s=1)) as here:
        here.model.steps = [[TextDelta("Once upon a "), asyncio.Event()]]
        sent = await here.say(await here.begin(), "A story")
        used = (await here.until_run(sent.run_id, "waiting")).usage
        assert used.output_tokens == estimate_tokens("Once upon a ") and used.input_tokens > 0


@pytest.mark.parametrize("way", ["cancel", "fail", "interrupt"])
def test_however_a_run_is_cut_off_what_it_had_received_is_counted_once(way: str) -> None:
    journal, message = Journal(), MessageId("m_2")
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
    assert journal.run(RUN).usage == usage_of(journal.events).runs[RUN] == counted
    if way == "interrupt":
        journal.append(*endings.cancel(journal.book, journal.run(RUN), "user", journal.written))
    assert journal.book.row is not None and journal.book.row.usage == counted


async def test_a_limit_survives_a_restart_and_a_crash_gives_nothing_back(tmp_path: Path) -> None:
    allowance = Allowance(steps=3)
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever, allowance=allowance) as here:
        lever.hold = asyncio.Event()
        here.model.steps = [calls("pull")]
        session = await here.begin()
        sent = await here.say(session, "Go")
        await lever.started.wait()
    async with house(tmp_path, Lever("pull", "pure"), allowance=allowance, started=False) as here:
        here.model.steps = [calls("pull") for _ in range(9)]
        await here.engine.start()
        run = await here.until_run(sent.run_id, "waiting")
        assert (run.steps, len(here.model.requests)) == (3, 2)
    async with house(tmp_path, Lever("pull", "pure"), allowance=allowance) as here:
        await here.engine.recovery.sweep()
        run = await here.run(sent.run_id)
        assert (run.status, run.detail) == ("waiting", "3 steps")
        assert not here.engine.runner.is_at_work(run.id)
        await here.store.release(await here.store.claim(run.id, 1000))
        await here.engine.resume(run.id)
        await here.until_run(run.id, "completed")
        assert (await here.run(run.id)).steps == 4


async def test_a_message_to_a_run_at_its_limit_ends_that_run(tmp_path: Path) -> None:
    async with house(tmp_path, Lever("pull", "pure"), allowance=Allowance(steps=1)) as here:
        here.model.steps = [calls("pull"), says("Fine")]
        session = await here.begin()
        first = await here.say(session, "Go")
        await here.until_run(first.run_id, "waiting")
        second = await here.say(session, "Enough", if_busy="steer")
        await here.until_run(second.run_id, "completed")
        run = await here.run(first.run_id)
        assert (run.status, run.waiting, run.detail) == ("cancelled", None, "")


class Hurried(SystemClock):
    """A clock that the test puts forward."""

    ahead_ms = 0

    def now_ms(self) -> Instant:
        return super().now_ms() + self.ahead_ms


async def test_time_is_looked_at_between_steps(tmp_path: Path) -> None:
    clock, lever = Hurried(), Lever("pull", "pure")
    async with house(tmp_path, lever, clock=clock, allowance=Allowance(time_s=3600)) as here:
        lever.hold = asyncio.Event()
        here.model.steps = [calls("pull"), says("done")]
        sent = await here.say(await here.begin(), "Go")
        await lever.started.wait()
        clock.ahead_ms = 3_600_000
        lever.hold.set()
        run = await here.until_run(sent.run_id, "waiting")
        assert run.detail == "1 hour of work"
        await here.engine.resume(run.id)
        await here.until_run(sent.run_id, "completed")


async def test_a_stream_that_never_ends_is_cut_at_the_limit_and_what_it_said_is_kept(tmp_path: Path) -> None:
    async with house(tmp_path, allowance=Allowance(time_s=1)) as here:
        here.model.steps = [[TextDelta("Once upon a "), asyncio.Event()], says("time.")]
        session = await here.begin()
        sent = await here.say(session, "A story")
        run = await here.until_run(sent.run_id, "waiting")
        assert (run.waiting, run.detail) == ("limit", "1 second of work")
        assert (await here.text(session))[-1] == ("assistant", "interrupted", "Once upon a ")
        await here.engine.resume(run.id)
        await here.until_run(sent.run_id, "completed")
        last = (await here.entries(session))[-1]
        assert last.continues is not None and (await here.text(session))[-1][2] == "time."


async def test_a_message_for_a_run_that_reached_its_limit_is_told_when_it_goes_on(tmp_path: Path) -> None:
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever, allowance=Allowance(steps=1)) as here:
        lever.hold = asyncio.Event()
        here.model.steps = [calls("pull"), says("Quickly")]
        session = await here.begin()
        first = await here.say(session, "Go")
        await lever.started.wait()
        told = await here.say(session, "Quick", if_busy="steer")
        lever.hold.set()
        run = await here.until_run(first.run_id, "waiting")
        assert (await here.run(told.run_id)).status == "queued"
        await here.engine.resume(run.id)
        await here.until_run(first.run_id, "completed")
        assert [said for role, _, said in await here.text(session) if role == "user"] == ["Go", "Quick"]
        assert (await here.run(told.run_id)).status == "completed"


def test_a_run_at_its_limit_can_be_stopped() -> None:
    journal = Journal()
    accepted = f.TurnAccepted(TurnId("t_1"), 1, MessageId("m_1"), (Text("hello"),), RUN)
    journal.append(f.SessionCreated(), accepted, f.RunStarted(RUN), f.RunWaiting(RUN, "limit", "1 step"))
    journal.append(*turns.undo(journal.book, SESSION))
    assert (journal.run(RUN).status, journal.run(RUN).detail) == ("cancelled", "")

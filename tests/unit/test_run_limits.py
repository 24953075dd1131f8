"""A run that has used what it may stops before its next step, says so, and goes on when a person lets it."""

import asyncio
from pathlib import Path

import pytest

from holdfast.agent.ports import StepEnd, TextDelta
from holdfast.domain import endings, runs, turns
from holdfast.domain import facts as f
from holdfast.domain.allowance import Allowance, Stretch
from holdfast.domain.clock import FakeClock, Instant, SystemClock
from holdfast.domain.errors import RunRefused
from holdfast.domain.ids import MessageId, RunId, TurnId
from holdfast.domain.parts import Text
from holdfast.domain.rows import RunRow
from holdfast.domain.usage import Usage
from tests.house import Lever, calls, house, says
from tests.journal import SESSION, Journal

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

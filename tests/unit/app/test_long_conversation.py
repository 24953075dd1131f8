"""Two thousand turns against a window of 32,000 tokens: never too much, and no more work late than early."""

from pathlib import Path

from holdfast.domain.ids import SessionId
from holdfast.store.ports import MessagePage
from tests.support.in_process_app import AppHarness, running_app
from tests.support.small_window_model import ANSWER, USER_TEXT, WINDOW, SmallWindowModel, run_turn
from tests.support.summarising_model import install_model

TURNS = 2_000


async def test_two_thousand_turns_fit_the_window_at_constant_cost(
    tmp_path: Path,
) -> None:
    async with running_app(tmp_path, summarise_above=0.7, durability="normal") as app:
        model = SmallWindowModel()
        install_model(app, model)
        session_id = await app.create_session()
        held: list[int] = []
        for n in range(TURNS):
            await run_turn(app, session_id, USER_TEXT.format(n=n))
            # How many turns a summary is behind is for the machine to say, and is not what is measured.
            await app.engine.summaries.wait_idle(session_id)
            held.append(app.contexts.size_bytes)
        assert len(model.counted) == TURNS and model.rejections == 0
        assert max(model.counted) + ANSWER <= WINDOW
        # What is sent and what is held are bounded, and late turns have no more of either than early ones.
        early, late = slice(100, 300), slice(TURNS - 200, TURNS)
        assert max(model.counted[late]) <= 1.1 * max(model.counted[early])
        assert max(held[late]) <= 1.1 * max(held[early])
        assert 20 < model.summaries < TURNS / 10
    async with running_app(tmp_path) as app:
        model = SmallWindowModel()
        install_model(app, model)
        read = count_reads(app)
        await run_turn(app, session_id, "Go on.")
        # A server that has just started reads what the summary does not stand for, and no more.
        assert sum(read) < 10 * WINDOW and model.counted[0] + ANSWER <= WINDOW


def count_reads(app: AppHarness) -> list[int]:
    """How many bytes of messages are read from the store, page by page."""
    read: list[int] = []
    pages = app.store.messages

    async def messages(session_id: SessionId, before: str | None, limit: int) -> MessagePage:
        page = await pages(session_id, before, limit)
        read.append(sum(len(event.body) for message in page.messages for event in message.events))
        return page

    app.store.messages = messages  # type: ignore[method-assign]
    return read

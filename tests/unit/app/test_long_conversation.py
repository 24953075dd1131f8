"""Two thousand turns against a window of 32,000 tokens: never too much, and no more work late than early."""

from pathlib import Path

from holdfast.domain.ids import SessionId
from holdfast.store.ports import MessagePage
from tests.support.in_process_app import House, house
from tests.support.small_window_model import ANSWER, SAID, WINDOW, Narrow, turn
from tests.support.summarising_model import put_in_place

TURNS = 2_000


async def test_two_thousand_turns_are_never_too_much_for_the_window_and_cost_the_same_each(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, summarise_above=0.7, durability="normal") as here:
        model = Narrow()
        put_in_place(here, model)
        session_id = await here.begin()
        held: list[int] = []
        for n in range(TURNS):
            await turn(here, session_id, SAID.format(n=n))
            # How many turns a summary is behind is for the machine to say, and is not what is measured.
            await here.engine.summaries.settled(session_id)
            held.append(here.contexts.size_bytes)
        assert len(model.counted) == TURNS and model.refused == 0
        assert max(model.counted) + ANSWER <= WINDOW
        # What is sent and what is held are bounded, and late turns have no more of either than early ones.
        early, late = slice(100, 300), slice(TURNS - 200, TURNS)
        assert max(model.counted[late]) <= 1.1 * max(model.counted[early])
        assert max(held[late]) <= 1.1 * max(held[early])
        assert 20 < model.summed_up < TURNS / 10
    async with house(tmp_path) as here:
        model = Narrow()
        put_in_place(here, model)
        read = count_reads(here)
        await turn(here, session_id, "Go on.")
        # A server that has just started reads what the summary does not stand for, and no more.
        assert sum(read) < 10 * WINDOW and model.counted[0] + ANSWER <= WINDOW


def count_reads(here: House) -> list[int]:
    """How many bytes of messages are read from the store, page by page."""
    read: list[int] = []
    pages = here.store.messages

    async def messages(session_id: SessionId, before: str | None, limit: int) -> MessagePage:
        page = await pages(session_id, before, limit)
        read.append(sum(len(event.body) for message in page.messages for event in message.events))
        return page

    here.store.messages = messages  # type: ignore[method-assign]
    return read

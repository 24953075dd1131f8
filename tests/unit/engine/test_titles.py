"""Titles that nobody chose."""

from pathlib import Path

from holdfast.domain.transcript.labels import shortened
from tests.support.in_process_app import Lever, calls, house, says


async def test_a_title_is_what_the_person_said_first_whatever_came_after(tmp_path: Path) -> None:
    async with house(tmp_path, Lever("lever", "pure")) as here:
        session_id = await here.begin()
        here.model.steps = [[*calls("lever")], [*calls("lever")], says("It is down.")]
        sent = await here.say(session_id, "Pull the lever twice, please\nand say so")
        await here.until_run(sent.run_id, "completed")

        async def is_named() -> bool:
            return bool((await here.store.session(session_id)).title)

        await here.until(is_named)
        assert (await here.store.session(session_id)).title == "Pull the lever twice, please"


def test_a_long_line_is_cut_at_the_end_of_a_word() -> None:
    assert shortened("one two three four", 12) == "one two…"
    assert shortened("\n  short  \nnext", 12) == "short"

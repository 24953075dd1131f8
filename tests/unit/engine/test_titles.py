"""Titles that nobody chose."""

from pathlib import Path

from holdfast.domain.transcript.labels import truncate_line
from tests.support.in_process_app import FakeTool, running_app, text_step, tool_call_step


async def test_a_fallback_title_is_the_first_user_message(tmp_path: Path) -> None:
    async with running_app(tmp_path, FakeTool("lever", "pure")) as app:
        session_id = await app.create_session()
        app.model.steps = [[*tool_call_step("lever")], [*tool_call_step("lever")], text_step("It is down.")]
        sent = await app.send(session_id, "Pull the lever twice, please\nand say so")
        await app.wait_for_run(sent.run_id, "completed")

        async def is_named() -> bool:
            return bool((await app.store.session(session_id)).title)

        await app.wait_until(is_named)
        assert (await app.store.session(session_id)).title == "Pull the lever twice, please"


def test_a_long_line_is_cut_at_the_end_of_a_word() -> None:
    assert truncate_line("one two three four", 12) == "one two…"
    assert truncate_line("\n  short  \nnext", 12) == "short"

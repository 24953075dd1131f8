"""`holdfast chat` with files, in a real terminal."""

import json
from pathlib import Path

from tests.acceptance.conftest import environ_of, living_in
from tests.support.api_client import Speaker, speaking
from tests.support.sample_files import png
from tests.support.tmux_terminal import PROMPT, READY, terminal


def test_an_image_goes_to_an_unknown_model_only_where_that_was_said(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "cat.png").write_bytes(png())
    with speaking(Speaker(sees=None)) as unknown, living_in(tmp_path, **environ_of(unknown)) as home:
        home.serve("--port", "0")
        for more, seen in ((), "is not known to take images"), (("--anyway",), "^  what is in @cat.png"):
            with terminal(home.environ, here, "chat", *more) as screen:
                screen.until(READY, PROMPT)
                screen.type("what is in @cat.png")
                screen.until(seen)
            assert ("image_url" in json.dumps(unknown.asked)) == bool(more)

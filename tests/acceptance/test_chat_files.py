"""`holdfast chat` with files, in a real terminal."""

import json
from pathlib import Path

from tests.acceptance.conftest import cli_in, environ_for
from tests.support.api_client import ScriptedModelServer, scripted_model_server
from tests.support.sample_files import png
from tests.support.tmux_terminal import PROMPT, READY, terminal


def test_images_are_sent_to_an_unknown_model_only_with_anyway(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "cat.png").write_bytes(png())
    with (
        scripted_model_server(ScriptedModelServer(lists_images=None)) as unknown,
        cli_in(tmp_path, **environ_for(unknown)) as home,
    ):
        home.serve("--port", "0")
        for more, seen in ((), "is not known to take images"), (("--anyway",), "^  what is in @cat.png"):
            with terminal(home.environ, here, "chat", *more) as screen:
                screen.wait_for_text(READY, PROMPT)
                screen.type("what is in @cat.png")
                screen.wait_for_text(seen)
            assert ("image_url" in json.dumps(unknown.requests)) == bool(more)

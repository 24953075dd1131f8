"""Draw the picture of the terminal for the documentation: `python -m tools.terminal_picture`.

It shows a real chat in a real terminal; only the model's answers are scripted.
"""

import os
import re
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.support.api_client import scripted_model_server
from tests.support.tmux_terminal import Terminal

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "terminal.svg"
COLUMNS, ROWS = 88, 44
READY, KEYS = "· ready", r"\[a\] allow"
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def capture_terminal(folder: Path) -> str:
    """Return the screen after a short conversation, with the terminal's own codes."""
    here = folder / "project"
    here.mkdir()
    (here / "notes.txt").write_text("Look at the third file first.\n")
    with scripted_model_server() as speaker:
        model = {"OPENAI_BASE_URL": speaker.url, "HOLDFAST_MODEL": "openai:small"}
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
        screen = Terminal(kept | model | {"HOLDFAST_DATA": str(folder / "kept")}, here, COLUMNS, ROWS)
        try:
            screen.start("chat")
            screen.wait_for_text(READY)
            screen.type("run echo first.py second.py third.py")
            screen.wait_for_text(KEYS)
            screen.press("a")
            screen.wait_for_text("It said", READY)
            screen.type("Read @notes.txt and write up what is wrong with the three files")
            screen.wait_for_text("Nothing else was changed", READY)
            screen.type("run git commit -am 'Mend the factor'")
            screen.wait_for_text(KEYS, "needs you")
            return screen.screen(styled=True)
        finally:
            screen.close()


def draw_screen(screen: str) -> str:
    """Return the screen as SVG that needs no font to be fetched."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), legacy_windows=False)
    console.print(Text.from_ansi(screen.rstrip("\n")), soft_wrap=True)
    svg = console.export_svg(title="holdfast chat", theme=MONOKAI, unique_id="terminal")
    return _FONT_FACE.sub("", svg).replace("Fira Code, monospace", "ui-monospace, Menlo, monospace")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(draw_screen(capture_terminal(Path(folder))), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

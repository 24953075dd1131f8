"""Long output: its beginning and end are shown, all of it is kept and can be read, within bounds."""

import tracemalloc
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.clock import FakeClock
from holdfast.domain.context.context import ToolMessage
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import UnknownFact
from holdfast.domain.events.parts import File, Text
from holdfast.domain.events.stream_fold import output_digest
from holdfast.domain.ids import CallId, SessionId
from holdfast.domain.limits import (
    OUTPUT_HEAD_BYTES_MAX,
    OUTPUT_KEPT_BYTES_MAX,
    OUTPUT_TAIL_BYTES_MAX,
    PRUNE_AFTER_MS,
    RESULT_BYTES_MAX,
)
from holdfast.domain.secrets import SecretMask
from holdfast.models.ports import ToolSpec
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.masking import masked_tools
from holdfast.tools.output import OutputBuffer
from holdfast.tools.ports import Tool, ToolResult, ToolRun
from tests.support.in_process_app import AppHarness, running_app, text_step, tool_call_step

CALL = CallId("c_0123456789abcdef")
SHOWN = OUTPUT_HEAD_BYTES_MAX + OUTPUT_TAIL_BYTES_MAX
LONG = "seq 1 60000"
WHOLE = "".join(f"{n}\n" for n in range(1, 60001)) + "exit code 0\n"


class EmittedText:
    """Takes what is shown."""

    def __init__(self) -> None:
        self.text = ""

    def emit(self, text: str, stream: str) -> None:
        self.text += text


def test_output_within_the_limit_is_shown_unchanged() -> None:
    ear = EmittedText()
    outpour = OutputBuffer(ear.emit, CALL)
    for _ in range(SHOWN // 100):
        outpour.write("x" * 100, "stdout")
    assert outpour.finish() is None
    assert ear.text == "x" * SHOWN


@given(st.lists(st.sampled_from(["ä" * 3_000, "€" * 7_001, "z" * 30_000, "\n", "🙂"]), max_size=30))
@settings(max_examples=60, deadline=None)
def test_long_output_shows_head_and_tail_and_is_stored_whole(pieces: list[str]) -> None:
    ear, text = EmittedText(), "".join(pieces)
    outpour = OutputBuffer(ear.emit, CALL)
    for piece in pieces:
        outpour.write(piece, "stdout")
    whole = outpour.finish()
    if whole is None:
        assert ear.text == text and len(text.encode()) <= SHOWN
        return
    assert whole == text.encode()
    head, _, rest = ear.text.partition("[")
    note, _, tail = rest.partition("]\n")
    assert text.startswith(head.rstrip("\n")) and text.endswith(tail)
    assert "\ufffd" not in ear.text and f"output:{CALL}" in note
    assert len(head.encode()) > OUTPUT_HEAD_BYTES_MAX - 5 and len(tail.encode()) > OUTPUT_TAIL_BYTES_MAX - 5
    left_out = int(note.split()[0].replace(",", ""))
    # A line end of ours may stand between the beginning and the note.
    assert len(whole) - len(head.encode()) - len(tail.encode()) in (left_out, left_out - 1)


def test_buffered_output_is_bounded() -> None:
    ear = EmittedText()
    outpour, piece = OutputBuffer(ear.emit, CALL), "0123456789abcde\n" * 4_096
    tracemalloc.start()
    for _ in range(1_000):
        outpour.write(piece, "stdout")
    whole = outpour.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    total = 1_000 * len(piece)
    assert peak < 4 * OUTPUT_KEPT_BYTES_MAX
    assert whole is not None and whole.endswith(piece[-OUTPUT_TAIL_BYTES_MAX:].encode())
    lost = total - OUTPUT_KEPT_BYTES_MAX - OUTPUT_TAIL_BYTES_MAX
    assert f"\n[{lost:,} bytes were not kept]\n".encode() in whole
    assert f"[{total - SHOWN:,} bytes left out;" in ear.text


def masked_builtin_tools(folder: Path, mask: SecretMask | None = None) -> tuple[Tool, ...]:
    return masked_tools(builtin_tools(folder), mask or SecretMask(()))


async def run_tool(
    app: AppHarness, session_id: SessionId, tool: str, arguments: str
) -> list[f.AnyFact | UnknownFact]:
    """What the journal says after the model has called a tool and was told what came of it."""
    app.model.steps += [tool_call_step(tool, arguments), text_step("So it is.")]
    sent = await app.send(session_id, "Do it.")
    await app.wait_for_run(sent.run_id, "completed")
    return [event.fact for event in await app.store.read(session_id, 0, 1000)]


def settled_in(facts: list[f.AnyFact | UnknownFact]) -> f.ToolSettled:
    return [fact for fact in facts if isinstance(fact, f.ToolSettled)][-1]


async def test_long_command_output_is_stored_and_readable_by_the_model(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path), clock=clock) as app:
        session_id = await app.create_session()
        facts = await run_tool(app, session_id, "shell", f'{{"command": "{LONG}"}}')
        settled = settled_in(facts)
        text, file = settled.parts
        assert isinstance(text, Text) and isinstance(file, File)
        assert text.text.startswith("1\n2\n") and text.text.endswith("60000\nexit code 0\n")
        assert (file.media_type, file.size_bytes) == ("text/plain", len(WHOLE))
        assert await app.store.get_blob(file.blob) == WHOLE.encode()

        deltas = [fact for fact in facts if isinstance(fact, f.ToolOutputAppended)]
        assert settled.digest == output_digest(deltas, settled.call_id), "the digest is that of the stream"
        shown = app.model.requests[-1].messages[-1]
        assert isinstance(shown, ToolMessage) and shown.parts == (text,), "the model is not sent the file"

        path = f"output:{settled.call_id}"
        facts = await run_tool(app, session_id, "read_file", f'{{"path": "{path}", "offset_lines": 30000}}')
        (read,) = settled_in(facts).parts
        assert isinstance(read, Text) and read.text.split("\n", 2)[1] == "30001"

        other = await app.create_session()
        facts = await run_tool(app, other, "read_file", f'{{"path": "{path}"}}')
        assert settled_in(facts).outcome == "failed", "another conversation cannot read it"

        clock.advance(PRUNE_AFTER_MS + 1)
        swept = await app.store.sweep()
        assert swept.deltas > 0 and swept.mismatched == 0
        assert await app.store.get_blob(file.blob) == WHOLE.encode()


async def test_a_secret_in_left_out_output_is_not_stored(tmp_path: Path) -> None:
    mask = SecretMask(("hunter2-hunter2-hunter2",))
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path, mask)) as app:
        session_id = await app.create_session()
        command = "seq 1 20000; printf 'hunter2-hunter2'; sleep 0.05; echo -hunter2; seq 1 20000"
        settled = settled_in(await run_tool(app, session_id, "shell", f'{{"command": "{command}"}}'))
        (file,) = [part for part in settled.parts if isinstance(part, File)]
        content = await app.store.get_blob(file.blob)
    assert b"hunter2-hunter2-hunter2" not in content and len(content) > 2 * 100_000


class PrintingTool:
    """A tool whose result is long."""

    spec = ToolSpec("talk", "Talks.", {"type": "object"})
    effect: f.Effect = "pure"
    needs_approval = False

    def __init__(self, text: str) -> None:
        self._text = text

    async def run(self, call: ToolRun) -> ToolResult:
        return ToolResult("done", (Text(self._text),))

    def validate(self, arguments: str) -> str:
        return ""

    async def is_finished(self, call_id: CallId) -> bool:
        return True


async def test_an_oversized_result_is_shown_in_part_and_stored_whole(tmp_path: Path) -> None:
    text = "".join(f"{n} äöü\n" for n in range(20_000))
    assert len(text.encode()) > RESULT_BYTES_MAX
    async with running_app(tmp_path, extra_tools=(PrintingTool(text),)) as app:
        session_id = await app.create_session()
        settled = settled_in(await run_tool(app, session_id, "talk", "{}"))
        shown, file = settled.parts
        assert isinstance(shown, Text) and isinstance(file, File)
        assert len(shown.text.encode()) < SHOWN + 200 and "bytes left out" in shown.text
        assert shown.text.startswith("0 äöü\n") and shown.text.endswith("19999 äöü\n")
        assert await app.store.get_blob(file.blob) == text.encode()

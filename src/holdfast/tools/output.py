"""Show the beginning and the end of long output, and store the whole as a file.

The beginning streams as it arrives, the end when the call is over. Until then a bounded buffer holds the
rest. A server that crashes meanwhile loses only output that it had not shown.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal

from holdfast.domain.events.parts import AnyPart, File, Text, message_text
from holdfast.domain.files import TEXT, output_name
from holdfast.domain.ids import CallId
from holdfast.domain.limits import (
    OUTPUT_HEAD_BYTES_MAX,
    OUTPUT_KEPT_BYTES_MAX,
    OUTPUT_TAIL_BYTES_MAX,
    RESULT_BYTES_MAX,
)
from holdfast.tools.ports import Emit

Stream = Literal["stdout", "stderr"]
OUTPUT_PREFIX = "output:"
"""Prefix of a call's id in place of a path: `read_file` then reads that call's output."""
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


class OutputBuffer:
    """Buffer one call's output on its way to `emit`."""

    def __init__(self, emit: Emit, call_id: CallId) -> None:
        self._emit = emit
        self._call_id = call_id
        self._head_room = OUTPUT_HEAD_BYTES_MAX
        self._stored = bytearray()
        self._not_stored_bytes = 0
        self._tail: deque[tuple[bytes, Stream]] = deque()
        self._tail_bytes = self._left_out = 0
        self._at_line_start = True

    def write(self, text: str, stream: Stream) -> None:
        """Take the next piece, at a cost that does not grow with the output."""
        body = text.encode("utf-8", "replace")
        room = OUTPUT_KEPT_BYTES_MAX - len(self._stored)
        self._stored += body[:room]
        self._not_stored_bytes += max(0, len(body) - room)
        if self._head_room:
            now = body if len(body) <= self._head_room else trim_partial_character(body[: self._head_room])
            body = body[len(now) :]
            self._head_room = 0 if body else self._head_room - len(now)
            self._emit_text(now, stream)
        if body:
            self._buffer_tail(body, stream)

    def finish(self) -> bytes | None:
        """Emit the end, and return the whole output if a part of it was left out."""
        whole = None
        if self._left_out:
            tail = b"".join(body for body, _ in self._tail)
            whole = self._join_whole(tail)
            self._emit_text(self._left_out_note(), "stdout")
        while self._tail:
            self._emit_text(*self._tail.popleft())
        return whole

    def _buffer_tail(self, body: bytes, stream: Stream) -> None:
        self._tail.append((body, stream))
        self._tail_bytes += len(body)
        while self._tail_bytes > OUTPUT_TAIL_BYTES_MAX:
            first, its_stream = self._tail.popleft()
            over = self._tail_bytes - OUTPUT_TAIL_BYTES_MAX
            rest = first[over:].lstrip(_CONTINUATION_BYTES) if over < len(first) else b""
            self._left_out += len(first) - len(rest)
            self._tail_bytes -= len(first) - len(rest)
            if rest:
                self._tail.appendleft((rest, its_stream))

    def _join_whole(self, tail: bytes) -> bytes:
        if not self._not_stored_bytes:
            return bytes(self._stored)
        rest = tail[max(0, len(tail) - self._not_stored_bytes) :]  # The tail may overlap the stored bytes.
        lost = self._not_stored_bytes - len(rest)
        note = f"\n[{lost:,} bytes were not kept]\n".encode() if lost else b""
        return bytes(self._stored) + note + rest

    def _left_out_note(self) -> bytes:
        note = left_out_note(self._left_out, self._call_id)
        return (note if self._at_line_start else f"\n{note}").encode()

    def _emit_text(self, body: bytes, stream: Stream) -> None:
        if body:
            self._at_line_start = body.endswith(b"\n")
            self._emit(body.decode("utf-8", "replace"), stream)


_FILE_BYTES_MAX = OUTPUT_KEPT_BYTES_MAX + OUTPUT_TAIL_BYTES_MAX + 1_000


def left_out_note(count: int, call_id: CallId) -> str:
    return f"[{count:,} bytes left out; read_file with the path {OUTPUT_PREFIX}{call_id} reads them]\n"


def trim_partial_character(body: bytes) -> bytes:
    """Remove an incomplete UTF-8 character at the end."""
    for back in range(1, min(4, len(body)) + 1):
        first = body[-back]
        if first & 0xC0 != 0x80:
            length = 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)
            return body[:-back] if back < length else body
    return body


def _head_and_tail(text: bytes, call_id: CallId) -> str:
    head = trim_partial_character(text[:OUTPUT_HEAD_BYTES_MAX])
    tail = text[-OUTPUT_TAIL_BYTES_MAX:].lstrip(_CONTINUATION_BYTES)
    note = left_out_note(len(text) - len(head) - len(tail), call_id)
    return f"{head.decode('utf-8', 'replace')}\n{note}{tail.decode('utf-8', 'replace')}"


async def stored_parts(
    keep: Callable[[bytes], Awaitable[str]],
    call_id: CallId,
    parts: tuple[AnyPart, ...],
    whole: bytes | None,
) -> tuple[AnyPart, ...]:
    """Return a result's parts for the store; `whole`, which `parts` abridges, becomes a file.

    So does the text of a result that is too long. Raises StoreFault.
    """
    text = message_text(parts).encode("utf-8", "replace")
    if len(text) > RESULT_BYTES_MAX:
        whole = whole or text
        others = tuple(part for part in parts if not isinstance(part, Text))
        parts = (Text(_head_and_tail(text, call_id)), *others)
    if whole is None:
        return parts
    stored = trim_partial_character(whole[:OUTPUT_KEPT_BYTES_MAX]) if len(whole) > _FILE_BYTES_MAX else whole
    blob = await keep(stored)
    return (*parts, File(blob, output_name(call_id), TEXT, len(stored)))

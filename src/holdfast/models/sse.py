"""Parse server-sent events incrementally: any split of the bytes gives the same events.

Only `data` is returned. The wire protocols of models repeat an event's name inside its data, and no client
resumes a model's stream by `id` or `retry`.
"""

from collections.abc import Iterable, Iterator

DATA_BYTES_MAX = 8_000_000
"""Limit of one event's data, and of one line. Some models send whole images; nothing is larger."""

_BOM = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """The stream holds an event longer than DATA_BYTES_MAX."""


class SseParser:
    """Parse one stream: bytes in, the data of complete events out."""

    def __init__(self, data_bytes_max: int = DATA_BYTES_MAX) -> None:
        self._bytes_max = data_bytes_max
        self._line = bytearray()
        self._data_lines: list[bytes] = []
        self._data_bytes = 0
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> Iterable[bytes]:
        """Return the data of each event that `chunk` completes. Exhaust it before the next call.

        Raises EventTooLong after the events before the long one. The stream cannot be parsed any further.
        """
        data = self._single_event(chunk)
        return (data,) if data is not None else self._feed(chunk)

    def _single_event(self, chunk: bytes) -> bytes | None:
        """Return the data of a chunk that is exactly one event, as nearly every token is; None for others."""
        if (
            not self._started
            or self._line
            or self._data_lines
            or self._after_cr
            or not chunk.endswith(b"\n\n")
        ):
            return None
        start = 0 if chunk.startswith(b"data: ") else chunk.find(b"\n") + 1
        if start and not (chunk.startswith(b"event: ") and chunk.startswith(b"data: ", start)):
            return None
        data = chunk[start + 6 : -2]
        if b"\n" in data or b"\r" in chunk or len(data) >= self._bytes_max:
            return None
        return data

    def _feed(self, chunk: bytes) -> Iterator[bytes]:
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return
        if b"\n" not in chunk and b"\r" not in chunk:
            # Extended in place, because a long line may come in many pieces and must not be copied for each.
            self._line += chunk
            self._check_size(len(self._line))
            return
        if self._line:
            chunk = bytes(self._line) + chunk
            self._line.clear()
        # For bytes, splitlines splits at exactly the line ends of the specification.
        lines = chunk.splitlines()
        if not chunk.endswith((b"\n", b"\r")):
            self._line += lines.pop()
        self._after_cr = chunk.endswith(b"\r")
        for line in lines:
            if line:
                self._handle_line(line)
            elif self._data_lines:
                yield self._take_data()
        self._check_size(len(self._line))

    def end(self) -> bytes:
        """Return the data of an event that the stream ended without its blank line.

        The specification drops that data. Some servers leave out the last blank line, so a caller may use it
        if it turns out to be complete.
        """
        if self._line:
            line = bytes(self._line)
            self._line.clear()
            self._handle_line(line)
        return self._take_data() if self._data_lines else b""

    def _handle_line(self, line: bytes) -> None:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if line.startswith(b"data: "):
            value = line[6:]
        elif line.startswith(b"data:"):
            value = line[5:]
        elif line == b"data":
            value = b""
        else:
            self._check_size(len(line))
            return
        self._data_lines.append(value)
        self._data_bytes += len(value) + 1
        self._check_size(self._data_bytes)

    def _take_data(self) -> bytes:
        lines = self._data_lines
        data = lines[0] if len(lines) == 1 else b"\n".join(lines)
        lines.clear()
        self._data_bytes = 0
        return data

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._bytes_max:
            raise EventTooLong(f"an event of more than {self._bytes_max} bytes")

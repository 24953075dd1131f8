"""Server-sent events, parsed as the bytes come: any split gives the same events.

Only `data` is handed on. The wire protocols of models repeat an event's name inside its data, and nobody
resumes a model's stream by `id` or `retry`.
"""

from collections.abc import Iterable, Iterator

DATA_BYTES_MAX = 8_000_000
"""One event's data, or one line of the stream. Some models send whole images; nothing is larger."""

_BOM = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """The stream holds an event that is longer than DATA_BYTES_MAX."""


class SseParser:
    """Bytes in, the data of whole events out. One parser reads one stream."""

    def __init__(self, data_bytes_max: int = DATA_BYTES_MAX) -> None:
        self._bytes_max = data_bytes_max
        self._line = bytearray()
        self._data_lines: list[bytes] = []
        self._data_bytes = 0
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> Iterable[bytes]:
        """The data of each event that `chunk` completes. Exhaust it before feeding more.

        Raises EventTooLong, after the events before the long one; the stream cannot be read on.
        """
        data = self._single_event(chunk)
        return (data,) if data is not None else self._feed(chunk)

    def _single_event(self, chunk: bytes) -> bytes | None:
        """The data of a chunk that is one whole event, named or not: how nearly every token comes."""
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
            # Grown in place: a long line that comes in many pieces is not copied for each of them.
            self._line += chunk
            self._check_size(len(self._line))
            return
        if self._line:
            chunk = bytes(self._line) + chunk
            self._line.clear()
        # For bytes, these are the line ends of the specification and no others.
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
        """What the end of the stream left unfinished: the data so far of an event that no blank line closed.

        The specification drops it. Some servers leave out the last blank line, so a caller may use it if it
        turns out to be whole.
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

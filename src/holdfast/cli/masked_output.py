"""Standard output and error output without secrets: whoever prints, our code, a library or the interpreter.

What goes past the streams of Python to the file itself, as a crash of the interpreter does, is not seen here.
"""

import io
import sys
import threading

from holdfast.domain.secrets import MaskFunction, SecretMask

_BUFFERED_CHARS_MAX = 8_192
"""What is held back of a line that does not end; past that it is written as it stands."""


class MaskedOutput(io.TextIOWrapper):
    """A text stream over the same file as another, masked line by line. A flush writes what there is."""

    def __init__(self, stream: io.TextIOWrapper, mask: MaskFunction) -> None:
        stream.flush()
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._mask = mask
        self._line = ""
        # Threads write too; and a signal may come while one does.
        self._lock = threading.RLock()

    def write(self, text: str, /) -> int:
        with self._lock:
            self._line += text
            cut = self._line.rfind("\n") + 1 if len(self._line) <= _BUFFERED_CHARS_MAX else len(self._line)
            if cut:
                lines, self._line = self._line[:cut], self._line[cut:]
                super().write(self._mask(lines))
        return len(text)

    def flush(self) -> None:
        with self._lock:
            if self._line:
                rest, self._line = self._line, ""
                super().write(self._mask(rest))
            super().flush()


def mask_output(mask: SecretMask) -> None:
    """Put masks over what this process prints.

    Only known secrets are taken out of results, which may be about anything, a sign-in link included; what
    merely looks like a secret goes from the error output too.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = MaskedOutput(sys.stdout, mask.mask)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = MaskedOutput(sys.stderr, mask.mask_with_shapes)

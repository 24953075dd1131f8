"""Mask secrets in standard output and standard error, whether our code, a library or Python prints them.

Output that bypasses Python's streams, such as that of an interpreter crash, is not masked.
"""

import io
import sys
import threading

from holdfast.domain.secrets import MaskFunction, SecretMask

_BUFFERED_CHARS_MAX = 8_192
"""The longest incomplete line that is buffered; a longer one is written in parts."""


class MaskedOutput(io.TextIOWrapper):
    """A text stream that masks another line by line. A flush writes an incomplete line too."""

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
        # Reentrant: threads write too, and a signal handler may interrupt a write.
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
    """Mask the standard streams of this process.

    Standard output loses only known secrets, because a result may look like a secret, as a sign-in link
    does. Standard error also loses text that looks like one.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = MaskedOutput(sys.stdout, mask.mask)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = MaskedOutput(sys.stderr, mask.mask_with_patterns)

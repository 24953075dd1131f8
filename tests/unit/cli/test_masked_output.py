"""What a process prints, masked: no secret gets out, lines stay lines, and a flush is a flush."""

import io
import logging
import os
import sys
import traceback
from collections.abc import Iterator

import pytest

from holdfast.cli.masked_output import MaskedOutput, mask_output
from holdfast.domain.secrets import MASK, SecretMask

KEY = "sk-proj-0123456789abcdef"


@pytest.fixture
def raw() -> io.BytesIO:
    return io.BytesIO()


@pytest.fixture
def output(raw: io.BytesIO) -> Iterator[MaskedOutput]:
    plain = io.TextIOWrapper(raw, encoding="utf-8", line_buffering=True)
    masked = MaskedOutput(plain, SecretMask([KEY]).mask_with_patterns)
    yield masked
    masked.detach()
    plain.detach()


def test_a_secret_split_over_writes_is_masked(output: MaskedOutput, raw: io.BytesIO) -> None:
    print("the key", KEY, "and", "Bearer", "0123456789", file=output)
    for letter in f"again {KEY}\n":
        output.write(letter)
    output.writelines([KEY[:9], KEY[9:], "\n"])
    assert raw.getvalue().decode() == f"the key {MASK} and Bearer {MASK}\nagain {MASK}\n{MASK}\n"


def test_output_is_written_at_line_end_or_on_flush(output: MaskedOutput, raw: io.BytesIO) -> None:
    assert output.write("one\ntw") == 6
    assert raw.getvalue() == b"one\n"
    output.flush()
    assert raw.getvalue() == b"one\ntw"
    output.write("o" * 10_000)
    output.flush()
    assert raw.getvalue() == b"one\ntw" + b"o" * 10_000


def test_write_through_output_is_not_buffered(raw: io.BytesIO) -> None:
    # As Python makes it where PYTHONUNBUFFERED is set, which containers often do.
    plain = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    masked = MaskedOutput(plain, SecretMask([KEY]).mask_with_patterns)
    print("one", file=masked)
    printed = raw.getvalue()
    masked.detach()
    plain.detach()
    assert printed == b"one\n"


def test_a_traceback_and_a_log_record_are_masked(
    output: MaskedOutput, raw: io.BytesIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", output)
    try:
        raise ValueError(f"refused {KEY}")
    except ValueError:
        traceback.print_exc()
    logging._StderrHandler().handle(logging.makeLogRecord({"msg": f"note {KEY}"}))  # type: ignore[attr-defined]
    printed = raw.getvalue().decode()
    assert KEY not in printed
    assert printed.count(MASK) == 2 and "Traceback" in printed


def test_masked_output_keeps_the_file_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as out, os.fdopen(reading, "rb") as pipe:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        mask_output(SecretMask([KEY]))
        assert isinstance(sys.stdout, MaskedOutput)
        assert (sys.stdout.fileno(), sys.stdout.isatty()) == (writing, False)
        print(f"a link with hf_0123456789abcdef, but no {KEY}", flush=True)
        sys.stdout.buffer.write(b"bytes\n")
        sys.stdout.flush()
        assert pipe.readline() == f"a link with hf_0123456789abcdef, but no {MASK}\n".encode()
        assert pipe.readline() == b"bytes\n"
        sys.stdout.detach()
        monkeypatch.undo()

"""Run the example receiver of the docs as a real process, with a shared secret."""

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "docs/examples/memory_receiver.py"
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
START_S_MAX = 30


@contextmanager
def example_receiver(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the receiver with its data in `folder`."""
    key = folder / "memory-webhook.key"
    key.write_text(SECRET + "\n")
    command = [sys.executable, "-I", str(EXAMPLE), str(key), str(folder / "told.db"), str(port)]
    with (folder / "receiver.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]})
    try:
        asyncio.run(_is_listening(process, port))
        yield process
    finally:
        process.kill()
        process.wait(START_S_MAX)


async def _is_listening(process: subprocess.Popen[bytes], port: int) -> None:
    async with asyncio.timeout(START_S_MAX):
        while True:
            assert process.poll() is None, "the receiver ended"
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            await writer.wait_closed()
            return

"""`python -m bench.models`: CPU per paced token of our adapters beside the official SDKs; prints a table."""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.machine import OtherLoad, family_cpu_s
from bench.report import report
from bench.table import ResultLine
from bench.turn.processes import ROOT, running_process

STREAMS = 50
RATE = 50
SECONDS = 10
ROUNDS = 2
"""Our adapters and the SDKs take turns, so that both meet the same machine."""
RATIO_MAX = 1 / 3
PAIRS = (
    ("Chat Completions", "chat", "openai_chat", "openai SDK"),
    ("Responses", "responses", "openai_responses", "openai SDK"),
    ("Anthropic Messages", "messages", "anthropic_messages", "anthropic SDK"),
)
"""A protocol, our reader, the SDK's reader, and the SDK's name."""


@dataclass(frozen=True)
class ReadResult:
    """The cost of one reader."""

    cpu_s: float = 0.0
    tokens: int = 0
    missing: int = 0

    @property
    def each_us(self) -> float:
        return 1e6 * self.cpu_s / max(self.tokens, 1)

    def __add__(self, other: "ReadResult") -> "ReadResult":
        return ReadResult(self.cpu_s + other.cpu_s, self.tokens + other.tokens, self.missing + other.missing)

    def __str__(self) -> str:
        return f"{self.each_us:.0f} µs"


def read(way: str, port: int, streams: int, seconds: int) -> ReadResult:
    """Run one reader alone in its own process."""
    words = (way, str(port), str(streams), str(seconds * RATE), str(RATE))
    paths = {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bench.models.reader", *words],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, **paths},
        timeout=seconds * 5 + 60, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{way} could not be measured:\n{done.stderr}")
    found = json.loads(done.stdout)
    return ReadResult(found["cpu_s"], int(found["tokens"]), int(found["missing"]))


def measure(console: Console, streams: int, seconds: int) -> list[ResultLine]:
    part, lines = f"{streams} answers at {RATE} tokens/s, CPU per token", list[ResultLine]()
    missing = 0
    with running_process("-m", "bench.models.paced_server") as server:
        for protocol, way, peer, name in PAIRS:
            console.print(f"{protocol} …")
            ours = theirs = ReadResult()
            for _ in range(ROUNDS):
                ours += read(way, server.port, streams, seconds)
                theirs += read(peer, server.port, streams, seconds)
            ratio = ours.each_us / theirs.each_us
            missing += ours.missing
            lines.append(ResultLine(
                part, protocol, str(ours), "≤ 1/3", f"{name} {theirs}", ratio, ratio <= RATIO_MAX,
                {"ours_us": ours.each_us, "theirs_us": theirs.each_us, "tokens": ours.tokens},
            ))  # fmt: skip
    lines.append(ResultLine(part, "tokens missing, all three", str(missing), "0", is_met=missing == 0))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 s at a time: for trying a change")
    parser.add_argument("--json", type=Path, help="leave the figures here too")
    chosen = parser.parse_args()
    console = Console(width=None if Console().is_terminal else 150)
    other_load = OtherLoad(family_cpu_s)
    lines = measure(console, STREAMS, 5 if chosen.quick else SECONDS)
    title = "Models' answers as they stream, read by our adapters and by SDKs"
    report(lines, title, console, other_load, chosen.quick, chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

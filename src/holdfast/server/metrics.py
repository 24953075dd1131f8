"""What there is to count, as Prometheus reads it: a few lines of text, made when they are asked for."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from holdfast.engine.engine import Engine
from holdfast.office import ChannelTold
from holdfast.server.streams import Streams
from holdfast.store.meter import BOUNDS_S, CommitMeter

CONTENT_TYPE = "text/plain; version=0.0.4"
METRICS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "holdfast_runs_at_work": ("gauge", "Runs that this process works on."),
    "holdfast_runs_in_line": ("gauge", "Runs that wait until this process has room to work on them."),
    "holdfast_recoveries_total": ("counter", "Runs taken over from a process that was gone."),
    "holdfast_deltas_total": ("counter", "Pieces of streamed output stored; about one for each token."),
    "holdfast_agent_cache_hits_total": ("counter", "Runs that went on with what was held ready."),
    "holdfast_agent_cache_rebuilds_total": ("counter", "Conversations read back, by why they were."),
    "holdfast_agent_cache_entries": ("gauge", "Conversations that are held ready."),
    "holdfast_agent_cache_bytes": ("gauge", "How much of them is held, as it is stored."),
    "holdfast_commit_seconds": ("histogram", "How long the store took to make a batch durable."),
    "holdfast_subscribers": ("gauge", "Streams that are open."),
    "holdfast_events_sent_total": ("counter", "Events passed on to streams, once for each reader."),
    "holdfast_streams_cut_off_total": ("counter", "Streams ended because their reader took nothing."),
    "holdfast_http_requests_total": ("counter", "Answers over HTTP, by the class of their status."),
    "holdfast_channel_received_total": ("counter", "What came from a chat app."),
    "holdfast_channel_delivered_total": ("counter", "Tries to say something in a chat, by what came of it."),
    "holdfast_channel_waiting": ("gauge", "Chats of an app that have something to be sent, when last seen."),
})  # fmt: skip
"""Every metric with its type and what it means."""


class Metrics:
    """Asks the parts what they have counted."""

    def __init__(
        self, engine: Engine, streams: Streams, channels: Callable[[], Sequence[ChannelTold]] = tuple
    ) -> None:
        self._engine = engine
        self._streams = streams
        self._channels = channels
        self._answers: Counter[int] = Counter()

    def count(self, status: int) -> None:
        """An answer was sent."""
        self._answers[status // 100] += 1

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        streams, engine = self._streams, self._engine
        simple = {
            "holdfast_runs_at_work": engine.runner.at_work,
            "holdfast_runs_in_line": engine.runner.in_line,
            "holdfast_recoveries_total": engine.recovery.recovered,
            "holdfast_deltas_total": engine.store.commits.deltas,
            "holdfast_agent_cache_hits_total": engine.contexts.hits,
            "holdfast_agent_cache_entries": engine.contexts.entries,
            "holdfast_agent_cache_bytes": engine.contexts.size_bytes,
            "holdfast_subscribers": streams.subscribers,
            "holdfast_events_sent_total": streams.events,
            "holdfast_streams_cut_off_total": streams.cut_off,
        }
        for name, (kind, meaning) in METRICS.items():
            yield f"# HELP {name} {meaning}"
            yield f"# TYPE {name} {kind}"
            if name in simple:
                yield f"{name} {simple[name]}"
            elif name.startswith("holdfast_channel_"):
                yield from _of_channels(name, self._channels())
            elif kind == "histogram":
                yield from _histogram(name, engine.store.commits)
            elif name == "holdfast_agent_cache_rebuilds_total":
                for why, count in sorted(engine.contexts.rebuilds.items()):
                    yield f'{name}{{why="{why}"}} {count}'
            else:
                for status, count in sorted(self._answers.items()):
                    yield f'{name}{{status="{status}xx"}} {count}'


def _of_channels(name: str, told: Sequence[ChannelTold]) -> Iterator[str]:
    for each in told:
        label = f'channel="{each.name}"'
        if name == "holdfast_channel_delivered_total":
            for outcome, count in sorted(each.delivered.items()):
                yield f'{name}{{{label},outcome="{outcome}"}} {count}'
        elif each.connected:
            yield f"{name}{{{label}}} {each.waiting if name == 'holdfast_channel_waiting' else each.received}"


def _histogram(name: str, meter: CommitMeter) -> Iterator[str]:
    reached = 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), meter.counts, strict=True):
        reached += count
        yield f'{name}_bucket{{le="{bound}"}} {reached}'
    yield f"{name}_sum {meter.total_s:.6f}"
    yield f"{name}_count {reached}"

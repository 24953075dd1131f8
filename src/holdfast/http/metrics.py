"""Collect the metrics and format them for Prometheus on request."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from holdfast.channels.info import ChannelInfo
from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.mcp import McpServerInfo
from holdfast.engine.engine import Engine
from holdfast.http.sse.streams import Streams
from holdfast.memory.info import MemoryService
from holdfast.store.commit_metrics import BOUNDS_S, CommitMetrics

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
    "holdfast_memory_owed": ("gauge", "Stretches of conversation that memory is owed, by any process."),
    "holdfast_memory_owed_age_seconds": ("gauge", "How long the oldest of them has been owed."),
    "holdfast_memory_commits_total": ("counter", "Stretches that memory was told of, by what came of it."),
    "holdfast_memory_recalls_total": ("counter", "Turns that memory was asked for, by what came of it."),
    "holdfast_mcp_ready": ("gauge", "Whether an MCP server is connected."),
    "holdfast_mcp_connections_total": ("counter", "Times that an MCP server was connected."),
    "holdfast_mcp_calls_total": ("counter", "Calls of an MCP server's tools, by what came of them."),
    "holdfast_channel_received_total": ("counter", "What came from a chat app."),
    "holdfast_channel_delivered_total": ("counter", "Tries to say something in a chat, by what came of it."),
    "holdfast_channel_waiting": ("gauge", "Chats of an app that have something to be sent, when last seen."),
})  # fmt: skip
"""The type and the help text of each metric."""
MEMORY_OUTCOMES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "commits": ("paid", "failed", "in_doubt", "no_owner", "forget_done", "forget_failed", "forget_cannot"),
    "recalls": ("found", "none", "slow", "failed", "resting"),
})  # fmt: skip
"""The outcomes of memory operations. All are exported from the start, so that the first shows as a change."""


class Metrics:
    """The counters of all components, read when Prometheus asks."""

    def __init__(
        self,
        engine: Engine,
        streams: Streams,
        memory: MemoryService,
        clock: Clock,
        channels: Callable[[], Sequence[ChannelInfo]] = tuple,
        mcp: Callable[[], Sequence[McpServerInfo]] = tuple,
    ) -> None:
        self._mcp = mcp
        self._engine = engine
        self._streams = streams
        self._memory = memory
        self._clock = clock
        self._channels = channels
        self._responses: Counter[int] = Counter()

    def count_response(self, status: int) -> None:
        self._responses[status // 100] += 1

    async def text(self) -> str:
        pending: dict[str, float] = {}
        # The other metrics are exported even while the store fails or closes.
        with suppress(HoldfastError):
            count, since = await self._engine.store.pending_commit_totals()
            age_s = max(self._clock.now_ms() - since, 0) / 1000 if count else 0
            pending = {"holdfast_memory_owed": count, "holdfast_memory_owed_age_seconds": age_s}
        return "".join(f"{line}\n" for line in self._lines(pending))

    def _lines(self, pending: dict[str, float]) -> Iterator[str]:
        streams, engine = self._streams, self._engine
        unlabelled = pending | {
            "holdfast_runs_at_work": engine.runner.running,
            "holdfast_runs_in_line": engine.runner.waiting,
            "holdfast_recoveries_total": engine.recovery.recovered,
            "holdfast_deltas_total": engine.store.commit_metrics.deltas,
            "holdfast_agent_cache_hits_total": engine.contexts.hits,
            "holdfast_agent_cache_entries": engine.contexts.entry_count,
            "holdfast_agent_cache_bytes": engine.contexts.size_bytes,
            "holdfast_subscribers": streams.subscribers,
            "holdfast_events_sent_total": streams.events_sent,
            "holdfast_streams_cut_off_total": streams.cut_off,
        }
        for name, (kind, meaning) in METRICS.items():
            yield f"# HELP {name} {meaning}"
            yield f"# TYPE {name} {kind}"
            if name in unlabelled:
                yield f"{name} {unlabelled[name]}"
            elif name.startswith("holdfast_channel_"):
                yield from _channel_lines(name, self._channels())
            elif name.startswith("holdfast_mcp_"):
                yield from _mcp_lines(name, self._mcp())
            elif kind == "histogram":
                yield from _histogram_lines(name, engine.store.commit_metrics)
            elif kind == "counter":
                for label, count in sorted(self._labelled_counts(name).items()):
                    yield f"{name}{{{label}}} {count}"

    def _labelled_counts(self, name: str) -> Mapping[str, int]:
        """Return the counts of a metric by label."""
        if name == "holdfast_http_requests_total":
            return {f'status="{status}xx"': count for status, count in self._responses.items()}
        if name == "holdfast_agent_cache_rebuilds_total":
            return {f'why="{why}"': count for why, count in self._engine.contexts.rebuilds.items()}
        kind = name.removeprefix("holdfast_memory_").removesuffix("_total")
        counts = dict.fromkeys(MEMORY_OUTCOMES[kind], 0)
        for outcome, count in self._memory.counts().get(kind, {}).items():
            # The label's value is older than the name "committed", and dashboards know it.
            counts["paid" if outcome == "committed" else outcome] = count
        return {f'outcome="{outcome}"': count for outcome, count in counts.items()}


def _channel_lines(name: str, channels: Sequence[ChannelInfo]) -> Iterator[str]:
    for channel in channels:
        label = f'channel="{channel.name}"'
        if name == "holdfast_channel_delivered_total":
            for outcome, count in sorted(channel.delivered.items()):
                yield f'{name}{{{label},outcome="{outcome}"}} {count}'
        elif channel.connected:
            count = channel.waiting if name == "holdfast_channel_waiting" else channel.received
            yield f"{name}{{{label}}} {count}"


def _mcp_lines(name: str, servers: Sequence[McpServerInfo]) -> Iterator[str]:
    for server in servers:
        label = f'server="{server.name}"'
        if name == "holdfast_mcp_calls_total":
            for outcome, count in sorted(server.calls.items()):
                yield f'{name}{{{label},outcome="{outcome}"}} {count}'
        else:
            is_gauge = name == "holdfast_mcp_ready"
            yield f"{name}{{{label}}} {int(server.state == 'ready') if is_gauge else server.connections}"


def _histogram_lines(name: str, commit_metrics: CommitMetrics) -> Iterator[str]:
    cumulative = 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), commit_metrics.counts, strict=True):
        cumulative += count
        yield f'{name}_bucket{{le="{bound}"}} {cumulative}'
    yield f"{name}_sum {commit_metrics.total_s:.6f}"
    yield f"{name}_count {cumulative}"

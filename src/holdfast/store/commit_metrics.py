"""How long commits take, counted as they happen. Written by the writer's thread, read by anyone."""

from bisect import bisect_left

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5)


class CommitMetrics:
    """A histogram of seconds. A reader may see a count that is one commit ahead of the sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """Commits at most as long as each bound, and longer than the one before; then the longer ones."""
        self.total_s = 0.0
        self.deltas = 0
        """Pieces of streamed output that are on disk."""

    def record(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

"""Commit durations. The writer's thread records them; any thread may read them."""

from bisect import bisect_left

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5)


class CommitMetrics:
    """A histogram of seconds. A reader may see a count that is one commit ahead of the sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """Commits per bucket: at most as long as each bound; the last bucket holds the longer ones."""
        self.total_s = 0.0
        self.deltas = 0
        """Streamed deltas that are on disk."""

    def record(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

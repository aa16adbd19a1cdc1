"""Times of calls on the host."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def median_seconds(run: Callable[[], object], iterations: int) -> float:
    """The median time of a call, after one warm-up call."""
    run()
    times = []
    for _ in range(iterations):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)

"""Runs rank processes for the tests of the drop-in, and reads the statistics that they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from narrowcast._bench import launch

OPERATIONS = {
    "all_gather",
    "all_to_all",
    "broadcast",
    "bcast",
    "gather",
    "scatter",
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "send and recv",
}
SECONDS = 60


class Ranks:
    """Runs a job of a module, by default nccl_jobs.py, on ranks with the preloaded drop-in."""

    def __init__(self, folder: Path, module: str = "nccl_jobs") -> None:
        self.folder, self.module = folder, module

    def __call__(self, job: str, ranks: int = 3, *, alone: bool = False, **arguments: Any) -> list[Any]:
        """Returns the result of each rank. alone: one process runs all ranks, and there is one result."""
        everyone = [{"rank": rank, "ranks": ranks} for rank in range(ranks)] if not alone else [{"ranks": ranks}]
        results: list[Any] = []
        launch.run_ranks(
            f"{self.module}:{job}",
            [{**own, **arguments} for own in everyone],
            results.extend,
            timeout_seconds=SECONDS,
        )
        return results

    def statistics(self) -> dict[Any, dict[str, Any]]:
        """The statistics by operation, for each rank and communicator."""
        found: dict[Any, dict[str, Any]] = {}
        for path in self.folder.glob("*.json"):
            content = json.loads(path.read_text())
            assert path.stem == str(content["pid"])
            for order, one in enumerate(content["communicators"]):
                found[one["rank"] if order == 0 else (one["rank"], order)] = {
                    entry["operation"]: entry for entry in one["operations"]
                }
        return found

    def links(self, operation: str) -> dict[int, tuple[int | None, int | None]]:
        """Raw and wire bytes of an operation on the first communicator, by rank."""
        first = {rank: operations for rank, operations in self.statistics().items() if isinstance(rank, int)}
        return {
            rank: (operations[operation]["raw_bytes"], operations[operation]["wire_bytes"])
            for rank, operations in first.items()
        }

    def taken(self) -> dict[str, tuple[int, int]]:
        """Executed and forwarded calls of the first communicator by operation. Must be the same on all ranks."""
        first = [operations for rank, operations in self.statistics().items() if isinstance(rank, int)]
        counts = [{name: (one["taken"], one["forwarded"]) for name, one in operations.items()} for operations in first]
        assert all(count == counts[0] for count in counts)
        return counts[0]

    def reasons(self) -> set[str]:
        return {
            why for operations in self.statistics().values() for one in operations.values() for why in one["reasons"]
        }

    def plans(self) -> dict[str, dict[str, int]]:
        """The plans that calls ran, by operation. The same on all ranks."""
        each = [
            {name: one["plans"] for name, one in operations.items() if "plans" in one}
            for operations in self.statistics().values()
        ]
        assert all(one == each[0] for one in each)
        return each[0]

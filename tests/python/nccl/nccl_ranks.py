"""Rank processes of the drop-in's tests, and what they report of their calls."""

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
    """Runs a job of a module, of nccl_jobs.py unless it says otherwise, on ranks that have the drop-in preloaded."""

    def __init__(self, folder: Path, module: str = "nccl_jobs") -> None:
        self.folder, self.module = folder, module

    def __call__(self, job: str, ranks: int = 3, *, alone: bool = False, **arguments: Any) -> list[Any]:
        """The result of each rank; alone: of one process that is all of them."""
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
        """By rank and communicator: operation -> what became of it."""
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
        """Of the first communicator's calls of an operation, by rank: raw and wire bytes."""
        first = {rank: operations for rank, operations in self.statistics().items() if isinstance(rank, int)}
        return {
            rank: (operations[operation]["raw_bytes"], operations[operation]["wire_bytes"])
            for rank, operations in first.items()
        }

    def taken(self) -> dict[str, tuple[int, int]]:
        """Of the first communicator: operation -> calls taken and forwarded, the same on all ranks."""
        first = [operations for rank, operations in self.statistics().items() if isinstance(rank, int)]
        counts = [{name: (one["taken"], one["forwarded"]) for name, one in operations.items()} for operations in first]
        assert all(count == counts[0] for count in counts)
        return counts[0]

    def reasons(self) -> set[str]:
        return {
            why for operations in self.statistics().values() for one in operations.values() for why in one["reasons"]
        }

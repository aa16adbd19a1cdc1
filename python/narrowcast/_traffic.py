"""What the processes of the drop-in report of themselves: calls and bytes of every communicator and operation."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What a process puts in place of its number into NARROWCAST_STATS.
PID = "%p"


@dataclass
class Traffic:
    """The calls of one operation."""

    operation: str
    taken: int = 0
    forwarded: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Why calls were forwarded to NCCL, and how many."""
    raw_bytes: int = 0
    """What the ranks sent in the taken calls, as values."""
    wire_bytes: int = 0
    """What that came to on the links."""
    saved_seconds: float | None = None
    """By the cost model, where the drop-in has one."""

    @property
    def ratio(self) -> float | None:
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None

    def add(self, other: Traffic) -> None:
        self.taken += other.taken
        self.forwarded += other.forwarded
        self.raw_bytes += other.raw_bytes
        self.wire_bytes += other.wire_bytes
        for sentence, count in other.reasons.items():
            self.reasons[sentence] = self.reasons.get(sentence, 0) + count
        if other.saved_seconds is not None:
            self.saved_seconds = (self.saved_seconds or 0) + other.saved_seconds

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "operation": self.operation,
            "taken": self.taken,
            "forwarded": self.forwarded,
            "reasons": dict(sorted(self.reasons.items())),
            "raw_bytes": self.raw_bytes,
            "wire_bytes": self.wire_bytes,
            "ratio": self.ratio,
        }
        return found if self.saved_seconds is None else {**found, "saved_seconds": self.saved_seconds}


@dataclass(frozen=True)
class RankTraffic:
    """What one rank of a communicator did."""

    communicator: str
    """The same on all ranks; empty when they did not agree on one, for then nothing is taken."""
    place: int
    """Of this communicator among those of its process."""
    rank: int
    ranks: int
    operations: list[Traffic]


@dataclass
class CommunicatorTraffic:
    """What all ranks of a communicator that reported did together."""

    communicator: str
    ranks: int
    reported: set[int] = field(default_factory=set)
    operations: dict[str, Traffic] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.communicator,
            "ranks": self.ranks,
            "reported_ranks": sorted(self.reported),
            "operations": [traffic.as_json() for traffic in self.operations.values()],
        }


@dataclass
class Report:
    """What all processes reported."""

    processes: list[dict[str, Any]] = field(default_factory=list)
    """The files as they are, ordered by process number."""
    ranks: list[RankTraffic] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """A sentence for each file that cannot be used."""

    def communicators(self) -> list[CommunicatorTraffic]:
        """The ranks' sums, in the order in which communicators and operations are met."""
        found: dict[object, CommunicatorTraffic] = {}
        for one in self.ranks:
            key = one.communicator or (one.place, one.ranks)
            total = found.setdefault(key, CommunicatorTraffic(one.communicator, one.ranks))
            total.reported.add(one.rank)
            for traffic in one.operations:
                total.operations.setdefault(traffic.operation, Traffic(traffic.operation)).add(traffic)
        return list(found.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "communicators": [one.as_json() for one in self.communicators()],
            "processes": self.processes,
            "faults": self.faults,
        }


def read_folder(folder: Path) -> Report:
    """The reports that stand in a folder, of processes that ended and of those that run."""
    report = Report()
    for path in sorted(folder.glob("*.json"), key=lambda path: (len(path.name), path.name)):
        try:
            content = json.loads(path.read_bytes())
            ranks = list(_ranks_of(content))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            report.faults.append(f"{path.name} is no report of a process: {type(error).__name__}: {error}")
            continue
        report.processes.append(content)
        report.ranks += ranks
    return report


def _ranks_of(content: dict[str, Any]) -> Iterable[RankTraffic]:
    for place, one in enumerate(content["communicators"]):
        operations = [
            Traffic(
                operation=str(entry["operation"]),
                taken=int(entry["taken"]),
                forwarded=int(entry["forwarded"]),
                reasons={str(sentence): int(count) for sentence, count in entry.get("reasons", {}).items()},
                raw_bytes=int(entry["raw_bytes"]),
                wire_bytes=int(entry["wire_bytes"]),
                saved_seconds=None if entry.get("saved_seconds") is None else float(entry["saved_seconds"]),
            )
            for entry in one["operations"]
        ]
        yield RankTraffic(str(one["id"]), place, int(one["rank"]), int(one["ranks"]), operations)

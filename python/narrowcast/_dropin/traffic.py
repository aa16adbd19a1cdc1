"""The statistics of processes with the drop-in: calls and bytes of each communicator and operation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from .._native.paths import read_regular

K = TypeVar("K")

# The placeholder for the process id in NARROWCAST_STATS.
PID = "%p"
_MAX_REPORT_BYTES = 1 << 30


@dataclass(frozen=True)
class Links:
    """Bytes sent by calls that Narrowcast executed, including replays of CUDA graphs except for short messages."""

    raw_bytes: int = 0
    """Bytes of the values."""
    wire_bytes: int = 0
    """Bytes on the links."""

    @property
    def ratio(self) -> float | None:
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None


def _sum(one: Links | None, other: Links | None) -> Links | None:
    if one is None or other is None:
        return None
    return Links(one.raw_bytes + other.raw_bytes, one.wire_bytes + other.wire_bytes)


def _links_as_json(links: Links | None) -> dict[str, Any]:
    if links is None:
        return {"raw_bytes": None, "wire_bytes": None, "ratio": None}
    return {"raw_bytes": links.raw_bytes, "wire_bytes": links.wire_bytes, "ratio": links.ratio}


def _totals(one: Mapping[K, int], other: Mapping[K, int]) -> dict[K, int]:
    """The sums of two counts, in the order of the first."""
    return {key: one.get(key, 0) + other.get(key, 0) for key in dict.fromkeys([*one, *other])}


@dataclass
class Traffic:
    """The calls of one operation."""

    operation: str
    taken: int = 0
    """Calls that Narrowcast executed."""
    captured: int = 0
    """Taken calls that were captured in CUDA graphs, counted once: replays make no calls."""
    forwarded: int = 0
    """Calls forwarded to NCCL."""
    reasons: dict[str, int] = field(default_factory=dict)
    """The number of forwarded calls for each reason."""
    plans: dict[str, int] = field(default_factory=dict)
    """The number of taken calls that ran each plan of the user, by its name."""
    lossy: dict[tuple[str, str], int] = field(default_factory=dict)
    """The number of taken calls for each rule that allows a lossy codec, and the codec that they used."""
    links: Links | None = Links()
    """None if the bytes of a rank are unknown, for example after an abort."""
    predicted: int = 0
    """Calls outside of graphs whose times the cost model predicts; transfers count at the sender."""
    saved_seconds: float = 0
    """The predicted time that these calls save over NCCL, summed over all ranks."""

    time_ratio: float | None = None
    """The measured time of calls divided by the predicted one, of the fastest rank; None if too few were timed."""

    def add(self, other: Traffic) -> None:
        """Adds the calls of another rank."""
        # Other ranks may have waited for the fastest one.
        ratios = [ratio for ratio in (self.time_ratio, other.time_ratio) if ratio is not None]
        self.time_ratio = min(ratios, default=None)
        self.taken += other.taken
        self.captured += other.captured
        self.forwarded += other.forwarded
        self.links = _sum(self.links, other.links)
        self.predicted += other.predicted
        self.saved_seconds += other.saved_seconds
        self.reasons = _totals(self.reasons, other.reasons)
        self.plans = _totals(self.plans, other.plans)
        self.lossy = _totals(self.lossy, other.lossy)

    def as_json(self) -> dict[str, Any]:
        return {
            "operation": self.operation,
            "taken": self.taken,
            "captured": self.captured,
            "forwarded": self.forwarded,
            "reasons": dict(sorted(self.reasons.items())),
            "plans": dict(sorted(self.plans.items())),
            "lossy": [
                {"rule": rule, "codec": codec, "calls": calls} for (rule, codec), calls in sorted(self.lossy.items())
            ],
            **_links_as_json(self.links),
            "predicted": self.predicted,
            "saved_seconds": self.saved_seconds,
            "time_ratio": self.time_ratio,
        }


@dataclass(frozen=True)
class RankTraffic:
    """The traffic of one rank of a communicator."""

    communicator: str
    """The id, the same on all ranks; empty if the ranks did not attach."""
    place: int
    """The index of the communicator in its process."""
    rank: int
    ranks: int
    scratch_bytes: int
    """Bytes of GPU memory for the communicator; 0 if the ranks did not attach."""
    operations: list[Traffic]


@dataclass
class CommunicatorTraffic:
    """The traffic of all ranks of a communicator that reported."""

    communicator: str
    ranks: int
    reported: set[int] = field(default_factory=set)
    scratch_bytes: int = 0
    """The maximum over the ranks."""
    operations: dict[str, Traffic] = field(default_factory=dict)

    def add(self, one: RankTraffic) -> None:
        """Adds a rank."""
        self.reported.add(one.rank)
        self.scratch_bytes = max(self.scratch_bytes, one.scratch_bytes)
        for traffic in one.operations:
            self.operations.setdefault(traffic.operation, Traffic(traffic.operation)).add(traffic)

    @property
    def links(self) -> Links | None:
        """The sum over all operations."""
        total: Links | None = Links()
        for traffic in self.operations.values():
            total = _sum(total, traffic.links)
        return total

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.communicator,
            "ranks": self.ranks,
            "reported_ranks": sorted(self.reported),
            "scratch_bytes": self.scratch_bytes,
            **_links_as_json(self.links),
            "operations": [traffic.as_json() for traffic in self.operations.values()],
        }


@dataclass
class Report:
    """The reports of all processes."""

    processes: list[dict[str, Any]] = field(default_factory=list)
    """The contents of the files, ordered by process id."""
    ranks: list[RankTraffic] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """A message for each file that cannot be read."""

    def communicators(self) -> list[CommunicatorTraffic]:
        """The sums over ranks, with communicators and operations in the order of the files."""
        found: dict[object, CommunicatorTraffic] = {}
        for one in self.ranks:
            key = one.communicator or (one.place, one.ranks)
            found.setdefault(key, CommunicatorTraffic(one.communicator, one.ranks)).add(one)
        return list(found.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "communicators": [one.as_json() for one in self.communicators()],
            "processes": self.processes,
            "faults": self.faults,
        }


def read_folder(folder: Path) -> Report:
    """Reads the reports in a folder, of running and of ended processes."""
    report = Report()
    for path in sorted(folder.glob("*.json"), key=lambda path: (len(path.name), path.name)):
        try:
            content = json.loads(read_regular(path, _MAX_REPORT_BYTES))
            ranks = list(_ranks_of(content))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            report.faults.append(f"{path.name} is not a valid report: {type(error).__name__}: {error}")
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
                captured=int(entry["captured"]),
                forwarded=int(entry["forwarded"]),
                reasons={str(reason): int(count) for reason, count in entry.get("reasons", {}).items()},
                plans={str(plan): int(count) for plan, count in entry.get("plans", {}).items()},
                lossy={(str(one["rule"]), str(one["codec"])): int(one["calls"]) for one in entry.get("lossy", [])},
                links=_links_of(entry),
                predicted=int(entry["predicted"]),
                saved_seconds=float(entry["saved_seconds"]),
                time_ratio=None if entry.get("time_ratio") is None else float(entry["time_ratio"]),
            )
            for entry in one["operations"]
        ]
        rank, ranks, scratch_bytes = (int(one[name]) for name in ("rank", "ranks", "scratch_bytes"))
        yield RankTraffic(str(one["id"]), place, rank, ranks, scratch_bytes, operations)


def _links_of(entry: dict[str, Any]) -> Links | None:
    raw_bytes, wire_bytes = entry["raw_bytes"], entry["wire_bytes"]
    return None if raw_bytes is None or wire_bytes is None else Links(int(raw_bytes), int(wire_bytes))

"""The text of a cost model (docs/guide/tuning.md), made of what was measured."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any, NamedTuple

from ._operations import call_of
from .types import value_type

# Of a packet's 16 bytes 12 are values, or 120 of 128. Early reports could not count packets.
_LEAST_RATIO_OF_PACKETS = 1.05
# What window cannot shrink.
INCOMPRESSIBLE = "random"
PATHS = ("packets", "raw", "window", "window-random", "nccl", "nccl-default")


class Curve(NamedTuple):
    """What a line of the model begins with."""

    operation: str
    ranks: int
    link: str  #: "peer" or "host"
    path: str  #: of PATHS


class Times:
    """What was measured on a machine, curve by curve."""

    def __init__(self) -> None:
        self._of: dict[Curve, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, curve: Curve, count_bytes: int, microseconds: float) -> None:
        """A call of so many bytes, as the model counts them."""
        self._of[curve][count_bytes].append(microseconds)

    def add_report(self, report: dict[str, Any]) -> None:
        """What a report of `narrowcast bench` says of calls between GPUs that reach each other: in graphs, out of
        place, without registered memory or a limit of CTAs. Nothing when it is of others."""
        in_graphs = report["backend"] == "cuda" and report["graph_calls"] and not report["ctas"]
        others = report["in_place"] or report["pattern"] != "ring" or report.get("register") or report["ranks"] < 2
        if not in_graphs or others:
            return
        for row in report["rows"]:
            for path in _paths(report["data"], row):
                curve = Curve(call_of(report["operation"]), report["ranks"], "peer", path)
                self.add(curve, row["count"] * value_type(row["type"]).bytes, row["time_us"])

    def curves(self) -> list[Curve]:
        """What there are times of, in order."""
        return sorted(self._of, key=lambda one: (*one[:3], PATHS.index(one.path)))

    def text(self, machine: str, *remarks: str) -> str:
        """The model; ValueError when nothing was measured."""
        if not self._of:
            raise ValueError("there are no times to make a model of")
        lines = [f"narrowcast-costs 1 {machine}", *(f"# {remark}" for remark in remarks)]
        for curve in self.curves():
            # Of NCCL the best variant; other times of a size are of other data, of which none is better than another.
            typical = min if curve.path == "nccl" else statistics.median
            words = [f"{count_bytes}:{typical(times):.2f}" for count_bytes, times in sorted(self._of[curve].items())]
            lines.append(" ".join([curve.operation, str(curve.ranks), curve.link, curve.path, *words]))
        return "\n".join(lines) + "\n"


def paths_of_nccl(contender: str) -> tuple[str, ...]:
    """The curves that a time of one of NCCL's variants is of."""
    return ("nccl", "nccl-default") if contender == "nccl" else ("nccl",)


def _paths(data: str, row: dict[str, Any]) -> tuple[str, ...]:
    """The curves that a row of a report is of; none where the library chose."""
    if row["codec"] is None:
        return paths_of_nccl(row["contender"])
    if row["codec"] == "window":
        return ("window-random" if data == INCOMPRESSIBLE else "window",)
    if row["codec"] == "raw":
        return ("packets" if row["ratio"] is None or row["ratio"] > _LEAST_RATIO_OF_PACKETS else "raw",)
    return ()

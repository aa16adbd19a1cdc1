"""The text of a cost model (docs/guide/tuning.md), made from reports of the benchmark."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any, NamedTuple

from .types import value_type

# Of a packet's 16 bytes 12 are values. Early reports could not count packets.
_LEAST_RATIO_OF_PACKETS = 1.2
# What window cannot shrink.
INCOMPRESSIBLE = "random"
PATHS = ("packets", "raw", "window", "window-random", "nccl")


class Curve(NamedTuple):
    """What a line of the model begins with."""

    operation: str
    ranks: int
    link: str  #: "peer" or "host"
    path: str  #: of PATHS


def text_of(runs: list[dict[str, Any]], *comments: str) -> str:
    """The model of what was measured between GPUs, in graphs and out of place; ValueError when there is nothing such.

    runs: reports as `narrowcast bench` writes them, of one machine.
    """
    times: dict[Curve, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    used = [run for run in runs if _is_usable(run)]
    for run in used:
        for row in run["rows"]:
            path = _path(run["data"], row)
            if path is None:
                continue
            operation = "send" if run["operation"] == "sendrecv" else run["operation"]
            curve = Curve(operation, run["ranks"], run.get("link", "peer"), path)
            times[curve][row["count"] * value_type(row["type"]).bytes].append(row["time_us"])
    if not times:
        raise ValueError("no report has times between GPUs, in graphs and out of place")
    lines = [f"narrowcast-costs 1 {used[0]['device']}", *(f"# {comment}" for comment in comments)]
    for curve in sorted(times, key=lambda one: (*one[:3], PATHS.index(one.path))):
        # Of NCCL the best variant; other times of a size are of other data, and none is better than another.
        typical = min if curve.path == "nccl" else statistics.median
        words = [f"{count_bytes}:{typical(found):.2f}" for count_bytes, found in sorted(times[curve].items())]
        lines.append(" ".join([curve.operation, str(curve.ranks), curve.link, curve.path, *words]))
    return "\n".join(lines) + "\n"


def _is_usable(run: dict[str, Any]) -> bool:
    by_graph = run["backend"] == "cuda" and run["graph_calls"] and not run["ctas"]
    return bool(by_graph and not run["in_place"] and run["pattern"] == "ring" and run["ranks"] > 1)


def _path(data: str, row: dict[str, Any]) -> str | None:
    """The curve that a row is of; None: of none, since the library chose."""
    if row["codec"] is None:
        return "nccl"
    if row["codec"] == "window":
        return "window-random" if data == INCOMPRESSIBLE else "window"
    if row["codec"] == "raw":
        return "packets" if row["ratio"] is None or row["ratio"] > _LEAST_RATIO_OF_PACKETS else "raw"
    return None

"""Draws the chart of the README: speed-up over NCCL by message size, one panel for each report or cost model.

    tools/plot_speedup.py docs/images/speedup.png bench/results/2xh200/2026-11-27_collectives_weights.json \
      bench/results/4xh200/2026-11-27_collectives_weights.json data/costs/h200.costs

The speed-up is the time of the fastest NCCL variant divided by the time of the codec that `auto` chooses
(performance_tables.py), both measured in the same run. Of a cost model, the times through host memory are drawn. Needs
matplotlib.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import narrowcast
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from performance_tables import OPERATIONS, ring_runs, times

COLORS = {
    "sendrecv": "#762a83",
    "all_gather": "#2166ac",
    "all_to_all": "#1b9e77",
    "reduce_scatter": "#e08214",
    "all_reduce": "#b2182b",
}


def speedups(run: dict[str, Any]) -> dict[int, float]:
    """Message size in bytes -> time of NCCL's fastest variant / time of the codec that `auto` chooses."""
    return {size: own["nccl"] / own["auto"] for size, own in times(run).items()}


def speedups_of_costs(path: Path, operation: str) -> dict[int, float]:
    """The same from the lines of a cost model for two ranks through host memory."""
    name = "send" if operation == "sendrecv" else operation
    pieces = 2 if operation in ("all_gather", "all_to_all", "reduce_scatter") else 1  # of a message, one for each rank
    curves: dict[str, dict[int, float]] = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if words[:3] == [name, "2", "host"]:
            points = (word.split(":") for word in words[4:])
            curves[words[3]] = {int(count_bytes): float(microseconds) for count_bytes, microseconds in points}
    found = {}
    for count_bytes, theirs in curves["nccl"].items():
        said = narrowcast.explain(name, count_bytes // 2, dtype="bfloat16", ranks=2, p2p=False, cost_model="")
        found[pieces * count_bytes] = theirs / curves[said.candidate][count_bytes]
    return found


def size_label(size: float, _position: int) -> str:
    for unit, bytes_of_unit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes_of_unit:
            return f"{size / bytes_of_unit:.0f} {unit}"
    return f"{size:.0f} B"


def draw(axes: Any, source: Path) -> None:
    if source.suffix == ".costs":
        remark = next(line for line in source.read_text().splitlines() if line.startswith("# 2 ranks, host: "))
        commit, nccl = (re.search(f"{word} (\\S+),", remark)[1] for word in ("commit", "NCCL"))  # type: ignore[index]
        lines = {operation: speedups_of_costs(source, operation) for operation in COLORS}
        title = f"2 x NVIDIA H200, no peer access, commit {commit[:7]}\nbfloat16 weights, NCCL {nccl}"
    else:
        report = json.loads(source.read_text())
        runs = ring_runs(report)
        lines = {operation: speedups(runs[operation]) for operation in COLORS}
        run = runs["all_reduce"]
        title = (
            f"{run['ranks']} x {run['device']}, NVLink, commit {report['commit'][:7]}\n"
            f"{run['dtype']} {run['data']}, NCCL {run['versions']['nccl']}"
        )
    for operation, points in lines.items():
        style = {"color": COLORS[operation], "marker": "o", "markersize": 3.5}
        axes.plot(list(points), list(points.values()), label=OPERATIONS[operation], **style)
    axes.set_title(title, fontsize=9)
    axes.axhline(1, color="#888888", linewidth=0.9, linestyle="--")
    axes.set_xscale("log", base=2)
    axes.set_xticks([1 << power for power in range(10, 31, 4)])
    axes.xaxis.set_major_formatter(FuncFormatter(size_label))
    axes.tick_params(labelsize=8)
    axes.set_xlabel("message size", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)


def main() -> None:
    target, *sources = map(Path, sys.argv[1:])
    figure = Figure(figsize=(4.6 * len(sources), 3.6), dpi=130, layout="constrained")
    columns = figure.subplots(1, len(sources), sharey=True, squeeze=False)[0]
    for axes, source in zip(columns, sources, strict=True):
        draw(axes, source)
    columns[0].set_ylabel("speed-up over NCCL's fastest variant", fontsize=9)
    columns[0].set_ylim(bottom=0)
    columns[-1].legend(frameon=False, fontsize=8)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)


if __name__ == "__main__":
    main()

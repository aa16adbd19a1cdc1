"""Draws what bench/results keeps of collectives.

    plot_collectives.py bench/results/collectives_4xh200.json bench/results/collectives_4xh200.png

Of every operation: above, the time of NCCL's best way over that of each codec; below, bus bandwidths. Over sizes, or
over CTAs where the file is of calls with several numbers of them. Needs matplotlib.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

COLORS = {"raw": "#888888", "window": "#2166ac", "auto": "#2166ac", "NCCL's best": "#b35806"}
ORDER = ("sendrecv", "all_gather", "all_to_all", "reduce_scatter", "all_reduce")

# Of an operation: for every place on the axis, each contender's row.
Lines = dict[int, dict[str, dict[str, Any]]]


def lines_of(runs: list[dict[str, Any]], over_ctas: bool) -> dict[str, Lines]:
    """The runs of rings and collectives that need no registered memory, by operation."""
    found: dict[str, Lines] = defaultdict(lambda: defaultdict(dict))
    largest = max(row["size_bytes"] for run in runs for row in run["rows"])
    for run in runs:
        if run["register"] or run["pattern"] != "ring" or run["operation"] not in ORDER:
            continue
        for row in run["rows"]:
            if over_ctas and row["size_bytes"] != largest:
                continue
            own = found[run["operation"]][run["ctas"] if over_ctas else row["size_bytes"]]
            name = row["codec"] or "NCCL's best"
            if name not in own or row["time_us"] < own[name]["time_us"]:
                own[name] = row
    return {operation: found[operation] for operation in ORDER if operation in found}


def size_text(size: int) -> str:
    power = (size.bit_length() - 1) // 10
    return f"{size >> 10 * power} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def draw(above: Any, below: Any, lines: Lines, over_ctas: bool) -> None:
    places = sorted(lines)
    for name, color in COLORS.items():
        rows = [lines[place].get(name) for place in places]
        if None in rows:
            continue
        style: dict[str, Any] = {"color": color, "marker": "o", "markersize": 3, "linewidth": 1.2, "label": name}
        below.plot(places, [row["busbw_gb_per_s"] for row in rows if row], **style)
        if name != "NCCL's best":
            best = [lines[at]["NCCL's best"]["time_us"] for at in places]
            above.plot(
                places, [time / lines[at][name]["time_us"] for time, at in zip(best, places, strict=True)], **style
            )
    above.axhline(1, color="#bbbbbb", linewidth=0.8, linestyle="--")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xscale("log", base=2)
        marked = places if over_ctas else places[::2]
        axes.set_xticks(marked, [str(at) if over_ctas else size_text(at) for at in marked], rotation=60, fontsize=7)
        axes.minorticks_off()


def main() -> None:
    source, path = map(Path, sys.argv[1:])
    report = json.loads(source.read_text())
    over_ctas = len({run["ctas"] for run in report["runs"]}) > 1
    operations = lines_of(report["runs"], over_ctas)
    figure = importlib.import_module("matplotlib.figure").Figure(
        figsize=(2.5 * len(operations) + 0.6, 5.2), dpi=130, layout="constrained"
    )
    grid = figure.subplots(2, len(operations), sharex="col", squeeze=False)
    for column, (operation, lines) in enumerate(operations.items()):
        draw(grid[0][column], grid[1][column], lines, over_ctas)
        grid[0][column].set_title(operation, fontsize=9)
    grid[0][0].set_ylabel("NCCL's best time / ours", fontsize=8)
    grid[1][0].set_ylabel("bus bandwidth, GB/s", fontsize=8)
    grid[1][0].legend(frameon=False, fontsize=7)
    run = report["runs"][0]
    what = "over CTAs" if over_ctas else "over sizes"
    figure.suptitle(f"{run['ranks']} x {run['device']}, {run['dtype']} {run['data']}, {what}", fontsize=10)
    figure.savefig(path)


if __name__ == "__main__":
    main()

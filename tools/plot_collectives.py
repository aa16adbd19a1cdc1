"""Plots several operations of one file in bench/results side by side, as `narrowcast bench --plot` plots one.

    plot_collectives.py bench/results/4xh100/2026-11-26_collectives.json bench/results/4xh100/2026-11-26_collectives.png

The x axis is the size. If the file has several numbers of CTAs, the x axis is that number, at the largest size. Needs
matplotlib.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from narrowcast import plots

ORDER = ("sendrecv", "all_gather", "all_to_all", "reduce_scatter", "all_reduce")


def reports_of(runs: list[dict[str, Any]], over: str) -> list[dict[str, Any]]:
    """One report per operation. Leaves out runs with another pattern than ring and runs with registered memory."""
    largest = max(row["size_bytes"] for run in runs for row in run["rows"])
    found = []
    for operation in ORDER:
        of_operation = [
            run for run in runs if run["operation"] == operation and run["pattern"] == "ring" and not run["register"]
        ]
        rows = [{**row, "ctas": run["ctas"]} for run in of_operation for row in run["rows"]]
        rows = [row for row in rows if over == "size_bytes" or row["size_bytes"] == largest]
        if rows:
            found.append({**of_operation[0], "rows": rows})
    return found


def main() -> None:
    source, path = map(Path, sys.argv[1:])
    runs = json.loads(source.read_text())["runs"]
    over = "ctas" if len({run["ctas"] for run in runs}) > 1 else "size_bytes"
    plots.plot_bench(reports_of(runs, over), path, over)


if __name__ == "__main__":
    main()

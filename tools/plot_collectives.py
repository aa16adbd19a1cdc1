"""Draws what bench/results keeps of collectives, as `narrowcast bench --plot` does of one, side by side.

    plot_collectives.py bench/results/4xh200/2026-11-22_collectives.json bench/results/4xh200/2026-11-22_collectives.png

Over sizes, or, where the file is of calls with several numbers of CTAs, over those, of its largest size. Needs
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
    """The runs of each operation as one, but for those that are not of rings or need registered memory."""
    largest = max(row["size_bytes"] for run in runs for row in run["rows"])
    found = []
    for operation in ORDER:
        its = [
            run for run in runs if run["operation"] == operation and run["pattern"] == "ring" and not run["register"]
        ]
        rows = [{**row, "ctas": run["ctas"]} for run in its for row in run["rows"]]
        rows = [row for row in rows if over == "size_bytes" or row["size_bytes"] == largest]
        if rows:
            found.append({**its[0], "rows": rows})
    return found


def main() -> None:
    source, path = map(Path, sys.argv[1:])
    runs = json.loads(source.read_text())["runs"]
    over = "ctas" if len({run["ctas"] for run in runs}) > 1 else "size_bytes"
    plots.plot_bench(reports_of(runs, over), path, over)


if __name__ == "__main__":
    main()

"""Writes the tables of docs/performance.md: times of raw, `window` and NCCL, in bold that of the choice of `auto`.

    tools/performance_tables.py                # rewrites the tables between their markers
    tools/performance_tables.py --check        # reports tables that are not up to date: part of the tests

A marker `<!-- times: REPORT SIZES -->` precedes each table. `auto` chooses with the built-in cost model of the library,
not with that of the commit that was measured.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import narrowcast

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
OPERATIONS = {
    "sendrecv": "send and receive",
    "all_gather": "all-gather",
    "all_to_all": "all-to-all",
    "reduce_scatter": "reduce-scatter",
    "all_reduce": "all-reduce",
}
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
TABLE = re.compile(r"(?P<marker><!-- times: (?P<report>\S+) (?P<sizes>[^>]+) -->\n)(?P<table>(?:\|.*\n)*)")


def chosen(run: dict[str, Any], count: int) -> str:
    """The codec that `auto` chooses for a call of a benchmark, if the GPUs can access each other's memory."""
    operation = "send" if run["operation"] == "sendrecv" else run["operation"]
    return narrowcast.explain(
        operation, count, dtype=run["dtype"], ranks=run["ranks"], max_ctas=64, p2p=True, cost_model=""
    ).codec


def times(run: dict[str, Any]) -> dict[int, dict[str, float]]:
    """Message size in bytes -> times in microseconds of "raw", "window", "auto" and "nccl" (its fastest variant)."""
    found: dict[int, dict[str, float]] = {}
    for row in run["rows"]:
        own = found.setdefault(row["size_bytes"], {})
        name = row["codec"] if row["contender"] == "narrowcast" else "nccl"
        own[name] = min(row["time_us"], own.get(name, row["time_us"]))
        own["count"] = row["count"]
    for own in found.values():
        own["auto"] = own[chosen(run, int(own.pop("count")))]
    return dict(sorted(found.items()))


def ring_runs(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The runs of a report by operation, without registered memory."""
    return {run["operation"]: run for run in report["runs"] if run["pattern"] == "ring" and not run["register"]}


def cell(own: dict[str, float]) -> str:
    texts = []
    for name in ("raw", "window", "nccl"):
        text = f"{own[name]:.1f}" if own[name] < 20 else f"{own[name]:.0f}"
        texts.append(f"**{text}**" if name != "nccl" and own["auto"] == own[name] else text)
    return " / ".join(texts)


def table(report: dict[str, Any], sizes: list[str]) -> str:
    runs = {operation: times(run) for operation, run in ring_runs(report).items() if operation in OPERATIONS}
    lines = [f"| bytes | {' | '.join(OPERATIONS.values())} |", "|---" * (len(OPERATIONS) + 1) + "|"]
    for size in sizes:
        number, unit = size.split("_")
        cells = [cell(runs[operation][int(number) * UNITS[unit]]) for operation in OPERATIONS]
        lines.append(f"| {number} {unit} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rewritten(text: str) -> str:
    """The page with its tables up to date."""

    def update(match: re.Match[str]) -> str:
        report = json.loads((ROOT / "bench" / "results" / match["report"]).read_text(encoding="utf-8"))
        return match["marker"] + table(report, match["sizes"].split())

    return TABLE.sub(update, text)


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    new = rewritten(text)
    if "--check" in sys.argv[1:]:
        if new != text:
            print("docs/performance.md is not up to date: run tools/performance_tables.py", file=sys.stderr)
        return new != text
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

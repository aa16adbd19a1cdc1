#!/usr/bin/env python3
"""Writes the tables of measurements in the pages about the store.

    tools/store_figures.py                # rewrites the tables below their markers
    tools/store_figures.py --check        # reports tables that are not up to date: part of the tests

A marker `<!-- store: KIND REPORT... -->` precedes each table; reports are files below bench/results.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "docs" / page for page in ("guide/store.md", "design/store.md", "design/store_kernels.md")]
TABLE = re.compile(r"(?P<marker><!-- store: (?P<kind>\w+) (?P<reports>[^>]+) -->\n)(?P<table>(?:\|.*\n)*)")

Report = dict[str, Any]
Rows = list[list[str]]


def size_text(count: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 10, "KiB")):
        if count >= unit and count % (unit // 2) == 0:
            return f"{count / unit:g} {name}"
    return f"{count} bytes"


def whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def rows_of(report: Report) -> list[Report]:
    """The rows of all commands, each with the number of rows that it gathers."""
    return [{"gathered": run["gathered_rows"], **row} for run in report["runs"] for row in run["rows"]]


def table_text(row: Report) -> list[str]:
    """Value type and bytes of a row; codec, without its parameters, and layout."""
    return [f"{row['dtype']}, {size_text(row['row_bytes'])}", f"`{row['codec'].partition(':')[0]}`, {row['layout']}"]


def speed_text(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else whole(value)


def cpu(report: Report) -> Rows:
    rows = [["rows", "codec, layout", "ratio", "encode", "slice", "gather", "`numpy.take` of raw rows"]]
    measured = rows_of(report)
    for one, many in zip(measured[::2], measured[1::2], strict=True):
        speeds = [
            " / ".join(speed_text(row[f"{name}_gb_per_s"]) for row in (one, many))
            for name in ("encode", "fetch", "gather")
        ]
        rows.append([*table_text(one), f"{one['ratio']:.2f}", *speeds, speed_text(one["numpy_take_gb_per_s"])])
    return rows


def ratios(report: Report) -> Rows:
    rows = [["table", "bytes of a row", "IBP", "*packed*", "*stride*", "`auto`"]]
    for one in report["tables"]:
        values = one["invariant_bit_packing"], one["packed"]["auto"], one["stride"]["auto"]
        choice = f"`{one['auto']['codec']}`, {one['auto']['layout']}"
        rows.append([one["table"], str(one["row_bytes"]), *(f"{value:.3f}" for value in values), choice])
    return rows


def gpu(report: Report) -> Rows:
    """Calls on 4 SMs."""
    gathers = ("gather", "raw_gather", "raw_gather_unsorted")
    slices = ("fetch_4_mib", "fetch_4_mib_in_a_row")
    rows = [
        ["rows", "codec, layout", "gathered", "gather", "uncoded", "uncoded, unordered", "slice", "slices", "encode"]
    ]
    for row in rows_of(report):
        speeds = row["speeds"][0]
        if row["zipf"] or "random" in row["tensor"]:
            continue
        values = [whole(speeds.get(f"{name}_gb_per_s")) for name in (*gathers, *slices)]
        if row["layout"] == "blocks":  # which CPUs encode
            rows.append([*table_text(row), "", *values, ""])
            continue
        gathered = f"{row['gathered']:,}".replace(",", " ")
        rows.append([*table_text(row), gathered, *values, whole(row["encode_gb_per_s"])])
    return rows


def cache(report: Report) -> Rows:
    (one,) = (row for row in rows_of(report) if row["zipf"])
    by_sms = one["speeds"]
    kind = f"{one['dtype']}, `{one['codec']}`"
    rows = [["rows", "policy", "hits", *(f"{speeds['sms']} SMs" for speeds in by_sms)]]
    for name, cached in ((kind, "cached"), ("uncoded", "raw_cached")):
        for same in zip(*(speeds[cached] for speeds in by_sms), strict=True):
            policy = same[0]["policy"]
            shown = policy if policy == "static" else policy.upper()
            rows.append([name, shown, f"{same[0]['hit_rate']:.1%}", *(whole(each["gather_gb_per_s"]) for each in same)])
    for name, plain in ((kind, "gather_gb_per_s"), ("uncoded", "raw_gather_gb_per_s")):
        rows.append([name, "no cache", "", *(whole(speeds[plain]) for speeds in by_sms)])
    return rows


KINDS: dict[str, Callable[..., Rows]] = {"cpu": cpu, "ratios": ratios, "gpu": gpu, "cache": cache}


def rewritten(text: str) -> str:
    """A page with its tables up to date."""

    def update(match: re.Match[str]) -> str:
        names = match["reports"].split()
        reports = [json.loads((ROOT / "bench" / "results" / name).read_text(encoding="utf-8")) for name in names]
        rows = KINDS[match["kind"]](*reports)
        rows.insert(1, ["---"] * len(rows[0]))
        lines = ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in rows]
        lines[1] = "|" + "---|" * len(rows[0])
        return match["marker"] + "\n".join(lines) + "\n"

    return TABLE.sub(update, text)


def main() -> int:
    status = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = rewritten(text)
        if "--check" in sys.argv[1:]:
            if new != text:
                print(f"{page.relative_to(ROOT)} is not up to date: run tools/store_figures.py", file=sys.stderr)
                status = 1
        else:
            page.write_text(new, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())

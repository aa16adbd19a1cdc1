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


def cpu(report: Report) -> Rows:
    rows = [["rows", "codec, layout", "ratio", "encode", "decode", "gather", "`numpy.take` of raw rows"]]
    for one in report["tables"]:

        def speeds(name: str, threads: dict[str, dict[str, float]] = one["threads"]) -> str:
            values = [threads[count][name] for count in ("1", "16", "32")]
            return " / ".join(f"{value:.1f}" if value < 9.95 else f"{value:.0f}" for value in values)

        kind, size, zeros = one["rows"].split(", ")
        name = f"{kind}, {size_text(int(size.split()[0]))}" + ("" if zeros == "0% zeros" else f", {zeros}")
        rows.append([name, f"`{one['codec']}`, {one['layout']}", f"{one['ratio']:.2f}"])
        rows[-1] += [*map(speeds, ("encode", "decode", "gather")), f"{one['numpy_take']:.1f}"]
    return rows


def ratios(report: Report) -> Rows:
    rows = [["table", "bytes of a row", "IBP", "*packed*", "*stride*", "`auto`"]]
    for one in report["tables"]:
        values = one["invariant_bit_packing"], one["packed"]["auto"], one["stride"]["auto"]
        choice = f"`{one['auto']['codec']}`, {one['auto']['layout']}"
        rows.append([one["table"], str(one["row_bytes"]), *(f"{value:.3f}" for value in values), choice])
    return rows


def gathers(report: Report) -> Rows:
    sms = ("4", "8", "16")
    rows = [["rows", "table", "gathered", *(f"{count} SMs" for count in sms), "4 SMs, unordered"]]
    for one in report["tables"]:
        kind, codec = one["table"].split(", ")
        size = size_text(one["row_bytes"])
        name = f"{kind}, {size}, " + ("uncoded" if codec == "raw" else f"`{codec}`")
        values = [one["gather_gb_per_s"][count] for count in sms]
        unordered = one["gather_in_index_order_gb_per_s"]["4"]
        table, count = size_text(round(one["table_raw_bytes"] / (1 << 29)) << 29), f"{one['gathered_rows']:,}"
        rows.append([name, table, count.replace(",", " "), *map(whole, values)])
        rows[-1].append(f"{unordered:.1f}" if unordered < 9.95 else whole(unordered))
    return rows


def slices(report: Report) -> Rows:
    rows = [["rows", "slice", "4 SMs", "8 SMs", "16 SMs"]]
    for one in report["tables"]:
        kind, codec = one["table"].split(", ")
        if codec == "window" and one["row_bytes"] in (512, 16 << 10):
            for mib in (256, 4):
                speeds = one[f"fetch_{mib}_mib_gb_per_s"]
                values = [whole(speeds[sms]) for sms in ("4", "8", "16")]
                rows.append([f"{kind}, {size_text(one['row_bytes'])}", f"{mib} MiB", *values])
    return rows


def blocks(report: Report) -> Rows:
    sms = [speeds["sms"] for speeds in report["tables"][0]["speeds"]]
    rows = [["slice", "ratio", *(f"{count} SMs" for count in sms)]]
    for one in report["tables"]:
        for name, measured in (
            ("256 MiB, one after another", "fetch_gb_per_s"),
            ("4 MiB, one after another", "fetch_4_mib_in_a_row_gb_per_s"),
            ("4 MiB, one call alone", "fetch_4_mib_gb_per_s"),
        ):
            values = [f"{speeds[measured]:.1f}" for speeds in one["speeds"]]
            rows.append([f"{one['dtype']}, {name}", f"{one['ratio']:.2f}", *values])
    return rows


def cache(report: Report) -> Rows:
    (one,) = report["rows"]
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


def builds(report: Report) -> Rows:
    rows = [["rows", "codec, layout", "from page-locked memory", "from GPU memory", "CPUs"]]
    for one in report["tables"]:
        kind, _, zeros = one["rows"].split(", ")
        name = f"{kind}, {size_text(one['row_bytes'])}" + ("" if zeros == "0% zeros" else f", {zeros}")
        places = ("from_pinned", "from_gpu", "on_cpus")
        values = [whole(one.get(f"encode_{place}_gb_per_s")) for place in places]
        rows.append([name, f"`{one['codec']}`, {one['layout']}", *values])
    return rows


KINDS: dict[str, Callable[..., Rows]] = {
    "cpu": cpu,
    "ratios": ratios,
    "gathers": gathers,
    "slices": slices,
    "blocks": blocks,
    "cache": cache,
    "builds": builds,
}


def rewritten(text: str) -> str:
    """A page with its tables up to date."""

    def update(match: re.Match[str]) -> str:
        names = match["reports"].split()
        reports = [json.loads((ROOT / "bench" / "results" / name).read_text(encoding="utf-8")) for name in names]
        rows = KINDS[match["kind"]](*reports)
        rows.insert(1, ["---"] * len(rows[0]))
        lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
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

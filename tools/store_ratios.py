#!/usr/bin/env python3
"""Stored bytes / raw bytes of tables of real data: with every row codec, with the one that `auto` chooses, and with
Invariant Bit Packing.

    MINILM_SAFETENSORS=model.safetensors tools/store_ratios.py -o bench/results/xeon/store_ratios.json

The tables are those of tests/python/store/test_real_data.py. Those of MiniLM are left out without that variable.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from narrowcast import store
from narrowcast.cli._provenance import commit, processor
from narrowcast.errors import InvalidArgumentError

sys.path.append(str(Path(__file__).parents[1] / "tests" / "python" / "support"))
from real_tables import TABLES, ibp_bytes, rows_of  # type: ignore[import-not-found]
from store_tables import CODECS, same  # type: ignore[import-not-found]


def measured(rows: np.ndarray, kind: str | None) -> dict[str, Any]:
    def built(codec: str, layout: str) -> store.BuildReport | None:
        reports: list[store.BuildReport] = []
        try:
            table = store.build(rows, codec, layout, dtype=kind, report=reports.append)
        except InvalidArgumentError:  # window of integers; raw rows that are packed
            return None
        assert table is not None
        with table:
            assert same(table[:].view(rows.dtype), rows)
        return reports[0]

    chosen = built("auto", "auto")
    assert chosen is not None
    found: dict[str, Any] = {
        "rows": len(rows),
        "row_bytes": rows[0].nbytes,
        "sampled_rows": chosen.fit["sampled_rows"],
        "auto": {"codec": chosen.codec, "layout": chosen.layout, "ratio": round(chosen.ratio, 4)},
        "invariant_bit_packing": round(ibp_bytes(rows) / rows.nbytes, 4),
        "invariant_bit_packing_in_units_of_32_bytes": round(ibp_bytes(rows, 32) / rows.nbytes, 4),
    }
    for layout in ("stride", "packed"):
        reports = {codec: built(codec, layout) for codec in ("auto", *CODECS)}
        found[layout] = {codec: round(one.ratio, 4) for codec, one in reports.items() if one is not None}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    tables = []
    for name in TABLES:
        table = rows_of(name)
        if table is None:
            print(f"{name}: MINILM_SAFETENSORS is not set", file=sys.stderr)
            continue
        tables.append({"table": name, **measured(*table)})
        print(json.dumps(tables[-1]), file=sys.stderr)
    report = {"machine": processor(), "command": "tools/store_ratios.py", "commit": commit(), "tables": tables}
    text = json.dumps(report, indent=1) + "\n"
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()

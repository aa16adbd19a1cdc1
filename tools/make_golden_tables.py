"""Generates the golden table files in tests/golden/tables_v1/, by the builder of the library.

Run it after an intended change of docs/format/table.md or of the builder's choices, and review the differences:

    PYTHONPATH=python NARROWCAST_LIBRARY=build/libnarrowcast.so python tools/make_golden_tables.py
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from golden_values import ROOT, TYPES, Random, ordinary, replace
from narrowcast import store

VERSION = 1


@dataclass(frozen=True)
class Table:
    name: str
    dtype: str
    codec: str
    layout: str
    rows: list[bytes]
    capacity: int  # 0: that of the builder
    spare: int
    metadata: dict[str, str] | None = None

    def build(self) -> bytes:
        """The file."""
        rows = np.frombuffer(b"".join(self.rows), np.uint8).reshape(len(self.rows), -1)
        value_bytes = TYPES[self.dtype].value_bytes if self.dtype in TYPES else 1
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table"
            store.build(
                rows.view(f"u{value_bytes}"),
                self.codec,
                self.layout,
                path,
                dtype=self.dtype,
                capacity=self.capacity or None,
                spare=self.spare,
                metadata=self.metadata,
                threads=1,
                host=None,
            )
            return path.read_bytes()

    def line(self) -> str:
        """The line of the manifest."""
        metadata = json.dumps(self.metadata) if self.metadata else ""
        return (
            f"{self.name} {self.dtype} {self.codec} {self.layout} {len(self.rows[0])} {self.capacity} {self.spare} "
            f"{metadata}"
        ).rstrip()


def noise(row_bytes: int, random: Random) -> bytes:
    return bytes(random.below(256) for _ in range(row_bytes))


def tables(random: Random) -> list[Table]:
    bfloat16, float16, float32 = TYPES["bfloat16"], TYPES["float16"], TYPES["float32"]
    # Rows of noise do not shrink: with stride they have overflow entries.
    some = [noise(128, random) if row in (7, 23) else ordinary(bfloat16, 64, random) for row in range(40)]
    sparse = [
        b"".join(ordinary(float32, 1, random) if random.below(20) < row else bytes(4) for _ in range(48))
        for row in range(30)
    ]
    return [
        Table("stride", "bfloat16", "window", "stride", some, 50, 3, {"made": "by make_golden_tables.py"}),
        Table("uncoded", "uint8", "raw", "stride", [noise(5, random) for _ in range(20)], 24, 2),
        Table("packed", "float32", "zeros+window", "packed", sparse, 0, 0),
        Table("blocks", "float16", "window", "blocks", [ordinary(float16, 32, random) for _ in range(60)], 0, 0),
    ]


def main() -> None:
    files, lines = {}, []
    for table in tables(Random(12)):
        files[f"{table.name}.ncs"] = table.build()
        files[f"{table.name}.rows"] = b"".join(table.rows)
        lines.append(table.line())
    manifest = f"# Made by tools/make_golden_tables.py from version {VERSION} of docs/format/table.md\n"
    manifest += "# NAME dtype codec layout row_bytes capacity spare [metadata]\n"
    files["manifest.txt"] = (manifest + "\n".join(lines) + "\n").encode()
    replace(ROOT / f"tests/golden/tables_v{VERSION}", files)
    print(f"{len(lines)} tables, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main()

"""Tables of rows in host memory or in files, encoded row by row.

    from narrowcast import store

    store.build(embeddings, path="embeddings.ncs", host=None)  # fits a codec, and writes a table file
    with store.open("embeddings.ncs") as table:
        rows = table.gather([7, 7, 0])                         # decodes these rows, bit for bit
        part = table[100:200]
        table.update([7], new_rows)                            # while other threads and processes read

Everything works without a GPU. Where there is one, `gather` and `fetch` take arrays in its memory: the GPU reads the
rows itself, still encoded, and decodes them.
"""

from __future__ import annotations

from ._store.building import build
from ._store.opening import open, verify
from ._store.reports import BuildReport, CacheInfo, Counters, RowIndexError, VerifyReport
from ._store.store import Store

__all__ = ["BuildReport", "CacheInfo", "Counters", "RowIndexError", "Store", "VerifyReport", "build", "open", "verify"]


def __dir__() -> list[str]:
    return sorted(__all__)

"""Measures the store on the host, and compares its rows with NumPy's."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import store
from .._store.sources import source_of
from ..types import ValueType
from .host_times import median_seconds
from .null_builder import null_builder
from .samples import tiled

_UPDATE_ROWS = 1000


def _same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether arrays have the same bits: a NaN is not equal to itself."""
    return np.array_equal(one.view(np.uint8), other.view(np.uint8))


def measure(
    raw: npt.NDArray[np.uint8],
    kind: ValueType,
    row_bytes: int,
    *,
    table_bytes: int,
    gathered_rows: int,
    codec: str,
    layout: str,
    threads: int,
    iterations: int,
) -> dict[str, Any]:
    """Builds a table of a repeated sample, and measures its calls in GB/s of raw bytes.

    raw: the bytes of the sample. Values whose rows are read are compared with those of the sample.
    table_bytes: at least the bytes of a row.
    The file of the build is in the folder for temporary files.
    """
    rows = table_bytes // row_bytes
    values = tiled(raw[: raw.size // kind.bytes * kind.bytes], rows * row_bytes)
    table_of = values.view(kind.numpy).reshape(rows, row_bytes // kind.bytes)
    reports: list[store.BuildReport] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"

        def build() -> None:
            store.build(table_of, codec, layout, path, dtype=kind, threads=threads, host=None, report=reports.append)

        build_seconds = median_seconds(build, iterations)
        report = reports[-1]
        source = source_of(table_of, kind, None)
        blocks = list(source.blocks)
        options: dict[str, Any] = {"codec": report.codec, "layout": report.layout, "threads": threads}
        with null_builder(kind, source.row_shape, rows, source.sample, **options) as builder:

            def encode() -> None:
                for block in blocks:
                    builder.add(block)

            encode_seconds = median_seconds(encode, iterations)
        # Blocks cannot be changed.
        spare = None if report.layout == "blocks" else _UPDATE_ROWS
        with store.open(path, threads=threads, spare=spare) as table:
            result = {
                "row_bytes": row_bytes,
                "rows": rows,
                "codec": report.codec,
                "layout": report.layout,
                "ratio": report.ratio,
                "threads": threads or len(os.sched_getaffinity(0)),
                "build_gb_per_s": values.size / build_seconds / 1e9,
                "encode_gb_per_s": values.size / encode_seconds / 1e9,
            }
            indices = np.random.default_rng(0).integers(0, rows, gathered_rows)
            out = np.empty((gathered_rows, table_of.shape[1]), kind.numpy)
            plain = np.empty_like(out)
            gathered = gathered_rows * row_bytes
            gather_seconds = median_seconds(lambda: table.gather(indices, out, threads=threads), iterations)
            take = functools.partial(np.take, table_of, indices, axis=0, out=plain, mode="clip")
            take_seconds = median_seconds(take, iterations)
            result["gather_gb_per_s"] = gathered / gather_seconds / 1e9
            result["numpy_take_gb_per_s"] = gathered / take_seconds / 1e9
            exact = _same(out, plain)
            slice_rows = min(rows, gathered_rows)
            piece = np.empty((slice_rows, table_of.shape[1]), kind.numpy)
            fetch_seconds = median_seconds(lambda: table.fetch(0, slice_rows, 1, piece, threads=threads), iterations)
            result["fetch_gb_per_s"] = piece.nbytes / fetch_seconds / 1e9
            exact = exact and _same(piece, table_of[:slice_rows])
            if report.layout != "blocks":
                chosen = indices[:_UPDATE_ROWS]
                new = table_of[chosen]
                update_seconds = median_seconds(lambda: table.update(chosen, new, threads=threads), iterations)
                result["updates_per_s"] = chosen.size / update_seconds
                exact = exact and _same(table.gather(chosen), new)
            result["exact"] = exact
    return result

"""`error`: how much codecs change the values of the tensors in a file."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .._bench.distortion import TensorError, tensor_errors
from .._files.opening import opened_source
from ..errors import InternalError
from ..files import is_encoded
from ._common import (
    BadUse,
    DtypeOption,
    codec_name,
    dtype_errors_as_bad_use,
    input_file,
    plot_file,
    print_json,
)
from ._tables import Column, Table


def error(
    source: Annotated[
        str,
        typer.Argument(metavar="FILE", help="safetensors, npy, or plain values with --dtype; -: standard input."),
    ],
    codec: Annotated[list[str], typer.Option(metavar="SPEC", help="A codec, such as name:key=value; repeatable.")],
    dtype: DtypeOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print a list of objects, one per tensor and codec.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="OUT.png", help="Draw errors and ratios.")] = None,
) -> None:
    """Show how much lossy codecs change the values of every tensor, and the ratio that this gains.

    relative L2 is the norm of the differences divided by that of the values; of bound compares the largest error of a
    block with the one that the codec states for it. Values that are not finite are left out, and others that they make
    NaN; the last column says whether NaN and infinity, inserted into a copy, stay NaN or infinite.
    """
    codecs = [codec_name(name) for name in codec]
    if plot is not None:
        plot_file(plot, source)
    with opened_source(input_file(source)) as file, dtype_errors_as_bad_use():
        if dtype is None and is_encoded(file.file):
            raise BadUse(f"{file.name} is already encoded: give the file before encoding")
        rows = list(tensor_errors(file, dtype, codecs))
    if plot is not None:
        from .. import plots

        plots.plot_errors([asdict(row) for row in rows], plot)
    if json:
        print_json([_as_json(row) for row in rows])
    else:
        _table(rows).print()
    wrong = [f"{row.tensor} with {row.codec}" for row in rows if not row.max_error_over_bound <= 1]
    if wrong:
        raise InternalError(f"errors exceed what the codec states: {', '.join(wrong)}")


def _as_json(row: TensorError) -> dict[str, Any]:
    """JSON has no infinity."""
    members = asdict(row).items()
    return {name: None if isinstance(value, float) and math.isinf(value) else value for name, value in members}


def _table(rows: list[TensorError]) -> Table:
    table = Table(
        Column("tensor", folds=True),
        Column("type", rank=2),
        Column("codec", folds=True),
        Column("values", is_number=True, rank=3),
        Column("ratio", is_number=True),
        Column("relative L2", is_number=True),
        Column("largest error", is_number=True, rank=1),
        Column("of bound", is_number=True),
        Column("SQNR", is_number=True, rank=4),
        Column("NaN kept"),
    )
    for place, row in enumerate(rows, 1):
        table.add_row(
            row.tensor,
            row.dtype,
            row.codec,
            f"{row.elems:,}",
            "-" if row.ratio is None else f"{row.ratio:.4f}",
            "-" if row.relative_l2 is None else f"{100 * row.relative_l2:.3g}%",
            f"{row.max_error:.3g}",
            f"{100 * row.max_error_over_bound:.1f}%",
            "-" if row.sqnr_db is None else f"{row.sqnr_db:.1f} dB",
            {True: "yes", False: "NO", None: "-"}[row.nonfinite_kept],
            end_section=place < len(rows) and rows[place].tensor != row.tensor,
        )
    return table

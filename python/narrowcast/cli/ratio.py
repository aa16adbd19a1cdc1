"""`ratio`: compression ratios of the tensors in files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .._files.display import bytes_text
from .._files.opening import opened_source
from ..files import is_encoded
from ..ratios import TensorRatio, TotalRatio, tensor_ratios_of
from ._common import (
    BadUse,
    DtypeOption,
    ReaderThreadsOption,
    codec_name,
    dtype_errors_as_bad_use,
    input_file,
    plot_file,
    print_json,
)
from ._tables import Column, Table
from .files import widths_text


def ratio(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="safetensors, npy, or plain values with --dtype; -: standard input."),
    ],
    dtype: DtypeOption = None,
    codec: Annotated[list[str] | None, typer.Option(help="Repeatable. Default: window.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a list of objects, one per tensor and codec.")] = False,
    threads: ReaderThreadsOption = None,
    plot: Annotated[Path | None, typer.Option(metavar="OUT.png", help="Draw ratios, and what could be gained.")] = None,
) -> None:
    """Show the compression ratio of every tensor, and what ratios its exponents and mantissas allow.

    The column exponents is the ratio if exponents took their entropy and all other bits were stored; zeros is the
    ratio without the low mantissa bits that are zero in all values of a block; vs both compares the ratio with that of
    the two together. None is a bound: codecs that use other redundancy can do better.
    """
    codecs = codec or ["window"]
    for name in codecs:
        codec_name(name)
    if plot is not None:
        plot_file(plot, *sources)
    rows: list[TensorRatio] = []
    for source in sources:
        with opened_source(input_file(source)) as file, dtype_errors_as_bad_use():
            if dtype is None and is_encoded(file.file):
                raise BadUse(f"{file.name} is already encoded: use narrowcast inspect")
            for one in codecs:
                file.file.seek(0)
                rows += tensor_ratios_of(file, dtype, one, threads)
    if plot is not None:
        from .. import plots

        plots.plot_ratios(rows, plot)
    if json:
        print_json([row.as_json() for row in rows])
    else:
        _table(rows, several_files=len(sources) > 1, several_codecs=len(codecs) > 1).print()


def _table(rows: list[TensorRatio], several_files: bool, several_codecs: bool) -> Table:
    table = Table(
        *([Column("file", folds=True)] if several_files else []),
        Column("tensor", folds=True),
        Column("type"),
        Column("codec", rank=0 if several_codecs else 2),
        Column("raw", is_number=True, rank=1),
        Column("ratio", is_number=True),
        Column("exponents", is_number=True),
        Column("zeros", is_number=True),
        Column("vs both", is_number=True, rank=4),
        Column("escapes", is_number=True, rank=5),
        Column("values", is_number=True, rank=3),
        Column("blocks of width", rank=6),
    )
    for place, row in enumerate(rows, 1):
        cells = [
            row.tensor,
            row.dtype,
            row.codec,
            *_sizes(row),
            f"{100 * row.escape_share:.2f}%" if row.widths else "-",
            f"{row.elems:,}",
            widths_text(row.widths),
        ]
        table.add_row(*([row.file] if several_files else []), *cells, end_section=place == len(rows))
    if len(rows) > 1:
        for codec in dict.fromkeys(row.requested_codec for row in rows):
            total = TotalRatio.of([row for row in rows if row.requested_codec == codec])
            cells = ["total", "", codec, *_sizes(total), "", "", ""]
            table.add_row(*([""] if several_files else []), *cells)
    return table


def _sizes(row: TensorRatio | TotalRatio) -> list[str]:
    return [
        bytes_text(row.raw_bytes),
        *("-" if value is None else f"{value:.4f}" for value in (row.ratio, row.exponent_entropy, row.trailing_zeros)),
        "-" if not row.ratio or not row.bound else f"{100 * (row.ratio / row.bound - 1):+.1f}%",
    ]

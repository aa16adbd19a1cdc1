"""`ratio`: compression ratios of the tensors in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._files.atomic import check_writable
from .._files.opening import opened_source
from ..files import is_encoded
from ..ratios import TensorRatio, tensor_ratios_of
from ._common import (
    BadUse,
    DtypeOption,
    ThreadsOption,
    codec_name,
    dtype_errors_as_bad_use,
    input_file,
    output_file,
    print_json,
)
from .files import widths_text

if TYPE_CHECKING:
    from ._tables import Table


def ratio(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="safetensors, npy, or plain values with --dtype; -: standard input."),
    ],
    dtype: DtypeOption = None,
    codec: Annotated[list[str] | None, typer.Option(help="Repeatable. Default: window.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a list of objects, one per tensor and codec.")] = False,
    threads: ThreadsOption = None,
    plot: Annotated[Path | None, typer.Option(metavar="OUT.png", help="Draw ratios and bounds.")] = None,
) -> None:
    """Show the compression ratio of every tensor, and its entropy bound."""
    codecs = codec or ["window"]
    for name in codecs:
        codec_name(name)
    if plot is not None:
        from .. import plots

        # Fails before the work, not after it.
        plots.require()
        if plot.suffix not in plots.FORMATS:
            raise BadUse(f"{plot} must end in one of {', '.join(plots.FORMATS)}")
        output_file(str(plot), *sources)
        check_writable(plot)
    rows: list[TensorRatio] = []
    for source in sources:
        with opened_source(input_file(source)) as file, dtype_errors_as_bad_use():
            if dtype is None and is_encoded(file.file):
                raise BadUse(f"{file.name} is already encoded: use narrowcast inspect")
            for one in codecs:
                file.file.seek(0)
                rows += tensor_ratios_of(file, dtype, one, threads)
    if plot is not None:
        plots.plot_ratios(rows, plot)
    if json:
        print_json([row.as_json() for row in rows])
    else:
        from ._tables import console

        console().print(_table(rows, several=len(sources) > 1))


def _table(rows: list[TensorRatio], several: bool) -> Table:
    from ._tables import Table

    table = Table()
    if several:
        table.add_column("file")
    for name in ("tensor", "type", "codec"):
        table.add_column(name, overflow="fold")
    for name in ("values", "ratio", "bound", "above bound"):
        table.add_column(name, justify="right")
    table.add_column("blocks of width")
    table.add_column("escapes", justify="right")
    for row in rows:
        measured, bound = row.ratio, row.bound
        cells = [row.tensor, row.dtype, row.codec, f"{row.elems:,}"]
        cells += ["-" if value is None else f"{value:.4f}" for value in (measured, bound)]
        cells.append("-" if not measured or not bound else f"{100 * (measured / bound - 1):.1f}%")
        cells.append(widths_text(row.widths))
        cells.append(f"{100 * row.escape_share:.2f}%" if row.widths else "-")
        table.add_row(*([row.file, *cells] if several else cells))
    return table

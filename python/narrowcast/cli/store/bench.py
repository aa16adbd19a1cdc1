"""`store bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..._bench import samples
from ..._bench.store_speed import measure
from ..._files.atomic import check_writable
from ..._files.display import printable
from ..._native.library import library_version
from ..._native.structures import STORE_LAYOUTS
from ...errors import InternalError
from .._common import BadUse, DtypeOption, dtype_errors_as_bad_use, existing_file, print_json, write_json
from ..bench.codec import processor
from ..bench.collectives import parse_size
from ..bench.options import OutputFile

_LINE = "{:20} {:11} {:>6} {:>7} {:14} {:7} {:>6} {:>7} {:>7} {:>7} {:>7} {:>9} {:>5}"


def bench(
    source: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="safetensors or npy; default: tensors of the package.")
    ] = None,
    dtype: DtypeOption = None,
    tensor: Annotated[str | None, typer.Option(help="Only this tensor.")] = None,
    row_bytes: Annotated[str, typer.Option(metavar="SIZES", help="Bytes of a row, separated by commas.")] = "512,2K",
    table: Annotated[str, typer.Option(metavar="SIZE", help="The tensor is repeated to this size.")] = "256M",
    rows: Annotated[int, typer.Option(min=1, help="Rows of a gather.")] = 100_000,
    codec: Annotated[str, typer.Option(help="A row codec, such as window.")] = "auto",
    layout: Annotated[str, typer.Option(help=f"One of {', '.join(STORE_LAYOUTS)}.")] = "auto",
    threads: Annotated[str, typer.Option(help="Numbers of threads, separated by commas; 0: as many as CPUs.")] = "1,0",
    iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Timed runs.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    output_file: OutputFile = None,
) -> None:
    """Measure build, gather, fetch and update on the host in GB/s of raw bytes, next to numpy.take, and compare."""
    try:
        thread_counts = [int(text) for text in threads.split(",")]
    except ValueError:
        raise BadUse(f"--threads {threads} is not a list of numbers") from None
    if min(thread_counts) < 0:
        raise BadUse("--threads must not be negative")
    sizes = [parse_size(text) for text in row_bytes.split(",")]
    table_bytes = parse_size(table)
    if output_file is not None:
        check_writable(output_file)
    with dtype_errors_as_bad_use():
        tensors = samples.packaged() if source is None else samples.tensors(existing_file(source), dtype)
    chosen = {name: entry for name, entry in tensors.items() if entry[1].size and tensor in (None, name)}
    if not chosen:
        raise BadUse(f"there is no tensor {tensor!r} (known: {', '.join(tensors)})")
    heading = ("tensor", "type", "row", "threads", "codec", "layout", "ratio")
    if not json:
        print(f"# on {processor()}; GB/s of raw bytes, medians of {iterations}; tables of {table}")
        print(_LINE.format(*heading, "build", "gather", "take", "fetch", "updates/s", "exact"), flush=True)
    results: list[dict[str, Any]] = []
    for name, (kind, raw) in chosen.items():
        for size in sizes:
            if not size or size % kind.bytes:
                raise BadUse(f"--row-bytes {size} is not a whole number of {kind.name} values")
            for count in thread_counts:
                result = measure(
                    raw,
                    kind,
                    size,
                    table_bytes=table_bytes,
                    gathered_rows=rows,
                    codec=codec,
                    layout=layout,
                    threads=count,
                    iterations=iterations,
                )
                results.append({"tensor": name, "dtype": kind.name, **result})
                if not json:
                    _print_row(results[-1])
    report = {
        "device": processor(),
        "version": library_version(),
        "table_bytes": table_bytes,
        "gathered_rows": rows,
        "iterations": iterations,
        "rows": results,
    }
    if json:
        print_json(report)
    if output_file is not None:
        write_json(report, output_file)
    inexact = [row["tensor"] for row in results if not row["exact"]]
    if inexact:
        raise InternalError(f"decoded rows differ for {', '.join(inexact)}")


def _print_row(row: dict[str, Any]) -> None:
    speeds = [f"{row[f'{name}_gb_per_s']:.2f}" for name in ("build", "gather", "numpy_take", "fetch")]
    print(
        _LINE.format(
            printable(row["tensor"]),
            row["dtype"],
            row["row_bytes"],
            row["threads"],
            row["codec"],
            row["layout"],
            f"{row['ratio']:.4f}",
            *speeds,
            f"{row['updates_per_s']:.0f}" if "updates_per_s" in row else "-",
            "yes" if row["exact"] else "NO",
        ),
        flush=True,
    )

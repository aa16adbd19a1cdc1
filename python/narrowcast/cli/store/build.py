"""`store build`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ... import store
from ..._files.display import bytes_text, printable
from ..._native.store_structures import STORE_LAYOUTS
from .._common import (
    BadUse,
    DtypeOption,
    ForceOption,
    dtype_errors_as_bad_use,
    existing_file,
    output_file,
    print_json,
    progress_bar,
    reject_existing,
)


def build(
    source: Annotated[Path, typer.Argument(metavar="IN", help="safetensors (encoded or not) or npy.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Replaced only after everything has been written.")],
    tensor: Annotated[str | None, typer.Option(help="The tensor of a safetensors file with several.")] = None,
    codec: Annotated[str, typer.Option(help="A row codec, such as window or zeros+trim+invariant.")] = "auto",
    layout: Annotated[str, typer.Option(help=f"One of {', '.join(STORE_LAYOUTS)}.")] = "auto",
    dtype: DtypeOption = None,
    capacity: Annotated[int | None, typer.Option(min=0, help="Rows to reserve space for, to append to.")] = None,
    spare: Annotated[int | None, typer.Option(min=0, help="Free overflow entries, for updates.")] = None,
    threads: Annotated[int, typer.Option(min=0, help="Threads that encode; 0: the number of CPUs.")] = 0,
    device: Annotated[str, typer.Option(help="What encodes: cpu, cuda, or cuda:N.")] = "cpu",
    force: ForceOption = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report, with reasons for codec and layout.")] = False,
) -> None:
    """Encode the rows of a tensor to a table file."""
    existing_file(source)
    reject_existing(output_file(str(target), str(source)), force)
    reports: list[Any] = []
    with dtype_errors_as_bad_use(), progress_bar("build", None) as progress:
        try:
            store.build(
                source,
                codec,
                layout,
                target,
                dtype=dtype,
                tensor=tensor,
                capacity=capacity,
                spare=spare,
                threads=threads,
                device=device,
                progress=progress,
                host=None,
                report=reports.append,
            )
        except (TypeError, ValueError) as error:
            if type(error) in (TypeError, ValueError):
                raise BadUse(str(error).replace("with dtype=", "with --dtype")) from None
            raise
    (report,) = reports
    if json:
        print_json({**asdict(report), "ratio": report.ratio})
        return
    sizes = f"{bytes_text(report.raw_bytes)} -> {bytes_text(report.stored_bytes)}, ratio {report.ratio:.4f}"
    print(printable(f"{source} -> {target}: {report.rows} rows, {report.codec}, {report.layout}, {sizes}"))

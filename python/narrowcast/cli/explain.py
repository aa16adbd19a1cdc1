"""`explain`: what the CUDA backend would do with a call, why, and how long that should take."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer
from rich.table import Table

from .._bench import operations
from .._comm.explain import Explanation, Prediction
from .._comm.explain import explain as explain_call
from ..cuda import device_count
from ..types import value_type
from ._common import BadUse, bytes_text, comm_codec_name, console, print_json
from .bench.collectives import parse_size

# Where there are not several GPUs whose number could be meant.
_RANKS = 8
_MOST_RANKS = 8


def explain(
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help=", ".join(operations.NAMES))],
    size: Annotated[
        str, typer.Option("--bytes", metavar="SIZE", help="As `bench` has it: of the larger buffer, such as 64M.")
    ],
    dtype: Annotated[str, typer.Option("-d", "--dtype", help="Value type.")] = "bfloat16",
    ranks: Annotated[int | None, typer.Option(min=1, max=_MOST_RANKS, help="By default all GPUs, or 8.")] = None,
    codec: Annotated[str, typer.Option(callback=comm_codec_name, help="auto or a codec.")] = "auto",
    ctas: Annotated[
        int, typer.Option(min=0, max=64, help="At most this many CTAs; 0: NARROWCAST_MAX_CTAS, or no limit.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON in place of the table.")] = False,
) -> None:
    """Say what the CUDA backend would do with a call, why, and how long that should take. Needs no GPU."""
    if operation not in operations.NAMES:
        raise BadUse(f"{operation!r} is not an operation (known: {', '.join(operations.NAMES)})")
    try:
        kind = value_type(dtype)
    except ValueError as error:
        raise BadUse(str(error)) from None
    size_bytes = parse_size(size)
    if ranks is None:
        here = device_count()
        ranks = min(here, _MOST_RANKS) if here > 1 else _RANKS
    # At least one value, as the benchmark sends.
    count = operations.count_of(operation, size_bytes, kind, ranks) if size_bytes else 0
    found = explain_call(operations.call_of(operation), count, dtype=kind.name, ranks=ranks, codec=codec, max_ctas=ctas)
    asked = {
        "operation": operation,
        "bytes": operations.size_of(operation, count, kind, ranks),
        "count": count,
        "dtype": kind.name,
        "ranks": ranks,
        "codec": codec,
    }
    if json:
        print_json({"asked": asked, "chosen": dataclasses.asdict(found)})
    else:
        console().print(_table(asked, found))


def _table(asked: dict[str, Any], found: Explanation) -> Table:
    table = Table(title="{operation} of {count:,} {dtype} between {ranks} ranks".format(**asked), title_justify="left")
    for name in ("", "chosen", "why"):
        table.add_column(name, overflow="fold")
    table.add_row("size", bytes_text(asked["bytes"]), "")
    table.add_row("path", found.path if found.ctas else "no kernel", found.path_why)
    if found.shots is not None:
        table.add_row("shots", str(found.shots), found.shots_why)
    table.add_row("codec", found.codec, found.codec_why)
    if found.ctas:
        packets = f"they send packets of {found.packet_bytes} bytes" if found.packet_bytes else ""
        table.add_row("kernel", f"{found.ctas} CTAs of {found.warps} warps", packets)
    if found.rings:
        blocks = f"they share the {found.block_bytes}-byte blocks of the largest piece"
        table.add_row("rings", str(found.rings), blocks)
    if found.predicted.chosen is not None:
        table.add_row("time", f"{found.predicted.chosen:.1f} us", _alternatives(found.predicted))
    if found.costs_warning is not None:
        table.add_row("costs", "", found.costs_warning)
    return table


def _alternatives(predicted: Prediction) -> str:
    """What the cost model predicts for every candidate that it knows."""
    parts = []
    for name, cost in predicted.candidates.items():
        if cost.typical is not None:
            worst = "" if cost.incompressible is None else f" ({cost.incompressible:.1f} incompressible)"
            parts.append(f"{cost.typical:.1f} {name}{worst}")
    return "predicted: " + ", ".join(parts)

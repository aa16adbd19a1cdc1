"""`plan simulate`: predicts how long a plan takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..._files.display import bytes_text
from ..._plan.simulation import Simulation, machines
from ..._plan.text import heading
from .._common import BadUse, print_json
from .._sizes import parse_sizes
from .._tables import Column, Table
from ._signals import ended_by_signals
from .source import DepthOption, RanksOption, SourceArgument, check_drawing, plan_of

MachineOption = Annotated[
    str | None,
    typer.Option("--machine", help=f"{', '.join(machines())}, or a file. Default: the smallest with enough GPUs."),
]
RatioOption = Annotated[
    float | None,
    typer.Option(
        "--ratio", min=0.001, help="Wire bytes / raw bytes of encoded values. Default: that of bfloat16 weights."
    ),
]
#: Sizes if none is given.
_SIZES = ("1K", "32K", "1M", "32M", "1G")


def simulate(
    source: SourceArgument,
    size: Annotated[
        list[str] | None,
        typer.Option("--bytes", metavar="SIZE", help="Sizes of the larger buffer, as for `bench`, such as 1M,64M."),
    ] = None,
    machine: MachineOption = None,
    ratio: RatioOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print a list of objects, one per size.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="OUT", help="Draw OUT.png, .svg or .pdf, or write OUT.json, a Chrome trace."
        ),
    ] = None,
    ranks: RanksOption = None,
    depth: DepthOption = None,
) -> None:
    """Predict how long a plan takes on a machine.

    The machine is described by a file and need not exist.
    """
    sizes = [nbytes for texts in size or _SIZES for nbytes in parse_sizes(texts)]
    if output is not None:
        if len(sizes) != 1 or size is None:
            raise BadUse("-o needs one --bytes")
        check_drawing(output, source)
    plan = plan_of(source, ranks, depth)
    with ended_by_signals():
        simulations = plan.simulations(sizes, machine=machine, ratio=ratio)
    if output is not None:
        simulations[0].show(output)
    if json:
        print_json([_row(one) for one in simulations])
        return
    table = Table(
        Column("bytes", is_number=True),
        Column("time, us", is_number=True),
        Column("in a row, us", is_number=True),
        Column("busbw, GB/s", is_number=True),
        Column("most sent", is_number=True),
        Column("groups busy", is_number=True, rank=1),
        title=f"{heading(plan.model)}; on {simulations[0].machine}",
    )
    for one in simulations:
        share = sum(one.busy.values()) / max(len(one.busy), 1)
        table.add_row(
            bytes_text(one.nbytes),
            f"{one.microseconds:.1f}",
            f"{one.repeated_us:.1f}",
            f"{one.busbw_gb_per_s:.1f}",
            bytes_text(max(one.sent_bytes)),
            f"{100 * share:.0f}%",
        )
    table.print()


def _row(one: Simulation) -> dict[str, object]:
    return {
        "bytes": one.nbytes,
        "machine": one.machine,
        "microseconds": one.microseconds,
        "repeated_us": one.repeated_us,
        "busbw_gb_per_s": one.busbw_gb_per_s,
        "sent_bytes": list(one.sent_bytes),
        "busy": [{"rank": rank, "thread_block": group, "share": share} for (rank, group), share in one.busy.items()],
    }

"""`plan schedule`: merges groups of a plan, so that it needs fewer thread blocks."""

from __future__ import annotations

from typing import Annotated

import typer

from ...plan import ScheduleCost
from .._common import STANDARD_STREAM, output_file
from .._sizes import parse_size
from .._tables import Column, Table
from ._signals import ended_by_signals
from .simulate import MachineOption, RatioOption
from .source import DepthOption, RanksOption, SourceArgument, plan_of


def schedule(
    source: SourceArgument,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="OUT", help="The merged plan, as JSON; -: standard output.")
    ],
    size: Annotated[
        str, typer.Option("--bytes", metavar="SIZE", help="Size of the larger buffer of the calls, as for `bench`.")
    ] = "1M",
    max_groups: Annotated[
        int, typer.Option(min=0, help="Most groups of a rank, even if calls then take longer; 0: no limit.")
    ] = 0,
    max_instances: Annotated[
        int, typer.Option(min=1, help="How often the plan may be replicated, to divide its work more evenly.")
    ] = 2,
    any_executor: Annotated[
        bool, typer.Option("--any-executor", help="The plan may exceed the limits of generated kernels, to export it.")
    ] = False,
    machine: MachineOption = None,
    ratio: RatioOption = None,
    ranks: RanksOption = None,
    depth: DepthOption = None,
) -> None:
    """Merge groups that need no thread blocks of their own."""
    nbytes = parse_size(size)
    if output != STANDARD_STREAM:
        output_file(output, source)  # raises BadUse for the input itself
    plan = plan_of(source, ranks, depth)
    with ended_by_signals():
        found = plan.schedule(
            nbytes,
            machine=machine,
            ratio=ratio,
            max_groups=max_groups,
            max_instances=max_instances,
            any_executor=any_executor,
        )
    if output == STANDARD_STREAM:
        print(found.plan.json())
        return
    found.plan.save(output)
    table = Table("", *(Column(name, is_number=True) for name in ("groups", "time, us", "most idle")))
    for name, cost in (("before", found.before), ("after", found.after)):
        table.add_row(name, *_cells(cost))
    table.print()


def _cells(cost: ScheduleCost) -> tuple[str, str, str]:
    return str(cost.groups), f"{cost.microseconds:.1f}", f"{100 * cost.most_idle:.0f}%"

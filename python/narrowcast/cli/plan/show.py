"""`plan show`: who sends what when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..._plan.text import listing
from .._common import BadUse
from ._lines import print_lines
from ._signals import ended_by_signals
from .source import DepthOption, RanksOption, SourceArgument, check_drawing, plan_of


def show(
    source: SourceArgument,
    rank: Annotated[list[int] | None, typer.Option("--rank", min=0, help="List this rank only. Repeatable.")] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="Draw OUT.png, .svg or .pdf, or write OUT.json, a Chrome trace for Perfetto. Repeatable.",
        ),
    ] = None,
    ranks: RanksOption = None,
    depth: DepthOption = None,
) -> None:
    """List the steps of a plan, or draw who sends what when.

    The time axis of drawings is logical: a step takes one unit and starts as soon as it can.
    """
    for path in output or ():
        check_drawing(path, source)
    plan = plan_of(source, ranks, depth)
    for path in output or ():
        plan.show(path)
    if output:
        return
    with ended_by_signals():
        plan.check_form()
    for number in rank or ():
        if number >= len(plan.model.ranks):
            raise BadUse(f"there is no rank {number}: {source} has {len(plan.model.ranks)}")
    print_lines(listing(plan.model, rank))

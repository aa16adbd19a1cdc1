"""`plan show`: who sends what when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..._files.atomic import check_writable
from ..._plan import drawing
from ..._plan.text import listing
from .._common import BadUse, output_file
from ._lines import print_lines
from .source import DepthOption, RanksOption, SourceArgument, plan_of

_TRACE = ".json"


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
    known = (*drawing.FORMATS, _TRACE)
    for path in output or ():
        if path.suffix not in known:
            raise BadUse(f"{path} must end in one of {', '.join(known)}")
        # Fails before the work, not after it.
        output_file(str(path), source)
        check_writable(path)
        if path.suffix != _TRACE:
            drawing.require()
    plan = plan_of(source, ranks, depth)
    for path in output or ():
        plan.show(path)
    if output:
        return
    for number in rank or ():
        if number >= len(plan.model.ranks):
            raise BadUse(f"there is no rank {number}: {source} has {len(plan.model.ranks)}")
    print_lines(listing(plan.model, rank))

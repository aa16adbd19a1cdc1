"""`plan compile`: compiles the kernels of a plan ahead of time."""

from __future__ import annotations

import json as json_format
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from ..._native.plan import NativePlan
from ...types import reduction_number, value_type
from .._common import ReductionOption, TypeOption, print_json
from .source import DepthOption, RanksOption, SourceArgument, proved_plan_of


def compile_plan(
    source: SourceArgument,
    architecture: Annotated[
        int, typer.Option("--arch", min=80, max=999, help="Compute capability of the GPUs, such as 90.")
    ] = 90,
    dtype: TypeOption = "bfloat16",
    op: ReductionOption = "sum",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FOLDER", help="Default: NARROWCAST_PLAN_CACHE, or ~/.cache/narrowcast/plans."
        ),
    ] = None,
    ranks: RanksOption = None,
    depth: DepthOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compile the GPU kernels of a plan ahead of time.

    They are kept in the folder where communicators look for them. Needs no GPU. Only plans that are proved are
    compiled.
    """
    numbers = value_type(dtype).number, reduction_number(op)
    plan = proved_plan_of(source, ranks, depth)[0]
    text = NativePlan.read(plan.json()).compile(*numbers, architecture, None if output is None else str(output))
    report: dict[str, Any] = json_format.loads(text)
    if not report["kept"]:
        warnings.warn("NARROWCAST_PLAN_CACHE is off: the kernels are not kept", stacklevel=1)
    if json:
        print_json(report)
        return
    for kernel in report["kernels"]:
        print(f"{kernel['kernel']}: {'in the library' if kernel.get('built_in') else str(kernel['bytes']) + ' bytes'}")
    print(f"{report['seconds']:.3f} seconds")

"""`plan run`: runs a plan between threads or GPUs of this machine, and checks its results."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ..._bench.plan_gpu_ranks import run_plan_on_gpus
from ..._bench.plan_ranks import run_plan
from ..._files.display import bytes_text
from ..._plan.text import heading
from ...errors import InternalError
from ...types import REDUCTIONS, value_type
from .._common import backend_name, dtype_name, print_json, reduction_name
from .._sizes import parse_sizes
from .._tables import Column, Table
from ._backend import are_on_gpus
from .source import DepthOption, RanksOption, SourceArgument, proved_plan_of

_SIZES = "1,1000,64K,1M"


def run(
    source: SourceArgument,
    size: Annotated[
        str, typer.Option("--bytes", metavar="SIZES", help="Sizes of the larger buffer, as for `bench`, such as 1K,1M.")
    ] = _SIZES,
    dtype: Annotated[str, typer.Option("-d", "--dtype", callback=dtype_name, help="Value type.")] = "bfloat16",
    op: Annotated[
        str, typer.Option("--op", callback=reduction_name, help=f"Reduction: {', '.join(REDUCTIONS)}.")
    ] = "sum",
    backend: Annotated[
        str, typer.Option(callback=backend_name, help="host (ranks are threads) or cuda (a GPU for each rank).")
    ] = "host",
    iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Calls of each size.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of the table.")] = False,
    ranks: RanksOption = None,
    depth: DepthOption = None,
) -> None:
    """Run a plan on CPUs or GPUs and check its results.

    Times are those of the fastest call, until the host sees its end. Exit status: 1 if a result is wrong or the plan
    is not proved.
    """
    sizes = parse_sizes(size)
    kind = value_type(dtype)
    plan, proof = proved_plan_of(source, ranks, depth)
    exact = proof.roundings <= 1 and proof.rank_order and not proof.inexact_encodings
    on_gpus = are_on_gpus(backend, len(plan.model.ranks))
    outcomes = (run_plan_on_gpus if on_gpus else run_plan)(
        plan, sizes, dtype=kind.name, op=op, iterations=iterations, exact=exact
    )
    if json:
        print_json([asdict(one) for one in outcomes])
    else:
        columns = [Column(name, is_number=True) for name in ("bytes", "time, us", "wrong values")]
        where = "GPUs" if on_gpus else "the host"
        table = Table(*columns[:1], "in place", *columns[1:], title=f"{heading(plan.model)}; {kind.name} on {where}")
        for one in outcomes:
            table.add_row(
                bytes_text(one.nbytes), "yes" if one.in_place else "no", f"{one.microseconds:.1f}", str(one.wrong)
            )
        table.print()
    if any(one.wrong for one in outcomes):
        raise InternalError(f"{source}: results are wrong")

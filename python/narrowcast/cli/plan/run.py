"""`plan run`: runs a plan between threads or GPUs of this machine, and checks its results."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ..._bench import operations
from ..._bench.plan_gpu_ranks import run_plan_on_gpus
from ..._bench.plan_ranks import run_plan
from ..._files.display import bytes_text
from ..._plan.text import heading
from ...errors import InternalError
from ...types import value_type
from .._common import ReductionOption, TypeOption, backend_name, print_json
from .._sizes import parse_sizes
from .._tables import Column, Table
from ._calls import JsonOption, SizesOption, are_on_gpus, is_exact
from .source import DepthOption, RanksOption, SourceArgument, proved_plan_of

_SIZES = "1,1000,64K,1M"


def run(
    source: SourceArgument,
    size: SizesOption = _SIZES,
    dtype: TypeOption = "bfloat16",
    op: ReductionOption = "sum",
    backend: Annotated[
        str, typer.Option(callback=backend_name, help="host (ranks are threads) or cuda (a GPU for each rank).")
    ] = "host",
    iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Calls of each size.")] = 5,
    json: JsonOption = False,
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
    operation, rank_count = plan.model.operation, len(plan.model.ranks)
    counts = [operations.count_of(operation, one, kind, rank_count) for one in sizes]
    sizes = [operations.size_of(operation, one, kind, rank_count) for one in counts]  # of whole values
    on_gpus = are_on_gpus(backend, rank_count)
    outcomes = (run_plan_on_gpus if on_gpus else run_plan)(
        plan, sizes, dtype=kind.name, op=op, iterations=iterations, exact=is_exact(proof)
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

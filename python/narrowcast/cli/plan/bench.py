"""`plan bench`: measures a plan against the built-in way, for the same calls."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..._bench import operations
from ..._bench.launch import run_ranks
from ..._bench.plan_bench_ranks import BUILT_IN_NAME, PLAN_NAME
from ..._files.display import bytes_text
from ..._native.codecs import forced
from ..._plan.text import heading
from ...comm import unique_id
from ...errors import InternalError
from ...types import value_type
from .._common import ReductionOption, TypeOption, backend_name, comm_codec_name, print_json
from .._sizes import parse_sizes
from .._tables import Column, Table
from ._calls import JsonOption, SizesOption, are_on_gpus, check_comparable, is_exact
from .source import DepthOption, RanksOption, SourceArgument, proved_plan_of

_SIZES = "1K,16K,256K,4M"
_CALL_TIMEOUT_SECONDS, _RUN_TIMEOUT_SECONDS = 60.0, 1800.0


def bench(
    source: SourceArgument,
    size: SizesOption = _SIZES,
    dtype: TypeOption = "bfloat16",
    op: ReductionOption = "sum",
    codec: Annotated[
        str, typer.Option(callback=comm_codec_name, help="Codec of the built-in way, which is forced, or auto.")
    ] = "auto",
    backend: Annotated[
        str | None,
        typer.Option(
            callback=backend_name, help="host (processes) or cuda. Default: cuda if there are as many GPUs as ranks."
        ),
    ] = None,
    iterations: Annotated[int, typer.Option("-n", "--iters", min=1, help="Calls in a batch.")] = 20,
    batches: Annotated[int, typer.Option(min=1, help="Batches; the table has their median.")] = 9,
    json: JsonOption = False,
    ranks: RanksOption = None,
    depth: DepthOption = None,
) -> None:
    """Measure a plan against the built-in way.

    Both run in the same processes, in turns.

    Exit status: 1 if a result is wrong or the plan is not proved.
    """
    sizes = parse_sizes(size)
    kind = value_type(dtype)
    plan, proof = proved_plan_of(source, ranks, depth)
    check_comparable(plan, source)
    model = plan.model
    rank_count = len(model.ranks)
    on_gpus = are_on_gpus(
        backend, rank_count, ". Processes that share a GPU take turns on it, and that is what would be measured"
    )
    counts = [operations.count_of(model.operation, one, kind, rank_count) for one in sizes]
    arguments = {
        # Created here, because this process lives as long as the ranks.
        "unique_id": unique_id(local=True).hex(),
        **({"host_id": unique_id(local=True).hex()} if on_gpus else {}),
        "ranks": rank_count,
        "plan": plan.json(),
        "operation": model.operation,
        "root": model.root,
        "dtype": kind.name,
        "op": op,
        "codec": forced(codec),
        "in_place": model.in_place == "yes",
        "exact": is_exact(proof),
        "counts": list(dict.fromkeys(counts)),
        "iterations": iterations,
        "batches": batches,
        "timeout_seconds": _CALL_TIMEOUT_SECONDS,
    }
    rows: list[dict[str, Any]] = []
    run_ranks(
        f"narrowcast._bench.plan_bench_ranks:{'bench_cuda' if on_gpus else 'bench_host'}",
        [{**arguments, "rank": rank} for rank in range(rank_count)],
        lambda results: rows.append(_row(model.operation, kind.bytes, rank_count, results)),
        timeout_seconds=_RUN_TIMEOUT_SECONDS,
    )
    if json:
        print_json(rows)
    else:
        _table(f"{heading(model)}; {kind.name} on {'GPUs' if on_gpus else 'the host'}", rows).print()
    if any(row["wrong"] for row in rows):
        raise InternalError(f"{source}: results are wrong")


def _row(operation: str, value_bytes: int, ranks: int, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Times of the rank that took longest, and the wrong values of all ranks."""
    first = results[0]
    parts = ranks if operations.describe(operation).parted else 1

    def slowest(name: str) -> float:
        return max(float(result["contenders"][name]["microseconds"]) for result in results)

    return {
        "bytes": first["count"] * value_bytes * parts,
        "count": first["count"],
        "built_in": first["candidate"],
        "built_in_microseconds": slowest(BUILT_IN_NAME),
        "plan_microseconds": slowest(PLAN_NAME),
        "speedup": slowest(BUILT_IN_NAME) / slowest(PLAN_NAME),
        "wrong": sum(one["wrong"] for result in results for one in result["contenders"].values()),
    }


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    numbers = [Column(name, is_number=True) for name in ("built-in, us", "plan, us", "speed-up", "wrong values")]
    table = Table(Column("bytes", is_number=True), "built-in way", *numbers, title=title)
    for row in rows:
        table.add_row(
            bytes_text(row["bytes"]),
            row["built_in"],
            f"{row['built_in_microseconds']:.1f}",
            f"{row['plan_microseconds']:.1f}",
            f"{row['speedup']:.2f}",
            str(row["wrong"]),
        )
    return table

"""`tune --backend host`: measures the plans with which the host backend can run calls."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .._bench.cost_model import Curve, Times
from .._bench.launch import run_ranks
from .._bench.operations import describe, names
from .._bench.tune_host_ranks import DTYPE
from .._bench.tuned_plans import TunedPlan
from .._comm.explain import Explanation, changes
from .._files.display import bytes_text
from ..comm import unique_id
from ..local import LocalRanks
from ..types import value_type
from ._provenance import commit
from ._sizes import sizes
from ._tables import Column, Table
from .tune_plans import plan_table

LINK = "shm"
_FIRST_BYTES, _LAST_BYTES = 1 << 10, 16 << 20
_BATCHES, _QUICK_BATCHES = 9, 5
_FACTOR = 4
_CALL_TIMEOUT_SECONDS = 60.0
_RUN_TIMEOUT_SECONDS = 3600.0


def measure_host(
    times: Times,
    ranks: int,
    *,
    quick: bool,
    plans: Sequence[TunedPlan] = (),
    operations: tuple[str, ...] | None = None,
    last_bytes: int = _LAST_BYTES,
) -> str:
    """Runs the ranks and adds the times that they measure. Returns a remark that describes the run.

    plans: those of the user, for these ranks.
    operations, last_bytes: for tests.
    """
    batches = _QUICK_BATCHES if quick else _BATCHES
    arguments = {
        "unique_id": unique_id(local=True).hex(),  # created here, because this process lives as long as the ranks
        "ranks": ranks,
        "names": operations or tuple(name for name in names() if name != "sendrecv"),
        "sizes": list(sizes(_FIRST_BYTES, last_bytes, _FACTOR)),
        "batches": batches,
        "plans": [dataclasses.asdict(plan) for plan in plans],
        "timeout_seconds": _CALL_TIMEOUT_SECONDS,
    }
    versions: dict[str, str] = {}
    seen: set[str] = set()

    def add(results: list[dict[str, Any]]) -> None:
        if not versions:
            versions.update(results[0]["versions"])
            return
        operation = results[0]["operation"]
        if operation not in seen and sys.stderr.isatty():
            print(f"{operation} between {ranks} processes ...", file=sys.stderr, flush=True)
        seen.add(operation)
        for series in results[0]["microseconds"]:
            slowest = max(result["microseconds"][series] for result in results)
            count_bytes = results[0]["count"] * value_type(DTYPE).bytes
            times.add(Curve(operation, ranks, LINK, series), count_bytes, slowest)

    run_ranks(
        "narrowcast._bench.tune_host_ranks:tune",
        [{**arguments, "rank": rank} for rank in range(ranks)],
        add,
        timeout_seconds=_RUN_TIMEOUT_SECONDS,
    )
    return (
        f"{ranks} processes: Narrowcast {versions['narrowcast']}, commit {commit()}; "
        f"{batches} batches, slowest rank, median"
    )


def host_table(times: Times, ranks: int, path: Path) -> Table:
    """The sizes at which the plan changes. The library makes the choices, with the new model."""
    titles = ("", f"plan for {DTYPE}, by bytes from rank to rank", "for int32")
    table = Table(*(Column(name, folds=True) for name in titles), title=f"{ranks} processes")
    with LocalRanks(ranks, cost_model=path) as comms:
        for operation in dict.fromkeys(curve.operation for curve in times.curves() if curve.link == LINK):
            # Sums of integers do not depend on the order, so more plans are allowed.
            kinds = (DTYPE, "int32") if describe(operation).reduces else (DTYPE,)
            choices = [_choices(functools.partial(comms[0].explain, operation, dtype=kind), kind) for kind in kinds]
            table.add_row(operation, choices[0], choices[1] if len(choices) > 1 else "")
    return table


def host_plan_table(times: Times, ranks: int, path: Path, plans: Sequence[TunedPlan]) -> Table:
    """The sizes for which plans of the user were faster than what runs without them."""
    value_bytes = value_type(DTYPE).bytes
    with LocalRanks(ranks, cost_model=path) as comms:

        def other(plan: TunedPlan, count_bytes: int) -> float | None:
            said = comms[0].explain(plan.operation, count_bytes // value_bytes, dtype=DTYPE)
            return said.predicted.chosen

        return plan_table(times, ranks, LINK, plans, other)


def _choices(explain_count: Callable[[int], Explanation], dtype: str) -> str:
    """ "all_pairs, ring from 1.49 MiB" """
    kind = value_type(dtype)
    found = changes(lambda count: explain_count(count).plan, _FIRST_BYTES // kind.bytes, _LAST_BYTES // kind.bytes)
    (_, first), *others = found
    return ", ".join([str(first), *(f"{name} from {bytes_text(count * kind.bytes)}" for count, name in others)])

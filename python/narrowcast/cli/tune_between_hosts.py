"""What `tune` shows of calls between hosts: the measured times, because the library predicts such calls only for
communicators that are on several hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .._bench.cost_model import Curve, Times, coded
from .._bench.tune_ranks import DTYPE
from .._bench.tuned_plans import TunedPlan
from .._files.display import bytes_text
from ._tables import Column, Table
from .tune_plans import plan_table, ranges

BETWEEN_HOSTS = "gpu_network"


def between_hosts_table(times: Times, ranks: int, path: Path) -> Table:
    """The codecs that were fastest, and the sizes for which they were faster than NCCL."""
    titles = ("", "fastest codec, by bytes from rank to rank", "faster than NCCL's default")
    table = Table(*(Column(name, folds=True) for name in titles), title=f"{ranks} ranks between hosts, {DTYPE}")
    curves = [curve for curve in times.curves() if (curve.ranks, curve.link) == (ranks, BETWEEN_HOSTS)]
    for operation in dict.fromkeys(curve.operation for curve in curves):
        own = _fastest(times, operation, ranks)
        nccl = times.typical(Curve(operation, ranks, BETWEEN_HOSTS, "nccl:default"))
        faster = {size: own[size][0] < nccl[size] for size in own if size in nccl}
        table.add_row(operation, ", ".join(_codecs(own)), (", ".join(ranges(faster)) or "none") if nccl else "unknown")
    return table


def between_hosts_plan_table(times: Times, ranks: int, path: Path, plans: Sequence[TunedPlan]) -> Table:
    """The sizes for which plans of the user were faster than what runs without them."""

    def other(plan: TunedPlan, count_bytes: int) -> float | None:
        found = _fastest(times, plan.operation, ranks).get(count_bytes)
        return None if found is None else found[0]

    return plan_table(times, ranks, BETWEEN_HOSTS, plans, other)


def _fastest(times: Times, operation: str, ranks: int) -> dict[int, tuple[float, str]]:
    """The shortest time in microseconds of each measured size, and its codec."""
    found: dict[int, tuple[float, str]] = {}
    for codec in ("raw", *coded(DTYPE, exact=True)):
        measured = times.typical(Curve(operation, ranks, BETWEEN_HOSTS, f"blocks:{codec}"))
        for count_bytes, microseconds in measured.items():
            found[count_bytes] = min(found.get(count_bytes, (microseconds, codec)), (microseconds, codec))
    return dict(sorted(found.items()))


def _codecs(fastest: dict[int, tuple[float, str]]) -> Iterator[str]:
    """ "raw", "window from 64.00 KiB" """
    before = None
    for count_bytes, (_, codec) in fastest.items():
        if codec != before:
            yield codec if before is None else f"{codec} from {bytes_text(count_bytes)}"
        before = codec

"""The text of a cost model (docs/guide/tuning.md), made of what was measured."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from .._comm.explain import explain
from .._native.settings import environment_of
from ..errors import InvalidArgumentError
from ..types import OPERATIONS, value_type
from .operations import call_of

# Of a packet's 16 bytes 12 are values, or 120 of 128. Early reports could not count packets.
_LEAST_RATIO_OF_PACKETS = 1.05
# What window cannot shrink.
INCOMPRESSIBLE = "random"
LINKS = ("nvlink", "pcie", "host")
SERIES = ("packets", "blocks:raw", "blocks:window", "blocks:window/incompressible", "nccl", "nccl:default")
UNKNOWN_KERNELS = "unknown"


class Curve(NamedTuple):
    """What a line of the model begins with."""

    operation: str
    ranks: int
    link: str  #: of LINKS
    series: str  #: a candidate, of SERIES


class ContradictionError(ValueError):
    """What a report says of itself cannot be true."""


class Times:
    """What was measured on a machine, curve by curve."""

    def __init__(self) -> None:
        self._of: dict[Curve, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, curve: Curve, count_bytes: int, microseconds: float) -> None:
        """A call of so many bytes, as the model counts them."""
        self._of[curve][count_bytes].append(microseconds)

    def add_report(self, report: dict[str, Any], environment: str = "") -> None:
        """What a report of `narrowcast bench` says of calls between GPUs: in graphs, out of place, not in groups, on
        the slowest rank, without registered memory or a limit of CTAs. Nothing when it is of others.

        environment: the variables that were set for it. ContradictionError when the report says otherwise.
        """
        in_graphs = report["backend"] == "cuda" and report["graph_calls"] and not report["ctas"]
        others = report["in_place"] or report["pattern"] != "ring" or report.get("register") or report["ranks"] < 2
        # Reports from before there were these have neither.
        others = others or report.get("group_calls", 1) > 1 or report.get("blocking") or report.get("average", 3) != 3
        if not in_graphs or others:
            return
        link = _link(report, environment)
        for row in report["rows"]:
            for series in _series(report["data"], row):
                curve = Curve(call_of(report["operation"]), report["ranks"], link, series)
                self.add(curve, row["count"] * value_type(row["type"]).bytes, row["time_us"])

    def curves(self) -> list[Curve]:
        """What there are times of, in order."""
        return sorted(self._of, key=lambda one: (*one[:3], SERIES.index(one.series)))

    def text(self, machine: str, *remarks: str, kernels: str = UNKNOWN_KERNELS) -> str:
        """The model; ValueError when nothing was measured. kernels: the hash of the library that was measured."""
        if not self._of:
            raise ValueError("there are no times to make a model of")
        lines = [f"narrowcast-costs 2 {machine}", f"kernels {kernels}", *(f"# {remark}" for remark in remarks)]
        for curve in self.curves():
            # Of NCCL the best variant; other times of a size are of other data, of which none is better than another.
            typical = min if curve.series == "nccl" else statistics.median
            words = [f"{count_bytes}:{typical(times):.2f}" for count_bytes, times in sorted(self._of[curve].items())]
            lines.append(" ".join([curve.operation, str(curve.ranks), curve.link, curve.series, *words]))
        return "\n".join(lines) + "\n"


def series_of_nccl(contender: str) -> tuple[str, ...]:
    """The curves that a time of one of NCCL's variants is of."""
    return ("nccl", "nccl:default") if contender == "nccl" else ("nccl",)


def _link(report: dict[str, Any], environment: str) -> str:
    """The link of a report's calls."""
    through_host = "NARROWCAST_P2P=0" in environment.split()
    # Older reports do not state the link, or state "peer" for any link between GPUs.
    link: str = report.get("link") or ("host" if through_host else "peer")
    if link == "peer":
        link = "nvlink"
    if link not in LINKS:
        raise ContradictionError(f"{link!r} is not a link: {', '.join(LINKS)}")
    if link != "host" and through_host:
        raise ContradictionError("its environment has NARROWCAST_P2P=0, and its calls went from GPU to GPU")
    return link


def load(path: Path) -> str | None:
    """Has the library read a model. Returns why it may not fit this library. InvalidArgumentError if it is invalid."""
    with environment_of(NARROWCAST_PATH=""):
        try:
            # Only calls that the model knows have a warning.
            answers = [explain(name, 1 << 20, dtype="bfloat16", ranks=2, cost_model=path) for name in OPERATIONS]
        except InvalidArgumentError as error:
            # The user did not ask for an explanation.
            raise InvalidArgumentError(str(error).removeprefix("ncast_explain: ")) from None
    return next((answer.costs_warning for answer in answers if answer.costs_warning), None)


def _series(data: str, row: dict[str, Any]) -> tuple[str, ...]:
    """The curves that a row of a report is of; none where the library chose."""
    if row["codec"] is None:
        return series_of_nccl(row["contender"])
    if row["codec"] == "window":
        return ("blocks:window/incompressible" if data == INCOMPRESSIBLE else "blocks:window",)
    if row["codec"] == "raw":
        return ("packets" if row["ratio"] is None or row["ratio"] > _LEAST_RATIO_OF_PACKETS else "blocks:raw",)
    return ()

"""The text of a cost model (docs/guide/tuning.md), made of what was measured."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from .._comm.explain import explain
from .._native.settings import environment_of
from ..errors import InvalidArgumentError
from ..types import value_type
from .operations import call_of

# Of a packet's 16 bytes 12 are values, or 120 of 128. Early reports could not count packets.
_LEAST_RATIO_OF_PACKETS = 1.05
# What window cannot shrink.
INCOMPRESSIBLE = "random"
LINKS = ("peer", "host")
PATHS = ("packets", "raw", "window", "window-random", "nccl", "nccl-default")


class Curve(NamedTuple):
    """What a line of the model begins with."""

    operation: str
    ranks: int
    link: str  #: of LINKS
    path: str  #: of PATHS


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
            for path in _paths(report["data"], row):
                curve = Curve(call_of(report["operation"]), report["ranks"], link, path)
                self.add(curve, row["count"] * value_type(row["type"]).bytes, row["time_us"])

    def curves(self) -> list[Curve]:
        """What there are times of, in order."""
        return sorted(self._of, key=lambda one: (*one[:3], PATHS.index(one.path)))

    def text(self, machine: str, *remarks: str) -> str:
        """The model; ValueError when nothing was measured."""
        if not self._of:
            raise ValueError("there are no times to make a model of")
        lines = [f"narrowcast-costs 1 {machine}", *(f"# {remark}" for remark in remarks)]
        for curve in self.curves():
            # Of NCCL the best variant; other times of a size are of other data, of which none is better than another.
            typical = min if curve.path == "nccl" else statistics.median
            words = [f"{count_bytes}:{typical(times):.2f}" for count_bytes, times in sorted(self._of[curve].items())]
            lines.append(" ".join([curve.operation, str(curve.ranks), curve.link, curve.path, *words]))
        return "\n".join(lines) + "\n"


def paths_of_nccl(contender: str) -> tuple[str, ...]:
    """The curves that a time of one of NCCL's variants is of."""
    return ("nccl", "nccl-default") if contender == "nccl" else ("nccl",)


def _link(report: dict[str, Any], environment: str) -> str:
    """Of a report's calls."""
    through_host = "NARROWCAST_P2P=0" in environment.split()
    # Reports from before they said it are of what their environment says.
    link: str = report.get("link") or ("host" if through_host else "peer")
    if link not in LINKS:
        raise ContradictionError(f"{link!r} is not a link: {' or '.join(LINKS)}")
    if link == "peer" and through_host:
        raise ContradictionError("its environment has NARROWCAST_P2P=0, and its calls went from GPU to GPU")
    return link


def load(path: Path) -> None:
    """Has the library read a model. InvalidArgumentError when it makes no sense."""
    with environment_of(NARROWCAST_PATH=""):
        try:
            explain("send", 1, dtype="bfloat16", ranks=2, cost_model=path)
        except InvalidArgumentError as error:
            # Nobody has asked for an explanation.
            raise InvalidArgumentError(str(error).removeprefix("ncast_explain: ")) from None


def _paths(data: str, row: dict[str, Any]) -> tuple[str, ...]:
    """The curves that a row of a report is of; none where the library chose."""
    if row["codec"] is None:
        return paths_of_nccl(row["contender"])
    if row["codec"] == "window":
        return ("window-random" if data == INCOMPRESSIBLE else "window",)
    if row["codec"] == "raw":
        return ("packets" if row["ratio"] is None or row["ratio"] > _LEAST_RATIO_OF_PACKETS else "raw",)
    return ()

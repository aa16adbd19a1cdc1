"""Collects measured times and writes them as a cost model (docs/guide/tuning.md)."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from .._comm.explain import explain
from .._native.codecs import Codec, codecs
from .._native.operations import operations
from .._native.settings import environment_of
from ..errors import InvalidArgumentError
from ..types import value_type
from .operations import call_of

# Packets are longer than their values: 16 bytes for 12, or 128 for 120. So a larger ratio means packets.
_MIN_PACKET_RATIO = 1.05
# The benchmark data that no codec can shrink.
INCOMPRESSIBLE = "random"
LINKS = ("nvlink", "pcie", "host", "gpu_network")
UNKNOWN_KERNELS = "unknown"
_INCOMPRESSIBLE_SUFFIX = "/incompressible"


class Curve(NamedTuple):
    """Identifies a line of the model."""

    operation: str
    ranks: int
    link: str  #: one of LINKS, "shm" or "network"
    series: str  #: one of every_series(), of the host backend, or the name of a plan: "plan:ring"


class Times:
    """The times measured on a machine, by curve and number of bytes."""

    def __init__(self) -> None:
        self._samples: dict[Curve, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, curve: Curve, count_bytes: int, microseconds: float) -> None:
        """Adds the time of a call. count_bytes: the bytes of its `count` values."""
        self._samples[curve][count_bytes].append(microseconds)

    def add_report(self, report: dict[str, Any]) -> None:
        """Adds the times of a report of `narrowcast bench`, unless it was measured under other conditions than a model:
        calls between GPUs, in graphs, out of place, not in groups, time of the slowest rank, without registered memory
        or a limit of CTAs. Raises KeyError or ValueError if it is no such report.
        """
        usable = (
            report["backend"] == "cuda"
            and report["graph_calls"]
            and not report["ctas"]
            and not report["in_place"]
            and report["pattern"] == "ring"
            and not report["register"]
            and report["ranks"] >= 2
            and report["group_calls"] <= 1
            and not report["blocking"]
            and report["average"] == 3
        )
        if not usable:
            return
        link = report["link"]
        if link not in LINKS:
            raise ValueError(f"{link!r} is not a link")
        for row in report["rows"]:
            for series in _series(report["data"], row):
                curve = Curve(call_of(report["operation"]), report["ranks"], link, series)
                self.add(curve, row["count"] * value_type(row["type"]).bytes, row["time_us"])

    def curves(self) -> list[Curve]:
        """The curves that have times, sorted."""
        # Those of the host backend and plans come last.
        places = {series: place for place, series in enumerate(every_series())}
        return sorted(self._samples, key=lambda one: (*one[:3], places.get(one.series, len(places)), one.series))

    def typical(self, curve: Curve) -> dict[int, float]:
        """Microseconds by bytes of `count` values, in ascending order; empty if the curve has no times."""
        # The series "nccl" is NCCL's fastest variant. Times of other series differ only in their data.
        choose = min if curve.series == "nccl" else statistics.median
        samples = self._samples.get(curve, {})
        return {count_bytes: choose(times) for count_bytes, times in sorted(samples.items())}

    def text(self, machine: str, *remarks: str, kernels: str = UNKNOWN_KERNELS, shared_kib: int | None = None) -> str:
        """The text of the model. Raises ValueError if there are no times.

        kernels: the hash of the measured library. shared_kib: of a CTA; None: as much as kernels can use.
        """
        if not self._samples:
            raise ValueError("a cost model needs at least one measured time")
        lines = [f"narrowcast-costs 2 {machine}", f"kernels {kernels}", *(f"# {remark}" for remark in remarks)]
        if shared_kib is not None:
            lines.insert(2, f"shared_kib {shared_kib}")
        for curve in self.curves():
            words = [f"{count_bytes}:{microseconds:.2f}" for count_bytes, microseconds in self.typical(curve).items()]
            lines.append(" ".join([curve.operation, str(curve.ranks), curve.link, curve.series, *words]))
        return "\n".join(lines) + "\n"


def coded(dtype: str, *, exact: bool | None = None) -> list[str]:
    """The codecs that encode values of this type. exact: only those that restore all bits, or only the others."""
    able = [one for one in _coding() if dtype in (kind.dtype for kind in one.types)]
    return [one.name for one in able if exact in (None, one.exact)]


def every_series() -> list[str]:
    """The series of calls between GPUs, apart from plans."""
    by_codec = [f"blocks:{one.name}{suffix}" for one in _coding() for suffix in ("", _INCOMPRESSIBLE_SUFFIX)]
    return ["packets", "blocks:raw", *by_codec, "nccl", "nccl:default"]


def series_of(candidate: str, data: str) -> str:
    """The series of a candidate that was measured with this data."""
    return f"{candidate}{_INCOMPRESSIBLE_SUFFIX}" if data == INCOMPRESSIBLE else candidate


def series_of_nccl(contender: str) -> tuple[str, ...]:
    """The series to which a time of a variant of NCCL belongs."""
    return ("nccl", "nccl:default") if contender == "nccl" else ("nccl",)


def _coding() -> list[Codec]:
    return [one for one in codecs() if one.name != "raw" and not one.registered]


def load(path: Path) -> str | None:
    """Loads a model to validate it. Returns why it may not fit this library, if so.

    Raises InvalidArgumentError if the model is invalid.
    """
    with environment_of(NARROWCAST_PATH=""):
        try:
            # An explanation has the warning only if the model has times for the call.
            answers = [explain(name, 1 << 20, dtype="bfloat16", ranks=2, cost_model=path) for name in operations()]
        except InvalidArgumentError as error:
            # Do not mention the function: the user did not ask for a prediction.
            raise InvalidArgumentError(str(error).removeprefix("ncast_predictor_create: ")) from None
    return next((answer.costs_warning for answer in answers if answer.costs_warning), None)


def _series(data: str, row: dict[str, Any]) -> tuple[str, ...]:
    """The series to which a row of a report belongs; none for the codec auto, and for codecs with parameters."""
    if row["codec"] is None:
        return series_of_nccl(row["contender"])
    if row["codec"] in coded(row["type"]):
        return (series_of(f"blocks:{row['codec']}", data),)
    if row["codec"] == "raw":
        # Early reports did not count the bytes of packets.
        is_packets = row["ratio"] is None or row["ratio"] > _MIN_PACKET_RATIO
        return ("packets" if is_packets else "blocks:raw",)
    return ()

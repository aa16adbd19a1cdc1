"""Plots of ratios, errors and benchmarks. They need matplotlib, an optional dependency."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ._files.atomic import write_file
from ._files.display import bytes_text, printable
from .errors import UnsupportedError
from .ratios import TensorRatio, TotalRatio

__all__ = ["FORMATS", "plot_bench", "plot_errors", "plot_ratios", "require"]


def __dir__() -> list[str]:
    return sorted(__all__)


_RATIO, _BOUND, _RAW = "#2166ac", "#b8c7d9", "#888888"
_MAX_INCHES, _FRAME_INCHES, _BAR_INCHES = 10.5, 1.6, 0.5
_DOTS_PER_INCH, _MAX_DOTS = 150, 1580
_MAX_BARS, _MAX_NAME_LENGTH = 17, 48
# The colours of Narrowcast and of NCCL. They repeat after the last.
_OURS, _THEIRS = ("#2166ac", "#1b7837", "#762a83"), ("#b35806", "#e08214", "#888888")
# Of tensors in plots of errors.
_MARKERS = "osD^v<>PX*"
FORMATS = (".png", ".svg", ".pdf")


def require() -> None:
    """Raises UnsupportedError when matplotlib is not installed."""
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise UnsupportedError(
            "a plot needs matplotlib, which is not installed: pip install 'narrowcast[plot]'"
        ) from None


class _Bars(NamedTuple):
    """The two bars of a tensor, or of several together."""

    label: str
    ratio: float
    bound: float


def plot_ratios(rows: Sequence[TensorRatio], path: str | os.PathLike[str]) -> None:
    """Draws ratios, and their bounds, of the largest tensors, of the others together and of all.

    rows: from `narrowcast.ratios.tensor_ratios`; tensors without values are left out.
    path: must end in one of FORMATS; replaced atomically. PNG images are at most 1,600 pixels high.

    Raises UnsupportedError without matplotlib, and OSError.
    """
    require()
    drawn = _selected([row for row in rows if row.raw_bytes])
    height = min(_FRAME_INCHES + _BAR_INCHES * max(len(drawn), 1), _MAX_INCHES)
    figure = _figure(9, height)
    axes = figure.add_subplot()
    for place, bars in enumerate(drawn):
        for value, shift, color in ((bars.ratio, -0.2, _RATIO), (bars.bound, 0.2, _BOUND)):
            axes.barh(place + shift, value, height=0.38, color=color)
            axes.text(value + 0.008, place + shift, f"{value:.3f}", va="center", fontsize=8)
    axes.barh([0], [0], color=_RATIO, label="ratio")
    axes.barh([0], [0], color=_BOUND, label="exponents at their entropy, no trailing zeros")
    axes.axvline(1, color=_RAW, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(drawn)), [bars.label for bars in drawn], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, max([1.0, *(bars.ratio for bars in drawn)]) + 0.1)
    axes.set_xlabel("wire bytes / raw bytes (smaller is better)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    _write(figure, path)


def _selected(rows: Sequence[TensorRatio]) -> list[_Bars]:
    """At most _MAX_BARS: the largest tensors, then for each codec the tensors left out and the total by bytes."""
    codecs = list(dict.fromkeys(row.requested_codec for row in rows))
    tensors = {(row.file, row.tensor): row.raw_bytes for row in rows}
    summaries = len(codecs) if len(tensors) > 1 else 0
    if len(rows) + summaries <= _MAX_BARS:
        shown = list(rows)
    else:
        most = max(1, (_MAX_BARS - 2 * len(codecs)) // len(codecs))
        largest = sorted(tensors, key=lambda tensor: -tensors[tensor])[:most]
        shown = sorted(
            (row for row in rows if (row.file, row.tensor) in largest),
            key=lambda row: largest.index((row.file, row.tensor)),
        )
    bars = [
        _Bars(f"{_shortened(row.tensor)}\n{row.dtype}, {row.codec}", row.ratio or 0.0, row.bound or 0.0)
        for row in shown
    ]
    kept = {id(row) for row in shown}
    for codec in codecs if summaries else []:
        own = [row for row in rows if row.requested_codec == codec]
        others = [row for row in own if id(row) not in kept]
        if others:
            bars.append(_together(f"{sum(row.tensors for row in others):,} smaller tensors", codec, others))
        bars.append(_together("total", codec, own))
    return bars


def _together(name: str, codec: str, rows: Sequence[TensorRatio]) -> _Bars:
    """Weighted by raw bytes."""
    total = TotalRatio.of(rows)
    return _Bars(f"{name}\n{bytes_text(total.raw_bytes)}, {codec}", total.ratio or 0.0, total.bound or 0.0)


def _shortened(name: str) -> str:
    name, half = printable(name), _MAX_NAME_LENGTH // 2
    short = name if len(name) <= _MAX_NAME_LENGTH else f"{name[:half]}…{name[-half:]}"
    # matplotlib draws text between dollars as a formula.
    return short.replace("$", r"\$")


def plot_errors(rows: Sequence[dict[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draws the relative L2 error of codecs against their ratio, a point for each tensor.

    rows: those of `narrowcast error --json`. Tensors that a codec restores exactly have no error and are left out.
    path: must end in one of FORMATS; replaced atomically.

    Raises UnsupportedError without matplotlib, and OSError.
    """
    require()
    rows = [row for row in rows if row["relative_l2"]]
    figure = _figure(9, 5)
    axes = figure.add_subplot()
    tensors = list(dict.fromkeys(row["tensor"] for row in rows))
    codecs = list(dict.fromkeys(row["codec"] for row in rows))
    colors = importlib.import_module("matplotlib").colormaps["tab20"]
    for place, codec in enumerate(codecs):
        for row in rows:
            if row["codec"] != codec:
                continue
            marker = _MARKERS[tensors.index(row["tensor"]) % len(_MARKERS)]
            axes.scatter(row["ratio"], row["relative_l2"], s=28, marker=marker, color=colors(place % 20))
        axes.scatter([], [], color=colors(place % 20), label=codec)
    if len(tensors) <= len(_MARKERS):
        for marker, tensor in zip(_MARKERS, tensors, strict=False):
            axes.scatter([], [], color=_RAW, marker=marker, label=_shortened(tensor))
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("wire bytes / raw bytes (smaller is better)")
    axes.set_ylabel("relative L2 error (smaller is better)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    _write(figure, path)


def plot_bench(report: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Draws a report of `narrowcast bench` of a collective over the size of the call.

    Bus bandwidth and, where NCCL was measured too, its best time divided by the time of each codec.

    path: must end in one of FORMATS; replaced atomically.

    Raises UnsupportedError without matplotlib, and OSError.
    """
    require()
    lines = _lines_of(report["rows"])
    ours, theirs = ([name for name in lines if (lines[name][0]["codec"] is not None) is own] for own in (True, False))
    colors = {name: _OURS[i % len(_OURS)] for i, name in enumerate(ours)}
    colors |= {name: _THEIRS[i % len(_THEIRS)] for i, name in enumerate(theirs)}
    figure = _figure(9, 6 if theirs else 3.6)
    axes = figure.subplots(2 if theirs else 1, 1, sharex="col", squeeze=False)[:, 0]
    _draw_bench(axes, lines, colors)
    if theirs:
        axes[0].set_ylabel("NCCL's best time / ours")
    axes[-1].set_ylabel("bus bandwidth, GB/s")
    graph = [f"graphs of {report['graph_calls']}"] if report.get("graph_calls") else []
    machine = f"{report['ranks']} x {report['device'] or 'process'}"
    figure.suptitle(", ".join([report["operation"], machine, report["dtype"], report["data"], *graph]), fontsize=10)
    axes[-1].legend(frameon=False, fontsize=8)
    _write(figure, path)


def _figure(width: float, height: float) -> Any:
    """A figure of a size in inches, with fewer dots if it would be too large."""
    dots_per_inch = min(_DOTS_PER_INCH, _MAX_DOTS / max(width, height))
    figure = importlib.import_module("matplotlib.figure").Figure
    return figure(figsize=(width, height), dpi=dots_per_inch, layout="constrained")


def _write(figure: Any, path: str | os.PathLike[str]) -> None:
    target = Path(path)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=target.suffix.removeprefix("."))
    write_file(target, drawn.getbuffer())


def _lines_of(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows by codec of Narrowcast, or by variant of NCCL."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["size_bytes"]):
        lines.setdefault(row["codec"] or row["contender"], []).append(row)
    return lines


def _draw_bench(axes: Any, lines: dict[str, list[dict[str, Any]]], colors: dict[str, str]) -> None:
    """axes: the last is for bandwidths; if there are two, the first is for the times of NCCL divided by ours."""
    for name, own in lines.items():
        _draw(axes[-1], name, own, "busbw_gb_per_s", colors[name])
        if len(axes) > 1 and own[0]["codec"] is not None:
            _draw(axes[0], name, own, "speedup", colors[name])
    if len(axes) > 1:
        axes[0].axhline(1, color=_RAW, linewidth=0.8, linestyle="--")
    for one in axes:
        one.set_ylim(bottom=0)
        one.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xscale("log", base=2)
    sizes = sorted({row["size_bytes"] for own in lines.values() for row in own})
    axes[-1].set_xticks(sizes, [_short(size) for size in sizes], rotation=45, fontsize=8)
    axes[-1].minorticks_off()
    axes[-1].set_xlabel("size of the call")


def _draw(axes: Any, name: str, rows: Sequence[dict[str, Any]], key: str, color: str) -> None:
    label = f"narrowcast, {name}" if rows[0]["codec"] is not None else name
    sizes, values = ([row[one] for row in rows] for one in ("size_bytes", key))
    axes.plot(sizes, values, color=color, label=label, marker="o", markersize=3, linewidth=1.2)


def _short(count_bytes: int) -> str:
    """1536 -> "1.5K", the form of sizes in nccl-tests."""
    size = float(count_bytes)
    for unit in ("", "K", "M"):
        if size < 1024:
            return f"{size:.3g}{unit}"
        size /= 1024
    return f"{size:.3g}G"

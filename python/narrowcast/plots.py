"""Plots, by matplotlib, which is an optional extra of the package."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from ._new_file import new_file
from .errors import UnsupportedError
from .ratios import TensorRatio

_RATIO, _BOUND, _RAW = "#2166ac", "#b8c7d9", "#888888"
# Taller images are refused by matplotlib.
_MOST_INCHES = 400
FORMATS = (".png", ".svg", ".pdf")


def require() -> None:
    """UnsupportedError when matplotlib is missing."""
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise UnsupportedError(
            "a plot needs matplotlib, which is not installed: pip install 'narrowcast[plot]'"
        ) from None


def plot_ratios(rows: Sequence[TensorRatio], path: Path) -> None:
    """Draws, for every tensor with values, its ratio beside its entropy bound. `path` appears whole or not at all."""
    require()
    drawn = [row for row in rows if row.ratio is not None and row.bound is not None]
    figure = importlib.import_module("matplotlib.figure").Figure(
        figsize=(9, min(1.6 + 0.5 * max(len(drawn), 1), _MOST_INCHES)), dpi=150, layout="constrained"
    )
    axes = figure.add_subplot()
    for place, row in enumerate(drawn):
        ratio, bound = row.ratio or 0.0, row.bound or 0.0
        for value, shift, color in ((ratio, -0.2, _RATIO), (bound, 0.2, _BOUND)):
            axes.barh(place + shift, value, height=0.38, color=color)
            axes.text(value + 0.008, place + shift, f"{value:.3f}", va="center", fontsize=8)
    axes.barh([0], [0], color=_RATIO, label="ratio")
    axes.barh([0], [0], color=_BOUND, label="entropy bound")
    axes.axvline(1, color=_RAW, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(drawn)), [f"{row.tensor}\n{row.dtype}, {row.codec}" for row in drawn], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, max([1.0, *(row.ratio or 0 for row in drawn)]) + 0.1)
    axes.set_xlabel("wire bytes / raw bytes (smaller is better)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    with new_file(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix("."))

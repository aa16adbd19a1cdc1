"""Draws who sends what when."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .._files.atomic import write_file
from ..errors import InvalidArgumentError
from ..plots import FORMATS, require
from .dsl.sites import Site
from .model import Operand, PlanModel
from .timeline import Event, Timeline
from .trace import chrome_trace, kind_of

__all__ = ["FORMATS", "TRACE", "check_path", "write_timeline"]

#: The ending of Chrome traces.
TRACE = ".json"
_COLORS = {
    "send": "#2166ac",
    "receive": "#67a9cf",
    "reduce": "#1b7837",
    "copy": "#888888",
    "synchronize": "#e08214",
    "blocked": "#b2182b",
}
_DOTS_PER_INCH = 100
_MAX_INCHES = 15.5
# Around the rows.
_SIDE_INCHES, _HEAD_INCHES = 1.2, 1.6
# The gap between groups, in lanes.
_GAP = 0.3
# More lines would not be readable.
_MAX_FLOWS = 4000
_MAX_LABELS = 48


def write_timeline(
    plan: PlanModel,
    timeline: Timeline,
    path: Path,
    title: str,
    site_of: Callable[[int], Site | None],
    *,
    microseconds: bool = False,
) -> None:
    """Draws a timeline if the path ends in one of FORMATS, and writes a Chrome trace if it ends in .json.

    site_of: the line of the program that a step comes from, by its origin.

    Raises UnsupportedError without matplotlib, InvalidArgumentError for other endings, and OSError.
    """
    check_path(path)
    if path.suffix == TRACE:
        trace = chrome_trace(plan, timeline, title, site_of)
        write_file(path, (json.dumps(trace) + "\n").encode())
    else:
        draw(plan, timeline, path, title, microseconds=microseconds)


def check_path(path: Path) -> None:
    """Raises the errors of write_timeline for other endings and without matplotlib, before long work."""
    if path.suffix == TRACE:
        return
    if path.suffix not in FORMATS:
        raise InvalidArgumentError(f"{path} must end in {TRACE} or one of {', '.join(FORMATS)}")
    require()


class _Layout:
    """The vertical layout: groups below each other, with a lane for every concurrent step."""

    def __init__(self, plan: PlanModel, timeline: Timeline) -> None:
        self.lanes = {
            (rank, group): 1 for rank, one in enumerate(plan.ranks) for group in range(max(1, len(one.groups)))
        }
        for event in timeline.events:
            key = event.rank, event.group
            self.lanes[key] = max(self.lanes[key], event.lane + 1)
        self.tops: dict[tuple[int, int], float] = {}
        self.height = 0.0
        for key, lanes in self.lanes.items():
            self.tops[key] = self.height
            self.height += lanes + _GAP
        #: Two lines of text fit a lane.
        self.is_roomy = all(lanes == 1 for lanes in self.lanes.values())
        self.inches = _HEAD_INCHES + (0.33 if self.is_roomy else 0.17) * self.height
        self.has_text = self.inches <= _MAX_INCHES

    def middle(self, event: Event) -> float:
        """The vertical place of an event."""
        return self.tops[event.rank, event.group] + event.lane + 0.5

    def box(self, event: Event) -> list[tuple[float, float]]:
        """The corners of the bar of an event."""
        top = self.tops[event.rank, event.group] + event.lane
        return [(event.start, top), (event.end, top), (event.end, top + 1), (event.start, top + 1)]


def draw(plan: PlanModel, timeline: Timeline, path: Path, title: str, *, microseconds: bool) -> None:
    """Draws a timeline: a row for each group, a bar for each step, a line for each message and signal.

    path: must end in one of FORMATS; replaced atomically. The image has at most 1,550 x 1,550 pixels.
    microseconds: the times are; otherwise they are logical.

    Raises UnsupportedError without matplotlib, and OSError.
    """
    require()
    figures, collections = (importlib.import_module(f"matplotlib.{name}") for name in ("figure", "collections"))
    layout = _Layout(plan, timeline)
    end = max((event.end for event in timeline.blocked), default=timeline.end) or 1.0
    width = _MAX_INCHES if microseconds else min(_MAX_INCHES, max(7.0, _SIDE_INCHES + 1.3 * end))
    size = (width, min(_MAX_INCHES, layout.inches))
    figure = figures.Figure(figsize=size, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    boxes: dict[str, list[Any]] = {}
    for event in timeline.events:
        boxes.setdefault(kind_of(event.step), []).append(layout.box(event))
    for event in timeline.blocked:
        boxes.setdefault("blocked", []).append(layout.box(event))
    edge = "white" if len(timeline.events) < 2000 else "none"
    for kind, color in _COLORS.items():
        if kind in boxes:
            bars = collections.PolyCollection(boxes[kind], facecolor=color, edgecolor=edge, linewidth=0.5)
            axes.add_collection(bars)
            axes.barh([0], [0], color=color, label=kind)
    flows = [flow for flow in timeline.flows if flow.source.rank != flow.target.rank]
    lines = [
        [(flow.source.end, layout.middle(flow.source)), (flow.target.start, layout.middle(flow.target))]
        for flow in flows
        if len(flows) <= _MAX_FLOWS
    ]
    axes.add_collection(collections.LineCollection(lines, color="black", linewidth=0.6, alpha=0.45))
    axes.plot(*zip(*(line[1] for line in lines), strict=True) if lines else ((), ()), "k.", markersize=3, alpha=0.6)
    if layout.has_text:
        _write_operands(axes, plan, timeline, layout, (width - _SIDE_INCHES) / end)
    _label(axes, plan, layout)
    axes.set_xlim(0, end)
    axes.set_ylim(layout.height, -_GAP)
    axes.set_xlabel(
        "microseconds" if microseconds else "steps: each one takes one unit of time and starts as soon as it can"
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(title, fontsize=10, wrap=True)
    figure.legend(loc="outside lower right", ncols=len(_COLORS), frameon=False, fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix("."))
    write_file(path, content.getbuffer())


def _write_operands(axes: Any, plan: PlanModel, timeline: Timeline, layout: _Layout, inches_per_unit: float) -> None:
    """Labels each bar with what the step moves, if there is space."""
    size, between = (6, "\n→") if layout.is_roomy else (5, "→")
    for event in (*timeline.events, *timeline.blocked):
        step = event.step
        # A character is about 0.6 of the font size wide; a point is 1/72 inch.
        characters = int((event.end - event.start) * inches_per_unit * 72 / (0.6 * size))
        text = step.kind
        if step.destinations:
            sources, destinations = (
                ",".join(_short(plan, event.rank, operand, receiver) for operand in operands)
                for operands, receiver in ((step.sources, False), (step.destinations, True))
            )
            if layout.is_roomy:
                sources, destinations = _cut(sources, characters), _cut(destinations, characters - 1)
            text = sources + between + destinations
        if max(map(len, text.split("\n"))) <= characters:
            middle = (event.start + event.end) / 2
            axes.text(middle, layout.middle(event), text, ha="center", va="center", fontsize=size, color="white")


def _short(plan: PlanModel, rank: int, operand: Operand, receiver: bool) -> str:
    """`i3` for input[3], `r2` for a message from or to rank 2, `r2:o3` for output[3] of rank 2."""
    where = "" if operand.buffer is None else f"{operand.buffer[0]}{operand.chunk}"
    if operand.switch is not None:
        return f"all:{where}"
    if operand.channel is None:
        return where
    channel = plan.channels[operand.channel]
    if operand.buffer is None:
        return f"r{channel.receiver if receiver else channel.sender}"
    return f"r{channel.receiver if channel.sender == rank else channel.sender}:{where}"


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters or characters < 5 else f"{text[: characters - 1]}…"


def _label(axes: Any, plan: PlanModel, layout: _Layout) -> None:
    """Names the rows of ranks, and of groups if there is space."""
    names: list[tuple[float, str]] = []
    every_group = len(layout.tops) <= _MAX_LABELS
    for (rank, group), top in layout.tops.items():
        several = len(plan.ranks[rank].groups) > 1
        if group == 0 or every_group:
            middle = top + layout.lanes[rank, group] / 2
            names.append((middle, f"rank {rank}, group {group}" if several and every_group else f"rank {rank}"))
    stride = -(-len(names) // _MAX_LABELS)
    shown: Sequence[tuple[float, str]] = names[::stride]
    axes.set_yticks([place for place, _ in shown], [name for _, name in shown], fontsize=8)

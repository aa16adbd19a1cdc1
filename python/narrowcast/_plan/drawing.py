"""Draws who sends what when, and writes it as a Chrome trace."""

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
from .model import Operand, Plan, Step
from .text import Names
from .timeline import Event, Timeline

__all__ = ["FORMATS", "require", "write_timeline"]

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
_MARGIN_INCHES = 1.2
# Of the text in bars.
_CHARACTER_INCHES, _LEAST_CHARACTERS = 0.055, 8
# More would be a grey area.
_MAX_FLOWS = 4000


def kind_of(step: Step) -> str:
    """What a step does mostly: the categories of the legend."""
    if step.kind == "reduce":
        return "reduce"
    if step.kind != "copy":
        return "synchronize"
    if any(operand.place in ("message", "remote", "everywhere") for operand in step.sources):
        return "receive"
    if any(operand.place != "local" for operand in step.destinations):
        return "send"
    return "copy"


def write_timeline(
    plan: Plan,
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
    if path.suffix == ".json":
        trace = chrome_trace(plan, timeline, title, site_of)
        write_file(path, (json.dumps(trace) + "\n").encode())
    elif path.suffix in FORMATS:
        draw(plan, timeline, path, title, microseconds=microseconds)
    else:
        raise InvalidArgumentError(f"{path} must end in .json or one of {', '.join(FORMATS)}")


def draw(plan: Plan, timeline: Timeline, path: Path, title: str, *, microseconds: bool) -> None:
    """Draws a timeline: a row for each group, a bar for each step, a line for each message and signal.

    path: must end in one of FORMATS; replaced atomically. The image has at most 1,550 x 1,550 pixels.
    microseconds: the times are; otherwise they are logical.

    Raises UnsupportedError without matplotlib, and OSError.
    """
    require()
    figures, collections = (importlib.import_module(f"matplotlib.{name}") for name in ("figure", "collections"))
    rows = _rows(plan)
    end = max((event.end for event in timeline.blocked), default=timeline.end) or 1.0
    height = min(_MAX_INCHES, 1.6 + 0.42 * len(rows))
    width = _MAX_INCHES if microseconds else min(_MAX_INCHES, max(7.0, _MARGIN_INCHES + 1.3 * end))
    figure = figures.Figure(figsize=(width, height), dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    drawn: dict[str, list[Any]] = {}
    for event in timeline.events:
        drawn.setdefault(kind_of(event.step), []).append(_box(event, rows))
    for event in timeline.blocked:
        drawn.setdefault("blocked", []).append(_box(event, rows))
    for kind in _COLORS:
        if kind in drawn:
            edge = "white" if len(timeline.events) < 2000 else "none"
            axes.add_collection(
                collections.PolyCollection(drawn[kind], facecolor=_COLORS[kind], edgecolor=edge, linewidth=0.5)
            )
            axes.barh([0], [0], color=_COLORS[kind], label=kind)
    flows = [flow for flow in timeline.flows if flow.source.rank != flow.target.rank]
    lines = [
        [
            (flow.source.end, rows[flow.source.rank, flow.source.group]),
            (flow.target.start, rows[flow.target.rank, flow.target.group]),
        ]
        for flow in flows
        if len(flows) <= _MAX_FLOWS
    ]
    axes.add_collection(collections.LineCollection(lines, color="black", linewidth=0.6, alpha=0.45))
    axes.plot(*zip(*(line[1] for line in lines), strict=True) if lines else ((), ()), "k.", markersize=3, alpha=0.6)
    if height < _MAX_INCHES:
        _write_operands(axes, plan, timeline, rows, (width - _MARGIN_INCHES) / end / _CHARACTER_INCHES)
    _label(axes, plan, rows)
    axes.set_xlim(0, end)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(
        "microseconds" if microseconds else "steps: each one takes one unit of time and starts as soon as it can"
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(title, fontsize=10, wrap=True)
    figure.legend(loc="outside lower right", ncols=len(_COLORS), frameon=False, fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix("."))
    write_file(path, content.getbuffer())


def _rows(plan: Plan) -> dict[tuple[int, int], float]:
    """The vertical place of each group."""
    groups = [(rank, group) for rank, one in enumerate(plan.ranks) for group in range(max(1, len(one.groups)))]
    return {key: float(row) for row, key in enumerate(groups)}


def _write_operands(
    axes: Any, plan: Plan, timeline: Timeline, rows: dict[tuple[int, int], float], characters_per_unit: float
) -> None:
    """Writes into each bar what the step moves, if there is space."""
    for event in (*timeline.events, *timeline.blocked):
        step = event.step
        characters = int((event.end - event.start) * characters_per_unit)
        if characters < _LEAST_CHARACTERS:
            continue
        text = step.kind
        if step.destinations:
            sources, destinations = (
                ",".join(_short(plan, event.rank, operand, receiver) for operand in operands)
                for operands, receiver in ((step.sources, False), (step.destinations, True))
            )
            text = f"{_cut(sources, characters)}\n→{_cut(destinations, characters - 1)}"
        middle = (event.start + event.end) / 2
        place = rows[event.rank, event.group]
        axes.text(middle, place, text, ha="center", va="center", fontsize=6, color="white")


def _short(plan: Plan, rank: int, operand: Operand, receiver: bool) -> str:
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
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _box(event: Event, rows: dict[tuple[int, int], float]) -> list[tuple[float, float]]:
    middle = rows[event.rank, event.group]
    top, bottom = middle - 0.35, middle + 0.35
    return [(event.start, top), (event.end, top), (event.end, bottom), (event.start, bottom)]


def _label(axes: Any, plan: Plan, rows: dict[tuple[int, int], float]) -> None:
    """Names the rows of ranks, and of groups if there is space."""
    names: list[tuple[float, str]] = []
    every_group = len(rows) <= 48
    for (rank, group), row in rows.items():
        several = len(plan.ranks[rank].groups) > 1
        if group == 0 or every_group:
            names.append((row, f"rank {rank}, group {group}" if several and every_group else f"rank {rank}"))
    stride = -(-len(names) // 48)
    shown: Sequence[tuple[float, str]] = names[::stride]
    axes.set_yticks([row for row, _ in shown], [name for _, name in shown], fontsize=8)


def chrome_trace(plan: Plan, timeline: Timeline, title: str, site_of: Callable[[int], Site | None]) -> dict[str, Any]:
    """The events of a timeline for Perfetto or chrome://tracing: a process for each rank, a track for each group.

    Messages and signals are flows. A unit of logical time is written as a microsecond.
    """
    names = Names(plan)
    events: list[dict[str, Any]] = []
    for rank, content in enumerate(plan.ranks):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}})
        for group in range(len(content.groups)):
            events.append(
                {"ph": "M", "name": "thread_name", "pid": rank, "tid": group, "args": {"name": f"group {group}"}}
            )
    for event in (*timeline.events, *timeline.blocked):
        site = site_of(event.step.origin)
        details: dict[str, Any] = {"step": event.number, "what": names.step(event.rank, event.step)}
        if site is not None:
            details["line"] = str(site)
        blocked = event in timeline.blocked
        events.append(
            {
                "ph": "X",
                "name": "blocked" if blocked else kind_of(event.step),
                "cat": event.step.kind,
                "pid": event.rank,
                "tid": event.group,
                "ts": event.start,
                "dur": event.end - event.start,
                "args": details,
            }
        )
    for number, flow in enumerate(timeline.flows):
        begin = (flow.source.start + flow.source.end) / 2  # inside the step, where the viewer expects it
        for phase, event, time in (("s", flow.source, begin), ("f", flow.target, flow.target.start)):
            entry: dict[str, Any] = {"ph": phase, "id": number, "name": "flow", "cat": "flow", "ts": time}
            entry |= {"pid": event.rank, "tid": event.group}
            if phase == "f":
                entry["bp"] = "e"  # the flow ends at the step that contains this time
            events.append(entry)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"plan": title}}

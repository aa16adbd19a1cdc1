"""Timelines as Chrome traces, which Perfetto displays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .dsl.sites import Site
from .model import PlanModel, Step
from .text import Names
from .timeline import Timeline

__all__ = ["chrome_trace", "kind_of"]


def kind_of(step: Step) -> str:
    """The category of a step in the legend."""
    if step.kind == "reduce":
        return "reduce"
    if step.kind != "copy":
        return "synchronize"
    if any(operand.place in ("message", "remote", "everywhere") for operand in step.sources):
        return "receive"
    if any(operand.place != "local" for operand in step.destinations):
        return "send"
    return "copy"


def chrome_trace(
    plan: PlanModel, timeline: Timeline, title: str, site_of: Callable[[int], Site | None]
) -> dict[str, Any]:
    """The events of a timeline for Perfetto or chrome://tracing: a process for each rank, a track for each group.

    A group that runs several steps at the same time has more tracks. Messages and signals are flows. A unit of logical
    time is written as a microsecond.
    """
    names = Names(plan)
    events: list[dict[str, Any]] = []
    for rank in range(len(plan.ranks)):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}})
    lanes = sorted({(event.group, event.lane) for event in (*timeline.events, *timeline.blocked)})
    tracks = {lane: number for number, lane in enumerate(lanes)}
    for rank, group, lane in sorted({(event.rank, event.group, event.lane) for event in timeline.events}):
        name = f"group {group}" + (f", lane {lane}" if lane else "")
        track = tracks[group, lane]
        events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": {"name": name}})
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
                "tid": tracks[event.group, event.lane],
                "ts": event.start,
                "dur": event.end - event.start,
                "args": details,
            }
        )
    for number, flow in enumerate(timeline.flows):
        begin = (flow.source.start + flow.source.end) / 2  # the viewer expects a time inside the step
        for phase, event, time in (("s", flow.source, begin), ("f", flow.target, flow.target.start)):
            entry: dict[str, Any] = {"ph": phase, "id": number, "name": "flow", "cat": "flow", "ts": time}
            entry |= {"pid": event.rank, "tid": tracks[event.group, event.lane]}
            if phase == "f":
                entry["bp"] = "e"  # the flow ends at the step that contains this time
            events.append(entry)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"plan": title}}

"""Plans: collectives of your own, written in Python or read from a file.

A program says what happens to values. Ranks have an input and an output, which consist of chunks. Assigning chunks of
one rank to chunks of another one sends them.

    p = Program("all_reduce", ranks=4)
    with codec("window"):
        for r in p.ranks:
            r.output[0] = r.reduce(peer.input[0] for peer in p.ranks)
    p.save("all_pairs.json")
"""

from __future__ import annotations

from ._native.plan_selector import BUILT_IN, BY_COST, PlanCall
from ._plan.builders import build, builders
from ._plan.dsl.chunks import Chunks
from ._plan.dsl.program import Program, Rank, Semaphore, Switch
from ._plan.dsl.settings import channel, codec, group, loop, packets, ports
from ._plan.dsl.sites import PlanError, Site
from ._plan.loading import load
from ._plan.plan import Plan, Schedule, ScheduleCost
from ._plan.report import Fault, Report, Step
from ._plan.selector import set_selector
from ._plan.simulation import Simulation, machines

__all__ = [
    "BUILT_IN",
    "BY_COST",
    "Chunks",
    "Fault",
    "Plan",
    "PlanCall",
    "PlanError",
    "Program",
    "Rank",
    "Report",
    "Schedule",
    "ScheduleCost",
    "Semaphore",
    "Simulation",
    "Site",
    "Step",
    "Switch",
    "build",
    "builders",
    "channel",
    "codec",
    "group",
    "load",
    "loop",
    "machines",
    "packets",
    "ports",
    "set_selector",
]


def __dir__() -> list[str]:
    return sorted(__all__)

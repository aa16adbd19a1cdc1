"""What tests of programs look at."""

from __future__ import annotations

from narrowcast._plan.text import listing
from narrowcast._plan.timeline import timeline
from narrowcast.plan import Plan


def steps(plan: Plan, rank: int = 0) -> list[str]:
    """The steps of a rank, with those of groups after each other."""
    lines = [line for line in listing(plan.model, [rank]) if line.startswith("    ")]
    return [" ".join(line.split()) for line in lines]


def completes(plan: Plan) -> bool:
    return not timeline(plan.model).blocked

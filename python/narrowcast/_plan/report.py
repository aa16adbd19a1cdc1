"""What the verifier found about a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .dsl.sites import Site
from .text import amount


@dataclass(frozen=True)
class Step:
    """A step of the lowered plan that a report names. Numbers are None if it does not concern a particular step."""

    rank: int | None
    group: int | None  #: the group of thread blocks
    step: int | None  #: index in the group, of the loop if the step is in one
    body: int | None  #: index in the loop
    origin: int  #: the number of the step in the source of the plan; 0: none
    site: Site | None  #: the line of the program or document that it comes from, if known
    text: str  #: what it does, or what is wrong there

    @property
    def place(self) -> str:
        """`rank 0, group 1, step 3 (ring.py:12)`, or `(origin 12)` without a line; empty without a rank."""
        numbers = {
            "rank": self.rank,
            "group": self.group,
            "step": self.step,
            "step of the loop": self.body,
        }
        text = ", ".join(f"{name} {number}" for name, number in numbers.items() if number is not None)
        origin = self.site or (f"origin {self.origin}" if self.origin else None)
        return f"{text} ({origin})" if text and origin is not None else text


@dataclass(frozen=True)
class Fault:
    """Why a plan is not proved."""

    #: structure, bounds, undefined, deadlock, race or result (docs/design/plans.md, "What is proved"); empty if the
    #: plan is unsupported.
    property: str
    where: Step
    trace: tuple[Step, ...]  #: the steps that lead to it

    def __str__(self) -> str:
        place = f"{self.where.place}: " if self.where.place else ""
        lines = [f"{self.property}: {place}{self.where.text}" if self.property else f"{place}{self.where.text}"]
        lines += [f"  {step.place}: {step.text}" for step in self.trace]
        return "\n".join(lines)


@dataclass(frozen=True)
class Report:
    """What the verifier found. Printed, it is a summary of a few lines."""

    verdict: str  #: proved, refuted or unsupported
    fault: Fault | None  #: None if the plan is proved
    split_fault: Fault | None  #: a fault that occurs only if each chunk of a message is sent as a message of its own
    least_depth: int  #: messages that rings must hold; 0: no rings, or the plan deadlocks at any depth
    depth_needed_when_split: int  #: the same if each chunk is sent as a message of its own
    roundings: int  #: the maximum number of times that reductions round a value on its way to an output
    inexact_encodings: int  #: the maximum number of times that a value is encoded by inexact codecs
    rank_order: bool  #: every output combines the ranks in ascending order
    same_everywhere: bool  #: ranks that receive the same chunk receive the same bits
    steps: int  #: of all ranks of the lowered plan
    seconds: float  #: that the proof took

    @property
    def proved(self) -> bool:
        """Whether the plan is proved."""
        return self.verdict == "proved"

    def __str__(self) -> str:
        if self.fault is not None:
            return f"{self.verdict}: {self.fault}"
        facts = []
        if self.least_depth:
            facts.append(f"rings of {amount(self.least_depth, 'message')} suffice")
        if self.roundings:
            order = "in rank order" if self.rank_order else "not in rank order"
            facts.append(f"values are rounded {_times(self.roundings)}, {order}")
        if not self.same_everywhere:
            facts.append("results differ between ranks")
        if self.inexact_encodings:
            facts.append(f"values are encoded inexactly {_times(self.inexact_encodings)}")
        text = "; ".join([self.verdict, *facts])
        return text if self.split_fault is None else f"{text}\nif messages are split into chunks, {self.split_fault}"


def report_of(found: dict[str, Any], site_of: Callable[[int], Site | None]) -> Report:
    """The report of ncast_plan_verify as an object. site_of: the line of a step with an origin."""

    def step(entry: dict[str, Any], key: str) -> Step:
        origin = entry.get("origin") or 0
        place = (entry["rank"], entry["group"], entry["step"], entry["body"])
        return Step(*place, origin, site_of(origin), entry[key] or "")

    def fault(entry: dict[str, Any] | None) -> Fault | None:
        if entry is None or not entry.get("property"):
            return None
        trace = tuple(step(one, "text") for one in entry.get("trace") or ())
        return Fault(entry["property"], step(entry, "message"), trace)

    main = fault(found)
    if main is None and found["verdict"] != "proved":
        main = Fault("", step(found, "message"), ())
    return Report(
        found["verdict"],
        main,
        fault(found.get("split")),
        found["least_depth"],
        found["depth_needed_when_split"],
        found["roundings"],
        found["inexact_encodings"],
        found["rank_order"],
        found["same_everywhere"],
        found["steps"],
        found["seconds"],
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"up to {count} times"

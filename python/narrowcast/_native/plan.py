"""Plans of the library (include/narrowcast/plan.h)."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from ctypes import byref, c_void_p, sizeof, string_at
from dataclasses import dataclass
from typing import Any

from .library import check, library
from .operations import operations
from .paths import path_bytes
from .plan_structures import PlanBuilderC, PlanInfoC, PlanRequestC, PlanSimulationC, PlanVerifyOptionsC


def text_of(make: Callable[[c_void_p], int]) -> str:
    """The text that `make(pointer)` returns in an ncast_text."""
    text = c_void_p()
    check(make(byref(text)))  # type: ignore[arg-type]
    return take_text(text)


def take_text(text: c_void_p) -> str:
    """The content of an ncast_text, which is destroyed."""
    try:
        data = string_at(library().ncast_text_data(text), library().ncast_text_bytes(text))
    finally:
        library().ncast_text_destroy(text)
    return data.decode("utf-8", "replace")


def json_of(plan: Any) -> str:
    """The JSON form of an argument: a plan, or that form itself. Raises TypeError for anything else."""
    if isinstance(plan, str):
        return plan
    if not callable(getattr(plan, "json", None)):
        raise TypeError(f"plan is of type {type(plan).__name__}: neither a plan nor its JSON form")
    return str(plan.json())


@dataclass(frozen=True)
class PlanInfo:
    """What a plan is for, and its size."""

    name: str
    operation: str
    root: int  #: 0 if the operation has none
    ranks: int
    chunks: int  #: of a piece
    groups: int  #: of the rank that has most
    steps: int  #: of all ranks; those of a loop count once
    cost_name: str  #: of its times in cost models


class NativePlan:
    """A plan in the library. Immutable; any number of threads can use it."""

    def __init__(self, handle: c_void_p) -> None:
        """Takes over a handle that a function of the library returned."""
        self.handle = handle
        self._destroy = weakref.finalize(self, library().ncast_plan_destroy, handle)

    @classmethod
    def read(cls, text: str | bytes) -> NativePlan:
        """Reads the JSON form. Raises InvalidArgumentError with the place of the fault."""
        data = text.encode() if isinstance(text, str) else text
        handle = c_void_p()
        check(library().ncast_plan_read(data, len(data), byref(handle)))
        return cls(handle)

    @classmethod
    def build(cls, name: str, operation: int, **members: int) -> NativePlan:
        """Builds the plan of a known algorithm. members: those of ncast_plan_request."""
        request = PlanRequestC(struct_bytes=sizeof(PlanRequestC), operation=operation, **members)
        handle = c_void_p()
        check(library().ncast_plan_build(name.encode(), byref(request), byref(handle)))
        return cls(handle)

    def write(self) -> str:
        """The plan as JSON."""
        return text_of(lambda text: int(library().ncast_plan_write(self.handle, text)))

    def lower(self) -> NativePlan:
        """The plan that is verified, compiled and executed: replicated, and with adjacent steps fused."""
        handle = c_void_p()
        check(library().ncast_plan_lower(self.handle, byref(handle)))
        return NativePlan(handle)

    def compile(self, dtype: int, reduction: int, architecture: int, folder: str | None = None) -> str:
        """Compiles the plan for GPUs of a compute capability, such as 90, into a folder; None: the default one.

        dtype, reduction: as numbers of the C API. Returns a report as JSON.
        """
        path = None if folder is None else path_bytes(folder, "folder")
        return text_of(
            lambda text: int(library().ncast_plan_compile(self.handle, dtype, reduction, architecture, path, text))
        )

    def info(self) -> PlanInfo:
        """What the plan is for, and its size."""
        info = PlanInfoC(struct_bytes=sizeof(PlanInfoC))
        check(library().ncast_plan_describe(self.handle, byref(info)))
        names = {operation.number: name for name, operation in operations().items()}
        return PlanInfo(
            name=info.name.decode("utf-8", "replace"),
            operation=names[info.operation],
            root=info.root,
            ranks=info.ranks,
            chunks=info.chunks,
            groups=info.groups,
            steps=info.steps,
            cost_name=info.cost_name.decode(),
        )

    def verify(self, *, depth: int = 0) -> dict[str, Any]:
        """Proves or refutes the plan as it is: the report of ncast_plan_verify.

        depth: of every ring, in messages; 0 for what the plan states.
        """
        options = PlanVerifyOptionsC(struct_bytes=sizeof(PlanVerifyOptionsC), depth=depth)
        text = text_of(lambda report: int(library().ncast_plan_verify(self.handle, byref(options), report)))
        report: dict[str, Any] = json.loads(text)
        return report

    def simulate(self, machine: str, *, timeline: bool = False, **options: float) -> dict[str, Any]:
        """Predicts the time of this lowered plan, which must be proved: the report of ncast_plan_simulate.

        Args:
            machine: its description, in JSON.
            timeline: whether the report has the steps of all micro-batches.
            options: members of ncast_plan_simulation.
        """
        given = PlanSimulationC(struct_bytes=sizeof(PlanSimulationC), timeline=timeline, **options)
        call = library().ncast_plan_simulate
        report: dict[str, Any] = json.loads(
            text_of(lambda text: int(call(self.handle, machine.encode(), byref(given), text)))
        )
        return report

    def schedule(self, machine: str, **options: float) -> tuple[NativePlan, dict[str, Any]]:
        """Merges groups of this lowered plan, which must be proved: ncast_plan_schedule.

        Args:
            machine: its description, in JSON.
            options: members of ncast_plan_simulation.

        Returns: the merged plan, and the report.
        """
        given = PlanSimulationC(struct_bytes=sizeof(PlanSimulationC), **options)
        merged = c_void_p()
        call = library().ncast_plan_schedule
        text = text_of(lambda text: int(call(self.handle, machine.encode(), byref(given), byref(merged), text)))
        return NativePlan(merged), json.loads(text)


@dataclass(frozen=True)
class Builder:
    """An algorithm of which the library builds plans."""

    name: str
    text: str  #: what it does
    operations: tuple[str, ...]  #: that have such a plan


def builders() -> list[Builder]:
    """The algorithms of which the library builds plans."""
    found = []
    for index in range(library().ncast_plan_builder_count()):
        row = PlanBuilderC(struct_bytes=sizeof(PlanBuilderC))
        check(library().ncast_plan_builder_describe(index, byref(row)))
        suited = tuple(name for name, operation in operations().items() if row.operations >> operation.number & 1)
        found.append(Builder(row.name.decode(), row.text.decode(), suited))
    return found

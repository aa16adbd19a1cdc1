"""Programs for the tests of the drop-in that choose plans by a function, in Python or in C."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from narrowcast.plan import BY_COST, PlanCall, set_selector
from nccl_jobs import every_operation


def chooses_in_python(*, rank: int, ranks: int, count: int, emit: Any) -> None:
    """Every call, with a selector. Emits the calls that it was asked for, and the correct operations."""
    asked: list[tuple[str, int, str, int, list[str]]] = []

    def choose(call: PlanCall, plans: Sequence[str]) -> str:
        asked.append((call.operation, call.count, call.dtype, call.ranks, list(plans)))
        if call.operation == "all_gather":
            return "my gather"
        if call.operation == "all_reduce" and call.dtype == "int32" and call.nbytes >= 4 * count:
            return "my two shot"
        return BY_COST

    set_selector(choose)
    every_operation(rank=rank, ranks=ranks, count=count, emit=lambda correct: emit([asked, correct]))


def chooses_in_c(*, rank: int, ranks: int, count: int, emit: Any, selector: str) -> None:
    """Every call, with the selector of a C library."""
    library = ctypes.CDLL(selector)
    library.set_selector()
    every_operation(rank=rank, ranks=ranks, count=count, emit=emit)
    assert library.calls() > 0

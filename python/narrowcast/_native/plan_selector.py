"""Functions of the user that choose between plans, as the library calls them (ncast_plan_selector)."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgumentError
from ..types import BY_NUMBER, REDUCTIONS, value_type
from .codecs import codec_text
from .operations import operations
from .plan_structures import PLACEMENTS, PLAN_SELECTOR

BUILT_IN = "built-in"
BY_COST = "by cost"
_BUILT_IN, _BY_COST = -1, -2


@dataclass(frozen=True)
class PlanCall:
    """A call for which a plan is chosen."""

    operation: str  #: such as "all_reduce"
    count: int  #: as in the C API: the values that one rank sends another; of all_reduce and reduce, the whole vector
    dtype: str
    op: str  #: "sum" if the operation does not reduce
    root: int  #: 0 if the operation has none
    codec: str  #: as requested
    ranks: int
    #: whether input and output are the same memory; None if it is not known, and for operations with a root
    in_place: bool | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of `count` values."""
        return self.count * value_type(self.dtype).bytes


#: Takes the call and the names of the plans that can run it, and returns one of them, BUILT_IN or BY_COST.
Selector = Callable[[PlanCall, Sequence[str]], str]


def as_c_function(selector: Selector | None) -> Any:
    """The function as the library can call it. It must be kept as long as the library may call it.

    If the selector raises or returns something else, the exception is printed, and the call runs in the built-in way.
    Raises InvalidArgumentError for what cannot be called.
    """
    if selector is None:
        return PLAN_SELECTOR()
    if not callable(selector):
        raise InvalidArgumentError(f"a selector is a function of a call and the names of plans, not {selector!r}")
    names = {row.number: name for name, row in operations().items()}
    reductions = list(REDUCTIONS)
    in_place = {number: value for value, number in PLACEMENTS.items()}

    def choose(_: Any, call: Any, plans: Any, plan_count: int) -> int:
        try:
            asked = call.contents
            able = [plans[i].decode() for i in range(plan_count)]
            described = PlanCall(
                names[asked.operation],
                asked.count,
                BY_NUMBER[asked.dtype].name,
                reductions[asked.op],
                asked.root,
                codec_text(asked.codec),
                asked.ranks,
                in_place[asked.placement],
            )
            chosen = selector(described, able)
            if chosen in (BUILT_IN, BY_COST):
                return _BUILT_IN if chosen == BUILT_IN else _BY_COST
            if chosen not in able:
                raise ValueError(f"the selector returned {chosen!r}, not one of {[*able, BUILT_IN, BY_COST]}")
            return able.index(chosen)
        except BaseException:
            # An exception cannot pass through the library.
            traceback.print_exc()
            return _BUILT_IN

    return PLAN_SELECTOR(choose)

"""The choice between plans by a function of the user, for all communicators of this process."""

from __future__ import annotations

from typing import Any

from .._native.library import library
from .._native.plan_selector import Selector, as_c_function

# The library may call them until the process ends.
_given: list[Any] = []


def set_selector(selector: Selector | None) -> None:
    """Chooses the plans of calls by a function, on communicators that are created in this process from now on.

    They include those that the drop-in for NCCL creates. None: none, which is the default. `Communicator.choose_plans`
    describes the function, and sets it for one communicator.
    """
    function = as_c_function(selector)
    _given.append(function)
    library().ncast_set_plan_selector(function, None)

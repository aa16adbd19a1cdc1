"""Plans of the user that `narrowcast tune` measures next to the built-in ways."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .._comm.loaded_plan import LoadedPlan
from ..comm import Communicator
from ..errors import NarrowcastError
from ..types import ValueType
from .operations import size_of

# No call has so many bytes.
_NO_CALL_BYTES = (1 << 64) - 1


@dataclass(frozen=True)
class TunedPlan:
    """A plan, as it is passed to the processes of the ranks."""

    source: str  #: its file
    series: str  #: the name of its times in cost models
    json: str
    operation: str
    ranks: int
    root: int
    in_place: bool  #: it only works in place
    min_bytes: int  #: of the larger buffer
    max_bytes: int  #: 0: no limit

    def suits(self, operation: str, count: int, kind: ValueType) -> bool:
        """Whether the plan is meant for calls of an operation with so many values."""
        size = size_of(operation, count, kind, self.ranks)
        return self.operation == operation and self.min_bytes <= size and (not self.max_bytes or size <= self.max_bytes)


@contextlib.contextmanager
def loaded(comm: Communicator, plans: Sequence[TunedPlan], dtype: str) -> Iterator[list[tuple[TunedPlan, LoadedPlan]]]:
    """Loads plans on a communicator for sums of a type. Its own calls do not run them.

    Raises the errors of `Communicator.load_plan` and `LoadedPlan.use`, with the file: it makes no sense to measure
    plans that calls cannot use.
    """
    with contextlib.ExitStack() as stack:
        ready = []
        for plan in plans:
            try:
                one = stack.enter_context(comm.load_plan(plan.json, dtype))
                ready.append((plan, one.use(min_bytes=_NO_CALL_BYTES)))
            except NarrowcastError as error:
                raise type(error)(f"{plan.source}: {error}") from error
        yield ready

"""How MSCCL and MSCCL++ name the operations, and how many chunks their buffers have."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from ..._native.operations import describe
from ...errors import UnsupportedError

__all__ = ["MAX_CHUNKS", "MAX_RANKS", "MAX_STEPS", "buffer_chunks", "collective_name", "operation_of", "without_gc"]

# The limits of src/plan/ir.h, and one for chunk numbers, so that a document cannot ask for unlimited memory.
MAX_RANKS = 1024
MAX_STEPS = 4_000_000
MAX_CHUNKS = 1 << 24

_OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
_NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_to_all": "alltoall",
}


def operation_of(collective: str) -> str:
    """The operation that the formats call `collective`. Raises UnsupportedError if there is none."""
    operation = _OPERATIONS.get(collective)
    if operation is None:
        known = ", ".join(_OPERATIONS)
        raise UnsupportedError(f"the collective {collective[:64]!r} has no defined result (supported: {known})")
    return operation


def collective_name(operation: str) -> str:
    """What the formats call `operation`. Raises UnsupportedError for operations with a root.

    The formats do not say for which root a plan is, and their libraries would run it for every one.
    """
    name = _NAMES.get(operation)
    if name is None:
        raise UnsupportedError(f"{operation}: the format cannot name the root (it has {', '.join(_NAMES)})")
    return name


def buffer_chunks(operation: str, ranks: int, chunks: int) -> tuple[int, int]:
    """Chunks of input and output of a rank that has both; `chunks` are those of a piece."""
    shape = describe(operation)
    return (chunks * (ranks if shape.send.parted else 1), chunks * (ranks if shape.recv.parted else 1))


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Disables garbage collection: building a large plan triggers many collections, but creates no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

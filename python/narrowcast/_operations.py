"""The operations of a communicator as the demo and the benchmark run them: buffers, the call, the expected result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _oracle, _samples
from ._groups import group
from .comm import Communicator
from .types import ValueType

Array = npt.NDArray[Any]

NAMES = (
    "sendrecv",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_gather",
    "all_to_all",
    "reduce_scatter",
    "all_reduce",
)
REDUCTIONS = frozenset({"reduce", "reduce_scatter", "all_reduce"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
# Counts of these are of one rank's part; nccl-tests states their size over all parts.
_PARTED = frozenset({"gather", "scatter", "all_gather", "all_to_all", "reduce_scatter"})
POISON = 0xA5


def count_of(operation: str, size_bytes: int, kind: ValueType, ranks: int) -> int:
    """The count of a call whose size, as nccl-tests has it, is at most `size_bytes`; at least 1."""
    parts = ranks if operation in _PARTED else 1
    return max(1, size_bytes // (kind.bytes * parts))


def size_of(operation: str, count: int, kind: ValueType, ranks: int) -> int:
    """The size of a call as nccl-tests has it: raw bytes of the larger of its two buffers."""
    return count * kind.bytes * (ranks if operation in _PARTED else 1)


def bus_factor(operation: str, ranks: int) -> float:
    """busbw / algbw, as nccl-tests has it: what the slowest link of an ideal algorithm carries."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in _PARTED else 1.0


@dataclass
class Prepared:
    """A call with its buffers on one rank."""

    run: Callable[[], None]
    out: Array
    kind: ValueType
    expected: Callable[[], Array]

    def poison(self) -> None:
        """So that a value that is not written is seen."""
        self.out.view(np.uint8).fill(POISON)

    def count_wrong(self) -> int:
        return _oracle.count_wrong(self.out, self.expected(), self.kind)


def prepare(
    operation: str, comm: Communicator, values: Array, kind: ValueType, count: int, *, codec: str, op: str, root: int
) -> Prepared:
    """Buffers filled for this rank from the sample `values`, and what must come out.

    Which values another rank sends is known here too, so the expectation takes no communication.
    """
    rank, ranks = comm.rank, comm.ranks
    options: dict[str, Any] = {"codec": codec, "dtype": kind.name}

    def of_rank(other: int, elems: int) -> Array:
        return _samples.of_rank(values, other, elems)

    def part(array: Array, index: int) -> Array:
        return array[index * count : (index + 1) * count]

    whole = count * ranks
    own = of_rank(rank, whole if operation in ("scatter", "all_to_all", "reduce_scatter") else count)
    # Where nothing comes out, there is no room for it.
    gets_nothing = operation in ("reduce", "gather") and rank != root
    gets_whole = operation in ("gather", "all_to_all", "all_gather")
    out = np.empty(0 if gets_nothing else whole if gets_whole else count, values.dtype)

    def sendrecv() -> None:
        with group():
            comm.send(own, (rank + 1) % ranks, **options)
            comm.recv(out, (rank - 1) % ranks, **options)

    runs: dict[str, Callable[[], None]] = {
        "sendrecv": sendrecv,
        "broadcast": lambda: comm.broadcast(own, out, root=root, **options),
        "reduce": lambda: comm.reduce(own, out, root=root, op=op, **options),
        "gather": lambda: comm.gather(own, out, root=root, **options),
        "scatter": lambda: comm.scatter(own, out, root=root, **options),
        "all_gather": lambda: comm.all_gather(own, out, **options),
        "all_to_all": lambda: comm.all_to_all(own, out, **options),
        "reduce_scatter": lambda: comm.reduce_scatter(own, out, op=op, **options),
        "all_reduce": lambda: comm.all_reduce(own, out, op=op, **options),
    }
    everyone = range(ranks)

    def gathered() -> Array:
        return np.concatenate([of_rank(other, count) for other in everyone])

    def reduced() -> Array:
        return _oracle.reduce([of_rank(other, count) for other in everyone], op, kind)

    expected: dict[str, Callable[[], Array]] = {
        "sendrecv": lambda: of_rank((rank - 1) % ranks, count),
        "broadcast": lambda: of_rank(root, count),
        "reduce": reduced,
        "gather": gathered,
        "scatter": lambda: part(of_rank(root, whole), rank),
        "all_gather": gathered,
        "all_to_all": lambda: np.concatenate([part(of_rank(other, whole), rank) for other in everyone]),
        "reduce_scatter": lambda: _oracle.reduce([part(of_rank(r, whole), rank) for r in everyone], op, kind),
        "all_reduce": reduced,
    }
    return Prepared(runs[operation], out, kind, (lambda: out) if gets_nothing else expected[operation])

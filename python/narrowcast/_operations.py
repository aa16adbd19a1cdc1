"""The operations of a communicator as the demo and the benchmark run them: buffers, the call, the expected result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _oracle, _samples
from .comm import Communicator, group
from .types import ValueType

Array = npt.NDArray[Any]

NAMES = ("sendrecv", "broadcast", "all_gather", "all_to_all", "reduce_scatter", "all_reduce")
REDUCTIONS = frozenset({"reduce_scatter", "all_reduce"})
# Counts of these are of one rank's part; nccl-tests states their size over all parts.
_PARTED = frozenset({"all_gather", "all_to_all", "reduce_scatter"})
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
    own = of_rank(rank, whole if operation in ("all_to_all", "reduce_scatter") else count)
    out = np.empty(whole if operation in ("all_to_all", "all_gather") else count, values.dtype)

    def sendrecv() -> None:
        with group():
            comm.send(own, (rank + 1) % ranks, **options)
            comm.recv(out, (rank - 1) % ranks, **options)

    runs: dict[str, Callable[[], None]] = {
        "sendrecv": sendrecv,
        "broadcast": lambda: comm.broadcast(own, out, root=root, **options),
        "all_gather": lambda: comm.all_gather(own, out, **options),
        "all_to_all": lambda: comm.all_to_all(own, out, **options),
        "reduce_scatter": lambda: comm.reduce_scatter(own, out, op=op, **options),
        "all_reduce": lambda: comm.all_reduce(own, out, op=op, **options),
    }
    everyone = range(ranks)
    expected: dict[str, Callable[[], Array]] = {
        "sendrecv": lambda: of_rank((rank - 1) % ranks, count),
        "broadcast": lambda: of_rank(root, count),
        "all_gather": lambda: np.concatenate([of_rank(other, count) for other in everyone]),
        "all_to_all": lambda: np.concatenate([part(of_rank(other, whole), rank) for other in everyone]),
        "reduce_scatter": lambda: _oracle.reduce([part(of_rank(r, whole), rank) for r in everyone], op, kind),
        "all_reduce": lambda: _oracle.reduce([of_rank(other, count) for other in everyone], op, kind),
    }
    return Prepared(runs[operation], out, kind, expected[operation])

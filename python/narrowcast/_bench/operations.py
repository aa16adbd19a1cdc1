"""The operations that the demo and the benchmarks run: buffers, calls and expected results."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._comm.explain import error_bound
from .._comm.groups import group
from .._native import operations as calls
from .._native.operations import Buffer, Operation
from ..comm import Communicator
from ..types import ValueType
from . import oracle, samples, tolerance

Array = npt.NDArray[Any]

PATTERNS = ("ring", "one-way")
POISON = 0xA5

# nccl-tests aligns parts to this.
_PART_ALIGN_BYTES = 16


@functools.cache
def names() -> tuple[str, ...]:
    """The operations that are measured. As in nccl-tests, a send and its receive are one: "sendrecv"."""
    # Calls that list their parts have no single count.
    counted = [one for one in calls.operations().values() if not one.has_peer and one.send != Buffer.LISTED]
    return ("sendrecv", *(one.name for one in counted))


def count_of(operation: str, size_bytes: int, kind: ValueType, ranks: int) -> int:
    """The largest count of a call whose size, as nccl-tests defines it, is at most `size_bytes`; at least 1."""
    if not describe(operation).parted:
        return max(1, size_bytes // kind.bytes)
    part_bytes = size_bytes // ranks
    aligned_bytes = part_bytes // _PART_ALIGN_BYTES * _PART_ALIGN_BYTES
    return max(1, (aligned_bytes or part_bytes) // kind.bytes)


def call_of(operation: str) -> str:
    """The name of the communicator's method for an operation."""
    return "send" if operation == "sendrecv" else operation


def describe(operation: str) -> Operation:
    """The library's description of an operation."""
    return calls.describe(call_of(operation))


def size_of(operation: str, count: int, kind: ValueType, ranks: int) -> int:
    """The size of a call as nccl-tests defines it: raw bytes of the larger of its two buffers."""
    return count * kind.bytes * (ranks if describe(operation).parted else 1)


def bus_factor(operation: str, ranks: int) -> float:
    """busbw / algbw of nccl-tests: the share of the data on the busiest link of an ideal algorithm."""
    return describe(operation).bus_factor(ranks)


def barrier(comm: Communicator) -> None:
    """Returns when all ranks of a communicator of the host backend have called it."""
    comm.all_reduce(np.zeros(1, np.int32), codec="raw")


@dataclass(frozen=True)
class Call:
    """A call on one rank, without its buffers."""

    operation: str
    kind: ValueType
    count: int
    rank: int
    ranks: int
    op: str = "sum"
    root: int = 0
    pattern: str = "ring"  # of sendrecv: to the next rank, or from rank 0 to rank 1 only

    @property
    def send_elems(self) -> int:
        """Values of the input. The same on every rank, even if the rank does not use it."""
        return self.count * (self.ranks if describe(self.operation).send.parted else 1)

    @property
    def recv_elems(self) -> int:
        return self.count * (self.ranks if describe(self.operation).recv.parted else 1)

    def elems_between(self, sender: int, receiver: int) -> int:
        """Values that one rank sends another. In calls that list them, some parts are shorter than `count`."""
        if describe(self.operation).send != Buffer.LISTED:
            return self.count
        return self.count * (1 + (sender + receiver) % self.ranks) // self.ranks

    @property
    def in_place_elems(self) -> int:
        """For calls in place: the position of the smaller buffer in the larger one."""
        return 0 if self.send_elems == self.recv_elems else self.rank * self.count

    @property
    def send_to(self) -> int | None:
        """The rank that this rank sends to in sendrecv."""
        if self.pattern == "ring":
            return (self.rank + 1) % self.ranks
        return 1 if self.rank == 0 else None

    @property
    def receive_from(self) -> int | None:
        if self.pattern == "ring":
            return (self.rank - 1) % self.ranks
        return 0 if self.rank == 1 else None

    @property
    def has_result(self) -> bool:
        """Whether the call writes this rank's output."""
        if self.operation == "sendrecv":
            return self.receive_from is not None
        return not describe(self.operation).recv.at_root or self.rank == self.root

    def run(self, comm: Communicator, values: Any, out: Any, *, codec: str, stream: Any = None) -> None:
        """Makes the call. values and out have send_elems and recv_elems values."""
        options: dict[str, Any] = {"codec": codec, "stream": stream, "dtype": self.kind.name}
        if self.operation == "sendrecv":
            with group():
                if self.send_to is not None:
                    comm.send(values, self.send_to, **options)
                if self.receive_from is not None:
                    comm.recv(out, self.receive_from, **options)
            return
        if describe(self.operation).reduces:
            options["op"] = self.op
        if describe(self.operation).has_root:
            options["root"] = self.root
        if describe(self.operation).send == Buffer.LISTED:
            places = [other * self.count for other in range(self.ranks)]
            counts = [self.elems_between(self.rank, other) for other in range(self.ranks)]
            # Each pair of ranks exchanges equal amounts.
            options |= {"send_counts": counts, "recv_counts": counts, "send_offsets": places, "recv_offsets": places}
        getattr(comm, self.operation)(values, out, **options)

    def sent(self, sample: Array, rank: int, variant: int = 0) -> Array:
        """A rank's input. Each variant takes other values of the sample."""
        return samples.of_rank(sample, rank + variant * self.ranks, self.send_elems)

    def count_wrong(
        self, found: Array, sample: Array, variant: int = 0, *, exact: bool = True, codec: str = "raw"
    ) -> int:
        """The number of wrong values in the output.

        Moved data is compared bit for bit. Reductions are compared with the exact result or, with exact=False, with the
        range of results that any order of rounded additions can produce. With a lossy codec, values must be
        within the error bound of the call.
        """
        if not self.has_result:
            return 0
        wrong = 0
        for i, inputs in enumerate(self.pieces(sample, variant)):
            part = found[i * self.count :][: self.elems_between(i, self.rank)]
            if not tolerance.is_exact(codec, self.kind):
                right = _resized(oracle.reduce(inputs, self.op, self.kind), self.count)[: part.size]
                wrong += tolerance.count_far(part, right, self.kind, self._error_bound(inputs, codec), inputs)
            elif not describe(self.operation).reduces:
                unsigned = f"uint{8 * self.kind.bytes}"
                sent = _resized(inputs[0], self.count)[: part.size]
                wrong += int(np.count_nonzero(part.view(unsigned) != sent.view(unsigned)))
            elif exact:
                wrong += oracle.count_wrong(
                    part, _resized(oracle.reduce(inputs, self.op, self.kind), self.count), self.kind
                )
            else:
                wrong += tolerance.count_outside(part, inputs, self.op, self.kind)
        return wrong

    def _error_bound(self, inputs: list[Array], codec: str) -> float:
        """Of a part of the output."""
        largest = [tolerance.absmax(one, self.kind) for one in inputs]
        op = self.op if describe(self.operation).reduces else "sum"
        return error_bound(call_of(self.operation), codec, len(inputs), largest, dtype=self.kind.name, op=op)

    def pieces(self, sample: Array, variant: int) -> list[list[Array]]:
        """The inputs for each part of the output, `count` values each: the one that is moved there, or those to reduce.

        If `count` exceeds the sample, the arrays are as long as the sample, which repeats.
        """
        elems = min(self.count, sample.size)

        def piece(rank: int, part: int = 0) -> Array:
            return samples.of_rank(sample, rank + variant * self.ranks, elems, offset=part * self.count)

        if self.operation == "sendrecv":
            return [[piece(self.receive_from or 0)]]
        described, everyone = describe(self.operation), range(self.ranks)
        # A rank's input has one piece for all others, or one for each.
        part = self.rank if described.send.parted else 0
        if described.reduces:
            return [[piece(other, part) for other in everyone]]
        if described.has_root and not described.recv.parted:
            return [[piece(self.root, part)]]
        return [[piece(other, part)] for other in everyone]


def _resized(values: Array, elems: int) -> Array:
    return values if values.size == elems else np.resize(values, elems)


@dataclass
class Prepared:
    """A call on one rank with its buffers in host memory."""

    call: Call
    sample: Array
    values: Array
    out: Array
    run: Callable[[], None]
    in_place: bool = False
    codec: str = "raw"

    @property
    def kind(self) -> ValueType:
        return self.call.kind

    def poison(self) -> None:
        """Overwrites the output to detect values that the call does not write, and restores the input."""
        self.out.view(np.uint8).fill(POISON)
        self.restore()

    def restore(self) -> None:
        """Restores the input, which reductions in place overwrite."""
        self.values[:] = self.call.sent(self.sample, self.call.rank)

    def count_wrong(self) -> int:
        return self.call.count_wrong(self.out, self.sample, codec=self.codec)


def prepare(
    operation: str,
    comm: Communicator,
    values: Array,
    kind: ValueType,
    count: int,
    *,
    codec: str,
    op: str,
    root: int,
    pattern: str = "ring",
    in_place: bool = False,
    stream: Any = None,
) -> Prepared:
    """Creates the buffers of this rank and fills its input from the sample `values`.

    The inputs of all ranks follow from the sample, so the expected result needs no communication.
    """
    call = Call(operation, kind, count, comm.rank, comm.ranks, op=op, root=root, pattern=pattern)
    if in_place:
        whole = np.empty(max(call.send_elems, call.recv_elems), values.dtype)
        smaller = whole[call.in_place_elems :][: min(call.send_elems, call.recv_elems)]
        own, out = (smaller, whole) if call.send_elems < call.recv_elems else (whole, smaller)
    else:
        own, out = np.empty(call.send_elems, values.dtype), np.empty(call.recv_elems, values.dtype)

    def run() -> None:
        call.run(comm, own, out, codec=codec, stream=stream)

    prepared = Prepared(call, values, own, out, run, in_place, codec)
    prepared.restore()
    return prepared

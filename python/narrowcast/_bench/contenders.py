"""The contenders of a benchmark on GPUs: Narrowcast with each codec, and variants of NCCL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from .._comm.groups import group
from .._comm.loaded_plan import LoadedPlan
from .._native.codecs import comm_codec_number, forced
from .._native.cuda_driver import DeviceBuffer, Graph, Stream
from .._native.library import check, library
from ..comm import Communicator
from ..errors import RemoteError, UnsupportedError
from ..types import reduction_number
from . import nccl_library
from .nccl_library import Nccl, NcclCommunicator
from .operations import Call, describe

# Enough sets of buffers to exceed the L2 cache, with a limit for small sizes.
MAX_SETS = 64
_BUFFER_BYTES = 2 << 30
_ALIGN_BYTES = 4096

Run = Callable[[Call, DeviceBuffer, DeviceBuffer, Stream], None]


def set_bytes(call: Call, in_place: bool) -> int:
    """Bytes of one input and output, the same on all ranks: windows of NCCL need equal offsets."""
    send, recv = call.send_elems * call.kind.bytes, call.recv_elems * call.kind.bytes
    return _aligned(max(send, recv)) if in_place else _aligned(send) + _aligned(recv)


def set_count(call: Call, in_place: bool, l2_bytes: int) -> int:
    """The number of sets that take turns."""
    each = set_bytes(call, in_place)
    return max(1, min(MAX_SETS, -(-2 * l2_bytes // each), _BUFFER_BYTES // each))


def _aligned(count_bytes: int) -> int:
    return -(-count_bytes // _ALIGN_BYTES) * _ALIGN_BYTES


@dataclass
class Contender:
    """One implementation, with its buffers and its results for one call."""

    name: str
    memory: DeviceBuffer
    run: Run
    comm: Communicator | None = None  #: of Narrowcast; None for NCCL
    group: Callable[[], AbstractContextManager[None]] = group  #: the context manager for grouped calls
    sets: list[tuple[DeviceBuffer, DeviceBuffer]] = field(default_factory=list)  #: input and output
    graphs: list[Graph] = field(default_factory=list)
    turns: Iterator[int] = field(default_factory=itertools.count)
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    raw_bytes: int = 0
    wire_bytes: int = 0
    wrong: int | None = None

    def begin(self, call: Call, count: int, in_place: bool) -> None:
        """Divides the memory into sets."""
        each = set_bytes(call, in_place)
        send, recv = call.send_elems * call.kind.bytes, call.recv_elems * call.kind.bytes
        inner = call.in_place_elems * call.kind.bytes
        places = (0, _aligned(send))
        if in_place:
            places = (inner, 0) if send < recv else (0, inner)
        self.sets = [
            (self.memory.part(i * each + places[0], send), self.memory.part(i * each + places[1], recv))
            for i in range(count)
        ]
        self.turns, self.seconds, self.cpu_seconds, self.wrong = itertools.count(), [], [], None

    def end(self) -> None:
        for graph in self.graphs:
            graph.close()
        self.graphs = []


def run_ours(comm: Communicator, codec: str) -> Run:
    """Narrowcast's calls with a codec, also where it does not pay. They use ctypes directly, as nccl_library.py does,
    so that Python's overhead is the same for both."""
    functions, handle, number = library(), comm.handle, comm_codec_number(forced(codec))

    def run(call: Call, values: DeviceBuffer, out: DeviceBuffer, stream: Stream) -> None:
        send, recv, count, kind = values.pointer, out.pointer, call.count, call.kind.number
        op = reduction_number(call.op)
        end = (number, handle, stream.handle)
        operation = call.operation
        if operation == "sendrecv":
            with group():
                if call.send_to is not None:
                    check(functions.ncast_send(send, count, kind, call.send_to, *end))
                if call.receive_from is not None:
                    check(functions.ncast_recv(recv, count, kind, call.receive_from, *end))
        elif operation == "reduce":
            check(functions.ncast_reduce(send, recv, count, kind, op, call.root, *end))
        elif describe(operation).reduces:
            check(getattr(functions, f"ncast_{operation}")(send, recv, count, kind, op, *end))
        elif describe(operation).has_root:
            check(getattr(functions, f"ncast_{operation}")(send, recv, count, kind, call.root, *end))
        else:
            check(getattr(functions, f"ncast_{operation}")(send, recv, count, kind, *end))

    return run


def run_plan(loaded: LoadedPlan) -> Run:
    """Makes calls that run a plan."""

    def run(call: Call, values: DeviceBuffer, out: DeviceBuffer, stream: Stream) -> None:
        loaded.run_on(values.pointer, out.pointer, call.count, stream.handle)

    return run


class Opponents:
    """The requested variants of NCCL that this version of NCCL and this machine support.

    host: a communicator of the host backend between the ranks.
    required: raise UnsupportedError if a variant is not available, instead of adding a note.
    """

    def __init__(
        self, host: Communicator, against: list[str], operation: str, *, required: bool, path: str | None
    ) -> None:
        self.contenders: list[Contender] = []
        self.notes: list[str] = []
        self.version: str | None = None
        self._host, self._required = host, required
        self._comms: list[NcclCommunicator] = []
        self._symmetric: DeviceBuffer | None = None
        self._variants: list[str] = []
        self._nccl: Nccl | None = None
        if not against:
            return
        try:
            self._nccl = Nccl(path)
        except UnsupportedError as error:
            if required or path is not None:
                raise
            self.notes.append(f"without NCCL: {error}")
            return
        self.version = self._nccl.version_text
        for variant in against:
            reason = self._nccl.lacks(variant, operation)
            if reason is None:
                self._variants.append(variant)
            else:
                self._leave_out(variant, reason)

    def join(self, plain: DeviceBuffer) -> None:
        """Creates a communicator for each variant. Collective. plain: buffers for calls without windows."""
        for variant in self._variants:
            assert self._nccl is not None
            identity = np.zeros(nccl_library.UNIQUE_ID_BYTES, np.uint8)
            if self._host.rank == 0:
                identity[:] = np.frombuffer(self._nccl.unique_id(), np.uint8)
            self._host.broadcast(identity, codec="raw")
            comm = NcclCommunicator(self._nccl, identity.tobytes(), self._host.rank, self._host.ranks, variant)
            self._comms.append(comm)
            memory: DeviceBuffer | None = plain
            if variant != "nccl":
                memory = self._window(comm, plain.count_bytes)
            if memory is None:
                self._leave_out(variant, "NCCL does not support symmetric windows on this machine")
            else:
                self.contenders.append(Contender(variant, memory, comm.run, group=comm.group))

    def close(self) -> None:
        """Destroys the communicators. Collective; no graph may be left."""
        for comm in self._comms:
            comm.close()
        if self._symmetric is not None and self._nccl is not None:
            self._nccl.free(self._symmetric)

    def _window(self, comm: NcclCommunicator, count_bytes: int) -> DeviceBuffer | None:
        """Memory registered as a symmetric window; None on all ranks if one rank cannot register it."""
        assert self._nccl is not None
        if self._symmetric is None:
            try:
                self._symmetric = self._nccl.allocate(count_bytes)
            except RemoteError as error:
                self.notes.append(str(error))
            if not self._on_all_ranks(self._symmetric is not None):
                return None
        assert self._symmetric is not None
        is_window = False
        try:
            is_window = comm.register(self._symmetric)
        except RemoteError as error:
            self.notes.append(str(error))
        return self._symmetric if self._on_all_ranks(is_window) else None

    def _on_all_ranks(self, own: bool) -> bool:
        """Whether `own` is true on all ranks."""
        flag = np.array([own], np.int32)
        self._host.all_reduce(flag, op="min", codec="raw")
        return bool(flag[0])

    def _leave_out(self, variant: str, reason: str) -> None:
        if self._required:
            raise UnsupportedError(f"{variant}: {reason}")
        self.notes.append(f"without {variant}: {reason}")

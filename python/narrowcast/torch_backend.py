"""A backend of torch.distributed: tensors of CPUs and GPUs, on communicators of Narrowcast.

    import narrowcast.torch_backend                      # registers "narrowcast"
    torch.distributed.init_process_group("narrowcast")

CPU tensors use the host backend, whose ranks are processes of one machine, and CUDA tensors the GPUs of one machine.
The first collective with CUDA tensors creates the communicator of the GPUs. The backend has all collectives, the
reductions SUM, PRODUCT, MIN, MAX and AVG, send and recv. It has no recv from any source, no sparse tensors and no other
reductions.

CPU calls run one after the other on a thread, and the returned work waits for them. CUDA calls run on the current
stream. Messages between two ranks are received in the order in which they were sent: tags are ignored.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ._comm.groups import group
from ._torch.call_tensors import Filled, Reduction, dense, gathered, moved, reduction_of, scatter_to, stream_of
from ._torch.work import Work
from .comm import Communicator

__all__ = ["NAME", "NarrowcastGroup"]

NAME = "narrowcast"
# Staging memory of the communicators for messages between two ranks, on the host.
_P2P_SCRATCH_BYTES = 1 << 20


def __dir__() -> list[str]:
    return sorted(__all__)


class _Line:
    """A communicator, and the thread that makes its calls one after the other."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=f"narrowcast-{comm.rank}")

    def close(self) -> None:
        self.thread.shutdown(wait=True)
        self.comm.close()


class NarrowcastGroup(dist.ProcessGroup):  # type: ignore[misc]
    """The process group of torch.distributed. Created by `init_process_group` and `new_group`."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._store, self._rank, self._size = store, rank, size
        self._seconds = timeout.total_seconds()
        self._cuda: Communicator | None = None
        self._batch: list[tuple[str, torch.Tensor, int]] | None = None
        self._creating = threading.Lock()
        # A rank may send and receive at the same time: messages to higher ranks and to lower ranks have a communicator
        # each.
        self._host = _Line(self._communicator("host"))
        self._up = _Line(self._communicator("up", scratch_bytes=_P2P_SCRATCH_BYTES))
        self._down = _Line(self._communicator("down", scratch_bytes=_P2P_SCRATCH_BYTES))

    def _communicator(self, what: str, **options: Any) -> Communicator:
        def exchange(mine: bytes) -> list[bytes]:
            self._store.set(f"narrowcast/{what}/{self._rank}", mine)
            return [self._store.get(f"narrowcast/{what}/{rank}") for rank in range(self._size)]

        return Communicator.by_exchange(exchange, self._rank, self._size, timeout_seconds=self._seconds, **options)

    def _on_gpus(self, device: torch.device) -> Communicator:
        with self._creating:
            if self._cuda is None:
                self._cuda = self._communicator("cuda", backend="cuda", device=device.index or 0)
        return self._cuda

    # What torch asks of a group.

    def getBackendName(self) -> str:
        """The name of the backend: "narrowcast"."""
        return NAME

    def name(self) -> str:
        """The name of the backend: "narrowcast"."""
        return NAME

    def rank(self) -> int:
        """The rank in the group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks in the group."""
        return self._size

    def __repr__(self) -> str:
        return f"NarrowcastGroup(rank {self._rank} of {self._size})"

    def abort(self) -> None:
        """Ends all calls in flight, on all ranks."""
        for comm in self._comms():
            comm.abort()

    def shutdown(self) -> None:
        """Waits for the calls of this rank and closes the communicators."""
        for line in (self._host, self._up, self._down):
            line.close()
        if self._cuda is not None:
            self._cuda.close()

    def _comms(self) -> list[Communicator]:
        own = [line.comm for line in (self._host, self._up, self._down)]
        return own if self._cuda is None else [*own, self._cuda]

    # Calls.

    def _call(
        self, tensors: Sequence[torch.Tensor], body: Callable[[Communicator], None], line: _Line | None = None
    ) -> Work:
        """Runs body(communicator), which fills `tensors`."""
        first = tensors[0]
        if first.device.type == "cuda":
            ended: Future[None] = Future()
            body(self._on_gpus(first.device))
            ended.set_result(None)
        else:
            chosen = line or self._host
            ended = chosen.thread.submit(body, chosen.comm)
        return Work(self.abort, ended, list(tensors))

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """`torch.distributed.broadcast`."""
        root = opts.rootRank if opts is not None else 0

        def body(comm: Communicator) -> None:
            for tensor in tensors:
                with Filled(tensor, keep=True) as flat:
                    comm.broadcast(moved(flat), root=root, stream=stream_of(tensor))

        return self._call(tensors, body)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """`torch.distributed.all_reduce`."""
        op = reduction_of(opts)

        def body(comm: Communicator) -> None:
            for tensor in tensors:
                one = Reduction(tensor, op)
                comm.all_reduce(one.values, op=one.op, stream=stream_of(tensor))
                one.store(one.values, tensor)

        return self._call(tensors, body)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """`torch.distributed.reduce`."""
        op, root = reduction_of(opts), opts.rootRank

        def body(comm: Communicator) -> None:
            for tensor in tensors:
                one = Reduction(tensor, op)
                comm.reduce(one.values, root=root, op=one.op, stream=stream_of(tensor))
                if comm.rank == root:
                    one.store(one.values, tensor)

        return self._call(tensors, body)

    def allgather(
        self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """`torch.distributed.all_gather`."""

        def body(comm: Communicator) -> None:
            for outputs, own in zip(output_tensors, input_tensors, strict=True):
                if all(one.numel() == own.numel() for one in outputs):
                    whole = torch.empty((self._size, own.numel()), dtype=own.dtype, device=own.device)
                    comm.all_gather(moved(dense(own)), moved(whole), stream=stream_of(own))
                    scatter_to(outputs, whole)
                    continue
                outputs[self._rank].copy_(own)
                for root, one in enumerate(outputs):
                    with Filled(one, keep=True) as flat:
                        comm.broadcast(moved(flat), root=root, stream=stream_of(own))

        return self._call([one for outputs in output_tensors for one in outputs], body)

    def _allgather_base(self, output: torch.Tensor, own: torch.Tensor, opts: Any = None) -> Work:
        return self.allgather_into_tensor_coalesced([output], [own], opts)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """`torch.distributed.all_gather_into_tensor`, for one pair of tensors or several."""

        def body(comm: Communicator) -> None:
            for output, own in zip(outputs, inputs, strict=True):
                with Filled(output) as flat:
                    comm.all_gather(moved(dense(own)), moved(flat), stream=stream_of(own))

        return self._call(outputs, body)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(
        self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """`torch.distributed.gather`."""
        root = opts.rootRank

        def body(comm: Communicator) -> None:
            for i, own in enumerate(input_tensors):
                if comm.rank != root:
                    comm.gather(moved(dense(own)), root=root, stream=stream_of(own))
                    continue
                whole = torch.empty((self._size, own.numel()), dtype=own.dtype, device=own.device)
                comm.gather(moved(dense(own)), moved(whole), root=root, stream=stream_of(own))
                scatter_to(output_tensors[i], whole)

        filled = [one for outputs in output_tensors for one in outputs]
        return self._call(filled or input_tensors, body)

    def scatter(
        self, output_tensors: list[torch.Tensor], input_tensors: list[list[torch.Tensor]], opts: Any = None
    ) -> Work:
        """`torch.distributed.scatter`."""
        root = opts.rootRank

        def body(comm: Communicator) -> None:
            for i, output in enumerate(output_tensors):
                values = moved(gathered(input_tensors[i])) if comm.rank == root else None
                with Filled(output) as flat:
                    comm.scatter(values, moved(flat), root=root, stream=stream_of(output))

        return self._call(output_tensors, body)

    def reduce_scatter(
        self, output_tensors: list[torch.Tensor], input_tensors: list[list[torch.Tensor]], opts: Any = None
    ) -> Work:
        """`torch.distributed.reduce_scatter`."""
        return self._reduce_scatter(output_tensors, lambda i: gathered(input_tensors[i]), opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """`torch.distributed.reduce_scatter_tensor`, for one pair of tensors or several."""
        return self._reduce_scatter(outputs, lambda i: inputs[i], opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter_base(self, output: torch.Tensor, values: torch.Tensor, opts: Any = None) -> Work:
        return self._reduce_scatter([output], lambda i: values, opts)

    reduce_scatter_single = _reduce_scatter_base

    def _reduce_scatter(self, outputs: list[torch.Tensor], input_of: Callable[[int], torch.Tensor], opts: Any) -> Work:
        op = reduction_of(opts)

        def body(comm: Communicator) -> None:
            for i, output in enumerate(outputs):
                one = Reduction(input_of(i), op)
                part = one.values.new_empty(one.values.numel() // self._size)
                comm.reduce_scatter(one.values, part, op=one.op, stream=stream_of(output))
                one.store(part, output)

        return self._call(outputs, body)

    def alltoall_base(
        self,
        output: torch.Tensor,
        values: torch.Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: Any = None,
    ) -> Work:
        """`torch.distributed.all_to_all_single`."""

        def counts(tensor: torch.Tensor, split_sizes: Sequence[int]) -> list[int]:
            rows = tensor.size(0) if tensor.dim() else 1
            row = tensor.numel() // max(rows, 1)
            sizes = list(split_sizes) or [rows // self._size] * self._size
            if sum(sizes) != rows:
                raise ValueError(f"the split sizes {sizes} do not add up to the {rows} rows of the tensor")
            return [row * size for size in sizes]

        sent, received = counts(values, input_split_sizes), counts(output, output_split_sizes)

        def body(comm: Communicator) -> None:
            with Filled(output) as flat:
                source, target = moved(dense(values)), moved(flat)
                scale = source.numel() // max(values.numel(), 1)
                comm.all_to_all_v(
                    source,
                    target,
                    [scale * count for count in sent],
                    [scale * count for count in received],
                    stream=stream_of(output),
                )

        return self._call([output], body)

    all_to_all_single = alltoall_base

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        """`torch.distributed.all_to_all`."""

        def body(comm: Communicator) -> None:
            values = gathered(inputs)
            whole = values.new_empty(sum(one.numel() for one in outputs))
            source, target = moved(values), moved(whole)
            scale = source.numel() // max(values.numel(), 1)
            comm.all_to_all_v(
                source,
                target,
                [scale * one.numel() for one in inputs],
                [scale * one.numel() for one in outputs],
                stream=stream_of(values),
            )
            scatter_to(outputs, whole)

        return self._call(outputs, body)

    def barrier(self, opts: Any = None) -> Work:
        """`torch.distributed.barrier`."""

        def body(comm: Communicator) -> None:
            comm.all_reduce(torch.zeros(1, dtype=torch.int32), codec="raw")

        if self._cuda is not None:
            torch.cuda.current_stream().synchronize()
        return self._call([torch.zeros(1)], body)

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int = 0) -> Work:
        """`torch.distributed.send`. The tag is ignored."""
        return self._messages([("send", one, dst) for one in tensors], self._up if dst > self._rank else self._down)

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int = 0) -> Work:
        """`torch.distributed.recv`. The tag is ignored."""
        return self._messages([("recv", one, src) for one in tensors], self._up if src < self._rank else self._down)

    def _messages(self, messages: list[tuple[str, torch.Tensor, int]], line: _Line | None) -> Work:
        tensors = [tensor for _, tensor, _ in messages]
        if self._batch is not None:
            self._batch += messages
            ended: Future[None] = Future()
            ended.set_result(None)  # nobody waits for a message of a batch
            return Work(self.abort, ended, tensors)

        def body(comm: Communicator) -> None:
            with contextlib.ExitStack() as filled, group():
                for kind, tensor, peer in messages:
                    if kind == "send":
                        comm.send(moved(dense(tensor)), peer, stream=stream_of(tensor))
                    else:
                        flat = filled.enter_context(Filled(tensor))
                        comm.recv(moved(flat), peer, stream=stream_of(tensor))

        return self._call(tensors, body, line)

    # Batches of messages (batch_isend_irecv).

    supports_coalescing = True

    def _get_backend(self, device: torch.device) -> NarrowcastGroup:
        return self

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        self._batch = []

    def _end_coalescing(self, device: torch.device | None = None) -> Work | None:
        messages, self._batch = self._batch, None
        return self._messages(messages, None) if messages else None

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        """Not supported: raises an error."""
        raise NotImplementedError("the backend narrowcast cannot receive from any source: name the rank")


dist.Backend.register_backend(NAME, NarrowcastGroup, devices=["cpu", "cuda"])

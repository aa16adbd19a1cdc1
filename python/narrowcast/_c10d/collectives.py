"""The collectives of a process group: each checks its arguments, and runs a function of its communicator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from ..comm import Communicator
from . import checks, sparse
from .overloads import overloaded
from .point_to_point import PointToPoint
from .reductions import Reduction
from .tensors import Filled, dense, gathered, moved, scatter_to, stream_of, units
from .work import Work


class Collectives(PointToPoint):
    """A group with collectives. The methods have the names and forms of those of `torch.distributed.ProcessGroup`."""

    @overloaded(c10d.BroadcastOptions, ["tensors"], ["root", "timeout"])
    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """`torch.distributed.broadcast`. Of several tensors, all become the root's tensor `opts.rootTensor`."""
        call = "broadcast"
        checks.rank(call, opts.rootRank, self._size, "root")
        source = opts.rootTensor
        checks.require(0 <= source < len(tensors), call, f"invalid root tensor {source} of {len(tensors)} tensors")
        self._check_tensors(call, tensors)
        checks.strided(call, tensors)

        def body(comm: Communicator) -> None:
            with Filled(tensors[source], keep=True) as flat:
                comm.broadcast(moved(flat), root=opts.rootRank, stream=stream_of(flat))
            for i, tensor in enumerate(tensors):
                if i != source:
                    tensor.detach().copy_(tensors[source].detach())

        return self._call(opts, tensors, body)

    @overloaded(c10d.AllreduceOptions, ["tensors"], ["op", "timeout"])
    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """`torch.distributed.all_reduce`. Several tensors are reduced to one, which all of them become."""
        call, op = "allreduce", Reduction(opts.reduceOp)
        self._check_tensors(call, tensors)
        is_sparse = tensors[0].layout == torch.sparse_coo
        if is_sparse:
            checks.require(op.name == "sum", call, f"unsupported reduction operation {op.name} of sparse tensors")
            checks.require(len({one.shape for one in tensors}) == 1, call, "invalid tensor size: sparse sizes differ")
        else:
            checks.strided(call, tensors)
        op.check(tensors[0].dtype)

        def body(comm: Communicator) -> None:
            if is_sparse:
                sparse.all_reduce(comm, tensors)
                return
            result = op.of_rank(tensors)
            op.all_reduce(comm, result)
            for tensor in tensors:
                if tensor is not result:
                    tensor.detach().copy_(result)

        return self._call(opts, tensors, body)

    @overloaded(c10d.AllreduceCoalescedOptions, ["tensors"], ["op", "timeout"])
    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """`torch.distributed.all_reduce_coalesced`: each tensor on its own, in one call of the library."""
        call, op = "allreduce_coalesced", Reduction(opts.reduceOp)
        checks.require(len(tensors) > 0, call, "requires non-empty tensor list")
        for i, one in enumerate(tensors):
            checks.require(one.layout == tensors[0].layout, call, f"invalid tensor layout at index {i}")
            checks.require(one.dtype == tensors[0].dtype, call, "tensors must all have the same type")
        checks.require(tensors[0].layout == torch.strided, call, f"unsupported layout {tensors[0].layout}")
        checks.alike(call, tensors, tensors[0], sizes=False)
        op.check(tensors[0].dtype)

        def body(comm: Communicator) -> None:
            whole = tensors[0] if len(tensors) == 1 else gathered(tensors)
            op.all_reduce(comm, whole)
            if whole is not tensors[0]:
                scatter_to(tensors, whole)

        return self._call(opts, tensors, body)

    @overloaded(c10d.ReduceOptions, ["tensors"], ["root", "op", "timeout"])
    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """`torch.distributed.reduce`."""
        call, op = "reduce", Reduction(opts.reduceOp)
        checks.rank(call, opts.rootRank, self._size, "root")
        checks.require(len(tensors) == 1, call, "requires a single-element tensor list")
        checks.require(opts.rootTensor == 0, call, f"invalid root tensor {opts.rootTensor} of 1 tensor")
        checks.strided(call, tensors)
        op.check(tensors[0].dtype)
        return self._call(opts, tensors, lambda comm: op.reduce(comm, tensors[0], opts.rootRank))

    @overloaded(c10d.AllgatherOptions, ["output_tensors", "input_tensors"], ["timeout"], nested=["output_tensors"])
    def allgather(self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor], opts: Any) -> Work:
        """`torch.distributed.all_gather`. The tensors of one rank can have another size than those of others."""
        call, count = "allgather", len(input_tensors)
        checks.same_length(call, output_tensors, input_tensors)
        own = input_tensors[0]
        checks.strided(call, input_tensors)
        checks.alike(call, input_tensors, own)
        for i, outputs in enumerate(output_tensors):
            checks.require(
                len(outputs) == count * self._size,
                call,
                f"invalid output tensor list at index {i}: it has {len(outputs)} tensors for {count} tensors each of "
                f"{self._size} ranks",
            )
            checks.alike(call, outputs, own, sizes=False)
            checks.alike(call, outputs[self._rank * count : (self._rank + 1) * count], own)

        def body(comm: Communicator) -> None:
            first, *others = output_tensors
            values = dense(own) if count == 1 else gathered(input_tensors)
            if all(one.numel() == own.numel() for one in first):
                whole = torch.empty((self._size, values.numel()), dtype=own.dtype, device=own.device)
                comm.all_gather(moved(values), moved(whole), stream=stream_of(own))
                scatter_to(first, whole)
            else:
                for root in range(self._size):
                    part = first[root * count : (root + 1) * count]
                    flat = values if root == self._rank else gathered(part)
                    comm.broadcast(moved(flat), root=root, stream=stream_of(own))
                    scatter_to(part, flat)
            for outputs in others:
                for output, one in zip(outputs, first, strict=True):
                    output.detach().copy_(one.detach())

        filled = [one for outputs in output_tensors for one in outputs]
        return self._call(opts, filled, body, value=output_tensors if count > 1 else output_tensors[0])

    @overloaded(c10d.AllgatherOptions, ["output_lists", "input_list"], ["timeout"])
    def allgather_coalesced(
        self, output_lists: list[list[torch.Tensor]], input_list: list[torch.Tensor], opts: Any
    ) -> Work:
        """`torch.distributed.all_gather_coalesced`: output_lists[r] becomes the input_list of rank r."""
        call = "allgather_coalesced"
        checks.require(len(input_list) > 0, call, "requires non-empty input tensor list")
        checks.require(len(output_lists) == self._size, call, "output lists should be equal to world size")
        for outputs in output_lists:
            checks.require(len(outputs) == len(input_list), call, "output lists should have the length of the input")
            for i, (output, own) in enumerate(zip(outputs, input_list, strict=True)):
                same = output.shape == own.shape
                checks.require(same, call, f"invalid size of output tensor at index {i}: {[*output.shape]}")
                checks.require(output.dtype == own.dtype, call, f"invalid tensor type at index {i}: {output.dtype}")
        checks.strided(call, [*input_list, *(one for outputs in output_lists for one in outputs)])

        def body(comm: Communicator) -> None:
            for own, *outputs in zip(input_list, *output_lists, strict=True):
                whole = torch.empty((self._size, own.numel()), dtype=own.dtype, device=own.device)
                comm.all_gather(moved(dense(own)), moved(whole), stream=stream_of(own))
                scatter_to(outputs, whole)

        filled = [one for outputs in output_lists for one in outputs]
        return self._call(opts, filled, body, value=output_lists)

    @overloaded(c10d.AllgatherOptions, ["output", "input"], ["timeout"])
    def _allgather_base(self, output: list[torch.Tensor], values: list[torch.Tensor], opts: Any) -> Work:
        work: Work = self.allgather_into_tensor_coalesced(output, values, opts)
        return work

    all_gather_single = _allgather_base

    @overloaded(c10d.AllgatherOptions, ["output_lists", "input_list"], ["timeout"])
    def allgather_into_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        """`torch.distributed.all_gather_into_tensor`, for one pair of tensors or several."""
        call = "all_gather_into_tensor"
        checks.same_length(call, outputs, inputs)
        for output, own in zip(outputs, inputs, strict=True):
            checks.parts(call, output, own, self._size)

        def body(comm: Communicator) -> None:
            for output, own in zip(outputs, inputs, strict=True):
                with Filled(output) as flat:
                    comm.all_gather(moved(dense(own)), moved(flat), stream=stream_of(own))

        return self._call(opts, outputs, body)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    @overloaded(c10d.GatherOptions, ["output_tensors", "input_tensors"], ["root", "timeout"], nested=["output_tensors"])
    def gather(self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor], opts: Any) -> Work:
        """`torch.distributed.gather`."""
        call, root = "gather", opts.rootRank
        checks.rank(call, root, self._size, "root")
        checks.require(len(input_tensors) == 1, call, "requires a single-element input tensor list")
        own = input_tensors[0]
        outputs = self._parts_at_root(call, output_tensors, own, root, "output")

        def body(comm: Communicator) -> None:
            if comm.rank != root:
                comm.gather(moved(dense(own)), root=root, stream=stream_of(own))
                return
            whole = torch.empty((self._size, own.numel()), dtype=own.dtype, device=own.device)
            comm.gather(moved(dense(own)), moved(whole), root=root, stream=stream_of(own))
            scatter_to(outputs, whole)

        return self._call(opts, outputs, body, like=own)

    @overloaded(c10d.ScatterOptions, ["output_tensors", "input_tensors"], ["root", "timeout"], nested=["input_tensors"])
    def scatter(self, output_tensors: list[torch.Tensor], input_tensors: list[list[torch.Tensor]], opts: Any) -> Work:
        """`torch.distributed.scatter`."""
        call, root = "scatter", opts.rootRank
        checks.rank(call, root, self._size, "root")
        checks.require(len(output_tensors) == 1, call, "requires a single-element output tensor list")
        output = output_tensors[0]
        inputs = self._parts_at_root(call, input_tensors, output, root, "input")

        def body(comm: Communicator) -> None:
            values = moved(gathered(inputs)) if comm.rank == root else None
            with Filled(output) as flat:
                comm.scatter(values, moved(flat), root=root, stream=stream_of(output))

        return self._call(opts, output_tensors, body)

    @overloaded(
        c10d.ReduceScatterOptions, ["output_tensors", "input_tensors"], ["op", "timeout"], nested=["input_tensors"]
    )
    def reduce_scatter(
        self, output_tensors: list[torch.Tensor], input_tensors: list[list[torch.Tensor]], opts: Any
    ) -> Work:
        """`torch.distributed.reduce_scatter`."""
        call, op = "reduce_scatter", Reduction(opts.reduceOp)
        checks.same_length(call, output_tensors, input_tensors)
        for output, inputs in zip(output_tensors, input_tensors, strict=True):
            checks.require(
                len(inputs) == self._size, call, f"the input list has {len(inputs)} tensors for {self._size} ranks"
            )
            checks.strided(call, [output])
            checks.alike(call, inputs, output)
            op.check(output.dtype)

        def body(comm: Communicator) -> None:
            for output, inputs in zip(output_tensors, input_tensors, strict=True):
                op.reduce_scatter(comm, gathered(inputs), output)

        return self._call(opts, output_tensors, body)

    @overloaded(c10d.ReduceScatterOptions, ["outputTensors", "inputTensors"], ["op", "timeout"])
    def reduce_scatter_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> Work:
        """`torch.distributed.reduce_scatter_tensor`, for one pair of tensors or several."""
        call, op = "reduce_scatter_tensor", Reduction(opts.reduceOp)
        checks.same_length(call, outputs, inputs)
        for output, own in zip(outputs, inputs, strict=True):
            checks.parts(call, own, output, self._size)
            op.check(output.dtype)

        def body(comm: Communicator) -> None:
            for output, own in zip(outputs, inputs, strict=True):
                op.reduce_scatter(comm, own, output)

        return self._call(opts, outputs, body)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    @overloaded(c10d.ReduceScatterOptions, ["outputTensor", "inputTensor"], ["op", "timeout"])
    def _reduce_scatter_base(self, output: list[torch.Tensor], values: list[torch.Tensor], opts: Any) -> Work:
        work: Work = self.reduce_scatter_tensor_coalesced(output, values, opts)
        return work

    reduce_scatter_single = _reduce_scatter_base

    @overloaded(c10d.AllToAllOptions, ["output", "input", "output_split_sizes", "input_split_sizes"], ["timeout"])
    def alltoall_base(
        self,
        output: list[torch.Tensor],
        values: list[torch.Tensor],
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any,
    ) -> Work:
        """`torch.distributed.all_to_all_single`."""
        (target,), (source,) = output, values
        checks.alike("alltoall_base", [target], source, sizes=False)
        checks.strided("alltoall_base", [target])
        sent = self._split(source, input_split_sizes, "input")
        received = self._split(target, output_split_sizes, "output")

        def body(comm: Communicator) -> None:
            with Filled(target) as flat:
                _all_to_all(comm, dense(source), flat, sent, received)

        return self._call(opts, [target], body)

    all_to_all_single = alltoall_base

    @overloaded(c10d.AllToAllOptions, ["output_tensors", "input_tensors"], ["timeout"])
    def alltoall(self, output_tensors: list[torch.Tensor], input_tensors: list[torch.Tensor], opts: Any) -> Work:
        """`torch.distributed.all_to_all`."""
        call = "alltoall"
        for name, tensors in (("input", input_tensors), ("output", output_tensors)):
            checks.require(
                len(tensors) == self._size, call, f"the {name} list has {len(tensors)} tensors for {self._size} ranks"
            )
        checks.strided(call, input_tensors)
        checks.alike(call, [*input_tensors, *output_tensors], input_tensors[0], sizes=False)

        def body(comm: Communicator) -> None:
            values = gathered(input_tensors)
            whole = values.new_empty(sum(one.numel() for one in output_tensors))
            sizes = [[one.numel() for one in tensors] for tensors in (input_tensors, output_tensors)]
            _all_to_all(comm, values, whole, *sizes)
            scatter_to(output_tensors, whole)

        return self._call(opts, output_tensors, body)

    @overloaded(c10d.BarrierOptions, [], ["timeout"])
    def barrier(self, opts: Any) -> Work:
        """`torch.distributed.barrier`."""
        if self._cuda is not None:
            torch.cuda.current_stream().synchronize()

        def body(comm: Communicator) -> None:
            comm.all_reduce(torch.zeros(1, dtype=torch.int32), codec="raw")

        return self._call(opts, [], body, like=torch.empty(0))

    def _check_tensors(self, call: str, tensors: list[torch.Tensor]) -> None:
        checks.require(len(tensors) > 0, call, "requires non-empty tensor list")
        checks.alike(call, tensors[1:], tensors[0])

    def _parts_at_root(
        self, call: str, lists: list[list[torch.Tensor]], part: torch.Tensor, root: int, kind: str
    ) -> list[torch.Tensor]:
        """The tensors of a list of lists, one for each rank: on the root; none on other ranks."""
        checks.strided(call, [part])
        if self._rank != root:
            checks.require(not lists, call, f"requires empty {kind} on non-root")
            return []
        checks.require(len(lists) == 1, call, f"requires a single-element {kind} list that contains a list of tensors")
        count, kinds = len(lists[0]), kind.capitalize()
        checks.require(
            count == self._size, call, f"Incorrect {kind} list size {count}. {kinds} list size should be {self._size}"
        )
        checks.alike(call, lists[0], part)
        return lists[0]

    def _split(self, tensor: torch.Tensor, split_sizes: Sequence[int], kind: str) -> list[int]:
        """How many values of a tensor each rank has, from its numbers of rows."""
        call, rows = "alltoall_base", tensor.size(0) if tensor.dim() else 1
        sizes = [*split_sizes]
        if not sizes:
            checks.require(
                rows % self._size == 0,
                call,
                f"the {kind} has {rows} rows, which {self._size} ranks cannot share equally",
            )
            sizes = [rows // self._size] * self._size
        checks.require(len(sizes) == self._size, call, f"{len(sizes)} {kind} split sizes for {self._size} ranks")
        checks.require(
            sum(sizes) == rows and min(sizes) >= 0,
            call,
            f"the {kind} split sizes {sizes} do not add up to the {rows} rows of the tensor",
        )
        row = tensor.numel() // max(rows, 1)
        return [row * size for size in sizes]


def _all_to_all(
    comm: Communicator, values: torch.Tensor, out: torch.Tensor, sent: list[int], received: list[int]
) -> None:
    """Exchanges contiguous values; the counts are of their type."""
    scale = units(values.dtype)
    comm.all_to_all_v(
        moved(values),
        moved(out),
        [scale * count for count in sent],
        [scale * count for count in received],
        stream=stream_of(out),
    )

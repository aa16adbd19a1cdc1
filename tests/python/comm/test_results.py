"""Results that the caller gave no array for."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import narrowcast
import numpy as np
import pytest
from thread_ranks import on_ranks, succeed

RANKS = 3


def run(call, values, **options):
    """The results of a call on all ranks. values: of rank 0; those of rank r are r larger."""

    def body(comm):
        return call(comm, values + np.asarray(comm.rank, values.dtype))

    return succeed(on_ranks(RANKS, body, **options))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize(("shape", "gathered"), [((), (3,)), ((4,), (12,)), ((6, 5), (18, 5)), ((0, 2), (0, 2))])
def test_gathered_values_follow_each_other_along_the_first_axis(dtype, shape, gathered):
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    expected = np.concatenate([np.atleast_1d(values + np.asarray(rank, dtype)) for rank in range(RANKS)])
    for out in run(lambda comm, own: comm.all_gather(own), values):
        assert (out.shape, out.dtype) == (gathered, values.dtype)
        assert np.array_equal(out, expected)
    first, root, last = run(lambda comm, own: comm.gather(own, root=1), values)
    assert np.array_equal(root, expected)
    assert first is last is None


@pytest.mark.parametrize(("shape", "part"), [((6,), (2,)), ((6, 5), (2, 5)), ((4, 3), (4,))])
def test_a_part_is_one_of_the_first_axis_if_it_can_be_divided(shape, part):
    values = np.arange(np.prod(shape, dtype=np.float32)).reshape(shape)
    parts = run(lambda comm, own: comm.reduce_scatter(own), values)
    assert [out.shape for out in parts] == [part] * RANKS
    assert np.array_equal(np.concatenate([out.ravel() for out in parts]), 3 * values.ravel() + 3)


def test_exchanged_values_have_the_shape_of_the_input_or_the_count_of_the_parts():
    values = np.arange(6, dtype=np.int32).reshape(3, 2)
    for rank, out in enumerate(run(lambda comm, own: comm.all_to_all(own), values)):
        assert np.array_equal(out, np.stack([values[rank] + sender for sender in range(RANKS)]))

    def exchange(comm, own):  # rank r sends s values to rank s
        return comm.all_to_all_v(own, None, [0, 1, 2], [comm.rank] * RANKS)

    for rank, out in enumerate(run(exchange, values)):
        assert out.shape == (RANKS * rank,)
        first = [0, 0, 1][rank]  # of the part that each rank sends to this one
        assert np.array_equal(out, np.concatenate([np.arange(first, first + rank) + sender for sender in range(RANKS)]))


def test_bytes_of_longer_values_become_bytes():
    def body(comm):
        own = bytes([comm.rank] * 12)
        gathered = comm.all_gather(own, dtype="bfloat16")
        part = comm.reduce_scatter(memoryview(bytes(12)), dtype="bfloat16")
        exchanged = comm.all_to_all_v(own, None, [2] * 3, [2] * 3, dtype="bfloat16")
        return [(one.dtype, one.shape) for one in (gathered, part, exchanged)]

    assert succeed(on_ranks(RANKS, body)) == [[(np.uint8, (36,)), (np.uint8, (4,)), (np.uint8, (12,))]] * RANKS


def test_results_are_allocated_in_groups_and_on_streams():
    values = np.ones(4, np.float32)
    with narrowcast.LocalRanks(2) as comms, narrowcast.Stream() as stream:
        with narrowcast.group():
            outs = [comm.all_gather(values, stream=stream) for comm in comms]
        stream.synchronize()
    assert all((out == 1).all() and out.shape == (8,) for out in outs)


class Tensor:
    """What the library uses of a torch tensor."""

    device, dtype = SimpleNamespace(type="cpu", index=None), "torch.float32"

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def new_empty(self, shape):
        return Tensor(np.empty(shape, np.float32))

    def data_ptr(self):
        return self.values.ctypes.data

    def element_size(self):
        return 4

    def numel(self):
        return self.values.size

    def is_contiguous(self):
        return True


def test_tensors_make_tensors():
    def body(comm):
        return comm.all_gather(Tensor(np.full((2, 2), comm.rank, np.float32)))

    for out in succeed(on_ranks(RANKS, body)):
        assert isinstance(out, Tensor)
        assert np.array_equal(out.values, np.repeat(np.arange(3), 4).reshape(6, 2))


class Immutable:
    """An array of JAX."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def devices(self):
        return {"cpu:0"}

    def __dlpack__(self, **options):
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


Immutable.__module__ = "jaxlib._jax"


def test_immutable_arrays_are_made_of_the_result(monkeypatch):
    jax = ModuleType("jax")
    jax.device_put = lambda values, device: (Immutable(values), device)
    monkeypatch.setitem(sys.modules, "jax", jax)

    def body(comm):
        own = Immutable(np.full(2, comm.rank, np.float32))
        with pytest.raises(ValueError, match="JAX arrays are immutable"), narrowcast.group():
            comm.all_gather(own)
        return comm.all_gather(own)

    for out, device in succeed(on_ranks(RANKS, body)):
        assert device == "cpu:0"
        assert np.array_equal(out.values, np.repeat(np.arange(3), 2))


def test_other_arrays_need_out():
    class Other(Immutable):
        pass

    def body(comm):
        with pytest.raises(ValueError, match="out is needed: no test_results array can be created for the result"):
            comm.all_gather(Other(np.ones(2, np.float32)))
        with pytest.raises(ValueError, match="out is needed with recv_offsets"):
            comm.all_to_all_v(np.ones(1, np.float32), None, [1], [1], recv_offsets=[0])
        with pytest.raises(ValueError, match=r"recv_counts\[0\] is -1: it must not be negative"):
            comm.all_to_all_v(np.ones(1, np.float32), None, [1], [-1])

    succeed(on_ranks(1, body))

"""Arguments of communicators: those that are rejected, and those that reach the library."""

from __future__ import annotations

import narrowcast
import numpy as np
import pytest


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((1 << 32, 1), {}, "rank is 4294967296: it does not fit 32 bits"),
        ((0, 1 << 40), {}, "ranks is 1099511627776: it does not fit 32 bits"),
        ((0, 1), {"device": 1 << 32}, "device is 4294967296"),
        ((0, 1), {"scratch_bytes": -1}, "scratch_bytes is -1: it must not be negative"),
        ((0, 1), {"scratch_bytes": 1 << 64}, "scratch_bytes is 18446744073709551616: it does not fit 64 bits"),
        ((0, 1), {"max_ctas": -1}, "max_ctas is -1: it must not be negative"),
    ],
)
def test_options_out_of_range_are_rejected(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        narrowcast.Communicator(narrowcast.unique_id(), *arguments, **options)
    with pytest.raises(ValueError, match=words):
        narrowcast.Communicator.by_exchange(lambda mine: [mine], *arguments, **options)


def test_numbers_that_c_would_truncate_are_rejected():
    values, many = np.zeros(4, np.float32), 1 << 32
    with narrowcast.Communicator(narrowcast.unique_id(), 0, 1) as comm:
        for call in (
            lambda: comm.broadcast(values, root=many),
            lambda: comm.gather(values, values.copy(), root=many),
            lambda: comm.scatter(values, values.copy(), root=many),
            lambda: comm.reduce(values, root=many),
        ):
            with pytest.raises(ValueError, match="root is 4294967296: it does not fit 32 bits"):
                call()
        for call in (lambda: comm.send(values, many), lambda: comm.recv(values, many)):
            with pytest.raises(ValueError, match="peer is 4294967296: it does not fit 32 bits"):
                call()
    with pytest.raises(ValueError, match="ranks is 4294967298"):
        narrowcast.explain("all_reduce", 1, dtype="float32", ranks=many + 2)
    with pytest.raises(ValueError, match="ranks is 4294967297"):
        narrowcast.LocalRanks(many + 1)


def test_calls_are_rejected_before_they_wait_for_any_peer():
    values, out, counts = np.arange(30, dtype=np.float32), np.zeros(60, np.float32), [10, 20]
    frozen = values.copy()
    frozen.flags.writeable = False
    with narrowcast.LocalRanks(2) as comms:
        comm = comms[0]
        for words, call in (
            ("out holds 30 values, not 60", lambda: comm.all_gather(values, values.copy())),
            ("out holds float16 values, not float32", lambda: comm.all_gather(values, out.astype(np.float16))),
            ("values has 29 values, which is not a multiple of 2 ranks", lambda: comm.reduce_scatter(values[:29])),
            ("'median' is not a reduction", lambda: comm.all_reduce(values, op="median")),
            ("'zip' is not a codec", lambda: comm.all_reduce(values, codec="zip")),
            ("values is read-only", lambda: comm.all_reduce(frozen)),
            ("values is not contiguous", lambda: comm.all_reduce(values[::2])),
            ("values holds uint16", lambda: comm.all_reduce(np.zeros(4, np.uint16))),
            ("peer", lambda: comm.send(values, 2)),
            ("root", lambda: comm.broadcast(values, root=-1)),
            ("send_counts has 1 numbers for 2 ranks", lambda: comm.all_to_all_v(values, out, [30], counts)),
            (r"send_counts\[0\] is -1", lambda: comm.all_to_all_v(values, out, [-1, 1], counts)),
            ("out has 9 values, recv_counts", lambda: comm.all_to_all_v(values, out[:9], counts, counts)),
            (
                "send_offsets has 1 numbers",
                lambda: comm.all_to_all_v(values, out, counts, counts, send_offsets=[9]),
            ),
            ("overlap", lambda: comm.all_to_all_v(values, values, counts, counts)),
        ):
            with pytest.raises((ValueError, TypeError), match=words):
                call()
        # The communicators still work. Counts may be arrays.
        outs = [np.zeros(20, np.float32), np.zeros(40, np.float32)]
        with narrowcast.group():
            for rank, own in enumerate(comms):
                own.all_to_all_v(values, outs[rank], np.array(counts), [counts[rank]] * 2)
        assert [one.tolist() for one in outs] == [[*range(10)] * 2, [*range(10, 30)] * 2]
    for call in (comm.counters, lambda: comm.all_reduce(values)):
        with pytest.raises(ValueError, match="the communicator is closed"):
            call()


def test_unknown_options_are_rejected():
    message = "'max_cta' is not an option of a communicator"
    for make in (
        lambda: narrowcast.Communicator(narrowcast.unique_id(), 0, 1, max_cta=1),
        lambda: narrowcast.Communicator.by_exchange(lambda mine: [mine], 0, 1, max_cta=1),
        lambda: narrowcast.LocalRanks(1, max_cta=1),
    ):
        with pytest.raises(TypeError, match=message):
            make()


def test_arguments_of_the_constructor():
    with pytest.raises(ValueError, match="unique_id has 5 bytes, not 128"):
        narrowcast.Communicator(b"short", 0, 1)
    with pytest.raises(ValueError, match="'pigeon' is not a backend"):
        narrowcast.Communicator(narrowcast.unique_id(), 0, 1, backend="pigeon")
    with pytest.raises(narrowcast.InvalidArgumentError):
        narrowcast.Communicator(narrowcast.unique_id(), 3, 2)
    assert len({narrowcast.unique_id() for _ in range(10)}) == 10


def test_a_communicator_of_gpus_needs_gpus():
    if narrowcast.cuda.device_count() > 0:
        pytest.skip("there is a GPU")
    with pytest.raises(narrowcast.NarrowcastError, match=r"(?i)cuda|gpu"):
        narrowcast.Communicator(narrowcast.unique_id(), 0, 1, backend="cuda", device=0)


class _Recorder:
    """Replaces the library and records the arguments of calls."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, arguments))
            return 0

        return call


class _OnGpu:
    """An array of 12 floats in the memory of some GPU."""

    def __init__(self, pointer):
        self.__cuda_array_interface__ = {"shape": (12,), "typestr": "<f4", "data": (pointer, False), "version": 3}


class _FrameworkStream:
    cuda_stream = 77


def test_a_communicator_of_gpus_takes_device_arrays_and_cuda_streams(monkeypatch):
    recorder = _Recorder()
    for module in ("comm", "_comm.calls", "_comm.groups"):
        monkeypatch.setattr(f"narrowcast.{module}.library", lambda: recorder)
    comm = narrowcast.Communicator(b"x" * 128, 0, 2, backend="cuda", device=5)
    config = recorder.calls[-1][1][-1]._obj
    assert (config.backend, config.device) == (2, 5)
    values, out = _OnGpu(4096), _OnGpu(8192)
    for stream, handle in ((None, None), (0, None), (9, 9), (_FrameworkStream(), 77)):
        comm.all_reduce(values, out, stream=stream)
        name, arguments = recorder.calls[-1]
        assert name == "ncast_run_reduction"
        assert arguments[1:5] == (4096, 8192, 12, 7)
        assert arguments[-1] == handle
    comm.all_to_all_v(values, out, [3, 4], [12, 0], codec="raw")
    name, arguments = recorder.calls[-1]
    assert name == "ncast_all_to_all_v"
    assert [list(numbers) for numbers in arguments[1:3]] == [[3, 4], [0, 3]]
    assert [list(numbers) for numbers in arguments[4:6]] == [[12, 0], [0, 12]]
    with pytest.raises(ValueError, match="values is in host memory"):
        comm.all_reduce(np.zeros(12, np.float32))
    with narrowcast.Stream() as host_stream, pytest.raises(TypeError, match="host backend"):
        comm.all_reduce(values, out, stream=host_stream)

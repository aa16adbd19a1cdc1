"""Rank processes of benchmarks with fakes of the CUDA driver and NCCL. Narrowcast uses its host backend."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import narrowcast
import numpy as np
from narrowcast import comm
from narrowcast._bench import cuda_ranks, harness, plan_gpu_ranks, tune_ranks
from narrowcast._bench.contenders import Run
from narrowcast._native import cuda_driver
from narrowcast._native.codecs import forced
from narrowcast.types import value_type

_LAUNCHES_WAIT = "FAKE_LAUNCHES_WAIT" in os.environ
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class GpuCommunicator:
    """Behaves as a communicator of GPUs: enqueues calls on a stream, takes arrays with __cuda_array_interface__."""

    def __init__(self, host: narrowcast.Communicator, one_way: bool) -> None:
        self._host, self._one_way = host, one_way
        self.rank, self.ranks = host.rank, host.ranks
        self._path = os.environ.get("NARROWCAST_PATH", "")
        self._kept: list[Any] = []
        self._sent: tuple[Any, ...] | None = None

    def __enter__(self) -> GpuCommunicator:
        return self

    def __exit__(self, *_: object) -> None:
        self._host.close()

    def explain(self, operation: str, count: int, *, dtype: str) -> narrowcast.Explanation:
        """The explanation, as if all ranks had this environment."""
        own = os.environ.get("NARROWCAST_PATH", "")
        os.environ["NARROWCAST_PATH"] = self._path
        try:
            return narrowcast.explain(operation, count, dtype=dtype, ranks=self.ranks)
        finally:
            os.environ["NARROWCAST_PATH"] = own

    def load_plan(self, plan: str, dtype: str, op: str = "sum") -> _LoadedPlan:
        return _LoadedPlan(self, self._host.load_plan(plan, dtype, op=op), dtype)

    def register(self, buffer: Any) -> None:
        assert buffer.count_bytes

    def counters(self) -> Any:
        return self._host.counters()

    def send(self, values: Any, peer: int, *, codec: str, stream: int, dtype: str) -> None:
        array = _array(values, dtype)

        def run() -> None:
            if self._one_way:
                self._host.send(array, peer, codec=codec, dtype=dtype)
            else:
                self._sent = (array, peer)

        self._launch(run, stream)

    def recv(self, out: Any, peer: int, *, codec: str, stream: int, dtype: str) -> None:
        array = _array(out, dtype)

        def run() -> None:
            with narrowcast.group():
                if self._sent is not None:
                    self._host.send(*self._sent, codec=codec, dtype=dtype)
                    self._sent = None
                self._host.recv(array, peer, codec=codec, dtype=dtype)

        self._launch(run, stream)

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(values: Any, out: Any, *, stream: int, dtype: str, **options: Any) -> None:
            own, result = _array(values, dtype), _array(out, dtype)
            self._launch(lambda: getattr(self._host, name)(own, result, dtype=dtype, **options), stream)

        return call

    def _launch(self, work: Callable[[], None], stream: int) -> None:
        def run(_: object) -> int:
            work()
            return 0

        assert isinstance(stream, int)
        assert stream
        self._kept.append(_FUNCTION(run))
        assert not cuda_driver.driver().fake_launch(ctypes.c_void_p(stream), self._kept[-1], None)
        if _LAUNCHES_WAIT:
            cuda_driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))


class _LoadedPlan:
    """A plan whose calls are enqueued on a stream."""

    def __init__(self, communicator: GpuCommunicator, loaded: Any, dtype: str) -> None:
        self._communicator, self._loaded, self._dtype = communicator, loaded, dtype

    def __enter__(self) -> _LoadedPlan:
        return self

    def __exit__(self, *_: object) -> None:
        self._loaded.close()

    def use(self, **limits: int) -> _LoadedPlan:
        self._loaded.use(**limits)
        return self

    def run_on(self, values: int, out: int, count: int, stream: int) -> None:
        self._communicator._launch(lambda: self._loaded.run_on(values, out, count, None), stream)


def _array(buffer: Any, dtype: str) -> Any:
    interface = buffer.__cuda_array_interface__
    raw = (ctypes.c_uint8 * interface["shape"][0]).from_address(interface["data"][0])
    return np.ctypeslib.as_array(raw).view(value_type(dtype).numpy)


def _communicators(one_way: bool) -> Callable[..., Any]:
    """Creates communicators of fake GPUs, and of the host."""
    real = comm.Communicator

    def communicator(unique_id: bytes, rank: int, ranks: int, *, timeout_seconds: float, **options: Any) -> Any:
        host = real(unique_id, rank, ranks, timeout_seconds=timeout_seconds)
        if not options:
            return host
        assert options == {"backend": "cuda", "device": rank}
        return GpuCommunicator(host, one_way)

    return communicator


def _run_by_methods(communicator: GpuCommunicator, codec: str) -> Run:
    """Replaces calls of the library, which the host backend would not enqueue on the stream."""
    own = forced(codec)
    return lambda call, values, out, stream: call.run(communicator, values, out, codec=own, stream=stream.handle)


for _module in (cuda_ranks, harness, tune_ranks):
    _module.run_ours = _run_by_methods  # type: ignore[attr-defined]


def bench(**arguments: Any) -> None:
    if _LAUNCHES_WAIT:
        harness._LATE_SECONDS = 0.3
    cuda_ranks.Communicator = _communicators(arguments["pattern"] == "one-way")  # type: ignore[misc, assignment]
    cuda_ranks.bench(**arguments)


def tune(**arguments: Any) -> None:
    tune_ranks.Communicator = _communicators(False)  # type: ignore[misc, assignment]
    tune_ranks.tune(**arguments)


def run_plan(**arguments: Any) -> None:
    plan_gpu_ranks.Communicator = _communicators(False)  # type: ignore[misc, assignment]
    plan_gpu_ranks.run(**arguments)


def run_plan_wrongly(*, rank: int, **arguments: Any) -> None:
    """Rank 1 sends other values than it should."""
    sent = plan_gpu_ranks.Call.sent
    if rank == 1:
        plan_gpu_ranks.Call.sent = lambda call, sample, own: sent(call, sample, own + 1)  # type: ignore[method-assign]
    run_plan(rank=rank, **arguments)

"""Ranks that share one GPU, for plans.py."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_size_t, c_ubyte, c_uint64, c_void_p
from typing import Any

from plan_forms import text_of


class Ranks:
    """Ranks on one GPU, with a thread each."""

    def __init__(self, ranks: int, timeout_seconds: float = 10) -> None:
        import narrowcast
        from narrowcast._native.cuda_driver import DeviceBuffer, Stream, call

        self.count = ranks
        self.comms = narrowcast.LocalRanks(ranks, backend="cuda", devices=[0] * ranks, timeout_seconds=timeout_seconds)
        self.streams = [Stream() for _ in range(ranks)]
        scratch = DeviceBuffer(4096)
        for stream in self.streams:  # the first kernel of a stream may wait for all others
            call("cuMemsetD8Async", c_uint64(scratch.pointer), c_ubyte(0), c_size_t(4096), c_void_p(stream.handle))
            stream.synchronize()
        self.pool = ThreadPoolExecutor(ranks)

    def together(self, work: Callable[[int], Any]) -> list[Any]:
        from narrowcast._native.cuda_driver import on_device

        def on_gpu(rank: int) -> Any:
            with on_device(0):
                return work(rank)

        return list(self.pool.map(on_gpu, range(self.count)))

    def load(self, name: str, codec: str, dtype: str, op: str) -> list[Any]:
        text = text_of(name, self.count, codec)
        return self.together(lambda rank: self.comms[rank].load_plan(text, dtype, op=op))

    def close_plans(self, plans: list[Any]) -> None:
        self.together(lambda rank: plans[rank].close())

    def register(self, buffers: list[Any]) -> list[Any]:
        """Registrations, which the communicators close."""
        return self.together(lambda rank: self.comms[rank].register(buffers[rank]))

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()

    def close(self) -> None:
        self.pool.shutdown()
        self.comms.close()

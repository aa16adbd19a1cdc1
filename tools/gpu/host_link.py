"""Measures the links between GPUs and host memory with copy engines: they bound calls through host memory.

    host_link.py --json host_link.json

Copies from a GPU, to it, and in both directions, for one GPU and for all concurrently, in pinned memory. GB/s are per
direction, of the slowest GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from narrowcast import cuda
from narrowcast._native import cuda_driver
from narrowcast._native.cuda_driver import DeviceBuffer, Stream
from provenance import provenance

BYTES = 256 << 20
COPIES = 8
PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE


class Link:
    """The link of one GPU: buffers on both sides and a stream for each direction."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.hosts = [c_void_p() for _ in range(2)]
        with cuda_driver.on_device(ordinal):
            self.buffers = [DeviceBuffer(BYTES).fill(1) for _ in range(2)]
            self.streams = [Stream() for _ in range(2)]
            for host in self.hosts:
                cuda_driver.call("cuMemHostAlloc", byref(host), c_size_t(BYTES), PORTABLE)

    def copy(self, out: bool, into: bool) -> None:
        pointers = [c_uint64(buffer.pointer) for buffer in self.buffers]
        streams = [c_void_p(stream.handle) for stream in self.streams]
        with cuda_driver.on_device(self.ordinal):
            if out:
                cuda_driver.call("cuMemcpyDtoHAsync_v2", self.hosts[0], pointers[0], c_size_t(BYTES), streams[0])
            if into:
                cuda_driver.call("cuMemcpyHtoDAsync_v2", pointers[1], self.hosts[1], c_size_t(BYTES), streams[1])

    def synchronize(self) -> None:
        with cuda_driver.on_device(self.ordinal):
            for stream in self.streams:
                stream.synchronize()

    def close(self) -> None:
        for host in self.hosts:
            cuda_driver.call("cuMemFreeHost", host)


def gigabytes_per_second(links: list[Link], out: bool, into: bool) -> float:
    begin = 0.0
    for copies in (1, COPIES):  # the first is not timed
        begin = time.perf_counter()
        for _ in range(copies):
            for link in links:
                link.copy(out, into)
        for link in links:
            link.synchronize()
    return BYTES * COPIES / (time.perf_counter() - begin) / 1e9


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    if not cuda.device_count():
        raise SystemExit("this machine has no GPU")
    links = [Link(ordinal) for ordinal in range(cuda.device_count())]
    rows: list[dict[str, Any]] = []
    for gpus in sorted({1, len(links)}):
        for name, out, into in (("out", True, False), ("in", False, True), ("both", True, True)):
            speed = gigabytes_per_second(links[:gpus], out, into)
            rows.append({"gpus": gpus, "direction": name, "gb_per_s_each_way": speed})
            print(f"{gpus} GPUs at once, {name:5} {speed:6.1f} GB/s each way", flush=True)
    for link in links:
        link.close()
    report = {
        **provenance(),
        "bytes": BYTES,
        "rows": rows,
    }
    if chosen.json:
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

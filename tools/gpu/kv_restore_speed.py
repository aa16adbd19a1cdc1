#!/usr/bin/env python3
"""GB/s of restoring a KV cache from host memory: encoded blocks, and batched copies of raw pages.

    tools/gpu/kv_restore_speed.py -o bench/results/h200/kv_restore.json

A block has 16 tokens and a page for each of 32 layers. Blocks are restored to random blocks of the cache, and
must have the bits that they had. The baseline copies every page from page-locked memory, all in one call of
cuMemcpyBatchAsync. The values are the packaged sample of a KV cache, repeated.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from narrowcast._bench.samples import sample
from narrowcast._native import cuda_driver
from narrowcast._torch.host_memory import HostMemory
from narrowcast._torch.kv_blocks import Blocks, EncodedBlocks, Pages
from provenance import provenance

LAYERS, BLOCK_TOKENS = 32, 16


class _Attributes(ctypes.Structure):
    """CUmemcpyAttributes."""

    _fields_ = [
        ("source_order", ctypes.c_int),
        ("source_hint", ctypes.c_int * 2),
        ("target_hint", ctypes.c_int * 2),
        ("flags", ctypes.c_uint),
    ]


def batched_copies(targets: Any, sources: Any, count_bytes: int, stream: int) -> Callable[[], None]:
    """A function that copies pages of one size. targets, sources: arrays of addresses."""
    count = len(targets)
    sizes = np.full(count, count_bytes, np.uint64)
    targets, sources = (np.ascontiguousarray(one, np.uint64) for one in (targets, sources))
    attributes = _Attributes(source_order=1)  # in the order of the stream
    first, failed = ctypes.c_size_t(0), ctypes.c_size_t()

    def run() -> None:
        cuda_driver.call(
            "cuMemcpyBatchAsync",
            ctypes.c_void_p(targets.ctypes.data),
            ctypes.c_void_p(sources.ctypes.data),
            ctypes.c_void_p(sizes.ctypes.data),
            ctypes.c_size_t(count),
            ctypes.byref(attributes),
            ctypes.byref(first),
            ctypes.c_size_t(1),
            ctypes.byref(failed),
            ctypes.c_void_p(stream),
        )

    return run


def seconds(run: Callable[[], None], iterations: int) -> float:
    """The median time of a call that is complete when it returns, after a first one."""
    times = []
    for _ in range(iterations + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))


def measure(tokens: int, page_bytes: int, iterations: int) -> dict[str, Any]:
    """Both ways, for one size."""
    blocks = tokens // BLOCK_TOKENS
    layer_bytes = blocks * page_bytes
    source = torch.from_numpy(sample("kv", "bfloat16").view(np.uint8).copy()).cuda()
    layers = []
    for number in range(LAYERS):
        repeated = source.roll(2 * 4099 * number).repeat(math.ceil(layer_bytes / source.numel()))
        layers.append(repeated[:layer_bytes].view(torch.int8).view(blocks, page_bytes).clone())
    expected = [one.clone() for one in layers]
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(0))
    back = order.cuda()

    def exact() -> bool:
        same = all(torch.equal(one[back], before) for one, before in zip(layers, expected, strict=True))
        for one in layers:
            one.zero_()
        torch.cuda.synchronize()
        return same

    result: dict[str, Any] = {"tokens": tokens, "page_bytes": page_bytes, "raw_bytes": LAYERS * layer_bytes}

    encoded = EncodedBlocks(
        [[Pages(one, page_bytes) for one in layers]],
        dtype="bfloat16",
        capacity_bytes=int(0.75 * LAYERS * layer_bytes) + (1 << 20),
    )

    numbers = np.arange(blocks)

    def store() -> None:
        encoded.store(0, [Blocks(0, numbers, numbers)])
        encoded.wait({0})
        assert all(one.success for one in encoded.finished())

    result["store_gb_per_s"] = round(LAYERS * layer_bytes / seconds(store, iterations) / 1e9, 2)
    result["ratio"] = round(encoded.ratio or 1, 4)
    for one in layers:
        one.zero_()
    places = order.numpy()

    def restore() -> None:
        encoded.load(1, [Blocks(0, places, numbers)])
        encoded.wait({1})
        assert all(one.success for one in encoded.finished())

    result["narrowcast_gb_per_s"] = round(LAYERS * layer_bytes / seconds(restore, iterations) / 1e9, 2)
    result["narrowcast_exact"] = exact()
    encoded.close()

    # Raw: the pages of a block are adjacent in host memory, as the encoded ones are.
    memory = HostMemory(LAYERS * layer_bytes, pinned=True)
    rows = memory.tensor.view(torch.int8).view(blocks, LAYERS, page_bytes)
    for number, one in enumerate(expected):
        rows[:, number].copy_(one)
    stream = torch.cuda.Stream()
    targets = np.stack([one.data_ptr() + order.numpy() * page_bytes for one in layers], 1).reshape(-1)
    sources = memory.tensor.data_ptr() + np.arange(blocks * LAYERS, dtype=np.int64) * page_bytes
    copies = batched_copies(targets, sources, page_bytes, stream.cuda_stream)

    def copy() -> None:
        copies()
        stream.synchronize()

    result["batched_copies_gb_per_s"] = round(LAYERS * layer_bytes / seconds(copy, iterations) / 1e9, 2)
    result["batched_copies_exact"] = exact()
    return result


def main() -> None:
    def numbers(text: str) -> list[int]:
        return [int(one) for one in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--tokens", type=numbers, default=[8192, 32768, 131072])
    parser.add_argument("--page-bytes", type=numbers, default=[16 << 10, 32 << 10, 64 << 10])
    parser.add_argument("-n", "--iterations", type=int, default=5)
    given = parser.parse_args()
    rows = []
    for page_bytes in given.page_bytes:
        for tokens in given.tokens:
            rows.append(measure(tokens, page_bytes, given.iterations))
            print(json.dumps(rows[-1]), flush=True)
            torch.cuda.empty_cache()
    result = {
        **provenance(),
        "layers": LAYERS,
        "units": "10^9 raw bytes per second",
        "rows": rows,
    }
    if given.output:
        given.output.write_text(json.dumps(result, indent=1) + "\n")
    if not all(row["narrowcast_exact"] and row["batched_copies_exact"] for row in rows):
        raise SystemExit("bits differ")


if __name__ == "__main__":
    main()

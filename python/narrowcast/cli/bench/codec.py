"""The measurements of `bench codec`."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import codec as _codec
from ..._bench.samples import tiled
from ..._files.display import printable
from ..._native.library import library_version
from ...errors import UnsupportedError
from ...types import ValueType

Tensors = dict[str, tuple[ValueType, npt.NDArray[np.uint8]]]
# The reference implementation is slow: this much is enough to time it.
_REFERENCE_BYTES = 4 << 20


def on_host(tensors: Tensors, codec: str, tile_bytes: int, iterations: int, *, quiet: bool) -> dict[str, Any]:
    """Measures the fast and the reference implementation on one core, and compares their frames."""
    columns = ("tensor", "type", "ratio", "encode", "decode", "ref encode", "ref decode", "exact")
    line = "{:24} {:12} {:>7} {:>8} {:>8} {:>10} {:>10} {:>6}"
    device = processor()
    if not quiet:
        print(f"# codec {codec} on one core of {device}, {tile_bytes} bytes per tensor; GB/s of raw bytes, medians")
        print(line.format(*columns), flush=True)
    rows = []
    for name, (kind, raw) in tensors.items():
        row = _host_row(name, kind, raw, codec, tile_bytes, iterations)
        rows.append(row)
        if not quiet:
            speeds = [row[f"{key}_gb_per_s"] for key in ("encode", "decode", "reference_encode", "reference_decode")]
            cells = [printable(name), kind.name, f"{row['ratio']:.4f}", *(f"{s:.3f}" for s in speeds)]
            print(line.format(*cells, "yes" if row["exact"] else "NO"), flush=True)
    return {"device": device, "version": library_version(), "iterations": iterations, "rows": rows}


def _host_row(
    name: str, kind: ValueType, raw: npt.NDArray[np.uint8], codec: str, tile_bytes: int, iterations: int
) -> dict[str, Any]:
    values = tiled(raw, tile_bytes - tile_bytes % kind.bytes)
    short = values[: _REFERENCE_BYTES - _REFERENCE_BYTES % kind.bytes]
    result: dict[str, Any] = {"tensor": name, "dtype": kind.name, "codec": codec, "raw_bytes": values.size}
    frames = {}
    exact = True
    for reference, own in ((False, values), (True, short)):
        path = "reference_" if reference else ""
        coder = _Coder(own, kind, codec, reference)
        encode_seconds, decode_seconds = _median(coder.encode, iterations), _median(coder.decode, iterations)
        exact = exact and np.array_equal(coder.back, own)
        result[f"{path}encode_gb_per_s"] = own.size / encode_seconds / 1e9
        result[f"{path}decode_gb_per_s"] = own.size / decode_seconds / 1e9
        if not reference:
            result["wire_bytes"] = coder.frame.size
            result["ratio"] = coder.frame.size / own.size
        frames[reference] = _codec.encode(short, codec=codec, dtype=kind.name, reference=reference)
    result["exact"] = bool(exact and np.array_equal(frames[False], frames[True]))
    return result


class _Coder:
    """The buffers for timing one implementation, allocated in advance."""

    def __init__(self, values: npt.NDArray[np.uint8], kind: ValueType, codec: str, reference: bool) -> None:
        self._values, self._kind, self._codec, self._reference = values, kind, codec, reference
        self._buffer = np.empty(_codec.bound(kind.name, values.size // kind.bytes, codec=codec), np.uint8)
        self.frame = self._buffer
        self.back = np.full(values.size, 0xA5, np.uint8)

    def encode(self) -> None:
        self.frame = _codec.encode(
            self._values,
            codec=self._codec,
            dtype=self._kind.name,
            checksum=False,
            reference=self._reference,
            out=self._buffer,
        )

    def decode(self) -> None:
        _codec.decode(self.frame, out=self.back, reference=self._reference)


def _median(run: Callable[[], None], iterations: int) -> float:
    """The median time in seconds, after one warm-up run."""
    run()
    seconds = []
    for _ in range(iterations):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def on_cuda(
    tensors: Tensors, codec: str, tile_bytes: int, ctas: int, iterations: int, *, quiet: bool
) -> dict[str, Any]:
    """Measures frames and slots in GPU memory."""
    from ..._bench.codec_speed import measure
    from ..._native import cuda_driver
    from ...cuda import device_count

    if not device_count():
        raise UnsupportedError("--device cuda needs a CUDA GPU, but none was found")
    device = cuda_driver.device_name()
    line = "{:24} {:12} {:6} {:>7} {:>8} {:>8} {:>6}"
    if not quiet:
        limit = f"{ctas} CTAs" if ctas else "all CTAs"
        print(f"# codec {codec} on {device}, {limit}, {tile_bytes} bytes per tensor; GB/s of raw bytes, medians")
        print(line.format("tensor", "type", "layout", "ratio", "encode", "decode", "exact"), flush=True)
    rows = []
    for name, (kind, raw) in tensors.items():
        for slots in (False, True):
            speed = measure(raw, kind, tile_bytes, codec=codec, max_ctas=ctas, slots=slots, iterations=iterations)
            rows.append(
                {
                    "tensor": name,
                    "dtype": kind.name,
                    "codec": codec,
                    "layout": speed.layout,
                    "raw_bytes": speed.raw_bytes,
                    "wire_bytes": speed.wire_bytes,
                    "ratio": speed.ratio,
                    "encode_gb_per_s": speed.encode_gb_per_s,
                    "decode_gb_per_s": speed.decode_gb_per_s,
                    "exact": speed.exact,
                }
            )
            if not quiet:
                cells = (f"{speed.ratio:.4f}", f"{speed.encode_gb_per_s:.0f}", f"{speed.decode_gb_per_s:.0f}")
                print(
                    line.format(printable(name), kind.name, speed.layout, *cells, "yes" if speed.exact else "NO"),
                    flush=True,
                )
    return {"device": device, "version": library_version(), "ctas": ctas, "iterations": iterations, "rows": rows}


def processor() -> str:
    """The name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()

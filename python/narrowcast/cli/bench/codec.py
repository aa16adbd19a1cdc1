"""The measurements of `bench codec`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ... import codec as _codec
from ..._bench.host_times import median_seconds
from ..._bench.samples import tiled
from ..._bench.tolerance import is_exact, is_restored
from ..._files.display import bytes_text, printable
from ..._native.frames import FRAME_HEADER_BYTES
from ..._native.library import library_version
from ...cuda import slot_count
from ...errors import UnsupportedError
from ...types import ValueType
from .._provenance import processor

Tensors = dict[str, tuple[ValueType, npt.NDArray[np.uint8]]]
_ALIGNMENT = 16
# The reference implementation is slow: this much is enough to time it.
_REFERENCE_BYTES = 4 << 20


def on_host(tensors: Tensors, codec: str, tile_bytes: int, iterations: int, *, quiet: bool) -> dict[str, Any]:
    """Measures the fast and the reference implementation on one core, and compares their frames."""
    line = _Line("{:>7} {:>7} {:>7} {:>7}", "encode", "decode", "ref enc", "ref dec")
    device = processor()
    if not quiet:
        print(f"# codec {codec} on one core of {device}")
        line.print_heading(tile_bytes)
    rows = []
    for name, (kind, raw) in tensors.items():
        row = _host_row(name, kind, raw, codec, tile_bytes, iterations)
        rows.append(row)
        if not quiet:
            speeds = [row[f"{key}_gb_per_s"] for key in ("encode", "decode", "reference_encode", "reference_decode")]
            line.print_row(row, *(f"{speed:.3f}" for speed in speeds))
    return {"device": device, "version": library_version(), "iterations": iterations, "rows": rows}


def _host_row(
    name: str, kind: ValueType, raw: npt.NDArray[np.uint8], codec: str, tile_bytes: int, iterations: int
) -> dict[str, Any]:
    values = tiled(raw, tile_bytes - tile_bytes % kind.bytes)
    short = values[: _REFERENCE_BYTES - _REFERENCE_BYTES % kind.bytes]
    frame = _codec.encode(raw, codec=codec, dtype=kind.name)
    result: dict[str, Any] = {
        "tensor": name,
        "dtype": kind.name,
        "codec": codec,
        "raw_bytes": raw.size,
        "wire_bytes": frame.size,
        "ratio": frame.size / raw.size,
        "tile_bytes": values.size,
    }
    frames = {}
    correct = True
    for reference, own in ((False, values), (True, short)):
        path = "reference_" if reference else ""
        coder = _Coder(own, kind, codec, reference)
        encode_seconds = median_seconds(coder.encode, iterations)
        decode_seconds = median_seconds(coder.decode, iterations)
        correct = correct and is_restored(coder.back, own, kind, codec)
        result[f"{path}encode_gb_per_s"] = own.size / encode_seconds / 1e9
        result[f"{path}decode_gb_per_s"] = own.size / decode_seconds / 1e9
        frames[reference] = _codec.encode(short, codec=codec, dtype=kind.name, reference=reference)
    correct = correct and np.array_equal(frames[False], frames[True])
    return {**result, **_verdict(correct, codec, kind)}


def _verdict(correct: bool, codec: str, kind: ValueType) -> dict[str, bool]:
    return {"correct": correct, "exact": correct and is_exact(codec, kind)}


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


def on_cuda(
    tensors: Tensors, codec: str, tile_bytes: int, array_bytes: int, ctas: int, iterations: int, *, quiet: bool
) -> dict[str, Any]:
    """Measures frames and slots in GPU memory, or if array_bytes is not 0, batches and single calls."""
    from ..._bench.codec_speed import measure
    from ..._native import cuda_driver
    from ...cuda import device_count

    if not device_count():
        raise UnsupportedError("--device cuda needs a CUDA GPU, but none was found")
    device = cuda_driver.device_name()
    line = _Line("{:6} {:>9} {:>9}", "layout", "encode", "decode")
    if not quiet:
        print(f"# codec {codec} on {device}, {f'{ctas} CTAs' if ctas else 'all CTAs'}")
        line.print_heading(tile_bytes)
    rows = []
    for name, (kind, raw) in tensors.items():
        for layout in ("batch", "calls") if array_bytes else ("frame", "slots"):
            speed = measure(
                raw,
                kind,
                tile_bytes,
                codec=codec,
                max_ctas=ctas,
                layout=layout,
                array_bytes=array_bytes,
                iterations=iterations,
            )
            raw_bytes, wire_bytes = raw.size, speed.wire_bytes
            if layout == "slots":
                wire_bytes = _slots_bytes(raw, kind, codec)
            elif layout == "frame":
                wire_bytes = _codec.encode(raw, codec=codec, dtype=kind).size
            else:
                raw_bytes = speed.raw_bytes
            row = {
                "tensor": name,
                "dtype": kind.name,
                "codec": codec,
                "layout": speed.layout,
                "raw_bytes": raw_bytes,
                "wire_bytes": wire_bytes,
                "ratio": wire_bytes / raw_bytes,
                "tile_bytes": speed.raw_bytes,
                **({"array_bytes": array_bytes} if array_bytes else {}),
                "encode_gb_per_s": speed.encode_gb_per_s,
                "decode_gb_per_s": speed.decode_gb_per_s,
                **_verdict(speed.correct, codec, kind),
            }
            rows.append(row)
            if not quiet:
                line.print_row(
                    row, speed.layout, _speed_text(speed.encode_gb_per_s), _speed_text(speed.decode_gb_per_s)
                )
    return {"device": device, "version": library_version(), "ctas": ctas, "iterations": iterations, "rows": rows}


def _speed_text(gb_per_s: float) -> str:
    """At least two significant digits: calls for small arrays are slow."""
    return f"{gb_per_s:.0f}" if gb_per_s >= 10 else f"{gb_per_s:.2f}"


def _slots_bytes(raw: npt.NDArray[np.uint8], kind: ValueType, codec: str) -> int:
    """The bytes of the payloads of a tensor and of their lengths."""
    frame = _codec.encode(raw, codec=codec, dtype=kind)
    info = _codec.inspect(frame)
    ends = -(-4 * info.blocks // _ALIGNMENT) * _ALIGNMENT
    lengths = 4 * slot_count(kind.name, info.elems, codec=codec)
    return frame.size - FRAME_HEADER_BYTES - ends + lengths


class _Line:
    """The lines of a table that is printed while it is measured."""

    _START, _END = "{:20} {:11} {:>7} ", " {:>5}"
    _NAME_WIDTH = 20

    def __init__(self, cells: str, *titles: str) -> None:
        self._format = self._START + cells + self._END
        self._titles = titles

    def print_heading(self, tile_bytes: int) -> None:
        print("# ratio: of a frame of the tensor; speeds: GB/s of raw bytes, medians,")
        print(f"# of tensors repeated to {bytes_text(tile_bytes)}")
        print(self._format.format("tensor", "type", "ratio", *self._titles, "exact"), flush=True)

    def print_row(self, row: dict[str, Any], *cells: str) -> None:
        name = printable(row["tensor"])
        if len(name) > self._NAME_WIDTH:
            print(name)
            name = ""
        exact = "yes" if row["exact"] else "bound" if row["correct"] else "NO"
        print(self._format.format(name, row["dtype"], f"{row['ratio']:.4f}", *cells, exact), flush=True)

"""Builds tables."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._files.atomic import new_file
from .._native.store_structures import STORE_HOSTS
from ..types import DType
from .gpu import build_device
from .handle import Builder, Handle, choice, memory_file
from .reports import BuildReport
from .sources import source_of
from .store import Store


def build(
    source: Any,
    codec: str = "auto",
    layout: str = "auto",
    path: str | os.PathLike[str] | None = None,
    *,
    dtype: DType | None = None,
    tensor: str | None = None,
    capacity: int | None = None,
    spare: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    threads: int = 0,
    device: int | str | None = None,
    progress: Callable[[int], None] | None = None,
    host: str | None = "pinned",
    report: Callable[[BuildReport], None] | None = None,
) -> Store | None:
    """Encodes the rows of a tensor, and opens the result.

    source: an array, whose rows are those of its first dimension, in host memory (NumPy, ml_dtypes, torch, DLPack, a
        memory-mapped file) or in GPU memory (torch, CuPy, DLPack, `__cuda_array_interface__`); the path of a
        safetensors file, encoded or not, or of an npy file; or an iterable of blocks of rows in host memory. Only a
        part of it is in memory at a time, so it may be larger than memory.
    codec: a row codec: "raw", or one of "plain", "window" (floating-point values) and "invariant" (bits that most rows
        share), before which "zeros+", "trim+" or "zeros+trim+" can leave out zeros and constant bits; or "auto", which
        compares them. They are fitted to a sample: at most 10% of the rows, or 512 if these are more, and 32 MiB, from
        all parts of the table; of an iterable of blocks, from its first 32 MiB. With layout "blocks", a codec of
        `narrowcast.codecs()`.
    layout: "stride" (slots of one size; rows can be replaced), "packed" (smaller if sizes vary), "blocks" (for slices;
        read-only), or "auto".
    path: the table file, which is replaced only after everything has been written; None: in memory.
    dtype: the value type of an array without one, as for bytes and uint16 bits.
    tensor: the name of the tensor in a safetensors file with several.
    capacity: rows for which an open store reserves space, for `append`.
    spare: free overflow entries of an open store, for `update`; None: chosen by the library.
    metadata: any JSON object, stored in the file.
    threads: that encode and write at the same time; 0: as many as CPUs that this process may use.
    device: what encodes the rows: "cpu", or the ordinal of a GPU, "cuda" or "cuda:1"; None: the GPU that has the rows,
        or the CPU. The file has the same bytes. On a GPU, rows in page-locked host memory (torch's pin_memory) are
        fastest. The codec is fitted on the CPU, which also encodes rows of layout "blocks".
    progress: called with the number of raw bytes that were encoded since the last call.
    host: as for `open`; None: do not open the file.
    report: called with the sizes, and with how the codec and the layout were chosen.

    Returns the open store; None if host is None. Raises TypeError and ValueError for invalid arguments,
    UnsupportedError, CudaError if the GPU cannot be used, and OSError.
    """
    if host is not None:
        choice(host, STORE_HOSTS, "host")
    if path is None and host not in ("pinned", None):
        raise ValueError(f"host is {host!r}, but without a path the store is only in the memory of this process")

    def write(file: int) -> BuildReport:
        return _write(file, source, codec, layout, dtype, tensor, capacity, spare, metadata, threads, device, progress)

    with contextlib.ExitStack() as files:
        if path is None:
            descriptor, place = files.enter_context(memory_file())
            name, written = "<memory>", write(descriptor)
        else:
            place = name = os.fspath(path)
            with new_file(Path(path)) as file:
                written = write(file.fileno())
        if report is not None:
            report(written)
        if host is None:
            return None
        if host == "mmap" or written.layout == "blocks":
            capacity = spare = None  # such stores are read-only
        return Store(Handle(place, host=host, capacity=capacity, spare=spare, threads=threads), name)


def _json_of(metadata: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(metadata), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise type(error)(f"metadata is not a JSON object: {error}") from None


def _write(
    file: int,
    source: Any,
    codec: str,
    layout: str,
    dtype: DType | None,
    tensor: str | None,
    capacity: int | None,
    spare: int | None,
    metadata: Mapping[str, Any] | None,
    threads: int,
    device: int | str | None,
    progress: Callable[[int], None] | None,
) -> BuildReport:
    rows = source_of(source, dtype, tensor)
    builder = Builder(
        file,
        rows.kind,
        rows.row_shape,
        codec=codec,
        layout=layout,
        rows=rows.rows,
        capacity=capacity,
        spare=spare,
        metadata="" if metadata is None else _json_of(metadata),
        threads=threads,
        device=build_device(device, rows.device),
    )
    with contextlib.closing(builder):
        if rows.sample.number:
            builder.sample(rows.sample)
        for block in rows.blocks:
            builder.add(block)
            if progress is not None:
                progress(block.stride * block.number)
        return BuildReport(**builder.finish())

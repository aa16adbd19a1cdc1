"""Readers of a store on GPUs (include/narrowcast/store_cuda.h)."""

from __future__ import annotations

import sys
import threading
import weakref
from ctypes import byref, c_int, c_void_p, sizeof
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._arrays import dlpack
from .._arrays.streams import stream_handle
from .._arrays.view import UNKNOWN_DEVICE, View, view
from .._native import cuda_driver
from .._native.library import check, library
from .._native.numbers import as_unsigned
from .._native.store_structures import (
    STORE_HOST_INDICES,
    STORE_INDEX_ORDER,
    StoreCacheInfoC,
    StoreCacheOptionsC,
    StoreReaderCountersC,
    StoreReaderOptionsC,
    StoreReadOptionsC,
)
from ..errors import UnsupportedError
from ..types import ValueType
from .handle import Handle
from .rows import Rows

DEFAULT_SMS = 4
# Readers that calls create on their own. Gathers of more rows run in pieces.
_LEAST_ROWS, _MOST_ROWS = 1 << 16, 1 << 20
_TORCH_TYPES = {"float8_e4m3": "float8_e4m3fn"}


def is_on_gpu(array: Any) -> bool:
    """Whether an array is in GPU memory."""
    if array is None or isinstance(array, (np.ndarray, list, tuple, int)):
        return False
    if hasattr(array, "data_ptr"):
        return bool(array.device.type == "cuda")
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[0]) in (dlpack.CUDA, dlpack.CUDA_MANAGED)
    return hasattr(array, "__cuda_array_interface__")


def stream_of(stream: Any, array: Any) -> Any:
    """The stream of a call: the given one; None: the current stream of the framework of `array`, if it has one."""
    if stream is not None:
        return stream
    if hasattr(array, "data_ptr") and "torch" in sys.modules:
        return sys.modules["torch"].cuda.current_stream(array.device)
    if _framework(array) == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream()
    return None


def current_stream(device: int) -> Any:
    """The current stream of torch, if it is imported and uses GPUs; otherwise None, the default stream."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.current_stream(device)
    return None


def wait_for(device: int) -> None:
    """Waits for everything that a GPU has been given to do."""
    with cuda_driver.on_device(device):
        cuda_driver.call("cuCtxSynchronize")


def rows_to_host(rows: Rows, device: int) -> npt.NDArray[np.uint8]:
    """Copies rows in GPU memory, which are end to end, to a new array."""
    with cuda_driver.on_device(device):
        copied = cuda_driver.copy_to_host(rows.pointer, rows.stride * rows.number) if rows.number else b""
    return np.frombuffer(copied, np.uint8).reshape(rows.number, rows.stride)


def build_device(device: int | str | None, source_device: int | None) -> int | None:
    """The ordinal of the GPU that encodes; None: the CPU.

    device: an ordinal, "cuda", "cuda:1" or "cpu"; None: the GPU that has the rows, or the CPU.
    """
    chosen: int | None
    if device is None:
        chosen = source_device
    elif isinstance(device, str):
        kind, separator, number = device.partition(":")
        known = number.isdecimal() and kind == "cuda" if separator else kind in ("cpu", "cuda")
        if not known:
            raise ValueError(f"device is {device!r} (known: cpu, cuda, cuda:1, ...)")
        chosen = None if kind == "cpu" else int(number) if number else source_device or 0
    else:
        chosen = as_unsigned(device, "device", 31)
    if source_device is not None and chosen != source_device:
        raise ValueError(f"device is {device!r}, but source is on cuda:{source_device}")
    return chosen


def _framework(array: Any) -> str:
    return type(array).__module__.split(".")[0]


def gpu_view(array: Any, name: str, stream: Any, **options: Any) -> View:
    """The memory of an array on a GPU, with the number of the device."""
    found = view(array.detach() if hasattr(array, "detach") else array, name, stream=stream, **options)
    if found.device != "cuda":
        raise ValueError(f"{name} is in host memory, but other arrays of the call are in GPU memory")
    if found.device_id == UNKNOWN_DEVICE:
        found = found._replace(device_id=cuda_driver.pointer_device(found.pointer) if found.pointer else 0)
    return found


def gpu_indices(indices: Any, stream: Any) -> View:
    """Indices in GPU memory. Raises TypeError if they are neither int32 nor int64."""
    found = gpu_view(indices, "indices", stream, moved=True)
    if found.dtype.name not in ("int32", "int64"):
        raise TypeError(f"indices are {found.dtype.name}; in GPU memory they must be int32 or int64")
    return found


def empty_like(indices: Any, kind: ValueType, shape: tuple[int, ...]) -> Any:
    """An array of a value type on the GPU of `indices`, from the framework of `indices`."""
    if hasattr(indices, "data_ptr") and "torch" in sys.modules:
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, _TORCH_TYPES.get(kind.name, kind.name)), device=indices.device)
    if _framework(indices) == "cupy":
        return sys.modules["cupy"].empty(shape, np.dtype(kind.numpy))
    raise ValueError(f"out is needed for indices of {_framework(indices)} in GPU memory")


class _Reader:
    """An ncast_store_reader. It keeps the store open, and the object of its stream alive."""

    def __init__(self, handle: Handle, device: int, stream: Any, max_rows: int, sms: int) -> None:
        self.device, self.stream, self.max_rows, self.sms = device, stream, max_rows, sms
        self._handle = handle
        self.has_cache = False
        self.pointer = c_void_p()
        options = StoreReaderOptionsC(struct_bytes=sizeof(StoreReaderOptionsC), max_rows=max_rows, sms=sms)
        with cuda_driver.on_device(device):
            check(library().ncast_store_reader_create(handle.pointer, byref(options), byref(self.pointer)))
        self.close = weakref.finalize(self, _destroy, self.pointer, device)


def _destroy(pointer: c_void_p, device: int) -> None:
    with cuda_driver.on_device(device):
        library().ncast_store_reader_destroy(pointer)


class Call(NamedTuple):
    """What GPU calls have in common."""

    device: int
    stream: Any
    sms: int | None  #: None: those of the reader


class GpuReaders:
    """The readers of a store: one for each GPU and stream, created when needed."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._lock = threading.Lock()
        self._readers: dict[tuple[int, int], _Reader] = {}
        # Captured graphs may still use readers that were replaced.
        self._replaced: list[_Reader] = []

    def prepare(self, device: int, stream: Any, max_rows: int, sms: int) -> None:
        """Creates the reader of a stream, or replaces it if it is for fewer rows."""
        self._reader(Call(device, stream, None), max_rows, sms)

    def _reader(self, call: Call, max_rows: int, sms: int | None = None) -> _Reader:
        key = (call.device, stream_handle(call.stream))
        with self._lock:
            found = self._readers.get(key)
            if found is None or found.max_rows < max_rows:
                self._reject_capture(*key)
                if found is not None and found.has_cache:
                    raise ValueError(f"the stream is prepared for {found.max_rows} rows: call prepare() before cache()")
                limit = (found.sms if found else DEFAULT_SMS) if sms is None else sms
                made = _Reader(self._handle, call.device, call.stream, max_rows, limit)
                if found is not None:
                    self._replaced.append(found)
                found = self._readers[key] = made
            if sms is not None:
                found.sms = sms
            return found

    def _reject_capture(self, device: int, stream: int) -> None:
        captures = c_int()
        with cuda_driver.on_device(device):
            cuda_driver.call("cuStreamIsCapturing", c_void_p(stream), byref(captures))
        if captures.value:
            raise UnsupportedError("a reader cannot be created while its stream is captured: call prepare() before")

    def _found(self, call: Call, rows: int) -> _Reader:
        with self._lock:
            found = self._readers.get((call.device, stream_handle(call.stream)))
        return found or self._reader(call, min(max(rows, _LEAST_ROWS), _MOST_ROWS))

    def _options(self, reader: _Reader, call: Call, flags: int = 0) -> StoreReadOptionsC:
        sms = reader.sms if call.sms is None else as_unsigned(call.sms, "sms", 32)
        return StoreReadOptionsC(struct_bytes=sizeof(StoreReadOptionsC), sms=sms, flags=flags)

    def gather(self, call: Call, indices: View | npt.NDArray[Any], out: Rows, in_order: bool) -> None:
        """Enqueues a gather. Indices are in GPU memory, or an array of NumPy."""
        reader = self._found(call, out.number)
        on_host = not isinstance(indices, View)
        pointer = indices.ctypes.data if isinstance(indices, np.ndarray) else indices.pointer
        index_bytes = indices.itemsize if isinstance(indices, np.ndarray) else indices.dtype.bytes
        flags = (STORE_HOST_INDICES if on_host else 0) | (STORE_INDEX_ORDER if in_order else 0)
        options = self._options(reader, call, flags)
        with cuda_driver.on_device(call.device):
            check(
                library().ncast_store_reader_gather(
                    reader.pointer,
                    pointer,
                    index_bytes,
                    out.number,
                    out.pointer,
                    out.stride,
                    byref(options),
                    stream_handle(call.stream),
                )
            )

    def fetch(self, call: Call, first: int, count: int, step: int, out: Rows) -> None:
        """Enqueues a fetch."""
        reader = self._found(call, 0)
        options = self._options(reader, call)
        with cuda_driver.on_device(call.device):
            check(
                library().ncast_store_reader_fetch(
                    reader.pointer,
                    first,
                    count,
                    step,
                    out.pointer,
                    out.stride,
                    byref(options),
                    stream_handle(call.stream),
                )
            )

    def set_cache(
        self, device: int, stream: Any, policy: int, size_bytes: int, rows: int, warm: npt.NDArray[Any] | None
    ) -> None:
        """Gives the reader of a stream a cache; without bytes and rows, none."""
        reader = self._found(Call(device, stream, None), 0)
        options = StoreCacheOptionsC(
            struct_bytes=sizeof(StoreCacheOptionsC),
            policy=policy,
            index_bytes=0 if warm is None else warm.itemsize,
            bytes=size_bytes,
            rows=rows,
            warm_rows=None if warm is None else warm.ctypes.data,
            warm_count=0 if warm is None else warm.size,
        )
        given = byref(options) if size_bytes or rows else None
        with cuda_driver.on_device(device):
            check(library().ncast_store_reader_set_cache(reader.pointer, given, stream_handle(stream)))
        reader.has_cache = given is not None

    def cache_info(self, device: int, stream: Any) -> dict[str, int]:
        """What ncast_store_reader_get_cache says about the reader of a stream."""
        reader = self._found(Call(device, stream, None), 0)
        info = StoreCacheInfoC(struct_bytes=sizeof(StoreCacheInfoC))
        with cuda_driver.on_device(device):
            check(library().ncast_store_reader_get_cache(reader.pointer, byref(info), stream_handle(stream)))
        return {name: getattr(info, name) for name, *_ in info._fields_[1:]}

    def _all(self) -> list[_Reader]:
        with self._lock:
            return [*self._readers.values(), *self._replaced]

    def counters(self) -> dict[str, int]:
        """Waits for the calls, and returns the sums of the counters of all readers."""
        sums = {name: 0 for name, *_ in StoreReaderCountersC._fields_[1:]}
        for reader in self._all():
            found = StoreReaderCountersC(struct_bytes=sizeof(StoreReaderCountersC))
            stream = stream_handle(reader.stream)
            with cuda_driver.on_device(reader.device):
                check(library().ncast_store_reader_get_counters(reader.pointer, byref(found), stream))
            for name in sums:
                sums[name] += getattr(found, name)
        return sums

    def check(self) -> None:
        """Waits for the calls. Raises what they have found since the last check."""
        for reader in self._all():
            with cuda_driver.on_device(reader.device):
                check(library().ncast_store_reader_check(reader.pointer, stream_handle(reader.stream)))

    def close(self) -> None:
        """Destroys the readers."""
        for reader in self._all():
            reader.close()
        with self._lock:
            self._readers.clear()
            self._replaced.clear()

"""The functions of the CUDA driver that the bindings, the demo and the benchmarks need, through ctypes.

libcuda.so.1 is part of the driver, so GPU memory is available without torch and CuPy. Contexts are the primary
ones, which the CUDA runtime and every framework share.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import weakref
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CudaError, UnsupportedError

_POINTER_DEVICE_ORDINAL = 9
_CAPTURE_RELAXED = 2
_NON_BLOCKING = 1
_MAPPED, _WAIT_GEQ = 2, 0
MULTIPROCESSORS, L2_BYTES, SHARED_BYTES = 16, 38, 97


@functools.cache
def driver() -> ctypes.CDLL:
    """The initialised driver. Raises UnsupportedError on a machine without one."""
    try:
        loaded = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise UnsupportedError("this machine has no CUDA driver: libcuda.so.1 cannot be loaded") from None
    status = loaded.cuInit(0)
    if status:
        raise UnsupportedError(f"the CUDA driver found no usable GPU: cuInit returned {status}")
    return loaded


def call(name: str, *arguments: Any) -> None:
    """Calls a function of the driver. Raises CudaError with the name of the error."""
    _check(name, getattr(driver(), name)(*arguments))


def _check(name: str, status: int) -> None:
    if status:
        text = c_char_p()
        driver().cuGetErrorName(status, byref(text))
        raise CudaError(f"{name}: {(text.value or b'unknown error').decode()} ({status})")


@functools.cache
def primary_context(ordinal: int) -> int:
    """The primary context of a device, retained for the life of the process."""
    context = c_void_p()
    call("cuDevicePrimaryCtxRetain", byref(context), device_handle(ordinal))
    return context.value or 0


@functools.cache
def device_handle(ordinal: int) -> int:
    handle = c_int()
    call("cuDeviceGet", byref(handle), ordinal)
    return handle.value


def device_name(ordinal: int = 0) -> str:
    name = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", name, len(name), device_handle(ordinal))
    return name.value.decode()


def device_attribute(attribute: int, ordinal: int = 0) -> int:
    value = c_int()
    call("cuDeviceGetAttribute", byref(value), attribute, device_handle(ordinal))
    return value.value


def free_bytes() -> int:
    """The free memory of the current device in bytes."""
    free, total = c_size_t(), c_size_t()
    call("cuMemGetInfo_v2", byref(free), byref(total))
    return free.value


def pointer_device(pointer: int) -> int:
    """The ordinal of the device of a pointer."""
    ordinal = c_int()
    call("cuPointerGetAttribute", byref(ordinal), _POINTER_DEVICE_ORDINAL, c_uint64(pointer))
    return ordinal.value


@contextlib.contextmanager
def on_device(ordinal: int) -> Iterator[None]:
    """Device guard: makes a device current for the body."""
    context, device = c_void_p(), c_int()
    call("cuCtxGetCurrent", byref(context))
    if context:
        call("cuCtxGetDevice", byref(device))
        if device.value == device_handle(ordinal):
            yield
            return
    call("cuCtxPushCurrent_v2", c_void_p(primary_context(ordinal)))
    try:
        yield
    finally:
        call("cuCtxPopCurrent_v2", byref(c_void_p()))


def copy_to_host(pointer: int, count_bytes: int, stream: int = 0) -> bytes:
    """Waits for the stream and copies device memory to the host."""
    host = ctypes.create_string_buffer(count_bytes)
    call("cuMemcpyDtoHAsync_v2", host, c_uint64(pointer), c_size_t(count_bytes), c_void_p(stream))
    call("cuStreamSynchronize", c_void_p(stream))
    return host.raw


def copy_to_host_later(host: int, pointer: int, count_bytes: int, stream: int = 0) -> None:
    """Enqueues a copy of device memory to page-locked memory."""
    _check("cuMemcpyDtoHAsync_v2", _copy_function("cuMemcpyDtoHAsync_v2")(host, pointer, count_bytes, stream))


def copy_from_host(pointer: int, host: int, count_bytes: int, stream: int = 0) -> None:
    """Enqueues a copy of host memory. Page-locked memory must not change until the stream has run it."""
    _check("cuMemcpyHtoDAsync_v2", _copy_function("cuMemcpyHtoDAsync_v2")(pointer, host, count_bytes, stream))


@functools.cache
def _copy_function(name: str) -> Any:
    # With types, the integers of a call need no conversion, which would take longer than the call.
    function = driver()[name]
    function.argtypes = [c_uint64, c_uint64, c_size_t, c_void_p]
    return function


class DeviceBuffer:
    """Memory of the current device, as an array of bytes with `__cuda_array_interface__`."""

    def __init__(self, count_bytes: int, *, offset: int = 0, base: DeviceBuffer | None = None) -> None:
        self.count_bytes = count_bytes
        self._base: object = base
        self.pointer: int
        if base is not None:
            self.pointer = base.pointer + offset
            return
        pointer = c_uint64()
        call("cuMemAlloc_v2", byref(pointer), c_size_t(max(count_bytes, 1)))
        self.pointer = pointer.value
        self._free = weakref.finalize(self, driver().cuMemFree_v2, c_uint64(pointer.value))
        # At exit the context may already be destroyed.
        self._free.atexit = False

    def part(self, offset: int, count_bytes: int) -> DeviceBuffer:
        """A part of the buffer, which keeps the whole buffer alive."""
        if not 0 <= offset <= offset + count_bytes <= self.count_bytes:
            raise ValueError(f"bytes {offset} to {offset + count_bytes} are outside a buffer of {self.count_bytes}")
        return DeviceBuffer(count_bytes, offset=offset, base=self)

    @classmethod
    def at(cls, pointer: int, count_bytes: int, owner: object) -> DeviceBuffer:
        """A buffer over memory of the current device that `owner` owns."""
        buffer = cls.__new__(cls)
        buffer.count_bytes, buffer.pointer, buffer._base = count_bytes, pointer, owner
        return buffer

    def fill(self, byte: int) -> DeviceBuffer:
        """Sets every byte. Synchronous."""
        if self.count_bytes:
            call("cuMemsetD8_v2", c_uint64(self.pointer), ctypes.c_ubyte(byte), c_size_t(self.count_bytes))
            # It returns before the GPU has written the bytes, and other streams do not wait for it.
            call("cuStreamSynchronize", c_void_p(0))
        return self

    def write(self, values: npt.NDArray[Any], offset: int = 0) -> DeviceBuffer:
        """Copies host memory to a byte offset. Synchronous."""
        host = np.ascontiguousarray(values)
        if offset + host.nbytes > self.count_bytes:
            raise ValueError(f"{host.nbytes} bytes at {offset} do not fit a buffer of {self.count_bytes}")
        if host.nbytes:
            call("cuMemcpyHtoD_v2", c_uint64(self.pointer + offset), c_void_p(host.ctypes.data), c_size_t(host.nbytes))
            # Short copies of pageable memory return before the GPU has the bytes, and other streams do not wait for it.
            call("cuStreamSynchronize", c_void_p(0))
        return self

    def write_tiled(self, values: npt.NDArray[np.uint8]) -> DeviceBuffer:
        """Fills the buffer with repetitions of host bytes. Synchronous."""
        self.write(values[: self.count_bytes])
        filled = min(len(values), self.count_bytes)
        while 0 < filled < self.count_bytes:
            more = min(filled - filled % len(values), self.count_bytes - filled)
            call("cuMemcpyDtoD_v2", c_uint64(self.pointer + filled), c_uint64(self.pointer), c_size_t(more))
            filled += more
        # Copies within a device are asynchronous.
        call("cuCtxSynchronize")
        return self

    def copy_from(self, source: DeviceBuffer, offset: int, stream: Stream) -> None:
        """Copies bytes of another buffer, from `offset` on, into this one. Asynchronous on the stream."""
        if offset + self.count_bytes > source.count_bytes:
            raise ValueError(f"{self.count_bytes} bytes at {offset} are not in a buffer of {source.count_bytes}")
        if self.count_bytes:
            call(
                "cuMemcpyDtoDAsync_v2",
                c_uint64(self.pointer),
                c_uint64(source.pointer + offset),
                c_size_t(self.count_bytes),
                c_void_p(stream.handle),
            )

    def read(self, count_bytes: int | None = None) -> npt.NDArray[np.uint8]:
        """Waits for the device and copies the buffer to the host."""
        host = np.empty(self.count_bytes if count_bytes is None else count_bytes, np.uint8)
        call("cuCtxSynchronize")
        if host.nbytes:
            call("cuMemcpyDtoH_v2", c_void_p(host.ctypes.data), c_uint64(self.pointer), c_size_t(host.nbytes))
        return host

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.count_bytes,), "typestr": "|u1", "data": (self.pointer, False), "version": 3}


class Stream:
    """A CUDA stream on the current device."""

    def __init__(self) -> None:
        handle = c_void_p()
        call("cuStreamCreate", byref(handle), _NON_BLOCKING)
        self.handle = handle.value or 0

    def synchronize(self) -> None:
        call("cuStreamSynchronize", c_void_p(self.handle))

    @contextlib.contextmanager
    def capture(self) -> Iterator[Graph]:
        """Captures the launches of the body on this stream into a graph, which can be launched afterwards."""
        graph = Graph()
        call("cuStreamBeginCapture_v2", c_void_p(self.handle), _CAPTURE_RELAXED)
        captured = c_void_p()
        try:
            yield graph
        except BaseException:
            # Raise the exception of the body, not that of ending the invalid capture.
            with contextlib.suppress(CudaError):
                call("cuStreamEndCapture", c_void_p(self.handle), byref(captured))
            raise
        call("cuStreamEndCapture", c_void_p(self.handle), byref(captured))
        call("cuGraphInstantiateWithFlags", byref(graph.executable), captured, c_uint64(0))
        call("cuGraphDestroy", captured)


class Graph:
    """An instantiated CUDA graph."""

    def __init__(self) -> None:
        self.executable = c_void_p()

    def launch(self, stream: Stream) -> None:
        call("cuGraphLaunch", self.executable, c_void_p(stream.handle))

    def close(self) -> None:
        """Destroys the graph. No launch may be in flight. NCCL cannot destroy a communicator before its graphs."""
        if self.executable:
            call("cuGraphExecDestroy", self.executable)
            self.executable = c_void_p()


class Event:
    """A CUDA event with timing."""

    def __init__(self) -> None:
        self._handle = c_void_p()
        call("cuEventCreate", byref(self._handle), 0)

    def record(self, stream: Stream) -> None:
        call("cuEventRecord", self._handle, c_void_p(stream.handle))

    def seconds_since(self, start: Event) -> float:
        """Waits for this event. Returns the seconds since `start`."""
        call("cuEventSynchronize", self._handle)
        milliseconds = c_float()
        call("cuEventElapsedTime", byref(milliseconds), start._handle, self._handle)
        return milliseconds.value / 1e3


class Gate:
    """Holds a stream until all timed launches are enqueued, because Python launches more slowly than a GPU executes."""

    def __init__(self) -> None:
        host, device = c_void_p(), c_uint64()
        call("cuMemHostAlloc", byref(host), c_size_t(64), _MAPPED)
        call("cuMemHostGetDevicePointer_v2", byref(device), host, 0)
        self._host, self._device = host, device
        self._word = c_uint32.from_address(host.value or 0)
        self._word.value = 0

    def hold(self, stream: Stream) -> None:
        """Holds the stream until open(). All streams that were held earlier must have been released."""
        self._word.value = 0
        call("cuStreamWaitValue32_v2", c_void_p(stream.handle), self._device, c_uint32(1), ctypes.c_uint(_WAIT_GEQ))

    def open(self) -> None:
        self._word.value = 1

    def close(self) -> None:
        self.open()
        call("cuMemFreeHost", self._host)

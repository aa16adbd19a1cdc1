"""CUDA streams of any framework, as the handles that the C API takes."""

from __future__ import annotations

from typing import Any


def stream_handle(stream: Any, name: str = "stream") -> int:
    """The handle of a CUDA stream: None or 0 (the default stream), an integer, or an object with `cuda_stream` (torch),
    `ptr` (CuPy), `__cuda_stream__` (the protocol of cuda.core), or `handle`."""
    if stream is None:
        return 0
    if isinstance(stream, bool):
        raise TypeError(f"{name} is a bool, not a stream")
    if isinstance(stream, int):
        if stream < 0:
            raise ValueError(f"{name} is {stream}: a stream handle cannot be negative")
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # (version, handle): a method, or a property in the first version of the protocol.
        version, handle = protocol() if callable(protocol) else protocol
        if version != 0:
            raise ValueError(f"{name} has version {version} of __cuda_stream__; only version 0 is supported")
        return int(handle)
    for attribute in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, attribute, None)
        if value is not None:
            return int(value)
    raise TypeError(
        f"{name} is of type {type(stream).__name__}, not a stream: "
        "pass an integer, a torch or CuPy stream, or an object with __cuda_stream__"
    )

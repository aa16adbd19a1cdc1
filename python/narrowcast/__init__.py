"""Narrowcast: GPU collective communication that compresses data before the link and expands it after.

    frame = narrowcast.encode(values)            # lossless; about 70% of the bytes for bfloat16
    values = narrowcast.decode(frame)

    with narrowcast.Communicator(unique_id, rank, ranks) as comm:
        comm.all_gather(mine, out=everyones)     # compressed on the link, identical bits

`narrowcast.cuda` encodes and decodes in GPU memory. `narrowcast --help` describes the command line.
"""

from __future__ import annotations

from typing import Any

from . import cuda
from ._comm.config import CommunicatorOptions
from ._comm.explain import CandidateCost, Explanation, Prediction, error_bound, explain
from ._comm.groups import Stream, group
from ._comm.pending import Pending
from ._comm.registration import Registration
from ._dropin.marks import mark_step
from ._native.library import library_version
from .codec import (
    BlockStats,
    Codec,
    CodecParameter,
    CodecType,
    Frame,
    FrameInfo,
    bound,
    codecs,
    decode,
    decode_batch,
    encode,
    encode_batch,
    inspect,
    inspect_blocks,
    presets,
    register_codec,
)
from .comm import Buffer, Communicator, Counters, Operation, OperationCounters, operations, unique_id
from .errors import (
    AbortedError,
    CorruptError,
    CudaError,
    InternalError,
    InvalidArgumentError,
    LibraryNotFoundError,
    MismatchError,
    NarrowcastError,
    PeerTimeoutError,
    RemoteError,
    Status,
    SystemFailure,
    TooSmallError,
    UnsupportedError,
)
from .local import LocalRanks

__all__ = [
    "AbortedError",
    "BlockStats",
    "Buffer",
    "CandidateCost",
    "Codec",
    "CodecParameter",
    "CodecType",
    "Communicator",
    "CommunicatorOptions",
    "CorruptError",
    "Counters",
    "CudaError",
    "Explanation",
    "Frame",
    "FrameInfo",
    "InternalError",
    "InvalidArgumentError",
    "LibraryNotFoundError",
    "LocalRanks",
    "MismatchError",
    "NarrowcastError",
    "Operation",
    "OperationCounters",
    "PeerTimeoutError",
    "Pending",
    "Prediction",
    "Registration",
    "RemoteError",
    "Status",
    "Stream",
    "SystemFailure",
    "TooSmallError",
    "UnsupportedError",
    "bound",
    "codecs",
    "cuda",
    "decode",
    "decode_batch",
    "encode",
    "encode_batch",
    "error_bound",
    "explain",
    "group",
    "inspect",
    "inspect_blocks",
    "library_version",
    "mark_step",
    "operations",
    "presets",
    "register_codec",
    "unique_id",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return library_version()  # loads the library, which importing the package does not
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""libnarrowcast.so through ctypes: where it is, what its functions take, how its failures become exceptions.

ctypes releases the GIL while a function runs, and the bindings need no Python headers.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

from . import _settings
from .errors import LibraryNotFoundError, Status, error_of
from .types import OPERATIONS

PACKAGED = Path(__file__).parent / "lib" / "libnarrowcast.so"
CHECKSUM, MORE, REFERENCE = 1, 2, 4
UNIQUE_ID_BYTES = 128
BACKENDS = {"host": 1, "cuda": 2}


class FrameInfoC(Structure):
    """ncast_frame_info."""

    _fields_ = [
        ("elems", c_uint64),
        ("raw_bytes", c_uint64),
        ("wire_bytes", c_uint64),
        ("checksum", c_uint64),
        ("blocks", c_uint32),
        ("block_elems", c_uint32),
        ("flags", c_uint32),
        ("version", c_uint32),
        ("codec", c_int),
        ("dtype", c_int),
    ]


class BlockStatsC(Structure):
    """ncast_block_stats."""

    _fields_ = [
        ("blocks_of_width", c_uint64 * 8),
        ("escapes", c_uint64),
        ("far_escapes", c_uint64),
    ]


class CudaOptionsC(Structure):
    """ncast_cuda_options."""

    _fields_ = [("max_ctas", c_uint32)]


class UniqueIdC(Structure):
    """ncast_unique_id."""

    _fields_ = [("bytes", c_char * UNIQUE_ID_BYTES)]


class CommConfigC(Structure):
    """ncast_comm_config."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("backend", c_int),
        ("device", c_int),
        ("scratch_bytes", c_size_t),
        ("timeout_seconds", c_double),
        ("create_timeout_seconds", c_double),
        ("max_ctas", c_uint32),
        ("p2p", c_int),
        ("cost_model", c_char_p),
    ]


class OperationCountersC(Structure):
    """ncast_operation_counters."""

    _fields_ = [(name, c_uint64) for name in ("calls", "raw_bytes", "wire_bytes")]


class CommCountersC(Structure):
    """ncast_comm_counters."""

    _fields_ = [
        *((name, c_uint64) for name in ("calls", "raw_bytes", "wire_bytes", "scratch_bytes")),
        ("operations", OperationCountersC * len(OPERATIONS)),
    ]


class PredictionC(Structure):
    """ncast_prediction."""

    _fields_ = [
        ("microseconds", c_double),
        ("packets", c_double),
        ("raw", c_double),
        ("window", c_double),
        ("window_random", c_double),
        ("nccl", c_double),
        ("nccl_default", c_double),
    ]


class ExplanationC(Structure):
    """ncast_explanation."""

    _fields_ = [
        ("packets", c_int),
        ("two_shot", c_int),
        ("over_host", c_int),
        ("ctas", c_uint32),
        ("warps", c_uint32),
        ("lanes", c_uint32),
        ("block_bytes", c_uint32),
        ("packet_bytes", c_uint32),
        ("codec", c_int),
        ("path_why", c_char_p),
        ("shots_why", c_char_p),
        ("codec_why", c_char_p),
        ("predicted", PredictionC),
        ("sentence", c_char * 768),
    ]


_COMM = _STREAM = c_void_p
_STATUS = c_int
_OPTIONS = POINTER(CudaOptionsC)
_COUNTS = POINTER(c_uint64)

# name: (result, arguments). A result of _STATUS is checked by check().
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    # types.h
    "ncast_version": (c_char_p, []),
    "ncast_status_name": (c_char_p, [c_int]),
    "ncast_last_error": (c_char_p, []),
    "ncast_dtype_bytes": (c_size_t, [c_int]),
    "ncast_dtype_name": (c_char_p, [c_int]),
    # codec.h
    "ncast_bound": (c_size_t, [c_int, c_int, c_uint64]),
    "ncast_encode": (
        _STATUS,
        [c_void_p, c_int, c_uint64, c_int, c_uint32, c_void_p, c_size_t, POINTER(c_size_t)],
    ),
    "ncast_decode": (_STATUS, [c_void_p, c_size_t, c_uint32, c_void_p, c_size_t, POINTER(FrameInfoC)]),
    "ncast_inspect": (_STATUS, [c_void_p, c_size_t, POINTER(FrameInfoC)]),
    "ncast_inspect_blocks": (_STATUS, [c_void_p, c_size_t, POINTER(BlockStatsC)]),
    # cuda.h
    "ncast_cuda_device_count": (c_int, []),
    "ncast_cuda_workspace_bytes": (c_size_t, [c_int, c_int, c_uint64]),
    "ncast_cuda_encode": (
        _STATUS,
        # values dtype elems codec flags frame capacity workspace workspace_bytes options stream
        [c_void_p, c_int, c_uint64, c_int, c_uint32, c_void_p, c_size_t, c_void_p, c_size_t, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_decode": (
        _STATUS,
        # frame frame_bytes dtype codec elems values status options stream
        [c_void_p, c_size_t, c_int, c_int, c_uint64, c_void_p, c_void_p, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_decode_reduce": (
        _STATUS,
        # frame frame_bytes dtype codec elems op accumulator status options stream
        [c_void_p, c_size_t, c_int, c_int, c_uint64, c_int, c_void_p, c_void_p, _OPTIONS, _STREAM],
    ),
    "ncast_slot_bytes": (c_size_t, [c_int]),
    "ncast_slot_count": (c_uint64, [c_int, c_uint64]),
    "ncast_cuda_encode_slots": (
        _STATUS,
        [c_void_p, c_int, c_uint64, c_int, c_void_p, c_void_p, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_decode_slots": (
        _STATUS,
        [c_void_p, c_void_p, c_int, c_uint64, c_void_p, c_void_p, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_decode_reduce_slots": (
        _STATUS,
        [c_void_p, c_void_p, c_int, c_uint64, c_int, c_void_p, c_void_p, _OPTIONS, _STREAM],
    ),
    # comm.h
    "ncast_comm_config_init": (None, [POINTER(CommConfigC)]),
    "ncast_get_unique_id": (_STATUS, [POINTER(UniqueIdC)]),
    "ncast_comm_create": (
        _STATUS,
        [POINTER(_COMM), c_int, POINTER(UniqueIdC), c_int, POINTER(CommConfigC)],
    ),
    "ncast_comm_create_by_exchange": (
        _STATUS,
        [POINTER(_COMM), c_int, c_int, c_void_p, c_void_p, POINTER(CommConfigC)],
    ),
    "ncast_comm_destroy": (_STATUS, [_COMM]),
    "ncast_comm_abort": (_STATUS, [_COMM]),
    "ncast_comm_async_error": (_STATUS, [_COMM, c_char_p, c_size_t]),
    "ncast_comm_rank": (_STATUS, [_COMM, POINTER(c_int)]),
    "ncast_comm_ranks": (_STATUS, [_COMM, POINTER(c_int)]),
    "ncast_comm_get_counters": (_STATUS, [_COMM, POINTER(CommCountersC)]),
    "ncast_stream_create": (_STATUS, [POINTER(_STREAM)]),
    "ncast_stream_destroy": (_STATUS, [_STREAM]),
    "ncast_stream_synchronize": (_STATUS, [_STREAM]),
    "ncast_group_start": (_STATUS, []),
    "ncast_group_end": (_STATUS, []),
    "ncast_send": (_STATUS, [c_void_p, c_uint64, c_int, c_int, c_int, _COMM, _STREAM]),
    "ncast_recv": (_STATUS, [c_void_p, c_uint64, c_int, c_int, c_int, _COMM, _STREAM]),
    "ncast_broadcast": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, c_int, _COMM, _STREAM]),
    "ncast_reduce": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, c_int, c_int, _COMM, _STREAM]),
    "ncast_gather": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, c_int, _COMM, _STREAM]),
    "ncast_scatter": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, c_int, _COMM, _STREAM]),
    "ncast_all_gather": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, _COMM, _STREAM]),
    "ncast_all_to_all": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, _COMM, _STREAM]),
    "ncast_all_to_all_v": (
        _STATUS,
        # send counts offsets recv counts offsets dtype codec comm stream
        [c_void_p, _COUNTS, _COUNTS, c_void_p, _COUNTS, _COUNTS, c_int, c_int, _COMM, _STREAM],
    ),
    "ncast_reduce_scatter": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, c_int, _COMM, _STREAM]),
    "ncast_all_reduce": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, c_int, _COMM, _STREAM]),
    "ncast_comm_create_all": (_STATUS, [POINTER(_COMM), c_int, POINTER(c_int), POINTER(CommConfigC)]),
    "ncast_comm_destroy_all": (_STATUS, [POINTER(_COMM), c_int]),
    "ncast_comm_register": (_STATUS, [_COMM, c_void_p, c_size_t, POINTER(c_uint32)]),
    "ncast_comm_deregister": (_STATUS, [_COMM, c_uint32]),
    # channel.h
    "ncast_channels_create": (_STATUS, [_COMM, c_uint32, c_uint32, c_void_p]),
    "ncast_channels_destroy": (_STATUS, [_COMM, c_void_p]),
    "ncast_mem_alloc": (_STATUS, [_COMM, c_size_t, POINTER(c_void_p)]),
    "ncast_mem_peer": (_STATUS, [_COMM, c_void_p, c_int, POINTER(c_void_p)]),
    "ncast_region_peer": (_STATUS, [_COMM, c_uint32, c_int, POINTER(c_void_p)]),
    "ncast_mem_free": (_STATUS, [_COMM, c_void_p]),
    "ncast_ports_create": (_STATUS, [_COMM, c_uint32, POINTER(c_void_p), c_uint32, c_void_p]),
    "ncast_ports_destroy": (_STATUS, [_COMM, c_void_p]),
    # explain.h
    "ncast_explain": (
        _STATUS,
        # operation count dtype codec ranks config explanation
        [c_int, c_uint64, c_int, c_int, c_int, POINTER(CommConfigC), POINTER(ExplanationC)],
    ),
    "ncast_comm_explain": (_STATUS, [_COMM, c_int, c_uint64, c_int, c_int, POINTER(ExplanationC)]),
    # Not called from here: an explanation has these times, too.
    "ncast_predict": (
        _STATUS,
        # operation count dtype codec ranks config prediction
        [c_int, c_uint64, c_int, c_int, c_int, POINTER(CommConfigC), POINTER(PredictionC)],
    ),
    "ncast_comm_predict": (_STATUS, [_COMM, c_int, c_uint64, c_int, c_int, POINTER(PredictionC)]),
}


def library_path() -> Path:
    """Where the library is: NARROWCAST_LIBRARY, else the one in the package."""
    named = os.environ.get("NARROWCAST_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise LibraryNotFoundError(f"NARROWCAST_LIBRARY names {named}, which is not a file")
        return Path(named)
    if not PACKAGED.is_file():
        raise LibraryNotFoundError(
            f"libnarrowcast.so is not at {PACKAGED}: install the package, or set NARROWCAST_LIBRARY to a built library"
        )
    return PACKAGED


def warn_of_unknown_variables() -> None:
    """A misspelt setting must not be silently without effect."""
    for name in _settings.unknown(os.environ):
        warnings.warn(_settings.unknown_sentence(name), stacklevel=3)


@functools.cache
def library() -> CDLL:
    """The loaded library, every function declared. Loaded once, at first use."""
    warn_of_unknown_variables()
    path = library_path()
    try:
        loaded = CDLL(str(path))
    except OSError as error:
        raise LibraryNotFoundError(f"{path} cannot be loaded: {error}") from None
    missing = []
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(loaded, name, None)
        if function is None:
            missing.append(name)
            continue
        function.restype = result
        function.argtypes = arguments
    if "ncast_version" in missing:
        raise LibraryNotFoundError(f"{path} is not a Narrowcast library: it has no ncast_version")
    for name in missing:
        setattr(loaded, name, _Missing(name, path))
    return loaded


class _Missing:
    """Stands for a function that a partial build of the library leaves out."""

    def __init__(self, name: str, path: Path) -> None:
        self._sentence = f"{path} was built without {name}"

    def __call__(self, *_: object) -> int:
        raise error_of(Status.UNSUPPORTED, self._sentence)


def last_error() -> str:
    """The sentence of the last failure on this thread."""
    return bytes(library().ncast_last_error()).decode("utf-8", "replace")


def check(status: int) -> None:
    """Raises the exception of a status that is not OK."""
    if status != Status.OK:
        name = bytes(library().ncast_status_name(status)).decode()
        raise error_of(status, last_error() or name)


def library_version() -> str:
    """`major.minor.patch` of the loaded library."""
    return bytes(library().ncast_version()).decode()


__all__ = ["byref", "check", "ctypes", "last_error", "library", "library_path", "library_version"]

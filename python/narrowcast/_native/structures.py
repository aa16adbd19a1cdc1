"""ctypes declarations of the structures of codecs and communicators in the C headers, and their constants."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)

CHECKSUM, MORE, REFERENCE, NO_CHECKSUM = 1, 2, 4, 8
UNIQUE_ID_BYTES = 128
CODEC_TEXT_BYTES = 128
BACKENDS = {"host": 1, "cuda": 2}
INTERRUPT_CHECK = CFUNCTYPE(c_int, c_void_p)  # ncast_interrupt_check


class FrameInfoC(Structure):
    """ncast_frame_info."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("elems", c_uint64),
        ("raw_bytes", c_uint64),
        ("wire_bytes", c_uint64),
        ("checksum", c_uint64),
        ("codec", c_uint64),
        ("dtype", c_int),
        ("blocks", c_uint32),
        ("block_elems", c_uint32),
        ("flags", c_uint32),
        ("version", c_uint32),
    ]


class CodecParameterC(Structure):
    """ncast_codec_parameter."""

    _fields_ = [
        ("name", c_char_p),
        ("kind", c_int),
        ("least", c_double),
        ("most", c_double),
        ("default_value", c_double),
        ("choices", c_char_p),
    ]


class CodecTypeC(Structure):
    """ncast_codec_type."""

    _fields_ = [("dtype", c_int), ("block_bytes", c_uint32), ("prior_ratio", c_double)]


class CodecInfoC(Structure):
    """ncast_codec_info."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("codec", c_uint64),
        ("name", c_char_p),
        ("exact", c_int),
        ("fixed_payload", c_int),
        ("parameter_count", c_uint32),
        ("type_count", c_uint32),
        ("counter_count", c_uint32),
        ("parameters", POINTER(CodecParameterC)),
        ("types", POINTER(CodecTypeC)),
        ("counters", POINTER(c_char_p)),
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
        ("max_collective_ctas", c_uint32),
    ]


class OperationCountersC(Structure):
    """ncast_operation_counters."""

    _fields_ = [(name, c_uint64) for name in ("calls", "raw_bytes", "wire_bytes")]


class ReductionOptionsC(Structure):
    """ncast_reduction_options."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("factor", POINTER(c_double)),
        ("device_factor", c_void_p),
        ("result_codec", POINTER(c_uint64)),
    ]


class CommCountersC(Structure):
    """ncast_comm_counters."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        *((name, c_uint64) for name in ("calls", "raw_bytes", "wire_bytes", "scratch_bytes", "network_bytes")),
    ]


class OperationInfoC(Structure):
    """ncast_operation_info."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("operation", c_int),
        ("name", c_char_p),
        ("function", c_char_p),
        ("nccl_functions", c_char_p),
        *((name, c_int) for name in ("reduces", "has_root", "has_peer", "in_place", "packets", "send", "recv")),
    ]


class DecisionC(Structure):
    """ncast_decision."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("candidate", c_char_p),
        ("link", c_char_p),
        ("codec", c_uint64),
        ("two_shot", c_int),
        ("ctas", c_uint32),
        ("warps", c_uint32),
        ("rings", c_uint32),
        ("block_bytes", c_uint32),
        ("packet_bytes", c_uint32),
        ("path_reason", c_char_p),
        ("shots_reason", c_char_p),
        ("codec_reason", c_char_p),
        ("microseconds", c_double),
        ("costs_warning", c_char_p),
        ("sentence", c_char_p),
        ("plan", c_char_p),
        ("allowed", c_char_p),
        ("error_bound", c_double),
        ("result_codec", c_uint64),
    ]


class CandidateC(Structure):
    """ncast_candidate."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("microseconds", c_double),
        ("incompressible_microseconds", c_double),
        ("plan", c_char_p),
        ("why_not", c_char_p),
    ]


class ComparisonC(Structure):
    """ncast_comparison."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("faster", c_int),
        ("microseconds", c_double),
        ("nccl_microseconds", c_double),
        ("reason", c_char_p),
        ("plan", c_char_p),
        ("always", c_int),
        ("codec", c_uint64),
    ]

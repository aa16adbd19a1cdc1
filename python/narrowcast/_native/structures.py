"""ctypes declarations of the structures in the C headers, and their constants."""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)

CHECKSUM, MORE, REFERENCE, NO_CHECKSUM = 1, 2, 4, 8
UNIQUE_ID_BYTES = 128
CODEC_TEXT_BYTES = 128
STORE_MAX_ROW_RANK = 7
STORE_LAYOUTS = {"auto": 0, "stride": 1, "packed": 2, "blocks": 3}
STORE_HOSTS = {"pinned": 0, "mmap": 1, "shared": 2}
STORE_ALLOW_DAMAGE = 1
STORE_HOST_INDICES = 1
STORE_INDEX_ORDER = 2
STORE_CACHES = {"static": 0, "lru": 1, "lfu": 2}
PLACEMENTS = {None: 0, False: 1, True: 2}  # by whether a call is in place
BACKENDS = {"host": 1, "cuda": 2}
INTERRUPT_CHECK = CFUNCTYPE(c_int, c_void_p)  # ncast_interrupt_check


class PlanCallC(Structure):
    """ncast_plan_call."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("operation", c_int),
        ("count", c_uint64),
        ("dtype", c_int),
        ("op", c_int),
        ("root", c_int),
        ("codec", c_uint64),
        ("ranks", c_int),
        ("placement", c_int),
    ]


# ncast_plan_selector: context, call, plans, their number.
PLAN_SELECTOR = CFUNCTYPE(c_int, c_void_p, POINTER(PlanCallC), POINTER(c_char_p), c_int)


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

    _fields_ = [("name", c_char_p), ("least", c_uint16), ("most", c_uint16), ("default_value", c_uint16)]


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
    ]


class OperationCountersC(Structure):
    """ncast_operation_counters."""

    _fields_ = [(name, c_uint64) for name in ("calls", "raw_bytes", "wire_bytes")]


class CommCountersC(Structure):
    """ncast_comm_counters."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        *((name, c_uint64) for name in ("calls", "raw_bytes", "wire_bytes", "scratch_bytes")),
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


class PlanInfoC(Structure):
    """ncast_plan_info."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("operation", c_int),
        ("root", c_int),
        ("ranks", c_int),
        ("chunks", c_uint32),
        ("groups", c_uint32),
        ("steps", c_uint64),
        ("cost_name", c_char_p),
    ]


class PlanUseC(Structure):
    """ncast_plan_use."""

    _fields_ = [("struct_bytes", c_size_t), ("always", c_int), ("min_bytes", c_uint64), ("max_bytes", c_uint64)]


class PlanBuilderC(Structure):
    """ncast_plan_builder."""

    _fields_ = [("struct_bytes", c_size_t), ("name", c_char_p), ("text", c_char_p), ("operations", c_uint64)]


class PlanRequestC(Structure):
    """ncast_plan_request."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("operation", c_int),
        ("ranks", c_int),
        ("root", c_int),
        ("codec", c_uint64),
        ("depth", c_uint32),
        ("ranks_per_node", c_int),
    ]


class PlanVerifyOptionsC(Structure):
    """ncast_plan_verify_options."""

    _fields_ = [("struct_bytes", c_size_t), ("depth", c_uint32), ("skip_split", c_int)]


class PlanSimulationC(Structure):
    """ncast_plan_simulation."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("piece_bytes", c_uint64),
        ("ratio", c_double),
        ("batches", c_uint32),
        ("ctas_per_group", c_uint32),
        ("max_groups", c_uint32),
        ("timeline", c_int),
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
    ]


class StoreBuildOptionsC(Structure):
    """ncast_store_build_options."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("dtype", c_int),
        ("layout", c_int),
        ("row_rank", c_uint32),
        ("row_shape", c_uint64 * STORE_MAX_ROW_RANK),
        ("capacity", c_uint64),
        ("spare", c_int64),
        ("rows", c_uint64),
        ("codec", c_char_p),
        ("metadata", c_char_p),
        ("threads", c_int),
    ]


class StoreOpenOptionsC(Structure):
    """ncast_store_open_options."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("host", c_int),
        ("flags", c_uint32),
        ("numa_node_plus_one", c_int),
        ("threads", c_int),
        ("capacity", c_uint64),
        ("spare_plus_one", c_int64),
    ]


class StoreInfoC(Structure):
    """ncast_store_info."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("dtype", c_int),
        ("layout", c_int),
        ("host", c_int),
        ("row_rank", c_uint32),
        ("row_shape", c_uint64 * STORE_MAX_ROW_RANK),
        ("rows", c_uint64),
        ("capacity", c_uint64),
        ("row_bytes", c_uint64),
        ("stride", c_uint64),
        ("entry_stride", c_uint64),
        ("entries", c_uint64),
        ("free_entries", c_uint64),
        ("stored_bytes", c_uint64),
        ("memory_bytes", c_uint64),
    ]


class StoreCountersC(Structure):
    """ncast_store_counters."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("gathers", c_uint64),
        ("fetches", c_uint64),
        ("rows_read", c_uint64),
        ("raw_bytes_read", c_uint64),
        ("overflow_rows_read", c_uint64),
        ("damaged_rows_read", c_uint64),
        ("updates", c_uint64),
        ("appends", c_uint64),
        ("rows_updated", c_uint64),
        ("rows_appended", c_uint64),
        ("grace_waits", c_uint64),
    ]


class StoreReaderOptionsC(Structure):
    """ncast_store_reader_options."""

    _fields_ = [("struct_bytes", c_size_t), ("max_rows", c_uint64), ("sms", c_uint32)]


class StoreReadOptionsC(Structure):
    """ncast_store_read_options."""

    _fields_ = [("struct_bytes", c_size_t), ("sms", c_uint32), ("flags", c_uint32)]


class StoreReaderCountersC(Structure):
    """ncast_store_reader_counters."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("gathers", c_uint64),
        ("fetches", c_uint64),
        ("rows_read", c_uint64),
        ("fetched_bytes", c_uint64),
        ("overflow_rows_read", c_uint64),
        ("bad_indices", c_uint64),
        ("damaged_rows_read", c_uint64),
    ]


class StoreCacheOptionsC(Structure):
    """ncast_store_cache_options."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("policy", c_int),
        ("index_bytes", c_uint32),
        ("bytes", c_uint64),
        ("rows", c_uint64),
        ("warm_rows", c_void_p),
        ("warm_count", c_uint64),
    ]


class StoreCacheInfoC(Structure):
    """ncast_store_cache_info."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("bytes", c_uint64),
        ("slot_bytes", c_uint64),
        ("capacity", c_uint64),
        ("rows", c_uint64),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("fills", c_uint64),
        ("evictions", c_uint64),
        ("dropped", c_uint64),
        ("overflows", c_uint64),
    ]

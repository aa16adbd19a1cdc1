"""ctypes signatures of the functions in the C headers."""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from .plan_structures import (
    PLAN_SELECTOR,
    PlanBuilderC,
    PlanCallC,
    PlanInfoC,
    PlanRequestC,
    PlanSimulationC,
    PlanUseC,
    PlanVerifyOptionsC,
)
from .store_structures import (
    StoreBuildOptionsC,
    StoreCacheInfoC,
    StoreCacheOptionsC,
    StoreCountersC,
    StoreInfoC,
    StoreOpenOptionsC,
    StoreReaderCountersC,
    StoreReaderOptionsC,
    StoreReadOptionsC,
)
from .structures import (
    INTERRUPT_CHECK,
    CandidateC,
    CodecInfoC,
    CommConfigC,
    CommCountersC,
    ComparisonC,
    CudaOptionsC,
    DecisionC,
    FrameInfoC,
    OperationCountersC,
    OperationInfoC,
    ReductionOptionsC,
    UniqueIdC,
)

_COMM = _STREAM = c_void_p
_STATUS = c_int
_CODEC = c_uint64
_OPTIONS = POINTER(CudaOptionsC)
_COUNTS = POINTER(c_uint64)
_POINTERS = POINTER(c_void_p)
_SIZES = POINTER(c_size_t)

# name: (result, arguments). A result of _STATUS is checked by check().
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    # types.h
    "ncast_version": (c_char_p, []),
    "ncast_status_name": (c_char_p, [c_int]),
    "ncast_last_error": (c_char_p, []),
    "ncast_dtype_bytes": (c_size_t, [c_int]),
    "ncast_dtype_name": (c_char_p, [c_int]),
    # codec.h
    "ncast_codec_count": (c_size_t, []),
    "ncast_codec_describe": (_STATUS, [c_size_t, POINTER(CodecInfoC)]),
    "ncast_codec_parse": (_STATUS, [c_char_p, POINTER(_CODEC)]),
    "ncast_codec_preset": (c_char_p, [c_size_t, POINTER(c_char_p)]),
    "ncast_codec_register": (_STATUS, [c_char_p, POINTER(_CODEC)]),
    "ncast_codec_compile": (_STATUS, [_CODEC, c_int, c_int, c_char_p]),
    "ncast_codec_format": (_STATUS, [_CODEC, c_char_p, c_size_t]),
    "ncast_codec_error_bound": (c_double, [_CODEC, c_int, c_double]),
    "ncast_bound": (c_size_t, [c_int, _CODEC, c_uint64]),
    "ncast_encode": (
        _STATUS,
        [c_void_p, c_int, c_uint64, _CODEC, c_uint32, c_void_p, c_size_t, POINTER(c_size_t)],
    ),
    "ncast_decode": (_STATUS, [c_void_p, c_size_t, c_uint32, c_void_p, c_size_t, POINTER(FrameInfoC)]),
    "ncast_encode_batch": (
        _STATUS,
        # count values dtypes elems codec flags frames capacities wire_bytes threads
        [c_size_t, _POINTERS, POINTER(c_int), _COUNTS, _CODEC, c_uint32, _POINTERS, _SIZES, _SIZES, c_int],
    ),
    "ncast_decode_batch": (
        _STATUS,
        # count frames frame_bytes flags values value_capacities threads
        [c_size_t, _POINTERS, _SIZES, c_uint32, _POINTERS, _SIZES, c_int],
    ),
    "ncast_inspect": (_STATUS, [c_void_p, c_size_t, POINTER(FrameInfoC)]),
    "ncast_inspect_blocks": (_STATUS, [c_void_p, c_size_t, POINTER(c_uint64), c_size_t]),
    # store.h
    "ncast_store_builder_create": (_STATUS, [c_int, POINTER(StoreBuildOptionsC), _POINTERS]),
    "ncast_store_builder_sample": (_STATUS, [c_void_p, c_void_p, c_uint64, c_uint64]),
    "ncast_store_builder_add": (_STATUS, [c_void_p, c_void_p, c_uint64, c_uint64]),
    "ncast_store_builder_set_device": (_STATUS, [c_void_p, c_int]),
    "ncast_store_builder_finish": (_STATUS, [c_void_p, _POINTERS]),
    "ncast_store_builder_destroy": (None, [c_void_p]),
    "ncast_store_open": (_STATUS, [c_char_p, POINTER(StoreOpenOptionsC), _POINTERS]),
    "ncast_store_close": (None, [c_void_p]),
    "ncast_store_describe": (_STATUS, [c_void_p, POINTER(StoreInfoC)]),
    "ncast_store_codec": (_STATUS, [c_void_p, _POINTERS]),
    "ncast_store_metadata": (_STATUS, [c_void_p, _POINTERS]),
    "ncast_store_get_counters": (_STATUS, [c_void_p, POINTER(StoreCountersC)]),
    # store indices index_bytes count out out_stride threads
    "ncast_store_gather": (_STATUS, [c_void_p, c_void_p, c_size_t, c_uint64, c_void_p, c_uint64, c_int]),
    # store first count step out out_stride threads
    "ncast_store_fetch": (_STATUS, [c_void_p, c_uint64, c_uint64, c_int64, c_void_p, c_uint64, c_int]),
    # store indices index_bytes count rows row_stride threads
    "ncast_store_update": (_STATUS, [c_void_p, c_void_p, c_size_t, c_uint64, c_void_p, c_uint64, c_int]),
    # store rows row_stride count first threads
    "ncast_store_append": (_STATUS, [c_void_p, c_void_p, c_uint64, c_uint64, _COUNTS, c_int]),
    "ncast_store_save": (_STATUS, [c_void_p, c_int]),
    "ncast_store_verify": (_STATUS, [c_void_p, c_int, _POINTERS]),
    # store_cuda.h
    "ncast_store_reader_create": (_STATUS, [c_void_p, POINTER(StoreReaderOptionsC), _POINTERS]),
    "ncast_store_reader_destroy": (None, [c_void_p]),
    "ncast_store_reader_gather": (
        _STATUS,
        # reader indices index_bytes count out out_stride options stream
        [c_void_p, c_void_p, c_size_t, c_uint64, c_void_p, c_uint64, POINTER(StoreReadOptionsC), _STREAM],
    ),
    "ncast_store_reader_fetch": (
        _STATUS,
        # reader first count step out out_stride options stream
        [c_void_p, c_uint64, c_uint64, c_int64, c_void_p, c_uint64, POINTER(StoreReadOptionsC), _STREAM],
    ),
    "ncast_store_reader_get_counters": (_STATUS, [c_void_p, POINTER(StoreReaderCountersC), _STREAM]),
    "ncast_store_reader_check": (_STATUS, [c_void_p, _STREAM]),
    "ncast_store_reader_set_cache": (_STATUS, [c_void_p, POINTER(StoreCacheOptionsC), _STREAM]),
    "ncast_store_reader_get_cache": (_STATUS, [c_void_p, POINTER(StoreCacheInfoC), _STREAM]),
    # cuda.h
    "ncast_cuda_device_count": (c_int, []),
    "ncast_cuda_architectures": (c_char_p, []),
    "ncast_cuda_workspace_bytes": (c_size_t, [c_int, _CODEC, c_uint64]),
    "ncast_cuda_encode": (
        _STATUS,
        # values dtype elems codec flags frame capacity workspace workspace_bytes options stream
        [c_void_p, c_int, c_uint64, _CODEC, c_uint32, c_void_p, c_size_t, c_void_p, c_size_t, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_decode": (
        _STATUS,
        # frame frame_bytes dtype codec elems values status options stream
        [c_void_p, c_size_t, c_int, _CODEC, c_uint64, c_void_p, c_void_p, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_decode_reduce": (
        _STATUS,
        # frame frame_bytes dtype codec elems op accumulator status options stream
        [c_void_p, c_size_t, c_int, _CODEC, c_uint64, c_int, c_void_p, c_void_p, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_encode_batch": (
        _STATUS,
        # count values dtypes elems codec flags frames capacities wire_bytes statuses workspace bytes options stream
        [c_size_t, *[c_void_p] * 3, _CODEC, c_uint32, *[c_void_p] * 5, c_size_t, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_encode_batch_workspace_bytes": (c_size_t, [c_size_t, c_uint64, _CODEC]),
    "ncast_cuda_decode_batch": (
        _STATUS,
        # count frames frame_bytes codec values value_capacities value_bytes statuses workspace bytes options stream
        [c_size_t, *[c_void_p] * 2, _CODEC, *[c_void_p] * 5, c_size_t, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_decode_batch_workspace_bytes": (c_size_t, [c_size_t]),
    "ncast_cuda_scatter_pages": (
        _STATUS,
        # rows' count and memory, numbers, pages' count, pages strides offsets options stream
        [c_size_t, *[c_void_p] * 2, c_size_t, *[c_void_p] * 3, _OPTIONS, _STREAM],
    ),
    "ncast_slot_bytes": (c_size_t, [c_int, _CODEC]),
    "ncast_slot_count": (c_uint64, [c_int, _CODEC, c_uint64]),
    "ncast_cuda_encode_slots": (
        _STATUS,
        [c_void_p, c_int, c_uint64, _CODEC, c_void_p, c_void_p, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_decode_slots": (
        _STATUS,
        [c_void_p, c_void_p, c_int, _CODEC, c_uint64, c_void_p, c_void_p, _OPTIONS, _STREAM],
    ),
    "ncast_cuda_decode_reduce_slots": (
        _STATUS,
        # slots lengths dtype codec elems op accumulator status options stream
        [c_void_p, c_void_p, c_int, _CODEC, c_uint64, c_int, c_void_p, c_void_p, _OPTIONS, _STREAM],
    ),
    # comm.h
    "ncast_comm_config_defaults": (None, [POINTER(CommConfigC), c_size_t]),
    "ncast_get_local_unique_id": (_STATUS, [POINTER(UniqueIdC)]),
    "ncast_get_unique_id": (_STATUS, [POINTER(UniqueIdC)]),
    "ncast_remove_stale_segments": (_STATUS, [POINTER(c_int)]),
    "ncast_comm_create": (
        _STATUS,
        [POINTER(_COMM), c_int, POINTER(UniqueIdC), c_int, POINTER(CommConfigC)],
    ),
    "ncast_comm_create_by_exchange": (
        _STATUS,
        [POINTER(_COMM), c_int, c_int, c_void_p, c_void_p, POINTER(CommConfigC)],
    ),
    # comm color key config result
    "ncast_comm_split": (_STATUS, [_COMM, c_int, c_int, POINTER(CommConfigC), POINTER(_COMM)]),
    "ncast_comm_destroy": (_STATUS, [_COMM]),
    "ncast_comm_abort": (_STATUS, [_COMM]),
    "ncast_comm_async_error": (_STATUS, [_COMM, c_char_p, c_size_t]),
    "ncast_comm_call_error": (_STATUS, [_COMM, c_char_p, c_size_t]),
    "ncast_comm_rank": (_STATUS, [_COMM, POINTER(c_int)]),
    "ncast_comm_ranks": (_STATUS, [_COMM, POINTER(c_int)]),
    "ncast_comm_get_counters": (_STATUS, [_COMM, POINTER(CommCountersC)]),
    "ncast_comm_get_operation_counters": (_STATUS, [_COMM, POINTER(OperationCountersC), c_int]),
    "ncast_stream_create": (_STATUS, [POINTER(_STREAM)]),
    "ncast_stream_destroy": (_STATUS, [_STREAM]),
    "ncast_stream_synchronize": (_STATUS, [_STREAM]),
    "ncast_group_start": (_STATUS, []),
    "ncast_group_end": (_STATUS, []),
    "ncast_group_abandon": (_STATUS, []),
    "ncast_send": (_STATUS, [c_void_p, c_uint64, c_int, c_int, _CODEC, _COMM, _STREAM]),
    "ncast_recv": (_STATUS, [c_void_p, c_uint64, c_int, c_int, _CODEC, _COMM, _STREAM]),
    "ncast_broadcast": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, _CODEC, _COMM, _STREAM]),
    "ncast_reduce": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, c_int, _CODEC, _COMM, _STREAM]),
    "ncast_gather": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, _CODEC, _COMM, _STREAM]),
    "ncast_scatter": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, _CODEC, _COMM, _STREAM]),
    "ncast_all_gather": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, _CODEC, _COMM, _STREAM]),
    "ncast_all_to_all": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, _CODEC, _COMM, _STREAM]),
    "ncast_all_to_all_v": (
        _STATUS,
        # send counts offsets recv counts offsets dtype codec comm stream
        [c_void_p, _COUNTS, _COUNTS, c_void_p, _COUNTS, _COUNTS, c_int, _CODEC, _COMM, _STREAM],
    ),
    "ncast_reduce_scatter": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, _CODEC, _COMM, _STREAM]),
    "ncast_all_reduce": (_STATUS, [c_void_p, c_void_p, c_uint64, c_int, c_int, _CODEC, _COMM, _STREAM]),
    "ncast_all_reduce_error_bound": (c_double, [c_int, c_int, _CODEC, _CODEC, c_int, POINTER(c_double)]),
    "ncast_run_reduction": (
        _STATUS,
        [
            c_int,
            c_void_p,
            c_void_p,
            c_uint64,
            c_int,
            c_int,
            c_int,
            _CODEC,
            POINTER(ReductionOptionsC),
            _COMM,
            _STREAM,
        ],
    ),
    "ncast_comm_create_all": (_STATUS, [POINTER(_COMM), c_int, POINTER(c_int), POINTER(CommConfigC)]),
    "ncast_comm_destroy_all": (_STATUS, [POINTER(_COMM), c_int]),
    "ncast_comm_register": (_STATUS, [_COMM, c_void_p, c_size_t, POINTER(c_uint32)]),
    "ncast_comm_deregister": (_STATUS, [_COMM, c_uint32]),
    # network.h
    "ncast_network_report": (_STATUS, [POINTER(c_void_p)]),
    # interrupt.h
    "ncast_set_interrupt_check": (None, [INTERRUPT_CHECK, c_void_p]),
    # channel.h
    "ncast_channels_create": (_STATUS, [_COMM, c_uint32, c_uint32, c_void_p]),
    "ncast_channels_destroy": (_STATUS, [_COMM, c_void_p]),
    "ncast_mem_alloc": (_STATUS, [_COMM, c_size_t, POINTER(c_void_p)]),
    "ncast_mem_peer": (_STATUS, [_COMM, c_void_p, c_int, POINTER(c_void_p)]),
    "ncast_region_peer": (_STATUS, [_COMM, c_uint32, c_int, POINTER(c_void_p)]),
    "ncast_mem_free": (_STATUS, [_COMM, c_void_p]),
    "ncast_ports_create": (_STATUS, [_COMM, c_uint32, POINTER(c_void_p), c_uint32, c_void_p]),
    "ncast_ports_destroy": (_STATUS, [_COMM, c_void_p]),
    # operation.h
    "ncast_operation_count": (c_int, []),
    "ncast_operation_describe": (_STATUS, [c_int, POINTER(OperationInfoC)]),
    "ncast_operation_bus_factor": (c_double, [c_int, c_int]),
    # plan.h
    "ncast_text_data": (c_void_p, [c_void_p]),
    "ncast_text_bytes": (c_size_t, [c_void_p]),
    "ncast_text_destroy": (None, [c_void_p]),
    "ncast_plan_read": (_STATUS, [c_char_p, c_size_t, POINTER(c_void_p)]),
    "ncast_plan_write": (_STATUS, [c_void_p, POINTER(c_void_p)]),
    "ncast_plan_describe": (_STATUS, [c_void_p, POINTER(PlanInfoC)]),
    "ncast_plan_lower": (_STATUS, [c_void_p, POINTER(c_void_p)]),
    "ncast_plan_simulate": (_STATUS, [c_void_p, c_char_p, POINTER(PlanSimulationC), POINTER(c_void_p)]),
    "ncast_plan_schedule": (
        _STATUS,
        [c_void_p, c_char_p, POINTER(PlanSimulationC), POINTER(c_void_p), POINTER(c_void_p)],
    ),
    "ncast_plan_builder_count": (c_int, []),
    "ncast_plan_builder_describe": (_STATUS, [c_int, POINTER(PlanBuilderC)]),
    "ncast_plan_build": (_STATUS, [c_char_p, POINTER(PlanRequestC), POINTER(c_void_p)]),
    "ncast_plan_destroy": (None, [c_void_p]),
    "ncast_plan_compile": (_STATUS, [c_void_p, c_int, c_int, c_int, c_char_p, POINTER(c_void_p)]),
    "ncast_plan_load": (_STATUS, [c_void_p, c_void_p, c_int, c_int, POINTER(c_void_p)]),
    "ncast_plan_decline": (_STATUS, [c_void_p, c_char_p]),
    "ncast_loaded_plan_use": (_STATUS, [c_void_p, POINTER(PlanUseC)]),
    "ncast_comm_explain_call": (_STATUS, [_COMM, POINTER(PlanCallC), POINTER(c_void_p)]),
    "ncast_predictor_compare_call": (_STATUS, [c_void_p, POINTER(PlanCallC), c_int, POINTER(ComparisonC)]),
    "ncast_predictor_explain_call": (_STATUS, [c_void_p, POINTER(PlanCallC), POINTER(c_void_p)]),
    "ncast_predictor_use_plan": (_STATUS, [c_void_p, c_void_p, c_int, c_int, POINTER(PlanUseC)]),
    "ncast_loaded_plan_run": (_STATUS, [c_void_p, c_void_p, c_void_p, c_uint64, c_void_p]),
    "ncast_loaded_plan_destroy": (_STATUS, [c_void_p]),
    "ncast_comm_set_plan_selector": (_STATUS, [_COMM, PLAN_SELECTOR, c_void_p]),
    "ncast_set_plan_selector": (None, [PLAN_SELECTOR, c_void_p]),
    # plans count options report
    "ncast_plan_verify": (_STATUS, [c_void_p, POINTER(PlanVerifyOptionsC), POINTER(c_void_p)]),
    # explain.h
    "ncast_explain": (
        _STATUS,
        # operation count dtype codec ranks config explanation
        [c_int, c_uint64, c_int, _CODEC, c_int, POINTER(CommConfigC), POINTER(c_void_p)],
    ),
    # operation dtype op codec ranks largest
    "ncast_call_error_bound": (c_double, [c_int, c_int, c_int, _CODEC, c_int, POINTER(c_double)]),
    "ncast_comm_explain": (_STATUS, [_COMM, c_int, c_uint64, c_int, _CODEC, POINTER(c_void_p)]),
    "ncast_comm_set_costs": (_STATUS, [_COMM, c_char_p]),
    "ncast_explanation_decision": (_STATUS, [c_void_p, POINTER(DecisionC)]),
    "ncast_explanation_candidates": (c_uint32, [c_void_p]),
    "ncast_explanation_candidate": (_STATUS, [c_void_p, c_uint32, POINTER(CandidateC)]),
    "ncast_explanation_destroy": (None, [c_void_p]),
    # Not called by this package: for programs that can also use NCCL.
    # ranks config predictor
    "ncast_predictor_create": (_STATUS, [c_int, POINTER(CommConfigC), POINTER(c_void_p)]),
    "ncast_comm_predictor": (_STATUS, [_COMM, POINTER(c_void_p)]),
    "ncast_predictor_compare": (
        _STATUS,
        # predictor operation count dtype codec with_windows comparison
        [c_void_p, c_int, c_uint64, c_int, _CODEC, c_int, POINTER(ComparisonC)],
    ),
    "ncast_predictor_costs_warning": (c_char_p, [c_void_p]),
    "ncast_predictor_destroy": (None, [c_void_p]),
    "ncast_kernels_hash": (c_char_p, []),
}

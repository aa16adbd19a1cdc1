"""ctypes declarations of the structures in store.h and store_cuda.h, and their constants."""

from __future__ import annotations

from ctypes import Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

STORE_MAX_ROW_RANK = 7
STORE_LAYOUTS = {"auto": 0, "stride": 1, "packed": 2, "blocks": 3}
STORE_HOSTS = {"pinned": 0, "mmap": 1, "shared": 2}
STORE_ALLOW_DAMAGE = 1
STORE_HOST_INDICES = 1
STORE_INDEX_ORDER = 2
STORE_CACHES = {"static": 0, "lru": 1}


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

// Names and sizes of the types in narrowcast/types.h.
#include "narrowcast/types.h"

#ifndef NARROWCAST_VERSION
#error "the build defines NARROWCAST_VERSION"
#endif

namespace {
struct ValueType {
  const char* name;
  size_t bytes;
};
// Indexed by ncast_dtype.
constexpr ValueType value_types[] = {{"int8", 1},    {"uint8", 1},    {"int32", 4},       {"uint32", 4},
                                     {"int64", 8},   {"uint64", 8},   {"float16", 2},     {"float32", 4},
                                     {"float64", 8}, {"bfloat16", 2}, {"float8_e4m3", 1}, {"float8_e5m2", 1}};
const ValueType* find(ncast_dtype dtype) {
  const auto index = static_cast<unsigned>(dtype);
  return index < sizeof value_types / sizeof *value_types ? &value_types[index] : nullptr;
}
}  // namespace

extern "C" {

const char* ncast_version(void) { return NARROWCAST_VERSION; }

const char* ncast_status_name(ncast_status status) {
  switch (status) {
    case NCAST_OK: return "ok";
    case NCAST_INVALID_ARGUMENT: return "invalid argument";
    case NCAST_CORRUPT: return "corrupt data";
    case NCAST_TOO_SMALL: return "buffer too small";
    case NCAST_UNSUPPORTED: return "unsupported";
    case NCAST_CUDA_ERROR: return "CUDA error";
    case NCAST_SYSTEM_ERROR: return "system error";
    case NCAST_REMOTE_ERROR: return "remote error";
    case NCAST_ABORTED: return "aborted";
    case NCAST_TIMEOUT: return "timeout";
    case NCAST_MISMATCH: return "mismatched calls";
    case NCAST_INTERNAL: return "internal error";
  }
  return "unknown status";
}

size_t ncast_dtype_bytes(ncast_dtype dtype) {
  const ValueType* type = find(dtype);
  return type != nullptr ? type->bytes : 0;
}

const char* ncast_dtype_name(ncast_dtype dtype) {
  const ValueType* type = find(dtype);
  return type != nullptr ? type->name : nullptr;
}

}  // extern "C"

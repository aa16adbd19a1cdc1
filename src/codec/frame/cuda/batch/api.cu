// The C API of batches on the GPU: checks arguments and launches kernels.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <initializer_list>

#include "codec/frame/cuda/batch/launch.h"
#include "codec/frame/header.h"
#include "status/cuda_driver.h"
#include "status/error.h"

namespace narrowcast::codec::cuda {
namespace {

constexpr size_t max_batch_count = size_t{1} << 30;
constexpr uint64_t max_batch_tiles = uint64_t{1} << 31;

#define RETURN_IF_FAILED(call) \
  if (const ncast_status status_ = (call); status_ != NCAST_OK) return status_

// An array of the caller.
struct Array {
  const char* name;
  const void* pointer;
  size_t alignment;
};

ncast_status check_arrays(const char* function, std::initializer_list<Array> arrays) {
  for (const Array& array : arrays) {
    if (array.pointer == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: %s is NULL", function, array.name);
    if (reinterpret_cast<uintptr_t>(array.pointer) % array.alignment != 0)
      return fail(NCAST_INVALID_ARGUMENT, "%s: %s is %p, which is not aligned to %zu bytes", function, array.name,
                  array.pointer, array.alignment);
  }
  return NCAST_OK;
}

ncast_status check_batch(const char* function, size_t count, ncast_codec codec, std::initializer_list<Array> arrays) {
  RETURN_IF_FAILED(check(function, codec));
  RETURN_IF_FAILED(check_in_gpu_frames(function, codec));
  if (count > max_batch_count)
    return fail(NCAST_INVALID_ARGUMENT, "%s: count is %zu, but the maximum is %zu", function, count, max_batch_count);
  return count == 0 ? NCAST_OK : check_arrays(function, arrays);
}

ncast_status check_workspace(const char* function, size_t workspace_bytes, size_t needed_bytes) {
  if (workspace_bytes >= needed_bytes) return NCAST_OK;
  return fail(NCAST_TOO_SMALL, "%s: workspace has %zu bytes, but at least %zu are needed", function, workspace_bytes,
              needed_bytes);
}

// The codec must have been checked.
BatchCodec batch_codec(ncast_codec codec) {
  BatchCodec result{};
  result.codec = explicit_parameters(codec);
  for (int number = 0; number < dtype_count; ++number) {
    const auto dtype = static_cast<ncast_dtype>(number);
    const ncast_codec effective = effective_codec(dtype, codec);
    TypeCoding& coding = result.types[number];
    coding = raw_coding();
    if (id_of(effective) == NCAST_CODEC_RAW) continue;
    const Row& row = *find_row(effective);
    const BlockType type = block_type(dtype, effective);
    const size_t payload_bytes = row.has_fixed_payload() ? host_of(row).payload_bytes(type) : 0;
    coding = {type.block_bytes, static_cast<uint32_t>(payload_bytes), false};
  }
  return result;
}

Launch launch_of(const ncast_cuda_options* options, ncast_stream stream) {
  return {options != nullptr ? options->max_ctas : 0, static_cast<cudaStream_t>(stream)};
}

ncast_status launched(const char* function, cudaError_t error) {
  if (error == cudaSuccess) return NCAST_OK;
  return fail(NCAST_CUDA_ERROR, "%s: %s (%s)", function, cuda_error_text(error).c_str(), cudaGetErrorName(error));
}

// As many tiles as the workspace has room for.
BatchLayout encode_layout(size_t count, size_t workspace_bytes) {
  BatchLayout layout = BatchLayout::of(static_cast<uint32_t>(count), 0);
  const uint64_t words = (workspace_bytes - layout.tiles_offset()) / sizeof(uint32_t);
  layout.max_tiles = static_cast<uint32_t>(std::min<uint64_t>(words - 2, max_batch_tiles));
  return layout;
}

size_t encode_workspace(size_t count, uint64_t raw_bytes, ncast_codec codec) {
  uint32_t block_bytes = raw_coding().block_bytes;
  for (const TypeCoding& coding : batch_codec(codec).types) block_bytes = std::min(block_bytes, coding.block_bytes);
  const uint64_t blocks = raw_bytes / block_bytes + count;
  const uint64_t tiles = std::min((blocks + min_batch_coders - 1) / min_batch_coders, max_batch_tiles);
  return BatchLayout::of(static_cast<uint32_t>(count), static_cast<uint32_t>(tiles)).bytes();
}

size_t decode_workspace(size_t count) { return BatchLayout::of(static_cast<uint32_t>(count), 0).bytes(); }

}  // namespace
}  // namespace narrowcast::codec::cuda

namespace cuda = narrowcast::codec::cuda;
using narrowcast::guarded;

extern "C" {

size_t ncast_cuda_encode_batch_workspace_bytes(size_t count, uint64_t raw_bytes, ncast_codec codec) {
  if (narrowcast::codec::check("ncast_cuda_encode_batch_workspace_bytes", codec) != NCAST_OK) return 0;
  return count == 0 || count > cuda::max_batch_count ? 0 : cuda::encode_workspace(count, raw_bytes, codec);
}

size_t ncast_cuda_decode_batch_workspace_bytes(size_t count) {
  return count == 0 || count > cuda::max_batch_count ? 0 : cuda::decode_workspace(count);
}

ncast_status ncast_cuda_encode_batch(size_t count, const void* const* values, const ncast_dtype* dtypes,
                                     const uint64_t* elems, ncast_codec codec, uint32_t flags, void* const* frames,
                                     const size_t* capacities, size_t* wire_bytes, ncast_device_status* statuses,
                                     void* workspace, size_t workspace_bytes, const ncast_cuda_options* options,
                                     ncast_stream stream) {
  const char* function = "ncast_cuda_encode_batch";
  return guarded(function, [&]() -> ncast_status {
    RETURN_IF_FAILED(cuda::check_batch(function, count, codec,
                                       {{"values", values, 8},
                                        {"dtypes", dtypes, 4},
                                        {"elems", elems, 8},
                                        {"frames", frames, 8},
                                        {"capacities", capacities, 8},
                                        {"wire_bytes", wire_bytes, 8},
                                        {"statuses", statuses, 4},
                                        {"workspace", workspace, NCAST_FRAME_ALIGN}}));
    if ((flags & ~(NCAST_MORE | NCAST_NO_CHECKSUM)) != 0)
      return narrowcast::fail(NCAST_INVALID_ARGUMENT,
                              "%s: invalid flags 0x%x; on the GPU only NCAST_MORE and NCAST_NO_CHECKSUM are allowed",
                              function, flags);
    if (count == 0) return NCAST_OK;
    RETURN_IF_FAILED(cuda::check_workspace(function, workspace_bytes, cuda::encode_workspace(count, 0, codec)));
    const cuda::EncodeBatchArguments arguments{cuda::batch_codec(codec),
                                               cuda::encode_layout(count, workspace_bytes),
                                               values,
                                               dtypes,
                                               elems,
                                               frames,
                                               capacities,
                                               wire_bytes,
                                               statuses,
                                               static_cast<char*>(workspace),
                                               0,
                                               static_cast<uint8_t>(flags & NCAST_MORE)};
    return cuda::launched(function, cuda::encode_batch(arguments, cuda::launch_of(options, stream)));
  });
}

ncast_status ncast_cuda_decode_batch(size_t count, const void* const* frames, const size_t* frame_bytes,
                                     ncast_codec codec, void* const* values, const size_t* value_capacities,
                                     size_t* value_bytes, ncast_device_status* statuses, void* workspace,
                                     size_t workspace_bytes, const ncast_cuda_options* options, ncast_stream stream) {
  const char* function = "ncast_cuda_decode_batch";
  return guarded(function, [&]() -> ncast_status {
    RETURN_IF_FAILED(cuda::check_batch(function, count, codec,
                                       {{"frames", frames, 8},
                                        {"frame_bytes", frame_bytes, 8},
                                        {"values", values, 8},
                                        {"value_capacities", value_capacities, 8},
                                        {"value_bytes", value_bytes, 8},
                                        {"statuses", statuses, 4},
                                        {"workspace", workspace, NCAST_FRAME_ALIGN}}));
    if (count == 0) return NCAST_OK;
    RETURN_IF_FAILED(cuda::check_workspace(function, workspace_bytes, cuda::decode_workspace(count)));
    const cuda::DecodeBatchArguments arguments{cuda::batch_codec(codec),
                                               cuda::BatchLayout::of(static_cast<uint32_t>(count), 0),
                                               frames,
                                               frame_bytes,
                                               values,
                                               value_capacities,
                                               value_bytes,
                                               statuses,
                                               static_cast<char*>(workspace),
                                               0};
    return cuda::launched(function, cuda::decode_batch(arguments, cuda::launch_of(options, stream)));
  });
}

ncast_status ncast_cuda_scatter_pages(size_t row_count, const void* rows, const uint64_t* numbers, size_t page_count,
                                      void* const* pages, const uint64_t* strides, const uint64_t* offsets,
                                      const ncast_cuda_options* options, ncast_stream stream) {
  const char* function = "ncast_cuda_scatter_pages";
  return guarded(function, [&]() -> ncast_status {
    for (const size_t count : {row_count, page_count})
      if (count > cuda::max_batch_count)
        return narrowcast::fail(NCAST_INVALID_ARGUMENT, "%s: there are %zu rows or pages, but the maximum is %zu",
                                function, count, cuda::max_batch_count);
    if (row_count == 0 || page_count == 0) return NCAST_OK;
    RETURN_IF_FAILED(cuda::check_arrays(function, {{"rows", rows, 1},
                                                   {"numbers", numbers, 8},
                                                   {"pages", pages, 8},
                                                   {"strides", strides, 8},
                                                   {"offsets", offsets, 8}}));
    const cuda::ScatterArguments arguments{static_cast<const char*>(rows),
                                           numbers,
                                           static_cast<uint32_t>(row_count),
                                           static_cast<uint32_t>(page_count),
                                           reinterpret_cast<char* const*>(pages),
                                           strides,
                                           offsets};
    return cuda::launched(function, cuda::scatter_pages(arguments, cuda::launch_of(options, stream)));
  });
}

}  // extern "C"

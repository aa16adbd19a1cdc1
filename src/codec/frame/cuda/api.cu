// The C API of the codecs on the GPU: checks arguments and launches kernels.
#include <cuda_runtime_api.h>

#include <cinttypes>

#include "codec/frame/cuda/launch.h"
#include "codec/frame/header.h"
#include "codec/window/format.h"
#include "status/cuda_driver.h"
#include "status/error.h"

namespace narrowcast::codec::cuda {
namespace {

using format::FrameHeader;

ncast_status check_pointer(const char* function, const char* name, const void* pointer, size_t alignment) {
  if (pointer == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: %s is NULL", function, name);
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s is %p, which is not aligned to %zu bytes", function, name, pointer,
                alignment);
  return NCAST_OK;
}

// The size of an accumulator value of a dtype.
size_t accumulator_value_bytes(ncast_dtype dtype) {
  const bool is_float = dtype >= NCAST_FLOAT16;
  return is_float && ncast_dtype_bytes(dtype) < 4 ? 4 : ncast_dtype_bytes(dtype);
}

Launch launch_of(const ncast_cuda_options* options, ncast_stream stream) {
  return {options != nullptr ? options->max_ctas : 0, static_cast<cudaStream_t>(stream)};
}

#define RETURN_IF_FAILED(call) \
  if (const ncast_status status_ = (call); status_ != NCAST_OK) return status_

// A call of the C API: the arguments that checks and launches need.
struct Call {
  const char* function;
  ncast_dtype dtype;
  ncast_codec codec;
  uint64_t elems;
  Launch launch;

  ncast_status checked() const {
    if (const ncast_status status = check_frame_arguments(function, dtype, codec, elems)) return status;
    return check_in_gpu_frames(function, codec);
  }
  bool is_raw() const { return elems == 0 || id_of(effective_codec(dtype, codec)) == NCAST_CODEC_RAW; }
  bool has_fixed_payload() const { return find_row(effective_codec(dtype, codec))->has_fixed_payload(); }
  // The codec as kernels expect it: with values instead of 0 for "default".
  ncast_codec kernel_codec() const { return explicit_parameters(codec); }
  uint64_t raw_bytes() const { return elems * ncast_dtype_bytes(dtype); }
  // The expected header. Its wire_bytes is the size of the frame if payloads are fixed, otherwise the offset of the
  // payloads, which is less than the size of the frame.
  FrameHeader header() const {
    FrameHeader header = make_header(dtype, codec, elems, 0);
    header.wire_bytes = has_fixed_payload() ? frame_bytes_of(dtype, codec, elems).most
                                            : format::frame_layout(elems, header.block_elems).payload_offset;
    return header;
  }
  ncast_status launched(cudaError_t error) const {
    if (error == cudaSuccess) return NCAST_OK;
    return fail(NCAST_CUDA_ERROR, "%s: %s (%s)", function, cuda_error_text(error).c_str(), cudaGetErrorName(error));
  }
  ncast_status copied(void* to, const void* from) const {
    return launched(cudaMemcpyAsync(to, from, raw_bytes(), cudaMemcpyDeviceToDevice, launch.stream));
  }
};

ncast_status encode_to_frame(const Call& call, const void* values, uint32_t flags, void* frame, size_t capacity,
                             void* workspace, size_t workspace_bytes) {
  RETURN_IF_FAILED(call.checked());
  if (call.elems != 0) RETURN_IF_FAILED(check_pointer(call.function, "values", values, ncast_dtype_bytes(call.dtype)));
  RETURN_IF_FAILED(check_pointer(call.function, "frame", frame, format::alignment));
  if ((flags & ~(NCAST_MORE | NCAST_NO_CHECKSUM)) != 0)
    return fail(NCAST_INVALID_ARGUMENT,
                "%s: invalid flags 0x%x; on the GPU only NCAST_MORE and NCAST_NO_CHECKSUM are allowed", call.function,
                flags);
  if (const size_t bound = ncast_bound(call.dtype, call.codec, call.elems); capacity < bound)
    return fail(NCAST_TOO_SMALL, "%s: the capacity of frame is %zu bytes, but %" PRIu64 " values of %s may need %zu",
                call.function, capacity, call.elems, ncast_dtype_name(call.dtype), bound);

  FrameHeader header = call.header();
  header.flags = static_cast<uint8_t>(flags & NCAST_MORE);
  auto* bytes = static_cast<char*>(frame);
  if (call.is_raw()) {
    if (call.elems != 0) RETURN_IF_FAILED(call.copied(bytes + sizeof header, values));
    return call.launched(write_header(header, bytes, call.raw_bytes(), call.launch));
  }
  const Values from{const_cast<void*>(values), call.dtype, call.elems};
  if (call.has_fixed_payload()) {
    const BlockType type = block_type(call.dtype, call.codec);
    const auto payload_bytes = static_cast<uint32_t>(host_of(*find_row(call.codec)).payload_bytes(type));
    return call.launched(encode_fixed_frame(from, call.kernel_codec(), header, bytes, payload_bytes, call.launch));
  }
  RETURN_IF_FAILED(check_pointer(call.function, "workspace", workspace, format::alignment));
  if (const size_t needed = encode_workspace_bytes(header.blocks); workspace_bytes < needed)
    return fail(NCAST_TOO_SMALL, "%s: workspace has %zu bytes, but %zu are needed", call.function, workspace_bytes,
                needed);
  return call.launched(encode_frame(from, call.kernel_codec(), header, bytes, workspace, call.launch));
}

// Checks the arguments of a decoder and launches it: calls `packed` for frames with encoded payloads, `raw` for values
// that are stored raw.
template <typename Packed, typename Raw>
ncast_status decode_from_frame(const Call& call, const void* frame, size_t frame_bytes, ncast_device_status* status,
                               Packed packed, Raw raw) {
  RETURN_IF_FAILED(check_pointer(call.function, "frame", frame, format::alignment));
  RETURN_IF_FAILED(check_pointer(call.function, "status", status, sizeof *status));
  const FrameHeader expected = call.header();
  if (frame_bytes < expected.wire_bytes)
    return fail(NCAST_CORRUPT, "%s: a frame of %" PRIu64 " values of %s has at least %" PRIu64 " bytes, not %zu",
                call.function, call.elems, ncast_dtype_name(call.dtype), expected.wire_bytes, frame_bytes);
  const auto* header = static_cast<const FrameHeader*>(frame);
  const auto* bytes = static_cast<const char*>(frame);
  if (call.is_raw()) {
    RETURN_IF_FAILED(call.launched(check_raw_header(header, expected, frame_bytes, status, call.launch)));
    return call.elems == 0 ? NCAST_OK : raw(bytes + sizeof *header);
  }
  if (call.has_fixed_payload())
    return packed(Payloads{bytes + sizeof *header, nullptr, nullptr, frame_bytes - sizeof *header}, header, expected);
  const Payloads payloads{bytes + expected.wire_bytes, reinterpret_cast<const uint32_t*>(bytes + sizeof *header),
                          nullptr, frame_bytes - expected.wire_bytes};
  return packed(payloads, header, expected);
}

// The same for slots.
template <typename Packed, typename Raw>
ncast_status decode_from_slots(const Call& call, const void* slots, const uint32_t* lengths,
                               ncast_device_status* status, Packed packed, Raw raw) {
  if (call.elems == 0) return NCAST_OK;
  RETURN_IF_FAILED(check_pointer(call.function, "slots", slots, format::alignment));
  RETURN_IF_FAILED(check_pointer(call.function, "lengths", lengths, sizeof *lengths));
  RETURN_IF_FAILED(check_pointer(call.function, "status", status, sizeof *status));
  const auto* bytes = static_cast<const char*>(slots);
  if (call.is_raw()) return raw(bytes);
  return packed(Payloads{bytes, nullptr, lengths, 0}, nullptr, call.header());
}

// Decodes to values. `from` is decode_from_frame or decode_from_slots, bound to its source.
template <typename From>
ncast_status decode_values(const Call& call, void* values, ncast_device_status* status, From from) {
  RETURN_IF_FAILED(call.checked());
  if (call.elems != 0) RETURN_IF_FAILED(check_pointer(call.function, "values", values, ncast_dtype_bytes(call.dtype)));
  return from(
      [&](const Payloads& payloads, const FrameHeader* header, const FrameHeader& expected) {
        const DecodeArguments arguments{payloads, header, expected, status, call.kernel_codec()};
        return call.launched(decode(arguments, {values, call.dtype, call.elems}, call.launch));
      },
      [&](const char* raw) { return call.copied(values, raw); });
}

template <typename From>
ncast_status reduce_values(const Call& call, ncast_redop op, void* accumulator, ncast_device_status* status,
                           From from) {
  RETURN_IF_FAILED(call.checked());
  if (op != NCAST_SUM && op != NCAST_PROD && op != NCAST_MIN && op != NCAST_MAX)
    return fail(NCAST_INVALID_ARGUMENT, "%s: op is %d, but decoders support only sum, prod, min and max", call.function,
                static_cast<int>(op));
  if (call.elems != 0)
    RETURN_IF_FAILED(check_pointer(call.function, "accumulator", accumulator, accumulator_value_bytes(call.dtype)));
  const Values to{accumulator, call.dtype, call.elems};
  return from(
      [&](const Payloads& payloads, const FrameHeader* header, const FrameHeader& expected) {
        return call.launched(
            decode_reduce({payloads, header, expected, status, call.kernel_codec()}, to, op, call.launch));
      },
      [&](const char* raw) { return call.launched(reduce_raw(raw, to, op, call.launch)); });
}

ncast_status encode_to_slots(const Call& call, const void* values, void* slots, uint32_t* lengths) {
  RETURN_IF_FAILED(call.checked());
  if (call.elems == 0) return NCAST_OK;
  RETURN_IF_FAILED(check_pointer(call.function, "values", values, ncast_dtype_bytes(call.dtype)));
  RETURN_IF_FAILED(check_pointer(call.function, "slots", slots, format::alignment));
  RETURN_IF_FAILED(check_pointer(call.function, "lengths", lengths, sizeof *lengths));
  if (!call.is_raw()) {
    const Values from{const_cast<void*>(values), call.dtype, call.elems};
    return call.launched(encode_slots(from, call.kernel_codec(), static_cast<char*>(slots), lengths, call.launch));
  }
  const uint64_t blocks = ncast_slot_count(call.dtype, call.codec, call.elems);
  const auto block_bytes = static_cast<uint32_t>(ncast_slot_bytes(call.dtype, call.codec));
  const auto last_bytes = static_cast<uint32_t>(format::aligned(call.raw_bytes() - (blocks - 1) * block_bytes));
  RETURN_IF_FAILED(call.copied(slots, values));
  return call.launched(write_raw_lengths(lengths, blocks, block_bytes, last_bytes, call.launch));
}

}  // namespace
}  // namespace narrowcast::codec::cuda

namespace cuda = narrowcast::codec::cuda;
using narrowcast::guarded;

extern "C" {

int ncast_cuda_device_count(void) {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

size_t ncast_cuda_workspace_bytes(ncast_dtype dtype, ncast_codec codec, uint64_t elems) {
  const cuda::Call call{"ncast_cuda_workspace_bytes", dtype, codec, elems, {}};
  if (ncast_bound(dtype, codec, elems) == 0 || call.is_raw() || call.has_fixed_payload()) return 0;
  return cuda::encode_workspace_bytes(call.header().blocks);
}

size_t ncast_slot_bytes(ncast_dtype dtype, ncast_codec codec) {
  using namespace narrowcast;
  if (codec::check_frame_arguments("ncast_slot_bytes", dtype, codec, 0) != NCAST_OK) return 0;
  return codec::block_type(dtype, codec::effective_codec(dtype, codec)).block_bytes;
}

uint64_t ncast_slot_count(ncast_dtype dtype, ncast_codec codec, uint64_t elems) {
  const size_t slot_bytes = ncast_slot_bytes(dtype, codec);
  if (slot_bytes == 0) return 0;
  const uint64_t slot_elems = slot_bytes / ncast_dtype_bytes(dtype);
  return elems / slot_elems + (elems % slot_elems != 0);
}

ncast_status ncast_cuda_encode(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec, uint32_t flags,
                               void* frame, size_t capacity, void* workspace, size_t workspace_bytes,
                               const ncast_cuda_options* options, ncast_stream stream) {
  const char* function = "ncast_cuda_encode";
  return guarded(function, [&] {
    const cuda::Call call{function, dtype, codec, elems, cuda::launch_of(options, stream)};
    return cuda::encode_to_frame(call, values, flags, frame, capacity, workspace, workspace_bytes);
  });
}

ncast_status ncast_cuda_decode(const void* frame, size_t frame_bytes, ncast_dtype dtype, ncast_codec codec,
                               uint64_t elems, void* values, ncast_device_status* status,
                               const ncast_cuda_options* options, ncast_stream stream) {
  const char* function = "ncast_cuda_decode";
  return guarded(function, [&] {
    const cuda::Call call{function, dtype, codec, elems, cuda::launch_of(options, stream)};
    return cuda::decode_values(call, values, status, [&](auto packed, auto raw) {
      return cuda::decode_from_frame(call, frame, frame_bytes, status, packed, raw);
    });
  });
}

ncast_status ncast_cuda_decode_reduce(const void* frame, size_t frame_bytes, ncast_dtype dtype, ncast_codec codec,
                                      uint64_t elems, ncast_redop op, void* accumulator, ncast_device_status* status,
                                      const ncast_cuda_options* options, ncast_stream stream) {
  const char* function = "ncast_cuda_decode_reduce";
  return guarded(function, [&] {
    const cuda::Call call{function, dtype, codec, elems, cuda::launch_of(options, stream)};
    return cuda::reduce_values(call, op, accumulator, status, [&](auto packed, auto raw) {
      return cuda::decode_from_frame(call, frame, frame_bytes, status, packed, raw);
    });
  });
}

ncast_status ncast_cuda_encode_slots(const void* values, ncast_dtype dtype, uint64_t elems, ncast_codec codec,
                                     void* slots, uint32_t* lengths, const ncast_cuda_options* options,
                                     ncast_stream stream) {
  const char* function = "ncast_cuda_encode_slots";
  return guarded(function, [&] {
    const cuda::Call call{function, dtype, codec, elems, cuda::launch_of(options, stream)};
    return cuda::encode_to_slots(call, values, slots, lengths);
  });
}

ncast_status ncast_cuda_decode_slots(const void* slots, const uint32_t* lengths, ncast_dtype dtype, ncast_codec codec,
                                     uint64_t elems, void* values, ncast_device_status* status,
                                     const ncast_cuda_options* options, ncast_stream stream) {
  const char* function = "ncast_cuda_decode_slots";
  return guarded(function, [&] {
    const cuda::Call call{function, dtype, codec, elems, cuda::launch_of(options, stream)};
    return cuda::decode_values(call, values, status, [&](auto packed, auto raw) {
      return cuda::decode_from_slots(call, slots, lengths, status, packed, raw);
    });
  });
}

ncast_status ncast_cuda_decode_reduce_slots(const void* slots, const uint32_t* lengths, ncast_dtype dtype,
                                            ncast_codec codec, uint64_t elems, ncast_redop op, void* accumulator,
                                            ncast_device_status* status, const ncast_cuda_options* options,
                                            ncast_stream stream) {
  const char* function = "ncast_cuda_decode_reduce_slots";
  return guarded(function, [&] {
    const cuda::Call call{function, dtype, codec, elems, cuda::launch_of(options, stream)};
    return cuda::reduce_values(call, op, accumulator, status, [&](auto packed, auto raw) {
      return cuda::decode_from_slots(call, slots, lengths, status, packed, raw);
    });
  });
}

}  // extern "C"

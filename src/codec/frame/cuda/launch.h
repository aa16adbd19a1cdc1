// The host's side of the codec kernels: one function a kernel, dispatched on the value type. Arguments are checked by
// api.cu; these only launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "codec/frame/layout.h"
#include "narrowcast/cuda.h"

namespace narrowcast::codec::cuda {

// Values in device memory.
struct Values {
  void* data;
  ncast_dtype dtype;
  uint64_t elems;
};

struct Launch {
  uint32_t max_ctas;  // 0: one an SM
  cudaStream_t stream;
};

// Where payloads are: a packed frame (ends set) or slots (lengths set).
struct Payloads {
  const char* data;
  const uint32_t* ends;     // in units of format::alignment
  const uint32_t* lengths;  // in bytes
  uint64_t data_bytes;      // of a packed frame: readable from `data`
};

size_t encode_workspace_bytes(uint64_t blocks);

// values -> slots and lengths, for types that `window` handles.
cudaError_t encode_slots(const Values& values, char* slots, uint32_t* lengths, const Launch& launch);
// values -> a packed frame; header is complete but for wire_bytes.
cudaError_t encode_frame(const Values& values, const format::FrameHeader& header, char* frame, void* workspace,
                         const Launch& launch);
// payloads -> values. When header is not NULL it stands in device memory and must equal `expected` but for flags, size
// and checksum, or *status becomes NCAST_CORRUPT.
cudaError_t decode(const Payloads& payloads, const format::FrameHeader* header, const format::FrameHeader& expected,
                   const Values& values, ncast_device_status* status, const Launch& launch);
// As decode, reduced into an accumulator.
cudaError_t decode_reduce(const Payloads& payloads, const format::FrameHeader* header,
                          const format::FrameHeader& expected, const Values& accumulator, ncast_redop op,
                          ncast_device_status* status, const Launch& launch);

// What is stored raw: a frame's header and padding, slots' lengths, and a reduction without decoding.
cudaError_t write_raw_header(const format::FrameHeader& header, char* frame, uint64_t raw_bytes, const Launch& launch);
cudaError_t write_raw_lengths(uint32_t* lengths, uint64_t blocks, uint32_t block_bytes, uint32_t last_bytes,
                              const Launch& launch);
cudaError_t check_raw_header(const format::FrameHeader* header, const format::FrameHeader& expected,
                             uint64_t frame_bytes, ncast_device_status* status, const Launch& launch);
cudaError_t reduce_raw(const void* values, const Values& accumulator, ncast_redop op, const Launch& launch);

}  // namespace narrowcast::codec::cuda

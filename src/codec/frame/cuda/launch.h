// The host side of the codec kernels. api.cu checks arguments; the functions here find the kernel of a codec and value
// type in codec/kernel_table.h and launch it.
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
  uint32_t max_ctas;  // 0: one per SM
  cudaStream_t stream;
};

// The location of payloads: a packed frame of variable payloads (`ends` is set), slots (`lengths` is set), or a packed
// frame of fixed payloads (neither is set).
struct Payloads {
  const char* data;
  const uint32_t* ends;     // in units of format::alignment
  const uint32_t* lengths;  // in bytes
  uint64_t data_bytes;      // readable bytes at `data`; only for packed frames
};

// The parameters of the kernels of each kind.
struct EncodeSlotsArguments {
  const char* values;
  uint64_t elems;
  char* slots;
  uint32_t stride;    // from slot to slot, in bytes; only for codecs with fixed payloads
  uint32_t* lengths;  // NULL if the payloads are fixed
  bool prefetch;
  ncast_codec codec;
};
struct EncodeFrameArguments {
  const char* values;
  format::FrameHeader header;  // complete except for wire_bytes
  char* frame;
  void* workspace;
  ncast_codec codec;
};
struct DecodeArguments {
  Payloads payloads;
  const format::FrameHeader* header;  // in device memory; NULL for slots
  format::FrameHeader expected;
  ncast_device_status* status;
  ncast_codec codec;
};

size_t encode_workspace_bytes(uint64_t blocks);

// The functions below return cudaErrorInvalidDeviceFunction if the table has no kernel.

// values -> slots and lengths.
cudaError_t encode_slots(const Values& values, ncast_codec codec, char* slots, uint32_t* lengths, const Launch& launch);
// values -> a packed frame of variable payloads; header is complete except for wire_bytes.
cudaError_t encode_frame(const Values& values, ncast_codec codec, const format::FrameHeader& header, char* frame,
                         void* workspace, const Launch& launch);
// values -> a packed frame of fixed payloads of payload_bytes each; header is complete.
cudaError_t encode_fixed_frame(const Values& values, ncast_codec codec, const format::FrameHeader& header, char* frame,
                               uint32_t payload_bytes, const Launch& launch);
// payloads -> values. If arguments.header is not NULL, it must equal arguments.expected except for flags, size and
// checksum; otherwise *status becomes NCAST_CORRUPT.
cudaError_t decode(const DecodeArguments& arguments, const Values& values, const Launch& launch);
// As decode(), but reduces the values into an accumulator.
cudaError_t decode_reduce(const DecodeArguments& arguments, const Values& accumulator, ncast_redop op,
                          const Launch& launch);

// For values that are stored raw: the header and padding of a frame, the lengths of slots, and reductions.
// stored_bytes: size of all payloads without the padding.
cudaError_t write_header(const format::FrameHeader& header, char* frame, uint64_t stored_bytes, const Launch& launch);
cudaError_t write_raw_lengths(uint32_t* lengths, uint64_t blocks, uint32_t block_bytes, uint32_t last_bytes,
                              const Launch& launch);
cudaError_t check_raw_header(const format::FrameHeader* header, const format::FrameHeader& expected,
                             uint64_t frame_bytes, ncast_device_status* status, const Launch& launch);
cudaError_t reduce_raw(const void* values, const Values& accumulator, ncast_redop op, const Launch& launch);

}  // namespace narrowcast::codec::cuda

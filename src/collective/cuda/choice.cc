#include "collective/cuda/choice.h"

#include "format/window.h"

namespace narrowcast::collective::cuda {
namespace {

constexpr uint64_t never = ~uint64_t{0};

// From how many bytes a call is coded when the codec is left to the library: where coding costs less time than the bytes
// that it saves. Measured between two H200 with weights; a piece's bytes.
constexpr uint64_t least_coded_bytes(Operation operation) {
  switch (operation) {
    case Operation::send:
    case Operation::recv:
    case Operation::scatter:
    case Operation::gather: return uint64_t{4} << 20;
    case Operation::broadcast:
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::all_to_all_v:
    case Operation::reduce_scatter: return uint64_t{8} << 20;
    case Operation::reduce:
    case Operation::all_reduce: return never;
  }
  return never;
}
// The same where payloads go through host memory: its link is slower than any coder.
constexpr uint64_t least_coded_bytes_over_host = uint64_t{256} << 10;

// Below how many bytes packets are faster than blocks.
constexpr uint64_t end_of_packets(Operation operation) {
  switch (operation) {
    case Operation::send:
    case Operation::recv:
    case Operation::all_to_all_v: return 0;  // packets need every rank to take part alike, in a size that all know
    case Operation::all_reduce: return (uint64_t{1} << 20) + 1;
    default: return (uint64_t{256} << 10) + 1;
  }
}

}  // namespace

Choice choose(const CallShape& shape) {
  // Packets rely on 16-byte stores that are seen whole, which the host link does not promise.
  const bool packets = !shape.over_host && shape.bytes < end_of_packets(shape.operation);
  const bool can_code = format::window::value_type(shape.dtype).value_bytes != 0;
  if (shape.codec == NCAST_CODEC_RAW) return {packets, NCAST_CODEC_RAW, "raw was asked for"};
  if (!can_code) return {packets, NCAST_CODEC_RAW, "the codec does not shrink this type"};
  if (shape.codec == NCAST_CODEC_WINDOW) return {false, NCAST_CODEC_WINDOW, "window was asked for"};
  if (packets) return {true, NCAST_CODEC_RAW, "at this size the time is latency, which coding adds to"};
  if (shape.bytes < (shape.over_host ? least_coded_bytes_over_host : least_coded_bytes(shape.operation)))
    return {false, NCAST_CODEC_RAW, "at this size coding takes longer than the bytes that it saves"};
  return {false, NCAST_CODEC_WINDOW, "the link is the limit at this size, and coding shortens what crosses it"};
}

}  // namespace narrowcast::collective::cuda

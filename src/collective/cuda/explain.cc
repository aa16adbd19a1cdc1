// The functions of narrowcast/explain.h.
#include "narrowcast/explain.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "channel/cuda/peers.h"
#include "collective/cuda/block_shape.h"
#include "collective/cuda/choice.h"
#include "status/error.h"

namespace narrowcast::collective::cuda {
namespace {

static_assert(NCAST_OP_SEND == static_cast<int>(Operation::send));
static_assert(NCAST_OP_RECV == static_cast<int>(Operation::recv));
static_assert(NCAST_OP_BROADCAST == static_cast<int>(Operation::broadcast));
static_assert(NCAST_OP_REDUCE == static_cast<int>(Operation::reduce));
static_assert(NCAST_OP_GATHER == static_cast<int>(Operation::gather));
static_assert(NCAST_OP_SCATTER == static_cast<int>(Operation::scatter));
static_assert(NCAST_OP_ALL_GATHER == static_cast<int>(Operation::all_gather));
static_assert(NCAST_OP_ALL_TO_ALL == static_cast<int>(Operation::all_to_all));
static_assert(NCAST_OP_ALL_TO_ALL_V == static_cast<int>(Operation::all_to_all_v));
static_assert(NCAST_OP_REDUCE_SCATTER == static_cast<int>(Operation::reduce_scatter));
static_assert(NCAST_OP_ALL_REDUCE == static_cast<int>(Operation::all_reduce));

constexpr const char* function = "ncast_explain";

// What the call goes by: "packets in one shot, 6 CTAs of 4 warps".
void describe(const ncast_explanation& said, char* text, size_t capacity) {
  if (said.ctas == 0) {
    std::snprintf(text, capacity, "a copy");
  } else if (said.packets == 0) {
    std::snprintf(text, capacity, "blocks of %u bytes, %u lanes, %u CTAs of %u warps", said.block_bytes, said.lanes,
                  said.ctas, said.warps);
  } else {
    const char* const shots = said.shots_why == nullptr ? "" : said.two_shot != 0 ? " in two shots" : " in one shot";
    std::snprintf(text, capacity, "packets%s, %u CTAs of %u warps", shots, said.ctas, said.warps);
  }
}

void explain(const CallShape& asked, uint64_t count, uint32_t max_ctas, ncast_explanation* said) {
  CallShape shape = asked;
  // As its callers do: how many bytes go to each rank is not known to all.
  if (shape.operation == Operation::all_to_all_v) shape.bytes = 0;
  const Choice choice = choose(shape);
  said->packets = choice.packets ? 1 : 0;
  said->codec = choice.codec;
  said->path_why = choice.packets_reason;
  said->codec_why = choice.reason;
  const char* const name = function_name(shape.operation) + std::strlen("ncast_");
  const char* const dtype = ncast_dtype_name(shape.dtype);
  if (asked.bytes == 0) {
    said->packets = 0;
    said->path_why = said->codec_why = "there are no values";
    std::snprintf(said->sentence, sizeof said->sentence, "%s of 0 %s between %d ranks does nothing.", name, dtype,
                  shape.ranks);
    return;
  }
  if (const auto operation = packet_operation(shape.operation); choice.packets && operation && shape.ranks > 1) {
    const PacketShape packets = choose_packet_shape(*operation, shape.bytes, shape.ranks, max_ctas);
    said->two_shot = packets.two_shot ? 1 : 0;
    said->ctas = packets.ctas;
    said->warps = packets.warps;
    if (operation == PacketOperation::all_reduce) {
      said->shots_why = packets.two_shot   ? "what the second shot saves takes longer than its flight"
                        : shape.ranks == 2 ? "between two ranks a second shot sends no less"
                                           : "a second shot's flight takes longer than what it saves";
    }
  } else if (!choice.packets) {
    const BlockShape blocks = choose_block_shape(asked, choice.codec, max_ctas);
    said->ctas = blocks.ctas;
    said->warps = blocks.warps;
    said->lanes = blocks.lanes;
    said->block_bytes = blocks.block_bytes;
  }
  char by[128];
  describe(*said, by, sizeof by);
  const char* const codec = said->codec == NCAST_CODEC_WINDOW ? "window" : "raw";
  std::snprintf(said->sentence, sizeof said->sentence,
                "%s of %" PRIu64 " %s between %d ranks goes by %s: %s%s%s. Its values travel %s: %s.", name, count,
                dtype, shape.ranks, by, said->path_why, said->shots_why != nullptr ? ", and " : "",
                said->shots_why != nullptr ? said->shots_why : "", codec, said->codec_why);
}

ncast_status check_and_explain(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec,
                               int ranks, uint32_t max_ctas, ncast_explanation* said) {
  const size_t value_bytes = ncast_dtype_bytes(dtype);
  if (said == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: explanation is NULL", function);
  if (const int number = operation; number < NCAST_OP_SEND || number > NCAST_OP_ALL_REDUCE)
    return fail(NCAST_INVALID_ARGUMENT, "%s: operation is %d, which is not an operation", function, number);
  if (value_bytes == 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: dtype is %d, which is not a value type", function,
                static_cast<int>(dtype));
  if (const int number = codec; number != NCAST_CODEC_RAW && number != NCAST_CODEC_WINDOW && number != NCAST_CODEC_AUTO)
    return fail(NCAST_INVALID_ARGUMENT, "%s: codec is %d, which is not a codec", function, number);
  if (ranks < 1 || ranks > channel::max_gpu_ranks)
    return fail(NCAST_INVALID_ARGUMENT, "%s: ranks is %d, not 1 to %d", function, ranks, channel::max_gpu_ranks);
  if (count > INT64_MAX / value_bytes / channel::max_gpu_ranks)
    return fail(NCAST_INVALID_ARGUMENT, "%s: count is %" PRIu64 ", more than an address space holds", function, count);
  *said = {};
  const CallShape shape{static_cast<Operation>(operation), dtype, codec, count * value_bytes, ranks};
  explain(shape, count, max_ctas == 0 ? wanted_ctas() : std::min(max_ctas, most_block_ctas), said);
  return NCAST_OK;
}

}  // namespace
}  // namespace narrowcast::collective::cuda

extern "C" ncast_status ncast_explain(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec,
                                      int ranks, uint32_t max_ctas, ncast_explanation* explanation) {
  using namespace narrowcast::collective::cuda;
  return narrowcast::guarded(
      function, [&] { return check_and_explain(operation, count, dtype, codec, ranks, max_ctas, explanation); });
}

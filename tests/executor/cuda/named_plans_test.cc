// Every call that the kernels can run names the plan that it implements: the plan's ranks send each other the same
// values.
#include <string>
#include <vector>

#include "codec/codec.h"
#include "doctest/doctest.h"
#include "executor/cuda/cut_calls.h"
#include "plan/builders/builders.h"
#include "plan/steps.h"
#include "select/decision.h"
#include "support/codec_table.h"

namespace narrowcast::executor::cuda {
namespace {

using plan::Operand;
using plan::Place;
using plan::Plan;

// Bytes of the values in chunks of a buffer, for pieces of piece_bytes (docs/design/plans.md, "Buffers").
uint64_t bytes_of_chunks(const Plan& plan, const Operand& operand, uint32_t count, uint64_t piece_bytes) {
  const uint64_t chunk_bytes = ((piece_bytes + plan.chunks - 1) / plan.chunks + 15) / 16 * 16;
  uint64_t bytes = 0;
  for (uint32_t chunk = operand.chunk; chunk < operand.chunk + count; ++chunk) {
    const uint64_t first = std::min(piece_bytes, chunk % plan.chunks * chunk_bytes);
    bytes += std::min(piece_bytes - first, chunk_bytes);
  }
  return bytes;
}

// Where the values of a step are, among its operands: those in scratch have no length of their own.
const Operand* sized_operand(const plan::Step& step) {
  for (const auto* operands : {&step.from, &step.to})
    for (const Operand& operand : *operands)
      if (operand.place == Place::local && operand.buffer != plan::Buffer::scratch) return &operand;
  return nullptr;
}

// Bytes of the values that each rank sends to others. Messages that are only passed on have the length of what the rank
// stores.
std::vector<uint64_t> sent_by(const Plan& plan, uint64_t piece_bytes) {
  std::vector<uint64_t> sent(plan.ranks.size());
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    for (const plan::Group& group : plan.ranks[rank].groups) {
      for (const plan::Step& step : group.steps) {
        uint64_t copies = 0;
        for (const Operand& to : step.to) copies += to.place != Place::local ? 1 : 0;
        if (copies == 0) continue;
        const Operand* const sized = sized_operand(step);
        REQUIRE(sized != nullptr);
        sent[rank] += copies * bytes_of_chunks(plan, *sized, step.count, piece_bytes);
      }
    }
  }
  return sent;
}

uint64_t sum_of(const std::vector<uint64_t>& values) {
  uint64_t sum = 0;
  for (const uint64_t value : values) sum += value;
  return sum;
}

// What the kernels send, as the executor counts it.
std::vector<uint64_t> sent_by_kernels(const Decision& decision, const Call& call, int ranks, uint32_t max_ctas) {
  const uint64_t bytes = call.count * ncast_dtype_bytes(call.dtype);
  std::vector<uint64_t> sent;
  if (decision.runs_by_packets()) {
    for (int rank = 0; rank < ranks; ++rank)
      sent.push_back(sent_by_packets(call.operation, *decision.packets, bytes, rank, ranks, call.peer));
    return sent;
  }
  for (const BlockCall& part : testing::cut(call, decision.codec, ranks, max_ctas)) {
    sent.push_back(sent_bytes(part));
    CHECK((part.relayed != 0) == (part.peers.rank != call.peer && call.operation == Operation::broadcast &&
                                  std::string(decision.plan) == "relay"));
  }
  return sent;
}

struct Classes {
  uint64_t packets = 0, blocks = 0, relays = 0, one_shots = 0, two_shots = 0;
};

// One operation, number of ranks, codec and size.
void check(Operation operation, int ranks, const CallShape& shape, select::ForcedTransport forced, Classes* classes) {
  CAPTURE(function_name(operation));
  CAPTURE(ranks);
  CAPTURE(shape.bytes);
  static const select::CostModel no_costs;
  const Decision decision = decide(shape, {no_costs, forced});
  // Exactly one: packets or blocks, and the plan of that.
  REQUIRE(decision.packets.has_value() != decision.blocks.has_value());
  REQUIRE(decision.plan != nullptr);
  CAPTURE(decision.plan);
  const int root = operation::has_root(operation) ? ranks / 2 : 0;
  Plan plan;
  REQUIRE(plan::builders::build(decision.plan,
                                {.operation = operation, .ranks = ranks, .root = root, .codec = decision.codec},
                                &plan) == NCAST_OK);
  Call call{operation};
  call.dtype = shape.dtype;
  call.send = testing::send_begin;
  call.recv = testing::recv_begin;
  call.peer = root;
  call.count = shape.bytes / ncast_dtype_bytes(shape.dtype);
  const std::vector<uint64_t> planned = sent_by(plan, shape.bytes);
  const std::vector<uint64_t> counted = sent_by_kernels(decision, call, ranks, shape.max_ctas);
  // Kernels cut a vector between blocks, and plans between units of 16 bytes. Where that matters for the sum, and by
  // rank, only lengths are compared that both cut in the same way.
  const bool depends_on_cuts = operation == Operation::reduce && ranks == 2 && !decision.runs_by_packets();
  if (!depends_on_cuts) CHECK(sum_of(planned) == sum_of(counted));
  const auto parts = static_cast<uint64_t>(ranks) * static_cast<uint64_t>(ranks - 1);
  const uint64_t unit = decision.runs_by_packets() ? 240 : decision.blocks->block_bytes;
  if (shape.bytes % (parts * unit) == 0) CHECK(planned == counted);
  ++(decision.runs_by_packets() ? classes->packets : classes->blocks);
  classes->relays += std::string(decision.plan) == "relay" ? 1 : 0;
  classes->one_shots += std::string(decision.plan) == "one_shot" ? 1 : 0;
  classes->two_shots += std::string(decision.plan) == "two_shot" ? 1 : 0;
}

TEST_CASE("every call names one plan, whose ranks send the bytes that the kernels send") {
  Classes classes;
  for (const Operation operation : testing::all_operations) {
    for (const int ranks : {2, 3, channel::max_gpu_ranks}) {
      const auto parts = static_cast<uint64_t>(ranks) * static_cast<uint64_t>(ranks - 1);
      for (const ncast_codec_info& info : tests::all_codecs()) {
        for (const ncast_codec codec : tests::variants_of(info)) {
          const ncast_dtype dtype = info.type_count == 0 ? NCAST_BFLOAT16 : info.types[0].dtype;
          const uint64_t block = block_bytes(dtype, codec);
          for (const uint64_t bytes :
               {uint64_t{16}, uint64_t{1008}, 240 * parts, block * parts, uint64_t{1} << 20, block * parts * 100}) {
            for (const auto forced :
                 {select::ForcedTransport::none, select::ForcedTransport::packets, select::ForcedTransport::one_shot,
                  select::ForcedTransport::two_shot, select::ForcedTransport::blocks}) {
              for (const auto link : {select::Link::nvlink, select::Link::host}) {
                check(operation, ranks, {operation, dtype, tests::forced(codec), bytes, ranks, link, 57}, forced,
                      &classes);
              }
            }
          }
        }
      }
    }
  }
  for (const uint64_t count : {classes.packets, classes.blocks, classes.relays, classes.one_shots, classes.two_shots})
    CHECK(count != 0);
}

}  // namespace
}  // namespace narrowcast::executor::cuda

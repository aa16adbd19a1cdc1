// The functions of narrowcast/explain.h, but for those of communicators.
#include "select/explain.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "channel/packet/packet_area.h"
#include "channel/peer/peers.h"
#include "codec/codec.h"
#include "comm/arguments.h"
#include "select/block_shape.h"
#include "select/options.h"
#include "status/error.h"

namespace narrowcast::select {
namespace {

// What the call goes by: "packets of 16 bytes in one shot, 6 CTAs of 4 warps".
void describe(const ncast_explanation& said, char* text, size_t capacity) {
  if (said.ctas == 0) {
    std::snprintf(text, capacity, "a copy");
  } else if (said.packets == 0) {
    std::snprintf(text, capacity, "blocks of %u bytes, %u rings, %u CTAs of %u warps", said.block_bytes, said.rings,
                  said.ctas, said.warps);
  } else {
    const char* const shots = said.shots_why == nullptr ? "" : said.two_shot != 0 ? " in two shots" : " in one shot";
    std::snprintf(text, capacity, "packets of %u bytes%s, %u CTAs of %u warps", said.packet_bytes, shots, said.ctas,
                  said.warps);
  }
}

ncast_prediction predicted(const Choice& choice, const Costs& costs) {
  return {choice.cost(costs),  costs.packets, costs.raw,         costs.window,
          costs.window_random, costs.nccl,    costs.nccl_default};
}

// "Predicted: 3.1 us by packets, 10.4 raw by blocks; NCCL 4.7."; nothing where nothing is known.
std::string describe(const ncast_prediction& times) {
  std::string text;
  const auto add = [&](double microseconds, const char* way) {
    if (microseconds == 0) return;
    char part[64];
    std::snprintf(part, sizeof part, "%s%.1f us %s", text.empty() ? " Predicted: " : ", ", microseconds, way);
    text += part;
  };
  add(times.packets, "by packets");
  add(times.raw, "raw by blocks");
  add(times.window, "by window");
  add(times.window_random, "by window where nothing shrinks");
  add(times.nccl, "by NCCL");
  add(times.nccl_default, "by its default");
  return text.empty() ? text : text + ".";
}

CallShape shape_of(const Question& question, const Situation& situation) {
  return {static_cast<Operation>(question.operation),
          question.dtype,
          question.codec,
          question.count * ncast_dtype_bytes(question.dtype),
          situation.ranks,
          situation.over_host,
          situation.nvlink,
          situation.max_ctas};
}

// As its callers do: how many bytes of an all_to_all_v go to each rank is not known to all.
Choice choose_for(CallShape shape, const Policy& policy) {
  if (shape.operation == Operation::all_to_all_v) shape.bytes = 0;
  return choose(shape, policy);
}

void explain_checked(const Question& question, const Situation& situation, ncast_explanation* said) {
  const CallShape shape = shape_of(question, situation);
  const Choice choice = choose_for(shape, situation.policy);
  said->packets = choice.packets ? 1 : 0;
  said->over_host = shape.over_host ? 1 : 0;
  said->codec = choice.codec;
  said->path_why = choice.packets_reason;
  said->codec_why = choice.reason;
  const char* const name = function_name(shape.operation) + std::strlen("ncast_");
  const char* const dtype = ncast_dtype_name(shape.dtype);
  if (shape.bytes == 0) {
    said->packets = 0;
    said->path_why = said->codec_why = "there are no values";
    std::snprintf(said->sentence, sizeof said->sentence, "%s of 0 %s between %d ranks does nothing.", name, dtype,
                  shape.ranks);
    return;
  }
  if (const auto operation = packet_operation(shape.operation); choice.packets && operation && shape.ranks > 1) {
    const PacketShape packets =
        choose_packet_shape(*operation, shape.bytes, shape.ranks, shape.nvlink, situation.max_ctas);
    said->two_shot = packets.two_shot ? 1 : 0;
    said->packet_bytes = channel::with_packet(packets.lines, []<typename Packet>() { return Packet::bytes; });
    said->ctas = packets.ctas;
    said->warps = packets.warps;
    if (operation == PacketOperation::all_reduce) {
      said->shots_why = packets.two_shot   ? "what the second shot saves takes longer than its flight"
                        : shape.ranks == 2 ? "between two ranks a second shot sends no less"
                                           : "a second shot's flight takes longer than what it saves";
    }
  } else if (!choice.packets) {
    const BlockShape blocks = choose_block_shape(shape, choice.codec, situation.max_ctas);
    said->ctas = blocks.ctas;
    said->warps = blocks.warps;
    said->rings = blocks.rings;
    said->block_bytes = blocks.block_bytes;
  }
  said->predicted = predicted(choice, costs_of(shape, situation.policy.costs));
  char by[128];
  describe(*said, by, sizeof by);
  const std::string codec = codec::describe(said->codec);
  std::snprintf(said->sentence, sizeof said->sentence,
                "%s of %" PRIu64 " %s between %d ranks goes by %s: %s%s%s. Its values travel %s: %s.%s", name,
                question.count, dtype, shape.ranks, by, said->path_why, said->shots_why != nullptr ? ", and " : "",
                said->shots_why != nullptr ? said->shots_why : "", codec.c_str(), said->codec_why,
                describe(said->predicted).c_str());
}

ncast_status check(const Question& question, const Situation& situation) {
  const size_t value_bytes = ncast_dtype_bytes(question.dtype);
  if (const int number = question.operation; number < NCAST_OP_SEND || number > NCAST_OP_ALL_REDUCE)
    return fail(NCAST_INVALID_ARGUMENT, "operation is %d, which is not an operation", number);
  if (value_bytes == 0)
    return fail(NCAST_INVALID_ARGUMENT, "dtype is %d, which is not a value type", static_cast<int>(question.dtype));
  if (const ncast_status status = codec::check_or_auto("ncast_explain", question.codec)) return status;
  if (situation.ranks < 1 || situation.ranks > channel::max_gpu_ranks)
    return fail(NCAST_INVALID_ARGUMENT, "ranks is %d, not 1 to %d", situation.ranks, channel::max_gpu_ranks);
  if (question.count > INT64_MAX / value_bytes / channel::max_gpu_ranks)
    return fail(NCAST_INVALID_ARGUMENT, "count is %" PRIu64 ", more than an address space holds", question.count);
  return NCAST_OK;
}

}  // namespace

ncast_status explain(const Question& question, const Situation& situation, ncast_explanation* explanation) {
  if (explanation == nullptr) return fail(NCAST_INVALID_ARGUMENT, "explanation is NULL");
  if (ncast_status status = check(question, situation)) return status;
  *explanation = {};
  explain_checked(question, situation, explanation);
  return NCAST_OK;
}

ncast_status predict(const Question& question, const Situation& situation, ncast_prediction* prediction) {
  if (prediction == nullptr) return fail(NCAST_INVALID_ARGUMENT, "prediction is NULL");
  if (ncast_status status = check(question, situation)) return status;
  const CallShape shape = shape_of(question, situation);
  *prediction = {};
  if (shape.bytes == 0) return NCAST_OK;
  *prediction = predicted(choose_for(shape, situation.policy), costs_of(shape, situation.policy.costs));
  return NCAST_OK;
}

namespace {

ncast_status wishes_of(const ncast_comm_config* given, Wishes* wishes) {
  ncast_comm_config config;
  if (ncast_status status = comm::read_config(given, &config)) return status;
  return Wishes::of(config, wishes);
}

// Of communicators whose ranks all have these wishes.
Situation situation_of(const Wishes& wishes, int ranks, const CostModel& costs) {
  const uint32_t most_ctas = wishes.over_host ? most_ctas_over_host : most_block_ctas;
  return {ranks, wishes.over_host, !wishes.over_host, std::min(wishes.max_ctas, most_ctas), Policy{costs, wishes.path}};
}

// Each file is read once.
ncast_status loaded_costs(const Wishes& wishes, const CostModel** costs) {
  struct Loaded {
    CostModel costs;
    ncast_status status;
    std::string sentence;
  };
  static std::mutex mutex;
  static auto& all = *new std::map<std::string, Loaded>;  // never freed: calls may come until the process ends
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = all.try_emplace(wishes.cost_model);
  Loaded& loaded = place->second;
  if (is_new) {
    loaded.status = wishes.load_costs(&loaded.costs);
    if (loaded.status != NCAST_OK) loaded.sentence = ncast_last_error();
  }
  *costs = &loaded.costs;
  return loaded.status == NCAST_OK ? NCAST_OK : fail(loaded.status, "%s", loaded.sentence.c_str());
}

ncast_status explain_with(const Question& question, int ranks, const ncast_comm_config* config,
                          ncast_explanation* explanation) {
  Wishes wishes;
  CostModel costs;
  if (ncast_status status = wishes_of(config, &wishes)) return status;
  if (ncast_status status = wishes.load_costs(&costs)) return status;
  return explain(question, situation_of(wishes, ranks, costs), explanation);
}

ncast_status predict_with(const Question& question, int ranks, const ncast_comm_config* config,
                          ncast_prediction* prediction) {
  Wishes wishes;
  const CostModel* costs = nullptr;
  if (ncast_status status = wishes_of(config, &wishes)) return status;
  if (ncast_status status = loaded_costs(wishes, &costs)) return status;
  return predict(question, situation_of(wishes, ranks, *costs), prediction);
}

// Has a failure name the function.
template <typename Body>
ncast_status named(const char* function, Body body) {
  return guarded(function, [&] {
    const ncast_status status = body();
    if (status == NCAST_OK) return status;
    const std::string sentence = ncast_last_error();
    return fail(status, "%s: %s", function, sentence.c_str());
  });
}

}  // namespace
}  // namespace narrowcast::select

using namespace narrowcast::select;

extern "C" {

ncast_status ncast_explain(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec, int ranks,
                           const ncast_comm_config* config, ncast_explanation* explanation) {
  return named("ncast_explain",
               [&] { return explain_with({operation, count, dtype, codec}, ranks, config, explanation); });
}

ncast_status ncast_predict(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec, int ranks,
                           const ncast_comm_config* config, ncast_prediction* prediction) {
  return named("ncast_predict",
               [&] { return predict_with({operation, count, dtype, codec}, ranks, config, prediction); });
}

}  // extern "C"

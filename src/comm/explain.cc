// The functions of narrowcast/explain.h.
#include "narrowcast/explain.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "codec/codec.h"
#include "comm/arguments.h"
#include "executor/communicator.h"
#include "executor/registry.h"
#include "select/decision.h"
#include "select/options.h"
#include "status/error.h"
#include "status/sized_struct.h"

struct ncast_explanation {
  narrowcast::select::CallShape shape;
  narrowcast::select::Decision decision;
  std::string costs_warning, sentence;
};

namespace {

using namespace narrowcast;
using select::CallShape;
using select::Decision;
using select::Link;

// The call to explain.
struct Question {
  ncast_operation operation;
  uint64_t count;
  ncast_dtype dtype;
  ncast_codec codec;
};

ncast_status check(const char* function, const Question& question) {
  const size_t value_bytes = ncast_dtype_bytes(question.dtype);
  if (!operation::find(question.operation))
    return fail(NCAST_INVALID_ARGUMENT, "operation is %d, which is not an operation",
                static_cast<int>(question.operation));
  if (value_bytes == 0)
    return fail(NCAST_INVALID_ARGUMENT, "dtype is %d, which is not a value type", static_cast<int>(question.dtype));
  if (ncast_status status = codec::check_or_auto(function, question.codec)) return status;
  if (question.count > INT64_MAX / value_bytes / select::most_gpu_ranks)
    return fail(NCAST_INVALID_ARGUMENT, "count is %" PRIu64 ", which exceeds the address space", question.count);
  return NCAST_OK;
}

ncast_status check_ranks(int ranks) {
  if (ranks >= 1 && ranks <= select::most_gpu_ranks) return NCAST_OK;
  return fail(NCAST_INVALID_ARGUMENT, "ranks is %d, not 1 to %d", ranks, select::most_gpu_ranks);
}

CallShape shape_of(const Question& question, int ranks, Link link, uint32_t max_ctas) {
  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): check() has checked it
  return {*operation::find(question.operation),
          question.dtype,
          codec::canonical(question.codec),
          question.count * ncast_dtype_bytes(question.dtype),
          ranks,
          link,
          max_ctas};
}

// "packets of 16 bytes in one shot, 6 CTAs of 4 warps"
std::string describe(const Decision& decision) {
  char text[128];
  if (decision.packets) {
    const select::PacketShape& shape = *decision.packets;
    const char* const shots = decision.shots_reason == nullptr ? "" : shape.two_shot ? " in two shots" : " in one shot";
    std::snprintf(text, sizeof text, "packets of %u bytes%s, %u CTAs of %u warps", decision.packet_bytes, shots,
                  shape.ctas, shape.warps);
    return text;
  }
  if (decision.blocks) {
    const select::BlockShape& shape = *decision.blocks;
    std::snprintf(text, sizeof text, "blocks of %u bytes, %u rings, %u CTAs of %u warps", shape.block_bytes,
                  shape.rings, shape.ctas, shape.warps);
    return text;
  }
  return decision.candidate == "copy" ? "a copy" : "frames";
}

// " Predicted: 3.1 us packets, 10.4 us blocks:raw, 4.7 us nccl."; empty if no time is known.
std::string describe(const select::Costs& costs) {
  std::string text;
  for (size_t i = 0; i < select::candidate_count; ++i) {
    if (!costs[i].is_known()) continue;
    char part[96];
    std::snprintf(part, sizeof part, "%s%.1f us %s", text.empty() ? " Predicted: " : ", ", costs[i].typical,
                  std::string(select::candidates[i].name).c_str());
    text += part;
    if (costs[i].incompressible == 0) continue;
    std::snprintf(part, sizeof part, " (%.1f incompressible)", costs[i].incompressible);
    text += part;
  }
  return text.empty() ? text : text + ".";
}

std::string sentence_of(const CallShape& shape, const Decision& decision) {
  const std::string call = std::string(name_of(shape.operation)) + " of " +
                           std::to_string(shape.bytes / ncast_dtype_bytes(shape.dtype)) + " " +
                           ncast_dtype_name(shape.dtype) + " between " + std::to_string(shape.ranks) + " ranks";
  if (decision.candidate == "none") return call + " does nothing: " + decision.transport_reason + ".";
  std::string text = call + " runs by " + describe(decision) + ": " + decision.transport_reason;
  if (decision.shots_reason != nullptr) text += std::string(", and ") + decision.shots_reason;
  text += std::string(". Its values travel ") + codec::describe(decision.codec) + ": " + decision.codec_reason + ".";
  return text + describe(decision.costs);
}

void explain(const CallShape& shape, const Decision& decision, const select::Policy& policy,
             ncast_explanation** explanation) {
  auto made = std::make_unique<ncast_explanation>(ncast_explanation{shape, decision, {}, {}});
  if (decision.predicted.is_known()) made->costs_warning = describe_mismatch(policy.costs);
  made->sentence = sentence_of(shape, decision);
  *explanation = made.release();
}

// The inputs of a decision if all ranks use one configuration. `costs` must remain valid.
struct Assumed {
  Link link;
  uint32_t max_ctas;
  const select::CostModel* costs;
  select::ForcedTransport transport;
  select::Policy policy() const { return {*costs, transport}; }
};

// Loads the cost model of the options. Each file is read once per process.
ncast_status load_once(const select::Options& options, const select::CostModel** costs) {
  struct Loaded {
    select::CostModel costs;
    ncast_status status;
    std::string message;
  };
  static std::mutex mutex;
  static auto& all = *new std::map<std::string, Loaded>;  // never freed: it may be used until the process ends
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = all.try_emplace(options.cost_model);
  Loaded& loaded = place->second;
  if (is_new) {
    loaded.status = options.load_costs(&loaded.costs);
    if (loaded.status != NCAST_OK) loaded.message = ncast_last_error();
  }
  *costs = &loaded.costs;
  return loaded.status == NCAST_OK ? NCAST_OK : fail(loaded.status, "%s", loaded.message.c_str());
}

ncast_status assume(const ncast_comm_config* given, select::Options* options, Assumed* assumed) {
  ncast_comm_config config;
  if (ncast_status status = comm::read_config(given, &config)) return status;
  if (ncast_status status = select::Options::of(config, options)) return status;
  const uint32_t most_ctas = options->over_host ? select::most_ctas_over_host : select::most_block_ctas;
  *assumed = {options->over_host ? Link::host : Link::nvlink, std::min(options->max_ctas, most_ctas), nullptr,
              options->transport};
  return NCAST_OK;
}

template <typename Body>
ncast_status named(const char* function, Body body) {
  return guarded(function, [&] {
    const ncast_status status = body();
    if (status == NCAST_OK) return status;
    const std::string message = ncast_last_error();
    return fail(status, "%s: %s", function, message.c_str());
  });
}

// Runs body(shape, decision) for a call of a communicator.
template <typename Body>
ncast_status with_decision(const char* function, ncast_comm* comm, const Question& question, Body body) {
  return guarded(function, [&] {
    executor::CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    return named(function, [&] {
      if (ncast_status status = check(function, question)) return status;
      const CallShape shape = shape_of(question, comm->ranks(), comm->link(), comm->max_ctas());
      return body(shape, comm->decide(shape.operation, shape.dtype, shape.codec, shape.bytes));
    });
  });
}

ncast_status fill_comparison(const char* function, const Decision& decision, int with_windows,
                             ncast_comparison* comparison) {
  const select::Comparison found = select::compare(decision, with_windows != 0 ? "nccl" : "nccl:default");
  return fill_struct(function, "comparison",
                     ncast_comparison{.struct_bytes = sizeof(ncast_comparison),
                                      .faster = found.reason == nullptr,
                                      .microseconds = found.microseconds,
                                      .nccl_microseconds = found.nccl_microseconds,
                                      .reason = found.reason},
                     comparison);
}

ncast_decision public_decision(const ncast_explanation& explanation) {
  const Decision& decision = explanation.decision;
  ncast_decision made = {};
  made.candidate = decision.candidate.data();
  made.link = name_of(explanation.shape.link);
  made.codec = decision.codec;
  if (decision.packets) {
    made.two_shot = decision.packets->two_shot ? 1 : 0;
    made.ctas = decision.packets->ctas;
    made.warps = decision.packets->warps;
    made.packet_bytes = decision.packet_bytes;
  } else if (decision.blocks) {
    made.ctas = decision.blocks->ctas;
    made.warps = decision.blocks->warps;
    made.rings = decision.blocks->rings;
    made.block_bytes = decision.blocks->block_bytes;
  }
  made.path_reason = decision.transport_reason;
  made.shots_reason = decision.shots_reason;
  made.codec_reason = decision.codec_reason;
  made.microseconds = decision.predicted.typical;
  made.costs_warning = explanation.costs_warning.empty() ? nullptr : explanation.costs_warning.c_str();
  made.sentence = explanation.sentence.c_str();
  return made;
}

}  // namespace

extern "C" {

ncast_status ncast_explain(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec, int ranks,
                           const ncast_comm_config* config, ncast_explanation** explanation) {
  constexpr const char* function = "ncast_explain";
  return named(function, [&] {
    const Question question{operation, count, dtype, codec};
    select::Options options;
    Assumed assumed;
    select::CostModel costs;  // read again, because the file may have changed
    if (explanation == nullptr) return fail(NCAST_INVALID_ARGUMENT, "explanation is NULL");
    *explanation = nullptr;
    if (ncast_status status = assume(config, &options, &assumed)) return status;
    if (ncast_status status = options.load_costs(&costs)) return status;
    assumed.costs = &costs;
    if (ncast_status status = check(function, question)) return status;
    if (ncast_status status = check_ranks(ranks)) return status;
    const CallShape shape = shape_of(question, ranks, assumed.link, assumed.max_ctas);
    explain(shape, select::decide(shape, assumed.policy()), assumed.policy(), explanation);
    return NCAST_OK;
  });
}

ncast_status ncast_comm_explain(ncast_comm* comm, ncast_operation operation, uint64_t count, ncast_dtype dtype,
                                ncast_codec codec, ncast_explanation** explanation) {
  const Question question{operation, count, dtype, codec};
  return with_decision("ncast_comm_explain", comm, question, [&](const CallShape& shape, const Decision& decision) {
    if (explanation == nullptr) return fail(NCAST_INVALID_ARGUMENT, "explanation is NULL");
    explain(shape, decision, comm->policy(), explanation);
    return NCAST_OK;
  });
}

ncast_status ncast_explanation_decision(const ncast_explanation* explanation, ncast_decision* decision) {
  constexpr const char* function = "ncast_explanation_decision";
  if (explanation == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: explanation is NULL", function);
  return fill_struct(function, "decision", public_decision(*explanation), decision);
}

uint32_t ncast_explanation_candidates(const ncast_explanation* explanation) {
  return explanation == nullptr ? 0 : static_cast<uint32_t>(select::candidate_count);
}

ncast_status ncast_explanation_candidate(const ncast_explanation* explanation, uint32_t index,
                                         ncast_candidate* candidate) {
  constexpr const char* function = "ncast_explanation_candidate";
  if (explanation == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: explanation is NULL", function);
  if (index >= select::candidate_count)
    return fail(NCAST_INVALID_ARGUMENT, "%s: index is %u, not 0 to %zu", function, index, select::candidate_count - 1);
  const select::Cost& cost = explanation->decision.costs[index];
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): a literal
  const char* const name = select::candidates[index].name.data();
  return fill_struct(function, "candidate",
                     ncast_candidate{.struct_bytes = sizeof(ncast_candidate),
                                     .name = name,
                                     .microseconds = cost.typical,
                                     .incompressible_microseconds = cost.incompressible},
                     candidate);
}

void ncast_explanation_destroy(ncast_explanation* explanation) { delete explanation; }

ncast_status ncast_comm_compare(ncast_comm* comm, ncast_operation operation, uint64_t count, ncast_dtype dtype,
                                ncast_codec codec, int with_windows, ncast_comparison* comparison) {
  constexpr const char* function = "ncast_comm_compare";
  return with_decision(function, comm, {operation, count, dtype, codec},
                       [&](const CallShape&, const Decision& decision) {
                         return fill_comparison(function, decision, with_windows, comparison);
                       });
}

ncast_status ncast_compare(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec, int ranks,
                           const ncast_comm_config* config, int with_windows, ncast_comparison* comparison) {
  constexpr const char* function = "ncast_compare";
  return named(function, [&] {
    const Question question{operation, count, dtype, codec};
    select::Options options;
    Assumed assumed;
    if (ncast_status status = assume(config, &options, &assumed)) return status;
    if (ncast_status status = load_once(options, &assumed.costs)) return status;
    if (ncast_status status = check(function, question)) return status;
    if (ncast_status status = check_ranks(ranks)) return status;
    const CallShape shape = shape_of(question, ranks, assumed.link, assumed.max_ctas);
    return fill_comparison("", select::decide(shape, assumed.policy()), with_windows, comparison);
  });
}

const char* ncast_kernels_hash(void) { return select::kernels_hash(); }

}  // extern "C"

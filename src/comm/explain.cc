// The explanations of narrowcast/explain.h.
#include "narrowcast/explain.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "codec/text.h"
#include "comm/arguments.h"
#include "comm/predictor.h"
#include "comm/question.h"
#include "executor/communicator.h"
#include "executor/registry.h"
#include "narrowcast/reduction.h"
#include "select/allowed_codecs.h"
#include "select/call_costs.h"
#include "select/decider.h"
#include "select/error_bound.h"
#include "select/two_levels.h"
#include "status/error.h"
#include "status/sized_struct.h"

struct ncast_explanation {
  std::shared_ptr<narrowcast::select::Decider> decider;  // the decision and the alternatives refer to its plans
  narrowcast::select::CallShape shape;
  narrowcast::select::Decision decision;
  std::string allowed;  // AllowedCodecs::text()
  narrowcast::select::Costs costs;
  std::vector<narrowcast::select::Step> steps;  // of two levels
  std::vector<size_t> built_in;                 // the candidates of the link, by index in the table
  std::vector<narrowcast::select::Alternative> alternatives;
  double error_bound;  // as in ncast_decision
  std::string costs_warning, sentence;
};

namespace {

using namespace narrowcast;
using comm::assume_communicator;
using comm::shape_of;
using select::Alternative;
using select::CallShape;
using select::Decider;
using select::Decision;

// "packets of 16 bytes in one shot, 6 CTAs of 4 warps"
std::string describe(const Decision& decision) {
  char text[128];
  if (decision.chosen != nullptr) return "a plan, " + decision.chosen->plan;
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
  if (decision.candidate == "steps") return "steps in two levels";
  return decision.candidate == "copy" ? "a copy" : "frames";
}

// " Its steps: reduce_scatter within groups (blocks:raw, 12.3 us), all_gather between groups (steps, 30.1 us)."
// The steps of long calls repeat.
std::string describe(const std::vector<select::Step>& steps) {
  std::vector<std::pair<std::string, double>> kinds;
  for (const select::Step& step : steps) {
    std::string kind = std::string(name_of(step.shape.operation)) +
                       (step.is_between ? " between groups (" : " within groups (") +
                       std::string(step.decision.candidate);
    auto found = std::ranges::find(kinds, kind, &std::pair<std::string, double>::first);
    if (found == kinds.end()) found = kinds.insert(found, {std::move(kind), 0});
    found->second += step.decision.predicted.typical;
  }
  std::string text;
  for (const auto& [kind, microseconds] : kinds) {
    char time[32] = "";
    if (microseconds != 0) std::snprintf(time, sizeof time, ", %.1f us", microseconds);
    text += (text.empty() ? " Its steps: " : ", ") + kind + time + ")";
  }
  return text.empty() ? text : text + ".";
}

// " Predicted: 3.1 us packets, 10.4 us blocks:raw, 4.7 us nccl, 2.9 us plan:ring."; empty if no time is known.
std::string describe(const select::Costs& costs, const std::vector<Alternative>& alternatives) {
  std::string text;
  const auto add = [&text](double microseconds, std::string_view name) {
    char part[32];
    std::snprintf(part, sizeof part, "%s%.1f us ", text.empty() ? " Predicted: " : ", ", microseconds);
    text.append(part).append(name);
  };
  for (size_t i = 0; i < costs.size(); ++i) {
    if (!costs[i].is_known()) continue;
    add(costs[i].typical, select::candidates()[i].name);
    if (costs[i].incompressible == 0) continue;
    char part[48];
    std::snprintf(part, sizeof part, " (%.1f incompressible)", costs[i].incompressible);
    text += part;
  }
  for (const Alternative& one : alternatives)
    if (one.microseconds != 0) add(one.microseconds, one.plan->name);
  return text.empty() ? text : text + ".";
}

// As in ncast_decision.
double error_bound_of(const CallShape& shape, const Decision& decision) {
  if (codec::is_exact(decision.codec) && !decision.result_codec) return 0;
  if (decision.chosen != nullptr || shape.link == select::Link::two_levels)
    return std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> largest(static_cast<size_t>(shape.ranks), 1.0);
  return select::error_bound(shape.operation, shape.dtype, shape.redop, decision.codec, largest, decision.result_codec);
}

std::string sentence_of(const ncast_explanation& explanation) {
  const CallShape& shape = explanation.shape;
  const Decision& decision = explanation.decision;
  const std::string call = std::string(name_of(shape.operation)) + " of " +
                           std::to_string(shape.bytes / ncast_dtype_bytes(shape.dtype)) + " " +
                           ncast_dtype_name(shape.dtype) + " between " + std::to_string(shape.ranks) + " ranks";
  if (decision.candidate == "none") return call + " does nothing: " + decision.transport_reason + ".";
  std::string text = call + " runs by " + describe(decision) + ": ";
  if (decision.chosen != nullptr) {
    text += decision.plan_reason;
  } else {
    text += decision.transport_reason;
    if (decision.shots_reason != nullptr) text += std::string(", and ") + decision.shots_reason;
    if (decision.plan != nullptr) text += std::string(". Its plan is ") + decision.plan;
  }
  text += std::string(". Values are sent with codec ") + codec::describe(decision.codec);
  if (decision.result_codec) text += ", and results with codec " + codec::describe(*decision.result_codec);
  text += std::string(": ") + decision.codec_reason + ".";
  if (explanation.error_bound > 0) {
    char bound[96];
    std::snprintf(bound, sizeof bound, " Results are within %.3g of exact ones, for values of at most 1.",
                  explanation.error_bound);
    text += bound;
  } else if (std::isnan(explanation.error_bound)) {
    text += " The error of the results is not known.";
  }
  std::string allowed = explanation.allowed;
  if (!allowed.empty() && codec::is_within(shape.codec))
    allowed += ", by its error budget of " + codec::text::number(codec::relative_of(shape.codec));
  if (shape.result_codec)
    allowed = (allowed.empty() ? "raw" : allowed) + " for contributions and " + codec::describe(*shape.result_codec) +
              " for results";
  if (!allowed.empty()) text += " The call allows " + allowed + ".";
  return text + describe(explanation.steps) + describe(explanation.costs, explanation.alternatives);
}

ncast_status explain(const char* function, const comm::Question& question, const std::shared_ptr<Decider>& decider,
                     ncast_explanation** explanation) {
  CallShape shape{};
  if (ncast_status status = shape_of(function, question, *decider, &shape)) return status;
  const Decision decision = decider->decide(shape);
  auto made = std::make_unique<ncast_explanation>();
  made->decider = decider;
  made->shape = shape;
  made->decision = decision;
  made->allowed = select::allowed_codecs(shape).text();
  const std::shared_ptr<const select::CostModel> model = decider->costs();
  made->costs = costs_of(shape, *model);
  if (const select::TwoLevels* const levels = decider->levels()) {
    made->costs[select::index_of("steps")] = decision.predicted;
    made->steps = levels->steps_of(shape);
  }
  made->built_in = select::candidates_of(shape.link);
  made->alternatives = decider->alternatives_of(shape, decision);
  made->error_bound = error_bound_of(shape, decision);
  if (decision.predicted.is_known()) made->costs_warning = describe_mismatch(*model, shape.link);
  made->sentence = sentence_of(*made);
  *explanation = made.release();
  return NCAST_OK;
}

// Checks the argument of a caller, and sets the result that it has after an error.
ncast_status clear(const char* function, ncast_explanation** explanation) {
  if (explanation == nullptr) return null_argument(function, "explanation");
  *explanation = nullptr;
  return NCAST_OK;
}

ncast_status explain(const char* function, ncast_comm* comm, const comm::Question& question,
                     ncast_explanation** explanation) {
  executor::CommUse use;
  if (ncast_status status = use.begin(function, comm)) return status;
  if (ncast_status status = clear(function, explanation)) return status;
  return explain(function, question, comm->decider(), explanation);
}

ncast_decision public_decision(const ncast_explanation& explanation) {
  const Decision& decision = explanation.decision;
  ncast_decision made = {};
  made.candidate = decision.candidate.data();
  made.link = name_of(explanation.shape.link);
  made.codec = decision.codec;
  if (decision.chosen != nullptr) {
    // How its kernels run is not described.
  } else if (decision.packets) {
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
  made.path_reason = decision.chosen != nullptr ? decision.plan_reason : decision.transport_reason;
  made.shots_reason = decision.chosen != nullptr ? nullptr : decision.shots_reason;
  made.codec_reason = decision.codec_reason;
  made.microseconds = decision.predicted.typical;
  made.costs_warning = explanation.costs_warning.empty() ? nullptr : explanation.costs_warning.c_str();
  made.sentence = explanation.sentence.c_str();
  made.plan = decision.plan;
  made.allowed = explanation.allowed.c_str();
  made.error_bound = explanation.error_bound;
  made.result_codec = decision.result_codec.value_or(decision.codec);
  return made;
}

double error_bound(const char* function, ncast_operation operation, ncast_dtype dtype, ncast_redop op,
                   ncast_codec codec, std::optional<ncast_codec> result_codec, int ranks, const double* largest) {
  double bound = std::numeric_limits<double>::quiet_NaN();
  guarded(function, [&] {
    const std::optional<operation::Operation> found = operation::find(operation);
    if (!found) return fail(NCAST_INVALID_ARGUMENT, "%s: operation is %d", function, static_cast<int>(operation));
    if (ncast_dtype_bytes(dtype) == 0) return fail(NCAST_INVALID_ARGUMENT, "%s: dtype is %d", function, int{dtype});
    if (reduces(*found) && (op < NCAST_SUM || op > NCAST_AVG))
      return fail(NCAST_INVALID_ARGUMENT, "%s: op is %d", function, int{op});
    if (ncast_status status = comm::check_codec(function, *found, dtype, op, codec)) return status;
    if (result_codec)
      if (ncast_status status = comm::check_result_codec(function, *found, dtype, op, codec, *result_codec))
        return status;
    if (ranks < 1) return fail(NCAST_INVALID_ARGUMENT, "%s: ranks is %d", function, ranks);
    if (largest == nullptr) return null_argument(function, "largest");
    const std::span<const double> each(largest, static_cast<size_t>(ranks));
    for (size_t rank = 0; rank < each.size(); ++rank)
      if (!std::isfinite(each[rank]) || each[rank] < 0)
        return fail(NCAST_INVALID_ARGUMENT, "%s: largest[%zu] is %g, not a finite number of 0 or more", function, rank,
                    each[rank]);
    if (result_codec && codec::canonical(codec) != codec::canonical(*result_codec)) {  // neither allows several
      bound =
          select::error_bound(*found, dtype, op, codec::without_flag(codec), each, codec::without_flag(*result_codec));
      return NCAST_OK;
    }
    const select::CallShape shape{
        .operation = *found, .dtype = dtype, .codec = codec::canonical(codec), .bytes = 0, .ranks = ranks, .redop = op};
    bound = 0;
    for (const ncast_codec one : select::allowed_codecs(shape).codecs)
      bound = std::max(bound, select::error_bound(*found, dtype, op, one, each));
    return NCAST_OK;
  });
  return bound;
}

}  // namespace

extern "C" {

ncast_status ncast_explain(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec, int ranks,
                           const ncast_comm_config* config, ncast_explanation** explanation) {
  constexpr const char* function = "ncast_explain";
  return guarded(function, [&] {
    if (ncast_status status = clear(function, explanation)) return status;
    std::shared_ptr<Decider> decider;
    if (ncast_status status = assume_communicator(function, ranks, config, &decider)) return status;
    return explain(function, {operation, count, dtype, codec}, decider, explanation);
  });
}

double ncast_call_error_bound(ncast_operation operation, ncast_dtype dtype, ncast_redop op, ncast_codec codec,
                              int ranks, const double* largest) {
  return error_bound("ncast_call_error_bound", operation, dtype, op, codec, std::nullopt, ranks, largest);
}

double ncast_all_reduce_error_bound(ncast_dtype dtype, ncast_redop op, ncast_codec codec, ncast_codec result_codec,
                                    int ranks, const double* largest) {
  return error_bound("ncast_all_reduce_error_bound", NCAST_OP_ALL_REDUCE, dtype, op, codec, result_codec, ranks,
                     largest);
}

ncast_status ncast_comm_explain(ncast_comm* comm, ncast_operation operation, uint64_t count, ncast_dtype dtype,
                                ncast_codec codec, ncast_explanation** explanation) {
  constexpr const char* function = "ncast_comm_explain";
  return guarded(function, [&] { return explain(function, comm, {operation, count, dtype, codec}, explanation); });
}

ncast_status ncast_comm_explain_call(ncast_comm* comm, const ncast_plan_call* call, ncast_explanation** explanation) {
  constexpr const char* function = "ncast_comm_explain_call";
  return guarded(function, [&] {
    comm::Question question{};
    if (ncast_status status = comm::read_question(function, call, &question)) return status;
    return explain(function, comm, question, explanation);
  });
}

ncast_status ncast_predictor_explain_call(const ncast_predictor* predictor, const ncast_plan_call* call,
                                          ncast_explanation** explanation) {
  constexpr const char* function = "ncast_predictor_explain_call";
  return guarded(function, [&] {
    if (predictor == nullptr) return null_argument(function, "predictor");
    if (ncast_status status = clear(function, explanation)) return status;
    comm::Question question{};
    if (ncast_status status = comm::read_question(function, call, &question)) return status;
    return explain(function, question, predictor->decider, explanation);
  });
}

ncast_status ncast_comm_set_costs(ncast_comm* comm, const char* text) {
  constexpr const char* function = "ncast_comm_set_costs";
  return guarded(function, [&] {
    executor::CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    if (text == nullptr) return null_argument(function, "text");
    select::CostModel costs;
    if (ncast_status status = select::CostModel::parse(text, function, &costs)) return status;
    comm->set_costs(std::move(costs));
    return NCAST_OK;
  });
}

ncast_status ncast_explanation_decision(const ncast_explanation* explanation, ncast_decision* decision) {
  constexpr const char* function = "ncast_explanation_decision";
  if (explanation == nullptr) return null_argument(function, "explanation");
  return fill_struct(function, "decision", public_decision(*explanation), decision);
}

uint32_t ncast_explanation_candidates(const ncast_explanation* explanation) {
  if (explanation == nullptr) return 0;
  return static_cast<uint32_t>(explanation->built_in.size() + explanation->alternatives.size());
}

ncast_status ncast_explanation_candidate(const ncast_explanation* explanation, uint32_t index,
                                         ncast_candidate* candidate) {
  constexpr const char* function = "ncast_explanation_candidate";
  if (explanation == nullptr) return null_argument(function, "explanation");
  const uint32_t count = ncast_explanation_candidates(explanation);
  if (index >= count) return fail(NCAST_INVALID_ARGUMENT, "%s: index is %u, not 0 to %u", function, index, count - 1);
  ncast_candidate made = {};
  if (index < explanation->built_in.size()) {
    const size_t candidate = explanation->built_in[index];
    const select::Cost& cost = explanation->costs[candidate];
    made.name = select::candidates()[candidate].name.c_str();
    made.microseconds = cost.typical;
    made.incompressible_microseconds = cost.incompressible;
  } else {
    const Alternative& alternative = explanation->alternatives[index - explanation->built_in.size()];
    made.name = alternative.plan->name.c_str();
    made.microseconds = alternative.microseconds;
    made.plan = alternative.plan->plan.c_str();
    made.why_not = alternative.why_not;
  }
  return fill_struct(function, "candidate", made, candidate);
}

void ncast_explanation_destroy(ncast_explanation* explanation) { delete explanation; }

const char* ncast_kernels_hash(void) { return select::kernels_hash(); }

}  // extern "C"

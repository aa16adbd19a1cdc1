// The explanations of narrowcast/explain.h.
#include "narrowcast/explain.h"

#include <cstdio>
#include <memory>
#include <string>

#include "codec/codec.h"
#include "comm/question.h"
#include "executor/communicator.h"
#include "executor/registry.h"
#include "select/decider.h"
#include "status/error.h"
#include "status/sized_struct.h"

struct ncast_explanation {
  narrowcast::select::CallShape shape;
  narrowcast::select::Decision decision;
  std::string costs_warning, sentence;
};

namespace {

using namespace narrowcast;
using comm::assume_communicator;
using comm::shape_of;
using select::CallShape;
using select::Decider;
using select::Decision;

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
  if (decision.plan != nullptr) text += std::string(". Its plan is ") + decision.plan;
  text += std::string(". Values are sent with codec ") + codec::describe(decision.codec) + ": " +
          decision.codec_reason + ".";
  return text + describe(decision.costs);
}

void explain(const CallShape& shape, Decider& decider, ncast_explanation** explanation) {
  const Decision decision = decider.decide(shape);
  auto made = std::make_unique<ncast_explanation>(ncast_explanation{shape, decision, {}, {}});
  if (decision.predicted.is_known()) made->costs_warning = describe_mismatch(decider.costs());
  made->sentence = sentence_of(shape, decision);
  *explanation = made.release();
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
  made.plan = decision.plan;
  return made;
}

}  // namespace

extern "C" {

ncast_status ncast_explain(ncast_operation operation, uint64_t count, ncast_dtype dtype, ncast_codec codec, int ranks,
                           const ncast_comm_config* config, ncast_explanation** explanation) {
  constexpr const char* function = "ncast_explain";
  return guarded(function, [&] {
    if (explanation == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: explanation is NULL", function);
    *explanation = nullptr;
    std::shared_ptr<Decider> decider;
    if (ncast_status status = assume_communicator(function, ranks, config, &decider)) return status;
    CallShape shape{};
    if (ncast_status status = shape_of(function, {operation, count, dtype, codec}, *decider, &shape)) return status;
    explain(shape, *decider, explanation);
    return NCAST_OK;
  });
}

ncast_status ncast_comm_explain(ncast_comm* comm, ncast_operation operation, uint64_t count, ncast_dtype dtype,
                                ncast_codec codec, ncast_explanation** explanation) {
  constexpr const char* function = "ncast_comm_explain";
  return guarded(function, [&] {
    executor::CommUse use;
    if (ncast_status status = use.begin(function, comm)) return status;
    if (explanation == nullptr) return fail(NCAST_INVALID_ARGUMENT, "%s: explanation is NULL", function);
    *explanation = nullptr;
    Decider& decider = *comm->decider();
    CallShape shape{};
    if (ncast_status status = shape_of(function, {operation, count, dtype, codec}, decider, &shape)) return status;
    explain(shape, decider, explanation);
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

const char* ncast_kernels_hash(void) { return select::kernels_hash(); }

}  // extern "C"

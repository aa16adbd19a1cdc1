#include "select/plan_candidate.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "codec/codec.h"
#include "plan/builders/builders.h"
#include "plan/steps.h"
#include "select/allowed_codecs.h"
#include "select/frames.h"

namespace narrowcast::select {
namespace {

// Sums of integers are the same in any order.
bool rounds(ncast_dtype dtype) {
  switch (dtype) {
    case NCAST_INT8:
    case NCAST_UINT8:
    case NCAST_INT32:
    case NCAST_UINT32:
    case NCAST_INT64:
    case NCAST_UINT64: return false;
    default: return true;
  }
}

PlanList make_builder_candidates() {
  PlanList list;
  for (const plan::builders::Row& row : plan::builders::rows()) {
    for (const operation::Description& description : operation::descriptions) {
      const Operation operation = description.operation;
      if (!plan::has_plans(operation) || !row.suits(operation) || row.is_for_nodes) continue;
      if (std::string_view(row.name) == plan_between_processes(operation)) continue;
      PlanCandidate made;
      made.name = std::string(plan::cost_prefix) + row.name;
      made.plan = row.name;
      made.operation = operation;
      made.has_same_results = row.is_in_rank_order || !reduces(operation);
      list.push_back(std::make_shared<PlanCandidate>(std::move(made)));
    }
  }
  return list;
}

}  // namespace

const PlanList& builder_candidates() {
  static const PlanList list = make_builder_candidates();
  return list;
}

const char* why_not(const PlanCandidate& plan, const CallShape& shape) {
  if (shape.result_codec) return "the results have a codec of their own";
  if (plan.ranks != 0 && plan.ranks != shape.ranks) return "it is for another number of ranks";
  if (plan.loaded == 0 && shape.ranks > 1 && !plan::builders::suits_ranks(plan.plan, shape.ranks))
    return "it does not work for this number of ranks";
  if (plan.root && *plan.root != shape.root) return "it has another root";
  if (plan.dtype && *plan.dtype != shape.dtype) return "it was not prepared for this type";
  if (plan.redop && *plan.redop != shape.redop) return "it was not prepared for this reduction";
  if (plan.placement && *plan.placement != shape.placement)
    return *plan.placement == Placement::in_place ? "it only works in place" : "it does not work in place";
  if (shape.bytes < plan.min_bytes) return "the call is too short for it";
  if (shape.bytes > plan.max_bytes) return "the call is too long for it";
  return nullptr;
}

const char* why_not_by_cost(const PlanCandidate& plan, const CallShape& shape) {
  if (!plan.has_same_results && rounds(shape.dtype)) return "it rounds sums in another order or more often";
  const AllowedCodecs allowed = allowed_codecs(shape);
  if (plan.codec) {
    if (!codec::is_exact(*plan.codec)) return "its codec is not exact";
    if (allowed.forced && !allowed.contains(*plan.codec)) return "another codec is forced";
    if (*plan.codec != NCAST_CODEC_RAW && !allowed.contains(*plan.codec)) return "the call does not allow its codec";
  } else if (allowed.forced && !codec::is_exact(allowed.codecs.front())) {
    return "its codec is not exact";
  }
  return nullptr;
}

std::vector<ncast_codec> codecs_by_cost(const PlanCandidate& plan, const CallShape& shape) {
  if (plan.codec) return {*plan.codec};
  AllowedCodecs allowed = allowed_codecs(shape);
  std::erase_if(allowed.codecs,
                [&](ncast_codec codec) { return codec::effective_codec(shape.dtype, codec) == NCAST_CODEC_RAW; });
  std::vector<ncast_codec> list;
  if (!allowed.forced || allowed.codecs.empty()) list.push_back(NCAST_CODEC_RAW);
  std::ranges::copy_if(allowed.codecs, std::back_inserter(list), codec::is_exact);
  return list;
}

std::string cost_name_of(const PlanCandidate& plan, ncast_codec codec) {
  if (plan.codec || codec == NCAST_CODEC_RAW) return plan.name;
  // Codecs with parameters have no costs, and their texts are not names.
  return plan.name + ":" + codec::describe(codec);
}

}  // namespace narrowcast::select

// The functions of plan.h that build plans.
#include <memory>

#include "plan/builders/builders.h"
#include "plan/handle.h"
#include "status/sized_struct.h"

using namespace narrowcast;
using plan::builders::Row;

namespace {

uint64_t operations_of(const Row& row) {
  uint64_t bits = 0;
  for (const operation::Description& description : operation::descriptions) {
    if (row.suits(description.operation)) bits |= uint64_t{1} << static_cast<unsigned>(description.operation);
  }
  return bits;
}

}  // namespace

extern "C" {

int ncast_plan_builder_count(void) { return static_cast<int>(plan::builders::rows().size()); }

ncast_status ncast_plan_builder_describe(int index, ncast_plan_builder* builder) {
  constexpr const char* function = "ncast_plan_builder_describe";
  const std::span<const Row> rows = plan::builders::rows();
  if (index < 0 || static_cast<size_t>(index) >= rows.size())
    return fail(NCAST_INVALID_ARGUMENT, "%s: index is %d, not 0 to %zu", function, index, rows.size() - 1);
  const Row& row = rows[static_cast<size_t>(index)];
  const ncast_plan_builder described = {sizeof described, row.name, row.text, operations_of(row)};
  return fill_struct(function, "builder", described, builder);
}

ncast_status ncast_plan_build(const char* name, const ncast_plan_request* request, ncast_plan** plan) {
  constexpr const char* function = "ncast_plan_build";
  if (name == nullptr || request == nullptr || plan == nullptr) {
    return fail(NCAST_INVALID_ARGUMENT, "%s: %s is NULL", function,
                name == nullptr      ? "name"
                : request == nullptr ? "request"
                                     : "plan");
  }
  return guarded(function, [&] {
    ncast_plan_request given = {};
    if (ncast_status status = read_struct("request", *request, offsetof(ncast_plan_request, root), &given))
      return status;
    const auto operation = operation::find(given.operation);
    if (!operation)
      return fail(NCAST_INVALID_ARGUMENT, "%s: operation is %d, which is not an operation", function,
                  static_cast<int>(given.operation));
    plan::builders::Request wanted;
    wanted.operation = *operation;
    wanted.ranks = given.ranks;
    wanted.root = given.root;
    wanted.codec = given.codec;
    if (given.depth != 0) wanted.depth = given.depth;
    if (given.ranks_per_node != 0) wanted.ranks_per_node = given.ranks_per_node;
    auto built = std::make_unique<ncast_plan>();
    if (ncast_status status = plan::builders::build(name, wanted, &built->plan)) return status;
    *plan = built.release();
    return NCAST_OK;
  });
}

}  // extern "C"

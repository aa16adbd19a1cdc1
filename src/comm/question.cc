#include "comm/question.h"

#include <algorithm>
#include <cinttypes>
#include <optional>
#include <string>
#include <utility>

#include "codec/codec.h"
#include "comm/arguments.h"
#include "select/options.h"
#include "status/error.h"
#include "status/sized_struct.h"

namespace narrowcast::comm {
namespace {

// Loads the options and the cost model. The messages of its errors do not begin with the name of a function.
ncast_status load(const ncast_comm_config* given, select::Options* options, select::CostModel* costs) {
  ncast_comm_config config;
  if (ncast_status status = read_config(given, &config)) return status;
  if (ncast_status status = select::Options::of(config, options)) return status;
  return options->load_costs(costs);
}

}  // namespace

ncast_status shape_of(const char* function, const Question& question, const select::Decider& decider,
                      select::CallShape* shape) {
  const std::optional<operation::Operation> operation = operation::find(question.operation);
  if (!operation)
    return fail(NCAST_INVALID_ARGUMENT, "%s: operation is %d, which is not an operation", function,
                static_cast<int>(question.operation));
  const size_t value_bytes = ncast_dtype_bytes(question.dtype);
  if (value_bytes == 0)
    return fail(NCAST_INVALID_ARGUMENT, "%s: dtype is %d, which is not a value type", function,
                static_cast<int>(question.dtype));
  if (ncast_status status = check_codec(function, *operation, question.dtype, question.op, question.codec))
    return status;
  if (question.result_codec)
    if (ncast_status status = check_result_codec(function, *operation, question.dtype, question.op, question.codec,
                                                 *question.result_codec))
      return status;
  if (decider.levels() != nullptr && *operation == operation::Operation::all_to_all_v)
    return fail(NCAST_UNSUPPORTED, "%s: in two levels all_to_all_v consists of messages: ask about send", function);
  if (decider.is_on_gpus())
    if (ncast_status status = check_on_gpu(function, question.codec, question.result_codec)) return status;
  // A call of two levels is predicted step by step: the number of steps grows with the bytes.
  const uint64_t most_bytes = decider.levels() == nullptr ? INT64_MAX / select::most_gpu_ranks : uint64_t{1} << 40;
  if (question.count > most_bytes / value_bytes)
    return fail(NCAST_INVALID_ARGUMENT, "%s: count is %" PRIu64 ", which exceeds the address space", function,
                question.count);
  *shape = decider.shape_of(*operation, question.dtype, codec::canonical(question.codec), question.count * value_bytes,
                            question.op, question.root, question.placement);
  shape->result_codec = other_codec(question.codec, question.result_codec);
  return NCAST_OK;
}

ncast_status read_question(const char* function, const ncast_plan_call* call, Question* question) {
  if (call == nullptr) return null_argument(function, "call");
  ncast_plan_call given = {};
  if (ncast_status status = read_struct("call", *call, offsetof(ncast_plan_call, ranks), &given)) {
    const std::string message = ncast_last_error();
    return fail(status, "%s: %s", function, message.c_str());
  }
  if (given.op < NCAST_SUM || given.op > NCAST_AVG)
    return fail(NCAST_INVALID_ARGUMENT, "%s: op is %d", function, static_cast<int>(given.op));
  if (given.placement < NCAST_PLACEMENT_UNKNOWN || given.placement > NCAST_PLACEMENT_IN_PLACE)
    return fail(NCAST_INVALID_ARGUMENT, "%s: placement is %d", function, given.placement);
  *question = {given.operation,
               given.count,
               given.dtype,
               given.codec,
               given.op,
               given.root,
               static_cast<select::Placement>(given.placement),
               given.result_codec == nullptr ? std::nullopt : std::optional(*given.result_codec)};
  return NCAST_OK;
}

ncast_status assume_communicator(const char* function, int ranks, const ncast_comm_config* config,
                                 std::shared_ptr<select::Decider>* decider) {
  select::Options options;
  select::CostModel costs;
  if (ncast_status status = load(config, &options, &costs)) {
    const std::string message = ncast_last_error();
    return fail(status, "%s: %s", function, message.c_str());
  }
  if (ranks < 1 || ranks > select::most_gpu_ranks)
    return fail(NCAST_INVALID_ARGUMENT, "%s: ranks is %d, not 1 to %d", function, ranks, select::most_gpu_ranks);
  const uint32_t most_ctas =
      options.over_host ? select::most_ctas_over_host(options.shared_bytes, false) : select::most_block_ctas;
  const select::CommTraits traits{.ranks = ranks,
                                  .link = options.over_host ? select::Link::host : select::Link::nvlink,
                                  .max_ctas = std::min(options.max_ctas, most_ctas),
                                  .transport = options.transport,
                                  .clusters = !options.over_host,
                                  .shared_bytes = options.shared_bytes,
                                  .max_collective_ctas = options.max_collective_ctas};
  *decider = std::make_shared<select::Decider>(traits, std::move(costs));
  return NCAST_OK;
}

}  // namespace narrowcast::comm

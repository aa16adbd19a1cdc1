#include "operation/operation.h"

#include <cstddef>

namespace narrowcast::collective {
namespace {

constexpr const char* function_names[] = {"ncast_send",           "ncast_recv",       "ncast_broadcast",
                                          "ncast_reduce",         "ncast_gather",     "ncast_scatter",
                                          "ncast_all_gather",     "ncast_all_to_all", "ncast_all_to_all_v",
                                          "ncast_reduce_scatter", "ncast_all_reduce"};

}  // namespace

const char* function_name(Operation operation) { return function_names[static_cast<size_t>(operation)]; }

}  // namespace narrowcast::collective

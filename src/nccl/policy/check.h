// Explains a settings file: its errors, and which calls each of its rules takes.
#pragma once

#include <string>
#include <vector>

#include "nccl/settings/settings.h"

namespace narrowcast::nccl {

// The names of what takes all calls that the rule with this index matches: earlier rules, or "off". Empty: the rule
// takes some.
std::vector<std::string> covered_by(const Settings& settings, size_t rule);

// A JSON object, for `narrowcast policy check`:
//   faults   messages, as the drop-in logs them
//   codec    the file's own, for each operation that has one: {operation, codec, lossy}
//   take     the file's own; or null
//   rules    valid rules, in their order, with all conditions, also those that the file does not state:
//            {name, line, operations, dtypes, reductions, min_bytes, max_bytes (null: any), ranks (null: any),
//            communicator (null: any), codec, result_codec (null: codec), take, lossy, covered_by}
std::string check_policy(const std::string& path);

}  // namespace narrowcast::nccl

// What the environment and a TOML file ask of the drop-in. docs/guide/nccl.md says what each setting does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "narrowcast/types.h"
#include "nccl/abi/operations.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {

// automatic: where the cost model says that it is faster.
enum class Take { automatic, always, never };

// When the ranks of a communicator may attach: at its first collective, or as soon as it is made.
enum class Attach { first, init };

// Of the file: what holds for the calls that fit. What is not named fits every call.
struct Rule {
  std::optional<Operation> operation;
  std::optional<ncast_dtype> dtype;
  uint64_t min_bytes = 0;           // of the largest piece that a rank sends another, as in CallShape
  uint64_t max_bytes = UINT64_MAX;  // inclusive
  std::optional<int> ranks;
  std::string communicator;  // its commName; empty: any
  std::optional<ncast_codec> codec;
  std::optional<Take> take;
};

inline constexpr uint32_t most_ctas = 64;  // of a call of the engine's

struct Settings {
  bool off_everything = false;
  bool off[operation_count] = {};
  // Of the environment, before any rule; and of the file, where no rule has one.
  std::optional<ncast_codec> codec[operation_count], otherwise_codec[operation_count];
  std::optional<Take> take, otherwise_take;
  Attach attach = Attach::first;
  bool verify = false;
  bool nvtx = true;
  std::string stats;         // the path, with %p for the process and %r for the rank of its first communicator
  double stats_seconds = 0;  // between writes; 0: only at exit
  // Of the engine's communicators (ncast_comm_config); what is not set is left to the engine.
  uint64_t scratch_bytes = 0;
  uint32_t max_ctas = 0;
  std::optional<bool> p2p;
  std::string cost_model;
  std::optional<Level> debug;
  std::string nccl_library, nccl_library_from;  // the path, and what names it
  std::vector<Rule> rules;                      // the first that fits decides
};

// Read once; what cannot be understood is warned of and left out.
const Settings& settings();

// For settings() and its tests. `content` is that of a file, `path` names it in warnings.
void apply_file(std::string_view content, const std::string& path, Settings* settings);
// `key` as in a file, or a variable without its prefix, in lower case; `source` names it in warnings. False: there is no such
// setting.
bool apply_setting(std::string_view key, std::string_view value, const std::string& source, Settings* settings);

// What all ranks of a communicator must have alike.
uint64_t digest(const Settings& settings);

}  // namespace narrowcast::nccl

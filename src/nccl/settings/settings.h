// The settings of the drop-in, from the environment and a TOML file. docs/guide/nccl.md documents each of them.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "environment/communicator_variables.h"
#include "narrowcast/comm.h"
#include "nccl/abi/nccl_types.h"
#include "nccl/abi/operations.h"
#include "nccl/report/log.h"

namespace narrowcast::nccl {

// Which calls run on the engine. automatic: those that the cost model predicts to be faster.
enum class TakeMode { automatic, always, never };

// When the ranks of a communicator attach: at its first collective, or when it is created.
enum class Attach { first, init };

// Whether a pattern with *, ? and [...], as of file names, matches a commName, or its part before the last colon: names
// of torch are "DESCRIPTION:ID".
bool matches_name(const std::string& pattern, std::string_view name);

// What rules and plans require of a call and of its communicator.
struct Conditions {
  uint64_t min_bytes = 0;           // of the largest piece that one rank sends another
  uint64_t max_bytes = UINT64_MAX;  // inclusive
  std::optional<int> ranks;
  std::string communicator;  // a pattern of its commName; empty: any

  bool suit(int rank_count, std::string_view name) const {
    return (!ranks || *ranks == rank_count) && (communicator.empty() || matches_name(communicator, name));
  }
};

using Operations = std::bitset<operation_count>;
using Dtypes = std::bitset<value_types>;
using Redops = std::bitset<first_user_reduction>;

// A rule of the file. It applies to calls that match all of its conditions.
struct Rule : Conditions {
  std::string name;       // "rule 1", ... if the file gives none
  uint32_t line = 0;      // of the file
  Operations operations;  // with sends, never receives, which follow their sends
  Dtypes dtypes;
  Redops redops;  // only of operations that reduce
  std::optional<ncast_codec> codec;
  std::optional<ncast_codec> result_codec;  // of the results of all_reduce; nullopt: as `codec`
  std::optional<TakeMode> take;

  bool is_lossy() const;
};

// A lossy codec changes only calls of at least this size, these reductions and no broadcasts, unless a rule
// states others.
inline constexpr uint64_t least_lossy_bytes = 64 << 10;
inline const Redops lossy_redops = Redops().set(NCAST_SUM).set(NCAST_AVG);

// Which calls a plan is used for.
struct PlanRule : Conditions {
  std::string file;                 // a name in the folder of plans, or an absolute path
  std::vector<ncast_dtype> dtypes;  // empty: the default
  std::vector<ncast_redop> redops;  // empty: sum
  bool always = false;              // otherwise where the cost model predicts that it is faster
};

struct PlanFile {
  std::string path, content;
  std::vector<PlanRule> rules;  // one or more
};

struct Settings {
  bool off_everything = false;
  bool off[operation_count] = {};
  // By precedence: the environment (codec, take), the first rule that matches, the file (fallback_...).
  std::optional<ncast_codec> codec[operation_count], fallback_codec[operation_count];
  std::optional<TakeMode> take, fallback_take;
  Attach attach = Attach::first;
  bool verify = false;
  bool nvtx = true;
  std::string stats;         // a path; %p: process id, %r: rank in the first communicator
  double stats_seconds = 0;  // between writes; 0: only at exit
  std::string record;        // a path; %p: process id
  // For ncast_comm_config. The engine reads no variable of these settings.
  uint64_t scratch_bytes = 0;
  uint32_t max_ctas = environment::unset_ctas;
  bool p2p = true;
  std::string cost_model;         // empty: the built-in one
  std::optional<bool> calibrate;  // unset: as the backend says
  std::optional<Level> debug;
  std::string nccl_library, nccl_library_from;  // the path, and the setting's source for messages
  std::vector<Rule> rules;                      // the first that matches applies
  std::string plans;                            // the folder
  std::vector<PlanRule> plan_rules;
  std::vector<PlanFile> plan_files;  // read_plan_files() reads them
};

// Read once. Invalid settings are ignored with a warning.
const Settings& settings();

// The following are used by settings(), to check files, and by tests. path: for warnings.
void parse_file(std::string_view content, const std::string& path, Settings* settings);
// The same, but if there is any warning, no codec of the file is used that is not exact: an invalid rule may have been
// meant to protect calls.
void apply_file(std::string_view content, const std::string& path, Settings* settings);
inline constexpr uint64_t most_file_bytes = uint64_t{1} << 20;
// key: as in a file; for a variable, its name in lower case without the prefix. source: for warnings. False: unknown
// key.
bool apply_setting(std::string_view key, std::string_view value, const std::string& source, Settings* settings);

// Reads the files of the folder and of the rules. Files that cannot be read are ignored with a warning.
void read_plan_files(Settings* settings);

// The settings that must be the same on all ranks of a communicator, and their names in messages.
enum class Shared {
  off,
  codec,
  take,
  attach,
  verify,
  scratch_bytes,
  p2p,
  cost_model,
  rules,
  plans,
  path,
  levels,
  partial_sums,
  names
};
inline constexpr std::array shared_setting_names = {"off",
                                                    "codec",
                                                    "take",
                                                    "attach",
                                                    "verify",
                                                    "scratch_bytes",
                                                    "p2p",
                                                    "cost_model",
                                                    "rules",
                                                    "plans",
                                                    "NARROWCAST_PATH",
                                                    "NARROWCAST_LEVELS",
                                                    "NARROWCAST_PARTIAL_SUMS",
                                                    "names of communicators"};

// Hashes of them, by Shared.
class SettingsDigest {
 public:
  SettingsDigest() { hashes_.fill(0xcbf29ce484222325); }
  void mix(Shared setting, uint64_t word);
  void mix(Shared setting, std::string_view text);
  bool operator==(const SettingsDigest&) const = default;
  // The name of the first setting that differs; NULL if none does.
  const char* difference(const SettingsDigest& other) const;

 private:
  std::array<uint64_t, shared_setting_names.size()> hashes_;
};

// Of all settings except `path`, `levels`, `partial_sums` and `names`, which do not come from Settings.
SettingsDigest digest(const Settings& settings);

}  // namespace narrowcast::nccl

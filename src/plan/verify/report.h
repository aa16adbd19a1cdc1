// What the verifier found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace narrowcast::plan::verify {

// unsupported: neither proved nor refuted.
enum class Verdict : uint8_t { proved, refuted, unsupported };
// docs/design/plans.md, "What is proved".
enum class Property : uint8_t { none, structure, bounds, undefined, deadlock, race, result };

inline constexpr const char* verdict_names[] = {"proved", "refuted", "unsupported"};
inline constexpr const char* property_names[] = {"", "structure", "bounds", "undefined", "deadlock", "race", "result"};

constexpr const char* name_of(Verdict verdict) { return verdict_names[static_cast<size_t>(verdict)]; }
constexpr const char* name_of(Property property) { return property_names[static_cast<size_t>(property)]; }

// A step of a plan. -1: the statement is about no rank, group or step in particular.
struct Where {
  int rank = -1;
  int group = -1;
  int step = -1;  // index in the group; of the loop if the step is in one
  int body = -1;  // index in the loop
  uint32_t origin = 0;
};

// A step that leads to the fault, and what it does there.
struct TraceStep {
  Where where;
  std::string text;
};

// Why a plan is not proved.
struct Finding {
  Property property = Property::none;
  Where where;
  std::string message;
  std::vector<TraceStep> trace;

  bool found() const { return property != Property::none; }
};

struct Report {
  Verdict verdict = Verdict::proved;
  Finding finding;

  // Whether the plan is also correct if every message of several chunks is sent as several messages of one chunk.
  bool split_ok = false;
  Finding split_finding;

  // The least depth of all rings at which the plan completes, whole and with messages split. 0: it has no rings, or
  // does not complete at any depth.
  uint32_t least_depth = 0;
  uint32_t depth_needed_when_split = 0;

  // How often a value is rounded on its way to an output, at most: by reductions, and by lossy codecs.
  uint32_t roundings = 0;
  uint32_t inexact_encodings = 0;
  bool rank_order = true;       // every output combines the ranks in ascending order
  bool same_everywhere = true;  // ranks that receive the same chunk receive the same bits

  // The steps whose result first has the values of all ranks: with NCAST_AVG they divide it. can_average: whether every
  // step does so for all of its chunks, or for none.
  std::vector<Where> completing;
  bool can_average = true;

  uint64_t steps = 0;  // of all ranks, loops unrolled
  double seconds = 0;
};

// "rank 1, group 0, step 3", with the origin if there is one.
std::string describe(const Where& where);
std::string to_json(const Report& report);

}  // namespace narrowcast::plan::verify

// The ways in which a call can run, and NCCL's ways, with which they are compared. Their names are the keys of costs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "narrowcast/types.h"
#include "plan/cost_name.h"

namespace narrowcast::select {

// frames: between processes on CPUs.
enum class Transport : uint8_t { packets, blocks, nccl, frames };

struct Candidate {
  std::string_view name;  // a string literal
  Transport transport;
  ncast_codec codec = NCAST_CODEC_RAW;  // if the transport is blocks or frames
};

inline constexpr Candidate candidates[] = {
    {"packets", Transport::packets},
#define NCAST_CODEC_ROW(id, SYMBOL, name, ...) {"blocks:" #name, Transport::blocks, id},
#include "narrowcast/codecs.def"
#define NCAST_CODEC_ROW(id, SYMBOL, name, ...) {"frames:" #name, Transport::frames, id},
#include "narrowcast/codecs.def"
    {"nccl", Transport::nccl},          // NCCL's fastest way
    {"nccl:default", Transport::nccl},  // what NCCL does without symmetric windows and copy engines
};
inline constexpr size_t candidate_count = std::size(candidates);

constexpr std::optional<size_t> find_candidate(std::string_view name) {
  for (size_t i = 0; i < candidate_count; ++i)
    if (candidates[i].name == name) return i;
  return std::nullopt;
}
// The candidate must exist.
// NOLINTNEXTLINE(bugprone-unchecked-optional-access)
constexpr size_t index_of(std::string_view name) { return *find_candidate(name); }
constexpr size_t index_of(Transport transport, ncast_codec codec) {
  const ncast_codec id = codec & 0xff;  // without its parameters
  for (size_t i = 0; i < candidate_count; ++i)
    if (candidates[i].transport == transport && candidates[i].codec == id) return i;
  return 0;  // not reached: there is a row for every codec
}

inline constexpr size_t most_plan_name = 96;  // characters
// Whether the name is one of a plan: the prefix, then letters, digits and "_-.:@".
constexpr bool is_plan_name(std::string_view name) {
  if (!name.starts_with(plan::cost_prefix) || name.size() == plan::cost_prefix.size() || name.size() > most_plan_name)
    return false;
  for (const char one : name) {
    const bool is_letter = (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9');
    if (!is_letter && std::string_view("_-.:@").find(one) == std::string_view::npos) return false;
  }
  return true;
}

// Links between the ranks of a call.
enum class Link : uint8_t { nvlink, pcie, host, shared_memory };
inline constexpr size_t link_count = 4;
// host: GPUs whose payloads go through host memory. shared_memory: processes on CPUs.
constexpr const char* link_names[link_count] = {"nvlink", "pcie", "host", "shm"};
constexpr const char* name_of(Link link) { return link_names[static_cast<size_t>(link)]; }
constexpr std::optional<Link> find_link(std::string_view name) {
  for (size_t i = 0; i < link_count; ++i)
    if (name == link_names[i]) return static_cast<Link>(i);
  return std::nullopt;
}

constexpr bool runs_on(const Candidate& candidate, Link link) {
  return (candidate.transport == Transport::frames) == (link == Link::shared_memory);
}
// The candidates that run on a link, by index.
inline std::vector<size_t> candidates_of(Link link) {
  std::vector<size_t> list;
  for (size_t i = 0; i < candidate_count; ++i)
    if (runs_on(candidates[i], link)) list.push_back(i);
  return list;
}

// Microseconds; 0: not known, or the candidate cannot run the call. typical: for values that shrink as weights do.
// incompressible: for values that no codec shrinks.
struct Cost {
  double typical = 0, incompressible = 0;
  bool is_known() const { return typical != 0; }
};

// The costs of all candidates.
class Costs {
 public:
  Cost& operator[](size_t candidate) { return costs_[candidate]; }
  const Cost& operator[](size_t candidate) const { return costs_[candidate]; }
  const Cost& of(std::string_view name) const { return costs_[index_of(name)]; }

 private:
  std::array<Cost, candidate_count> costs_ = {};
};

}  // namespace narrowcast::select

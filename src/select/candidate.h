// The ways in which a call can run, and NCCL's ways, with which they are compared. Their names are the keys of costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "narrowcast/types.h"
#include "plan/cost_name.h"

namespace narrowcast::select {

// frames: between processes on CPUs. steps: in two levels, each step by a transport of its level.
enum class Transport : uint8_t { packets, blocks, nccl, frames, steps };

struct Candidate {
  std::string name;
  Transport transport;
  ncast_codec codec = NCAST_CODEC_RAW;  // an id, if the transport is blocks or frames

  bool is_coded() const { return codec != NCAST_CODEC_RAW; }
};

// "packets"; "blocks:CODEC" and "frames:CODEC" for every codec of the library; "steps"; "nccl", NCCL's fastest way, and
// "nccl:default", what NCCL does without symmetric windows and copy engines.
const std::vector<Candidate>& candidates();

std::optional<size_t> find_candidate(std::string_view name);
// The index of a candidate that exists.
size_t index_of(std::string_view name);
// codec: with or without parameters.
size_t index_of(Transport transport, ncast_codec codec);

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
enum class Link : uint8_t { nvlink, pcie, host, shared_memory, network, gpu_network, two_levels };
inline constexpr size_t link_count = 7;
// host: GPUs whose payloads go through host memory. shared_memory: processes on CPUs. network: such processes on
// several hosts. gpu_network: GPUs on several hosts, whose payloads go through host memory and the network. two_levels:
// other links within hosts than between them.
constexpr const char* link_names[link_count] = {"nvlink",  "pcie",        "host",      "shm",
                                                "network", "gpu_network", "two_levels"};
constexpr bool is_between_hosts(Link link) { return link == Link::network || link == Link::gpu_network; }
constexpr bool is_over_host(Link link) { return link == Link::host || link == Link::gpu_network; }
constexpr bool is_between_processes(Link link) { return link == Link::shared_memory || link == Link::network; }
constexpr const char* name_of(Link link) { return link_names[static_cast<size_t>(link)]; }
constexpr std::optional<Link> find_link(std::string_view name) {
  for (size_t i = 0; i < link_count; ++i)
    if (name == link_names[i]) return static_cast<Link>(i);
  return std::nullopt;
}

inline bool runs_on(const Candidate& candidate, Link link) {
  if (candidate.transport == Transport::packets && link == Link::gpu_network) return false;
  if (link == Link::two_levels || candidate.transport == Transport::steps)
    return link == Link::two_levels &&
           (candidate.transport == Transport::steps || candidate.transport == Transport::nccl);
  return (candidate.transport == Transport::frames) == is_between_processes(link);
}
// The candidates that run on a link, by index.
std::vector<size_t> candidates_of(Link link);

// Microseconds; 0: not known, or the candidate cannot run the call. typical: for values that shrink as weights do.
// incompressible: for values that no codec shrinks.
struct Cost {
  double typical = 0, incompressible = 0;
  bool is_known() const { return typical != 0; }
};

// The costs of all candidates, by index.
using Costs = std::vector<Cost>;

}  // namespace narrowcast::select

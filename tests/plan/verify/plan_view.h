// A plan as the model checker sees it: which elements of memory its threads and engines access.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/ir.h"

namespace narrowcast::plan::verify::testing {

// Why a plan is incorrect.
struct Fault {
  std::string text;
};

// A value in memory: rank, buffer after aliasing, chunk, element.
struct Element {
  int rank;
  Buffer buffer;
  uint32_t chunk;
  int element;
  auto operator<=>(const Element&) const = default;
};

// How the threads of a group divide an access; threads of one group do not conflict if it is the same.
struct Division {
  Buffer buffer;
  uint32_t chunk, count;
  bool packets;
  bool operator==(const Division&) const = default;
};

struct Access {
  Element element;
  bool is_write;
  bool is_packet;
  Division division;
};

struct EngineItem {
  uint8_t step;      // of the group
  uint8_t position;  // among the destinations, or `signal`
  static constexpr uint8_t signal = 255;
  auto operator<=>(const EngineItem&) const = default;
};

class PlanView {
 public:
  PlanView(const Plan& given, bool is_in_place);

  const Plan& plan;
  const bool in_place;
  const int threads;                           // of a group
  std::vector<std::pair<int, size_t>> groups;  // of all ranks: rank, and index in it

  const std::vector<Step>& steps(size_t group) const {
    return plan.ranks[static_cast<size_t>(groups[group].first)].groups[groups[group].second].steps;
  }
  size_t group_of(int rank, size_t index) const {
    const auto found = std::find(groups.begin(), groups.end(), std::pair(rank, index));
    return static_cast<size_t>(found - groups.begin());
  }
  bool is_port(const Operand& operand) const {
    return operand.place == Place::remote && plan.channels[operand.channel].kind == ChannelKind::port;
  }

  Element element_at(int rank, Buffer buffer, uint32_t chunk, int element) const;

  std::vector<int> ranks_of(int rank, const Operand& operand) const;

  // The elements of a location operand that a thread accesses; of all threads if thread is -1.
  std::vector<Access> accesses_of(int rank, const Step& step, const Operand& operand, bool is_write, int thread,
                                  int call) const;

  // What the threads of the group access themselves; the rest is done by engines.
  std::vector<Access> own_accesses(size_t group, size_t index, int thread, int call) const;

  // The operand whose channel's engine executes destination `position` of the step; NULL if the group does.
  const Operand* engine_operand(const Step& step, size_t position) const;

  std::vector<Access> engine_accesses(size_t group, const EngineItem& item, int call) const;

  // Whether ending this step makes the thread's earlier writes visible to whoever it tells.
  bool releases(size_t group, size_t index, int thread) const;
  // Whether the signal, or the wait that sees it, is relaxed. Of channels that several groups wait for, and of
  // semaphores that do not begin with 0, only the signal counts.
  bool is_relaxed(size_t group, size_t index, uint32_t channel) const;

  // Whether the step sends a message that is not packets.
  bool releases_by_message(const Step& step) const;

 private:
  std::vector<std::vector<bool>> is_dependence_;  // by group and step
};

}  // namespace narrowcast::plan::verify::testing

// What an executor needs to know of a plan before it runs. The same on all ranks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "plan/encoded_packets.h"
#include "plan/ir.h"

namespace narrowcast::executor::host {

// Whether a location receives the values as a message with its codec would deliver them.
bool is_rounded(const plan::Operand& operand);

struct PlanFacts {
  explicit PlanFacts(const plan::Plan& plan);

  bool reduces = false;
  bool has_semaphores = false;  // channels with a semaphore, even between groups of one rank
  bool reads_remote_packets = false;
  // By plan::Buffer. Buffers that other ranks access, or that contain packets.
  std::array<bool, 3> is_exposed = {};
  bool uses_scratch = false;
  bool shares_scratch = false;  // several groups of a rank use it
  // If no loop cuts them, a frame is a chunk's whole part in a micro-batch.
  plan::EncodedPackets encoded_packets;
  // By channel: how many chunks the largest message of a ring has.
  std::vector<uint32_t> message_chunks;

  // The ranks that write packets to a location.
  uint64_t packet_writers(int rank, plan::Buffer buffer, uint32_t chunk) const {
    const auto found = packet_writers_.find({rank, buffer, chunk});
    return found == packet_writers_.end() ? 0 : found->second;
  }

  // Whether groups may begin a micro-batch before the others have completed the last one. Then micro-batches share
  // nothing but the order of messages on rings. Otherwise they run like successive calls, for which the plan is proved.
  bool runs_freely() const {
    return !has_semaphores && !shares_scratch && !is_exposed[0] && !is_exposed[1] && !is_exposed[2];
  }
  bool is_exposed_at_all() const { return is_exposed[0] || is_exposed[1] || is_exposed[2]; }
  bool exposes(plan::Buffer buffer) const { return is_exposed[static_cast<size_t>(buffer)]; }

 private:
  void add(const plan::Plan& plan, int rank, const plan::Step& step);
  void add_packet_writer(const plan::Plan& plan, int rank, const plan::Operand& operand, uint32_t count);

  std::map<std::tuple<int, plan::Buffer, uint32_t>, uint64_t> packet_writers_;  // one bit for each rank
};

}  // namespace narrowcast::executor::host

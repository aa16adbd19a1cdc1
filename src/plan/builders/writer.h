// Helper of the builders: writes a plan step by step.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "plan/builders/builders.h"

namespace narrowcast::plan::builders {

Operand input(uint32_t chunk);
Operand output(uint32_t chunk);
Operand scratch(uint32_t chunk);

std::vector<Operand> with(const Operand& first, std::vector<Operand> others);

class Writer {
 public:
  Writer(const Request& request, const char* algorithm, uint32_t chunks, Plan* plan);

  int ranks() const { return request_.ranks; }
  bool is_exact() const { return is_exact_; }
  // The ranks other than `rank`, beginning with the next one, so that not all ranks begin with the same peer.
  std::vector<int> others(int rank) const;

  // Has the messages after this encoded with another codec.
  void use_codec(ncast_codec codec);

  // The next message on the ring from one rank to another.
  Operand message(int from, int to);
  std::vector<Operand> messages(int from, const std::vector<int>& to);
  // The values of all ranks, in rank order: the rank's own, and the next message from each other rank.
  std::vector<Operand> contributions(int rank, const Operand& own);

  // The location as receivers of messages see it: with a bounded codec, values that are stored there become those that
  // a message delivers.
  Operand as_received(Operand location) const;

  // The memory channel from one rank to another.
  uint32_t memory(int from, int to) { return channel(ChannelKind::memory, from, to); }

  // Begins a new group of the rank. The steps below go to the rank's last group.
  void group(int rank);
  void copy(int rank, const Operand& from, std::vector<Operand> to, uint32_t count = 1);
  void reduce(int rank, std::vector<Operand> from, std::vector<Operand> to, uint32_t count = 1);
  void step(int rank, Step step);
  void set_scratch(int rank, uint32_t chunks) { plan_.ranks[static_cast<size_t>(rank)].scratch_chunks = chunks; }

 private:
  // The channel of a kind from one rank to another, added on first use.
  uint32_t channel(ChannelKind kind, int from, int to);

  const Request& request_;
  Plan& plan_;
  ncast_codec codec_;
  bool is_exact_;
  std::map<std::tuple<ChannelKind, int, int>, uint32_t> channels_;
};

}  // namespace narrowcast::plan::builders

// relay: broadcasts and reductions that divide the values into a piece for each rank other than the root. In a
// broadcast the root sends every receiver its piece, which the receiver stores and sends to the other receivers. In a
// reduction every rank sends each piece to the rank that combines it, which sends the result to the root. So every rank
// sends about as much as it receives.
#include "plan/builders/writer.h"

namespace narrowcast::plan::builders {
namespace {

ncast_status relay_broadcast(const Request& request, Plan* plan) {
  const int root = request.root;
  Writer writer(request, "relay", request.ranks > 2 ? static_cast<uint32_t>(request.ranks) - 1 : 1, plan);
  const std::vector<int> receivers = writer.others(root);  // receivers[i] relays chunk i
  writer.group(root);
  if (receivers.empty()) writer.copy(root, input(0), {output(0)});
  for (uint32_t chunk = 0; chunk < receivers.size(); ++chunk) {
    const int receiver = receivers[chunk];
    if (chunk > 0) writer.group(root);
    writer.copy(root, input(chunk), {writer.as_received(output(chunk)), writer.message(root, receiver)});
    for (uint32_t other = 0; other < receivers.size(); ++other) {
      writer.group(receiver);
      if (other != chunk) {
        writer.copy(receiver, writer.message(receivers[other], receiver), {output(other)});
        continue;
      }
      std::vector<Operand> to = {output(chunk)};
      for (const int peer : receivers) {
        if (peer != receiver) to.push_back(writer.message(receiver, peer));
      }
      writer.copy(receiver, writer.message(root, receiver), to);
    }
  }
  return NCAST_OK;
}

// With two ranks, the root combines a piece, too. Ranks first send to the next rank that combines: if all began with
// the same one, they would share its link while others are idle.
ncast_status relay_reduce(const Request& request, Plan* plan) {
  const int root = request.root;
  const bool root_combines = request.ranks <= 2;
  const uint32_t chunks = static_cast<uint32_t>(request.ranks) - (root_combines ? 0 : 1);
  Writer writer(request, "relay", chunks, plan);
  std::vector<int> owners;  // owners[i] combines chunk i
  for (int rank = 0; rank < request.ranks; ++rank)
    if (rank != root || root_combines) owners.push_back(rank);
  const auto chunk_of = [&](int owner) {
    return static_cast<uint32_t>(!root_combines && owner > root ? owner - 1 : owner);
  };
  for (int rank = 0; rank < request.ranks; ++rank) {
    writer.group(rank);
    for (const int owner : writer.others(rank))
      if (root_combines || owner != root) writer.copy(rank, input(chunk_of(owner)), {writer.message(rank, owner)});
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      if (owners[chunk] != rank) continue;
      const std::vector<Operand> contributions = writer.contributions(rank, input(chunk));
      writer.reduce(rank, contributions, {rank == root ? output(chunk) : writer.message(rank, root)});
    }
    for (uint32_t chunk = 0; chunk < chunks && rank == root; ++chunk)
      if (owners[chunk] != rank) writer.copy(rank, writer.message(owners[chunk], rank), {output(chunk)});
  }
  return NCAST_OK;
}

}  // namespace

ncast_status relay(const Request& request, Plan* plan) {
  return request.operation == Operation::broadcast ? relay_broadcast(request, plan) : relay_reduce(request, plan);
}

}  // namespace narrowcast::plan::builders

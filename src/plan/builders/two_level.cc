// two_level: ranks in nodes of equal size. Values cross between nodes once, between the ranks with the same place in
// their nodes, and are distributed, collected or combined within the node.
#include "plan/builders/writer.h"
#include "status/error.h"

namespace narrowcast::plan::builders {
namespace {

struct Nodes {
  int nodes, places;  // of a node: its ranks

  int rank(int node, int place) const { return node * places + place; }
};

class TwoLevel {
 public:
  TwoLevel(Writer* writer, const Nodes& nodes, int rank)
      : writer_(writer), nodes_(nodes), rank_(rank), node_(rank / nodes.places), place_(rank % nodes.places) {
    for (int i = 1; i < nodes.places; ++i) neighbours_.push_back(nodes.rank(node_, (place_ + i) % nodes.places));
    for (int i = 1; i < nodes.nodes; ++i) twins_.push_back(nodes.rank((node_ + i) % nodes.nodes, place_));
  }

  void all_gather() {
    writer_->group(rank_);
    writer_->copy(rank_, input(0), with(writer_->as_received(output(chunk(rank_))), messages(twins_, neighbours_)));
    for (const int twin : twins_) {
      const std::vector<Operand> to = with(output(chunk(twin)), messages(neighbours_));
      writer_->copy(rank_, from(twin), to);
    }
    // A neighbour sends its own piece, then those of its twins (the ranks with the same place in other nodes).
    for (const int neighbour : neighbours_) {
      writer_->group(rank_);
      for (int i = 0; i < nodes_.nodes; ++i) {
        const int owner = nodes_.rank((node_ + i) % nodes_.nodes, neighbour % nodes_.places);
        writer_->copy(rank_, from(neighbour), {output(chunk(owner))});
      }
    }
  }

  // Piece by piece, first within the node, then between the nodes.
  void reduce_scatter() {
    writer_->group(rank_);
    writer_->set_scratch(rank_, 1);
    for (int i = 0; i < nodes_.nodes; ++i) {
      const int node = (node_ + i) % nodes_.nodes;  // its own one first: that piece waits for the other nodes
      for (const int neighbour : neighbours_) {
        writer_->copy(rank_, input(chunk(nodes_.rank(node, neighbour % nodes_.places))), {to(neighbour)});
      }
      const int owner = nodes_.rank(node, place_);
      const Operand sum = owner != rank_ ? to(owner) : nodes_.nodes > 1 ? scratch(0) : output(0);
      writer_->reduce(rank_, in_node_order(input(chunk(owner))), {sum});
    }
    if (nodes_.nodes > 1) writer_->reduce(rank_, in_order_of_nodes(scratch(0)), {output(0)});
  }

  // A reduce-scatter and an all-gather, each within the node and between the nodes. The neighbours of a place reduce
  // `nodes` chunks for it.
  void all_reduce() {
    const auto count = static_cast<uint32_t>(nodes_.nodes);
    const uint32_t own = static_cast<uint32_t>(place_) * count;
    const uint32_t mine = own + static_cast<uint32_t>(node_);
    writer_->group(rank_);
    for (const int neighbour : neighbours_) writer_->copy(rank_, input(first_chunk(neighbour)), {to(neighbour)}, count);
    writer_->reduce(rank_, in_node_order(input(own)), {output(own)}, count);
    for (const int twin : twins_) {
      writer_->copy(rank_, output(own + static_cast<uint32_t>(twin / nodes_.places)), {to(twin)});
    }
    const std::vector<Operand> result = with(writer_->as_received(output(mine)), messages(twins_));
    if (count > 1) writer_->reduce(rank_, in_order_of_nodes(output(mine)), result);
    for (const int twin : twins_) {
      writer_->copy(rank_, from(twin), {output(own + static_cast<uint32_t>(twin / nodes_.places))});
    }
    if (neighbours_.empty()) return;
    writer_->copy(rank_, output(own), with(writer_->as_received(output(own)), messages(neighbours_)), count);
    for (const int neighbour : neighbours_) {
      writer_->copy(rank_, from(neighbour), {output(first_chunk(neighbour))}, count);
    }
  }

  // The root sends to its twins and neighbours; a twin sends to its neighbours.
  void broadcast(int root) {
    writer_->group(rank_);
    if (rank_ == root) {
      writer_->copy(rank_, input(0), with(writer_->as_received(output(0)), messages(twins_, neighbours_)));
    } else if (place_ == root % nodes_.places) {
      const std::vector<Operand> to = with(output(0), messages(neighbours_));
      writer_->copy(rank_, from(root), to);
    } else {
      writer_->copy(rank_, from(nodes_.rank(node_, root % nodes_.places)), {output(0)});
    }
  }

  void reduce(int root) {
    const int place = root % nodes_.places;
    writer_->group(rank_);
    if (place_ != place) return writer_->copy(rank_, input(0), {to(nodes_.rank(node_, place))});
    if (rank_ != root) return writer_->reduce(rank_, in_node_order(input(0)), {to(root)});
    writer_->reduce(rank_, in_node_order(input(0)), {output(0)});
    if (nodes_.nodes > 1) writer_->reduce(rank_, in_order_of_nodes(output(0)), {output(0)});
  }

  // The root's twins collect the pieces of their nodes and send them on in one message.
  void gather(int root) {
    const int place = root % nodes_.places;
    writer_->group(rank_);
    if (place_ != place) return writer_->copy(rank_, input(0), {to(nodes_.rank(node_, place))});
    if (rank_ == root) {
      writer_->copy(rank_, input(0), {output(chunk(rank_))});
      for (const int neighbour : neighbours_) writer_->copy(rank_, from(neighbour), {output(chunk(neighbour))});
      for (const int twin : twins_) writer_->copy(rank_, from(twin), {output(first_of_node(twin))}, places());
      return;
    }
    if (neighbours_.empty()) return writer_->copy(rank_, input(0), {to(root)});
    writer_->set_scratch(rank_, places());
    writer_->copy(rank_, input(0), {scratch(in_node(rank_))});
    for (const int neighbour : neighbours_) writer_->copy(rank_, from(neighbour), {scratch(in_node(neighbour))});
    writer_->copy(rank_, scratch(0), {to(root)}, places());
  }

  // The reverse of a gather.
  void scatter(int root) {
    const int place = root % nodes_.places;
    writer_->group(rank_);
    if (place_ != place) return writer_->copy(rank_, from(nodes_.rank(node_, place)), {output(0)});
    if (rank_ == root) {
      for (const int twin : twins_) writer_->copy(rank_, input(first_of_node(twin)), {to(twin)}, places());
      for (const int neighbour : neighbours_) writer_->copy(rank_, input(chunk(neighbour)), {to(neighbour)});
      return writer_->copy(rank_, input(chunk(rank_)), {output(0)});
    }
    if (neighbours_.empty()) return writer_->copy(rank_, from(root), {output(0)});
    writer_->set_scratch(rank_, places());
    writer_->copy(rank_, from(root), {scratch(0)}, places());
    for (const int neighbour : neighbours_) writer_->copy(rank_, scratch(in_node(neighbour)), {to(neighbour)});
    writer_->copy(rank_, scratch(in_node(rank_)), {output(0)});
  }

  // Node by node, its own last: the ranks of a node exchange the pieces for their twins in that node, and each sends
  // its twin one message.
  void all_to_all() {
    writer_->group(rank_);
    if (!neighbours_.empty()) writer_->set_scratch(rank_, static_cast<uint32_t>(twins_.size()) * places());
    for (int i = 1; i <= nodes_.nodes; ++i) {
      const int node = (node_ + i) % nodes_.nodes;
      const int twin = nodes_.rank(node, place_);
      if (neighbours_.empty() && twin != rank_) {
        writer_->copy(rank_, input(chunk(twin)), {to(twin)});
        continue;
      }
      const uint32_t first = static_cast<uint32_t>(i - 1) * places();
      const auto collected = [&](int owner) {
        return node == node_ ? output(chunk(owner)) : scratch(first + in_node(owner));
      };
      for (const int neighbour : neighbours_)
        writer_->copy(rank_, input(chunk(nodes_.rank(node, neighbour % nodes_.places))), {to(neighbour)});
      writer_->copy(rank_, input(chunk(twin)), {collected(rank_)});
      for (const int neighbour : neighbours_) writer_->copy(rank_, from(neighbour), {collected(neighbour)});
      if (twin != rank_) writer_->copy(rank_, scratch(first), {to(twin)}, places());
    }
    // In a separate group, because twins send to each other at the same time.
    if (!twins_.empty()) writer_->group(rank_);
    for (const int twin : twins_) writer_->copy(rank_, from(twin), {output(first_of_node(twin))}, places());
  }

 private:
  uint32_t places() const { return static_cast<uint32_t>(nodes_.places); }
  uint32_t in_node(int rank) const { return static_cast<uint32_t>(rank % nodes_.places); }
  uint32_t first_of_node(int rank) const { return chunk(rank) - in_node(rank); }
  static uint32_t chunk(int rank) { return static_cast<uint32_t>(rank); }
  // Of an all-reduce: the first of the chunks that a neighbour reduces.
  uint32_t first_chunk(int neighbour) const {
    return static_cast<uint32_t>((neighbour % nodes_.places) * nodes_.nodes);
  }
  Operand to(int peer) { return writer_->message(rank_, peer); }
  Operand from(int peer) { return writer_->message(peer, rank_); }
  std::vector<Operand> messages(std::vector<int> first, const std::vector<int>& second = {}) {
    first.insert(first.end(), second.begin(), second.end());
    return writer_->messages(rank_, first);
  }
  // This rank's values and a message of each other rank of the node, or of each twin.
  std::vector<Operand> in_node_order(const Operand& own) {
    std::vector<Operand> list;
    list.reserve(static_cast<size_t>(nodes_.places));
    for (int place = 0; place < nodes_.places; ++place) {
      list.push_back(place == place_ ? own : from(nodes_.rank(node_, place)));
    }
    return list;
  }
  std::vector<Operand> in_order_of_nodes(const Operand& own) {
    std::vector<Operand> list;
    list.reserve(static_cast<size_t>(nodes_.nodes));
    for (int node = 0; node < nodes_.nodes; ++node)
      list.push_back(node == node_ ? own : from(nodes_.rank(node, place_)));
    return list;
  }

  Writer* writer_;
  const Nodes nodes_;
  const int rank_, node_, place_;
  std::vector<int> neighbours_;  // the other ranks of the node
  std::vector<int> twins_;       // the ranks of other nodes with the same place
};

}  // namespace

ncast_status two_level(const Request& request, Plan* plan) {
  const int places = request.ranks_per_node;
  if (places < 1 || request.ranks % places != 0) {
    return fail(NCAST_INVALID_ARGUMENT, "two_level: ranks_per_node is %d, which does not divide %d ranks", places,
                request.ranks);
  }
  const uint32_t chunks = request.operation == Operation::all_reduce ? static_cast<uint32_t>(request.ranks) : 1;
  Writer writer(request, "two_level", chunks, plan);
  for (int rank = 0; rank < request.ranks; ++rank) {
    TwoLevel level(&writer, {request.ranks / places, places}, rank);
    switch (request.operation) {
      case Operation::all_gather: level.all_gather(); break;
      case Operation::reduce_scatter: level.reduce_scatter(); break;
      case Operation::broadcast: level.broadcast(request.root); break;
      case Operation::reduce: level.reduce(request.root); break;
      case Operation::gather: level.gather(request.root); break;
      case Operation::scatter: level.scatter(request.root); break;
      case Operation::all_to_all: level.all_to_all(); break;
      default: level.all_reduce(); break;
    }
  }
  return NCAST_OK;
}

}  // namespace narrowcast::plan::builders

// tree: a binomial tree whose root is the operation's, or rank 0. Reductions go up, broadcasts go down; an all-reduce
// does both. In gathers and scatters every rank passes the pieces of its subtree on, one message each.
#include "plan/builders/writer.h"

namespace narrowcast::plan::builders {
namespace {

class Tree {
 public:
  Tree(int ranks, int root) : ranks_(ranks), root_(root) {}

  bool is_root(int rank) const { return rank == root_; }
  int parent(int rank) const {
    const int place = place_of(rank);
    return rank_at(place & (place - 1));
  }
  // The child with the largest subtree first.
  std::vector<int> children(int rank) const {
    const int place = place_of(rank);
    std::vector<int> list;
    for (int bit = 1; place + bit < ranks_ && (place & bit) == 0; bit *= 2)
      list.insert(list.begin(), rank_at(place + bit));
    return list;
  }
  // The ranks of a subtree, in the order in which their pieces are sent.
  std::vector<int> subtree(int rank) const {
    std::vector<int> list = {rank};
    for (const int child : children(rank)) {
      const std::vector<int> below = subtree(child);
      list.insert(list.end(), below.begin(), below.end());
    }
    return list;
  }

 private:
  int place_of(int rank) const { return (rank - root_ + ranks_) % ranks_; }
  int rank_at(int place) const { return (place + root_) % ranks_; }

  int ranks_;
  int root_;
};

// `values`: the values that the root sends.
void send_down(Writer* writer, const Tree& tree, int rank, const Operand& values) {
  const Operand own = tree.is_root(rank) ? writer->as_received(output(0)) : output(0);
  const std::vector<Operand> to = with(own, writer->messages(rank, tree.children(rank)));
  writer->copy(rank, tree.is_root(rank) ? values : writer->message(tree.parent(rank), rank), to);
}

// `to`: the location of the result at the root.
void reduce_up(Writer* writer, const Tree& tree, int rank, const std::vector<Operand>& to) {
  std::vector<Operand> from = {input(0)};
  for (const int child : tree.children(rank)) from.push_back(writer->message(child, rank));
  writer->reduce(rank, from, tree.is_root(rank) ? to : std::vector{writer->message(rank, tree.parent(rank))});
}

void all_reduce(Writer* writer, const Tree& tree, int rank) {
  reduce_up(writer, tree, rank, with(writer->as_received(output(0)), writer->messages(rank, tree.children(rank))));
  if (!tree.is_root(rank)) send_down(writer, tree, rank, {});
}

void gather(Writer* writer, const Tree& tree, int rank) {
  const auto target = [&](int piece) {
    return tree.is_root(rank) ? output(static_cast<uint32_t>(piece)) : writer->message(rank, tree.parent(rank));
  };
  writer->copy(rank, input(0), {target(rank)});
  for (const int child : tree.children(rank)) {
    for (const int piece : tree.subtree(child)) writer->copy(rank, writer->message(child, rank), {target(piece)});
  }
}

void scatter(Writer* writer, const Tree& tree, int rank) {
  const auto source = [&](int piece) {
    return tree.is_root(rank) ? input(static_cast<uint32_t>(piece)) : writer->message(tree.parent(rank), rank);
  };
  writer->copy(rank, source(rank), {output(0)});
  for (const int child : tree.children(rank)) {
    for (const int piece : tree.subtree(child)) writer->copy(rank, source(piece), {writer->message(rank, child)});
  }
}

}  // namespace

ncast_status tree(const Request& request, Plan* plan) {
  Writer writer(request, "tree", 1, plan);
  const Tree tree(request.ranks, operation::has_root(request.operation) ? request.root : 0);
  for (int rank = 0; rank < request.ranks; ++rank) {
    writer.group(rank);
    switch (request.operation) {
      case Operation::broadcast: send_down(&writer, tree, rank, input(0)); break;
      case Operation::reduce: reduce_up(&writer, tree, rank, {output(0)}); break;
      case Operation::gather: gather(&writer, tree, rank); break;
      case Operation::scatter: scatter(&writer, tree, rank); break;
      default: all_reduce(&writer, tree, rank); break;
    }
  }
  return NCAST_OK;
}

}  // namespace narrowcast::plan::builders

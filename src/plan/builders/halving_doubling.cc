// halving_doubling: log2(ranks) exchanges with ranks at distances that are powers of two. All-gathers double the number
// of pieces that a rank has, reduce-scatters halve the number that it still reduces, all-reduces do both. Two ranks
// combine their values in rank order.
#include "plan/builders/writer.h"

namespace narrowcast::plan::builders {
namespace {

// Rank r owns piece r. At distance d it exchanges the d pieces of a block with rank r ^ d.
constexpr uint32_t block(uint32_t rank, uint32_t distance) { return rank / distance * distance; }

class HalvingDoubling {
 public:
  HalvingDoubling(Writer* writer, int rank, const Request& request)
      : writer_(writer),
        rank_(rank),
        self_(static_cast<uint32_t>(rank)),
        ranks_(static_cast<uint32_t>(request.ranks)) {}

  // The rank's own piece is in the output.
  void gather() {
    for (uint32_t distance = 1; distance < ranks_; distance *= 2) {
      const uint32_t peer = self_ ^ distance;
      writer_->copy(rank_, output(block(self_, distance)), {to(peer)}, distance);
      writer_->copy(rank_, from(peer), {output(block(peer, distance))}, distance);
    }
  }

  // sums(piece): the location of the sum of a piece. result: that of the sum of the rank's own piece.
  template <typename Sums, typename Result>
  void reduce(Sums sums, Result result) {
    bool is_first = true;
    for (uint32_t distance = ranks_ / 2; distance >= 1; distance /= 2) {
      const uint32_t peer = self_ ^ distance;
      const auto source = [&](uint32_t piece) { return is_first ? input(piece) : sums(piece); };
      writer_->copy(rank_, source(block(peer, distance)), {to(peer)}, distance);
      const uint32_t own = block(self_, distance);
      std::vector<Operand> sources = {source(own), from(peer)};
      if (peer < self_) std::swap(sources[0], sources[1]);
      writer_->reduce(rank_, sources, {distance == 1 ? result : sums(own)}, distance);
      is_first = false;
    }
  }

  Operand to(uint32_t peer) { return writer_->message(rank_, static_cast<int>(peer)); }
  Operand from(uint32_t peer) { return writer_->message(static_cast<int>(peer), rank_); }

 private:
  Writer* writer_;
  const int rank_;
  const uint32_t self_;
  const uint32_t ranks_;
};

}  // namespace

ncast_status halving_doubling(const Request& request, Plan* plan) {
  const auto ranks = static_cast<uint32_t>(request.ranks);
  const Operation operation = request.operation;
  Writer writer(request, "halving_doubling", operation == Operation::all_reduce ? ranks : 1, plan);
  for (int rank = 0; rank < request.ranks; ++rank) {
    const auto self = static_cast<uint32_t>(rank);
    writer.group(rank);
    HalvingDoubling exchange(&writer, rank, request);
    const uint32_t own = operation == Operation::reduce_scatter ? 0 : self;
    if (operation == Operation::all_gather || ranks == 1) {
      writer.copy(rank, input(0), {writer.as_received(output(own))});
    } else if (operation == Operation::all_reduce) {
      exchange.reduce([](uint32_t piece) { return output(piece); }, writer.as_received(output(self)));
    } else {
      // The input is not modified. Only the rank's half of the pieces has sums.
      writer.set_scratch(rank, ranks / 2);
      exchange.reduce([=](uint32_t piece) { return scratch(piece % (ranks / 2)); }, output(0));
    }
    if (operation != Operation::reduce_scatter) exchange.gather();
  }
  return NCAST_OK;
}

}  // namespace narrowcast::plan::builders

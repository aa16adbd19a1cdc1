// one_shot and two_shot: every rank stores its values as packets in the scratch memory of the ranks that need them, so
// a value arrives after one flight. An all-reduce in one shot sends all values to all ranks; in two shots every rank
// reduces a part and sends the result. Calls use two scratch buffers in turn: a rank that is a call ahead does not
// overwrite packets that have not been read.
#include "plan/builders/writer.h"

namespace narrowcast::plan::builders {
namespace {

class Shots {
 public:
  Shots(Writer* writer, const Request& request, int rank)
      : writer_(writer), codec_(request.codec), rank_(rank), ranks_(request.ranks) {}

  uint32_t self() const { return static_cast<uint32_t>(rank_); }
  Operand packets(uint32_t chunk) const {
    Operand operand = scratch(chunk);
    operand.packets = true;
    operand.codec = codec_;
    return operand;
  }
  Operand packets_of(int peer, uint32_t chunk) {
    Operand operand = packets(chunk);
    operand.place = Place::remote;
    operand.channel = writer_->memory(rank_, peer);
    return operand;
  }

  // Sends every other rank its piece of the input.
  void send_pieces() {
    for (const int peer : writer_->others(rank_)) {
      writer_->copy(rank_, input(static_cast<uint32_t>(peer)), {packets_of(peer, self())});
    }
  }
  // Sends the values to all others.
  void send(const Operand& values, uint32_t chunk, std::vector<Operand> also) {
    for (const int peer : writer_->others(rank_)) also.push_back(packets_of(peer, chunk));
    writer_->copy(rank_, values, std::move(also));
  }
  void receive(uint32_t first_chunk) {
    for (const int peer : writer_->others(rank_)) {
      const auto piece = static_cast<uint32_t>(peer);
      writer_->copy(rank_, packets(first_chunk + piece), {output(piece)});
    }
  }
  // The contributions of all ranks in rank order.
  std::vector<Operand> contributions(const Operand& own) const {
    std::vector<Operand> list;
    list.reserve(static_cast<size_t>(ranks_));
    for (int rank = 0; rank < ranks_; ++rank)
      list.push_back(rank == rank_ ? own : packets(static_cast<uint32_t>(rank)));
    return list;
  }

 private:
  Writer* writer_;
  const ncast_codec codec_;
  const int rank_, ranks_;
};

}  // namespace

ncast_status one_shot(const Request& request, Plan* plan) {
  Writer writer(request, "one_shot", 1, plan);
  plan->scratch_copies = 2;
  for (int rank = 0; rank < request.ranks; ++rank) {
    Shots shots(&writer, request, rank);
    const uint32_t own = shots.self();
    writer.set_scratch(rank, request.ranks > 1 ? static_cast<uint32_t>(request.ranks) : 0);
    writer.group(rank);
    switch (request.operation) {
      case Operation::all_gather:
        shots.send(input(0), own, {writer.as_received(output(own))});
        shots.receive(0);
        break;
      case Operation::all_to_all:
        writer.copy(rank, input(own), {output(own)});
        shots.send_pieces();
        shots.receive(0);
        break;
      case Operation::reduce_scatter:
        shots.send_pieces();
        writer.reduce(rank, shots.contributions(input(own)), {output(0)});
        break;
      default:
        if (request.ranks == 1) {
          writer.copy(rank, input(0), {output(0)});
        } else if (writer.is_exact()) {
          shots.send(input(0), own, {});
          writer.reduce(rank, shots.contributions(input(0)), {output(0)});
        } else {
          // All ranks must combine the same bits, so this rank decodes its own contribution, too.
          shots.send(input(0), own, {shots.packets(own)});
          writer.reduce(rank, shots.contributions(shots.packets(own)), {output(0)});
        }
    }
  }
  return NCAST_OK;
}

ncast_status two_shot(const Request& request, Plan* plan) {
  const auto ranks = static_cast<uint32_t>(request.ranks);
  Writer writer(request, "two_shot", ranks, plan);
  plan->scratch_copies = 2;
  for (int rank = 0; rank < request.ranks; ++rank) {
    Shots shots(&writer, request, rank);
    const uint32_t own = shots.self();
    // The contributions to this rank's chunk, then the results of all ranks.
    writer.set_scratch(rank, ranks > 1 ? 2 * ranks : 0);
    writer.group(rank);
    shots.send_pieces();
    std::vector<Operand> to = {writer.as_received(output(own))};
    for (const int peer : writer.others(rank)) to.push_back(shots.packets_of(peer, ranks + own));
    writer.reduce(rank, shots.contributions(input(own)), to);
    shots.receive(ranks);
  }
  return NCAST_OK;
}

}  // namespace narrowcast::plan::builders

// all_pairs: every rank sends each value directly to the ranks that need it. Reductions combine the values of all ranks
// in rank order in one step. An all-reduce is a reduce-scatter and an all-gather.
#include "plan/builders/writer.h"

namespace narrowcast::plan::builders {
namespace {

constexpr uint32_t index(int rank) { return static_cast<uint32_t>(rank); }

void broadcast(Writer* writer, int root) {
  for (int rank = 0; rank < writer->ranks(); ++rank) {
    writer->group(rank);
    if (rank == root) {
      const std::vector<Operand> messages = writer->messages(rank, writer->others(rank));
      writer->copy(rank, input(0), with(writer->as_received(output(0)), messages));
    } else {
      writer->copy(rank, writer->message(root, rank), {output(0)});
    }
  }
}

void reduce(Writer* writer, int root) {
  for (int rank = 0; rank < writer->ranks(); ++rank) {
    writer->group(rank);
    if (rank == root)
      writer->reduce(rank, writer->contributions(rank, input(0)), {output(0)});
    else
      writer->copy(rank, input(0), {writer->message(rank, root)});
  }
}

void gather(Writer* writer, int root) {
  for (int rank = 0; rank < writer->ranks(); ++rank) {
    writer->group(rank);
    if (rank != root) {
      writer->copy(rank, input(0), {writer->message(rank, root)});
      continue;
    }
    writer->copy(rank, input(0), {output(index(rank))});
    for (const int peer : writer->others(rank)) {
      writer->group(rank);
      writer->copy(rank, writer->message(peer, rank), {output(index(peer))});
    }
  }
}

void scatter(Writer* writer, int root) {
  for (int rank = 0; rank < writer->ranks(); ++rank) {
    writer->group(rank);
    if (rank != root) {
      writer->copy(rank, writer->message(root, rank), {output(0)});
      continue;
    }
    writer->copy(rank, input(index(rank)), {output(0)});
    for (const int peer : writer->others(rank)) {
      writer->group(rank);
      writer->copy(rank, input(index(peer)), {writer->message(rank, peer)});
    }
  }
}

void all_gather(Writer* writer) {
  for (int rank = 0; rank < writer->ranks(); ++rank) {
    const std::vector<int> others = writer->others(rank);
    writer->group(rank);
    writer->copy(rank, input(0), with(writer->as_received(output(index(rank))), writer->messages(rank, others)));
    for (const int peer : others) {
      writer->group(rank);
      writer->copy(rank, writer->message(peer, rank), {output(index(peer))});
    }
  }
}

void all_to_all(Writer* writer) {
  for (int rank = 0; rank < writer->ranks(); ++rank) {
    writer->group(rank);
    writer->copy(rank, input(index(rank)), {output(index(rank))});
    for (const int peer : writer->others(rank)) {
      writer->group(rank);
      writer->copy(rank, input(index(peer)), {writer->message(rank, peer)});
      writer->group(rank);
      writer->copy(rank, writer->message(peer, rank), {output(index(peer))});
    }
  }
}

void reduce_scatter(Writer* writer) {
  for (int rank = 0; rank < writer->ranks(); ++rank) {
    for (const int peer : writer->others(rank)) {
      writer->group(rank);
      writer->copy(rank, input(index(peer)), {writer->message(rank, peer)});
    }
    writer->group(rank);
    writer->reduce(rank, writer->contributions(rank, input(index(rank))), {output(0)});
  }
}

// The owner of a chunk rounds it, so all ranks get the same bits. All steps are in one group: they use the same rings,
// and in place a chunk is overwritten only after it has been sent.
void all_reduce(Writer* writer, ncast_codec codec, ncast_codec result_codec) {
  for (int rank = 0; rank < writer->ranks(); ++rank) {
    const std::vector<int> others = writer->others(rank);
    const uint32_t own = index(rank);
    writer->group(rank);
    writer->use_codec(codec);
    for (const int peer : others) writer->copy(rank, input(index(peer)), {writer->message(rank, peer)});
    const std::vector<Operand> contributions = writer->contributions(rank, input(own));
    writer->use_codec(result_codec);
    writer->reduce(rank, contributions, with(writer->as_received(output(own)), writer->messages(rank, others)));
    for (const int peer : others) writer->copy(rank, writer->message(peer, rank), {output(index(peer))});
  }
}

}  // namespace

ncast_status all_pairs(const Request& request, Plan* plan) {
  const uint32_t chunks = request.operation == Operation::all_reduce ? index(request.ranks) : 1;
  Writer writer(request, "all_pairs", chunks, plan);
  switch (request.operation) {
    case Operation::broadcast: broadcast(&writer, request.root); break;
    case Operation::reduce: reduce(&writer, request.root); break;
    case Operation::gather: gather(&writer, request.root); break;
    case Operation::scatter: scatter(&writer, request.root); break;
    case Operation::all_gather: all_gather(&writer); break;
    case Operation::all_to_all: all_to_all(&writer); break;
    case Operation::reduce_scatter: reduce_scatter(&writer); break;
    default: all_reduce(&writer, request.codec, request.result_codec.value_or(request.codec)); break;
  }
  return NCAST_OK;
}

}  // namespace narrowcast::plan::builders

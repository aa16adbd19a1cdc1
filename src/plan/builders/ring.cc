// ring: every rank receives from the rank before it and sends to the next one. All-gathers and reduce-scatters pass one
// piece a step, all-reduces do both. Broadcasts and reductions to a root pass all values along the chain of ranks that
// ends, or begins, at the root's neighbour.
#include "plan/builders/writer.h"

namespace narrowcast::plan::builders {
namespace {

// The ring as a rank sees it. Rank r owns chunk r.
struct Ring {
  Writer* writer;
  int rank;
  int ranks;

  int next() const { return (rank + 1) % ranks; }
  int before() const { return (rank + ranks - 1) % ranks; }
  // The chunk of the rank that is `steps` before this one.
  uint32_t chunk(int steps) const { return static_cast<uint32_t>(((rank - steps) % ranks + ranks) % ranks); }

  Operand received() const { return writer->message(before(), rank); }
  Operand sent() const { return writer->message(rank, next()); }
};

// Every chunk passes around the ring. Its owner has already sent it.
void pass_around(const Ring& ring) {
  for (int step = 1; step < ring.ranks; ++step) {
    std::vector<Operand> to = {output(ring.chunk(step))};
    if (step < ring.ranks - 1) to.push_back(ring.sent());
    ring.writer->copy(ring.rank, ring.received(), to);
  }
}

void all_gather(const Ring& ring) {
  std::vector<Operand> to = {ring.writer->as_received(output(ring.chunk(0)))};
  if (ring.ranks > 1) to.push_back(ring.sent());
  ring.writer->copy(ring.rank, input(0), to);
  pass_around(ring);
}

// The values of chunk c travel from rank c + 1 around to rank c, which stores the result to `to`.
void reduce_around(const Ring& ring, const std::vector<Operand>& to) {
  if (ring.ranks == 1) return ring.writer->copy(ring.rank, input(0), to);
  ring.writer->copy(ring.rank, input(ring.chunk(1)), {ring.sent()});
  for (int step = 2; step < ring.ranks; ++step) {
    ring.writer->reduce(ring.rank, {ring.received(), input(ring.chunk(step))}, {ring.sent()});
  }
  ring.writer->reduce(ring.rank, {ring.received(), input(ring.chunk(0))}, to);
}

void all_reduce(const Ring& ring) {
  std::vector<Operand> to = {ring.writer->as_received(output(ring.chunk(0)))};
  if (ring.ranks > 1) to.push_back(ring.sent());
  reduce_around(ring, to);
  pass_around(ring);
}

void broadcast(const Ring& ring, int root) {
  const bool sends = ring.next() != root;
  std::vector<Operand> to = {output(0)};
  if (ring.rank == root) to = {ring.writer->as_received(output(0))};
  if (sends) to.push_back(ring.sent());
  ring.writer->copy(ring.rank, ring.rank == root ? input(0) : ring.received(), to);
}

void reduce(const Ring& ring, int root) {
  const std::vector<Operand> to = {ring.rank == root ? output(0) : ring.sent()};
  if (ring.before() == root || ring.ranks == 1)
    ring.writer->copy(ring.rank, input(0), to);
  else
    ring.writer->reduce(ring.rank, {ring.received(), input(0)}, to);
}

}  // namespace

ncast_status ring(const Request& request, Plan* plan) {
  const uint32_t chunks = request.operation == Operation::all_reduce ? static_cast<uint32_t>(request.ranks) : 1;
  Writer writer(request, "ring", chunks, plan);
  for (int rank = 0; rank < request.ranks; ++rank) {
    writer.group(rank);
    const Ring ring{&writer, rank, request.ranks};
    switch (request.operation) {
      case Operation::all_gather: all_gather(ring); break;
      case Operation::reduce_scatter: reduce_around(ring, {output(0)}); break;
      case Operation::broadcast: broadcast(ring, request.root); break;
      case Operation::reduce: reduce(ring, request.root); break;
      default: all_reduce(ring); break;
    }
  }
  return NCAST_OK;
}

}  // namespace narrowcast::plan::builders

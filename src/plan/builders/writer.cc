#include "plan/builders/writer.h"

#include "codec/codec.h"

namespace narrowcast::plan::builders {
namespace {

Operand local(Buffer buffer, uint32_t chunk) {
  Operand operand;
  operand.buffer = buffer;
  operand.chunk = chunk;
  return operand;
}

}  // namespace

Operand input(uint32_t chunk) { return local(Buffer::input, chunk); }
Operand output(uint32_t chunk) { return local(Buffer::output, chunk); }
Operand scratch(uint32_t chunk) { return local(Buffer::scratch, chunk); }

std::vector<Operand> with(const Operand& first, std::vector<Operand> others) {
  others.insert(others.begin(), first);
  return others;
}

Writer::Writer(const Request& request, const char* algorithm, uint32_t chunks, Plan* plan)
    : request_(request), plan_(*plan), codec_(request.codec), is_exact_(codec::is_exact(request.codec)) {
  plan_ = {};
  plan_.name = std::string(operation::name_of(request.operation)) + " " + algorithm;
  plan_.operation = request.operation;
  plan_.root = operation::has_root(request.operation) ? request.root : 0;
  plan_.chunks = chunks;
  plan_.ranks.resize(static_cast<size_t>(request.ranks));
  const auto overlap = operation::describe(request.operation).overlap;
  plan_.in_place = overlap == operation::Overlap::IN_PLACE ? InPlace::either : InPlace::no;
}

void Writer::use_codec(ncast_codec codec) {
  codec_ = codec;
  is_exact_ = codec::is_exact(codec);
}

std::vector<int> Writer::others(int rank) const {
  std::vector<int> list;
  for (int i = 1; i < ranks(); ++i) list.push_back((rank + i) % ranks());
  return list;
}

uint32_t Writer::channel(ChannelKind kind, int from, int to) {
  const auto [entry, is_new] = channels_.try_emplace({kind, from, to}, static_cast<uint32_t>(plan_.channels.size()));
  if (is_new) {
    Channel& added = plan_.channels.emplace_back();
    added.kind = kind;
    added.from = from;
    added.to = to;
    if (kind == ChannelKind::ring) added.depth = request_.depth;
  }
  return entry->second;
}

Operand Writer::message(int from, int to) {
  Operand operand;
  operand.place = Place::message;
  operand.channel = channel(ChannelKind::ring, from, to);
  operand.codec = codec_;
  return operand;
}

std::vector<Operand> Writer::messages(int from, const std::vector<int>& to) {
  std::vector<Operand> list;
  list.reserve(to.size());
  for (const int peer : to) list.push_back(message(from, peer));
  return list;
}

std::vector<Operand> Writer::contributions(int rank, const Operand& own) {
  std::vector<Operand> list;
  list.reserve(static_cast<size_t>(ranks()));
  for (int from = 0; from < ranks(); ++from) list.push_back(from == rank ? own : message(from, rank));
  return list;
}

Operand Writer::as_received(Operand location) const {
  if (!is_exact_ && ranks() > 1) location.codec = codec_;
  return location;
}

void Writer::group(int rank) { plan_.ranks[static_cast<size_t>(rank)].groups.emplace_back(); }

void Writer::step(int rank, Step step) {
  plan_.ranks[static_cast<size_t>(rank)].groups.back().steps.push_back(std::move(step));
}

void Writer::copy(int rank, const Operand& from, std::vector<Operand> to, uint32_t count) {
  Step copy;
  copy.count = count;
  copy.from = {from};
  copy.to = std::move(to);
  step(rank, std::move(copy));
}

void Writer::reduce(int rank, std::vector<Operand> from, std::vector<Operand> to, uint32_t count) {
  if (from.size() == 1) return copy(rank, from[0], std::move(to), count);
  Step reduce;
  reduce.kind = StepKind::reduce;
  reduce.count = count;
  reduce.from = std::move(from);
  reduce.to = std::move(to);
  step(rank, std::move(reduce));
}

}  // namespace narrowcast::plan::builders

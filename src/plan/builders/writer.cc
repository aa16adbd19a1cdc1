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

Writer::Writer(const Request& request, const char* algorithm, uint32_t chunks, Plan* plan)
    : request_(request), plan_(*plan), is_exact_(codec::is_exact(request.codec)) {
  plan_ = {};
  plan_.name = std::string(operation::name_of(request.operation)) + " " + algorithm;
  plan_.operation = request.operation;
  plan_.root = operation::has_root(request.operation) ? request.root : 0;
  plan_.chunks = chunks;
  plan_.ranks.resize(static_cast<size_t>(request.ranks));
  const auto overlap = operation::describe(request.operation).overlap;
  plan_.in_place = overlap == operation::Overlap::IN_PLACE ? InPlace::either : InPlace::no;
}

std::vector<int> Writer::others(int rank) const {
  std::vector<int> list;
  for (int i = 1; i < ranks(); ++i) list.push_back((rank + i) % ranks());
  return list;
}

Operand Writer::message(int from, int to) {
  const auto [entry, is_new] = rings_.try_emplace({from, to}, static_cast<uint32_t>(plan_.channels.size()));
  if (is_new) {
    Channel channel;
    channel.kind = ChannelKind::ring;
    channel.from = from;
    channel.to = to;
    channel.depth = request_.depth;
    plan_.channels.push_back(channel);
  }
  Operand operand;
  operand.place = Place::message;
  operand.channel = entry->second;
  operand.codec = request_.codec;
  return operand;
}

std::vector<Operand> Writer::messages(int from, const std::vector<int>& to) {
  std::vector<Operand> list;
  list.reserve(to.size());
  for (const int peer : to) list.push_back(message(from, peer));
  return list;
}

Operand Writer::as_received(Operand location) const {
  if (!is_exact_ && ranks() > 1) location.codec = request_.codec;
  return location;
}

uint32_t Writer::memory(int from, int to) {
  const auto [entry, is_new] = memories_.try_emplace({from, to}, static_cast<uint32_t>(plan_.channels.size()));
  if (is_new) {
    Channel channel;
    channel.kind = ChannelKind::memory;
    channel.from = from;
    channel.to = to;
    plan_.channels.push_back(channel);
  }
  return entry->second;
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
